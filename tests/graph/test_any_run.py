"""Any graph, loaded in any way, and any runs on it one after another: labels, counts and reports against SciPy.

``test_parity`` walks along axes; here they are crossed, with those that it holds fixed: directed graphs without their
in-edges, a bound beside targets out of reach, labels that are looked into after later runs, runs of every kind on one
gang, edges kept or not.
"""

from dataclasses import dataclass, replace
from typing import Any

import dask
import distributed
import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import dbfs
from dbfs.assembly import BFSResult, Graph
from dbfs.errors import ValidationError
from tests.support import graphs, oracle
from tests.support.graphs import Arrays

Distances = NDArray[np.int32]


@dataclass(frozen=True)
class Call:
    """A call of ``bfs``, or of ``bfs_many``, which takes no targets; the results are let go at once, or looked into."""

    sources: list[int]
    many: bool
    targets: list[int]
    max_depth: int | None
    predecessors: bool
    engine: str
    direction: str
    released: bool


@dataclass(frozen=True)
class Layout:
    """How a graph is loaded."""

    ranks: int
    directed: bool
    in_edges: bool
    keep_edges: bool
    order: str
    layout: str
    exchange: str
    piece_edges: int


@dataclass(frozen=True)
class Case:
    """A graph, and what is to be done with it. Once all is done, a label of ``vertex`` is changed."""

    arrays: Arrays
    layout: Layout
    calls: list[Call]
    vertex: int

    @property
    def adjacency(self) -> scipy.sparse.csr_array:
        return oracle.adjacency(*self.arrays, directed=self.layout.directed)

    @property
    def degrees(self) -> NDArray[np.int64]:
        n, src, dst = self.arrays
        back = 0 if self.layout.directed else np.bincount(dst[src != dst], minlength=n)
        return np.bincount(src, minlength=n) + back


@st.composite
def edge_arrays(draw: st.DrawFn) -> Arrays:
    """Random edges; a path or a star among them, pointing either way, and vertices that have no edge."""
    n = draw(st.integers(1, 12) | st.integers(1, 300))
    _, src, dst = graphs.random(n, draw(st.integers(0, 3 * n)), draw(st.integers(0, 2**16)))
    # A taskgraph's level takes long.
    others = np.arange(1, min(n, 12))
    extra = draw(st.sampled_from([others[:0], others - 1, 0 * others])), others
    ahead = draw(st.booleans())
    more = [ends[: extra[0].size] for ends in (extra if ahead else extra[::-1])]
    return n + draw(st.sampled_from([0, 1, 40])), np.concatenate([src, more[0]]), np.concatenate([dst, more[1]])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    arrays = draw(edge_arrays())
    layout = draw(
        st.builds(
            Layout,
            ranks=st.integers(1, 4),
            order=st.sampled_from(["given", "degree", "bfs"]),
            layout=st.sampled_from(["1d", "2d"]),
            exchange=st.sampled_from(["shared_memory", "tcp"]),
            piece_edges=st.sampled_from([100, 2**18]),
        )
    )
    if layout.layout == "2d":
        layout = replace(layout, exchange="shared_memory")
    vertices = st.integers(0, arrays[0] - 1)
    bottom_up = () if layout.directed and not layout.in_edges else ("bottom-up",)
    ways, tasks = (
        [(engine, direction) for direction in ("auto", "top-down", *bottom_up)] for engine in ("resident", "taskgraph")
    )
    call = st.builds(
        lambda way, **rest: Call(engine=way[0], direction=way[1], **rest),
        way=st.sampled_from([*ways, *ways, *(tasks if layout.layout == "1d" else [])]),
        sources=st.lists(vertices, min_size=1, max_size=3),
        many=st.booleans(),
        targets=st.lists(vertices, max_size=3),
        max_depth=st.none() | st.integers(0, 5) | st.just(2**70),
        predecessors=st.booleans(),
        released=st.booleans(),
    )
    return Case(arrays, layout, draw(st.lists(call, min_size=1, max_size=5)), draw(vertices))


def expected_of(case: Case, call: Call, sources: list[int]) -> Distances:
    distances = oracle.distances(case.adjacency, sources)
    bound = distances.size if call.max_depth is None else call.max_depth
    at = distances[call.targets]
    if call.targets and not call.many and (at >= 0).all():
        bound = min(bound, int(at.max()))
    distances[distances > bound] = -1
    return distances


