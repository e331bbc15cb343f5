"""What the CPU kernels of a repair have in common: a rank's labels and lists, and messages to other ranks.

A message is one entry of a bin, or two. A question ``(u, x)`` asks the owner of ``u`` for its distance, on behalf of
its neighbour ``x``. A notice ``(x, u)`` says that ``u`` has no distance any more, or that the edge from ``u`` to ``x``
is deleted. An offer ``(x, u)`` says that ``u`` is a possible parent of ``x``, and takes a second entry: the distance of
``u``. The first of each pair is a local id on the owner, the other one an internal id.

Every kernel that sends stops at a full bin, and the next call goes on there (``state.resume``). Neighbours of the same
rank are dealt with at once, without a message.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import from_dtype, types
from numpy.typing import NDArray

from dbfs_workers.base.intrinsics import prefetch
from dbfs_workers.base.jit import (
    INT32,
    READ_INT64,
    READ_UINT32,
    UINT8,
    UINT32,
    int64,
    kernel,
    named,
    void,
)
from dbfs_workers.search.cpu.kernels.phases import BINS
from dbfs_workers.search.partition.kernels.rows import ROWS
from dbfs_workers.search.partition.stripe import NO_VERTEX

STATE: Final = np.dtype(
    [
        # The caller sets these up to ``most`` before the first round.
        ("first", np.uint32),  # internal id of row 0
        ("directed", np.uint32),  # 1 if the graph is directed
        ("blind", np.int64),  # 1 if the rank has no edges into its rows: it sees no other parent of a row
        ("number", np.int64),  # the gang's serial number of the run
        ("crossing", np.int64),  # the last crossing of the run
        ("started", np.int64),  # when the repair started, in nanoseconds of the monotonic clock
        ("depth", np.int64),  # the largest distance before the repair
        ("most", np.int64),  # edges that a round looks at before its rank crosses
        ("phase", np.int64),  # see ``kernels.repair_round``
        ("outcome", np.int64),  # see there
        ("rounds", np.int64),  # rounds so far
        ("awaited", np.int64),  # 1 while a crossing is unfinished
        ("looked", np.int64),  # edges looked at
        ("head", np.int64),  # rows taken from the queue so far
        ("tail", np.int64),  # rows put into the queue so far
        ("resume", np.int64),  # edges of the row in progress that are dealt with
        ("touched", np.int64),  # rows that had another distance for a time at least
        ("lost", np.int64),  # rows that have lost their distance
        ("deleted", np.int64),  # deleted edges that are dealt with
        ("inserted", np.int64),  # the same of inserted edges
        ("notified", np.int64),  # lost rows whose neighbours have notices
        ("notice_resume", np.int64),  # edges of the next one that are dealt with
        ("waiting", np.int64),  # rows whose questions went out so far
        ("due", np.int64),  # rows whose questions went out before the last round
        ("settled", np.int64),  # rows whose answers have come
        ("asked", np.int64),  # lost rows whose neighbours have questions
        ("any_lost", np.int64),  # whether rows of any rank have lost their distance
        ("candidate", np.int64),  # candidates that the search has taken so far
        ("level", np.int64),  # the distance of the rows that the search expands
        ("next_level", np.int64),  # the next such distance, once all ranks have finished the level
        ("level_end", np.int64),  # rows put into the queue up to the end of the level
        ("first_level", np.int64),  # the level that the search begins at; -1 before its first crossing
        ("searched_from", np.int64),  # edges that the ranks together had looked at when the search began
    ]
)
"""How far a repair is on one rank."""


class Labels(NamedTuple):
    """A rank's labels, and lists of its rows.

    Attributes:
        distances: int32[n_local], -1 for rows without one.
        predecessors: uint32[n_local], internal ids.
        marks: uint8[n_local], the bits below.
        queue: uint32[n_local + 1], a ring: rows in doubt, later those that are nearer.
        waiting: uint32[n_local + 4], a ring: rows whose questions are under way.
        lost: uint32[n_local], rows that have lost their distance.
        touched: uint32[n_local], rows that had another distance for a time at least.
        before: int32[n_local], the distance that each of these had before.
    """

    distances: NDArray[np.int32]
    predecessors: NDArray[np.uint32]
    marks: NDArray[np.uint8]
    queue: NDArray[np.uint32]
    waiting: NDArray[np.uint32]
    lost: NDArray[np.uint32]
    touched: NDArray[np.uint32]
    before: NDArray[np.int32]


# Bits of ``marks``.
IN_DOUBT = np.uint8(1)  # the row is in the queue, or waits for answers: its parent is no support any more
QUEUED = np.uint8(2)  # an offer has brought the row nearer, and the row is in the queue
_TOUCHED = np.uint8(4)
ANSWERED = np.uint8(8)  # the row answered a question while it was in doubt

FETCHED: Final = 8
"""Rows of a list whose labels, or edges, are fetched from memory ahead of their turn."""

STATE_RECORD: Final = from_dtype(STATE)
LABELS: Final = named(Labels, INT32, UINT32, UINT8, *(UINT32,) * 4, INT32)


@kernel(void, int64, LABELS, STATE_RECORD)
def _touch(row, labels, state):
    """Note a row's distance before its first change."""
    if not labels.marks[row] & _TOUCHED:
        labels.marks[row] |= _TOUCHED
        labels.touched[state.touched] = row
        labels.before[state.touched] = labels.distances[row]
        state.touched += 1


