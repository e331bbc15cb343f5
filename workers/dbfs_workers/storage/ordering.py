"""Degree order: an internal numbering by falling degree, so that hubs share bitmap words and head every list.

Vertices keep their ids outside. Inside, a vertex is its *position* in the order, and the stripe is applied to
positions: the hubs are dealt out to the ranks in turn, as their first rows. A build with ``order="degree"``

1. counts degrees piece by piece (``count_degrees``), adds the counts up and makes the order of them (``degree_order``);
2. relabels each piece before it is binned (``DegreeOrder.relabel``, then ``building.bin_edges`` as ever);
3. builds with ``hub_first=True``, which sorts a row's columns by position, not by internal id: an internal id sorts by
   owner first.

Sources and targets go in as ``position[vertex]``; labels come out by position, and go back to the caller's ids with
``by_vertex`` and ``predecessors_by_vertex``.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Label = TypeVar("Label", np.int32, np.int64)


@dataclass(frozen=True)
class DegreeOrder:
    """A numbering of the vertices, both ways.

    Attributes:
        position: uint32[n], each vertex's position, 0 having the largest degree.
        vertex: uint32[n], the vertex at each position.
    """

    position: NDArray[np.uint32]
    vertex: NDArray[np.uint32]

    def __sizeof__(self) -> int:
        return self.position.nbytes + self.vertex.nbytes

    def relabel(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Edges between positions. Ids must be in 0..n-1: whoever counted degrees has checked them."""
        return self.position[src].astype(np.int64), self.position[dst].astype(np.int64)

    def by_vertex(self, by_position: NDArray[Label]) -> NDArray[Label]:
        """RankLabels in the order of vertices, given in the order of positions."""
        return by_position[self.position]

    def predecessors_by_vertex(self, by_position: NDArray[np.int64]) -> NDArray[np.int64]:
        """Predecessors as vertices in the order of vertices, given as positions in the order of positions; -1 stays."""
        parents = by_position[self.position]
        reached = parents >= 0
        parents[reached] = self.vertex[parents[reached]]
        return parents

    def predecessors_by_position(self, by_vertex: NDArray[np.int64]) -> NDArray[np.int64]:
        """The way back: predecessors as positions in the order of positions; what is no vertex stays."""
        parents = by_vertex[self.vertex]
        vertices = (parents >= 0) & (parents < self.position.size)
        parents[vertices] = self.position[parents[vertices]]
        return parents


def count_degrees(
    src: NDArray[np.int64], dst: NDArray[np.int64], n: int, *, symmetrise: bool, name: str
) -> NDArray[np.int64]:
    """Edges that start or end at each vertex: int64[n]. In a symmetrised graph that is the degree.

    Otherwise it is the sum of both degrees: a hub of a directed graph is one that edges lead to as well.

    Raises:
        InvalidVertexError: an id is outside 0..n-1.
    """
    # Here and not above: who has an order of a GPU's making needs no kernels.
    from dbfs_workers.storage import building_kernels as kernels
    from dbfs_workers.storage.building import check_ids

    src, dst = check_ids(src, dst, n, name)
    degrees = np.zeros(n, np.int64)
    kernels.count_both_ends(src, dst, symmetrise, degrees)
    return degrees


def degree_order(degrees: NDArray[np.int64]) -> DegreeOrder:
    """The order by falling degree; vertices of equal degree keep the order of their ids."""
    vertex = np.argsort(-degrees, kind="stable").astype(np.uint32)
    position = np.empty_like(vertex)
    position[vertex] = np.arange(vertex.size, dtype=np.uint32)
    return DegreeOrder(position, vertex)
