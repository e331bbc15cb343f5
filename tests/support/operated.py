"""A cluster as operators start it: a scheduler and two workers in processes of their own, each with the preload."""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Operated:
    """A scheduler and two workers in processes of their own, each with the preload."""

    scheduler: subprocess.Popen[bytes]
    address: str
    dashboard: str
    log: Path
    metrics_ports: range

    def lines(self) -> list[str]:
        """The lines of the scheduler's log of graphs, runs and workers."""
        of_dbfs = re.compile(r" - dbfs\.(graphs|service\.log) - ")
        return [line for line in self.log.read_text().splitlines() if of_dbfs.search(line)]

    def status(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.dashboard + path) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""


@contextmanager
def operated(folder: Path, **settings: str) -> Iterator[Operated]:
    """Start them; ``settings`` are Dask's settings of all three, by the names of their variables after ``DASK_``."""
    given = os.environ | {f"DASK_{name}": value for name, value in settings.items()}
    log = folder / "scheduler.log"
    dask = [sys.executable, "-m", "dask"]
    preload = ["--host", "127.0.0.1", "--preload", "dbfs.preload", "--dashboard-address", "127.0.0.1:0"]
    with log.open("w") as stderr:
        scheduler = subprocess.Popen([*dask, "scheduler", "--port", "0", *preload], stderr=stderr, env=given)
    workers: list[subprocess.Popen[bytes]] = []
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"Scheduler at: +(\S+)\n.*dashboard at: +(http://[^/\s]+)", log.read_text())):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        address, dashboard = found.groups()
        worker = [*dask, "worker", address, "--no-nanny", "--nthreads", "1", *preload]
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports = range(free.getsockname()[1], free.getsockname()[1] + 20)
        given |= {"CUDA_VISIBLE_DEVICES": "", "DASK_DBFS__METRICS_PORTS": f"{ports[0]}:{ports[-1]}"}
        for _ in range(2):
            workers.append(subprocess.Popen(worker, stderr=subprocess.DEVNULL, env=given))
        yield Operated(scheduler, address, dashboard, log, ports)
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()
