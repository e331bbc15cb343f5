"""Graph500's Kronecker (R-MAT) generator, bit for bit: specification v2.0, and its reference code, version 3.

Edge i is drawn from the seed state skipped by 2^64 * i steps, so any range of edges is generated without the edges
before it. ``kernels/kronecker.py`` draws on the CPU, and ``dbfs_workers.building.cuda`` on a GPU.

The random generator is a multiple recursive one of order 5 modulo 2^31 - 1 (L'Ecuyer), as in the reference code. In a
step, ``(107374182 z1 + 104480 z5) mod (2^31 - 1)`` becomes z1, and the other words move up by one. So skipping k steps
multiplies the state by the k-th power of a 5 x 5 matrix.
"""

from dataclasses import dataclass
from functools import cache, lru_cache
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import public
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate.ranges import MAX_SEED, GeneratedEdges, RangePiece, integer
from dbfs_workers.building.pieces import Edges

if TYPE_CHECKING:
    import pyarrow as pa

# With 2^40 vertices and 2^60 edges, ids and the number of edges in both directions fit an int64.
_MAX_SCALE = 40
_MAX_EDGEFACTOR = 2**20

_EDGE_STRIDE = 2**64
_SCRAMBLE_SKIP = 50 * 2**128 + 7 * 2**64

_PRIME = 2**31 - 1
# As in the reference code, in float64; a product is rounded to float32.
_WEIGHT_STEP = 0.000000000465661287524579692
_NO_VALUES = np.empty(0, np.uint32)

_State = tuple[int, ...]
_Matrix = tuple[_State, ...]

_STEP: _Matrix = (
    (107374182, 0, 0, 0, 104480),
    (1, 0, 0, 0, 0),
    (0, 1, 0, 0, 0),
    (0, 0, 1, 0, 0),
    (0, 0, 0, 1, 0),
)
_IDENTITY: _Matrix = tuple(tuple(int(row == column) for column in range(5)) for row in range(5))


def _seed_state(seed1: int, seed2: int) -> _State:
    """Return the state (z1..z5) of two 64-bit user seeds."""
    low = 2**30 - 1
    return (
        1 + (seed1 & low),
        1 + (seed1 >> 30 & low),
        1 + (seed2 & low),
        1 + (seed2 >> 30 & low),
        1 + (seed1 >> 60) + (seed2 >> 60 << 4),
    )


def _apply(matrix: _Matrix, state: _State) -> _State:
    """Return matrix times state."""
    return tuple(sum(a * z for a, z in zip(row, state, strict=True)) % _PRIME for row in matrix)


def _power(matrix: _Matrix, exponent: int) -> _Matrix:
    """Return the matrix to the power ``exponent`` (0 or more), by squaring."""
    result = _IDENTITY
    while exponent:
        if exponent & 1:
            result = _product(result, matrix)
        matrix = _product(matrix, matrix)
        exponent >>= 1
    return result


def _product(left: _Matrix, right: _Matrix) -> _Matrix:
    columns = tuple(zip(*right, strict=True))
    return tuple(_apply(columns, row) for row in left)


@lru_cache(maxsize=64)
def _edge_jump(edges: int) -> _Matrix:
    """Return the transition from an edge's start state to that of the edge ``edges`` further on."""
    return _power(_STEP, _EDGE_STRIDE * edges)


@lru_cache(maxsize=64)
def _scramble_values(seed1: int, seed2: int) -> tuple[int, int]:
    """Return the two 64-bit constants that scramble the ids."""
    state = _apply(_power(_STEP, _SCRAMBLE_SKIP), _seed_state(seed1, seed2))
    draws = []
    for _ in range(4):
        state = _apply(_STEP, state)
        draws.append(state[0])
    return draws[0] * (2**32 - 1) + draws[1], draws[2] * (2**32 - 1) + draws[3]


@cache
def _doubling_jumps() -> NDArray[np.uint32]:
    """Return uint32[bits, 5, 5]: the transitions over 1, 2, 4, ... edges, for all bits of an edge's number."""
    jumps = [_power(_STEP, _EDGE_STRIDE)]
    while len(jumps) < (_MAX_EDGEFACTOR << _MAX_SCALE).bit_length():
        jumps.append(_power(jumps[-1], 2))
    return np.array(jumps, np.uint32)


