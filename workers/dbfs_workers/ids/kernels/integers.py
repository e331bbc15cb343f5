"""CPU kernels of distinct integers: a hash table, their division into ranges, their order, and look-ups by codes.

A slot of the table is 0, or a code plus one in its lower half. Its upper half is the integer, if all integers are below
2^32: then a look-up reads one place that is seldom in a cache. Else it is half of the integer's hash, and the integer
of the code is compared as well. A table has a power of 2 of slots.
"""

import numpy as np
from numba import types

from dbfs_workers.base.intrinsics import prefetch
from dbfs_workers.base.jit import (
    INT32,
    INT64,
    READ_INT32,
    READ_INT64,
    READ_UINT16,
    READ_UINT32,
    UINT16,
    UINT32,
    allocating_kernel,
    int64,
    kernel,
    void,
)
from dbfs_workers.ids.kernels.ids import UINT64, mixed

READ_UINT64 = types.Array(types.uint64, 1, "C", readonly=True)
uint64 = types.uint64
boolean = types.boolean

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
# Integers hashed at a time.
_BLOCK = 512
# How many integers before its turn the slot of an integer is prefetched, and the integer of that slot. With 24 instead
# of 8 a look-up in 2^23 slots took 0.7 times as long (one core of a busy machine).
_SLOTS_AHEAD = 24
_IDS_AHEAD = 12


@kernel(uint64, uint64, uint64, plain=True)
def hash_of(one, seed):
    """Return the hash of an integer. Its upper half says where the search for the integer begins."""
    return mixed(mixed(one ^ seed))


@allocating_kernel(int64, READ_INT64, uint64, boolean, UINT64, INT32, INT64, int64, plain=True)
def encode_integers(ids, seed, narrow, table, codes, distinct, count):
    """Write the code of each integer, and the integer of each new code; return the number of codes.

    Args:
        ids: the integers.
        seed: seed of the hash function.
        narrow: whether all integers, those before included, are below 2^32.
        table: the slots, more than there will be codes.
        codes: out, the codes.
        distinct: the integer of each code.
        count: number of codes so far.
    """
    mask = np.uint64(table.size - 1)
    tags = np.zeros(_BLOCK + _SLOTS_AHEAD, np.uint64)
    places = np.zeros(_BLOCK + _SLOTS_AHEAD, np.uint64)
    for first in range(0, ids.size, _BLOCK):
        block = min(_BLOCK, ids.size - first)
        for k in range(block):
            hashed = hash_of(np.uint64(ids[first + k]), seed)
            places[k] = (hashed >> _HALF) & mask
            tags[k] = np.uint64(ids[first + k]) if narrow else hashed & _LOW
        for k in range(_SLOTS_AHEAD):
            prefetch(table, int64(places[k]))
        for k in range(block):
            prefetch(table, int64(places[k + _SLOTS_AHEAD]))
            if not narrow:
                word = table[places[k + _IDS_AHEAD]]
                if word >> _HALF == tags[k + _IDS_AHEAD]:
                    prefetch(distinct, int64(word & _LOW) - 1)
            tag, place = tags[k], places[k]
            while True:
                word = table[place]
                if word >> _HALF == tag and word != 0:
                    code = int64(word & _LOW) - 1
                    if narrow or distinct[code] == ids[first + k]:
                        codes[first + k] = code
                        break
                elif word == 0:
                    table[place] = (tag << _HALF) | np.uint64(count + 1)
                    distinct[count] = ids[first + k]
                    codes[first + k] = count
                    count += 1
                    break
                place = (place + _ONE) & mask
    return count


@kernel(void, READ_UINT64, uint64, UINT64, plain=True)
def widen_table(old, seed, table):
    """Place the slots of a table of integers below 2^32 in an empty table of twice as many.

    Both tables are read and written in their order, which takes a third of the time of ``place_codes``.
    """
    mask = np.uint64(table.size - 1)
    for at in range(old.size):
        word = old[at]
        if word != 0:
            place = (hash_of(word >> _HALF, seed) >> _HALF) & mask
            while table[place] != 0:
                place = (place + _ONE) & mask
            table[place] = word


@allocating_kernel(void, READ_INT64, uint64, UINT64, plain=True)
def place_codes(distinct, seed, table):
    """Place the codes of distinct integers, of any size, in an empty table."""
    mask = np.uint64(table.size - 1)
    words = np.empty(_BLOCK, np.uint64)
    places = np.empty(_BLOCK, np.uint64)
    for first in range(0, distinct.size, _BLOCK):
        block = min(_BLOCK, distinct.size - first)
        for k in range(block):
            hashed = hash_of(np.uint64(distinct[first + k]), seed)
            places[k] = (hashed >> _HALF) & mask
            words[k] = (hashed << _HALF) | np.uint64(first + k + 1)
            prefetch(table, int64(places[k]))
        for k in range(block):
            place = places[k]
            while table[place] != 0:
                place = (place + _ONE) & mask
            table[place] = words[k]


@kernel(void, READ_INT64, READ_INT64, UINT16, INT64, plain=True)
def find_ranges(ids, splitters, ranges, counts):
    """Write the range of each integer, the number of splitters that are not above it; add to the counts of the ranges.

    There is at least one splitter.
    """
    for i in range(ids.size):
        one, low, left = ids[i], 0, splitters.size
        # No branch depends on the integer: it could not be predicted.
        while left > 1:
            half = left >> 1
            low += half if splitters[low + half - 1] <= one else 0
            left -= half
        low += 1 if splitters[low] <= one else 0
        ranges[i] = low
        counts[low] += 1


@kernel(void, READ_UINT16, INT64, INT32, plain=True)
def place_ranges(ranges, cursor, order):
    """Write the index of each integer to the next place of its range; ``cursor`` has these places."""
    for i in range(ranges.size):
        place = cursor[ranges[i]]
        cursor[ranges[i]] = place + 1
        order[place] = i


@kernel(void, READ_INT64, READ_INT32, int64, INT64, INT64, INT32, plain=True)
def sort_by_digit(keys, order, shift, starts, sorted_keys, sorted_order):
    """Sort integers by the digit from bit ``shift`` on, one step of a radix sort: equal digits keep their order.

    Args:
        keys: the integers.
        order: a number that goes with each of them.
        shift: the lowest bit of the digit.
        starts: room for a count of each digit: 2^bits and one more.
        sorted_keys, sorted_order: out, the integers and their numbers.
    """
    digits = starts.size - 2
    starts[:] = 0
    for i in range(keys.size):
        starts[((keys[i] >> shift) & digits) + 1] += 1
    for digit in range(digits):
        starts[digit + 1] += starts[digit]
    for i in range(keys.size):
        digit = (keys[i] >> shift) & digits
        place = starts[digit]
        starts[digit] = place + 1
        sorted_keys[place] = keys[i]
        sorted_order[place] = order[i]


@kernel(void, READ_UINT32, UINT32, plain=True)
def look_up(values, indices):
    """Replace each index by the value at it."""
    for i in range(indices.size):
        indices[i] = values[indices[i]]
