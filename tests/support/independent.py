"""Graphs written by other libraries, and what those libraries, or a few plain lines, read of a text."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import distributed
import duckdb
import igraph
import networkit
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as pafeather
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse
from numpy.typing import NDArray

import dbfs
from dbfs.edges.writers.edge_stream import EdgeStream
from dbfs.errors import DbfsError
from dbfs_workers.ids.table import as_python

Edge = tuple[Any, Any]


@dataclass(frozen=True)
class Drawn:
    """A graph: the vertices 0..n-1, and edges in order."""

    n: int
    edges: list[tuple[int, int]]
    directed: bool

    @property
    def frame(self) -> pd.DataFrame:
        """The edges as a table with a column that is none of their ends."""
        src, dst = self.pairs.T
        return pd.DataFrame({"from": src, "to": dst, "weight": np.arange(src.size) / 2})

    @property
    def pairs(self) -> NDArray[np.int64]:
        """The edges as rows."""
        return np.array(self.edges, np.int64).reshape(-1, 2)

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of ``frame`` as arrays."""
        return {str(name): self.frame[name].to_numpy() for name in self.frame}

    @property
    def named(self) -> pd.DataFrame:
        """The same with names of vertices."""
        return self.frame.assign(**{end: [f"v {v}, 'x'" for v in self.frame[end]] for end in ("from", "to")})

    @property
    def counted(self) -> scipy.sparse.coo_array:
        """The matrix with an entry for each edge, its value the edge's number, and both ends of undirected ones."""
        src, dst = self.pairs.T
        values = np.arange(src.size)
        if not self.directed:
            both = src != dst
            src, dst = np.append(src, dst[both]), np.append(dst, src[both])
            values = np.append(values, values[both])
        return scipy.sparse.coo_array((values, (src, dst)), shape=(self.n, self.n))

    @property
    def simple(self) -> nx.Graph:
        """The graph without self-loops and duplicates."""
        graph = nx.DiGraph() if self.directed else nx.Graph()
        graph.add_nodes_from(range(self.n))
        graph.add_edges_from((u, v) for u, v in self.edges if u != v)
        return graph


@dataclass(frozen=True)
class Seen:
    """A graph as its users see it.

    Attributes:
        ids: the ids of all vertices, ascending.
        directed: whether edges can be crossed in one direction only.
        m: edges, an undirected one in both directions.
        distances: of all vertices that each vertex reaches.
    """

    ids: tuple[Any, ...]
    directed: bool
    m: int
    distances: dict[Any, dict[Any, int]]

    @classmethod
    def of(cls, edges: Iterable[Edge], directed: bool, vertices: Iterable[Any] = ()) -> "Seen":
        """Return what is to be seen of edges and further vertices, by NetworkX."""
        listed = list(edges)
        graph = nx.DiGraph() if directed else nx.Graph()
        graph.add_nodes_from(vertices)
        graph.add_edges_from(listed)
        m = len(listed) if directed else sum(1 if u == v else 2 for u, v in listed)
        distances = {node: dict(nx.single_source_shortest_path_length(graph, node)) for node in graph}
        return cls(tuple(sorted(graph)), directed, m, distances)


def load(client: distributed.Client, graph: Any, **options: Any) -> Seen | DbfsError:
    """Return what is to be seen of a graph that dbfs loads, or its error."""
    try:
        with dbfs.load(graph, client=client, progress=False, **options) as loaded:
            ids = loaded.ids().tolist()
            results = loaded.bfs_many(ids) if ids else []
            distances = {one: result.to_dict() for one, result in zip(ids, results, strict=True)}
            return Seen(tuple(ids), loaded.directed, loaded.m, distances)
    except DbfsError as error:
        return error


def read(path: Path | str, **options: Any) -> Seen | DbfsError:
    """Return what is to be seen of a file by its edge list alone, or dbfs's error."""
    try:
        edges = dbfs.from_file(path, **options)
        stream = EdgeStream(edges)
        survey = stream.survey()
        vertices = range(edges.first_id, edges.first_id + survey.n) if survey.ids is None else as_python(survey.ids.ids)
        listed = [pair for ends in stream.by_ids() for pair in zip(*map(as_python, ends), strict=True)]
        return Seen.of(listed, edges.directed, vertices)
    except DbfsError as error:
        return error


Writer = Callable[[Drawn, Path], Any]


