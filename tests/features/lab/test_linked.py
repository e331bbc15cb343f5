"""A living graph on linked pages, on an emulated GPU: batches against the same batches on a CPU rank, and traversals.

Axes: directed, undirected, by degree; edges and vertices that come and go; batches that are forgotten.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any

import distributed
import numpy as np
import pytest
from numpy.typing import NDArray

import dbfs
from dbfs.building.build import ORDERS
from dbfs.errors import EdgeInputError
from dbfs_workers.assembly import resident_parts
from dbfs_workers.base.errors import (
    DeletedVertexError,
    GraphTooLargeError,
    InvalidOptionError,
    StaleRunError,
)
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.building.bin_store import BinStore
from dbfs_workers.building.binning import bin_edges
from dbfs_workers.building.partitions import build_partition
from dbfs_workers.features.lab import enact, linked
from dbfs_workers.features.lab.linked import LinkedPartition
from dbfs_workers.features.lab.purpose import ByStrategy
from dbfs_workers.features.lab.tuning import Tuning
from dbfs_workers.features.living import versions
from dbfs_workers.features.living.part import living_of
from dbfs_workers.features.living.update_spec import UpdateSpec
from dbfs_workers.features.living.versions import NextVersion
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.members import resident
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.members.resident import ResidentRunner
from dbfs_workers.search.partition.partition import Csr, GraphTotals, Partition, describe
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import oracle, standin
from tests.support.cuda_on_cpu.compiler import COMPILER
from tests.support.cuda_on_cpu.device import THREADS, EmulatedGpu
from tests.support.gang import repeated
from tests.support.gpus import needs_gpu

N, ROOM = 90, 10
WHERE = "rank 0, changing its edges"
Edges = tuple[NDArray[np.int64], NDArray[np.int64]]


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> standin.Cupy:
    if not COMPILER:
        pytest.skip("no g++ here, which compiles the kernels for this CPU")
    monkeypatch.setattr(linked, "here", lambda: EmulatedGpu())
    monkeypatch.setattr(enact, "Gpu", lambda *_: EmulatedGpu())
    monkeypatch.setattr(enact, "Tuning", lambda **_: Tuning(threads=THREADS, most_blocks=3))
    monkeypatch.setattr(device_memory, "free_for_labels", lambda share: 1 << 30)
    return standin.install(monkeypatch, mapped=False)


def drawn(random: np.random.Generator, edges: int, *, directed: bool) -> Edges:
    """Return edges, of which some are self-loops and some lie at a hub; those of an undirected graph in both ways."""
    src, dst = random.integers(0, N, (2, edges))
    src = np.where(random.random(edges) < 0.3, 0, src)
    if directed:
        return src, dst
    back = src != dst
    return np.concatenate([src, dst[back]]), np.concatenate([dst, src[back]])


def loaded(random: np.random.Generator, *, directed: bool) -> Partition:
    """Return a partition whose edges occur more than once."""
    stripe = Stripe(N, 1, room=ROOM)
    src, dst = random.integers(0, N, (2, 400))
    src[:60], dst[:60] = src[60:120], dst[60:120]
    bins = bin_edges(src, dst, stripe, symmetrise=not directed, name="edges")
    return build_partition(stripe, 0, BinStore.of(stripe, bins), input_edges=400, directed=directed)


def changed(partition: Partition, spec: UpdateSpec) -> NextVersion:
    """Return the version after an update that is committed."""
    following = linked.updated(partition, spec, None, WHERE)
    facts: Any = following.facts
    assert isinstance(following.partition, LinkedPartition)
    linked.commit(following.partition, facts)
    return following


def require_equal(linked_one: NextVersion, other: NextVersion) -> None:
    """Compare a version with the same one on a CPU rank."""
    ours, theirs = linked_one.partition, other.partition
    assert linked_one.changes == other.changes
    np.testing.assert_array_equal(linked_one.changes.keys, other.changes.keys)
    np.testing.assert_array_equal(linked_one.vertices, other.vertices)
    np.testing.assert_array_equal(ours.deleted, theirs.deleted)
    assert (linked_one.absent, ours.version, ours.stripe) == (other.absent, theirs.version, theirs.stripe)
    assert replace(describe(ours), nbytes=0, free_pages=0) == replace(describe(theirs), nbytes=0, free_pages=0)
    np.testing.assert_array_equal(ours.row_offsets, theirs.row_offsets)
    np.testing.assert_array_equal(ours.columns, theirs.columns)
    assert linked_one.facts.connected == (np.diff(theirs.row_offsets) > 0).sum()  # type: ignore[union-attr]


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("hub_first", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_updates_are_those_of_a_cpu_rank(directed: bool, hub_first: bool) -> None:
    random = np.random.default_rng(directed + 2 * hub_first)
    partition = loaded(random, directed=directed)
    spec = UpdateSpec("link", hub_first)
    ours, theirs = changed(partition, spec), versions.updated(partition, replace(spec, kind="thaw"), None, None, _free)
    require_equal(ours, theirs)
    pages = ours.partition.out_pages.latest.pages  # type: ignore[attr-defined]
    room = pages.pool.shape[0]
    for version in range(8):
        kind = ("insert-edges", "delete-edges", "insert-edges", "delete-vertices", "insert-vertices")[version % 5]
        edges, vertices = drawn(random, (3000, 300, 5)[version % 3], directed=directed), np.empty(0, np.int64)
        if kind == "delete-vertices":
            vertices = random.integers(1, N, 4)
            edges = versions.incident_edges(ours.partition, vertices)
            if not directed:
                edges = np.concatenate(edges), np.concatenate(edges[::-1])
        gone = theirs.partition.deleted
        if kind == "insert-edges" and gone.size:
            with pytest.raises(DeletedVertexError):
                changed(ours.partition, UpdateSpec(kind, hub_first, edges=(edges[0] * 0 + gone[0], edges[1])))
            present = ~np.isin(edges, gone).any(axis=0)
            edges = edges[0][present], edges[1][present]
        if kind == "insert-vertices":
            spec = UpdateSpec(kind, hub_first, count=3)
        else:
            spec = UpdateSpec(kind, hub_first, vertices=vertices, edges=edges)
        forgotten = linked.updated(ours.partition, spec, None, WHERE)
        require_equal(ours, theirs)
        before, theirs = ours.partition, versions.updated(theirs.partition, spec, None, None, _free)
        ours = changed(before, spec)
        require_equal(ours, theirs)
        assert (ours.partition.free_pages, ours.partition.m_local) == (pages.free, pages.edges)
        assert describe(forgotten.partition).m_local == ours.partition.m_local
        with pytest.raises(StaleRunError, match=f"version {version} is gone: its pages have version {version + 1} now"):
            before.out_pages.csr()  # type: ignore[attr-defined]
    assert directed or pages.pool.shape[0] > room


def _free() -> int:
    return 1 << 40


@pytest.mark.usefixtures("emulated")
def test_a_batch_of_no_edge_makes_a_version() -> None:
    partition = loaded(np.random.default_rng(5), directed=True)
    none = np.empty(0, np.int64)
    ours = changed(
        changed(partition, UpdateSpec("link", False)).partition, UpdateSpec("insert-edges", False, edges=(none, none))
    )
    assert (ours.partition.version, ours.partition.m_local, ours.changes.edges) == (1, 400, 0)


def test_what_does_not_go_on_linked_pages(emulated: standin.Cupy) -> None:
    partition = loaded(np.random.default_rng(5), directed=True)
    with_parents = replace(partition, in_edges=Csr(partition.row_offsets, partition.columns))
    with pytest.raises(InvalidOptionError, match="linked pages hold out-edges only: load the graph without in_edges"):
        linked.updated(with_parents, UpdateSpec("link", False), None, WHERE)
    emulated.free = 1000
    with pytest.raises(GraphTooLargeError, match="rank 0, changing its edges: it needs .* 1000 bytes are free"):
        linked.updated(partition, UpdateSpec("link", False), None, WHERE)
    emulated.free = 1 << 40
    ours = changed(partition, UpdateSpec("link", False))
    emulated.free = 40_000
    everything: Any = tuple(each.ravel() for each in np.indices((N, N)))
    with pytest.raises(GraphTooLargeError, match="rank 0, changing its edges: it needs"):
        linked.updated(ours.partition, UpdateSpec("insert-edges", False, edges=everything), None, WHERE)
    emulated.free = 1 << 40
    np.testing.assert_array_equal(ours.partition.columns, partition.columns)


class Engine:
    """Keeps the graph that an engine reads."""

    def __init__(self) -> None:
        self.read: list[Any] = []

    def take_over(self, graph: Any, totals: GraphTotals) -> None:
        assert (graph.columns.size, totals.edges) == (graph.row_offsets[-1], graph.columns.size)
        self.read.append(graph)


@pytest.mark.usefixtures("emulated")
def test_a_member_traverses_the_pages_and_copies_them_for_its_engines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies on pages read no copy; the engines read one of the latest version, once."""

    class Graph:
        def __init__(self, partition: Partition) -> None:
            self.stripe, self.rank, self.in_offsets, self.in_columns = partition.stripe, 0, None, None
            self.row_offsets, self.columns = partition.row_offsets, partition.columns

    monkeypatch.setattr(resident, "on_device", Graph)
    monkeypatch.setattr(resident, "Summary", lambda graph: None)
    random = np.random.default_rng(9)
    partition, runner, engine = loaded(random, directed=False), ResidentRunner("graph"), Engine()
    runner._graph, runner._engines = Graph(partition), [engine]  # type: ignore[assignment,list-item]
    member = Member(0, "partition", runner, resident_parts(runner))
    living = living_of(member)

    def apply(spec: UpdateSpec) -> None:
        nonlocal partition
        made = living.updated(partition, spec)
        partition, facts = made.partition, made.facts
        info = describe(partition)
        living.take_over(partition, GraphTotals(info.m_local, 0, info.max_degree), facts)

    def check(strategy: str, number: int) -> None:
        matrix = oracle.adjacency(N, *np.divmod(sorted(edges), N), directed=True)
        spec = TraversalSpec("run", (3,), predecessors=True, backend="cuda", purpose=ByStrategy(strategy))
        member.number = number
        for run in runner.traverse(partition, number, repeated(spec, 2), 1e12):
            expected = oracle.distances(matrix, [3])
            np.testing.assert_array_equal(run.labels.distances[:N], expected)
            assert (run.version, run.reached) == (partition.version, (expected >= 0).sum())
            assert run.edges == np.diff(partition.row_offsets)[:N][expected >= 0].sum()

    edges = {int(key) for key in _ids(partition)}
    apply(UpdateSpec("link", False))
    check("degree-classes:storage=pages", 1)
    assert engine.read == []
    for version in range(1, 5):
        batch = drawn(random, 40, directed=False)
        kind, change = [("insert-edges", edges.update), ("delete-edges", edges.difference_update)][version % 2]
        apply(UpdateSpec(kind, False, edges=batch))
        change((batch[0] * N + batch[1]).tolist())
        check("atomic-queue:gathering=serial,storage=pages", 2 * version)
        assert len(engine.read) == version - 1
        check("two-phase", 2 * version + 1)
        assert len(engine.read) == version


