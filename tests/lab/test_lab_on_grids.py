"""The strategies on several ranks in a grid: Krajecki's scan along a row, and Merrill's sort into bins."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import distributed
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.errors import DeadlineExceededError
from dbfs_workers.lab.device import Device, Gpu
from dbfs_workers.lab.enactor import policy_constants
from dbfs_workers.lab.radix_bins import RadixBins
from dbfs_workers.lab.strategies import CULLING, GATHERING, Policy
from dbfs_workers.lab.tuning import Tuning
from dbfs_workers.storage.grid import Grid
from dbfs_workers.storage.stripe import Stripe
from tests.support import graphs, oracle
from tests.support.cuda_on_cpu.device import COMPILER, EmulatedGpu
from tests.support.gpus import GPUS, needs_gpu
from tests.support.parity import Way, loaded

GRID = Way("resident", layout="2d")
needs_compiler = pytest.mark.skipif(not COMPILER, reason="no g++ here, which compiles the kernels for this CPU")


def emulated(seed: int, _policy: Policy) -> Device:
    return EmulatedGpu(seed)


def real(_seed: int, policy: Policy) -> Device:
    return Gpu(Tuning().threads, policy_constants(policy))


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


@pytest.mark.parametrize("ranks", [1, 2, 4, 6, 9])
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 999), edges=st.integers(0, 900), directed=st.booleans())
def test_a_scan_along_the_rows(nine: distributed.Client, ranks: int, seed: int, edges: int, directed: bool) -> None:
    arrays = graphs.random(300, edges, seed)
    with loaded(nine, arrays, GRID, directed=directed, ranks=ranks) as graph:
        check(graph, arrays, "row-scan", directed=directed, predecessors=True)


@pytest.mark.parametrize("ranks", [2, 4, 9])
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
    owners=st.integers(1, 5),
    edges=st.integers(0, 900),
    gathering=st.sampled_from(GATHERING),
    culling=st.sampled_from(CULLING),
)
def test_bins_have_every_new_neighbour(
    made: Callable[[int, Policy], Device], seed: int, owners: int, edges: int, gathering: str, culling: str
) -> None:
    n_local, rows, random = 64, 100, np.random.default_rng(seed)
    first_id = 64 * int(random.integers(3))
    n = owners * n_local
    sources = np.sort(random.integers(0, rows, edges))
    offsets = np.searchsorted(sources, np.arange(rows + 1)).astype(np.int64)
    columns = (first_id + random.integers(0, n, edges)).astype(np.uint32)
    policy = Policy("radix-bins", gathering=gathering, culling=culling)
    device = made(seed, policy)
    there: Any = device.xp.asarray
    one = {"first_id": first_id, "n_local": n_local, "owners": owners, "policy": policy}
    sort = RadixBins(device, there(offsets), there(columns), **one)
    bits = random.integers(0, 1 << 32, n // 32, dtype=np.uint32)
    sort.visit(there(bits))
    marked = np.unpackbits(bits.view(np.uint8), bitorder="little").astype(bool)
    visited = marked.copy()
    for frontier in np.array_split(random.permutation(rows).astype(np.uint32), 3):
        inspected, bins = sort.sort(there(frontier))
        queue = np.concatenate([columns[offsets[row] : offsets[row + 1]] for row in frontier]) - first_id
        assert (inspected, len(bins)) == (queue.size, owners)
        for owner, found in enumerate(map(device.read, bins)):
            of_owner = queue[queue // n_local == owner] - owner * n_local
            # Of the bits that blocks set in the same launch, some may be lost.
            new, unmarked = (set(of_owner[~before[owner * n_local :][of_owner]]) for before in (visited, marked))
            assert new <= set(found) <= unmarked
            in_order = iter(device.read(sort._edges[:inspected]) - np.uint32(first_id + owner * n_local))
            assert all(row in in_order for row in found)
        visited[queue] = True


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
        with loaded(client, arrays, replace(GRID, backend="cuda"), directed=directed, ranks=ranks) as graph:
            check(graph, arrays, strategy, directed=directed, predecessors=strategy == "row-scan")
