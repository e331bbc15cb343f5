"""Bounds on a component's diameter by a few traversals, each from where the last one ended.

The double sweep of Magnien, Latapy and Habib ("Fast computation of empirically tight bounds for the diameter of massive
graphs", 2009): from the farthest vertex of a traversal the eccentricity is large, a lower bound. From the middle of
the longest path found it is small, and two vertices are no farther apart than the sum of their distances from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dbfs import config
from dbfs.analytics.degrees import hub
from dbfs.cluster.gang import Deadline, Ref
from dbfs.errors import DirectedGraphError
from dbfs.graph.vertices import vertices_of_rows
from dbfs_workers.tasks import queries

if TYPE_CHECKING:
    from dbfs.graph.graph import Graph
    from dbfs.graph.result import BFSResult


@dataclass(frozen=True)
class DiameterBounds:
    """How large the largest eccentricity of a connected component, its diameter, is at least and at most.

    Attributes:
        lower: the distance of ``ends``: the diameter is at least this.
        upper: the smallest sum, over the sweeps, of the two largest distances: the diameter is at most this.
        ends: two vertices ``lower`` apart.
        centre: the vertex of the smallest eccentricity seen.
        radius: that eccentricity.
        size: vertices of the component.
    """

    lower: int
    upper: int
    ends: tuple[int, int]
    centre: int
    radius: int
    size: int

    @property
    def exact(self) -> bool:
        """Whether the bounds meet."""
        return self.lower == self.upper


def eccentricity_bound(graph: Graph, source: int | None) -> DiameterBounds:
    """See ``Graph.eccentricity_bound``."""
    if graph.directed:
        raise DirectedGraphError(
            f"{graph.name} is directed: distances there and back differ, and bound nothing. Load it undirected"
        )
    start = hub(graph) if source is None and graph.n else graph.check_vertex(0 if source is None else source, "source")
    first = graph.bfs(start)
    one = graph.bfs(_farthest(first))
    other = graph.bfs(_farthest(one))
    middle = graph.bfs(_middle(graph, one, other))
    sweeps = [first, one, other, middle]
    longest = max(sweeps, key=lambda sweep: sweep.depth)
    shortest = min(sweeps, key=lambda sweep: sweep.depth)
    bounds = DiameterBounds(
        lower=longest.depth,
        upper=min(_two_largest(sweep) for sweep in sweeps),
        ends=(longest.sources[0], _farthest(longest)),
        centre=shortest.sources[0],
        radius=shortest.depth,
        size=first.reached,
    )
    for sweep in sweeps:
        sweep.release()
    return bounds


def _farthest(sweep: BFSResult) -> int:
    return int(sweep.vertices_at(sweep.depth)[0])


def _two_largest(sweep: BFSResult) -> int:
    """The sum of the two largest distances."""
    if sweep.depth == 0:
        return 0
    alone = sweep.reports[sweep.depth - 1].discovered == 1
    return 2 * sweep.depth - alone


def _middle(graph: Graph, one: BFSResult, other: BFSResult) -> int:
    """A vertex half-way on a shortest path from a sweep's source to its farthest vertex, the source of another.

    Of all such vertices the middle one by id: in a lattice they are a whole diagonal, and its ends are corners.
    """
    half = one.depth // 2
    arguments = [
        (Ref(from_one.key), Ref(from_other.key), half, one.depth - half)
        for from_one, from_other in zip(
            one.published_labels().distances, other.published_labels().distances, strict=True
        )
    ]
    deadline = Deadline(config.seconds("deadline"))
    rows = graph.gang.on_each_rank(
        "half-way", queries.rows_on_shortest_path, arguments, deadline, f"the middle of a longest path in {graph.name}"
    )
    half_way = vertices_of_rows(rows, graph.order)
    return int(half_way[half_way.size // 2])
