"""What dbfs gives out, it takes back: direction, ids, vertices without edges, parallel edges and self-loops.

Axes: a random graph x an exit. An oracle reads the edge list of the object that an exit gives, and compares that with
the graph. What a format can't hold is refused, or counted in ``WriteReport``.
"""

import copy
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.feather as pafeather
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.cli import main
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.resolve import edge_list
from dbfs.edges.tables.about import About, of_graph
from dbfs.edges.writers import write_edges
from dbfs.errors import EdgeInputError, FormatError, InvalidOptionError, TruncatedFileError
from dbfs.features.batches import EdgeMeasure
from dbfs.features.subgraphs.subgraph import Subgraph
from dbfs.networkx import from_networkx
from dbfs_workers.building.pieces import PieceWithLoneIds
from dbfs_workers.ids.sequence import handed_out
from dbfs_workers.ids.table import as_ids, as_python, take

PER_TEST = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WORDS: dict[str, tuple[Any, ...]] = {
    "dense": tuple(range(6)),
    "integers": (1, 7, 40, 41, 10**12, 2**63 - 1),
    "strings": ("a", "b,c", 'say "x"', "#d", " e", "src"),
    "numbers as strings": ("0", "1", "01", "1.0", "-3", "9" * 25),
    "tuples": ((0, "0"), (0, "1"), (1, "a"), (2, ""), (3, "1"), (10**12, "z")),
}


@dataclass(frozen=True)
class Facts:
    """What a graph is: direction, ids, and edges with their multiplicities; the ends of undirected edges in order."""

    directed: bool
    ids: frozenset[Any]
    edges: Counter[tuple[Any, Any]]

    @property
    def simple(self) -> "Facts":
        return Facts(self.directed, self.ids, Counter(dict.fromkeys(self.edges, 1)))

    @property
    def lone(self) -> frozenset[Any]:
        return self.ids - {end for edge in self.edges for end in edge}

    def renamed(self, name: Callable[[Any], Any]) -> "Facts":
        """Return the graph with other ids, which are in the same order."""
        edges = {(name(u), name(v)): count for (u, v), count in self.edges.items()}
        return Facts(self.directed, frozenset(map(name, self.ids)), Counter(edges))


def make(directed: bool, ids: set[Any], pairs: list[tuple[Any, Any]]) -> Facts:
    return Facts(directed, frozenset(ids), Counter(pair if directed else tuple(sorted(pair)) for pair in pairs))


graphs = st.sampled_from(sorted(WORDS)).flatmap(
    lambda kind: st.builds(
        make,
        st.booleans(),
        st.sets(st.sampled_from(WORDS[kind])),
        st.lists(st.tuples(st.sampled_from(WORDS[kind]), st.sampled_from(WORDS[kind])), max_size=8),
    ).map(lambda made: Facts(made.directed, made.ids | {end for edge in made.edges for end in edge}, made.edges))
)


