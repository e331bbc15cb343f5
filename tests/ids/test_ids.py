"""Callers name vertices by their ids: integers, strings, tuples; every call takes and returns them, on any ranks."""

import asyncio
import itertools
import time
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

import dbfs
from dbfs import asynchronous
from dbfs.assembly import Graph
from dbfs.cli import main
from dbfs.cli.common import parse_id
from dbfs.errors import GraphNotFoundError, InvalidOptionError, InvalidVertexError, InvalidVertexTypeError
from dbfs.graph import ids as lookups
from dbfs_workers.ids.codes import _IntegerCodes as Codes
from dbfs_workers.ids.table import IdType
from tests.support import oracle
from tests.support.graphs import random

N, SRC, DST = random(60, 90, 3)
USED = np.unique(np.concatenate([SRC, DST]))

# The id of vertex v of the random graph, for each kind of id. No order of ids is that of the vertices.
KINDS: dict[str, Any] = {
    "dense": lambda v: int(np.searchsorted(USED, v)),
    "integers": lambda v: 10**12 - 7 * int(v),
    "strings": lambda v: f"Zoë {v * 37 % 61}",
    "tuples": lambda v: (f"street {v % 7}", int(v)),
}


def table(kind: str) -> tuple[Any, dict[str, Any]]:
    """The edges as a table of the ids, and the names of its columns."""
    name = KINDS[kind]
    src, dst = [name(v) for v in SRC], [name(v) for v in DST]
    if kind != "tuples":
        return pa.table({"src": src, "dst": dst}), {"source": "src", "target": "dst"}
    columns = {f"{end}{part}": [one[part] for one in ids] for end, ids in (("s", src), ("t", dst)) for part in (0, 1)}
    return pa.table(columns), {"source": ["s0", "s1"], "target": ["t0", "t1"]}


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_all_calls_speak_ids(
    client: distributed.Client, leaves_nothing: None, kind: str, order: str, ranks: int
) -> None:
    edges, columns = table(kind)
    name = KINDS[kind]
    ids = sorted({name(v) for v in USED})
    at = {one: vertex for vertex, one in enumerate(ids)}
    src, dst = ([at[name(v)] for v in end] for end in (SRC, DST))
    matrix = oracle.adjacency(len(ids), np.array(src), np.array(dst), directed=False)
    source = name(SRC[0])
    expected = oracle.distances(matrix, [at[source]])
    with dbfs.load(edges, client=client, ranks=ranks, order=order, **columns) as graph:
        assert graph.record.ids.kind == ("dense" if kind == "dense" else "table")
        assert graph.ids().tolist() == ids
        assert graph.vertices_of(ids[::-1]).tolist() == list(range(len(ids)))[::-1]
        assert graph.ids_of(np.arange(len(ids))[::-1]).tolist() == ids[::-1]
        assert [graph.id_of(vertex) for vertex in (0, len(ids) - 1)] == [ids[0], ids[-1]]
        assert [graph.vertex(one) for one in ids[:3]] == [0, 1, 2]
        result = graph.bfs(source, predecessors=True, validate=True)
        assert result.sources == (source,)
        np.testing.assert_array_equal(result.distances(), expected)
        assert result.vertices().tolist() == [one for one in ids if expected[at[one]] >= 0]
        assert result.vertices_at(2).tolist() == [one for one in ids if expected[at[one]] == 2]
        far = ids[int(expected.argmax())]
        path = result.path_to(far)
        assert (path[0], path[-1], len(path)) == (source, far, expected.max() + 1)
        assert all(matrix[at[one], at[other]] for one, other in itertools.pairwise(path))
        assert graph.khop(source, 1).tolist() == [one for one in ids if 0 <= expected[at[one]] <= 1]
        assert graph.bfs(source, targets=[far]).depth == expected.max()
        several = [ids[0], source]
        np.testing.assert_array_equal(
            graph.bfs(several).distances(), oracle.distances(matrix, [at[one] for one in several])
        )
        assert [one.sources for one in graph.bfs_many(several)] == [(one,) for one in several]
        assert [one.sources for one in graph.bfs_stream(iter(several))] == [(one,) for one in several]
        sampled = graph.sample_sources(5)
        assert set(sampled) <= set(ids)
        largest = graph.components()
        assert largest.vertices(0).tolist() == [ids[v] for v in np.flatnonzero(largest.labels == 0)]
        bounds = graph.eccentricity_bound(source)
        assert {bounds.centre, *bounds.ends} <= set(ids)
        dbfs.validate(graph, dbfs.Labels([source], expected))


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("engine", ["resident", "taskgraph"])
@pytest.mark.parametrize("kind", ["integers", "strings", "tuples"])
def test_labels_of_both_engines_are_those_of_the_ids(
    client: distributed.Client, kind: str, engine: str, directed: bool, ranks: int
) -> None:
    edges, columns = table(kind)
    name = KINDS[kind]
    ids = sorted({name(v) for v in USED})
    at = {one: vertex for vertex, one in enumerate(ids)}
    src, dst = (np.array([at[name(v)] for v in end]) for end in (SRC, DST))
    matrix = oracle.adjacency(len(ids), src, dst, directed=directed)
    source = name(SRC[0])
    expected = oracle.distances(matrix, [at[source]])
    reached = {one: int(expected[at[one]]) for one in ids if expected[at[one]] >= 0}
    far = max(reached, key=reached.__getitem__)
    with dbfs.load(edges, client=client, ranks=ranks, directed=directed, **columns) as graph:
        result = graph.bfs(source, predecessors=True, engine=engine, validate=True)
        assert (result.engine, result.sources) == (engine, (source,))
        assert result.to_dict() == reached
        oracle.assert_valid_parents(matrix, expected, result.predecessors(), [at[source]])
        for row in result.to_arrow().to_pylist():
            vertex, parent = (tuple(one.values()) if isinstance(one, dict) else one for one in list(row.values())[::2])
            assert row["distance"] == reached[vertex]
            assert parent is None or (matrix[at[parent], at[vertex]] and reached[parent] == reached[vertex] - 1)
        for target in reached:
            path = result.path_to(target)
            assert (path[0], path[-1], len(path)) == (source, target, reached[target] + 1)
            assert all(matrix[at[one], at[other]] for one, other in itertools.pairwise(path))
        assert all(result.path_to(one) == [] for one in ids if one not in reached)
        ended = graph.bfs(source, targets=[far, source], engine=engine)
        assert ended.to_dict() == {one: distance for one, distance in reached.items() if distance <= reached[far]}


