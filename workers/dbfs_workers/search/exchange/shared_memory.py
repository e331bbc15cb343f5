"""The exchange between ranks on one host: bins, slices and counts in memory that all ranks map.

A crossing is one store, a wait for p - 1 words, and a copy of p small records. ``kernels.barrier`` has the wait.
"""

import contextlib
import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import (
    DbfsError,
    DeadlineExceededError,
    StaleRunError,
    WorkerLostError,
)
from dbfs_workers.base.lines.line import Address
from dbfs_workers.base.tokens import Token
from dbfs_workers.search.backend import Backend
from dbfs_workers.search.exchange import staged
from dbfs_workers.search.exchange.hosts import Hosts
from dbfs_workers.search.exchange.kernels import barrier as kernels
from dbfs_workers.search.exchange.kernels.envoy import Frames
from dbfs_workers.search.exchange.protocol import Abort, Cause, CrossedBy, Exchange, abort_error, require_later
from dbfs_workers.search.exchange.segment import ABORT, RUN, Segment, SegmentHandle, bin_entries
from dbfs_workers.search.exchange.staged import StagedExchange
from dbfs_workers.search.partition.shared_rows import HostRows
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports.crossings import COUNTS, C, largest_bits

TIMEOUT = np.array([0, 2_000_000], np.int64)
"""The longest sleep before a rank looks for an abort: seconds, nanoseconds."""

_NOTHING = contextlib.nullcontext()

_LIVENESS_INTERVAL = 0.02  # seconds


@dataclass(frozen=True)
class Offer:
    """What a rank's peers need. Picklable.

    Attributes:
        memory: the handle by which the other ranks of the host attach; None if another rank makes the memory.
        door: where an envoy takes the lines of other envoys; None for other ranks.
        token: what an envoy shows there.
    """

    memory: SegmentHandle | None = None
    door: Address | None = None
    token: bytes = b""


