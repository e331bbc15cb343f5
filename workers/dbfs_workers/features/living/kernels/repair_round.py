"""CPU kernels of the rounds of a repair: one crossing each, and many rounds without a return to Python.

A round takes what the last crossing brought, works until it needs other ranks, and crosses. A chain of vertices that
depend on each other takes a round for each edge between two ranks, and some hundred such rounds change a few labels
each. So their number decides the time, not their work.

In rounds of doubt a crossing carries three kinds of messages (see ``kernels.repair``): in each bin first a header, then
answers to the questions of the crossing before, then notices, then questions. The header's entry has two numbers: the
first entry after the answers, and the first one after the notices. Rounds at the border of the lost rows have no
notices: the offers along inserted edges follow the answers.

A question of doubt also puts its receiver in doubt, if that is a child of the asking vertex. So the child's questions
are under way while its parent waits for answers. The parent's fate is settled one round before the child's.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from dbfs_workers.base.intrinsics import monotonic_ns, prefetch
from dbfs_workers.base.jit import INT64, READ_UINT32, int64, kernel, named, void
from dbfs_workers.features.living.kernels.repair import (
    ANSWERED,
    FETCHED,
    IN_DOUBT,
    LABELS,
    STATE_RECORD,
    doubt,
    fetch_edges,
    fetch_labels,
    lose,
    offer,
    relax,
    send,
    take_offers,
)
from dbfs_workers.features.living.kernels.repair_limits import LIMITS, ahead_of_doubt, ahead_of_search, too_much
from dbfs_workers.features.living.kernels.repair_search import begin_level, count_left, expand, nearest
from dbfs_workers.search.cpu.kernels.phases import BINS
from dbfs_workers.search.exchange.kernels.barrier import CROSSED, END, cross
from dbfs_workers.search.exchange.kernels.bins import bin_from, bins_for
from dbfs_workers.search.exchange.kernels.envoy import FRAMES
from dbfs_workers.search.exchange.kernels.envoy import cross as cross_hosts
from dbfs_workers.search.partition.kernels.rows import ROWS
from dbfs_workers.search.reports.counts import Largest, Total
from dbfs_workers.search.reports.crossings import largest_bits, place

DOUBT, BORDER, SEARCH = 0, 1, 2
"""Phases. The ranks go on from doubt to the border by themselves."""

GOING_ON, DONE, TOO_MUCH = 0, 1, 2
"""Outcomes of a call."""


class Round(NamedTuple):
    """The crossing of a round: see ``reports.crossings``.

    Attributes:
        left: what is left to deal with.
        looked: edges looked at.
        passed: the time since the repair started.
        rows: in the phase of doubt, the rows in doubt of a blind rank; at the border, the lost rows; in the search, the
            level's.
        nearest: the nearest level that follows, negated, so that the largest of all ranks has the nearest one.
    """

    left: Total
    looked: Total
    passed: Total
    rows: Total
    nearest: Largest


# Their places in a rank's record, behind the run's digest.
_LEFT, _LOOKED, _PASSED, _ROWS, _NEAREST = (1 + place(Round, name) for name in Round._fields)
_LARGEST = largest_bits(Round)

_ROUND_EDGES: Final = 50
"""Edges that could be looked at in the time of a round: about 3 microseconds."""


class Changes(NamedTuple):
    """The changed edges from a rank's rows: uint32 each, local ids of the rows, and internal ids of the other ends."""

    deleted_rows: NDArray[np.uint32]
    deleted_columns: NDArray[np.uint32]
    inserted_rows: NDArray[np.uint32]
    inserted_columns: NDArray[np.uint32]


CHANGES: Final = named(Changes, *(READ_UINT32,) * 4)


@kernel(void, BINS)
def open_bins(bins):
    """Leave room for a header in each bin."""
    for owner in range(bins.ends.size):
        bins.ends[owner] = 1


@kernel(void, BINS)
def end_first_part(bins):
    """Write into the headers where the first part of the entries ends."""
    entries = bins.rows.size // bins.ends.size
    for owner in range(bins.ends.size):
        bins.rows[owner * entries] = bins.ends[owner]


@kernel(void, BINS)
def end_second_part(bins):
    """Write into the headers where the second part of the entries ends."""
    entries = bins.rows.size // bins.ends.size
    for owner in range(bins.ends.size):
        bins.parents[owner * entries] = bins.ends[owner]


@kernel(int64, BINS)
def close_bins(bins):
    """Empty the bins that have a header only; return the number of entries in the others."""
    for owner in range(bins.ends.size):
        if bins.ends[owner] == 1:
            bins.ends[owner] = 0
    return bins.ends.sum()


