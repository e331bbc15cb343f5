"""Diameter and radius: bounds by four traversals, and the exact values by as many traversals as their bounds need.

The bounds are the double sweep of Magnien, Latapy and Habib ("Fast computation of empirically tight bounds for the
diameter of massive graphs", 2009). The eccentricity of the farthest vertex of a traversal is large: a good lower bound.
The eccentricity of the middle of the longest path found is small. Two vertices are no farther apart than the sum of
their distances from the middle, which gives the upper bound.

The exact values are those of Takes and Kosters ("Computing the eccentricity distribution of large graphs", 2013):
every traversal bounds the eccentricities of all vertices, and vertices that can't change the measure get no traversal.
For the diameter, distances by way of a centre bound those of pairs, as in iFUB (Crescenzi et al., "On computing the
diameter of real-world undirected graphs", 2013).
"""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import part_of
from dbfs.base.progress import ProgressOption, run_reporter
from dbfs.base.records import RunProgress
from dbfs.cluster.deadline import bounded, of_call
from dbfs.cluster.gang import Ref
from dbfs.errors import DirectedGraphError
from dbfs.features.batches import measures
from dbfs.features.batches.batch import MOST_SOURCES
from dbfs.features.batches.checkpoint import folded
from dbfs.features.batches.sweeps import counts_of, disconnected, near_together, of_one_version, shifted
from dbfs.graph.degrees import hub
from dbfs.graph.graph import Graph, R
from dbfs.graph.result import BFSResult
from dbfs.graph.striped import StripedGraph
from dbfs.graph.traversing import traverse
from dbfs_workers.serving import queries


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


def _middle(graph: StripedGraph, one: BFSResult, other: BFSResult) -> int:
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


DEEP: Final = (64, 192)
SMALL_WORLD: Final = (8, MOST_SOURCES)
"""Traversals of a round from chosen vertices, and sources of the first batch of any undecided vertices, each of which
it decides. Both take about as long, so a batch follows a round that decided fewer. The next round is a quarter as long,
and the next batch twice as large: where all vertices look alike, rounds take little beside the batch of all vertices.

In a small world the sources of a batch share its levels, else they may run one by one. A single traversal, with its
labels on their way and the client's bounds, takes as long as 50 to 80 sources that share, or 3 that don't."""


class Measure(enum.Enum):
    """The measure for which eccentricities are needed. Vertices that can't change the measure keep wide bounds."""

    ALL = "the eccentricity of every vertex"
    LARGEST = "the largest eccentricity"
    SMALLEST = "the smallest eccentricity"
    LARGEST_EACH = "every vertex of the largest eccentricity"
    SMALLEST_EACH = "every vertex of the smallest eccentricity"


Bounds = NDArray[np.signedinteger[Any]]

_LARGEST: Final = (Measure.LARGEST, Measure.LARGEST_EACH)


