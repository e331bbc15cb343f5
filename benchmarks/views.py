"""Views: a graph of the edges that pass a filter, beside the graph that is loaded of the filtered table."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Annotated, Any, Final

import click
import distributed
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import dbfs
from benchmarks import options
from benchmarks.runner import Column, Results, connect, in_turns
from dbfs.edges.resolve import edge_list
from dbfs_workers.building.pieces import GeneratedPiece

PIECE_EDGES: Final = 1 << 22
LARGEST: Final = 1000
"""The column of the table has whole numbers below this."""


@dataclass(frozen=True)
class ViewTime:
    """Times of a view and of a load of the same edges: medians, in seconds.

    Attributes:
        graph: the graph.
        ranks: number of ranks.
        share: edges that pass, of all.
        load: a load of the filtered table.
        view: ``Graph.where``.
        times: ``load`` by ``view``.
        loaded_bfs: a traversal of the loaded graph.
        view_bfs: one of the view.
    """

    graph: Annotated[str, Column()]
    ranks: int
    share: Annotated[float, Column("share", ".2f")]
    load: Annotated[float, Column("load, s", ".3f")]
    view: Annotated[float, Column("view, s", ".3f")]
    times: Annotated[float, Column("times", ".2f")]
    loaded_bfs: Annotated[float, Column("BFS of\nload, s", ".4f")]
    view_bfs: Annotated[float, Column("BFS of\nview, s", ".4f")]


@click.command()
@options.graph
@options.order("given")
@options.ranks(2)
@click.option("--share", "shares", type=click.FloatRange(0, 1), multiple=True, default=(0.1, 0.5), show_default=True)
@options.count("--rounds", 5, "Turns that count.")
@options.json
def views(graph: str, order: str, ranks: int, shares: tuple[float, ...], rounds: int, file: str | None) -> None:
    """Measure views of shares of a graph's edges, beside loads of the filtered table.

    Both have the same edges, and traversals reach as many vertices.

    Example: dbfs bench views --graph kronecker:scale=18 --share 0.1
    """
    with Results("views", file) as results, connect(ranks, "cpu") as client:
        rows = bench_views(client, graph, order, ranks, shares, rounds)
        results.take("views", rows, f"{graph} by {order}, {ranks} ranks")


def bench_views(
    client: distributed.Client, spec: str, order: str, ranks: int, shares: tuple[float, ...], rounds: int
) -> Iterator[ViewTime]:
    """Measure both ways in turns, for each share of the edges."""
    table = _table(spec)
    load = partial(dbfs.load, client=client, ranks=ranks, order=order)
    with load(table, edge_columns=["value"]) as graph:
        for share in shares:
            passes = pc.field("value") < round(share * LARGEST)
            passing = table.filter(passes).select(["source", "target"])
            ways: dict[str, Callable[[], Any]] = {
                "load": partial(load, passing),
                "view": partial(graph.where, edges=passes),
            }
            seconds, found = in_turns(ways, rounds, warm_up=1)
            assert found["view"].m == found["load"].m
            (source,) = found["load"].sample_sources(1)
            traversals = {way: partial(made.bfs, source) for way, made in found.items()}
            levels, results = in_turns(traversals, 5 * rounds, warm_up=5)
            assert results["view"].reached == results["load"].reached
            loaded, view = median(seconds["load"]), median(seconds["view"])
            times = (loaded, view, loaded / view, median(levels["load"]), median(levels["view"]))
            yield ViewTime(spec, graph.ranks, share, *times)


def _table(spec: str) -> pa.Table:
    """Return a generator's edges as a table, with a column of random numbers."""
    ends = [piece.read() for piece in edge_list(spec).cut(PIECE_EDGES) if isinstance(piece, GeneratedPiece)]
    source, target = (np.concatenate([pair[end] for pair in ends]) for end in (0, 1))
    value = np.random.default_rng(1).integers(0, LARGEST, source.size)
    return pa.table({"source": source, "target": target, "value": value})
