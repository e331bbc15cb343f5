"""The host's side of a run of the resident kernel: the records of its levels, their counts, the wait for its end.

The records are a ring in pinned, mapped host memory (``statistics.cuh``). ``Records.drain`` empties the ring during and
after the run, so that a run of any depth has a record of every level. A kernel that finds the ring full waits.
"""

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import DeadlineExceededError
from dbfs_workers.search.cuda import layout
from dbfs_workers.search.cuda.run import (
    Direction,
    KernelAbortedError,
    KernelHungError,
    KernelOutcome,
    Mode,
    Reason,
    Step,
)
from dbfs_workers.search.cuda.summary import LabelSummary
from dbfs_workers.search.reports import COUNT_FIELDS, TIME_FIELDS, RankProgress, summed
from dbfs_workers.search.reports.counts import LARGEST

# Records in the ring: 1 MiB. The fastest levels take 2.3 us, so a kernel waits if its host is 19 to 38 ms late.
CAPACITY: Final = 1 << 14
_WORDS: Final = layout.RECORD.itemsize // 8
_FIELDS: Final = layout.RECORD.names or ()
_HEADER_FIELDS: Final = layout.HOST_HEADER.names or ()
_COUNTED: Final = ("looked_at", "mode", "sent", "found")
_TAG_SHIFT: Final = np.uint64(layout.TAG_SHIFT)
_VALUE: Final = np.uint64((1 << layout.TAG_SHIFT) - 1)


class RecordRing:
    """Pinned host memory that the kernel writes while it runs: a header, followed by the ring of records.

    Attributes:
        header: ``layout.HOST_HEADER``, one element.
        ring: uint64[CAPACITY, 8], each row a ``layout.RECORD`` as the kernel writes it.
    """

    def __init__(self) -> None:
        import cupy

        self._runtime = cupy.cuda.runtime
        size = layout.HOST_HEADER.itemsize + CAPACITY * layout.RECORD.itemsize
        self.address: int = self._runtime.hostAlloc(size, 2)  # cudaHostAllocMapped
        ctypes.memset(self.address, 0, size)
        memory: Any = (ctypes.c_char * size).from_address(self.address)
        self.header = np.frombuffer(memory, layout.HOST_HEADER, 1)
        self.ring = np.frombuffer(memory, np.uint64, CAPACITY * _WORDS, layout.HOST_HEADER.itemsize).reshape(-1, _WORDS)

    def __getitem__(self, field: str) -> int:
        return int(self.header[field][0])

    def values(self) -> dict[str, int]:
        """Return all fields of the header."""
        return dict(zip(_HEADER_FIELDS, self.header.tolist()[0], strict=True))

    def clear_header(self) -> None:
        """Set all fields of the header to zero."""
        ctypes.memset(self.address, 0, layout.HOST_HEADER.itemsize)

    def free(self) -> None:
        """Free the memory."""
        if self.address:
            self._runtime.freeHost(self.address)
            self.address = 0