class SharedMemoryExchange:
    """A ``GangExchange`` in a shared memory segment. The lowest rank of the host makes the memory in ``offer``.

    Args:
        stripe: the stripe of the graph.
        rank: this rank.
        graph_id: the graph.
        hosts: the hosts of the gang; None for one host.
        entries: entries of a bin; None for ``segment.bin_entries``.

    Attributes:
        on_one_host: whether all ranks are on this host.
        entries: entries of a bin.
        segment: the memory, from ``offer`` or ``connect`` on.
        host_rows: the rows of all ranks, if this rank has copied them to lead levels.
        led_size: most vertices of a led level, as rank 0 has chosen after the last traversal; 0 before. See
            ``levels.led_size``.
        kernel_arguments: what a kernel needs to bin and cross by itself, from ``offer`` or ``connect`` on.
        frames: the frames that the kernel exchanges with other hosts.
    """

    crossed_by = CrossedBy.KERNELS
    segment: Segment
    kernel_arguments: kernels.End
    _crosses_hosts = False

    def __init__(
        self, stripe: Stripe, rank: int, graph_id: str, hosts: Hosts | None = None, entries: int | None = None
    ) -> None:
        hosts = hosts or Hosts.one(stripe.p)
        self.rank = rank
        self.p = stripe.p
        self._stripe = stripe
        self._graph_id = graph_id
        self._envoy = hosts.envoy_of(rank)
        # For each rank, the rank whose process writes its part of the memory.
        self._carriers = hosts.carriers(rank)
        self.on_one_host = hosts.count == 1
        self.host_rows = HostRows(stripe)
        self.led_size = 0
        self.entries = bin_entries(stripe) if entries is None else entries
        self._record = np.zeros(1 + COUNTS, np.int64)
        self.bin_ends = np.zeros(self.p, np.int64)
        # One row for each rank, and one for the sums.
        gathered = np.zeros((self.p + 1, 2 + COUNTS), np.int64)
        self._gathered = gathered.ravel()
        self.gathered = gathered[: self.p, 1 : 1 + COUNTS]
        self._sums = gathered[self.p, 1 : 1 + COUNTS]
        self._ends = gathered[: self.p, 1 + COUNTS]
        self._backoff = np.zeros(5, np.int64)
        # Of the record that crosses: see ``crossings.largest_bits``.
        self._largest = 0
        self.frames = Frames.none()
        self._predecessors = False
        self._shown_rows: Token | None = None
        self._run_id = ""
        self._number = 0
        self._crossing = 0
        self._looked = 0.0
        self._deadline = 0.0
        # Without memory: before ``connect``, and after ``close``.
        self._closed = True
        self._aborting = threading.Lock()

    def gpu_bytes(self, stripe: Stripe) -> int:
        """See ``GangExchange.gpu_bytes``."""
        return staged.nbytes(stripe)

    def on_gpu(self, backend: Backend, stripe: Stripe) -> Exchange:
        """See ``GangExchange.on_gpu``. All goes through the host."""
        return StagedExchange(self, stripe, backend)

    def on_host(self) -> Exchange:
        """See ``GangExchange.on_host``. Returns the exchange itself."""
        return self

    def offer(self) -> Offer:
        """See ``GangExchange.offer``."""
        if self.rank != self._envoy:
            return Offer()
        if self._closed:
            self._open(Segment.create(self._stripe, self.entries, self._graph_id, self.rank))
        return Offer(self.segment.handle)

    def connect(self, offers: Sequence[Offer]) -> None:
        """See ``GangExchange.connect``."""
        if self._closed:
            memory = offers[self._envoy].memory
            assert memory is not None
            self._open(Segment.attach(memory, self.rank, self._graph_id))

    def _open(self, segment: Segment) -> None:
        self.segment, ranks = segment, range(self.p)
        self._rows = [[segment.rows(rank, parity) for rank in ranks] for parity in (0, 1)]
        self._parents = [[segment.parents(rank, parity) for rank in ranks] for parity in (0, 1)]
        self._slices = [[segment.slices(rank, parity) for rank in ranks] for parity in (0, 1)]
        self._choose_bins()
        self.kernel_arguments = kernels.End(
            bodies=segment.bodies,
            body_words=segment.body_words,
            entries=self.entries,
            words=segment.words,
            stride=segment.stride,
            record=self._record,
            bin_ends=self.bin_ends,
            rank=self.rank,
            gathered=self._gathered,
            timeout=TIMEOUT,
            backoff=self._backoff,
            envoy=int(self._crosses_hosts),
        )
        self._closed = False

    @property
    def number(self) -> int:
        """The gang's serial number of the run."""
        return self._number

    @property
    def crossing(self) -> int:
        """Number of the run's last crossing."""
        return self._crossing

    @property
    def log_end(self) -> int:
        """End of this rank's log, which rank 0 gave at the last crossing: see ``await_peers``."""
        return int(self._ends[0])

    def begin(self, run_id: str, number: int, deadline: float) -> None:
        """See ``Exchange.begin``."""
        require_later(self.rank, run_id, number, self._number)
        self._run_id, self._number, self._deadline = run_id, number, deadline
        self._crossing = 0
        self._choose_bins()
        # The ranks start one after another. At the first crossing the early ranks wait long, and the late ones need
        # their cores to start.
        self.park()
        digest = hashlib.blake2b(run_id.encode(), digest_size=8).digest()
        self._record[RUN] = int.from_bytes(digest, "little", signed=True)

    def show_rows(self, token: Token | None) -> None:
        """Show the other ranks the file with this rank's rows; None if they can't map the rows."""
        if token is not self._shown_rows:
            self.segment.write_rows(token)
            self._shown_rows = token

    def park(self) -> None:
        """Sleep at the next crossing, without yields before it. A rank is back some microseconds after its wake-up."""
        # The kernel counts down before it waits, hence 2.
        self._backoff[kernels.NO_YIELD] = max(2, self._backoff[kernels.NO_YIELD])

    def reset(self, predecessors: bool) -> None:
        """See ``Exchange.reset``."""
        self.bin_ends[:] = 0
        self._predecessors = predecessors

    def slice(self) -> NDArray[np.uint32]:
        """See ``Exchange.slice``."""
        return self._slices[(self._crossing + 1) & 1][self.rank]

    def cross(self, level: int, phase: str, counts: C, *, sliced: bool) -> C:  # noqa: ARG002
        """See ``Exchange.cross``. ``sliced`` is unused: a slice is written to shared memory in the first place."""
        self._crossing += 1
        # NumPy takes longer over a named tuple than over a plain one.
        self._record[1 : 1 + len(counts)] = (*counts,)
        self._largest = largest_bits(type(counts))
        if self.p == 1:
            self._finish(*self._cross_alone(), level, phase)
            return counts
        segment = self.segment
        status, peer = kernels.cross(
            segment.words,
            segment.stride,
            self._record,
            self.bin_ends,
            self._number << 32 | self._crossing,
            self.rank,
            self._gathered,
            TIMEOUT,
            self._backoff,
            self._largest,
        )
        self._finish(status, peer, level, phase)
        return type(counts)._make(self._sums[: len(counts)].tolist())

    def _cross_alone(self) -> tuple[int, int]:
        """Do what ``kernels.barrier.cross`` does, as the only rank, which waits for no other."""
        self.gathered[0] = self._record[1:]
        self._ends[0], self.bin_ends[0] = self.bin_ends[0], 0
        aborted = self._abort_word() >> kernels.RUN_SHIFT == self._number
        return (kernels.ABORTED if aborted else kernels.CROSSED), self.p

    def in_kernel(self) -> AbstractContextManager[None]:
        """The time in which a kernel may cross, with ``kernel_arguments``, and ``follow`` finishes its crossings."""
        return _NOTHING

    def await_peers(self, level: int, phase: str) -> NDArray[np.int64]:
        """Wait for all other ranks at the next crossing, and return the counts by rank. Only rank 0 may call this.

        The others wait in ``cross`` until rank 0 calls ``cross`` too. Until then the bodies of all ranks are rank 0's:
        nobody else reads or writes them. So rank 0 may write each rank's log, whose ends it gives in ``bin_ends``.

        Errors as for ``cross``.
        """
        self._crossing += 1
        try:
            self._wait(*self._wait_from(1, self._gathered), level, phase)
        finally:
            self._crossing -= 1
        return self.gathered

    def look(self, level: int, phase: str) -> None:
        """Look for an abort, the deadline and lost peers, in place of the looks of a long wait.

        Errors as for ``cross``.
        """
        where = self._where(level, phase)
        if self._abort_word() >> kernels.RUN_SHIFT == self._number:
            raise self._aborted(where)
        now = time.monotonic()
        if now > self._deadline:
            raise self._late(where, level, phase, "while it led the level")
        if now - self._looked > _LIVENESS_INTERVAL:
            self._looked = now
            for rank in self.segment.dead_ranks():
                raise self._lost(where, rank)

    def follow(self, crossing: int, status: int, peer: int, level: int, phase: str, kind: type[NamedTuple]) -> None:
        """Go on after a kernel that crossed by itself, with ``kernel_arguments``.

        Args:
            crossing: number of the last crossing of the kernel.
            status, peer: what ``kernels.barrier.cross`` returned there.
            level: the level, named in errors.
            phase: the phase, named in errors.
            kind: the record that crosses.

        Errors as for ``cross``.
        """
        self._crossing, self._largest = crossing, largest_bits(kind)
        self._finish(status, peer, level, phase)

    def incoming(self) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint32] | None]]:
        """See ``Exchange.incoming``."""
        parity, base = self._crossing & 1, self.rank * self.entries
        for source, size in enumerate(self._ends.tolist()):
            if size:
                parents = self._parents[parity][source][base : base + size] if self._predecessors else None
                yield self.rows_from(source), parents

    def rows_from(self, source: int) -> NDArray[np.uint32]:
        """Return the rows that a peer binned for this rank before the last crossing, readable until the next one."""
        base = self.rank * self.entries
        return self._rows[self._crossing & 1][source][base : base + int(self._ends[source])]

    def slice_of(self, source: int) -> NDArray[np.uint32]:
        """See ``Exchange.slice_of``."""
        return self._slices[self._crossing & 1][source]

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        """See ``Exchange.abort``. Ranks that share memory notice a dead process themselves, but no broken line."""
        self._abort(number, cause, message, self.rank if rank is None else rank)

    def close(self) -> None:
        """See ``Exchange.close``. The kernel frees the memory when every rank has closed, or its process has ended."""
        # Another thread may abort at any time: without the lock it could write to unmapped memory.
        with self._aborting:
            if self._closed:
                return
            self._closed = True
            self._rows, self._parents, self._slices = [], [], []
            del self.kernel_arguments
            self.host_rows.close()
            self.bin_rows = self.bin_parents = np.empty(0, np.uint32)
            self.segment.close()

    def _finish(self, status: int, peer: int, level: int, phase: str) -> None:
        """Finish a crossing, and fill the bins of the next one from now on."""
        if status != kernels.CROSSED or time.monotonic() > self._deadline:
            self._wait(status, peer, level, phase)
        self._choose_bins()

    def _wait(self, status: int, peer: int, level: int, phase: str, gathered: NDArray[np.int64] | None = None) -> None:
        """Finish a crossing, or raise: check the deadline and the peer's process between calls of the wait kernel.

        ``gathered`` ends with the row after the last rank to wait for; None to wait for all ranks.
        """
        segment = self.segment
        if gathered is None:
            gathered = self._gathered
        checked = 0.0
        while True:
            where = self._where(level, phase)
            if status == kernels.STALE:
                raise StaleRunError(f"{where}: rank {peer} is in another run")
            if status == kernels.ABORTED:
                raise self._aborted(where)
            now = time.monotonic()
            if now > self._deadline:
                waited_for = f"waiting for rank {peer}" if status == kernels.TIMED_OUT else "at the barrier"
                raise self._late(where, level, phase, waited_for)
            if status == kernels.CROSSED:
                return
            if now - checked > _LIVENESS_INTERVAL:
                checked = now
                # Only the awaited peer counts: a rank that died after it arrived is found at the next crossing.
                carrier = self._carriers[peer]
                if carrier in segment.dead_ranks():
                    raise self._lost(where, carrier)
            self._while_waiting()
            status, peer = self._wait_from(peer, gathered)

    def _wait_from(self, first: int, gathered: NDArray[np.int64]) -> tuple[int, int]:
        """Wait for the ranks from ``first`` on; arguments and results as of ``kernels.barrier.wait``."""
        segment = self.segment
        status, peer = kernels.wait(
            segment.words,
            segment.stride,
            self._record,
            self._number << 32 | self._crossing,
            self.rank,
            first,
            gathered,
            TIMEOUT,
            self._backoff,
            self._largest,
        )
        return status, peer

    def _while_waiting(self) -> None:
        """Do what has to be done now and then in a long wait."""

    def _choose_bins(self) -> None:
        parity = (self._crossing + 1) & 1
        self.bin_rows, self.bin_parents = self._rows[parity][self.rank], self._parents[parity][self.rank]

    def _abort(self, number: int, cause: Cause, message: str, rank: int) -> None:
        with self._aborting:
            if self._closed:
                return
            segment = self.segment
            if self._abort_word() >> kernels.RUN_SHIFT < number:
                segment.write_message(message, rank)
                word = number << kernels.RUN_SHIFT | int(cause) << kernels.CAUSE_SHIFT | rank
                if self.p == 1:
                    segment.words[ABORT] = word
                else:
                    kernels.set_abort(segment.words, word)

    def _abort_word(self) -> int:
        """Return what ``kernels.barrier.get_abort`` does. An only rank's process alone writes the word."""
        return int(self.segment.words[ABORT] if self.p == 1 else kernels.get_abort(self.segment.words))

    def _aborted(self, where: str) -> DbfsError:
        abort = self._read_abort()
        return abort_error(abort.cause, where, abort.rank, abort.message)

    def _late(self, where: str, level: int, phase: str, doing: str) -> DbfsError:
        """End the run on all ranks because of the deadline; return the error to raise."""
        self._abort(self._number, Cause.DEADLINE, f"level {level}, {phase}, {doing}", self.rank)
        return DeadlineExceededError(f"{where}: the deadline passed {doing}")

    def _lost(self, where: str, rank: int) -> DbfsError:
        """End the run on all ranks because of a lost one; return the error to raise."""
        self._abort(self._number, Cause.LOST, "", rank)
        return WorkerLostError(f"{where}: lost rank {rank}; load the graph again")

    def _where(self, level: int, phase: str) -> str:
        return f"run {self._run_id}, rank {self.rank}, level {level}, {phase}"

    def _read_abort(self) -> Abort:
        """Return the last abort."""
        word = self._abort_word()
        rank = word & kernels.RANK_MASK
        cause = Cause((word & (1 << kernels.RUN_SHIFT) - 1) >> kernels.CAUSE_SHIFT)
        message = f"lost rank {rank}" if cause is Cause.LOST else self.segment.read_message(rank)
        return Abort(word >> kernels.RUN_SHIFT, cause, rank, message)
