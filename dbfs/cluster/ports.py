"""Which ports of a cluster, or of the clusters of this machine, are open to whom: for ``dbfs doctor``."""

import asyncio
import contextlib
import platform
import re
import socket
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import distributed
import psutil

from dbfs.cluster.awaiting import sync
from dbfs.cluster.gang import answers_within
from dbfs_workers.base.text import printable
from dbfs_workers.serving import ports
from dbfs_workers.serving.ports import LINES, OTHER, WEB, OpenPort, Reach

# Seconds that a process has to list its ports: a stopped one must not hold up the list of the others.
_ANSWER_SECONDS: Final = 3.0
_SCHEDULER: Final = "the scheduler"
# Seconds in which Dask greets a connection without TLS.
_GREETING_SECONDS: Final = 0.5
# Ports of one kind that are shown.
_SHOWN: Final = 4

QUIET: Final = "web server, or with TLS"

_ENCRYPTED: Final = {True: ", by TLS", False: ", without TLS", None: ""}

# Each scheduler and worker locks such a file of its own as long as it runs.
_LOCK: Final = re.compile(r"(scheduler|worker)-\w+\.dirlock$")


def of_cluster(client: distributed.Client, workers: Sequence[str]) -> tuple[list[OpenPort], list[str]]:
    """Return the open ports of a scheduler and of workers of this version, and the processes that did not tell theirs.

    Those are stopped, or the scheduler has no dbfs of this version.
    """
    answers = sync(client, _ask, client, workers)
    silent = [printable(name) for name in (_SCHEDULER, *workers) if name not in answers]
    found: dict[tuple[str, str, int], OpenPort] = {}
    for answer in answers.values():
        for port in answer:
            at = (port.process, port.address, port.port)
            # Of several workers in one process each knows its own ports.
            if at not in found or found[at].of == OTHER:
                found[at] = port
    return list(found.values()), silent


async def _ask(client: distributed.Client, workers: Sequence[str]) -> dict[str, list[OpenPort]]:
    answers = await answers_within(_ANSWER_SECONDS, client, ports.of_worker, workers=workers)
    # Of another version, the scheduler may not have the function.
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_ANSWER_SECONDS):
            answers[_SCHEDULER] = await client.run_on_scheduler(ports.of_scheduler)
    return answers


def of_this_machine() -> list[OpenPort]:
    """Return the open ports of the processes of this user that hold a scheduler, workers or nannies of Dask.

    Ports that other machines reach are tried. ``of`` is ``QUIET`` where Dask does not greet without TLS.
    """
    of_process: dict[psutil.Process, set[str]] = defaultdict(set)
    for process in psutil.process_iter():
        try:
            names = {match[1] for file in process.open_files() if (match := _LOCK.search(Path(file.path).name))}
        except psutil.Error:
            continue
        if names:
            of_process[process] |= names
        # The parent may be another user's, such as systemd.
        with contextlib.suppress(psutil.Error):
            parent = process.parent() if "worker" in names else None
            if parent is not None and "python" in parent.exe():
                of_process[parent].add("nanny")
    found = [
        OpenPort(f"{platform.node()}/{process.pid}", " or ".join(sorted(names)), address, port, None)
        for process, names in of_process.items()
        for address, port in ports.listening(process)
    ]
    with ThreadPoolExecutor(len(found) or 1) as pool:
        return list(pool.map(_tried, found))


def _tried(port: OpenPort) -> OpenPort:
    """Return a port with what its greeting tells. With TLS, and of a web server, nothing comes."""
    if port.reach is Reach.MACHINE:
        return port
    with contextlib.suppress(OSError), socket.create_connection((port.address, port.port), _GREETING_SECONDS) as dask:
        if b"pickle-protocol" in dask.recv(1024):
            return replace(port, encrypted=False)
    return replace(port, of=QUIET)


def describe(found: Sequence[OpenPort], silent: Sequence[str] = ()) -> str:
    """Return one line that says which ports are open to whom, those that most can reach first."""
    groups: dict[str, dict[str, list[OpenPort]]] = defaultdict(lambda: defaultdict(list))
    for port in sorted(found, key=lambda port: ((*Reach,).index(port.reach), port.encrypted is not False, port.of)):
        local = port.reach is Reach.MACHINE
        groups["open to " + port.reach + ("" if local else _ENCRYPTED[port.encrypted])][port.of].append(port)
    lines = [
        f"{heading}: " + ", ".join(f"{of} {_listed(group)}" for of, group in by_name.items())
        for heading, by_name in groups.items()
    ]
    lines += [f"not told by {_few(silent)}"] if silent else []
    return "; ".join(lines) or "none of Dask"


def advice(found: Sequence[OpenPort]) -> str | None:
    """Return what to do about ports without TLS that other machines reach; None if there are none."""
    exposed = {(port.of, port.encrypted) for port in found if port.reach is not Reach.MACHINE}
    if any(encrypted is False and of not in (WEB, LINES) for of, encrypted in exposed):
        return (
            "whoever reaches scheduler, worker or nanny without TLS runs code there: start them with --host 127.0.0.1, "
            "with --interface of a network of their own, or with TLS (configs/tls)"
        )
    if (WEB, False) in exposed:
        return "the web servers have no password: start scheduler and workers with --dashboard-address 127.0.0.1:0"
    if (QUIET, None) in exposed:
        return "a web server has no password: --dashboard-address 127.0.0.1:0 closes it; dbfs doctor --scheduler tells"
    return None


def _listed(group: Sequence[OpenPort]) -> str:
    return _few(sorted({str(port) for port in group}, key=lambda text: (len(text), text)))


def _few(texts: Sequence[str]) -> str:
    more = len(texts) - _SHOWN
    return " ".join(texts[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