class Records:
    """Reader of the records, for one run after another.

    Args:
        header: see ``RecordRing``.
        ring: see ``RecordRing``; the number of rows is a power of two.
        alone: whether there is one rank. Its kernel leaves the fields of several ranks unwritten.
    """

    def __init__(self, header: NDArray[Any], ring: NDArray[np.uint64], *, alone: bool) -> None:
        self._header = header
        self._written = slice(layout.RECORD_WORDS_SINGLE if alone else layout.RECORD_WORDS_GANG)
        self._ring = ring
        self._taken: list[NDArray[np.uint64]] = []
        self._count = 0
        self._reached = 0
        # Replaced as a whole, because another thread may read it.
        self._place = (0, False, 0, 0)
        # All records of a run that ended before any were taken; None for another run.
        self._whole: NDArray[Any] | None = None

    def clear(self) -> None:
        """Forget the previous run. The caller clears the header."""
        self._taken, self._count, self._reached, self._whole = [], 0, 0, None
        self._place = (0, False, 0, 0)

    def clear_ring(self) -> None:
        """Forget the records that a failed run left in the ring."""
        self._ring[:] = 0

    @property
    def pending(self) -> int:
        """Number of levels reported by the kernel and not yet taken."""
        return int(self._header["level"][0]) - self._count

    def drain(self) -> None:
        """Take the complete records, and free their room for the kernel.

        Records that arrive meanwhile wait for the next call: a kernel may write records as fast as they are taken.
        """
        leader_levels = int(self._header["leader_levels"][0])
        if self._count < leader_levels:
            # The run began with leader levels, whose records the leader has.
            blank = np.zeros(leader_levels, layout.RECORD)
            blank["mode"] = Mode.LEADER
            self._take(blank.view(np.uint64).reshape(-1, _WORDS))
            self._header["drained"] = leader_levels
        wanted = self.pending
        while wanted > 0:
            at = self._count % len(self._ring)
            found = self._ring[at : at + wanted]
            levels = np.arange(self._count, self._count + len(found), dtype=np.uint64)
            tags = levels & np.uint64(layout.TAG_LEVEL) | np.uint64(layout.TAG_SET)
            # The kernel writes the level beside the record, not after it: the last words may be on their way.
            whole = (found[:, self._written] >> _TAG_SHIFT == tags[:, None]).all(axis=1)
            complete = len(whole) if whole.all() else int(np.argmin(whole))
            if not complete:
                return
            self._take(found[:complete] & _VALUE)
            # Cleared before the kernel may write here again: the next run uses the same tags.
            found[:complete] = 0
            self._header["drained"] = self._count
            wanted -= complete

    def progress(self, traversal: int) -> RankProgress:
        """Return the progress of the run as of the last drain; ``traversal`` is its index. Any thread."""
        whole = self._whole
        return RankProgress(traversal, *(self._place if whole is None or not len(whole) else _progress(whole, 0)))

    def finish(self) -> NDArray[Any]:
        """Return ``layout.RECORD`` of every level of a run that has ended."""
        levels = int(self._header["level"][0])
        if self._count or levels > len(self._ring) or self._header["leader_levels"][0]:
            self.drain()
            words = np.concatenate(self._taken) if self._taken else np.empty((0, _WORDS), np.uint64)
            return words.view(layout.RECORD).reshape(-1)
        # A short run. Its records are complete, because the kernel has ended.
        found = self._ring[:levels]
        whole: NDArray[Any] = (found & _VALUE).view(layout.RECORD).reshape(-1)
        found[:] = 0
        self._whole = whole
        return whole

    def _take(self, words: NDArray[np.uint64]) -> None:
        self._taken.append(words)
        self._count += len(words)
        records = words.view(layout.RECORD).reshape(-1)
        self._place = (self._count, *_progress(records, self._reached)[1:])
        self._reached += int(records["frontier"].sum())


def _progress(records: NDArray[Any], reached: int) -> tuple[int, bool, int, int]:
    """Return the progress after the last of some records, before which ``reached`` vertices were expanded.

    The fields of ``RankProgress``: the level, whether it was bottom-up, its discoveries, and the vertices reached.
    """
    last = records[-1]
    found = int(last["discovered"])
    return len(records), bool(last["mode"] == Mode.BOTTOM_UP), found, reached + int(records["frontier"].sum()) + found


def counted(outcome: KernelOutcome) -> LabelSummary:
    """Return the counts of a run's labels that its kernel made; see ``ResidentKernel.counts_degrees``."""
    sums = np.empty((2, outcome.records.size + 1), np.int64)
    sums[:, 0] = outcome.source_rows, outcome.source_edges
    sums[0, 1:], sums[1, 1:] = outcome.records["discovered"], outcome.records["edges"]
    return LabelSummary(sums)


