"""Subgraphs, neighbourhoods and trees against NetworkX and SciPy."""

from typing import Any

import distributed
import networkx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse.csgraph
from hypothesis import given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.errors import InvalidOptionError, InvalidVertexError, ResultReleasedError
from dbfs.features.subgraphs.subgraph import Subgraph
from dbfs_workers.features.subgraphs import reads as subgraphs
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import oracle
from tests.support.graphs import GRAPHS, Arrays, random
from tests.support.named import KINDS, named_edges


def whole(ids: list[Any], arrays: Arrays, *, directed: bool) -> "networkx.Graph[Any]":
    """The graph in NetworkX, with the ids as nodes."""
    made = networkx.DiGraph() if directed else networkx.Graph()
    made.add_nodes_from(ids)
    made.add_edges_from((ids[source], ids[target]) for source, target in zip(*arrays[1:], strict=True))
    return made


def assert_same(found: Subgraph, nodes: list[Any], expected: "networkx.Graph[Any]") -> None:
    """Nodes in the given order, and NetworkX's edges, in every form."""
    assert networkx.utils.graphs_equal(found.to_networkx(), expected)
    assert list(found.to_networkx()) == nodes
    assert (found.n, found.edges) == (len(nodes), expected.number_of_edges())
    matrix = found.to_scipy()
    wanted = networkx.to_scipy_sparse_array(expected, nodelist=nodes, dtype=np.int8) if nodes else matrix
    assert (matrix.dtype, matrix.shape, (matrix != wanted).nnz) == (np.int8, wanted.shape, 0)
    table, frame = found.to_arrow(), found.to_pandas()
    assert pa.table(found).equals(table)
    ends = list(zip(*(table[name].to_pylist() for name in ("source", "target")), strict=True))
    ends = [tuple(tuple(end.values()) if isinstance(end, dict) else end for end in edge) for edge in ends]
    assert ends == list(frame.itertuples(index=False, name=None))
    at = {node: place for place, node in enumerate(nodes)}
    places = [(at[source], at[target]) for source, target in ends]
    assert places == sorted(set(places))
    assert all(expected.has_edge(*edge) for edge in ends)
    assert len(ends) == expected.number_of_edges()


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_subgraphs_of_named_graphs(
    client: distributed.Client,
    monkeypatch: pytest.MonkeyPatch,
    leaves_nothing: None,
    kind: str,
    directed: bool,
    order: str,
    ranks: int,
) -> None:
    # Many blocks, and rows that are longer than a block.
    monkeypatch.setattr(subgraphs, "BLOCK_EDGES", 20)
    edges, ids, arrays = named_edges(random(120, 700, 3), kind, directed=directed)
    graph_in_networkx = whole(ids, arrays, directed=directed)
    generator = np.random.default_rng(1)
    with dbfs.load(edges, client=client, ranks=ranks, order=order) as graph:
        for size in (0, 1, 40, len(ids)):
            chosen = [ids[one] for one in generator.permutation(len(ids))[:size]]
            found = graph.subgraph(chosen + chosen[:2])
            assert_same(found, chosen, graph_in_networkx.subgraph(chosen))
        near = graph.khop(ids[5], 2)
        expected = networkx.single_source_shortest_path_length(graph_in_networkx, ids[5], cutoff=2)
        assert near.tolist() == [one for one in ids if one in expected]
        assert dict(zip(near, near.distances.tolist(), strict=True)) == expected
        assert_same(near.subgraph(), list(near), networkx.ego_graph(graph_in_networkx, ids[5], 2))
        tree = graph.bfs(ids[5], predecessors=True).tree()
        edges_found = tree.to_networkx()
        reached = networkx.single_source_shortest_path_length(graph_in_networkx, ids[5])
        assert networkx.single_source_shortest_path_length(edges_found, ids[5]) == reached
        assert_same(tree, [one for one in ids if one in reached], edges_found)
        assert tree.edges == len(reached) - 1
        assert all(graph_in_networkx.has_edge(*edge) for edge in edges_found.edges)


edge_lists = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40))
)


def partition_of(stripe: Stripe, rank: int, pairs: list[tuple[int, int]], *, directed: bool) -> Partition:
    """Make a rank's partition without the build."""
    both = pairs if directed else pairs + [(target, source) for source, target in pairs if source != target]
    rows = [sorted(stripe.internal(v) for u, v in both if u == row * stripe.p + rank) for row in range(stripe.n_local)]
    offsets = np.cumsum([0, *map(len, rows)])
    columns = np.array([column for row in rows for column in row], np.uint32)
    return Partition(stripe, rank, offsets, columns, 0, 0, len(pairs), directed)


