"""Columns and views of graphs that change, against a dict of rows, and against SciPy."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import dask
import distributed
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import (
    DbfsError,
    EdgeInputError,
    GraphTooLargeError,
    InvalidOptionError,
    InvalidVertexError,
    ResultReleasedError,
)
from dbfs.features.living import living
from dbfs_workers.features.views import kept
from tests.support import oracle

N = 9
ROOM = 6
KINDS = {"kind": pa.string(), "km": pa.int64(), "day": pa.date32()}
OF_VERTICES = {"pop": pa.int64(), "name": pa.string()}

Row = tuple[Any, ...]
Pair = tuple[int, int]


def table_of(rows: list[tuple[int, int, Row]], columns: list[str]) -> pa.Table:
    """Rows (source, target, values of ``KINDS``), with some of the columns."""
    arrays: dict[str, pa.Array] = {
        end: pa.array([row[at] for row in rows], pa.int64()) for at, end in enumerate(["source", "target"])
    }
    for at, (name, kind) in enumerate(KINDS.items()):
        if name in columns:
            arrays[name] = pa.array([row[2][at] for row in rows], kind)
    return pa.table(arrays)


@dataclass
class Rows:
    """The rows that are there: what a graph with columns is to be."""

    directed: bool
    edges: dict[Pair, list[Row]] = field(default_factory=dict)
    vertices: dict[int, Row] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    n: int = N

    def key(self, source: int, target: int) -> Pair:
        return (source, target) if self.directed or source <= target else (target, source)

    def insert(self, rows: list[tuple[int, int, Row]], columns: list[str], *, update: bool) -> None:
        for source, target, values in rows:
            row = tuple(value if name in columns else None for name, value in zip(KINDS, values, strict=True))
            there = self.edges.get(self.key(source, target))
            if there is None:
                self.edges[self.key(source, target)] = [row]
            elif update:
                there[:] = [row] * len(there)

    def delete(self, pairs: list[Pair]) -> None:
        for pair in pairs:
            self.edges.pop(self.key(*pair), None)

    def drop(self, vertices: list[int]) -> None:
        self.edges = {pair: rows for pair, rows in self.edges.items() if not {*pair} & {*vertices}}
        self.deleted |= {*vertices}

    def add(self, count: int) -> list[int]:
        again = sorted(self.deleted)[:count]
        fresh = [*range(self.n, self.n + count - len(again))]
        self.n += len(fresh)
        self.deleted -= {*again}
        for vertex in (*again, *fresh):
            self.vertices.pop(vertex, None)
        return [*again, *fresh]

    def table(self) -> pa.Table:
        return table_of([(*pair, row) for pair, rows in self.edges.items() for row in rows], [*KINDS])


def rows_of(table: pa.Table, *, directed: bool) -> Counter[Any]:
    """The rows of a table of edges, of undirected ones with the smaller end first."""
    ends = zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True)
    values = zip(*(table[name].to_pylist() for name in KINDS), strict=True)
    pairs = [pair if directed else tuple(sorted(pair)) for pair in ends]
    return Counter(zip(pairs, values, strict=True))


def there(graph: Graph, model: Rows) -> list[int]:
    return [vertex for vertex in range(model.n) if vertex not in model.deleted]


def assert_distances(found: Graph, model: Rows, passing: pa.Table, among: set[int]) -> None:
    """Traversals are SciPy's of the rows."""
    ends = (passing[end].to_numpy() for end in ("source", "target"))
    matrix = oracle.adjacency(model.n, *ends, directed=model.directed)
    for source in sorted(among)[:3]:
        np.testing.assert_array_equal(found.bfs(source).distances(), oracle.distances(matrix, [source]))


