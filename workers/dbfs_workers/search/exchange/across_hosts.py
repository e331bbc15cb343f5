"""The exchange of an envoy: the rank that exchanges frames with the envoys of other hosts, for all ranks of its host.

Each host has a shared memory segment with a part for every rank of the gang. The ranks of the host write their own
parts; the envoy writes the parts of all ranks elsewhere, from the frames of the other envoys. To the other ranks of
the host a crossing is the same as in a gang on one host (``SharedMemoryExchange``).

An envoy crosses in four steps:

1. The envoy publishes its own record and waits until all ranks of its host have published theirs.
2. The envoy sends one frame to each other envoy: the counts of this host's ranks, their new entries of the bins for
   ranks of that host and, in a crossing with slices, their slices.
3. The envoy receives one frame from each other envoy, and publishes the records in it.
4. All ranks of the host now see p records, as in any crossing.

The run's own thread does all of this, because a second thread would cost two switches a level. A kernel crosses as long
as the frames are small and nothing unusual comes (``kernels.envoy``); Python goes on where the kernel stops. An envoy
that has finished a crossing may send its next frame before others have received all frames of this one: so a frame
stays in its stream until the crossing that it belongs to.

The frame of an abort carries the end of a run to the other hosts; a frame that comes too late is skipped. After a run
that failed, the streams are made anew (``offer``, ``connect``), as they may be in the middle of a frame.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import DeadlineExceededError, ExchangeUnavailableError, StaleRunError
from dbfs_workers.base.lines.line import Line, LineClosedError, new_token
from dbfs_workers.base.lines.worker_door import WorkerDoor
from dbfs_workers.search.exchange.hosts import Hosts
from dbfs_workers.search.exchange.kernels import barrier, envoy
from dbfs_workers.search.exchange.kernels.frames import header_words
from dbfs_workers.search.exchange.link import Link
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.exchange.segment import Segment
from dbfs_workers.search.exchange.shared_memory import Offer, SharedMemoryExchange
from dbfs_workers.search.exchange.stream import buffer_words, wait_for_any
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports.crossings import C, largest_bits

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
"""Seconds that connecting to the other hosts may take."""

# Seconds after which a waiting envoy looks for an abort, and after which it checks that the other hosts still answer.
_LOOK_SECONDS = 0.005
_CHECK_SECONDS = 0.2


def end_of(
    stripe: Stripe, rank: int, graph_id: str, hosts: Hosts, door: WorkerDoor, entries: int | None = None
) -> SharedMemoryExchange:
    """Return a rank's end of the exchange of any hosts. Arguments as of ``EnvoyExchange``."""
    if hosts.count > 1 and rank == hosts.envoy_of(rank):
        return EnvoyExchange(stripe, rank, graph_id, hosts, door, entries)
    return SharedMemoryExchange(stripe, rank, graph_id, hosts, entries)


