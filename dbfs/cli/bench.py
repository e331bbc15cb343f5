"""``dbfs bench``: the benchmarks, which lie beside the package in a checkout. A wheel has none."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from dbfs.errors import MissingFileError

_CHECKOUT = Path(__file__).parents[2]


class Benchmarks(click.Group):
    """The commands of ``benchmarks``, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the benchmarks; errors as for ``_modules``."""
        return sorted(_modules(ctx))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a benchmark; errors as for ``_modules``."""
        module = _modules(ctx).get(cmd_name)
        if module is None:
            return None
        found: click.Command = getattr(importlib.import_module(f"benchmarks.{module}"), cmd_name.replace("-", "_"))
        return found


@click.group(cls=Benchmarks)
def bench() -> None:
    """Measure this machine, from a checkout of dbfs.

    Example: dbfs bench levels
    """


def _modules(ctx: click.Context) -> dict[str, str]:
    """Return the module of each benchmark; none for a shell's completion if the benchmarks are missing.

    Raise ``MissingFileError`` if dbfs was not imported from a checkout.
    """
    # Any project may have left a folder of this name beside an installed dbfs.
    if not (_CHECKOUT / "pyproject.toml").is_file() or not (_CHECKOUT / "benchmarks").is_dir():
        if ctx.resilient_parsing:
            return {}
        raise MissingFileError(
            f"dbfs bench: the benchmarks are in no wheel, and dbfs is imported from {_CHECKOUT}; they are the folder "
            "benchmarks/ of a clone of dbfs: run pip install -e . there"
        )
    # Ahead of installed packages, which may have modules named benchmarks or tests.
    if sys.path[0] != str(_CHECKOUT):
        sys.path.insert(0, str(_CHECKOUT))
    modules: dict[str, str] = importlib.import_module("benchmarks").COMMANDS
    return modules