def assert_weighted(graph: Graph, model: Rows) -> None:
    """Distances by weight are Bellman's and Ford's, or the edges without a weight are told."""
    source = min(there(graph, model), default=None)
    if source is None:
        return
    arcs = [
        (*way, row[1])
        for pair, rows in model.edges.items()
        for row in rows
        for way in ({pair} if model.directed else {pair, pair[::-1]})
    ]
    if any(weight is None for *_, weight in arcs):
        with pytest.raises(InvalidOptionError, match="'km' has no value"):
            graph.sssp(source, "km")
        return
    distances = {source: 0}
    for _ in range(model.n):
        for start, end, weight in arcs:
            distances[end] = min(distances.get(end, math.inf), distances.get(start, math.inf) + weight)
    result = graph.sssp(source, "km", predecessors=True)
    expected = [distances.get(vertex, math.inf) for vertex in range(model.n)]
    assert result.distances().tolist() == [-1 if each == math.inf else each for each in expected]
    result.validate()
    for target in there(graph, model)[-2:]:
        assert graph.distance(source, target, weight="km") == (-1 if expected[target] == math.inf else expected[target])


CONDITION = (pc.field("kind") == "road") | (pc.field("km") < 3)


def check(graph: Graph, model: Rows, views: dict[str, Graph]) -> None:
    table, alive = model.table(), {*there(graph, model)}
    found = graph.subgraph(sorted(alive), columns=[*KINDS]).to_arrow() if alive else None
    if found is not None:
        assert rows_of(found, directed=model.directed) == rows_of(table, directed=model.directed)
    passing = table.filter(CONDITION)
    rich = {vertex for vertex in alive if (model.vertices.get(vertex, (None,))[0] or 0) > 2}
    kept = [rich >= {row["source"], row["target"]} for row in passing.to_pylist()]
    of_both = passing.filter(pa.array(kept, pa.bool_()))
    for name, rows, among in (("edges", passing, alive), ("both", of_both, rich)):
        view = views[name]
        version = view.version
        assert view.n == model.n
        assert view.deleted == model.n - len(among)
        assert view.m == sum(1 + (not model.directed and row["source"] != row["target"]) for row in rows.to_pylist())
        assert_distances(view, model, rows, among)
        if among:
            part = view.subgraph(sorted(among), columns=[*KINDS]).to_arrow()
            assert rows_of(part, directed=model.directed) == rows_of(rows, directed=model.directed)
        assert view.version == version
    assert_weighted(graph, model)


values_of = st.tuples(
    st.none() | st.sampled_from(["road", "rail"]),
    st.integers(0, 5) | st.none(),
    st.none() | st.dates(pd.Timestamp("2020-01-01").date(), pd.Timestamp("2020-01-03").date()),
)
ends = st.integers(0, N - 1)
batch = st.lists(st.tuples(ends, ends, values_of), min_size=1, max_size=8)
steps_of = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["insert", "update"]), batch, st.lists(st.sampled_from([*KINDS]), unique=True)),
        st.tuples(st.just("delete"), st.lists(st.tuples(ends, ends), min_size=1, max_size=6)),
        st.tuples(st.just("drop"), st.lists(ends, min_size=1, max_size=2, unique=True)),
        st.tuples(st.just("add"), st.integers(1, 3)),
        st.tuples(st.just("give"), st.dictionaries(ends, st.integers(0, 9), min_size=1, max_size=4)),
        st.tuples(st.sampled_from(["compact", "freeze", "check"])),
    ),
    max_size=8,
)


def change(graph: Graph, model: Rows, step: tuple[Any, ...]) -> None:
    kind, *what = step
    if kind in ("insert", "update"):
        rows, columns = what
        rows = [row for row in rows if not {row[0], row[1]} & model.deleted]
        before = {*model.edges}
        if not rows or (kind == "update" and not columns):
            return
        update = graph.insert_edges(table_of(rows, columns), on_existing="update" if kind == "update" else "skip")
        model.insert(rows, columns, update=kind == "update")
        assert update.edges == len({*model.edges} - before)
        assert update.edges + update.skipped + update.replaced == len(rows) if model.directed else True
    elif kind == "delete":
        graph.delete_edges(what[0])
        model.delete(what[0])
    elif kind == "drop":
        graph.delete_vertices(what[0])
        model.drop(what[0])
    elif kind == "add":
        if model.n + what[0] - len(model.deleted) <= N + ROOM:
            assert [*graph.insert_vertices(what[0]).ids] == sorted(model.add(what[0]))
    elif kind == "give":
        given = {vertex: pop for vertex, pop in what[0].items() if vertex not in model.deleted}
        if given:
            graph.update_vertices(pd.DataFrame({"vertex": [*given], "pop": [*given.values()]}))
            model.vertices |= {vertex: (pop, None) for vertex, pop in given.items()}
    elif kind == "compact":
        graph.compact()
    elif kind == "freeze":
        graph.freeze()
        graph.thaw()