def made_by(graph: Graph, case: Case, call: Call) -> list[tuple[BFSResult, Distances]]:
    """The results of a call, and the distances that they should have."""
    options: dict[str, Any] = {
        "predecessors": call.predecessors,
        "max_depth": call.max_depth,
        "direction": call.direction,
        "engine": call.engine,
    }
    if call.many:
        results = graph.bfs_many(call.sources, **options)
        expected = [expected_of(case, call, [source]) for source in call.sources]
        return list(zip(results, expected, strict=True))
    result = graph.bfs(call.sources, targets=call.targets, **options)
    return [(result, expected_of(case, call, call.sources))]


def assert_batch(graph: Graph, case: Case, call: Call) -> None:
    """A batch of the same sources has the same distances."""
    sources = sorted(set(call.sources))
    result = graph.bfs_batch(sources, keep="distances", max_depth=call.max_depth, direction=call.direction)
    expected = np.stack([expected_of(case, call, [source]) for source in sources], axis=1)
    distances = result.distances()
    unreached = np.array(-1).astype(distances.dtype)
    np.testing.assert_array_equal(np.where(distances == unreached, -1, distances.astype(np.int64)), expected)


def assert_counts(case: Case, result: BFSResult, expected: Distances) -> None:
    reached, degrees = expected >= 0, case.degrees
    assert (result.reached, result.depth) == (reached.sum(), expected.max())
    assert result.edges == degrees[reached].sum()
    by_level = np.bincount(expected[reached], minlength=result.depth + 2).tolist()
    # There is one more where nobody could know that nothing was left to find.
    assert len(result.reports) in (result.depth, result.depth + 1)
    for level, report in enumerate(result.reports):
        assert [report.frontier, report.discovered] == by_level[level : level + 2]
        assert report.edges == report.filtered + report.own + report.sent
        assert report.discovered == report.own + report.sent - report.culled
        if report.direction == "top-down":
            assert report.edges == degrees[expected == level].sum()


def assert_labels(case: Case, result: BFSResult, expected: Distances) -> None:
    np.testing.assert_array_equal(result.distances(), expected)
    assert result.vertices_at(1).tolist() == np.flatnonzero(expected == 1).tolist()
    if result.spec.predecessors:
        oracle.assert_valid_parents(case.adjacency, expected, result.predecessors(), list(result.sources))
        path = result.path_to(int(expected.argmax()))
        assert expected[path].tolist() == list(range(result.depth + 1))


def assert_validation(graph: Graph, case: Case, result: BFSResult, expected: Distances) -> None:
    """Right labels are accepted, and the edges counted; with one label changed they are refused."""
    (_, src, dst), of_input, vertex = case.arrays, case.layout.keep_edges, case.vertex
    within = int(((expected[src] >= 0) & (expected[dst] >= 0) & (src != dst)).sum())
    edges, copies = (src.size, 1) if of_input else (graph.m, 1 if graph.directed else 2)
    assert dbfs.validate(graph, result) == dbfs.Validation(of_input, edges, copies * within)

    distances, parents = result.distances(), result.predecessors() if result.spec.predecessors else None
    if parents is not None and expected[vertex] <= 0:
        # A source is its own predecessor, and what is unreached has none.
        parents[vertex] = vertex + 1 if expected[vertex] == 0 else vertex
    else:
        distances[vertex] += 1
    with pytest.raises(ValidationError):
        dbfs.validate(graph, dbfs.Labels(result.sources, distances, parents, result.farthest))


@pytest.mark.full
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_any_runs_one_after_another(client: distributed.Client, case: Case) -> None:
    (n, src, dst), layout = case.arrays, case.layout
    settled = {
        "dbfs.exchange": layout.exchange,
        "dbfs.build.piece-edges": layout.piece_edges,
    }
    with (
        dask.config.set(settled),
        dbfs.load(
            dbfs.from_arrays(src, dst, n=n, directed=layout.directed),
            client=client,
            ranks=layout.ranks,
            in_edges=layout.in_edges,
            order=layout.order,
            keep_edges=layout.keep_edges,
            layout=layout.layout,
        ) as graph,
    ):
        assert graph.m == case.degrees.sum()
        kept = []
        for call in case.calls:
            if call.many:
                assert_batch(graph, case, call)
            for result, expected in made_by(graph, case, call):
                assert_counts(case, result, expected)
                if call.released:
                    result.release()
                else:
                    kept.append((result, expected))
        for result, expected in kept:
            assert_labels(case, result, expected)
        if kept:
            assert_validation(graph, case, *kept[-1])