def test_sampled_ids_are_the_same_for_any_ranks(client: distributed.Client) -> None:
    edges, columns = table("strings")
    samples = []
    for ranks in (1, 3):
        with dbfs.load(edges, client=client, ranks=ranks, **columns) as graph:
            samples.append((graph.sample_sources(9), graph.ids().tolist()))
    assert samples[0] == samples[1]


FILES = {
    "karate.mtx": "%%MatrixMarket matrix coordinate pattern symmetric\n4 4 3\n2 1\n3 2\n4 3\n",
    "path.graph": "4 3\n2\n1 3\n2 4\n3\n",
    "path.gr": "p tw 4 3\n1 2\n2 3\n3 4\n",
    "sparse.txt": "1 30\n30 77\n77 900\n",
}


@pytest.mark.parametrize("name", FILES)
def test_the_ids_of_a_file_are_the_ids(client: distributed.Client, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FILES[name])
    ids = [1, 30, 77, 900] if name == "sparse.txt" else [1, 2, 3, 4]
    with dbfs.load(tmp_path / name, client=client, ranks=2) as graph:
        assert graph.ids().tolist() == ids
        result = graph.bfs(ids[1], predecessors=True, validate=True)
        assert result.distances().tolist() == [1, 0, 1, 2]
        assert result.path_to(ids[3]) == ids[1:]
        assert graph.khop(ids[0], 1).tolist() == ids[:2]
        with pytest.raises(InvalidVertexError, match="source 0 is not in "):
            graph.bfs(0)
    with dbfs.load(tmp_path / name, client=client, ranks=2, ids="dense") as graph:
        assert graph.ids().tolist() == [0, 1, 2, 3]
        assert graph.bfs(1).distances().tolist() == [1, 0, 1, 2]
        with pytest.raises(InvalidVertexError, match=r"source 4 is not in .*: vertices are 0\.\.3"):
            graph.bfs(4)


def test_arrays_are_compacted_unless_n_is_given(client: distributed.Client) -> None:
    src, dst = np.array([5, 1_000_003]), np.array([900, 5])
    with dbfs.load((src, dst), client=client, ranks=2) as graph:
        assert (graph.n, graph.ids().tolist()) == (3, [5, 900, 1_000_003])
    with dbfs.load(dbfs.from_arrays(src, dst, n=2_000_000), client=client, ranks=2) as graph:
        assert (graph.n, graph.record.ids.kind) == (2_000_000, "dense")
    with pytest.raises(InvalidOptionError, match="unknown ids 'sparse'; choose one of given, dense"):
        dbfs.load((src, dst), client=client, ids="sparse")


