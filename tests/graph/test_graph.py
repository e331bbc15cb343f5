import sys
from collections.abc import Iterator
from pathlib import Path

import distributed
import numpy as np
import pandas as pd
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.display import tables
from dbfs.errors import (
    ClientError,
    EdgeInputError,
    InvalidOptionError,
    InvalidOptionTypeError,
    InvalidVertexError,
    InvalidVertexTypeError,
    ResultReleasedError,
)
from dbfs_workers.search.levels.level_table import LevelTable
from dbfs_workers.search.levels.state import State
from dbfs_workers.search.levels.stepper import Measure
from tests.support import oracle
from tests.support.graphs import GRAPHS


@pytest.fixture(scope="module")
def graph(client: distributed.Client) -> Iterator[Graph]:
    n, src, dst = GRAPHS["two components"]()
    with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, ranks=3) as graph:
        yield graph


def test_a_traversal_takes_few_calls_of_functions(graph: Graph) -> None:
    """A small traversal takes no longer than its call on the client, which layers of functions make longer unseen."""

    def made() -> int:
        events: list[str] = []
        sys.setprofile(lambda _frame, event, _argument: events.append(event))
        try:
            graph.bfs(0)
        finally:
            sys.setprofile(None)
        return events.count("call")

    # The first ones get the gang's turn, and finalizers run in any.
    assert min(made() for _ in range(9)) <= 165


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (-1, InvalidVertexError),
        (64, InvalidVertexError),
        (2**70, InvalidVertexError),
        (np.int64(-5), InvalidVertexError),
        ([], InvalidVertexError),
        ([0, 64], InvalidVertexError),
        (1.0, InvalidVertexTypeError),
        (np.float64(1), InvalidVertexTypeError),
        (True, InvalidVertexTypeError),
        (np.bool(True), InvalidVertexTypeError),
        ("1", InvalidVertexTypeError),
        (None, InvalidVertexTypeError),
        ([0, 1.5], InvalidVertexTypeError),
        (np.array([[1]]), InvalidVertexTypeError),
    ],
)
def test_a_bad_source_is_named(graph: Graph, source: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="source"):
        graph.bfs(source)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [1.5, [0, 1.5], [[0]], "0", {"a"}, np.array([0.5]), pd.Series(["0"])])
def test_bad_vertices_are_named_by_their_part(graph: Graph, wrong: object) -> None:
    with pytest.raises(InvalidVertexTypeError, match="target must be an integer"):
        graph.bfs(0, targets=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidVertexTypeError, match="source must be an integer"):
        graph.bfs_many(wrong)  # type: ignore[arg-type]


def test_errors_are_also_the_built_in_they_resemble(graph: Graph) -> None:
    with pytest.raises(ValueError, match=r"source 64 is not in arrays: vertices are 0\.\.63"):
        graph.bfs(64)
    with pytest.raises(TypeError, match=r"must be an integer, not True \(bool\)"):
        graph.bfs(True)


ZEROS = [0, np.uint8(0), np.int64(0), np.array(0), [0], (0,), {0}, np.array([0]), pd.Series([0], index=[7])]


@pytest.mark.parametrize("source", ZEROS, ids=repr)
def test_whole_numbers_are_sources(graph: Graph, source: object) -> None:
    assert graph.bfs(source).reached == 32  # type: ignore[arg-type]
    assert [result.reached for result in graph.bfs_many(source)] == [32]  # type: ignore[arg-type]


@pytest.mark.parametrize("targets", [5, np.int64(5), [5], (5,), {5, 2}, range(6), np.array([5]), np.array([2, 5])])
def test_targets_come_in_any_sequence(graph: Graph, targets: object) -> None:
    assert graph.bfs(0, targets=targets).depth == 5  # type: ignore[arg-type]
    # An array of nothing but a 0 is as false as none.
    assert graph.bfs(5, targets=np.array([0])).depth == 5  # type: ignore[arg-type]


