"""The resident loop on a 2-D partition against SciPy: ranks x directed x graph, in every direction.

The ranks are threads of this process. ``tests/features/grid/test_grid.py`` has ranks in workers.
"""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbfs_workers.base.errors import InvalidOptionError, InvalidVertexError, RunCancelledError, StaleRunError
from dbfs_workers.base.spec import DIRECTIONS
from dbfs_workers.features.grid import scratch as grid_scratch
from dbfs_workers.features.grid.building import bin_blocks
from dbfs_workers.features.grid.grid import Grid
from dbfs_workers.features.grid.layout import GridLayout
from dbfs_workers.features.grid.levels import GridLevels
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.levels import loop
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import COUNT_FIELDS
from tests.support import graphs, grids, oracle, partitions
from tests.support.answers import assert_scipys, every_spec
from tests.support.gang import spec

RANKS = [1, 2, 3, 4, 6, 9, 16]


def check(
    p: int,
    arrays: graphs.Arrays,
    sources: list[int],
    *,
    directed: bool,
    hub_first: bool = False,
    grid: Grid | None = None,
) -> None:
    """Every direction, with and without predecessors, one after another on one loaded graph."""
    n, src, dst = arrays
    stripe = Stripe(n, p)
    specs = every_spec(sources)
    with grids.gang(grids.build(stripe, src, dst, directed=directed, hub_first=hub_first, cuts=2, grid=grid)) as gang:
        assert_scipys(specs, gang.run(*specs), arrays, stripe, directed=directed)


