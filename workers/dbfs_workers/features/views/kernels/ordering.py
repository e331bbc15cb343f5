"""CPU kernel of a build with columns: the order of rows of attributes by the keys of their edges.

Keys are sorted by radix, least significant digit first. A row costs a read and a write of 16 bytes for each digit.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from dbfs_workers.base.jit import INT64, kernel, void

_DIGIT = 11
_ONE = np.uint64(1)
_UINT64 = types.Array(types.uint64, 1, "C")
_COUNTS = types.Array(types.int64, 2, "C")


def in_order(keys: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return keys that ascend, and the place that each had; places of equal keys ascend."""
    width = max(1, int(keys.max(initial=0)).bit_length())
    digits = -(-width // _DIGIT)
    found, spare = (keys.copy(), np.arange(keys.size)), (np.empty_like(keys), np.empty(keys.size, np.int64))
    _sort(*found, *spare, np.zeros((digits, 1 << -(-width // digits)), np.int64))
    return spare if digits % 2 else found


@kernel(void, _UINT64, INT64, _UINT64, INT64, _COUNTS, plain=True)
def _sort(keys, places, spare_keys, spare_places, counts):
    """Sort keys with their places, by a digit for each row of ``counts``; after an odd number the spares have them."""
    digits, values = counts.shape
    mask = np.uint64(values - 1)
    bits = np.uint64(0)
    while _ONE << bits < np.uint64(values):
        bits += _ONE
    for k in range(keys.size):
        for digit in range(digits):
            counts[digit, np.int64((keys[k] >> (np.uint64(digit) * bits)) & mask)] += 1
    for digit in range(digits):
        before = 0
        for value in range(values):
            before, counts[digit, value] = before + counts[digit, value], before
        shift = np.uint64(digit) * bits
        for k in range(keys.size):
            value = np.int64((keys[k] >> shift) & mask)
            at = counts[digit, value]
            spare_keys[at], spare_places[at] = keys[k], places[k]
            counts[digit, value] = at + 1
        keys, places, spare_keys, spare_places = spare_keys, spare_places, keys, places
