"""Degree order: an internal numbering by falling degree, so that hubs share bitmap words and come first in every list.

Callers keep their vertex ids. Internally a vertex is its *position* in the order, and the stripe is applied to
positions: the hubs are dealt to the ranks in turn, as their first rows. A build with ``order="degree"``

1. counts degrees piece by piece, sums the ranks' counts and makes the order (``building.degree_order``);
2. relabels each piece before binning it (``DegreeOrder.relabel``, then ``binning.bin_edges``);
3. builds with ``hub_first=True``, which sorts a row's columns by position. Internal ids sort by owner first.

A traversal's sources and targets are ``position[vertex]``. Its labels are by position; ``by_vertex`` and
``predecessors_by_vertex`` map them to vertex ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Label = TypeVar("Label", np.int32, np.int64)


@dataclass(frozen=True)
class DegreeOrder:
    """A numbering of the vertices, in both directions.

    Attributes:
        position: uint32[n], each vertex's position; 0 has the largest degree.
        vertex: uint32[n], the vertex at each position.
    """

    position: NDArray[np.uint32]
    vertex: NDArray[np.uint32]

    def __sizeof__(self) -> int:
        return self.position.nbytes + self.vertex.nbytes

    def relabel(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return edges between positions. Ids must be in 0..n-1, which ``count_degrees`` checked."""
        return self.position[src].astype(np.int64), self.position[dst].astype(np.int64)

    def positions_of(self, vertices: Sequence[int]) -> list[int]:
        """Return the positions of a few vertices."""
        return [int(self.position[vertex]) for vertex in vertices]

    def by_vertex(self, by_position: NDArray[Label]) -> NDArray[Label]:
        """Return labels in the order of vertices, given in the order of positions."""
        return by_position[self.position]

    def predecessors_by_vertex(self, by_position: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return predecessors as vertices, by vertex, given as positions, by position; -1 stays -1."""
        parents = by_position[self.position]
        reached = parents >= 0
        parents[reached] = self.vertex[parents[reached]]
        return parents

    def predecessors_by_position(self, by_vertex: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return predecessors as positions, by position, given as vertices, by vertex; entries out of range stay."""
        parents = by_vertex[self.vertex]
        vertices = (parents >= 0) & (parents < self.position.size)
        parents[vertices] = self.position[parents[vertices]]
        return parents
