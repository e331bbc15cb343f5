"""The data that the taskgraph engine moves between ranks: bins of vertices, and parts of a frontier as bitmaps."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.storage.partition import host_bytes


@dataclass(frozen=True)
class Bin:
    """The vertices that rank ``source`` discovered for rank ``target`` in one level of one run.

    Attributes:
        run_id: the run.
        level: the level.
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
class FrontierPart:
    """One rank's part of the frontier of a level, counted exactly.

    Attributes:
        run_id: the run.
        level: the level that expands the frontier.
        source: the rank that owns the part.
        count: number of vertices.
        degrees: sum of their degrees.
        missing: targets of the rank without a label.
        searched: edges that the bottom-up level before looked at; 0 after a top-down level.
        bits: uint32[words_local], the part as a bitmap over the rank's rows; None if no bottom-up level may follow.
    """

    run_id: str
    level: int
    source: int
    count: int
    degrees: int
    missing: int
    searched: int
    bits: NDArray[np.uint32] | None

    def __sizeof__(self) -> int:
        return 128 + host_bytes(self.bits)
