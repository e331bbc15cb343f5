"""R-MAT graphs with any quadrant probabilities.

Source: Chakrabarti, Zhan, Faloutsos, "R-MAT: A Recursive Model for Graph Mining", SDM 2004; without its noise. Level by
level, an edge falls into one of the four quadrants of the adjacency matrix: a (both bits 0), b (target bit 1), c
(source bit 1) or d (both bits 1).

Edge i is drawn from numbers of a counter-based generator at indices that depend on i alone, 32 bits per level. So any
range of edges is generated without the edges before it. The ids are permuted afterwards: otherwise hubs would have ids
with many zero bits, and rank 0 would own most edges.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from dbfs.base.calls import public
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import counter
from dbfs.edges.generate.ranges import MAX_EDGES, MAX_SEED, GeneratedEdges, RangePiece, integer, number
from dbfs.errors import InvalidOptionError

_MAX_SCALE = 40
_MAX_EDGEFACTOR = 2**20
_LEVEL_BITS = 32
_EDGES, _IDS = 1, 2

# Edges of a block on the CPU, whose arrays stay in the cache. Million edges per second at scale 21, in one run: 2^12
# gave 1.4, 2^14 2.1, 2^16 1.9, 2^20 0.5.
_CPU_BLOCK = 2**14


@dataclass(frozen=True)
class RmatPiece(RangePiece):
    """The edges [start, stop) of an R-MAT graph.

    Attributes:
        scale: number of levels: the bits of an id before folding.
        vertices: number of vertices that the 2^scale ids are folded onto.
        limits: a, a + b and a + b + c, in units of 2^-32.
        seed: 64-bit seed of all draws.
    """

    scale: int
    vertices: int
    limits: tuple[int, int, int]
    seed: int

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
        """Permute the ids, and scale them down to ``vertices``."""
        permuted = counter.scramble(xp, ids, self.scale, counter.key(self.seed, _IDS))
        if self.vertices == 1 << self.scale:
            return permuted
        # Both factors have at most 40 bits. The product is below the number of vertices by at least 2^-40 of itself, so
        # rounding to 53 bits can't reach it.
        return (permuted * (self.vertices * 2.0**-self.scale)).astype(xp.int64)


def draw_pairs(xp: ModuleType, edges: Any, scale: int, limits: tuple[int, int, int], seed: int) -> tuple[Any, Any]:
    """Return the sources and targets of edges before ids are permuted: two int64 arrays of ids of ``scale`` bits.

    Args:
        edges: the edges' numbers, int64.
        scale, limits, seed: as of ``RmatPiece``.
    """
    sources, targets = xp.zeros_like(edges), xp.zeros_like(edges)
    for draw in _levels(xp, edges, scale, counter.key(seed, _EDGES)):
        past_a, past_b, past_c = (draw >= xp.uint64(limit) for limit in limits)
        sources += sources + past_b
        targets += targets + (past_a ^ past_b ^ past_c)
    return sources, targets


def _levels(xp: ModuleType, edges: Any, scale: int, start: int) -> Iterator[Any]:
    """Yield, for each level, a 32-bit number for each edge, as uint64."""
    words = -(-scale * _LEVEL_BITS // 64)
    for word in range(words):
        drawn = counter.numbers(xp, start, edges * words + word)
        yield drawn >> xp.uint64(_LEVEL_BITS)
        if 2 * word + 1 < scale:
            yield drawn & xp.uint64(2**_LEVEL_BITS - 1)


@public
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
    """Return an R-MAT graph: m edges among n vertices, drawn in ``scale`` levels. Self-loops and duplicates occur.

    Args:
        scale: ids are drawn from 0..2^scale - 1.
        edgefactor: edges per vertex, if m is None.
        a, b, c: probabilities of the quadrants (source bit 0, target bit 0), (0, 1) and (1, 0), rounded to 2^-32; the
            rest is the probability of (1, 1). The defaults are Graph500's.
        seed: 64 bits.
        directed: whether edges can be crossed in one direction only.
        n: fold the ids evenly onto this many vertices; None for 2^scale.
        m: number of edges; None for edgefactor * n.

    Raises:
        InvalidOptionError: a parameter is not an integer in its range (scale 1..40, edgefactor 1..2^20, n 1..2^scale, m
            0..2^60), a probability not a number in 0..1, or their sum above 1.
        InvalidOptionTypeError: directed is not a bool.
    """
    scale = integer("rmat", "scale", scale, 1, _MAX_SCALE)
    edgefactor = integer("rmat", "edgefactor", edgefactor, 1, _MAX_EDGEFACTOR)
    quadrants = [number("rmat", name, value, 0, 1) for name, value in (("a", a), ("b", b), ("c", c))]
    # Decimal fractions whose sum is 1 may exceed 1 by a rounding error.
    if sum(quadrants) > 1 + 1e-12:
        raise InvalidOptionError(f"rmat: a + b + c must be at most 1, not {sum(quadrants):g}")
    seed = integer("rmat", "seed", seed, 0, MAX_SEED)
    directed = bool(directed)
    vertices = 1 << scale if n is None else integer("rmat", "n", n, 1, 1 << scale)
    edges = edgefactor * vertices if m is None else integer("rmat", "m", m, 0, MAX_EDGES)
    shape = "" if n is None else f",n={vertices}"
    shape += "" if m is None else f",m={edges}"
    return GeneratedEdges(
        name=f"rmat:scale={scale},edgefactor={edgefactor},a={quadrants[0]!r},b={quadrants[1]!r},c={quadrants[2]!r},"
        f"seed={seed},directed={str(directed).lower()}{shape}",
        n=vertices,
        m=edges,
        directed=directed,
        whole=RmatPiece(0, edges, scale, vertices, _limits(*quadrants), seed),
    )


def _limits(a: float, b: float, c: float) -> tuple[int, int, int]:
    """Return a, a + b and a + b + c in units of 2^-32."""
    one = 2**_LEVEL_BITS
    first, second, third = (min(one, round(one * share)) for share in (a, a + b, a + b + c))
    return first, second, third
