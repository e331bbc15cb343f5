"""What building takes of time and memory, and traversals of what was built."""

import time
from dataclasses import dataclass
from pathlib import Path

import distributed

import dbfs
from dbfs.display.progress import track


@dataclass(frozen=True)
class BuildCost:
    """A build and traversals after it.

    Attributes:
        build_seconds: from the client's call to resident partitions.
        partition: bytes of each rank's partition.
        before: each worker's peak resident bytes when the build began: the interpreter and its libraries.
        peak: each worker's peak resident bytes after the build.
        traversals: by engine, seconds from call to result of each traversal, labels not fetched.
    """

    build_seconds: float
    partition: tuple[int, ...]
    before: tuple[int, ...]
    peak: tuple[int, ...]
    traversals: dict[str, tuple[float, ...]]


def bench_build(client: distributed.Client, spec: str, ranks: int, sources: int) -> BuildCost:
    """Build a generated graph on ``ranks`` fresh workers and traverse it from random sources."""
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
    # Not getrusage's: a process inherits that from the one that started it.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
