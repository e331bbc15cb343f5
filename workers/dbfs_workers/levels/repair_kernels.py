"""CPU kernels of a repair: labels of an earlier version of the graph become those of this one. ``repair`` calls them.

A message is one entry of a bin, or two. A question ``(u, x)`` asks the owner of ``u`` for its distance, on behalf of
its neighbour ``x``. A notice ``(x, u)`` says that ``u`` has no distance any more, or that the edge from ``u`` to ``x``
is deleted. An offer ``(x, u)`` says that ``u`` is a possible parent of ``x``, and takes a second entry: the distance of
``u``. The first of each pair is a local id on the owner, the other one an internal id.

Every kernel that sends stops at a full bin, and the next call goes on there (``state[RESUME]``). Neighbours of the same
rank are dealt with at once, without a message.
"""

from typing import Final

import numpy as np
from numba import types

from dbfs_workers.intrinsics import prefetch
from dbfs_workers.jit import INT32, INT64, READ_INT64, READ_UINT32, UINT32, int64, kernel, void
from dbfs_workers.storage.stripe import NO_VERTEX

# Places in ``state``, int64[STATE].
HEAD = 0  # rows taken from the queue so far
TAIL = 1  # rows put into the queue so far
WAITING = 2  # rows whose questions went out so far
LOST = 3  # rows that have lost their distance
NOTIFIED = 4  # lost rows whose neighbours have notices
ASKED = 5  # lost rows whose neighbours have questions
TOUCHED = 6  # rows that had another distance for a time at least
LOOKED = 7  # edges looked at
RESUME = 8  # edges of the row in progress that are dealt with
NOTICE_RESUME = 9  # the same of the row that notices go out from
MOST = 10  # edges that a kernel looks at before it returns; set by the caller
DUE = 11  # rows whose questions went out before the last round
SETTLED = 12  # rows whose answers have come
LEVEL = 13  # the distance of the rows that the search expands
NEXT_LEVEL = 14  # the next such distance, once all ranks have finished the level
LEVEL_END = 15  # rows put into the queue up to the end of the level
CANDIDATE = 16  # candidates that the search has taken so far
DIRECTED = 17  # 1 if the graph is directed; set by the caller
STATE: Final = 18

# Bits of ``marks``, uint8[n_local].
IN_DOUBT = np.uint8(1)  # the row is in the queue, or waits for answers: its parent is no support any more
QUEUED = np.uint8(2)  # an offer has brought the row nearer, and the row is in the queue
_TOUCHED = np.uint8(4)
ANSWERED = np.uint8(8)  # the row answered a question while it was in doubt

FETCHED: Final = 8
"""Rows of a list whose labels, or edges, are fetched from memory ahead of their turn."""

UINT8 = types.Array(types.uint8, 1, "C")
# distances, predecessors, marks, queue, touched, before, state: see ``repair.RepairLoop``.
LABELS = (INT32, UINT32, UINT8, UINT32, UINT32, INT32, INT64)
BINS = (UINT32, UINT32, INT64)
ROWS = (READ_INT64, READ_INT64, READ_UINT32)


@kernel(void, int64, INT32, UINT8, UINT32, INT32, INT64)
def _touch(row, distances, marks, touched, before, state):
    """Note a row's distance before its first change."""
    if not marks[row] & _TOUCHED:
        marks[row] |= _TOUCHED
        touched[state[TOUCHED]] = row
        before[state[TOUCHED]] = distances[row]
        state[TOUCHED] += 1


@kernel(void, READ_UINT32, int64, INT32, UINT32, UINT8)
def fetch_labels(rows, at, distances, predecessors, marks):
    """Fetch the labels of a row of a list ahead, if the list has that row."""
    if at < rows.size:
        prefetch(distances, np.int64(rows[at]))
        prefetch(predecessors, np.int64(rows[at]))
        prefetch(marks, np.int64(rows[at]))


