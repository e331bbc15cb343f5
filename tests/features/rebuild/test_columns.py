"""Graphs with columns, views and weights that lost workers: the same columns come back, or the loss is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.cluster.gang import joined_workers
from dbfs.errors import GraphLostError, InvalidOptionError, LabelsLostError
from dbfs.features.rebuild.lineage import Lineage
from dbfs.features.weights import paths as weights
from tests.support import oracle
from tests.support.losses import WORKERS, lose, replace_lost
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("leaves_nothing_behind")
ENDS = np.random.default_rng(8).integers(0, 60, (2, 300))
YEARS = np.arange(300) % 40
KINDS = np.array(["road", "rail", "ferry"])[np.arange(300) % 3]


def table() -> pa.Table:
    """Edges, of which some are parallel, with columns."""
    names = ([f"v{end:02}" for end in ends] for ends in ENDS)
    return pa.table([*map(pa.array, names), pa.array(YEARS), pa.array(KINDS)], ["source", "target", "year", "kind"])


def file_of(folder: Path) -> Path:
    path = folder / "edges.parquet"
    pq.write_table(table(), path, row_group_size=50)
    return path


def columns_of(graph: Graph) -> list[Any]:
    """Return what views and weights show of a graph's columns, in ids."""
    found: list[Any] = [graph.subgraph(["v01", "v02", "v03", "v04"], columns=["year", "kind"]).to_arrow().to_pylist()]
    found.append(graph.sssp("v01", "year").to_dict())
    for condition in (pc.field("year") < 9, pc.field("kind") == "rail"):
        with graph.where(edges=condition) as view:
            found += [view.m, view.bfs("v01", validate=True).to_dict(), view.sssp("v01", "year").to_dict()]
    return found


def of_rail() -> dict[str, int]:
    """Return the distances from v01 along edges of the kind rail, by SciPy."""
    passes = KINDS == "rail"
    found = np.unique(ENDS).tolist()
    at = np.searchsorted(found, ENDS)
    matrix = oracle.adjacency(len(found), at[0][passes], at[1][passes], directed=False)
    distances = oracle.distances(matrix, [found.index(1)])
    return {f"v{end:02}": int(each) for end, each in zip(found, distances, strict=True) if each >= 0}


@pytest.mark.full
@pytest.mark.matrix
@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("options", [{}, {"order": "degree"}, {"directed": True, "in_edges": True}])
def test_columns_come_back_with_the_edges(
    mortal: distributed.Client, tmp_path: Path, options: dict[str, Any], rank: int
) -> None:
    columns = ["year", "kind"]
    with dbfs.load(file_of(tmp_path), client=mortal, name="web", edge_columns=columns, **options) as graph:
        before, schema = columns_of(graph), graph.edge_columns
        lose(mortal, graph.gang.addresses[rank])
        assert columns_of(dbfs.open("web", client=mortal)) == before
        assert columns_of(graph) == before
        assert graph.edge_columns == schema
        assert graph.state().rebuilt == 1
        with graph.where(edges="kind = 'rail'") as view:
            assert options.get("directed") or view.bfs("v01").to_dict() == of_rail()
        graph.rebalance(ranks=2)
        assert columns_of(graph) == before


