"""The laboratory's kernels on a CPU against SciPy: strategy x options x graph x order of threads.

The kernels are those that a GPU runs, compiled by a C++ compiler (``tests/support/cuda_on_cpu``); the enactors are the
same as on a GPU.
"""

import ctypes
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dbfs_workers.base.errors import BackendUnavailableError, InvalidOptionError, QueueOverflowError, RunCancelledError
from dbfs_workers.features.lab import enact
from dbfs_workers.features.lab.enactor import C2050_THREADS, Ahead
from dbfs_workers.features.lab.layout import LabCounter
from dbfs_workers.features.lab.problem import Problem
from dbfs_workers.features.lab.strategies import CHOICES, CULLING, GATHERING, STATUS, STRATEGIES, TILES, parse
from dbfs_workers.features.lab.tuning import Tuning
from dbfs_workers.search.partition.stripe import NO_VERTEX
from dbfs_workers.search.reports import COUNT_FIELDS, RankReport, RankRun
from tests.support import graphs, oracle
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.cuda_on_cpu.device import THREADS, EmulatedError, EmulatedGpu

pytestmark = needs_compiler

ROOMY = Tuning(
    threads=THREADS,
    most_blocks=3,
    growth=1,
    least_behind=4,
    vertex_queue=32,
    edge_queue=32,
    two_phase_from=100,
    grid_degree=200,
    child_degree=100,
    block_frontier=20,
    grid_frontier=60,
)
"""Few blocks, so that a block takes several tiles; small graphs have levels of every kind. Room for all duplicates."""
PLAIN: Any = {"predecessors": False, "tuning": ROOMY}
CULLING_ONES = [name for name in enact.ENACTORS if "culling" in STRATEGIES[name].options]
# One of them in the first size.
FIRST_CULLING = [CULLING_ONES[0], *(pytest.param(name, marks=pytest.mark.full) for name in CULLING_ONES[1:])]
EXACT = [
    pytest.param(name, gathering, marks=[] if gathering == "scan+warp+cta" else pytest.mark.full)
    for name in ("atomic-queue", "status-scan", "hierarchical", "device-loop", "child-kernels")
    for gathering in GATHERING
]


def traverse(arrays: graphs.Arrays, source: int, strategy: str, *, directed: bool = False, **options: Any) -> RankRun:
    """Traverse by a strategy, and check the labels and the counts against SciPy."""
    n, src, dst = arrays
    matrix = oracle.adjacency(n, src, dst, directed=directed)
    expected = oracle.distances(matrix, [source])
    predecessors = options.setdefault("predecessors", True)
    run = enact.traverse(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.uint32),
        source,
        parse(strategy),
        options.pop("watch", lambda level, frontier: None),
        in_edges=_in_edges(matrix),
        device=EmulatedGpu(
            options.pop("seed", 0), options.pop("accesses_a_turn", 8), options.pop("most_launches", 1000)
        ),
        tuning=options.pop("tuning", ROOMY),
        **options,
    )
    np.testing.assert_array_equal(run.labels.distances, expected)
    if predecessors:
        parents = run.labels.predecessors
        assert parents is not None
        ids = np.where(parents == NO_VERTEX, -1, parents.astype(np.int64))
        oracle.assert_valid_parents(matrix, expected, ids, [source])
    reached = expected >= 0
    degrees = np.diff(matrix.indptr)
    assert (run.reached, run.edges, run.depth) == (reached.sum(), degrees[reached].sum(), expected.max())
    counts = dict(zip(COUNT_FIELDS, RankReport.of(run).counts.T, strict=True))
    assert counts["discovered"].tolist() == [*np.bincount(expected[reached])[1:].tolist(), 0]
    assert (counts["culled"] >= 0).all()
    counters = dict(run.counters)
    assert counters["edges"] == counts["edges"].sum() >= run.edges
    assert counters["expanded"] == counts["frontier"].sum() >= run.reached
    assert counters["duplicates"] == counts["culled"].sum()
    return run


