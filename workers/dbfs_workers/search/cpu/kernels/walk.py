"""The walk over the edges of a frontier, the search of unvisited rows, and the contraction of a bin, as templates.

What happens to a neighbour, a row found or an entry is given as another template, and the arrays that this one works
on. A kernel that calls ``walk(rows, frontier, 0, 0, visit, to, counts)`` has the visit compiled into its loop. Each
template has a shared twin for a thread of a team: the threads take some of the work at a time from a cursor, so none
waits long for one with much work, and call the same template for each stretch.
"""

from typing import Final

import numpy as np
from numba import types
from numba.extending import register_jitable

from dbfs_workers.base.intrinsics import fetch_add, prefetch, trailing_zeros
from dbfs_workers.base.jit import READ_INT64, READ_UINT32, int64, kernel, void
from dbfs_workers.search.cpu.kernels.places import FULL, Shares, leave_over, own_part, seen, stretch, take_shared
from dbfs_workers.search.partition.stripe import WORD_BITS

# Number of vertices of the frontier by which prefetches are ahead. A vertex of a road network has few neighbours, so
# reading its offsets and then its columns takes most of its time. Florida's roads took 30 ms instead of 55.
_OFFSETS_AHEAD: Final = 16
_COLUMNS_AHEAD: Final = 8


@register_jitable
def walk(rows, frontier, first, skipped, visit, to, counts):
    """Visit the neighbours of the frontier's rows, until a visit is refused.

    Args:
        rows: row ``r`` has the columns ``starts[r]`` to ``ends[r] - 1``, in a CSR as on pages.
        frontier: uint32, rows.
        first, skipped: where the walk begins: a place in the frontier, and an edge of that row.
        visit: ``visit(to, counts, row, neighbour)`` returns whether the edge is dealt with, and the new counts.
        to: what the visit works on.
        counts: what it counts, a number or a tuple of numbers.

    Returns:
        Where the walk stopped, as ``first`` and ``skipped``: at the edge that is not dealt with, or at the frontier's
        end; the edges dealt with; the counts.
    """
    starts, ends, columns = rows
    edges = 0
    for i in range(first, frontier.size):
        if i + _OFFSETS_AHEAD < frontier.size:
            prefetch(starts, np.int64(frontier[i + _OFFSETS_AHEAD]))
        if i + _COLUMNS_AHEAD < frontier.size:
            prefetch(columns, starts[frontier[i + _COLUMNS_AHEAD]])
        row = frontier[i]
        start, stop = starts[row] + skipped, ends[row]
        skipped = 0
        edges += stop - start
        for k in range(start, stop):
            done, counts = visit(to, counts, row, columns[k])
            if not done:
                return i, k - starts[row], edges - (stop - k), counts
    return frontier.size, 0, edges, counts


@register_jitable
def walk_shared(rows, frontier, sharing, thread, visit, to, counts):
    """Do a thread's part of a walk; return the edges inspected, and the counts.

    A thread whose visit is refused stops, and leaves over the rows that it has taken and not finished. A row that was
    begun counts no edges then: the walk that finishes the row inspects all of its edges.
    """
    edges = 0
    while True:
        first, stop = stretch(sharing, frontier.size)
        if first >= stop:
            return edges, counts
        at, begun, inspected, counts = walk(rows, frontier[:stop], first, 0, visit, to, counts)
        edges += inspected - begun
        if at < stop:
            leave_over(own_part(sharing, thread), at, stop)
            return edges, counts


@kernel(void, types.uint32, int64, READ_INT64, READ_UINT32, plain=True)
def fetch_lists(bits, first, starts, columns):
    """Have the beginnings of some rows' lists fetched: of the rows from ``first`` on whose bits are set in a word.

    A search skips rows, so the processor does not foresee where the next lists begin.
    """
    while bits:
        b = trailing_zeros(bits)
        bits &= bits - np.uint32(1)
        prefetch(columns, starts[first + b])


@kernel(types.uint32, READ_UINT32, READ_UINT32, int64, plain=True)
def open_rows(visited, empty, w):
    """Return the bits of a word whose rows are to be searched."""
    return np.uint32(~(visited[w] | empty[w])) if empty.size else np.uint32(~visited[w])


