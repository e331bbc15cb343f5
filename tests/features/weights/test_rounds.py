"""The rounds of shortest paths by weight, on ranks that are threads of this process, against a heap's Dijkstra."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import HealthCheck, given, settings
from scipy.sparse.csgraph import dijkstra as scipy_dijkstra

from dbfs_workers.base.errors import DistanceOverflowError
from dbfs_workers.features.weights.purpose import Weighted
from tests.support import graphs
from tests.support.gang import PATIENCE, partitions, spec, started
from tests.support.weights import arcs, assert_right, assert_tree, by_column, expected, labels, runs, weighted_graphs


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=weighted_graphs())
def test_any_graph_has_dijkstras_distances_and_a_tree(graph: dict[str, Any]) -> None:
    assert_right(**graph)


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("name", [*graphs.GRAPHS])
def test_strange_graphs(name: str, p: int) -> None:
    arrays = graphs.GRAPHS[name]()
    weights = np.random.default_rng(3).integers(0, 4, arrays[1].size)
    assert_right(arrays, weights, [0], p, directed=False)


@pytest.mark.parametrize("directed", [False, True])
def test_bins_of_one_entry_take_many_crossings(directed: bool) -> None:
    arrays = graphs.random(200, 900, 5)
    weights = np.random.default_rng(5).random(900)
    made = assert_right(arrays, weights, [7], 3, directed=directed, entries=3)
    assert sum(run.counts.sum() for run in made)


def test_scipy_agrees_where_duplicates_are_the_lightest() -> None:
    n, src, dst = graphs.random(400, 3000, 9)
    weights = np.random.default_rng(9).random(3000) + 0.01
    lightest: dict[tuple[int, int], float] = {}
    for u, v, weight in arcs((n, src, dst), weights, directed=True):
        lightest[u, v] = min(weight, lightest.get((u, v), np.inf))
    rows, columns = np.array([*lightest]).T
    matrix = sparse.csr_matrix(([*lightest.values()], (rows, columns)), shape=(n, n))
    made = [one[0] for one in runs((n, src, dst), weights, [[3]], 2, directed=True)]
    np.testing.assert_array_equal(labels(made, n)[0], scipy_dijkstra(matrix, indices=3))


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["int64", "float64", "float32"])
def test_distances_beyond_the_largest_are_unreached(dtype: str, p: int) -> None:
    arrays = graphs.random(150, 400, 11)
    weights = np.random.default_rng(11).integers(0, 20, 400).astype(dtype)
    whole = expected(150, arcs(arrays, weights, directed=False), [0], weights.dtype)
    for most in (0, 1, 7.5, 23, 10**12):
        made = [one[0] for one in runs(arrays, weights, [[0]], p, purpose=Weighted("w", max_distance=most))]
        distances, parents = labels(made, 150)
        unreached = -1 if dtype == "int64" else np.inf
        np.testing.assert_array_equal(distances, np.where(whole <= most, whole, unreached))
        assert parents is not None
        assert_tree(arcs(arrays, weights, directed=False), [0], distances, parents)


@pytest.mark.parametrize("p", [1, 2, 4])
def test_targets_end_the_traversal_and_what_is_labelled_is_final(p: int) -> None:
    n = 400
    path = n, np.arange(n - 1), np.arange(1, n)
    weights = np.full(n - 1, 5)
    purpose = Weighted("w", delta=3)
    made = [one[0] for one in runs(path, weights, [[0]], p, purpose=purpose, targets=(100, 30))]
    distances, parents = labels(made, n)
    assert distances[100] == 500 and distances[30] == 150
    found = distances >= 0
    np.testing.assert_array_equal(distances[found], 5 * np.flatnonzero(found))
    assert found.sum() < 110
    assert parents is not None
    assert_tree(arcs(path, weights, directed=False), [0], distances, parents)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("p", [1, 3])
def test_distances_that_are_not_final_are_not_labelled(p: int, threads: int) -> None:
    """The edges from the source are long ways to all others, which fall as the search goes on."""
    n = 300
    src = np.append(np.zeros(n - 1, np.int64), np.arange(n - 1))
    dst = np.append(np.arange(1, n), np.arange(1, n))
    weights = np.append(np.full(n - 1, 10_000), np.full(n - 1, 2))
    options: dict[str, Any] = {"purpose": Weighted("w", delta=4), "targets": (50,), "threads": threads}
    made = [one[0] for one in runs((n, src, dst), weights, [[0]], p, directed=True, **options)]
    distances, parents = labels(made, n)
    labelled = distances >= 0
    assert 50 < labelled.sum() < 60
    np.testing.assert_array_equal(distances[labelled], 2 * np.flatnonzero(labelled))
    assert parents is not None
    assert ((parents >= 0) == labelled).all()


@pytest.mark.parametrize("p", [1, 3])
def test_an_unreachable_target_ends_nothing(p: int) -> None:
    arrays = graphs.GRAPHS["two components"]()
    weights = np.ones(arrays[1].size, np.int64)
    made = [one[0] for one in runs(arrays, weights, [[0]], p, targets=(40,))]
    assert (labels(made, 64)[0] >= 0).sum() == 32


@pytest.mark.parametrize("p", [1, 2])
def test_a_sum_that_int64_does_not_hold_is_told_and_others_are_not_hidden(p: int) -> None:
    """Vertex 3 is past int64 by one path and near by another; vertex 5 by its only one."""
    huge = 2**62
    edges = [(0, 1, huge), (1, 2, huge - 3), (2, 3, huge), (0, 3, 7), (2, 4, 0)]
    src, dst, weights = (np.array(column) for column in zip(*edges, strict=True))
    assert_right((5, src, dst), weights, [0], p, directed=True)
    more = (6, np.append(src, 4), np.append(dst, 5)), np.append(weights, huge)
    with pytest.raises(DistanceOverflowError, match="1 vertices by 'w'"):
        runs(*more, [[0]], p, directed=True)
    bounded = [one[0] for one in runs(*more, [[0]], p, directed=True, purpose=Weighted("w", max_distance=2**63 - 4))]
    assert labels(bounded, 6)[0].tolist() == [0, huge, -1, 7, -1, -1]


@pytest.mark.full
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weights", ["zero", "few", "vanishing"])
def test_threads_that_meet_at_the_same_vertices_keep_a_tree(weights: str, p: int) -> None:
    """A few hubs, to which all threads have edges, whose distances fall many times."""
    generator, n, m = np.random.default_rng(17), 3000, 60_000
    src, dst = generator.integers(0, n, m), (generator.integers(0, n, m) * generator.random(m) ** 8).astype(np.int64)
    drawn = {
        "zero": np.zeros(m),
        "few": generator.integers(0, 3, m).astype(np.float64),
        "vanishing": np.where(generator.random(m) < 0.5, 2.0**53, generator.random(m)),
    }
    assert_right(
        (n, src, dst), drawn[weights], [n - 1], p, directed=False, threads=4, purpose=Weighted("w", delta=10**9)
    )


@pytest.mark.full
@pytest.mark.parametrize("hosts", [(0, 0, 0), (0, 1, 0), (0, 1, 2)], ids=str)
def test_ranks_that_are_processes_of_several_hosts(hosts: tuple[int, ...]) -> None:
    arrays = graphs.random(500, 2500, 19)
    weights = np.random.default_rng(19).integers(0, 30, 2500)
    of, parts = arcs(arrays, weights, directed=False), partitions(*arrays, 3, directed=False)
    with started(3, hosts=hosts) as gang:
        gang.load(parts)
        for source in (4, 77):
            one = [spec(source, predecessors=True, direction="top-down", purpose=Weighted("w"))]
            number = gang.next_number()
            calls = [
                gang.call(rank, "weigh", one, number, PATIENCE, by_column(part, of, weights.dtype))
                for rank, part in enumerate(parts)
            ]
            distances, parents = labels([call.result()[0] for call in calls], 500)
            np.testing.assert_array_equal(distances, expected(500, of, [source], weights.dtype))
            assert parents is not None
            assert_tree(of, [source], distances, parents)


@pytest.mark.full
def test_threads_that_lower_the_same_vertices_at_once_leave_distance_and_parent_together() -> None:
    """Each of 256 vertices, in the order in which threads take them, has a shorter way to each of 200 hubs."""
    middles, hubs = np.arange(1, 257), np.arange(257, 457)
    src = np.append(np.zeros(256, np.int64), np.repeat(middles, 200))
    dst = np.append(middles, np.tile(hubs, 256))
    weights = np.append(np.zeros(256, np.int64), np.repeat(1000 - middles, 200))
    made = runs((457, src, dst), weights, [[0]] * 60, directed=True, threads=4, purpose=Weighted("w", delta=10**6))
    for one in made[0]:
        distances, parents = labels([one], 457)
        assert parents is not None
        assert set(distances[hubs].tolist()) == {1000 - 256}
        assert set(parents[hubs].tolist()) == {256}


def test_ranks_without_predecessors_have_the_same_distances() -> None:
    arrays = graphs.random(300, 1200, 13)
    weights = np.random.default_rng(13).integers(1, 256, 1200)
    made = [one[0] for one in runs(arrays, weights, [[5, 9]], 2, predecessors=False)]
    distances, parents = labels(made, 300)
    assert parents is None
    np.testing.assert_array_equal(
        distances, expected(300, arcs(arrays, weights, directed=False), [5, 9], weights.dtype)
    )
