"""A rank on a GPU that exchanges through the host, without one: what it takes, and what its GPU's failures become.

The CPU's backend stands for the GPU's; CuPy is a stand-in.
"""

import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dbfs_workers.base.errors import DeviceFailedError, GraphTooLargeError
from dbfs_workers.base.spec import RunSpec
from dbfs_workers.features.taskgraph import state as traversal
from dbfs_workers.search import backends
from dbfs_workers.search.cuda.failures import typed_errors
from dbfs_workers.search.members.loop import LoopRunner
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.partition import scratch
from dbfs_workers.search.partition.partition import Partition
from tests.support.exchanges import shared_memory
from tests.support.gang import partitions, spec


class CudaRuntimeError(RuntimeError):
    """Stands for CuPy's."""


class CudaDriverError(RuntimeError):
    """Stands for CuPy's."""


class OutOfMemoryError(MemoryError):
    """Stands for CuPy's."""


class Gpu:
    """CuPy's part in it."""

    def __init__(self) -> None:
        self.free = 2**30
        self.pooled = 0

    def module(self) -> Any:
        pool = SimpleNamespace(
            free_bytes=lambda: self.pooled, free_all_blocks=lambda: None, used_bytes=lambda: 0, get_limit=lambda: 0
        )
        return SimpleNamespace(
            cuda=SimpleNamespace(
                Device=lambda: SimpleNamespace(mem_info=(self.free, 2**37)),
                memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
                runtime=SimpleNamespace(CUDARuntimeError=CudaRuntimeError),
                driver=SimpleNamespace(CUDADriverError=CudaDriverError),
            ),
            get_default_memory_pool=lambda: pool,
        )


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu, cpu = Gpu(), backends.get("cpu")
    monkeypatch.setitem(sys.modules, "cupy", gpu.module())
    monkeypatch.setattr(backends, "get", lambda name: cpu)
    return gpu


@pytest.fixture
def path() -> Partition:
    ids = np.arange(50)
    return partitions(51, ids, ids + 1, 1, directed=False)[0]


@pytest.fixture
def runner(gpu: Gpu, path: Partition) -> Iterator[LoopRunner]:
    runner = LoopRunner(shared_memory(path.stripe)[0], "cuda")
    member = Member(0, "partition", runner)
    yield runner
    member.close()


def test_a_run_through_the_host(runner: LoopRunner, path: Partition) -> None:
    runner.make(path)
    run = runner.traverse(path, 1, RunSpec.single(spec(0, predecessors=True)), time.monotonic() + 20)[0]
    labels = runner.fetch(run.labels)
    np.testing.assert_array_equal(labels.distances[:51], np.arange(51))
    assert labels.predecessors is not None
    np.testing.assert_array_equal(labels.predecessors[:51], np.maximum(np.arange(51), 1) - 1)


def test_memory_is_asked_for_before_it_is_taken(runner: LoopRunner, path: Partition, gpu: Gpu) -> None:
    needed = runner.gpu_bytes(path)
    gpu.free, gpu.pooled = needed - 5, 4
    with pytest.raises(GraphTooLargeError, match=f"rank 0: .* {needed} bytes on its GPU, {needed - 1} bytes are free"):
        runner.make(path)
    # What CuPy holds and does not use counts as free.
    gpu.pooled = 5
    runner.make(path)


@pytest.mark.parametrize(
    ("fails", "error", "words"),
    [
        (OutOfMemoryError("8 bytes wanted"), GraphTooLargeError, f"rank 0: 8 bytes wanted; {2**30} bytes are free"),
        (CudaRuntimeError("cudaErrorIllegalAddress"), DeviceFailedError, "rank 0: its GPU failed: cudaErrorIllegal"),
        (CudaDriverError("CUDA_ERROR_LAUNCH_FAILED"), DeviceFailedError, "rank 0: its GPU failed: CUDA_ERROR_LAUNCH"),
        (CudaDriverError("CUDA_ERROR_OUT_OF_MEMORY"), GraphTooLargeError, f"no memory left, {2**30} bytes are free"),
    ],
)
def test_failures_of_the_gpu_are_typed(
    runner: LoopRunner,
    path: Partition,
    monkeypatch: pytest.MonkeyPatch,
    fails: Exception,
    error: type[Exception],
    words: str,
) -> None:
    runner.make(path)

    def fail(*arguments: object) -> None:
        raise fails

    with monkeypatch.context() as patch:
        patch.setattr(backends.get("cuda"), "top_down", fail)
        with pytest.raises(error, match=words) as raised:
            runner.traverse(path, 1, RunSpec.single(spec(0)), time.monotonic() + 20)
        assert raised.value.__cause__ is None
    # The gang serves the next run.
    assert runner.traverse(path, 2, RunSpec.single(spec(0)), time.monotonic() + 20)[0].reached == 51


def test_a_gpu_that_is_full_while_memory_is_taken(
    runner: LoopRunner, path: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OutOfMemoryError("out of memory")

    monkeypatch.setattr(scratch, "Scratch", full)
    with pytest.raises(GraphTooLargeError, match="rank 0: out of memory"):
        runner.make(path)


def test_failures_in_a_phase_of_the_taskgraph_engine_are_typed(gpu: Gpu, path: Partition) -> None:
    gpu.free = 3
    state = traversal.start(path, spec(0, run_id="a-run"))
    state.backend = SimpleNamespace(typed_errors=typed_errors)  # type: ignore[assignment]
    words = "rank 0, level 0, expand: 9 bytes wanted; 3 bytes are free"
    with pytest.raises(GraphTooLargeError, match=words), state.entering("expand", "a-run", 0):
        raise OutOfMemoryError("9 bytes wanted")