@pytest.mark.parametrize("layout", ["1d", "2d"])
def test_weights_begin_again(
    mortal: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """The ranks make the columns ready once more, and their stripes, since those of before are gone."""
    prepare, victims = weights.prepare, [1]

    def losing(graph: Any, *arguments: Any, **options: Any) -> Any:
        prepared = prepare(graph, *arguments, **options)
        if victims:
            lose(mortal, graph.gang.addresses[victims.pop()])
        return prepared

    with dbfs.load(file_of(tmp_path), client=mortal, edge_columns="year", layout=layout) as graph:
        unread = graph.sssp("v01", "year")
        expected = graph.sssp("v01", "year").to_dict()
        monkeypatch.setattr(weights, "prepare", losing)
        again = graph.sssp("v01", "year")
        assert not victims
        assert (again.attempts, again.to_dict()) == (2, expected)
        again.validate()
        for call in (unread.distances, unread.validate):
            with pytest.raises(LabelsLostError, match="built again since"):
                call()


def test_paths_begin_again(mortal: distributed.Client) -> None:
    def found(graph: Graph) -> list[Any]:
        ways = [sorted(graph.paths(1, 300)), graph.distance(1, 300), len(graph.path(1, 300))]
        return [
            *ways,
            graph.count_paths(1).to_pandas().to_dict(),
            [*map(int, graph.pair_distances([(1, 300), (2, 3)]))],
        ]

    # The ranks compare ids by the order, which they have to be given anew.
    with dbfs.load("kronecker:scale=9", client=mortal, order="degree", name="web") as graph:
        before, other = found(graph), dbfs.open("web", client=mortal)
        path = other.path(1, 300)
        lose(mortal, graph.gang.addresses[1])
        assert found(graph) == before
        assert other.path(1, 300) == path


def test_columns_of_another_source_are_refused(
    mortal: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dbfs.load(file_of(tmp_path), client=mortal, edge_columns="year") as graph:
        lose(mortal, graph.gang.addresses[1])
        opened = Lineage.opened
        monkeypatch.setattr(Lineage, "opened", lambda *given: opened(*given).keeping(["kind"]))
        with pytest.raises(GraphLostError, match="has other edges or columns than when it was read"):
            graph.sssp("v01", "year")


def test_what_came_from_a_clients_memory_is_told(mortal: distributed.Client, tmp_path: Path) -> None:
    path, people = file_of(tmp_path), pa.table({"id": ["v01"], "age": [7]})
    with (
        dbfs.load(path, client=mortal, vertices=people, vertex_columns="age") as graph,
        dbfs.load(table(), client=mortal, edge_columns="year") as of_memory,
    ):
        with pytest.raises(InvalidOptionError, match="can't be built on other ranks: the columns of its vertices"):
            graph.rebalance(ranks=2)
        lose(mortal, graph.gang.addresses[1])
        with pytest.raises(GraphLostError, match="columns of its vertices came from a client's memory.*load it again"):
            graph.where(vertices=pc.field("age") > 3)
        with pytest.raises(GraphLostError, match="edges came from a client's memory"):
            of_memory.sssp("v01", "year")


def test_a_checkpoint_has_the_columns_of_a_clients_memory(mortal: distributed.Client, tmp_path: Path) -> None:
    people = pa.table({"id": ["v01", "v02"], "age": [7, 8]})
    options: dict[str, Any] = {"vertices": people, "vertex_columns": "age", "checkpoint": tmp_path / "kept"}
    with dbfs.load(table(), client=mortal, edge_columns=["year", "kind"], **options) as graph:
        before = columns_of(graph)
        lose(mortal, graph.gang.addresses[1])
        assert columns_of(graph) == before
        lose(mortal, graph.gang.addresses[0])
        with graph.where(vertices=pc.field("age") > 7) as view:
            assert view.bfs("v02").to_dict() == {"v02": 0}
        assert graph.state().rebuilt == 2
    # Of a saved graph those come back that were chosen.
    with dbfs.load(tmp_path / "kept", client=mortal, edge_columns=["kind"]) as graph:
        lose(mortal, graph.gang.addresses[1])
        assert graph.subgraph(["v01", "v02"], columns=["kind"]).to_arrow().column_names[2:] == ["kind"]
        assert ([*graph.edge_columns], [*graph.vertex_columns]) == (["kind"], ["age"])


@pytest.mark.parametrize("by", ["columns", pytest.param("ids", marks=pytest.mark.full)])
def test_a_view_is_lost_and_its_base_comes_back(mortal: distributed.Client, tmp_path: Path, by: str) -> None:
    """They share the tables of ids, and the order. Those of the ranks that stand serve the base."""
    kept, given = {"columns": ("kind", {"edges": "kind = 'rail'"}), "ids": (None, {"without": ["v01"]})}[by]
    with dbfs.load(file_of(tmp_path), client=mortal, name="web", edge_columns=kept, order="degree") as graph:
        view, source = graph.where(**given, name="part"), "v02"
        before, of_base = view.bfs(source).to_dict(), graph.bfs(source).to_dict()
        assert before != of_base
        lose(mortal, graph.gang.addresses[1])
        for _ in range(2):
            with pytest.raises(GraphLostError, match="lost rank 1.*is a view of web.*where.. makes the view again"):
                view.bfs(source)
            assert graph.bfs(source, validate=True).to_dict() == of_base
        with pytest.raises(GraphLostError, match="part.*is a view of web"):
            dbfs.open("part", client=mortal).bfs(source)
        # What is left of the view keeps no name.
        with graph.where(**given, name="part") as again:
            view.unload()
            assert again.bfs(source, validate=True).to_dict() == before
        assert graph.bfs(source).to_dict() == of_base


def test_a_view_stands_while_its_base_is_spread_anew(mortal: distributed.Client, tmp_path: Path) -> None:
    with dbfs.load(file_of(tmp_path), client=mortal, edge_columns="kind", order="degree") as graph:
        view = graph.where(edges="kind = 'rail'")
        graph.rebalance(ranks=2)
        assert [status.name for status in graph.views()] == [view.name]
        assert view.bfs("v01", validate=True).to_dict() == of_rail()
        with pytest.raises(InvalidOptionError, match="is a view of"):
            view.rebalance(ranks=2)
        lone = next(at for at in view.gang.addresses if at not in graph.gang.addresses)
        lose(mortal, lone)
        with pytest.raises(GraphLostError, match="is a view of"):
            view.bfs("v01")
        view.unload()
        with graph.where(edges="kind = 'rail'") as again:
            assert again.bfs("v01").to_dict() == of_rail()
        assert graph.state().rebuilt == 1


@pytest.mark.full
def test_columns_of_a_retired_worker_move(mortal: distributed.Client, tmp_path: Path) -> None:
    path = file_of(tmp_path)
    with dbfs.load(path, client=mortal, edge_columns=["year", "kind"], order="degree") as graph:
        before = columns_of(graph)
        path.unlink()
        replace_lost(mortal, WORKERS + 1)
        mortal.retire_workers([graph.gang.addresses[1]])
        eventually(lambda: len(joined_workers(mortal)) == WORKERS)
        assert columns_of(graph) == before
        assert graph.state().rebuilt == 1
