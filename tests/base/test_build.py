"""The commit of a build, beside what git says of the same folder."""

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

import dbfs
from dbfs.base import build
from dbfs.cli import main


def git(folder: Path, *words: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(
        ["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "one")
    return folder


def said(folder: Path) -> str:
    return git(folder, "rev-parse", "--short=12", "HEAD")


def test_a_branch_a_packed_branch_and_no_branch(checkout: Path) -> None:
    assert build.commit_of(checkout / "dbfs") == said(checkout)
    git(checkout, "branch", "another")
    git(checkout, "pack-refs", "--all")
    assert not list((checkout / ".git" / "refs" / "heads").iterdir())
    git(checkout, "commit", "--quiet", "--allow-empty", "-m", "two")
    # The branch has moved on, and its packed line has not.
    assert build.commit_of(checkout / "dbfs") == said(checkout)
    git(checkout, "switch", "--quiet", "another")
    assert build.commit_of(checkout / "dbfs") == said(checkout)
    git(checkout, "switch", "--quiet", "--detach", "HEAD")
    assert build.commit_of(checkout / "dbfs") == said(checkout)


def test_a_worktree_has_a_commit_of_its_own(checkout: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git(checkout, "worktree", "add", "--quiet", str(other), "-b", "side")
    git(other, "commit", "--quiet", "--allow-empty", "-m", "two")
    assert build.commit_of(other / "dbfs") == said(other) != build.commit_of(checkout / "dbfs")


def test_a_wheel_has_its_file_and_a_copy_has_nothing(checkout: Path, tmp_path: Path) -> None:
    package = checkout / "dbfs"
    package.mkdir()
    (package / "COMMIT").write_text("1c524c1a9b02\n")
    assert build.commit_of(package) == "1c524c1a9b02"
    assert build.commit_of(tmp_path / "dbfs") is None
    unborn = tmp_path / "unborn"
    unborn.mkdir()
    git(unborn, "init", "--quiet")
    assert build.commit_of(unborn / "dbfs") is None


def test_the_command_says_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CliRunner().invoke(main, ["--version"]).output.split()[-1] == build.build()
    monkeypatch.setattr(build, "COMMIT", None)
    assert build.build() == dbfs.__version__
