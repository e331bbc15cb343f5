"""Kernels of the shared-memory barrier: publish a record, wait for everybody's, abort.

``words`` is the head of the shared segment, as ``dbfs_workers.exchange.segment`` lays it out. A tag is
``run number << 32 | crossing``. It grows, so a rank that is already at the next crossing still satisfies those that
wait at this one; it can't be two ahead, because it waits for them there, so it has not overwritten the record they
read: records are doubled by the crossing's parity.
"""

from numba import types

from dbfs_workers.exchange.segment import ABORT, ARRIVED, RECORDS, RUN
from dbfs_workers.intrinsics import compare_exchange, load_acquire, store_release, yield_core
from dbfs_workers.jit import INT64, READ_INT64, int64, kernel

CROSSED, AGAIN, ABORTED, STALE = 0, 1, 2, 3


@kernel(types.UniTuple(int64, 2), INT64, int64, READ_INT64, int64, int64, INT64, int64, int64)
def wait(words, stride, record, tag, first, gathered, spins, yields):
    """Wait for the ranks from ``first`` on, copying their records into ``gathered`` (int64[(p + 1) * record.size]).

    Spins, then gives up the core between looks, then returns (AGAIN, peer): the caller looks at the clock and comes
    back with that peer as ``first``. The other outcomes are (CROSSED, p), the last row of ``gathered`` then being the
    sums, (ABORTED, peer waited for) and (STALE, peer that is in another run).
    """
    width = record.size
    p = gathered.size // width - 1
    for peer in range(first, p):
        tries = 0
        while True:
            seen = load_acquire(words, peer * stride + ARRIVED)
            if seen >= tag:
                break
            if load_acquire(words, ABORT) >> 16 == tag >> 32:
                return ABORTED, peer
            tries += 1
            if tries > spins:
                if tries > spins + yields:
                    return AGAIN, peer
                yield_core()
        at = peer * stride + RECORDS + (tag & 1) * width
        for i in range(width):
            gathered[peer * width + i] = words[at + i]
        if seen >> 32 != tag >> 32 or gathered[peer * width + RUN] != record[RUN]:
            return STALE, peer
    # Everybody may have arrived at a cancelled run's barrier too: it shall stop by the next level.
    if load_acquire(words, ABORT) >> 16 == tag >> 32:
        return ABORTED, p
    for i in range(width):
        total = 0
        for peer in range(p):
            total += gathered[peer * width + i]
        gathered[p * width + i] = total
    return CROSSED, p


@kernel(types.UniTuple(int64, 2), INT64, int64, READ_INT64, int64, int64, INT64, int64, int64)
def cross(words, stride, record, tag, rank, gathered, spins, yields):
    """Publish this rank's record and wait for everybody's: see ``wait``."""
    at = rank * stride + RECORDS + (tag & 1) * record.size
    for i in range(record.size):
        words[at + i] = record[i]
    store_release(words, rank * stride + ARRIVED, tag)
    return wait(words, stride, record, tag, 0, gathered, spins, yields)


@kernel(types.boolean, INT64, int64)
def set_abort(words, value):
    """Abort run ``value >> 16`` unless it, or a later one, was aborted already; returns whether this call did."""
    while True:
        seen = load_acquire(words, ABORT)
        if seen >> 16 >= value >> 16:
            return False
        if compare_exchange(words, ABORT, seen, value) == seen:
            return True


@kernel(int64, INT64)
def get_abort(words):
    """The abort word: ``run number << 16 | cause << 8 | rank``; 0 before the first abort."""
    return load_acquire(words, ABORT)
