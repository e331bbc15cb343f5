"""The CUDA backend of the 2-D partition in whole traversals against SciPy.

Axes: ranks x directed x graph, in every direction, with and without predecessors; on a GPU, and with the kernels
compiled for this CPU. There CuPy is a stand-in on NumPy, and so are the sums of a frontier's degrees. The ranks are
threads of this process, which share the GPU.
"""

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dbfs_workers.features.grid import on_gpu as grid_cuda
from dbfs_workers.features.grid.grid import Grid
from dbfs_workers.features.grid.on_gpu import CudaGrid
from dbfs_workers.features.grid.operators import GridOperators
from dbfs_workers.features.lab.purpose import ByStrategy
from dbfs_workers.search import backends
from dbfs_workers.search.backend import Backend
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import graphs, grids, oracle, standin
from tests.support.answers import assert_counts_add_up, assert_scipys, every_spec
from tests.support.cuda_on_cpu.backend import EmulatedBackend, compiled, launcher
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.gang import spec
from tests.support.gpus import on_gpu


class EmulatedPhases(EmulatedBackend):
    """Of the phases, those that a 2-D partition needs."""

    def __init__(self, library: ctypes.PyDLL) -> None:
        super().__init__(library)
        self._kernels = {"mark": launcher(library, "mark")}
        self.operators = EmulatedGrid(library, self)


class EmulatedGrid(CudaGrid):
    def __init__(self, library: ctypes.PyDLL, phases: EmulatedPhases) -> None:
        self._library = library
        super().__init__(phases.xp, phases.frontier_edges)

    def _load(self) -> dict[str, Any]:
        return {name: launcher(self._library, f"grid_{name}") for name in grid_cuda.KERNELS}


def emulated() -> EmulatedPhases:
    return EmulatedPhases(compiled("grid"))


@pytest.fixture(scope="module", params=[pytest.param("emulated", marks=needs_compiler), on_gpu("gpu")])
def backend(request: pytest.FixtureRequest) -> Backend:
    return emulated() if request.param == "emulated" else backends.get("cuda")


def operators_of(backend: Backend) -> GridOperators | None:
    return backend.operators if isinstance(backend, EmulatedPhases) else None


def check(backend: Backend, p: int, arrays: graphs.Arrays, sources: list[int], *, directed: bool) -> None:
    n, src, dst = arrays
    stripe, specs = Stripe(n, p), every_spec(sources)
    with grids.gang(grids.build(stripe, src, dst, directed=directed), backend, operators_of(backend)) as gang:
        assert_scipys(specs, gang.run(*specs), arrays, stripe, directed=directed)


@pytest.mark.parametrize("p", [1, 4])
def test_labels_are_scipys(backend: Backend, p: int) -> None:
    check(backend, p, graphs.random(700, 2100, 3), [20, 1], directed=False)


@pytest.mark.parametrize("p", [1, 2, 6])
def test_a_warp_enlists_for_the_bits_of_a_word(backend: Backend, p: int) -> None:
    # Directed, so that all levels are top-down.
    for name in ("hub", "dense random", "path"):
        arrays = n, src, dst = graphs.GRAPHS[name]()
        made = grids.build(Stripe(n, p), src, dst, directed=True, bottom_up=False)
        with grids.gang(made, backend, operators_of(backend)) as gang:
            check_scan(gang, arrays, n // 3)


def check_scan(gang: grids.GridGang, arrays: graphs.Arrays, source: int) -> None:
    """Compare a traversal by ``row-scan``, whose search is by a queue of bits, with SciPy's."""
    partition = gang.scratches[0].partition
    matrix = oracle.adjacency(*arrays, directed=partition.directed)
    expected = oracle.distances(matrix, [source])
    (answer,) = gang.run(replace(spec(source, predecessors=True), purpose=ByStrategy("row-scan")))
    np.testing.assert_array_equal(answer.distances(gang.stripe), expected)
    oracle.assert_valid_parents(matrix, expected, answer.parents(gang.stripe), [source])
    assert_counts_add_up(answer)


@pytest.mark.full
@pytest.mark.matrix
@pytest.mark.parametrize("p", [1, 2, 3, 4, 6, 9])
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@pytest.mark.parametrize("name", graphs.GRAPHS)
def test_graphs_are_scipys(backend: Backend, p: int, name: str, directed: bool) -> None:
    arrays = graphs.GRAPHS[name]()
    check(backend, p, arrays, [arrays[0] // 3], directed=directed)


@needs_compiler
@pytest.mark.parametrize("grid", [Grid(1, 2), Grid(2, 1), Grid(2, 2)], ids=str)
def test_ranks_that_exchange_by_nccl(grid: Grid) -> None:
    arrays = n, src, dst = graphs.random(700, 2100, 3)
    stripe, specs = Stripe(n, grid.rows * grid.columns), every_spec([n // 3])
    made = grids.build(stripe, src, dst, directed=False, grid=grid)
    backend = emulated()
    with grids.gang(made, backend, backend.operators, by_nccl=True) as gang:
        assert_scipys(specs, gang.run(*specs), arrays, stripe, directed=False)
        check_scan(gang, arrays, n // 3)


@pytest.mark.parametrize(("p", "n", "m"), [(6, 700, 2100), (2, 300, 4000)])
def test_ranks_that_map_messages(monkeypatch: pytest.MonkeyPatch, p: int, n: int, m: int) -> None:
    standin.install(monkeypatch, mapped=True)
    arrays = n, src, dst = graphs.random(n, m, 3)
    stripe, specs = Stripe(n, p), every_spec([n // 3])
    backend = emulated()
    with grids.gang(grids.build(stripe, src, dst, directed=False), backend, backend.operators, mapped=True) as gang:
        for _ in range(2):
            assert_scipys(specs, gang.run(*specs), arrays, stripe, directed=False)
        # The host's bins would answer as well.
        assert not any(
            carrier.segment.rows(rank, parity).any() for rank, carrier in enumerate(gang.carriers) for parity in (0, 1)
        )


@pytest.mark.full
@pytest.mark.parametrize("p", [2, 6])
def test_targets_and_depths(backend: Backend, p: int) -> None:
    n, src, dst = graphs.GRAPHS["cycle"]()
    matrix = oracle.adjacency(n, src, dst, directed=False)
    with grids.gang(grids.build(Stripe(n, p), src, dst, directed=False), backend, operators_of(backend)) as gang:
        for targets, depth in (((0,), 0), ((1, 39), 1), ((7, 36), 7), ((0, 20), None)):
            answer = gang.run(spec(0, targets=targets))[0]
            np.testing.assert_array_equal(answer.distances(gang.stripe), oracle.distances(matrix, [0], depth))
            answer = gang.run(spec(0, max_depth=depth, predecessors=True))[0]
            np.testing.assert_array_equal(answer.distances(gang.stripe), oracle.distances(matrix, [0], depth))


@pytest.mark.parametrize("p", [on_gpu(2), on_gpu(6)])
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
def test_larger_graphs(p: int, directed: bool) -> None:
    for n, m in ((100_000, 1_500_000), (300_000, 500_000)):
        check(backends.get("cuda"), p, graphs.random(n, m, 5), [n // 3], directed=directed)
