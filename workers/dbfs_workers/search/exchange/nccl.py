"""The exchange of ranks on GPUs of several hosts, by NCCL: bins and slices go from GPU memory to GPU memory.

At a crossing every rank exchanges one message with each peer: a header with its counts and the size of its bin for the
peer, and the first ``INLINE`` entries of that bin. So the counts come in the same call, and a level with small bins
needs no more. Slices go in the same group of transfers. Bins with more entries follow whole in a second group, whose
sizes both ends know by then: in a 2-D partition along the rows and the columns of the grid alone. Messages come into
pinned host memory, which NCCL writes like the GPU's, so that the host reads the headers without a copy.

``cross_levels`` runs whole top-down levels with one wait: the phases, the group and the contraction of what comes are
queued on the GPU one behind another (``cuda.communicator.Messages``).

``nccl_groups`` has what can go wrong with a group of transfers.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import StaleRunError
from dbfs_workers.search.backend import Backend
from dbfs_workers.search.cuda import nccl
from dbfs_workers.search.cuda.communicator import (
    FIRST_COUNT,
    HALTED,
    HEADER,
    INLINE,
    LARGE_BINS,
    OTHER_CROSSING,
    RUN,
    SIZE,
    START,
    STATE,
    Library,
    Messages,
    Tag,
    Transfer,
)
from dbfs_workers.search.cuda.messages import CudaMessages
from dbfs_workers.search.exchange.hosted import HostedExchange
from dbfs_workers.search.exchange.nccl_groups import NcclGroups
from dbfs_workers.search.exchange.protocol import CrossedBy, require_later
from dbfs_workers.search.exchange.transport import Send
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports.crossings import COUNTS, C, Measured, joined

# The state of a result that the GPU has not written yet.
_UNSEEN: Final = -1


def nbytes(stripe: Stripe) -> int:
    """Return the bytes of a rank's bins, their parents, the slices of all ranks and the messages on the device."""
    return 2 * 4 * stripe.p * stripe.n_local + 4 * stripe.words + 8 * stripe.p * (HEADER + INLINE)


class LevelResult(NamedTuple):
    """The counts of a rank in a top-down level.

    Attributes:
        edges: edges that the rank expanded.
        own: vertices of its own that the rank discovered.
        sent: vertices that the rank binned for other ranks.
        received: vertices that other ranks binned for this rank.
        discovered: vertices of the rank's next frontier.
        found: over all ranks, vertices found; a vertex that two ranks found counts twice.
        expanded_edges: over all ranks, edges expanded.
    """

    edges: int
    own: int
    sent: int
    received: int
    discovered: int
    found: int
    expanded_edges: int


class LevelResults(NamedTuple):
    """The counts and times of a rank in consecutive top-down levels that were queued together.

    Attributes:
        levels: a result for each level that was run.
        queued_at: when the last level was queued, in seconds of ``time.perf_counter()``.
        crossed_at: when the last crossing ended, on the same clock.
    """

    levels: list[LevelResult]
    queued_at: float
    crossed_at: float


