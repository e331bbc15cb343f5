"""The data that the taskgraph engine moves: bins of vertices, slices of a frontier, and the counts of a level."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.partition.partition import host_bytes


@dataclass(frozen=True)
class Bin:
    """The vertices that rank ``source`` discovered for rank ``target`` in one level of one run.

    Attributes:
        source: the rank that expanded the level.
        target: the rank that owns the vertices.
        rows: uint32 local ids on the target.
        parents: uint32 internal ids of their parents, as long as ``rows``; None if the run records no predecessors.
    """

    run_id: str
    level: int
    source: int
    target: int
    rows: NDArray[np.uint32]
    parents: NDArray[np.uint32] | None

    @property
    def nbytes(self) -> int:
        """Bytes to send."""
        return self.rows.nbytes + (0 if self.parents is None else self.parents.nbytes)

    def __sizeof__(self) -> int:
        return 64 + host_bytes(self.rows, self.parents)


@dataclass(frozen=True)
class FrontierSlice:
    """One rank's part of the frontier of a level.

    Attributes:
        source: the rank that owns the slice.
        bits: uint32[words_local], a bit for each of the rank's rows.
    """

    run_id: str
    level: int
    source: int
    bits: NDArray[np.uint32]

    def __sizeof__(self) -> int:
        return 64 + host_bytes(self.bits)


@dataclass(frozen=True)
class RankCounts:
    """One rank's counts of a level.

    Attributes:
        edges: edges expanded in a top-down level; 0 in a bottom-up level.
        searched: edges that a bottom-up level looked at; 0 in a top-down level.
        count: vertices of the rank's next frontier.
        degrees: sum of their degrees.
        missing: targets of this rank without a label.
        ended: when the rank ended the level, in seconds of its ``time.perf_counter()``.
    """

    edges: int
    searched: int
    count: int
    degrees: int
    missing: int
    ended: float
