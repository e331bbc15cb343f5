"""Options and helpers that several benchmarks share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import click
import distributed

import dbfs
from dbfs.cli.common import connect
from dbfs.cluster.local import LOOPBACK
from dbfs.errors import InvalidOptionError
from dbfs.progress import Bar


class OfGraph(Protocol):
    """What a benchmark measures of one graph."""

    @property
    def graph(self) -> str:
        """The graph's name."""
        ...


Named = TypeVar("Named", bound=OfGraph)

ranks_option = click.option("--ranks", type=click.IntRange(1), default=4, show_default=True, help="Number of workers.")
memory_option = click.option(
    "--memory-limit",
    default="auto",
    show_default=True,
    help="Memory limit of each local worker, as Dask writes it (auto, 8GiB, ...); 0 for no limit.",
)


def connect_workers(scheduler: str | None, ranks: int, backend: str, memory_limit: str) -> distributed.Client:
    """Connect to ``scheduler``, or to a local cluster of ``ranks`` workers with that memory limit if it is None."""
    if scheduler is not None:
        return connect(scheduler, ranks, backend)
    limit: Any = 0 if memory_limit == "0" else memory_limit
    return dbfs.connect(n_workers=ranks, backend=backend, dashboard_address=f"{LOOPBACK}:0", memory_limit=limit)


def advancing(bar: Bar) -> Callable[[str], None]:
    """Return a callback for the start of a measurement: it names it on the bar, and counts the earlier ones as done."""
    done = itertools.count()
    return lambda what: bar.set(next(done), what)


def chosen(named: Iterable[Named], parts: Sequence[str]) -> list[Named]:
    """Return those whose graph's name contains one of ``parts``; all if there are no parts.

    Raises:
        InvalidOptionError: no name contains any of them.
    """
    everything = list(named)
    found = [one for one in everything if not parts or any(part in one.graph for part in parts)]
    if not found:
        names = ", ".join(dict.fromkeys(one.graph for one in everything))
        raise InvalidOptionError(f"--graph {', '.join(parts)}: no graph's name contains this; the graphs are {names}")
    return found
