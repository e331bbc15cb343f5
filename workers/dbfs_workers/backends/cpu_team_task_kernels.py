"""CPU kernels of a team's tasks: the threads wait for a task, and share its work until the leader finds none left.

The threads wait in a kernel and not in Python, so that a task begins within microseconds. A task is the arguments of a
kernel of ``cpu_team_kernels`` or ``grid_team_kernels``, as words. A helper may come late, or never: another program may
have its core. So the leader closes the task after its own part, and waits only for the helpers that have joined.
"""

from typing import Final

import numpy as np
from numba import carray

from dbfs_workers.backends.cpu_team_kernels import STEP, contract, expand, search
from dbfs_workers.backends.grid_team_kernels import contract as grid_contract
from dbfs_workers.backends.grid_team_kernels import expand as grid_expand
from dbfs_workers.backends.grid_team_kernels import search as grid_search
from dbfs_workers.intrinsics import compare_exchange, exchange, fetch_add, load_acquire, pointer, sleep_while, wake
from dbfs_workers.jit import INT32, INT64, READ_INT64, UINT16, UINT32, allocating_kernel, int64, kernel, void
from dbfs_workers.team import ENDED, GATE, KIND, RESULTS, SLEEPERS, TIMEOUT, TURN

EXPAND: Final = 1
SEARCH: Final = 2
CONTRACT: Final = 3
GRID_EXPAND: Final = 4
GRID_SEARCH: Final = 5
GRID_CONTRACT: Final = 6

# The gate's bit that lets helpers join. Below it is the number of helpers at work.
_OPEN = 1 << 16
_HALF = 32

# Looks for new work, or for the end of the others' work, before a thread sleeps: some microseconds.
_LOOKS = 500


@allocating_kernel(INT64, READ_INT64, int64)
def longs(task, at):
    """Return the int64 array of a task whose address and size are at place ``at``."""
    return carray(pointer(task[at]), (task[at + 1],), np.int64)


@allocating_kernel(UINT32, READ_INT64, int64)
def ids(task, at):
    """Return a uint32 array of a task."""
    return carray(pointer(task[at]), (task[at + 1],), np.uint32)


@allocating_kernel(UINT16, READ_INT64, int64)
def finders_of(task, at):
    """Return a uint16 array of a task."""
    return carray(pointer(task[at]), (task[at + 1],), np.uint16)


@allocating_kernel(INT32, READ_INT64, int64)
def distances_of(task, at):
    """Return an int32 array of a task."""
    return carray(pointer(task[at]), (task[at + 1],), np.int32)


@allocating_kernel(INT64, READ_INT64, int64, int64)
def own_of(task, at, thread):
    """Return a thread's ``own`` from all threads' at place ``at``, which the number of owners follows."""
    width = 2 * task[at + 2] + 2
    first = thread * (width + 2 * STEP)
    return longs(task, at)[first : first + width]


