"""CPU kernels of distinct byte strings: a hash table. Strings lie as in Arrow (see ``kernels.ids``).

A slot of the table is 0, or the upper half of a string's hash above the string's code plus one. The slot alone tells
most strings apart that differ.
"""

import numpy as np
from numba import types

from dbfs_workers.base.intrinsics import folded_product, prefetch
from dbfs_workers.base.jit import INT32, INT64, READ_INT64, UINT8, allocating_kernel, int64, kernel, void
from dbfs_workers.ids.kernels.ids import READ_UINT8, UINT64, word_at

uint64 = types.uint64
boolean = types.boolean

_HALF = np.uint64(32)
_CODE = np.uint64(0xFFFFFFFF)
# Strings whose slots are prefetched together.
_BLOCK = 32


@kernel(uint64, int64, int64, int64, uint64, plain=True)
def hash_of(address, length, end, seed):
    """Return the hash of the string at an address; ``end`` as of ``word_at``, ``seed`` odd and secret."""
    found = seed ^ np.uint64(length)
    for at in range(0, length, 8):
        found = folded_product(found ^ word_at(address + at, length - at, end), seed)
    return folded_product(found ^ (seed >> _HALF), seed)


@kernel(boolean, int64, int64, int64, int64, int64, plain=True)
def same_bytes(one, one_end, other, other_end, length):
    """Return whether the strings at two addresses have the same bytes; ends as of ``word_at``."""
    for at in range(0, length, 8):
        if word_at(one + at, length - at, one_end) != word_at(other + at, length - at, other_end):
            return False
    return True


@allocating_kernel(int64, READ_INT64, READ_UINT8, uint64, UINT64, INT32, INT64, UINT8, int64, plain=True)
def encode_strings(offsets, data, seed, table, codes, held_offsets, held, count):
    """Write the code of each string, and hold the string of each new code; return the number of codes.

    A string reads three places that are seldom in a cache: a slot, an offset and the string held. So each place is
    prefetched for a block of strings before the next one is read. This took 0.4 to 0.6 times as long (one core, 90
    thousand to 2 million distinct strings).

    Args:
        offsets, data: the strings.
        seed: seed of the hash function, as of ``hash_of``.
        table: a power of 2 of slots, more than there will be codes.
        codes: out, the codes.
        held_offsets, held: the string of each code, with room for all strings.
        count: number of codes so far.
    """
    mask = np.uint64(table.size - 1)
    begin, held_begin = data.ctypes.data, held.ctypes.data
    end, held_end = begin + data.size, held_begin + held.size
    hashes = np.empty(_BLOCK, np.uint64)
    for first in range(0, codes.size, _BLOCK):
        size = min(_BLOCK, codes.size - first)
        for k in range(size):
            i = first + k
            hashes[k] = hash_of(begin + offsets[i], offsets[i + 1] - offsets[i], end, seed)
            prefetch(table, int64(hashes[k] & mask))
        for k in range(size):
            word = table[int64(hashes[k] & mask)]
            if word != 0:
                prefetch(held_offsets, int64(word & _CODE) - 1)
        for k in range(size):
            word = table[int64(hashes[k] & mask)]
            if word != 0:
                prefetch(held, held_offsets[int64(word & _CODE) - 1])
        for k in range(size):
            i, hashed = first + k, hashes[k]
            address, length = begin + offsets[i], offsets[i + 1] - offsets[i]
            slot = int64(hashed & mask)
            while True:
                word = table[slot]
                if word == 0:
                    start = held_offsets[count]
                    for at in range(length):
                        held[start + at] = data[offsets[i] + at]
                    table[slot] = (hashed & ~_CODE) | np.uint64(count + 1)
                    codes[i] = count
                    count += 1
                    held_offsets[count] = start + length
                    break
                if (word ^ hashed) >> _HALF == 0:
                    code = int64(word & _CODE) - 1
                    start = held_offsets[code]
                    if held_offsets[code + 1] - start == length and same_bytes(
                        address, end, held_begin + start, held_end, length
                    ):
                        codes[i] = code
                        break
                slot = (slot + 1) & (table.size - 1)
    return count


@kernel(void, READ_INT64, READ_UINT8, uint64, int64, UINT64, plain=True)
def place_strings(offsets, data, seed, count, table):
    """Place the codes of ``count`` distinct strings in an empty table; arguments as of ``encode_strings``."""
    mask = np.uint64(table.size - 1)
    begin = data.ctypes.data
    for code in range(count):
        hashed = hash_of(begin + offsets[code], offsets[code + 1] - offsets[code], begin + data.size, seed)
        slot = int64(hashed & mask)
        while table[slot]:
            slot = (slot + 1) & (table.size - 1)
        table[slot] = (hashed & ~_CODE) | np.uint64(code + 1)
