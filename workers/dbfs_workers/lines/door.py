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

from dbfs_workers.lines.line import Address, Line

logger = logging.getLogger(__name__)

Serve = Callable[[Line], None]

# Connections that have not shown a token yet: their number, and the seconds that each of them has for its token.
_GREETINGS = 64
_GREETING_SECONDS = 2.0


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
        self._greetings = threading.BoundedSemaphore(_GREETINGS)
        threading.Thread(target=self._accept, name="dbfs-door", daemon=True).start()

    def admit(self, token: bytes, serve: Serve) -> None:
        """Serve lines that show the token by ``serve``, each in a thread of its own, until ``refuse`` is called."""
        self._guests[token] = serve

    def refuse(self, token: bytes) -> None:
        """Admit no more lines with the token. Lines that are open stay open."""
        self._guests.pop(token, None)

    def close(self) -> None:
        """Stop listening."""
        self._guests.clear()
        with contextlib.suppress(OSError):
            # Wakes the thread that accepts; closing alone does not.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if self._greetings.acquire(blocking=False):
                threading.Thread(target=self._greet, args=(connection,), name="dbfs-line", daemon=True).start()
            else:
                connection.close()

    def _greet(self, connection: socket.socket) -> None:
        try:
            try:
                line, shown = Line.greet(connection, self._context, _GREETING_SECONDS)
                guests = list(self._guests.items())
                serve = next((serve for token, serve in guests if hmac.compare_digest(token, shown)), None)
                if serve is None:
                    raise ConnectionRefusedError("the token is not valid")
                line.welcome()
            finally:
                self._greetings.release()
        except OSError as error:
            logger.info("dbfs: a line was refused: %s", error)
            connection.close()
            return
        try:
            serve(line)
        finally:
            line.close()


def _listen(host: str, ports: Sequence[int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in ports[:-1]:
        try:
            return socket.create_server((host, port), family=family, backlog=_GREETINGS)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return socket.create_server((host, ports[-1]), family=family, backlog=_GREETINGS)
