"""Degree order: hubs first inside, the caller's ids outside."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbfs_workers.base.errors import InvalidVertexError
from dbfs_workers.building.degree_order import count_degrees, degree_order
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import graphs, oracle
from tests.support.gang import Gang, spec, started
from tests.support.partitions import build


@settings(deadline=None)
@given(
    n=st.integers(1, 200),
    m=st.integers(0, 800),
    seed=st.integers(0, 2**32 - 1),
    p=st.integers(1, 5),
    symmetrise=st.booleans(),
)
def test_positions_fall_by_degree_and_rows_start_with_hubs(n: int, m: int, seed: int, p: int, symmetrise: bool) -> None:
    _, src, dst = graphs.random(n, m, seed)
    pieces = [slice(None, m // 3), slice(m // 3, None)]
    degrees = sum(count_degrees(src[cut], dst[cut], n, symmetrise=symmetrise, name="edges") for cut in pieces)
    order = degree_order(degrees)
    np.testing.assert_array_equal(np.sort(order.position), np.arange(n))
    np.testing.assert_array_equal(order.vertex[order.position], np.arange(n))
    assert (np.diff(degrees[order.vertex]) <= 0).all()

    stripe = Stripe(n, p)
    hubs = build(stripe, *order.relabel(src, dst), directed=not symmetrise, hub_first=True)
    stored = []
    for rank, partition in enumerate(hubs):
        for row in range(stripe.n_local):
            columns = partition.columns[partition.row_offsets[row] : partition.row_offsets[row + 1]]
            positions = stripe.vertex(columns.astype(np.int64))
            assert (np.diff(positions) >= 0).all()
            stored += [(int(order.vertex[row * p + rank]), int(order.vertex[at])) for at in positions]
    backwards = [(v, u) for u, v in zip(src.tolist(), dst.tolist(), strict=True) if symmetrise and u != v]
    assert sorted(stored) == sorted([*zip(src.tolist(), dst.tolist(), strict=True), *backwards])
    if symmetrise:
        assert degrees.sum() == len(stored)
    else:
        # The sum of both degrees, of a self-loop as well.
        assert degrees.sum() == 2 * len(stored)
    asis = build(stripe, src, dst, directed=not symmetrise)
    for count in ("self_loops", "duplicates", "input_edges"):
        assert sum(getattr(part, count) for part in hubs) == sum(getattr(part, count) for part in asis)


@pytest.fixture(scope="module")
def two() -> Iterator[Gang]:
    with started(2) as gang:
        yield gang


_OTHERS = ("hub", "dense random", "self-loops and duplicates")


@pytest.mark.parametrize("name", ["sparse random", *(pytest.param(name, marks=pytest.mark.full) for name in _OTHERS)])
def test_labels_come_back_by_vertex(two: Gang, name: str) -> None:
    n, src, dst = graphs.GRAPHS[name]()
    order = degree_order(count_degrees(src, dst, n, symmetrise=True, name=name))
    stripe = Stripe(n, 2)
    two.load(build(stripe, *order.relabel(src, dst), directed=False, hub_first=True))
    answer = two.run(spec(int(order.position[1]), predecessors=True))[0]
    two.disconnect()
    matrix = oracle.adjacency(n, src, dst, directed=False)
    distances = order.by_vertex(answer.distances(stripe))
    np.testing.assert_array_equal(distances, oracle.distances(matrix, [1]))
    oracle.assert_valid_parents(matrix, distances, order.predecessors_by_vertex(answer.parents(stripe)), [1])


def test_ids_outside_are_refused() -> None:
    with pytest.raises(InvalidVertexError, match=r"graph.gr: edge \(0, 3\) has an id outside 0..2"):
        count_degrees(np.array([0, 0]), np.array([1, 3]), 3, symmetrise=True, name="graph.gr")


def test_vertices_of_equal_degree_stay_in_the_order_of_ids() -> None:
    degrees = np.tile([1, 3, 2], 100)
    expected = [*range(1, 300, 3), *range(2, 300, 3), *range(0, 300, 3)]
    assert degree_order(degrees).vertex.tolist() == expected


def test_a_self_loop_starts_and_ends_at_its_vertex() -> None:
    src, dst = np.array([0, 0]), np.array([0, 1])
    assert count_degrees(src, dst, 2, symmetrise=False, name="edges").tolist() == [3, 1]
    assert count_degrees(src, dst, 2, symmetrise=True, name="edges").tolist() == [2, 1]