@dataclass(frozen=True)
class KernelLevels:
    """See ``reports.LevelRecords``: the kernel's records, which become tables where a caller reads those.

    All fields except ``discovered`` are exact only when summed over the ranks. A rank's edges lead to vertices of other
    owners, who drop the vertices that they had seen, so one rank can't separate its ``filtered`` from another rank's
    ``culled``. Dense and bottom-up levels exchange bitmaps: their discoveries count as ``own``, none as sent or culled.
    In leader levels the leader sends the labels of other ranks' vertices; lists that it reads count as nothing sent.
    Frontiers, and the edges of top-down levels, are those of each rank's own vertices.

    Attributes:
        words: ``layout.RECORD`` of each level, as bytes: pickling an array takes as long as a light level.
        nanoseconds_a_cycle: converts the records' ``cycles``.
        sums: ``LabelSummary.sums`` of the run's labels, as bytes.
        slice_bytes: bytes of this rank's slice of a bitmap.
        predecessors: whether the run recorded parents.
        direction: the direction in the run's options.
    """

    words: bytes
    nanoseconds_a_cycle: float
    sums: bytes
    ranks: int
    slice_bytes: int
    predecessors: bool
    direction: int

    def __len__(self) -> int:
        return len(self.words) // layout.RECORD.itemsize

    @property
    def records(self) -> NDArray[Any]:
        """``layout.RECORD`` of each level."""
        return np.frombuffer(self.words, layout.RECORD)

    @property
    def summary(self) -> LabelSummary:
        """The summary of the run's labels."""
        return LabelSummary(np.frombuffer(self.sums, np.int64).reshape(2, -1))

    def unpack(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        return summed(self._counts(), LARGEST), summed(self._seconds())

    def _counts(self) -> NDArray[np.int64]:
        # Contiguous columns are faster. A road network has thousands of levels, and its client waits for this.
        columns = np.ascontiguousarray(self.records.view(np.int64).reshape(-1, _WORDS).T)
        looked_at, mode, in_bins, found = (columns[_FIELDS.index(name)] for name in _COUNTED)
        bottom_up, dense = mode == Mode.BOTTOM_UP, mode == Mode.DENSE
        summary = self.summary
        frontier, discovered = summary.rows[:-1], summary.rows[1:]
        edges = np.where(bottom_up, looked_at, summary.degrees[:-1])
        several = self.ranks > 1
        binned = ~(bottom_up | dense) & several
        # The leader's record of a leader level counts the vertices of all ranks.
        in_bins = np.where(mode == Mode.LEADER, np.maximum(found - discovered, 0), in_bins)
        sent = np.where(binned, in_bins, 0)
        own = np.where(binned, found - in_bins, discovered)
        kept = own + sent
        # Slices of a bitmap for each other rank: a dense level's discoveries, gathered by their owners, and handed out
        # if the next level may be bottom-up; a bottom-up level's discoveries, and its frontier if the level before used
        # bins.
        queued = np.ones(mode.size, np.int64)
        queued[1:] = ~(bottom_up | dense)[:-1]
        slices = dense * (1 + (self.direction != Direction.TOP_DOWN)) + bottom_up * (1 + queued)
        bytes_sent = sent * (8 if self.predecessors else 4) + slices * ((self.ranks - 1) * self.slice_bytes)
        if several and self.predecessors:
            bytes_sent += np.where(dense, 4 * in_bins, 0)
        fields = {
            "bottom_up": bottom_up,
            "frontier": frontier,
            "edges": edges,
            "filtered": edges - kept,
            "own": own,
            "sent": sent,
            "culled": kept - discovered,
            "discovered": discovered,
            "bytes_sent": bytes_sent,
            "largest_frontier": frontier,
        }
        table = np.empty((mode.size, len(COUNT_FIELDS)), np.int64, order="F")
        for at, name in enumerate(COUNT_FIELDS):
            table[:, at] = fields[name]
        return table

    def _seconds(self) -> NDArray[np.float64]:
        """Return the times. One kernel does all phases, so all time counts as ``search``."""
        taken = np.zeros((len(self), len(TIME_FIELDS)), np.float64)
        taken[:, 0] = self.records["cycles"] * (self.nanoseconds_a_cycle * 1e-9)
        return taken


# Time for a stopped kernel to end.
LEAVE_SECONDS: Final = 5.0
# A sleep takes at least 70 us, which a short run would notice. For this long a wait only yields the GIL.
EAGER_SECONDS: Final = 1e-3
# While a kernel runs its records are taken this often, so that progress is up to date, or when this many wait.
LOOK_SECONDS: Final = 0.05
MANY_RECORDS: Final = CAPACITY // 16

# cudaErrorNotReady.
_NOT_READY: Final = 600


class Slot:
    """The host's side of one run. An engine has several, so that runs can be launched behind the one under way.

    Attributes:
        host: memory of the host that the kernel writes to.
        records: reader of the levels' records.
        done: the event behind the run on its stream.
    """

    def __init__(self, cupy: Any, *, alone: bool) -> None:
        self.host = RecordRing()
        self.records = Records(self.host.header, self.host.ring, alone=alone)
        self.done = cupy.cuda.Event(disable_timing=True)
        self._query: Callable[[int], int] = cupy.cuda.runtime.eventQuery

    def clear(self) -> None:
        """Forget the previous run."""
        self.host.clear_header()
        self.records.clear()

    def wait(self, rank: int, give_up: float, abort: Callable[[], None]) -> None:
        """Wait until the run has ended.

        Args:
            rank: the rank, for messages.
            give_up: when to call ``abort``, in seconds of ``time.monotonic()``.
            abort: stops the kernels under way.

        Raises:
            KernelHungError: the kernel did not end, although it was stopped.
        """
        now = time.monotonic()
        look, patient = now + LOOK_SECONDS, now + EAGER_SECONDS
        while self._runs():
            now = time.monotonic()
            if now > look or self.records.pending > MANY_RECORDS:
                self.records.drain()
                look = now + LOOK_SECONDS
            if now > give_up + LEAVE_SECONDS:
                raise KernelHungError(
                    f"rank {rank}, level {self.host['level']}: the kernel did not end within"
                    f" {LEAVE_SECONDS:g} s after it was stopped"
                )
            if now > give_up:
                abort()
            time.sleep(20e-6 if now > patient else 0)

    def _runs(self) -> bool:
        """Return whether the run has yet to end. Raises CUDA's error if its kernel failed."""
        status = self._query(self.done.ptr)
        if status in (0, _NOT_READY):
            return status == _NOT_READY
        # CuPy's ``Event.done`` is False for an event behind a kernel that failed, so that a wait would not end.
        self.done.synchronize()
        return False

    def outcome(self, rank: int, timeout: float, give_up: float) -> KernelOutcome:
        """Return the outcome of the run, which has ended.

        Args:
            rank: the rank, for messages.
            timeout: seconds that the run was given.
            give_up: as of ``wait``.

        Raises:
            DeadlineExceededError: a wait in the kernel outlasted the timeout, or the host stopped the kernel then.
            KernelAbortedError: the kernel was stopped before.
        """
        host = self.host.values()
        status = host["status"]
        reason, level = Reason(status & 0xFF), status >> layout.STATUS_LEVEL
        step = status >> layout.STATUS_STEP & 0xFF
        if reason is not Reason.FINISHED:
            where = f"rank {rank}, level {level}, {Step(step).name.lower() if step else 'no'} step"
            # Either clock may see the deadline first: the kernel's, or this one, which then stopped the kernel.
            if reason is Reason.ABORTED and time.monotonic() <= give_up:
                raise KernelAbortedError(f"the run was aborted: {where}")
            raise DeadlineExceededError(f"the run took longer than {timeout} s: {where}")
        nanoseconds_a_cycle = (host["end_ns"] - host["gate_ns"]) / max(1, host["end_cycles"] - host["gate_cycles"])
        return KernelOutcome(
            levels=host["levels"],
            records=self.records.finish(),
            source_rows=host["source_rows"],
            source_edges=host["source_edges"],
            nanoseconds_a_cycle=nanoseconds_a_cycle,
            seconds=(host["end_ns"] - host["gate_ns"] + host["reset_ns"] - host["begin_ns"]) * 1e-9,
            reset_seconds=(host["reset_ns"] - host["begin_ns"]) * 1e-9,
        )
