"""Shortest paths by weight: beside SciPy's and NetworKit's Dijkstra on one thread, and between two vertices."""

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any, Final

import click
import distributed
import numpy as np
import pyarrow as pa
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.csgraph import dijkstra

import dbfs
from benchmarks import options
from benchmarks.runner import Column, Results, connect, in_turns
from dbfs.assembly import Graph
from dbfs.edges.resolve import edge_list

PIECE_EDGES: Final = 1 << 22
LARGEST: Final = 255
"""Weights are uniform integers from 1 to this."""


@dataclass(frozen=True)
class WeightedTime:
    """The time of a way to find shortest paths.

    Attributes:
        way: a call, or a program.
        searches: searches of a round.
        milliseconds: of a search, the median of the rounds.
        mteps: millions of directed edges of the component by second; 0 where a search ends early.
        times: the time of the first way by that of this one.
    """

    way: Annotated[str, Column()]
    searches: int
    milliseconds: Annotated[float, Column("ms", ".2f")]
    mteps: Annotated[float, Column("MTEPS", ",.1f")]
    times: Annotated[float, Column("times", ".2f", "the time of the first way by that of this one")]


@click.command()
@options.graph
@options.order("given")
@options.ranks(1)
@options.backend
@options.count("--sources", 4, "Random sources, and pairs.")
@options.count("--rounds", 5, "Turns that count.")
@options.json
def sssp(graph: str, order: str, ranks: int, backend: str, sources: int, rounds: int, file: str | None) -> None:
    """Measure shortest paths by weights that are uniform from 1 to 255, beside other programs.

    All find the same distances. NetworKit takes part if it is installed.

    Example: dbfs bench sssp --graph kronecker:scale=18
    """
    with (
        Results("sssp", file) as results,
        connect(ranks, backend, processes=ranks > 1) as client,
        _loaded(client, graph, order, ranks, backend) as loaded,
    ):
        title = f"{graph} by {order}, {ranks} ranks"
        results.take("sssp", bench_all(loaded, _edges(graph), sources, rounds), title)
        results.take("pairs", bench_pairs(loaded, sources, rounds), "Between two vertices")


def bench_all(graph: Graph, edges: pa.Table, count: int, rounds: int) -> Iterator[WeightedTime]:
    """Measure searches from random sources to all vertices, in turns."""
    sources = graph.sample_sources(count)
    matrix, at = _matrix(graph, edges), graph.vertices_of(sources).tolist()
    ways: dict[str, Callable[[], list[NDArray[Any]]]] = {
        "SciPy": lambda: [dijkstra(matrix, indices=one) for one in at],
        "dbfs": lambda: [_distances(graph, one) for one in sources],
    }
    if importlib.util.find_spec("networkit") is not None:
        search = _networkit(matrix)
        ways["NetworKit"] = lambda: [search(one) for one in at]
    results = [graph.sssp(one, "weight") for one in sources]
    traversed = sum(result.edges for result in results)
    seconds, found = in_turns(ways, rounds, warm_up=1)
    expected = np.array(found["dbfs"])
    for way in ways:
        others = np.array(found[way])
        # Unreached vertices have infinity, the largest number, or -1.
        reached = expected >= 0
        assert (others[reached] == expected[reached]).all(), way
    yield from _rows(seconds, count, traversed)


def bench_pairs(graph: Graph, count: int, rounds: int) -> Iterator[WeightedTime]:
    """Measure searches between random pairs, in turns."""
    ends = graph.sample_sources(2 * count)
    pairs = [*zip(ends[::2], ends[1::2], strict=True)]
    ways: dict[str, Callable[[], Any]] = {
        "sssp(targets=)": lambda: [_to_target(graph, *pair) for pair in pairs],
        "distance": lambda: [graph.distance(*pair, weight="weight") for pair in pairs],
        "path": lambda: [graph.path(*pair, weight="weight") for pair in pairs],
    }
    seconds, found = in_turns(ways, rounds, warm_up=1)
    assert found["sssp(targets=)"] == found["distance"]
    yield from _rows(seconds, count, 0)


def _rows(seconds: dict[str, list[float]], count: int, edges: int) -> Iterator[WeightedTime]:
    first = median(next(iter(seconds.values())))
    for way, all_of in seconds.items():
        middle = median(all_of)
        yield WeightedTime(way, count, 1e3 * middle / count, edges / middle / 1e6, first / middle)


def _loaded(client: distributed.Client, spec: str, order: str, ranks: int, backend: str) -> Graph:
    """Return the graph with weights."""
    return dbfs.load(
        _edges(spec),
        edge_columns="weight",
        directed=edge_list(spec).directed,
        client=client,
        ranks=ranks,
        order=order,
        backend=backend,
        name="benchmark",
    )


def _edges(spec: str) -> pa.Table:
    """Return the edges as a table with weights; an undirected edge is there once."""
    edges = edge_list(spec)
    ends = [piece.read() for piece in edges.cut(PIECE_EDGES)]
    source, target = (np.concatenate([np.asarray(pair[end]) for pair in ends]) for end in (0, 1))
    if edges.mirrored:
        source, target = source[source <= target], target[source <= target]
    weight = np.random.default_rng(1).integers(1, LARGEST, source.size, endpoint=True)
    return pa.table({"source": source, "target": target, "weight": weight})


def _matrix(graph: Graph, edges: pa.Table) -> Any:
    """Return the lightest of parallel edges as a matrix by vertex, in both directions where these hold."""
    source, target = (graph.vertices_of(edges[end].to_numpy()) for end in ("source", "target"))
    weight = edges["weight"].to_numpy()
    if not graph.directed:
        source, target = np.append(source, target), np.append(target, source)
        weight = np.append(weight, weight)
    order = np.lexsort((weight, target, source))
    source, target, weight = source[order], target[order], weight[order]
    first = np.append(True, (source[1:] != source[:-1]) | (target[1:] != target[:-1]))
    return scipy.sparse.csr_array((weight[first], (source[first], target[first])), shape=(graph.n, graph.n))


def _distances(graph: Graph, source: Any) -> NDArray[Any]:
    result = graph.sssp(source, "weight")
    found = result.distances()
    result.release()
    return found


def _to_target(graph: Graph, source: Any, target: Any) -> int:
    result = graph.sssp(source, "weight", targets=target)
    found = int(result.distances()[graph.vertex(target)])
    result.release()
    return found


def _networkit(matrix: Any) -> Callable[[int], NDArray[Any]]:
    """Return a search by NetworKit, from a vertex."""
    import networkit

    entries = matrix.tocoo()
    ends = entries.row.astype(np.uint64), entries.col.astype(np.uint64)
    graph = networkit.GraphFromCoo((entries.data.astype(float), ends), matrix.shape[0], weighted=True, directed=True)

    def search(source: int) -> NDArray[Any]:
        made = networkit.distance.Dijkstra(graph, source, storePaths=False)
        made.run()
        return np.array(made.getDistances())

    return search
