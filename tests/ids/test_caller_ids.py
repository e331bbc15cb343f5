"""Whatever a call returns as an id equals the caller's, hashes like it, and is taken back by every call."""

import asyncio
import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import distributed
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbfs
from dbfs import asynchronous
from dbfs.assembly import Graph
from dbfs.errors import EdgeInputError, InvalidVertexError, InvalidVertexTypeError
from dbfs.networkx import from_networkx
from dbfs_workers.ids.sequence import IdSequence
from dbfs_workers.ids.table import from_python

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
NUMBER = st.integers(0, 2**63 - 1)
# Ids by kind. Equal tuples of one part are strings.
IDS: dict[str, st.SearchStrategy[Any]] = {
    "dense": st.integers(0, 9),
    "sparse": NUMBER,
    "strings": TEXT,
    "tuples": st.tuples(TEXT, st.integers(0, 3)),
}


def arrow_of(graph: Graph, ids: list[Any]) -> pa.Array:
    """Ids as an Arrow array of the graph's type."""
    return pa.array(from_python(ids, graph.id_type), graph.id_type.arrow)


def handed_out(graph: Graph, source: Any) -> Iterator[tuple[str, Any]]:
    """Every id that a call gives, with the call's name."""
    result = graph.bfs(source, predecessors=True)
    far = result.vertices_at(result.depth)[0]
    many = {
        "ids": graph.ids(),
        "ids_of": graph.ids_of([0, graph.n - 1]),
        "vertices": result.vertices(),
        "vertices_at": result.vertices_at(result.depth),
        "path_to": result.path_to(far),
        "tree": result.tree().vertices,
        "sources": result.sources,
        "to_dict": result.to_dict(),
        "to_pandas": result.to_pandas()["vertex"],
        "khop": graph.khop(source, 1),
        "khop vertices": graph.khop(source, 1).vertices,
        "subgraph": graph.subgraph([source, far, source]).vertices,
        "subgraph frame": graph.subgraph(graph.ids()).to_pandas()["target"],
        "networkx": graph.subgraph(graph.ids()).to_networkx(),
        "components": graph.components().vertices(0),
        "components frame": graph.components().to_pandas()["vertex"],
        "neighbors": graph.neighbors(source),
        "sample": graph.sample_sources(1),
        "measure": graph.khop_sizes(1, far).ids,
        "measure dict": graph.khop_sizes(1).to_dict(),
        "edges": itertools.chain.from_iterable(graph.edge_betweenness_centrality().to_dict()),
        "edge ids": graph.edge_betweenness_centrality().target_ids,
        "batch": graph.bfs_batch([source]).sources,
        "landmarks": graph.landmarks(2).ids,
        "bounds": (graph.eccentricity_bound().centre, *graph.eccentricity_bound().ends),
        "id_of": [graph.id_of(0)],
    }
    for name, ids in many.items():
        yield from ((name, one) for one in ids)


def assert_taken(graph: Graph, one: Any, at: int) -> None:
    """Every call takes an id, or a form of it, for the vertex."""
    assert one in graph
    assert (graph.vertex(one), graph.vertices_of(one).tolist(), graph.vertices_of([one]).tolist()) == (at, [at], [at])


@pytest.mark.parametrize(
    "kind", [kind if kind in ("dense", "tuples") else pytest.param(kind, marks=pytest.mark.full) for kind in IDS]
)
@settings(max_examples=4)
@given(data=st.data())
def test_ids_come_back_as_they_went(client: distributed.Client, kind: str, data: st.DataObject) -> None:
    names = data.draw(st.lists(IDS[kind], min_size=2, max_size=6, unique=True))
    pairs = list(itertools.pairwise(names))
    with dbfs.load(pairs, client=client, ranks=2) as graph:
        ids = sorted(names, key=lambda one: one.encode() if isinstance(one, str) else one)
        if kind == "tuples":
            ids = sorted(names, key=lambda one: (one[0].encode(), one[1]))
        places = dict(zip(ids, itertools.count(), strict=False))
        for name, one in handed_out(graph, names[0]):
            assert isinstance(one, int | np.integer | str | tuple), name
            assert one in places, (name, one)
            assert len({one, ids[places[one]]}) == 1
        for one, at in places.items():
            for given_as in (one, graph.ids()[at], arrow_of(graph, [one])[0]):
                assert_taken(graph, given_as, at)
        assert {*ids} - set(graph.ids()) == set()
        assert pd.Series(ids).isin(graph.ids()[1:]).tolist() == [False] + [True] * (len(ids) - 1)
        assert list(graph.ids()) == graph.ids().tolist() == ids