@pytest.mark.parametrize("ranks", [1, 3])
def test_targets_are_counted_only_where_one_may_be_reached(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    """A level with a count of its own takes as long as many levels of the kernel."""
    counted: list[int] = []
    measure = Measure.run

    def run(self: Measure, state: State, table: LevelTable) -> None:
        if self.working.exchange.rank == 0:
            counted.append(state.level)
        measure(self, state, table)

    monkeypatch.setattr(Measure, "run", run)
    with dbfs.load("path:n=3000", client=client, ranks=ranks) as path:
        for targets in [2900], [700, 1500, 1501], [0, 2], [0]:
            counted.clear()
            result = path.bfs(0, targets=targets)
            assert (result.depth, result.reached) == (max(targets), max(targets) + 1)
            assert {*counted} <= {*targets}


@pytest.mark.parametrize("targets", [None, [], np.array([], np.int64)])
def test_no_targets_end_no_run(graph: Graph, targets: object) -> None:
    assert graph.bfs(0, targets=targets).depth == 31  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": "warp"}, "unknown engine 'warp'; choose one of auto, resident, taskgraph"),
        ({"direction": "sideways"}, "unknown direction 'sideways'; choose one of auto, top-down, bottom-up"),
        ({"max_depth": -1}, "max_depth must be at least 0"),
        ({"deadline": "soon"}, "not a duration"),
        ({"deadline": 0}, "not above zero"),
    ],
)
def test_bad_options(graph: Graph, options: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidOptionError, match=words):
        graph.bfs(0, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("max_depth", [2.0, True, "2"])
def test_an_option_of_the_wrong_type(graph: Graph, max_depth: object) -> None:
    with pytest.raises(InvalidOptionTypeError, match="max_depth must be an integer"):
        graph.bfs(0, max_depth=max_depth)  # type: ignore[arg-type]


def test_an_unknown_id_is_refused_with_those_near_it(client: distributed.Client, tmp_path: Path) -> None:
    (tmp_path / "gaps.txt").write_text("10 20\n20 8297\n")
    with dbfs.load(tmp_path / "gaps.txt", client=client, ranks=2) as graph:
        assert graph.bfs(8297).distances().tolist() == [2, 1, 0]
        for absent, near in ((7, "10"), (15, "10, 20"), (9000, "8297")):
            with pytest.raises(InvalidVertexError, match=rf"target {absent} is not in .*; ids near it are {near}$"):
                graph.bfs(10, targets=absent)
        for absent in (-1, 2**70):
            with pytest.raises(InvalidVertexError, match=rf"id {absent} is not in .*gaps.txt$"):
                graph.vertex(absent)


def test_edges_that_a_file_lists_twice(client: distributed.Client, tmp_path: Path) -> None:
    # METIS lists an undirected edge at both ends.
    (tmp_path / "triangle.graph").write_text("3 3\n2 3\n1 3\n1 2\n")
    with dbfs.load(tmp_path / "triangle.graph", client=client, ranks=2) as graph:
        assert graph.input_edges == 6
        for text in (repr(graph), tables.describe(graph), graph._repr_html_()):
            assert "3 undirected edges (6 stored)" in text
    with dbfs.load((np.array([0, 1]), np.array([1, 1])), client=client, ranks=2, directed=True) as graph:
        assert "2 vertices, 2 directed edges, 2 ranks" in repr(graph)


def test_an_id_of_the_wrong_type_is_a_vertex_error(graph: Graph) -> None:
    with pytest.raises(InvalidVertexTypeError, match="id must be an integer"):
        graph.vertex(1.0)  # type: ignore[arg-type]


def test_an_empty_graph_has_no_source(client: distributed.Client) -> None:
    with dbfs.load(dbfs.from_arrays([], []), client=client, ranks=2) as graph:
        assert (graph.n, graph.m) == (0, 0)
        with pytest.raises(InvalidVertexError, match="the graph has no vertices"):
            graph.bfs(0)


def test_path_to_follows_the_predecessors(graph: Graph) -> None:
    result = graph.bfs(3, predecessors=True)
    assert result.path_to(0) == [3, 2, 1, 0]
    assert result.path_to(3) == [3]
    assert result.path_to(40) == []
    with pytest.raises(InvalidVertexError, match="id 64"):
        result.path_to(64)
    with pytest.raises(InvalidOptionError, match="predecessors=True"):
        graph.bfs(3).path_to(0)


def test_dask_array_is_striped_as_documented(graph: Graph) -> None:
    result = graph.bfs(0, predecessors=True)
    for label, whole in [("distances", result.distances()), ("predecessors", result.predecessors())]:
        array = result.to_dask_array(label)
        assert array.dtype == whole.dtype
        assert array.shape == (64,)
        for rank in range(3):
            np.testing.assert_array_equal(array.blocks[rank].compute(), whole[rank::3])
    with pytest.raises(InvalidOptionError, match="choose distances or predecessors"):
        result.to_dask_array("parents")


def test_counts_of_self_loops_and_duplicates(client: distributed.Client) -> None:
    n, src, dst = GRAPHS["self-loops and duplicates"]()
    with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, ranks=2) as graph:
        # 3 self-loops once, 5 other edges twice; 0-1 is there three times.
        assert (graph.input_edges, graph.m, graph.self_loops, graph.duplicates) == (8, 13, 3, 4)
        assert graph.max_degree == 5
        assert sum(graph.nbytes) == 2 * 8 * 33 + 4 * 13
        result = graph.bfs(0)
        assert result.edges == 12
        assert "6 vertices, 8 undirected edges (13 stored), 2 ranks" in repr(graph)
        assert "4 of 6 reached, depth 3" in repr(result)


