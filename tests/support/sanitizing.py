"""A process and a GPU for each rank, without Dask: the sanitizer should slow down the kernels only."""

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Final

from dbfs_workers.assembly import resident_parts
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.members.resident import ResidentRunner
from dbfs_workers.search.partition.partition import Partition

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


def connected_member(rank: int, pipe: Connection, partition: Partition) -> tuple[Member, ResidentRunner]:
    """Make the member of a rank of a graph on its GPU, and connect it with the others by way of the pipe."""
    runner = ResidentRunner("graph")
    member = Member(rank, "partition", runner, resident_parts(runner))
    member.make(partition)
    pipe.send(member.offer())
    member.connect(pipe.recv())
    pipe.send("connected")
    return member, runner


def together(pipes: list[Connection], messages: list[object]) -> list[object]:
    """Send each rank its message, and return all answers."""
    for pipe, message in zip(pipes, messages, strict=True):
        pipe.send(message)
    return [pipe.recv() for pipe in pipes]
