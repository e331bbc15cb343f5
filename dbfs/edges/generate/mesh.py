"""Duals of random planar triangulations, and road networks made of them.

The triangulation is a square lattice; each of its squares is cut by one of its two diagonals, at random. Its points
have 4 to 8 neighbours and 6 on average, as many as the points of a Delaunay triangulation. It is known in closed form,
so any range of it can be generated alone. The dual has a vertex for each triangle, of degree 3 except at the border.

The dual of a Delaunay triangulation of uniform points would be half as deep, because the slivers along its hull are
shortcuts. With n = 800,000 a search from random sources has 0.71 sqrt(n) levels there, and 1.38 sqrt(n) here;
hugebubbles-00020 has 1.34 sqrt(n).

In a road network, each edge of the dual becomes a street: a path through vertices of degree 2. A street that would
cross the border is a dead end.

Square q = column + columns * row has ``2 + sum(streets)`` vertices with consecutive ids: its lower triangle, its upper
triangle, then the vertices along the streets across its diagonal, its right side and its upper side.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from dbfs.edges.generate import counter
from dbfs.edges.generate.ranges import GeneratedEdges, RangePiece

NO_STREETS = (0, 0, 0)


@dataclass(frozen=True)
class MeshPiece(RangePiece):
    """The edges of the squares [start, stop) of a mesh.

    Attributes:
        rows, columns: rows and columns of the lattice's squares.
        streets: vertices along the dual edges across a square's diagonal, right side and upper side.
        seed: 64-bit seed of the diagonals.
    """

    rows: int
    columns: int
    streets: tuple[int, int, int]
    seed: int

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges square by square, street by street: sources and targets, int64."""
        squares = xp.arange(self.start, self.stop, dtype=xp.int64)
        vertices = 2 + sum(self.streets)
        lower = vertices * squares
        # With a diagonal that rises from left to right, the left side is the upper triangle's, the right the lower's.
        rises = self._rises(xp, squares)
        right_neighbour = vertices * (squares + 1) + self._rises(xp, squares + 1)
        ends = (
            (lower, lower + 1, xp.ones(squares.size, bool)),
            (lower + 1 - rises, right_neighbour, squares % self.columns < self.columns - 1),
            (lower + 1, vertices * (squares + self.columns), squares // self.columns < self.rows - 1),
        )
        sources, targets, exists = [], [], []
        along = lower + 2
        for length, (one, other, joined) in zip(self.streets, ends, strict=True):
            street = [one, *(along + step for step in range(length)), other]
            sources += street[:-1]
            targets += street[1:]
            exists += [xp.ones(squares.size, bool)] * length + [joined]
            along = along + length
        edges = xp.stack(exists, axis=1)
        return xp.stack(sources, axis=1)[edges], xp.stack(targets, axis=1)[edges]

    def _rises(self, xp: ModuleType, squares: Any) -> Any:
        """Return whether each square's diagonal rises from left to right: int64, 0 or 1."""
        return (counter.numbers(xp, counter.key(self.seed), squares) >> xp.uint64(63)).astype(xp.int64)


def mesh(
    name: str, rows: int, columns: int, streets: tuple[int, int, int] = NO_STREETS, seed: int = 1
) -> GeneratedEdges:
    """Return the dual of a random triangulation of 2 * rows * columns triangles, undirected.

    Args:
        name: the graph's name.
        rows, columns, streets, seed: as of ``MeshPiece``.
    """
    squares = rows * columns
    each = 3 + sum(streets)
    whole = MeshPiece(0, squares, rows, columns, streets, seed)
    return GeneratedEdges(name, squares * (each - 1), squares * each - rows - columns, False, whole, each)
