"""The exchange between ranks that share no memory: each crossing is one message to every peer, carried by a ``Post``.

A message holds the counts, what was binned for that peer since the last crossing, and the slice where there is one. A
rank has crossed when it has a message of this crossing from every peer; there is no other barrier. Messages carry the
run's id and number: those of an older run are dropped, those of a run this rank has yet to begin are kept.
"""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.errors import DbfsError, DeadlineExceededError, StaleRunError
from dbfs_workers.exchange.protocol import COUNTS, Cause, abort_error
from dbfs_workers.storage.stripe import Stripe


@dataclass(frozen=True)
class Letter:
    """What one rank sends another at one crossing.

    Attributes:
        number: the gang's running number of the run.
        crossing: crossings of this run so far.
        rows: uint32 local ids on the receiver, binned since the last crossing.
        parents: uint32 internal ids, as many; None where no predecessors are wanted.
        slice: uint32[words_local] of the sender's frontier; None in a crossing without slices.
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
        """Bytes of its arrays."""
        return sum(array.nbytes for array in (self.rows, self.parents, self.slice) if array is not None)


@dataclass(frozen=True)
class Abort:
    """Ends a run on the rank that gets it. ``rank`` is the one to blame."""

    number: int
    cause: Cause
    rank: int
    message: str


class Post(Protocol):
    """Carries messages to peers, in order for each of them. Called from any thread; returns at once.

    What can't be delivered because the peer is gone is reported by ``CommExchange.lost``.
    """

    def send(self, peer: int, message: Letter | Abort) -> None:
        """Send a message to a rank."""
        ...

    def close(self) -> None:
        """Let go of the connections."""
        ...


class CommExchange:
    """See ``dbfs_workers.exchange.protocol.Exchange``."""

    def __init__(self, stripe: Stripe, rank: int, post: Post) -> None:
        self.rank = rank
        self.p = stripe.p
        self._post = post
        self._n_local = stripe.n_local
        self._peers = [peer for peer in range(self.p) if peer != rank]
        # Only what is written takes memory, as in shared memory: a bin is filled once from front to back.
        self.bin_rows = np.empty(self.p * stripe.n_local, np.uint32)
        self.bin_parents = np.empty(self.p * stripe.n_local, np.uint32)
        self.bin_ends = np.zeros(self.p, np.int64)
        self.gathered = np.zeros((self.p, COUNTS), np.int64)
        self._sent = [0] * self.p
        self._slices = [np.zeros(stripe.words_local, np.uint32) for _ in (0, 1)]
        self._predecessors = False
        self._run_id = ""
        self._number = 0
        self._crossing = 0
        self._deadline = 0.0
        self._changed = threading.Condition()
        self._letters: dict[tuple[int, int, int], Letter] = {}
        self._received: dict[int, Letter] = {}
        self._abort: Abort | None = None

    def begin(self, run_id: str, number: int, deadline: float) -> None:
        """See ``Exchange.begin``."""
        with self._changed:
            if number <= self._number:
                raise StaleRunError(
                    f"rank {self.rank}: run {run_id} has number {number}, not after {self._number}, the last one's"
                )
            self._run_id, self._number, self._deadline = run_id, number, deadline
            self._crossing = 0
            self._letters = {place: letter for place, letter in self._letters.items() if letter.number >= number}

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
            self._post.send(peer, self._letter(peer, counts, sliced))
        wanted = [(self._number, self._crossing, peer) for peer in self._peers]
        with self._changed:
            while True:
                if self._abort is not None and self._abort.number == self._number:
                    raise self._aborted(where, self._abort)
                missing = [place[2] for place in wanted if place not in self._letters]
                remaining = self._deadline - time.monotonic()
                if remaining > 0 and missing:
                    self._changed.wait(remaining)
                    continue
                break
            self._received = {} if missing else {place[2]: self._letters.pop(place) for place in wanted}
        if remaining <= 0:
            waited_for = f"waiting for rank {missing[0]}" if missing else "at the barrier"
            self.abort(self._number, Cause.DEADLINE, f"level {level}, {phase}, {waited_for}")
            raise DeadlineExceededError(f"{where}: the deadline passed {waited_for}")
        for peer, letter in self._received.items():
            if letter.run_id != self._run_id:
                raise StaleRunError(f"{where}: rank {peer} is in another run")
            self.gathered[peer] = letter.counts
        self.gathered[self.rank] = counts
        sums: list[int] = self.gathered.sum(axis=0).tolist()
        return sums

    def incoming(self) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint32] | None]]:
        """See ``Exchange.incoming``."""
        for letter in self._received.values():
            if letter.rows.size:
                yield letter.rows, letter.parents

    def slice_of(self, source: int) -> NDArray[np.uint32]:
        """See ``Exchange.slice_of``."""
        if source == self.rank:
            return self._slices[self._crossing & 1]
        sent = self._received[source].slice
        assert sent is not None
        return sent

    def abort(self, number: int, cause: Cause, message: str) -> None:
        """See ``Exchange.abort``."""
        abort = Abort(number, cause, self.rank, message)
        if self.receive(abort):
            for peer in self._peers:
                self._post.send(peer, abort)

    def lost(self, number: int, peer: int) -> None:
        """A peer is gone, and with it the run, which this rank may have yet to begin."""
        abort = Abort(number, Cause.LOST, peer, f"lost rank {peer}")
        if self.receive(abort):
            for other in self._peers:
                if other != peer:
                    self._post.send(other, abort)

    def receive(self, message: Letter | Abort) -> bool:
        """Take a message from the post; returns whether it was news."""
        with self._changed:
            if message.number < self._number:
                return False
            if isinstance(message, Abort):
                if self._abort is not None and self._abort.number >= message.number:
                    return False
                self._abort = message
            else:
                self._letters[message.number, message.crossing, message.source] = message
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """See ``Exchange.close``."""
        self._post.close()
        self._letters, self._received = {}, {}

    def _letter(self, peer: int, counts: tuple[int, ...], sliced: bool) -> Letter:
        start, end = self._sent[peer], int(self.bin_ends[peer])
        self._sent[peer] = end
        base = peer * self._n_local
        return Letter(
            run_id=self._run_id,
            number=self._number,
            crossing=self._crossing,
            source=self.rank,
            counts=counts,
            rows=self.bin_rows[base + start : base + end],
            parents=self.bin_parents[base + start : base + end] if self._predecessors else None,
            slice=self._slices[self._crossing & 1] if sliced else None,
        )

    def _aborted(self, where: str, abort: Abort) -> DbfsError:
        return abort_error(abort.cause, where, abort.rank, abort.message)
