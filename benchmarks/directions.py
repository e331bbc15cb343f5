"""Edges looked at by level, by direction: table 3.1 of the thesis chapter after Krajecki 2016, for any graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import click

import dbfs
from benchmarks import options
from benchmarks.runner import Column, Results, connect, machine
from dbfs.assembly import Graph
from dbfs.cli.common import parse_id, scheduler_option

ALL = "all"
"""The level of the row of the sums."""


def _milliseconds(seconds: Sequence[float]) -> str:
    return " ".join(f"{1e3 * each:.3f}" for each in seconds)


@dataclass(frozen=True)
class Looked:
    """Edges that all ranks together look at in a level, or in all of them.

    A bottom-up level looks at an unvisited vertex's list up to the first vertex of the frontier, so its edges depend on
    the order of the lists: ``order="degree"`` has the vertices of many edges first.

    Attributes:
        level: the number of the level, or ``ALL``.
        top_down: edges if all levels run top-down.
        bottom_up: edges if all levels run bottom-up.
        better: the fewer of both.
        rule: edges if the direction rule chooses, as in ``Graph.bfs(direction="auto")``.
        seconds: time of the level, top-down, bottom-up and by the rule: figure 2 of Krajecki 2016.
    """

    level: Annotated[str, Column()]
    top_down: Annotated[int, Column("top-down", ",")]
    bottom_up: Annotated[int, Column("bottom-up", ",")]
    better: Annotated[int, Column("the better", ",")]
    rule: Annotated[int, Column("by the rule", ",")]
    seconds: Annotated[tuple[float, ...], Column("ms of each", _milliseconds)] = (0.0, 0.0, 0.0)


@click.command()
@options.graph
@options.order("given")
@options.ranks(2)
@click.option("--source", help="Id to start from, as the file has it; a random vertex that has an edge if left out.")
@options.backend
@scheduler_option
@options.json
def directions(
    graph: str, order: str, ranks: int, source: str | None, backend: str, scheduler: str | None, file: str | None
) -> None:
    """Count the edges that each level looks at, top-down and bottom-up, and the better of both.

    It is table 3.1 of the thesis chapter after Krajecki 2016, with the times of his figure 2. A directed graph is
    loaded with its in-edges. A traversal of more than 4,096 levels has rows of several levels.

    Example: dbfs bench directions --graph kronecker:scale=18
    """
    with (
        Results("directions", file, graph=graph, order=order, ranks=ranks, backend=backend) as results,
        connect(ranks, backend, scheduler=scheduler) as client,
        dbfs.load(
            graph, client=client, ranks=ranks, backend=backend, order=order, in_edges=True, progress=False
        ) as loaded,
    ):
        chosen = loaded.sample_sources(1)[0] if source is None else parse_id(source, loaded.id_type, "source")
        results.facts |= {"source": chosen, "machine": machine(client, backend)}
        results.take("levels", bench_directions(loaded, chosen), f"{graph} from {chosen}: edges looked at")


def bench_directions(graph: Graph, source: object) -> Iterator[Looked]:
    """Yield a row for each level of a traversal from a source, and then the sums.

    Errors as for ``Graph.bfs``; a directed graph needs its in-edges.
    """
    counts, times = [], []
    # The first traversal takes memory and loads kernels.
    for direction in ("top-down", "top-down", "bottom-up", "bottom-up", "auto", "auto"):
        result = graph.bfs(source, direction=direction, progress=False)
        counts.append({report.level: report.edges for report in result.reports})
        times.append({report.level: report.seconds for report in result.reports})
        result.release()
    counts, times = counts[1::2], times[1::2]
    rows = []
    for level in sorted(set().union(*counts)):
        top_down, bottom_up, rule = (edges.get(level, 0) for edges in counts)
        seconds = tuple(of.get(level, 0.0) for of in times)
        rows.append(Looked(str(level), top_down, bottom_up, min(top_down, bottom_up), rule, seconds))
    yield from rows
    yield Looked(
        ALL,
        sum(row.top_down for row in rows),
        sum(row.bottom_up for row in rows),
        sum(row.better for row in rows),
        sum(row.rule for row in rows),
        tuple(sum(of) for of in zip(*(row.seconds for row in rows), strict=True)),
    )
