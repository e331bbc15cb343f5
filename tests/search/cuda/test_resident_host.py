"""The host's side of a resident kernel, without a GPU: facts about rows, mapped windows, waits and deadlines."""

import dataclasses
import sys
from collections import deque
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from dbfs_workers.base.errors import DeadlineExceededError, ExchangeUnavailableError, GraphTooLargeError
from dbfs_workers.base.tokens import Token, issue
from dbfs_workers.search.cuda import device_graph, device_memory, layout, records, resident, window
from dbfs_workers.search.cuda.device_memory import ExportedArray
from dbfs_workers.search.cuda.run import KernelAbortedError, Reason, Step
from dbfs_workers.search.members import resident as runner
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.members.resident import ResidentRunner
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import GraphTotals
from dbfs_workers.search.partition.stripe import Stripe
from tests.support.cuda_on_cpu.resident import facts
from tests.support.standin import Cupy

STRIPE = Stripe(200, 2)
TOKEN = issue("graph")
ROWS = STRIPE.n_local


@pytest.fixture(autouse=True)
def cupy(monkeypatch: pytest.MonkeyPatch) -> Cupy:
    cupy = Cupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return cupy


def common_degrees(blocks: Any, threads: Any, arguments: tuple[Any, ...]) -> None:
    """Do what ``dbfs_common_degrees`` does."""
    offsets, rows, common, mixed = arguments
    for group in range(common.size):
        degrees = np.diff(offsets[: rows + 1])[group * layout.GROUP_ROWS :][: layout.GROUP_ROWS]
        whole = degrees.size == layout.GROUP_ROWS and np.unique(degrees).size == 1
        common[group] = degrees[0] if whole else 2**32 - 1
        mixed[0] += not whole


def graph_of(monkeypatch: pytest.MonkeyPatch, *, symmetric: bool) -> device_graph.DeviceGraph:
    """Return a rank whose rows 3 and 40 have two edges each."""
    kernels: dict[str, Any] = dict.fromkeys(("dbfs_uses", "dbfs_hubs"), lambda *_: None)
    kernels |= {"dbfs_facts": facts, "dbfs_common_degrees": common_degrees}
    monkeypatch.setattr(device_graph, "load", lambda source: SimpleNamespace(get_function=kernels.get))
    degrees = np.zeros(ROWS, np.int64)
    degrees[[3, 40]] = 2
    offsets = np.append(0, np.cumsum(degrees))
    columns = np.zeros(4, np.uint32)
    return device_graph.device_graph(STRIPE, 0, offsets, columns, symmetric=symmetric)


def test_rows_without_edges_behind_the_last_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert graph_of(monkeypatch, symmetric=True).rows_used == 64


def test_rows_that_only_edges_of_other_ranks_reach_are_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert graph_of(monkeypatch, symmetric=False).rows_used == ROWS


def test_lists_are_exported_for_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(monkeypatch, symmetric=True)
    monkeypatch.setattr(resident, "export_array", lambda array: ExportedArray(b"handle", array.nbytes))
    assert resident.leader_lists(graph) == (ExportedArray(b"handle", 8 * (ROWS + 1)), ExportedArray(b"handle", 16))

    def refuse(array: Any) -> ExportedArray:
        raise ExchangeUnavailableError("GPU memory can't be exported")

    monkeypatch.setattr(resident, "export_array", refuse)
    assert resident.leader_lists(graph) is None


def test_an_allocation_is_exported_with_the_place_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_memory, "_allocation", lambda address: address - 48)
    monkeypatch.setattr(device_memory, "ipc_handle", lambda address: address.to_bytes(8, "little"))
    array: Any = SimpleNamespace(size=3, data=SimpleNamespace(ptr=1048))
    assert device_memory.export_array(array) == ExportedArray((1000).to_bytes(8, "little"), 48)
    assert device_memory.export_array(SimpleNamespace(size=0, data=SimpleNamespace(ptr=0))) == ExportedArray(b"", 0)


class Runtime:
    """A CUDA runtime that maps every handle at its number and lists the open ones."""

    def __init__(self, refused: bytes = b"") -> None:
        self.open: list[int] = []
        self.refused = refused

    def ipcOpenMemHandle(self, handle: bytes) -> int:  # noqa: N802
        if handle == self.refused:
            raise RuntimeError("no peer access")
        self.open.append(int.from_bytes(handle, "little"))
        return self.open[-1]

    def ipcCloseMemHandle(self, address: int) -> None:  # noqa: N802
        self.open.remove(address)