@kernel(void, READ_UINT32, int64, LABELS)
def fetch_labels(rows, at, labels):
    """Fetch the labels of a row of a list ahead, if the list has that row."""
    if at < rows.size:
        prefetch(labels.distances, np.int64(rows[at]))
        prefetch(labels.predecessors, np.int64(rows[at]))
        prefetch(labels.marks, np.int64(rows[at]))


@kernel(void, UINT32, int64, int64, ROWS)
def fetch_edges(ring, at, end, rows):
    """Fetch the offsets of a row of a ring ahead, and the edges of an earlier one, up to place ``end``."""
    if at + FETCHED < end:
        row = np.int64(ring[(at + FETCHED) % ring.size])
        prefetch(rows.starts, row)
        prefetch(rows.ends, row)
    if at + FETCHED // 2 < end:
        prefetch(rows.columns, rows.starts[ring[(at + FETCHED // 2) % ring.size]])


@kernel(void, int64, LABELS, STATE_RECORD)
def enqueue(row, labels, state):
    """Put a row into the queue."""
    labels.queue[state.tail % labels.queue.size] = row
    state.tail += 1


@kernel(void, int64, types.uint32, int64, LABELS, STATE_RECORD)
def relax(row, parent, distance, labels, state):
    """Label a row with a parent at a distance, if that brings the row nearer, and queue the row."""
    if labels.distances[row] < 0 or distance + 1 < labels.distances[row]:
        _touch(row, labels, state)
        labels.distances[row] = distance + 1
        labels.predecessors[row] = parent
        if not labels.marks[row] & QUEUED:
            labels.marks[row] |= QUEUED
            enqueue(row, labels, state)


@kernel(void, int64, types.uint32, LABELS, STATE_RECORD)
def doubt(row, parent, labels, state):
    """Queue a row whose parent is no support any more, unless the row has another parent by now. Sources stay."""
    if labels.distances[row] > 0 and labels.predecessors[row] == parent and not labels.marks[row] & IN_DOUBT:
        labels.marks[row] |= IN_DOUBT
        enqueue(row, labels, state)


@kernel(void, int64, ROWS, LABELS, STATE_RECORD)
def lose(row, rows, labels, state):
    """Take a row's distance away, and doubt its children on this rank."""
    first, width = state.first, np.uint32(labels.distances.size)
    _touch(row, labels, state)
    labels.distances[row] = -1
    labels.predecessors[row] = NO_VERTEX
    labels.marks[row] &= ~IN_DOUBT
    labels.lost[state.lost] = row
    state.lost += 1
    state.looked += rows.ends[row] - rows.starts[row]
    for k in range(rows.starts[row], rows.ends[row]):
        own = rows.columns[k] - first
        if own < width:
            doubt(own, first + np.uint32(row), labels, state)


@kernel(types.boolean, types.uint32, types.uint32, types.uint32, int64, BINS)
def send(internal, width, sender, most, bins):
    """Append an entry for a vertex of another rank to its bin; return False if the bin has ``most`` entries already."""
    owner = internal // width
    end = bins.ends[owner]
    if end >= most:
        return False
    at = np.int64(owner) * (bins.rows.size // bins.ends.size) + end
    bins.rows[at] = internal - owner * width
    bins.parents[at] = sender
    bins.ends[owner] = end + 1
    return True


@kernel(types.boolean, types.uint32, types.uint32, types.uint32, types.int32, BINS)
def offer(internal, width, sender, distance, bins):
    """Append an offer of two entries for a vertex of another rank; return False if its bin is full."""
    entries = bins.rows.size // bins.ends.size
    if not send(internal, width, sender, entries - 1, bins):
        return False
    owner = internal // width
    at = np.int64(owner) * entries + bins.ends[owner]
    bins.rows[at] = np.uint32(distance)
    bins.parents[at] = np.uint32(0)
    bins.ends[owner] += 1
    return True


@kernel(void, READ_UINT32, READ_UINT32, int64, int64, LABELS, STATE_RECORD)
def take_offers(rows, parents, start, stop, labels, state):
    """Label the rows that offered parents bring nearer; the offers are the entries from ``start`` to ``stop`` - 1."""
    for i in range(start, stop, 2):
        fetch_labels(rows, i + 2 * FETCHED, labels)
        relax(rows[i], parents[i], np.int64(rows[i + 1]), labels, state)


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
