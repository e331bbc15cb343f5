"""NCCL for tests: ranks are threads of one process, and transfers are copies between their arrays."""

import copy
import ctypes
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import distributed
import numpy as np
import pytest
from numpy.typing import NDArray

import dbfs
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.search import backends
from dbfs_workers.search.cuda import nccl
from dbfs_workers.search.cuda.communicator import (
    FIRST_COUNT,
    FIRST_END,
    HALTED,
    HEADER,
    INLINE,
    LARGE,
    LARGE_BINS,
    MOST_AHEAD,
    OTHER_CROSSING,
    RUN,
    SIZE,
    START,
    STATE,
    CommunicatorFailedError,
    Messages,
    Tag,
    Transfer,
)
from dbfs_workers.search.exchange import nccl as exchange_by_nccl
from dbfs_workers.search.exchange.nccl import NcclExchange
from dbfs_workers.search.exchange.protocol import Abort
from dbfs_workers.search.exchange.transport import AbortMessages
from dbfs_workers.search.levels import loop
from dbfs_workers.search.levels.traversals import Watch
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports.crossings import COUNTS, Measured
from dbfs_workers.serving import plugin
from tests.support import standin
from tests.support.gang import PATIENCE, Answer, levels_of
from tests.support.pretended_hosts import pretended_hosts