def peers_of(cupy: Cupy, runtime: Runtime, *, is_leader: bool, token: Token | None = None) -> window.PeerWindows:
    """Return the windows of rank 0 of two. The other rank's window, offsets and columns are at 100, 200 + 8 and 300."""
    cupy.cuda.runtime = runtime
    own: Any = SimpleNamespace(address=7, layout=window.window_layout(STRIPE, 4, 4, predecessors=False))
    handles = [number.to_bytes(8, "little") for number in (100, 200, 300)]
    lists = (ExportedArray(handles[1], 8), ExportedArray(handles[2], 0))
    info: Any = SimpleNamespace(handle=handles[0], token=token or TOKEN, csr=lists)
    return window.PeerWindows(0, own, {0: info, 1: info}, "graph", is_leader=is_leader)


def test_only_the_leader_maps_lists(cupy: Cupy) -> None:
    runtime = Runtime()
    peers = peers_of(cupy, runtime, is_leader=True)
    assert runtime.open == [100, 200, 300]
    params = peers.params()
    assert params[1]["out"].tolist() == (208, 300)
    assert params[0]["distances"] - params[0]["flags"] == params[1]["distances"] - params[1]["flags"]
    assert (params[0]["flags"], params[1]["flags"]) == (7, 100)
    peers.close()
    assert runtime.open == []
    assert peers_of(cupy, runtime, is_leader=False).params()[1]["out"].tolist() == (0, 0)
    assert runtime.open == [100]


def test_mapped_windows_are_unmapped_if_a_later_one_is_refused(cupy: Cupy) -> None:
    runtime = Runtime(refused=(300).to_bytes(8, "little"))
    with pytest.raises(RuntimeError, match="no peer access"):
        peers_of(cupy, runtime, is_leader=True)
    assert runtime.open == []


def test_no_handle_is_opened_before_the_token_is_verified(cupy: Cupy) -> None:
    tokens = [
        ("another graph", issue("other")),
        ("another file", dataclasses.replace(TOKEN, label=TOKEN.label[:-1] + "x")),
        # The owner has freed its window.
        ("No such file", dataclasses.replace(TOKEN, descriptor=10**6)),
        # As on another host, where no process or another one has the number.
        ("No such file", dataclasses.replace(TOKEN, pid=2**22 + 1)),
    ]
    for words, token in tokens:
        runtime = Runtime()
        with pytest.raises(ExchangeUnavailableError, match=f"rank 0 can't map the GPU memory of rank 1: .*{words}"):
            peers_of(cupy, runtime, is_leader=True, token=token)
        assert runtime.open == []


class Engine:
    """A stand-in that counts closed engines and has no room for a second one."""

    closed = 0
    made = 0

    def __init__(self, graph: Any, graph_id: str, *, predecessors: bool) -> None:
        if predecessors and Engine.made == 1:
            raise GraphTooLargeError("no room")
        Engine.made += 1
        self.shared = False

    def close(self) -> None:
        Engine.closed += 1


def test_an_engine_is_closed_if_the_second_finds_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "ResidentKernel", Engine)
    monkeypatch.setattr(runner, "on_device", lambda partition: None)
    monkeypatch.setattr(runner, "Summary", lambda graph: None)
    partition: Any = SimpleNamespace(
        stripe=STRIPE, m_local=4, parents=None, columns=None, nbytes=0, on=lambda cupy: None
    )
    made = Member(0, "partition", ResidentRunner("graph"))
    with pytest.raises(GraphTooLargeError, match="no room"):
        made.make(partition)
    made.close()
    made._executor.shutdown(wait=True)
    assert (Engine.made, Engine.closed) == (1, 1)


@pytest.mark.parametrize("disconnected", [True, False])
def test_memory_that_a_peer_may_have_mapped_is_kept(disconnected: bool) -> None:
    freed: list[str] = []

    def part(name: str) -> Any:
        return SimpleNamespace(free=lambda: freed.append(name), close=lambda: freed.append(name))

    engine = object.__new__(resident.ResidentKernel)
    engine.graph = SimpleNamespace(stripe=STRIPE)  # type: ignore[assignment]
    engine._window, engine._peers = part("window"), part("peers")
    engine._slots = deque([Mock(host=part("host"))])
    if disconnected:
        engine.disconnect()
    assert engine.shared is not disconnected
    engine.close()
    assert freed == (["peers", "window", "host"] if disconnected else ["peers", "host"])


