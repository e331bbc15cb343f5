import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbfs_workers.errors import InvalidVertexError
from dbfs_workers.storage.building import bin_edges, build_partition
from dbfs_workers.storage.partition import describe
from dbfs_workers.storage.stripe import Stripe


@settings(deadline=None)
@given(
    n=st.integers(1, 100),
    p=st.integers(1, 5),
    symmetrise=st.booleans(),
    cuts=st.integers(1, 4),
    data=st.data(),
)
def test_partitions_hold_exactly_the_edges(n: int, p: int, symmetrise: bool, cuts: int, data: st.DataObject) -> None:
    edges = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=300))
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    stripe = Stripe(n, p)
    pieces = [
        bin_edges(s, d, stripe, symmetrise=symmetrise, name="edges")
        for s, d in zip(np.array_split(src, cuts), np.array_split(dst, cuts), strict=True)
    ]
    expected = sorted(edges + [(v, u) for u, v in edges if symmetrise and u != v])
    stored, self_loops, duplicates = [], 0, 0
    for rank in range(p):
        partition = build_partition(stripe, rank, [[piece[rank]] for piece in pieces])
        info = describe(partition)
        self_loops, duplicates = self_loops + info.self_loops, duplicates + info.duplicates
        assert info.input_edges == len(edges)
        assert partition.row_offsets[-1] == partition.m_local == info.m_local
        assert partition.row_offsets[stripe.owned(rank)] == partition.m_local, "padding rows must be empty"
        for row in range(stripe.n_local):
            columns = partition.columns[partition.row_offsets[row] : partition.row_offsets[row + 1]]
            assert (np.diff(columns.astype(np.int64)) >= 0).all()
            stored += [(row * p + rank, int(v)) for v in stripe.vertex(columns.astype(np.int64))]
    assert sorted(stored) == expected
    assert self_loops == sum(u == v for u, v in expected)
    assert duplicates == len(expected) - len(set(expected))


def test_rows_past_a_bucket() -> None:
    stripe = Stripe(200_003, 2)
    src, dst = np.random.default_rng(7).integers(0, stripe.n, (2, 5000))
    stored = []
    for rank, edge_bin in enumerate(bin_edges(src, dst, stripe, symmetrise=False, name="edges")):
        partition = build_partition(stripe, rank, [[edge_bin]])
        rows = np.repeat(np.arange(stripe.n_local), np.diff(partition.row_offsets))
        stored.append(np.stack([rows * 2 + rank, stripe.vertex(partition.columns.astype(np.int64))]))
    np.testing.assert_array_equal(
        np.array(sorted(np.concatenate(stored, axis=1).T.tolist())), np.array(sorted(zip(src, dst, strict=True)))
    )


@pytest.mark.parametrize("bad", [(-1, 0), (0, -1), (5, 0), (0, 5), (2**40, 0)])
def test_an_id_out_of_range_is_named(bad: tuple[int, int]) -> None:
    src, dst = np.array([1, bad[0]]), np.array([2, bad[1]])
    with pytest.raises(InvalidVertexError, match=rf"my edges: edge \({bad[0]}, {bad[1]}\).*0\.\.4"):
        bin_edges(src, dst, Stripe(5, 2), symmetrise=False, name="my edges")
