"""The cost of a level. A path graph has one vertex in each level, so the engine's overhead is all of the time."""

import operator
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Annotated

import click
import dask
import distributed
from dask._task_spec import Task

import dbfs
from benchmarks import options
from benchmarks.runner import Column, Results, connect, seconds_of
from dbfs.assembly import Graph
from dbfs.cluster.deadline import Deadline
from dbfs.cluster.gang import PinnedTasks, TaskGraph, release
from dbfs.features.taskgraph.engine import TaskGraphTraversal
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.taskgraph import phases, tasks

RESIDENT_LEVELS = 2000


@dataclass(frozen=True)
class LevelCost:
    """Time of a level in one way to run it.

    Ratios are to the first way, ``client.submit`` for each task, and to the same level of the taskgraph engine with
    empty tasks. Engine and empty tasks take turns, level by level: their times are medians, and so is the ratio.
    """

    way: Annotated[str, Column("engine and way")]
    ranks: Annotated[int, Column()]
    levels: int
    milliseconds: Annotated[float, Column("ms a level", ".3f")]
    ratio: Annotated[float, Column("to the first", ".4f")]
    to_empty: Annotated[float, Column("to empty tasks", ".4f")]


@click.command()
@options.ranks(4)
@options.count("--levels", 64, "Levels that the taskgraph engine runs; the resident engine runs 2000.", least=8)
@options.json
def levels(ranks: int, levels: int, file: str | None) -> None:
    """Measure the cost of a level in each engine, on a path graph.

    Example: dbfs bench levels --ranks 4
    """
    with Results("levels", file) as results, connect(ranks) as client:
        results.take("costs", bench_levels(client, ranks, levels), "A level of a path graph")


def bench_levels(client: distributed.Client, ranks: int, levels: int) -> Iterator[LevelCost]:
    """Measure each way on a path graph: first one ``client.submit`` for each task, then both engines."""
    # Near the end of a path the next level may be bottom-up.
    with dbfs.load(dbfs.path(4 * levels), client=client, ranks=ranks) as graph:
        graph.bfs(0, max_depth=2, engine="taskgraph")
        naive = _naive(graph, levels)
        of_engine, of_empty = _in_turns(graph, levels)
    empty = median(of_empty)
    ratio = median(map(operator.truediv, of_engine, of_empty))
    yield LevelCost("one client.submit a task", ranks, levels, naive, 1.0, naive / empty)
    yield LevelCost("taskgraph", ranks, levels, median(of_engine), median(of_engine) / naive, ratio)
    yield LevelCost("the same tasks, empty", ranks, levels, empty, empty / naive, 1.0)
    for exchange in ("shared_memory", "tcp"):
        for p in sorted({min(2, ranks), ranks}):
            cost = _resident(client, p, exchange)
            yield LevelCost(f"resident, {exchange}", p, RESIDENT_LEVELS, cost, cost / naive, cost / empty)


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
        edges = [submit(rank, phases.expand, states[rank], run, level) for rank in ranks]
        found = [submit(rank, tasks.filter_partition, states[rank], run, level, edges[rank]) for rank in ranks]
        barrier = submit(0, tasks.barrier, found)
        for rank in ranks:
            bins = [submit(source, tasks.take_bin, states[source], run, level, rank, found[source]) for source in ranks]
            last[rank] = submit(rank, tasks.contract, states[rank], run, level, bins, barrier)
        distributed.wait(last)
        if not barrier.result():
            break
    return (time.perf_counter() - start) / levels * 1e3


class _Emptied(TaskGraph):
    """A graph whose tasks do nothing."""

    def __init__(self, graph: TaskGraph) -> None:
        self._graph = graph

    def pinned(self, addresses: Sequence[str]) -> PinnedTasks:
        """See ``TaskGraph``."""
        pinned = self._graph.pinned(addresses)
        return replace(pinned, tasks={key: Task(key, _nothing, *task.args) for key, task in pinned.tasks.items()})


def _in_turns(graph: Graph, levels: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds of levels of the engine, and of the same levels with empty tasks, one behind each."""
    gang, run = graph.gang, uuid.uuid4().hex
    spec, states = TraversalSpec(run, (0,), predecessors=False, backend="cpu"), TaskGraph()
    empty = TaskGraphTraversal(gang, graph.record, spec, Deadline(60.0), None)  # type: ignore[arg-type]
    empty.states = [states.add(rank, (f"state-{run}", rank), _nothing) for rank in empty.ranks]
    kept = gang.submit(states, [state.key for state in empty.states])

    def run_empty() -> None:
        level, keys = empty.level_graph(bottom_up=False)
        futures = list(gang.submit(_Emptied(level), keys).values())
        gang.gather(futures, Deadline(60.0), "an empty level")
        release(futures)
        empty.state.level += 1

    of_engine: list[float] = []
    of_empty: list[float] = []
    began = 0.0

    def level_ended(_: object) -> None:
        nonlocal began
        of_engine.append(1e3 * (time.perf_counter() - began))
        of_empty.append(1e3 * seconds_of(run_empty)[0])
        began = time.perf_counter()

    graph.bfs(0, max_depth=levels, engine="taskgraph", progress=level_ended)
    release(kept.values())
    # The first level began with the run's wait for its turn, and the last call tells of the run's end.
    return of_engine[1:levels], of_empty[1:levels]


def _nothing(*_: object) -> int:
    return 0