def test_released_results_and_unloaded_graphs(client: distributed.Client, leaves_nothing: None) -> None:
    graph = dbfs.load(dbfs.path(10), client=client)
    result, other = graph.bfs(0), graph.bfs(9)
    result.release()
    with pytest.raises(ResultReleasedError, match="released"):
        result.distances()
    graph.unload()
    with pytest.raises(ResultReleasedError, match="path:n=10 was unloaded"):
        graph.bfs(0)
    assert other.distances().tolist() == list(range(9, -1, -1))
    assert result.levels["discovered"].tolist() == [1] * 9 + [0]


@pytest.mark.parametrize("engine", ["resident", "taskgraph"])
def test_a_level_with_nothing_to_expand_is_not_reported(client: distributed.Client, engine: str) -> None:
    """Two ranks send the hub to its owner again, which has it: only then nothing is left."""
    with dbfs.load("star:n=33", client=client, ranks=3) as graph:
        result = graph.bfs(32, direction="top-down", engine=engine)
        assert [(report.frontier, report.discovered) for report in result.reports] == [(1, 1), (1, 31), (31, 0)]


def test_the_same_sources_for_any_rank_count(client: distributed.Client) -> None:
    spec, chosen = "kronecker:scale=8", []
    for ranks in (1, 4):
        with dbfs.load(spec, client=client, ranks=ranks) as graph:
            chosen.append(graph.sample_sources(20, seed=3))
            degrees = [graph.bfs(source, max_depth=1).reached for source in chosen[-1]]
            assert min(degrees) > 1
    assert chosen[0] == chosen[1]
    assert len(set(chosen[0])) == 20


def test_too_few_vertices_have_a_neighbour(client: distributed.Client) -> None:
    with dbfs.load(dbfs.from_arrays([0, 1, 2], [0, 2, 2], n=50), client=client) as graph:
        assert sorted(graph.sample_sources(2)) == [1, 2]
        with pytest.raises(InvalidOptionError, match="3 sources wanted, but arrays has 2 vertices with a neighbour"):
            graph.sample_sources(3)
        with pytest.raises(InvalidOptionError, match="count must be at least 0, not -1"):
            graph.sample_sources(-1)
        with pytest.raises(InvalidOptionTypeError, match=r"count must be an integer, not 1\.5"):
            graph.sample_sources(1.5)  # type: ignore[arg-type]