class Network:
    """What all ranks share: the ranks that came by each id, and the bytes under way by id, sender and receiver.

    Attributes:
        broken: what NCCL reports from now on; empty while the network works.
        breaks_after: the group of transfers after which the network breaks; 0 for none.
        groups: groups of transfers that ranks started.
        waits: how often a rank saw the end of all that it had queued.
        largest: by sender and receiver, the bytes of the largest transfer.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ids = 0
        self.came: dict[bytes, set[int]] = {}
        self.under_way: dict[tuple[bytes, int, int], deque[bytes]] = {}
        self.broken = ""
        self.breaks_after = 0
        self.groups = 0
        self.waits = 0
        self.largest: dict[tuple[int, int], int] = {}


Stream = list[Callable[[], bool]]
"""What a rank has queued, in order. A step that returns False has to wait."""


class FakeLibrary:
    """See ``dbfs_workers.search.cuda.communicator.Library``."""

    def __init__(self, network: Network, stream: Stream) -> None:
        self._network = network
        self._stream = stream

    def new_id(self) -> bytes:
        with self._network.lock:
            self._network.ids += 1
            return b"id %d" % self._network.ids

    def connect(
        self, p: int, rank: int, unique_id: bytes, transfers: Sequence[Transfer], watch: Callable[[], None]
    ) -> "FakeCommunicator":
        with self._network.lock:
            came = self._network.came.setdefault(unique_id, set())
            assert rank not in came, f"rank {rank} came twice by {unique_id!r}"
            came.add(rank)
        while len(came) < p:
            watch()
            time.sleep(0)
        communicator = FakeCommunicator(self._network, unique_id, rank, self._stream)
        communicator.start(transfers)
        while not communicator.done():
            watch()
        return communicator

    def pinned(self, words: int) -> NDArray[np.int64]:
        return np.zeros(words, np.int64)

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)


class FakeCommunicator:
    """See ``dbfs_workers.search.cuda.communicator.Communicator``. Transfers between two ranks match in order."""

    def __init__(self, network: Network, unique_id: bytes, rank: int, stream: Stream) -> None:
        self._network = network
        self._id = unique_id
        self._rank = rank
        self._stream = stream
        self.aborted = False

    def start(self, transfers: Sequence[Transfer]) -> None:
        assert not self.aborted
        awaited: list[tuple[int, int, int]] = []

        def send() -> bool:
            self._network.groups += 1
            if self._network.groups == self._network.breaks_after:
                self._network.broken = "cut"
            for peer, sent, sent_bytes, received, received_bytes in transfers:
                assert peer != self._rank
                if sent_bytes:
                    pair = self._rank, peer
                    self._network.largest[pair] = max(sent_bytes, self._network.largest.get(pair, 0))
                    self._queue(*pair).append(ctypes.string_at(sent, sent_bytes))
                if received_bytes:
                    awaited.append((peer, received, received_bytes))
            return True

        def receive() -> bool:
            late: list[tuple[int, int, int]] = []
            for peer, received, received_bytes in awaited:
                queue = self._queue(peer, self._rank)
                # Later transfers from the same peer must not overtake this one.
                if not queue or any(peer == other for other, _, _ in late):
                    late.append((peer, received, received_bytes))
                    continue
                data = queue.popleft()
                assert len(data) == received_bytes, f"rank {peer} sends {len(data)} bytes, {received_bytes} are awaited"
                ctypes.memmove(received, data, received_bytes)
            awaited[:] = late
            return not late

        self._stream += [send, receive]

    def done(self) -> bool:
        self.check()
        while self._stream:
            if not self._stream[0]():
                # The ranks share the interpreter.
                time.sleep(0)
                return False
            self._stream.pop(0)
            self.check()
        self._network.waits += 1
        return True

    def check(self) -> None:
        if self._network.broken:
            raise CommunicatorFailedError(self._network.broken)

    def abort(self) -> None:
        assert not self.aborted
        self.aborted = True
        self._stream.clear()

    def _queue(self, sender: int, receiver: int) -> deque[bytes]:
        with self._network.lock:
            return self._network.under_way.setdefault((self._id, sender, receiver), deque())


@dataclass
class Bins:
    """See ``dbfs_workers.search.backend.OutgoingBins``."""

    bin_rows: Any
    bin_parents: Any
    bin_ends: NDArray[np.int64]


class NumpyMessages:
    """See ``dbfs_workers.search.cuda.communicator.Messages``. Its device is the host."""

    def __init__(self, stripe: Stripe, rank: int, stream: Stream) -> None:
        self.xp: Any = np
        self.outgoing: Any = np.zeros((stripe.p, HEADER + INLINE), np.int64)
        self.incoming = np.zeros((stripe.p, HEADER + INLINE), np.int64)
        self.results = np.zeros((MOST_AHEAD, FIRST_END + 3 * stripe.p), np.int64)
        self._size, self._halted = 0, False
        self._stripe, self._rank, self._stream = stripe, rank, stream
        self._backend = backends.get("cpu")
        self.reset()

    def most_ahead(self, max_degree: int) -> int:
        return min(64, 1024 // max(1, max_degree))

    def reset(self) -> None:
        self._sent = np.zeros(self._stripe.p, np.int64)
        self._ends = np.zeros(self._stripe.p, np.int64)

    def pack(self, headers: NDArray[np.int64], bin_rows: Any, bin_parents: Any | None) -> None:
        self.outgoing[:, :HEADER] = headers
        for message in self.outgoing:
            self._copy(message, int(message[START]), bin_rows, bin_parents)

    def expand(
        self,
        tag: Tag,
        scratch: Scratch,
        labels: RankLabels,
        distance: int,
        bin_rows: Any,
        bin_parents: Any | None,
        edges: int,
        ahead: int,
    ) -> None:
        if ahead:
            self._stream.append(
                lambda: self._expand_ahead(tag, scratch, labels, distance, bin_rows, bin_parents, ahead)
            )
            return
        assert not self._stream
        self._expand(tag, scratch, labels, distance, bin_rows, bin_parents)
        assert self._expanded <= edges

    def _expand_ahead(
        self,
        tag: Tag,
        scratch: Scratch,
        labels: RankLabels,
        distance: int,
        bin_rows: Any,
        bin_parents: Any | None,
        ahead: int,
    ) -> bool:
        if self._halted:
            self.outgoing[:, :HEADER] = 0
            self.outgoing[:, : RUN + 1] = tag
            return True
        self._expand(tag, _later(scratch, ahead, self._size), labels, distance, bin_rows, bin_parents)
        return True

    def _expand(
        self, tag: Tag, scratch: Scratch, labels: RankLabels, distance: int, bin_rows: Any, bin_parents: Any | None
    ) -> None:
        bins = Bins(bin_rows, np.empty(0, np.uint32) if bin_parents is None else bin_parents, self._ends)
        self._expanded, self._own, _, unfinished = self._backend.top_down(scratch, labels, distance, bins)
        assert not unfinished
        self._queued = self._own
        sizes = self._ends - self._sent
        self.outgoing[:, :HEADER] = 0
        self.outgoing[:, : RUN + 1] = tag
        self.outgoing[:, SIZE] = sizes
        self.outgoing[:, FIRST_COUNT : FIRST_COUNT + 2] = self._own + sizes.sum(), self._expanded
        self.outgoing[:, LARGE] = sizes.max() > INLINE
        for peer, message in enumerate(self.outgoing):
            self._copy(message, peer * self._stripe.n_local + int(self._sent[peer]), bin_rows, bin_parents)

    def contract(self, tag: Tag, scratch: Scratch, labels: RankLabels, distance: int, ahead: int, most: int) -> None:
        def contract() -> bool:
            result = self.results[ahead]
            if ahead and self._halted:
                result[STATE] = HALTED
                return True
            later = _later(scratch, ahead, 0)
            sizes, state = self._ends - self._sent, 0
            coming = self.incoming[:, SIZE]
            sums = np.array([self._own + sizes.sum(), self._expanded, 0])
            for peer, message in enumerate(self.incoming):
                if peer == self._rank:
                    continue
                if tuple(message[: RUN + 1].tolist()) != tag:
                    state |= OTHER_CROSSING
                    continue
                size, entries = int(message[SIZE]), message[HEADER:].view(np.uint32)
                sums += *message[FIRST_COUNT : FIRST_COUNT + 2], size
                if sizes[peer] > INLINE or message[LARGE]:
                    state |= LARGE_BINS
                if size <= INLINE:
                    parents = None if labels.predecessors is None else entries[INLINE : INLINE + size]
                    self._contract(entries[:size], parents, later, labels, distance)
            result[:FIRST_END] = self._own, self._queued, self._expanded, *sums, state
            result[FIRST_END:] = *self._ends, *sizes, *coming
            # Mean nothing.
            result[FIRST_END + self._rank :: self._stripe.p] = -7
            self._sent = self._ends.copy()
            self._size, self._halted = self._queued, bool(state) or not 0 < sums[0] <= most
            return True

        self._stream.append(contract)

    def contract_large(
        self, rows: Any, parents: Any | None, scratch: Scratch, labels: RankLabels, distance: int
    ) -> None:
        self._contract(rows, parents, scratch, labels, distance)

    def queued(self) -> int:
        return self._queued

    def absorb(self, slices: Any, scratch: Scratch) -> None:
        assert scratch.frontier_bits is not None
        self._backend.absorb(slices, scratch.frontier_bits, scratch.visited)

    def search(self, tag: Tag, found_bits: Any, scratch: Scratch, labels: RankLabels, distance: int) -> None:
        searched, found, degrees = self._backend.bottom_up(scratch, labels, distance, found_bits)
        self._pack_found(tag, searched, found, degrees)

    def measure(self, tag: Tag, bits: Any, scratch: Scratch) -> None:
        self._backend.mark(scratch.frontier, bits)
        degrees = self._backend.edge_count(scratch.partition, scratch.frontier)
        self._pack_found(tag, 0, scratch.frontier.size, degrees)

    def _pack_found(self, tag: Tag, searched: int, found: int, degrees: int) -> None:
        for header in (*self.outgoing[:, :HEADER], self.incoming[self._rank, :HEADER]):
            header[:] = 0
            header[: RUN + 1] = tag
            header[FIRST_COUNT : FIRST_COUNT + COUNTS] = Measured(found, degrees, searched=searched)

    def _contract(self, rows: Any, parents: Any | None, scratch: Scratch, labels: RankLabels, distance: int) -> None:
        queue = scratch.next_queue[self._queued :]
        self._queued += self._backend.contract(rows, parents, scratch.own_visited, distance, labels, queue)

    def _copy(self, message: NDArray[np.int64], start: int, bin_rows: Any, bin_parents: Any | None) -> None:
        size, entries = int(message[SIZE]), message[HEADER:].view(np.uint32)
        # Rows and parents behind the bin's size mean nothing.
        entries[:] = 0xFFFFFFFF
        if size <= INLINE:
            entries[:size] = bin_rows[start : start + size]
            if bin_parents is not None:
                entries[INLINE : INLINE + size] = bin_parents[start : start + size]


def _later(scratch: Scratch, ahead: int, size: int) -> Scratch:
    """Return the working memory as it is ``ahead`` levels later, with a frontier of ``size``."""
    later = copy.copy(scratch)
    if ahead:
        later.adopt(scratch.current ^ ahead & 1, size)
    return later


MakeMessages = Callable[[Stripe, int, Stream], Messages]


class Messenger:
    """Hands over the ends of runs at once. Lost ranks get none."""

    def __init__(self) -> None:
        self.ends: dict[int, AbortMessages] = {}

    def send(self, peer: int, abort: Abort) -> None:
        if peer in self.ends:
            self.ends[peer].receive(abort)


class NcclGang:
    """The ranks of a gang by ``NcclExchange``, each in a thread."""

    def __init__(self, p: int, messages: MakeMessages = NumpyMessages) -> None:
        self.p = p
        self._messages = messages
        self.network = Network()
        self.messages = Messenger()
        self.threads = ThreadPoolExecutor(p)
        self.exchanges: list[NcclExchange] = []
        self.scratches: list[Scratch] = []
        self.number = 0

    def load(self, partitions: Sequence[Partition]) -> None:
        backend = backends.get("cpu")
        stripe: Stripe = partitions[0].stripe
        streams: list[Stream] = [[] for _ in range(self.p)]
        self.exchanges = [
            NcclExchange(stripe, rank, self.messages.send, FakeLibrary(self.network, stream))
            for rank, stream in enumerate(streams)
        ]
        self.messages.ends = dict(enumerate(self.exchanges))
        self.scratches = [Scratch(partition, backend.xp) for partition in partitions]
        for rank, (exchange, stream) in enumerate(zip(self.exchanges, streams, strict=True)):
            exchange.allocate(self._messages(stripe, rank, stream))
        self.connect()

    def connect(self) -> None:
        """As the service does when it forms the gang, and after a failed run."""
        offers = [exchange.offer() for exchange in self.exchanges]
        list(self.threads.map(lambda exchange: exchange.connect(offers), self.exchanges))

    def start(self, *specs: TraversalSpec, seconds: float = PATIENCE) -> list[Any]:
        """Start a run; return a future for each rank."""
        self.number += 1
        number = self.number

        def run(rank: int) -> Any:
            deadline, watch = time.monotonic() + seconds, Watch(number)
            scratch, exchange = self.scratches[rank], self.exchanges[rank]
            return loop.traverse(levels_of(scratch, exchange), specs, exchange, watch=watch, deadline=deadline)

        return [self.threads.submit(run, rank) for rank in range(self.p)]

    def run(self, *specs: TraversalSpec) -> list[Answer]:
        ranks = [future.result(PATIENCE) for future in self.start(*specs)]
        return [Answer(runs) for runs in zip(*ranks, strict=True)]


@contextmanager
def by_nccl(p: int, messages: MakeMessages = NumpyMessages) -> Iterator[NcclGang]:
    """Make a gang for one test; ``messages`` makes what packs its messages."""
    gang = NcclGang(p, messages)
    try:
        yield gang
    finally:
        for exchange in gang.exchanges:
            exchange.close()
        gang.threads.shutdown(wait=False, cancel_futures=True)


@contextmanager
def cluster_by_nccl() -> Iterator[distributed.Client]:
    """Start a cluster of four workers within this process, on two hosts of two GPUs each; all are stand-ins."""
    with pytest.MonkeyPatch.context() as patch:
        standin.install(patch, mapped=False)
        cpu, gpus, network = backends.get("cpu"), itertools.count(), Network()
        patch.setattr(backends, "get", lambda _: cpu)
        patch.setattr(plugin, "own_gpu", lambda: str(next(gpus)))
        patch.setattr(nccl, "require", lambda: None)
        patch.setattr(nccl, "Nccl", lambda: FakeLibrary(network, []))
        # ``stay_on_loopback`` leaves a value that is there.
        patch.setenv("NCCL_SOCKET_IFNAME", "=lo")
        patch.setattr(
            exchange_by_nccl,
            "CudaMessages",
            lambda stripe, rank, pinned: NumpyMessages(stripe, rank, pinned.__self__._library._stream),
        )
        with (
            dbfs.connect(n_workers=4, backend="cpu", processes=False, dashboard_address=None) as client,
            pretended_hosts(client, (0, 0, 1, 1)),
        ):
            yield client
