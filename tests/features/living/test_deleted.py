"""Deleted vertices: calls name them by their ids, and measures of all vertices leave them out, as NetworkX does."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import distributed
import networkx as nx
import numpy as np
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import DisconnectedGraphError, InvalidOptionError, InvalidVertexError

EDGES = [*nx.karate_club_graph().edges(), (40, 41), (41, 42), (40, 42)]
GONE = (0, 33, 41)
Both = tuple[Graph, Any, Callable[[int], Any]]


def named(vertex: int) -> str:
    """Return an id; the order of the ids is not that of the vertices."""
    return f"v{vertex * 7 % 50:02}"


def graphs(client: distributed.Client, *, directed: bool, order: str, ids: Callable[[int], Any]) -> tuple[Graph, Any]:
    """Load a graph without some vertices, and make NetworkX's graph without these."""
    pairs = [(ids(u), ids(v)) for u, v in EDGES]
    graph = dbfs.load(pairs, client=client, ranks=2, directed=directed, order=order, mutable=True, in_edges=directed)
    gone = [ids(vertex) for vertex in GONE]
    graph.delete_vertices(gone)
    made: Any = nx.DiGraph(pairs) if directed else nx.Graph(pairs)
    made.remove_nodes_from(gone)
    return graph, made


@pytest.fixture(
    params=[(False, "given", int), (True, "given", named), (False, "degree", named)],
    ids=["integers", "directed strings", "strings by degree"],
    scope="module",
)
def both(
    client: distributed.Client, request: pytest.FixtureRequest
) -> Iterator[tuple[Graph, Any, Callable[[int], Any]]]:
    directed, order, ids = request.param
    graph, made = graphs(client, directed=directed, order=order, ids=ids)
    yield graph, made, ids
    graph.unload()


def test_calls_name_a_deleted_vertex(both: Both, tmp_path: Path) -> None:
    graph, _, ids = both
    gone, there = ids(33), ids(5)
    assert graph.deleted == len(GONE)
    assert gone not in graph
    calls: list[Callable[[], Any]] = [
        lambda: graph.bfs(gone),
        lambda: graph.bfs(gone, engine="taskgraph"),
        lambda: graph.bfs_many([there, gone]),
        lambda: graph.bfs_batch([there, gone]),
        lambda: graph.bfs(there, targets=gone),
        lambda: graph.bfs_batch([there], targets=[gone]),
        lambda: graph.distance_matrix([there], [gone]),
        lambda: graph.khop(gone, 1),
        lambda: graph.degree(gone),
        lambda: graph.neighbors(gone),
        lambda: graph.subgraph([there, gone]),
        lambda: graph.insert_edges([(gone, there)]),
        lambda: graph.closeness_centrality([there, gone]),
        lambda: graph.betweenness_centrality([gone]),
    ]
    for call in calls:
        with pytest.raises(InvalidVertexError, match=f"{gone!r} was deleted"):
            call()
    with pytest.raises(InvalidOptionError, match="has 3 deleted vertices, which a saved graph can't keep"):
        graph.save(tmp_path / "saved")


def test_measures_leave_deleted_vertices_out(both: Both) -> None:
    graph, made, _ = both
    for name in ("closeness_centrality", "harmonic_centrality", "betweenness_centrality"):
        found = getattr(graph, name)().to_dict()
        assert found == pytest.approx(getattr(nx, name)(made)), name
    found = graph.betweenness_centrality(endpoints=True, normalized=False).to_dict()
    assert found == pytest.approx(nx.betweenness_centrality(made, endpoints=True, normalized=False))
    key: Callable[[Any], Any] = tuple if graph.directed else frozenset
    edges = {key(edge): value for edge, value in graph.edge_betweenness_centrality().to_dict().items()}
    wanted = {key(edge): value for edge, value in nx.edge_betweenness_centrality(made).items()}
    assert edges == pytest.approx(wanted)
    sizes = {node: len(nx.single_source_shortest_path_length(made, node, cutoff=2)) for node in made}
    assert graph.khop_sizes(2).to_dict() == sizes
    # A sample of all vertices is exact.
    sampled = graph.closeness_centrality(sample=len(made)).to_dict()
    assert sampled == pytest.approx(nx.closeness_centrality(made))
    pairs = sum(len(reached) for _, reached in nx.all_pairs_shortest_path_length(made))
    assert graph.neighbourhood_function().pairs[-1] == pairs
    assert graph.wiener_index() == float("inf")
    with pytest.raises(DisconnectedGraphError, match=f"of {len(made)} vertices"):
        graph.eccentricity()
    with pytest.raises(InvalidOptionError, match=f"sample must be at most {len(made)}"):
        graph.harmonic_centrality(sample=len(made) + 1)


