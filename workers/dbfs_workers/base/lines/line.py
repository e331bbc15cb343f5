"""A line between two threads of two processes: frames of bytes over TCP, or over TLS where the cluster has it.

The threads block on the socket, so that a frame costs no turn of an event loop. The end that opens a line shows a token
first. A door closes a line without a valid token before anything else of it is read.
"""

import contextlib
import os
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Final

from dbfs_workers.base.errors import ExchangeUnavailableError

Address = tuple[str, int]
"""Host and port."""

TOKEN_BYTES: Final = 32

GPU_AWAKE_SECONDS: Final = 1e-3
"""``Line.awake_seconds`` of a gang on GPUs, whose traversals take 0.1 to 1 ms and need no core."""

LARGEST_FRAME: Final = 1 << 32
"""Most bytes of a frame: a report of a traversal with millions of levels is smaller."""

_GREETING = b"dbfs-line-1\n"
_WELCOME = b"\x01"
_LENGTH = struct.Struct("<Q")
# A frame below this size is joined with its length into one packet, and read with its length in one call.
_JOINED = 1 << 16
# TCP keepalive: seconds of silence before the system probes the other host, and seconds that it waits for the answer.
_SILENT_SECONDS = 1
# Seconds between two looks of the end that waits for a frame.
_LOOK_SECONDS = 0.25
# Most bytes of a large frame that are received at once.
_LARGEST_PART = 1 << 20


class LineClosedError(ConnectionError):
    """Raised if the other end of a line closed it, or the connection broke."""


