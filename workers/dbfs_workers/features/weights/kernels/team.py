"""CPU kernels of large rounds: the threads of a team relax the edges of the near pile at once.

A thread changes a vertex's distance, parent and piles while it holds the vertex's lock, a bit of its flags; it looks
at the distance before without the lock, since distances fall only. Each thread reserves places of a pile, some at a
time; ``squeeze`` closes the gaps that it leaves.
"""

from typing import Final, NamedTuple

import numpy as np
from numba import types
from numba.extending import register_jitable
from numpy.typing import NDArray

from dbfs_workers.base.intrinsics import acquire_bits, fetch_add, from_words, store_release
from dbfs_workers.base.jit import INT64, READ_INT64, READ_UINT32, UINT8, UINT32, int64, kernel, named, void
from dbfs_workers.base.team import CALLS, KIND, RESULTS, Tasks
from dbfs_workers.features.weights.kernels.piles import CHANGED, CHUNK, FAR, NEAR
from dbfs_workers.features.weights.kernels.rounds import READ_WEIGHTS, add_float32, add_float64, add_int64
from dbfs_workers.features.weights.keys import NONE
from dbfs_workers.search.cpu.kernels.places import STEP
from dbfs_workers.search.cpu.kernels.team_tasks import begin, close, end, leave, next_task
from dbfs_workers.search.partition.kernels.rows import ROWS
from dbfs_workers.search.partition.partition import Rows
from dbfs_workers.search.partition.stripe import NO_VERTEX

_LOCK: Final = 4
_CURSOR, _NEAR_END, _FAR_END = 0, STEP, 2 * STEP
_BOUND, _UNREACHED, _FIRST, _TAKEN = range(3 * STEP, 3 * STEP + 4)


class Relaxation(NamedTuple):
    """The task of a large round, whose words are few.

    Attributes:
        rows, distances, parents, flags, far, changed, ends: see ``Search``. The piles have ``CHUNK`` places more for
            each thread than there are rows.
        integers, doubles, singles: the weights, in the array of their type; the others are empty.
        near, successor: the near pile, and its successor.
        shared: int64: see ``shared_words``.
    """

    rows: Rows
    distances: NDArray[np.int64]
    parents: NDArray[np.uint32]
    flags: NDArray[np.uint8]
    far: NDArray[np.uint32]
    changed: NDArray[np.uint32]
    ends: NDArray[np.int64]
    integers: NDArray[np.int64]
    doubles: NDArray[np.float64]
    singles: NDArray[np.float32]
    near: NDArray[np.uint32]
    successor: NDArray[np.uint32]
    shared: NDArray[np.int64]


RELAXATION: Final = named(
    Relaxation, ROWS, INT64, UINT32, UINT8, *(UINT32,) * 2, INT64, *READ_WEIGHTS.values(), READ_UINT32, UINT32, INT64
)


def shared_words(far: int, bound: int, unreached: int, first: int, taken: int) -> NDArray[np.int64]:
    """Return the words that the threads share: a cursor in the near pile, the ends of its successor and the far pile.

    Args:
        far: the far pile's end.
        bound, unreached: see ``Piles``.
        first: see ``Search``.
        taken: vertices that a thread takes at a time.
    """
    words = np.zeros(4 * STEP, np.int64)
    words[[_FAR_END, _BOUND, _UNREACHED, _FIRST, _TAKEN]] = far, bound, unreached, first, taken
    return words


def pile_ends(shared: NDArray[np.int64]) -> tuple[int, int]:
    """Return the ends of the near pile's successor and of the far pile, gaps included."""
    return int(shared[_NEAR_END]), int(shared[_FAR_END])


@register_jitable
def lock(flags, at):
    """Take the lock of an id; return its flags."""
    held = acquire_bits(flags, at, np.uint8(_LOCK))
    while held & _LOCK:
        held = acquire_bits(flags, at, np.uint8(_LOCK))
    return held


