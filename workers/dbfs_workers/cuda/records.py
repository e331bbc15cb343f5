"""What the levels of a run did: records that the kernel leaves in host memory, and the counts that are made of them.

The records are a ring in pinned, mapped host memory (``statistics.cuh``). ``Records.drain`` empties it while the kernel
runs and after, so that a run of any depth has a record of every level; a kernel that finds the ring full waits.
"""

import ctypes
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.cuda import layout
from dbfs_workers.cuda.run import Direction, KernelOutcome, Mode
from dbfs_workers.cuda.summary import LabelSummary
from dbfs_workers.reports import COUNT_FIELDS, TIME_FIELDS, RunPosition

# 1 MiB. The smallest graphs take 3 us a level on one GPU: 48 ms until a kernel would wait for its host.
CAPACITY: Final = 1 << 14
_WORDS: Final = layout.RECORD.itemsize // 8
_FIELDS: Final = layout.RECORD.names or ()
_COUNTED: Final = ("looked_at", "mode", "sent", "found")
_TAG_SHIFT: Final = np.uint64(layout.TAG_SHIFT)
_VALUE: Final = np.uint64((1 << layout.TAG_SHIFT) - 1)


class Mapped:
    """Pinned host memory that the kernel writes while it runs: the header, and the ring behind it.

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

    def free(self) -> None:
        """Give it back."""
        if self.address:
            self._runtime.freeHost(self.address)
            self.address = 0


class Records:
    """The records of one run after another.

    Args:
        header: see ``Mapped``.
        ring: see ``Mapped``; a power of two of them.
        alone: whether there is one rank; its kernel leaves out what only several have.
    """

    def __init__(self, header: NDArray[Any], ring: NDArray[np.uint64], *, alone: bool) -> None:
        self._header = header
        self._written = slice(layout.RECORD_WORDS_SINGLE if alone else layout.RECORD_WORDS_GANG)
        self._ring = ring
        self._taken: list[NDArray[np.uint64]] = []
        self._count = 0
        self._reached = 0
        # Replaced as a whole: another thread may read it.
        self._place = (0, False, 0, 0)

    def clear(self) -> None:
        """Forget the run before; the header is the caller's."""
        self._taken, self._count, self._reached = [], 0, 0
        self._place = (0, False, 0, 0)

    def clear_ring(self) -> None:
        """Forget what a run that failed left in the ring."""
        self._ring[:] = 0

    @property
    def pending(self) -> int:
        """Levels that the kernel has reported and nobody has taken."""
        return int(self._header["level"][0]) - self._count

    def drain(self) -> None:
        """Take the records that are complete, and let the kernel have their room.

        Those that come meanwhile are for the next call: a kernel may make them as fast as they are taken.
        """
        led = int(self._header["leader_levels"][0])
        if self._count < led:
            # Another rank's kernel has them, from the first level on.
            blank = np.zeros(led, layout.RECORD)
            blank["mode"] = Mode.LEADER
            self._take(blank.view(np.uint64).reshape(-1, _WORDS))
            self._header["drained"] = led
        wanted = self.pending
        while wanted > 0:
            at = self._count % len(self._ring)
            found = self._ring[at : at + wanted]
            levels = np.arange(self._count, self._count + len(found), dtype=np.uint64)
            tags = levels & np.uint64(layout.TAG_LEVEL) | np.uint64(layout.TAG_SET)
            # The level is told beside the record, not after it: the last words may be on their way.
            whole = (found[:, self._written] >> _TAG_SHIFT == tags[:, None]).all(axis=1)
            complete = len(whole) if whole.all() else int(np.argmin(whole))
            if not complete:
                return
            self._take(found[:complete] & _VALUE)
            # Before the kernel knows that they are taken: the tag of a level comes again in the next run.
            found[:complete] = 0
            self._header["drained"] = self._count
            wanted -= complete

    def position(self, traversal: int) -> RunPosition:
        """Where the run was at the last drain; ``traversal`` is its index. From any thread."""
        return RunPosition(traversal, *self._place)

    def records(self) -> NDArray[Any]:
        """``layout.RECORD`` of every level taken."""
        words = np.concatenate(self._taken) if self._taken else np.empty((0, _WORDS), np.uint64)
        return words.view(layout.RECORD).reshape(-1)

    def _take(self, words: NDArray[np.uint64]) -> None:
        self._taken.append(words)
        self._count += len(words)
        records = words.view(layout.RECORD).reshape(-1)
        last = records[-1]
        self._reached += int(records["frontier"].sum())
        found = int(last["discovered"])
        self._place = (self._count, bool(last["mode"] == Mode.BOTTOM_UP), found, self._reached + found)


