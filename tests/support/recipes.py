"""The commands of Dask in the pages and manifests, as they stand there."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
_COMMAND = re.compile(r"dask (scheduler|(cuda )?worker) .*")
_MADE = {"_build", "generated"}


def commands(page: Path) -> list[list[str]]:
    """Words of each command of Dask in the blocks of a page, and of each in running text that has an address."""
    text = page.read_text(encoding="utf-8")
    lines = [
        line
        for block in re.findall(r"^```.*?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        for line in block.splitlines()
    ]
    lines += [code for code in re.findall(r"`(dask [^`]*)`", text) if "://" in code]
    return [shlex.split(line, comments=True) for line in lines if _COMMAND.match(line)]


def every_command() -> Iterator[tuple[str, list[str]]]:
    """Where each command of Dask stands, and its words: of all pages, of the manifests, and of the job script."""
    pages = [
        ROOT / "README.md",
        *(page for folder in ("configs", "docs") for page in sorted((ROOT / folder).rglob("*.md"))),
    ]
    for page in pages:
        if not _MADE & set(page.parts):
            yield from ((str(page.relative_to(ROOT)), words) for words in commands(page))
    for manifest in sorted((ROOT / "configs" / "kubernetes").glob("*.yaml")):
        yield from ((manifest.name, words) for words in _arguments(yaml.safe_load(manifest.read_text())))
    script = (ROOT / "configs" / "slurm" / "job.sh").read_text().replace("\\\n", " ")
    arrays = re.findall(r"worker=\((dask .*)\)", script)
    scheduler = re.findall(r"^(dask scheduler .*) &$", script, re.MULTILINE)
    workers = [
        array + rest for array in arrays for rest in re.findall(r'"\$\{worker\[@\]\}"(.*) &$', script, re.MULTILINE)
    ]
    yield from (("job.sh", shlex.split(line)) for line in (*scheduler, *workers))


def _arguments(document: object) -> Iterator[list[str]]:
    if isinstance(document, dict):
        arguments = document.get("args")
        if arguments and arguments[0] == "dask":
            yield arguments
        for value in document.values():
            yield from _arguments(value)
    elif isinstance(document, list):
        for value in document:
            yield from _arguments(value)


def option(words: list[str], name: str) -> str | None:
    """Value of an option of a command; None without the option."""
    return words[words.index(name) + 1] if name in words else None
