import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dbfs_workers.base.errors import InvalidVertexError, StaleRunError
from dbfs_workers.building import bin_store
from dbfs_workers.building.bin_store import BinStore, EdgeBin
from dbfs_workers.building.binning import bin_edges
from dbfs_workers.building.kernels import sorting as sorting_kernels
from dbfs_workers.building.partitions import build_partition
from dbfs_workers.search.partition.partition import describe
from dbfs_workers.search.partition.stripe import Stripe
from tests.support.partitions import build


def rows_of(
    stripe: Stripe, rank: int, src: NDArray[np.int64], dst: NDArray[np.int64], *, symmetrise: bool, hub_first: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], int, int]:
    """Return a rank's row offsets and columns by NumPy's sort, and its numbers of self-loops and duplicates."""
    if symmetrise:
        back = src != dst
        src, dst = np.concatenate([src, dst[back]]), np.concatenate([dst, src[back]])
    own = src % stripe.p == rank
    rows, columns = src[own] // stripe.p, dst[own]
    internal = columns % stripe.p * stripe.n_local + columns // stripe.p
    order = np.lexsort((columns if hub_first else internal, rows))
    rows, columns, internal = rows[order], columns[order], internal[order]
    offsets = np.searchsorted(rows, np.arange(stripe.n_local + 1))
    repeats = (rows[1:] == rows[:-1]) & (columns[1:] == columns[:-1])
    return offsets, internal, int((rows * stripe.p + rank == columns).sum()), int(repeats.sum())


def assert_built(
    stripe: Stripe,
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    *,
    directed: bool,
    hub_first: bool = False,
    cuts: int = 1,
    threads: int = 1,
) -> None:
    """Build, and compare every array and count with those of ``rows_of``."""
    partitions = build(
        stripe, src, dst, directed=directed, in_edges=directed, hub_first=hub_first, cuts=cuts, threads=threads
    )
    for rank, partition in enumerate(partitions):
        symmetrise = not directed
        offsets, columns, self_loops, duplicates = rows_of(
            stripe, rank, src, dst, symmetrise=symmetrise, hub_first=hub_first
        )
        np.testing.assert_array_equal(partition.row_offsets, offsets)
        np.testing.assert_array_equal(partition.columns, columns)
        assert (partition.self_loops, partition.duplicates) == (self_loops, duplicates)
        assert describe(partition).input_edges == src.size
        if partition.in_edges is not None:
            offsets, columns, _, _ = rows_of(stripe, rank, dst, src, symmetrise=False, hub_first=hub_first)
            np.testing.assert_array_equal(partition.in_edges.row_offsets, offsets)
            np.testing.assert_array_equal(partition.in_edges.columns, columns)


@settings(deadline=None)
@given(
    n=st.integers(1, 100),
    p=st.integers(1, 5),
    directed=st.booleans(),
    hub_first=st.booleans(),
    cuts=st.integers(1, 4),
    data=st.data(),
)
def test_partitions_hold_exactly_the_edges(
    n: int, p: int, directed: bool, hub_first: bool, cuts: int, data: st.DataObject
) -> None:
    edges = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=300))
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    assert_built(Stripe(n, p), src, dst, directed=directed, hub_first=hub_first, cuts=cuts)


@pytest.mark.matrix
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.full), 3])
@pytest.mark.parametrize("p", [*(pytest.param(p, marks=pytest.mark.full) for p in (1, 2)), 3])
def test_rows_of_every_length(p: int, threads: int) -> None:
    """Rows that are sorted by insertion, in groups and alone: of 0 to 20 columns, of hundreds, of 20,000."""
    n, random = 150_001, np.random.default_rng(7)
    hubs = np.repeat(np.arange(0, 2000, 7), random.integers(0, 1200, 286))
    src = np.concatenate([random.integers(0, n, 400_000), hubs, np.full(20_000, 77)])
    dst = random.integers(0, n, src.size)
    # Duplicates, in the long row too.
    dst[-5000:] = dst[-10_000:-5000]
    assert_built(Stripe(n, p), src, dst, directed=True, cuts=3, threads=threads)
    assert_built(Stripe(n, p), src, dst, directed=False, hub_first=True, threads=threads)


