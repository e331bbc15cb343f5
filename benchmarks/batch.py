"""Many sources: ``bfs_batch``, which traverses from them together, beside ``bfs_many``, one after another."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Annotated, Any, Final

import click
import distributed
import numpy as np

import dbfs
from benchmarks import options
from benchmarks.runner import Column, Results, connect, in_turns
from dbfs.assembly import Graph
from dbfs.features.batches.batch import KEPT

SOURCES: Final = (64, 512)
MANY: Final = 512
"""Sources of a call of ``bfs_many``, which keeps the labels of all."""


@dataclass(frozen=True)
class BatchTime:
    """Times of traversals from some sources, one by one and together: medians, in seconds.

    Attributes:
        graph: the graph.
        ranks: number of ranks.
        sources: number of sources.
        keep: what the batch keeps.
        one_by_one: calls of ``bfs_many``, of ``MANY`` sources or fewer each.
        batch: a call of ``bfs_batch``.
        times: ``one_by_one`` by ``batch``.
        gteps: edges of the traversed components, of all sources, by the seconds of ``batch``, in 10^9.
    """

    graph: Annotated[str, Column()]
    ranks: int
    sources: Annotated[int, Column()]
    keep: Annotated[str, Column()]
    one_by_one: Annotated[float, Column("one by\none, s", ".3f")]
    batch: Annotated[float, Column("batch, s", ".3f")]
    times: Annotated[float, Column("times", ".2f")]
    gteps: Annotated[float, Column("GTEPS", ".2f", "directed edges, of all sources")]


@click.command()
@options.graph
@options.order("degree")
@options.ranks(2)
@options.backend
@click.option("--sources", "counts", type=click.IntRange(1), multiple=True, default=SOURCES, show_default=True)
@options.value("--keep", "counts", "What the batch keeps.", click.Choice(KEPT))
@options.count("--rounds", 3, "Turns that count.")
@options.json
def batch(
    graph: str, order: str, ranks: int, backend: str, counts: tuple[int, ...], keep: str, rounds: int, file: str | None
) -> None:
    """Measure traversals from many sources, together and one after another.

    Both make the same numbers of vertices by distance, which are compared.

    Example: dbfs bench batch --graph grid2d:side=700 --order given
    """
    with Results("batch", file) as results, connect(ranks, backend) as client:
        rows = bench_batch(client, graph, order, ranks, counts, keep, rounds)
        results.take("batches", rows, f"{graph} by {order}, {ranks} ranks")


def bench_batch(
    client: distributed.Client, spec: str, order: str, ranks: int, counts: tuple[int, ...], keep: str, rounds: int
) -> Iterator[BatchTime]:
    """Measure both ways in turns, for each number of sources."""
    with dbfs.load(spec, client=client, ranks=ranks, order=order) as graph:
        for count in counts:
            sources = graph.sample_sources(count)
            ways: dict[str, Callable[[], Any]] = {
                "one by one": partial(_one_by_one, graph, sources),
                "batch": partial(graph.bfs_batch, sources, keep=keep),
            }
            seconds, found = in_turns(ways, rounds, warm_up=1)
            np.testing.assert_array_equal(found["one by one"], found["batch"].reached)
            alone, together = median(seconds["one by one"]), median(seconds["batch"])
            gteps = found["batch"].edges / together / 1e9
            yield BatchTime(spec, graph.ranks, count, keep, alone, together, alone / together, gteps)


def _one_by_one(graph: Graph, sources: list[Any]) -> list[int]:
    """Return the number of vertices that each source reaches."""
    calls = (sources[first : first + MANY] for first in range(0, len(sources), MANY))
    return [result.reached for some in calls for result in graph.bfs_many(some)]
