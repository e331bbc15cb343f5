"""Philox4x64-10 as array code, for GPUs, with the numbers of ``numpy.random.Philox``.

Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
"""

from types import ModuleType
from typing import Any

_ROUNDS = 10
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_WORD = 2**64 - 1


def random_raw(xp: ModuleType, key: int, counter: int, count: int) -> Any:
    """Return ``numpy.random.Philox(key=key, counter=counter).random_raw(count)`` as a uint64 array of ``xp``.

    Args:
        xp: NumPy or CuPy.
        key: 64 bits.
        counter: below 2^63; each counter gives four numbers.
        count: number of numbers.
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


def _product(xp: ModuleType, values: Any, factor: int) -> tuple[Any, Any]:
    """Return the high and the low 64 bits of uint64 values times a factor, from products of 32-bit halves."""
    half, low_mask = xp.uint64(32), xp.uint64(2**32 - 1)
    factor_low, factor_high = xp.uint64(factor & 2**32 - 1), xp.uint64(factor >> 32)
    low, high = values & low_mask, values >> half
    carried = high * factor_low + (low * factor_low >> half)
    middle = (carried & low_mask) + low * factor_high
    return high * factor_high + (carried >> half) + (middle >> half), values * xp.uint64(factor)
