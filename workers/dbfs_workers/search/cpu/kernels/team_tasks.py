"""CPU kernels of a team's tasks: the threads wait for a task, and share its work until the leader finds none left.

The threads wait in a kernel and not in Python, so that a task begins within microseconds. A task is a named tuple, as
words (``intrinsics.from_words``), since the threads wait before they know which task comes. A helper may come late, or
never: another program may have its core. So the leader closes the task after its own part, and waits only for the
helpers that have joined.
"""

from typing import Final

from dbfs_workers.base.intrinsics import (
    compare_exchange,
    exchange,
    fetch_add,
    from_words,
    load_acquire,
    sleep_while,
    wake,
)
from dbfs_workers.base.jit import INT64, READ_INT64, int64, kernel, void
from dbfs_workers.base.team import CALLS, ENDED, GATE, KIND, LAST, RESULTS, SLEEPERS, TIMEOUT, Tasks
from dbfs_workers.search.cpu.kernels import team as cpu_team_kernels
from dbfs_workers.search.cpu.kernels.team import CONTRACTION, EXPANSION, SEARCHING, contract, expand, search

EXPAND: Final = 1
SEARCH: Final = 2
CONTRACT: Final = 3

# The gate's bit that lets helpers join. Below it is the number of helpers at work.
_OPEN = 1 << 16
_HALF = 32

# Looks for new work, or for the end of the others' work, before a thread sleeps: some microseconds.
_LOOKS = 500


@kernel(void, int64, READ_INT64, INT64, int64)
def work(kind, task, results, thread):
    """Run a thread's part of a task."""
    at = thread * RESULTS
    if kind == EXPAND:
        results[at], results[at + 1], results[at + 2] = expand(from_words(task, EXPANSION), thread)
    elif kind == SEARCH:
        results[at], results[at + 1], results[at + 2] = search(from_words(task, SEARCHING))
    else:
        results[at] = contract(from_words(task, CONTRACTION), thread)


@kernel(int64, INT64, int64)
def join(control, number):
    """Join the task that is open, if it is not that of ``number``; return its number, or ``number``."""
    gate = load_acquire(control, GATE)
    while gate & _OPEN and gate >> _HALF != number:
        before = compare_exchange(control, GATE, gate, gate + 1)
        if before == gate:
            return gate >> _HALF
        gate = before
    return number


@kernel(int64, INT64, int64)
def next_task(control, number):
    """Wait for a task after that of ``number``, and join it; return its number, or -1 once the team ends."""
    looks = 0
    while True:
        # Read before the gate, which opens before it changes.
        last = load_acquire(control, LAST)
        joined = join(control, number)
        if joined != number:
            return joined
        if load_acquire(control, ENDED):
            return -1
        looks += 1
        if looks > _LOOKS:
            # The sleeper registers before it looks; the leader looks for sleepers after it changed the number.
            fetch_add(control, SLEEPERS, 1)
            if load_acquire(control, LAST) == last:
                sleep_while(control, LAST, last, control[TIMEOUT : TIMEOUT + 2])
            fetch_add(control, SLEEPERS, -1)


@kernel(void, INT64)
def leave(control):
    """Leave the task that a helper has joined and done its part of."""
    if fetch_add(control, GATE, -1) & (2 * _OPEN - 1) == 1:
        wake(control, GATE)


@kernel(void, INT64, int64)
def begin(control, kind):
    """Let the helpers join a task of a kind."""
    number = (control[LAST] + 1) & 0x7FFFFFFF
    control[KIND] = kind
    exchange(control, GATE, number << _HALF | _OPEN)
    exchange(control, LAST, number)
    if fetch_add(control, SLEEPERS, 0):
        wake(control, LAST)


@kernel(void, INT64)
def close(control):
    """Let no more helpers join a task, and return when all that joined have finished."""
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
    wake(control, LAST)


@kernel(int64, INT64, READ_INT64, INT64, int64, int64)
def serve(control, task, results, thread, number):
    """Do a helper's part of tasks: see ``team.Helper``."""
    number = next_task(control, number)
    while number >= 0 and control[KIND] != CALLS:
        work(control[KIND], task, results, thread)
        leave(control)
        number = next_task(control, number)
    return number


@kernel(void, INT64, READ_INT64, INT64, int64)
def lead(control, task, results, kind):
    """Run a task: see ``team.Leader``."""
    begin(control, kind)
    work(kind, task, results, 0)
    close(control)


KINDS: Final = {
    cpu_team_kernels.Expansion: EXPAND,
    cpu_team_kernels.Search: SEARCH,
    cpu_team_kernels.Contraction: CONTRACT,
}
TASKS: Final = Tasks(serve, lead, begin, leave, close, end, KINDS)
"""Tasks of large levels of the layout 1d."""