@kernel(void, READ_UINT32, READ_UINT32, LABELS)
def take_answers(entries, parents, labels):
    """Give rows in doubt the offered parents that are one nearer to the source than they are."""
    for i in range(1, np.int64(entries[0]), 2):
        row = entries[i]
        if labels.marks[row] & IN_DOUBT and np.int64(entries[i + 1]) == labels.distances[row] - 1:
            labels.predecessors[row] = parents[i]
            labels.marks[row] &= ~IN_DOUBT


@kernel(void, ROWS, LABELS, STATE_RECORD)
def settle(rows, labels, state):
    """Take the distance of each row away whose answers have all come and which still is in doubt."""
    for i in range(state.settled, state.due):
        row = np.int64(labels.waiting[i % labels.waiting.size])
        if labels.marks[row] & IN_DOUBT:
            lose(row, rows, labels, state)
    state.settled = state.due
    state.due = state.waiting


@kernel(void, READ_UINT32, READ_UINT32, LABELS, BINS, STATE_RECORD)
def take_doubts(entries, senders, labels, bins, state):
    """Doubt the children of those who sent notices or questions, and answer the questions of others.

    The bins have room for all answers.
    """
    first, width = state.first, np.uint32(labels.distances.size)
    questions = np.int64(senders[0])
    state.looked += entries.size - np.int64(entries[0])
    for i in range(np.int64(entries[0]), entries.size):
        fetch_labels(entries, i + FETCHED, labels)
        row, sender = entries[i], senders[i]
        if i >= questions and labels.distances[row] >= 0 and labels.predecessors[row] != sender:
            offer(sender, width, first + row, labels.distances[row], bins)
            if labels.marks[row] & IN_DOUBT:
                labels.marks[row] |= ANSWERED
        doubt(row, sender, labels, state)


@kernel(void, READ_UINT32, READ_UINT32, LABELS, BINS, STATE_RECORD)
def answer(entries, askers, labels, bins, state):
    """Send an offer for each question about a row that has a distance. The bins have room for all answers."""
    first, width = state.first, np.uint32(labels.distances.size)
    state.looked += entries.size - np.int64(entries[0])
    for i in range(np.int64(entries[0]), entries.size):
        row = entries[i]
        if i + FETCHED < entries.size:
            prefetch(labels.distances, np.int64(entries[i + FETCHED]))
        if labels.distances[row] >= 0:
            offer(askers[i], width, first + row, labels.distances[row], bins)


@kernel(void, CHANGES, LABELS, BINS, STATE_RECORD)
def send_deleted(changes, labels, bins, state):
    """Send notices along the deleted edges, as far as the bins have room."""
    first, width = state.first, np.uint32(labels.distances.size)
    entries = bins.rows.size // bins.ends.size
    while state.deleted < changes.deleted_rows.size:
        sender, target = first + changes.deleted_rows[state.deleted], changes.deleted_columns[state.deleted]
        if target - first < width:
            doubt(target - first, sender, labels, state)
        elif not send(target, width, sender, entries, bins):
            return
        state.deleted += 1


@kernel(void, ROWS, LABELS, BINS, STATE_RECORD)
def notify(rows, labels, bins, state):
    """Send notices from the lost rows to those children on other ranks that have had no question from them.

    In an undirected graph a row in doubt sends questions to all neighbours on other ranks. A neighbour that became a
    child after that has the row's answer, which the row gave while it was in doubt.
    """
    first, width, entries = state.first, np.uint32(labels.distances.size), bins.rows.size // bins.ends.size
    while state.notified < state.lost:
        row = np.int64(labels.lost[state.notified])
        start = rows.starts[row]
        stop = rows.ends[row] if state.directed or labels.marks[row] & ANSWERED else start
        for k in range(start + state.notice_resume, stop):
            if rows.columns[k] - first >= width and not send(
                rows.columns[k], width, first + np.uint32(row), entries, bins
            ):
                state.notice_resume = k - start
                return
        state.notice_resume = 0
        state.notified += 1


@kernel(types.boolean, int64, ROWS, LABELS, STATE_RECORD)
def find_support(row, parents, labels, state):
    """Look for another parent of a row in doubt on this rank; return whether neighbours on other ranks may know one."""
    remote = False
    for k in range(parents.starts[row], parents.ends[row]):
        state.looked += 1
        own = parents.columns[k] - state.first
        if own >= np.uint32(labels.distances.size):
            remote = True
        elif labels.distances[own] == labels.distances[row] - 1:
            labels.predecessors[row] = parents.columns[k]
            labels.marks[row] &= ~IN_DOUBT
            return False
    return remote


