"""Parity: every engine gives SciPy's answers.

The axes: graph x directed x ranks x way, where a way is an engine, how it exchanges (or runs a level), and the
direction of its levels. ``test_gpu`` has the rows of the CUDA backend.
"""

import distributed
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import oracle
from tests.support.graphs import GRAPHS
from tests.support.parity import RANKS, WAYS, assert_options_agree, check, loaded

NAMES = ["cycle", "hub", "sparse random", "dense random"]


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph_has_scipys_labels_on_both_engines(
    client: distributed.Client, name: str, directed: bool, ranks: int
) -> None:
    arrays = GRAPHS[name]()
    with loaded(client, arrays, WAYS["shared memory"], directed=directed, ranks=ranks) as graph:
        for way in (WAYS["shared memory"], WAYS["shared memory, bottom-up"], WAYS["tasks"]):
            check(graph, arrays, way, [0])


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_traverse_has_scipys_labels(client: distributed.Client, way: str, name: str, ranks: int) -> None:
    arrays = GRAPHS[name]()
    # Half of the product, so chosen that any three of way, graph, ranks and directed occur together.
    directed = (list(WAYS).index(way) + NAMES.index(name) + ranks) % 2 == 1
    with loaded(client, arrays, WAYS[way], directed=directed, ranks=ranks) as graph:
        check(graph, arrays, WAYS[way], [5])
        check(graph, arrays, WAYS[way], [5, 30, 5], max_depth=2)


@pytest.mark.matrix
@pytest.mark.parametrize("way", ["tasks", "tasks, bottom-up", "shared memory", "shared memory, bottom-up", "tcp"])
# The first size has no long path by the tasks, which take a second.
@pytest.mark.parametrize("max_depth", [68, 69, 1000, 7, 1, 0])
def test_max_depth(client: distributed.Client, max_depth: int, way: str) -> None:
    arrays = GRAPHS["path"]()
    with loaded(client, arrays, WAYS[way], directed=False, ranks=3) as graph:
        check(graph, arrays, WAYS[way], [0], max_depth)


@pytest.mark.matrix
@pytest.mark.parametrize(
    "way", ["tasks, top-down", "shared memory", "tasks", "tcp", "tasks, bottom-up", "shared memory, bottom-up"]
)
@pytest.mark.parametrize("targets", [[40, 7], [0], [7, 7, 69], [3]])
def test_targets_end_a_run_at_the_level_that_reaches_the_last(
    client: distributed.Client, targets: list[int], way: str
) -> None:
    arrays = GRAPHS["path"]()
    chosen = WAYS[way]
    with loaded(client, arrays, chosen, directed=False, ranks=2) as graph:
        result = graph.bfs(0, targets=targets, engine=chosen.engine, direction=chosen.direction, validate=True)
        farthest = max(targets)
        expected = np.where(np.arange(70) <= farthest, np.arange(70), -1)
        np.testing.assert_array_equal(result.distances(), expected)
        assert result.reached == farthest + 1


@pytest.mark.parametrize("way", [pytest.param("tasks", marks=pytest.mark.full), "shared memory", "tcp"])
def test_targets_out_of_reach(client: distributed.Client, way: str) -> None:
    arrays = GRAPHS["two components"]()
    with loaded(client, arrays, WAYS[way], directed=False, ranks=2) as graph:
        result = graph.bfs(0, targets=[5, 40], engine=WAYS[way].engine, validate=True)
        assert (result.reached, result.depth) == (32, 31)


@pytest.mark.parametrize("way", [pytest.param("tasks", marks=pytest.mark.full), "shared memory", "tcp"])
def test_many_traversals(client: distributed.Client, way: str) -> None:
    arrays = GRAPHS["sparse random"]()
    matrix = oracle.adjacency(*arrays, directed=False)
    with loaded(client, arrays, WAYS[way], directed=False, ranks=3) as graph:
        sources = [7, 499, 7, 123]
        results = graph.bfs_many(sources, predecessors=True, engine=WAYS[way].engine)
        for source, result in zip(sources, results, strict=True):
            assert result.sources == (source,)
            expected = oracle.distances(matrix, [source])
            np.testing.assert_array_equal(result.distances(), expected)
            oracle.assert_valid_parents(matrix, expected, result.predecessors(), [source])
        assert graph.bfs_many([]) == []


@pytest.mark.full
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_graphs(client: distributed.Client, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 80), "n")
    edges = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=200), "edges")
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    way = WAYS[data.draw(st.sampled_from(sorted(WAYS)), "way")]
    directed, ranks = data.draw(st.booleans(), "directed"), data.draw(st.sampled_from(RANKS), "ranks")
    with loaded(client, (n, src, dst), way, directed=directed, ranks=ranks) as graph:
        check(graph, (n, src, dst), way, [data.draw(st.integers(0, n - 1), "source")])


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ranks", RANKS)
def test_options_in_any_combination(client: distributed.Client, ranks: int, seed: int) -> None:
    assert_options_agree(client, WAYS["shared memory"], ranks, 10 * seed + ranks)