@pytest.fixture(scope="module")
def named(client: distributed.Client) -> Any:
    pairs = [("alice", "bob"), ("bob", "carol"), ("carol", "dave"), ("erin", "frank")]
    edges = pa.table({"a": [one for one, _ in pairs], "b": [other for _, other in pairs]})
    with dbfs.load(edges, client=client, ranks=3, source="a", target="b", name="friends") as graph:
        yield graph


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ("alise", InvalidVertexError, "source 'alise' is not in friends; ids near it are 'alice'$"),
        ("Alice", InvalidVertexError, "ids near it are 'alice'$"),
        ("CAROL", InvalidVertexError, "ids near it are 'carol'$"),
        ("xcarol", InvalidVertexError, "ids near it are 'carol'$"),
        ("zob", InvalidVertexError, "ids near it are 'bob'$"),
        ("rfank", InvalidVertexError, "ids near it are 'frank'$"),
        ("", InvalidVertexError, "source '' is not in friends; next to it in order are 'alice'$"),
        ("dxxx", InvalidVertexError, "next to it in order are 'dave', 'erin'$"),
        ("zoe", InvalidVertexError, "source 'zoe' is not in friends; next to it in order are 'frank'$"),
        ("\ud800", InvalidVertexError, r"source '\\ud800' is not in friends"),
        (5, InvalidVertexTypeError, r"source must be a string, as the ids of friends are, not 5 \(int\)"),
        (None, InvalidVertexTypeError, "source must be a string, .*, not None"),
        (b"alice", InvalidVertexTypeError, "source must be a string, .*, not b'alice'"),
        (["alice", 5], InvalidVertexTypeError, "source must be a string, .*, not 5"),
        (np.array([1.5]), InvalidVertexTypeError, "source must be a string, .*, not 1.5"),
        (pa.array([1]), InvalidVertexTypeError, "source must be a string, .*, not 1"),
        (pa.array(["alice", None]), InvalidVertexTypeError, "source: 1 of 2 ids are null"),
    ],
)
def test_wrong_strings(named: Graph, given: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        named.bfs(given)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (
            ("x", 2),
            InvalidVertexError,
            r"source \('x', 2\) is not in a, b -> c, d; ids near it are \('x', 1\), \('y', 5\)$",
        ),
        (("x", 2**70), InvalidVertexError, r"source \('x', \d+\) is not in a, b -> c, d$"),
        (("x",), InvalidVertexTypeError, r"source must be a tuple \(string, integer\), .*, not \('x',\) \(tuple\)"),
        ((1, "x"), InvalidVertexTypeError, r"source must be a tuple \(string, integer\), .*, not \(1, 'x'\)"),
        (("x", True), InvalidVertexTypeError, r"not \('x', True\)"),
        ("x", InvalidVertexTypeError, "source must be a tuple"),
        ([("x", 1), "x"], InvalidVertexTypeError, "source must be a tuple"),
    ],
)
def test_wrong_tuples(client: distributed.Client, given: Any, error: type[Exception], words: str) -> None:
    edges = pa.table({"a": ["x", "y"], "b": [1, 5], "c": ["z", "x"], "d": [0, 1]})
    with dbfs.load(edges, client=client, ranks=2, source=["a", "b"], target=["c", "d"]) as graph:
        with pytest.raises(error, match=words):
            graph.bfs(given)


def test_many_forms_of_several_ids(named: Graph) -> None:
    for given in (
        ["alice", "erin"],
        ("alice", "erin"),
        {"alice": 1, "erin": 2}.keys(),
        np.array(["alice", "erin"]),
        pd.Series(["alice", "erin"]),
        pa.array(["alice", "erin"]),
        pa.chunked_array([["alice"], ["erin"]]),
    ):
        assert named.bfs(given).sources == ("alice", "erin")
        assert named.vertices_of(given).tolist() == [0, 4]
    assert named.bfs(np.str_("alice")).sources == named.bfs(np.array("alice")).sources == ("alice",)