def play(
    client: distributed.Client,
    first: list[tuple[int, int, Row]],
    steps: list[tuple[Any, ...]],
    options: dict[str, Any],
) -> None:
    """Load a graph, change it step by step, and check it where a step says so, and at the end."""
    model = Rows(options["directed"])
    for source, target, row in first:
        model.edges.setdefault(model.key(source, target), []).append(row)
    model.vertices = {vertex: (vertex, f"v{vertex % 3}") for vertex in range(0, N, 2)}
    vertices = pa.table({"vertex": [*model.vertices], "pop": [row[0] for row in model.vertices.values()]})
    vertices = vertices.append_column("name", pa.array([row[1] for row in model.vertices.values()]))
    # Each vertex has an edge at first, so that all of them are there.
    ring = [(vertex, (vertex + 1) % N, ("road", 1, None)) for vertex in range(N)]
    model.insert(ring, [*KINDS], update=False)
    with contextlib.ExitStack() as stack:
        graph = stack.enter_context(
            dbfs.load(
                model.table(),
                edge_columns=[*KINDS],
                vertices=vertices,
                vertex_columns=[*OF_VERTICES],
                client=client,
                mutable=True,
                **options,
            )
        )
        views = {"edges": stack.enter_context(graph.where(edges=CONDITION))}
        views["both"] = stack.enter_context(views["edges"].where(vertices=pc.field("pop") > 2))
        for step in steps:
            change(graph, model, step)
            if step[0] == "check":
                check(graph, model, views)
        check(graph, model, views)


@pytest.mark.full
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    first=st.lists(st.tuples(ends, ends, values_of), max_size=12),
    steps=steps_of,
    ranks=st.integers(1, 4),
    directed=st.booleans(),
    in_edges=st.booleans(),
    order=st.sampled_from(["given", "degree"]),
    long=st.sampled_from([0, kept._LEAST]),
)
def test_random_changes_of_graphs_with_columns(
    client: distributed.Client,
    first: list[tuple[int, int, Row]],
    steps: list[tuple[Any, ...]],
    ranks: int,
    directed: bool,
    in_edges: bool,
    order: str,
    long: int,
) -> None:
    options: dict[str, Any] = {"directed": directed, "in_edges": in_edges, "order": order, "ranks": ranks}
    if order == "given":
        options["room"] = ROOM
    else:
        steps = [step for step in steps if step[0] != "add"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "_LEAST", long)
        play(client, first, steps, options)


@pytest.mark.parametrize(
    ("directed", "in_edges", "order", "ranks"),
    [
        pytest.param(False, False, "given", 2, marks=pytest.mark.full),
        *((True, True, "given", 3), (True, False, "degree", 2)),
    ],
)
def test_changes_of_every_kind(
    client: distributed.Client, directed: bool, in_edges: bool, order: str, ranks: int, leaves_nothing: None
) -> None:
    day = pd.Timestamp("2020-01-02").date()
    options: dict[str, Any] = {"directed": directed, "in_edges": in_edges, "order": order, "ranks": ranks}
    steps: list[tuple[Any, ...]] = [
        ("insert", [(0, 5, ("road", 2, day)), (0, 5, ("rail", 9, None)), (3, 3, (None, 1, None))], ["kind", "km"]),
        (
            "update",
            [(0, 5, ("rail", 1, day)), (1, 2, ("road", 4, day)), (1, 2, ("x", 3, day)), (4, 8, ("y", 0, day))],
            [*KINDS],
        ),
        ("delete", [(0, 1), (5, 0), (7, 7)]),
        ("give", {1: 7, 0: 0}),
        ("check",),
        ("drop", [4]),
        ("compact",),
        ("insert", [(8, 0, ("road", 2, day))], ["km"]),
        ("freeze",),
        ("update", [(2, 3, ("road", 0, None))], ["kind"]),
    ]
    if order == "given":
        options["room"] = ROOM
        steps.append(("add", 3))
        steps.append(("give", {N: 5}))
    first = [(0, 1, ("road", 5, day)), (0, 1, ("rail", 2, None)), (1, 2, (None, None, None)), (1, 2, ("road", 1, day))]
    play(client, first, steps, options)


