"""Dask's comms over UCX: the setting, the error if UCX is not installed, and the transport of bins."""

import importlib.util
from collections.abc import Callable
from typing import TypeVar

import dask
import numpy as np
import pytest
from distributed.protocol import deserialize, serialize

import dbfs
from dbfs.cluster import connect as cluster
from dbfs.errors import ExchangeUnavailableError, InvalidOptionError
from dbfs_workers.features.taskgraph import tasks as taskgraph_tasks  # noqa: F401 - says how bins are sent
from dbfs_workers.features.taskgraph.bins import Bin
from tests.support.gpus import GPUS, needs_gpu
from tests.support.graphs import GRAPHS
from tests.support.parity import Way, check, loaded

T = TypeVar("T", bound=Callable[..., object])
MISSING = r"UCX needs distributed-ucxx.*pip install '\.\[ucx-cu13\]', or '\.\[ucx-cu12\]', in a clone"


@pytest.fixture
def without_ucx(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        cluster.importlib.util, "find_spec", lambda name: None if name == "distributed_ucxx" else find_spec(name)
    )


def test_what_to_install(without_ucx: None) -> None:
    with dask.config.set({"dbfs.cluster.protocol": "ucx"}), pytest.raises(ExchangeUnavailableError, match=MISSING):
        dbfs.connect(n_workers=1)
    with pytest.raises(ExchangeUnavailableError, match=f"ucxx: {MISSING}"):
        dbfs.connect(n_workers=1, protocol="ucxx")
    with pytest.raises(ExchangeUnavailableError, match=f"ucx://10.0.0.1:8786: {MISSING}"):
        dbfs.connect("ucx://10.0.0.1:8786")


def test_a_protocol_that_is_none() -> None:
    with dask.config.set({"dbfs.cluster.protocol": "udp"}), pytest.raises(InvalidOptionError, match="auto, tcp, ucx"):
        dbfs.connect(n_workers=1)


@pytest.mark.parametrize("parents", [False, True])
@pytest.mark.parametrize("serializers", [("cuda", "dask", "pickle"), ("dask", "pickle")])
def test_bins_of_the_cpu_travel_by_any_comm(serializers: tuple[str, ...], parents: bool) -> None:
    rows = np.arange(1000, dtype=np.uint32)
    sent = Bin("a-run", 3, 1, 2, rows, rows + np.uint32(1) if parents else None)
    came = deserialize(*serialize(sent, serializers=serializers))
    assert (came.run_id, came.level, came.source, came.target) == ("a-run", 3, 1, 2)
    np.testing.assert_array_equal(came.rows, rows)
    np.testing.assert_array_equal(came.parents, sent.parents)


def on_a_gpu(test: T) -> T:
    for mark in needs_gpu("cupy"):
        test = mark(test)
    return test


@on_a_gpu
def test_a_bin_stays_in_gpu_memory_where_the_comm_takes_it() -> None:
    import cupy

    rows = cupy.arange(1000, dtype=np.uint32)
    header, frames = serialize(Bin("a-run", 3, 1, 2, rows[:500], rows[500:]), serializers=("cuda", "pickle"))
    assert sum(hasattr(frame, "__cuda_array_interface__") for frame in frames) == 2
    came = deserialize(header, frames)
    np.testing.assert_array_equal(came.rows.get(), np.arange(500))
    np.testing.assert_array_equal(came.parents.get(), np.arange(500, 1000))


@on_a_gpu
def test_a_bin_goes_through_the_host_elsewhere() -> None:
    import cupy

    rows = cupy.arange(1000, dtype=np.uint32)
    header, frames = serialize(Bin("a-run", 3, 1, 2, rows[:500], None), serializers=("dask", "pickle"))
    assert not any(hasattr(frame, "__cuda_array_interface__") for frame in frames)
    came = deserialize(header, frames)
    assert isinstance(came.rows, cupy.ndarray)
    np.testing.assert_array_equal(came.rows.get(), np.arange(500))


@pytest.mark.skipif(importlib.util.find_spec("distributed_ucxx") is None, reason="distributed-ucxx is not installed")
def test_the_taskgraph_engine_over_ucx() -> None:
    backend = "cuda" if GPUS and importlib.util.find_spec("cupy") else "cpu"
    way = Way("taskgraph", backend=backend)
    with (
        dask.config.set({"dbfs.cluster.protocol": "ucx"}),
        dbfs.connect(n_workers=2, dashboard_address=None, memory_limit=0) as client,
    ):
        assert client.scheduler.address.startswith("ucx://")
        for name in ("hub", "dense random"):
            with loaded(client, GRAPHS[name](), way, directed=False, ranks=2) as graph:
                assert all(address.startswith("ucx://") for address in graph.gang.addresses)
                check(graph, GRAPHS[name](), way, [5])
