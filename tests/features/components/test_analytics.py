"""Components, k-hop neighbourhoods, trees, diameters and degrees against SciPy and brute force."""

from collections.abc import Iterator
from contextlib import contextmanager

import distributed
import numpy as np
import pytest
import scipy.sparse.csgraph
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import (
    DirectedGraphError,
    InvalidOptionError,
    InvalidOptionTypeError,
    InvalidVertexError,
    ResultReleasedError,
)
from dbfs.features.components.components import Components
from tests.support import oracle
from tests.support.graphs import GRAPHS, Arrays

IN_THE_FIRST_SIZE = ("one vertex", "path", "self-loops and duplicates", "sparse random", "two components")


@contextmanager
def loaded(
    client: distributed.Client, arrays: Arrays, *, ranks: int = 3, directed: bool = False, order: str = "given"
) -> Iterator[Graph]:
    n, src, dst = arrays
    edges = dbfs.from_arrays(src, dst, n=n, directed=directed)
    with dbfs.load(edges, client=client, ranks=ranks, order=order) as graph:
        yield graph


def assert_components(found: Components, n: int, src: NDArray[np.int64], dst: NDArray[np.int64]) -> None:
    """The same partition of the vertices as SciPy's, numbered as documented."""
    matrix = oracle.adjacency(n, src, dst, directed=True)
    count, expected = scipy.sparse.csgraph.connected_components(matrix, directed=True, connection="weak")
    assert found.count == count
    assert len(set(zip(found.labels.tolist(), expected.tolist(), strict=True))) == count
    np.testing.assert_array_equal(found.sizes, np.bincount(found.labels, minlength=count))
    smallest = [int(found.vertices(component)[0]) for component in range(count)]
    keys = list(zip((-found.sizes).tolist(), smallest, strict=True))
    assert keys == sorted(keys)


def brute_degrees(n: int, src: NDArray[np.int64], dst: NDArray[np.int64], *, directed: bool) -> dict[int, int]:
    degrees = [0] * n
    for u, v in zip(src.tolist(), dst.tolist(), strict=True):
        degrees[u] += 1
        if not directed and u != v:
            degrees[v] += 1
    return {degree: degrees.count(degree) for degree in set(degrees)}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in IN_THE_FIRST_SIZE else pytest.mark.full) for name in GRAPHS],
)
def test_every_small_graph(client: distributed.Client, name: str) -> None:
    n, src, dst = GRAPHS[name]()
    matrix = oracle.adjacency(n, src, dst, directed=False)
    hops = scipy.sparse.csgraph.dijkstra(matrix, unweighted=True)
    with loaded(client, (n, src, dst), order="degree" if n % 20 == 0 else "given") as graph:
        assert_components(graph.components(), n, src, dst)
        degrees, counts = graph.degree_counts()
        assert dict(zip(degrees.tolist(), counts.tolist(), strict=True)) == brute_degrees(n, src, dst, directed=False)
        for vertex in {0, n // 2, n - 1}:
            bounds = graph.eccentricity_bound(vertex)
            component = np.flatnonzero(np.isfinite(hops[vertex]))
            within = hops[np.ix_(component, component)]
            assert bounds.lower <= within.max() <= bounds.upper
            assert hops[bounds.ends] == bounds.lower
            assert within[component.tolist().index(bounds.centre)].max() == bounds.radius
            assert bounds.size == component.size
            for k in (0, 1, 3):
                assert graph.khop(vertex, k).tolist() == np.flatnonzero(hops[vertex] <= k).tolist()


edge_lists = st.integers(1, 40).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=60))
)


@pytest.mark.full
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=edge_lists, ranks=st.integers(1, 4), directed=st.booleans(), order=st.sampled_from(["given", "degree"]))
def test_components_and_degrees_of_any_graph(
    client: distributed.Client, edges: tuple[int, list[tuple[int, int]]], ranks: int, directed: bool, order: str
) -> None:
    n, pairs = edges
    src, dst = np.array(pairs, np.int64).reshape(-1, 2).T
    with loaded(client, (n, src, dst), ranks=ranks, directed=directed, order=order) as graph:
        assert_components(graph.components(), n, src, dst)
        degrees, counts = graph.degree_counts()
        expected = brute_degrees(n, src, dst, directed=directed)
        assert dict(zip(degrees.tolist(), counts.tolist(), strict=True)) == expected
        distances = oracle.distances(oracle.adjacency(n, src, dst, directed=directed), [n - 1])
        result = graph.bfs(n - 1, predecessors=True)
        for distance in range(result.depth + 2):
            assert result.vertices_at(distance).tolist() == np.flatnonzero(distances == distance).tolist()
        tree = result.tree()
        root = tree.vertices.tolist().index(n - 1)
        depths = scipy.sparse.csgraph.dijkstra(tree.to_scipy(), unweighted=True, indices=root)
        np.testing.assert_array_equal(depths, distances[tree.vertices])
        assert tree.edges == result.reached - 1


