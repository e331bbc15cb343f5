"""Large levels of a 1-D partition on the CPU, shared by the threads of a worker, by kernels of ``cpu_team_kernels``."""

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.team import Team
from dbfs_workers.search.backend import OutgoingBins
from dbfs_workers.search.cpu import team_calls as calls
from dbfs_workers.search.cpu.kernels import phases as cpu_kernels
from dbfs_workers.search.cpu.kernels import team as kernels
from dbfs_workers.search.cpu.kernels.phases import Bins
from dbfs_workers.search.cpu.kernels.places import STEP
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.scratch import Scratch


def least_edges(scratch: Scratch) -> int:
    """Return the fewest edges of a top-down level that the rank's team expands; 0 if there is no team."""
    return 0 if scratch.team is None else calls.LEAST_EDGES


def least_entries(scratch: Scratch) -> int:
    """Return the fewest entries of a bin that the rank's team contracts; 0 if there is no team."""
    return 0 if scratch.team is None else calls.LEAST_ENTRIES


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
    sharing = calls.sharing(team, p, frontier.size, calls.MOST_ROWS)
    reserved = sharing.shared[: p * STEP : STEP]
    reserved[:] = bins.bin_ends
    task = kernels.Expansion(
        rows,
        frontier,
        scratch.first_id,
        scratch.visited,
        Bins(bins.bin_rows, bins.bin_parents, bins.bin_ends),
        distance,
        labels.arrays,
        discovered,
        calls.places(discovered.size, team),
        calls.places(entries, team),
        sharing,
    )
    edges, found, sent = calls.run(team, task).tolist()
    for owner in np.flatnonzero(reserved).tolist():
        part = slice(owner * entries, (owner + 1) * entries)
        if owner == scratch.partition.rank:
            calls.close_gaps(discovered, calls.NONE, owner, sharing)
        else:
            parents = calls.NONE if labels.predecessors is None else bins.bin_parents[part]
            bins.bin_ends[owner] = calls.close_gaps(bins.bin_rows[part], parents, owner, sharing)
    parts = calls.left_over(sharing, frontier.size)
    left = np.concatenate([frontier[:0], *(frontier[begin:stop] for begin, stop in parts)])
    frontier[frontier.size - left.size :] = left
    scratch.resume[0] = scratch.frontier.size - left.size
    return edges, found, sent, left.size > 0


def bottom_up(
    team: Team, scratch: Scratch, labels: RankLabels, distance: int, found_bits: NDArray[np.uint32]
) -> tuple[int, int, int]:
    """Run ``Backend.bottom_up`` on the threads of a team."""
    into, frontier_bits = scratch.parent_rows, scratch.frontier_bits
    assert into is not None
    assert frontier_bits is not None
    task = kernels.Search(
        into,
        scratch.rows,
        frontier_bits,
        scratch.own_visited,
        found_bits,
        distance,
        labels.arrays,
        # A bottom-up level reads its frontier from bitmaps, so that queue is free.
        scratch.queues[scratch.current],
        scratch.next_queue,
        calls.sharing(team, 1, found_bits.size, calls.MOST_WORDS),
    )
    edges, found, degrees = calls.run(team, task).tolist()
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
    sharing = calls.sharing(team, 1, rows.size, calls.MOST_ENTRIES)
    task = kernels.Contraction(
        rows,
        calls.NONE if parents is None else parents,
        own_visited,
        distance,
        labels.arrays,
        discovered,
        calls.places(discovered.size, team),
        sharing,
    )
    total = int(calls.run(team, task)[0])
    calls.close_gaps(discovered, calls.NONE, 0, sharing)
    for begin, stop in calls.left_over(sharing, rows.size):
        # The gaps are closed, so all vertices have a place now.
        total += cpu_kernels.contract(
            rows[begin:stop],
            calls.NONE if parents is None else parents[begin:stop],
            own_visited,
            distance,
            *labels.arrays,
            discovered[total:],
        )
    return total