@register_jitable
def relax_shared(task, weights, add):
    """Do a thread's part of a round: see ``rounds.relax``.

    Returns:
        Vertices taken, edges relaxed, distances that fell on this rank, vertices sent, vertices reached, and ``NONE``
        less the least key put into the far pile.
    """
    shared, distances, parents, flags, far = task.shared, task.distances, task.parents, task.flags, task.far
    starts, ends, columns = task.rows
    bound, unreached, first, step = shared[_BOUND], shared[_UNREACHED], shared[_FIRST], shared[_TAKEN]
    width = np.int64(starts.size)
    # The places of the thread's chunks that are filled; a multiple of a chunk's if it has none.
    near_at = far_at = np.int64(0)
    near_base = far_base = np.int64(0)
    taken = edges = own = sent = reached = 0
    nearest = NONE
    while True:
        begun = fetch_add(shared, _CURSOR, step)
        if begun >= task.near.size:
            break
        for i in range(begun, min(begun + step, task.near.size)):
            row = np.int64(task.near[i])
            at = first + row
            held = lock(flags, at)
            distance = distances[at]
            store_release(flags, at, np.uint8(held & FAR))
            taken += 1
            edges += ends[row] - starts[row]
            for k in range(starts[row], ends[row]):
                v = np.int64(columns[k])
                key = add(distance, weights[k])
                if key >= distances[v]:
                    continue
                held = lock(flags, v)
                before = distances[v]
                if key < before:
                    distances[v] = key
                    parents[v] = at
                    place = v - first
                    if place < 0 or place >= width:
                        if not held & CHANGED:
                            held |= CHANGED
                            owner = v // width
                            to = fetch_add(task.ends, owner, 1)
                            task.changed[owner * width + to] = v - owner * width
                            sent += 1
                    else:
                        own += 1
                        reached += before == unreached
                        if key <= bound:
                            if not held & NEAR:
                                held |= NEAR
                                if near_at % CHUNK == 0:
                                    near_base, near_at = fetch_add(shared, _NEAR_END, CHUNK), 0
                                task.successor[near_base + near_at] = place
                                near_at += 1
                        else:
                            nearest = min(nearest, key)
                            if not held & FAR:
                                held |= FAR
                                if far_at % CHUNK == 0:
                                    far_base, far_at = fetch_add(shared, _FAR_END, CHUNK), 0
                                far[far_base + far_at] = place
                                far_at += 1
                store_release(flags, v, np.uint8(held))
    while near_at % CHUNK:
        task.successor[near_base + near_at] = NO_VERTEX
        near_at += 1
    while far_at % CHUNK:
        far[far_base + far_at] = NO_VERTEX
        far_at += 1
    return taken, edges, own, sent, reached, NONE - nearest


@kernel(types.UniTuple(int64, 6), RELAXATION)
def relax_by_thread(task):
    """See ``relax_shared``."""
    if task.integers.size:
        return relax_shared(task, task.integers, add_int64)
    if task.doubles.size:
        return relax_shared(task, task.doubles, add_float64)
    return relax_shared(task, task.singles, add_float32)


@kernel(int64, UINT32, int64, int64)
def squeeze(pile, begin, end):
    """Close the gaps of a pile from a place on; return its end."""
    kept = begin
    for i in range(begin, end):
        row = pile[i]
        if row != NO_VERTEX:
            pile[kept] = row
            kept += 1
    return kept


@kernel(void, READ_INT64, INT64, int64)
def work(task, results, thread):
    """Run a thread's part of a task."""
    at = thread * RESULTS
    counts = relax_by_thread(from_words(task, RELAXATION))
    for i in range(6):
        results[at + i] = counts[i]


@kernel(int64, INT64, READ_INT64, INT64, int64, int64)
def serve(control, task, results, thread, number):
    """Do a helper's part of tasks: see ``team.Helper``."""
    number = next_task(control, number)
    while number >= 0 and control[KIND] != CALLS:
        work(task, results, thread)
        leave(control)
        number = next_task(control, number)
    return number


@kernel(void, INT64, READ_INT64, INT64, int64)
def lead(control, task, results, kind):
    """Run a task: see ``team.Leader``."""
    begin(control, kind)
    work(task, results, 0)
    close(control)


TASKS: Final = Tasks(serve, lead, begin, leave, close, end, {Relaxation: 1})
"""Tasks of large rounds."""
