"""Linked pages by the emulator of a GPU: updates in place against sets of edges, and traversals against SciPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from benchmarks import lab_updates
from benchmarks.lab_updates import measure
from dbfs.cli import main
from dbfs_workers.base.errors import GraphTooLargeError, InvalidVertexError
from dbfs_workers.features.lab import enact
from dbfs_workers.features.lab.device import Device, Gpu
from dbfs_workers.features.lab.enactor import policy_constants
from dbfs_workers.features.lab.pages import LinkedPages, most_bytes
from dbfs_workers.features.lab.strategies import parse
from dbfs_workers.features.lab.tuning import Tuning
from tests.support import oracle
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.cuda_on_cpu.device import THREADS, EmulatedGpu
from tests.support.gpus import needs_gpu

pytestmark = needs_compiler

VERSIONS = [
    "status-array:storage=pages",
    "atomic-queue:gathering=serial,storage=pages",
    "atomic-queue:storage=pages",
    "device-loop:gathering=serial,children=long,storage=pages",
    "child-kernels:storage=pages",
    "degree-classes:classes=3,sorting=pass,storage=pages",
    "degree-classes:storage=pages",
]
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2)))
ROWS = 150
# A row with all others is long enough for a block, for the grid, and for a kernel of its own.
TUNING = Tuning(threads=THREADS, most_blocks=3, grid_degree=100, child_degree=80)

Arrays = tuple[NDArray[np.int64], NDArray[np.uint32]]


def keys_of(src: Any, dst: Any) -> NDArray[np.uint64]:
    keys: NDArray[np.uint64] = np.asarray(src, np.uint64) << np.uint64(32) | np.asarray(dst, np.uint64)
    return keys


def lists_of(keys: NDArray[np.uint64]) -> Arrays:
    """Return the offsets and the columns of edges."""
    keys = np.sort(keys)
    counts = np.bincount((keys >> np.uint64(32)).astype(np.int64), minlength=ROWS)
    return np.concatenate([[0], np.cumsum(counts)]), keys.astype(np.uint32)


def held(pages: LinkedPages) -> NDArray[np.uint64]:
    """Return the edges on the pages, ascending. Every page is in one list or free; all but a row's last are full."""
    lists, pool, free = (pages.device.read(array) for array in (pages.lists, pages.pool, pages._free_pages))
    seen, keys = [], []
    for row, (head, degree) in enumerate(zip(lists >> np.uint64(32), lists & np.uint64(2**32 - 1), strict=True)):
        page = int(head)
        for first in range(0, int(degree), 31):
            seen.append(page)
            keys += [row << 32 | int(column) for column in pool[page, : min(31, int(degree) - first)]]
            page = int(pool[page, 31])
        assert page == 2**32 - 1
    assert free[0] == pages.free
    assert sorted([*seen, *free[1 : 1 + pages.free].tolist()]) == list(range(pool.shape[0]))
    return np.array(sorted(keys), np.uint64)


