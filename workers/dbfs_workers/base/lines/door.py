"""A worker's door: the port at which lines to this worker arrive.

Each line is served by a thread of its own. A token belongs to one guest: the function that serves the lines which show
that token. A door listens where the worker listens, and speaks TLS if the worker does.
"""

import contextlib
import errno
import hmac
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Final

from dbfs_workers.base.lines.line import Address, Line, family

logger = logging.getLogger(__name__)

Serve = Callable[[Line], None]

GREETINGS: Final = 128
"""Most connections that have not shown a token yet. A further one takes the place of the oldest."""

GREETINGS_OF_HOST: Final = 32
"""Most of these connections from one address. A further one takes the place of the oldest from there."""

# Seconds that a connection has for its token.
_GREETING_SECONDS = 2.0
# Seconds until a door that could not accept a connection tries again.
_PAUSE_SECONDS = 0.1


class Door:
    """A port for lines.

    Args:
        host: where to listen.
        context: TLS for the lines; None for plain TCP.
        ports: the ports to choose from; 0 is any free port.

    Raises:
        OSError: the host has no such address, or none of the ports is free.

    Attributes:
        address: host and port.
    """

    def __init__(self, host: str, context: ssl.SSLContext | None, ports: Sequence[int] = (0,)) -> None:
        self._listener = _listen(host, ports)
        self.address: Address = (host, self._listener.getsockname()[1])
        self._context = context
        self._guests: dict[bytes, Serve] = {}
        # The connections that have not shown a token yet, the oldest first, with their hosts.
        self._greetings: dict[socket.socket, str] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._accept, name="dbfs-door", daemon=True).start()

    def admit(self, token: bytes, serve: Serve) -> None:
        """Serve lines that show the token by ``serve``, each in a thread of its own, until ``refuse`` is called."""
        self._guests[token] = serve

    def refuse(self, token: bytes) -> None:
        """Admit no more lines with the token. Lines that are open stay open."""
        self._guests.pop(token, None)

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        self._guests.clear()
        with contextlib.suppress(OSError):
            # Wakes the thread that accepts; closing alone does not.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        """Take connections until the door closes, whatever fails meanwhile: without this thread no line can open."""
        failing = False
        while not self._closed.is_set():
            try:
                connection, (host, *_) = self._listener.accept()
                self._take(connection, host)
            except Exception as error:
                # The process has too many open files or threads, for example. The log gets one line until that is over.
                if not failing and not self._closed.is_set():
                    words = "dbfs: the door at %s:%d can't take lines, and tries again until it can: %s"
                    logger.warning(words, *self.address, error)
                failing = True
                self._closed.wait(_PAUSE_SECONDS)
            else:
                if failing:
                    logger.warning("dbfs: the door at %s:%d takes lines again", *self.address)
                failing = False

    def _take(self, connection: socket.socket, host: str) -> None:
        """Greet a connection in a thread of its own. A door that is full closes an older connection for it.

        Raises:
            RuntimeError: the process can't start a thread.
        """
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            with self._lock:
                of_host = [other for other, where in self._greetings.items() if where == host]
                if len(of_host) == GREETINGS_OF_HOST:
                    self._turn_away(of_host[0])
                elif len(self._greetings) == GREETINGS:
                    self._turn_away(next(iter(self._greetings)))
                self._greetings[connection] = host
            threading.Thread(target=self._greet, args=(connection,), name="dbfs-line", daemon=True).start()
        except Exception as error:
            self._refuse(connection, error)
            if not isinstance(error, OSError):
                raise

    def _turn_away(self, connection: socket.socket) -> None:
        """Forget a connection, and have its thread close it."""
        del self._greetings[connection]
        with contextlib.suppress(OSError):
            # Not the method of an SSLSocket, which may not be called while another thread shakes hands.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def _greet(self, connection: socket.socket) -> None:
        try:
            line, shown = Line.greet(connection, _GREETING_SECONDS)
            guests = list(self._guests.items())
            serve = next((serve for token, serve in guests if hmac.compare_digest(token, shown)), None)
            if serve is None:
                raise ConnectionRefusedError("the token is not valid")
            with self._lock:
                if self._greetings.pop(connection, None) is None:
                    raise ConnectionAbortedError("newer connections took its place")
            line.welcome()
        except Exception as error:
            self._refuse(connection, error)
            return
        try:
            serve(line)
        finally:
            line.close()

    def _refuse(self, connection: socket.socket, error: Exception) -> None:
        logger.info("dbfs: a line was refused: %s", error)
        with self._lock:
            self._greetings.pop(connection, None)
        connection.close()


def _listen(host: str, ports: Sequence[int]) -> socket.socket:
    for port in ports[:-1]:
        try:
            return socket.create_server((host, port), family=family(host), backlog=GREETINGS)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return socket.create_server((host, ports[-1]), family=family(host), backlog=GREETINGS)
