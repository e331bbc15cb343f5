"""Graph500's Kronecker generator (``kronecker``): the part compiled by Numba, one call of ``draw_edges`` a piece.

Edges are drawn in blocks of ``BLOCK``. The random generator's state of a block is five rows (z1..z5) with one 31-bit
word per edge. So each step is a loop over a row without branches or carried dependences, which the compiler turns into
vector instructions. A step writes its value over the row of the oldest word: rows change roles instead of moving.

Work per edge: two multiplications per level (the generator's recurrence), and 25 to step to the next block's states.
Bytes per edge: 16 written; the rest stays in the L1 cache.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from dbfs_workers.base.jit import INT64, UINT32, int64, kernel, void

# Million edges per second at scale 18, on one core of an EPYC with AVX-512: 64 gives 33, 128 41, 256 44, 1024 41. The
# first block's states are made in Python, which costs each piece 7 microseconds for each edge of a block: so 128.
BLOCK = 128

# Typed constants, because Numba converts uint64 * int to float.
_PRIME = np.uint64(2**31 - 1)
_WORD = np.uint64(31)
_RECENT = np.uint64(107374182)
_OLDEST = np.uint64(104480)

# x // 10000 = x * ceil(2^45 / 10000) >> 45 for x < 2^31 (a vector unit has no 64-bit division).
_TENTHOUSAND = np.uint64(10000)
_RECIPROCAL = np.uint64(-(-(2**45) // 10000))
_RECIPROCAL_SHIFT = np.uint64(45)

# Smaller values are drawn again, so that all residues modulo 10000 are equally likely.
_REDRAW = np.uint64((2**31 - 1) % 10000)

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TARGET_ONLY = np.uint64(1900)
_SOURCE_ONLY = np.uint64(3800)
_NEITHER = np.uint64(9500)

_ID_BITS = np.uint64(64)
_SOURCE_MULTIPLIER = np.uint64(0x4519840211493211)
_TARGET_MULTIPLIER = np.uint64(0x3050852102C843A5)
_REVERSE_STEPS = (
    (np.uint64(1), np.uint64(0x5555555555555555)),
    (np.uint64(2), np.uint64(0x3333333333333333)),
    (np.uint64(4), np.uint64(0x0F0F0F0F0F0F0F0F)),
    (np.uint64(8), np.uint64(0x00FF00FF00FF00FF)),
    (np.uint64(16), np.uint64(0x0000FFFF0000FFFF)),
    (np.uint64(32), np.uint64(0x00000000FFFFFFFF)),
)

_uint32 = types.uint32
_uint64 = types.uint64
_UINT64 = types.Array(types.uint64, 1, "C")
_ROWS32 = types.Array(types.uint32, 2, "C")
_READ_ROWS64 = types.Array(types.uint64, 2, "C", readonly=True)
_READ_UINT64 = types.Array(types.uint64, 1, "C", readonly=True)


@kernel(_uint64, _uint64)
def _fold(x: np.uint64) -> np.uint64:
    """Return a number congruent to x modulo 2^31 - 1, below 2^31 + x / 2^31."""
    return (x & _PRIME) + (x >> _WORD)


@kernel(_uint64, _uint64, _uint64)
def _step(recent: np.uint64, oldest: np.uint64) -> np.uint64:
    """Return the next value. The weighted sum of z1 and z5 is below 2^58: one fold leaves less than twice the prime."""
    folded = _fold(_RECENT * recent + _OLDEST * oldest)
    return np.uint64(folded - _PRIME) if folded >= _PRIME else folded


@kernel(_uint64, _uint64, _uint64, _uint64)
def _bits(value: np.uint64, source: np.uint64, target: np.uint64) -> np.uint64:
    """Return one level's source bit (at 1) and target bit (at 0), from a value and the ids built so far."""
    residue = value - ((value * _RECIPROCAL) >> _RECIPROCAL_SHIFT) * _TENTHOUSAND
    both = residue >= _NEITHER
    source_only = (residue >= _TARGET_ONLY) & (residue < _SOURCE_ONLY)
    # While the ids are equal, an edge below the diagonal is flipped above it.
    source_bit = both | (source_only & (source != target))
    target_bit = both | (residue < _TARGET_ONLY) | (source_only & (source == target))
    return (_ONE + _ONE if source_bit else _ZERO) | (_ONE if target_bit else _ZERO)


@kernel(_uint32, UINT32, UINT32, _UINT64, _UINT64)
def _draw_level(
    recent: NDArray[np.uint32],
    oldest: NDArray[np.uint32],
    sources: NDArray[np.uint64],
    targets: NDArray[np.uint64],
) -> np.uint32:
    """Append one level's bits to every edge of a block; ``oldest`` becomes the newest row. Return the lowest value."""
    lowest = np.uint32(_PRIME)
    for j in range(BLOCK):
        value = _step(recent[j], oldest[j])
        oldest[j] = value
        lowest = min(lowest, np.uint32(value))
        bits = _bits(value, sources[j], targets[j])
        sources[j] = (sources[j] << _ONE) | (bits >> _ONE)
        targets[j] = (targets[j] << _ONE) | (bits & _ONE)
    return lowest


@kernel(void, UINT32, UINT32, UINT32)
def _draw_more(recent: NDArray[np.uint32], oldest: NDArray[np.uint32], values: NDArray[np.uint32]) -> None:
    """Draw the value after those of all levels, for every edge of a block."""
    for j in range(BLOCK):
        values[j] = _step(recent[j], oldest[j])


