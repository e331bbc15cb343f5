"""CPU kernels of paged rows: an update as sorted keys, what they do to each row, and the rows that result.

A key is a local id (high half) and the place of a neighbour in its row's order (low half). Rows ascend by place: the
neighbour's internal id, or its position in a partition that is ordered by degree (``ranks`` is then p, else 0).
"""

from typing import Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from dbfs_workers.base.jit import INT64, READ_INT64, READ_UINT16, READ_UINT32, UINT32, int64, kernel, named, void
from dbfs_workers.features.living.row_versions import PAGE
from dbfs_workers.search.partition.kernels.rows import ROWS
from dbfs_workers.search.partition.partition import Rows

_UINT64 = types.Array(types.uint64, 1, "C")
_READ_UINT64 = types.Array(types.uint64, 1, "C", readonly=True)
_BOOL = types.Array(types.boolean, 1, "C")
_READ_STARTS = types.Array(types.int64, 2, "C", readonly=True)
_LOW = np.uint64(0xFFFFFFFF)


class EdgeUpdate(NamedTuple):
    """An update to insert, or to delete, and the rows before it.

    Attributes:
        keys: uint64, ascending: see above; a read-only view.
        takes: bool, set for each key that changes its row: the edge is new, or is there to be deleted.
        rows: the rows before, as of ``kernel_rows``.
        first_id: internal id of row 0.
        ranks: see above.
        n_local: rows of a rank.
        directed: whether each key counts as an edge.
        delete: whether the edges are deleted.
    """

    keys: NDArray[np.uint64]
    takes: NDArray[np.bool_]
    rows: Rows
    first_id: int
    ranks: int
    n_local: int
    directed: bool
    delete: bool


UPDATE: Final = named(EdgeUpdate, _READ_UINT64, _BOOL, ROWS, *(int64,) * 3, *(types.boolean,) * 2)


@kernel(types.uint32, types.uint32, types.uint32, types.uint32)
def _place(column, ranks, width):
    """Return the place of an internal id in its row's order."""
    if ranks == np.uint32(0):
        return column
    owner = column // width
    return (column - owner * width) * ranks + owner


@kernel(types.uint32, types.uint32, types.uint32, types.uint32)
def _column(place, ranks, width):
    """Return the internal id at a place: the reverse of ``_place``."""
    if ranks == np.uint32(0):
        return place
    row = place // ranks
    return (place - row * ranks) * width + row


@kernel(void, READ_UINT16, READ_UINT32, _READ_STARTS, int64, int64, int64, INT64, _UINT64)
def bin_keys(rows, columns, starts, bits, ranks, n_local, cursor, keys):
    """Write the keys of a chunk of bins at the cursor of each key's bucket (int64[buckets]), and advance the cursor."""
    order, width = np.uint32(ranks), np.uint32(n_local)
    for k in range(starts.shape[0]):
        for bucket in range(starts.shape[1] - 1):
            first, at = np.uint64(bucket) << np.uint64(bits), cursor[bucket]
            for i in range(starts[k, bucket], starts[k, bucket + 1]):
                row = first | np.uint64(rows[i])
                keys[at] = row << np.uint64(32) | np.uint64(_place(columns[i], order, width))
                at += 1
            cursor[bucket] = at


@kernel(int64, READ_UINT32, int64, int64, int64, int64, int64)
def _first_at_least(columns, start, stop, place, ranks, n_local):
    """Return the index of the first column of a row whose place is ``place`` or more; ``stop`` if there is none."""
    order, width = np.uint32(ranks), np.uint32(n_local)
    while start < stop:
        middle = (start + stop) // 2
        if np.int64(_place(columns[middle], order, width)) < place:
            start = middle + 1
        else:
            stop = middle
    return start


