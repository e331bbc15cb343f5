"""The protocol between the resident level loop and the exchange that connects its rank with the other ranks.

Between two crossings of the barrier a rank works alone. In a top-down level it appends to its bins (``bin_*``); in a
bottom-up level it writes its slice of the frontier's bitmap (``slice``). Then the rank crosses the barrier. A crossing
joins the counts of all ranks (``reports.crossings``), and makes the bins and slices of all ranks readable until the
next crossing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import (
    DbfsError,
    DeadlineExceededError,
    RunAbortedError,
    RunCancelledError,
    StaleRunError,
    WorkerLostError,
)
from dbfs_workers.search.reports.crossings import C

if TYPE_CHECKING:
    from dbfs_workers.search.backend import Backend
    from dbfs_workers.search.partition.stripe import Stripe


class Cause(IntEnum):
    """Why a run was aborted."""

    FAILED = 1
    CANCELLED = 2
    DEADLINE = 3
    LOST = 4


class CrossedBy(Enum):
    """What crosses an exchange, beside the host between two phases."""

    HOST = "nothing else"
    KERNELS = "kernels of the CPU, in the middle of their levels"
    QUEUE = "a GPU, in levels that are queued one behind another"


@dataclass(frozen=True)
class Abort:
    """The end of a run, as one rank tells others.

    Attributes:
        number: the gang's serial number of the run.
        cause: why the run was aborted.
        rank: the rank that caused the abort.
        message: what that rank said about the cause.
    """

    number: int
    cause: Cause
    rank: int
    message: str


class Exchange(Protocol):
    """One rank's end of the exchange. Only ``abort`` may be called from another thread.

    Attributes:
        crossed_by: what crosses it: the levels have their steppers by that.
        rank: this rank.
        p: number of ranks.
        bin_rows: uint32[p * entries], the bin for owner ``o`` starting at ``o * entries``: local ids on the owner. A
            crossing may exchange the arrays for others.
        bin_parents: uint32[p * entries], the internal id of each entry's parent; unused without predecessors.
        bin_ends: int64[p], the number of entries in each bin. Zero after a crossing if bins have fewer than ``n_local``
            entries; else they may stay and grow from ``reset`` on, since a rank sends a remote vertex once only.
        gathered: int64[p, COUNTS], the counts of the last crossing by rank: see ``reports.crossings.of_ranks``.
    """

    crossed_by: CrossedBy
    rank: int
    p: int
    bin_rows: NDArray[np.uint32]
    bin_parents: NDArray[np.uint32]
    bin_ends: NDArray[np.int64]
    gathered: NDArray[np.int64]

    def begin(self, run_id: str, number: int, deadline: float) -> None:
        """Enter a run.

        Args:
            run_id: the attempt's id. Every crossing compares it between ranks.
            number: the gang's serial number of this run: at least 1, and greater than that of every earlier run.
            deadline: end of all waits, in seconds of ``time.monotonic()``.

        Raises:
            StaleRunError: the number is not greater than that of the last run.
        """
        ...

    def reset(self, predecessors: bool) -> None:
        """Empty the bins for a new traversal.

        The caller must cross once before it bins anything: until then a peer may still read the old entries.
        """
        ...

    def slice(self) -> NDArray[np.uint32]:
        """Return uint32[words_local], the buffer for this rank's slice of the frontier at the next crossing."""
        ...

    def cross(self, level: int, phase: str, counts: C, *, sliced: bool) -> C:
        """Publish the counts and the new entries of the bins, wait for all ranks, and return the joined counts.

        Args:
            level: the level, named in errors.
            phase: the phase, named in errors.
            counts: this rank's counts; all ranks give the same record.
            sliced: whether this rank wrote its slice. The value must be the same on all ranks.

        Raises:
            DeadlineExceededError, RunCancelledError, RunAbortedError, WorkerLostError: the run is over on all ranks;
                the message names the rank to blame, the level and the phase.
            StaleRunError: a peer is in another run.
        """
        ...

    def incoming(self) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint32] | None]]:
        """Yield the rows and parents that each peer binned for this rank before the last crossing.

        Peers without new entries are left out. The parents are None without predecessors.
        """
        ...

    def slice_of(self, source: int) -> NDArray[np.uint32]:
        """Return uint32[words_local], the slice of the frontier that rank ``source`` wrote before the last crossing.

        ``source`` may be this rank.
        """
        ...

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        """Stop a run on all ranks by their next crossing. From any thread; the run may not have begun here yet.

        The first cause counts: an abort of a run that was aborted before, or of an earlier run, is ignored.

        Args:
            number: the gang's serial number of the run.
            cause: why the run ends.
            message: the same in words.
            rank: the rank that caused the end, such as a lost one; None for this rank.
        """
        ...

    def close(self) -> None:
        """Release the memory and the connections. No peer may be in a run."""
        ...


class GangExchange(Exchange, Protocol):
    """An exchange that the ranks set up together: every rank offers its end, and then connects to those of all ranks.

    The ranks do so before the first run, and again after a failed one. No rank connects before all have offered, and
    none begins a run before all have connected.
    """

    def gpu_bytes(self, stripe: "Stripe") -> int:
        """Return the bytes of the arrays that ``on_gpu`` allocates."""
        ...

    def on_gpu(self, backend: "Backend", stripe: "Stripe") -> Exchange:
        """Return the exchange that levels on a GPU cross, whose bins and slices lie there. Called once, before all."""
        ...

    def on_host(self) -> Exchange:
        """Return the exchange that levels in the host's memory cross, in any run, whose bins lie there."""
        ...

    def offer(self) -> Any:
        """Return what the peers need in order to connect to this rank. Picklable. The run before has ended here.

        Raises:
            ExchangeUnavailableError: this rank can't exchange in this way.
        """
        ...

    def connect(self, offers: Sequence[Any]) -> None:
        """Connect to the peers, given the latest offers of all ranks, by rank.

        Raises:
            ExchangeUnavailableError: a peer can't be reached, or its memory can't be mapped.
        """
        ...


def require_later(rank: int, run_id: str, number: int, last: int) -> None:
    """Check that a run that begins on a rank has a larger serial number than the last run there.

    Raises:
        StaleRunError: the run is out of order.
    """
    if number <= last:
        raise StaleRunError(
            f"rank {rank}: run {run_id} has number {number}, which is not after {last}, the number of the last run"
        )


def abort_error(cause: Cause, where: str, rank: int, message: str) -> DbfsError:
    """Return the error that an aborted run raises on a rank.

    Args:
        cause: why the run was aborted.
        where: the rank, level and phase that noticed the abort; the message begins with it.
        rank: the rank that caused the abort.
        message: what that rank said about the cause.
    """
    if cause is Cause.CANCELLED:
        return RunCancelledError(f"{where}: cancelled{f': {message}' if message else ''}")
    if cause is Cause.DEADLINE:
        return DeadlineExceededError(f"{where}: the deadline passed; rank {rank} saw it first: {message}")
    if cause is Cause.LOST:
        return WorkerLostError(f"{where}: {message}; load the graph again")
    return RunAbortedError(f"{where}: rank {rank} failed first: {message}")