@kernel(void, ROWS, ROWS, LABELS, BINS, STATE_RECORD)
def seek_support(rows, parents, labels, bins, state):
    """Take rows in doubt from the queue: find another parent on this rank, or send questions to the other ranks.

    A row keeps its distance if a neighbour is one nearer to the source. That neighbour may be in doubt itself: if it
    loses its distance later, the row comes to the queue again. A row without such a neighbour here and without
    neighbours elsewhere loses its distance at once; its children come to the queue's end.
    """
    first, width = state.first, np.uint32(labels.distances.size)
    # An answer takes two entries.
    most = bins.rows.size // bins.ends.size // 2
    last = state.looked + state.most
    while state.head < state.tail and state.looked <= last:
        row = np.int64(labels.queue[state.head % labels.queue.size])
        fetch_edges(labels.queue, state.head, state.tail, parents)
        if labels.marks[row] & IN_DOUBT and state.resume == 0:
            remote = find_support(row, parents, labels, state)
            if labels.marks[row] & IN_DOUBT and not remote:
                lose(row, rows, labels, state)
        # An answer to the row's first questions may have come before the others went out.
        if labels.marks[row] & IN_DOUBT:
            start = parents.starts[row]
            for k in range(start + state.resume, parents.ends[row]):
                if parents.columns[k] - first >= width and not send(
                    parents.columns[k], width, first + np.uint32(row), most, bins
                ):
                    state.resume = k - start
                    return
            labels.waiting[state.waiting % labels.waiting.size] = row
            state.waiting += 1
        state.resume = 0
        state.head += 1


@kernel(void, CHANGES, LABELS, BINS, STATE_RECORD)
def send_inserted(changes, labels, bins, state):
    """Send offers along the inserted edges whose rows have a distance, as far as the bins have room.

    A row that gets its distance later is expanded by the search, with all its edges.
    """
    first, width = state.first, np.uint32(labels.distances.size)
    while state.inserted < changes.inserted_rows.size:
        row, target = changes.inserted_rows[state.inserted], changes.inserted_columns[state.inserted]
        distance = labels.distances[row]
        if distance >= 0:
            if target - first < width:
                relax(target - first, first + row, distance, labels, state)
            elif not offer(target, width, first + row, distance, bins):
                return
        state.inserted += 1


@kernel(void, ROWS, LABELS, BINS, STATE_RECORD)
def ask_around(parents, labels, bins, state):
    """Label the lost rows by their neighbours on this rank, and send questions to the other ranks."""
    first, width = state.first, np.uint32(labels.distances.size)
    most = bins.rows.size // bins.ends.size // 2
    last = state.looked + state.most
    while state.asked < state.lost and state.looked <= last:
        row = np.int64(labels.lost[state.asked])
        fetch_edges(labels.lost, state.asked, state.lost, parents)
        start = parents.starts[row]
        for k in range(start + state.resume, parents.ends[row]):
            own = parents.columns[k] - first
            if own < width:
                if labels.distances[own] >= 0:
                    relax(row, parents.columns[k], labels.distances[own], labels, state)
            elif not send(parents.columns[k], width, first + np.uint32(row), most, bins):
                state.resume = k - start
                return
            state.looked += 1
        state.resume = 0
        state.asked += 1


@kernel(void, types.boolean, LABELS, BINS, END, STATE_RECORD)
def take(answers, labels, bins, end, state):
    """Take what the last crossing brought: in doubt the answers, or all but the answers; in other phases everything."""
    p, width = bins.ends.size, end.record.size + 1
    for source in range(p):
        received = end.gathered[source * width + width - 1]
        if received == 0:
            continue
        entries, senders = bin_from(end, source, state.crossing, received)
        if state.phase == SEARCH:
            take_offers(entries, senders, 0, received, labels, state)
        elif state.phase == BORDER:
            take_offers(entries, senders, 1, np.int64(entries[0]), labels, state)
            answer(entries, senders, labels, bins, state)
        elif answers:
            take_answers(entries, senders, labels)
        else:
            take_doubts(entries, senders, labels, bins, state)


@kernel(void, ROWS, ROWS, LABELS, CHANGES, BINS, END, STATE_RECORD)
def doubt_round(rows, parents, labels, changes, bins, end, state):
    """Take the distance away of rows that have no support any more, and go on to those that may have none."""
    open_bins(bins)
    take(True, labels, bins, end, state)
    settle(rows, labels, state)
    take(False, labels, bins, end, state)
    end_first_part(bins)
    send_deleted(changes, labels, bins, state)
    notify(rows, labels, bins, state)
    end_second_part(bins)
    if state.blind:
        # No rank sees the other supports of a row.
        end.record[_ROWS] = state.tail - state.head
    else:
        seek_support(rows, parents, labels, bins, state)
    # Rows that lost their distance just now have notices for the next round.
    left = state.tail - state.head + state.lost - state.notified + state.waiting - state.settled
    end.record[_LEFT] = left + changes.deleted_rows.size - state.deleted + close_bins(bins)


