"""Labels repaired on GPUs against SciPy: the kernel on this CPU, and on a GPU where there is one.

Axes: undirected and directed with in-edges; random batches, cut trees, hubs, whole graphs that vanish; rounds that one
block makes and rounds of all blocks; 1 to 32 lanes a row; repairs that are given up.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dbfs_workers.features.living import cuda_repair as repair
from dbfs_workers.features.living.change_log import EdgeChanges
from dbfs_workers.search.cuda.device_graph import DeviceGraph
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import on_host
from dbfs_workers.search.partition.stripe import NO_VERTEX, Stripe
from tests.support import oracle, repairing
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.gpus import on_gpu
from tests.support.graphs import GRAPHS
from tests.support.partitions import build

Edge = tuple[int, int]
N = 100


@pytest.fixture(
    params=[
        pytest.param(False, id="emulated", marks=needs_compiler),
        on_gpu(True, id="gpu"),
    ]
)
def device(request: pytest.FixtureRequest) -> Iterator[bool]:
    """CuPy and the kernel, or stand-ins for both."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.param:
            repairing.install(patch)
        yield request.param


class Living:
    """A graph, the labels of one of its versions, and what has changed since.

    Args:
        n: number of vertices.
        edges: the edges, for an undirected graph in both directions.
        directed: whether the graph is directed.
        sources: the sources of the labels.
    """

    def __init__(self, n: int, edges: set[Edge], directed: bool, sources: list[int]) -> None:
        import cupy

        self.cupy: Any = cupy
        self.n, self.edges, self.directed, self.sources = n, edges, directed, sources
        self.rows = Stripe(n, 1).n_local
        distances = np.full(self.rows, -1, np.int32)
        parents = np.full(self.rows, NO_VERTEX, np.uint32)
        distances[:n] = oracle.distances(self.matrix, sources)
        for u, v in sorted(edges):
            if distances[u] >= 0 and distances[v] == distances[u] + 1:
                parents[v] = u
        parents[sources] = sources
        self.labels = RankLabels(cupy.asarray(distances), cupy.asarray(parents))
        self.before = set(edges)

    @property
    def matrix(self) -> Any:
        """The adjacency matrix."""
        return oracle.adjacency(self.n, *self._ends(self.edges), directed=self.directed)

    def insert(self, batch: list[Edge]) -> None:
        """Insert edges."""
        self.edges |= {*batch, *(() if self.directed else ((v, u) for u, v in batch))}

    def delete(self, batch: list[Edge]) -> None:
        """Delete edges."""
        self.edges -= {*batch, *(() if self.directed else ((v, u) for u, v in batch))}

    def tree(self) -> list[Edge]:
        """Return the edges of the labels' tree."""
        parents = on_host(self.labels.predecessors)[: self.n]
        return [(int(u), v) for v, u in enumerate(parents) if u not in (v, NO_VERTEX)]

    def repair(self, seconds: float = 1e6) -> repair.RepairOutcome | None:
        """Repair the labels to the edges as they are now, and check them. ``seconds`` are those of a new traversal."""
        graph = self._graph()
        changes = tuple(
            EdgeChanges(*(side.astype(np.uint32) for side in self._ends(edges)))
            for edges in (self.before - self.edges, self.edges - self.before)
        )
        before = on_host(self.labels.distances).copy()
        done = repair.repair(graph, self.labels, (changes[0], changes[1]), seconds)
        # A repair that is given up has changed none of them, and one that is complete has changed a copy.
        np.testing.assert_array_equal(on_host(self.labels.distances), before)
        if done is None:
            return None
        self.labels = done.labels
        distances = on_host(self.labels.distances)
        expected = np.full(self.rows, -1, np.int32)
        expected[: self.n] = oracle.distances(self.matrix, self.sources)
        np.testing.assert_array_equal(distances, expected)
        parents = on_host(self.labels.predecessors)[: self.n].astype(np.int64)
        parents[parents == NO_VERTEX] = -1
        oracle.assert_valid_parents(self.matrix, distances[: self.n], parents, self.sources)
        changed = np.flatnonzero(expected != before)
        np.testing.assert_array_equal(done.changed.get(), changed)
        degrees = np.diff(on_host(graph.row_offsets))
        assert (done.reached, done.edges) == ((expected >= 0).sum(), degrees[expected >= 0].sum())
        assert done.depth == expected.max()
        self.before = set(self.edges)
        return done

    def _graph(self) -> DeviceGraph:
        stripe = Stripe(self.n, 1)
        mine = [(u, v) for u, v in self.edges if self.directed or u <= v]
        ends = self._ends(set(mine))
        (part,) = build(stripe, *ends, directed=self.directed, in_edges=self.directed)
        part = part.on(self.cupy)
        into = part.in_edges or part.out_edges
        degrees = np.diff(on_host(part.row_offsets))
        facts = (self.rows, int((degrees > 0).sum()), int(degrees.max()), 0)
        return DeviceGraph(
            stripe, 0, part.row_offsets, part.columns, into.row_offsets, into.columns, None, None, *facts, None, 0, None
        )

    @staticmethod
    def _ends(edges: set[Edge]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        src, dst = np.array(sorted(edges), np.int64).reshape(-1, 2).T
        return src, dst


def grid(side: int) -> list[Edge]:
    return [
        *((v, v + 1) for v in range(side * side) if (v + 1) % side),
        *((v, v + side) for v in range(side * side - side)),
    ]


def living(n: int, edges: list[Edge], directed: bool = False, sources: tuple[int, ...] = (0,)) -> Living:
    both = {*edges, *(() if directed else ((v, u) for u, v in edges))}
    return Living(n, both, directed, list(sources))


@pytest.mark.matrix
@pytest.mark.parametrize("few", [0, 4, 1024])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", ["grid", "path", "hub", "dense random", "self-loops and duplicates"])
def test_repairs_agree_with_scipy(
    device: bool, monkeypatch: pytest.MonkeyPatch, name: str, directed: bool, few: int
) -> None:
    monkeypatch.setattr(repair, "_FEW", few)
    if name == "grid":
        graph = living(100, grid(10), directed, (0, 7))
    elif name == "path":
        graph = living(60, [(v, v + 1) for v in range(59)], directed)
    else:
        n, src, dst = GRAPHS[name]()
        graph = living(n, list(zip(src.tolist(), dst.tolist(), strict=True)), directed, (1,))
    generator = np.random.default_rng(few)
    everything = sorted(graph.edges)
    random = [(int(u), int(v)) for u, v in generator.integers(0, graph.n, (20, 2))]
    for change, batch in (
        (graph.delete, graph.tree()[::7]),
        (graph.insert, everything),
        (graph.delete, random),
        (graph.insert, random),
        (graph.delete, graph.tree()),
        (graph.insert, everything),
    ):
        change(batch)
        assert graph.repair() is not None
    graph.insert(random)
    graph.delete(graph.tree()[::3])
    graph.delete([(v, v + 1) for v in range(8)])
    assert graph.repair() is not None
    done = graph.repair()
    assert done is not None
    assert done.changed.get().size == 0


def test_one_block_hands_many_rows_over(device: bool) -> None:
    # Two stars: in a few rounds of one row each comes a round of 3,000, and then rounds of a few.
    star = [(0, 1), *((1, v) for v in range(2, 3000)), *((v, 3000) for v in range(2, 3000)), (3000, 3001)]
    graph = living(3002, star)
    graph.delete([(0, 1)])
    done = graph.repair()
    assert done is not None
    assert done.reached == 1
    graph.insert([(0, 1)])
    done = graph.repair()
    assert done is not None
    assert done.depth == 4


EDGES = st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, N - 1)), max_size=40)


