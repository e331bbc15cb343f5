"""The edges of one vertex, and whether a graph has an id, against NetworkX."""

import asyncio
from typing import Any

import distributed
import networkx
import numpy as np
import pytest

import dbfs
from dbfs import asynchronous
from dbfs.errors import InvalidVertexError, InvalidVertexTypeError, ResultReleasedError
from tests.support.graphs import random
from tests.support.named import KINDS, named_edges


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize(("layout", "order"), [("1d", "given"), ("1d", "degree"), ("2d", "given"), ("2d", "degree")])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_and_degrees(
    client: distributed.Client, leaves_nothing: None, kind: str, directed: bool, layout: str, order: str, ranks: int
) -> None:
    edges, ids, (_, src, dst) = named_edges(random(40, 150, 3), kind, directed=directed)
    made: Any = networkx.MultiDiGraph() if directed else networkx.MultiGraph()
    made.add_nodes_from(ids)
    made.add_edges_from((ids[source], ids[target]) for source, target in zip(src, dst, strict=True))
    with dbfs.load(edges, client=client, ranks=ranks, order=order, layout=layout) as graph:
        for one in ids:
            assert graph.neighbors(one) == sorted(made[one], key=ids.index)
            assert graph.degree(one) == sum(len(parallel) for parallel in made[one].values())
            assert one in graph


def test_ids_that_are_not_there(client: distributed.Client, leaves_nothing: None) -> None:
    with dbfs.load([("a", "b"), ("b", "c")], client=client, ranks=2) as graph:
        assert "d" not in graph
        for call in (graph.neighbors, graph.degree):
            with pytest.raises(InvalidVertexError, match="'d' is not in"):
                call("d")
        for call in (graph.neighbors, graph.degree, graph.__contains__):
            with pytest.raises(InvalidVertexTypeError, match="must be a string"):
                call(3)
    with pytest.raises(ResultReleasedError, match="was unloaded"):
        graph.neighbors("a")


def test_a_graph_that_changes(client: distributed.Client, leaves_nothing: None) -> None:
    with dbfs.load("path:n=30", client=client, ranks=3, mutable=True, room=5) as graph:
        result = graph.bfs(0)
        graph.insert_edges([(0, 29), (4, 9)])
        graph.delete_edges([(4, 5)])
        assert (graph.neighbors(0), graph.neighbors(4), graph.degree(4)) == ([1, 29], [3, 9], 2)
        graph.delete_vertices(7)
        assert (7 in graph, 8 in graph, 30 in graph, graph.neighbors(8)) == (False, True, False, [9])
        with pytest.raises(InvalidVertexError, match="vertex 7 was deleted"):
            graph.neighbors(7)
        assert graph.insert_vertices(2).ids == (7, 30)
        assert (7 in graph, 30 in graph, graph.degree(30)) == (True, True, 0)
        assert (result.reached, result.unreached) == (30, np.count_nonzero(result.distances() < 0))
        later = graph.bfs(0)
        assert later.unreached == np.count_nonzero(later.distances() < 0) == 31 - later.reached


def test_an_asynchronous_client(client: distributed.Client, leaves_nothing: None) -> None:
    async def main() -> None:
        async with distributed.Client(client.scheduler.address, asynchronous=True, set_as_default=False) as there:
            async with await asynchronous.load([("a", "b"), ("b", "c"), ("x", "y")], client=there, ranks=2) as graph:
                assert await graph.neighbors("b") == ["a", "c"]
                assert await graph.degree("b") == 2
                assert (await graph.contains("c"), await graph.contains("d")) == (True, False)
                assert (await graph.bfs("a")).unreached == 2

    asyncio.run(main())


def test_completion_offers_what_the_reference_shows(client: distributed.Client, leaves_nothing: None) -> None:
    with dbfs.load("path:n=3", client=client, ranks=1) as graph:
        result = graph.bfs(0)
        offered = {name for name in (*dir(graph), *dir(result)) if not name.startswith("_")}
    assert {"bfs", "neighbors", "degree", "name", "n", "insert_edges", "distances", "unreached"} <= offered
    assert not offered & {"gang", "python_ids", "traverse_again", "elsewhere", "positions", "reader", "placed_orders"}
