"""The exchange between ranks that share no memory: at each crossing a rank sends one message to every peer.

A message has the sender's counts, its new bin entries for that peer, and its slice if the level has slices. A rank has
crossed when it has a message of this crossing from every peer; there is no other barrier. Every message carries the
run's id and number. Messages of an earlier run are dropped; messages of a run that has yet to begin here are kept.
"""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.errors import DeadlineExceededError, StaleRunError
from dbfs_workers.exchange.protocol import COUNTS, Abort, Cause, abort_error, require_later
from dbfs_workers.storage.stripe import Stripe


@dataclass(frozen=True)
class CrossingMessage:
    """The message from one rank to another at one crossing.

    Attributes:
        run_id: the attempt's id.
        number: the gang's serial number of the run.
        crossing: number of the crossing in its run, from 1.
        source: the rank that sends.
        counts: the sender's counts, ``COUNTS`` of them.
        rows: uint32[k], the local ids on the receiver that were binned since the last crossing.
        parents: uint32[k], the internal ids of their parents; None without predecessors.
        slice: uint32[words_local], the sender's slice of the frontier; None in a crossing without slices.
    """

    run_id: str
    number: int
    crossing: int
    source: int
    counts: tuple[int, ...]
    rows: NDArray[np.uint32]
    parents: NDArray[np.uint32] | None
    slice: NDArray[np.uint32] | None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in (self.rows, self.parents, self.slice) if array is not None)


class Transport(Protocol):
    """Carrier of messages to peers, in order for each peer. Calls ``AbortMessages.peer_lost`` if delivery fails."""

    def send(self, peer: int, message: CrossingMessage | Abort) -> None:
        """Queue a message to a rank. Callable from any thread; returns at once."""
        ...

    def close(self) -> None:
        """Release the connections."""
        ...


class AbortMessages:
    """The end of a run, spread by messages: the base of exchanges whose ranks share no memory.

    ``abort``, ``peer_lost`` and ``receive`` may be called from any thread.
    """

    def __init__(self, p: int, rank: int, transport: Transport) -> None:
        self.rank = rank
        self.p = p
        self._transport = transport
        self._peers = [peer for peer in range(p) if peer != rank]
        self._number = 0
        self._changed = threading.Condition()
        self._abort: Abort | None = None

    def abort(self, number: int, cause: Cause, message: str) -> None:
        """See ``Exchange.abort``."""
        abort = Abort(number, cause, self.rank, message)
        if self.receive(abort):
            for peer in self._peers:
                self._transport.send(peer, abort)

    def peer_lost(self, number: int, peer: int) -> None:
        """See ``Exchange.peer_lost``."""
        abort = Abort(number, Cause.LOST, peer, f"lost rank {peer}")
        if self.receive(abort):
            for other in self._peers:
                if other != peer:
                    self._transport.send(other, abort)

    def receive(self, message: CrossingMessage | Abort) -> bool:
        """Take a message of a peer. Return False if it is ignored: of an earlier run, or not the run's first abort."""
        with self._changed:
            if message.number < self._number:
                return False
            if isinstance(message, Abort):
                if self._abort is not None and self._abort.number >= message.number:
                    return False
                self._abort = message
            else:
                self._keep(message)
            self._changed.notify_all()
            return True

    def _keep(self, message: CrossingMessage) -> None:
        """Keep a message until its crossing. Called with ``_changed`` held."""
        raise NotImplementedError

    def _raise_if_aborted(self, where: str) -> None:
        """Raise the error of this run if the run was aborted; its message begins with ``where``."""
        abort = self._abort
        if abort is not None and abort.number == self._number:
            raise abort_error(abort.cause, where, abort.rank, abort.message)