def test_from_scipy(client: distributed.Client) -> None:
    n, src, dst = GRAPHS["dense random"]()
    for directed in (False, True):
        matrix = oracle.adjacency(n, src, dst, directed=directed)
        with dbfs.load(dbfs.from_scipy(matrix), client=client) as graph:
            assert graph.directed == directed
            assert graph.m == matrix.nnz
            np.testing.assert_array_equal(graph.bfs(7).distances(), oracle.distances(matrix, [7]))


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        (lambda: dbfs.from_arrays([0, 1], [1]), "src has 2 ids and dst 1"),
        (lambda: dbfs.from_arrays([0.0], [1]), "src must hold integers, not float64"),
        (
            lambda: dbfs.from_arrays([0], ["Ada"]),
            "dst must hold integers, not <U3; arrays of strings go to dbfs.load as a pair",
        ),
        (lambda: dbfs.from_arrays([True], [1]), "src must hold integers, not bool"),
        (lambda: dbfs.from_arrays([0, -3], [1, 1]), r"src\[1\] is -3"),
        (lambda: dbfs.from_arrays([0], [9], n=9), r"dst\[0\] is 9; with n=9 vertex ids are 0\.\.8"),
        (lambda: dbfs.from_arrays([[0]], [1]), "one-dimensional"),
        (lambda: dbfs.from_arrays([0], np.array([2**63], np.uint64)), "the largest vertex id is"),
        (lambda: dbfs.from_arrays([], [], n=-1), "n must be a whole number"),
        (lambda: dbfs.from_arrays([], [], n=2.5), "n must be a whole number"),  # type: ignore[arg-type]
        (lambda: dbfs.from_scipy(np.eye(3)), "not ndarray"),
        (lambda: dbfs.from_scipy(oracle.adjacency(3, *np.array([[0], [1]]), directed=True)[:2]), "square.* 2 x 3"),
        (
            lambda: dbfs.from_scipy(oracle.adjacency(3, *np.array([[0], [1]]), directed=True), directed=False),
            "not symmetric",
        ),
    ],
)
def test_bad_edges(edges, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(EdgeInputError, match=words):
        edges()


def test_what_load_refuses(client: distributed.Client) -> None:
    with pytest.raises(InvalidOptionError, match="unknown generator"):
        dbfs.load("kroneker:scale=3", client=client)
    with pytest.raises(InvalidOptionError, match="files"):
        dbfs.load(dbfs.path(3), client=client, directed=True)
    with pytest.raises(InvalidOptionError, match="path:n=3 is undirected"):
        dbfs.load("path:n=3", client=client, directed=True)
    with pytest.raises(ClientError, match=r"must be a distributed\.Client, not str"):
        dbfs.load("path:n=3", client="tcp://127.0.0.1:1")


def test_words_agree_with_a_count_of_one(client: distributed.Client, leaves_nothing: None) -> None:
    edges = dbfs.from_arrays(np.array([0]), np.array([0]), n=1, directed=True)
    with dbfs.load(edges, client=client, ranks=1) as graph:
        assert repr(graph).startswith("<dbfs.Graph arrays: 1 vertex, 1 directed edge, 1 rank, ")
        assert "1 vertex, 1 directed edge, 1 self-loop, 0 duplicates, 1 rank, " in tables.describe(graph)
        assert "1 self-loop, 0 duplicates" in graph._repr_html_()
        near = graph.khop(0, 1)
        assert repr(near) == "<dbfs.Neighbourhood in arrays: 1 vertex at most 0 edges away>"
        assert repr(near.subgraph()) == "<dbfs.Subgraph of arrays: 1 vertex, 1 directed edge>"


def test_a_target_out_of_reach_bounds_nothing(client: distributed.Client) -> None:
    """The traversal reached all it could: no vertex beyond a distance was left out."""
    with dbfs.load([(0, 1), (1, 2), (3, 4)], client=client) as graph:
        assert graph.bfs(0, targets=[2, 4]).farthest is None
        assert graph.bfs(0, targets=[1]).farthest == 1
