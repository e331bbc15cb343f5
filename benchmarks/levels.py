"""The cost of a level. A path graph has one vertex in each level, so the engine's overhead is all of the time."""

import operator
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Annotated

import click
import dask
import distributed

import dbfs
from benchmarks import options
from benchmarks.runner import Column, Results, connect, in_turns
from dbfs.cluster.deadline import Deadline
from dbfs.cluster.gang import Ref, TaskGraph, release
from dbfs.graph.graph import Graph
from dbfs_workers.levels import phases
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.tasks import taskgraph as tasks

RESIDENT_LEVELS = 2000


@dataclass(frozen=True)
class LevelCost:
    """Mean time of a level in one way to run it, the median of some rounds.

    Ratios are medians over the rounds, in each of which the ways take turns: to the first way, ``client.submit`` for
    each task, and to the engine's tasks with nothing to do.
    """

    way: Annotated[str, Column("engine and way")]
    ranks: Annotated[int, Column()]
    levels: int
    milliseconds: Annotated[float, Column("ms a level", ".3f")]
    ratio: Annotated[float, Column("to the first", ".3f")]
    to_empty: Annotated[float, Column("to empty tasks", ".3f")]


@click.command()
@options.ranks(4)
@options.count("--levels", 64, "Levels that the taskgraph engine runs; the resident engine runs 2000.", least=8)
@options.count("--rounds", 5, "Times that each way of the taskgraph engine runs, in turns.")
@options.json
def levels(ranks: int, levels: int, rounds: int, file: str | None) -> None:
    """Measure the cost of a level in each engine, on a path graph.

    Example: dbfs bench levels --ranks 4
    """
    with Results("levels", file) as results, connect(ranks) as client:
        results.take("costs", bench_levels(client, ranks, levels, rounds), "A level of a path graph")


def bench_levels(client: distributed.Client, ranks: int, levels: int, rounds: int) -> Iterator[LevelCost]:
    """Measure each way on a path graph: first one ``client.submit`` for each task, then both engines."""
    # Near the end of a path the next level may be bottom-up.
    with dbfs.load(dbfs.path(4 * levels), client=client, ranks=ranks) as graph:
        ways: dict[str, Callable[[], float]] = {
            "one client.submit a task": lambda: _naive(graph, levels),
            "taskgraph": lambda: graph.bfs(0, max_depth=levels, engine="taskgraph").seconds / levels * 1e3,
            "the same tasks, empty": lambda: _empty(graph, levels),
        }
        graph.bfs(0, max_depth=2, engine="taskgraph")
        costs, _ = in_turns(ways, rounds, figure=lambda _, cost: cost)
    naive, _, empty = costs.values()
    for way, taken in costs.items():
        ratios = (median(map(operator.truediv, taken, others)) for others in (naive, empty))
        yield LevelCost(way, ranks, levels, median(taken), *ratios)
    for exchange in ("shared_memory", "tcp"):
        for p in sorted({min(2, ranks), ranks}):
            cost = _resident(client, p, exchange)
            yield LevelCost(
                f"resident, {exchange}", p, RESIDENT_LEVELS, cost, cost / median(naive), cost / median(empty)
            )


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


def _empty(graph: Graph, levels: int) -> float:
    """Return the mean milliseconds of a level whose tasks have the engine's shape and do nothing."""
    gang, ranks = graph.gang, range(graph.gang.p)
    start = time.perf_counter()
    for _ in range(levels):
        run, level = uuid.uuid4().hex, TaskGraph()

        def add(rank: int, name: str, *after: object, level: TaskGraph = level, run: str = run) -> Ref:
            return level.add(rank, (f"{name}-{run}", rank), _nothing, *after)

        expanded = [add(rank, "expand") for rank in ranks]
        entries = [add(rank, "filter-partition", expanded[rank]) for rank in ranks]
        barrier = add(0, "barrier", entries)
        last = []
        for owner in ranks:
            bins = [add(rank, f"bin-{owner}", entries[rank]) for rank in ranks]
            last.append(add(owner, "contract", bins, barrier))
        keys = [ref.key for ref in (*last, barrier)]
        futures = list(gang.submit(level, keys).values())
        gang.gather(futures, Deadline(60.0), "an empty level")
        release(futures)
    return (time.perf_counter() - start) / levels * 1e3


def _nothing(*_: object) -> int:
    return 0
