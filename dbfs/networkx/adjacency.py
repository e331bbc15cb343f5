"""The neighbours of each vertex as arrays, in the order in which NetworkX lists them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Adjacency:
    """The neighbours of n vertices; parallel edges count once.

    Attributes:
        starts: int64[n + 1], where the neighbours of each vertex start, and the number of all neighbours.
        neighbours: int64, the neighbours of vertex 0, then those of vertex 1, ...
    """

    starts: NDArray[np.int64]
    neighbours: NDArray[np.int64]

    @property
    def degrees(self) -> NDArray[np.int64]:
        """int64[n], the number of neighbours of each vertex."""
        return np.diff(self.starts)

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return each vertex with each of its neighbours: two int64 arrays."""
        return np.repeat(np.arange(self.starts.size - 1), self.degrees), self.neighbours

    def pairs_of(self, vertices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return each of some vertices with each of its neighbours, in the order of ``vertices``."""
        first = self.starts[vertices]
        counts = self.starts[vertices + 1] - first
        ends = np.cumsum(counts)
        places = np.arange(ends[-1] if ends.size else 0) + np.repeat(first - ends + counts, counts)
        return np.repeat(vertices, counts), self.neighbours[places]

    def transposed(self) -> Adjacency:
        """Return the adjacency against the edges: the vertices before each vertex, ascending."""
        sources, targets = self.pairs()
        starts = np.zeros_like(self.starts)
        np.cumsum(np.bincount(targets, minlength=starts.size - 1), out=starts[1:])
        return Adjacency(starts, sources[np.argsort(targets, kind="stable")])

    def mirrors(self, other: Adjacency) -> bool:
        """Return whether the edges here are those of ``other``, reversed."""
        n = self.starts.size - 1
        (sources, targets), (others, ends) = self.pairs(), other.pairs()
        return bool(np.array_equal(np.sort(sources * n + targets), np.sort(ends * n + others)))


def read_adjacency(neighbours: Mapping[Any, Mapping[Any, Any]], vertices: Mapping[Any, int]) -> Adjacency:
    """Read NetworkX's mapping of nodes to neighbours (``G.adj``, ``G.pred``).

    Args:
        neighbours: by node a mapping whose keys are the neighbours.
        vertices: the vertex of each node, in the order of the vertices.
    """
    # The length of a row that a multigraph's filter thins out counts neighbours that the row does not have.
    rows = [list(iter(neighbours[node])) for node in vertices]
    starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=starts[1:])
    flat = map(vertices.__getitem__, itertools.chain.from_iterable(rows))
    return Adjacency(starts, np.fromiter(flat, np.int64, int(starts[-1])))


def shortest_edges(
    adjacency: Adjacency, distances: NDArray[np.int32], sources: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]]:
    """Yield for each level of a search the edges that lead to the next level, in NetworkX's order.

    A sequential search scans the vertices of a level in the order in which it found them, and their neighbours in the
    order of the graph. The distances say which of these edges lead on, so that a level is a few array operations.

    Args:
        adjacency: the neighbours.
        distances: int32[n], the distance of each vertex, -1 unreached.
        sources: the vertices at distance 0, in order.

    Yields:
        the vertices that the edges leave, the vertices that the edges lead to, and whether an edge is the first to lead
        to its vertex: three arrays of one length, which is above 0.
    """
    place = np.empty(distances.size, np.int64)
    level, frontier = 0, sources
    while True:
        level += 1
        parents, children = adjacency.pairs_of(frontier)
        leads_on = distances[children] == level
        parents, children = parents[leads_on], children[leads_on]
        if not children.size:
            return
        edges = np.arange(children.size)
        # NumPy keeps the last of several values for one index: in reversed order the first edge.
        place[children[::-1]] = edges[::-1]
        first = place[children] == edges
        yield parents, children, first
        frontier = children[first]
