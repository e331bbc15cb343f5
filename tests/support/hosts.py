"""Hosts for one test: network namespaces, each with an address and process ids of its own, joined by a bridge.

The bridge lies in the namespace of the scheduler. A link joins the test's process to it, so the test is a client on
another host.
"""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_numbers = itertools.count()


@dataclass
class Host:
    """A host: its namespace, its address, and the processes that run there."""

    namespace: str
    address: str
    logs: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *command: str, environment: dict[str, str], own_pids: bool = True) -> None:
        """Start a command of a Python module. With ``own_pids`` it gets a namespace of process ids."""
        apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if own_pids else []
        with (self.logs / f"{self.namespace}.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", self.namespace, *apart, sys.executable, "-m", *command],
                    env=os.environ | environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def log(self) -> str:
        """Return what the processes wrote so far."""
        return (self.logs / f"{self.namespace}.log").read_text()

    def unplug(self) -> None:
        """Cut the link without closing any connection, as a pulled cable does."""
        ip("-n", self.namespace, "link", "set", "dev", "eth0", "down")

    def reach(self, other: "Host", *, reached: bool) -> None:
        """Have two hosts reach each other, or lose all packets that they send to each other."""
        for one, peer in ((self, other), (other, self)):
            if reached:
                ip("-n", one.namespace, "neigh", "del", peer.address, "dev", "eth0")
            else:
                nobody = ("lladdr", "02:00:00:00:00:01", "nud", "permanent")
                ip("-n", one.namespace, "neigh", "replace", peer.address, *nobody, "dev", "eth0")

    def kill(self) -> None:
        """Kill the host's processes."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.processes = []


def ip(*arguments: str) -> None:
    """Run ``ip``."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextlib.contextmanager
def network(names: tuple[str, ...], logs: Path) -> Iterator[list[Host]]:
    """Start hosts that reach each other, the bridge in the first. Skip the test if namespaces are not possible here."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if missing := [tool for tool in ("ip", "unshare") if shutil.which(tool) is None]:
        pytest.skip(f"network namespaces need {' and '.join(missing)}")
    # New names each time: the kernel removes the namespaces of an earlier test later.
    number = next(_numbers)
    prefix = f"dbfs{os.getpid()}-{number}"
    # 198.18.0.0/15 is reserved for tests of networks (RFC 2544).
    subnet = f"198.18.{(8 * os.getpid() + number) % 256}"
    hosts: list[Host] = []
    try:
        try:
            for last, name in enumerate(names, 1):
                ip("netns", "add", f"{prefix}-{name}")
                hosts.append(Host(f"{prefix}-{name}", f"{subnet}.{last}", logs))
            wire(hosts, prefix, f"{subnet}.254")
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode().strip()
            if any(words in said.lower() for words in ("not permitted", "denied", "not supported", "read-only")):
                pytest.skip(f"no network namespaces here: {said}")
            raise RuntimeError(f"{' '.join(error.cmd)}: {said}") from error
        yield hosts
    finally:
        for host in hosts:
            host.kill()
        for host in hosts:
            ip("netns", "del", host.namespace)


def wire(hosts: list[Host], link: str, own: str) -> None:
    """Join the hosts to a bridge in the first one, and the test's process by ``link`` with the address ``own``."""
    hub, *others = hosts
    ip("-n", hub.namespace, "link", "add", "bridge", "type", "bridge")
    ip("-n", hub.namespace, "addr", "add", f"{hub.address}/24", "dev", "bridge")
    for device in ("lo", "bridge"):
        ip("-n", hub.namespace, "link", "set", "dev", device, "up")
    for number, host in enumerate(others):
        port = f"port{number}"
        ip("link", "add", "eth0", "netns", host.namespace, "type", "veth", "peer", port, "netns", hub.namespace)
        ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", host.namespace, "link", "set", "dev", device, "up")
        ip("-n", hub.namespace, "link", "set", "dev", port, "master", "bridge", "up")
    ip("link", "add", link, "type", "veth", "peer", "client", "netns", hub.namespace)
    ip("-n", hub.namespace, "link", "set", "dev", "client", "master", "bridge", "up")
    ip("addr", "add", f"{own}/24", "dev", link)
    ip("link", "set", "dev", link, "up")
