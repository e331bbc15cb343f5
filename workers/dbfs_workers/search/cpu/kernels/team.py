"""CPU kernels of large levels: the threads of a team call a kernel at once, with the same task.

The threads take the frontier's rows, or words of a bitmap, some at a time from a shared cursor, so none waits long for
one with much work. A vertex belongs to the thread that sets its bit, by an atomic operation. Each thread reserves
places of a list, some at a time, before it claims vertices for them. The places that it leaves empty at the end are
gaps, which ``close_gaps`` closes.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from dbfs_workers.base.intrinsics import fetch_add, fetch_or, prefetch
from dbfs_workers.base.jit import INT64, READ_INT64, READ_UINT32, UINT32, allocating_kernel, int64, kernel, named
from dbfs_workers.search.cpu.kernels.phases import BINS, LABELS, Bins
from dbfs_workers.search.cpu.kernels.resident import COLUMNS_AHEAD, OFFSETS_AHEAD, bottom_up
from dbfs_workers.search.partition.kernels.rows import ROWS
from dbfs_workers.search.partition.labels import LabelArrays
from dbfs_workers.search.partition.partition import Rows
from dbfs_workers.search.partition.stripe import WORD_BITS

STEP: Final = 16
"""Words between two that threads write."""


class Sharing(NamedTuple):
    """What the threads share a task by. A list has p owners: the ranks, or one.

    Attributes:
        shared: int64[(p + 1) * STEP], words that the threads add to, a pair of cache lines each: places reserved in the
            list for each owner, then the cursor.
        parts: int64[threads, 2 p + 2 + 2 * STEP], a thread's own part in a row, flat in kernels: for each owner the
            next place and the end of those reserved, then the rows that the thread has left over: from ``own[2 p]`` to
            ``own[2 p + 1] - 1``.
        step: rows, words or entries that a thread takes at a time.
    """

    shared: NDArray[np.int64]
    parts: NDArray[np.int64]
    step: int


class Expansion(NamedTuple):
    """The task of a large top-down level.

    Attributes:
        rows, frontier, first_id, visited, bins, distance, labels, discovered: see ``cpu.kernels.resident.top_down``.
        chunk, bin_chunk: places that a thread reserves at a time, in ``discovered`` and in a bin.
        sharing: with the ranks as owners.
    """

    rows: Rows
    frontier: NDArray[np.uint32]
    first_id: int
    visited: NDArray[np.uint32]
    bins: Bins
    distance: int
    labels: LabelArrays
    discovered: NDArray[np.uint32]
    chunk: int
    bin_chunk: int
    sharing: Sharing


class Search(NamedTuple):
    """The task of a large bottom-up level.

    Attributes:
        into: the lists of possible parents.
        rows, frontier_bits, own_visited, found_bits, distance, labels, discovered: see
            ``cpu.kernels.resident.bottom_up``.
        found: uint32[n_local], scratch space.
        sharing: with one owner.
    """

    into: Rows
    rows: Rows
    frontier_bits: NDArray[np.uint32]
    own_visited: NDArray[np.uint32]
    found_bits: NDArray[np.uint32]
    distance: int
    labels: LabelArrays
    found: NDArray[np.uint32]
    discovered: NDArray[np.uint32]
    sharing: Sharing


class Contraction(NamedTuple):
    """The task of a large bin.

    Attributes:
        rows, parents, own_visited, distance, labels, discovered: see ``cpu_kernels.contract``.
        chunk: places of ``discovered`` that a thread reserves at a time.
        sharing: with one owner.
    """

    rows: NDArray[np.uint32]
    parents: NDArray[np.uint32]
    own_visited: NDArray[np.uint32]
    distance: int
    labels: LabelArrays
    discovered: NDArray[np.uint32]
    chunk: int
    sharing: Sharing


SHARING: Final = named(Sharing, INT64, INT64, int64)
EXPANSION: Final = named(
    Expansion, ROWS, READ_UINT32, int64, UINT32, BINS, int64, LABELS, UINT32, int64, int64, SHARING
)
SEARCHING: Final = named(Search, ROWS, ROWS, READ_UINT32, UINT32, UINT32, int64, LABELS, UINT32, UINT32, SHARING)
CONTRACTION: Final = named(Contraction, READ_UINT32, READ_UINT32, UINT32, int64, LABELS, UINT32, int64, SHARING)


@kernel(types.boolean, READ_INT64, READ_INT64, READ_UINT32, int64, int64, int64)
def is_large(starts, ends, frontier, first, max_degree, least_edges):
    """Return whether the frontier's rows from place ``first`` on have ``least_edges`` or more; 0 means never.

    The rows are looked at only if their number allows it, and only until they have as many.
    """
    if least_edges == 0 or (frontier.size - first) * max_degree < least_edges:
        return False
    edges = 0
    for i in range(first, frontier.size):
        edges += ends[frontier[i]] - starts[frontier[i]]
        if edges >= least_edges:
            return True
    return False


@kernel(types.boolean, INT64, INT64, int64, int64, int64)
def reserve(shared, own, owner, chunk, room):
    """Reserve up to ``chunk`` places of the list for an owner, which has ``room``; return whether there were any."""
    at = fetch_add(shared, owner * STEP, chunk)
    if at >= room:
        return False
    own[owner] = at
    own[(own.size - 2) // 2 + owner] = min(at + chunk, room)
    return True


@allocating_kernel(INT64, SHARING, int64)
def own_part(sharing, thread):
    """Return a thread's own part, without the words up to the next thread's."""
    width = 2 * (sharing.shared.size // STEP)
    first = thread * (width + 2 * STEP)
    return sharing.parts[first : first + width]


@kernel(types.UniTuple(int64, 3), EXPANSION, int64)
def expand(task, thread):
    """Do a thread's part of ``cpu.kernels.resident.top_down``; return the same counts, of this thread.

    A thread that finds a list full stops, and leaves over the rows that it has taken and not finished. A row that was
    begun counts no edges then: the call that finishes the row inspects all of its edges.
    """
    starts, ends, columns = task.rows
    distances, predecessors = task.labels
    bin_rows, bin_parents, bin_ends = task.bins
    shared, own, step = task.sharing.shared, own_part(task.sharing, thread), task.sharing.step
    frontier, visited, discovered = task.frontier, task.visited, task.discovered
    p = bin_ends.size
    entries = bin_rows.size // p
    width = np.uint32(starts.size)
    first = np.uint32(task.first_id)
    this = np.int64(first // width)
    edges = 0
    found = 0
    sent = 0
    while True:
        i = fetch_add(shared, p * STEP, step)
        stop = min(i + step, frontier.size)
        if i >= stop:
            return edges, found, sent
        while i < stop:
            if i + OFFSETS_AHEAD < stop:
                prefetch(starts, np.int64(frontier[i + OFFSETS_AHEAD]))
            if i + COLUMNS_AHEAD < stop:
                prefetch(columns, starts[frontier[i + COLUMNS_AHEAD]])
            row = frontier[i]
            for k in range(starts[row], ends[row]):
                u = columns[k]
                word = np.int64(u >> np.uint32(5))
                bit = np.uint32(1) << (u & np.uint32(31))
                if visited[word] & bit:
                    continue
                local = u - first
                owner = this
                if local >= width:
                    owner = np.int64(u // width)
                if own[owner] == own[p + owner]:
                    size, room = (task.chunk, discovered.size) if owner == this else (task.bin_chunk, entries)
                    if not reserve(shared, own, owner, size, room):
                        own[2 * p], own[2 * p + 1] = i, stop
                        return edges, found, sent
                if fetch_or(visited, word, bit) & bit:
                    continue
                at = own[owner]
                own[owner] = at + 1
                if owner == this:
                    distances[local] = task.distance
                    if predecessors.size:
                        predecessors[local] = first + row
                    discovered[at] = local
                    found += 1
                else:
                    at += owner * entries
                    bin_rows[at] = u - np.uint32(owner) * width
                    if predecessors.size:
                        bin_parents[at] = first + row
                    sent += 1
            edges += ends[row] - starts[row]
            i += 1


@kernel(types.UniTuple(int64, 3), SEARCHING)
def search(task):
    """Do a thread's part of ``cpu.kernels.resident.bottom_up``; return the same counts, of this thread."""
    in_starts, in_ends, in_columns = task.into
    out_starts, out_ends, _ = task.rows
    distances, predecessors = task.labels
    own_visited, found, shared, step = task.own_visited, task.found, task.sharing.shared, task.sharing.step
    edges = 0
    total = 0
    degrees = 0
    while True:
        word = fetch_add(shared, STEP, step)
        end = min(word + step, own_visited.size)
        if word >= end:
            return edges, total, degrees
        first, stop = word * WORD_BITS, end * WORD_BITS
        inspected, count, degree = bottom_up(
            in_starts[first:stop],
            in_ends[first:stop],
            in_columns,
            out_starts[first:stop],
            out_ends[first:stop],
            task.frontier_bits,
            own_visited[word:end],
            task.found_bits[word:end],
            task.distance,
            distances[first:stop],
            predecessors[first:stop],
            found[first:stop],
        )
        at = fetch_add(shared, 0, count)
        for i in range(count):
            task.discovered[at + i] = found[first + i] + np.uint32(first)
        edges += inspected
        total += count
        degrees += degree


