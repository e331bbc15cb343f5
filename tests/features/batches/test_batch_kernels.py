"""Batches on GPUs against SciPy's distances, and the kernels compiled for this CPU in the place of a GPU.

There CuPy is a stand-in on NumPy, and so are the sums of a frontier's degrees. The ranks are threads of this process.
"""

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from dbfs_workers.base.spec import RunSpec
from dbfs_workers.features.batches import levels as batch_levels
from dbfs_workers.features.batches import on_gpu as batch_cuda
from dbfs_workers.features.batches.levels import BatchLevels, LoneTraversal, Placement
from dbfs_workers.features.batches.on_gpu import CudaBatch
from dbfs_workers.features.batches.operators import BatchOperators
from dbfs_workers.features.batches.path_sums_cuda import CudaPathSums
from dbfs_workers.features.batches.storage import BatchScratch
from dbfs_workers.features.batches.words import BatchWords, MappedMemory, MappedWords, OwnWords, PackedWords
from dbfs_workers.search import backends
from dbfs_workers.search.backend import Backend
from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange
from dbfs_workers.search.exchange.staged import StagedExchange
from dbfs_workers.search.levels import loop
from dbfs_workers.search.partition.partition import Csr, Partition
from dbfs_workers.search.partition.scratch import Scratch
from tests.support import graphs, standin
from tests.support.batches import Levels, assert_looks_are_counted, assert_right, assert_swept, batches
from tests.support.cuda_on_cpu.backend import EmulatedBackend, compiled, launcher
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.gang import levels_of
from tests.support.gpus import on_gpu


class EmulatedBatch(CudaBatch):
    def __init__(self, library: ctypes.PyDLL, phases: EmulatedBackend) -> None:
        self._library = library
        super().__init__(phases.xp, phases.frontier_edges)

    def path_sums(self, out: Csr, into: Csr, *, of_edges: bool) -> CudaPathSums:
        return EmulatedPathSums(self._library, self.xp, self._frontier_edges, out, into, of_edges=of_edges)

    def _load(self) -> Callable[..., None]:
        return emulated(self._library, "batch")


class EmulatedPathSums(CudaPathSums):
    def __init__(self, library: ctypes.PyDLL, *given: Any, **options: Any) -> None:
        self._library = library
        super().__init__(*given, **options)

    def _load(self) -> Callable[..., None]:
        return emulated(self._library, "path_sums")


def operators_of(backend: Backend) -> BatchOperators:
    if isinstance(backend, EmulatedBackend):
        return EmulatedBatch(backend.library, backend)
    return batch_levels.operators_of(backend)


def emulated(library: ctypes.PyDLL, kind: str) -> Callable[..., None]:
    """Return what launches the emulated kernels of a kind."""

    def launch(name: str, blocks: int, threads: int, *arguments: Any) -> None:
        launcher(library, f"{kind}_{name}")((blocks,), (threads,), arguments)

    return launch


@pytest.fixture(scope="module", params=[pytest.param("emulated", marks=needs_compiler), on_gpu("gpu")])
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "gpu":
        return backends.get("cuda")
    return EmulatedBackend(compiled("batch"))


@pytest.fixture(autouse=True)
def few_edges_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_cuda, "_ALONE_EDGES", 3)


def levels_on(backend: Backend, *, mapped: bool = False) -> Levels:
    """Return what makes the levels of batches on a backend. The CPU traverses from one source."""

    def levels(part: Partition, end: SharedMemoryExchange, free: Callable[[], int]) -> BatchLevels:
        def alone(specs: RunSpec) -> Iterator[LoneTraversal]:
            for spec in specs:
                made = loop.LevelLoop(levels_of(Scratch(part, np), end)(), spec, counted=False)
                made.run()
                labels = backend.to_device(made.labels.distances)
                yield LoneTraversal(labels, made.state.level, made.state.reached, made.state.edges)

        xp, memory = backend.xp, MappedMemory()
        exchange = end if mapped else StagedExchange(end, part.stripe, backend)

        def place(part: Partition) -> Placement:
            operators, zeros = operators_of(backend), memory.zeros if mapped and part.stripe.p > 1 else xp.zeros
            scratch = BatchScratch(part, xp, zeros, in_edges=part.parents is not None, together=True)
            words: BatchWords = OwnWords(scratch)
            if part.stripe.p > 1:
                words = PackedWords(scratch, operators, exchange)
                if mapped:
                    words = MappedWords(scratch, operators, exchange, memory)
            return Placement(scratch, operators, words)

        return BatchLevels(place(part.on(xp)), place, exchange, free, alone, together=True)

    return levels


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(batch=batches())
def test_any_batch_has_scipys_distances(backend: Backend, batch: dict[str, Any]) -> None:
    assert_right(**batch, levels=levels_on(backend), backend="cuda", staged=True)


@pytest.mark.matrix
@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("direction", ["auto", "bottom-up", "top-down"])
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
def test_ranks_that_map_words(monkeypatch: pytest.MonkeyPatch, p: int, direction: str, directed: bool) -> None:
    standin.install(monkeypatch, mapped=True)
    emulated = EmulatedBackend(compiled("batch"))
    levels, sources = levels_on(emulated, mapped=True), list(range(0, 300, 4))
    options: dict[str, Any] = {"directed": directed, "direction": direction, "levels": levels, "backend": "cuda"}
    assert_right(graphs.random(300, 900, 3), sources, p, entries=1024, small_frontiers=True, **options)


@pytest.mark.matrix
@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("together", [True, False], ids=["shared", "alone"])
def test_a_path_is_right_together_and_one_by_one(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, p: int, together: bool
) -> None:
    monkeypatch.setattr(CudaBatch, "pays", lambda self, shared: together)
    arrays = 300, np.arange(299), np.arange(1, 300)
    kept = assert_right(
        arrays, [0, 1, 150, 299], p, targets=(5, 298, 5), levels=levels_on(backend), backend="cuda", staged=True
    )
    assert kept[0].distances.dtype == np.uint16


@pytest.mark.parametrize("sources", [64, 65, 200, 700])
def test_widths(backend: Backend, sources: int) -> None:
    """Words of a vertex: 1, 2, 4 and 16. Hubs have more edges than their lanes look at alone."""
    n, src, dst = graphs.random(900, 1500, 1)
    hubs, others = np.repeat(np.arange(5), 800), np.tile(np.arange(50, 850), 5)
    arrays = n, np.concatenate([src, hubs]), np.concatenate([dst, others])
    assert_right(arrays, list(range(sources)), 1, levels=levels_on(backend), backend="cuda", staged=True)


def test_looks_at_edges_are_counted(backend: Backend) -> None:
    assert_looks_are_counted(levels=levels_on(backend), backend="cuda", staged=True)


@pytest.mark.matrix
@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
def test_sweeps_have_the_dependencies_of_their_definition(backend: Backend, p: int, directed: bool) -> None:
    arrays, sources = graphs.random(60, 200, p), [*range(0, 60, 1)]
    assert_swept(arrays, sources, p, directed=directed, levels=levels_on(backend), backend="cuda", staged=True)


@pytest.mark.full
def test_sweeps_of_long_paths(backend: Backend) -> None:
    """Distances of two bytes."""
    arrays = 300, np.arange(299), np.arange(1, 300)
    assert_swept(arrays, [0, 299], 1, directed=False, levels=levels_on(backend), backend="cuda", staged=True)
