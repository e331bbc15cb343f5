"""Columns and views of graphs in the layout 2d: those of the same graph in 1d, on any grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dbfs
from dbfs.errors import InvalidVertexError

GENERATOR = np.random.default_rng(6)
M, N = 500, 70
TABLE = pa.table(
    {
        "source": GENERATOR.integers(0, N, M),
        "target": GENERATOR.integers(0, N, M),
        "weight": pa.array([None if value == 0 else int(value) for value in GENERATOR.integers(0, 9, M)]),
        "kind": pa.array([("road", "rail", None)[value] for value in GENERATOR.integers(0, 3, M)]),
    }
)
VERTICES = pa.table({"vertex": range(N), "group": [value % 3 for value in range(N)]})
COLUMNS = ["weight", "kind"]


def rows_of(graph: dbfs.Graph) -> list[Any]:
    left_out = [5, 6] if graph.deleted == 2 else range(2, N, 3) if graph.deleted else []
    found = graph.subgraph(sorted({*range(N)} - {*left_out}), columns=COLUMNS).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def assert_same(one: dbfs.Graph, other: dbfs.Graph, source: int) -> None:
    """The counts, the rows, the degrees and the distances are the same."""
    for count in ("n", "m", "input_edges", "self_loops", "duplicates", "max_degree", "deleted"):
        assert getattr(one, count) == getattr(other, count), count
    assert rows_of(one) == rows_of(other)
    degrees = [[each.tolist() for each in graph.degree_counts()] for graph in (one, other)]
    assert degrees[0] == degrees[1]
    expected = other.bfs(source).distances()
    for direction in ("top-down", *(["bottom-up"] if one.record.infos[0].has_parents else [])):
        found = one.bfs(source, direction=direction, predecessors=True, validate=True)
        np.testing.assert_array_equal(found.distances(), expected)


def test_a_view_of_a_grid(client: distributed.Client, leaves_nothing: None, tmp_path: Path) -> None:
    condition = (pc.field("weight") > 3) | (pc.field("kind") == "rail")
    with (
        dbfs.load(TABLE, client=client, ranks=4, layout="2d", edge_columns=COLUMNS) as grid,
        dbfs.load(TABLE.filter(condition), client=client, ranks=2, edge_columns=COLUMNS) as same,
        grid.where(edges=condition) as view,
    ):
        assert_same(view, same, 3)
        view.save(tmp_path / "view")
        with dbfs.load(tmp_path / "view", client=client, ranks=2) as again:
            assert rows_of(again) == rows_of(same)
        heavy = pc.field("weight") > 3
        with view.where(edges=heavy) as inner, same.where(edges=heavy) as other:
            np.testing.assert_array_equal(inner.sssp(3, "weight").distances(), other.sssp(3, "weight").distances())


@pytest.mark.full
@pytest.mark.matrix
@pytest.mark.parametrize(
    ("ranks", "layout"),
    [
        *((4, "2d"), (3, "2d:1x3"), (2, "2d:2x1")),
        *(pytest.param(ranks, layout, marks=pytest.mark.long) for ranks, layout in ((4, "2d:1x4"), (1, "2d"))),
    ],
)
@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("shape", ["undirected", "directed", "in-edges"])
def test_views_of_a_grid(
    client: distributed.Client, leaves_nothing: None, tmp_path: Path, ranks: int, layout: str, order: str, shape: str
) -> None:
    of_edges = {"directed": shape != "undirected", "in_edges": shape == "in-edges", "edge_columns": COLUMNS}
    options: dict[str, Any] = {"client": client, "vertices": VERTICES, "vertex_columns": "group", **of_edges}
    conditions: list[dict[str, Any]] = [
        {"edges": (pc.field("weight") > 3) | (pc.field("kind") == "rail")},
        {"vertices": pc.field("group") < 2, "edges": pc.field("weight").is_valid()},
        {"without": [5, 6]},
    ]
    with (
        dbfs.load(TABLE, ranks=ranks, layout=layout, order=order, **options) as grid,
        dbfs.load(TABLE, ranks=2, **options) as graph,
    ):
        assert grid.layout.startswith("2d")
        assert_same(grid, graph, 3)
        for condition in conditions:
            with grid.where(**condition) as view, graph.where(**condition) as same:
                assert_same(view, same, 3)
        with grid.where(**conditions[0]) as first, first.where(**conditions[2]) as view:
            with graph.where(**conditions[0]) as second, second.where(**conditions[2]) as same:
                assert_same(view, same, 3)
            with pytest.raises(InvalidVertexError, match="5"):
                view.bfs(5)
            first.save(tmp_path / "view")
        grid.save(tmp_path / "grid")
        for again_ranks, again_layout in ((ranks, "1d"), (2, "2d:1x2")):
            with dbfs.load(tmp_path / "grid", client=client, ranks=again_ranks, layout=again_layout) as again:
                assert_same(again, graph, 3)
        with (
            dbfs.load(tmp_path / "view", client=client, ranks=ranks) as again,
            graph.where(**conditions[0]) as same,
        ):
            assert_same(again, same, 3)


@pytest.mark.parametrize(("ranks", "layout"), [(3, "1d"), (4, "2d")])
@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("directed", [False, True])
def test_trees_have_a_row_for_each_parallel_edge(
    client: distributed.Client, ranks: int, layout: str, order: str, directed: bool
) -> None:
    options: dict[str, Any] = {"ranks": ranks, "layout": layout, "order": order, "directed": directed}
    with dbfs.load(TABLE, client=client, edge_columns=COLUMNS, **options) as graph:
        result = graph.bfs([3, 9], predecessors=True)
        plain, tree = result.tree(), result.tree(columns=COLUMNS).to_arrow()
    rows = [tuple(row.values()) for row in TABLE.to_pylist()]
    rows += [] if directed else [(target, source, *values) for source, target, *values in rows]
    edges = {tuple(row.values()) for row in plain.to_arrow().to_pylist()}
    expected = sorted((row for row in rows if row[:2] in edges), key=repr)
    found = [tuple(row.values()) for row in tree.to_pylist()]
    assert sorted(found, key=repr) == expected
    assert [row[:2] for row in found] == sorted(row[:2] for row in found)