@kernel(int64, CONTRACTION, int64)
def contract(task, thread):
    """Do a thread's part of ``cpu_kernels.contract``; return the vertices that it found.

    A thread that finds ``discovered`` full stops, and leaves over the entries that it has taken and not looked at.
    """
    rows, own_visited, discovered = task.rows, task.own_visited, task.discovered
    distances, predecessors = task.labels
    shared, own, step = task.sharing.shared, own_part(task.sharing, thread), task.sharing.step
    found = 0
    while True:
        first = fetch_add(shared, STEP, step)
        stop = min(first + step, rows.size)
        if first >= stop:
            return found
        for i in range(first, stop):
            row = rows[i]
            word = np.int64(row >> np.uint32(5))
            bit = np.uint32(1) << (row & np.uint32(31))
            if own_visited[word] & bit:
                continue
            if own[0] == own[1] and not reserve(shared, own, 0, task.chunk, discovered.size):
                own[2], own[3] = i, stop
                return found
            if fetch_or(own_visited, word, bit) & bit:
                continue
            distances[row] = task.distance
            if predecessors.size:
                predecessors[row] = task.parents[i]
            discovered[own[0]] = row
            own[0] += 1
            found += 1


@kernel(int64, UINT32, UINT32, int64, READ_INT64, READ_INT64)
def close_gaps(rows, parents, end, starts, stops):
    """Move the last entries of a list into its gaps; return the number of entries.

    Args:
        rows, parents: the list; empty parents mean none.
        end: its end, with the gaps.
        starts, stops: int64, where the gaps begin and end, the last gap first.
    """
    for gap in range(starts.size):
        start, stop = starts[gap], stops[gap]
        count = min(stop - start, end - stop)
        for i in range(count):
            rows[start + i] = rows[end - count + i]
            if parents.size:
                parents[start + i] = parents[end - count + i]
        end -= stop - start
    return end
