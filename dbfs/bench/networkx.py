"""NetworkX's functions by the backend ``dbfs``, next to NetworkX itself, on one graph and one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import distributed
import networkx as nx

from dbfs.display.progress import track
from dbfs.errors import ValidationError
from dbfs.networkx import BackendGraph, from_networkx

SAMPLE = 64
"""Number of nodes of a function that makes a traversal for each node. NetworkX would take hours for all nodes."""


@dataclass(frozen=True)
class FunctionTime:
    """The time of one function.

    Attributes:
        function: the function and its arguments after the graph.
        networkx: seconds that NetworkX takes, the least of several calls; None for the conversion of the graph.
        dbfs: seconds that the backend takes with a converted graph, the least of several calls.
    """

    function: str
    networkx: float | None
    dbfs: float

    @property
    def ratio(self) -> float | None:
        """How many times as long NetworkX takes."""
        return None if self.networkx is None else self.networkx / self.dbfs


def bench_networkx(client: distributed.Client, scale: int, times: int) -> Iterator[FunctionTime]:
    """Time functions on a graph of Barabási and Albert with ``2**scale`` nodes and 8 edges for each node.

    Args:
        client: the cluster to use.
        scale: logarithm of the number of nodes, at least 7.
        times: number of calls of each function.

    Raises:
        ValidationError: the backend's result is not NetworkX's.
    """
    graph = nx.barabasi_albert_graph(2**scale, 8, seed=1)
    with client.as_current():
        start = time.perf_counter()
        converted = from_networkx(graph)
        converted.loaded()
        yield FunctionTime("conversion and loading", None, time.perf_counter() - start)
        for name, call in track(_calls(len(graph)), "functions"):
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
            yield FunctionTime(name, min(seconds[False]), min(seconds[True]))


def _calls(n: int) -> list[tuple[str, Callable[[nx.Graph | BackendGraph], Any]]]:
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
        ("radius(usebounds=True)", lambda graph: nx.radius(graph, usebounds=True)),
    ]


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict) and any(isinstance(value, float) for value in expected.values()):
        # The sums of many inverse distances differ by rounding.
        return expected.keys() == found.keys() and all(
            abs(found[node] - value) <= 1e-9 * abs(value) for node, value in expected.items()
        )
    return bool(found == expected)
