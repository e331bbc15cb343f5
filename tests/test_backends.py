"""Where a graph runs: what is chosen on a machine without GPUs, and how the choice is refused."""

import asyncio
from typing import Any

import dask
import distributed
import pytest

import dbfs
from dbfs import cluster, forming
from dbfs.errors import BackendUnavailableError, InvalidOptionError
from dbfs_workers import gpus


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine that seems to have four GPUs."""
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
    async def ask(address: str, operation: str, **message: Any) -> str | None:
        assert operation == "dbfs_gpu"
        return dict(workers)[address]

    asyncio.run(forming.require_gpus(tuple(address for address, _ in workers), ask))


def test_every_rank_has_a_gpu_of_its_own() -> None:
    require(("tcp://a:1", "0"), ("tcp://a:2", "1"), ("tcp://b:1", "0"))
    with pytest.raises(BackendUnavailableError, match="rank 1 .tcp://a:2. has no GPU"):
        require(("tcp://a:1", "0"), ("tcp://a:2", None))
    with pytest.raises(BackendUnavailableError, match="ranks 0 and 1 .* are on one GPU .0."):
        require(("tcp://a:1", "0"), ("tcp://a:2", "0"))


def test_auto_is_the_cpu_where_workers_have_no_gpu(client: distributed.Client) -> None:
    with dbfs.load("path:n=9", client=client) as graph:
        if graph.backend == "cuda":
            pytest.skip("there is a GPU")
        assert (graph.backend, graph.exchange) == ("cpu", "shared_memory")
        assert graph.bfs(0).to_dict()["backend"] == "cpu"
        assert dbfs.graphs(client=client)[-1].backend == "cpu"
        # The workers did not even look whether CuPy imports.
        imported = client.run(lambda: "cupy" in __import__("sys").modules)
        assert not any(imported.values())


def test_cuda_is_refused_before_the_graph_is_built(client: distributed.Client, leaves_nothing: None) -> None:
    with pytest.raises(BackendUnavailableError, match="rank 0 .*has no GPU|are on one GPU"):
        dbfs.load("path:n=9", client=client, backend="cuda", name="refused")
    dbfs.load("path:n=9", client=client, backend="cpu", name="refused").unload()


@pytest.mark.parametrize(
    ("backend", "exchange", "words"),
    [
        ("tpu", "auto", "unknown backend 'tpu'; choose one of auto, cpu, cuda"),
        ("cuda", "comm", "backend='cuda' does not go with the exchange comm"),
        ("cpu", "cuda_ipc", "backend='cpu' does not go with the exchange cuda_ipc"),
    ],
)
def test_bad_backends(client: distributed.Client, backend: str, exchange: str, words: str) -> None:
    with dask.config.set({"dbfs.exchange": exchange}), pytest.raises(InvalidOptionError, match=words):
        dbfs.load("path:n=3", client=client, backend=backend)


def test_what_a_cluster_on_gpus_lacks(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(cluster.importlib.util, "find_spec", lambda name: None if name == "dask_cuda" else name)
    assert cluster._lacking([], None) == "there is no GPU"
    assert cluster._lacking(["0", "1"], 3) == "3 GPUs wanted, 2 there"
    assert "dask_cuda not installed; pip install dbfs[cu13]" in cluster._lacking(["0", "1"], 2)
    machine.setattr(cluster.importlib.util, "find_spec", lambda name: name)
    assert cluster._lacking(["0", "1"], None) == ""
    machine.setattr(gpus, "_count", lambda: 0)
    with pytest.raises(BackendUnavailableError, match="no local cluster on GPUs: there is no GPU"):
        dbfs.connect(backend="cuda")
    with pytest.raises(InvalidOptionError, match="unknown backend 'tpu'"):
        dbfs.connect(backend="tpu")
