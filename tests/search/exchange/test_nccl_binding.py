"""The binding to NCCL without one: nccl4py and CuPy are stand-ins."""

import os
import sys
import threading
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dbfs_workers.base.errors import ExchangeUnavailableError
from dbfs_workers.search.cuda import nccl
from dbfs_workers.search.cuda.communicator import CommunicatorFailedError, Transfer

FIRST: list[Transfer] = [(1, 100, 8, 200, 8), (2, 300, 0, 400, 4)]


class NCCLError(Exception):
    """Stands for nccl4py's."""


class Binding:
    """``nccl.bindings.nccl``; the calls that it got."""

    NCCLError = NCCLError
    UniqueId = SimpleNamespace(from_buffer=lambda name: ("id", name))

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.peers_came = threading.Event()
        self.peers_came.set()
        self.state = 0

    def Config(self) -> str:  # noqa: N802 - nccl4py's name
        return "default"

    def get_version(self) -> int:
        return 22809

    def get_unique_id(self) -> bytes:
        return b"name"

    def comm_init_rank_config(self, p: int, name: Any, rank: int, config: str) -> str:
        self.calls.append(("init", p, name, rank, config))
        self.peers_came.wait(20)
        return "handle"

    def group_start(self) -> None:
        self.calls.append("group")

    def group_end(self) -> None:
        if self.state:
            raise NCCLError("remote process exited")
        self.calls.append("end")

    def send(self, *arguments: Any) -> None:
        self.calls.append(("send", *arguments))

    def recv(self, *arguments: Any) -> None:
        self.calls.append(("receive", *arguments))

    def comm_get_async_error(self, handle: str) -> int:
        return self.state

    def get_error_string(self, state: int) -> str:
        return f"error {state}"

    def comm_abort(self, handle: str) -> None:
        self.calls.append(("abort", handle))


class Event:
    """CuPy's; done at the second look."""

    def __init__(self, disable_timing: bool) -> None:
        self.looks = 0

    def record(self, stream: Any) -> None:
        self.looks = 0

    @property
    def done(self) -> bool:
        self.looks += 1
        return self.looks > 1


@pytest.fixture
def binding(monkeypatch: pytest.MonkeyPatch) -> Binding:
    binding = Binding()
    package, bindings = ModuleType("nccl"), ModuleType("nccl.bindings")
    package.__spec__ = SimpleNamespace(name="nccl")  # type: ignore[assignment]
    bindings.nccl = binding  # type: ignore[attr-defined]
    cuda = SimpleNamespace(
        Device=lambda: SimpleNamespace(use=lambda: None),
        Event=Event,
        get_current_stream=lambda: SimpleNamespace(ptr=7),
        alloc_pinned_memory=lambda size: np.ones(size, np.uint8),
    )
    for name, module in (("nccl", package), ("nccl.bindings", bindings), ("cupy", SimpleNamespace(cuda=cuda))):
        monkeypatch.setitem(sys.modules, name, module)
    return binding


def nothing() -> None:
    pass


def test_a_communicator_is_made_with_its_first_group(binding: Binding) -> None:
    library = nccl.Nccl()
    communicator = library.connect(3, 0, library.new_id(), FIRST, nothing)
    assert binding.calls == [
        ("init", 3, ("id", b"name"), 0, "default"),
        "group",
        # Bytes, on the stream of the caller. A size of 0 is left out.
        ("send", 100, 8, 1, 1, "handle", 7),
        ("receive", 200, 8, 1, 1, "handle", 7),
        ("receive", 400, 4, 1, 2, "handle", 7),
        "end",
    ]
    communicator.start(FIRST[:1])
    assert [communicator.done(), communicator.done()] == [False, True]
    communicator.check()
    communicator.abort()
    assert binding.calls[-1] == ("abort", "handle")


def test_a_peer_that_does_not_come_is_not_waited_for(binding: Binding) -> None:
    def late() -> None:
        raise ExchangeUnavailableError("no communicator after 20 s")

    binding.peers_came.clear()
    with pytest.raises(ExchangeUnavailableError, match="no communicator"):
        nccl.Nccl().connect(3, 0, b"name", FIRST, late)
    # The peer comes after the caller gave up: the communicator is aborted.
    binding.peers_came.set()
    end = time.monotonic() + 20
    while binding.calls[-1] != ("abort", "handle") and time.monotonic() < end:
        time.sleep(0.01)
    assert binding.calls[-1] == ("abort", "handle")


def test_errors_of_nccl_are_one_type(binding: Binding) -> None:
    library = nccl.Nccl()
    communicator = library.connect(3, 0, b"name", FIRST, nothing)
    binding.state = 6
    with pytest.raises(CommunicatorFailedError, match="error 6"):
        communicator.check()
    with pytest.raises(CommunicatorFailedError, match="remote process exited"):
        communicator.start(FIRST)
    with pytest.raises(CommunicatorFailedError, match="remote process exited"):
        library.connect(3, 0, b"name", FIRST, nothing)
    assert binding.calls[-1] == ("abort", "handle")


def test_pinned_memory_and_addresses(binding: Binding) -> None:
    library = nccl.Nccl()
    pinned = library.pinned(5)
    assert (pinned.dtype, pinned.tolist()) == (np.int64, [0] * 5)
    assert library.address(pinned[1:]) == pinned.ctypes.data + 8
    on_gpu = SimpleNamespace(__cuda_array_interface__={"data": (4096, False)})
    assert library.address(on_gpu) == 4096


def test_the_version_or_what_is_missing(binding: Binding, monkeypatch: pytest.MonkeyPatch) -> None:
    assert nccl.version() == (2, 28, 9)
    nccl.require()
    monkeypatch.setattr(binding, "get_version", lambda: 1 / 0)
    with pytest.raises(ExchangeUnavailableError, match="ZeroDivisionError"):
        nccl.require()
    monkeypatch.delitem(sys.modules, "nccl")
    monkeypatch.setattr(nccl.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ExchangeUnavailableError, match=r"nccl4py is not installed: pip install '\.\[nccl-cu13\]'"):
        nccl.require()


@pytest.mark.parametrize(
    ("address", "own", "left"),
    [
        ("tcp://127.0.0.1:9000", None, "=lo"),
        ("tls://[::1]:9000", None, "=lo"),
        ("tcp://127.0.0.1:9000", "eth1", "eth1"),
        ("tcp://10.0.0.7:9000", None, None),
        ("tcp://node1:9000", None, None),
    ],
)
def test_nccl_listens_on_the_loopback_where_the_worker_does(
    address: str, own: str | None, left: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Also so that the test's end takes the variable away.
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", own or "")
    if own is None:
        monkeypatch.delenv("NCCL_SOCKET_IFNAME")
    nccl.stay_on_loopback(address)
    assert os.environ.get("NCCL_SOCKET_IFNAME") == left