@dataclass(frozen=True)
class Form:
    """A way to write a graph.

    Attributes:
        suffix: of the file's name.
        write: writes a graph.
        first: the id of vertex 0; None if the file has the ids of edges only.
        named: whether the ids are names.
        simple: whether the format has undirected graphs without self-loops and duplicates only.
        several: whether several files make one graph.
        packed: whether the file may be compressed.
        options: further options of ``load``.
        states: whether the file says its direction.
        parse: reads a text independently; None for a binary format.
    """

    suffix: str
    write: Writer
    first: int | None = None
    named: bool = False
    simple: bool = False
    several: bool = False
    packed: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    states: bool = False
    parse: Callable[[str, bool], Seen | None] | None = None

    def expected(self, drawn: Drawn) -> Seen:
        """What is to be seen of a file of a graph."""
        if self.simple:
            return Seen.of([(u + 1, v + 1) for u, v in nx.Graph(drawn.simple).edges()], False, range(1, drawn.n + 1))
        if self.named:
            return Seen.of(zip(drawn.named["from"], drawn.named["to"], strict=True), drawn.directed)
        first = self.first or 0
        vertices = () if self.first is None else range(first, drawn.n + first)
        return Seen.of([(u + first, v + first) for u, v in drawn.edges], drawn.directed, vertices)

    def load_options(self, drawn: Drawn) -> dict[str, Any]:
        """The options with which dbfs loads a file of a graph."""
        return self.options if self.states or self.simple else {**self.options, "directed": drawn.directed}


def _plain_lines(text: str, comments: str = "#|%|//") -> list[list[str]]:
    lines = [line for line in text.split("\n") if line.strip() and not re.match(rf"[ \t]*({comments})", line)]
    return [line.split() for line in lines]


def _pairs(text: str, directed: bool) -> Seen | None:
    rows = _plain_lines(text)
    if not rows or not all(len(row) >= 2 and row[0].isdecimal() and row[1].isdecimal() for row in rows):
        return None
    return Seen.of([(int(row[0]), int(row[1])) for row in rows], directed)


def _typed(rows: list[list[str]]) -> list[list[Any]]:
    """The words as integers if all of them are, else as strings."""
    integers = all(re.fullmatch("0|[1-9][0-9]{0,17}", word) for row in rows for word in row)
    return [[int(word) if integers else word for word in row] for row in rows]


def _adjacency(text: str, directed: bool) -> Seen | None:
    rows = _typed(_plain_lines(text))
    return Seen.of([(row[0], word) for row in rows for word in row[1:]], directed, [row[0] for row in rows])


def _ncol(text: str, directed: bool) -> Seen | None:
    rows = _plain_lines(text)
    if not rows or {len(row) for row in rows} not in ({2}, {3}):
        return None
    return Seen.of([(u, v) for u, v in _typed([row[:2] for row in rows])], directed)


def _table(text: str, directed: bool) -> Seen | None:
    from io import StringIO

    try:
        mark = "\t" if "\t" in text.split("\n")[0] else ","
        frame = pd.read_csv(StringIO(text), sep=mark, dtype=str, keep_default_na=False, skip_blank_lines=True)
        return Seen.of(zip(frame["from"], frame["to"], strict=True), directed)
    except (ValueError, KeyError):
        return None


def _matrix(text: str, directed: bool) -> Seen | None:
    """By SciPy. A symmetric matrix comes with both triangles, of which one edge is counted."""
    from io import BytesIO

    try:
        rows, columns, _, _, _, symmetry = scipy.io.mminfo(BytesIO(text.encode()))
        found = scipy.sparse.coo_array(scipy.io.mmread(BytesIO(text.encode())))
    except (ValueError, OverflowError, TypeError):
        return None
    if rows != columns:
        return None
    pairs = list(zip((found.row + 1).tolist(), (found.col + 1).tolist(), strict=True))
    general = symmetry == "general"
    if not general:
        pairs = [(u, v) for u, v in pairs if u >= v]
    return Seen.of(pairs, general, range(1, rows + 1))


def _metis(text: str, directed: bool) -> Seen | None:
    """By the manual: the header's numbers hold, and each edge is in two lines."""
    lines = [line for line in text.split("\n") if not line.startswith("%")]
    header, rows = lines[0].split(), [line.split() for line in lines[1:]]
    if not 2 <= len(header) <= 3 or not all(re.fullmatch("[0-9]+", word) for row in (header, *rows) for word in row):
        return None
    n, m = int(header[0]), int(header[1])
    if header[2:] not in ([], ["0"]) or len(rows) < n or any(rows[n:]):
        return None
    listed = [(u, int(v)) for u, row in enumerate(rows[:n], start=1) for v in row]
    if len(listed) != 2 * m or Counter(listed) != Counter((v, u) for u, v in listed):
        return None
    if any(not 1 <= v <= n or u == v for u, v in listed):
        return None
    return Seen.of([(u, v) for u, v in listed if u < v], False, range(1, n + 1))


