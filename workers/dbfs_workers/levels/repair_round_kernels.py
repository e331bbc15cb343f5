"""CPU kernels of the rounds of a repair: one crossing each, and many rounds without a return to Python.

A round takes what the last crossing brought, works until it needs other ranks, and crosses. A chain of vertices that
depend on each other takes a round for each edge between two ranks, and some hundred such rounds change a few labels
each. So their number decides the time, not their work.

In rounds of doubt a crossing carries three kinds of messages (see ``repair_kernels``): in each bin first a header, then
answers to the questions of the crossing before, then notices, then questions. The header's entry has two numbers,
counted from the header: the first entry after the answers, and the first one after the notices.

A question also puts its receiver in doubt, if that is a child of the asking vertex. So the child's questions are under
way while its parent waits for answers. The parent's fate is settled one round before the child's.
"""

from typing import Final

import numpy as np
from numba import types

from dbfs_workers.exchange.barrier_kernels import CROSSED, TO_CROSS, cross
from dbfs_workers.intrinsics import monotonic_ns
from dbfs_workers.jit import INT32, INT64, READ_INT64, READ_UINT32, UINT32, int64, kernel, void
from dbfs_workers.levels.repair_kernels import (
    ANSWERED,
    BINS,
    DIRECTED,
    DUE,
    FETCHED,
    HEAD,
    IN_DOUBT,
    LABELS,
    LOOKED,
    LOST,
    MOST,
    NEXT_LEVEL,
    NOTICE_RESUME,
    NOTIFIED,
    RESUME,
    ROWS,
    SETTLED,
    TAIL,
    UINT8,
    WAITING,
    doubt,
    fetch_edges,
    fetch_labels,
    lose,
    offer,
    send,
    take_offers,
)
from dbfs_workers.levels.repair_limits import ahead_of_doubt, ahead_of_search, too_much
from dbfs_workers.levels.repair_search_kernels import FAR, begin_level, count_left, expand, nearest

# Places in ``control``, int64[CONTROL]. The caller sets those up to FRESH before the first call of consecutive rounds.
SEARCHING = 0  # 1 for rounds of the search, 0 for rounds of doubt
CROSSING = 1  # the last crossing of the run
NUMBER = 2  # the gang's serial number of the run
STARTED = 3  # when the repair started, in nanoseconds of the monotonic clock
DEPTH = 4  # the largest distance before the repair
FIRST_LEVEL = 5  # the level that the search begins at
SEARCHED_FROM = 6  # edges that the ranks together had looked at when the search began
FRESH = 7  # 1 before the first round, which nothing was sent to
ROUND = 8  # rounds so far
AWAITED = 9  # 1 while a crossing is unfinished
OUTCOME = 10  # one of the three below
CONTROL: Final = 11

GOING_ON, DONE, TOO_MUCH = 0, 1, 2

ROUND_EDGES: Final = 50
"""Edges that could be looked at in the time of a round: about 3 microseconds."""

# A call ends after the round in which this time has passed, in nanoseconds: progress is shown between calls.
_LONGEST = 2_000_000


@kernel(void, INT64, int64, INT64)
def open_bins(opened, entries, bin_ends):
    """Leave room for a header in each bin of ``entries`` entries; ``opened``, int64[p], is where it goes."""
    for owner in range(bin_ends.size):
        opened[owner] = bin_ends[owner]
        if bin_ends[owner] < entries:
            bin_ends[owner] += 1


@kernel(void, READ_UINT32, READ_UINT32, INT32, UINT32, UINT8)
def take_answers(rows, parents, distances, predecessors, marks):
    """Give rows in doubt the offered parents that are one nearer to the source than they are."""
    for i in range(1, np.int64(rows[0]), 2):
        row = rows[i]
        if marks[row] & IN_DOUBT and np.int64(rows[i + 1]) == distances[row] - 1:
            predecessors[row] = parents[i]
            marks[row] &= ~IN_DOUBT


