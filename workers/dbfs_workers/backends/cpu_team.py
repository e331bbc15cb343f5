"""Large levels of a rank on the CPU, shared by the threads of its worker, by kernels of ``cpu_team_kernels``.

A helper takes some microseconds to begin and to end, so small levels stay with one thread. Which thread claims a vertex
is a matter of chance, so the frontier's order, and which of several parents a vertex gets, differ from call to call.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.backends import cpu_kernels
from dbfs_workers.backends import cpu_team_kernels as kernels
from dbfs_workers.backends import cpu_team_task_kernels as tasks
from dbfs_workers.backends.protocol import OutgoingBins
from dbfs_workers.storage.labels import RankLabels
from dbfs_workers.storage.scratch import Scratch
from dbfs_workers.storage.stripe import WORD_BITS
from dbfs_workers.team import Team

_NONE = np.empty(0, np.uint32)

LEAST_EDGES: Final = 1 << 17
"""Fewest edges of a top-down level that several threads expand: one takes about half a millisecond for them."""

LEAST_ROWS: Final = 1 << 15
"""Fewest unvisited rows of a bottom-up level that several threads search: one takes half a millisecond or more."""

LEAST_ENTRIES: Final = 1 << 17
"""Fewest entries of a bin that several threads contract: one takes about half a millisecond for them."""

# Rows, entries and words that a thread takes at a time, at most, and how many such turns it has at least.
_MOST_ROWS = 256
_MOST_ENTRIES = 1 << 12
_MOST_WORDS = 1 << 10
_TURNS = 16
# Places of a list that a thread reserves at a time, at most, and the least share of a list's room that all of them do.
_MOST_PLACES = 256
_PLACES_SHARE = 4


def least_edges(scratch: Scratch) -> int:
    """Return the fewest edges of a top-down level that the rank's team expands; 0 if there is no team."""
    return 0 if scratch.team is None else LEAST_EDGES


def least_entries(scratch: Scratch) -> int:
    """Return the fewest entries of a bin that the rank's team contracts; 0 if there is no team."""
    return 0 if scratch.team is None else LEAST_ENTRIES


def takes_top_down(scratch: Scratch) -> bool:
    """Return whether the rank's team expands the rest of the frontier."""
    rows, first = scratch.rows, int(scratch.resume[0])
    most = least_edges(scratch)
    return scratch.resume[1] == 0 and bool(
        kernels.is_large(rows.starts, rows.ends, scratch.frontier, first, scratch.max_degree, most)
    )


