"""Vertices with new ids, which come with edges: random updates by two clients against NetworkX."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import networkx as nx
import numpy as np
import pyarrow.parquet as pq
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import EdgeInputError, GraphTooLargeError, InvalidOptionError, InvalidVertexError
from dbfs.features.living import living
from tests.support.named import word

ROOM = 40


@pytest.fixture
def both(client: distributed.Client, leaves_nothing: None) -> Iterator[tuple[distributed.Client, distributed.Client]]:
    with dbfs.connect(client.scheduler.address) as second:
        yield client, second


def check(graph: Graph, model: Any, source: Any) -> None:
    expected = dict(nx.single_source_shortest_path_length(model, source))
    result = graph.bfs(source, predecessors=True, validate=True)
    assert result.to_dict() == expected
    result.release()


@pytest.mark.parametrize("few", [4096, 0], ids=["by a message", "by tasks"])
@pytest.mark.parametrize(
    ("kind", "ranks", "directed"),
    [("strings", 2, False), ("integers", 3, True), pytest.param("tuples", 1, False, marks=pytest.mark.full)],
)
def test_random_updates_by_two_clients(
    both: tuple[distributed.Client, distributed.Client],
    monkeypatch: pytest.MonkeyPatch,
    few: int,
    kind: str,
    ranks: int,
    directed: bool,
) -> None:
    monkeypatch.setattr(living, "_FEW_EDGES", few)
    rng = np.random.default_rng(ranks + few)
    model: Any = nx.DiGraph() if directed else nx.Graph()
    nx.add_path(model, [word(vertex, kind) for vertex in range(3)])
    deleted = set[Any]()
    with (
        dbfs.load(model, client=both[0], ranks=ranks, mutable=True, room=ROOM, name="later") as graph,
        dbfs.open("later", client=both[1]) as other,
    ):
        follows = graph.bfs(word(0, kind), predecessors=True)
        for turn in range(8):
            which = (graph, other)[rng.integers(2)]
            words = [word(at, kind) for at in rng.integers(0, 3 + ROOM, (2, 3)).ravel().tolist()]
            batch = [pair for pair in zip(words[::2], words[1::2], strict=True) if not deleted & set(pair)]
            if not batch:
                continue
            if turn % 4 == 3:
                known = [pair for pair in batch if pair[0] in model and pair[1] in model]
                if known:
                    which.delete_edges(known)
                    model.remove_edges_from([pair for pair in known if model.has_edge(*pair)])
                gone = batch[0][0]
                if gone in model and gone != word(0, kind):
                    assert which.delete_vertices([gone]).ids == (gone,)
                    model.remove_node(gone)
                    deleted.add(gone)
            else:
                new = list(dict.fromkeys(one for pair in batch for one in pair if one not in model))
                assert sorted(which.insert_edges(batch).ids) == sorted(new)
                model.add_edges_from(batch)
            for each in (graph, other):
                check(each, model, word(0, kind))
                each.refresh()
                listed = each.ids().tolist()
                assert set(listed) == set(model) | deleted
                assert len(listed) == each.n == len(model) + len(deleted)
                assert [each.vertex(one) for one in listed] == list(range(each.n))
        follows.update()
        assert follows.to_dict() == dict(nx.single_source_shortest_path_length(model, word(0, kind)))


@pytest.mark.parametrize(("first", "kind"), [(0, "dense"), (1, "offset"), (2, "table")])
def test_integers_from_one_on_need_no_table(
    client: distributed.Client, leaves_nothing: None, first: int, kind: str
) -> None:
    edges = [(first + at, first + at + 1) for at in range(5)]
    with dbfs.load(edges, client=client, ranks=2, mutable=True, room=2) as graph:
        assert graph.record.ids.kind == kind
        assert ("ids" in dbfs.estimate(edges, 2).partition) == (kind == "table")
        if kind == "table":
            assert graph.insert_edges([(first, 99)]).ids == (99,)
        else:
            with pytest.raises(InvalidVertexError, match=rf"ids are {first}\.\.{first + 5}"):
                graph.insert_edges([(first, 99)])
            assert graph.insert_vertices(1).ids == (first + 6,)
            graph.insert_edges([(first, first + 6)])
        assert graph.bfs(first).to_dict() == {one: abs(one - first) for one in range(first, first + 6)} | {
            graph.ids()[-1]: 1
        }


def test_clients_that_insert_the_same_ids_at_once(both: tuple[distributed.Client, distributed.Client]) -> None:
    with (
        dbfs.load([("a", "b")], client=both[0], ranks=2, mutable=True, room=100, name="later") as graph,
        dbfs.open("later", client=both[1]) as other,
    ):
        gate, errors = threading.Barrier(2), list[BaseException]()

        def insert(which: Graph, order: int) -> None:
            try:
                for at in range(25)[::order]:
                    gate.wait(60)
                    which.insert_edges([("a", f"n{at}"), (f"n{at}", f"n{at + order}")])
            except BaseException as error:  # shown below
                errors.append(error)
                gate.abort()

        threads = [threading.Thread(target=insert, args=(which, order)) for which, order in ((graph, 1), (other, -1))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        ids = {"a", "b", *(f"n{at}" for at in range(-1, 26))}
        graph.refresh()
        assert graph.n == len(ids)
        assert set(graph.ids().to_pylist()) == set(graph.bfs("a").to_dict()) == ids


def test_a_refused_batch_leaves_no_id(
    client: distributed.Client, leaves_nothing: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with dbfs.load([("a", "b"), ("b", "c")], client=client, ranks=2, mutable=True, room=3) as graph:
        for few in (4096, 0):
            monkeypatch.setattr(living, "_FEW_EDGES", few)
            with pytest.raises(EdgeInputError, match=r"'x', 'y'|'y', 'x'"):
                graph.insert_edges([("x", "y"), ("x", "y"), ("a", "x")], strict=True)
            with pytest.raises(GraphTooLargeError, match=r"room for 3 more .* 4 new ids, among them 'd'.* room=4"):
                graph.insert_edges([("d", "e"), ("f", "g")])
            with pytest.raises(InvalidVertexError, match="'x' is not in"):
                graph.delete_edges([("a", "x")])
            with pytest.raises(InvalidVertexError, match="'x' is not in"):
                graph.bfs("x")
            assert (graph.version, graph.n) == (0, 3)
        assert graph.insert_edges([("c", "z")]).ids == ("z",)
        assert graph.insert_edges([("z", "x")]).ids == ("x",)
        assert graph.bfs("x").to_dict() == {"x": 0, "z": 1, "c": 2, "b": 3, "a": 4}
        graph.bfs("a").to_parquet(tmp_path / "labels")
        table = pq.read_table(tmp_path / "labels")
        assert dict(zip(*(table[name].to_pylist() for name in ("vertex", "distance")), strict=True)) == {
            one: at for at, one in enumerate("abczx")
        }
        graph.save(tmp_path / "saved")
        with pytest.raises(InvalidOptionError, match="2 ids that came after its load: load it on 2 ranks"):
            dbfs.load(tmp_path / "saved", client=client, ranks=1)
        with dbfs.load(tmp_path / "saved", client=client, ranks=2, mutable=True) as saved:
            assert saved.ids().to_pylist() == graph.ids().to_pylist()
            assert saved.bfs("x").to_dict() == {"x": 0, "z": 1, "c": 2, "b": 3, "a": 4}
            assert saved.insert_edges([("a", "x"), ("last", "z")]).ids == ("last",)
            assert saved.distance("last", "x") == 2
            saved.save(tmp_path / "again")
        names: Any = dbfs.from_file(tmp_path / "again").names()
        assert names.to_pylist() == ["a", "b", "c", "z", "x", "last"]
        graph.freeze()
        assert graph.bfs("a").depth == 4
        graph.thaw()
        assert graph.insert_edges([("a", "x"), ("a", "last")]).ids == ("last",)
        assert graph.bfs("last").depth == 3
