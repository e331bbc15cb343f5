"""CPU kernels that sort adjacency lists: one call of ``sort_rows`` sorts the rows of a bucket.

Rows of up to ``_SHORT`` columns are sorted by insertion. Longer rows are collected into groups of up to ``_GROUP``
columns. A group is sorted at once by radix, least significant digit first, and then dealt out to its rows in that
order. A row longer than a group is sorted by radix alone. A column costs about one read and one write for each digit
of 11 bits, in the processor's second cache (a group takes 128 KiB).
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from dbfs_workers.base.jit import INT64, READ_INT64, UINT32, int64, kernel, void

_SHORT = 12
_GROUP = 8192
_DIGIT = 11

_UINT64 = types.Array(types.uint64, 1, "C")
_COUNTS = types.Array(types.int64, 2, "C")
_ROW_BITS = np.uint64(32)
_COLUMN_MASK = np.uint64(2**32 - 1)
_ONE = np.uint64(1)


@kernel(types.boolean, UINT32, plain=True)
def _ascends(row):
    """Return whether a row is in order already."""
    at = 1
    while at < row.size and row[at - 1] <= row[at]:
        at += 1
    return at >= row.size


@kernel(void, UINT32, plain=True)
def _insert(row):
    """Sort a short row in place by insertion."""
    for k in range(1, row.size):
        column = row[k]
        at = k
        while at > 0 and row[at - 1] > column:
            row[at] = row[at - 1]
            at -= 1
        row[at] = column


@kernel(void, _COUNTS, plain=True)
def _to_offsets(counts):
    """Replace each digit's counts by the number of columns with a smaller digit."""
    for digit in range(counts.shape[0]):
        total = 0
        for value in range(counts.shape[1]):
            count = counts[digit, value]
            counts[digit, value] = total
            total += count


@kernel(void, UINT32, int64, int64, UINT32, _COUNTS, plain=True)
def _sort_long(row, digits, bits, spare, offsets):
    """Sort one long row by radix: ``digits`` digits of ``bits`` bits. ``spare`` is at least as long as the row."""
    width, mask = np.uint64(bits), (_ONE << np.uint64(bits)) - _ONE
    offsets[:] = 0
    for k in range(row.size):
        column = np.uint64(row[k])
        for digit in range(digits):
            offsets[digit, np.int64((column >> (np.uint64(digit) * width)) & mask)] += 1
    _to_offsets(offsets)
    source, target = row, spare[: row.size]
    for digit in range(digits):
        shift = np.uint64(digit) * width
        for k in range(source.size):
            value = np.int64((np.uint64(source[k]) >> shift) & mask)
            at = offsets[digit, value]
            target[at] = source[k]
            offsets[digit, value] = at + 1
        source, target = target, source
    if digits % 2:
        for k in range(row.size):
            row[k] = spare[k]


@kernel(void, INT64, int64, READ_INT64, UINT32, int64, int64, _UINT64, _UINT64, _COUNTS, INT64, plain=True)
def _sort_group(members, size, row_offsets, columns, digits, bits, keys, spare, offsets, cursor):
    """Sort the rows ``members[:size]`` at once. A key has the member's index in its high half, the column in its low.

    ``keys`` and ``spare`` are uint64[_GROUP], ``offsets`` int64[digits, 2**bits], ``cursor`` as long as ``members``.
    """
    width, mask = np.uint64(bits), (_ONE << np.uint64(bits)) - _ONE
    offsets[:] = 0
    total = 0
    for member in range(size):
        row = members[member]
        cursor[member] = row_offsets[row]
        for k in range(row_offsets[row], row_offsets[row + 1]):
            column = np.uint64(columns[k])
            keys[total] = (np.uint64(member) << _ROW_BITS) | column
            total += 1
            for digit in range(digits):
                offsets[digit, np.int64((column >> (np.uint64(digit) * width)) & mask)] += 1
    _to_offsets(offsets)
    source, target = keys, spare
    for digit in range(digits):
        shift = np.uint64(digit) * width
        for k in range(total):
            key = source[k]
            value = np.int64(((key & _COLUMN_MASK) >> shift) & mask)
            at = offsets[digit, value]
            target[at] = key
            offsets[digit, value] = at + 1
        source, target = target, source
    for k in range(total):
        member = np.int64(source[k] >> _ROW_BITS)
        at = cursor[member]
        columns[at] = np.uint32(source[k] & _COLUMN_MASK)
        cursor[member] = at + 1


def sort_rows(
    row_offsets: NDArray[np.int64], columns: NDArray[np.uint32], first_id: int, step: int, largest: int
) -> tuple[int, int]:
    """Sort each row's columns in place; return (self-loops, duplicates).

    Args:
        row_offsets: int64[rows + 1], where each row's columns lie in ``columns``.
        columns: uint32, none above ``largest``.
        first_id, step: row i has the id ``first_id + i * step``.
        largest: the largest column that may occur.
    """
    width = max(1, largest.bit_length())
    digits = -(-width // _DIGIT)
    bits = -(-width // digits)
    # A kernel that allocates takes Numba seconds more to compile.
    longest = int(np.diff(row_offsets).max(initial=0))
    sorted_rows: tuple[int, int] = _sort_rows(
        row_offsets,
        columns,
        first_id,
        step,
        digits,
        bits,
        np.empty(_GROUP, np.uint64),
        np.empty(_GROUP, np.uint64),
        np.empty((digits, 1 << bits), np.int64),
        np.empty(_GROUP // _SHORT, np.int64),
        np.empty(_GROUP // _SHORT, np.int64),
        np.empty(longest if longest > _GROUP else 0, np.uint32),
    )
    return sorted_rows


@kernel(
    types.UniTuple(int64, 2),
    READ_INT64,
    UINT32,
    int64,
    int64,
    int64,
    int64,
    _UINT64,
    _UINT64,
    _COUNTS,
    INT64,
    INT64,
    UINT32,
    plain=True,
)
def _sort_rows(
    row_offsets, columns, first_id, step, digits, bits, keys, spare, offsets, members, cursor, spare_columns
):
    """Do what ``sort_rows`` does, with scratch: see ``_sort_long`` and ``_sort_group``."""
    size = collected = 0
    for row in range(row_offsets.size - 1):
        neighbours = columns[row_offsets[row] : row_offsets[row + 1]]
        if neighbours.size <= _SHORT:
            _insert(neighbours)
        elif _ascends(neighbours):
            pass
        elif neighbours.size > _GROUP:
            _sort_long(neighbours, digits, bits, spare_columns, offsets)
        else:
            if collected + neighbours.size > _GROUP:
                _sort_group(members, size, row_offsets, columns, digits, bits, keys, spare, offsets, cursor)
                size = collected = 0
            members[size] = row
            size += 1
            collected += neighbours.size
    _sort_group(members, size, row_offsets, columns, digits, bits, keys, spare, offsets, cursor)
    self_loops = duplicates = 0
    for row in range(row_offsets.size - 1):
        own = first_id + row * step
        for k in range(row_offsets[row], row_offsets[row + 1]):
            self_loops += columns[k] == own
            duplicates += k > row_offsets[row] and columns[k] == columns[k - 1]
    return self_loops, duplicates