@pytest.fixture
def roads(client: distributed.Client, leaves_nothing: None) -> Any:
    """Towns, and roads with a kind and a length, of a graph with room for more towns."""
    table = pa.table({"source": ["a", "b", "c"], "target": ["b", "c", "d"], "kind": ["road"] * 3, "km": [1, 2, 3]})
    towns = pa.table({"vertex": ["a", "b"], "pop": [5, 6]})
    options: dict[str, Any] = {"vertices": towns, "vertex_columns": "pop", "mutable": True, "room": 9, "ranks": 2}
    with dbfs.load(table, edge_columns=["kind", "km"], client=client, **options) as graph:
        yield graph


def values(graph: Graph, *ids: str) -> list[tuple[Any, ...]]:
    found = graph.subgraph(ids, columns=["kind", "km"]).to_arrow()
    return [*zip(*(found[name].to_pylist() for name in found.schema.names), strict=True)]


def test_batches_of_many_kinds_with_columns(roads: Graph, tmp_path: Any) -> None:
    columns = {"source": ["a", "a"], "target": ["c", "e"], "km": [7, 8], "other": [1, 1]}
    categories = pd.DataFrame(columns | {"kind": pd.Categorical(["rail", None])})
    nothing = pa.table(columns).append_column("kind", pa.nulls(2))
    pq.write_table(pa.table(columns), path := tmp_path / "batch.parquet")
    network = nx.Graph()
    network.add_edge("a", "c", km=7)
    network.add_edge("a", "e", km=8)
    batches = [categories, pl.DataFrame(columns), columns, nothing, nothing.to_reader(1), path, network]
    for batch in batches:
        kind = "rail" if batch is categories else None
        assert roads.insert_edges(batch).edges == 2
        assert values(roads, "a", "c", "e") == [("a", "c", kind, 7), ("a", "e", None, 8)]
        assert roads.delete_edges([("c", "a"), ("a", "e")]).edges == 2
    # A batch without columns, and edges that occur again: the first row counts, and the last one of an update.
    roads.insert_edges([("a", "d")])
    again = {"source": ["a", "c", "a"], "target": ["c", "a", "b"], "km": [7, 8, 9]}
    assert roads.insert_edges(again).skipped == 2
    assert values(roads, "a", "b", "c", "d")[:3] == [("a", "b", "road", 1), ("a", "c", None, 7), ("a", "d", None, None)]
    update = roads.insert_edges(again, on_existing="update")
    assert (update.edges, update.skipped, update.replaced) == (0, 0, 3)
    assert values(roads, "a", "b", "c")[:2] == [("a", "b", None, 9), ("a", "c", None, 8)]
    # The same of an edge that is new, and of one that is new and replaced before a call reads its values.
    new = {"source": ["b", "d"], "target": ["d", "b"], "km": [1, 2]}
    assert roads.insert_edges(new, on_existing="update").edges == 1
    assert values(roads, "b", "d") == [("b", "d", None, 2)]
    roads.insert_edges({"source": ["a"], "target": ["e"], "km": [3]})
    roads.insert_edges({"source": ["e"], "target": ["a"], "km": [4]}, on_existing="update")
    assert values(roads, "a", "b", "d", "e") == [
        *(("a", "b", None, 9), ("a", "d", None, None), ("a", "e", None, 4), ("b", "d", None, 2)),
    ]


def test_entries_of_a_matrix_are_weights(client: distributed.Client) -> None:
    edges = {"source": [0, 1], "target": [1, 2], "weight": [1.0, 2.0]}
    matrix = scipy.sparse.csr_array(np.array([[0, 0, 4.5], [0, 0, 0], [0, 0, 0]]))
    with dbfs.load(pa.table(edges), edge_columns="weight", directed=True, mutable=True, client=client) as graph:
        graph.insert_edges(matrix)
        assert graph.sssp(0, "weight").distances().tolist() == [0, 1, 3]
        graph.delete_edges([(1, 2)])
        assert graph.sssp(0, "weight").distances().tolist() == [0, 1, 4.5]


