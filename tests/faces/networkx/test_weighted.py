"""The functions by weight give what NetworkX gives, for weights of any kind that dbfs adds up as Python does."""

import itertools
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import distributed
import networkx as nx
import numpy as np
import pytest

from dbfs.errors import InvalidOptionError
from dbfs.networkx import from_networkx
from dbfs.networkx.backend import backend
from dbfs.networkx.registry import OFFERS

WEIGHTED = {name for name, offer in OFFERS.items() if offer.function.__module__ == "dbfs.networkx.weighted"}
KINDS = (nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph)
WEIGHTS: dict[str, Callable[[random.Random], Any]] = {
    "integers": lambda rng: rng.randint(0, 3),
    "floats": lambda rng: rng.random(),
    "floats that collide": lambda rng: float(rng.randint(1, 3)),
    "both": lambda rng: rng.choice([0, 1, 2.5, 0.0]),
    "some": lambda rng: rng.choice([2, None]),
    "numpy": lambda rng: np.float32(rng.random()),
}


def drawn(seed: int, weights: str) -> nx.Graph:
    rng = random.Random(seed)
    graph = KINDS[seed % 4]()
    graph.add_nodes_from(rng.sample(range(100), rng.randint(2, 14)))
    for _ in range(rng.randint(1, 40)):
        ends, weight = rng.choices(list(graph), k=2), WEIGHTS[weights](rng)
        graph.add_edge(*ends, **({} if weight is None else {"minutes": weight}))
    return graph


def calls(one: Any, other: Any) -> Iterator[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]:
    missing = 101
    for cutoff in (None, 1.5, 0, -1):
        yield nx.single_source_dijkstra, (one,), {"cutoff": cutoff}
        yield nx.multi_source_dijkstra, ({one, other},), {"cutoff": cutoff}
        yield nx.single_source_dijkstra_path_length, (one,), {"cutoff": cutoff}
        yield nx.single_source_dijkstra, (one, other), {"cutoff": cutoff}
    for target in (one, other, missing):
        for function in (nx.dijkstra_path_length, nx.dijkstra_path, nx.bidirectional_dijkstra, nx.shortest_path):
            yield function, (one, target), {}
            yield function, (target, one), {}
        yield nx.multi_source_dijkstra, ({one, target},), {"target": other}
        yield nx.shortest_path_length, (one, target), {}
        yield nx.dijkstra_predecessor_and_distance, (target,), {"cutoff": 2}
        yield nx.single_source_dijkstra_path, (target,), {}
        yield nx.multi_source_dijkstra_path, ({target},), {}
        yield nx.multi_source_dijkstra_path_length, ({target},), {}
        for function in (nx.shortest_path, nx.shortest_path_length):
            yield function, (target,), {}
            yield function, (), {"target": target}
    yield nx.multi_source_dijkstra, ([],), {}
    for function in (nx.shortest_path, nx.shortest_path_length, nx.all_pairs_dijkstra):
        yield function, (), {}
    yield nx.all_pairs_dijkstra_path, (), {}
    yield nx.all_pairs_dijkstra_path_length, (), {}
    yield nx.all_shortest_paths, (one, other), {}
    yield nx.single_source_all_shortest_paths, (one,), {}
    yield nx.all_pairs_all_shortest_paths, (), {}


def outcome(function: Callable[..., Any], graph: Any, *args: Any, **options: Any) -> Any:
    try:
        found = function(graph, *args, weight="minutes", **options)
        return list(found) if isinstance(found, Iterator) else found
    except (nx.NetworkXException, ValueError) as error:
        return type(error), str(error)


def one_path(value: Any) -> tuple[Any, list[int]] | None:
    """Return the length and the nodes of a result that is one path, 0 without a length; None for other results."""
    length, path = value if isinstance(value, tuple) else (0, value)
    is_one = isinstance(path, list) and bool(path) and all(isinstance(node, int) for node in path)
    return (length, path) if is_one else None


def length_of(graph: nx.Graph, path: list[int]) -> Any:
    parallel = [graph[u][v].values() if graph.is_multigraph() else [graph[u][v]] for u, v in itertools.pairwise(path)]
    return sum(min(data.get("minutes", 1) for data in some) for some in parallel)


def assert_same(function: Callable[..., Any], graph: nx.Graph, found: Any, expected: Any) -> None:
    """Of paths between two nodes any shortest one will do, and NetworkX lists a path again where edges weigh 0."""
    wanted = one_path(expected)
    if wanted is not None:
        (length, path), (wanted_length, wanted_path) = one_path(found) or (None, []), wanted
        assert length == pytest.approx(wanted_length, rel=1e-6)
        assert type(length) is type(wanted_length)
        assert path[::-1] and (path[0], path[-1]) == (wanted_path[0], wanted_path[-1])
        assert length_of(graph, path) == pytest.approx(length_of(graph, wanted_path), rel=1e-6)
    elif "all_shortest_paths" in function.__name__ and not (expected and isinstance(expected[0], type)):
        assert distinct(found) == distinct(expected)
    else:
        assert found == expected
        if isinstance(expected, dict):
            assert {node: type(one) for node, one in found.items()} == {
                node: type(one) for node, one in expected.items()
            }


