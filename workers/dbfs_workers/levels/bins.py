"""A bin as the taskgraph engine moves it between ranks: one rank's discoveries for another, in one level."""

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
