"""Large levels of a 2-D partition on the CPU, shared by a worker's threads, by ``kernels.team``."""

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.team import Team
from dbfs_workers.features.grid.kernels import grid as grid_kernels
from dbfs_workers.features.grid.kernels import team as kernels
from dbfs_workers.features.grid.scratch import GridScratch
from dbfs_workers.search.cpu import team_calls as calls
from dbfs_workers.search.cpu.kernels import team as cpu_team_kernels
from dbfs_workers.search.cpu.kernels.places import STEP
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import Csr


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
    sharing = calls.sharing(team, columns, frontier.size, calls.MOST_ROWS)
    reserved = sharing.shared[: columns * STEP : STEP]
    reserved[:] = ends
    task = kernels.GridExpansion(
        csr.rows,
        frontier,
        *firsts,
        visited,
        parents,
        found,
        calls.places(n_local, team),
        sharing,
    )
    edges = int(calls.run(team, task)[0])
    for c in np.flatnonzero(reserved).tolist():
        part = found[c * n_local : (c + 1) * n_local]
        ends[c] = calls.close_gaps(part, calls.NONE, c, sharing)
    for begin, stop in calls.left_over(sharing, frontier.size):
        # The gaps are closed, so all vertices have a place now.
        rest = frontier[begin:stop]
        edges += grid_kernels.top_down(csr.row_offsets, csr.columns, rest, *firsts, visited, parents, found, ends)
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
    task = kernels.GridSearch(
        csr.rows,
        scratch.frontier_bits,
        empty,
        visited,
        scratch.column,
        scratch.grid.columns,
        # The next frontier is not known before the contraction, so that its queue is free.
        parents,
        found,
        scratch.next_queue,
        calls.sharing(team, 1, visited.size, calls.MOST_WORDS),
    )
    edges, count, _ = calls.run(team, task).tolist()
    return edges, count


def to_look_at(scratch: GridScratch, finder: int) -> NDArray[np.uint32]:
    """Return the bitmap by which a contraction drops vertices; an empty one for the finds of this rank, all new."""
    return calls.NONE if finder == scratch.column else scratch.own_visited


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
    sharing = calls.sharing(team, 1, rows.size, calls.MOST_ENTRIES)
    visited = to_look_at(scratch, finder)
    task = kernels.GridContraction(
        rows,
        visited,
        finder,
        distance,
        labels.distances,
        scratch.finders,
        scratch.degrees,
        queue,
        calls.places(queue.size, team),
        sharing,
    )
    size, degrees, _ = calls.run(team, task).tolist()
    calls.close_gaps(queue, calls.NONE, 0, sharing)
    for begin, stop in calls.left_over(sharing, rows.size):
        more, of_more = grid_kernels.contract(
            rows[begin:stop],
            visited,
            finder,
            distance,
            labels.distances,
            scratch.finders,
            scratch.degrees,
            queue[size:],
        )
        size, degrees = size + more, degrees + of_more
    return size, degrees