def _gr(text: str, directed: bool) -> Seen | None:
    rows = _plain_lines(text, r"c(?!\S)")
    width, arcs = (4, True) if rows and rows[0][:2] == ["p", "sp"] else (2, False)
    if not rows or len(rows[0]) != 4 or rows[0][:2] not in (["p", "sp"], ["p", "tw"]):
        return None
    if not all(re.fullmatch("[0-9]+", word) for word in rows[0][2:]):
        return None
    n, m = map(int, rows[0][2:])
    if len(rows) != m + 1 or any(len(row) != width or (arcs and row[0] != "a") for row in rows[1:]):
        return None
    ends = [row[arcs : arcs + 2] for row in rows[1:]]
    if not all(re.fullmatch("[0-9]+", word) and 1 <= int(word) <= n for pair in ends for word in pair):
        return None
    return Seen.of([(int(u), int(v)) for u, v in ends], arcs, range(1, n + 1))


def _write_mm(drawn: Drawn, path: Path) -> None:
    """A symmetric matrix has its lower triangle; SciPy writes that of the whole matrix."""
    symmetry: Literal["general", "symmetric"] = "general" if drawn.directed else "symmetric"
    with path.open("wb") as file:
        scipy.io.mmwrite(file, drawn.counted, comment="", field="integer", symmetry=symmetry)


def _write_metis(drawn: Drawn, path: Path) -> None:
    graph = networkit.Graph(drawn.n)
    for u, v in nx.Graph(drawn.simple).edges():
        graph.addEdge(u, v)
    networkit.writeGraph(graph, str(path), networkit.Format.METIS)


def _write_gr(drawn: Drawn, path: Path) -> None:
    lines = [f"a {u + 1} {v + 1} 3" if drawn.directed else f"{u + 1} {v + 1}" for u, v in drawn.edges]
    head = f"p {'sp' if drawn.directed else 'tw'} {drawn.n} {len(lines)}"
    path.write_text("\n".join([head, *lines]) + "\n")


def _write_networkx(drawn: Drawn, path: Path) -> None:
    nx.write_edgelist(_networkx(drawn), path, data=False)


def _write_data(drawn: Drawn, path: Path) -> None:
    graph = nx.MultiDiGraph() if drawn.directed else nx.MultiGraph()
    graph.add_edges_from((u, v, {"weight": place / 2, "a b": "c, d"}) for place, (u, v) in enumerate(drawn.edges))
    nx.write_edgelist(graph, path, data=True)


_ENDS = {"source": "from", "target": "to"}


def _text(suffix: str, write: Writer, **options: Any) -> Form:
    return Form(suffix, write, several=True, parse=_pairs, **options)


def _csv(write: Writer, suffix: str = ".csv") -> Form:
    return Form(suffix, write, named=True, several=True, options=_ENDS, parse=_table)


def _binary(suffix: str, write: Writer, **options: Any) -> Form:
    return Form(suffix, write, **{"several": True, "packed": False, "options": _ENDS, **options})


_Layout = Literal["coo", "csr", "csc"]


def _archive(layout: _Layout) -> Form:
    def write(drawn: Drawn, path: Path) -> None:
        matrix = drawn.counted
        # SciPy does not add up what it believes to be distinct.
        matrix.has_canonical_format = True
        scipy.sparse.save_npz(path, matrix.asformat(layout))

    return Form(".npz", write, first=0, packed=False)