@kernel(void, *ROWS, types.uint32, UINT32, UINT32, *LABELS)
def settle(starts, ends, columns, first, waiting, lost, distances, predecessors, marks, queue, touched, before, state):
    """Take the distance of each row away whose answers have all come and which still is in doubt."""
    labels = (distances, predecessors, marks, queue, touched, before, state)
    for i in range(state[SETTLED], state[DUE]):
        row = np.int64(waiting[i % waiting.size])
        if marks[row] & IN_DOUBT:
            lose(row, starts, ends, columns, first, lost, *labels)
    state[SETTLED] = state[DUE]
    state[DUE] = state[WAITING]


@kernel(void, READ_UINT32, READ_UINT32, types.uint32, INT32, UINT32, UINT8, UINT32, INT64, *BINS)
def take_questions(rows, senders, first, distances, predecessors, marks, queue, state, bin_rows, bin_parents, bin_ends):
    """Doubt the children of those who sent notices or questions, and answer the questions of others.

    The bins have room for all answers.
    """
    width = np.uint32(distances.size)
    questions = np.int64(senders[0])
    state[LOOKED] += rows.size - np.int64(rows[0])
    for i in range(np.int64(rows[0]), rows.size):
        fetch_labels(rows, i + FETCHED, distances, predecessors, marks)
        row, sender = rows[i], senders[i]
        if i >= questions and distances[row] >= 0 and predecessors[row] != sender:
            offer(sender, width, first + row, distances[row], bin_rows, bin_parents, bin_ends)
            if marks[row] & IN_DOUBT:
                marks[row] |= ANSWERED
        doubt(row, sender, distances, predecessors, marks, queue, state)


@kernel(void, *ROWS, types.uint32, UINT32, UINT8, INT64, *BINS)
def notify(starts, ends, columns, first, lost, marks, state, bin_rows, bin_parents, bin_ends):
    """Send notices from the lost rows to those children on other ranks that have had no question from them.

    In an undirected graph a row in doubt sends questions to all neighbours on other ranks. A neighbour that became a
    child after that has the row's answer, which the row gave while it was in doubt.
    """
    width, entries = np.uint32(starts.size), bin_rows.size // bin_ends.size
    while state[NOTIFIED] < state[LOST]:
        row = np.int64(lost[state[NOTIFIED]])
        start = starts[row]
        stop = ends[row] if state[DIRECTED] or marks[row] & ANSWERED else start
        for k in range(start + state[NOTICE_RESUME], stop):
            if columns[k] - first >= width:
                sender = first + np.uint32(row)
                if not send(columns[k], width, sender, entries, bin_rows, bin_parents, bin_ends):
                    state[NOTICE_RESUME] = k - start
                    return
        state[NOTICE_RESUME] = 0
        state[NOTIFIED] += 1


