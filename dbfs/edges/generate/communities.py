"""Random graphs with given degrees and a given depth: a chain of communities, with power-law degrees.

Source of the degrees: Chung, Lu, "Connected Components in Random Graphs with Given Expected Degree Sequences", Annals
of Combinatorics 6, 2002. Every vertex lists a fixed number of edges. The other end of an edge is drawn in proportion to
the vertices' own numbers of edges: half the time from the same community, else from the one before or after it. A
traversal passes from one community to the next in a level or two, so the number of communities sets the depth.

Vertices of one degree are spread over their community's ids.
"""

from dataclasses import dataclass
from itertools import accumulate
from math import gcd
from operator import mul
from types import ModuleType
from typing import Any

from dbfs.edges.generate import counter
from dbfs.edges.generate.ranges import GeneratedEdges, RangePiece

_GOLDEN = 0.6180339887498949
_COMMUNITIES, _VERTICES = 1, 2


@dataclass(frozen=True)
class DegreeClasses:
    """Classes of a community's vertices by the number of edges that a vertex lists, in ascending order.

    A community has one slot for each edge listed, numbered class by class and vertex by vertex.

    Attributes:
        degrees: edges that each vertex of a class lists.
        counts: vertices of each class.
    """

    degrees: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def vertices(self) -> int:
        """Vertices of a community."""
        return sum(self.counts)

    @property
    def slots(self) -> int:
        """Edges that a community lists."""
        return sum(map(mul, self.degrees, self.counts))

    def of_slots(self, xp: ModuleType, slots: Any) -> Any:
        """Return the vertex (int64, 0..vertices-1) of each slot."""
        first_slots = xp.array([0, *accumulate(map(mul, self.degrees, self.counts))], dtype=xp.int64)
        first_vertices = xp.array([0, *accumulate(self.counts)], dtype=xp.int64)
        classes = xp.searchsorted(first_slots, slots, side="right") - 1
        degrees = xp.array(self.degrees, dtype=xp.int64)
        ranks = first_vertices[classes] + (slots - first_slots[classes]) // degrees[classes]
        return ranks * self._stride % self.vertices

    @property
    def _stride(self) -> int:
        # Coprime with the number of vertices, so multiplication permutes them; consecutive ranks get distant ids.
        stride = max(1, round(self.vertices * _GOLDEN))
        while gcd(stride, self.vertices) > 1:
            stride += 1
        return stride


def power_law(vertices: int, mean: float, least: int, most: int) -> DegreeClasses:
    """Return classes of degrees ``least``, 2 ``least``, 4 ``least``, ... up to ``most``, each with at least one vertex.

    From class to class the number of vertices falls by a constant factor, found by bisection from the mean degree.

    Args:
        vertices: vertices of a community; at least the number of classes.
        mean: mean degree; above ``least``, and below the plain average of the classes' degrees.
        least, most: bounds of the degrees.
    """
    degrees = [least]
    while 2 * degrees[-1] <= most:
        degrees.append(2 * degrees[-1])
    low, high = 0.0, 1.0
    for _ in range(60):
        ratio = (low + high) / 2
        shares = [ratio**rank for rank in range(len(degrees))]
        counts = [max(1, round(vertices * share / sum(shares))) for share in shares]
        # The rounding errors go to the largest class.
        counts[0] += vertices - sum(counts)
        low, high = (ratio, high) if sum(map(mul, degrees, counts)) < mean * vertices else (low, ratio)
    return DegreeClasses(tuple(degrees), tuple(counts))


@dataclass(frozen=True)
class CommunitiesPiece(RangePiece):
    """The edges [start, stop) of a chain of communities."""

    communities: int
    classes: DegreeClasses
    seed: int

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges: sources and targets, int64, of length stop - start."""
        edges = xp.arange(self.start, self.stop, dtype=xp.int64)
        own, slots = edges // self.classes.slots, edges % self.classes.slots
        other = own + self._steps(xp, edges)
        # At the chain's ends, edges to a community that doesn't exist stay in their own.
        other = xp.where((other < 0) | (other >= self.communities), own, other)
        raw = counter.numbers(xp, counter.key(self.seed, _VERTICES), edges)
        drawn = counter.below(xp, raw, self.classes.slots)
        size = self.classes.vertices
        return own * size + self.classes.of_slots(xp, slots), other * size + self.classes.of_slots(xp, drawn)

    def _steps(self, xp: ModuleType, edges: Any) -> Any:
        """Return each edge's step along the chain, int64: -1, 0 or 1 with probability 1/4, 1/2 and 1/4."""
        raw = counter.numbers(xp, counter.key(self.seed, _COMMUNITIES), edges)
        quarter = (raw >> xp.uint64(62)).astype(xp.int64)
        return (quarter == 3).astype(xp.int64) - (quarter == 0)


def communities(name: str, count: int, classes: DegreeClasses, *, directed: bool, seed: int = 1) -> GeneratedEdges:
    """Return a chain of ``count`` communities, each with the vertices and edges of ``classes``."""
    m = count * classes.slots
    return GeneratedEdges(name, count * classes.vertices, m, directed, CommunitiesPiece(0, m, count, classes, seed))
