"""dbfs beside the libraries that a working day has for the same questions: NetworKit, igraph, rustworkx, SciPy, ...

All read the same Parquet file of an undirected graph, as their users do: through pandas, with ids numbered by pandas
where a library wants vertices 0..n-1. Each peer runs in a process of its own, one after another, and its answers are
compared with those of the others. The numbering of the vertices decides what a traversal costs (arXiv 2404.00766), so
every graph is measured as generated, by falling degree, and at random.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import click
import numpy as np
import psutil
from numpy.typing import NDArray

import dbfs
from benchmarks import options
from benchmarks.runner import Column, Results, seconds_of
from dbfs.base.progress import track
from dbfs.edges import generate
from dbfs.edges.writers import write_edges
from dbfs.errors import ValidationError

if TYPE_CHECKING:
    import pandas as pd

SOURCES, SAMPLE = 100, 16
"""Numbers of sources of the many traversals, and of vertices whose closeness is asked for: the first of the sources."""

ORDERS, IDS = ("given", "degree", "random"), ("integer", "string")

Answer = tuple[int, int]
"""Of a source: the number of vertices it reaches, itself included, and the sum of their distances."""


class Peer(ABC):
    """A library, from a file of edges to the answers. The constructor builds the graph."""

    package: str
    """The distribution that has the version."""

    def __init__(self, file: Path) -> None:
        import pandas as pd

        edges = pd.read_parquet(file)
        codes, self.ids = pd.factorize(pd.concat([edges["source"], edges["target"]], ignore_index=True))
        self.n = len(self.ids)
        self.build(codes[: len(edges)], codes[len(edges) :])

    @abstractmethod
    def build(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> None:
        """Build the graph of these undirected edges between the vertices 0..n-1."""

    @abstractmethod
    def distances(self, source: int) -> Any:
        """Return the distances from a vertex in the library's own form."""

    def answer(self, distances: Any) -> Answer:
        """Sum distances up: those that are finite and not negative are reached."""
        array = np.asarray(distances, dtype=np.float64)
        reached = array[(array >= 0) & (array < self.n)]
        return len(reached), int(reached.sum())

    def vertices(self, ids: Sequence[Any]) -> list[int]:
        """Return the vertices of ids."""
        import pandas as pd

        return list(map(int, pd.Index(self.ids).get_indexer(list(ids))))

    def one(self, source: Any) -> Answer:
        """Answer for one id."""
        return self.answer(self.distances(self.vertices([source])[0]))

    def many(self, sources: Sequence[Any]) -> list[Answer]:
        """Answer for many ids."""
        return [self.answer(self.distances(vertex)) for vertex in self.vertices(sources)]

    def closeness(self, sources: Sequence[Any]) -> list[float]:
        """Return the inverse mean distance of ids to the other vertices that they reach."""
        return [(reached - 1) / total if total else 0.0 for reached, total in self.many(sources)]


