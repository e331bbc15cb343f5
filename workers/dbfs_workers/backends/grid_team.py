"""Large levels of a 2-D partition on the CPU, shared by a worker's threads, by kernels of ``grid_team_kernels``."""

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.backends import cpu_team_calls as calls
from dbfs_workers.backends import cpu_team_kernels, grid_kernels
from dbfs_workers.backends import cpu_team_task_kernels as tasks
from dbfs_workers.storage.grid_scratch import GridScratch
from dbfs_workers.storage.labels import RankLabels
from dbfs_workers.storage.partition import Csr
from dbfs_workers.team import Team


def takes_top_down(csr: Csr, frontier: NDArray[np.uint32]) -> bool:
    """Return whether a team visits the neighbours of one rank's part of the frontier."""
    offsets = csr.row_offsets
    # No row has more edges than all rows.
    return bool(cpu_team_kernels.is_large(offsets[:-1], offsets[1:], frontier, 0, csr.columns.size, calls.LEAST_EDGES))


def top_down(
    team: Team,
    scratch: GridScratch,
    csr: Csr,
    frontier: NDArray[np.uint32],
    firsts: tuple[int, int],
    parents: NDArray[np.uint32],
) -> int:
    """Run ``grid_kernels.top_down`` on the threads of a team. ``firsts`` has its ``source_first`` and ``row_first``."""
    columns, n_local, ends = scratch.grid.columns, scratch.stripe.n_local, scratch.found_ends
    found, visited = scratch.found, scratch.visited
    shared, own = calls.shared_words(columns), calls.own_parts(team.threads, columns)
    reserved = shared[: columns * cpu_team_kernels.STEP : cpu_team_kernels.STEP]
    reserved[:] = ends
    counts = calls.run(
        *(team, tasks.GRID_EXPAND, csr.row_offsets, csr.columns, frontier),
        *(calls.step(frontier.size, team, calls.MOST_ROWS), *firsts, visited, parents, found, shared),
        *(own, columns, calls.places(n_local, team)),
    )
    edges = int(counts[0])
    for c in np.flatnonzero(reserved).tolist():
        part = found[c * n_local : (c + 1) * n_local]
        ends[c] = calls.close_gaps(part, calls.NONE, c, shared, own)
    for begin, stop in calls.left_over(shared, own, columns, frontier.size):
        # The gaps are closed, so all vertices have a place now.
        edges += grid_kernels.top_down(
            *(csr.row_offsets, csr.columns, frontier[begin:stop], *firsts, visited, parents, found, ends)
        )
    return edges


def bottom_up(
    team: Team,
    scratch: GridScratch,
    csr: Csr,
    empty: NDArray[np.uint32],
    visited: NDArray[np.uint32],
    parents: NDArray[np.uint32],
    found: NDArray[np.uint32],
) -> tuple[int, int]:
    """Run ``grid_kernels.bottom_up`` on all rows of a rank, on the threads of a team."""
    assert scratch.frontier_bits is not None
    counts = calls.run(
        *(team, tasks.GRID_SEARCH, csr.row_offsets, csr.columns, scratch.frontier_bits, empty),
        *(calls.step(visited.size, team, calls.MOST_WORDS), visited, scratch.column, scratch.grid.columns),
        # The next frontier is not known before the contraction, so that its queue is free.
        *(parents, found, calls.shared_words(1), scratch.next_queue),
    )
    return int(counts[0]), int(counts[1])


def contract(
    team: Team,
    scratch: GridScratch,
    labels: RankLabels,
    rows: NDArray[np.uint32],
    finder: int,
    distance: int,
    queue: NDArray[np.uint32],
) -> tuple[int, int]:
    """Run ``grid_kernels.contract`` on the threads of a team, into ``queue``."""
    shared, own = calls.shared_words(1), calls.own_parts(team.threads, 1)
    claimed, visited = finder == scratch.column, scratch.own_visited
    counts = calls.run(
        *(team, tasks.GRID_CONTRACT, rows, int(claimed), calls.step(rows.size, team, calls.MOST_ENTRIES), visited),
        *(shared, own, 1, calls.places(queue.size, team), finder, distance, labels.distances, scratch.finders),
        *(scratch.degrees, queue),
    )
    size, degrees = int(counts[0]), int(counts[1])
    calls.close_gaps(queue, calls.NONE, 0, shared, own)
    for begin, stop in calls.left_over(shared, own, 1, rows.size):
        more, of_more = grid_kernels.contract(
            *(rows[begin:stop], claimed, visited, finder, distance, labels.distances, scratch.finders),
            *(scratch.degrees, queue[size:]),
        )
        size, degrees = size + more, degrees + of_more
    return size, degrees
