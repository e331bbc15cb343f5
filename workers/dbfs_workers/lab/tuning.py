"""Sizes that a strategy's speed and memory depend on, but not its answer."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Sizes of launches and queues. Not tuned by measurement yet.

    Attributes:
        threads: threads of a block.
        most_blocks: largest number of blocks of a launch; they share the tiles of a longer queue.
        vertex_queue: entries of a vertex queue for each vertex. Above 1, because duplicates lie in the queue too.
        edge_queue: entries of an edge queue for each edge of the graph.
        spare: further entries of each queue: a small graph has few entries, and chance duplicates many of them.
        grid_degree: neighbours from which ``degree-classes`` has the whole grid walk a list.
        two_phase_from: entries of the edge queue from which ``hybrid`` takes two launches for a level.
    """

    threads: int = 256
    most_blocks: int = 1056
    vertex_queue: float = 1.25
    edge_queue: float = 1.25
    spare: int = 1024
    grid_degree: int = 1 << 16
    two_phase_from: int = 1 << 20