@kernel(void, int64, READ_INT64, INT64, int64)
def work(kind, task, results, thread):
    """Run a thread's part of a task, whose words are the arguments of its kernel in order.

    An array is its address and its size. The number of owners follows ``own``.
    """
    at = thread * RESULTS
    if kind == EXPAND:
        results[at], results[at + 1], results[at + 2] = expand(
            longs(task, 0),
            longs(task, 2),
            ids(task, 4),
            ids(task, 6),
            task[8],
            task[9],
            ids(task, 10),
            longs(task, 12),
            own_of(task, 14, thread),
            task[17],
            task[18],
            ids(task, 19),
            ids(task, 21),
            task[23],
            distances_of(task, 24),
            ids(task, 26),
            ids(task, 28),
        )
    elif kind == SEARCH:
        results[at], results[at + 1], results[at + 2] = search(
            longs(task, 0),
            longs(task, 2),
            ids(task, 4),
            longs(task, 6),
            longs(task, 8),
            ids(task, 10),
            task[12],
            ids(task, 13),
            ids(task, 15),
            longs(task, 17),
            task[19],
            distances_of(task, 20),
            ids(task, 22),
            ids(task, 24),
            ids(task, 26),
        )
    elif kind == GRID_EXPAND:
        results[at] = grid_expand(
            longs(task, 0),
            ids(task, 2),
            ids(task, 4),
            task[6],
            task[7],
            task[8],
            ids(task, 9),
            ids(task, 11),
            ids(task, 13),
            longs(task, 15),
            own_of(task, 17, thread),
            task[20],
        )
    elif kind == GRID_SEARCH:
        results[at], results[at + 1] = grid_search(
            longs(task, 0),
            ids(task, 2),
            ids(task, 4),
            ids(task, 6),
            task[8],
            ids(task, 9),
            task[11],
            task[12],
            ids(task, 13),
            ids(task, 15),
            longs(task, 17),
            ids(task, 19),
        )
    elif kind == GRID_CONTRACT:
        results[at], results[at + 1] = grid_contract(
            ids(task, 0),
            task[2] != 0,
            task[3],
            ids(task, 4),
            longs(task, 6),
            own_of(task, 8, thread),
            task[11],
            task[12],
            task[13],
            distances_of(task, 14),
            finders_of(task, 16),
            longs(task, 18),
            ids(task, 20),
        )
    else:
        results[at] = contract(
            ids(task, 0),
            ids(task, 2),
            task[4],
            ids(task, 5),
            longs(task, 7),
            own_of(task, 9, thread),
            task[12],
            task[13],
            distances_of(task, 14),
            ids(task, 16),
            ids(task, 18),
        )


@kernel(int64, INT64, int64)
def join(control, turn):
    """Join the task that is open, if it is not that of ``turn``; return its number, or ``turn``."""
    gate = load_acquire(control, GATE)
    while gate & _OPEN and gate >> _HALF != turn:
        before = compare_exchange(control, GATE, gate, gate + 1)
        if before == gate:
            return gate >> _HALF
        gate = before
    return turn


@kernel(void, INT64, READ_INT64, INT64, int64)
def serve(control, task, results, thread):
    """Do a helper's part of the tasks that it joins until the team ends: see ``team.Team``."""
    turn = 0
    looks = 0
    while True:
        # Read before the gate, which opens before it changes.
        last = load_acquire(control, TURN)
        joined = join(control, turn)
        if joined != turn:
            work(control[KIND], task, results, thread)
            if fetch_add(control, GATE, -1) & (2 * _OPEN - 1) == 1:
                wake(control, GATE)
            turn = joined
            looks = 0
            continue
        if load_acquire(control, ENDED):
            return
        looks += 1
        if looks > _LOOKS:
            # The sleeper registers before it looks; the leader looks for sleepers after it changed the turn.
            fetch_add(control, SLEEPERS, 1)
            if load_acquire(control, TURN) == last:
                sleep_while(control, TURN, last, control[TIMEOUT : TIMEOUT + 2])
            fetch_add(control, SLEEPERS, -1)


@kernel(void, INT64, READ_INT64, INT64, int64)
def lead(control, task, results, kind):
    """Run a task on a team, of which the calling thread is the first; return when all that joined have finished."""
    turn = (control[TURN] + 1) & 0x7FFFFFFF
    control[KIND] = kind
    exchange(control, GATE, turn << _HALF | _OPEN)
    exchange(control, TURN, turn)
    if fetch_add(control, SLEEPERS, 0):
        wake(control, TURN)
    work(kind, task, results, 0)
    fetch_add(control, GATE, -_OPEN)
    looks = 0
    while True:
        gate = load_acquire(control, GATE)
        if gate & (_OPEN - 1) == 0:
            return
        looks += 1
        if looks > _LOOKS:
            sleep_while(control, GATE, gate, control[TIMEOUT : TIMEOUT + 2])


@kernel(void, INT64)
def end(control):
    """End the helpers of a team, which finish a task under way."""
    exchange(control, ENDED, 1)
    wake(control, TURN)
