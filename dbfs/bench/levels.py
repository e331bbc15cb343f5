"""The cost of a level. A path graph has one vertex in each level, so the engine's overhead is all of the time."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import dask
import distributed

import dbfs
from dbfs.graph.graph import Graph
from dbfs_workers.backends.protocol import EdgeFrontier
from dbfs_workers.levels import phases
from dbfs_workers.levels.bins import Bin
from dbfs_workers.levels.state import TraversalState
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.tasks import taskgraph as tasks


@dataclass(frozen=True)
class LevelCost:
    """The cost of a level in one way to run it.

    Attributes:
        way: the engine, and its settings or its exchange.
        ranks: number of ranks.
        levels: number of levels measured.
        milliseconds: mean time of a level.
        ratio: ``milliseconds`` divided by those of the first way, which calls ``client.submit`` for each task.
    """

    way: str
    ranks: int
    levels: int
    milliseconds: float
    ratio: float


# By ``dbfs.taskgraph.fuse-below``.
TASKGRAPH = {
    "taskgraph, a task per phase": 0,
    "taskgraph, two tasks per rank": 1,
    "taskgraph, small levels in windows": 4096,
}
RESIDENT_LEVELS = 2000


def bench_levels(client: distributed.Client, ranks: int, levels: int) -> Iterator[LevelCost]:
    """Measure each way on a path graph: first one ``client.submit`` for each task, then both engines.

    Args:
        client: client of a cluster with at least ``ranks`` workers.
        ranks: number of ranks.
        levels: levels of the first way and of the taskgraph engine; the resident engine runs ``RESIDENT_LEVELS``.
    """
    # Near the end of a path the next level may be bottom-up, and such levels share no task.
    with dbfs.load(dbfs.path(4 * levels), client=client, ranks=ranks) as graph:
        graph.bfs(0, max_depth=2, engine="taskgraph")
        naive = _naive(graph, levels)
        yield LevelCost("one client.submit a task", ranks, levels, naive, 1.0)
        for way, fuse_below in TASKGRAPH.items():
            with dask.config.set({"dbfs.taskgraph.fuse-below": fuse_below}):
                result = graph.bfs(0, max_depth=levels, engine="taskgraph")
            cost = result.seconds / levels * 1e3
            yield LevelCost(way, ranks, levels, cost, cost / naive)
    for exchange in ("shared_memory", "tcp"):
        for p in sorted({min(2, ranks), ranks}):
            cost = _resident(client, p, exchange)
            yield LevelCost(f"resident, {exchange}", p, RESIDENT_LEVELS, cost, cost / naive)


def _resident(client: distributed.Client, ranks: int, exchange: str) -> float:
    """Return the mean milliseconds of a level of the resident engine: the fastest of three traversals."""
    with (
        dask.config.set({"dbfs.exchange": exchange}),
        dbfs.load(dbfs.path(RESIDENT_LEVELS + 1), client=client, ranks=ranks) as graph,
    ):
        graph.bfs(0, max_depth=50)
        return min(graph.bfs(0).seconds for _ in range(3)) / RESIDENT_LEVELS * 1e3


def _naive(graph: Graph, levels: int) -> float:
    """Return the mean milliseconds of a level in which every task is a ``client.submit`` of its own."""
    gang = graph.gang
    client, run, ranks = gang.client, uuid.uuid4().hex, range(gang.p)
    spec = TraversalSpec(run, (0,), predecessors=False, backend="cpu")

    def submit(rank: int, function: object, *arguments: object) -> distributed.Future:
        return client.submit(function, *arguments, workers=[gang.addresses[rank]], pure=False)

    partitions = [distributed.Future(key, client) for key in graph.partition_keys]
    states = [submit(rank, tasks.start, partitions[rank], spec, graph.record.graph_id) for rank in ranks]
    distributed.wait(states)
    last = list(states)
    start = time.perf_counter()
    for level in range(levels):
        edges = [submit(rank, _expand, states[rank], run, level, last[rank]) for rank in ranks]
        found = [submit(rank, _filter_partition, states[rank], run, level, edges[rank]) for rank in ranks]
        barrier = submit(0, sum, found)
        for rank in ranks:
            bins = [submit(source, _take_bin, states[source], run, level, rank, barrier) for source in ranks]
            last[rank] = submit(rank, _contract, states[rank], run, level, bins, barrier)
        if not barrier.result():
            break
    return (time.perf_counter() - start) / levels * 1e3


# On a worker, by run, rank and parity of the level: the bins that its rank made.
_outbox: dict[tuple[str, int, int], tuple[Bin, ...]] = {}


def _expand(traversal: TraversalState, run: str, level: int, _after: object) -> EdgeFrontier:
    return phases.expand(traversal, run, level)


def _filter_partition(traversal: TraversalState, run: str, level: int, edges: EdgeFrontier) -> int:
    bins = phases.filter_partition(traversal, run, level, edges)
    _outbox[run, traversal.rank, level % 2] = bins
    return sum(sent.rows.size for sent in bins)


def _take_bin(traversal: TraversalState, run: str, level: int, target: int, _after: object) -> Bin:
    return _outbox[run, traversal.rank, level % 2][target]


def _contract(traversal: TraversalState, run: str, level: int, bins: list[Bin], _after: object) -> int:
    return phases.contract(traversal, run, level, bins)