def facts(edges: EdgeList) -> Facts:
    """Read an edge list without a cluster."""
    ids: set[Any] = set()
    found = Counter[Any]()

    def named(values: Any) -> list[Any]:
        if edges.n is None:
            return as_python(as_ids(values))
        return as_python(take(edges.names(), values)) if edges.has_names else (values + edges.first_id).tolist()

    if edges.n is not None:
        ids |= set(named(np.arange(edges.n)))
    for piece in edges.cut(3):
        src, dst = map(named, piece.read())
        lone = piece.lone_ids() if isinstance(piece, PieceWithLoneIds) else None
        ids |= {*src, *dst, *([] if lone is None else as_python(as_ids(lone)))}
        found.update((u, v) if edges.directed else tuple(sorted((u, v))) for u, v in zip(src, dst, strict=True))
    if edges.mirrored and not edges.directed:
        found = Counter({(u, v): count // (1 if u == v else 2) for (u, v), count in found.items()})
    return Facts(edges.directed, frozenset(ids), found)


def multigraph(graph: Facts) -> "nx.MultiGraph[Any]":
    made: Any = nx.MultiDiGraph() if graph.directed else nx.MultiGraph()
    made.add_nodes_from(sorted(graph.ids))
    made.add_edges_from(graph.edges.elements())
    return made


def subgraph(graph: Facts) -> Subgraph:
    """Return the subgraph of all vertices, as ``Graph.subgraph`` makes it."""
    nodes = sorted(graph.ids)
    at = {node: place for place, node in enumerate(nodes)}
    ends = np.array(sorted((at[u], at[v]) for u, v in graph.edges), np.int64).reshape(-1, 2)
    of_text = nodes and isinstance(nodes[0], str)
    of_tuples = nodes and isinstance(nodes[0], tuple)
    kind = pa.struct([("bank", pa.int64()), ("account", pa.large_string())])
    ids: Any = pa.array(nodes, pa.large_string()) if of_text else np.array(nodes, np.int64) if not of_tuples else None
    if ids is None:
        ids = pa.array([dict(zip(("bank", "account"), node, strict=True)) for node in nodes], kind)
    return Subgraph("given", graph.directed, handed_out(ids), ends[:, 0].copy(), ends[:, 1].copy())


def measure(given_out: Subgraph) -> EdgeMeasure:
    source, target = given_out.vertices[given_out.sources], given_out.vertices[given_out.targets]
    lone = np.setdiff1d(np.arange(given_out.n), np.concatenate([given_out.sources, given_out.targets]))
    told = of_graph("given", directed=given_out.directed, edges=given_out.edges, lone=given_out.vertices[lone])
    return EdgeMeasure("edge_betweenness_centrality", source, target, np.ones(given_out.edges), None, 1, told)


def in_parquet(table: pa.Table, folder: Path) -> str:
    pq.write_table(table, folder / "a.parquet", row_group_size=2)
    return str(folder / "a.parquet")


def in_arrow(table: pa.Table, folder: Path) -> str:
    pafeather.write_feather(table, folder / "a.arrow", chunksize=2)
    return str(folder / "a.arrow")


def pandas_in_parquet(given_out: Subgraph, folder: Path) -> str:
    given_out.to_pandas().to_parquet(folder / "b.parquet")
    return str(folder / "b.parquet")


EXITS: dict[str, Callable[[Subgraph, Path], Any]] = {
    "itself": lambda given_out, _: given_out,
    "pickled": lambda given_out, _: pickle.loads(pickle.dumps(given_out)),
    "to_arrow": lambda given_out, _: given_out.to_arrow(),
    "stream": lambda given_out, _: pa.RecordBatchReader.from_stream(given_out),
    "to_arrow, Parquet": lambda given_out, folder: in_parquet(given_out.to_arrow(), folder),
    "to_arrow, Arrow": lambda given_out, folder: in_arrow(given_out.to_arrow(), folder),
    "to_networkx": lambda given_out, _: given_out.to_networkx(),
    "to_networkx, backend": lambda given_out, _: from_networkx(given_out.to_networkx()),
    "edge measure": lambda given_out, _: measure(given_out).to_arrow(),
    "to_pandas": lambda given_out, _: given_out.to_pandas(),
    "to_pandas, copied": lambda given_out, _: copy.deepcopy(given_out.to_pandas())[["target", "source"]],
    "to_pandas, Parquet": pandas_in_parquet,
    "edge measure, pandas": lambda given_out, _: measure(given_out).to_pandas(),
}


@pytest.mark.parametrize("way", EXITS)
@PER_TEST
@given(graphs)
def test_subgraphs_and_tables(tmp_path: Path, way: str, graph: Facts) -> None:
    if way == "to_pandas, Parquet" and graph.ids and isinstance(min(graph.ids), tuple):
        # Parquet has no column of tuples, which pandas or dbfs says.
        with pytest.raises((pa.ArrowException, EdgeInputError)):
            edge_list(EXITS[way](subgraph(graph), tmp_path))
        return
    assert facts(edge_list(EXITS[way](subgraph(graph), tmp_path))) == graph.simple


@PER_TEST
@given(graphs)
def test_matrices(graph: Facts) -> None:
    """A matrix has no ids: its rows are the vertices."""
    rows = {node: row for row, node in enumerate(sorted(graph.ids))}
    assert facts(edge_list(subgraph(graph).to_scipy())) == graph.simple.renamed(rows.__getitem__)


@PER_TEST
@given(graphs)
def test_graphs_of_networkx(graph: Facts) -> None:
    made = multigraph(graph)
    assert facts(edge_list(made)) == facts(edge_list(from_networkx(made))) == graph


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".tsv", ".csv.gz", ".txt", ".mtx", ".gr", ".npz", ".graph"])
@PER_TEST
@given(graphs)
def test_files(tmp_path: Path, suffix: str, graph: Facts) -> None:
    out, edges = tmp_path / f"a{suffix}", edge_list(multigraph(graph))
    table, strings = suffix.startswith((".csv", ".tsv")), edges.id_kinds != ("integer",)
    refused = (suffix == ".graph" and graph.directed) or (
        (suffix == ".txt" and strings) or (table and len(edges.id_kinds) > 1)
    )
    if refused:
        with pytest.raises(InvalidOptionError, match=r"choose (\.parquet|another format)"):
            write_edges(edges, out)
        return
    written = write_edges(edges, out)
    if not graph.edges and (table or suffix == ".txt"):
        assert written.lone == len(graph.ids)
        with pytest.raises(TruncatedFileError):
            edge_list(out)
        return
    found, wanted = facts(edge_list(out)), graph
    if suffix == ".graph":
        wanted = Facts(graph.directed, graph.ids, Counter({edge: 1 for edge in graph.edges if edge[0] != edge[1]}))
        assert written.left_out == graph.edges.total() - wanted.edges.total()
    if written.numbered is not None:
        numbers = {one: number for number, one in enumerate(sorted(graph.ids), written.numbered)}
        wanted = wanted.renamed(numbers.__getitem__)
    assert found == Facts(wanted.directed, wanted.ids - wanted.lone if written.lone else wanted.ids, wanted.edges)
    assert written.lone == (len(wanted.lone) if table or suffix == ".txt" else 0)


