"""Templates that claim a vertex and give it a place in a list: on one thread, or on one of a team's threads.

A list has room for the vertices of one owner: a bin, or a rank's own queue. A vertex belongs to the thread that sets
its bit, by an atomic operation. Each thread reserves places of a list, some at a time, before it claims vertices for
them. The places that it leaves empty at the end are gaps, which ``team.close_gaps`` closes.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import types
from numba.extending import register_jitable
from numpy.typing import NDArray

from dbfs_workers.base.intrinsics import fetch_add, fetch_or
from dbfs_workers.base.jit import INT64, READ_UINT32, allocating_kernel, int64, kernel, named, void

STEP: Final = 16
"""Words between two that threads write."""

SEEN: Final = -1
"""No place: another thread has the vertex."""

FULL: Final = -2
"""No place: the list is full, and the vertex stays unclaimed."""


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


SHARING: Final = named(Sharing, INT64, INT64, int64)


class Ends(NamedTuple):
    """The lists of one thread.

    Attributes:
        ends: int64[p], the end of each owner's list.
        own: the owner whose list ends elsewhere: at the number of vertices that the thread has queued.
        room: places of each of the other lists.
    """

    ends: NDArray[np.int64]
    own: int
    room: int


class Shares(NamedTuple):
    """The lists of a team, as one of its threads sees them.

    Attributes:
        shared: see ``Sharing``.
        part: the thread's own part.
        own: the owner whose list has another size; -1 for none.
        own_chunk, own_room: places that the thread reserves at a time in that list, and all of its places.
        chunk, room: the same of each of the other lists.
    """

    shared: NDArray[np.int64]
    part: NDArray[np.int64]
    own: int
    own_chunk: int
    own_room: int
    chunk: int
    room: int


@allocating_kernel(INT64, SHARING, int64)
def own_part(sharing, thread):
    """Return a thread's own part, without the words up to the next thread's."""
    width = 2 * (sharing.shared.size // STEP)
    first = thread * (width + 2 * STEP)
    return sharing.parts[first : first + width]


@kernel(types.UniTuple(int64, 2), SHARING, int64)
def stretch(sharing, size):
    """Take some of ``size`` rows, words or entries for this thread; return the first, and the one behind the last."""
    first = fetch_add(sharing.shared, sharing.shared.size - STEP, sharing.step)
    return first, min(first + sharing.step, size)


@kernel(void, INT64, int64, int64)
def leave_over(part, first, stop):
    """Note the rows or entries that a thread has taken and not finished."""
    part[part.size - 2], part[part.size - 1] = first, stop


@kernel(types.boolean, READ_UINT32, types.uint32, plain=True)
def seen(bits, i):
    """Return whether bit ``i`` is set."""
    return bits[i >> np.uint32(5)] >> (i & np.uint32(31)) & np.uint32(1) != 0


@register_jitable
def take_next(lists, visited, i, owner, queued):  # noqa: ARG001
    """Set bit ``i``, which is clear; return the place in the only list, which has ``queued`` vertices."""
    visited[i >> np.uint32(5)] |= np.uint32(1) << (i & np.uint32(31))
    return queued


@register_jitable
def take(lists, visited, i, owner, queued):
    """Set bit ``i``, which is clear, for a vertex of an owner; return the vertex's place, or ``FULL``: see ``Ends``."""
    at = queued
    if owner != lists.own:
        at = lists.ends[owner]
        if at == lists.room:
            return FULL
    # Before the list's end is written, so that the word is still in a register.
    visited[i >> np.uint32(5)] |= np.uint32(1) << (i & np.uint32(31))
    if owner != lists.own:
        lists.ends[owner] = at + 1
    return at


@register_jitable
def take_shared(lists, visited, i, owner, queued):  # noqa: ARG001
    """Do the same while other threads do: return the vertex's place, ``SEEN`` or ``FULL``: see ``Shares``."""
    part = lists.part
    owners = (part.size - 2) // 2
    if part[owner] == part[owners + owner]:
        chunk, room = (lists.own_chunk, lists.own_room) if owner == lists.own else (lists.chunk, lists.room)
        at = fetch_add(lists.shared, owner * STEP, chunk)
        if at >= room:
            return FULL
        part[owner], part[owners + owner] = at, min(at + chunk, room)
    bit = np.uint32(1) << (i & np.uint32(31))
    if fetch_or(visited, np.int64(i >> np.uint32(5)), bit) & bit:
        return SEEN
    at = part[owner]
    part[owner] = at + 1
    return at
