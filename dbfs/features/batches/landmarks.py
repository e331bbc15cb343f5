"""Landmarks: the distances from a few vertices, which bound the distance of any two.

With a landmark l, ``|d(l, u) - d(l, v)| <= d(u, v) <= d(l, u) + d(l, v)``. The first landmark has the largest degree,
and many shortest paths pass it: good upper bounds. Each other one is farthest from those before (Goldberg and
Harrelson, "Computing the shortest path: A* search meets graph theory", 2005): it lies behind many vertices, which gives
good lower bounds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import part_of, public
from dbfs.base.integers import whole_count
from dbfs.base.progress import ProgressOption
from dbfs.base.records import RunProgress
from dbfs.cluster.deadline import bounded
from dbfs.cluster.own_process import StaysHere
from dbfs.errors import DirectedGraphError, InvalidOptionError, InvalidVertexError
from dbfs.features.batches.checkpoint import folded
from dbfs.features.batches.sweeps import of_one_version
from dbfs.graph.degrees import hub
from dbfs.graph.distances import DistanceMatrix
from dbfs.graph.graph import Graph, R
from dbfs.graph.html import Card
from dbfs.graph.result import BFSResult
from dbfs.graph.striped import StripedGraph
from dbfs.graph.tabular import SHOWN, Tabular
from dbfs.graph.traversing import traverse
from dbfs_workers.ids.label_table import whole_table
from dbfs_workers.ids.sequence import handed_out
from dbfs_workers.ids.table import from_python

if TYPE_CHECKING:
    import pyarrow as pa

    from dbfs_workers.ids.sequence import CallerIds

_FAR = np.iinfo(np.int32).max


@public
@dataclass(frozen=True)
class Landmarks(StaysHere, Tabular):
    """The distances from some vertices of an undirected graph. ``Graph.landmarks`` returns them.

    Attributes:
        ids: ids of the landmarks.
        distances: int16 or int32 [landmarks, n] by vertex: the distance from each landmark, -1 unreached.
        version: the graph's version that the distances are of.
    """

    _inner: ClassVar[frozenset[str]] = StaysHere._inner | {"bounds_of"}

    graph: StripedGraph = field(repr=False)
    ids: tuple[Any, ...]
    distances: NDArray[Any] = field(repr=False)
    version: int

    @property
    def elsewhere(self) -> str:
        return f"use its distances, which is an array, or {self.graph.elsewhere}"

    def to_arrow(self) -> pa.Table:
        """Return a row for each landmark and vertex: ``landmark``, ``vertex`` (ids), ``distance`` (int32).

        The distance is null where the landmark does not reach the vertex.

        Raises:
            GraphTooLargeError: this machine has no memory for the table.
            ResultReleasedError, GraphNotFoundError: the graph was unloaded, and its ids are not known without it.
        """
        vertices = self.graph.ids_of(np.arange(self.distances.shape[1]))
        matrix = DistanceMatrix(self.distances.astype(np.int32), self._landmarks, vertices)
        return matrix.to_arrow().rename_columns(["landmark", "vertex", "distance"])

    @property
    def _landmarks(self) -> CallerIds:
        return handed_out(from_python(self.ids, self.graph.id_type))

    def _card(self) -> Card:
        reached = (self.distances >= 0).sum(axis=1)
        facts = {"Landmarks": f"{len(self.ids):,}", "Vertices": f"{self.distances.shape[1]:,}"}
        shown = whole_table(
            landmark=self._landmarks[SHOWN], reached=reached[SHOWN], farthest=self.distances.max(axis=1)[SHOWN]
        )
        return Card(self.graph.name, facts, shown)

    @bounded()
    def bounds(self, sources: Any, targets: Any) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return int32 arrays: lower and upper bounds of the distance of each source from its target, in edges.

        Where a landmark reaches one of the two vertices only, no path joins them, and both bounds are -1. Where no
        landmark reaches either, the lower bound says no more than whether they differ, and the upper bound is -1. No
        traversal is made.

        Args:
            sources, targets: as many ids of each; one id of either goes with all of the other.

        Raises:
            InvalidOptionError: the numbers of ids differ, or the graph was updated since.
            InvalidVertexError, InvalidVertexTypeError: an id is not in the graph, or not of the type of its ids.
        """
        self.graph.require_version(self.version, "the set of landmarks")
        ends = [
            np.array(self.graph.vertices_named(ids, what, present=True), np.int64)
            for ids, what in ((sources, "source"), (targets, "target"))
        ]
        if ends[0].size != ends[1].size and 1 not in (ends[0].size, ends[1].size):
            raise InvalidOptionError(
                f"bounds need as many targets as sources, or one of either, not {ends[0].size} and {ends[1].size}"
            )
        return self.bounds_of(*np.broadcast_arrays(*ends))

    def bounds_of(
        self, one: NDArray[np.int64], other: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the bounds of pairs of vertices: see ``bounds``."""
        near, far = (self.distances[:, vertices].astype(np.int32) for vertices in (one, other))
        both, apart = (near >= 0) & (far >= 0), ((near >= 0) != (far >= 0)).any(axis=0)
        upper = np.where(both, near + far, _FAR).min(axis=0)
        upper = np.where(one == other, 0, np.where(apart | (upper == _FAR), -1, upper))
        lower = np.where(both, np.abs(near - far), one != other).max(axis=0)
        lower = np.where(apart, -1, np.maximum(lower, one != other))
        return lower.astype(np.int32), upper.astype(np.int32)


@part_of("Graph")
class LandmarksGraph(Graph[R]):
    """Landmarks, and the bounds of distances that they give."""

    @bounded()
    def landmarks(
        self,
        k: int = 16,
        *,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Landmarks:
        """Return the distances from ``k`` landmarks, which bound the distance of any two vertices at once.

        The first landmark has the largest degree; each other one is farthest from those before, in the component of the
        first (Goldberg and Harrelson 2005). A component of fewer vertices has fewer landmarks. The client takes 2 bytes
        a vertex and landmark, or 4 where distances exceed 32,767, and 4 while they are made.

        Args:
            k: number of landmarks, and of traversals.
            deadline: see ``bfs``.
            progress: see ``bfs``; of each traversal.
            checkpoint: a file of the client's machine that keeps the landmarks, 4 bytes a vertex and landmark. If the
                file has them, no traversal is made; a larger ``k`` adds to them.

        Raises:
            DirectedGraphError: the graph is directed.
            InvalidOptionError: ``k`` is below 1, another client updated the graph in between, or the checkpoint is that
                of another graph or measure.
            FormatError, UnreadableFileError, OutputError: see ``eccentricity``.
            InvalidOptionTypeError: ``k`` is not an integer.
            InvalidVertexError: the graph has no vertices.
            Other errors as for ``bfs``.
        """
        count = whole_count(k, "k", 1)
        if self.directed:
            raise DirectedGraphError(
                f"{self.name} is directed: distances from landmarks bound none there; load the self undirected"
            )
        self.refresh()
        if self.n == self.deleted:
            raise InvalidVertexError(f"{self.name} has no vertices to be landmarks")
        first, version = hub(self), self.version

        def parts(finished: int, rows: NDArray[np.int32]) -> Iterator[tuple[int, NDArray[np.int32]]]:
            nonlocal version
            nearest, vertex = rows[:, 1:].min(axis=0, initial=_FAR), first

            def following() -> Iterator[BFSResult]:
                nonlocal vertex
                for number in range(finished, count):
                    if number:
                        vertex = int(nearest.argmax())
                        if nearest[vertex] == 0:
                            return
                    yield traverse(self, BFSResult, [(vertex,)], progress=progress)[0]

            for sweep in of_one_version(self, following()):
                version, distances = sweep.version, sweep.distances()
                np.minimum(nearest, distances, out=nearest)
                yield 1, np.concatenate([[vertex], distances]).astype(np.int32)[None]

        def add(these: NDArray[np.int32], those: NDArray[np.int32]) -> NDArray[np.int32]:
            return np.concatenate([these, those])

        # A row has a landmark, and then its distances by vertex.
        begin = np.empty((0, 1 + self.n), np.int32)
        rows = folded(self, "landmarks", (np.empty(0, np.int64),), begin, parts, add, checkpoint)
        chosen, found = rows[:count, 0].tolist(), rows[:count, 1:]
        narrow = np.int16 if found.max() <= np.iinfo(np.int16).max else np.int32
        return Landmarks(self, tuple(self.python_ids(chosen)), found.astype(narrow), version)
