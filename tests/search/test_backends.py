"""The choice of backend and exchange on a machine without GPUs, and its errors."""

import asyncio
import logging
import os
from dataclasses import replace
from typing import Any

import dask
import distributed
import pytest

import dbfs
from dbfs.base.records import EXCHANGES, Formation, GraphIds, GraphRecord
from dbfs.cluster import local as cluster
from dbfs.errors import (
    BackendUnavailableError,
    ExchangeUnavailableError,
    GraphTooLargeError,
    InvalidOptionError,
    UnreachableError,
    WorkerLostError,
)
from dbfs.service import forming
from dbfs_workers.base import gpus
from dbfs_workers.features.grid.layout import GridLayout
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.serving.messages import (
    ConnectExchange,
    DisconnectExchange,
    GetGpu,
    GetHost,
    JoinGang,
    LeaveGang,
    OfferExchange,
    WorkerMessage,
)
from dbfs_workers.serving.rpc import PickledValue
from tests.support.graphs import GRAPHS
from tests.support.parity import Way, check, loaded
from tests.support.standin import pretend_to_have_a_gpu


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine that appears to have four GPUs."""
    monkeypatch.setattr(gpus, "_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (None, ["0", "1", "2", "3"]),
        ("2,0", ["2", "0"]),
        ("1, -1, 0", ["1"]),
        ("", []),
        ("GPU-8f2,GPU-77a", ["GPU-8f2", "GPU-77a"]),
    ],
)
def test_visible_gpus(machine: pytest.MonkeyPatch, chosen: str | None, expected: list[str]) -> None:
    if chosen is not None:
        machine.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert gpus.visible_gpus() == expected


def test_no_gpu_whatever_is_visible(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(gpus, "_count", lambda: 0)
    machine.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert gpus.visible_gpus() == []
    assert gpus.own_gpu() is None


def require(*workers: tuple[str, str | None]) -> None:
    async def call(address: str, message: WorkerMessage[Any]) -> Any:
        assert message == GetGpu()
        return dict(workers)[address]

    assert asyncio.run(forming.require_gpus([address for address, _ in workers], call)) == [gpu for _, gpu in workers]


def test_every_rank_has_a_gpu() -> None:
    require(("tcp://a:1", "0"), ("tcp://a:2", "1"), ("tcp://b:1", "0"))
    with pytest.raises(BackendUnavailableError, match="rank 1 .tcp://a:2. has no GPU"):
        require(("tcp://a:1", "0"), ("tcp://a:2", None))


def test_auto_is_the_cpu_where_workers_have_no_gpu(client: distributed.Client) -> None:
    with dbfs.load("path:n=9", client=client) as graph:
        if graph.backend == "cuda":
            pytest.skip("there is a GPU")
        assert (graph.backend, graph.exchange) == ("cpu", "shared_memory")
        assert graph.bfs(0).summary()["backend"] == "cpu"
        assert dbfs.graphs(client=client)[-1].backend == "cpu"
        # The workers did not try to import CuPy.
        imported = client.run(lambda: "cupy" in __import__("sys").modules)
        assert not any(imported.values())


def test_cuda_is_refused_before_the_graph_is_built(client: distributed.Client, leaves_nothing: None) -> None:
    with pytest.raises(BackendUnavailableError, match="rank 0 .*has no GPU"):
        dbfs.load("path:n=9", client=client, backend="cuda", name="refused")
    dbfs.load("path:n=9", client=client, backend="cpu", name="refused").unload()


@pytest.mark.parametrize(
    ("backend", "exchange", "words"),
    [
        ("tpu", "auto", "unknown backend 'tpu'; choose one of auto, cpu, cuda"),
        ("cpu", "cuda_ipc", "backend='cpu' does not support the exchange cuda_ipc"),
        ("cuda", "comm", "dbfs.exchange: 'comm' is not one of auto, cuda_ipc, nccl, shared_memory, tcp"),
    ],
)
def test_bad_backends(client: distributed.Client, backend: str, exchange: str, words: str) -> None:
    with dask.config.set({"dbfs.exchange": exchange}), pytest.raises(InvalidOptionError, match=words):
        dbfs.load("path:n=3", client=client, backend=backend)


@pytest.mark.full
def test_workers_of_a_cluster_on_the_cpu_see_no_gpu(machine: pytest.MonkeyPatch) -> None:
    with dbfs.connect(n_workers=1, backend="cpu", dashboard_address=None) as client:
        assert list(client.run(visible_in_the_environment).values()) == [""]


def visible_in_the_environment() -> str | None:
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def test_what_a_cluster_on_gpus_lacks(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(cluster.importlib.util, "find_spec", lambda name: None if name == "dask_cuda" else name)
    assert cluster._lacking([], None) == "there is no GPU"
    assert cluster._lacking(["0", "1"], 3) == "3 GPUs wanted, 2 found"
    assert "dask_cuda not installed; pip install '.[cu13]'" in cluster._lacking(["0", "1"], 2)
    machine.setattr(cluster.importlib.util, "find_spec", lambda name: name)
    assert cluster._lacking(["0", "1"], None) == ""
    machine.setattr(gpus, "_count", lambda: 0)
    with pytest.raises(BackendUnavailableError, match="no local cluster on GPUs: there is no GPU"):
        dbfs.connect(backend="cuda")
    with pytest.raises(InvalidOptionError, match="unknown backend 'tpu'"):
        dbfs.connect(backend="tpu")


JOINING = [*[JoinGang] * 2, *[OfferExchange] * 2, *[ConnectExchange] * 2]


class Gang:
    """Workers with a GPU each (or one for all), as ``forming`` calls them; rank 1 fails at one message of one exchange.

    Without ``nccl`` nccl4py is not installed there.
    """

    def __init__(
        self,
        fails: type[WorkerMessage[Any]] | None = None,
        exchange: str = "",
        error: Exception | None = None,
        *,
        sharing: bool = False,
        gpus: bool = True,
        nccl: bool = False,
    ) -> None:
        self.fails = fails, exchange
        self.error = error
        self.sharing = sharing
        self.gpus = gpus
        self.nccl = nccl
        self.received: list[type[WorkerMessage[Any]]] = []
        self.joined: list[str] = []
        self.offers: list[tuple[str, ...]] = []

    async def call(self, address: str, message: WorkerMessage[Any]) -> Any:
        self.received.append(type(message))
        if isinstance(message, JoinGang):
            self.joined.append(message.exchange)
        if (
            self.error is not None
            and address == "tcp://a:2"
            and self.fails == (type(message), self.joined and self.joined[-1])
        ):
            raise self.error
        match message:
            case JoinGang(exchange="nccl") if not self.nccl:
                raise ExchangeUnavailableError("nccl4py is not installed")
            case GetHost():
                return "a host"
            case GetGpu():
                return ("0" if self.sharing else address) if self.gpus else None
            case OfferExchange():
                return PickledValue.of(address)
            case ConnectExchange():
                self.offers.append(tuple(offer.value() for offer in message.offers))
        return None


def choose(gang: Gang, backend: str, exchange: str = "auto") -> str:
    return asyncio.run(forming.choose_backend(["tcp://a:1", "tcp://a:2"], backend, exchange, gang.call))


def record(backend: str, exchange: str = "auto") -> GraphRecord:
    return GraphRecord(
        graph_id="id",
        name="roads",
        named=False,
        client="me",
        source="roads",
        directed=False,
        stripe=Stripe(100, 2),
        addresses=("tcp://a:1", "tcp://a:2"),
        partition_keys=("p0", "p1"),
        ids=GraphIds(),
        order_key=None,
        input_edge_keys=(),
        infos=(),
        backend=backend,
        exchange=exchange,
        layout=None,
        created=0.0,
        read_seconds=0.0,
        build_seconds=0.0,
    )


@pytest.mark.parametrize("message", [JoinGang, OfferExchange, ConnectExchange])
def test_a_rank_that_is_lost_while_the_ranks_connect_is_named(message: type[WorkerMessage[Any]]) -> None:
    gang = Gang(message, "host", UnreachableError("lost the worker tcp://a:2: the connection broke"))
    with pytest.raises(WorkerLostError, match=r"^lost rank 1 \(tcp://a:2\); load the graph again$"):
        asyncio.run(forming.form(record("cpu"), gang.call))
    # All ranks leave.
    assert gang.received[-2:] == [LeaveGang] * 2


def test_gpus_that_cannot_map_each_other_exchange_through_the_host() -> None:
    lacking = "rank 1 can't map its peers' GPU memory"
    gang = Gang(ConnectExchange, "cuda_ipc", ExchangeUnavailableError(lacking))
    formed = asyncio.run(forming.form(record("cuda"), gang.call))
    assert formed == Formation("cuda", "shared_memory", f"{lacking}; nccl4py is not installed")
    assert gang.joined == ["cuda_ipc"] * 2 + ["nccl"] * 2 + ["host"] * 2
    # All ranks leave, so no engines remain of the gangs that were not formed.
    assert gang.received.count(LeaveGang) == 4
    with pytest.raises(ExchangeUnavailableError, match="can't map"):
        asyncio.run(forming.form(record("cuda", "cuda_ipc"), gang.call))


def test_gpus_that_cannot_map_each_other_exchange_by_nccl() -> None:
    gang = Gang(ConnectExchange, "cuda_ipc", ExchangeUnavailableError("rank 1 is on another host"), nccl=True)
    formed = asyncio.run(forming.form(record("cuda"), gang.call))
    assert formed == Formation("cuda", "nccl")
    # What each rank offered goes to all ranks.
    assert gang.received[-4:] == JOINING[2:]
    assert gang.offers[-2:] == [("tcp://a:1", "tcp://a:2")] * 2
    # After a failed run the ranks connect anew.
    gang.received.clear()
    asyncio.run(forming.connect(record("cuda"), gang.call))
    assert gang.received == JOINING[2:]


@pytest.mark.parametrize(
    ("backend", "exchange"),
    [("cpu", "auto"), ("cpu", "tcp"), *(("cuda", exchange) for exchange in EXCHANGES[1:])],
)
def test_every_exchange_is_set_up_in_one_way(backend: str, exchange: str) -> None:
    gang, wanted = Gang(nccl=True), record(backend, exchange)
    formed = asyncio.run(forming.form(wanted, gang.call))
    assert formed.exchange == ("shared_memory" if exchange == "auto" else exchange)
    assert gang.received[-6:] == JOINING
    gang.received.clear()
    # After a failed run.
    asyncio.run(forming.connect(wanted, gang.call))
    assert gang.received == JOINING[2:]
    # Every rank gets the offers of all ranks, in order.
    assert gang.offers == [wanted.addresses] * 4


def test_workers_with_tls_exchange_by_nccl_only_if_asked_to() -> None:
    gang = Gang(ConnectExchange, "cuda_ipc", ExchangeUnavailableError("can't map"), nccl=True)
    addresses = ("tls://a:1", "tls://a:2")

    async def call(address: str, message: WorkerMessage[Any]) -> Any:
        return await gang.call(address.replace("tls", "tcp"), message)

    formed = asyncio.run(forming.form(replace(record("cuda"), addresses=addresses), call))
    assert formed.exchange == "shared_memory"
    assert "NCCL does not encrypt" in formed.slower
    asked = replace(record("cuda", "nccl"), addresses=addresses)
    assert asyncio.run(forming.form(asked, call)) == Formation("cuda", "nccl")


def test_gpus_that_nccl_does_not_connect_leave_and_exchange_through_the_host() -> None:
    error = ExchangeUnavailableError("rank 1: no communicator after 20 s")
    gang = Gang(ConnectExchange, "nccl", error, nccl=True)
    with pytest.raises(ExchangeUnavailableError, match="rank 1: no communicator"):
        asyncio.run(forming.form(record("cuda", "nccl"), gang.call))
    assert gang.received.count(LeaveGang) == 2
    with pytest.raises(ExchangeUnavailableError, match="ranks 0 and 1 .* are on one GPU .0."):
        asyncio.run(forming.form(record("cuda", "nccl"), Gang(sharing=True, nccl=True).call))


def test_ranks_on_one_gpu_exchange_through_the_host_where_cuda_was_asked_for() -> None:
    gang = Gang(sharing=True)
    formed = asyncio.run(forming.form(record("cuda"), gang.call))
    assert (formed.backend, formed.exchange) == ("cuda", "shared_memory")
    assert "ranks 0 and 1 (tcp://a:2) are on one GPU (0)" in formed.slower
    # No resident kernel was started, as it would wait for the other rank's.
    assert gang.joined == ["host"] * 2
    with pytest.raises(ExchangeUnavailableError, match="ranks 0 and 1 .* are on one GPU .0."):
        asyncio.run(forming.form(record("cuda", "cuda_ipc"), gang.call))
    assert choose(gang, "cuda") == "cuda"
    assert choose(gang, "auto") == "cpu"
    with pytest.raises(BackendUnavailableError, match="ranks 0 and 1 .* are on one GPU .0."):
        choose(gang, "auto", "cuda_ipc")


def test_a_backend_is_chosen_before_the_graph_is_built() -> None:
    gang = Gang()
    assert [choose(gang, backend) for backend in ("auto", "cuda", "cpu")] == ["cuda", "cuda", "cpu"]
    assert gang.received == [GetGpu] * 4
    nobody = Gang(gpus=False)
    assert [choose(nobody, backend) for backend in ("auto", "cpu")] == ["cpu", "cpu"]
    for backend, exchange in (("cuda", "auto"), ("auto", "cuda_ipc")):
        with pytest.raises(BackendUnavailableError, match="rank 0 .tcp://a:1. has no GPU"):
            choose(nobody, backend, exchange)


def test_gpus_exchange_as_they_are_told() -> None:
    gang = Gang()
    assert asyncio.run(forming.form(record("cuda", "shared_memory"), gang.call)) == Formation("cuda", "shared_memory")
    assert gang.received == [*[GetGpu] * 2, *[GetHost] * 2, *JOINING]
    gang = Gang()
    assert asyncio.run(forming.form(record("cuda", "tcp"), gang.call)) == Formation("cuda", "tcp", hosts=(0, 1))
    assert gang.received == [*[GetGpu] * 2, *JOINING]


def test_gpus_on_two_hosts_exchange_as_cpus_do() -> None:
    gang = Gang()

    async def call(address: str, message: WorkerMessage[Any]) -> Any:
        return address if isinstance(message, GetHost) else await gang.call(address, message)

    lacking = "roads has ranks on several hosts, which map no GPU memory; nccl4py is not installed"
    assert asyncio.run(forming.form(record("cuda"), call)) == Formation("cuda", "tcp", lacking, hosts=(0, 1))
    with pytest.raises(ExchangeUnavailableError, match="rank 1 .tcp://a:2. is on another host than rank 0"):
        asyncio.run(forming.form(record("cuda", "shared_memory"), call))


def test_ranks_that_share_no_memory_all_leave_before_any_joins_anew() -> None:
    """Otherwise a late rank would attach to shared memory that the other ranks have left."""
    addresses = ("tcp://a:1", "tcp://a:2", "tcp://b:1")
    three = replace(record("cpu"), stripe=Stripe(100, 3), addresses=addresses, partition_keys=("p",) * 3)
    received: list[tuple[type[WorkerMessage[Any]], str]] = []

    async def call(address: str, message: WorkerMessage[Any]) -> Any:
        if isinstance(message, GetHost):
            return "one host, as far as the workers can tell"
        received.append((type(message), address))
        shares = sum(kind is JoinGang for kind, _ in received) <= 3
        if isinstance(message, ConnectExchange) and shares:
            if address == "tcp://b:1":
                raise ExchangeUnavailableError("on another host")
            await asyncio.sleep(0.05)
        return PickledValue.of(address) if isinstance(message, OfferExchange) else None

    assert asyncio.run(forming.form(three, call)) == Formation("cpu", "tcp", hosts=(0, 1, 2))
    attempt = [JoinGang, OfferExchange, ConnectExchange]
    kinds = [*attempt, LeaveGang, *attempt]
    assert received == [(kind, address) for kind in kinds for address in addresses]


@pytest.mark.parametrize(("exchange", "joined"), [("tcp", "host"), ("auto", "cuda_ipc")])
def test_a_gpu_that_is_full_ends_the_load(exchange: str, joined: str) -> None:
    error = GraphTooLargeError("rank 1: the graph needs 5 bytes on its GPU, 4 bytes are free")
    gang = Gang(JoinGang, joined, error)
    with pytest.raises(GraphTooLargeError, match="5 bytes"):
        asyncio.run(forming.form(record("cuda", exchange), gang.call))
    assert gang.received.count(LeaveGang) == 2


def test_ranks_that_mapped_others_unmap_them_before_anybody_leaves() -> None:
    gang = Gang(ConnectExchange, "cuda_ipc", GraphTooLargeError("rank 1: no room to map"))
    with pytest.raises(GraphTooLargeError, match="no room to map"):
        asyncio.run(forming.form(record("cuda"), gang.call))
    assert gang.received[-4:] == [DisconnectExchange] * 2 + [LeaveGang] * 2


def test_a_grid_on_gpus_maps_messages_or_exchanges_by_nccl_or_through_the_host() -> None:
    grid = replace(record("cuda"), layout=GridLayout(1, 2))
    gang = Gang(sharing=True)
    assert asyncio.run(forming.form(grid, gang.call)) == Formation("cuda", "cuda_ipc")
    assert gang.joined == ["cuda_ipc"] * 2
    gang = Gang(ConnectExchange, "cuda_ipc", ExchangeUnavailableError("can't map"), nccl=True)
    assert asyncio.run(forming.form(grid, gang.call)) == Formation("cuda", "nccl")
    # NCCL refuses two ranks on one GPU.
    gang = Gang(ConnectExchange, "cuda_ipc", ExchangeUnavailableError("can't map"), sharing=True, nccl=True)
    formed = asyncio.run(forming.form(grid, gang.call))
    assert formed.exchange == "shared_memory"
    assert "can't map; ranks 0 and 1 (tcp://a:2) are on one GPU (0)" in formed.slower
    assert gang.joined == ["cuda_ipc"] * 2 + ["host"] * 2
    gang = Gang(ConnectExchange, "cuda_ipc", ExchangeUnavailableError("can't map"))
    with pytest.raises(ExchangeUnavailableError, match="can't map"):
        asyncio.run(forming.form(replace(grid, exchange="cuda_ipc"), gang.call))
    assert gang.received[-4:] == [DisconnectExchange] * 2 + [LeaveGang] * 2
    gang = Gang()
    assert asyncio.run(forming.form(replace(grid, exchange="shared_memory"), gang.call)).exchange == "shared_memory"
    assert gang.joined == ["host"] * 2


@pytest.mark.full
def test_workers_that_share_a_gpu_build_and_traverse_through_the_host(caplog: pytest.LogCaptureFixture) -> None:
    arrays = GRAPHS["dense random"]()
    with dbfs.connect(n_workers=2, backend="cpu", dashboard_address=None) as client:
        dbfs.load("path:n=2", client=client).unload()
        client.run(pretend_to_have_a_gpu)
        with caplog.at_level(logging.WARNING, "dbfs.graph.load"):
            for way in (Way("resident", "shared_memory"), Way("resident", "tcp"), Way("taskgraph")):
                asked = replace(way, backend="cuda")
                with loaded(client, arrays, asked, directed=False, ranks=2) as graph:
                    check(graph, arrays, asked, [5])
                    told = graph.bfs(5, engine=way.engine).summary()
                    exchange = "dask" if way.engine == "taskgraph" else way.exchange
                    assert (told["backend"], told["exchange"]) == ("cuda", exchange)
        # Only the last graph chose its exchange itself, so only that graph is logged.
        words = "its GPUs exchange through the host (shared_memory), which is slower: ranks 0 and 1 ("
        assert [words in record.getMessage() for record in caplog.records] == [True]