def eccentricities(graph: StripedGraph, measure: Measure, options: measures.Options) -> Bounds:
    """Return an eccentricity of each vertex that was not deleted, exact as far as the measure needs.

    Errors as of ``Graph.diameter``.

    The answer has lower bounds if the measure is a largest eccentricity, else upper bounds: the measure of these bounds
    equals the measure of the eccentricities.
    """
    vertices = measures.sources_of(graph, options)
    if graph.directed:
        return measures.depths_of(graph, vertices, options)

    def parts(step: int, bounds: Bounds) -> Iterator[tuple[int, Bounds]]:
        lower, upper, central = bounds
        smallest = int(central.max()) if step else vertices.size
        # Places among the vertices.
        everyone = np.arange(vertices.size)
        left = _undecided(everyone, lower, upper, measure) if step else everyone
        vertex, of_all, pays = 0, False, measure is Measure.LARGEST
        before, of_round, batches = left.size, step, 0

        def following() -> Iterator[BFSResult]:
            nonlocal vertex, of_all
            while left.size:
                # The farthest vertex and the most central one alternate: for the diameter the most central of all, as
                # long as such a vertex is a better centre than those before. Of Florida's roads many vertices have the
                # smallest lower bound; the one of the smallest upper bound is the centre, after two traversals.
                of_all = pays and step % 2 == 0 and bool(lower.min() < smallest)
                if step == 0:
                    vertex = int(np.searchsorted(vertices, hub(graph)))
                elif step % 2:
                    vertex = _smallest(left, -upper, -lower)
                else:
                    vertex = _smallest(everyone if of_all else left, lower, upper)
                told = shifted(report, vertices.size - left.size, vertices.size)
                yield traverse(graph, BFSResult, [(int(vertices[vertex]),)], progress=told)[0]

        for sweep in of_one_version(graph, following()):
            step += 1
            if sweep.reached < vertices.size and step == 1:
                raise disconnected(graph, int(vertices[vertex]), sweep.reached)
            distances, most = sweep.distances()[vertices].astype(begin.dtype, copy=False), sweep.depth
            np.maximum(lower, np.maximum(distances, most - distances), out=lower)
            np.minimum(upper, most + distances, out=upper)
            lower[vertex] = upper[vertex] = most
            pays = pays and (most < smallest or not of_all)
            if most < smallest:
                central[:], smallest = distances, most
            left = _undecided(left, lower, upper, measure)
            if measure is Measure.LARGEST:
                left = _may_be_ends(left, central[left], int(lower.max()), upper)
            # Before a batch, so that a checkpoint has the traversal.
            yield 1, bounds
            of_round += 1
            chosen, any_left = DEEP
            if smallest <= 2 * math.log2(vertices.size):
                # Of few vertices a batch of all takes no longer than a round.
                chosen, any_left = min(SMALL_WORLD[0], max(1, vertices.size // MOST_SOURCES)), SMALL_WORLD[1]
            if of_round >= (max(1, chosen // 4) if batches else chosen):
                if left.size and (before - left.size) * chosen < any_left * of_round:
                    some = left[: any_left << batches]
                    some = some[near_together(graph, vertices[some])]
                    told = shifted(report, vertices.size - left.size, vertices.size)
                    for counts in counts_of(graph, vertices[some], told, what=what):
                        graph.require_version(sweep.version, "a traversal")
                        made, some = some[: len(counts)], some[len(counts) :]
                        lower[made] = upper[made] = np.count_nonzero(counts, axis=1) - 1
                        # A batch may be long, and a checkpoint keeps a part of it.
                        yield 1, bounds
                    left = _undecided(left, lower, upper, measure)
                    batches += 1
                before, of_round = left.size, 0

    # By vertex: bounds of the eccentricity, and the distance from the vertex of the smallest eccentricity found.
    # Sums of two distances are below 2n.
    begin = np.zeros((3, vertices.size), np.int32 if vertices.size < 2**30 else np.int64)
    begin[1] = np.iinfo(begin.dtype).max
    name, path, row = "bounds of eccentricities", options.checkpoint, 0 if measure in _LARGEST else 1
    what = {Measure.LARGEST: "diameter", Measure.SMALLEST: "radius"}.get(measure, name)
    # A bar counts the vertices that are decided.
    with run_reporter(options.progress, graph.name, vertices.size, vertices.size, what) as report:
        found: Bounds = folded(graph, name, (vertices,), begin, parts, lambda _, bounds: bounds, path)[row]
    return found


def _smallest(vertices: NDArray[np.int64], first: Bounds, second: Bounds) -> int:
    """Return the vertex of the smallest number in ``first``, and of several such vertices, in ``second``."""
    of_vertices = first[vertices]
    several = vertices[of_vertices == of_vertices.min()]
    return int(several[second[several].argmin()])


def _may_be_ends(left: NDArray[np.int64], ways: Bounds, largest: int, upper: Bounds) -> NDArray[np.int64]:
    """Return the vertices that may be farther apart than ``largest``, of those that were ``left``.

    Both ends of such a pair are left, and no farther apart than the ``ways`` from the centre to both. The eccentricity
    of any other vertex is ``largest`` at most, which ``upper`` then says.
    """
    while left.size:
        ends = ways + ways.max() > largest
        if ends.all():
            break
        upper[left[~ends]] = largest
        left, ways = left[ends], ways[ends]
    return left


def _undecided(left: NDArray[np.int64], lower: Bounds, upper: Bounds, measure: Measure) -> NDArray[np.int64]:
    """Return the vertices that may still change the measure, of those that were ``left``."""
    least, most = (lower, upper) if left.size == lower.size else (lower[left], upper[left])
    undecided: NDArray[np.bool_] = least != most
    if measure is Measure.LARGEST:
        undecided &= most > lower.max()
    elif measure is Measure.SMALLEST:
        undecided &= least < upper.min()
    elif measure is Measure.LARGEST_EACH:
        undecided &= most >= lower.max()
    elif measure is Measure.SMALLEST_EACH:
        undecided &= least <= upper.min()
    return left[undecided]


@part_of("Graph")
class DiameterGraph(Graph[R]):
    """The diameter and the radius, and bounds of the diameter."""

    @bounded()
    def eccentricity_bound(self, source: Any = None) -> DiameterBounds:
        """Bound the largest eccentricity (the diameter) of a vertex's component by four traversals.

        Args:
            source: an id in the component; None for a vertex of the largest degree.

        Raises:
            DirectedGraphError: the graph is directed.
            InvalidVertexError, InvalidVertexTypeError: see ``bfs``, as for all other errors.
        """
        if self.directed:
            raise DirectedGraphError(
                f"{self.name} is directed: distances to a vertex and back differ, so that sweeps give no bounds; "
                "load it undirected"
            )
        start = hub(self) if source is None and self.n > self.deleted else self.vertex(0 if source is None else source)
        first = traverse(self, BFSResult, [(start,)])[0]
        one = traverse(self, BFSResult, [(_farthest(first),)])[0]
        other = traverse(self, BFSResult, [(_farthest(one),)])[0]
        middle = traverse(self, BFSResult, [(_middle(self, one, other),)])[0]
        sweeps = [first, one, other, middle]
        longest = max(sweeps, key=lambda sweep: sweep.depth)
        shortest = min(sweeps, key=lambda sweep: sweep.depth)
        bounds = DiameterBounds(
            lower=longest.depth,
            upper=min(_two_largest(sweep) for sweep in sweeps),
            ends=(longest.sources[0], self.id_of(_farthest(longest))),
            centre=shortest.sources[0],
            radius=shortest.depth,
            size=first.reached,
        )
        for sweep in sweeps:
            sweep.release()
        return bounds

    @bounded()
    def diameter(
        self,
        *,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> int:
        """Return the largest eccentricity, as NetworkX's ``diameter``.

        In an undirected graph every traversal bounds all eccentricities (Takes and Kosters 2013), so that few may do.
        The client takes 40 bytes a vertex. A directed graph takes a traversal from every vertex.

        Args:
            deadline, checkpoint: see ``eccentricity``. For an undirected graph the file keeps bounds of eccentricities,
                12 bytes a vertex, and serves ``diameter`` and ``radius`` alike.
            progress: see ``bfs``; of each traversal.

        Raises:
            InvalidVertexError: the graph has no vertices.
            Other errors as for ``eccentricity``.
        """
        return int(
            eccentricities(self, Measure.LARGEST, measures.Options(progress=progress, checkpoint=checkpoint)).max()
        )

    @bounded()
    def radius(
        self,
        *,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> int:
        """Return the smallest eccentricity, as NetworkX's ``radius``; everything else as for ``diameter``."""
        return int(
            eccentricities(self, Measure.SMALLEST, measures.Options(progress=progress, checkpoint=checkpoint)).min()
        )