@pytest.mark.full
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    first=EDGES,
    steps=st.lists(st.tuples(st.sampled_from(["insert", "delete", "cut"]), EDGES), max_size=8),
    every=st.integers(1, 3),
    few=st.sampled_from([0, 2, 1024]),
    lanes=st.sampled_from([1, 2, 8, 32]),
    directed=st.booleans(),
    sources=st.lists(st.integers(0, N - 1), min_size=1, max_size=3, unique=True),
)
def test_random_sequences_of_batches(
    device: bool,
    first: list[Edge],
    steps: list[tuple[str, list[Edge]]],
    every: int,
    few: int,
    lanes: int,
    directed: bool,
    sources: list[int],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repair, "_FEW", few)
        patch.setattr(repair, "lanes_of", lambda graph: lanes)
        graph = living(N, [*first, *((v, v + 1) for v in range(0, N - 1, 2))], directed, tuple(sources))
        for number, (kind, batch) in enumerate(steps, 1):
            if kind == "insert":
                graph.insert(batch)
            elif kind == "delete":
                graph.delete([*batch, *sorted(graph.edges)[:: 1 + len(batch)]])
            else:
                graph.delete(graph.tree()[:: 1 + len(batch)])
            if number % every == 0:
                assert graph.repair() is not None


@pytest.mark.parametrize("few", [0, 1024])
def test_repairs_are_given_up(device: bool, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(repair, "_FEW", few)
    graph = living(400, grid(20))
    # Too many rows: all lose their distance, or come nearer.
    monkeypatch.setattr(repair, "_LEAST_ROWS", 16)
    graph.delete([(0, 1), (0, 20)])
    assert graph.repair() is None
    broom = living(3000, [*((v, v + 1) for v in range(5)), *((5, v) for v in range(6, 3000))])
    broom.insert([(0, 5)])
    assert broom.repair() is None
    # Too long, in rounds and along one row.
    monkeypatch.setattr(repair, "_LEAST_ROWS", 1 << 16)
    graph = living(400, grid(20))
    graph.delete([(0, 1), (0, 20)])
    assert graph.repair(2e-8) is None
    star = living(3000, [(0, v) for v in range(1, 3000)], sources=(1,))
    star.delete([(0, 1)])
    star.insert([(2, 1)])
    assert star.repair(2e-8) is None


def test_a_repair_that_does_not_fit_is_given_up(device: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    def too_full(*shape: Any) -> None:
        raise cupy.cuda.memory.OutOfMemoryError(1, 1, 1) if device else cupy.cuda.memory.OutOfMemoryError

    graph = living(60, [(v, v + 1) for v in range(59)])
    graph.delete([(30, 31)])
    with monkeypatch.context() as patch:
        patch.setattr(cupy, "zeros", too_full)
        assert graph.repair() is None
    assert graph.repair() is not None
