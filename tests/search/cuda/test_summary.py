"""The kernels that add up a run's labels or find facts of a graph, compiled for this CPU, against NumPy.

Axes: rows ordered by degree or not, groups that are whole or not, distances in registers, in shared memory and beyond.
"""

import ctypes

import numpy as np
import pytest

from dbfs_workers.search.cuda import layout
from dbfs_workers.search.cuda.kernels.sources import SUMMARY
from dbfs_workers.search.cuda.layout import GROUP_ROWS
from tests.support.cuda_on_cpu.compiler import compiled, needs_compiler

pytestmark = needs_compiler

_MIXED = 2**32 - 1
_DYNAMIC = "extern __shared__ u32 counted[];"


@pytest.fixture(scope="module")
def kernels() -> ctypes.PyDLL:
    # The structs of the whole header are checked by built-ins that only CUDA's compiler has.
    scalars = "search/cuda/kernels/common/scalars.cuh"
    constants = f'#include "{scalars}"\nnamespace dbfs {{ constexpr u32 kGroupRows = {GROUP_ROWS}; }}'
    assert _DYNAMIC in SUMMARY.text
    made = {
        "search/cuda/kernels/common/memory.cuh": "",
        layout.HEADER_NAME: constants,
        "sized_summary.cu": SUMMARY.text.replace(_DYNAMIC, "__shared__ u32 counted[4096];"),
    }
    library = ctypes.PyDLL(str(compiled("summary.cpp", made=made)))
    for function in (library.common_degrees, library.summary, library.facts, library.hubs):
        function.restype = ctypes.c_char_p
    return library


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("rows", [32, 128, 1184])
@pytest.mark.parametrize("deepest", [3, 30, 100])
def test_sums_are_those_of_numpy(kernels: ctypes.PyDLL, ordered: bool, rows: int, deepest: int) -> None:
    rng = np.random.default_rng([ordered, rows, deepest])
    degrees = rng.geometric(0.4, rows).astype(np.int64) - 1
    degrees[:5] += 2**31
    if ordered:
        degrees = -np.sort(-degrees)
    offsets = np.concatenate([[0], np.cumsum(degrees)])
    distances = rng.integers(-1, deepest, rows).astype(np.int32)

    groups = -(-rows // GROUP_ROWS)
    common, mixed = np.zeros(groups, np.uint32), np.zeros(1, np.uint64)
    place = offsets.ctypes
    assert not kernels.common_degrees(groups, 64, 1, place, ctypes.c_longlong(rows), common.ctypes, mixed.ctypes)
    of_groups = [np.unique(degrees[first : first + GROUP_ROWS]) for first in range(0, rows, GROUP_ROWS)]
    whole = [(index + 1) * GROUP_ROWS <= rows for index in range(groups)]
    expected = [
        int(found[0]) if found.size == 1 and all_ else _MIXED for found, all_ in zip(of_groups, whole, strict=True)
    ]
    assert common.tolist() == expected
    assert mixed[0] == expected.count(_MIXED)
    assert not ordered or rows < 1000 or min(expected) < _MIXED

    bins, shared_bins = 128, 64
    sums, on_host, finished = np.zeros((2, bins), np.uint64), np.zeros((2, bins), np.uint64), np.zeros(1, np.uint32)
    arguments = (place, common.ctypes, distances.ctypes, ctypes.c_longlong(rows), sums.ctypes, finished.ctypes)
    # Twice, since the sums are left clear for the next run.
    for seed in (1, 2):
        on_host[:] = 7
        assert not kernels.summary(2, 64, seed, *arguments, on_host.ctypes, bins, shared_bins, 2)
        reached = distances >= 0
        assert on_host[0].tolist() == np.bincount(distances[reached], minlength=bins).tolist()
        assert [int(degrees[distances == bin_].sum()) for bin_ in range(bins)] == on_host[1].tolist()
        assert not sums.any()


@pytest.mark.parametrize("most", [4, 8])
@pytest.mark.parametrize("rows", [32, 704])
def test_a_table_has_the_neighbours_of_a_row_but_itself(kernels: ctypes.PyDLL, most: int, rows: int) -> None:
    rng = np.random.default_rng([most, rows])
    others = [
        rng.choice(np.delete(np.arange(rows), row), rng.integers(0, most + 1), replace=False) for row in range(rows)
    ]
    others[3] = np.arange(10, 10 + most)
    lists = [rng.permutation(np.append(ids, [row] * rng.integers(0, 2))) for row, ids in enumerate(others)]
    lists[3] = np.append(3, others[3])
    degrees = [len(ids) for ids in lists]
    offsets = np.append(0, np.cumsum(degrees)).astype(np.int64)
    columns = np.concatenate(lists).astype(np.uint32)
    sums, table = np.zeros(6, np.uint64), np.full((rows, most), 7, np.uint32)
    given = offsets.ctypes, columns.ctypes, ctypes.c_longlong(rows), layout.TABLE_DEGREE, most.bit_length() - 1
    assert not kernels.facts(256, ctypes.c_ulonglong(1), *given, sums.ctypes, table.ctypes)
    used = np.flatnonzero(degrees)
    assert sums.tolist() == [used[-1] + 1, used.size, most + 1, most, 0, 0]
    for row, found in enumerate(table.tolist()):
        kept = [id_ for id_ in lists[row].tolist() if id_ != row]
        assert found == kept + [2**32 - 1] * (most - len(kept))


def test_the_neighbour_that_a_row_tries_first_is_the_one_used_most(kernels: ctypes.PyDLL) -> None:
    """Also in a list longer than what is looked through; ids of other ranks' vertices are among the columns."""
    rng, rows, ids = np.random.default_rng(1), 700, 2000
    degrees = rng.integers(0, 90, rows)
    offsets = np.append(0, np.cumsum(degrees)).astype(np.int64)
    columns = (ids * rng.random(offsets[-1]) ** 3).astype(np.uint32)
    uses, found = np.zeros(ids, np.uint32), np.full(rows, 7, np.uint32)
    given = offsets.ctypes, columns.ctypes, ctypes.c_longlong(rows), uses.ctypes, found.ctypes
    assert not kernels.hubs(64, *given)
    counts = np.bincount(columns, minlength=ids)
    assert uses.tolist() == counts.tolist()
    for row in range(rows):
        tried = columns[offsets[row] : offsets[row + 1]][:64]
        assert found[row] == (tried[counts[tried].argmax()] if tried.size else 2**32 - 1)