def waiting(timeout: float) -> resident.ResidentKernel:
    """Return an engine whose kernel runs until it is stopped."""
    engine = object.__new__(resident.ResidentKernel)
    header = np.zeros(1, layout.HOST_HEADER)

    def query(event: int) -> int:
        if not header["abort"][0]:
            return 600
        header["status"] = Reason.ABORTED | Step.EXPAND_LIGHT << layout.STATUS_STEP | 7 << layout.STATUS_LEVEL
        return 0

    class Host:
        def __init__(self) -> None:
            self.header = header

        def __getitem__(self, field: str) -> int:
            return int(header[field][0])

        def values(self) -> dict[str, int]:
            return {name: int(header[name][0]) for name in header.dtype.names}

    under_way = object.__new__(records.Slot)
    under_way.host, under_way.done = Host(), SimpleNamespace(ptr=1)  # type: ignore[assignment]
    under_way._query = query
    under_way.records = SimpleNamespace(pending=0, drain=lambda: None)  # type: ignore[assignment]
    engine.graph = SimpleNamespace(rank=3)  # type: ignore[assignment]
    engine._timeout, engine._slots, engine._under_way = timeout, [under_way], deque([under_way])
    return engine


def test_a_deadline_that_the_host_sees_first_is_a_deadline() -> None:
    with pytest.raises(DeadlineExceededError, match=r"longer than 0.02 s: rank 3, level 7, expand_light step"):
        waiting(0.02).wait()


def test_a_kernel_stopped_before_the_deadline_was_aborted() -> None:
    engine = waiting(60)
    engine.abort()
    with pytest.raises(KernelAbortedError, match="rank 3, level 7, expand_light step"):
        engine.wait()


def test_a_kernel_that_failed_ends_the_wait_at_once() -> None:
    """CuPy's ``Event.done`` is False for its event, so that the wait lasted until the deadline."""

    def synchronize() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    engine = waiting(60)
    engine._slots[0]._query = lambda event: 700
    engine._slots[0].done.synchronize = synchronize
    with pytest.raises(RuntimeError, match="illegal memory access"):
        engine.wait()


def test_another_version_replaces_all_that_the_kernel_reads_of_the_graph() -> None:
    def array(at: int, size: int = 1) -> Any:
        return SimpleNamespace(data=SimpleNamespace(ptr=at), size=size)

    def version(first: int, mixed: int) -> Any:
        names = ("row_offsets", "columns", "in_offsets", "in_columns", "hubs", "closed", "common")
        arrays = {name: array(first + place) for place, name in enumerate(names)}
        table = SimpleNamespace(**vars(array(first + 7)), shape=(9, 8)) if mixed == 1 else None
        return SimpleNamespace(
            **arrays, table=table, stripe=STRIPE, rank=1, chunks=first, rows_used=first + 32, mixed=mixed
        )

    engine = object.__new__(resident.ResidentKernel)
    engine._cupy = SimpleNamespace(empty=lambda size, dtype: array(7000 + size, size))
    engine._params = np.zeros(1, layout.PARAMS)
    engine._shared_labels = RankLabels(array(9), None)
    params, prepared = engine._params[0], engine.__dict__
    params["leader_vertices"] = 5
    # A run counts degrees unless it may have light levels, or more than half of the rows lie in mixed groups.
    for first, max_degree, light, own, mixed, counts in (
        (100, 32, 4, False, 0, False),
        (200, 33, 0, True, 1, False),
        (300, 3, 3, False, 2, False),
        (224, 33, 0, True, 1, True),
        (200, 33, 0, True, 0, True),
    ):
        prepared["_prepared"], prepared["_dirty_tail"] = (1,), False
        engine.take_over(version(first, mixed), GraphTotals(12, 0, max_degree))
        assert params["out"].tolist() == params["peers"][1]["out"].tolist() == (first, first + 1)
        assert (params["in"].tolist(), params["hubs"], params["closed"]) == (
            (first + 2, first + 3),
            first + 4,
            first + 5,
        )
        assert (params["table"], params["table_log"]) == ((first + 7, 3) if mixed == 1 else (0, 0))
        assert (params["rows_used"], params["chunks"].tolist()) == (first + 32, [7001 + first] * 2)
        assert (params["edges_total"], params["vertices_total"], params["max_degree"]) == (12, 1, max_degree)
        assert (params["light"], params["leader_vertices"], params["distances"]) == (light, 0, 9)
        assert (params["common"], engine.counts_degrees) == ((first + 6) * counts, counts)
        assert (engine._own_distances, engine._prepared, engine._dirty_tail) == (own, (), True)