def top_down(
    team: Team, scratch: Scratch, labels: RankLabels, distance: int, bins: OutgoingBins
) -> tuple[int, int, int, bool]:
    """Run ``Backend.top_down`` on the threads of a team. Rows left over move to the frontier's end."""
    rows, p, first = scratch.rows, bins.bin_ends.size, int(scratch.resume[0])
    frontier, discovered = scratch.frontier[first:], scratch.next_queue
    entries = bins.bin_rows.size // p
    shared = np.zeros((p + 1) * kernels.STEP, np.int64)
    shared[: p * kernels.STEP : kernels.STEP] = bins.bin_ends
    own = _parts(team.threads, p)
    step = min(max(frontier.size // (_TURNS * team.threads), 1), _MOST_ROWS)

    counts = _run(
        *(team, tasks.EXPAND, rows.starts, rows.ends, rows.columns, frontier, step, scratch.first_id),
        *(scratch.visited, shared, own, p, _places(discovered.size, team), _places(entries, team)),
        *(bins.bin_rows, bins.bin_parents, distance, labels.distances),
        *(_NONE if labels.predecessors is None else labels.predecessors, discovered),
    )
    edges, found, sent = counts.tolist()
    for owner in np.flatnonzero(shared[: p * kernels.STEP : kernels.STEP]).tolist():
        part = slice(owner * entries, (owner + 1) * entries)
        if owner == scratch.partition.rank:
            _close_gaps(discovered, _NONE, owner, shared, own)
        else:
            parents = _NONE if labels.predecessors is None else bins.bin_parents[part]
            bins.bin_ends[owner] = _close_gaps(bins.bin_rows[part], parents, owner, shared, own)
    parts = _left_over(shared, own, p, frontier.size)
    left = np.concatenate([frontier[:0], *(frontier[begin:stop] for begin, stop in parts)])
    frontier[frontier.size - left.size :] = left
    scratch.resume[0] = scratch.frontier.size - left.size
    return edges, found, sent, left.size > 0


def takes_bottom_up(scratch: Scratch) -> bool:
    """Return whether the rank's team searches the unvisited rows."""
    bits = scratch.own_visited
    return scratch.team is not None and WORD_BITS * bits.size - int(np.bitwise_count(bits).sum()) >= LEAST_ROWS


def bottom_up(
    team: Team, scratch: Scratch, labels: RankLabels, distance: int, found_bits: NDArray[np.uint32]
) -> tuple[int, int, int]:
    """Run ``Backend.bottom_up`` on the threads of a team."""
    own, into, words = scratch.rows, scratch.parent_rows, found_bits.size
    assert into is not None
    shared = np.zeros(2 * kernels.STEP, np.int64)
    step = min(max(words // (_TURNS * team.threads), 1), _MOST_WORDS)

    counts = _run(
        *(team, tasks.SEARCH, into.starts, into.ends, into.columns, own.starts, own.ends, scratch.frontier_bits),
        *(step, scratch.own_visited, found_bits, shared, distance, labels.distances),
        # A bottom-up level reads its frontier from bitmaps, so that queue is free.
        *(_NONE if labels.predecessors is None else labels.predecessors, scratch.queues[scratch.current]),
        scratch.next_queue,
    )
    edges, found, degrees = counts.tolist()
    return edges, found, degrees


def contract(
    team: Team,
    rows: NDArray[np.uint32],
    parents: NDArray[np.uint32] | None,
    own_visited: NDArray[np.uint32],
    distance: int,
    labels: RankLabels,
    discovered: NDArray[np.uint32],
) -> int:
    """Run ``Backend.contract`` of a bin of another rank on the threads of a team."""
    step = min(max(rows.size // (_TURNS * team.threads), 1), _MOST_ENTRIES)
    shared, own = np.zeros(2 * kernels.STEP, np.int64), _parts(team.threads, 1)
    predecessors = _NONE if labels.predecessors is None else labels.predecessors
    counts = _run(
        *(team, tasks.CONTRACT, rows, _NONE if parents is None else parents, step, own_visited, shared, own, 1),
        *(_places(discovered.size, team), distance, labels.distances, predecessors, discovered),
    )
    total = int(counts[0])
    _close_gaps(discovered, _NONE, 0, shared, own)
    for begin, stop in _left_over(shared, own, 1, rows.size):
        # The gaps are closed, so all vertices have a place now.
        total += cpu_kernels.contract(
            *(rows[begin:stop], _NONE if parents is None else parents[begin:stop], own_visited, distance),
            *(labels.distances, predecessors, discovered[total:]),
        )
    return total


def _run(team: Team, kind: int, *arguments: NDArray[Any] | int | None) -> NDArray[np.int64]:
    """Run a kernel on the threads of a team; return the sums of what its calls returned."""
    words: list[int] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            words += (argument.ctypes.data, argument.size)
        else:
            words.append(int(argument or 0))
    team.task[: len(words)] = words
    team.results[:] = 0
    tasks.lead(team.control, team.task, team.results, kind)
    sums: NDArray[np.int64] = team.results.reshape(team.threads, -1)[:, :3].sum(axis=0)
    return sums


def _parts(threads: int, owners: int) -> NDArray[np.int64]:
    """Return the threads' own parts: see ``cpu_team_kernels``. Pairs of cache lines are between two of them."""
    return np.zeros((threads, 2 * owners + 2 + 2 * kernels.STEP), np.int64)


def _close_gaps(
    rows: NDArray[np.uint32],
    parents: NDArray[np.uint32],
    owner: int,
    shared: NDArray[np.int64],
    own: NDArray[np.int64],
) -> int:
    """Close the gaps of the list for an owner; return its entries."""
    owners = own.shape[1] // 2 - 1 - kernels.STEP
    gaps = own[own[:, owner] < own[:, owners + owner]]
    gaps = gaps[np.argsort(-gaps[:, owner])]
    starts, stops = (np.ascontiguousarray(gaps[:, at]) for at in (owner, owners + owner))
    end = min(int(shared[owner * kernels.STEP]), rows.size)
    entries: int = kernels.close_gaps(rows, parents, end, starts, stops)
    return entries


def _left_over(shared: NDArray[np.int64], own: NDArray[np.int64], owners: int, size: int) -> list[tuple[int, int]]:
    """Return the parts of a list of that size which no thread has finished: the threads' own, and what none took."""
    parts = [(begin, stop) for begin, stop in own[:, 2 * owners : 2 * owners + 2].tolist() if begin < stop]
    taken = int(shared[owners * kernels.STEP])
    return [*parts, (taken, size)] if taken < size else parts


def _places(room: int, team: Team) -> int:
    """Return how many places of a list a thread reserves at a time."""
    return min(max(room // (_PLACES_SHARE * team.threads), 1), _MOST_PLACES)