FORMS: dict[str, Form] = {
    "edge list, NetworkX": _text(".edgelist", _write_networkx),
    "edge list, NetworkX with data": _text(".txt", _write_data),
    "edge list, NumPy": _text(".txt", lambda drawn, path: np.savetxt(path, drawn.pairs, "%d", "\t")),
    "edge list, pandas": _text(".el", lambda drawn, path: drawn.frame.to_csv(path, sep=" ", header=False, index=False)),
    "edge list, igraph": _text(".txt", lambda drawn, path: _igraph(drawn).write_edgelist(str(path))),
    "table, pandas": _csv(lambda drawn, path: drawn.named.to_csv(path, index=False)),
    "table with tabs, pandas": _csv(lambda drawn, path: drawn.named.to_csv(path, sep="\t", index=False), ".tsv"),
    "table, Polars": _csv(lambda drawn, path: pl.from_pandas(drawn.named).write_csv(path)),
    "table, Arrow": _csv(lambda drawn, path: pacsv.write_csv(pa.Table.from_pandas(drawn.named), path)),
    "adjacency list, NetworkX": Form(
        ".adjlist", lambda drawn, path: nx.write_adjlist(_networkx(drawn), path), first=0, parse=_adjacency
    ),
    "NCOL, igraph": Form(
        ".ncol", lambda drawn, path: _igraph(drawn).write_ncol(str(path), None, None), several=True, parse=_ncol
    ),
    "Matrix Market, SciPy": Form(".mtx", _write_mm, first=1, states=True, parse=_matrix),
    "METIS, NetworKit": Form(".graph", _write_metis, simple=True, parse=_metis),
    "PACE and DIMACS": Form(".gr", _write_gr, first=1, states=True, parse=_gr),
    "Parquet, pandas": _binary(".parquet", lambda drawn, path: drawn.named.to_parquet(path), named=True),
    "Parquet, Arrow": _binary(
        ".parquet", lambda drawn, path: pq.write_table(pa.Table.from_pandas(drawn.frame), path, row_group_size=3)
    ),
    "Parquet, Polars": _binary(".parquet", lambda drawn, path: pl.from_pandas(drawn.frame).write_parquet(path)),
    "Parquet, DuckDB": _binary(".parquet", lambda drawn, path: duckdb.from_df(drawn.frame).write_parquet(str(path))),
    "Feather, Arrow": _binary(".feather", lambda drawn, path: pafeather.write_feather(drawn.frame, str(path))),
    "Arrow, Polars": _binary(".arrow", lambda drawn, path: pl.from_pandas(drawn.named).write_ipc(path), named=True),
    "NumPy pairs": _binary(
        ".npy", lambda drawn, path: np.save(path, drawn.pairs), options={"source": "0", "target": "1"}
    ),
    "NumPy records": _binary(".npy", lambda drawn, path: np.save(path, drawn.frame.to_records(index=False))),
    "NumPy archive of an edge index": _binary(
        ".npz", lambda drawn, path: np.savez(path, edge_index=drawn.pairs.T), options={}
    ),
    "NumPy archive": _binary(".npz", lambda drawn, path: np.savez(path, **drawn.columns)),
    **{f"SciPy archive, {layout}": _archive(layout) for layout in get_args(_Layout)},
}
"""Ways to write a graph, by the format and the library."""


IN_MEMORY: dict[str, Callable[[Drawn], tuple[Any, dict[str, Any], bool]]] = {
    "pandas": lambda drawn: (drawn.frame, _ENDS, False),
    "pandas names": lambda drawn: (drawn.named, _ENDS, False),
    "Polars": lambda drawn: (pl.from_pandas(drawn.frame), _ENDS, False),
    "Arrow": lambda drawn: (pa.Table.from_pandas(drawn.named), _ENDS, False),
    "DuckDB": lambda drawn: (duckdb.from_df(drawn.frame), _ENDS, False),
    "pairs": lambda drawn: (list(drawn.edges), {}, False),
    "NumPy": lambda drawn: (tuple(np.ascontiguousarray(drawn.pairs.T)), {}, False),
    "NumPy mask": lambda drawn: (tuple(map(np.ma.array, drawn.pairs.T)), {}, False),
    "NetworkX": lambda drawn: (_networkx(drawn), {}, True),
    "igraph": lambda drawn: (_igraph(drawn), {}, True),
    "NetworKit": lambda drawn: (_networkit(drawn), {}, True),
    "SciPy": lambda drawn: (drawn.counted, {"directed": drawn.directed}, True),
}
"""Objects of a graph, with options of ``load``, and whether the object has the vertices without edges."""


def _networkx(drawn: Drawn) -> nx.Graph:
    graph = nx.MultiDiGraph() if drawn.directed else nx.MultiGraph()
    graph.add_nodes_from(range(drawn.n))
    graph.add_edges_from(drawn.edges)
    return graph


def _igraph(drawn: Drawn) -> igraph.Graph:
    return igraph.Graph(drawn.n, drawn.edges, directed=drawn.directed)


def _networkit(drawn: Drawn) -> networkit.Graph:
    graph = networkit.Graph(drawn.n, directed=drawn.directed)
    for u, v in drawn.edges:
        graph.addEdge(u, v)
    return graph
