"""The pages are true: links lead to files, commands parse, and the first example prints the output shown."""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import distributed
import pytest

import dbfs
from dbfs.cli import main
from dbfs.errors import DbfsError

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
PAGES += [page for folder in ("configs", "docs", "examples") for page in sorted((ROOT / folder).rglob("*.md"))]
# What a build of the site has made of them is not in the repository.
PAGES = [page for page in PAGES if not {"_build", "generated"} & set(page.parts)]


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Language and text of each block of code."""
    yield from re.findall(r"^```([^`\n]*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


LINKED = {page: targets for page in PAGES if (targets := re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")))}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    for target in LINKED[page]:
        file = (page.parent / target).resolve()
        # A checkout has no docs/generated before the site is built.
        made = file.is_relative_to(ROOT / "docs" / "generated")
        assert target.startswith("http") or (file.exists() and not made), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_parse(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tcp://host:8786")
    text = page.read_text(encoding="utf-8")
    lines = [line for _, block in blocks(page) for line in block.splitlines()]
    for line in [*lines, *re.findall(r"`(dbfs [a-z][^`]*)`", text)]:
        words = shlex.split(line, comments=True)
        if words[:1] == ["dbfs"] and words[1:] != ["COMMAND", "--help"]:
            parse(main, words[1:])


def parse(command: click.Command, words: list[str]) -> None:
    """Fail if a command refuses these words. Runs no command."""
    if isinstance(command, click.Group) and words and words[0] != "--help":
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, words
        parse(found, words[1:])
    elif "--help" not in words and words:
        try:
            command.make_context(command.name, list(words))
        except (click.UsageError, DbfsError) as error:
            pytest.fail(f"{command.name} {words}: {error}")


def test_no_text_installs_dbfs_from_the_package_index() -> None:
    # The package is not there: what works is an installation from a clone.
    sources = (file for folder in ("dbfs", "workers", "examples") for file in (ROOT / folder).rglob("*"))
    for file in (*PAGES, *(file for file in sources if file.suffix in (".py", ".yaml", ".ipynb"))):
        assert not re.search(r"pip install '?dbfs\b", file.read_text(encoding="utf-8")), file


def test_the_first_example_prints_what_the_page_says(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, leaves_nothing: None
) -> None:
    (_, code), (_, printed), *_ = blocks(ROOT / "README.md")
    monkeypatch.setattr(dbfs, "connect", lambda **options: client)
    printing = io.StringIO()
    with contextlib.redirect_stdout(printing):
        exec(code, {})
    # The times and rates differ from run to run.
    timing = re.compile(r"[\d.]+ [mµ]?s, [\d.e+-]+ [MG]TEPS")
    first, path = printing.getvalue().splitlines()
    expected, expected_path = printed.splitlines()
    assert timing.sub("", first) == timing.sub("", expected)
    assert (path[:3], len(path.split(","))) == (expected_path[:3], len(expected_path.split(",")))


@pytest.mark.full
def test_a_table_of_names_prints_what_the_page_says(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, leaves_nothing: None
) -> None:
    (_, code), (_, printed), *_ = blocks(ROOT / "docs" / "how-to" / "own-data.md")
    monkeypatch.setattr(dbfs, "connect", lambda **options: client)
    printing = io.StringIO()
    with contextlib.redirect_stdout(printing):
        exec(code, {})
    assert printing.getvalue() == printed