@pytest.mark.parametrize("kind", ["dense", "strings", "tuples"])
def test_every_call_takes_arrow_and_sequences(client: distributed.Client, kind: str) -> None:
    name: Any = {"dense": int, "strings": "v{}".format, "tuples": lambda v: (f"v{v}", v)}[kind]
    ids = [name(v) for v in range(5)]
    with dbfs.load(list(itertools.pairwise(ids)), client=client, ranks=2, mutable=True) as graph:
        array, several = arrow_of(graph, ids), graph.ids()
        forms = [array, several, pa.chunked_array([array[:2], array[2:]]), iter(ids), graph.khop(ids[0], 9)]
        if kind != "tuples":
            forms += [
                array.dictionary_encode(),
                pa.chunked_array([array[:2].dictionary_encode(), array[2:].dictionary_encode()]),
            ]
        for given_as in forms:
            assert graph.bfs(given_as).sources == tuple(ids)
        for one in (array[1], several[1]):
            assert graph.bfs(one, targets=array[3], predecessors=True).path_to(array[3]) == ids[1:4]
            assert graph.bfs(one, targets=several[3:]).depth == 3
            assert graph.neighbors(one) == [ids[0], ids[2]]
            assert graph.degree(one) == 2
            assert graph.khop(one, 1).tolist() == ids[:3]
            assert graph.khop_sizes(1, one).to_dict() == {ids[1]: 3}
            assert graph.eccentricity_bound(one).size == 5
            assert graph.subgraph(one).n == 1
            assert [found.sources for found in graph.bfs_stream(one)] == [(ids[1],)]
        assert graph.subgraph(several[1:3]).edges == graph.subgraph(array[1:3]).edges == 1
        assert [found.depth for found in graph.bfs_many(array)] == [4, 3, 2, 3, 4]
        assert [found.depth for found in graph.bfs_stream(array)] == [4, 3, 2, 3, 4]
        batch = graph.bfs_batch(several, targets=array[0])
        assert batch.target_distances().tolist() == [[0], [1], [2], [3], [4]]
        assert (batch.targets, batch.target_vertices) == ((ids[0],), (0,))
        assert array[1] in graph.khop(array[0], 1)
        assert array[2] not in graph.khop(array[0], 1)
        assert "absent" not in graph.khop(array[0], 1)
        watch = graph.watch(array[0])
        assert graph.distance_matrix(array[:2], several[3:]).tolist() == [[3, 4], [2, 3]]
        assert graph.landmarks(2).bounds(array[0], several[4])[0].tolist() == [4]
        assert graph.closeness_centrality(graph.khop(ids[0], 1)).ids.tolist() == ids[:2]
        dbfs.validate(graph, dbfs.Labels(array[:1], graph.bfs(ids[0]).distances()))
        graph.insert_edges([(array[0], array[2])])
        assert ids[2] in graph.neighbors(ids[0])
        change = watch.update()
        assert change is not None
        assert {*ids[2:]} - {*change.ids} == {*watch.result.changed()} - {*ids} == set()
        graph.insert_edges((several[:2], several[3:]))
        assert graph.neighbors(ids[0]) == ids[1:4]
        graph.delete_edges((array[:1], array[2:3]))
        assert ids[2] not in graph.neighbors(ids[0])
        assert graph.delete_vertices(array[4]).ids == (ids[4],)
        assert array[4] not in graph


def test_what_is_no_id_is_refused(client: distributed.Client) -> None:
    with dbfs.load([("a", "b"), ("b", "c")], client=client, ranks=2) as graph:
        for wrong in (
            pa.scalar(1),
            pa.array([2**64 - 5], pa.uint64())[0],
            pa.scalar(None, pa.string()),
            {"a": 1},
            pd.DataFrame({"a": ["b"]}),
            np.eye(2),
        ):
            with pytest.raises(InvalidVertexTypeError, match="source must be a string"):
                graph.bfs(wrong)
        with pytest.raises(InvalidVertexError, match="source 'd' is not in"):
            graph.bfs(pa.scalar("d"))
        with pytest.raises(InvalidVertexTypeError, match="source: the id 18446744073709551611 is too large"):
            graph.bfs(pa.array([2**64 - 5], pa.uint64()))
        with pytest.raises(EdgeInputError, match="edges must not be ids: pass"):
            dbfs.load(graph.ids(), client=client)
        # A string is one id, not its letters.
        with pytest.raises(InvalidVertexError, match="'ab' is not in"):
            graph.subgraph("ab")
        with pytest.raises(InvalidVertexError, match="'ab' is not in"):
            list(graph.bfs_stream("ab"))