def test_components_and_degrees_leave_deleted_vertices_out(both: Both) -> None:
    graph, made, _ = both
    components = graph.components()
    wanted = sorted(nx.weakly_connected_components(made) if graph.directed else nx.connected_components(made), key=len)
    assert components.sizes.tolist() == [len(part) for part in wanted[::-1]]
    assert components.isolated == sum(len(part) == 1 for part in wanted)
    assert np.count_nonzero(components.labels < 0) == len(GONE)
    table = components.to_pandas()
    assert {frozenset(part["vertex"]) for _, part in table.groupby("component")} == set(map(frozenset, wanted))
    degrees = [degree for _, degree in (made.out_degree() if graph.directed else made.degree())]
    assert [each.tolist() for each in graph.degree_counts()] == [
        each.tolist() for each in np.unique(degrees, return_counts=True)
    ]
    assert set(graph.sample_sources(10)) <= set(made)


@pytest.mark.parametrize("order", ["given", "degree"])
def test_eccentricities_leave_deleted_vertices_out(client: distributed.Client, order: str) -> None:
    """The graph is connected without the deleted vertices, the smallest one among them."""
    made = nx.karate_club_graph()
    made.add_edges_from([(50, 7), (50, 8), (51, 50)])
    with dbfs.load(list(made.edges()), client=client, ranks=3, order=order, mutable=True) as graph:
        graph.delete_vertices([11, 50, 51])
        made.remove_nodes_from([11, 50, 51])
        assert graph.eccentricity().to_dict() == nx.eccentricity(made)
        assert (graph.diameter(), graph.radius()) == (nx.diameter(made), nx.radius(made))
        assert float(graph.average_shortest_path_length()) == nx.average_shortest_path_length(made)
        assert graph.wiener_index() == nx.wiener_index(made)
        assert graph.eccentricity_bound().size == len(made)
        landmarks = graph.landmarks(4)
        assert not {11, 50, 51} & set(landmarks.ids)
        with pytest.raises(InvalidVertexError, match="target 50 was deleted"):
            landmarks.bounds([0], [50])


def test_a_graph_of_which_nothing_is_left(client: distributed.Client) -> None:
    with dbfs.load([(1, 2), (3, 3)], client=client, ranks=2, mutable=True) as graph:
        graph.delete_vertices([1, 3])
        assert graph.closeness_centrality().to_dict() == {2: 0.0}
        assert (graph.components().count, graph.diameter()) == (1, 0)
        assert [each.tolist() for each in graph.degree_counts()] == [[0], [1]]
        graph.delete_vertices(2)
        assert (graph.components().count, graph.components().to_arrow().num_rows) == (0, 0)
        assert graph.betweenness_centrality().to_dict() == graph.harmonic_centrality().to_dict() == {}
        for call in (graph.diameter, graph.landmarks, graph.wiener_index):
            with pytest.raises(InvalidVertexError, match="has no vertices"):
                call()


def test_a_vertex_that_comes_again(client: distributed.Client, tmp_path: Path) -> None:
    with dbfs.load(dbfs.path(4), client=client, ranks=2, mutable=True) as graph:
        graph.delete_vertices([1, 2])
        assert graph.components().count == 2
        assert graph.insert_vertices(2).ids == (1, 2)
        assert (graph.deleted, graph.components().count) == (0, 4)
        graph.save(tmp_path / "saved")
    with dbfs.load(tmp_path / "saved", client=client) as again:
        assert (again.n, again.m) == (4, 0)
