"""The ports at which Dask's processes listen, and who reaches them: as their sockets say, not as their options do."""

import ipaddress
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import psutil
from distributed.comm import get_address_host_port, get_tcp_server_addresses, parse_address

WEB: Final = "web server"
LINES: Final = "lines"
OTHER: Final = "other"


class Reach(StrEnum):
    """Who reaches a port."""

    ALL = "every host that reaches the machine"
    NETWORK = "every host that reaches the address"
    MACHINE = "its machine only"


@dataclass(frozen=True)
class OpenPort:
    """A port at which a process listens.

    Attributes:
        process: host name and process id.
        of: what listens: ``scheduler``, ``worker``, ``nanny``, ``web server`` (dashboard and metrics), ``lines``,
            or ``other``, such as NCCL, a debugger, or a program around the cluster.
        address: the address that the socket is bound to.
        encrypted: whether by TLS; None if not known.
    """

    process: str
    of: str
    address: str
    port: int
    encrypted: bool | None

    @property
    def reach(self) -> Reach:
        """Who reaches the port."""
        bound = ipaddress.ip_address(self.address)
        bound = getattr(bound, "ipv4_mapped", None) or bound
        if bound.is_loopback:
            return Reach.MACHINE
        return Reach.ALL if bound.is_unspecified else Reach.NETWORK

    def __str__(self) -> str:
        if self.reach is Reach.MACHINE:
            return str(self.port)
        return f"{self.process.partition('/')[0] if self.reach is Reach.ALL else self.address}:{self.port}"


def of_scheduler(dask_scheduler: Any) -> list[OpenPort]:
    """Return the ports of a scheduler's process. Dask passes the scheduler."""
    return _of_process(_named(dask_scheduler, "scheduler"))


def of_worker(dask_worker: Any) -> list[OpenPort]:
    """Return the ports of a worker's process and its nanny's port. Dask passes the worker."""
    names = _named(dask_worker, "worker")
    door = getattr(getattr(dask_worker.plugins.get("dbfs"), "door", None), "address", None)
    if door is not None:
        names[door[1]] = (LINES, dask_worker.address.startswith("tls://"))
    return [*_of_process(names), *_of_nanny(dask_worker)]


def listening(process: psutil.Process) -> Iterator[tuple[str, int]]:
    """Yield address and port of each TCP socket at which a process listens; of a process of another user none."""
    try:
        connections = process.net_connections(kind="tcp")
    except psutil.Error:
        return
    yield from sorted({tuple(one.laddr) for one in connections if one.status == psutil.CONN_LISTEN})


def _named(server: Any, name: str) -> dict[int, tuple[str, bool]]:
    """Return what listens at the ports that Dask's server opened itself, and whether by TLS, by port."""
    names = {}
    for address in (listener.listen_address for listener in server.listeners):
        scheme = parse_address(address)[0]
        if scheme != "inproc":
            names[get_address_host_port(address)[1]] = (name, scheme in ("tls", "wss"))
    web = server.http_server
    return names | {port: (WEB, web.ssl_options is not None) for _, port, *_ in get_tcp_server_addresses(web)}


def _of_process(names: dict[int, tuple[str, bool]]) -> list[OpenPort]:
    process = f"{platform.node()}/{os.getpid()}"
    return [
        OpenPort(process, of, address, port, encrypted)
        for address, port in listening(psutil.Process())
        for of, encrypted in (names.get(port, (OTHER, None)),)
    ]


def _of_nanny(worker: Any) -> Iterator[OpenPort]:
    if not worker.nanny:
        return
    # The nanny's process may be that of a program, whose further ports are none of Dask's.
    wanted, encrypted = get_address_host_port(worker.nanny)[1], worker.nanny.startswith("tls://")
    # A server of forks may stand between.
    for process in psutil.Process().parents():
        for address, port in listening(process):
            if port == wanted:
                yield OpenPort(f"{platform.node()}/{process.pid}", "nanny", address, port, encrypted)