def test_an_asynchronous_client_and_networkx(client: distributed.Client) -> None:
    async def go(address: str) -> None:
        async with distributed.Client(address, asynchronous=True) as there:
            graph = await asynchronous.load([("a", "b"), ("b", "c")], client=there, ranks=2)
            ids = await graph.ids()
            assert "b" in ids
            assert {"b"} - set((await graph.khop(ids[0], 1)).vertices) == set()
            assert await graph.contains(pa.scalar("c"))
            assert await graph.neighbors(pa.scalar("a")) == ["b"]
            assert (await (await graph.bfs(ids[2])).vertices_at(1)) == ["b"]
            await graph.unload()

    asyncio.run(go(client.scheduler.address))
    graph = from_networkx(nx.path_graph(["a", "b", "c"]))
    assert nx.shortest_path(graph, pa.scalar("a"), pa.scalar("c")) == ["a", "b", "c"]
    assert pa.scalar("d") not in graph
    assert nx.closeness_centrality(graph, u=pa.scalar("b")) == 1


@pytest.mark.parametrize("kind", ["strings", "tuples"])
@given(data=st.data())
def test_a_sequence_is_as_the_list(kind: str, data: st.DataObject) -> None:
    ids = data.draw(st.lists(IDS[kind], max_size=8))
    fields = pa.struct([("name", pa.large_string()), ("number", pa.int64())])
    rows = [{"name": one[0], "number": one[1]} for one in ids] if kind == "tuples" else ids
    array = pa.array(rows, fields if kind == "tuples" else pa.large_string())
    found = IdSequence(array)
    assert found == ids
    assert (list(found), found.to_pylist(), len(found)) == (ids, ids, len(ids))
    low, high, step = (data.draw(st.none() | st.integers(-9, 9).filter(bool)) for _ in range(3))
    assert found[low:high:step] == ids[low:high:step]
    assert found[:3] == found[:3].tolist() != [*ids[:3], 1]
    for one in [*ids, *data.draw(st.lists(IDS[kind], max_size=3))]:
        assert (one in found, one in found[1:]) == (one in ids, one in ids[1:])
        if one in ids:
            assert found.index(one) == ids.index(one)
            assert array[ids.index(one)] in found
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids))), bool)
    assert found[mask] == [one for one, chosen in zip(ids, mask, strict=True) if chosen]
    assert found[np.flatnonzero(mask)[::-1]] == found[mask][::-1]
    assert np.asarray(found).tolist() == ids
    assert pa.array(found).equals(array)
    assert pa.chunked_array(found).to_pylist() == array.to_pylist()
    assert pickle.loads(pickle.dumps(found)) == found
    for wrong in (len(ids), -len(ids) - 1, [len(ids)]):
        with pytest.raises(IndexError):
            found[wrong]
    for absent in (None, 5, 2**70, "\ud800", ("\ud800", 1), ("", 2**70), ("", True), ("",), b""):
        assert absent not in found
        with pytest.raises(ValueError, match="is not among the ids"):
            found.index(absent)


def test_other_libraries_take_a_sequence() -> None:
    found = IdSequence(pa.array(["a", "b", "c"], pa.large_string()))
    assert pl.Series(found).to_list() == pd.Series(found).tolist() == pd.Index(found).tolist() == [*found]
    some: Any = found[1:]
    assert pd.DataFrame({"x": [1, 2, 3]}, index=pd.Index(found)).loc[some, "x"].tolist() == [2, 3]
    assert repr(found) == "<3 ids: 'a', 'b', 'c'>"
    with pytest.raises(TypeError, match="unhashable"):
        hash(found)
    with pytest.raises(ValueError, match="by a copy only"):
        np.array(found, copy=False)