@pytest.mark.matrix
@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@pytest.mark.parametrize("name", graphs.GRAPHS)
def test_labels_are_scipys(p: int, name: str, directed: bool) -> None:
    arrays = graphs.GRAPHS[name]()
    check(p, arrays, [arrays[0] // 3], directed=directed)


@pytest.mark.parametrize("grid", [*Grid.shapes(4), Grid(2, 3), Grid(3, 2), Grid(6, 1)], ids=str)
def test_labels_are_scipys_in_any_shape(grid: Grid) -> None:
    for name, directed in (("hub", False), ("sparse random", True)):
        arrays = graphs.GRAPHS[name]()
        check(grid.rows * grid.columns, arrays, [arrays[0] // 3], directed=directed, grid=grid)


@pytest.mark.full
@settings(max_examples=60, deadline=None)
@given(data=st.data(), p=st.integers(1, 16), directed=st.booleans(), hub_first=st.booleans())
def test_random_graphs_and_several_sources(data: st.DataObject, p: int, directed: bool, hub_first: bool) -> None:
    n = data.draw(st.integers(1, 3000))
    arrays = graphs.random(n, data.draw(st.integers(0, 8 * n)), data.draw(st.integers(0, 2**32 - 1)))
    sources = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=3))
    grid = data.draw(st.sampled_from(Grid.shapes(p)))
    check(p, arrays, sources, directed=directed, hub_first=hub_first, grid=grid)


def test_a_grid_is_as_square_as_its_ranks_allow() -> None:
    shapes = {p: (Grid.of(p).rows, Grid.of(p).columns) for p in (1, 2, 3, 4, 6, 8, 12, 13, 16, 64)}
    square = {4: (2, 2), 6: (2, 3), 8: (2, 4), 12: (3, 4), 16: (4, 4), 64: (8, 8)}
    assert shapes == {1: (1, 1), 2: (1, 2), 3: (1, 3), 13: (1, 13)} | square
    grid = Grid.of(6)
    assert [list(grid.row_of(rank)) for rank in (0, 4)] == [[0, 1, 2], [3, 4, 5]]
    assert [list(grid.column_of(rank)) for rank in (0, 4)] == [[0, 3], [1, 4]]


@pytest.mark.parametrize("directed", [False, True])
def test_the_parts_of_all_ranks_are_the_edges_of_the_1d_partition(directed: bool) -> None:
    n, src, dst = graphs.random(500, 3000, 8)
    stripe = Stripe(n, 6)
    striped = partitions.build(stripe, src, dst, directed=directed)
    edges: list[set[tuple[int, int, int]]] = [set() for _ in striped]
    made = grids.build(stripe, src, dst, directed=directed)
    for partition in made:
        for part in partition.parts():
            rows = np.repeat(np.arange(stripe.n_local), np.diff(part.row_offsets))
            pairs = zip(rows.tolist(), part.columns.tolist(), strict=True)
            # Duplicates of an edge lie on one rank.
            edges[part.rank] |= {(*pair, partition.rank) for pair in pairs}
    for one, found in zip(striped, edges, strict=True):
        rows = np.repeat(np.arange(stripe.n_local), np.diff(one.row_offsets))
        expected = set(zip(rows.tolist(), one.columns.tolist(), strict=True))
        assert {edge[:2] for edge in found} == expected
        assert len(found) == len(expected)
    for name in ("m_local", "self_loops", "duplicates"):
        ours = sum(getattr(each if name == "m_local" else each.blocks, name) for each in made)
        assert ours == sum(getattr(each, name) for each in striped)
    for grid, one in zip(made, striped, strict=True):
        np.testing.assert_array_equal(grid.degrees, np.diff(one.row_offsets))


@pytest.mark.matrix
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("depth", [0, 1, 5, 1000])
def test_max_depth_bounds_the_labels(direction: str, depth: int) -> None:
    n, src, dst = graphs.GRAPHS["sparse random"]()
    matrix = oracle.adjacency(n, src, dst, directed=False)
    with grids.gang(grids.build(Stripe(n, 6), src, dst, directed=False)) as gang:
        specs = [spec(source, max_depth=depth, direction=direction, predecessors=True) for source in (3, 4)]
        for source, answer in zip((3, 4), gang.run(*specs), strict=True):
            expected = oracle.distances(matrix, [source], depth)
            np.testing.assert_array_equal(answer.distances(gang.stripe), expected)
            oracle.assert_valid_parents(matrix, expected, answer.parents(gang.stripe), [source])


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_targets_end_the_run_at_their_distance(direction: str) -> None:
    n, src, dst = graphs.GRAPHS["cycle"]()
    matrix = oracle.adjacency(n, src, dst, directed=False)
    with grids.gang(grids.build(Stripe(n, 4), src, dst, directed=False)) as gang:
        for targets, depth in (((0,), 0), ((1, 39), 1), ((7, 36), 7), ((0, 20), None)):
            answer = gang.run(spec(0, targets=targets, direction=direction))[0]
            np.testing.assert_array_equal(answer.distances(gang.stripe), oracle.distances(matrix, [0], depth))


def test_a_dense_graph_turns_bottom_up_and_back() -> None:
    n, src, dst = graphs.random(3000, 60_000, 5)
    tail = np.arange(3000, 4500)
    src, dst, n = np.concatenate([src, [7], tail[:-1]]), np.concatenate([dst, [3000], tail[1:]]), 4500
    with grids.gang(grids.build(Stripe(n, 4), src, dst, directed=False)) as gang:
        answer = gang.run(spec(0))[0]
        expected = oracle.distances(oracle.adjacency(n, src, dst, directed=False), [0])
        np.testing.assert_array_equal(answer.distances(gang.stripe), expected)
    for run in answer.ranks:
        directions = run.counts[:, COUNT_FIELDS.index("bottom_up")]
        assert directions[0] == 0
        assert directions.any()
        assert not directions[-100:].any()


def test_bytes_sent_of_a_path() -> None:
    """A frontier goes to the other rank of its column, and a vertex along the row if its owner did not find it."""
    n, p = 512, 4
    path = np.arange(n - 1)
    with grids.gang(grids.build(Stripe(n, p), path, path + 1, directed=False)) as gang:
        answer = gang.run(spec(0, direction="top-down"))[0]
    sent = answer.total(lambda run: run.counts)[:, COUNT_FIELDS.index("bytes_sent")]
    # 4 bytes for the frontier, 4 for its successor. The source is found once more, by its neighbour's edge; every other
    # vertex was found by the rank that has the edge back to it.
    assert sent.tolist() == [8, 12] + [8] * (n - 3) + [4]


def test_a_directed_graph_without_in_edges_stays_top_down() -> None:
    n, src, dst = graphs.GRAPHS["dense random"]()
    matrix = oracle.adjacency(n, src, dst, directed=True)
    with grids.gang(grids.build(Stripe(n, 6), src, dst, directed=True, bottom_up=False)) as gang:
        answer = gang.run(spec(0))[0]
        np.testing.assert_array_equal(answer.distances(gang.stripe), oracle.distances(matrix, [0]))
        assert not answer.ranks[0].counts[:, COUNT_FIELDS.index("bottom_up")].any()
        with pytest.raises(InvalidOptionError, match="in_edges=True"):
            gang.run(spec(0, direction="bottom-up"))
        with pytest.raises(InvalidOptionError, match="choose one of auto, top-down, bottom-up"):
            gang.run(spec(0, direction="sideways"))
        # The gang serves the next run.
        np.testing.assert_array_equal(gang.run(spec(0))[0].distances(gang.stripe), answer.distances(gang.stripe))


def test_a_cancelled_run_ends_on_all_ranks() -> None:
    n = 200_000
    path = np.arange(n - 1)
    with grids.gang(grids.build(Stripe(n, 4), path, path + 1, directed=False)) as gang:
        deadline = time.monotonic() + grids.PATIENCE

        def traverse(rank: int) -> object:
            watch = loop.Watch(1)
            if rank == 3:
                gang.carriers[3].abort(1, Cause.CANCELLED, "by the test")
            try:
                scratch, exchange = gang.scratches[rank], gang.exchanges[rank]
                levels = lambda: GridLevels(scratch, exchange)  # noqa: E731
                return loop.traverse(levels, [spec(0)], exchange.carrier, watch=watch, deadline=deadline)
            except RunCancelledError as error:
                return error

        assert all(isinstance(end, RunCancelledError) for end in gang.on_ranks(traverse))
        with pytest.raises(StaleRunError):
            gang.run(spec(0))
        assert gang.run(spec(5, max_depth=3))[0].total(lambda run: run.reached) == 7


def test_an_id_out_of_range_is_refused_before_anything_is_binned() -> None:
    with pytest.raises(InvalidVertexError, match=r"test.*\(3, 9\)"):
        bin_blocks(
            np.array([1, 3]), np.array([2, 9]), Stripe(9, 4), Grid.of(4), symmetrise=True, bottom_up=True, name="test"
        )


def test_memory_for_bitmaps_and_lists_falls_with_the_square_root_of_the_ranks() -> None:
    of = {p: grid_scratch.nbytes(Stripe(2**24, p), Grid.of(p), bottom_up=True) for p in (1, 16, 64)}
    assert of[1] / of[16] > 4
    assert of[1] / of[64] > 8


def test_the_bytes_of_messages_are_those_of_bins_that_are_used() -> None:
    stripe, grid = Stripe(2**20, 4), GridLayout.of(4)
    bitmap, parents = 4 * stripe.words_local, 4 * grid.bin_entries(stripe)
    assert grid.run_bytes(stripe, bottom_up=True)["bins"] == 2 * (bitmap + parents)
    # By either parity: a bitmap of each rank below, or above, for each rank of the host.
    assert grid.remote_bytes(stripe, (0, 0, 1, 1)) == 2 * 2 * bitmap
    assert grid.remote_bytes(stripe, (0, 1, 0, 1)) == 2 * 2 * parents
    assert grid.remote_bytes(stripe, (0, 1, 1, 1)) == 2 * (bitmap + parents)


@pytest.mark.parametrize("largest", [1, 1000, 33_000])
def test_parents_that_fill_their_bins_come_at_several_crossings(largest: int) -> None:
    """A rank of the second row finds all leaves of the star, of which its peer owns half."""
    n, p = 4 * largest + 8, 4
    src, dst = np.full(n - 1, 2), np.delete(np.arange(n), 2)
    with grids.gang(grids.build(Stripe(n, p), src, dst, directed=True)) as gang:
        for direction in DIRECTIONS:
            answer = gang.run(spec(2, direction=direction, predecessors=True))[0]
            assert (answer.parents(gang.stripe) == 2).all()


def test_the_estimate_of_a_partition_is_its_bytes() -> None:
    n, src, dst = graphs.random(5000, 40_000, 2)
    for p in (1, 6, 16):
        for partition in grids.build(Stripe(n, p), src, dst, directed=False):
            needed = partition.grid.partition_bytes(partition.stripe, partition.m_local, bottom_up=True)
            assert partition.nbytes == sum(needed.values())


@pytest.mark.parametrize("p", [1, 4, 16, 256, 289, 400])
def test_a_bin_has_room_for_a_bitmap_however_many_columns(p: int) -> None:
    stripe = Stripe(1_000_000, p)
    for grid in Grid.shapes(p):
        assert grid.bin_entries(stripe) >= stripe.words_local
        assert grid.bin_entries(stripe) * 2 * grid.columns >= stripe.n_local
        # Of few vertices a distance by weight has room, with its parent behind it.
        assert grid.bin_entries(Stripe(1, p)) >= 4
