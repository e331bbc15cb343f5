"""Options and helpers that several benchmarks share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import distributed

import dbfs
from dbfs.cli.common import connect

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
    local: dict[str, Any] = {"dashboard_address": ":0", "memory_limit": 0 if memory_limit == "0" else memory_limit}
    return dbfs.connect(n_workers=ranks, backend=backend, **local)


def matches(graph: str, parts: Sequence[str]) -> bool:
    """Return whether a graph's name contains one of ``parts``; every name does if there are no parts."""
    return not parts or any(part in graph for part in parts)
