"""What a level costs: a path graph has one vertex a level, so the time is all engine."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import dask
import distributed

import dbfs
from dbfs.engines import taskgraph_tasks as tasks
from dbfs.graph import Graph
from dbfs_workers.traversal import RunSpec


@dataclass(frozen=True)
class LevelCost:
    """The cost of a level one way of running it.

    Attributes:
        way: what was measured.
        milliseconds: mean time of a level.
        ratio: milliseconds over the naive way's.
    """

    way: str
    milliseconds: float
    ratio: float


WAYS = {
    "a task a phase, one graph a level": {"fuse-below": 0, "levels-per-submission": 1},
    "one fused task a rank, one graph a level": {"fuse-below": 4096, "levels-per-submission": 1},
    "one fused task a rank, several levels a graph": {},
}


def bench_levels(client: distributed.Client, ranks: int, levels: int) -> Iterator[LevelCost]:
    """Measure each way on a path of ``levels`` levels; the first is one ``client.submit`` a task."""
    with dbfs.load(dbfs.path(levels + 2), client=client, ranks=ranks) as graph:
        graph.bfs(0, max_depth=2)
        naive = _naive(graph, levels)
        yield LevelCost("one client.submit a task", naive, 1.0)
        for way, settings in WAYS.items():
            with dask.config.set({f"dbfs.taskgraph.{key}": value for key, value in settings.items()}):
                result = graph.bfs(0, max_depth=levels, engine="taskgraph")
            cost = result.seconds / levels * 1e3
            yield LevelCost(way, cost, cost / naive)


def _naive(graph: Graph, levels: int) -> float:
    gang = graph.gang
    client, run, ranks = gang.client, uuid.uuid4().hex, range(gang.p)
    spec = RunSpec(run, (0,), predecessors=False, backend="auto")

    def submit(rank: int, function: object, *arguments: object) -> distributed.Future:
        return client.submit(function, *arguments, workers=[gang.addresses[rank]], pure=False)

    states = [submit(rank, tasks.start, distributed.Future(graph.partition_keys[rank], client), spec) for rank in ranks]
    distributed.wait(states)
    last = list(states)
    start = time.perf_counter()
    for level in range(levels):
        edges = [submit(rank, tasks.expand, states[rank], run, level, last[rank]) for rank in ranks]
        found = [submit(rank, tasks.filter_partition, states[rank], run, level, edges[rank]) for rank in ranks]
        barrier = submit(0, tasks.barrier, found)
        for rank in ranks:
            bins = [submit(source, tasks.take_bin, states[source], run, level, rank, barrier) for source in ranks]
            last[rank] = submit(rank, tasks.contract, states[rank], run, level, bins, barrier)
        if not barrier.result().count:
            break
    return (time.perf_counter() - start) / levels * 1e3
