"""The door of a Dask worker: where it listens, with which TLS, and how the worker opens lines to other doors.

The worker's configuration says where: ``dbfs.lines.interface`` and ``dbfs.lines.ports``. By default a door listens at
the host of the worker's own address, at any free port.
"""

import ssl
import threading
from collections.abc import Callable
from typing import Any

import dask
import distributed
from distributed.comm.addressing import get_address_host
from distributed.utils import get_ip_interface

from dbfs_workers.base.errors import ExchangeUnavailableError
from dbfs_workers.base.lines.door import Door
from dbfs_workers.base.lines.line import Address, Line

_LARGEST_PORT = 65535


class WorkerDoor:
    """The one door of a worker, opened when the first line is to be admitted."""

    def __init__(self, worker: distributed.Worker) -> None:
        self._worker = worker
        self._door: Door | None = None
        self._opening = threading.Lock()

    @property
    def address(self) -> Address | None:
        """Host and port at which the door listens; None until the first line is to be admitted."""
        return None if self._door is None else self._door.address

    def admit(self, token: bytes, serve: Callable[[Line], None]) -> Address:
        """Serve lines that show the token by ``serve``; return the door's address. From any thread.

        Raises:
            ExchangeUnavailableError: the worker can't listen, or its configuration names no interface and port.
        """
        with self._opening:
            if self._door is None:
                context = self._context(self._worker.security.get_listen_args("worker"))
                try:
                    self._door = Door(self._host(), context, ports_of("dbfs.lines.ports", "any"))
                except (OSError, ValueError) as error:
                    raise ExchangeUnavailableError(f"{self._worker.address} can't listen for lines: {error}") from error
        self._door.admit(token, serve)
        return self._door.address

    def refuse(self, token: bytes) -> None:
        """Admit no more lines with the token."""
        if self._door is not None:
            self._door.refuse(token)

    def opener(self) -> Callable[[Address, bytes, float], Line]:
        """Return a function that opens a line, from any thread: see ``Line.open``, which also takes the TLS context."""
        context = self._context(self._worker.security.get_connection_args("worker"))

        def open_line(address: Address, token: bytes, timeout: float) -> Line:
            return Line.open(address, token, context, timeout)

        return open_line

    def close(self) -> None:
        """Stop listening."""
        if self._door is not None:
            self._door.close()

    def _host(self) -> str:
        interface = dask.config.get("dbfs.lines.interface", "auto")
        if interface != "auto":
            return str(get_ip_interface(interface))
        # Workers in the client's process have no host of their own.
        address = self._worker.address
        return "127.0.0.1" if address.startswith("inproc://") else str(get_address_host(address))

    def _context(self, arguments: dict[str, Any]) -> ssl.SSLContext | None:
        return arguments.get("ssl_context") if self._worker.address.startswith("tls://") else None


def ports_of(key: str, default: str) -> range:
    """Return the ports that the configuration names: ``any``, one port, or the first and the last as ``9000:9063``.

    Raises:
        ValueError: the value is none of these.
    """
    configured = dask.config.get(key, default)
    if configured == "any":
        return range(1)
    try:
        first, _, last = str(configured).partition(":")
        ports = range(int(first), int(last or first) + 1)
    except ValueError:
        ports = range(0)
    if not ports or ports[0] < 1 or ports[-1] > _LARGEST_PORT:
        raise ValueError(f"{key}: {configured!r} is neither 'any' nor a port nor ports such as '9000:9063'")
    return ports
