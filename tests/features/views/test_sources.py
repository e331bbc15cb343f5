"""Columns of the edges of generators and of files: the view of a graph is the graph of the filtered table."""

from __future__ import annotations

from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dbfs
from dbfs.edges.edge_list import EdgeList
from dbfs.errors import InvalidOptionError


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