@kernel(void, _ROWS32, int64, _UINT64, _UINT64, UINT32)
def _draw_with_redraws(
    states: NDArray[np.uint32],
    scale: int,
    sources: NDArray[np.uint64],
    targets: NDArray[np.uint64],
    values: NDArray[np.uint32],
) -> None:
    """Draw a block edge by edge, and the value after all levels; an edge may draw a level's value more than once."""
    for j in range(BLOCK):
        z1, z2, z3, z4, z5 = (
            np.uint64(states[0, j]),
            np.uint64(states[1, j]),
            np.uint64(states[2, j]),
            np.uint64(states[3, j]),
            np.uint64(states[4, j]),
        )
        source = target = _ZERO
        for _ in range(scale):
            z1, z2, z3, z4, z5 = _step(z1, z5), z1, z2, z3, z4
            while z1 < _REDRAW:
                z1, z2, z3, z4, z5 = _step(z1, z5), z1, z2, z3, z4
            bits = _bits(z1, source, target)
            source = (source << _ONE) | (bits >> _ONE)
            target = (target << _ONE) | (bits & _ONE)
        sources[j] = source
        targets[j] = target
        values[j] = _step(z1, z5)


@kernel(void, _READ_UINT64, UINT32, UINT32, UINT32, UINT32, UINT32, UINT32)
def _jump_row(
    coefficients: NDArray[np.uint64],
    z1: NDArray[np.uint32],
    z2: NDArray[np.uint32],
    z3: NDArray[np.uint32],
    z4: NDArray[np.uint32],
    z5: NDArray[np.uint32],
    out: NDArray[np.uint32],
) -> None:
    """Compute one row of matrix times states, modulo the prime. Three products stay below 2^64; five would not."""
    c1, c2, c3, c4, c5 = coefficients[0], coefficients[1], coefficients[2], coefficients[3], coefficients[4]
    for j in range(BLOCK):
        first = _fold(c1 * z1[j] + c2 * z2[j] + c3 * z3[j])
        folded = _fold(_fold(first + c4 * z4[j] + c5 * z5[j]))
        out[j] = folded - _PRIME if folded >= _PRIME else folded


@kernel(_uint64, _uint64, _uint64)
def _reverse_bits(x: np.uint64, bits: np.uint64) -> np.uint64:
    """Return the lowest ``bits`` bits of x in reverse order."""
    for shift, mask in _REVERSE_STEPS:
        x = ((x >> shift) & mask) | ((x & mask) << shift)
    return x >> (_ID_BITS - bits)


@kernel(void, _UINT64, _uint64, _uint64, _uint64)
def _scramble(ids: NDArray[np.uint64], bits: np.uint64, value0: np.uint64, value1: np.uint64) -> None:
    """Apply Graph500's pseudo-random permutation of 0..2^bits - 1 to a block of ids, in place."""
    for j in range(BLOCK):
        x = (ids[j] + value0 + value1) * (value0 | _SOURCE_MULTIPLIER)
        x = _reverse_bits(x, bits) * (value1 | _TARGET_MULTIPLIER)
        ids[j] = _reverse_bits(x, bits)


@kernel(void, _ROWS32, _ROWS32, _READ_ROWS64, _UINT64, _UINT64, UINT32, int64, _uint64, _uint64, INT64, INT64, UINT32)
def draw_edges(
    states: NDArray[np.uint32],
    spare: NDArray[np.uint32],
    block_jump: NDArray[np.uint64],
    block_sources: NDArray[np.uint64],
    block_targets: NDArray[np.uint64],
    block_values: NDArray[np.uint32],
    scale: int,
    value0: np.uint64,
    value1: np.uint64,
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
    values: NDArray[np.uint32],
) -> None:
    """Fill ``sources`` and ``targets`` (int64, of one length) with consecutive edges.

    ``values`` (uint32, of the same length, or empty) gets the value that the generator draws after each edge.

    Args:
        states: uint32[5, BLOCK], column j the start state of edge j; overwritten.
        spare, block_sources, block_targets, block_values: scratch, uint32[5, BLOCK], two uint64[BLOCK] and
            uint32[BLOCK]. Arrays made here, and array operations, would take Numba some seconds more to compile.
        block_jump: uint64[5, 5], the transition from an edge's start state to that of the edge BLOCK further on.
        scale: bits of an id.
        value0, value1: the constants that scramble ids.
    """
    for first in range(0, sources.size, BLOCK):
        for j in range(BLOCK):
            for row in range(5):
                spare[row, j] = states[row, j]
            block_sources[j] = block_targets[j] = _ZERO
        lowest = np.uint32(_PRIME)
        for level in range(scale):
            oldest = 4 - level % 5
            drawn = _draw_level(spare[(oldest + 1) % 5], spare[oldest], block_sources, block_targets)
            lowest = min(lowest, drawn)
        # One value in 590,000 must be drawn again: redoing its block is cheaper than checking each value.
        if lowest < _REDRAW:
            _draw_with_redraws(states, scale, block_sources, block_targets, block_values)
        elif values.size:
            oldest = 4 - scale % 5
            _draw_more(spare[(oldest + 1) % 5], spare[oldest], block_values)
        _scramble(block_sources, np.uint64(scale), value0, value1)
        _scramble(block_targets, np.uint64(scale), value0, value1)
        for j in range(min(BLOCK, sources.size - first)):
            sources[first + j] = block_sources[j]
            targets[first + j] = block_targets[j]
        for j in range(min(BLOCK, values.size - first)):
            values[first + j] = block_values[j]
        for row in range(5):
            _jump_row(block_jump[row], states[0], states[1], states[2], states[3], states[4], spare[row])
        states, spare = spare, states
