"""The rule of the resident kernel for a level's direction, compiled for this CPU, against its definition in Python.

``docs/design/direction-rule.md`` has the definition.
"""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dbfs_workers.search.cuda import layout
from dbfs_workers.search.cuda.kernels.sources import Variant
from dbfs_workers.search.cuda.run import Direction, Mode
from dbfs_workers.search.direction import GPU_ALPHA, GPU_BETA, SPARE_EDGES, bottom_up_pays
from tests.support.cuda_on_cpu.compiler import compiled, for_cpu, needs_compiler

pytestmark = needs_compiler

CASES = 20_000
RANKS, SPARSE_EDGES = 4, 50_000
EDGES, VERTICES = 1 << 34, 1 << 30
BLANK = ("search/cuda/kernels/common/memory.cuh", "search/cuda/kernels/resident/statistics.cuh")


@pytest.fixture(scope="module")
def cases() -> dict[str, NDArray[np.float64]]:
    """Numbers of every size: the frontier grows and shrinks, by factors below and above alpha."""
    rng = np.random.default_rng(61)

    def numbers(most: int) -> NDArray[np.uint64]:
        return np.floor(2.0 ** rng.uniform(0, np.log2(most), CASES)).astype(np.uint64)

    drawn = {
        "direction": rng.choice(Direction, CASES, p=(0.8, 0.1, 0.1)).astype(np.uint64),
        "mode": rng.choice([Mode.DENSE, Mode.BOTTOM_UP], CASES).astype(np.uint64),
        "vertices": numbers(VERTICES),
        "edges": numbers(EDGES),
        "unexplored": numbers(EDGES),
        "expanded": numbers(VERTICES) * rng.integers(0, 2, CASES).astype(np.uint64),
        "looked_at": numbers(EDGES) * rng.integers(0, 2, CASES).astype(np.uint64),
    }
    return {name: column.astype(np.float64) for name, column in drawn.items()}


@pytest.fixture(scope="module")
def answers(cases: dict[str, NDArray[np.float64]]) -> NDArray[np.uint32]:
    """What the kernel decides: a column for each of its four decisions."""
    made = {layout.HEADER_NAME: for_cpu(layout.HEADER), **dict.fromkeys(BLANK, "")}
    library = compiled("direction.cpp", made=made, options=Variant(gang=True, predecessors=True).defines)
    params = np.zeros(1, layout.PARAMS)
    params["alpha"], params["beta"], params["sparse_edges"] = GPU_ALPHA, GPU_BETA, SPARSE_EDGES
    params["edges_total"], params["vertices_total"], params["ranks"] = EDGES, VERTICES, RANKS
    table = np.ascontiguousarray(np.stack([*cases.values()], axis=1).astype(np.uint64))
    found = np.full((CASES, 4), 7, np.uint32)
    places = (ctypes.c_void_p(array.ctypes.data) for array in (params, table))
    decide: Any = ctypes.CDLL(str(library)).decide
    decide(*places, ctypes.c_uint64(CASES), ctypes.c_void_p(found.ctypes.data))
    return found


