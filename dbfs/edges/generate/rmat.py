"""R-MAT graphs with any quadrant probabilities: Chakrabarti, Zhan, Faloutsos, "R-MAT: A Recursive Model for Graph
Mining", SDM 2004, without its noise.

An edge falls, level by level, into one of the four quadrants of the adjacency matrix: a (both bits 0), b (target bit
1), c (source bit 1) or d (both). Edge i's draws are numbers of a counter-based generator at places that i gives, 32
bits a level, so any range of edges is made without those before it. The ids are permuted afterwards: unpermuted, hubs
would have ids with many zero bits, and rank 0 most of the edges.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import counter
from dbfs.edges.generate.ranges import MAX_EDGES, MAX_SEED, boolean, even_ranges, integer, number
from dbfs.errors import InvalidOptionError
from dbfs_workers.storage.pieces import GeneratedPiece

_MAX_SCALE = 40
_MAX_EDGEFACTOR = 2**20
_LEVEL_BITS = 32
_EDGES, _IDS = 1, 2

# Edges a block on the CPU: its arrays stay in the cache. In the same run at scale 21, 2^12 gave 1.4 million edges a
# second, 2^14 2.1, 2^16 1.9, 2^20 0.5.
_CPU_BLOCK = 2**14


@dataclass(frozen=True)
class RmatPiece(GeneratedPiece):
    """The edges [start, stop) of an R-MAT graph.

    Attributes:
        scale: levels, so bits of an id before folding.
        vertices: what the 2^scale ids are folded onto.
        limits: a, a + b and a + b + c in 2^-32; 2^32 where nothing is left.
        seed: of all draws.
    """

    scale: int
    vertices: int
    limits: tuple[int, int, int]
    seed: int
    start: int
    stop: int

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges: sources and targets, int64, of length stop - start."""
        sources = xp.empty(self.stop - self.start, xp.int64)
        targets = xp.empty_like(sources)
        block = _CPU_BLOCK if xp is np else max(1, sources.size)
        for first in range(0, sources.size, block):
            edges = xp.arange(self.start + first, min(self.start + first + block, self.stop), dtype=xp.int64)
            drawn = draw_pairs(xp, edges, self.scale, self.limits, self.seed)
            for ends, ids in zip((sources, targets), drawn, strict=True):
                ends[first : first + block] = self._fold(xp, ids)
        return sources, targets

    def _fold(self, xp: ModuleType, ids: Any) -> Any:
        permuted = counter.scramble(xp, ids, self.scale, counter.key(self.seed, _IDS))
        if self.vertices == 1 << self.scale:
            return permuted
        # Both factors have at most 40 bits, and the product is at least 2^-40 of itself below the number of vertices.
        return (permuted * (self.vertices * 2.0**-self.scale)).astype(xp.int64)


def draw_pairs(xp: ModuleType, edges: Any, scale: int, limits: tuple[int, int, int], seed: int) -> tuple[Any, Any]:
    """Sources and targets of edges before ids are permuted: two int64 arrays of ``scale`` bits.

    Args:
        edges: int64, the edges' numbers.
        limits: as ``RmatPiece`` has them.
    """
    sources, targets = xp.zeros_like(edges), xp.zeros_like(edges)
    for draw in _levels(xp, edges, scale, counter.key(seed, _EDGES)):
        past_a, past_b, past_c = (draw >= xp.uint64(limit) for limit in limits)
        sources += sources + past_b
        targets += targets + (past_a ^ past_b ^ past_c)
    return sources, targets


def _levels(xp: ModuleType, edges: Any, scale: int, start: int) -> Iterator[Any]:
    """One 32-bit number an edge, as uint64, for each level."""
    words = -(-scale * _LEVEL_BITS // 64)
    for word in range(words):
        drawn = counter.numbers(xp, start, edges * words + word)
        yield drawn >> xp.uint64(_LEVEL_BITS)
        if 2 * word + 1 < scale:
            yield drawn & xp.uint64(2**_LEVEL_BITS - 1)


@dataclass(frozen=True)
class Rmat(EdgeList):
    """An R-MAT graph's edges; make one with ``rmat``."""

    scale: int
    vertices: int
    edges: int
    limits: tuple[int, int, int]
    seed: int

    def cut(self, piece_edges: int) -> Sequence[RmatPiece]:
        """Cut into ranges of edges, at most ``piece_edges`` each."""
        ranges = even_ranges(self.edges, piece_edges)
        return [RmatPiece(self.scale, self.vertices, self.limits, self.seed, *ends) for ends in ranges]


def rmat(
    scale: int,
    edgefactor: int = 16,
    a: float = 0.57,
    b: float = 0.19,
    c: float = 0.19,
    seed: int = 1,
    directed: bool = False,
    n: int | None = None,
    m: int | None = None,
) -> EdgeList:
    """An R-MAT graph: m edges among n vertices, drawn in ``scale`` steps; self-loops and duplicates occur.

    Args:
        scale: 2^scale ids are drawn from.
        edgefactor: edges a vertex, where m is None.
        a, b, c: probabilities of the quadrants (source bit 0, target bit 0), (0, 1) and (1, 0), rounded to 2^-32; the
            rest is (1, 1)'s. Graph500's by default.
        seed: 64 bits.
        directed: whether edges hold in one direction only.
        n: fold the ids evenly onto this many vertices; None for 2^scale.
        m: None for edgefactor * n.

    Raises:
        InvalidOptionError: a parameter is not an integer in its range (scale 1..40, edgefactor 1..2^20, n 1..2^scale, m
            0..2^60), a probability not a number in 0..1, their sum above 1, or directed not a bool.
    """
    scale = integer("rmat", "scale", scale, 1, _MAX_SCALE)
    edgefactor = integer("rmat", "edgefactor", edgefactor, 1, _MAX_EDGEFACTOR)
    quadrants = [number("rmat", name, value, 0, 1) for name, value in (("a", a), ("b", b), ("c", c))]
    # Decimal fractions that sum to 1 may pass it by a rounding error.
    if sum(quadrants) > 1 + 1e-12:
        raise InvalidOptionError(f"rmat: a + b + c must be at most 1, not {sum(quadrants):g}")
    seed = integer("rmat", "seed", seed, 0, MAX_SEED)
    directed = boolean("rmat", "directed", directed)
    vertices = 1 << scale if n is None else integer("rmat", "n", n, 1, 1 << scale)
    edges = edgefactor * vertices if m is None else integer("rmat", "m", m, 0, MAX_EDGES)
    shape = "" if n is None else f",n={vertices}"
    shape += "" if m is None else f",m={edges}"
    return Rmat(
        name=f"rmat:scale={scale},edgefactor={edgefactor},a={quadrants[0]!r},b={quadrants[1]!r},c={quadrants[2]!r},"
        f"seed={seed},directed={str(directed).lower()}{shape}",
        n=vertices,
        m=edges,
        directed=directed,
        mirrored=False,
        scale=scale,
        vertices=vertices,
        edges=edges,
        limits=_limits(*quadrants),
        seed=seed,
    )


def _limits(a: float, b: float, c: float) -> tuple[int, int, int]:
    one = 2**_LEVEL_BITS
    first, second, third = (min(one, round(one * share)) for share in (a, a + b, a + b + c))
    return first, second, third
