"""Options that several benchmarks have."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from benchmarks import plan as plans
from dbfs.building.build import ORDERS
from dbfs_workers.search.backends import BACKENDS

Command = TypeVar("Command", bound=Callable[..., Any])


def value(name: str, default: Any, about: str, kind: Any = None, **more: Any) -> Callable[[Command], Command]:
    """Return an option with a default that the help shows."""
    return click.option(name, default=default, type=kind, show_default=True, help=about, **more)


def count(name: str, default: int, about: str, least: int = 1) -> Callable[[Command], Command]:
    """Return an option that is a number of at least ``least``."""
    return value(name, default, about, click.IntRange(least))


def choices(name: str, default: Sequence[str], about: str, among: Sequence[str]) -> Callable[[Command], Command]:
    """Return an option that may be repeated, of some of ``among``."""
    return value(name, default, f"{about}; may be repeated.", click.Choice(among), multiple=True)


def ranks(default: int) -> Callable[[Command], Command]:
    """Return the option ``--ranks``."""
    return count("--ranks", default, "Number of workers.")


def order(default: str) -> Callable[[Command], Command]:
    """Return the option ``--order``."""
    return value("--order", default, "Order of the vertices.", click.Choice(ORDERS))


def folder(about: str) -> Callable[[Command], Command]:
    """Return the option ``--out``, a folder."""
    return click.option("--out", type=click.Path(file_okay=False, path_type=Path), help=about)


graph = value("--graph", "kronecker:scale=20", "A generator or a file.")
backend = value("--backend", "cpu", "Device of the workers.", click.Choice(BACKENDS))
memory = value(
    "--memory-limit", "auto", "Memory limit of each local worker, as Dask writes it (auto, 8GiB, ...); 0 for no limit."
)


def plan(command: Command) -> Command:
    """Add the option ``--plan``, whose help names the plans of ``configs/bench`` for the command."""
    names = ", ".join(plans.names(command.__name__))
    return value("--plan", "small", f"The plan: {names}, or the path of a YAML file.")(command)


gpus = count("--gpus", 1, "Number of GPUs.")
gpu_graphs = click.option(
    "--graph", "graphs", multiple=True, help="Only graphs whose name contains this; may be repeated."
)
json = click.option(
    "--json",
    "file",
    is_flag=False,
    flag_value="-",
    metavar="[FILE]",
    help="Write the results to this file as JSON; without a file, print JSON in place of the tables.",
)
