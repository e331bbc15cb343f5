"""Sizes that a strategy's speed and memory depend on, but not its answer."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Sizes of launches and queues.

    On an H200, 128 or 512 threads a block instead of 256, and other numbers of blocks, changed rates by up to three
    tenths on Kronecker, random and grid graphs, in no common direction. Chains of many levels made deep grids two to
    three times as fast.

    Attributes:
        threads: threads of a block.
        most_blocks: largest number of blocks of a launch; they share the tiles of a longer queue.
        vertex_queue: entries of a vertex queue for each vertex. Above 1, because duplicates lie in the queue too.
        edge_queue: entries of an edge queue for each edge of the graph.
        spare: further entries of each queue: a small graph has few entries, and chance duplicates many of them.
        grid_degree: neighbours from which ``degree-classes`` has the whole grid walk a list.
        child_degree: neighbours from which a kernel launches another for a list.
        most_children: kernels that a level launches for lists, below the 2,048 for which a GPU has room.
        two_phase_from: entries of the edge queue from which ``hybrid`` takes two launches for a level; None for more
            than the device has resident threads, as in the paper.
        block_frontier: largest frontier that one block follows in ``hierarchical``.
        grid_frontier: largest frontier that a block for each multiprocessor follows there.
        ahead_below: largest input queue up to which several levels are launched before the host waits for them.
        most_ahead: the most levels that are launched so.
        growth: entries for which a launch that the host did not wait for has blocks, for each entry of the last queue
            that the host read.
        least_behind: fewest blocks of such a launch.
    """

    threads: int = 256
    most_blocks: int = 1056
    vertex_queue: float = 1.25
    edge_queue: float = 1.25
    spare: int = 1024
    grid_degree: int = 1 << 16
    child_degree: int = 1 << 12
    most_children: int = 1 << 10
    two_phase_from: int | None = None
    block_frontier: int = 1 << 8
    grid_frontier: int = 1 << 15
    ahead_below: int = 1 << 24
    most_ahead: int = 64
    growth: int = 8
    least_behind: int = 264
