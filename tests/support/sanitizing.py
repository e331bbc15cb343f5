"""A process and a GPU for each rank, without Dask: the sanitizer should slow down the kernels only."""

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Final

SECONDS: Final = 300.0
"""The deadline of a run."""


@contextmanager
def rank_processes(serve: Callable[[int, Connection], None], count: int) -> Iterator[list[Connection]]:
    """Yield a pipe to each rank, which runs ``serve`` until ``None`` comes; end this program if one failed."""
    context = multiprocessing.get_context("spawn")
    ends = [context.Pipe() for _ in range(count)]
    ranks = [context.Process(target=serve, args=(rank, end[1]), daemon=True) for rank, end in enumerate(ends)]
    for rank in ranks:
        rank.start()
    pipes = [end[0] for end in ends]
    yield pipes
    for pipe in pipes:
        pipe.send(None)
    for rank in ranks:
        rank.join()
    if failed := max(rank.exitcode or 0 for rank in ranks):
        sys.exit(failed)


def together(pipes: list[Connection], messages: list[object]) -> list[object]:
    """Send each rank its message, and return all answers."""
    for pipe, message in zip(pipes, messages, strict=True):
        pipe.send(message)
    return [pipe.recv() for pipe in pipes]