@kernel(void, ROWS, LABELS, CHANGES, BINS, END, STATE_RECORD)
def border_round(parents, labels, changes, bins, end, state):
    """Label the lost rows that have neighbours with a distance, and the ends of inserted edges."""
    open_bins(bins)
    take(True, labels, bins, end, state)
    send_inserted(changes, labels, bins, state)
    end_first_part(bins)
    ask_around(parents, labels, bins, state)
    end.record[_ROWS] = state.lost
    left = changes.inserted_rows.size - state.inserted + state.lost - state.asked
    end.record[_LEFT] = left + close_bins(bins)


@kernel(void, ROWS, LABELS, INT64, BINS, END, STATE_RECORD)
def search_round(rows, labels, candidates, bins, end, state):
    """Expand a level, or as much of the level as the bins take."""
    take(True, labels, bins, end, state)
    begin_level(candidates, labels, state)
    end.record[_ROWS] = expand(rows, labels, bins, state)
    end.record[_NEAREST] = -nearest(candidates, labels, bins, state)
    end.record[_LEFT] = count_left(candidates, bins, state)


@kernel(void, LIMITS, END, STATE_RECORD)
def decide(limits, end, state):
    """Choose what follows a crossing, as all ranks do."""
    p, width = end.bin_ends.size, end.record.size + 1
    sums = end.gathered[p * width :]
    left, looked = sums[_LEFT], sums[_LOOKED]
    ahead = 0
    if state.phase == DOUBT:
        ahead = ahead_of_doubt(left, state.rounds, state.depth)
    elif state.phase == BORDER:
        state.any_lost = sums[_ROWS] > 0
    else:
        if sums[_ROWS] == 0:
            state.next_level = -sums[_NEAREST]
        if state.first_level >= 0:
            progress = looked - state.searched_from
            ahead = ahead_of_search(progress, state.first_level, state.next_level, state.depth)
        else:
            state.first_level, state.searched_from = state.next_level, looked
            # An inserted edge brings a tree of rows nearer. The lost rows are among the edges looked at.
            ahead = 0 if state.any_lost else left * (state.depth // 2)
    state.rounds += 1
    unseen = state.phase == DOUBT and sums[_ROWS] > 0
    if unseen or (left > 0 and too_much(limits, looked, ahead, sums[_PASSED])):
        state.outcome = TOO_MUCH
    elif left == 0 and state.phase == DOUBT:
        state.phase = BORDER
    elif left == 0:
        state.outcome = DONE


@kernel(
    types.UniTuple(int64, 2),
    ROWS,
    ROWS,
    LABELS,
    CHANGES,
    INT64,
    LIMITS,
    END,
    FRAMES,
    int64,
    STATE_RECORD,
)
def rounds(rows, parents, labels, changes, candidates, limits, end, frames, longest, state):
    """Make rounds until the doubt and the border, or the search, are done, or the call has lasted long enough.

    Args:
        rows: the rank's edges.
        parents: the rows' possible parents.
        labels: the rank's labels, updated.
        changes: the changed edges.
        candidates: the rows that the search starts from: see ``kernels.repair_search``.
        limits: see ``repair_limits``.
        end: the rank's end of the exchange.
        longest: the call ends after the round in which this time has passed, in nanoseconds: progress is shown between
            calls.
        state: updated.

    Returns:
        (CROSSED, p): the last round is complete, and ``state.outcome`` says what follows.
        Otherwise what ``kernels.barrier.cross`` or ``kernels.envoy.cross`` returned: the caller finishes the crossing
        and calls again.
    """
    p, record, clock = end.bin_ends.size, end.record, end.backoff[1:]
    begun = monotonic_ns(clock)
    while True:
        if state.awaited == 0:
            bins = bins_for(end, state.crossing + 1)
            record[_ROWS] = record[_NEAREST] = 0
            if state.phase == DOUBT:
                doubt_round(rows, parents, labels, changes, bins, end, state)
            elif state.phase == BORDER:
                border_round(parents, labels, changes, bins, end, state)
            else:
                search_round(rows, labels, candidates, bins, end, state)
            state.looked += _ROUND_EDGES
            record[_LOOKED] = state.looked
            record[_PASSED] = monotonic_ns(clock) - state.started
            state.crossing += 1
            state.awaited = 1
            tag = state.number << 32 | state.crossing
            if end.envoy:
                status, peer = cross_hosts(end, frames, tag, 1, 0, _LARGEST)
            else:
                status, peer = cross(
                    end.words,
                    end.stride,
                    record,
                    end.bin_ends,
                    tag,
                    end.rank,
                    end.gathered,
                    end.timeout,
                    end.backoff,
                    _LARGEST,
                )
            if status != CROSSED:
                return status, peer
        state.awaited = 0
        decide(limits, end, state)
        if state.outcome != GOING_ON or monotonic_ns(clock) - begun > longest:
            return CROSSED, p