class CommExchange(AbortMessages):
    """An ``Exchange`` by messages."""

    def __init__(self, stripe: Stripe, rank: int, transport: Transport) -> None:
        super().__init__(stripe.p, rank, transport)
        self._n_local = stripe.n_local
        # Pages that are never written take no memory, as in ``segment``: a bin is filled once from front to back.
        self.bin_rows = np.empty(self.p * stripe.n_local, np.uint32)
        self.bin_parents = np.empty(self.p * stripe.n_local, np.uint32)
        self.bin_ends = np.zeros(self.p, np.int64)
        self.gathered = np.zeros((self.p, COUNTS), np.int64)
        self._sent = [0] * self.p
        self._slices = [np.zeros(stripe.words_local, np.uint32) for _ in (0, 1)]
        self._predecessors = False
        self._run_id = ""
        self._crossing = 0
        self._deadline = 0.0
        self._inbox: dict[tuple[int, int, int], CrossingMessage] = {}
        self._received: dict[int, CrossingMessage] = {}

    def begin(self, run_id: str, number: int, deadline: float) -> None:
        """See ``Exchange.begin``."""
        with self._changed:
            require_later(self.rank, run_id, number, self._number)
            self._run_id, self._number, self._deadline = run_id, number, deadline
            self._crossing = 0
            self._inbox = {key: message for key, message in self._inbox.items() if message.number >= number}

    def reset(self, predecessors: bool) -> None:
        """See ``Exchange.reset``."""
        self.bin_ends[:] = 0
        self._sent = [0] * self.p
        self._predecessors = predecessors

    def slice(self) -> NDArray[np.uint32]:
        """See ``Exchange.slice``."""
        return self._slices[(self._crossing + 1) & 1]

    def cross(self, level: int, phase: str, counts: tuple[int, int, int, int, int], *, sliced: bool) -> list[int]:
        """See ``Exchange.cross``."""
        where = f"run {self._run_id}, rank {self.rank}, level {level}, {phase}"
        self._crossing += 1
        for peer in self._peers:
            self._transport.send(peer, self._message_to(peer, counts, sliced))
        expected = [(self._number, self._crossing, peer) for peer in self._peers]
        with self._changed:
            while True:
                self._raise_if_aborted(where)
                missing = [key[2] for key in expected if key not in self._inbox]
                remaining = self._deadline - time.monotonic()
                if remaining > 0 and missing:
                    self._changed.wait(remaining)
                    continue
                break
            self._received = {} if missing else {key[2]: self._inbox.pop(key) for key in expected}
        if remaining <= 0:
            waited_for = f"waiting for rank {missing[0]}" if missing else "at the barrier"
            self.abort(self._number, Cause.DEADLINE, f"level {level}, {phase}, {waited_for}")
            raise DeadlineExceededError(f"{where}: the deadline passed {waited_for}")
        for peer, message in self._received.items():
            if message.run_id != self._run_id:
                raise StaleRunError(f"{where}: rank {peer} is in another run")
            self.gathered[peer] = message.counts
        self.gathered[self.rank] = counts
        sums: list[int] = self.gathered.sum(axis=0).tolist()
        return sums

    def incoming(self) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint32] | None]]:
        """See ``Exchange.incoming``."""
        for message in self._received.values():
            if message.rows.size:
                yield message.rows, message.parents

    def slice_of(self, source: int) -> NDArray[np.uint32]:
        """See ``Exchange.slice_of``."""
        if source == self.rank:
            return self._slices[self._crossing & 1]
        sent = self._received[source].slice
        assert sent is not None
        return sent

    def close(self) -> None:
        """See ``Exchange.close``."""
        self._transport.close()
        self._inbox, self._received = {}, {}

    def _message_to(self, peer: int, counts: tuple[int, ...], sliced: bool) -> CrossingMessage:
        start, end = self._sent[peer], int(self.bin_ends[peer])
        self._sent[peer] = end
        base = peer * self._n_local
        return CrossingMessage(
            run_id=self._run_id,
            number=self._number,
            crossing=self._crossing,
            source=self.rank,
            counts=counts,
            rows=self.bin_rows[base + start : base + end],
            parents=self.bin_parents[base + start : base + end] if self._predecessors else None,
            slice=self._slices[self._crossing & 1] if sliced else None,
        )

    def _keep(self, message: CrossingMessage) -> None:
        self._inbox[message.number, message.crossing, message.source] = message