@pytest.mark.full
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graphs.filter(lambda graph: graph.edges.total() > 2), st.sampled_from([1, 3]))
def test_calls_of_a_graph(client: distributed.Client, tmp_path_factory: Any, graph: Facts, ranks: int) -> None:
    """Distances in what a graph gives out are those in the graph."""
    folder = str(tmp_path_factory.mktemp("graph") / "saved")
    nodes = sorted(graph.ids)
    with dbfs.load(multigraph(graph), client=client, ranks=ranks, in_edges=True) as loaded:
        wanted = {node: loaded.bfs(node).to_dict() for node in nodes}
        loaded.save(folder)
        part = loaded.subgraph(nodes)
        tree = loaded.bfs(nodes[0], predecessors=True).tree()
        for out in (folder, part, loaded.edge_betweenness_centrality().to_arrow(), part.to_pandas()):
            with dbfs.load(out, client=client, ranks=ranks) as again:
                assert again.directed == graph.directed
                assert again.python_ids(range(again.n)) == nodes
                assert {node: again.bfs(node).to_dict() for node in nodes} == wanted
                loops = loaded.self_loops if out is folder else sum(u == v for u, v in graph.edges)
                edges = loaded.m if out is folder else loaded.m - loaded.duplicates
                assert (again.m, again.self_loops) == (edges, loops)
        with dbfs.load(tree, client=client) as again:
            assert again.directed
            assert again.bfs(nodes[0]).to_dict() == wanted[nodes[0]]


def test_the_direction_that_a_caller_gives(tmp_path: Path) -> None:
    """It wins; but edges without order get none."""
    two = make(True, {"a", "b"}, [("b", "a")]), make(False, {"a", "b"}, [("b", "a")])
    directed, undirected = map(subgraph, two)
    for table in (directed, directed.to_pandas(), in_parquet(directed.to_arrow(), tmp_path)):
        assert not edge_list(table, directed=False).directed
        assert edge_list(table, directed=True).directed
    for table in (undirected, undirected.to_pandas(), in_arrow(undirected.to_arrow(), tmp_path)):
        with pytest.raises(InvalidOptionError, match="was made of an undirected graph: its edges have no order"):
            edge_list(table, directed=True)


