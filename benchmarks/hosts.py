"""Exchanges between hosts, beside those of one host, measured on one machine.

On CPUs the workers pretend to be on several hosts. For GPUs the configuration names the exchange.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dask
import distributed

import dbfs
from dbfs.graph.graph import Graph
from tests.support.pretended_hosts import pretended_hosts

WAYS = ("shared_memory", "shared_memory+tcp", "tcp")
"""The exchanges of CPUs: on one host, on two hosts with half of the ranks each, and on a host for each rank."""

GPU_WAYS = ("cuda_ipc", "nccl", "comm")
"""The exchanges of GPUs: on one host, and two that serve any hosts."""


@dataclass(frozen=True)
class HostsCost:
    """The times of one exchange: medians of several traversals.

    Attributes:
        exchange: how the ranks exchange.
        hosts: number of hosts.
        ranks: number of ranks.
        level: milliseconds of a level of a path graph.
        level_ratio: ``level`` divided by that of the first exchange.
        graph: milliseconds of a traversal of the graph.
        graph_ratio: ``graph`` divided by that of the first exchange.
    """

    exchange: str
    hosts: int
    ranks: int
    level: float
    level_ratio: float
    graph: float
    graph_ratio: float


def bench_hosts(client: distributed.Client, ranks: int, graph: str, levels: int, rounds: int) -> Iterator[HostsCost]:
    """Measure a path graph and another graph over each exchange.

    The exchanges take turns, so that other programs on the machine slow all of them alike.

    Args:
        client: client of a local cluster with at least ``ranks`` workers.
        ranks: number of ranks, at least 3.
        graph: the other graph, which is loaded by degree.
        levels: levels of the path.
        rounds: number of turns.
    """
    hosts = {"shared_memory": (0,) * ranks, "shared_memory+tcp": _halves(ranks), "tcp": tuple(range(ranks))}
    with contextlib.ExitStack() as loaded:
        graphs = {}
        for way in WAYS:
            with pretended_hosts(client, hosts[way]), dask.config.set({"dbfs.exchange": "auto"}):
                path = loaded.enter_context(dbfs.load(dbfs.path(levels + 1), client=client, ranks=ranks))
                other = loaded.enter_context(dbfs.load(graph, client=client, ranks=ranks, order="degree"))
                graphs[way] = path, other
        for way, level, level_ratio, whole, whole_ratio in _measure(graphs, levels, rounds):
            count = max(hosts[way]) + 1
            yield HostsCost(graphs[way][0].exchange, count, ranks, level, level_ratio, whole, whole_ratio)


def bench_gpu_hosts(
    client: distributed.Client, gpus: int, graph: str, levels: int, rounds: int, ways: Sequence[str] = GPU_WAYS
) -> Iterator[HostsCost]:
    """Measure a path graph and another graph, as given, over each exchange of GPUs in turns; see ``bench_hosts``."""
    with contextlib.ExitStack() as loaded:
        graphs = {}
        for way in ways:
            with dask.config.set({"dbfs.exchange": way}):
                path = loaded.enter_context(dbfs.load(dbfs.path(levels + 1), client=client, ranks=gpus))
                graphs[way] = path, loaded.enter_context(dbfs.load(graph, client=client, ranks=gpus))
        for way, level, level_ratio, whole, whole_ratio in _measure(graphs, levels, rounds):
            yield HostsCost(way, 1, gpus, level, level_ratio, whole, whole_ratio)


def _measure(
    graphs: dict[str, tuple[Graph, Graph]], levels: int, rounds: int
) -> Iterator[tuple[str, float, float, float, float]]:
    """Traverse a path and another graph over each exchange in turns.

    Yields:
        Exchange; milliseconds of a level of the path, and the ratio to the first exchange's; those of the other graph.
    """
    first = next(iter(graphs))
    path_ms: dict[str, list[float]] = {way: [] for way in graphs}
    graph_ms: dict[str, list[float]] = {way: [] for way in graphs}
    (source,) = graphs[first][1].sample_sources(1, seed=1)
    for turn in range(rounds + 1):
        for way, (path, other) in graphs.items():
            path_seconds, seconds = path.bfs(0).seconds, other.bfs(source).seconds
            # The first turn warms up.
            if turn:
                path_ms[way].append(path_seconds / levels * 1e3)
                graph_ms[way].append(seconds * 1e3)
    level, whole = ({way: sorted(of)[len(of) // 2] for way, of in ms.items()} for ms in (path_ms, graph_ms))
    for way in graphs:
        yield way, level[way], level[way] / level[first], whole[way], whole[way] / whole[first]


def _halves(ranks: int) -> tuple[int, ...]:
    """Return two hosts, with the first half of the ranks on the first."""
    return tuple(int(2 * rank >= ranks) for rank in range(ranks))
