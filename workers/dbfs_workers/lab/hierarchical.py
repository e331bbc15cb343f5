"""Luo's hierarchical synchronisation: the size of a frontier decides whether a block, the grid or the host waits at the
end of a level."""

from typing import Final

from dbfs_workers.cuda.lab_layout import LabCounter
from dbfs_workers.lab.enactor import Enactor

_RECORD: Final = [LabCounter.EXPANDED, LabCounter.EDGES, LabCounter.LABELLED]


def hierarchical(run: Enactor) -> None:
    """Enact Luo's levels: of one block, of a block for each multiprocessor, or of a launch."""
    tuning = run.problem.tuning
    queues = run.problem.vertex_queue(), run.problem.vertex_queue()
    ways = [(queues[turn], queues[1 - turn]) for turn in (0, 1)]
    alone = [run.step("hierarchical", "in_launch", *way) for way in ways]
    block = [run.step("hierarchical", "in_block", *way) for way in ways]
    grid = [run.step("hierarchical", "in_grid", *way) for way in ways]
    run.problem.start(run.source)
    queues[0].ids[0] = run.source
    size, distance = 1, 1
    while size:
        run.enter(size)
        turn = (distance - 1) % 2
        if size > tuning.grid_frontier:
            rows = run.chain([(alone[turn], distance)], size)
        elif size > tuning.block_frontier:
            # The least is lower than the block's most, so that a frontier near it does not change hands each level.
            sizes = (tuning.block_frontier // 2 + 1, tuning.grid_frontier)
            rows = run.many_levels(grid[turn], run.multiprocessors, sizes, size, distance)
        else:
            rows = run.many_levels(block[turn], 1, (1, tuning.block_frontier), size, distance)
        done: list[tuple[int, int, int]] = [tuple(row) for row in rows[:, _RECORD].tolist() if row[0]]
        run.leave(done)
        size, distance = done[-1][2], distance + len(done)
