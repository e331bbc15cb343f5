"""Counter-based random numbers as array code: the same bits by NumPy and CuPy, and any range alone.

Source: SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014). Number i of the
sequence of a key is a bijective mix of key + (i + 1) * golden gamma, so it does not need the numbers before it.
"""

from types import ModuleType
from typing import Any

_GAMMA = 0x9E3779B97F4A7C15
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31
_WORD = 2**64 - 1

# Philox4x64-10: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
_ROUNDS = 10
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)


def key(seed: int, *labels: int) -> int:
    """Return the key of an independent sequence, for a seed of 64 bits and labels that name the sequence's use."""
    state = seed
    for label in labels:
        state = _mix(_mix(state + _GAMMA & _WORD) + label * _GAMMA & _WORD)
    return state


def numbers(xp: ModuleType, start: int, counters: Any) -> Any:
    """Return the numbers of a sequence at the given indices.

    Args:
        start: the sequence's ``key``.
        counters: indices, an int64 or uint64 array of ``xp``, at least 0.

    Returns:
        uint64 array, of the shape of ``counters``.
    """
    state = (counters.astype(xp.uint64) + xp.uint64(1)) * xp.uint64(_GAMMA)
    state += xp.uint64(start)
    for shift, factor in _STEPS:
        state ^= state >> xp.uint64(shift)
        state *= xp.uint64(factor)
    state ^= state >> xp.uint64(_LAST_SHIFT)
    return state


def random_raw(xp: ModuleType, key: int, counter: int, count: int) -> Any:
    """Return ``numpy.random.Philox(key=key, counter=counter).random_raw(count)`` as a uint64 array of ``xp``.

    Args:
        key: 64 bits.
        counter: below 2^63; each counter gives four numbers.
    """
    blocks = -(-count // 4)
    # NumPy increments the counter before it makes a block.
    words = [xp.arange(counter + 1, counter + 1 + blocks, dtype=xp.uint64)]
    words += [xp.zeros(blocks, xp.uint64) for _ in range(3)]
    keys = [key, 0]
    for _ in range(_ROUNDS):
        high0, low0 = _product(xp, words[0], _MULTIPLIERS[0])
        high1, low1 = _product(xp, words[2], _MULTIPLIERS[1])
        words = [high1 ^ words[1] ^ xp.uint64(keys[0]), low1, high0 ^ words[3] ^ xp.uint64(keys[1]), low0]
        keys = [old + step & _WORD for old, step in zip(keys, _KEY_STEPS, strict=True)]
    return xp.stack(words, axis=1).reshape(-1)[:count]


def below(xp: ModuleType, raw: Any, bound: Any) -> Any:
    """Return uniform integers 0..bound-1, int64, from uniform 64-bit numbers.

    The result is 53 bits as a float64 in [0, 1), times the bound. Both factors are exact, so rounding never reaches the
    bound. With a bound of up to 2^40, an integer's probability is within 2^-13 of 1/bound.

    Args:
        raw: uint64 array.
        bound: an int in 1..2^40, or an array of them that broadcasts with ``raw``.
    """
    return ((raw >> xp.uint64(11)).astype(xp.float64) * (bound * 2.0**-53)).astype(xp.int64)


def scramble(xp: ModuleType, ids: Any, bits: int, seed: int) -> Any:
    """Apply a pseudo-random permutation of 0..2^bits-1 to int64 ids.

    Products with odd numbers carry low bits up, and shifts bring high bits down. Each step is a bijection.
    """
    mask = (1 << bits) - 1
    half = xp.uint64((bits + 1) // 2)
    mixed = ids.astype(xp.uint64) ^ xp.uint64(key(seed, 0) & mask)
    for label in (1, 2, 3):
        mixed *= xp.uint64(key(seed, label) | 1)
        mixed &= xp.uint64(mask)
        mixed ^= mixed >> half
    return mixed.astype(xp.int64)


def _mix(state: int) -> int:
    for shift, factor in _STEPS:
        state = (state ^ state >> shift) * factor & _WORD
    return state ^ state >> _LAST_SHIFT


def _product(xp: ModuleType, values: Any, factor: int) -> tuple[Any, Any]:
    """Return the high and the low 64 bits of uint64 values times a factor, from products of 32-bit halves."""
    half, low_mask = xp.uint64(32), xp.uint64(2**32 - 1)
    factor_low, factor_high = xp.uint64(factor & 2**32 - 1), xp.uint64(factor >> 32)
    low, high = values & low_mask, values >> half
    carried = high * factor_low + (low * factor_low >> half)
    middle = (carried & low_mask) + low * factor_high
    return high * factor_high + (carried >> half) + (middle >> half), values * xp.uint64(factor)