class Line:
    """One end of a line. One thread at a time may send, and one may receive.

    Attributes:
        awake_seconds: time for which ``receive`` looks for a frame before its thread sleeps. A thread that sleeps takes
            some 50 us to wake; one that looks takes a core.
    """

    awake_seconds = 0.0

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        # Bytes that arrived behind the frame received last.
        self._arrived = b""
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._hang_up = select.poll()
        self._hang_up.register(connection, select.POLLRDHUP)

    @classmethod
    def open(cls, address: Address, token: bytes, context: ssl.SSLContext | None, timeout: float) -> "Line":
        """Open a line to a door.

        Args:
            address: where the door listens.
            token: the token that the door expects, ``TOKEN_BYTES`` long.
            context: TLS for the line; None for plain TCP.
            timeout: seconds that opening may take: connecting, TLS and the door's answer together.

        Raises:
            ExchangeUnavailableError: nothing listens there, or the host can't be reached.
            LineClosedError: the token is not valid there, or no longer.
        """
        end = time.monotonic() + timeout
        host, port = address
        try:
            connection = socket.socket(family(host))
            try:
                _wait_until(end, connection)
                connection.connect(address)
                if context is not None:
                    _wait_until(end, connection)
                    connection = context.wrap_socket(connection, server_hostname=host)
                _wait_until(end, connection)
                connection.sendall(_GREETING + token)
                _wait_until(end, connection)
                welcome = connection.recv(1)
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            raise ExchangeUnavailableError(
                f"no line to {host}:{port}: {error}; dbfs.lines.interface and dbfs.lines.ports say where it listens"
            ) from error
        if welcome != _WELCOME:
            connection.close()
            raise LineClosedError(f"no line to {host}:{port}: the token is not valid there")
        return cls(connection)

    @classmethod
    def greet(cls, connection: socket.socket, timeout: float) -> tuple["Line", bytes]:
        """Take a connection that arrived at a door; return the line and the token that came over it.

        A connection of TLS has not shaken hands yet.

        Raises:
            OSError: no greeting and token came within ``timeout`` seconds.
        """
        end = time.monotonic() + timeout
        connection.settimeout(timeout)
        if isinstance(connection, ssl.SSLSocket):
            connection.do_handshake()
        greeting = _read(connection, len(_GREETING) + TOKEN_BYTES, end)
        if not greeting.startswith(_GREETING):
            raise ConnectionRefusedError("not a line of dbfs")
        return cls(connection), greeting[len(_GREETING) :]

    def welcome(self) -> None:
        """Send the other end the sign that its token is valid."""
        self._connection.sendall(_WELCOME)

    def send(self, frame: bytes, timeout: float) -> None:
        """Send a frame.

        Raises:
            LineClosedError: the line is closed, or the other end did not read within ``timeout`` seconds.
        """
        try:
            self._connection.settimeout(timeout)
            length = _LENGTH.pack(len(frame))
            if len(frame) < _JOINED:
                self._connection.sendall(length + frame)
            else:
                self._connection.sendall(length)
                self._connection.sendall(frame)
        except OSError as error:
            raise LineClosedError(f"the line broke: {error}") from error

    def receive(self, end: float | None, look: Callable[[], None] | None = None) -> bytes:
        """Return the next frame.

        Args:
            end: when to give up, in seconds of ``time.monotonic()``; None to wait until the line closes.
            look: called every ``_LOOK_SECONDS`` until a frame begins; an error that it raises ends the wait.

        Raises:
            TimeoutError: no frame came in time. The line can't be used any more.
            LineClosedError: the line is closed.
        """
        if self.awake_seconds:
            asleep = time.monotonic() + self.awake_seconds
            while not self.readable(0) and time.monotonic() < asleep:
                pass
        try:
            length: int = _LENGTH.unpack(self._take_length(end, look))[0]
            if length > LARGEST_FRAME:
                raise LineClosedError(f"a frame of {length:,} bytes was announced; at most {LARGEST_FRAME:,} may come")
            return self._take(length, end)
        except TimeoutError:
            raise
        except OSError as error:
            raise LineClosedError(f"the line broke: {error}") from error

    def _take_length(self, end: float | None, look: Callable[[], None] | None) -> bytes:
        """Return the bytes of the next frame's length; arguments and errors as of ``receive``."""
        while look is not None:
            pause = time.monotonic() + _LOOK_SECONDS
            if end is not None and end <= pause:
                break
            try:
                # What has arrived of the length is kept.
                return self._take(_LENGTH.size, pause)
            except TimeoutError:
                look()
        return self._take(_LENGTH.size, end)

    def _take(self, size: int, end: float | None) -> bytes:
        """Return the next bytes; arguments and errors as of ``_read``."""
        if size >= _JOINED:
            arrived, self._arrived = self._arrived[:size], self._arrived[size:]
            return arrived + _read(self._connection, size - len(arrived), end)
        while len(self._arrived) < size:
            self._arrived += _receive(self._connection, _JOINED, end)
        taken, self._arrived = self._arrived[:size], self._arrived[size:]
        return taken

    def readable(self, seconds: float) -> bool:
        """Return whether a frame, or the line's end, has arrived, after at most ``seconds``."""
        if self._arrived:
            return True
        if isinstance(self._connection, ssl.SSLSocket) and self._connection.pending():
            return True
        try:
            return bool(self._poll.poll(seconds * 1e3))
        except OSError:
            return True

    @property
    def hung_up(self) -> bool:
        """Whether the other end has closed the line."""
        try:
            return bool(self._hang_up.poll(0))
        except OSError:
            return True

    def notice_silence(self) -> None:
        """Have the system break the line about two seconds after the other end's host falls silent without a word.

        Only a line over which nothing is on its way to the other end is watched.
        """
        watch_silence(self._connection)

    def release(self) -> tuple[socket.socket, bytes]:
        """Hand over the connection, and what has arrived beyond the frame received last. The line ends with that."""
        connection, self._connection = self._connection, socket.socket()
        arrived, self._arrived = self._arrived, b""
        return connection, arrived

    def close(self) -> None:
        """Close the line. A thread that waits for a frame, at either end, gets a ``LineClosedError``."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def family(host: str) -> socket.AddressFamily:
    """Return the family of the addresses at which a door on a host listens."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def new_token() -> bytes:
    """Return a random token."""
    return os.urandom(TOKEN_BYTES)


def watch_silence(connection: socket.socket) -> None:
    """See ``Line.notice_silence``."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _SILENT_SECONDS),
        (socket.TCP_KEEPINTVL, _SILENT_SECONDS),
        (socket.TCP_KEEPCNT, 1),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _read(connection: socket.socket, size: int, end: float | None) -> bytes:
    """Return the next ``size`` bytes.

    Raises:
        TimeoutError: they did not come until ``end``, in seconds of ``time.monotonic()``.
        OSError: the connection is closed.
    """
    parts = bytearray()
    while len(parts) < size:
        parts += _receive(connection, min(size - len(parts), _LARGEST_PART), end)
    return bytes(parts)


def _receive(connection: socket.socket, most: int, end: float | None) -> bytes:
    """Return what arrives next, at most ``most`` bytes; errors as of ``_read``."""
    if end is not None:
        _wait_until(end, connection)
    elif connection.gettimeout() is not None:
        connection.settimeout(None)
    arrived = connection.recv(most)
    if not arrived:
        raise ConnectionResetError("closed by the other end")
    return arrived


def _wait_until(end: float, connection: socket.socket) -> None:
    """Have the next call of a connection wait until ``end``, in seconds of ``time.monotonic()``.

    Raises:
        TimeoutError: ``end`` is past.
    """
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    connection.settimeout(left)