class EnvoyExchange(SharedMemoryExchange):
    """An envoy's end of the exchange.

    Args:
        stripe, rank, graph_id, hosts, entries: see ``SharedMemoryExchange``.
        door: the door of the envoy's worker.
    """

    _crosses_hosts = True
    # The kernel of a crossing, with its arguments; without memory None.
    _kernel: Callable[..., Any] | None = None

    def __init__(
        self, stripe: Stripe, rank: int, graph_id: str, hosts: Hosts, door: WorkerDoor, entries: int | None = None
    ) -> None:
        super().__init__(stripe, rank, graph_id, hosts, entries)
        self._door = door
        # What other envoys show at the door; empty if none is awaited.
        self._token = b""
        self._host = hosts.of_ranks[rank]
        own = self._own = hosts.ranks(self._host)
        others = {host: hosts.ranks(host) for host in range(hosts.count) if host != self._host}
        # Links and frames as the kernel reads them: see ``kernels.envoy``.
        rows = np.zeros((len(others), envoy.LINK), np.int64)
        most = max(map(len, others.values()))
        largest = max(header_words(len(own), most), header_words(most, len(own)))
        # Pages that no frame reaches take no memory.
        frames = np.empty((len(others), 2, buffer_words(largest)), np.int64)
        ranks = list(own)
        for row, peers in zip(rows, others.values(), strict=True):
            row[envoy.FIRST], row[envoy.LAST] = len(ranks), len(ranks) + len(peers)
            ranks += peers
        polled = np.zeros(len(others), np.int64)
        self.frames = envoy.Frames(rows.ravel(), np.array(ranks, np.int64), frames.ravel(), polled)
        self._links = {
            host: Link(own, peers, self.entries, self, row, pair)
            for (host, peers), row, pair in zip(others.items(), rows, frames, strict=True)
        }
        # Held by the thread that uses the streams.
        self._using = threading.Lock()
        # The last run whose abort was sent to the other hosts, or came from them.
        self._told = 0
        # Lines that came in by the door, by the other host.
        self._lines: dict[int, Line] = {}
        self._line_came = threading.Condition()

    def _open(self, segment: Segment) -> None:
        super()._open(segment)
        self._kernel = envoy.cross.bound(self.kernel_arguments, self.frames)

    def accept(self, line: Line) -> None:
        """Take a line of another envoy, which came in by the door. Called in the door's thread."""
        host = int.from_bytes(line.receive(time.monotonic() + CONNECT_SECONDS), "little")
        if host not in self._links or host < self._host:
            raise LineClosedError(f"host {host} opens no line to host {self._host}")
        with self._line_came:
            self._lines[host] = line
            self._line_came.notify_all()
            # The door closes the line when this call ends.
            self._line_came.wait_for(lambda: self._lines.get(host) is not line)

    def offer(self) -> Offer:
        """See ``GangExchange.offer``. Closes the streams of the run before."""
        memory = super().offer()
        with self._using:
            self._close_links()
        self._token = new_token()
        return replace(memory, door=self._door.admit(self._token, self.accept), token=self._token)

    def connect(self, offers: Sequence[Offer]) -> None:
        """See ``GangExchange.connect``: open lines to the hosts of lower number, await lines from the others."""
        try:
            self._connect(offers, time.monotonic() + CONNECT_SECONDS)
        finally:
            self._forget_lines()

    def _connect(self, offers: Sequence[Offer], end: float) -> None:
        open_line = self._door.opener()
        for host, link in self._links.items():
            if host < self._host:
                offer = offers[link.envoy]
                assert offer.door is not None
                try:
                    line = open_line(offer.door, offer.token, end - time.monotonic())
                    line.send(self._host.to_bytes(4, "little"), CONNECT_SECONDS)
                except LineClosedError as error:
                    raise ExchangeUnavailableError(f"rank {self.rank}, to rank {link.envoy}: {error}") from error
            else:
                with self._line_came:
                    if not self._line_came.wait_for(lambda host=host: host in self._lines, end - time.monotonic()):  # type: ignore[misc]
                        raise ExchangeUnavailableError(f"rank {self.rank}: no line from rank {link.envoy} came in time")
                    line = self._lines[host]
            link.open(line)

    def cross(self, level: int, phase: str, counts: C, *, sliced: bool) -> C:
        """See ``Exchange.cross``."""
        self._crossing += 1
        self._record[1 : 1 + len(counts)], self._largest = (*counts,), largest_bits(type(counts))
        with self.in_kernel():
            self._cross(level, phase, sliced=sliced)
        return type(counts)._make(self._sums[: len(counts)].tolist())

    def follow(self, crossing: int, status: int, peer: int, level: int, phase: str, kind: type[NamedTuple]) -> None:
        """See ``SharedMemoryExchange.follow``. The kernel has left an envoy's crossing to this method."""
        self._crossing, self._largest = crossing, largest_bits(kind)
        if status == barrier.TO_CROSS:
            self._cross(level, phase, sliced=False)
        else:
            self._finish(status, peer, level, phase)

    def _cross(self, level: int, phase: str, *, sliced: bool) -> None:
        assert self._kernel is not None
        tag = self._number << 32 | self._crossing
        status, peer = self._kernel(tag, int(self._predecessors), int(sliced), self._largest)
        self._finish(status, peer, level, phase, sliced=sliced)

    @contextlib.contextmanager
    def in_kernel(self) -> Iterator[None]:
        """See ``SharedMemoryExchange.in_kernel``. A run that ends here ends on the other hosts as well."""
        with self._using:
            for link in self._links.values():
                link.enter_kernel()
            try:
                yield
            except BaseException:
                self._send_abort(self._number)
                raise

    def binned(self, source: int, owner: int, size: int) -> list[NDArray[np.uint32]]:
        """See ``HostMemory.binned``."""
        parity, place = self._crossing & 1, slice(owner * self.entries, owner * self.entries + size)
        rows = self._rows[parity][source][place]
        return [rows, self._parents[parity][source][place]] if self._predecessors else [rows]

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        """See ``Exchange.abort``."""
        super().abort(number, cause, message, rank)
        # A thread that crosses looks for aborts while it waits, and sends this one itself.
        if self._using.acquire(blocking=False):
            try:
                self._send_abort(number)
            finally:
                self._using.release()

    def close(self) -> None:
        """See ``Exchange.close``."""
        with self._using:
            self._close_links()
            self._kernel = None
            super().close()

    def _close_links(self) -> None:
        for link in self._links.values():
            link.close()
        self._forget_lines()

    def _forget_lines(self) -> None:
        """Admit no more lines, and let the door's threads go."""
        self._door.refuse(self._token)
        with self._line_came:
            self._lines.clear()
            self._line_came.notify_all()

    def _send_abort(self, number: int) -> None:
        """Send the abort of a run to the other hosts, unless it came from there or was sent before."""
        if self._closed or number <= self._told or barrier.get_abort(self.segment.words) >> barrier.RUN_SHIFT != number:
            return
        self._told, abort = number, self._read_abort()
        for link in self._links.values():
            # A host that is out of reach is lost, and finds that out by itself.
            with contextlib.suppress(LineClosedError):
                link.send_abort(abort)

    def _finish(self, status: int, peer: int, level: int, phase: str, *, sliced: bool = False) -> None:
        """See ``SharedMemoryExchange``: go on from where the kernel is, without the kernel."""
        if status == barrier.CROSSED:
            super()._finish(status, peer, level, phase)
            return
        for rank in self._own:
            # The kernel adds sums behind the last rank's row. Nobody reads these sums; the next rank's record replaces
            # them.
            self._await_ranks(rank, self._gathered[: (rank + 2) * (self._record.size + 1)], level, phase)
        self._swap_frames(level, phase, sliced=sliced)
        self._await_ranks(0, self._gathered, level, phase)
        self._choose_bins()

    def _await_ranks(self, first: int, gathered: NDArray[np.int64], level: int, phase: str) -> None:
        """Wait for the ranks from ``first`` on, up to the last row but one of ``gathered``."""
        status, peer = self._wait_from(first, gathered)
        if status != barrier.CROSSED or time.monotonic() > self._deadline:
            self._wait(status, peer, level, phase, gathered)

    def _while_waiting(self) -> None:
        """Look whether another host has ended the run, or is lost, while ranks of this host are waited for."""
        for link in self._links.values():
            try:
                self._look_for_abort(link)
            except LineClosedError as error:
                self._lose(link, error)

    def _swap_frames(self, level: int, phase: str, *, sliced: bool) -> None:
        """Send a frame to each other host, and publish the records of the frame that comes from there."""
        segment, tag = self.segment, self._number << 32 | self._crossing
        links = list(self._links.values())
        for link in links:
            try:
                link.send(tag, segment.words, segment.stride, sliced=sliced)
            except LineClosedError as error:
                self._lose(link, error)
        checked = time.monotonic()
        while True:
            reading, writing, late = [], [], []
            for link in links:
                try:
                    # A link that has crossed may still bring the end of the run, while others are waited for.
                    ready = self._look_for_abort(link)
                    if ready and not link.crossed:
                        link.receive(tag, segment.words, segment.stride, sliced=sliced)
                        ready = False
                    stream = link.live()
                    if not ready:
                        reading.append(stream)
                    if not stream.push():
                        writing.append(stream)
                    if not link.crossed or stream.sending:
                        late.append(link.envoy)
                except StaleRunError as error:
                    raise StaleRunError(f"{self._where(level, phase)}: {error}") from error
                except LineClosedError as error:
                    self._lose(link, error)
            if barrier.get_abort(segment.words) >> barrier.RUN_SHIFT == self._number:
                raise self._aborted(self._where(level, phase))
            if not late:
                return
            now = time.monotonic()
            if now > self._deadline:
                waited_for = f"waiting for rank {late[0]}"
                self._abort(self._number, Cause.DEADLINE, f"level {level}, {phase}, {waited_for}", self.rank)
                raise DeadlineExceededError(f"{self._where(level, phase)}: the deadline passed {waited_for}")
            if not wait_for_any(reading, writing, _LOOK_SECONDS) and now - checked > _CHECK_SECONDS:
                checked = now
                self._check_streams()

    def _look_for_abort(self, link: Link) -> bool:
        """Take an abort that has come over a link; return whether the header of a crossing's frame has arrived."""
        ready, abort = link.receive_abort()
        if abort is not None and abort.number >= self._number:
            self._told = max(self._told, abort.number)
            self._abort(abort.number, abort.cause, abort.message, abort.rank)
        return ready

    def _check_streams(self) -> None:
        for link in self._links.values():
            try:
                link.live().require_sound()
            except LineClosedError as error:
                self._lose(link, error)

    def _lose(self, link: Link, error: LineClosedError) -> None:
        """End the run, because the envoy of another host is out of reach."""
        logger.info("dbfs: rank %d lost rank %d: %s", self.rank, link.envoy, error)
        link.close()
        self._abort(self._number, Cause.LOST, "", link.envoy)