def distinct(paths: Any) -> Any:
    if isinstance(paths, dict):
        return {node: distinct(some) for node, some in paths.items()}
    if isinstance(paths, list) and paths and isinstance(paths[0], tuple):
        return {node: distinct(some) for node, some in paths}
    return sorted(map(str, dict.fromkeys(map(str, paths))))


@pytest.mark.matrix
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(4, 12))])
def test_any_graph_has_networkx_distances_and_paths(client: distributed.Client, seed: int, weights: str) -> None:
    graph = drawn(seed, weights)
    converted = from_networkx(graph)
    ends = random.Random(seed).choices(list(graph), k=2)
    with nx.config.backends.dbfs(ranks=1):
        for function, args, options in calls(*ends):
            # Sums of NumPy's numbers are NumPy's.
            expected = plain(outcome(function, graph, *args, **options))
            assert_same(function, graph, outcome(function, converted, *args, **options), expected)


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value))
    return value.item() if isinstance(value, np.generic) else value


def test_each_function_is_called() -> None:
    assert {function.__name__ for function, _, _ in calls(0, 1)} >= WEIGHTED


@pytest.mark.filterwarnings("ignore:Note. conversions to backend graphs are saved:UserWarning")
def test_a_weight_that_changes_is_read_again(client: distributed.Client) -> None:
    graph = nx.Graph()
    graph.add_weighted_edges_from([("a", "b", 5), ("b", "c", 5), ("a", "c", 20)])
    options = {"weight": "weight", "backend": "dbfs"}
    assert nx.shortest_path(graph, "a", "c", **options) == ["a", "b", "c"]
    graph["a"]["c"]["weight"] = 3
    assert nx.shortest_path(graph, "a", "c", **options) == ["a", "c"]
    assert nx.dijkstra_path_length(graph, "a", "c", **options) == 3
    # Another name, which no edge has.
    assert nx.dijkstra_path_length(graph, "a", "c", weight="km", backend="dbfs") == 1


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (Decimal("0.5"), "'weight' must be integers or floats"),
        (2**63, "'weight' has an integer beyond 64 bits"),
        (float("nan"), "'weight' has a weight that is not finite"),
        (float("inf"), "'weight' has a weight that is not finite"),
        (None, "'weight' must be integers or floats"),
    ],
)
def test_weights_that_are_refused(weight: Any, words: str) -> None:
    graph = nx.DiGraph([(0, 1), (1, 2)])
    graph[1][2]["weight"] = weight
    for one in (graph, from_networkx(graph)):
        assert backend.can_run("dijkstra_path_length", (one, 0, 2), {}) == words
    with pytest.raises(NotImplementedError):
        nx.dijkstra_path_length(graph, 0, 2, backend="dbfs")


def test_a_negative_weight_is_refused_with_its_edge(client: distributed.Client) -> None:
    graph = nx.DiGraph([(0, 1), (1, 2)])
    graph[1][2]["weight"] = -1
    for one in (graph, from_networkx(graph)):
        with pytest.raises(InvalidOptionError, match="the edge from 1 to 2 has 'weight' -1; dbfs needs weights"):
            nx.dijkstra_path_length(one, 0, 2, backend="dbfs")
    # Where NetworkX chooses the backend by itself, NetworkX runs.
    with nx.config(backend_priority=["dbfs"]), nx.config.backends.dbfs(min_size=0):
        assert nx.dijkstra_path_length(graph, 0, 2) == 0


def test_functions_and_other_methods_are_refused() -> None:
    arguments = nx.path_graph(3), 0, 2
    for options, words in (
        ({"weight": lambda *_: 1}, "takes the name of an attribute"),
        ({"weight": "weight", "method": "bellman-ford"}, "as Dijkstra's algorithm does"),
    ):
        assert words in str(backend.can_run("shortest_path", arguments, options))
    for name in ("betweenness_centrality", "eccentricity"):
        assert "counts edges here, and adds up no weights" in str(
            backend.can_run(name, arguments[:1], {"weight": "weight"})
        )


def test_a_graph_that_has_changed_since_is_told(client: distributed.Client) -> None:
    graph = nx.path_graph(3)
    converted = from_networkx(graph)
    graph.add_edge(0, 2)
    with pytest.raises(nx.NetworkXError, match="convert it again"):
        nx.dijkstra_path(converted, 0, 2)


def test_graphs_of_edge_lists_have_one_weight(client: distributed.Client) -> None:
    graph = nx.from_edgelist([(0, 1), (1, 2)], backend="dbfs")
    assert nx.dijkstra_path_length(graph, 0, 2) == 2
    graph = nx.from_numpy_array(np.array([[0.0, 1], [1, 0]]), backend="dbfs")
    assert repr(nx.single_source_dijkstra_path_length(graph, 0)) == "{0: 0, 1: 1.0}"
