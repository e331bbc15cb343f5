"""Bounds on the diameter of a component by four traversals; each starts at a vertex that the previous ones found.

This is the double sweep of Magnien, Latapy and Habib ("Fast computation of empirically tight bounds for the diameter of
massive graphs", 2009). The eccentricity of the farthest vertex of a traversal is large: a good lower bound. The
eccentricity of the middle of the longest path found is small. Two vertices are no farther apart than the sum of their
distances from the middle, which gives the upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbfs.analytics.degrees import hub
from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Ref
from dbfs.errors import DirectedGraphError
from dbfs.graph.traversing import traverse
from dbfs_workers.tasks import queries

if TYPE_CHECKING:
    from dbfs.graph.graph import Graph
    from dbfs.graph.result import BFSResult


@dataclass(frozen=True)
class DiameterBounds:
    """Bounds on the diameter of a connected component, which is its largest eccentricity.

    Attributes:
        lower: lower bound: the distance between ``ends``.
        upper: upper bound: the smallest sum, over the sweeps, of the two largest distances.
        ends: two ids at the distance ``lower``.
        centre: the id of the smallest eccentricity found.
        radius: eccentricity of ``centre``.
        size: number of vertices of the component.
    """

    lower: int
    upper: int
    ends: tuple[Any, Any]
    centre: Any
    radius: int
    size: int

    @property
    def exact(self) -> bool:
        """Whether the bounds are equal."""
        return self.lower == self.upper


def eccentricity_bound(graph: Graph, source: Any) -> DiameterBounds:
    """See ``Graph.eccentricity_bound``."""
    if graph.directed:
        raise DirectedGraphError(
            f"{graph.name} is directed: distances to a vertex and back differ, so that sweeps give no bounds; "
            "load it undirected"
        )
    start = hub(graph) if source is None and graph.n else graph.vertex(0 if source is None else source)
    first = traverse(graph, [(start,)])[0]
    one = traverse(graph, [(_farthest(first),)])[0]
    other = traverse(graph, [(_farthest(one),)])[0]
    middle = traverse(graph, [(_middle(graph, one, other),)])[0]
    sweeps = [first, one, other, middle]
    longest = max(sweeps, key=lambda sweep: sweep.depth)
    shortest = min(sweeps, key=lambda sweep: sweep.depth)
    bounds = DiameterBounds(
        lower=longest.depth,
        upper=min(_two_largest(sweep) for sweep in sweeps),
        ends=(longest.sources[0], graph.id_of(_farthest(longest))),
        centre=shortest.sources[0],
        radius=shortest.depth,
        size=first.reached,
    )
    for sweep in sweeps:
        sweep.release()
    return bounds


def _farthest(sweep: BFSResult) -> int:
    """Return the smallest vertex at the largest distance."""
    return int(sweep.vertices_between(sweep.depth, sweep.depth)[0])


def _two_largest(sweep: BFSResult) -> int:
    """Return the sum of the two largest distances from the source."""
    if sweep.depth == 0:
        return 0
    last = next(report for report in reversed(sweep.reports) if report.discovered)
    # A report of several levels has their sum.
    found = last.discovered if last.levels == 1 else sweep.vertices_between(sweep.depth, sweep.depth).size
    alone = found == 1
    return 2 * sweep.depth - alone


def _middle(graph: Graph, one: BFSResult, other: BFSResult) -> int:
    """Return a vertex half-way between the source of one sweep and its farthest vertex, the source of the other.

    Many shortest paths may join the two. The result is the middle one, by id, of all vertices half-way: in a lattice
    these form a diagonal whose ends are corners.
    """
    half = one.depth // 2
    arguments = [
        (Ref(from_one.key), Ref(from_other.key), half, one.depth - half)
        for from_one, from_other in zip(
            one.published_labels().distances, other.published_labels().distances, strict=True
        )
    ]
    deadline = of_call()
    rows = graph.gang.on_each_rank(
        "half-way", queries.rows_on_shortest_path, arguments, deadline, f"bounding the diameter of {graph.name}"
    )
    half_way = graph.numbering.vertices_of_rows(rows)
    return int(half_way[half_way.size // 2])