@pytest.mark.parametrize("n", [2**11, 2**11 + 1, 2**22, 2**22 + 1, 2**31, 2**32 - 2**10])
def test_columns_of_one_to_three_digits(n: int) -> None:
    random = np.random.default_rng(n)
    offsets = np.cumsum([0, 3, 12, 13, 0, 4000, 5000, 9000, 20_000])
    columns = random.integers(0, n, offsets[-1]).astype(np.uint32)
    columns[-1] = n - 1
    expected = np.concatenate([np.sort(row) for row in np.split(columns, offsets[1:-1])])
    sorting_kernels.sort_rows(offsets, columns, 0, 1, n - 1)
    np.testing.assert_array_equal(columns, expected)


def test_buckets_are_cut_as_the_vertices_need() -> None:
    for n, p in ((1, 1), (31, 2), (10**6, 1), (10**6, 300), (2**31, 2), (4 * 10**9, 1)):
        stripe = Stripe(n, p)
        bits, buckets = bin_store.bucket_bits(stripe), bin_store.bucket_count(stripe)
        assert bits <= 16, "a row in its bucket must fit uint16"
        assert (buckets - 1) << bits < stripe.n_local <= buckets << bits


def test_bins_return_their_memory_bucket_by_bucket() -> None:
    """Pages returned are zero when they are read again."""
    stripe = Stripe(100_000, 1)
    src = np.sort(np.random.default_rng(1).integers(0, stripe.n, 400_000))
    store = BinStore.of(stripe, bin_edges(src, src + 0, stripe, symmetrise=False, name="loops"))
    middle = bin_store.bucket_count(stripe) // 2
    store.release_before(middle)
    [(_, columns, starts)] = store.chunks()
    gone = int(starts[0, middle])
    page = 4096 // 4
    assert not columns[: gone // page * page].any()
    np.testing.assert_array_equal(columns[gone : starts[0, -1]], src[gone:])
    store.release_before(starts.shape[1] - 1)
    assert not columns[: starts[0, -1] // page * page].any()


def test_bins_that_share_a_page_keep_their_edges() -> None:
    """Small bins of neighbouring vertices, in any order: a page holds buckets of several bins."""
    n = 30_000
    src = np.random.default_rng(3).permutation(n // 500).repeat(500) * 500 + np.tile(np.arange(500), n // 500)
    assert_built(Stripe(n, 2), src, (src + 1) % n, directed=False, cuts=n // 500)


def test_a_closed_store_takes_no_bins() -> None:
    stripe = Stripe(100, 1)
    [edge_bin] = bin_edges(np.arange(9), np.arange(9), stripe, symmetrise=False, name="loops")
    store = BinStore.of(stripe, [edge_bin])
    store.close()
    with pytest.raises(StaleRunError, match="after the end of their build"):
        store.add(edge_bin)
    with pytest.raises(ValueError, match=r"9 rows, 8 columns and \d+ starts; expected as many rows as columns, and"):
        BinStore.of(stripe, [EdgeBin(edge_bin.rows, edge_bin.columns[1:], edge_bin.starts)])


def test_no_edges_at_all() -> None:
    stripe, none = Stripe(5, 2), np.empty(0, np.int64)
    assert_built(stripe, none, none, directed=True)
    partition = build_partition(stripe, 0, BinStore(stripe), input_edges=0)
    assert (partition.m_local, partition.row_offsets.tolist()) == (0, [0] * (stripe.n_local + 1))


@pytest.mark.parametrize("bad", [(-1, 0), (0, -1), (5, 0), (0, 5), (2**40, 0)])
def test_an_id_out_of_range_is_named(bad: tuple[int, int]) -> None:
    src, dst = np.array([1, bad[0]]), np.array([2, bad[1]])
    with pytest.raises(InvalidVertexError, match=rf"my edges: edge \({bad[0]}, {bad[1]}\).*0\.\.4"):
        bin_edges(src, dst, Stripe(5, 2), symmetrise=False, name="my edges")