@kernel(void, UINT32, int64, int64, *ROWS)
def fetch_edges(rows, at, end, starts, ends, columns):
    """Fetch the offsets of a row of a ring ahead, and the edges of an earlier one, up to place ``end``."""
    if at + FETCHED < end:
        row = np.int64(rows[(at + FETCHED) % rows.size])
        prefetch(starts, row)
        prefetch(ends, row)
    if at + FETCHED // 2 < end:
        prefetch(columns, starts[rows[(at + FETCHED // 2) % rows.size]])


@kernel(void, int64, types.uint32, int64, *LABELS)
def relax(row, parent, distance, distances, predecessors, marks, queue, touched, before, state):
    """Label a row with a parent at a distance, if that brings the row nearer, and queue the row."""
    if distances[row] < 0 or distance + 1 < distances[row]:
        _touch(row, distances, marks, touched, before, state)
        distances[row] = distance + 1
        predecessors[row] = parent
        if not marks[row] & QUEUED:
            marks[row] |= QUEUED
            queue[state[TAIL] % queue.size] = row
            state[TAIL] += 1


@kernel(void, int64, types.uint32, INT32, UINT32, UINT8, UINT32, INT64)
def doubt(row, parent, distances, predecessors, marks, queue, state):
    """Queue a row whose parent is no support any more, unless the row has another parent by now. Sources stay."""
    if distances[row] > 0 and predecessors[row] == parent and not marks[row] & IN_DOUBT:
        marks[row] |= IN_DOUBT
        queue[state[TAIL] % queue.size] = row
        state[TAIL] += 1


@kernel(void, int64, *ROWS, types.uint32, UINT32, *LABELS)
def lose(row, starts, ends, columns, first, lost, distances, predecessors, marks, queue, touched, before, state):
    """Take a row's distance away, and doubt its children on this rank."""
    width = np.uint32(starts.size)
    _touch(row, distances, marks, touched, before, state)
    distances[row] = -1
    predecessors[row] = NO_VERTEX
    marks[row] &= ~IN_DOUBT
    lost[state[LOST]] = row
    state[LOST] += 1
    state[LOOKED] += ends[row] - starts[row]
    for k in range(starts[row], ends[row]):
        own = columns[k] - first
        if own < width:
            doubt(own, first + np.uint32(row), distances, predecessors, marks, queue, state)


@kernel(types.boolean, types.uint32, types.uint32, types.uint32, int64, *BINS)
def send(internal, width, sender, most, bin_rows, bin_parents, bin_ends):
    """Append an entry for a vertex of another rank to its bin; return False if the bin has ``most`` entries already."""
    owner = internal // width
    end = bin_ends[owner]
    if end >= most:
        return False
    at = np.int64(owner) * (bin_rows.size // bin_ends.size) + end
    bin_rows[at] = internal - owner * width
    bin_parents[at] = sender
    bin_ends[owner] = end + 1
    return True


@kernel(types.boolean, types.uint32, types.uint32, types.uint32, types.int32, *BINS)
def offer(internal, width, sender, distance, bin_rows, bin_parents, bin_ends):
    """Append an offer of two entries for a vertex of another rank; return False if its bin is full."""
    entries = bin_rows.size // bin_ends.size
    if not send(internal, width, sender, entries - 1, bin_rows, bin_parents, bin_ends):
        return False
    owner = internal // width
    at = np.int64(owner) * entries + bin_ends[owner]
    bin_rows[at] = np.uint32(distance)
    bin_parents[at] = np.uint32(0)
    bin_ends[owner] += 1
    return True


@kernel(int64, READ_UINT32, READ_UINT32, int64, types.boolean, types.uint32, *LABELS, *BINS)
def send_edges(
    rows,
    targets,
    at,
    offers,
    first,
    distances,
    predecessors,
    marks,
    queue,
    touched,
    before,
    state,
    bin_rows,
    bin_parents,
    bin_ends,
):
    """Send an offer, or a notice, along each of some edges from edge ``at`` on; return the first edge not dealt with.

    ``rows`` are local ids, ``targets`` internal ids. An offer goes out if its row has a distance.
    """
    labels = (distances, predecessors, marks, queue, touched, before, state)
    width, entries = np.uint32(distances.size), bin_rows.size // bin_ends.size
    while at < rows.size:
        row, target = rows[at], targets[at]
        own = target - first
        if not offers:
            if own < width:
                doubt(own, first + row, distances, predecessors, marks, queue, state)
            elif not send(target, width, first + row, entries, bin_rows, bin_parents, bin_ends):
                return at
        elif distances[row] >= 0:
            if own < width:
                relax(own, first + row, distances[row], *labels)
            elif not offer(target, width, first + row, distances[row], bin_rows, bin_parents, bin_ends):
                return at
        at += 1
    return at


@kernel(void, *ROWS, types.uint32, UINT32, *LABELS, *BINS)
def ask_around(
    starts,
    ends,
    columns,
    first,
    lost,
    distances,
    predecessors,
    marks,
    queue,
    touched,
    before,
    state,
    bin_rows,
    bin_parents,
    bin_ends,
):
    """Label the lost rows by their neighbours on this rank, and send questions to the other ranks.

    ``starts``, ``ends`` and ``columns`` are the rows' possible parents.
    """
    labels = (distances, predecessors, marks, queue, touched, before, state)
    width = np.uint32(distances.size)
    most = bin_rows.size // bin_ends.size // 2
    last = state[LOOKED] + state[MOST]
    while state[ASKED] < state[LOST] and state[LOOKED] <= last:
        row = np.int64(lost[state[ASKED]])
        fetch_edges(lost, state[ASKED], state[LOST], starts, ends, columns)
        start = starts[row]
        for k in range(start + state[RESUME], ends[row]):
            own = columns[k] - first
            if own < width:
                if distances[own] >= 0:
                    relax(row, columns[k], distances[own], *labels)
            elif not send(columns[k], width, first + np.uint32(row), most, bin_rows, bin_parents, bin_ends):
                state[RESUME] = k - start
                return
            state[LOOKED] += 1
        state[RESUME] = 0
        state[ASKED] += 1


@kernel(void, READ_UINT32, READ_UINT32, types.uint32, INT32, INT64, *BINS)
def answer(rows, askers, first, distances, state, bin_rows, bin_parents, bin_ends):
    """Send an offer for each question about a row that has a distance. The bins have room for all answers."""
    width = np.uint32(distances.size)
    state[LOOKED] += rows.size
    for i in range(rows.size):
        row = rows[i]
        if i + FETCHED < rows.size:
            prefetch(distances, np.int64(rows[i + FETCHED]))
        if distances[row] >= 0:
            offer(askers[i], width, first + row, distances[row], bin_rows, bin_parents, bin_ends)


@kernel(void, READ_UINT32, READ_UINT32, INT32, UINT32, UINT8, UINT32, INT64)
def take_notices(rows, parents, distances, predecessors, marks, queue, state):
    """Doubt the rows whose parents sent notices."""
    for i in range(rows.size):
        doubt(rows[i], parents[i], distances, predecessors, marks, queue, state)


@kernel(void, READ_UINT32, READ_UINT32, *LABELS)
def take_offers(rows, parents, distances, predecessors, marks, queue, touched, before, state):
    """Label the rows that the offered parents bring nearer."""
    labels = (distances, predecessors, marks, queue, touched, before, state)
    for i in range(0, rows.size, 2):
        fetch_labels(rows, i + 2 * FETCHED, distances, predecessors, marks)
        relax(rows[i], parents[i], np.int64(rows[i + 1]), *labels)


@kernel(types.UniTuple(int64, 3), INT32, READ_INT64, READ_INT64)
def count(distances, starts, ends):
    """Return the number of rows with a distance, the degrees of the others, and the largest distance, at least 0.

    Only the others' degrees are read: in a road network there are few.
    """
    # Two loops, of which the first has no branches and runs on vectors.
    reached, missing, depth = 0, 0, np.int32(0)
    for row in range(distances.size):
        depth = max(depth, distances[row])
        reached += distances[row] >= 0
    if reached < distances.size:
        for row in range(distances.size):
            if distances[row] < 0:
                missing += ends[row] - starts[row]
    return reached, missing, depth
