"""The order by distance: against distances by NetworkX, and by what callers get."""

from typing import Any

import distributed
import networkx
import numpy as np
import pytest

import dbfs
from dbfs.building.builder import BuildOptions
from dbfs.cluster.gang import Gang
from dbfs.edges.resolve import edge_list
from dbfs.errors import InvalidOptionError
from tests.support.graphs import random


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("directed", [False, True])
def test_positions_ascend_with_the_distance_from_an_end(
    client: distributed.Client, leaves_nothing: None, directed: bool, ranks: int
) -> None:
    # Two random parts, of which one is not reached from the other, and vertices without edges.
    (n, src, dst), (_, more, others) = random(60, 110, 5), random(20, 30, 6)
    src, dst = np.concatenate([src, more + n]), np.concatenate([dst, others + n])
    options: dict[str, Any] = {"client": client, "ranks": ranks}
    edges = dbfs.from_arrays(src, dst, n=n + 25, directed=directed)
    with dbfs.load(edges, order="bfs", keep_edges=True, **options) as graph, dbfs.load(edges, **options) as given:
        assert graph.order is not None
        made: Any = networkx.DiGraph() if directed else networkx.Graph()
        made.add_edges_from(zip(src.tolist(), dst.tolist(), strict=True))
        end = int(graph.order.vertex[0])
        # The others stay in their order behind all that are reached.
        distances = networkx.single_source_shortest_path_length(made, end)
        wanted = sorted(range(n + 25), key=lambda vertex: (distances.get(vertex, np.inf), vertex))
        assert graph.order.vertex.tolist() == wanted
        assert max(distances.values()) > 3
        for source in (0, end, n):
            result = graph.bfs(source, predecessors=True, validate=True)
            assert result.to_dict() == given.bfs(source).to_dict()


def test_a_graph_without_vertices_and_one_without_edges(client: distributed.Client, leaves_nothing: None) -> None:
    none = np.zeros(0, np.int64)
    for n in (0, 3):
        with dbfs.load(dbfs.from_arrays(none, none, n=n), client=client, order="bfs", ranks=2) as graph:
            assert graph.order is not None
            assert graph.order.vertex.tolist() == list(range(n))


def test_a_saved_graph_keeps_its_order(client: distributed.Client, leaves_nothing: None, tmp_path: Any) -> None:
    with dbfs.load("grid2d:side=9", client=client, order="bfs", ranks=2) as graph:
        assert graph.order is not None
        vertices, distances = graph.order.vertex, graph.bfs(3).distances()
        graph.save(tmp_path / "saved")
    for ranks, order in ((2, None), (3, None), (3, "bfs"), (2, "given")):
        with dbfs.load(tmp_path / "saved", client=client, ranks=ranks, order=order) as graph:
            assert (graph.bfs(3).distances() == distances).all()
            if order != "given" and (ranks, order) != (3, None):
                assert graph.order is not None
                assert (graph.order.vertex == vertices).all()


def test_options_of_the_core_alone_and_room(client: distributed.Client, leaves_nothing: None) -> None:
    with pytest.raises(InvalidOptionError, match="room= does not go with order='bfs'"):
        dbfs.load("path:n=9", client=client, order="bfs", mutable=True, room=2)
    gang = Gang(client, ("tcp://nowhere:1",))
    with pytest.raises(InvalidOptionError, match="takes a traversal"):
        BuildOptions(order="bfs").nearness(edge_list("path:n=9"), gang, "cpu")