def _in_edges(matrix: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    transposed = matrix.T.tocsr()
    return transposed.indptr.astype(np.int64), transposed.indices.astype(np.uint32)


@pytest.mark.matrix
@pytest.mark.parametrize("culling", CULLING)
@pytest.mark.parametrize("status", STATUS)
@pytest.mark.parametrize("gathering", GATHERING)
@pytest.mark.parametrize("strategy", CULLING_ONES)
def test_every_option_gives_the_same_labels(strategy: str, gathering: str, status: str, culling: str) -> None:
    options = f"gathering={gathering},status={status},culling={culling}"
    for name in ("hub", "dense random", "sparse random"):
        n, src, dst = graphs.GRAPHS[name]()
        traverse((n, src, dst), int(src[0]), f"{strategy}:{options}")


@pytest.mark.parametrize(("strategy", "gathering"), EXACT)
def test_exact_queues_have_no_duplicates(strategy: str, gathering: str) -> None:
    for name in ("hub", "dense random", "sparse random"):
        n, src, dst = graphs.GRAPHS[name]()
        run = traverse((n, src, dst), int(src[0]), f"{strategy}:gathering={gathering}", accesses_a_turn=1)
        assert dict(run.counters)["expanded"] == run.reached


@pytest.mark.matrix
@pytest.mark.parametrize(
    "policy", ["atomic-queue:gathering=serial", pytest.param("child-kernels:gathering=serial", marks=pytest.mark.full)]
)
@pytest.mark.parametrize("storage", ["csr", pytest.param("pages", marks=pytest.mark.full)])
def test_a_block_appends_what_its_threads_kept_at_once(policy: str, storage: str) -> None:
    """Lists of up to 8 neighbours fill no queue of a thread, so that a tile's finds lie in the order of its lists."""
    for most, whole in ((8, True), (60, False)):
        lengths = np.random.default_rng(most).integers(0, most + 1, 3 * THREADS)
        first = 1 + np.arange(lengths.size)
        leaves = int(first[-1]) + 1 + np.arange(lengths.sum())
        src = np.concatenate([np.zeros(lengths.size, int), np.repeat(first, lengths)])
        arrays = 1 + lengths.size + leaves.size, src, np.concatenate([first, leaves])
        written = recorded(arrays, f"{policy},storage={storage}", replace(ROOMY, child_degree=1 << 20))
        (ids,) = [ids for _, ids in written if len(ids) == leaves.size]
        assert sorted(ids) == leaves.tolist()
        assert (np.flatnonzero(np.diff(ids) != 1).size <= 3) == whole


@pytest.mark.matrix
@pytest.mark.parametrize("options", ["", ":classes=3", ":sorting=pass", ":classes=3,sorting=pass", ":storage=pages"])
@pytest.mark.parametrize("degrees", [(3, 40), (100, 299)])
def test_every_class_walks_its_lists(degrees: tuple[int, int], options: str) -> None:
    """A path whose vertices have leaves, so that lists of a thread, a warp, a block and the grid take turns."""
    few, many = degrees
    spine = np.arange(6)
    leaves = np.where(spine % 2, few, many)
    src = np.concatenate([spine[:-1], np.repeat(spine, leaves)])
    dst = np.concatenate([spine[1:], 6 + np.arange(leaves.sum())])
    run = traverse((6 + int(leaves.sum()), src, dst), 0, f"degree-classes{options}", accesses_a_turn=1)
    assert dict(run.counters)["expanded"] == run.reached
    assert dict(run.counters)["duplicates"] == 0


def test_a_sorting_pass_takes_a_queue_a_class_and_one() -> None:
    """Tödling's memory: 4 queues of all vertices, or 6 and two bytes a vertex if sorted while exploring."""
    took = [
        dict(traverse(graphs.GRAPHS["hub"](), 0, f"degree-classes:classes=3{sorting}").counters)["bytes"]
        for sorting in ("", ",sorting=pass")
    ]
    assert took[0] - took[1] == (2 * 4 + 2) * graphs.GRAPHS["hub"]()[0]


@pytest.mark.parametrize("strategy", ["status-array", "masks", "warp-centric", "status-scan", "bitmap-queue"])
def test_strategies_over_all_vertices_look_at_all_in_each_level(strategy: str) -> None:
    run = traverse(graphs.GRAPHS["cycle"](), 0, strategy)
    counters = dict(run.counters)
    assert counters["edges"] == run.edges
    assert counters["looked_at"] >= 40 * 21


def test_a_queue_of_bits_claims_each_vertex_once() -> None:
    """Lanes that miss a visited bit in the read-only cache all find the vertex: an atomic or lets one of them go on."""
    culled = 0
    for seed in range(3):
        for rows in (63, 64, 65):
            run = traverse(graphs.random(rows, 2000, seed), 0, "bitmap-queue", seed=seed, accesses_a_turn=1)
            counters = dict(run.counters)
            assert (counters["expanded"], counters["duplicates"]) == (run.reached, 0)
            culled += counters["claim_culled"]
    assert culled > 0


def test_a_product_looks_at_all_edges_in_each_level() -> None:
    run = traverse(graphs.GRAPHS["cycle"](), 0, "matrix-vector")
    assert dict(run.counters)["edges"] == 80 * 21
    problem = Problem(EmulatedGpu(), np.zeros(2, np.int64), np.zeros(0, np.uint32), in_edges=None, **PLAIN)
    with pytest.raises(InvalidOptionError, match="needs the in-edges of a directed graph: load it with in_edges=True"):
        problem.in_edges()


@pytest.mark.parametrize("strategy", enact.ENACTORS)
def test_small_graphs(strategy: str) -> None:
    for name in ("one vertex", "one vertex, self-loop", "two vertices, no edge", "self-loops and duplicates", "cycle"):
        traverse(graphs.GRAPHS[name](), 0, strategy)
    n, src, dst = graphs.GRAPHS["two components"]()
    traverse((n, src, dst), 40, strategy, directed=True, predecessors=False)


@pytest.mark.full
@given(
    strategy=st.sampled_from(list(enact.ENACTORS)),
    n=st.integers(1, 200),
    degree=st.floats(0, 12),
    seed=st.integers(0, 2**20),
    directed=st.booleans(),
    data=st.data(),
)
@settings(max_examples=20)
def test_random_graphs_in_random_orders(
    strategy: str, n: int, degree: float, seed: int, directed: bool, data: st.DataObject
) -> None:
    """The seed draws the edges, and the order in which threads go on."""
    taken = {name: data.draw(st.sampled_from(CHOICES[name])) for name in STRATEGIES[strategy].options}
    if strategy == "expand-contract" and taken["tiles"] == "order":
        del taken["tiles"]
    if taken.get("tiles") == "oversubscribe":
        del taken["grid"]
    text = f"{strategy}:{','.join(f'{name}={value}' for name, value in taken.items())}"
    arrays = graphs.random(n, int(degree * n), seed)
    traverse(arrays, data.draw(st.integers(0, n - 1)), text, directed=directed, seed=seed)


@pytest.mark.parametrize("strategy", FIRST_CULLING)
def test_duplicates_without_culling_fill_the_queue(strategy: str) -> None:
    """Of many threads that find one vertex at a time, all keep it: an error says so, and culling avoids it."""
    # A level has a quarter of the vertices, and a third of the edges.
    layers = 4, 8
    vertices = np.arange(np.prod(layers)).reshape(layers)
    src = np.repeat(vertices[:-1], layers[1], axis=1).ravel()
    dst = np.tile(vertices[1:], (1, layers[1])).ravel()
    arrays = int(vertices.size), src, dst
    tight = Tuning(threads=THREADS, most_blocks=9, vertex_queue=0.4, edge_queue=0.4, spare=0, two_phase_from=100)
    with pytest.raises(QueueOverflowError, match=rf"strategy {strategy}, level \d+: the queue needs \d+ entries"):
        traverse(arrays, 0, f"{strategy}:culling=none,status=labels", tuning=tight, accesses_a_turn=1)
    run = traverse(arrays, 0, f"{strategy}:status=bitmask", accesses_a_turn=1)
    counters = dict(run.counters)
    assert counters["warp_culled"] + counters["history_culled"] > 0


@pytest.mark.parametrize("strategy", FIRST_CULLING)
def test_claims_leave_no_duplicates(strategy: str) -> None:
    """Duplicates pass the culling, but an atomic operation lets one of them go on."""
    culled = 0
    for seed in range(3):
        arrays = graphs.random(256, 4000, seed)
        counters = dict(
            traverse(arrays, 0, f"{strategy}:status=claims,culling=none", seed=seed, accesses_a_turn=1).counters
        )
        assert counters["duplicates"] == 0
        culled += counters["claim_culled"]
    assert culled > 0


@pytest.mark.parametrize("strategy", FIRST_CULLING)
def test_culling_without_atomics_leaves_hardly_an_edge_to_be_looked_at_twice(strategy: str) -> None:
    """Merrill 2012, section 4.2: a factor below 1.05 where frontiers are larger than the threads that run at once."""
    run = traverse(graphs.random(1000, 15_000, 3), 0, strategy, accesses_a_turn=2, predecessors=False)
    assert dict(run.counters)["edges"] < 1.05 * run.edges


class RecordingGpu(EmulatedGpu):
    """Keeps how many entries each kernel took, in ``taken``, and what it wrote to its output queue, in ``written``."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed, accesses_a_turn=1)
        self.taken: list[tuple[str, int]] = []
        self.written: list[tuple[str, list[int]]] = []

    def launch(self, source: str, kernel: str, blocks: int, *, element: int = 0, cooperative: bool = False) -> None:
        """See ``EmulatedGpu``."""
        super().launch(source, kernel, blocks, element=element, cooperative=cooperative)
        given = self.arguments[element]
        counts = _memory(given["counters"], np.uint64, len(LabCounter)).tolist()
        if counts[LabCounter.LOOKED_AT]:
            self.taken.append((kernel, counts[LabCounter.LOOKED_AT]))
        self.written.append((kernel, _memory(given["out_ids"], np.uint32, counts[LabCounter.QUEUED]).tolist()))


def _memory(address: int, kind: type[np.generic], size: int) -> NDArray[Any]:
    held = (ctypes.c_char * (size * np.dtype(kind).itemsize)).from_address(int(address))
    return np.frombuffer(held, kind).copy()


def recorded(arrays: graphs.Arrays, policy: str, tuning: Tuning, seed: int = 0) -> list[tuple[str, list[int]]]:
    """Return what the kernels of a traversal from vertex 0 wrote, of those that wrote something."""
    n, src, dst = arrays
    matrix = oracle.adjacency(n, src, dst, directed=True)
    device = RecordingGpu(seed)
    lists = matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32)
    enact.traverse(*lists, 0, parse(policy), lambda *_: None, predecessors=False, device=device, tuning=tuning)
    return [(kernel.removeprefix("dbfs_lab_"), ids) for kernel, ids in device.written if ids]


def test_the_frontiers_of_merrills_first_figure() -> None:
    lists = {0: [1, 3], 1: [0, 2, 4], 2: [5], 3: [4], 4: [7], 5: [6, 8], 7: [8]}
    src, dst = zip(*((vertex, one) for vertex, ones in lists.items() for one in ones), strict=True)
    written = recorded((9, np.array(src), np.array(dst)), "two-phase:tiles=order", ROOMY)
    assert [ids for kernel, ids in written if kernel == "expand"] == [[1, 3], [0, 2, 4, 4], [5, 7], [6, 8, 8]]
    assert [ids for kernel, ids in written if kernel == "contract"] == [[1, 3], [2, 4], [5, 7], [6, 8]]


@pytest.mark.matrix
@pytest.mark.parametrize("gathering", GATHERING)
@pytest.mark.parametrize("tiles", [*TILES[:3], pytest.param("oversubscribe", marks=pytest.mark.full)])
def test_what_a_block_writes_keeps_the_order_of_its_input(gathering: str, tiles: str) -> None:
    """Lists of 2, 1, 0 and 3 neighbours, as in Merrill's second figure, and lists for a warp and for the block."""
    lengths = [2, 1, 0, 3, 40, 1, 70, 300, 0, 33, 5] * 30
    first = 1 + np.arange(len(lengths))
    src = np.concatenate([np.zeros(len(lengths), int), np.repeat(first, lengths)])
    leaves = 1 + len(lengths) + np.arange(sum(lengths))
    arrays = int(1 + len(lengths) + sum(lengths)), src, np.concatenate([first, leaves])
    for policy, kernel in (("two-phase", "expand"), ("contract-expand", "contract_expand")):
        for seed in range(2):
            written = recorded(arrays, f"{policy}:gathering={gathering},tiles={tiles}", ROOMY, seed)
            (ids,) = [ids for name, ids in written if name == kernel and len(ids) == leaves.size]
            if tiles == "order":
                assert ids == leaves.tolist()
                continue
            # Tiles come as blocks reserve places, each whole.
            steps = np.flatnonzero(np.diff(ids) != 1)
            assert steps.size < len(lengths) / (32 if kernel == "expand" else THREADS) + 1
            assert sorted(ids) == leaves.tolist()


@pytest.mark.parametrize("gathering", ["warp", "scan+warp+cta"])
def test_a_warp_gathers_the_lists_of_its_own_lanes(gathering: str) -> None:
    """Two lanes of the first warp have 40 neighbours each. The second warp does not take one of these lists.

    A thread keeps what it finds, so the finds of a lane lie side by side.
    """
    src, dst = [0, 0, *[1] * 40, *[2] * 40], np.arange(1, 83)
    written = recorded((83, np.array(src), dst), f"atomic-queue:gathering={gathering}", replace(ROOMY, most_blocks=1))
    turns = (range(3, 43), range(43, 83))
    of_lanes = [found for lane in range(32) for turn in turns for found in turn[lane::32]]
    assert written[-1] == ("atomic_queue", of_lanes)


def test_expand_contract_may_cull_its_neighbours_too() -> None:
    """Vertices of one tile share all their neighbours: one of each goes on."""
    src, dst = [0] * 20 + list(np.repeat(np.arange(1, 21), 30)), [*range(1, 21), *list(range(21, 51)) * 20]
    arrays = 51, np.array(src), np.array(dst)
    found = {}
    for neighbours in ("pass", "cull"):
        run = traverse(arrays, 0, f"expand-contract:neighbours={neighbours}", directed=True, accesses_a_turn=1)
        found[neighbours] = dict(run.counters)["duplicates"]
    assert found["cull"] < found["pass"] / 2


def _leaves(size: int) -> graphs.Arrays:
    """Return a tree of so many vertices below the root, with a leaf each."""
    first = 1 + np.arange(size)
    return 1 + 2 * size, np.concatenate([np.zeros_like(first), first]), np.arange(1, 1 + 2 * size)


def test_oversubscription_launches_a_block_for_each_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[tuple[str, int]] = []
    launch = EmulatedGpu.launch

    def recording(self: EmulatedGpu, source: str, kernel: str, blocks: int, **options: Any) -> None:
        launched.append((kernel, blocks))
        launch(self, source, kernel, blocks, **options)

    monkeypatch.setattr(EmulatedGpu, "launch", recording)
    traverse(_leaves(10 * THREADS), 0, "two-phase:tiles=oversubscribe")
    assert ("dbfs_lab_expand", 10) in launched
    launched.clear()
    traverse(_leaves(10 * THREADS), 0, "two-phase:tiles=share")
    assert max(blocks for _, blocks in launched) == 3


@pytest.mark.parametrize(("tiles", "runs"), [("share", [16] * 3), ("steal", [8] * 3 + [4] * 3 + [2] * 3 + [1] * 6)])
def test_a_block_takes_neighbouring_tiles(tiles: str, runs: list[int]) -> None:
    """48 tiles of 64 vertices, on three blocks: one range a block, or in each round of runs half of what is left."""
    first = 1 + np.arange(48 * THREADS)
    for seed in range(3):
        written = recorded(_leaves(first.size), f"two-phase:tiles={tiles}", ROOMY, seed)
        vertices = next(ids for kernel, ids in written if kernel == "contract")
        _, leaves = [ids for kernel, ids in written if kernel == "expand"]
        tile_of = {first.size + vertex: at // THREADS for at, vertex in enumerate(vertices)}
        order = [tile_of[leaf] for leaf in leaves[::THREADS]]
        assert sorted(order) == list(range(48))
        places = np.argsort(order)
        assert all((np.diff(run) > 0).all() for run in np.split(places, np.cumsum(runs)[:-1]))
        assert (np.diff(places) < 0).any()


def test_contracted_vertices_keep_the_order_of_their_edges() -> None:
    targets = 1 + np.random.default_rng(3).permutation(900)
    arrays = 901, np.zeros(900, int), targets
    lists = [ids for kernel, ids in recorded(arrays, "two-phase:tiles=order", ROOMY) if kernel == "contract"]
    # SciPy's lists are in the order of the ids.
    assert lists == [list(range(1, 901))]


@pytest.mark.parametrize(("resident", "most"), [(150, 150), (10**6, C2050_THREADS)])
def test_hybrid_takes_two_launches_where_the_queue_has_more_entries_than_threads_run(resident: int, most: int) -> None:
    """On the device, or on the paper's GPU, if that ran fewer."""
    matrix = oracle.adjacency(*graphs.random(400, 1200, 5), directed=False)
    device = RecordingGpu()
    device.resident_threads = resident
    enact.traverse(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.uint32),
        0,
        parse("hybrid:grid=c2050"),
        lambda *_: None,
        predecessors=False,
        device=device,
        tuning=replace(ROOMY, most_blocks=1000, least_behind=1, two_phase_from=None),
    )
    taken = {kernel: [size for name, size in device.taken if name == kernel] for kernel, _ in device.taken}
    assert max(taken["dbfs_lab_contract_expand"]) <= most
    assert all(size > most for size in taken.get("dbfs_lab_contract", []))
    assert ("dbfs_lab_contract" in taken) == (resident == most)


def test_the_bitmask_errs_but_the_labels_do_not() -> None:
    """Bits are lost where threads update one byte; the labels drop those vertices."""
    arrays = graphs.random(64, 2000, 3)
    with_bitmask = [dict(traverse(arrays, 0, "two-phase:status=bitmask", seed=seed).counters) for seed in range(5)]
    assert any(counters["label_culled"] for counters in with_bitmask)
    assert all(counters["bitmask_culled"] for counters in with_bitmask)
    assert dict(traverse(arrays, 0, "two-phase:status=labels").counters)["bitmask_culled"] == 0


@pytest.mark.full
def test_small_levels_are_launched_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path's 70 levels are chains of 1, 2, 4, ... levels; a large frontier, or one that grows fast, is a chain."""
    reads: list[int] = []
    read = EmulatedGpu.read
    monkeypatch.setattr(EmulatedGpu, "read", lambda self, array: (reads.append(array.ndim), read(self, array))[1])
    for strategy in ("expand-contract", "contract-expand", "two-phase", "hybrid", "atomic-queue"):
        traverse(graphs.GRAPHS["path"](), 0, strategy)
        assert (reads.count(2), strategy) == (7, strategy)
        reads.clear()
    rule = Ahead(100, 8)
    chosen = []
    for before, after in ((1, 30), (30, 90), (90, 100), (100, 60), (60, 60), (60, 101), (101, 50)):
        rule.follow(before, after)
        chosen.append(rule.levels)
    assert chosen == [1, 2, 4, 8, 8, 1, 2]


@pytest.mark.parametrize(
    "strategy", ["expand-contract", "contract-expand", "two-phase:tiles=order", "hybrid", "atomic-queue"]
)
def test_a_chain_that_comes_again_has_its_own_distances(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator gives such a chain the arguments that it had before, as a recorded chain has them."""
    chains: list[bool] = []
    chain = EmulatedGpu.chain

    def watched(self: EmulatedGpu, same: Hashable, *rest: Any) -> None:
        chains.append(same in self._chains)
        chain(self, same, *rest)

    monkeypatch.setattr(EmulatedGpu, "chain", watched)
    run = traverse(graphs.GRAPHS["path"](), 0, strategy, tuning=replace(ROOMY, most_ahead=4))
    assert run.labels.distances.tolist() == list(range(70))
    assert sum(chains) > 10


def test_hierarchical_levels_share_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[str] = []
    launch = EmulatedGpu.launch

    def recording(self: EmulatedGpu, source: str, kernel: str, blocks: int, **options: Any) -> None:
        assert options.get("cooperative", False) == (kernel == "dbfs_lab_in_grid")
        launched.append(kernel.removeprefix("dbfs_lab_"))
        launch(self, source, kernel, blocks, **options)

    monkeypatch.setattr(EmulatedGpu, "launch", recording)
    run = traverse(graphs.GRAPHS["path"](), 0, "hierarchical")
    assert (launched, len(RankReport.of(run).counts)) == (["in_block"] * 2, 70)
    # A tree whose levels have 1, 4, 16, 64 and 256 vertices, with a path behind it.
    launched.clear()
    src = np.concatenate([np.repeat(np.arange(85), 4), np.arange(340, 350)])
    dst = np.arange(1, src.size + 1)
    traverse((src.size + 1, src, dst), 0, "hierarchical", accesses_a_turn=1)
    assert launched == ["in_block", "in_launch", "in_launch", "in_block"]
    launched.clear()
    traverse((src.size + 1, src, dst), 0, "hierarchical", tuning=replace(ROOMY, grid_frontier=100))
    assert launched == ["in_block", "in_grid", "in_launch", "in_block"]


def test_a_watch_ends_a_traversal() -> None:
    def watch(level: int, frontier: int) -> None:
        assert frontier == 1
        if level == 3:
            raise RunCancelledError("by request")

    with pytest.raises(RunCancelledError):
        traverse(graphs.GRAPHS["path"](), 0, "expand-contract", watch=watch)


def test_a_baseline_of_cpu_cores_does_not_run_on_a_gpu() -> None:
    with pytest.raises(InvalidOptionError, match="strategy sequential runs on CPU cores, not on a GPU"):
        traverse(graphs.GRAPHS["path"](), 0, "sequential")


def test_the_emulator_finds_missing_barriers_and_shows_lost_updates() -> None:
    device = EmulatedGpu()
    counters = np.zeros(1, np.uint64)
    device.arguments["counters"] = device.address(counters)
    with pytest.raises(EmulatedError, match="missing_barrier: deadlock"):
        device.launch("faulty", "dbfs_missing_barrier", 2)
    device.launch("faulty", "dbfs_lost_updates", 2)
    assert 0 < counters[0] < 2 * THREADS


def test_the_main_loop_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path's 70 levels take two launches by the host; where the device refuses launches, the host goes on."""
    read = EmulatedGpu.read
    reads: list[int] = []
    monkeypatch.setattr(EmulatedGpu, "read", lambda self, array: (reads.append(array.ndim), read(self, array))[1])
    for most_launches, launches in ((1000, 2), (20, 7), (1, 70)):
        reads.clear()
        traverse(graphs.GRAPHS["path"](), 0, "device-loop", most_launches=most_launches)
        assert reads.count(2) == launches
    with pytest.raises(BackendUnavailableError, match="device-loop, level 0: the GPU took no launch by a kernel"):
        traverse(graphs.GRAPHS["path"](), 0, "device-loop", most_launches=0)


@pytest.mark.parametrize("strategy", ["atomic-queue", "child-kernels"])
def test_the_host_waits_after_each_level_if_asked(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = EmulatedGpu.read
    reads: list[int] = []
    monkeypatch.setattr(EmulatedGpu, "read", lambda self, array: (reads.append(array.ndim), read(self, array))[1])
    traverse(graphs.GRAPHS["path"](), 0, f"{strategy}:gathering=serial,wait=level")
    assert reads.count(2) == 70


@pytest.mark.parametrize(
    ("strategy", "most_launches"),
    [
        (name, most)
        for name, least in (("child-kernels", 0), ("device-loop:children=long", 1))
        for most in (least, 2, 1000)
    ],
)
def test_long_lists_get_kernels_of_their_own_or_the_block(strategy: str, most_launches: int) -> None:
    """Three hubs with a list of 100 or more each: the launches that the device refuses are the block's work."""
    hubs, leaves = np.arange(3), np.array([100, 250, 600])
    src = np.concatenate([[0, 0], np.repeat(hubs, leaves)])
    dst = np.concatenate([[1, 2], 3 + np.arange(leaves.sum())])
    for gathering in GATHERING:
        options = {"most_launches": most_launches, "accesses_a_turn": 2}
        policy = f"{strategy}{',' if ':' in strategy else ':'}gathering={gathering}"
        run = traverse((3 + int(leaves.sum()), src, dst), 0, policy, **options)
        assert dict(run.counters)["long_lists"] == 3
        assert dict(run.counters)["expanded"] == run.reached
        assert dict(run.counters)["duplicates"] == 0


def test_a_level_launches_only_so_many_kernels() -> None:
    """Nine long lists in one level, of which two get a kernel, though the device would take more."""
    src = np.concatenate([np.zeros(9, int), np.repeat(np.arange(1, 10), 120)])
    dst = np.concatenate([np.arange(1, 10), 10 + np.arange(9 * 120)])
    graph = (int(dst.max()) + 1, src, dst)
    for most_children, most_launches in ((2, 2), (9, 1000)):
        tuning = replace(ROOMY, most_children=most_children)
        run = traverse(graph, 0, "child-kernels", tuning=tuning, most_launches=most_launches)
        assert dict(run.counters)["long_lists"] == 9
        assert dict(run.counters)["expanded"] == run.reached