class Graph500Weights:
    """The draw of ``weight=graph500``: see ``KroneckerPiece.lengths``."""

    @property
    def kind(self) -> "pa.DataType":
        import pyarrow as pa

        return pa.float32()

    def values(self, piece: Any, raw: NDArray[np.uint64]) -> "pa.Array":  # noqa: ARG002
        import pyarrow as pa

        return pa.array(piece.lengths())


@dataclass(frozen=True)
class KroneckerPiece(RangePiece):
    """The edges [start, stop) of a Kronecker graph."""

    scale: int
    seed1: int
    seed2: int
    kernels: ClassVar[tuple[str, ...]] = ("dbfs.edges.generate.kernels.kronecker",)
    draws = MappingProxyType({"graph500": Graph500Weights()})

    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Generate the edges: sources and targets, int64, of length stop - start."""
        return self._on_cpu() if xp is np else self._on_gpu()

    def _on_gpu(self) -> tuple[Any, Any]:
        from dbfs_workers.building.cuda import draw_edges

        seed = np.array(_seed_state(self.seed1, self.seed2), np.uint32)
        numbers = (self.start, self.stop - self.start, self.scale, *_scramble_values(self.seed1, self.seed2))
        return draw_edges(_doubling_jumps(), seed, *numbers)

    def lengths(self) -> NDArray[np.float32]:
        """Draw the weight of each edge, from 0 to 1, bit for bit those of the reference code for kernel 3.

        Each is the value that the random generator draws after its edge, over 2^31 - 1.
        """
        values = np.empty(self.stop - self.start, np.uint32)
        self._on_cpu(values)
        return (values.astype(np.float32).astype(np.float64) * _WEIGHT_STEP).astype(np.float32)

    def _on_cpu(self, values: NDArray[np.uint32] = _NO_VALUES) -> Edges:
        # Imported here, so that a client that describes edges does not import Numba.
        from dbfs.edges.generate.kernels.kronecker import BLOCK, draw_edges

        one = _edge_jump(1)
        state = _apply(_power(one, self.start), _seed_state(self.seed1, self.seed2))
        starts = [state]
        while len(starts) < BLOCK:
            starts.append(_apply(one, starts[-1]))
        states = np.ascontiguousarray(np.array(starts, np.uint32).T)
        block_jump = np.array(_edge_jump(BLOCK), np.uint64)
        value0, value1 = map(np.uint64, _scramble_values(self.seed1, self.seed2))
        sources = np.empty(self.stop - self.start, np.int64)
        targets = np.empty_like(sources)
        scratch = (np.empty(BLOCK, dtype) for dtype in (np.uint64, np.uint64, np.uint32))
        draw_edges(
            states,
            np.empty_like(states),
            block_jump,
            *scratch,
            self.scale,
            value0,
            value1,
            sources,
            targets,
            values,
        )
        return sources, targets


@public
def kronecker(scale: int, edgefactor: int = 16, seed1: int = 2, seed2: int = 3) -> EdgeList:
    """Return Graph500's Kronecker graph: 2^scale vertices, edgefactor * 2^scale undirected edges.

    Self-loops and duplicates occur, and many vertices have no edge. Graph500 fixes edgefactor 16 and the seeds 2 and 3.
    The column ``weight=graph500`` has the reference code's weights for shortest paths (kernel 3), float32 from 0 to 1.

    Raises:
        InvalidOptionError: a parameter is not an integer in its range (scale 1..40, edgefactor 1..2^20, 64-bit seeds).
    """
    scale = integer("kronecker", "scale", scale, 1, _MAX_SCALE)
    edgefactor = integer("kronecker", "edgefactor", edgefactor, 1, _MAX_EDGEFACTOR)
    seed1 = integer("kronecker", "seed1", seed1, 0, MAX_SEED)
    seed2 = integer("kronecker", "seed2", seed2, 0, MAX_SEED)
    edges = edgefactor << scale
    name = f"kronecker:scale={scale},edgefactor={edgefactor},seed1={seed1},seed2={seed2}"
    return GeneratedEdges(name, 1 << scale, edges, directed=False, whole=KroneckerPiece(0, edges, scale, seed1, seed2))
