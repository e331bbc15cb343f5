"""Exchanges between hosts, beside those of one host, measured on one machine.

On CPUs the workers pretend to be on several hosts. For GPUs the configuration names the exchange.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import click
import dask
import distributed

import dbfs
from benchmarks import options
from benchmarks.runner import Column, Results, connect, in_turns, milliseconds
from dbfs.assembly import Graph
from tests.support.pretended_hosts import pretended_hosts

GPU_WAYS = ("cuda_ipc", "nccl", "tcp")
"""The exchanges of GPUs: on one host, and two that serve any hosts."""


@dataclass(frozen=True)
class HostsCost:
    """Times of one exchange: medians of several traversals; ratios to those of the first exchange."""

    exchange: Annotated[str, Column()]
    hosts: Annotated[int, Column()]
    ranks: int
    level: Annotated[float, Column("ms a level\nof a path", ".3f")]
    level_ratio: Annotated[float, Column("ratio", ".1f")]
    graph: Annotated[float, Column("ms of\nthe graph", ".2f")]
    graph_ratio: Annotated[float, Column("ratio", ".2f")]


@click.command()
@options.count("--ranks", 4, "Number of workers on CPUs.", least=3)
@click.option("--gpus", type=click.IntRange(2), help="Measure this number of GPUs instead.")
@options.graph
@options.count("--levels", 2000, "Levels of the path graph.", least=8)
@options.count("--rounds", 9, "Traversals of each kind.")
@options.json
def hosts(ranks: int, gpus: int | None, graph: str, levels: int, rounds: int, file: str | None) -> None:
    """Measure exchanges between hosts, next to the exchange on one host.

    The workers are on this machine. On CPUs they pretend to be on two hosts, then on one host each, and exchange by
    TCP. On GPUs they exchange by NCCL, then over Dask's connections; with NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1 in
    the environment, NCCL takes sockets as between hosts. The exchanges take turns, and the times are medians.

    Example: dbfs bench hosts --gpus 2 --graph kronecker:scale=24
    """
    with Results("hosts", file) as results, connect(gpus or ranks, "cuda" if gpus else "cpu") as client:
        bench = bench_gpu_hosts if gpus else bench_hosts
        subject = f"{graph} as given, {gpus} GPUs" if gpus else f"{graph} by degree, {ranks} ranks"
        costs = bench(client, gpus or ranks, graph, levels, rounds)
        results.take("costs", costs, f"A level of a path and {subject}")


def bench_hosts(client: distributed.Client, ranks: int, graph: str, levels: int, rounds: int) -> Iterator[HostsCost]:
    """Measure a path graph and another graph, by degree, over each exchange of CPUs in turns.

    The exchanges: on one host, on two hosts with half of the ranks each, and on a host for each rank.
    """
    with contextlib.ExitStack() as loaded:
        graphs = {}
        halves = tuple(int(2 * rank >= ranks) for rank in range(ranks))
        for of_ranks in ((0,) * ranks, halves, tuple(range(ranks))):
            with pretended_hosts(client, of_ranks), dask.config.set({"dbfs.exchange": "auto"}):
                path = loaded.enter_context(dbfs.load(dbfs.path(levels + 1), client=client, ranks=ranks))
                other = loaded.enter_context(dbfs.load(graph, client=client, ranks=ranks, order="degree"))
                graphs[path.exchange] = max(of_ranks) + 1, path, other
        yield from _measure(graphs, levels, rounds)


def bench_gpu_hosts(
    client: distributed.Client, gpus: int, graph: str, levels: int, rounds: int, ways: Sequence[str] = GPU_WAYS
) -> Iterator[HostsCost]:
    """Measure a path graph and another graph, as given, over each exchange of GPUs in turns."""
    with contextlib.ExitStack() as loaded:
        graphs = {}
        for way in ways:
            with dask.config.set({"dbfs.exchange": way}):
                path = loaded.enter_context(dbfs.load(dbfs.path(levels + 1), client=client, ranks=gpus))
                graphs[way] = 1, path, loaded.enter_context(dbfs.load(graph, client=client, ranks=gpus))
        yield from _measure(graphs, levels, rounds)


def _measure(graphs: dict[str, tuple[int, Graph, Graph]], levels: int, rounds: int) -> Iterator[HostsCost]:
    """Traverse a path and another graph over each exchange in turns; ``graphs`` has them with the number of hosts."""
    first = next(iter(graphs))
    (source,) = graphs[first][2].sample_sources(1, seed=1)
    calls = {(way, 0): partial(path.bfs, 0) for way, (_, path, _) in graphs.items()}
    calls |= {(way, 1): partial(other.bfs, source) for way, (_, _, other) in graphs.items()}
    taken, _ = in_turns(calls, rounds, warm_up=1, figure=lambda _, result: result.seconds)
    level = {way: milliseconds(taken[way, 0], levels) for way in graphs}
    whole = {way: milliseconds(taken[way, 1]) for way in graphs}
    for way, (hosts, path, _) in graphs.items():
        ratios = level[way] / level[first], whole[way] / whole[first]
        yield HostsCost(way, hosts, path.ranks, level[way], ratios[0], whole[way], ratios[1])
