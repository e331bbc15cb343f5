"""Calls of kernels on all threads of a team, and the lists that several threads write at once.

A helper takes some microseconds to begin and to end, so small levels stay with one thread. Which thread claims a vertex
is a matter of chance, so the frontier's order, and which of several parents a vertex gets, differ from call to call.
``cpu.team`` has the levels of the layout 1d.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.team import Team
from dbfs_workers.search.cpu.kernels import team as kernels
from dbfs_workers.search.cpu.kernels.places import STEP, Sharing
from dbfs_workers.search.partition.partition import Rows
from dbfs_workers.search.partition.stripe import WORD_BITS

T = TypeVar("T")

NONE: Final = np.empty(0, np.uint32)
"""No parents."""

LEAST_EDGES: Final = 1 << 17
"""Fewest edges of a top-down level that several threads expand: one takes about half a millisecond for them."""

LEAST_ROWS: Final = 1 << 15
"""Fewest unvisited rows of a bottom-up level that several threads search: one takes half a millisecond or more."""

LEAST_WORDS: Final = 1 << 15
"""Fewest words of a bitmap that several threads search, however few rows are unvisited.

Each thread has written a part of the last levels' bitmaps, so that one takes a millisecond to read 2^17 words again.
"""

LEAST_ENTRIES: Final = 1 << 17
"""Fewest entries of a bin that several threads contract: one takes about half a millisecond for them."""

LEAST_PARTED: Final = 1 << 14
"""Fewest rows that are parted for calls of Python functions: a part costs 20 to 50 us."""

# Parts for each thread. Parts with as many edges take different times, since rows are searched until they are done.
_PARTS: Final = 4
# Edges that take as long as the rest of a row.
_ROW_EDGES: Final = 4

# Rows, entries and words that a thread takes at a time, at most, and how many such stretches it has at least.
MOST_ROWS: Final = 256
MOST_ENTRIES: Final = 1 << 12
MOST_WORDS: Final = 1 << 10
_STRETCHES = 64
# Places of a list that a thread reserves at a time, at most, and the least share of a list's room that all of them do.
_MOST_PLACES = 256
_PLACES_SHARE = 4


def bounds_of_rows(team: Team | None, rows: Rows) -> list[int]:
    """Return bounds of parts of a rank's rows with about as many edges each, multiples of a bitmap's word."""
    size = rows.starts.size
    if team is None or size < LEAST_PARTED:
        return [0, size]
    work, parts = np.cumsum(rows.ends - rows.starts + _ROW_EDGES), team.threads * _PARTS
    cuts = np.searchsorted(work, work[-1] * np.arange(1, parts) // parts)
    return np.unique([0, *(cuts // WORD_BITS * WORD_BITS), size]).tolist()  # type: ignore[no-any-return]


def even_bounds(team: Team | None, size: int) -> list[int]:
    """Return bounds of parts of so many rows."""
    if team is None or size < LEAST_PARTED:
        return [0, size]
    return np.linspace(0, size, team.threads * _PARTS + 1).astype(int).tolist()  # type: ignore[no-any-return]


def each(team: Team | None, bounds: Sequence[int], work: Callable[[int, int], T]) -> list[T]:
    """Call a function for the bounds of each part: see ``Team.each``. No team, or one part, is one thread's."""
    if team is None or len(bounds) == 2:
        return [work(*part) for part in itertools.pairwise(bounds)]
    return team.each(bounds, work)


def places(room: int, team: Team) -> int:
    """Return how many places of a list a thread reserves at a time."""
    return min(max(room // (_PLACES_SHARE * team.threads), 1), _MOST_PLACES)


def takes_search(visited: NDArray[np.uint32], empty: NDArray[np.uint32] | None = None) -> bool:
    """Return whether a team searches the rows that are neither visited nor empty."""
    if visited.size >= LEAST_WORDS:
        return True
    skipped = visited if empty is None else visited | empty
    return WORD_BITS * skipped.size - int(np.bitwise_count(skipped).sum()) >= LEAST_ROWS


def sharing(team: Team, owners: int, size: int, most: int) -> Sharing:
    """Return what the threads share a task by: at most ``most`` of ``size`` rows, words or entries at a time."""
    step = min(max(size // (_STRETCHES * team.threads), 1), most)
    parts = np.zeros((team.threads, 2 * owners + 2 + 2 * STEP), np.int64)
    return Sharing(np.zeros((owners + 1) * STEP, np.int64), parts, step)


def _words(task: Any) -> Iterator[int]:
    """Yield the words of a task: see ``intrinsics.from_words``."""
    for field in task:
        if isinstance(field, np.ndarray):
            yield from (field.ctypes.data, field.size)
        elif isinstance(field, tuple):
            yield from _words(field)
        else:
            yield int(field)


def run(team: Team, task: NamedTuple) -> NDArray[np.int64]:
    """Run a task on the threads of a team; return the sums of what their calls of its kernel returned."""
    words = list(_words(task))
    team.task[: len(words)] = words
    team.results[:] = 0
    team.tasks.lead(team.control, team.task, team.results, team.tasks.kinds[type(task)])
    sums: NDArray[np.int64] = team.results.reshape(team.threads, -1)[:, :3].sum(axis=0)
    return sums


def close_gaps(rows: NDArray[np.uint32], parents: NDArray[np.uint32], owner: int, shared_by: Sharing) -> int:
    """Close the gaps of the list for an owner; return its entries."""
    shared, own, _ = shared_by
    owners = shared.size // STEP - 1
    gaps = own[own[:, owner] < own[:, owners + owner]]
    gaps = gaps[np.argsort(-gaps[:, owner])]
    starts, stops = (np.ascontiguousarray(gaps[:, at]) for at in (owner, owners + owner))
    end = min(int(shared[owner * STEP]), rows.size)
    entries: int = kernels.close_gaps(rows, parents, end, starts, stops)
    return entries


def left_over(shared_by: Sharing, size: int) -> list[tuple[int, int]]:
    """Return the parts of a list of that size which no thread has finished: the threads' own, and what none took."""
    shared, own, _ = shared_by
    owners = shared.size // STEP - 1
    parts = [(begin, stop) for begin, stop in own[:, 2 * owners : 2 * owners + 2].tolist() if begin < stop]
    taken = int(shared[owners * STEP])
    return [*parts, (taken, size)] if taken < size else parts
