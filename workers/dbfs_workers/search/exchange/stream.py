"""A stream between the envoys of two hosts: frames of a fixed header and a payload, sent and received without waiting.

The two ends send to each other at the same time, and a large frame does not fit in the connection's buffers. If
both ends finished sending before they received, they could wait for ever. So each call sends or receives as much as
the connection allows now, and the caller polls.

The header is int64 words; ``LENGTH`` has the bytes of the payload. The streams begin as lines: see
``dbfs_workers.base.lines`` for the token and TLS.
"""

import contextlib
import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.lines.line import Line, LineClosedError

LENGTH: Final = 0
"""Place of the payload's length in the header."""

# A frame up to this size is sent in one call, and received through the buffer.
_JOINED: Final = 1 << 16
# Most bytes of a line's frame that a line may have received ahead.
_READ_AHEAD_BYTES: Final = 1 << 16

# Two fields of Linux's ``struct tcp_info``: how often the oldest packet was sent again in vain, and the milliseconds
# since the other host last confirmed anything.
_TCP_INFO: Final = struct.Struct("=2xB5x4x4x4x4x4x4x4x4x4x4x4x4xI")
_RESENT: Final = 2
_SILENT_MS: Final = 1500

_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def buffer_words(words: int) -> int:
    """Return the size, in words, of the buffer of a stream whose arriving frames have a header of ``words`` words."""
    return words + (_JOINED + _READ_AHEAD_BYTES) // 8


def nbytes(streams: int) -> int:
    """Return the bytes of the two frames (to send, and arriving) of each of ``streams`` streams, without headers."""
    return streams * 2 * 8 * buffer_words(0)