def changed(device: Device, seed: int) -> tuple[LinkedPages, NDArray[np.uint64]]:
    """Return pages after random batches, and their edges; check each batch."""
    random = np.random.default_rng(seed)

    def drawn(edges: int) -> NDArray[np.uint64]:
        # Row 0 is a hub.
        src = np.where(random.random(edges) < 0.3, 0, random.integers(0, ROWS, edges))
        return keys_of(src, random.integers(0, ROWS, edges))

    there = np.unique(drawn(600))
    xp: Any = device.xp
    pages = LinkedPages(device, *map(xp.asarray, lists_of(there)), spare=400)
    np.testing.assert_array_equal(held(pages), there)
    for size in (1, 40, 900, 2000):
        batch = drawn(size)
        assert pages.insert(xp.asarray(batch)) == np.setdiff1d(batch, there).size
        there = np.union1d(there, batch)
        np.testing.assert_array_equal(held(pages), there)
        # Some are not there.
        batch = np.concatenate([random.permutation(there)[: int(0.8 * size)], drawn(size // 4)])
        assert pages.delete(xp.asarray(batch)) == np.intersect1d(batch, there).size
        there = np.setdiff1d(there, batch)
        np.testing.assert_array_equal(held(pages), there)
    return pages, there


def gpu(_seed: int) -> Device:
    """Return the current GPU."""
    return Gpu(Tuning().threads, policy_constants(parse("degree-classes")))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "device", [lambda seed: EmulatedGpu(seed, accesses_a_turn=1), pytest.param(gpu, marks=needs_gpu("cupy"))]
)
def test_batches_change_rows_in_place(device: Callable[[int], Device], seed: int) -> None:
    pages, there = changed(device(seed), seed)
    everything = pages.device.xp.asarray(there)
    assert pages.insert(everything[:0]) == pages.delete(everything[:0]) == 0
    assert pages.delete(everything) == there.size
    assert (held(pages).size, pages.free) == (0, pages.pool.shape[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pool_grows_and_its_rows_come_back_as_a_csr(seed: int) -> None:
    pages, there = changed(EmulatedGpu(seed), seed)
    for more in (1, 1000):
        before, wanted = pages.free, pages.free + more
        assert pages.reserve(before) == 0
        needed = pages.reserve(wanted)
        pages.grow(before)
        assert pages.free == before
        pages.grow(wanted)
        assert pages.free >= wanted
        assert needed == pages.pool.nbytes + 32 * 128 + pages._free_pages.nbytes - 4 + 4 * 32
        np.testing.assert_array_equal(held(pages), there)
        for array, expected in zip(pages.csr(), lists_of(there), strict=True):
            np.testing.assert_array_equal(array, expected)
    everything = keys_of(np.repeat(np.arange(ROWS), ROWS), np.tile(np.arange(ROWS), ROWS))
    pages.insert(everything)
    np.testing.assert_array_equal(held(pages), everything)
    assert (pages.edges, pages.csr()[0][-1]) == (ROWS**2, ROWS**2)


@pytest.mark.parametrize("policy", VERSIONS)
def test_every_version_is_right_on_pages_after_updates(policy: str) -> None:
    pages, there = changed(EmulatedGpu(7), 7)
    hub = keys_of([5, *[0] * ROWS], [0, *range(ROWS)])
    pages.insert(hub)
    there = np.union1d(there, hub)
    matrix = oracle.adjacency(ROWS, there >> np.uint64(32), there & np.uint64(2**32 - 1), directed=True)
    expected = oracle.distances(matrix, [5])
    run = enact.traverse(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.uint32),
        5,
        parse(policy),
        lambda *_: None,
        predecessors=True,
        device=EmulatedGpu(3),
        tuning=TUNING,
        pages=pages,
    )
    np.testing.assert_array_equal(run.labels.distances, expected)
    oracle.assert_valid_parents(matrix, expected, run.labels.predecessors.astype(np.int32), [5])
    assert run.edges == np.diff(matrix.indptr)[expected >= 0].sum()


def test_a_full_pool_changes_nothing() -> None:
    offsets, columns = lists_of(keys_of([0] * 31, range(31)))
    pages = LinkedPages(EmulatedGpu(), offsets, columns, spare=2)
    before = [array.copy() for array in (pages.lists, pages.pool, pages._free_pages)]
    with pytest.raises(GraphTooLargeError, match="3 new edges need 384 bytes of pages, 256 bytes are free in the pool"):
        pages.insert(keys_of([0, 1, 2], [40, 40, 40]))
    for array, as_before in zip((pages.lists, pages.pool, pages._free_pages), before, strict=True):
        np.testing.assert_array_equal(array, as_before)
    assert pages.insert(keys_of([0, 1], [40, 40])) == 2
    assert pages.free == 0


@pytest.mark.parametrize(("row", "neighbour"), [(ROWS, 0), (0, ROWS)])
def test_an_edge_of_no_row_changes_nothing(row: int, neighbour: int) -> None:
    pages, there = changed(EmulatedGpu(), 1)
    for change in (pages.insert, pages.delete):
        with pytest.raises(InvalidVertexError, match="an end that is not one of the 150 rows"):
            change(keys_of([3, row], [4, neighbour]))
    np.testing.assert_array_equal(held(pages), there)


def test_a_deletion_takes_all_duplicates_of_an_edge() -> None:
    neighbours = [7] * 40 + list(range(8, 60)) + [7]
    pages = LinkedPages(EmulatedGpu(), *lists_of(keys_of([2] * len(neighbours), neighbours)))
    assert pages.delete(keys_of([2, 2], [7, 7])) == 41
    np.testing.assert_array_equal(held(pages), keys_of([2] * 52, range(8, 60)))


def test_the_rates_of_batches() -> None:
    rows = list(measure("uniform:n=90,m=200", [8, 60], 1, EmulatedGpu()))
    assert [(row.graph, row.m, row.batch) for row in rows] == [
        ("uniform:n=90,m=200", 400, 8),
        ("uniform:n=90,m=200", 400, 60),
    ]
    assert all(min(row.inserted, row.deleted, row.fill) > 0 for row in rows)
    assert rows[0].page_bytes > rows[0].csr_bytes


def test_the_rates_need_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_updates, "own_gpu", lambda: None)
    answer = CliRunner().invoke(main, ["bench", "lab-updates"])
    assert answer.exit_code == 1
    assert "dbfs bench lab-updates needs a GPU" in answer.stderr


@pytest.mark.parametrize("degree", [1, 2, 40])
def test_pages_take_no_more_than_the_estimate(degree: int) -> None:
    offsets = degree * np.arange(ROWS + 1, dtype=np.int64)
    spare = int(0.25 * ROWS * -(-degree // 31))
    pages = LinkedPages(EmulatedGpu(), offsets, np.resize(np.arange(ROWS, dtype=np.uint32), offsets[-1]), spare)
    columns = int(offsets[-1])
    most = most_bytes(ROWS, columns)
    # The pool has pages that no row gets: a warp reads beyond the last one.
    taken = pages.nbytes + 31 * 4 + 32 * 128
    assert taken <= most["pages"] < 1.3 * taken
    assert most["copy"] >= sum(array.nbytes for array in pages.csr()) + 16 * columns
