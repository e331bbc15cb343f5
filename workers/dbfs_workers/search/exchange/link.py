"""A link: what an envoy has of one other host. It turns records and bins into frames, and frames into records and bins.

In: the records of this host's ranks, and access to the bins and slices in this host's segment. Out: frames over the
link's stream, and the entries of the other host's frames, written into the parts of its ranks in the segment.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import StaleRunError
from dbfs_workers.base.lines.line import Line, LineClosedError
from dbfs_workers.search.exchange.kernels import envoy
from dbfs_workers.search.exchange.kernels import frames as kernels
from dbfs_workers.search.exchange.kernels.frames import (
    ABORTED,
    CAUSE,
    HEADER_WORDS,
    KIND,
    NUMBER,
    RANK,
    header_words,
)
from dbfs_workers.search.exchange.protocol import Abort, Cause
from dbfs_workers.search.exchange.segment import MESSAGE_BYTES
from dbfs_workers.search.exchange.stream import LENGTH, Stream
from dbfs_workers.search.reports.crossings import COUNTS


class HostMemory(Protocol):
    """Access to the bins and slices of all ranks in the segment of a host."""

    def binned(self, source: int, owner: int, size: int) -> list[NDArray[np.uint32]]:
        """Return the rows, and the parents if there are any, of the first entries of a bin of this crossing."""
        ...

    def slice_of(self, source: int) -> NDArray[np.uint32]:
        """See ``Exchange.slice_of``."""
        ...


class Link:
    """An envoy's link to another host: the stream, and the frames of both directions.

    Args:
        own: the ranks of the envoy's host.
        others: the ranks of the other host.
        entries: entries that fit in a bin.
        memory: the segment of the envoy's host.
        row: int64[LINK], the link's row of ``links``: see ``kernels.envoy``.
        frames: int64[2, words], the frame to send, and what has arrived.

    Attributes:
        envoy: the envoy of the other host.
        stream: the stream to that envoy; None if there is none.
    """

    def __init__(
        self,
        own: Sequence[int],
        others: Sequence[int],
        entries: int,
        memory: HostMemory,
        row: NDArray[np.int64],
        frames: NDArray[np.int64],
    ) -> None:
        self.envoy = others[0]
        self.stream: Stream | None = None
        self._words = header_words(len(others), len(own))
        self._entries = entries
        self._memory = memory
        self._row = row
        self._frames = frames
        self._own = np.array(own, np.int64)
        self._others = np.array(others, np.int64)
        self._header = frames[0, : header_words(len(own), len(others))]
        self._message = bytearray()

    @property
    def crossed(self) -> bool:
        """Whether the other host's frame of the crossing under way has come."""
        return bool(self._row[envoy.CAME])

    def open(self, line: Line) -> None:
        """Make the stream of a line to the other envoy."""
        self.stream = Stream(line, self._words, self._frames[1], self._row[envoy.FILLED : envoy.FILLED + 1])

    def enter_kernel(self) -> None:
        """Let the kernel use the connection, where it can."""
        self._row[envoy.DESCRIPTOR] = -1 if self.stream is None else self.stream.plain_descriptor

    def live(self) -> Stream:
        """Return the stream; raise ``LineClosedError`` if there is none."""
        if self.stream is None:
            raise LineClosedError("the connection was closed")
        return self.stream

    def close(self) -> None:
        """Close the stream, if there is one."""
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    def send(self, tag: int, words: NDArray[np.int64], stride: int, *, sliced: bool) -> None:
        """Begin to send the frame of a crossing, or the rest that the kernel has left of it; ``stream.push`` goes on.

        Args:
            tag: the crossing, as the ranks' records have it.
            words: the head of the segment. The records of this host's ranks are of this crossing.
            stride: words of a rank's part of the head.
            sliced: whether the ranks send slices.

        Errors as for ``Stream.send``.
        """
        row, header = self._row, self._header
        if row[envoy.SENT]:
            if row[envoy.UNSENT]:
                frame = self._frames[0].data.cast("B")[: header.nbytes + int(header[LENGTH])]
                self.live().go_on(frame[len(frame) - int(row[envoy.UNSENT]) :])
                row[envoy.UNSENT] = 0
            return
        row[envoy.SENT] = 1
        payload: list[NDArray[np.uint32]] = []
        if kernels.compose(words, stride, tag, self._own, self._others, header):
            for source, owner, size in _bins(header, self._own, self._others):
                payload += self._memory.binned(source, owner, size)
        if sliced:
            payload += [self._memory.slice_of(rank) for rank in self._own.tolist()]
        self.live().send(header, payload)

    def send_abort(self, abort: Abort) -> None:
        """Send the end of a run, or close the stream in the middle of a frame. Errors as for ``Stream.send``."""
        stream = self.live()
        if not stream.push():
            self.close()
            return
        header = np.zeros_like(self._header)
        header[KIND], header[NUMBER], header[CAUSE], header[RANK] = ABORTED, abort.number, int(abort.cause), abort.rank
        message = abort.message.encode()[: MESSAGE_BYTES - 1].ljust(MESSAGE_BYTES, b"\0")
        stream.send(header, [np.frombuffer(message, np.uint32)])

    def receive(self, tag: int, words: NDArray[np.int64], stride: int, *, sliced: bool) -> None:
        """Receive what has come of the other host's frame. If it is complete, publish its records, and set ``crossed``.

        The frame at hand is not an abort: see ``receive_abort``.

        Args:
            tag: the crossing under way.
            words, stride, sliced: as of ``send``.

        Errors as for ``Stream.complete``, and ``StaleRunError`` if the other host is in another run.
        """
        stream = self.live()
        if not stream.has_header():
            return
        header = stream.header
        if not stream.taking:
            if not kernels.is_of(header, tag):
                raise StaleRunError(f"rank {self.envoy} is in another run")
            stream.take(self._targets(header, sliced))
        if not stream.complete():
            return
        kernels.deliver(words, stride, header, self._others, self._own, tag)
        stream.next_frame()
        self._row[envoy.CAME] = 1

    def receive_abort(self) -> tuple[bool, Abort | None]:
        """Look at the next frame.

        Returns:
            Whether the header of a crossing's frame has arrived, for ``receive``; and the abort, if one has come.

        Errors as for ``Stream.complete``.
        """
        stream = self.live()
        if not stream.has_header():
            return False, None
        header = stream.header
        if header[KIND] != ABORTED:
            return True, None
        if not stream.taking:
            if header[LENGTH] != MESSAGE_BYTES:
                raise LineClosedError("the other end sent no frame of dbfs")
            self._message = bytearray(MESSAGE_BYTES)
            stream.take([memoryview(self._message)])
        if not stream.complete():
            return False, None
        message = self._message.rstrip(b"\0").decode(errors="ignore")
        abort = Abort(int(header[NUMBER]), Cause(int(header[CAUSE])), int(header[RANK]), message)
        stream.next_frame()
        return False, abort

    def _targets(self, header: NDArray[np.int64], sliced: bool) -> list[memoryview]:
        """Return the places of a frame's entries and slices in the segment.

        Raise ``LineClosedError`` if the header does not fit the graph.
        """
        new = kernels.count_new(header, self._others.size, self._own.size, self._entries)
        if new < 0:
            raise LineClosedError("the other end sent more than fits")
        arrays: list[NDArray[np.uint32]] = []
        if new:
            for source, owner, size in _bins(header, self._others, self._own):
                arrays += self._memory.binned(source, owner, size)
        if sliced:
            arrays += [self._memory.slice_of(rank) for rank in self._others.tolist()]
        if sum(array.nbytes for array in arrays) != header[LENGTH]:
            raise LineClosedError("the other end sent a frame of another length than its header says")
        return [array.data.cast("B") for array in arrays]


def _bins(
    header: NDArray[np.int64], senders: NDArray[np.int64], receivers: NDArray[np.int64]
) -> Iterator[tuple[int, int, int]]:
    """Yield sender, receiver and entries of each bin that a header announces and that is not empty."""
    entries = header[HEADER_WORDS:].reshape(-1, COUNTS + receivers.size)[:, COUNTS:]
    for i, j in zip(*(places.tolist() for places in np.nonzero(entries)), strict=True):
        yield int(senders[i]), int(receivers[j]), int(entries[i, j])
