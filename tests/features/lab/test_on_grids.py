"""The strategies on several ranks in a grid: Krajecki's scan along a row, and Merrill's sort into bins."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import distributed
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.errors import DeadlineExceededError, InvalidOptionError
from dbfs_workers.features.grid.grid import Grid
from dbfs_workers.features.lab import on_grids as grid_strategies
from dbfs_workers.features.lab import radix_bins
from dbfs_workers.features.lab.device import Device, Gpu
from dbfs_workers.features.lab.enactor import policy_constants
from dbfs_workers.features.lab.purpose import ByStrategy
from dbfs_workers.features.lab.radix_bins import RadixBins
from dbfs_workers.features.lab.strategies import CULLING, GATHERING, STRATEGIES, Policy, parse
from dbfs_workers.features.lab.tuning import Tuning
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import graphs, grids, oracle, partitions, standin
from tests.support.answers import assert_scipys
from tests.support.cuda_on_cpu.backend import EmulatedBackend
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.cuda_on_cpu.device import EmulatedGpu
from tests.support.exchanges import connect
from tests.support.gang import spec
from tests.support.gpus import GPUS, needs_gpu
from tests.support.parity import Way, loaded

GRID = Way("resident", layout="2d")


def emulated(seed: int, _policy: Policy) -> Device:
    return EmulatedGpu(seed)


def real(_seed: int, policy: Policy) -> Device:
    return Gpu(Tuning().threads, policy_constants(policy))


class OneAtATime(EmulatedGpu):
    """A device of one rank of several, which are threads: the emulator runs one grid at a time."""

    _running = threading.Lock()

    def __init__(self, _threads: int, policy: dict[str, int]) -> None:
        super().__init__(policy["culling"])

    def launch(self, *arguments: Any, **options: Any) -> None:
        with self._running:
            super().launch(*arguments, **options)


@pytest.fixture(scope="module")
def nine() -> Iterator[distributed.Client]:
    with dbfs.connect(n_workers=9, backend="cpu", dashboard_address=None, processes=False) as client:
        yield client


def check(graph: dbfs.Graph, arrays: graphs.Arrays, strategy: str, *, directed: bool, predecessors: bool) -> None:
    """Traverse by a strategy from some sources; compare with SciPy, and validate."""
    n, src, dst = arrays
    matrix = oracle.adjacency(n, src, dst, directed=directed)
    for source in (0, n // 2, n - 1):
        result = graph.bfs(source, strategy=strategy, predecessors=predecessors, validate=True)
        np.testing.assert_array_equal(result.distances(), oracle.distances(matrix, [source]))
        for report in result.reports:
            assert report.edges == report.filtered + report.own + report.sent
            assert report.discovered == report.own + report.sent - report.culled


@pytest.mark.parametrize("ranks", [*(pytest.param(ranks, marks=pytest.mark.full) for ranks in (1, 2, 4, 9)), 6])
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 999), edges=st.integers(0, 900), directed=st.booleans())
def test_a_scan_along_the_rows(nine: distributed.Client, ranks: int, seed: int, edges: int, directed: bool) -> None:
    arrays = graphs.random(300, edges, seed)
    with loaded(nine, arrays, GRID, directed=directed, ranks=ranks) as graph:
        check(graph, arrays, "row-scan", directed=directed, predecessors=True)


@pytest.mark.parametrize("ranks", [*(pytest.param(ranks, marks=pytest.mark.full) for ranks in (2, 4)), 9])
def test_the_first_finder_of_a_row_keeps_the_parent(nine: distributed.Client, ranks: int) -> None:
    arrays = n, src, dst = graphs.random(600, 6000, 4)
    matrix = oracle.adjacency(n, src, dst, directed=False)
    with loaded(nine, arrays, GRID, directed=False, ranks=ranks) as graph:
        by_scan, by_fold = (
            graph.bfs(3, strategy=strategy, predecessors=True).predecessors() for strategy in ("row-scan", "resident")
        )
    distances, columns = oracle.distances(matrix, [3]), Grid.of(ranks).columns
    column_of = Stripe(n, ranks).owner(np.arange(n)) % columns
    first = np.full(n, columns)
    above = np.repeat(np.arange(n), np.diff(matrix.indptr))
    found = distances[above] + 1 == distances[matrix.indices]
    np.minimum.at(first, matrix.indices[found], column_of[above[found]])
    children = np.flatnonzero(distances > 0)
    np.testing.assert_array_equal(column_of[by_scan[children]], first[children])
    # Without a scan the owner takes its own find first.
    assert (column_of[by_fold[children]] != first[children]).any()


@pytest.mark.full
def test_a_run_by_scans_ends_at_its_deadline(nine: distributed.Client) -> None:
    with (
        dbfs.load("path:n=2000000", client=nine, ranks=4, layout="2d") as graph,
        pytest.raises(DeadlineExceededError),
    ):
        graph.bfs(0, strategy="row-scan", deadline=0.3)


@pytest.mark.parametrize(
    "made", [pytest.param(emulated, marks=needs_compiler), pytest.param(real, marks=needs_gpu("cupy"))]
)
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 999),
    ranks=st.integers(1, 5),
    edges=st.integers(0, 900),
    gathering=st.sampled_from(GATHERING),
    culling=st.sampled_from(CULLING),
    predecessors=st.booleans(),
)
def test_ranks_sort_neighbours_and_contract_bins(
    made: Callable[[int, Policy], Device],
    seed: int,
    ranks: int,
    edges: int,
    gathering: str,
    culling: str,
    predecessors: bool,
) -> None:
    """The ranks of a row one after another, level by level, against SciPy."""
    n, src, dst = graphs.random(300, edges, seed)
    stripe, policy = Stripe(n, ranks), Policy("radix-bins", gathering=gathering, culling=culling)
    devices = [made(seed + rank, policy) for rank in range(ranks)]
    device = devices[0]
    xp: Any = device.xp
    lent = {name: [xp.empty((1 << 20) + 5000, np.uint32) for _ in range(ranks)] for name in ("bins", "parents")}
    parts = partitions.build(stripe, src, dst, directed=True)
    of_ranks, labels, frontiers = [], [], []
    for rank, part in enumerate(parts):

        def lend(name: str, words: int, rank: int = rank) -> tuple[Any, dict[int, int]]:
            return lent[name][rank][:words], {peer: device.address(lent[name][peer]) for peer in range(ranks)}

        edges_here = xp.asarray(part.row_offsets), xp.asarray(part.columns)
        one: dict[str, Any] = {
            "rank": rank,
            "ranks": ranks,
            "policy": policy,
            "predecessors": predecessors,
            "lend": lend,
        }
        of_ranks.append(RadixBins(devices[rank], *edges_here, **one))
        labels.append(RankLabels.unreached(xp, stripe, predecessors=predecessors))
        frontiers.append(xp.zeros(int(rank == 0), np.uint32))
    labels[0].distances[0] = 0
    level = 0
    while any(frontier.size for frontier in frontiers):
        sizes = np.zeros(ranks, int)
        for sort, frontier in zip(of_ranks, frontiers, strict=True):
            inspected, bins = sort.sort(frontier)
            assert len(bins) == ranks
            sizes += [found.size for found in bins]
            for owner, found in enumerate(map(device.read, bins)):
                in_order = iter(device.read(sort._edges[:inspected]) - np.uint32(owner * stripe.n_local))
                assert all(row in in_order for row in found)
        for rank, (contract, of_rank) in enumerate(zip(of_ranks, labels, strict=True)):
            frontiers[rank], looked_at = contract.contract(of_rank, level + 1, int(sizes.sum()))
            assert looked_at == sizes[rank]
            new = np.flatnonzero(device.read(of_rank.distances) == level + 1)
            np.testing.assert_array_equal(np.unique(device.read(frontiers[rank])), new)
        level += 1
    matrix = oracle.adjacency(n, src, dst, directed=True)
    expected = oracle.distances(matrix, [0])
    vertices = np.arange(n)
    place = stripe.internal(vertices)
    np.testing.assert_array_equal(np.concatenate([device.read(one.distances) for one in labels])[place], expected)
    if predecessors:
        found = np.concatenate([device.read(one.predecessors) for one in labels])[place]
        reached = np.where(expected > 0, stripe.vertex(found.astype(np.int64)), np.where(expected, -1, vertices))
        oracle.assert_valid_parents(matrix, expected, reached, [0])


@needs_compiler
@pytest.mark.parametrize("culling", ["none", "warp+history"])
def test_duplicates_that_fill_a_queue_are_left_out(monkeypatch: pytest.MonkeyPatch, culling: str) -> None:
    """A small graph of four dense layers, whose edges are in flight at once. One edge leads to each layer's last."""
    monkeypatch.setattr(radix_bins, "_SPARE", 0)
    layer = np.repeat(np.arange(4), [1, 32, 32, 500])
    last = np.append(layer[1:] != layer[:-1], True)
    src, dst = np.nonzero((layer[:, None] + 1 == layer) & (last[:, None] | ~last))
    stripe, device = Stripe(layer.size, 1), EmulatedGpu(accesses_a_turn=1)
    (part,) = partitions.build(stripe, src, dst, directed=True)
    memory, capacity = np.zeros(1 << 17, np.uint32), int(Tuning().edge_queue * src.size)
    options: dict[str, Any] = {"rank": 0, "ranks": 1, "policy": Policy("radix-bins", culling=culling)}
    options |= {"predecessors": False, "lend": lambda _, words: (memory[:words], {})}
    sort = RadixBins(device, part.row_offsets, part.columns, **options)
    labels, frontier, filled = RankLabels.unreached(np, stripe, predecessors=False), np.zeros(1, np.uint32), False
    labels.distances[0] = 0
    for level in range(4):
        before = device.launches
        edges, _ = sort.sort(frontier)
        assert edges <= capacity
        filled |= device.launches - before == 4
        frontier, _ = sort.contract(labels, level + 1, edges)
        filled |= not np.shares_memory(frontier, sort._vertices)
        np.testing.assert_array_equal(np.unique(frontier), np.flatnonzero(layer == level + 1))
    np.testing.assert_array_equal(labels.distances[: layer.size], layer)
    assert filled


