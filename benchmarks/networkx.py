"""NetworkX's functions by the backend ``dbfs``, next to NetworkX itself, in turns on the same graph.

Functions with a traversal of each node take NetworkX time as the square of the nodes. They have a smaller graph.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import click
import distributed

from benchmarks import options
from benchmarks.runner import Column, Results, connect, in_turns, seconds_of
from dbfs.base.progress import track
from dbfs.errors import MissingPackageError, ValidationError

if TYPE_CHECKING:
    from dbfs.networkx import BackendGraph

SAMPLE = 64
"""Number of nodes of a function that makes a traversal for each node. NetworkX would take hours for all nodes."""


Calls = list[tuple[str, Callable[[Any], Any]]]
"""Functions by the name that is shown."""


@dataclass(frozen=True)
class FunctionTime:
    """The least seconds of several calls of one function.

    Attributes:
        function: the function and its arguments after the graph.
        scale: logarithm of the graph's number of nodes.
        networkx: seconds that NetworkX takes; None for the conversion of the graph.
        dbfs: seconds that the backend takes with a converted graph.
        ratio: how many times as long NetworkX takes.
    """

    function: Annotated[str, Column()]
    scale: Annotated[int, Column("nodes", lambda scale: f"2^{scale}")]
    networkx: Annotated[float | None, Column("NetworkX ms", ",.1f", times=1e3)]
    dbfs: Annotated[float, Column("dbfs ms", ",.1f", times=1e3)]
    ratio: Annotated[float | None, Column("", ".1f")]


@click.command()
@options.count("--scale", 14, "Logarithm of the number of nodes.", least=7)
@options.count("--pairs-scale", 10, "The same, of the graph for functions with a traversal from each node.", least=7)
@options.ranks(1)
@options.backend
@options.count("--times", 2, "Calls of each function.")
@options.json
def networkx(scale: int, pairs_scale: int, ranks: int, backend: str, times: int, file: str | None) -> None:
    """Measure NetworkX's functions with the backend dbfs, next to NetworkX itself.

    Both take the same graph (Barabási and Albert, 8 edges for each node), in turns. The results are compared. Functions
    with a traversal from each node take a smaller graph, since NetworkX's time grows with the square of the nodes.
    ratio is NetworkX's time over the time of dbfs.

    Example: dbfs bench networkx --scale 14 --pairs-scale 11
    """
    try:
        importlib.import_module("networkx")
    except ModuleNotFoundError:
        raise MissingPackageError("NetworkX is not installed; pip install '.[networkx]' in a clone of dbfs") from None
    with Results("networkx", file) as results, connect(ranks, backend, processes=backend == "cuda") as client:
        results.take("times", bench_networkx(client, scale, pairs_scale, times), "NetworkX's functions")


def bench_networkx(client: distributed.Client, scale: int, pairs_scale: int, times: int) -> Iterator[FunctionTime]:
    """Time functions on graphs of Barabási and Albert with 8 edges for each node.

    Raises:
        ValidationError: the backend's result is not NetworkX's.
    """
    few, pairs = _calls(2**scale)
    with client.as_current():
        yield from _measure(scale, few, times)
        yield from _measure(pairs_scale, pairs, times)


def _measure(scale: int, calls: Calls, times: int) -> Iterator[FunctionTime]:
    """Time the calls on a graph with ``2**scale`` nodes."""
    import networkx as nx

    from dbfs.networkx import from_networkx

    graph = nx.barabasi_albert_graph(2**scale, 8, seed=1)

    def convert() -> BackendGraph:
        converted = from_networkx(graph)
        converted.loaded()
        return converted

    taken, converted = seconds_of(convert)
    yield FunctionTime("conversion and loading", scale, None, taken, None)
    for name, call in track(calls, "functions"):
        seconds, results = in_turns({"NetworkX": partial(call, graph), "dbfs": partial(call, converted)}, times)
        if not _same(results["dbfs"], results["NetworkX"]):
            raise ValidationError(f"{name}: the backend's result is not that of NetworkX")
        theirs, ours = min(seconds["NetworkX"]), min(seconds["dbfs"])
        yield FunctionTime(name, scale, theirs, ours, theirs / ours)


def _calls(n: int) -> tuple[Calls, Calls]:
    """Return the functions of a few traversals of a graph with ``n`` nodes, and those with a traversal of each node."""
    import networkx as nx

    last, some = n - 1, list(range(0, n, n // SAMPLE))[:SAMPLE]
    few: Calls = [
        ("has_path(a, b)", lambda graph: nx.has_path(graph, 0, last)),
        ("shortest_path_length(a, b)", lambda graph: nx.shortest_path_length(graph, 0, last)),
        ("is_connected()", nx.is_connected),
        ("connected_components()", lambda graph: list(nx.connected_components(graph))),
        ("single_source_shortest_path_length(a)", lambda graph: nx.single_source_shortest_path_length(graph, 0)),
        ("single_source_shortest_path(a)", lambda graph: nx.single_source_shortest_path(graph, 0)),
        ("bfs_edges(a)", lambda graph: list(nx.bfs_edges(graph, 0))),
        ("closeness_centrality(a)", lambda graph: nx.closeness_centrality(graph, 0)),
        (f"harmonic_centrality({SAMPLE} nodes)", lambda graph: nx.harmonic_centrality(graph, some)),
        (f"eccentricity({SAMPLE} nodes)", lambda graph: nx.eccentricity(graph, some)),
    ]
    pairs: Calls = [
        ("eccentricity()", nx.eccentricity),
        ("diameter()", nx.diameter),
        ("radius(usebounds=True)", lambda graph: nx.radius(graph, usebounds=True)),
        ("closeness_centrality()", nx.closeness_centrality),
        ("harmonic_centrality()", nx.harmonic_centrality),
        ("average_shortest_path_length()", nx.average_shortest_path_length),
        ("all_pairs_shortest_path_length()", lambda graph: dict(nx.all_pairs_shortest_path_length(graph))),
    ]
    return few, pairs


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, float):
        return bool(abs(found - expected) <= 1e-9 * abs(expected))
    if isinstance(expected, dict) and any(isinstance(value, float) for value in expected.values()):
        # The sums of many inverse distances differ by rounding.
        return expected.keys() == found.keys() and all(
            abs(found[node] - value) <= 1e-9 * abs(value) for node, value in expected.items()
        )
    return bool(found == expected)
