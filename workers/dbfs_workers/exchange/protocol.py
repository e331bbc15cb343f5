"""What the resident level loop needs of its peers. Shared memory, Dask comms and CUDA peers implement it.

Between two crossings a rank works alone. It writes the bins of a top-down level behind what it wrote before (``bin_*``)
or its slice of the frontier's bitmap (``slice``), and crosses: the one barrier of a level, which carries everyone's
counts and makes everyone's bins, or slices, readable until the next crossing.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.errors import (
    DbfsError,
    DeadlineExceededError,
    RunAbortedError,
    RunCancelledError,
    WorkerLostError,
)

COUNTS = 5
"""Numbers that a rank adds to a crossing; what they mean is the level loop's business."""


class Cause(IntEnum):
    """Why a run was aborted."""

    FAILED = 1
    CANCELLED = 2
    DEADLINE = 3
    LOST = 4


class Exchange(Protocol):
    """One rank's end of the exchange. Only ``abort`` may be called from another thread.

    Attributes:
        rank: this rank.
        p: number of ranks.
        bin_rows: uint32[p * n_local], the bin for owner ``o`` starting at ``o * n_local``: local ids on the owner.
        bin_parents: uint32[p * n_local], their parents where the run wants predecessors.
        bin_ends: int64[p], how many entries each bin has.
        gathered: int64[p, COUNTS], by rank, the counts of the last crossing.
    """

    rank: int
    p: int
    bin_rows: NDArray[np.uint32]
    bin_parents: NDArray[np.uint32]
    bin_ends: NDArray[np.int64]
    gathered: NDArray[np.int64]

    def begin(self, run_id: str, number: int, deadline: float) -> None:
        """Enter a run.

        Args:
            run_id: travels with every message; a peer in another run is refused.
            number: the gang's running number of this run, at least 1 and greater than that of any run before.
            deadline: when waits give up, on ``time.monotonic()``'s clock.

        Raises:
            StaleRunError: the number is not greater than the last one's.
        """
        ...

    def reset(self, predecessors: bool) -> None:
        """Empty the bins for a new traversal; the next crossing must come before anything is binned."""
        ...

    def slice(self) -> NDArray[np.uint32]:
        """uint32[words_local] to write this rank's slice of the frontier into, for the next crossing."""
        ...

    def cross(self, level: int, phase: str, counts: tuple[int, int, int, int, int], *, sliced: bool) -> list[int]:
        """Send the counts and what was binned since the last crossing, wait for everyone's, and return their sums.

        Args:
            level: the level, for errors.
            phase: the phase, for errors.
            counts: this rank's counts.
            sliced: whether this rank, and so every rank, wrote its slice.

        Raises:
            DeadlineExceededError, RunCancelledError, RunAbortedError, WorkerLostError: the run is over on all ranks;
                the message names the rank to blame, the level and the phase.
            StaleRunError: a peer is in another run.
        """
        ...

    def incoming(self) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint32] | None]]:
        """Rows and parents of each bin for this rank that peers sent in the last crossing; empty ones are left out."""
        ...

    def slice_of(self, source: int) -> NDArray[np.uint32]:
        """A rank's slice of the frontier as of the last crossing, this rank's own included."""
        ...

    def abort(self, number: int, cause: Cause, message: str) -> None:
        """Stop a run on all ranks by their next crossing. Later causes of the same run, and ended runs, are ignored."""
        ...

    def close(self) -> None:
        """Let go of everything. No peer may be in a run."""
        ...


def abort_error(cause: Cause, where: str, rank: int, message: str) -> DbfsError:
    """The error that ends a run on a rank which finds it aborted; ``rank`` is the one to blame."""
    if cause is Cause.CANCELLED:
        return RunCancelledError(f"{where}: cancelled{f': {message}' if message else ''}")
    if cause is Cause.DEADLINE:
        return DeadlineExceededError(f"{where}: the deadline passed; rank {rank} saw it first: {message}")
    if cause is Cause.LOST:
        return WorkerLostError(f"{where}: {message}")
    return RunAbortedError(f"{where}: rank {rank} failed first: {message}")