def test_bounds_of_a_tree_meet(client: distributed.Client) -> None:
    # A double sweep of a tree is exact: an end of a longest path is farthest from anywhere.
    generator = np.random.default_rng(5)
    parents = np.array([generator.integers(max(0, child - 4), child) for child in range(1, 400)])
    arrays = (400, np.arange(1, 400), parents)
    hops = scipy.sparse.csgraph.dijkstra(oracle.adjacency(*arrays, directed=False), unweighted=True)
    with loaded(client, arrays) as graph:
        for source in (None, 7, 399):
            bounds = graph.eccentricity_bound(source)
            assert bounds.lower == hops.max()
            assert bounds.exact
            assert bounds.radius == hops.max(axis=0).min()


def test_bounds_of_a_lattice_are_close(client: distributed.Client) -> None:
    with dbfs.load("grid2d:side=31", client=client, ranks=3) as graph:
        bounds = graph.eccentricity_bound()
    assert bounds.lower == 60
    assert bounds.exact
    assert (bounds.centre, bounds.radius) == (15 * 31 + 15, 30)


def test_a_million_isolated_vertices(client: distributed.Client, leaves_nothing: None) -> None:
    arrays = (1_000_000, np.array([999_998, 3, 4]), np.array([999_999, 4, 5]))
    with loaded(client, arrays, ranks=4) as graph:
        found = graph.components()
    assert (found.count, found.isolated) == (999_997, 999_995)
    assert found.sizes[:3].tolist() == [3, 2, 1]
    assert found.vertices(0).tolist() == [3, 4, 5]
    assert found.vertices(1).tolist() == [999_998, 999_999]
    assert found.vertices(999_996).tolist() == [999_997]
    assert repr(found) == (
        "<dbfs.Components of arrays: 999,997, the largest of 3 of 1,000,000 vertices; 999,995 of a single vertex>"
    )


def test_components_where_the_hub_is_in_a_small_one(client: distributed.Client) -> None:
    # A star of 50 has the hub; a path of 3,000 across all ranks is left to the union-find.
    star = np.arange(1, 50)
    path = np.random.default_rng(2).permutation(np.arange(50, 3050))
    src, dst = np.concatenate([np.zeros(49, np.int64), path[:-1]]), np.concatenate([star, path[1:]])
    with loaded(client, (3100, src, dst), ranks=4) as graph:
        found = graph.components()
    assert_components(found, 3100, src, dst)
    assert found.sizes[:2].tolist() == [3000, 50]


def test_an_edge_into_what_a_directed_traversal_reached(client: distributed.Client) -> None:
    # 0 has the largest out-degree and reaches 1..3; 4 and 5 hang on only by edges that end there.
    src, dst = np.array([0, 0, 0, 4, 5, 6]), np.array([1, 2, 3, 3, 4, 7])
    with loaded(client, (8, src, dst), ranks=2, directed=True) as graph:
        assert graph.components().labels.tolist() == [0] * 6 + [1] * 2
        assert graph.khop(0, 5).tolist() == [0, 1, 2, 3]
        with pytest.raises(DirectedGraphError, match="arrays is directed"):
            graph.eccentricity_bound()


def test_an_empty_graph(client: distributed.Client) -> None:
    with dbfs.load(dbfs.from_arrays([], []), client=client, ranks=2) as graph:
        found = graph.components()
        assert (found.count, found.labels.size) == (0, 0)
        assert [part.tolist() for part in graph.degree_counts()] == [[], []]
        with pytest.raises(InvalidVertexError, match="the graph has no vertices"):
            graph.eccentricity_bound()


def test_what_is_refused(client: distributed.Client) -> None:
    with loaded(client, GRAPHS["path"]()) as graph:
        result = graph.bfs(0)
        with pytest.raises(InvalidOptionError, match="k must be at least 0, not -1"):
            graph.khop(0, -1)
        with pytest.raises(InvalidOptionTypeError, match=r"k must be an integer, not 1\.0"):
            graph.khop(0, 1.0)  # type: ignore[arg-type]
        with pytest.raises(InvalidVertexError, match="source 70"):
            graph.khop(70, 1)
        with pytest.raises(InvalidOptionError, match="distance must be at least 0, not -1"):
            result.vertices_at(-1)
        with pytest.raises(InvalidOptionTypeError, match=r"distance must be an integer, not 1\.0"):
            result.vertices_at(1.0)  # type: ignore[arg-type]
        with pytest.raises(InvalidOptionError, match="predecessors=True"):
            result.tree()
        with pytest.raises(InvalidOptionError, match="1 components, counted from 0; there is no 1"):
            graph.components().vertices(1)
        with pytest.raises(InvalidOptionTypeError, match="component must be an integer, not True"):
            graph.components().vertices(True)
        result.release()
        with pytest.raises(ResultReleasedError):
            result.vertices_at(0)
    with pytest.raises(ResultReleasedError, match="unloaded"):
        graph.components()


def test_khop_and_tree_from_several_sources(client: distributed.Client) -> None:
    with loaded(client, GRAPHS["path"]()) as graph:
        assert graph.khop([10, 50], 1).tolist() == [9, 10, 11, 49, 50, 51]
        tree = graph.bfs([0, 69], predecessors=True).tree()
        assert tree.edges == 68
        matrix = tree.to_scipy()
        assert (matrix.dtype, matrix.shape, matrix.nnz) == (np.int8, (70, 70), 68)