@kernel(int64, UPDATE, INT64, INT64, INT64)
def plan(update, groups, degrees, counts):
    """Find out what an update changes; return the number of rows changed.

    Args:
        update: the update, whose ``takes`` is set.
        groups: int64[keys + 1], set to the first key of each changed row. The entry after the last one is not set.
        degrees: int64[keys], set to the new degree of each changed row.
        counts: int64[6], set to the edges changed, the edges refused (duplicates of an insertion, missing ones of a
            deletion), the columns added or removed, the self-loops and the duplicates among them, and the index of the
            first key refused, or -1. An undirected edge counts once, at its end with the smaller internal id.
    """
    order, width = np.uint32(update.ranks), np.uint32(update.n_local)
    keys, takes, columns = update.keys, update.takes, update.rows.columns
    changed = 0
    counts[:] = 0
    counts[5] = -1
    at = 0
    while at < keys.size:
        row = np.int64(keys[at] >> np.uint64(32))
        own = np.uint32(update.first_id + row)
        start, stop = update.rows.starts[row], update.rows.ends[row]
        group, degree, low = at, stop - start, start
        while at < keys.size and np.int64(keys[at] >> np.uint64(32)) == row:
            place = np.int64(keys[at] & _LOW)
            repeated = at > group and keys[at] == keys[at - 1]
            low = _first_at_least(columns, low, stop, place, update.ranks, update.n_local)
            copies = 0
            while low + copies < stop and np.int64(_place(columns[low + copies], order, width)) == place:
                copies += 1
            column = _column(np.uint32(place), order, width)
            counted = update.directed or own <= column
            takes[at] = not repeated and (copies > 0) == update.delete
            if takes[at]:
                amount = copies if update.delete else 1
                degree += -amount if update.delete else amount
                counts[0] += counted
                counts[2] += amount
                counts[3] += amount * (own == column)
                counts[4] += amount - 1
            else:
                counts[1] += counted
                if counts[5] < 0:
                    counts[5] = at
            at += 1
        if degree != stop - start:
            groups[changed] = group
            degrees[changed] = degree
            changed += 1
    return changed


@kernel(void, UPDATE, READ_INT64, int64, READ_INT64, UINT32)
def merge(update, groups, changed, new_starts, merged):
    """Write the changed rows to their new places in ``merged``: the pool of the rows before, or another one.

    ``new_starts`` has an entry for each changed row. In one pool, old and new places never overlap.
    """
    order, width = np.uint32(update.ranks), np.uint32(update.n_local)
    keys, takes, columns = update.keys, update.takes, update.rows.columns
    for index in range(changed):
        at, write = groups[index], new_starts[index]
        row = np.int64(keys[at] >> np.uint64(32))
        read, stop = update.rows.starts[row], update.rows.ends[row]
        while at < keys.size and np.int64(keys[at] >> np.uint64(32)) == row:
            if takes[at]:
                place = np.uint32(keys[at] & _LOW)
                while read < stop and _place(columns[read], order, width) < place:
                    merged[write] = columns[read]
                    read += 1
                    write += 1
                if update.delete:
                    while read < stop and _place(columns[read], order, width) == place:
                        read += 1
                else:
                    merged[write] = _column(place, order, width)
                    write += 1
            at += 1
        while read < stop:
            merged[write] = columns[read]
            read += 1
            write += 1


