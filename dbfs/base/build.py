"""Which dbfs this is: its version, and the commit that tells two builds of one version apart.

Wheels and sdists have their commit in the file ``dbfs/COMMIT``, which ``hatch_build.py`` writes. A checkout's commit
is what its ``.git`` says when this module is imported; changes without a commit are not told apart. ``git`` itself is
not asked: it need not be installed, and refuses checkouts of other users.
"""

from importlib.metadata import version
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parents[1]
# Digits of a commit that are shown and compared.
_DIGITS: Final = 12


def commit_of(package: Path) -> str | None:
    """Return the commit that the folder ``dbfs`` of a build or of a checkout is of; None if nothing says so."""
    try:
        if (built := package / "COMMIT").is_file():
            return built.read_text().strip()
        git = package.parent / ".git"
        if git.is_file():  # a worktree's
            git = package.parent / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head[:_DIGITS]
        ref = head.removeprefix("ref: ")
        common = git / (git / "commondir").read_text().strip() if (git / "commondir").is_file() else git
        if (common / ref).is_file():
            return (common / ref).read_text().strip()[:_DIGITS]
        packed = (line.split() for line in (common / "packed-refs").read_text().splitlines())
        return next((words[0][:_DIGITS] for words in packed if words[1:] == [ref]), None)
    except OSError:
        return None


COMMIT: Final = commit_of(_PACKAGE)


def build() -> str:
    """Return the version with the commit, such as ``0.3.0+g1c524c1a9b02``; the version alone if no commit is known."""
    return version("dbfs") + (f"+g{COMMIT}" if COMMIT else "")