class Dbfs(Peer):
    """dbfs, on workers of a local cluster, which the client starts before the clock."""

    package = "dbfs"

    def __init__(self, file: Path) -> None:
        self.graph = dbfs.load(str(file), directed=False)

    def build(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> None:
        """Not called: dbfs reads the file itself."""

    def distances(self, source: Any) -> Any:
        """Return the distances from an id."""
        return self.graph.bfs(source).distances()

    def one(self, source: Any) -> Answer:
        """Answer for one id."""
        reached = self.distances(source)
        reached = reached[reached >= 0]
        return len(reached), int(reached.sum())

    def many(self, sources: Sequence[Any]) -> list[Answer]:
        """Answer for many ids, in one batch."""
        counts = self.graph.bfs_batch(list(sources)).counts
        return [(int(row.sum()), int(row @ np.arange(len(row)))) for row in np.asarray(counts)]

    def closeness(self, sources: Sequence[Any]) -> list[float]:
        """Return what its own measure says."""
        measured = self.graph.closeness_centrality(list(sources), wf_improved=False).to_dict()
        return [float(measured[source]) for source in sources]


class Scipy(Peer):
    """SciPy: Dijkstra's algorithm with weights of one is its way to distances."""

    package = "scipy"

    def build(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> None:
        """Build a matrix; duplicates become one entry."""
        import scipy.sparse as sp

        matrix = sp.coo_array((np.ones(len(src), np.float32), (src, dst)), shape=(self.n, self.n)).tocsr()
        self.matrix = matrix + matrix.T

    def distances(self, source: int) -> Any:
        """Return float64 distances, infinite where there is no path."""
        from scipy.sparse.csgraph import dijkstra

        return dijkstra(self.matrix, indices=[source], unweighted=True)[0]


class Igraph(Peer):
    """igraph, with its own measure."""

    package = "igraph"

    def build(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> None:
        """Build a graph of an array of pairs."""
        import igraph

        self.graph = igraph.Graph(self.n, np.column_stack((src, dst)))

    def distances(self, source: int) -> Any:
        """Return a list."""
        return self.graph.distances(source)[0]

    def closeness(self, sources: Sequence[Any]) -> list[float]:
        """Return its own measure, which is of each component."""
        return [0.0 if math.isnan(value) else value for value in self.graph.closeness(self.vertices(sources))]


class Networkit(Peer):
    """NetworKit."""

    package = "networkit"

    def build(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> None:
        """Build a graph of coordinates."""
        import networkit

        self.graph = networkit.GraphFromCoo((src.astype(np.uint64), dst.astype(np.uint64)), self.n)

    def distances(self, source: int) -> Any:
        """Return float64 distances, the largest number where there is no path."""
        import networkit

        return networkit.distance.BFS(self.graph, source, storePaths=False).run().getDistances(asarray=True)


class Rustworkx(Peer):
    """rustworkx: Dijkstra's algorithm with a call of Python for each edge is its way to distances."""

    package = "rustworkx"

    def build(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> None:
        """Build a graph of pairs."""
        import rustworkx

        self.graph = rustworkx.PyGraph()
        self.graph.add_nodes_from(range(self.n))
        self.graph.add_edges_from_no_data(list(zip(src.tolist(), dst.tolist(), strict=True)))

    def distances(self, source: int) -> Any:
        """Return the distances that are there, the source's own added."""
        import rustworkx

        found = rustworkx.graph_dijkstra_shortest_path_lengths(self.graph, source, lambda _: 1.0)
        return [0.0, *(value for vertex, value in found.items() if vertex != source)]


class Graphblas(Peer):
    """python-graphblas, with the levels written out as its users do."""

    package = "python-graphblas"

    def build(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> None:
        """Build a symmetric matrix."""
        import graphblas as gb

        rows, columns = np.concatenate((src, dst)), np.concatenate((dst, src))
        self.matrix = gb.Matrix.from_coo(rows, columns, True, nrows=self.n, ncols=self.n)

    def distances(self, source: int) -> Any:
        """Return the distances that are there."""
        import graphblas as gb

        found, frontier = gb.Vector(int, self.n), gb.Vector(bool, self.n)
        frontier[source] = True
        depth = 0
        while frontier.nvals:
            found(frontier.S)[:] << depth
            frontier(~found.S, replace=True) << gb.semiring.any_pair(frontier @ self.matrix)
            depth += 1
        return found.to_coo()[1]


class Cugraph(Peer):
    """cuGraph, on a GPU; cuDF reads the file and cuGraph numbers the ids."""

    package = "cugraph"

    def __init__(self, file: Path) -> None:
        import cudf
        import cugraph

        self.graph = cugraph.Graph(directed=False)
        self.graph.from_cudf_edgelist(cudf.read_parquet(file), source="source", destination="target", renumber=True)
        self.n = self.graph.number_of_vertices()

    def build(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> None:
        """Not called: cuGraph reads the file itself."""

    def vertices(self, ids: Sequence[Any]) -> list[Any]:
        """Return the ids, which its calls take."""
        return list(ids)

    def distances(self, source: Any) -> Any:
        """Return the distances, which come to the host."""
        import cugraph

        return cugraph.bfs(self.graph, start=source)["distance"].to_numpy()


PEERS: Final[dict[str, tuple[str, type[Peer]]]] = {
    "dbfs": ("dbfs", Dbfs),
    "SciPy": ("scipy", Scipy),
    "igraph": ("igraph", Igraph),
    "NetworKit": ("networkit", Networkit),
    "rustworkx": ("rustworkx", Rustworkx),
    "GraphBLAS": ("graphblas", Graphblas),
    "cuGraph": ("cugraph", Cugraph),
}
"""By name, the module that must be installed, and the class."""


@dataclass(frozen=True)
class PeerTime:
    """What a peer took for one graph; None for what it did not finish within the limit.

    Attributes:
        peer, version: the library.
        edges: edges of the file.
        ids, order: the kind of the ids, and the numbering of the vertices.
        lone: share of the generator's vertices without an edge, which are not in the file.
        build: seconds from the file to the graph.
        one: least seconds of three traversals from one id to its distances.
        many: seconds of ``SOURCES`` traversals.
        closeness: seconds of the closeness of ``SAMPLE`` vertices.
        peak: most bytes of all of its processes at once, shared memory counted once (PSS).
    """

    peer: Annotated[str, Column()]
    version: Annotated[str, Column()]
    edges: Annotated[int, Column("edges", ",")]
    ids: Annotated[str, Column()]
    order: Annotated[str, Column()]
    lone: Annotated[float, Column("lone", ".0%")]
    build: Annotated[float | None, Column("build s", ".2f")]
    one: Annotated[float | None, Column("one ms", ",.1f", times=1e3)]
    many: Annotated[float | None, Column("many s", ",.2f", about=f"{SOURCES} traversals")]
    closeness: Annotated[float | None, Column("closeness s", ",.2f", about=f"of {SAMPLE} vertices")]
    peak: Annotated[int, Column("peak GiB", ",.2f", times=2**-30)]


@click.command()
@click.option(
    "--scale",
    "scales",
    multiple=True,
    type=click.IntRange(8),
    default=(16, 20),
    show_default=True,
    help="Logarithm of the vertices of a Kronecker graph with 16 edges each; may be repeated.",
)
@click.option("--peer", multiple=True, type=click.Choice(tuple(PEERS)), help="Only this library; may be repeated.")
@options.choices("--order", ORDERS, "Numbering of the vertices", ORDERS)
@options.choices("--ids", IDS, "Kind of the ids", IDS)
@options.count("--limit", 1800, "Seconds that a peer may take for a graph.")
@options.json
def peers(
    scales: tuple[int, ...],
    peer: tuple[str, ...],
    order: tuple[str, ...],
    ids: tuple[str, ...],
    limit: int,
    file: str | None,
) -> None:
    """Measure dbfs beside other libraries, from a Parquet file to the answers.

    Every peer that is installed runs in a process of its own. Scales 16 and 20 have 1 and 17 million edges. Run dbfs
    warm-up before, so that no time is that of the compiler.

    Example: dbfs bench peers --scale 12 --peer dbfs --peer SciPy --order given --ids integer
    """
    there = [name for name in peer or PEERS if importlib.util.find_spec(PEERS[name][0]) is not None]
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    with Results("peers", file, machine=machine) as results, tempfile.TemporaryDirectory() as folder:
        results.take("times", measure(Path(folder), scales, there, order, ids, limit), "From a Parquet file")


def measure(
    folder: Path, scales: Sequence[int], names: Sequence[str], orders: Sequence[str], kinds: Sequence[str], limit: int
) -> Iterator[PeerTime]:
    """Write each graph and have each peer measured; raise ``ValidationError`` where two peers answer differently."""
    graphs = [(scale, kind, order) for scale in scales for kind in kinds for order in orders]
    for scale, kind, order in track(graphs, "graphs"):
        file, sources, edges, lone = written(folder, scale, kind, order)
        answers: dict[str, Any] = {}
        for name in names:
            told, peak = run(name, file, sources, limit)
            if told.get("answers") is not None:
                answers[name] = told["answers"]
                first = next(iter(answers))
                if not np.allclose(answers[name], answers[first], rtol=1e-9, atol=0):
                    raise ValidationError(f"{name} and {first} answer differently for {file.stem}")
            times = {field: told.get(field) for field in ("build", "one", "many", "closeness")}
            yield PeerTime(name, version(PEERS[name][1].package), edges, kind, order, lone, **times, peak=peak)
        file.unlink()


def written(folder: Path, scale: int, kind: str, order: str) -> tuple[Path, list[Any], int, float]:
    """Write a graph; return its file, the sources' ids, the number of its edges, the share of lone vertices."""
    import pandas as pd

    generated = folder / f"{scale}.parquet"
    if not generated.exists():
        write_edges(generate.parse(f"kronecker:scale={scale}"), generated)
    table = pd.read_parquet(generated)
    src, dst = table["src"].to_numpy(), table["dst"].to_numpy()
    n = 2**scale
    degrees = np.bincount(src, minlength=n) + np.bincount(dst, minlength=n)
    random = np.random.default_rng(1)
    label = np.arange(n)
    if order == "degree":
        label[np.argsort(-degrees, kind="stable")] = np.arange(n)
    elif order == "random":
        label = random.permutation(n)
    # The same vertices in every order, whatever their labels are.
    chosen = label[np.random.default_rng(2).choice(np.flatnonzero(degrees), SOURCES, replace=False)]

    def named(labels: NDArray[np.int64]) -> pd.Series[Any]:
        series = pd.Series(labels)
        return series if kind == "integer" else "v" + series.astype(str).str.zfill(10)

    file = folder / f"{scale}-{kind}-{order}.parquet"
    pd.DataFrame({"source": named(label[src]), "target": named(label[dst])}).to_parquet(file)
    return file, named(chosen).tolist(), len(src), float((degrees == 0).mean())


def run(name: str, file: Path, sources: Sequence[Any], limit: int) -> tuple[dict[str, Any], int]:
    """Have a peer measured in a process of its own; return what it told until the limit, and its peak of memory."""
    command = [sys.executable, "-m", "benchmarks.peers", name, str(file), json.dumps(list(sources))]
    told: dict[str, Any] = {}
    peak, end = 0, time.monotonic() + limit
    with tempfile.TemporaryFile("w+") as output, subprocess.Popen(command, stdout=output) as process:
        while process.poll() is None and time.monotonic() < end:
            peak = max(peak, memory_of(process.pid))
            time.sleep(0.05)
        if process.poll() is None:
            for child in [*psutil.Process(process.pid).children(recursive=True), process]:
                child.kill()
        process.wait()
        output.seek(0)
        for line in output:
            told |= json.loads(line)
    if process.returncode > 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return told, peak


def memory_of(pid: int) -> int:
    """Return the bytes of a process and its descendants, each page's share (PSS)."""
    total = 0
    try:
        for process in (parent := psutil.Process(pid), *parent.children(recursive=True)):
            total += process.memory_full_info().pss
    except psutil.Error:  # one has ended meanwhile
        pass
    return total


def tell(name: str, file: Path, sources: Sequence[Any]) -> None:
    """Measure one peer; print a line of JSON after each step."""
    module, kind = PEERS[name]
    importlib.import_module(module)
    if name == "dbfs":
        dbfs.connect(dashboard_address=None).as_current().__enter__()
    seconds, peer = seconds_of(kind, file)
    print(json.dumps({"build": seconds}), flush=True)
    # The first call may compile, and takes pages.
    peer.one(sources[-1])
    print(json.dumps({"one": min(seconds_of(peer.one, sources[0])[0] for _ in range(3))}), flush=True)
    seconds, answers = seconds_of(peer.many, sources)
    print(json.dumps({"many": seconds}), flush=True)
    seconds, closeness = seconds_of(peer.closeness, sources[:SAMPLE])
    found = [float(value) for value in (*np.ravel(answers), *closeness)]
    print(json.dumps({"closeness": seconds, "answers": found}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 3 and sys.argv[1] in PEERS:
        tell(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
    else:
        peers()