def _ids(partition: Partition) -> Any:
    return np.repeat(np.arange(partition.stripe.n_local), np.diff(partition.row_offsets)) * N + partition.columns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"storage": "paged", "mutable": True}, "unknown storage 'paged'; choose one of csr, pages"),
        ({"storage": "pages"}, "it needs mutable=True. A strategy with storage=pages copies other graphs"),
        (
            {"storage": "pages", "mutable": True},
            "needs one GPU, dbfs.load.*, not 2 ranks with backend='cpu'; mutable=Tr",
        ),
        ({"storage": "pages", "mutable": True, "ranks": 1}, "needs one GPU, .*, not 1 rank with backend='cpu'"),
    ],
)
def test_a_load_refuses_what_linked_pages_can_not_hold(
    client: distributed.Client, options: dict[str, Any], message: str, older: set[datetime]
) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        dbfs.load("path:n=9", client=client, **{"ranks": 2, **options})
    assert {status.created for status in dbfs.graphs(client=client)} <= older


@pytest.mark.parametrize("order", [pytest.param(order, marks=needs_gpu("cupy", "dask_cuda")) for order in ORDERS])
@pytest.mark.parametrize("directed", [False, True])
def test_a_graph_on_linked_pages(directed: bool, order: str) -> None:
    """Updates of edges and vertices by one client, traversals by strategies and the engine, and other readers."""
    random = np.random.default_rng(directed)
    src, dst = random.integers(0, N, (2, 300))
    graph: Any
    options: dict[str, Any] = {"mutable": True, "storage": "pages", "ranks": 1, "backend": "cuda"}
    room = ROOM if order == "given" else 0
    with dbfs.connect(dashboard_address=None, memory_limit=0) as client:
        source = dbfs.from_arrays(src, dst, n=N, directed=directed)
        if directed:
            with pytest.raises(InvalidOptionError, match="holds out-edges only"):
                dbfs.load(source, client=client, in_edges=True, **options)
            assert dbfs.graphs(client=client) == []
        with dbfs.load(source, client=client, room=room, order=order, **options) as graph:
            edges = {*zip(src.tolist(), dst.tolist(), strict=True)}
            for version in range(1, 9):
                batch = [(int(u), int(v)) for u, v in random.integers(0, N, (40, 2))]
                if version == 6:
                    gone = (7, 8, 9)
                    graph.delete_vertices(gone)
                    edges = {each for each in edges if not {*each} & {*gone}}
                elif version == 7 and room:
                    assert graph.insert_vertices(5).ids == (*sorted(gone), N, N + 1)
                elif version % 3:
                    batch = [each for each in batch if version < 6 or not {*each} & {*gone}]
                    added = {each for each in batch if each not in edges and (directed or each[::-1] not in edges)}
                    done = graph.insert_edges(batch)
                    assert done.edges == len(added if directed else {tuple(sorted(each)) for each in added})
                    edges |= {*batch}
                else:
                    batch += sorted(edges)[::3]
                    graph.delete_edges(batch)
                    edges -= {*batch, *(() if directed else (each[::-1] for each in batch))}
                check(graph, edges)
            with pytest.raises(EdgeInputError, match="are there already"):
                graph.insert_edges(sorted(edges)[:3], strict=True)
            check(graph, edges)


def check(graph: Any, edges: set[tuple[int, int]]) -> None:
    """Compare traversals, degrees and the number of edges with SciPy's."""
    matrix = oracle.adjacency(graph.n, *np.array(sorted(edges)).T, directed=graph.directed)
    expected = oracle.distances(matrix, [1])
    for strategy in ("degree-classes:storage=pages", "device-loop:gathering=serial,storage=pages", "two-phase", None):
        result = graph.bfs(1, predecessors=True, strategy=strategy)
        np.testing.assert_array_equal(result.distances(), expected)
        oracle.assert_valid_parents(matrix, expected, result.predecessors(), [1])
        assert result.version == graph.version
    graph.bfs(1).validate()
