"""Random graphs with given degrees and a given depth: a chain of communities, degrees falling off as a power law.

Degrees as in Chung, Lu, "Connected Components in Random Graphs with Given Expected Degree Sequences", Annals of
Combinatorics 6, 2002: every vertex lists a fixed number of edges, and the other end of each is a vertex drawn in
proportion to its own number. It is drawn from the same community half the time, else from the one before or the one
after. A traversal passes from one community to the next in a level or two, so their number sets the depth.

Vertices of the same degree lie spread over their community's ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import gcd
from operator import mul
from types import ModuleType
from typing import Any

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import counter
from dbfs.edges.generate.ranges import even_ranges
from dbfs_workers.storage.pieces import GeneratedPiece

_GOLDEN = 0.6180339887498949
_COMMUNITIES, _VERTICES = 1, 2


@dataclass(frozen=True)
class DegreeClasses:
    """How many vertices of a community list how many edges each: classes in order of degree.

    A community's slots, one for each edge listed, are numbered class by class, vertex by vertex.
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
        """The vertices, 0..vertices-1, whose slots these are: int64."""
        first_slots = xp.array([0, *accumulate(map(mul, self.degrees, self.counts))], dtype=xp.int64)
        first_vertices = xp.array([0, *accumulate(self.counts)], dtype=xp.int64)
        classes = xp.searchsorted(first_slots, slots, side="right") - 1
        degrees = xp.array(self.degrees, dtype=xp.int64)
        ranks = first_vertices[classes] + (slots - first_slots[classes]) // degrees[classes]
        return ranks * self._stride % self.vertices

    @property
    def _stride(self) -> int:
        # Coprime with the number of vertices: a permutation that puts neighbours in rank far apart.
        stride = max(1, round(self.vertices * _GOLDEN))
        while gcd(stride, self.vertices) > 1:
            stride += 1
        return stride


def power_law(vertices: int, mean: float, least: int, most: int) -> DegreeClasses:
    """Degrees least, 2 least, 4 least, ... up to ``most``, whose frequency falls by a constant factor from one to the
    next, chosen so that the mean comes out; at least one vertex of each.

    Args:
        vertices: at least the number of classes.
        mean: above ``least``, and below the classes' plain average.
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
class CommunitiesPiece(GeneratedPiece):
    """The edges [start, stop) of a chain of communities."""

    communities: int
    classes: DegreeClasses
    seed: int
    start: int
    stop: int

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges: sources and targets, int64, of length stop - start."""
        edges = xp.arange(self.start, self.stop, dtype=xp.int64)
        own, slots = edges // self.classes.slots, edges % self.classes.slots
        other = own + self._steps(xp, edges)
        # The chain's ends have no neighbour on one side: these edges stay.
        other = xp.where((other < 0) | (other >= self.communities), own, other)
        raw = counter.numbers(xp, counter.key(self.seed, _VERTICES), edges)
        drawn = counter.below(xp, raw, self.classes.slots)
        size = self.classes.vertices
        return own * size + self.classes.of_slots(xp, slots), other * size + self.classes.of_slots(xp, drawn)

    def _steps(self, xp: ModuleType, edges: Any) -> Any:
        """How far along the chain each edge goes: -1, 0, 0 or 1, int64."""
        raw = counter.numbers(xp, counter.key(self.seed, _COMMUNITIES), edges)
        quarter = (raw >> xp.uint64(62)).astype(xp.int64)
        return (quarter == 3).astype(xp.int64) - (quarter == 0)


@dataclass(frozen=True)
class Communities(EdgeList):
    """A chain of communities' edges; make one with ``communities``."""

    communities: int
    classes: DegreeClasses
    seed: int

    def cut(self, piece_edges: int) -> Sequence[CommunitiesPiece]:
        """Cut into ranges of edges, at most ``piece_edges`` each."""
        ranges = even_ranges(self.communities * self.classes.slots, piece_edges)
        return [CommunitiesPiece(self.communities, self.classes, self.seed, *ends) for ends in ranges]


def communities(name: str, count: int, classes: DegreeClasses, *, directed: bool, seed: int = 1) -> Communities:
    """A chain of ``count`` communities, each with the vertices and edges that ``classes`` says."""
    return Communities(
        name=name,
        n=count * classes.vertices,
        m=count * classes.slots,
        directed=directed,
        mirrored=False,
        communities=count,
        classes=classes,
        seed=seed,
    )