@pytest.mark.parametrize("order", ["given", "degree"])
def test_large_batches_with_and_without_columns(
    client: distributed.Client, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator, n, m = np.random.default_rng(4), 500, 6000
    src, dst = generator.integers(0, n, (2, m))
    ring = {"source": np.arange(n), "target": (np.arange(n) + 1) % n, "w": np.ones(n, int)}
    with dbfs.load(pa.table(ring), edge_columns="w", mutable=True, order=order, ranks=2, client=client) as graph:
        graph.insert_edges(pa.table({"source": src, "target": dst, "w": generator.integers(1, 9, m)}))
        few, whole = living._FEW_EDGES, living._WHOLE_EDGES
        for limits in ((0, whole), (0, 0), (few, whole)):
            # Without columns batches go to every rank, or are binned by tasks, or travel in a message.
            monkeypatch.setattr(living, "_FEW_EDGES", limits[0])
            monkeypatch.setattr(living, "_WHOLE_EDGES", limits[1])
            graph.delete_edges((src[:2000], dst[:2000]))
            graph.insert_edges((src[:300], dst[:300]))
            table = graph.subgraph(range(n), columns="w").to_arrow()
            nulls = table.filter(pc.field("w").is_null())
            cut = {frozenset(pair) for pair in zip(src[:2000].tolist(), dst[:2000].tolist(), strict=True)}
            come = {frozenset(pair) for pair in zip(src[:300].tolist(), dst[:300].tolist(), strict=True)}
            found = [
                frozenset(pair) for pair in zip(*(nulls[end].to_pylist() for end in ("source", "target")), strict=True)
            ]
            assert {*found} == come
            assert len(found) == len(come)
            with graph.where(edges=pc.field("w") > 0) as view:
                assert view.m == graph.m - 2 * len(come) + sum(len(pair) == 1 for pair in come)
                assert not any(frozenset(pair) in cut for pair in view.subgraph(range(40)).to_networkx().edges())
            graph.delete_edges((src[:300], dst[:300]))


@pytest.mark.parametrize(
    ("batch", "options", "error", "words"),
    [
        ({"km": ["far"]}, {}, EdgeInputError, "column 'km' holds string, and that of the graph int64"),
        ({"kind": [3]}, {}, EdgeInputError, "column 'kind' holds int64, and that of the graph string"),
        ({"km": [2.5]}, {}, EdgeInputError, "column 'km' can't be kept as int64.*2.5"),
        ({"km": [1]}, {"on_existing": "replace"}, InvalidOptionError, "on_existing must be one of skip, update"),
        ({"miles": [1]}, {"on_existing": "update"}, InvalidOptionError, "has no columns of"),
        ({"km": [1]}, {"on_existing": "update", "strict": True}, InvalidOptionError, "strict=True"),
        ({"km": [1]}, {"strict": True}, EdgeInputError, "are there already.*'a', 'b'"),
    ],
)
def test_columns_that_do_not_fit(
    roads: Graph, batch: dict[str, Any], options: dict[str, Any], error: type[DbfsError], words: str
) -> None:
    with pytest.raises(error, match=words):
        roads.insert_edges({"source": ["a"], "target": ["b"], **batch}, **options)
    assert (roads.version, values(roads, "a", "b")) == (0, [("a", "b", "road", 1)])


def test_vertices_get_values_later(roads: Graph) -> None:
    with roads.where(vertices=pc.field("pop") > 4) as view, roads.where(vertices=pc.field("pop").is_null()) as rest:
        roads.insert_edges([("a", "e"), ("e", "f")])
        assert (view.bfs("a").to_dict(), sorted(rest.bfs("f").to_dict())) == ({"a": 0, "b": 1}, ["e", "f"])
        update = roads.update_vertices({"vertex": ["e", "a"], "pop": [9, 1]})
        assert (update.version, update.replaced) == (2, 2)
        assert (view.bfs("b").to_dict(), rest.bfs("f").to_dict()) == ({"b": 0}, {"f": 0})
        assert view.bfs("e").reached == 1
        for given, error, words in (
            ({"vertex": ["zz"], "pop": [1]}, InvalidVertexError, "'zz'"),
            ({"vertex": ["a"], "pop": ["many"]}, EdgeInputError, "column 'pop' holds string"),
            ({"vertex": ["a", "a"], "pop": [1, 2]}, EdgeInputError, "rows 0 and 1"),
        ):
            with pytest.raises(error, match=words):
                roads.update_vertices(pa.table(given))
        roads.delete_vertices("e")
        with pytest.raises(InvalidVertexError, match="'e' was deleted"):
            roads.update_vertices(pa.table({"vertex": ["e"], "pop": [1]}))
    with dbfs.load([(1, 2)], client=roads.gang.client, mutable=True) as plain:
        with pytest.raises(InvalidOptionError, match="has no columns of vertices"):
            plain.update_vertices(pa.table({"vertex": [1], "pop": [1]}))
        with pytest.raises(InvalidOptionError, match="has no columns of"):
            plain.insert_edges({"source": [1], "target": [2], "km": [1]}, on_existing="update")


def test_results_of_views_are_of_their_version(roads: Graph) -> None:
    with roads.where(edges=pc.field("km") < 3, name="short") as view:
        before = view.bfs("a", predecessors=True)
        roads.insert_edges({"source": ["d"], "target": ["a"], "km": [1]})
        other = dbfs.open("short", client=roads.gang.client)
        assert other.bfs("a").to_dict() == {"a": 0, "b": 1, "c": 2, "d": 1}
        assert (view.version, other.version, view.record.beside.root_version) == (1, 1, 1)
        assert (before.version, before.to_dict()) == (0, {"a": 0, "b": 1, "c": 2})
        with pytest.raises(InvalidOptionError, match="is of version 0 of short, which is 1 now"):
            before.validate()
        assert before.update().to_dict() == other.bfs("a").to_dict()
        for change in (lambda: view.insert_edges([("a", "c")]), lambda: view.delete_vertices("a"), view.thaw):
            with pytest.raises(InvalidOptionError, match="is a view of .*can't be changed"):
                change()
        # A view made by ids keeps no vertex that comes later, and one without some keeps all of these.
        with other.where(vertices=["a", "d"]) as pair, other.where(without=["d"]) as others:
            roads.insert_edges({"source": ["a"], "target": ["z"], "km": [2]})
            assert pair.bfs("a").to_dict() == {"a": 0, "d": 1}
            assert others.bfs("a").to_dict() == {"a": 0, "b": 1, "z": 1, "c": 2}
            roads.unload()
            assert others.bfs("z").to_dict() == {"z": 0, "a": 1, "b": 2, "c": 3}
            with others.where(without=["b"]) as last:
                assert last.bfs("a").to_dict() == {"a": 0, "z": 1}


def test_a_graph_with_columns_thaws(client: distributed.Client) -> None:
    table = pa.table({"source": [0, 1], "target": [1, 2], "km": [1, 2]})
    with dbfs.load(table, edge_columns="km", ranks=2, client=client, name="fixed", replace=True) as graph:
        with graph.where(edges=pc.field("km") > 0) as view, view.where(vertices=[0, 1], name="inner") as inner:
            view.unload()
            with pytest.raises(InvalidOptionError, match="views that would not follow, 'inner'"):
                graph.thaw()
            inner.unload()
        graph.thaw()
        with graph.where(edges=pc.field("km") > 1) as view:
            graph.insert_edges({"source": [2], "target": [0], "km": [3]})
            assert view.bfs(0).to_dict() == {0: 0, 2: 1, 1: 2}
            graph.freeze()
            assert view.sssp(0, "km").to_dict() == {0: 0, 2: 3, 1: 5}


def test_the_estimate_counts_columns_of_graphs_that_change() -> None:
    table = pa.table({"source": [0, 1], "target": [1, 2], "km": [1, 2]})
    plain, kept = (
        dbfs.estimate(table, 2, source="source", target="target", edge_columns=columns, mutable=True)
        for columns in (None, "km")
    )
    assert {*kept.update} - {*plain.update} == {"next attributes"}
    assert kept.peak_bytes > plain.peak_bytes


@pytest.mark.parametrize("mutable", [False, True])
def test_views_out_of_use_give_way(client: distributed.Client, leaves_nothing: None, mutable: bool) -> None:
    table = pa.table({"source": [0, 1, 2], "target": [1, 2, 3], "km": [1, 2, 3]})
    options: dict[str, Any] = {"edge_columns": "km", "mutable": mutable, "ranks": 2, "client": client}
    with dbfs.load(table, **options, name="base", replace=True) as graph:
        views = [graph.where(edges=pc.field("km") > most) for most in (0, 1)]
        inner, named = views[0].where(without=[3]), graph.where(edges=pc.field("km") > 2, name="named")
        held = views[1].bfs(3)
        assert views[0].bfs(0).to_dict() == {0: 0, 1: 1, 2: 2, 3: 3}
        if mutable:
            graph.insert_edges({"source": [3], "target": [0], "km": [1]})
            assert views[0].bfs(0).to_dict() == {0: 0, 1: 1, 3: 1, 2: 2}
        versions = [view.record.version for view in (*views, inner)]
        # Nothing fits, so that all views out of use are dropped: those without a name, without results and calls.
        with dask.config.set({"dbfs.build.memory-share": 1e-9}):
            for call in (lambda: graph.where(without=[0]), lambda: dbfs.load("path:n=9", ranks=2, client=client)):
                with pytest.raises(GraphTooLargeError, match="Needed"):
                    call()
        dropped = [(status.name, status.dropped, sum(status.bytes_per_rank) > 0) for status in graph.views()]
        assert sorted(dropped) == sorted(
            [(views[0].name, True, False), (views[1].name, False, True), ("named", False, True)]
        )
        assert {status.name for status in dbfs.graphs(client=client)} == {"base", "named", views[1].name}
        # Made again, they give the same answers.
        assert inner.bfs(0).to_dict() == {0: 0, 1: 1, 2: 2}
        assert not any(status.dropped for status in [*graph.views(), *views[0].views()])
        assert views[0].bfs(3).to_dict() == ({3: 0, 0: 1, 2: 1, 1: 2} if mutable else {3: 0, 2: 1, 1: 2, 0: 3})
        assert held.to_dict() == {3: 0, 2: 1, 1: 2}
        assert [view.record.version for view in (views[0], inner)] == [versions[0], versions[2] + mutable]
        del inner, held
        if mutable:
            with dask.config.set({"dbfs.build.memory-share": 1e-9}), pytest.raises(GraphTooLargeError):
                graph.where(without=[0])
            graph.delete_edges([(0, 1)])
            assert views[0].bfs(0).to_dict() == {0: 0, 3: 1, 2: 2, 1: 3}
            assert views[0].version == versions[0] + 1
        with dask.config.set({"dbfs.build.memory-share": 1e-9}), pytest.raises(GraphTooLargeError):
            graph.where(without=[0])
        graph.unload()
        with pytest.raises(ResultReleasedError, match="was dropped when memory was needed, and can't be made again"):
            views[0].bfs(0)
        named.unload()


def test_what_updates_made_is_saved(roads: Graph, tmp_path: Any) -> None:
    roads.insert_edges({"source": ["a"], "target": ["d"], "km": [4]})
    roads.insert_edges({"source": ["b"], "target": ["a"], "kind": ["rail"], "km": [8]}, on_existing="update")
    roads.delete_edges([("b", "c")])
    roads.update_vertices({"vertex": ["d"], "pop": [1]})
    found = values(roads, *"abcd")
    assert found == [("a", "b", "rail", 8), ("a", "d", None, 4), ("c", "d", "road", 3)]
    with roads.where(edges=pc.field("km") > 3) as view:
        for graph, saved in ((roads, found), (view, found[:2])):
            graph.save(tmp_path / str(len(saved)))
            for ranks in (2, 3):
                options: dict[str, Any] = {"client": roads.gang.client, "ranks": ranks, "mutable": True}
                with dbfs.load(tmp_path / str(len(saved)), **options) as again:
                    assert values(again, *"abcd") == saved
                    with again.where(vertices=pc.field("pop") < 2) as few:
                        again.insert_edges([("d", "a"), ("d", "d")])
                        assert few.bfs("d").to_dict() == {"d": 0}
                        assert few.m == 1
    with pytest.raises(InvalidOptionError, match="log of versions"):
        table = pa.table({"source": [0], "target": [1], "km": [1]})
        options = {"checkpoint": tmp_path / "log", "mutable": True, "client": roads.gang.client}
        dbfs.load(table, edge_columns="km", **options)
