"""NCCL for tests: ranks are threads of one process, and transfers are copies between their arrays."""

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers import backends
from dbfs_workers.cuda.communicator import (
    FIRST_COUNT,
    FIRST_END,
    HEADER,
    INLINE,
    LARGE_BINS,
    OTHER_CROSSING,
    RUN,
    SIZE,
    START,
    CommunicatorFailedError,
    Messages,
    Tag,
    Transfer,
)
from dbfs_workers.exchange.comm import AbortMessages, CrossingMessage
from dbfs_workers.exchange.nccl import NcclExchange
from dbfs_workers.exchange.protocol import Abort
from dbfs_workers.levels import loop
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.labels import RankLabels
from dbfs_workers.storage.partition import Partition
from dbfs_workers.storage.scratch import Scratch
from dbfs_workers.storage.stripe import Stripe
from tests.support.gang import PATIENCE, Answer


class Network:
    """What all ranks share: the ranks that came by each id, and the bytes under way by id, sender and receiver.

    Attributes:
        broken: what NCCL reports from now on; empty while the network works.
        groups: groups of transfers that ranks started.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ids = 0
        self.came: dict[bytes, set[int]] = {}
        self.under_way: dict[tuple[bytes, int, int], deque[bytes]] = {}
        self.broken = ""
        self.groups = 0


Stream = list[Callable[[], None]]
"""What a rank has queued behind its transfers."""


class FakeLibrary:
    """See ``dbfs_workers.cuda.communicator.Library``."""

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
    """See ``dbfs_workers.cuda.communicator.Communicator``. Transfers between two ranks match in order."""

    def __init__(self, network: Network, unique_id: bytes, rank: int, stream: Stream) -> None:
        self._network = network
        self._id = unique_id
        self._rank = rank
        self._stream = stream
        self._awaited: list[tuple[int, int, int]] = []
        self.aborted = False

    def start(self, transfers: Sequence[Transfer]) -> None:
        assert not self.aborted
        assert not self._awaited
        assert not self._stream
        self._network.groups += 1
        for peer, sent, sent_bytes, received, received_bytes in transfers:
            assert peer != self._rank
            if sent_bytes:
                self._queue(self._rank, peer).append(ctypes.string_at(sent, sent_bytes))
            if received_bytes:
                self._awaited.append((peer, received, received_bytes))

    def done(self) -> bool:
        self.check()
        awaited, self._awaited = self._awaited, []
        for peer, received, received_bytes in awaited:
            queue = self._queue(peer, self._rank)
            # Later transfers from the same peer must not overtake this one.
            if not queue or any(peer == late for late, _, _ in self._awaited):
                self._awaited.append((peer, received, received_bytes))
                continue
            data = queue.popleft()
            assert len(data) == received_bytes, f"rank {peer} sends {len(data)} bytes, {received_bytes} are awaited"
            ctypes.memmove(received, data, received_bytes)
        if self._awaited:
            # The ranks share the interpreter.
            time.sleep(0)
            return False
        while self._stream:
            self._stream.pop(0)()
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
    """See ``dbfs_workers.backends.protocol.OutgoingBins``."""

    bin_rows: Any
    bin_parents: Any
    bin_ends: NDArray[np.int64]


class NumpyMessages:
    """See ``dbfs_workers.cuda.communicator.Messages``. Its device is the host."""

    def __init__(self, stripe: Stripe, rank: int, stream: Stream) -> None:
        self.xp = np
        self.outgoing, self.incoming = (np.zeros((stripe.p, HEADER + INLINE), np.int64) for _ in range(2))
        self.result = np.zeros(FIRST_END + 2 * stripe.p, np.int64)
        self._stripe, self._rank, self._stream = stripe, rank, stream
        self._backend = backends.get("cpu")
        self.reset()

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
    ) -> None:
        bins = Bins(bin_rows, np.empty(0, np.uint32) if bin_parents is None else bin_parents, self._ends)
        self._expanded, self._own, _, unfinished = self._backend.top_down(scratch, labels, distance, bins)
        assert not unfinished
        assert self._expanded <= edges
        self._queued = self._own
        sizes = self._ends - self._sent
        self.outgoing[:, :HEADER] = 0
        self.outgoing[:, : RUN + 1] = tag
        self.outgoing[:, SIZE] = sizes
        self.outgoing[:, FIRST_COUNT : FIRST_COUNT + 2] = self._own + sizes.sum(), self._expanded
        for peer, message in enumerate(self.outgoing):
            self._copy(message, peer * self._stripe.n_local + int(self._sent[peer]), bin_rows, bin_parents)

    def contract(self, tag: Tag, scratch: Scratch, labels: RankLabels, distance: int) -> None:
        def contract() -> None:
            sizes, state = self._ends - self._sent, 0
            sums = np.array([self._own + sizes.sum(), self._expanded, 0])
            for peer, message in enumerate(self.incoming):
                if peer == self._rank:
                    continue
                if tuple(message[: RUN + 1].tolist()) != tag:
                    state |= OTHER_CROSSING
                    continue
                size, entries = int(message[SIZE]), message[HEADER:].view(np.uint32)
                sums += *message[FIRST_COUNT : FIRST_COUNT + 2], size
                if max(size, sizes[peer]) > INLINE:
                    state |= LARGE_BINS
                if size <= INLINE:
                    parents = None if labels.predecessors is None else entries[INLINE : INLINE + size]
                    self._contract(entries[:size], parents, scratch, labels, distance)
            self.result[:FIRST_END] = self._own, self._queued, self._expanded, *sums, state
            self.result[FIRST_END:] = *self._ends, *sizes
            # Mean nothing.
            self.result[[FIRST_END + self._rank, FIRST_END + self._stripe.p + self._rank]] = -7
            self._sent = self._ends.copy()

        self._stream.append(contract)

    def contract_large(
        self, rows: Any, parents: Any | None, scratch: Scratch, labels: RankLabels, distance: int
    ) -> None:
        self._contract(rows, parents, scratch, labels, distance)

    def queued(self) -> int:
        return self._queued

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


MakeMessages = Callable[[Stripe, int, Stream], Messages]


class Messenger:
    """A ``Transport`` that hands over messages at once. Lost ranks get none."""

    def __init__(self) -> None:
        self.ends: dict[int, AbortMessages] = {}

    def send(self, peer: int, message: CrossingMessage | Abort) -> None:
        assert isinstance(message, Abort)
        if peer in self.ends:
            self.ends[peer].receive(message)

    def close(self) -> None:
        self.ends = {}


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
            NcclExchange(stripe, rank, self.messages, FakeLibrary(self.network, stream))
            for rank, stream in enumerate(streams)
        ]
        self.messages.ends = dict(enumerate(self.exchanges))
        self.scratches = [Scratch(partition, backend.xp) for partition in partitions]
        for rank, (exchange, stream) in enumerate(zip(self.exchanges, streams, strict=True)):
            exchange.allocate(self._messages(stripe, rank, stream))
        self.connect()

    def connect(self) -> None:
        """As the service does when it forms the gang, and after a failed run."""
        unique_id = self.exchanges[0].new_id()
        list(self.threads.map(lambda exchange: exchange.connect(unique_id), self.exchanges))

    def start(self, *specs: TraversalSpec, seconds: float = PATIENCE) -> list[Any]:
        """Start a run; return a future for each rank."""
        self.number += 1
        number = self.number

        def run(rank: int) -> Any:
            deadline, watch = time.monotonic() + seconds, loop.Watch(number)
            backend = backends.get("cpu")
            scratch, exchange = self.scratches[rank], self.exchanges[rank]
            return loop.traverse(backend, scratch, list(specs), exchange, watch=watch, deadline=deadline)

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
