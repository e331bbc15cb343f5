"""Kernels of the shared-memory barrier: publish a record, wait for everybody's, abort.

``words`` is the head of the shared segment, as ``dbfs_workers.exchange.segment`` lays it out. A tag is
``run number << 32 | crossing``. It grows, so a rank that is already at the next crossing still satisfies those that
wait at this one; it can't be two ahead, because it waits for them there, so it has not overwritten the record they
read: records are doubled by the crossing's parity.
"""

from numba import types

from dbfs_workers.exchange.segment import ABORT, ARRIVED, RECORDS, RUN, SLEEPERS
from dbfs_workers.intrinsics import compare_exchange, exchange, fetch_add, load_acquire, sleep_while, wake, yield_core
from dbfs_workers.jit import INT64, READ_INT64, int64, kernel

CROSSED, AGAIN, ABORTED, STALE = 0, 1, 2, 3

# Giving up the core is the quickest way to wait, with ranks that outnumber the cores too; but where another program
# wants the core, it takes it for a whole time slice. A rank that sees that happen sleeps instead (futex), and is woken
# at once, for the next thousand crossings. Microseconds a level of a path with 2 / 4 ranks on 2 cores, idle and beside
# a busy program on each core: only yielding 8 / 25 and 1200 / 2200, only sleeping 27 / 96 and 35 / 150, this 10 / 31
# and 28 / 145.
_LOOKS = 20
_YIELDS = 200
_SLEEPS = 10
_SLICE = 1_000_000  # nanoseconds
_CROSSINGS = 1000

# Of ``patience``: crossings left in which the rank does not yield; room for the clock.
CROWDED, CLOCK = 0, 1


@kernel(types.UniTuple(int64, 2), INT64, int64, READ_INT64, int64, int64, INT64, READ_INT64, INT64)
def wait(words, stride, record, tag, first, gathered, timeout, patience):
    """Wait for the ranks from ``first`` on, copying their records into ``gathered`` (int64[(p + 1) * record.size]).

    Looks, gives up the core between looks, and then sleeps, at most ``timeout`` at a time, before it returns (AGAIN,
    peer): the caller looks at the clock and comes back with that peer as ``first``. The other outcomes are (CROSSED,
    p), the last row of ``gathered`` then being the sums, (ABORTED, peer waited for) and (STALE, peer that is in another
    run). ``patience`` (int64[5], zeros at first) is what the rank remembers of its waits.
    """
    width = record.size
    p = gathered.size // width - 1
    for peer in range(first, p):
        tries = 0
        slept = 0
        while True:
            seen = load_acquire(words, peer * stride + ARRIVED)
            if seen >= tag:
                break
            if load_acquire(words, ABORT) >> 16 == tag >> 32:
                return ABORTED, peer
            tries += 1
            if tries > _LOOKS and patience[CROWDED] == 0 and tries <= _LOOKS + _YIELDS:
                if yield_core(patience[CLOCK:]) > _SLICE:
                    patience[CROWDED] = _CROSSINGS
            elif tries > _LOOKS:
                slept += 1
                if slept > _SLEEPS:
                    return AGAIN, peer
                # The peer looks for sleepers after it has arrived, so one of the two sees the other.
                fetch_add(words, peer * stride + SLEEPERS, 1)
                seen = load_acquire(words, peer * stride + ARRIVED)
                if seen < tag:
                    sleep_while(words, peer * stride + ARRIVED, seen, timeout)
                fetch_add(words, peer * stride + SLEEPERS, -1)
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


@kernel(types.UniTuple(int64, 2), INT64, int64, READ_INT64, int64, int64, INT64, READ_INT64, INT64)
def cross(words, stride, record, tag, rank, gathered, timeout, patience):
    """Publish this rank's record and wait for everybody's: see ``wait``."""
    at = rank * stride + RECORDS + (tag & 1) * record.size
    for i in range(record.size):
        words[at + i] = record[i]
    if patience[CROWDED]:
        patience[CROWDED] -= 1
    exchange(words, rank * stride + ARRIVED, tag)
    if fetch_add(words, rank * stride + SLEEPERS, 0):
        wake(words, rank * stride + ARRIVED)
    return wait(words, stride, record, tag, 0, gathered, timeout, patience)


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