def test_lookups_are_kept_and_many_ids_go_as_one_array(named: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    calls = lookups.ask_ranks

    def count(*arguments: Any) -> Any:
        sent.append(arguments)
        return calls(*arguments)

    monkeypatch.setattr(lookups, "ask_ranks", count)
    fresh = dbfs.open("friends", client=named.gang.client)
    for _ in range(3):
        assert fresh.vertex("carol") == 2
        assert fresh.id_of(2) == "carol"
        assert fresh.id_of(3) == "dave"
        assert fresh.vertex("carol") == 2
    assert len(sent) == 2
    monkeypatch.setattr(lookups, "MOST_ANSWERS", 0)
    assert fresh.vertices_of(pa.array(["frank", "alice"])).tolist() == [5, 0]
    with pytest.raises(InvalidVertexError, match="id 'alina' is not in friends"):
        fresh.vertices_of(pa.array(["frank", "alina"]))


def test_a_graph_that_another_client_unloaded(client: distributed.Client) -> None:
    edges, columns = table("strings")
    mine = dbfs.load(edges, client=client, ranks=2, name="gone", **columns)
    dbfs.open("gone", client=client).unload()
    # The workers free the tables a little later.
    with pytest.raises(GraphNotFoundError, match="gone"):
        for _ in range(100):
            mine.ids()
            time.sleep(0.05)
    with pytest.raises(GraphNotFoundError, match="gone: the graph was unloaded"):
        mine.vertex("Zoë 1")


def test_asynchronous_calls_speak_ids(named: Graph) -> None:
    async def go(address: str) -> None:
        async with distributed.Client(address, asynchronous=True) as there:
            graph = await asynchronous.open("friends", client=there)
            result = await graph.bfs("alice", predecessors=True)
            assert await result.path_to("dave") == ["alice", "bob", "carol", "dave"]
            assert (await graph.khop("alice", 1)).tolist() == ["alice", "bob"]
            assert (await graph.vertex("erin"), await graph.id_of(4)) == (4, "erin")
            components = await graph.components()
            assert components.labels.tolist() == [0, 0, 0, 0, 1, 1]
            assert (await components.vertices(1)).to_pylist() == ["erin", "frank"]
            assert (components.count, components.isolated) == (2, 0)

    asyncio.run(go(named.gang.client.scheduler.address))


@pytest.mark.full
def test_the_command_line_takes_the_ids_of_a_file(client: distributed.Client, tmp_path: Path) -> None:
    def run(file: str, *arguments: str) -> str:
        address = client.scheduler.address
        path = tmp_path / file
        path.write_text(FILES[file])
        return CliRunner().invoke(main, ["run", str(path), "--scheduler", address, "--json", *arguments]).output

    assert '"sources": [\n    1\n  ]' in run("karate.mtx", "--source", "1")
    assert "ids are 1..4" in run("karate.mtx", "--source", "0")
    assert "source must be an integer, not 'x'" in run("karate.mtx", "--source", "x")
    assert "source must be an integer, not 'x'" in run("sparse.txt", "--source", "x")
    assert '"sources": [\n    900\n  ]' in run("sparse.txt", "--source", "900")
    assert '"sources": [\n    0\n  ]' in run("karate.mtx", "--source", "0", "--dense-ids")
    assert '"sources": [\n    3\n  ]' in run("sparse.txt", "--source", "3", "--dense-ids")


def test_ids_as_text() -> None:
    assert parse_id("7", IdType(), "source") == 7
    assert parse_id("7,5", IdType(("string",)), "source") == "7,5"
    pair = IdType(("string", "int64"), ("street", "number"))
    assert parse_id('"High, Street",5', pair, "source") == ("High, Street", 5)
    with pytest.raises(InvalidVertexTypeError, match="source must have 2 columns, street,number, not 'High'"):
        parse_id("High", pair, "source")


def test_a_byte_0_belongs_to_its_own_string(client: distributed.Client) -> None:
    """The keys of tuples end each string with bytes 0."""
    first, second = ("a\0", "b"), ("a", "\0b")
    with dbfs.load([(first, second), (second, ("c", "d"))], client=client, ranks=2) as graph:
        assert graph.n == 3
        assert graph.bfs(first).to_dict() == {first: 0, second: 1, ("c", "d"): 2}


def test_integers_keep_their_codes_when_a_large_one_comes() -> None:
    """The table of integers is filled by half, and then made anew for integers of 64 bits."""
    codes = Codes()
    small = np.arange(3000, dtype=np.int64)
    first = codes.encode(small)
    again = codes.encode(np.concatenate([small, [2**40]]))
    assert again[:-1].tolist() == first.tolist()
    assert again[-1] == 3000
    assert codes.distinct().tolist() == [*range(3000), 2**40]