class NcclExchange(NcclGroups):
    """A ``GangExchange`` by NCCL.

    Args:
        stripe: the graph's stripe.
        rank: this rank.
        send: sends the aborts of runs.
        library: NCCL.
        entries: entries of a bin, whose messages have no parents and no slices, as those of a 2-D partition; None for
            ``n_local``.

    Attributes:
        entries: entries of a bin.
    """

    crossed_by = CrossedBy.QUEUE

    def __init__(self, stripe: Stripe, rank: int, send: Send, library: Library, entries: int | None = None) -> None:
        super().__init__(stripe.p, rank, send, library)
        self._stripe = stripe
        self._striped = entries is None
        self.entries = stripe.n_local if entries is None else entries
        self.bin_rows = self.bin_parents = np.empty(0, np.uint32)
        self.bin_ends = np.zeros(self.p, np.int64)
        self.gathered = np.zeros((self.p, COUNTS), np.int64)
        self._sent = np.zeros(self.p, np.int64)
        # Places of the bins in their array.
        self._bins = np.arange(self.p) * self.entries
        self._digest = 0
        self._crossing = 0
        self._predecessors = False
        # By source.
        self._incoming: dict[int, tuple[Any, Any | None]] = {}
        # The ends of the bins after ``cross_levels``, which ``bin_ends`` does not have yet.
        self._level_ends: list[int] | None = None

    @classmethod
    def installed(cls, stripe: Stripe, rank: int, send: Send, entries: int | None = None) -> "NcclExchange":
        """Return an exchange by the NCCL that is installed. Errors as for ``nccl.require``."""
        nccl.require()
        return cls(stripe, rank, send, nccl.Nccl(), entries)

    def gpu_bytes(self, stripe: Stripe) -> int:
        """See ``GangExchange.gpu_bytes``."""
        return nbytes(stripe)

    def on_gpu(self, backend: Backend, stripe: Stripe) -> "NcclExchange":  # noqa: ARG002
        """See ``GangExchange.on_gpu``. Returns the exchange itself."""
        self.allocate(CudaMessages(stripe, self.rank, self.pinned))
        return self

    def on_host(self) -> HostedExchange:
        """See ``GangExchange.on_host``."""
        return HostedExchange(self)

    def allocate(self, messages: Messages) -> None:
        """Allocate the bins and the slices on the rank's device, and the headers."""
        stripe, p, address = self._stripe, self.p, self._library.address
        self._messages = messages
        self._xp = xp = messages.xp
        self.bin_rows = xp.empty(p * self.entries, np.uint32)
        self.bin_parents = xp.empty(p * self.entries * self._striped, np.uint32)
        self._slices = xp.zeros((p, stripe.words_local * self._striped), np.uint32)
        self._headers = self._library.pinned(p * HEADER).reshape(p, HEADER)
        self._addresses = tuple(map(address, (self.bin_rows, self.bin_parents, self._slices)))
        outgoing, incoming, place = address(messages.outgoing), address(messages.incoming), 8 * (HEADER + INLINE)
        # Without and with parents.
        self._message_transfers: list[list[Transfer]] = [
            [(peer, outgoing + peer * place, size, incoming + peer * place, size) for peer in self._peers]
            for size in (8 * HEADER + 4 * INLINE, place)
        ]
        self._connecting = self._message_transfers[0]

    def pinned(self, words: int) -> NDArray[np.int64]:
        """See ``communicator.Library``."""
        return self._library.pinned(words)

    def begin(self, run_id: str, number: int, deadline: float) -> None:
        """See ``Exchange.begin``."""
        with self._changed:
            require_later(self.rank, run_id, number, self._number)
            self._run_id, self._number, self._deadline = run_id, number, deadline
        self._crossing = 0
        self._digest = int.from_bytes(hashlib.blake2b(run_id.encode(), digest_size=8).digest(), "little", signed=True)

    def reset(self, predecessors: bool) -> None:
        """See ``Exchange.reset``."""
        self.bin_ends[:] = 0
        self._sent[:] = 0
        self._level_ends = None
        self._predecessors = predecessors
        self._messages.reset()

    def slice(self) -> NDArray[np.uint32]:
        """See ``Exchange.slice``."""
        own: NDArray[np.uint32] = self._slices[self.rank]
        return own

    def cross(self, level: int, phase: str, counts: C, *, sliced: bool) -> C:
        """See ``Exchange.cross``."""
        self._follow_levels()
        tag = self._next_tag()
        headers, sizes = self._headers, self.bin_ends - self._sent
        headers[:, :SIZE] = tag
        headers[:, SIZE], headers[:, START] = sizes, self._bins + self._sent
        headers[:, FIRST_COUNT : FIRST_COUNT + len(counts)] = counts
        self._messages.pack(headers, self.bin_rows, self._parents)
        self._start(self._first(sliced=sliced), level, phase)
        self._wait(level, phase)
        self._gather(tag, counts, level, phase)
        coming = self._messages.incoming[:, SIZE].tolist()
        self._receive_bins(sizes, coming, level, phase)
        for peer in self._peers:
            # The first entries are in host memory.
            size = coming[peer]
            if 0 < size <= INLINE:
                entries = self._xp.asarray(self._messages.incoming[peer, HEADER:].view(np.uint32))
                parents = entries[INLINE : INLINE + size] if self._predecessors else None
                self._incoming[peer] = entries[:size], parents
        if self._striped:
            self._sent[:] = self.bin_ends
        else:
            self.bin_ends[:] = 0
        return joined(type(counts), self.gathered)

    def most_ahead(self, max_degree: int) -> int:
        """See ``communicator.Messages``."""
        return self._messages.most_ahead(max_degree)

    def cross_levels(
        self,
        level: int,
        phase: str,
        scratch: Scratch,
        labels: RankLabels,
        *,
        edges: int,
        count: int = 1,
        most: int = 0,
    ) -> LevelResults:
        """Run top-down levels and their crossings with one wait. Leaves the next frontier in ``scratch.frontier``.

        All ranks call this with the same ``count`` and ``most``. Levels are left out behind one that finds nothing, one
        with a bin too large for its message, and one that finds more than ``most`` vertices.

        Args:
            level: the first level; it labels vertices with ``level + 1``.
            phase: the phase, named in errors.
            scratch: this rank's working memory.
            labels: this rank's labels.
            edges: the most edges that this rank's frontier may have.
            count: levels to queue, at most ``MOST_AHEAD``; 1 unless the frontier has at most ``most`` vertices.
            most: vertices over all ranks up to which a level is run ahead: see ``most_ahead``.

        Errors as for ``Exchange.cross``.
        """
        messages, p = self._messages, self.p
        messages.results[:count, STATE] = _UNSEEN
        for ahead in range(count):
            tag, distance = self._next_tag(), level + 1 + ahead
            messages.expand(tag, scratch, labels, distance, self.bin_rows, self._parents, edges, ahead)
            self._start(self._first(sliced=False), level + ahead, phase)
            messages.contract(tag, scratch, labels, distance, ahead, most)
        queued_at = time.perf_counter()
        self._wait(level, phase, lambda: self._levels_seen(count))
        results: list[LevelResult] = []
        large, bins = False, [0] * 3 * p
        for own, discovered, expanded, found, expanded_edges, received, state, *rest in messages.results[
            :count
        ].tolist():
            if state & HALTED:
                break
            if state & OTHER_CROSSING:
                raise self._stale(tag, level + len(results), phase)
            bins, large = rest, bool(state & LARGE_BINS)
            bins[self.rank] = bins[p + self.rank] = bins[2 * p + self.rank] = 0
            sent = sum(bins[p : 2 * p])
            results.append(LevelResult(expanded, own, sent, received, discovered, found, expanded_edges))
        # Kept as a list, since a crossing of another kind comes after many levels.
        self._level_ends = bins[:p]
        last = len(results) - 1
        # The queue with the frontier of the last level.
        scratch.adopt(scratch.current ^ last & 1, 0)
        crossed_at = time.perf_counter()
        if large:
            self._follow_levels()
            sizes = np.array(bins[p : 2 * p], np.int64)
            self._sent -= sizes
            self._receive_bins(sizes, bins[2 * p :], level + last, phase)
            self._sent += sizes
            crossed_at = time.perf_counter()
            if self._incoming:
                for rows, parents in self.incoming():
                    messages.contract_large(rows, parents, scratch, labels, level + last + 1)
                results[last] = results[last]._replace(discovered=messages.queued())
        scratch.advance(results[last].discovered)
        return LevelResults(results, queued_at, crossed_at)

    def absorb(self, scratch: Scratch) -> None:
        """Make the slices of the last crossing the frontier's bitmap, and mark the frontier visited."""
        self._messages.absorb(self._slices.reshape(-1), scratch)

    def cross_search(
        self, level: int, phase: str, scratch: Scratch, labels: RankLabels
    ) -> tuple[Measured, Measured, float]:
        """Run a bottom-up level and its crossing, with slices. Leaves the next frontier in ``scratch.next_queue``.

        Args:
            level: the level; it labels vertices with ``level + 1``.
            phase: the phase, named in errors.
            scratch: this rank's working memory; the frontier's bitmap is absorbed.
            labels: this rank's labels.

        Returns:
            The rank's own counts of the crossing, those of all ranks, and when the level was queued, in seconds
            of ``time.perf_counter()``.

        Errors as for ``Exchange.cross``.
        """
        tag = self._next_tag()
        self._messages.search(tag, self.slice(), scratch, labels, level + 1)
        return self._cross_found(tag, level, phase)

    def cross_measured(self, level: int, phase: str, scratch: Scratch) -> tuple[Measured, Measured, float]:
        """Cross with the slice, size and degrees of the frontier; else as ``cross_search``."""
        tag = self._next_tag()
        self._messages.measure(tag, self.slice(), scratch)
        return self._cross_found(tag, level, phase)

    def _cross_found(self, tag: Tag, level: int, phase: str) -> tuple[Measured, Measured, float]:
        self._start(self._first(sliced=True), level, phase)
        queued_at = time.perf_counter()
        self._wait(level, phase)
        own = Measured._make(self._messages.incoming[self.rank, FIRST_COUNT : FIRST_COUNT + COUNTS].tolist())
        self._gather(tag, own, level, phase)
        self._incoming = {}
        return own, joined(Measured, self.gathered), queued_at

    def incoming(self) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint32] | None]]:
        """See ``Exchange.incoming``."""
        yield from self._incoming.values()

    def rows_from(self, source: int) -> NDArray[np.uint32]:
        """Return the rows that a peer binned for this rank before the last crossing, readable until the next one."""
        rows: NDArray[np.uint32] = self._incoming[source][0] if source in self._incoming else self.bin_rows[:0]
        return rows

    def slice_of(self, source: int) -> NDArray[np.uint32]:
        """See ``Exchange.slice_of``."""
        of_source: NDArray[np.uint32] = self._slices[source]
        return of_source

    def close(self) -> None:
        """See ``Exchange.close``."""
        self.disconnect()
        self._incoming = {}

    @property
    def _parents(self) -> Any | None:
        return self.bin_parents if self._predecessors else None

    def _next_tag(self) -> Tag:
        self._crossing += 1
        return self._number, self._crossing, self._digest

    def _first(self, *, sliced: bool) -> list[Transfer]:
        """Return the transfers of which both ends know the sizes beforehand."""
        messages = self._message_transfers[self._predecessors]
        if not sliced:
            return messages
        slices, size = self._addresses[2], 4 * self._stripe.words_local
        own = slices + self.rank * size
        return messages + [(peer, own, size, slices + peer * size, size) for peer in self._peers]

    def _follow_levels(self) -> None:
        """Take over the ends of the bins from ``cross_levels``."""
        if self._level_ends is not None:
            self.bin_ends[:] = self._sent[:] = self._level_ends
            self._level_ends = None

    def _gather(self, tag: Tag, counts: NamedTuple, level: int, phase: str) -> None:
        """Read the counts of all ranks.

        Raises:
            StaleRunError: a peer is in another run.
        """
        if self._strangers(tag):
            raise self._stale(tag, level, phase)
        self.gathered[:] = self._messages.incoming[:, FIRST_COUNT : FIRST_COUNT + COUNTS]
        self.gathered[self.rank, : len(counts)] = counts

    def _strangers(self, tag: Tag) -> list[int]:
        """Return the peers whose last messages are of another crossing."""
        return [peer for peer in self._peers if tuple(self._messages.incoming[peer, : RUN + 1].tolist()) != tag]

    def _stale(self, tag: Tag, level: int, phase: str) -> StaleRunError:
        """End the communicator, because a peer is in another run."""
        self._end_communicator()
        # A peer that went wrong in an earlier level queued together with this one may have come right since.
        peer = (*self._strangers(tag), *self._peers)[0]
        return StaleRunError(f"{self._where(level, phase)}: rank {peer} is in another run")

    def _receive_bins(self, sizes: NDArray[np.int64], coming: Sequence[int], level: int, phase: str) -> None:
        """Exchange the bins that are too large for the messages, and keep those received in ``_incoming``.

        Args:
            sizes: entries of the bin for each peer.
            coming: entries of the bin that comes from each peer.
            level: the level, for errors.
            phase: the phase, for errors.
        """
        bin_rows, bin_parents = self._addresses[:2]
        starts = (4 * (self._bins + self._sent)).tolist()
        self._incoming = {}
        transfers: list[Transfer] = []
        for peer in self._peers:
            size, arriving = int(sizes[peer]), coming[peer]
            rows = parents = None
            if arriving > INLINE:
                rows = self._xp.empty(arriving, np.uint32)
                parents = self._xp.empty(arriving, np.uint32) if self._predecessors else None
                self._incoming[peer] = rows, parents
            for place, arrives, wanted in ((bin_rows, rows, True), (bin_parents, parents, self._predecessors)):
                sent_bytes = 4 * size if wanted and size > INLINE else 0
                received = (0, 0) if arrives is None else (self._library.address(arrives), 4 * arriving)
                if sent_bytes or received[1]:
                    transfers.append((peer, place + starts[peer], sent_bytes, *received))
        if transfers:
            self._start(transfers, level, phase)
            self._wait(level, phase)

    def _levels_seen(self, count: int) -> int:
        """Return how many of ``count`` levels queued together have ended; the last one is not counted."""
        return int(np.count_nonzero(self._messages.results[: count - 1, STATE] != _UNSEEN))