@settings(max_examples=50, deadline=None)
@given(edges=edge_lists, ranks=st.integers(1, 4), directed=st.booleans(), data=st.data())
def test_any_subgraph_of_a_partition(
    edges: tuple[int, list[tuple[int, int]]], ranks: int, directed: bool, data: st.DataObject
) -> None:
    """The task alone, on every rank of a small graph with loops and duplicates."""
    n, pairs = edges
    stripe = Stripe(n, ranks)
    vertices = data.draw(st.lists(st.integers(0, n - 1), unique=True))
    internal = stripe.internal(np.array(vertices, np.int64))
    index = np.argsort(internal)
    found = []
    for rank in range(ranks):
        partition = partition_of(stripe, rank, pairs, directed=directed)
        ends = subgraphs.edges_between(partition, internal[index].astype(np.uint32), index.astype(np.uint32))
        assert ends.dtype == np.uint32
        found += list(zip(*ends.tolist(), strict=True))
    at = {vertex: place for place, vertex in enumerate(vertices)}
    wanted = {(at[u], at[v]) for u, v in pairs if u in at and v in at}
    if not directed:
        wanted = {(min(edge), max(edge)) for edge in wanted}
    assert sorted(found) == sorted(wanted)


def test_arrays_of_neighbourhoods(client: distributed.Client) -> None:
    n, src, dst = GRAPHS["path"]()
    with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, ranks=3) as graph:
        near = graph.khop(10, 2)
        assert np.asarray(near).tolist() == list(near) == [8, 9, 10, 11, 12]
        assert np.asarray(near).dtype == np.int64
        assert len(near) == 5
        wanted = pd.DataFrame({"vertex": [8, 9, 10, 11, 12], "distance": np.array([2, 1, 0, 1, 2], np.int32)})
        pd.testing.assert_frame_equal(near.to_pandas(), wanted)
        assert repr(near) == "<dbfs.Neighbourhood in arrays: 5 vertices at most 2 edges away>"
        assert repr(near.subgraph()) == "<dbfs.Subgraph of arrays: 5 vertices, 4 undirected edges>"
        assert graph.khop([0, 69], 0).distances.tolist() == [0, 0]
        assert graph.subgraph(near).edges == 4
        assert graph.subgraph({8, 9}).edges == graph.subgraph(np.array([8, 9])).edges == 1
        matrix = graph.bfs(0, predecessors=True).tree().to_scipy()
        wanted_tree = scipy.sparse.csgraph.breadth_first_tree(oracle.adjacency(n, src, dst, directed=False), 0)
        assert (matrix != wanted_tree).nnz == 0


def test_what_is_refused(client: distributed.Client) -> None:
    with dbfs.load(dbfs.path(20), client=client, ranks=2) as graph:
        with pytest.raises(InvalidVertexError, match="20 is not in"):
            graph.subgraph([3, 20])
        with pytest.raises(InvalidOptionError, match="predecessors=True"):
            graph.bfs(0).tree()
        near = graph.khop(0, 1)
    for cut in (near.subgraph, lambda: graph.subgraph([1])):
        with pytest.raises(ResultReleasedError, match="unloaded"):
            cut()


@pytest.mark.parametrize("ranks", [1, 3])
def test_what_is_near_each_of_many(client: distributed.Client, ranks: int) -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "d"), ("e", "e")]
    with dbfs.load(edges, client=client, ranks=ranks) as graph:
        table = graph.khop(["c", "a", "e", "c"], 1, each=True).to_pandas()
        assert list(table.itertuples(index=False, name=None)) == [
            *(("c", "b", 1), ("c", "c", 0), ("c", "d", 1), ("a", "a", 0), ("a", "b", 1), ("e", "e", 0)),
            *(("c", "b", 1), ("c", "c", 0), ("c", "d", 1)),
        ]
        assert graph.khop("a", 0, each=True).to_arrow().to_pydict() == {
            "source": ["a"],
            "vertex": ["a"],
            "distance": [0],
        }
        assert graph.khop([], 2, each=True).to_arrow().num_rows == 0
        assert list(graph.khop(["a", "d"], 1)) == ["a", "b", "c", "d"]
        with pytest.raises(InvalidOptionError, match="k must be at least 0"):
            graph.khop(["a"], -1, each=True)
