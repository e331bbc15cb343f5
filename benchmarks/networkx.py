"""NetworkX's functions by the backend ``dbfs``, next to NetworkX itself, in turns on the same graph.

Functions with a traversal of each node take NetworkX time as the square of the nodes. They have a smaller graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import distributed
import networkx as nx

from dbfs.errors import ValidationError
from dbfs.networkx import BackendGraph, from_networkx
from dbfs.progress import track

SAMPLE = 64
"""Number of nodes of a function that makes a traversal for each node. NetworkX would take hours for all nodes."""


Calls = list[tuple[str, Callable[[nx.Graph | BackendGraph], Any]]]
"""Functions by the name that is shown."""


@dataclass(frozen=True)
class FunctionTime:
    """The time of one function.

    Attributes:
        function: the function and its arguments after the graph.
        scale: logarithm of the graph's number of nodes.
        networkx: seconds that NetworkX takes, the least of several calls; None for the conversion of the graph.
        dbfs: seconds that the backend takes with a converted graph, the least of several calls.
    """

    function: str
    scale: int
    networkx: float | None
    dbfs: float

    @property
    def ratio(self) -> float | None:
        """How many times as long NetworkX takes."""
        return None if self.networkx is None else self.networkx / self.dbfs


def bench_networkx(client: distributed.Client, scale: int, pairs_scale: int, times: int) -> Iterator[FunctionTime]:
    """Time functions on graphs of Barabási and Albert with 8 edges for each node.

    Args:
        client: the cluster to use.
        scale: logarithm of the number of nodes, at least 7, of the graph for functions of a few traversals.
        pairs_scale: the same for functions with a traversal of each node.
        times: number of calls of each function.

    Raises:
        ValidationError: the backend's result is not NetworkX's.
    """
    with client.as_current():
        yield from _measure(scale, _calls(2**scale), times)
        yield from _measure(pairs_scale, _calls_of_all_pairs(), times)


def _measure(scale: int, calls: Calls, times: int) -> Iterator[FunctionTime]:
    """Time the calls on a graph with ``2**scale`` nodes."""
    graph = nx.barabasi_albert_graph(2**scale, 8, seed=1)
    start = time.perf_counter()
    converted = from_networkx(graph)
    converted.loaded()
    yield FunctionTime("conversion and loading", scale, None, time.perf_counter() - start)
    for name, call in track(calls, "functions"):
        seconds: dict[bool, list[float]] = {False: [], True: []}
        results: dict[bool, Any] = {}
        # In turns, so that other work on the machine disturbs both alike.
        for _ in range(times):
            for own, each in ((False, graph), (True, converted)):
                results.pop(own, None)
                start = time.perf_counter()
                results[own] = call(each)
                seconds[own].append(time.perf_counter() - start)
        if not _same(results[True], results[False]):
            raise ValidationError(f"{name}: the backend's result is not that of NetworkX")
        yield FunctionTime(name, scale, min(seconds[False]), min(seconds[True]))


def _calls(n: int) -> Calls:
    last, some = n - 1, list(range(0, n, n // SAMPLE))[:SAMPLE]
    return [
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


def _calls_of_all_pairs() -> Calls:
    return [
        ("eccentricity()", nx.eccentricity),
        ("diameter()", nx.diameter),
        ("radius(usebounds=True)", lambda graph: nx.radius(graph, usebounds=True)),
        ("closeness_centrality()", nx.closeness_centrality),
        ("harmonic_centrality()", nx.harmonic_centrality),
        ("average_shortest_path_length()", nx.average_shortest_path_length),
        ("all_pairs_shortest_path_length()", lambda graph: dict(nx.all_pairs_shortest_path_length(graph))),
    ]


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, float):
        return bool(abs(found - expected) <= 1e-9 * abs(expected))
    if isinstance(expected, dict) and any(isinstance(value, float) for value in expected.values()):
        # The sums of many inverse distances differ by rounding.
        return expected.keys() == found.keys() and all(
            abs(found[node] - value) <= 1e-9 * abs(value) for node, value in expected.items()
        )
    return bool(found == expected)