class Stream:
    """One end of a stream. One thread at a time may use it.

    Args:
        line: the line whose connection the stream takes over.
        words: words of the header of frames that arrive.
        buffer: int64[buffer_words(words)] or longer, for what arrives. A kernel may receive there too, between two
            calls of the stream.
        filled: int64[1], the bytes of the buffer that have arrived.

    Attributes:
        header: int64[words], the header of the frame that arrives; valid once ``has_header`` returned true, until the
            frame is complete.
    """

    def __init__(self, line: Line, words: int, buffer: NDArray[np.int64], filled: NDArray[np.int64]) -> None:
        line.notice_silence()
        self._connection, ahead = line.release()
        self._connection.setblocking(False)
        self._buffer = buffer.data.cast("B")
        self._buffer[: len(ahead)] = ahead
        self._place = filled
        self._filled = len(ahead)
        self._header_bytes = 8 * words
        self.header = buffer[:words]
        self._sending: deque[memoryview] = deque()
        # Parts of the payload that have yet to arrive; None before ``take`` was called for the frame.
        self._targets: deque[memoryview] | None = None

    @property
    def _filled(self) -> int:
        return int(self._place[0])

    @_filled.setter
    def _filled(self, filled: int) -> None:
        self._place[0] = filled

    @property
    def plain_descriptor(self) -> int:
        """The descriptor of a connection over which a kernel may send and receive now; -1 if only the stream may."""
        return -1 if self._sending or isinstance(self._connection, ssl.SSLSocket) else self._connection.fileno()

    @property
    def sending(self) -> bool:
        """Whether a part of a frame is yet to be sent."""
        return bool(self._sending)

    def fileno(self) -> int:
        """Return the connection's file descriptor, to be polled."""
        return self._connection.fileno()

    def send(self, header: NDArray[np.int64], payload: Sequence[NDArray[np.uint32]]) -> None:
        """Begin to send a frame; ``push`` goes on. The payload must not change until the frame is sent.

        Errors as for ``push``.
        """
        length = sum(part.nbytes for part in payload)
        header[LENGTH] = length
        if header.nbytes + length <= _JOINED:
            self._sending.append(memoryview(b"".join((header.tobytes(), *(part.tobytes() for part in payload)))))
        else:
            self._sending.append(memoryview(header.tobytes()))
            self._sending.extend(part.data.cast("B") for part in payload)
        self.push()

    def go_on(self, rest: memoryview) -> None:
        """Send the rest of a frame that a kernel began to send; ``push`` goes on."""
        self._sending.append(rest)

    def push(self) -> bool:
        """Send what the connection takes now; return whether all is sent. Raise ``LineClosedError`` if it is broken."""
        while self._sending:
            part = self._sending[0]
            try:
                sent = self._connection.send(part)
            except _NOT_NOW:
                return False
            except OSError as error:
                raise LineClosedError(f"the connection broke: {error}") from error
            if sent == len(part):
                self._sending.popleft()
            else:
                self._sending[0] = part[sent:]
        return True

    def has_header(self) -> bool:
        """Receive what has arrived; return whether the header of a frame is there.

        Raises:
            LineClosedError: the stream is broken, or the other end closed it.
        """
        while self._filled < self._header_bytes:
            received = self._receive(self._buffer[self._filled :])
            if not received:
                return False
            self._filled += received
        return True

    def take(self, targets: Sequence[memoryview]) -> None:
        """Have the frame's payload written into buffers of bytes, as long together as the header says."""
        self._targets = deque()
        at = self._header_bytes
        for target in targets:
            here = min(len(target), self._filled - at)
            target[:here] = self._buffer[at : at + here]
            at += here
            if here < len(target):
                self._targets.append(target[here:])
        self._filled -= at - self._header_bytes
        # What arrived of the next frame. It fits, because the buffer takes no more once the header is complete.
        ahead = self._filled - self._header_bytes
        if ahead:
            self._buffer[self._header_bytes : self._filled] = bytes(self._buffer[at : at + ahead])

    @property
    def taking(self) -> bool:
        """Whether ``take`` was called for the frame that arrives."""
        return self._targets is not None

    def complete(self) -> bool:
        """Receive what has arrived of the payload; return whether the frame is complete. The stream then has the next.

        Errors as for ``has_header``.
        """
        assert self._targets is not None
        while self._targets:
            received = self._receive(self._targets[0])
            if not received:
                return False
            if received == len(self._targets[0]):
                self._targets.popleft()
            else:
                self._targets[0] = self._targets[0][received:]
        return True

    def next_frame(self) -> None:
        """Go on to the next frame, after ``complete`` returned true. ``header`` is not valid any more."""
        ahead = self._filled - self._header_bytes
        self._buffer[:ahead] = bytes(self._buffer[self._header_bytes : self._filled])
        self._filled = ahead
        self._targets = None

    def require_sound(self) -> None:
        """Raise ``LineClosedError`` unless the other host still confirms what it is sent."""
        with contextlib.suppress(OSError):
            info = self._connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
            resent, silent = _TCP_INFO.unpack(info)
            if resent >= _RESENT and silent >= _SILENT_MS:
                raise LineClosedError("the other host is silent")

    def close(self) -> None:
        """Close the stream."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _receive(self, target: memoryview) -> int:
        """Receive what has arrived, at most as much as the target takes; return the bytes, 0 if there are none yet."""
        try:
            received = self._connection.recv_into(target)
        except _NOT_NOW:
            return 0
        except OSError as error:
            raise LineClosedError(f"the connection broke: {error}") from error
        if not received:
            raise LineClosedError("the connection was closed by the other end")
        return received


def wait_for_any(reading: Sequence[Stream], writing: Sequence[Stream], seconds: float) -> bool:
    """Wait until one of the streams can go on, for at most ``seconds``; return whether one can."""
    poll = select.poll()
    for stream in reading:
        poll.register(stream, select.POLLIN)
    for stream in writing:
        poll.register(stream, select.POLLIN | select.POLLOUT if stream in reading else select.POLLOUT)
    return bool(poll.poll(seconds * 1e3))