def above(left: Any, right: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return where left > right, and where the kernel's single precision can tell."""
    return left > right, np.abs(left - right) > 1e-5 * np.maximum(left, right)


def assert_alike(found: NDArray[np.uint32], expected: Any, told: Any, name: str) -> None:
    # Few cases are left out, and the answers differ.
    assert told.mean() > 0.95
    assert 0.02 < np.mean(expected[told]) < 0.98
    wrong = np.flatnonzero(told & (found != expected))
    assert wrong.size == 0, f"{name}: {wrong.size} of {CASES} cases, the first is {wrong[0]}"


def test_bottom_up_pays_where_the_frontier_reaches_the_rest(
    cases: dict[str, NDArray[np.float64]], answers: NDArray[np.uint32]
) -> None:
    of = SimpleNamespace(**cases)
    growth = of.vertices / np.maximum(of.expanded, 1)
    reaches, told = above(of.edges * np.minimum(GPU_ALPHA, 1 + growth), of.unexplored)
    cheap, told_too = above(of.looked_at, of.edges)
    assert_alike(answers[:, 0], reaches & ~cheap, told & told_too, "pays")


def test_the_rule_of_cpu_ranks_holds_where_the_kernels_does(
    cases: dict[str, NDArray[np.float64]], answers: NDArray[np.uint32]
) -> None:
    """With the same alpha and growth, and rows that cost nothing, CPU ranks go bottom-up at least as soon."""
    pays = np.flatnonzero((answers[:, 0] == 1) & (cases["unexplored"] >= cases["edges"]))
    assert pays.size > CASES / 50
    for case in pays.tolist():
        edges, growth = cases["edges"][case], cases["vertices"][case] / max(1, cases["expanded"][case])
        # The edges grow as the vertices do.
        sums: Any = SimpleNamespace(n=0, bottom_up=False, exact=True, search_share=1 / GPU_ALPHA, frontier_edges=edges)
        sums.expanded_edges, sums.unexplored_edges = max(1.0, edges / growth), cases["unexplored"][case]
        if edges / growth >= 1:
            assert bottom_up_pays(sums), f"case {case}"


def test_a_dense_level_queues_at_once_if_twice_the_growth_does_not_pay(
    cases: dict[str, NDArray[np.float64]], answers: NDArray[np.uint32]
) -> None:
    of = SimpleNamespace(**cases)
    growth = 2 * of.vertices / np.maximum(of.expanded, 1)
    edges = of.edges * growth
    reaches, told = above(edges * np.minimum(GPU_ALPHA, 1 + growth), of.unexplored)
    cheap, told_too = above(of.looked_at, edges)
    expected = (of.direction != Direction.AUTO) | ~(reaches & ~cheap)
    assert_alike(answers[:, 1], expected, told & told_too, "queues at once")


def test_a_level_goes_bottom_up_without_its_edges_where_the_estimate_pays(
    cases: dict[str, NDArray[np.float64]], answers: NDArray[np.uint32]
) -> None:
    of = SimpleNamespace(**cases)
    estimated = np.floor(of.vertices * (EDGES / VERTICES))
    growth = of.vertices / np.maximum(of.expanded, 1)
    reaches, told = above(estimated * np.minimum(GPU_ALPHA, 1 + growth), of.unexplored)
    cheap, told_too = above(of.looked_at, estimated)
    few, told_few = above(VERTICES, of.vertices * GPU_BETA)
    spared, told_spared = above(of.looked_at, estimated + SPARE_EDGES * RANKS)
    stays = of.mode == Mode.BOTTOM_UP
    expected = np.where(stays, ~few & ~spared, reaches & ~cheap)
    expected = np.where(of.direction == Direction.AUTO, expected, of.direction == Direction.BOTTOM_UP)
    told = (of.direction != Direction.AUTO) | np.where(stays, told_few & told_spared, told & told_too)
    assert_alike(answers[:, 2], expected, told, "surely bottom-up")


def test_the_kind_of_a_level_whose_edges_are_known(
    cases: dict[str, NDArray[np.float64]], answers: NDArray[np.uint32]
) -> None:
    of = SimpleNamespace(**cases)
    auto = np.where(answers[:, 0] == 1, Mode.BOTTOM_UP, Mode.DENSE)
    kind = np.where(of.direction == Direction.AUTO, auto, Mode.DENSE)
    kind = np.where(of.edges <= SPARSE_EDGES, Mode.SPARSE, kind)
    expected = np.where(of.direction == Direction.BOTTOM_UP, Mode.BOTTOM_UP, kind)
    np.testing.assert_array_equal(answers[:, 3], expected)
    assert {*expected.tolist()} == {Mode.SPARSE, Mode.DENSE, Mode.BOTTOM_UP}