@kernel(int64, int64)
def _run_columns(degree):
    """Return the columns of the run that holds a row of a given degree: see ``pages.run_pages``."""
    pages = (degree + PAGE - 1) // PAGE
    step = 1
    while 8 * step <= pages:
        step *= 2
    return PAGE * ((pages + step - 1) // step * step)


@kernel(int64, _READ_UINT64, INT64)
def add_degrees(keys, degrees):
    """Add 1 to the degree of a key's row for each of some sorted keys; return the number of rows with keys."""
    rows = 0
    at = 0
    while at < keys.size:
        row, first = np.int64(keys[at] >> np.uint64(32)), at
        while at < keys.size and np.int64(keys[at] >> np.uint64(32)) == row:
            at += 1
        degrees[row] += at - first
        rows += 1
    return rows


@kernel(types.UniTuple(int64, 2), UPDATE, INT64, INT64, INT64, UINT32)
def rewrite(update, counts, new_starts, new_ends, pool):
    """Write all rows to another pool, one after another, changed by an update: ``plan`` and ``merge`` in one pass.

    Args:
        update: see ``plan``.
        counts: int64[7], set to the counts of ``plan``, and to the number of rows changed.
        new_starts, new_ends: int64[n_local], set to the rows' places.
        pool: uint32, the other pool, with room for all rows and keys.

    Returns:
        The columns used of the pool, and the largest degree.
    """
    order, width = np.uint32(update.ranks), np.uint32(update.n_local)
    keys, takes, columns = update.keys, update.takes, update.rows.columns
    starts, ends = update.rows.starts, update.rows.ends
    directed, delete = update.directed, update.delete
    counts[:] = 0
    counts[5] = -1
    at, begin, most = 0, 0, 0
    for row in range(starts.size):
        own = np.uint32(update.first_id + row)
        read, stop, write, group = starts[row], ends[row], begin, at
        while at < keys.size and np.int64(keys[at] >> np.uint64(32)) == row:
            place = np.uint32(keys[at] & _LOW)
            while read < stop and _place(columns[read], order, width) < place:
                pool[write] = columns[read]
                read += 1
                write += 1
            copies = 0
            while read + copies < stop and _place(columns[read + copies], order, width) == place:
                copies += 1
            column = _column(place, order, width)
            counted = directed or own <= column
            repeated = at > group and keys[at] == keys[at - 1]
            takes[at] = not repeated and (copies > 0) == delete
            if takes[at]:
                amount = copies if delete else 1
                counts[0] += counted
                counts[2] += amount
                counts[3] += amount * (own == column)
                counts[4] += amount - 1
                if delete:
                    read += copies
                else:
                    pool[write] = column
                    write += 1
            else:
                counts[1] += counted
                if counts[5] < 0:
                    counts[5] = at
            at += 1
        while read < stop:
            pool[write] = columns[read]
            read += 1
            write += 1
        degree = write - begin
        new_starts[row], new_ends[row] = begin, write
        counts[6] += degree != stop - starts[row]
        most = max(most, degree)
        begin += _run_columns(degree)
    return begin, most


@kernel(void, READ_INT64, READ_INT64, READ_UINT32, READ_INT64, UINT32)
def copy_rows(starts, ends, columns, new_starts, copied):
    """Copy every row from one pool to its place in another."""
    for row in range(starts.size):
        write = new_starts[row]
        for k in range(starts[row], ends[row]):
            copied[write] = columns[k]
            write += 1


@kernel(int64, READ_INT64, READ_INT64, int64)
def largest_degree(starts, ends, most):
    """Return the largest degree of the rows, which is ``most`` or less. Ends at the first row that has as many."""
    largest = 0
    for row in range(starts.size):
        largest = max(largest, ends[row] - starts[row])
        if largest >= most:
            break
    return largest


@kernel(void, READ_UINT32, READ_UINT32, types.boolean, int64, int64, INT64)
def count_own(src, dst, symmetrise, p, rank, offsets):
    """Count the edges that start in a rank's rows: those of row ``r`` in ``offsets[r + 1]`` (int64[n_local + 1]).

    With ``symmetrise`` each edge's reverse counts too; a self-loop is its own reverse.
    """
    ranks, own = np.uint32(p), np.uint32(rank)
    for i in range(src.size):
        row = src[i] // ranks
        if src[i] - row * ranks == own:
            offsets[row + 1] += 1
        if symmetrise and src[i] != dst[i]:
            row = dst[i] // ranks
            if dst[i] - row * ranks == own:
                offsets[row + 1] += 1


@kernel(void, READ_UINT32, READ_UINT32, types.boolean, int64, int64, int64, INT64, UINT32)
def place_own(src, dst, symmetrise, p, rank, n_local, cursor, columns):
    """Write the internal id of each such edge's other end at its row's cursor, and advance the cursor."""
    ranks, own, width = np.uint32(p), np.uint32(rank), np.uint32(n_local)
    for i in range(src.size):
        first, second = src[i] // ranks, dst[i] // ranks
        first_owner, second_owner = src[i] - first * ranks, dst[i] - second * ranks
        if first_owner == own:
            columns[cursor[first]] = second_owner * width + second
            cursor[first] += 1
        if symmetrise and src[i] != dst[i] and second_owner == own:
            columns[cursor[second]] = first_owner * width + first
            cursor[second] += 1


@kernel(void, READ_INT64, READ_UINT32, _UINT64)
def row_keys(offsets, columns, keys):
    """Write the keys of rows whose columns are sorted: row ``r`` has ``columns[offsets[r]:offsets[r + 1]]``."""
    for row in range(offsets.size - 1):
        for k in range(offsets[row], offsets[row + 1]):
            keys[k] = np.uint64(row) << np.uint64(32) | np.uint64(columns[k])
