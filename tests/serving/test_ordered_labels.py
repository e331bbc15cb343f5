"""Labels that ranks on GPUs put into the order of the vertices: the kernels on this CPU, against NumPy.

Axes: ranks, bytes of a label, and the form of predecessors: internal ids or positions.
"""

import ctypes
from typing import Any

import distributed
import numpy as np
import pytest

import dbfs
from dbfs.graph import labels
from dbfs_workers.building import cuda as building
from dbfs_workers.search.cuda.source import Source
from dbfs_workers.search.partition.ordering import DegreeOrder
from dbfs_workers.search.partition.stripe import NO_VERTEX, Stripe
from dbfs_workers.serving.reads import ordered_labels
from dbfs_workers.serving.reads.kernels.sources import BY_VERTEX
from tests.support import oracle, standin
from tests.support.cuda_on_cpu.compiler import emulated, needs_compiler
from tests.support.graphs import random

pytestmark = needs_compiler

C_TYPES = {np.uint64: ctypes.c_uint64, np.int64: ctypes.c_int64, np.uint32: ctypes.c_uint32}


class Array(standin.Array):
    """CuPy's array, which can be copied into an array of the caller's."""

    def get(self, out: Any = None) -> Any:
        if out is None:
            return super().get()
        out[...] = self
        return out


@pytest.fixture(scope="module")
def kernels() -> ctypes.PyDLL:
    library = emulated("by_vertex")
    for width in (1, 2, 4):
        getattr(library, f"by_vertex_{width}").restype = ctypes.c_char_p
    return library


@pytest.fixture
def gpu(kernels: ctypes.PyDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this process a GPU whose kernels run on the CPU."""
    standin.install(monkeypatch, mapped=True)
    monkeypatch.setattr(standin, "Array", Array)

    def launch(source: Source, name: str, threads: int, arguments: tuple[Any, ...]) -> None:
        assert source is BY_VERTEX
        given = [each.ctypes if isinstance(each, np.ndarray) else C_TYPES[type(each)](each) for each in arguments]
        kernel = getattr(kernels, name.removeprefix("dbfs_"))
        assert not kernel(2, 64, ctypes.c_ulonglong(1), *given)

    monkeypatch.setattr(building, "launch", launch)


def an_order(n: int) -> DegreeOrder:
    vertex = np.random.default_rng(n).permutation(n).astype(np.uint32)
    return DegreeOrder(np.argsort(vertex).astype(np.uint32), vertex)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize(("width", "largest"), [(1, 127), (2, 32767), (4, 2**31 - 2)])
def test_distances_come_in_the_order_of_vertices(gpu: None, ranks: int, width: int, largest: int) -> None:
    n = 997
    stripe, order = Stripe(n, ranks), an_order(n)
    by_vertex = np.random.default_rng(width).integers(-1, largest, n, dtype=np.int32, endpoint=True)
    by_vertex[:2] = -1, largest
    assert labels._width(largest) == width
    assert labels._width(largest + 1) == min(4, 2 * width)
    by_position = by_vertex[order.vertex]
    for first, count in ((0, n), (130, 400)):
        joined = np.full(count, -1, f"i{width}")
        for rank in range(ranks):
            into = np.zeros(count, f"u{width}")
            own = by_position[rank::ranks].copy()
            ordered_labels.write(stripe, rank, own, into, first, order, predecessors=False)
            mine = order.position[first : first + count] % ranks == rank
            assert (into[~mine] == np.iinfo(into.dtype).max).all()
            joined &= into.view(joined.dtype)
        np.testing.assert_array_equal(joined, by_vertex[first : first + count])


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("internal", [False, True])
def test_predecessors_come_as_vertices(gpu: None, ranks: int, internal: bool) -> None:
    n = 500
    stripe, order = Stripe(n, ranks), an_order(n)
    by_vertex = np.random.default_rng(ranks).integers(-1, n, n)
    by_vertex[:2] = -1, n - 1
    positions = order.predecessors_by_position(by_vertex)
    joined = np.full(n, NO_VERTEX, np.uint32)
    for rank in range(ranks):
        own: Any = positions[rank::ranks].copy()
        if internal:
            own = np.where(own < 0, NO_VERTEX, stripe.internal(own)).astype(np.uint32)
        into = np.zeros(n, np.uint32)
        ordered_labels.write(stripe, rank, own, into, 0, order, predecessors=True)
        joined &= into
    np.testing.assert_array_equal(joined.view(np.int32), by_vertex)


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_client_reads_labels_that_gpus_put_in_order(
    gpu: None, client: distributed.Client, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config, ranks: int
) -> None:
    if pytestconfig.getoption("--worker-processes"):
        pytest.skip("the workers' processes have no kernels on the CPU")
    monkeypatch.setattr(labels, "FEW_VERTICES", 0)
    monkeypatch.setattr(labels, "_COPIED_ALONE", 100)
    monkeypatch.setattr(labels, "items_of_rank", lambda ranks, width: 300)
    monkeypatch.setattr(labels.LabelReader, "_on_gpus", True)
    options: dict[str, Any] = {"ranks": ranks, "order": "degree", "backend": "cpu"}
    n, src, dst = random(1000, 1500, 1)
    matrix, source = oracle.adjacency(n, src, dst, directed=False), int(src[0])
    with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, **options) as graph:
        monkeypatch.setattr(graph.numbering, "_fetch_order", lambda: pytest.fail("the whole order is fetched"))
        for engine in ("resident", "taskgraph"):
            result = graph.bfs(source, predecessors=True, engine=engine)
            for _ in range(2):
                distances = result.distances()
                np.testing.assert_array_equal(distances, oracle.distances(matrix, [source]))
            oracle.assert_valid_parents(matrix, distances, result.predecessors(), [source])
        assert len(graph.numbering.placed) == ranks