@kernel(void, *ROWS, *ROWS, types.uint32, UINT32, UINT32, *LABELS, *BINS)
def seek_support(
    starts,
    ends,
    columns,
    parent_starts,
    parent_ends,
    parent_columns,
    first,
    waiting,
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
    """Take rows in doubt from the queue: find another parent on this rank, or send questions to the other ranks.

    A row keeps its distance if a neighbour is one nearer to the source. That neighbour may be in doubt itself: if it
    loses its distance later, the row comes to the queue again. A row without such a neighbour here and without
    neighbours elsewhere loses its distance at once; its children come to the queue's end.
    """
    labels = (distances, predecessors, marks, queue, touched, before, state)
    width = np.uint32(distances.size)
    # An answer takes two entries.
    most = bin_rows.size // bin_ends.size // 2
    last = state[LOOKED] + state[MOST]
    while state[HEAD] < state[TAIL] and state[LOOKED] <= last:
        row = np.int64(queue[state[HEAD] % queue.size])
        fetch_edges(queue, state[HEAD], state[TAIL], parent_starts, parent_ends, parent_columns)
        start, stop = parent_starts[row], parent_ends[row]
        remote = False
        if marks[row] & IN_DOUBT and state[RESUME] == 0:
            wanted = distances[row] - 1
            for k in range(start, stop):
                state[LOOKED] += 1
                own = parent_columns[k] - first
                if own >= width:
                    remote = True
                elif distances[own] == wanted:
                    predecessors[row] = parent_columns[k]
                    marks[row] &= ~IN_DOUBT
                    break
            if marks[row] & IN_DOUBT and not remote:
                lose(row, starts, ends, columns, first, lost, *labels)
        # An answer to the row's first questions may have come before the others went out.
        if marks[row] & IN_DOUBT:
            for k in range(start + state[RESUME], stop):
                if parent_columns[k] - first >= width:
                    sender = first + np.uint32(row)
                    if not send(parent_columns[k], width, sender, most, bin_rows, bin_parents, bin_ends):
                        state[RESUME] = k - start
                        return
            waiting[state[WAITING] % waiting.size] = row
            state[WAITING] += 1
        state[RESUME] = 0
        state[HEAD] += 1


@kernel(int64, *ROWS, *ROWS, types.uint32, UINT32, UINT32, *LABELS, INT64, *BINS)
def send_doubts(
    starts,
    ends,
    columns,
    parent_starts,
    parent_ends,
    parent_columns,
    first,
    waiting,
    lost,
    distances,
    predecessors,
    marks,
    queue,
    touched,
    before,
    state,
    opened,
    bin_rows,
    bin_parents,
    bin_ends,
):
    """Send notices and questions, behind the answers, and write the headers. Return what is left to do on this rank.

    The rank has nothing left to do if no row is in doubt, no notice is to be sent, and the bins are empty.
    """
    rows, parent_rows = (starts, ends, columns), (parent_starts, parent_ends, parent_columns)
    labels, bins = (distances, predecessors, marks, queue, touched, before, state), (bin_rows, bin_parents, bin_ends)
    entries = bin_rows.size // bin_ends.size
    for owner in range(bin_ends.size):
        if bin_ends[owner] > opened[owner]:
            bin_rows[owner * entries + opened[owner]] = bin_ends[owner] - opened[owner]
    notify(*rows, first, lost, marks, state, *bins)
    for owner in range(bin_ends.size):
        if bin_ends[owner] > opened[owner]:
            bin_parents[owner * entries + opened[owner]] = bin_ends[owner] - opened[owner]
    seek_support(*rows, *parent_rows, first, waiting, lost, *labels, *bins)
    # Rows that lost their distance just now have notices for the next round.
    left = state[TAIL] - state[HEAD] + state[LOST] - state[NOTIFIED] + state[WAITING] - state[SETTLED]
    for owner in range(bin_ends.size):
        if bin_ends[owner] == opened[owner] + 1:
            bin_ends[owner] = opened[owner]
        left += bin_ends[owner] - opened[owner]
    return left


@kernel(
    *(types.UniTuple(int64, 2), *ROWS, *ROWS, types.uint32, UINT32, UINT32, *LABELS, INT64, INT64, INT64, INT64),
    *(UINT32, int64, int64, INT64, int64, INT64, INT64, int64, INT64, READ_INT64, INT64, int64),
)
def rounds(
    starts,
    ends,
    columns,
    parent_starts,
    parent_ends,
    parent_columns,
    first,
    waiting,
    lost,
    distances,
    predecessors,
    marks,
    queue,
    touched,
    before,
    state,
    opened,
    candidates,
    limits,
    control,
    bodies,
    body_words,
    entries,
    words,
    stride,
    record,
    bin_ends,
    rank,
    gathered,
    timeout,
    backoff,
    envoy,
):
    """Make rounds of doubt, or of the search, until nothing changes on any rank, or the call has lasted long enough.

    Args:
        starts, ends, columns: the rank's edges: see ``partition.Rows``.
        parent_starts, parent_ends, parent_columns: the rows' possible parents; unused by a search.
        first: internal id of row 0.
        waiting: uint32, a ring of rows whose questions are under way.
        lost, distances, predecessors, marks, queue, touched, before, state: see ``repair.RepairLoop``.
        opened: int64[p], scratch.
        candidates: the rows that the search starts from: see ``repair_search_kernels``; unused by doubt.
        limits: int64[5], see ``repair_limits``.
        control: int64[CONTROL], updated.
        bodies, body_words, entries: see ``envoy_kernels.cross``.
        words, stride, record, bin_ends, rank, gathered, timeout, backoff: see ``barrier_kernels.cross``.
        envoy: 1 if the rank exchanges frames with other hosts, else 0.

    Returns:
        (CROSSED, p): the last round is complete, and ``control[OUTCOME]`` says what follows.
        Otherwise (TO_CROSS, rank), or what ``barrier_kernels.cross`` returned: the caller finishes the crossing and
        calls again.
    """
    rows, parent_rows = (starts, ends, columns), (parent_starts, parent_ends, parent_columns)
    labels = (distances, predecessors, marks, queue, touched, before, state)
    p, size = bin_ends.size, record.size
    bins, sums = p * entries, p * (size + 1)
    control[OUTCOME] = GOING_ON
    begun = monotonic_ns(backoff[1:])
    while True:
        if control[AWAITED] == 0:
            at = rank * body_words + ((control[CROSSING] + 1) & 1) * bins
            own = (bodies[at : at + bins], bodies[at + 2 * bins : at + 3 * bins], bin_ends)
            if control[SEARCHING] == 0:
                open_bins(opened, entries, bin_ends)
            if control[FRESH] == 0:
                for kind in range(2):
                    for source in range(p):
                        received = gathered[source * (size + 1) + size]
                        if received == 0:
                            continue
                        body = source * body_words + (control[CROSSING] & 1) * bins + rank * entries
                        received_rows = bodies[body : body + received]
                        senders = bodies[body + 2 * bins : body + 2 * bins + received]
                        if control[SEARCHING]:
                            if kind == 0:
                                take_offers(received_rows, senders, *labels)
                        elif kind == 0:
                            take_answers(received_rows, senders, distances, predecessors, marks)
                        else:
                            take_questions(
                                received_rows, senders, first, distances, predecessors, marks, queue, state, *own
                            )
                    if kind == 0 and control[SEARCHING] == 0:
                        settle(*rows, first, waiting, lost, *labels)
                control[ROUND] += 1
            control[FRESH] = 0
            state[LOOKED] += ROUND_EDGES
            if control[SEARCHING]:
                begin_level(candidates, distances, queue, state)
                record[4] = expand(*rows, first, *labels, *own)
                record[5] = nearest(candidates, distances, state, bin_ends)
                record[1] = count_left(candidates, state, bin_ends)
            else:
                record[1] = send_doubts(*rows, *parent_rows, first, waiting, lost, *labels, opened, *own)
                record[4] = record[5] = 0
            record[2] = state[LOOKED]
            record[3] = monotonic_ns(backoff[1:]) - control[STARTED]
            control[CROSSING] += 1
            control[AWAITED] = 1
            if envoy:
                return TO_CROSS, rank
            status, peer = cross(
                words,
                stride,
                record,
                bin_ends,
                control[NUMBER] << 32 | control[CROSSING],
                rank,
                gathered,
                timeout,
                backoff,
            )
            if status != CROSSED:
                return status, peer
        control[AWAITED] = 0
        if control[SEARCHING] and gathered[sums + 4] == 0:
            state[NEXT_LEVEL] = FAR
            for source in range(p):
                state[NEXT_LEVEL] = min(state[NEXT_LEVEL], gathered[source * (size + 1) + 5])
        if control[SEARCHING]:
            looked = gathered[sums + 2] - control[SEARCHED_FROM]
            more = ahead_of_search(looked, control[FIRST_LEVEL], state[NEXT_LEVEL], control[DEPTH])
        else:
            more = ahead_of_doubt(gathered[sums + 1], control[ROUND], control[DEPTH])
        if gathered[sums + 1] == 0:
            control[OUTCOME] = DONE
        elif too_much(limits, gathered[sums + 2], more, gathered[sums + 3]):
            control[OUTCOME] = TOO_MUCH
        if control[OUTCOME] != GOING_ON or monotonic_ns(backoff[1:]) - begun > _LONGEST:
            return CROSSED, p