def test_a_table_that_lost_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Which of its vertices have no edge now can't be known, and a warning says so."""
    table = subgraph(make(True, {1, 2, 3, 9}, [(1, 2), (2, 3)])).to_arrow().slice(1)
    for out in (table, in_parquet(table, tmp_path), in_arrow(table, tmp_path)):
        assert facts(edge_list(out)) == make(True, {2, 3}, [(2, 3)])
        assert "1 row, and dbfs gave out 2 edges: vertices without edges" in caplog.text
        caplog.clear()


@pytest.mark.parametrize("wrong", ['{"lone": [-1]}', '{"lone": [[1, [2]]]}', '{"lone": 3}', "[]", "x", '{"n": -1}'])
def test_metadata_that_dbfs_does_not_write(wrong: str) -> None:
    text = wrong.replace("{", '{"directed": true, "n": null, ', 1) if "n" not in wrong[:4] else wrong
    table = pa.table({"source": [1], "target": [2]}).replace_schema_metadata({"dbfs": text})
    with pytest.raises(FormatError, match="its metadata 'dbfs' is"):
        edge_list(table)


def test_vertices_of_another_type_in_metadata() -> None:
    for lone in ("x", (1, 2), (1,)):
        table = About("x", True, edges=1, lone=(lone,)).put_on(pa.table({"source": [1], "target": [2]}))
        with pytest.raises(EdgeInputError, match="name the vertex .*, and its ids are integers"):
            edge_list(table)
    table = About("x", True, n=3, edges=1).put_on(pa.table({"source": ["a"], "target": ["b"]}))
    with pytest.raises(EdgeInputError, match="name the vertex 0, and its ids are strings"):
        edge_list(table)


@pytest.mark.parametrize("other", ["distance", "component", "closeness_centrality"])
def test_results_are_no_edges(other: str) -> None:
    with pytest.raises(EdgeInputError, match="is that of a table of values"):
        edge_list(pa.table({"vertex": [1, 2], other: [0, 1]}))
    assert edge_list(pa.table({"vertex": [1, 2], other: [0, 1]}), source="vertex", target=other).m == 2


def test_tuples_of_one_part_are_refused() -> None:
    """They would come back as their part."""
    for edges in ([((1,), (2,))], nx.Graph([((1,), (2,))])):
        with pytest.raises(EdgeInputError, match="is a tuple of length 1; expected one length, 2 or more"):
            edge_list(edges)


def test_changes_by_what_was_given_out(client: distributed.Client) -> None:
    """Edges without order are no edges of a directed graph."""
    two = subgraph(make(False, {1, 2}, [(1, 2)])), subgraph(make(True, {1, 2}, [(2, 1)]))
    with dbfs.load([(1, 2), (2, 3)], client=client, ranks=1, directed=True, mutable=True) as graph:
        with pytest.raises(InvalidOptionError, match="its edges have no order"):
            graph.insert_edges(two[0])
        graph.insert_edges(two[1])
        assert graph.neighbors(2) == [1, 3]


def test_ids_that_no_text_holds(tmp_path: Path) -> None:
    for one in ("a\nb", "a\rb", " \t", "", "\u00a0"):
        with pytest.raises(InvalidOptionError, match=r"is blank or has a line break; \.parquet keeps such ids"):
            write_edges(edge_list([("x", one)]), tmp_path / "a.csv")
        write_edges(edge_list([("x", one)]), tmp_path / "a.parquet")
        assert facts(edge_list(tmp_path / "a.parquet")) == make(False, {"x", one}, [("x", one)])


def test_what_commands_say_of_a_file(tmp_path: Path) -> None:
    write_edges(edge_list(multigraph(make(True, {"1", "2", "9"}, [("1", "2")]))), tmp_path / "a.parquet")
    told = {
        "b.csv": "left out: 1 x vertices without edges; .parquet keeps them",
        "b.mtx": "in ascending order; .parquet keeps ids",
    }
    for name, words in told.items():
        answer = CliRunner().invoke(main, ["convert", str(tmp_path / "a.parquet"), str(tmp_path / name)])
        assert words in answer.stdout
