"""Graph500's Kronecker (R-MAT) generator, bit for bit: specification v2.0, and its reference code, version 3.

Edge i is drawn from the seed state skipped by 2^64 * i steps, so any range of edges is generated without the edges
before it. ``_mrg`` skips steps, ``_kronecker_kernel`` draws on the CPU, and ``dbfs_workers.cuda.kronecker`` on a GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import _mrg
from dbfs.edges.generate.ranges import MAX_SEED, even_ranges, integer
from dbfs_workers.storage.pieces import Edges, GeneratedPiece

# With 2^40 vertices and 2^60 edges, ids and the number of edges in both directions fit an int64.
_MAX_SCALE = 40
_MAX_EDGEFACTOR = 2**20

_EDGE_STRIDE = 2**64
_SCRAMBLE_SKIP = 50 * 2**128 + 7 * 2**64


@lru_cache(maxsize=64)
def _edge_jump(edges: int) -> _mrg.Matrix:
    """Return the transition from an edge's start state to that of the edge ``edges`` further on."""
    return _mrg.power(_mrg.STEP, _EDGE_STRIDE * edges)


@lru_cache(maxsize=64)
def _scramble_values(seed1: int, seed2: int) -> tuple[int, int]:
    """Return the two 64-bit constants that scramble the ids."""
    state = _mrg.apply(_mrg.power(_mrg.STEP, _SCRAMBLE_SKIP), _mrg.seed_state(seed1, seed2))
    draws = []
    for _ in range(4):
        state = _mrg.apply(_mrg.STEP, state)
        draws.append(state[0])
    return draws[0] * (2**32 - 1) + draws[1], draws[2] * (2**32 - 1) + draws[3]


@cache
def _doubling_jumps() -> NDArray[np.uint32]:
    """Return uint32[bits, 5, 5]: the transitions over 1, 2, 4, ... edges, for all bits of an edge's number."""
    jumps = [_mrg.power(_mrg.STEP, _EDGE_STRIDE)]
    while len(jumps) < (_MAX_EDGEFACTOR << _MAX_SCALE).bit_length():
        jumps.append(_mrg.power(jumps[-1], 2))
    return np.array(jumps, np.uint32)


@dataclass(frozen=True)
class KroneckerPiece(GeneratedPiece):
    """The edges [start, stop) of a Kronecker graph."""

    scale: int
    seed1: int
    seed2: int
    start: int
    stop: int

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges: sources and targets, int64, of length stop - start."""
        return self._on_cpu() if xp is np else self._on_gpu()

    def _on_gpu(self) -> tuple[Any, Any]:
        from dbfs_workers.cuda.kronecker import draw_edges

        seed = np.array(_mrg.seed_state(self.seed1, self.seed2), np.uint32)
        numbers = (self.start, self.stop - self.start, self.scale, *_scramble_values(self.seed1, self.seed2))
        return draw_edges(_doubling_jumps(), seed, *numbers)

    def _on_cpu(self) -> Edges:
        # Imported here, so that a client that describes edges does not import Numba.
        from dbfs.edges.generate._kronecker_kernel import BLOCK, draw_edges

        one = _edge_jump(1)
        state = _mrg.apply(_mrg.power(one, self.start), _mrg.seed_state(self.seed1, self.seed2))
        starts = [state]
        while len(starts) < BLOCK:
            starts.append(_mrg.apply(one, starts[-1]))
        states = np.ascontiguousarray(np.array(starts, np.uint32).T)
        block_jump = np.array(_edge_jump(BLOCK), np.uint64)
        value0, value1 = map(np.uint64, _scramble_values(self.seed1, self.seed2))
        sources = np.empty(self.stop - self.start, np.int64)
        targets = np.empty_like(sources)
        draw_edges(states, block_jump, self.scale, value0, value1, sources, targets)
        return sources, targets


@dataclass(frozen=True)
class Kronecker(EdgeList):
    """A Kronecker graph's edges; make one with ``kronecker``."""

    scale: int
    seed1: int
    seed2: int
    edges: int

    def cut(self, piece_edges: int) -> Sequence[KroneckerPiece]:
        """Cut into ranges of edges, at most ``piece_edges`` each."""
        ranges = even_ranges(self.edges, piece_edges)
        return [KroneckerPiece(self.scale, self.seed1, self.seed2, start, stop) for start, stop in ranges]


def kronecker(scale: int, edgefactor: int = 16, seed1: int = 2, seed2: int = 3) -> EdgeList:
    """Return Graph500's Kronecker graph: 2^scale vertices, edgefactor * 2^scale undirected edges.

    Self-loops and duplicates occur, and many vertices have no edge. Graph500 fixes edgefactor 16 and the seeds 2 and 3.

    Raises:
        InvalidOptionError: a parameter is not an integer in its range (scale 1..40, edgefactor 1..2^20, 64-bit seeds).
    """
    scale = integer("kronecker", "scale", scale, 1, _MAX_SCALE)
    edgefactor = integer("kronecker", "edgefactor", edgefactor, 1, _MAX_EDGEFACTOR)
    seed1 = integer("kronecker", "seed1", seed1, 0, MAX_SEED)
    seed2 = integer("kronecker", "seed2", seed2, 0, MAX_SEED)
    edges = edgefactor << scale
    return Kronecker(
        name=f"kronecker:scale={scale},edgefactor={edgefactor},seed1={seed1},seed2={seed2}",
        n=1 << scale,
        m=edges,
        directed=False,
        mirrored=False,
        scale=scale,
        seed1=seed1,
        seed2=seed2,
        edges=edges,
    )
