"""Kernels of the shared-memory barrier: publish a record, wait for the records of all ranks, abort.

``words`` is the head of the shared segment, as ``dbfs_workers.search.exchange.segment`` lays it out. A tag is
``run number << 32 | crossing``. Tags only grow, so a rank that is one crossing ahead still counts as arrived. No rank
gets two crossings ahead, because it waits at the next one. Each rank has two records, chosen by the crossing's parity,
so a rank that is one crossing ahead has not overwritten the record that its peers still read.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from dbfs_workers.base.intrinsics import (
    compare_exchange,
    exchange,
    fetch_add,
    load_acquire,
    sleep_while,
    wake,
    yield_core,
)
from dbfs_workers.base.jit import INT64, READ_INT64, UINT32, int64, kernel, named, void
from dbfs_workers.search.exchange.segment import ABORT, ARRIVED, ENDS, RECORDS, RUN, SLEEPERS

CROSSED, TIMED_OUT, ABORTED, STALE = 0, 1, 2, 3
TO_CROSS = 4
"""What kernels of levels return on an envoy, beside the results of ``wait``: the caller makes the crossing."""

# A wait spins, then yields the core (sched_yield), then sleeps (futex). Yielding is the fastest way to wait, even with
# more ranks than cores. But a busy program that gets the core keeps it for a whole time slice. A rank that lost its
# core for 1 ms does not yield in the next thousand crossings: it spins, then sleeps until its peer wakes it.
# Microseconds a level of a path with 2 / 4 ranks on 2 cores, where Python directed each level:
#                     idle cores    a busy program on each core
#   yielding only       8 / 25        1200 / 2200
#   sleeping only      27 / 96          35 / 150
#   as here            10 / 31          28 / 145
# Where a kernel runs the levels, on 2 cores with other programs, the least and the median of 25 turns:
#   0, 20 or 1000 spins, then up to 200 yields   1.4 to 1.7 / 6.0 to 6.1   3.7 to 4.4 / 21 to 29
#   sleeping only                                       8.5 / 22                  13 / 39
# So the number of spins hardly matters, whether there are as many cores as ranks or fewer.
_SPINS = 20
_YIELDS = 200
_SLEEPS = 10
_LOST_CORE = 1_000_000  # nanoseconds that a yield takes if another program got the core
_CROSSINGS_WITHOUT_YIELDS = 1000

# Layout of ``backoff``, int64[5]: the number of crossings left without yields; four words for ``yield_core``.
NO_YIELD, CLOCK = 0, 1


class End(NamedTuple):
    """A rank's end of the exchange, for kernels that bin and cross by themselves.

    Attributes:
        bodies, body_words: the bodies of all ranks, and the words of each: see ``segment``.
        entries: entries of a bin.
        words, stride, record, bin_ends, rank, gathered, timeout, backoff: see ``cross``.
        envoy: 1 if the rank exchanges frames with other hosts: it crosses as of ``kernels.envoy.cross``.
    """

    bodies: NDArray[np.uint32]
    body_words: int
    entries: int
    words: NDArray[np.int64]
    stride: int
    record: NDArray[np.int64]
    bin_ends: NDArray[np.int64]
    rank: int
    gathered: NDArray[np.int64]
    timeout: NDArray[np.int64]
    backoff: NDArray[np.int64]
    envoy: int


END: Final = named(End, UINT32, *(int64,) * 2, INT64, int64, *(INT64,) * 2, int64, *(INT64,) * 3, int64)

# Bits of the abort word under the run's number, and under the cause.
RUN_SHIFT, CAUSE_SHIFT = 32, 24
RANK_MASK = (1 << CAUSE_SHIFT) - 1


@kernel(void, INT64)
def give_way(backoff):
    """Yield the core once; where another program kept it, have the next crossings sleep instead."""
    if yield_core(backoff[CLOCK:]) > _LOST_CORE:
        backoff[NO_YIELD] = _CROSSINGS_WITHOUT_YIELDS


@kernel(int64, INT64, int64, int64, int64, READ_INT64, INT64)
def await_rank(words, stride, tag, peer, timeout, backoff):
    """Wait until one rank has arrived. Arguments and results are those of ``wait``."""
    tries = 0
    slept = 0
    while True:
        seen = load_acquire(words, peer * stride + ARRIVED)
        if seen >= tag:
            return CROSSED
        if load_acquire(words, ABORT) >> RUN_SHIFT == tag >> 32:
            return ABORTED
        tries += 1
        if tries > _SPINS and backoff[NO_YIELD] == 0 and tries <= _SPINS + _YIELDS:
            give_way(backoff)
        elif tries > _SPINS:
            slept += 1
            if slept > _SLEEPS:
                return TIMED_OUT
            # The sleeper registers before it looks; the peer looks for sleepers after it arrives. So no wake-up
            # is lost: at least one of the two sees the other.
            fetch_add(words, peer * stride + SLEEPERS, 1)
            seen = load_acquire(words, peer * stride + ARRIVED)
            if seen < tag:
                sleep_while(words, peer * stride + ARRIVED, seen, timeout)
            fetch_add(words, peer * stride + SLEEPERS, -1)


@kernel(int64, INT64, int64, READ_INT64, int64, int64, int64, int64, INT64)
def copy_records(words, stride, record, tag, rank, first, stop, gathered):
    """Copy the records of the ranks from ``first`` to ``stop - 1``, which have arrived, into ``gathered``.

    Arguments are those of ``wait``. Returns the first rank that is in another run, or ``stop``.
    """
    size = record.size
    width = size + 1
    # Two records, each with ``p`` ends in whole cache lines.
    parity = RECORDS + (tag & 1) * ((stride - RECORDS) >> 1)
    other = stop
    for peer in range(first, stop):
        seen = load_acquire(words, peer * stride + ARRIVED)
        at = peer * stride + parity
        for i in range(size):
            gathered[peer * width + i] = words[at + i]
        gathered[peer * width + size] = words[at + ENDS + rank]
        if other == stop and (seen >> 32 != tag >> 32 or words[at + RUN] != record[RUN]):
            other = peer
    return other


@kernel(int64, INT64, int64, READ_INT64, int64, int64, int64, INT64, READ_INT64, INT64)
def wait_for_rank(words, stride, record, tag, rank, peer, gathered, timeout, backoff):
    """Wait for one rank, and copy its record into ``gathered``. Arguments and results are those of ``wait``."""
    status = await_rank(words, stride, tag, peer, timeout, backoff)
    if status == CROSSED and copy_records(words, stride, record, tag, rank, peer, peer + 1, gathered) == peer:
        return STALE
    return status


@kernel(types.UniTuple(int64, 2), INT64, int64, READ_INT64, int64, int64, int64, INT64, READ_INT64, INT64, int64)
def wait(words, stride, record, tag, rank, first, gathered, timeout, backoff, largest):
    """Wait for the ranks from ``first`` on, and copy their records into ``gathered``.

    ``gathered`` is int64[(p + 1) * (record.size + 1)]: by rank its record, and the end of its bin for this rank. The
    last row has the counts of all ranks, joined.

    Args:
        words: int64, the head of the segment.
        stride: words of a rank's part of the head.
        record: int64, this rank's digest of the run and its counts.
        tag: this crossing.
        rank: this rank.
        first: the first rank to wait for; the records of the ranks before it were copied by an earlier call.
        gathered: see above.
        timeout: int64[2], seconds and nanoseconds: the longest single sleep.
        backoff: int64[5], the rank's memory of its waits; zeros at first.
        largest: bits of the counts of which the largest is wanted, and not the sum: see ``crossings.largest_bits``.

    Returns:
        (CROSSED, p): all ranks arrived.
        (TIMED_OUT, peer): the peer did not arrive within the sleeps. The caller checks the deadline and the peer's
        process, and calls again with ``first=peer``.
        (ABORTED, peer): the run was aborted while this rank waited for the peer (p: after all ranks arrived).
        (STALE, peer): the peer is in another run.
    """
    size = record.size
    width = size + 1
    p = gathered.size // width - 1
    status = CROSSED
    stop = p
    for peer in range(first, p):
        status = await_rank(words, stride, tag, peer, timeout, backoff)
        if status != CROSSED:
            stop = peer
            break
    # All copies after all waits. A copy is a trip to the cache of another core, and many at once take as long as one.
    other = copy_records(words, stride, record, tag, rank, first, stop, gathered)
    if other < stop:
        return STALE, other
    if status != CROSSED:
        return status, stop
    # The ranks of a cancelled run may all arrive. Without this check the run would go on to the next level.
    if load_acquire(words, ABORT) >> RUN_SHIFT == tag >> 32:
        return ABORTED, p
    for i in range(1, size):
        joined = gathered[i]
        for peer in range(1, p):
            count = gathered[peer * width + i]
            joined = max(joined, count) if largest >> (i - 1) & 1 else joined + count
        gathered[p * width + i] = joined
    return CROSSED, p


@kernel(void, INT64, int64, int64, int64)
def arrive(words, stride, tag, rank):
    """Have a rank arrive at a crossing, when its record is written, and wake the ranks that sleep until then."""
    exchange(words, rank * stride + ARRIVED, tag)
    if fetch_add(words, rank * stride + SLEEPERS, 0):
        wake(words, rank * stride + ARRIVED)


@kernel(void, INT64, int64, READ_INT64, INT64, int64, int64)
def publish(words, stride, record, bin_ends, tag, rank):
    """Publish this rank's record and the ends of its bins, empty the bins, and arrive.

    Arguments are those of ``cross``.
    """
    at = rank * stride + RECORDS + (tag & 1) * ((stride - RECORDS) >> 1)
    for i in range(record.size):
        words[at + i] = record[i]
    for owner in range(bin_ends.size):
        words[at + ENDS + owner] = bin_ends[owner]
        bin_ends[owner] = 0
    arrive(words, stride, tag, rank)


@kernel(types.UniTuple(int64, 2), INT64, int64, READ_INT64, INT64, int64, int64, INT64, READ_INT64, INT64, int64)
def cross(words, stride, record, bin_ends, tag, rank, gathered, timeout, backoff, largest):
    """Publish this rank's record and the ends of its bins, empty the bins, and ``wait`` for all ranks.

    Arguments are those of ``wait``. ``bin_ends``, int64[p], is published and then zero. The ranks that sleep until this
    rank arrives are woken.
    """
    if backoff[NO_YIELD]:
        backoff[NO_YIELD] -= 1
    publish(words, stride, record, bin_ends, tag, rank)
    return wait(words, stride, record, tag, rank, 0, gathered, timeout, backoff, largest)


@kernel(types.boolean, INT64, int64)
def set_abort(words, value):
    """Set the abort word to ``value`` (see ``get_abort``); return whether this call set it.

    The word stays as it is if this run, or a later one, was aborted before.
    """
    while True:
        seen = load_acquire(words, ABORT)
        if seen >> RUN_SHIFT >= value >> RUN_SHIFT:
            return False
        if compare_exchange(words, ABORT, seen, value) == seen:
            return True


@kernel(int64, INT64)
def get_abort(words):
    """Return the abort word: ``run number << 32 | cause << 24 | rank``, or 0 before the first abort."""
    return load_acquire(words, ABORT)
