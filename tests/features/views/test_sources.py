"""Columns of the edges of generators and of files: the view of a graph is the graph of the filtered table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import distributed
import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dbfs
from dbfs.edges.edge_list import EdgeList
from dbfs.errors import EdgeInputError, FormatError, InvalidOptionError


def table_of(edges: EdgeList, columns: list[str]) -> pa.Table:
    """The edges and their columns, as their pieces have them, of one cut."""
    kept = edges.keeping(columns)
    assert kept.attributes is not None
    (piece,), (rows,) = kept.cut(2**40), kept.attributes.cut(2**40)
    source, target = piece.read()
    table = rows.attributes()
    return pa.table({"source": source, "target": target} | {name: table[name] for name in table.column_names})


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ("kronecker:scale=6", {"ranks": 3}),
        ("uniform:n=60,m=300,directed=true", {"ranks": 2, "in_edges": True}),
        ("grid2d:side=8", {"ranks": 4, "order": "degree"}),
        ("geometric:n=200,radius=0.1", {"ranks": 1}),
    ],
)
def test_generators_draw_columns(client: distributed.Client, spec: str, options: dict[str, Any]) -> None:
    columns = ["weight", "kind=road|rail"]
    edges = dbfs.edges.generate.parse(spec)
    table = table_of(edges, columns)
    condition = (pc.field("weight") < 100) & (pc.field("kind") == "road")
    passing = table.filter(condition)
    ends = tuple(passing[end].to_numpy() for end in ("source", "target"))
    same = dbfs.from_arrays(*ends, n=edges.n, directed=edges.directed)
    with (
        dbfs.load(spec, edge_columns=columns, client=client, **options) as graph,
        graph.where(edges=condition) as view,
        dbfs.load(same, client=client, ranks=2) as filtered,
    ):
        assert graph.edge_columns == {"weight": pa.int64(), "kind": pa.string()}
        assert view.input_edges == passing.num_rows
        for source in ends[0][:3].tolist():
            np.testing.assert_array_equal(view.bfs(source).distances(), filtered.bfs(source).distances())


def test_a_generated_column_that_is_none(client: distributed.Client) -> None:
    with pytest.raises(InvalidOptionError, match="column 'weight' can't be drawn of '9..1'"):
        dbfs.load("path:n=9", edge_columns="weight=9..1", client=client)


GRAPH = {(1, 2): 7, (1, 3): -2, (2, 3): 12, (3, 4): 5, (4, 6): 9}
"""Weights of undirected edges between vertices 1..6, of which 5 has no edge."""


def both(edges: dict[tuple[int, int], Any]) -> list[tuple[int, int, Any]]:
    return [row for (u, v), weight in edges.items() for row in ((u, v, weight), (v, u, weight))]


def gr(rows: list[tuple[int, int, Any]]) -> str:
    """Arcs, with comments among them."""
    lines = [f"a {u} {v}  {weight}\nc a comment" for u, v, weight in rows]
    return "\n".join(["c roads", f"p sp 6 {len(rows)}", *lines, ""])


def mtx(rows: list[tuple[int, int, Any]], banner: str) -> str:
    lines = [f"{u} {v}\t{weight}" for u, v, weight in rows]
    return "\n".join([f"%%MatrixMarket matrix coordinate {banner}", f"6 6 {len(rows)}", *lines, "% end", ""])


def metis(rows: list[tuple[int, int, Any]], fmt: str = "1") -> str:
    lines = [" ".join(f"{v} {weight}" for u, v, weight in rows if u == vertex) for vertex in range(1, 7)]
    return "\n".join([f"6 {len(rows) // 2} {fmt}", *lines, ""])


def weights_of(graph: dbfs.Graph) -> list[tuple[int, int, Any]]:
    """The rows of a graph: of an undirected one each edge once, the smaller end first."""
    table = graph.subgraph(graph.ids(), columns=["weight"]).to_arrow()
    rows = zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
    return sorted(row if graph.directed else (min(row[:2]), max(row[:2]), row[2]) for row in rows)


ONCE = sorted((u, v, weight) for (u, v), weight in GRAPH.items())
POSITIVE = {ends: abs(weight) for ends, weight in GRAPH.items()}
FILES: dict[str, tuple[str, dict[str, Any], list[tuple[int, int, Any]]]] = {
    "arcs.gr": (gr(both(GRAPH)), {}, sorted(both(GRAPH))),
    "both.gr": (gr(both(GRAPH)), {"directed": False}, sorted(ONCE * 2)),
    "once.gr": (gr(ONCE), {"directed": False}, ONCE),
    "general.mtx": (mtx(both(GRAPH), "integer general"), {}, sorted(both(GRAPH))),
    "both.mtx": (mtx(both(GRAPH), "integer general"), {"directed": False}, sorted(ONCE * 2)),
    "symmetric.mtx": (mtx([(v, u, w) for u, v, w in ONCE], "integer symmetric"), {}, ONCE),
    "real.mtx": (
        mtx([(u, v, f"+{w / 8:.3e}") for u, v, w in both(GRAPH)], "real general"),
        {},
        sorted((u, v, w / 8) for u, v, w in both(GRAPH)),
    ),
    "skew.mtx": (
        mtx([(v, u, w) for u, v, w in ONCE], "real skew-symmetric"),
        {"directed": True},
        sorted((v, u, w) for u, v, w in ONCE),
    ),
    "weights.graph": (metis(both(POSITIVE)), {}, sorted((u, v, w) for (u, v), w in POSITIVE.items())),
    "directed.graph": (metis(both(POSITIVE)), {"directed": True}, sorted(both(POSITIVE))),
}


@pytest.mark.matrix
@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("name", FILES)
def test_weights_of_files(client: distributed.Client, tmp_path: Path, name: str, ranks: int, order: str) -> None:
    text, options, expected = FILES[name]
    path = tmp_path / name
    path.write_text(text)
    with (
        dask.config.set({"dbfs.build.piece-edges": 2}),
        dbfs.load(path, edge_columns="weight", client=client, ranks=ranks, order=order, **options) as graph,
    ):
        assert graph.edge_columns == {"weight": pa.float64() if name in ("real.mtx", "skew.mtx") else pa.int64()}
        assert weights_of(graph) == expected
        with graph.where(edges=pc.field("weight") > 6) as view:
            assert weights_of(view) == [row for row in expected if row[2] > 6]
            view.bfs(1, validate=True, direction="bottom-up" if not graph.directed else "top-down")


def other_way(edges: dict[tuple[int, int], int]) -> list[tuple[int, int, Any]]:
    return [(u, v, 8 if (u, v) == (3, 2) else weight) for u, v, weight in both(edges)]


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.gr", gr(other_way(GRAPH))),
        ("a.mtx", mtx(other_way(GRAPH), "integer general")),
        ("a.graph", metis(other_way(POSITIVE))),
    ],
)
def test_two_directions_with_other_values(
    client: distributed.Client, leaves_nothing: None, tmp_path: Path, name: str, text: str, order: str, ranks: int
) -> None:
    path = tmp_path / name
    path.write_text(text)
    words = (
        r"a\.\w+: the edge from (2 to 3 has \[12\], .* \[8\]|3 to 2 has \[8\], .* \[12\]);.*directed=True keeps both"
    )
    options: dict[str, Any] = {"client": client, "ranks": ranks, "order": order, "edge_columns": "weight"}
    with pytest.raises(EdgeInputError, match=words):
        dbfs.load(path, directed=False, **options)
    with dbfs.load(path, directed=True, **options) as graph:
        assert (3, 2, 8) in weights_of(graph)


@pytest.mark.parametrize(
    ("name", "text", "options", "words"),
    [
        ("a.gr", gr([(1, 2, "4.5")]), {}, "column 'weight' can't be kept as int64: .*4.5"),
        ("a.gr", gr([(1, 2, 2**63)]), {}, "column 'weight' can't be kept as int64: .*9223372036854775808"),
        ("a.gr", "p tw 2 1\n1 2\n", {}, "has no weights"),
        ("a.mtx", mtx([(1, 2, "x")], "real general"), {}, "column 'weight' can't be kept as double: .*x"),
        ("a.mtx", mtx([(1, 2, "")], "pattern general"), {}, "has no weights"),
        ("a.mtx", mtx([(1, 2, "1 2")], "complex general"), {}, "has no weights"),
        ("a.mtx", mtx([(2, 1, "3")], "real skew-symmetric"), {}, "skew-symmetric.*directed=True keeps"),
        ("a.mtx", mtx([(2, 1, "3")], "real general"), {"edge_columns": "value"}, "no column 'value'.*'weight'"),
        ("a.graph", metis(both({(1, 2): 2**63 - 1})), {}, "a weight in the line of vertex 1 is past 2\\^63-2"),
        ("a.graph", metis(both({(1, 2): 10**25})), {}, "a weight in the line of vertex 1 is past 2\\^63-2"),
        ("a.graph", "2 1\n2\n1\n", {}, "has no weights"),
    ],
)
def test_weights_that_are_none(
    client: distributed.Client,
    leaves_nothing: None,
    tmp_path: Path,
    name: str,
    text: str,
    options: dict[str, Any],
    words: str,
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises((EdgeInputError, FormatError), match=words):
        dbfs.load(tmp_path / name, client=client, **{"edge_columns": "weight"} | options)
    if "skew" not in text and "value" not in options.values():
        dbfs.load(tmp_path / name, client=client).unload()


@pytest.mark.parametrize("names", [["a", "b", "c", "d"], [10, 20, 30, 40]])
def test_attributes_of_networkx(client: distributed.Client, names: list[Any]) -> None:
    graph = nx.path_graph(names)
    graph.add_node(names[0], group="x", age=3)
    graph.add_node(names[2], group="y")
    graph.add_edge(names[0], names[1], km=1.5)
    options: dict[str, Any] = {"client": client, "ranks": 2, "edge_columns": "km"}
    with dbfs.load(graph, vertex_columns=["group", "age"], **options) as loaded:
        assert loaded.vertex_columns == {"group": pa.string(), "age": pa.int64()}
        assert loaded.where(vertices=pc.field("group").is_valid()).deleted == 2
        assert loaded.where(vertices=pc.field("age") == 3).bfs(names[0]).to_dict() == {names[0]: 0}
        back = loaded.subgraph(names[::-1], columns="km", vertex_columns=["age", "group"]).to_networkx()
        assert nx.utils.graphs_equal(back, graph)
        assert loaded.khop(names[0], 1).subgraph(vertex_columns="age").vertex_columns["age"].to_pylist() == [3, None]
        with pytest.raises(InvalidOptionError, match=r"no column 'km' of its vertices. Its columns: .*group.*age"):
            loaded.subgraph(names, vertex_columns="km")
    with pytest.raises(EdgeInputError, match="its nodes has no column 'aged'; did you mean 'age'"):
        dbfs.load(graph, vertex_columns="aged", client=client)
    with pytest.raises(EdgeInputError, match="give one by vertices="):
        dbfs.load(nx.relabel_nodes(graph, {names[0]: 1.5j}), vertex_columns="age", client=client)