def counts(
    outcome: KernelOutcome, summary: LabelSummary, *, ranks: int, slice_bytes: int, predecessors: bool, direction: int
) -> NDArray[np.int64]:
    """``reports.COUNT_FIELDS`` of every level; all but ``discovered`` hold as sums over the ranks.

    A rank's edges lead to vertices that their owners discover, and the owners drop what they knew: a rank by itself
    can't tell its ``filtered`` from another's ``culled``. Dense levels exchange bitmaps, as bottom-up ones do: what
    they discover counts as ``own``, and nothing as sent or culled. In led levels the leader sends the labels of
    others' vertices; the lists that it reads from them count as nothing sent. Frontiers are always their owners', and
    so are the edges of top-down levels.

    Args:
        outcome: the run's.
        summary: of the labels.
        ranks: how many there are.
        slice_bytes: of this rank's slice of a bitmap.
        predecessors: whether the run recorded them.
        direction: what the run was told.
    """
    # By contiguous columns: a road network has thousands of levels, and its client waits for this.
    columns = np.ascontiguousarray(outcome.records.view(np.int64).reshape(-1, _WORDS).T)
    looked_at, mode, in_bins, found = (columns[_FIELDS.index(name)] for name in _COUNTED)
    bottom_up, dense = mode == Mode.BOTTOM_UP, mode == Mode.DENSE
    frontier, discovered = summary.rows[:-1], summary.rows[1:]
    edges = np.where(bottom_up, looked_at, summary.degrees[:-1])
    several = ranks > 1
    binned = ~(bottom_up | dense) & several
    # The leader's record of a led level is of all ranks.
    in_bins = np.where(mode == Mode.LEADER, np.maximum(found - discovered, 0), in_bins)
    sent = np.where(binned, in_bins, 0)
    own = np.where(binned, found - in_bins, discovered)
    kept = own + sent
    # Slices of a bitmap for each other rank: a dense level's discoveries, gathered by their owners and (where the
    # next level may be bottom-up) handed out; a bottom-up level's; the frontier's, where bins came before.
    queued = np.ones(mode.size, np.int64)
    queued[1:] = ~(bottom_up | dense)[:-1]
    slices = dense * (1 + (direction != Direction.TOP_DOWN)) + bottom_up * (1 + queued)
    bytes_sent = sent * (8 if predecessors else 4) + slices * ((ranks - 1) * slice_bytes)
    if several and predecessors:
        bytes_sent += np.where(dense, 4 * in_bins, 0)
    made = {
        "bottom_up": bottom_up,
        "frontier": frontier,
        "edges": edges,
        "filtered": edges - kept,
        "own": own,
        "sent": sent,
        "culled": kept - discovered,
        "discovered": discovered,
        "bytes_sent": bytes_sent,
    }
    table = np.empty((mode.size, len(COUNT_FIELDS)), np.int64, order="F")
    for at, name in enumerate(COUNT_FIELDS):
        table[:, at] = made[name]
    return table


def seconds(outcome: KernelOutcome) -> NDArray[np.float64]:
    """``reports.TIME_FIELDS`` of the same levels; one kernel does all phases, so all of the time is ``search``."""
    taken = np.zeros((outcome.records.size, len(TIME_FIELDS)), np.float64)
    taken[:, 0] = outcome.records["cycles"] * (outcome.nanoseconds_a_cycle * 1e-9)
    return taken