@needs_compiler
def test_an_owner_is_a_byte() -> None:
    def make(ranks: int) -> RadixBins:
        arrays = np.zeros(33, np.int64), np.zeros(0, np.uint32)
        options: dict[str, Any] = {"rank": 0, "ranks": ranks, "policy": Policy("radix-bins"), "predecessors": False}
        return RadixBins(EmulatedGpu(), *arrays, lend=lambda _, words: (np.zeros(words, np.uint32), {}), **options)

    make(255)
    with pytest.raises(InvalidOptionError, match="radix-bins runs on up to 255 ranks, not 256"):
        make(256)


@needs_compiler
@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("directed", [False, True])
def test_a_gang_in_a_row_against_scipy(monkeypatch: pytest.MonkeyPatch, ranks: int, directed: bool) -> None:
    """Whole traversals, one after another, by ranks that map each other's bins."""
    standin.install(monkeypatch, mapped=True)
    monkeypatch.setattr(grid_strategies, "Gpu", OneAtATime)
    arrays = n, src, dst = graphs.random(200, 450, 3)
    stripe = Stripe(n, ranks)
    options = [("", False), (":culling=none", True), (":gathering=serial", True)]
    specs = [
        replace(spec(0, predecessors=recorded), purpose=ByStrategy(f"radix-bins{option}"))
        for option, recorded in options
    ]
    made = grids.build(stripe, src, dst, directed=directed, grid=Grid(1, ranks))
    # One row has no use for the kernels of a grid.
    backend, unused = EmulatedBackend(None), object()  # type: ignore[arg-type]
    operators: Any = unused
    with grids.gang(made, backend, operators, mapped=ranks > 1) as gang:
        for _ in range(2):
            for each in specs:
                assert_scipys([each], gang.run(each), arrays, stripe, directed=directed)
            # As after a run that failed: the ranks map anew what they were lent.
            connect(gang.exchanges if ranks > 1 else gang.carriers)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("strategy", ["radix-bins", "radix-bins:gathering=warp,culling=none", "row-scan"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(
    "mapped", [pytest.param(mapped, marks=needs_gpu("cupy", "dask_cuda")) for mapped in (True, False)]
)
def test_strategies_of_grids_on_gpus(
    request: pytest.FixtureRequest, strategy: str, directed: bool, ranks: int, mapped: bool
) -> None:
    if mapped and ranks > GPUS:
        pytest.skip(f"{ranks} GPUs wanted, {GPUS} there")
    client: distributed.Client = request.getfixturevalue("gpus" if mapped else "sharing")
    for name in ("hub", "dense random", "path"):
        arrays = graphs.GRAPHS[name]()
        way = replace(GRID, backend="cuda", layout=STRATEGIES[parse(strategy).strategy].layout)
        with loaded(client, arrays, way, directed=directed, ranks=ranks) as graph:
            for predecessors in (False, True):
                check(graph, arrays, strategy, directed=directed, predecessors=predecessors)
