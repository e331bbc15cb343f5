"""What building takes of time and memory, and one traversal of what was built."""

import resource
from dataclasses import dataclass

import distributed

import dbfs


@dataclass(frozen=True)
class BuildCost:
    """A build and traversals after it.

    Attributes:
        build_seconds: from the client's call to resident partitions.
        partition: bytes of each rank's partition.
        before: each worker's peak resident bytes when the build began: the interpreter and its libraries.
        peak: each worker's peak resident bytes after the build.
        traversals: seconds of each traversal.
        client_seconds: the same from call to result, labels not fetched.
        mteps: of each traversal.
    """

    build_seconds: float
    partition: tuple[int, ...]
    before: tuple[int, ...]
    peak: tuple[int, ...]
    traversals: tuple[float, ...]
    client_seconds: tuple[float, ...]
    mteps: tuple[float, ...]


def bench_build(client: distributed.Client, spec: str, ranks: int, sources: int) -> BuildCost:
    """Build a generated graph on ``ranks`` fresh workers and traverse it from random sources."""
    import time

    before = _peaks(client)
    with dbfs.load(spec, client=client, ranks=ranks) as graph:
        peak = _peaks(client)
        results, calls = [], []
        for source in graph.sample_sources(sources):
            start = time.perf_counter()
            results.append(graph.bfs(source))
            calls.append(time.perf_counter() - start)
        return BuildCost(
            build_seconds=graph.build_seconds,
            partition=graph.nbytes,
            before=tuple(before[address] for address in graph.gang.addresses),
            peak=tuple(peak[address] for address in graph.gang.addresses),
            traversals=tuple(result.seconds for result in results),
            client_seconds=tuple(calls),
            mteps=tuple(result.mteps for result in results),
        )


def _peaks(client: distributed.Client) -> dict[str, int]:
    peaks: dict[str, int] = client.run(_peak)
    return peaks


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