@register_jitable
def search(rows, empty, frontier_bits, visited, found_bits, word, end, hit, to, found, at):
    """Search the unvisited rows of some words of a bitmap for a parent in the frontier, each up to the first one.

    Args:
        rows: the lists of possible parents.
        empty: bitmap of rows that have none and are not searched; an empty array for no such bitmap.
        frontier_bits: bitmap of the frontier.
        visited: bitmap of the rows, updated.
        found_bits: bitmap of the rows found, every word of it written; an empty array for none.
        word, end: the first word, and the one behind the last.
        hit: ``hit(to, row, parent)`` labels a row; it returns a number, which is added up.
        to: what it works on.
        found: the rows found, from place ``at`` on.

    Returns:
        The edges inspected, the rows found, and the sum of the numbers.
    """
    starts, ends, columns = rows
    edges = 0
    total = 0
    begin = at
    for w in range(word, end):
        if w + 1 < end:
            fetch_lists(open_rows(visited, empty, w + 1), np.int64(w + 1) * WORD_BITS, starts, columns)
        todo = open_rows(visited, empty, w)
        bits = np.uint32(0)
        while todo:
            b = trailing_zeros(todo)
            todo &= todo - np.uint32(1)
            row = np.int64(w) * WORD_BITS + b
            start, stop = starts[row], ends[row]
            k = start
            while k < stop:
                u = columns[k]
                k += 1
                if seen(frontier_bits, u):
                    bits |= np.uint32(1) << b
                    total += hit(to, row, u)
                    found[at] = row
                    at += 1
                    break
            edges += k - start
        if found_bits.size:
            found_bits[w] = bits
        visited[w] |= bits
    return edges, at - begin, total


@register_jitable
def search_shared(rows, empty, frontier_bits, visited, found_bits, sharing, hit, to, room, found):
    """Do a thread's part of a search of all words, into ``found``; ``room`` has a place a row. Return its counts."""
    edges = 0
    count = 0
    total = 0
    while True:
        word, end = stretch(sharing, visited.size)
        if word >= end:
            return edges, count, total
        first = word * WORD_BITS
        inspected, new, of_new = search(
            rows, empty, frontier_bits, visited, found_bits, word, end, hit, to, room, first
        )
        at = fetch_add(sharing.shared, 0, new)
        for i in range(new):
            found[at + i] = room[first + i]
        edges += inspected
        count += new
        total += of_new


@register_jitable
def contraction(rows, first, stop, take, lists, visited, label, to, queue, queued):
    """Label and queue the new vertices among the entries of a bin, up to one for which there is no place.

    Args:
        rows: the entries, local ids.
        first, stop: the first entry, and the one behind the last.
        take, lists: claims a vertex in ``visited`` and returns its place in the queue: see ``places``.
        visited: the rank's bitmap; an empty one if all vertices are new, which take the next places.
        label: ``label(to, entry, row)`` labels a row; it returns a number, which is added up.
        to: what it works on.
        queue: the queue.
        queued: number of vertices queued so far.

    Returns:
        The entry where it stopped, the vertices queued, and the sum of the numbers.
    """
    total = 0
    # Unsigned, since an index that may be negative costs a comparison.
    for i in range(np.uint64(first), np.uint64(stop)):
        row = rows[i]
        at = queued
        if visited.size:
            if seen(visited, row):
                continue
            at = take(lists, visited, row, 0, queued)
            if at < 0:
                if at == FULL:
                    return np.int64(i), queued, total
                continue
        total += label(to, i, row)
        queue[np.uint64(at)] = row
        queued += 1
    return stop, queued, total


@register_jitable
def contraction_shared(rows, sharing, thread, chunk, visited, label, to, queue):
    """Do a thread's part of the contraction of all entries; return the vertices queued, and the sum of the numbers.

    A thread that finds the queue full stops, and leaves over the entries that it has taken and not looked at. If all
    vertices are new, each has the same place in the queue as in the bin.
    """
    lists = Shares(sharing.shared, own_part(sharing, thread), 0, chunk, queue.size, 0, 0)
    count = 0
    total = 0
    while True:
        first, stop = stretch(sharing, rows.size)
        if first >= stop:
            return count, total
        at, end, of_new = contraction(rows, first, stop, take_shared, lists, visited, label, to, queue, first)
        count += end - first
        total += of_new
        if at < stop:
            leave_over(lists.part, at, stop)
            return count, total
