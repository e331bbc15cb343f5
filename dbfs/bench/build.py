"""The time and memory of building a graph, and the time of traversals of it."""

import time
from dataclasses import dataclass
from pathlib import Path

import distributed

import dbfs
from dbfs.display.progress import track


@dataclass(frozen=True)
class BuildCost:
    """Cost of a build and of traversals after it.

    Attributes:
        build_seconds: time from the client's call to resident partitions.
        partition: bytes of the partition, by rank.
        before: peak resident bytes of the worker when the build began, by rank: the interpreter and its libraries.
        peak: peak resident bytes of the worker after the build, by rank.
        traversals: by engine, the seconds of each traversal from call to result; labels are not fetched.
    """

    build_seconds: float
    partition: tuple[int, ...]
    before: tuple[int, ...]
    peak: tuple[int, ...]
    traversals: dict[str, tuple[float, ...]]


def bench_build(client: distributed.Client, spec: str, ranks: int, sources: int) -> BuildCost:
    """Build a generated graph on ``ranks`` workers and traverse it from random sources.

    The workers should be fresh: a peak of earlier work would hide that of the build.
    """
    before = _peaks(client)
    with dbfs.load(spec, client=client, ranks=ranks) as graph:
        peak = _peaks(client)
        chosen = graph.sample_sources(sources)
        traversals = {}
        for engine in ("taskgraph", "resident"):
            calls = []
            for source in track(chosen, engine):
                start = time.perf_counter()
                graph.bfs(source, engine=engine)
                calls.append(time.perf_counter() - start)
            traversals[engine] = tuple(calls)
        return BuildCost(
            build_seconds=graph.build_seconds,
            partition=graph.nbytes,
            before=tuple(before[address] for address in graph.gang.addresses),
            peak=tuple(peak[address] for address in graph.gang.addresses),
            traversals=traversals,
        )


def _peaks(client: distributed.Client) -> dict[str, int]:
    peaks: dict[str, int] = client.run(_peak)
    return peaks


def _peak() -> int:
    # Not getrusage's peak, which a process inherits from its parent.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
