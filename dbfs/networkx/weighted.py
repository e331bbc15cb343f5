"""Shortest paths by an attribute of the edges, as NetworkX's functions of Dijkstra's algorithm find them.

An edge without the attribute weighs 1, and of parallel edges the lightest counts. The weights are read from the graph
of NetworkX in each call, since NetworkX does not tell when an attribute changes; the graph on the workers is loaded
anew if they have changed.

The ranks find the distances. NetworkX's order, and its choice among paths of one length, follow from these: a search
over the edges that give the distances visits the nodes as Dijkstra's algorithm with a heap does (``Searches._search``).
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from dbfs.errors import InvalidOptionError
from dbfs.features.weights.paths import between
from dbfs.networkx.backend_graph import BackendGraph, EdgeValues, Way, values_of_edges
from dbfs.networkx.registry import offered
from dbfs.networkx.searches import require

Path = list[Any]
Lengths = dict[Any, Any]

# As sums of integers up to there, floats are exact.
_MOST_EXACT: Final = 2**53


class _Refused(Exception):  # noqa: N818 - no error: NetworkX computes it
    """Raised for weights that dbfs does not add up as Python does."""


@dataclass(frozen=True)
class Weights:
    """The weights of a graph's edges.

    Attributes:
        name: the attribute.
        numbers: the weight of each neighbour, in the order of the graph's adjacency: int64, float64 or float32.
        given: the same as Python has them, where integers and floats are mixed; else None.
    """

    name: Any
    numbers: NDArray[Any]
    given: list[Any] | None

    @classmethod
    def of(cls, name: Any, given: list[Any]) -> Weights:
        """Return the weights that are given; raise ``_Refused`` if dbfs does not add them up as Python does."""
        kinds = set(map(type, given))
        integers = {kind for kind in kinds if issubclass(kind, int | np.integer)}
        floats = {kind for kind in kinds if issubclass(kind, float)}
        single = kinds == {np.float32}
        if not single and kinds - integers - floats:
            raise _Refused(f"{name!r} must be integers or floats")
        mixed = bool(integers and floats)
        if mixed and sum(abs(int(one)) for one in given if type(one) in integers) > _MOST_EXACT:
            raise _Refused(f"{name!r} has floats, and integers that sums of floats do not hold")
        try:
            numbers = np.array(given, np.float32 if single else np.float64 if floats else np.int64)
        except OverflowError:
            raise _Refused(f"{name!r} has an integer beyond 64 bits") from None
        if not np.isfinite(numbers).all():
            raise _Refused(f"{name!r} has a weight that is not finite")
        return cls(name, numbers, given if mixed else None)


def refusal(arguments: Mapping[str, Any]) -> str | None:
    """Return why a call that names a weight can't run; None if it can."""
    graph, name = next(iter(arguments.values()), None), arguments.get("weight", "weight")
    if graph is None or name is None:
        return None
    if callable(name):
        return "weight= is a function; dbfs takes the name of an attribute"
    if arguments.get("method", "dijkstra") != "dijkstra":
        return f"method={arguments['method']!r}: dbfs finds shortest paths by weight as Dijkstra's algorithm does"
    try:
        Weights.of(name, values_of_edges(graph, name))
    except (_Refused, TypeError) as reason:
        return str(reason)
    return None


def doubt(arguments: Mapping[str, Any]) -> str | None:
    """Return why NetworkX should run a call that names a weight itself; None if not."""
    graph, name = next(iter(arguments.values()), None), arguments.get("weight", "weight")
    return None if graph is None or name is None else _negative(graph, name, values_of_edges(graph, name))


by_weight: Final = functools.partial(offered, weighed=refusal, doubt=doubt)
"""Offers a function that takes the name of an attribute as ``weight``."""


def _negative(graph: Any, name: Any, given: Sequence[Any]) -> str | None:
    """Name an edge with a negative weight; None if there is none."""
    at = next((at for at, one in enumerate(given) if one < 0), None)
    if at is None:
        return None
    source, target = next(itertools.islice(_ends(graph), at, None))
    return f"the edge from {source!r} to {target!r} has {name!r} {given[at]}; dbfs needs weights of at least 0"


def _ends(graph: Any) -> Iterator[tuple[Any, Any]]:
    """Return both nodes of each edge, in the order of ``values_of_edges``."""
    if isinstance(graph, BackendGraph):
        return zip(*map(graph.nodes_of, graph.adjacency.pairs()), strict=True)
    return ((node, other) for node in graph for other in graph._adj[node])


@dataclass(frozen=True)
class Found:
    """What a search has found, as NetworkX would have it.

    Attributes:
        order: the vertices in the order in which their distances are final.
        lengths: the distance of each, as Python's numbers.
        parents: of each vertex but the sources the one before it.
        after: by index in ``order``, the vertices next on shortest paths, in the order of the graph.
    """

    order: list[int]
    lengths: list[Any]
    parents: dict[int, int]
    after: list[list[int]]


class Searches:
    """Searches of one call by the weights that the edges have now.

    Args:
        graph: the graph.
        name: the attribute.
    """

    def __init__(self, graph: BackendGraph, name: Any) -> None:
        self._graph, self._name = graph, name
        self._forward = self._weights(Way.FORWARD)
        self._values = EdgeValues(name, self._forward.numbers)

    def _weights(self, way: Way) -> Weights:
        given = values_of_edges(self._graph, self._name, way)
        if len(given) != self._graph.adjacency_of(way).neighbours.size:
            raise nx.NetworkXError("the NetworkX graph has changed since it was converted; convert it again")
        negative = _negative(self._graph, self._name, given)
        if negative is not None:
            raise InvalidOptionError(negative)
        return Weights.of(self._name, given)

    def lengths(self, sources: Iterable[Hashable], cutoff: float | None, way: Way = Way.FORWARD) -> Lengths:
        """Return the distance of each node within reach, near nodes first."""
        graph, starts = self._graph, [self._graph.vertex(source) for source in sources]
        if self._forward.given is not None:
            found = self._search(starts, cutoff, way)
            return dict(zip(graph.nodes_of(np.array(found.order)), found.lengths, strict=True))
        distances = self._distances(starts, cutoff, way)
        vertices = np.flatnonzero(_known(distances))
        vertices = vertices[np.argsort(distances[vertices], kind="stable")]
        lengths = dict(zip(graph.nodes_of(vertices), distances[vertices].tolist(), strict=True))
        return lengths | dict.fromkeys(graph.nodes_of(np.array(starts)), 0)

    def lengths_and_paths(
        self,
        sources: Iterable[Hashable],
        cutoff: float | None,
        way: Way = Way.FORWARD,
        join: Callable[[Path, Any], Path] = lambda path, node: [*path, node],
    ) -> tuple[Lengths, dict[Any, Path]]:
        """Return the distance of each node within reach, and a path."""
        found = self._search([self._graph.vertex(source) for source in sources], cutoff, way)
        nodes = self._graph.nodes_of(np.array(found.order))
        paths: dict[int, Path] = {}
        for vertex, node in zip(found.order, nodes, strict=True):
            parent = found.parents.get(vertex)
            paths[vertex] = [node] if parent is None else join(paths[parent], node)
        return dict(zip(nodes, found.lengths, strict=True)), dict(zip(nodes, paths.values(), strict=True))

    def predecessors(self, source: Hashable, cutoff: float | None) -> tuple[dict[Any, list[Any]], Lengths]:
        """Return for each node within reach all nodes before it on shortest paths, and its distance."""
        found = self._search([self._graph.vertex(source)], cutoff, Way.FORWARD)
        nodes = dict(zip(found.order, self._graph.nodes_of(np.array(found.order)), strict=True))
        before: dict[Any, list[Any]] = {source: []}
        for vertex, others in zip(found.order, found.after, strict=True):
            for other in others:
                before.setdefault(nodes[other], []).append(nodes[vertex])
        return before, dict(zip(nodes.values(), found.lengths, strict=True))

    def between(self, source: Hashable, target: Hashable) -> tuple[Any, Path] | None:
        """Return the distance between two nodes, and a shortest path; None if no path joins them."""
        graph, given = self._graph, self._forward.given
        loaded = graph.loaded(weights=self._values, in_edges=True)
        ends = graph.vertex(source), graph.vertex(target)
        length, path = between(loaded, loaded._column_keys, *ends, "weight")
        if len(path) < 2:
            return (0, [source]) if path else None
        if given is not None:
            length, starts, neighbours = 0, graph.adjacency.starts, graph.adjacency.neighbours
            for vertex, other in itertools.pairwise(path):
                first = int(starts[vertex])
                length += given[first + int(np.flatnonzero(neighbours[first : starts[vertex + 1]] == other)[0])]
        return length, graph.nodes_of(np.array(path))

    def _distances(self, sources: Sequence[int], cutoff: float | None, way: Way) -> NDArray[Any]:
        """Return the distance of each vertex, -1 for those that are out of reach, or infinity."""
        most = None if cutoff is None else max(cutoff, 0)
        result = self._graph.loaded(way, weights=self._values).sssp(sources, "weight", max_distance=most)
        found = result.distances()
        result.release()
        if cutoff is not None and cutoff < 0:
            # NetworkX takes sources without a look at the cutoff.
            others = np.setdiff1d(np.arange(found.size), sources)
            found[others] = -1 if found.dtype.kind == "i" else np.inf
        return found

    def _search(self, sources: Sequence[int], cutoff: float | None, way: Way) -> Found:
        """Search from some vertices, and replay NetworkX's search."""
        weights = self._forward if way is Way.FORWARD else self._weights(way)
        distances = self._distances(sources, cutoff, way)
        (tails, heads), known = self._graph.adjacency_of(way).pairs(), _known(distances)
        with np.errstate(over="ignore"):
            shortest = known[tails] & known[heads] & (distances[tails] + weights.numbers == distances[heads])
        edges = np.flatnonzero(shortest)
        begins = np.zeros(distances.size + 1, np.int64)
        np.cumsum(np.bincount(tails[edges], minlength=distances.size), out=begins[1:])
        starts, others, plain = begins.tolist(), heads[edges].tolist(), distances.tolist()
        counter = itertools.count()
        lengths: dict[int, Any] = dict.fromkeys(sources, 0)
        heap = [(0, next(counter), source) for source in lengths]
        found = Found([], [], {}, [])
        while heap:
            _, _, vertex = heapq.heappop(heap)
            found.order.append(vertex)
            found.lengths.append(lengths[vertex])
            found.after.append(others[starts[vertex] : starts[vertex + 1]])
            for at, other in enumerate(found.after[-1], starts[vertex]):
                if other not in lengths:
                    found.parents[other] = vertex
                    exact = None if weights.given is None else lengths[vertex] + weights.given[edges[at]]
                    lengths[other] = plain[other] if exact is None else exact
                    heapq.heappush(heap, (plain[other], next(counter), other))
        return found


def _known(distances: NDArray[Any]) -> NDArray[np.bool_]:
    return distances >= 0 if distances.dtype.kind == "i" else np.isfinite(distances)


@by_weight()
def dijkstra_path(G: BackendGraph, source: Hashable, target: Hashable, weight: Any = "weight") -> Path:
    """Return a shortest path between two nodes."""
    found: Path = single_source_dijkstra(G, source, target=target, weight=weight)[1]
    return found


@by_weight()
def dijkstra_path_length(G: BackendGraph, source: Hashable, target: Hashable, weight: Any = "weight") -> Any:
    """Return the length of a shortest path between two nodes."""
    require(G, source, "Node {} not found in graph")
    if source == target:
        return 0
    found = Searches(G, weight).between(source, target) if target in G else None
    if found is None:
        raise nx.NetworkXNoPath(f"Node {target} not reachable from {source}")
    return found[0]


@by_weight()
def bidirectional_dijkstra(
    G: BackendGraph, source: Hashable, target: Hashable, weight: Any = "weight"
) -> tuple[Any, Path]:
    """Return the length of a shortest path between two nodes, and the path."""
    require(G, source, "Source {} is not in G")
    require(G, target, "Target {} is not in G")
    if source == target:
        return 0, [source]
    found = Searches(G, weight).between(source, target)
    if found is None:
        raise nx.NetworkXNoPath(f"No path between {source} and {target}.")
    return found


@by_weight()
def single_source_dijkstra(
    G: BackendGraph,
    source: Hashable,
    target: Hashable | None = None,
    cutoff: float | None = None,
    weight: Any = "weight",
) -> tuple[Any, Any]:
    """Return the lengths and the paths from a node, or those to one target."""
    return multi_source_dijkstra(G, {source}, target=target, cutoff=cutoff, weight=weight)


@by_weight()
def single_source_dijkstra_path(
    G: BackendGraph, source: Hashable, cutoff: float | None = None, weight: Any = "weight"
) -> dict[Any, Path]:
    """Return a shortest path from a node to each node within reach."""
    return multi_source_dijkstra_path(G, {source}, cutoff=cutoff, weight=weight)


@by_weight()
def single_source_dijkstra_path_length(
    G: BackendGraph, source: Hashable, cutoff: float | None = None, weight: Any = "weight"
) -> Lengths:
    """Return the distance of each node within reach, near nodes first."""
    return multi_source_dijkstra_path_length(G, {source}, cutoff=cutoff, weight=weight)


@by_weight()
def multi_source_dijkstra(
    G: BackendGraph, sources: Any, target: Hashable | None = None, cutoff: float | None = None, weight: Any = "weight"
) -> tuple[Any, Any]:
    """Return the lengths and the paths from the nearest of some nodes, or those to one target."""
    _require_sources(G, sources)
    if target in sources:
        return 0, [target]
    if target is not None and len(sources) == 1:
        (source,) = sources
        found = Searches(G, weight).between(source, target) if target in G else None
        if found is None or (cutoff is not None and found[0] > cutoff):
            raise nx.NetworkXNoPath(f"No path to {target}.")
        return found
    lengths, paths = Searches(G, weight).lengths_and_paths(sources, cutoff)
    if target is None:
        return lengths, paths
    if target not in paths:
        raise nx.NetworkXNoPath(f"No path to {target}.")
    return lengths[target], paths[target]


@by_weight()
def multi_source_dijkstra_path(
    G: BackendGraph, sources: Any, cutoff: float | None = None, weight: Any = "weight"
) -> dict[Any, Path]:
    """Return a shortest path to each node within reach of some nodes."""
    _require_sources(G, sources)
    return Searches(G, weight).lengths_and_paths(sources, cutoff)[1]


@by_weight()
def multi_source_dijkstra_path_length(
    G: BackendGraph, sources: Any, cutoff: float | None = None, weight: Any = "weight"
) -> Lengths:
    """Return the distance of each node from the nearest of some nodes, near nodes first."""
    _require_sources(G, sources)
    return Searches(G, weight).lengths(sources, cutoff)


@by_weight(single=())
def all_pairs_dijkstra(
    G: BackendGraph, cutoff: float | None = None, weight: Any = "weight"
) -> Iterator[tuple[Any, tuple[Lengths, dict[Any, Path]]]]:
    """Yield each node with the lengths and the paths from the node."""
    searches = Searches(G, weight)
    for node in G:
        yield node, searches.lengths_and_paths([node], cutoff)


@by_weight(single=())
def all_pairs_dijkstra_path(
    G: BackendGraph, cutoff: float | None = None, weight: Any = "weight"
) -> Iterator[tuple[Any, dict[Any, Path]]]:
    """Yield each node with a shortest path to each node within reach."""
    searches = Searches(G, weight)
    for node in G:
        yield node, searches.lengths_and_paths([node], cutoff)[1]


@by_weight(single=())
def all_pairs_dijkstra_path_length(
    G: BackendGraph, cutoff: float | None = None, weight: Any = "weight"
) -> Iterator[tuple[Any, Lengths]]:
    """Yield each node with the distance of each node within reach."""
    searches = Searches(G, weight)
    for node in G:
        yield node, searches.lengths([node], cutoff)


@by_weight()
def dijkstra_predecessor_and_distance(
    G: BackendGraph, source: Hashable, cutoff: float | None = None, weight: Any = "weight"
) -> tuple[dict[Any, list[Any]], Lengths]:
    """Return for each node within reach all nodes before it on shortest paths, and its distance."""
    require(G, source, "Node {} is not found in the graph")
    return Searches(G, weight).predecessors(source, cutoff)


def shortest_paths(
    G: BackendGraph, source: Hashable | None, target: Hashable | None, weight: Any
) -> Path | dict[Any, Path] | Iterator[tuple[Any, dict[Any, Path]]]:
    """Return what ``shortest_path`` does, by weight."""
    if source is not None:
        return (
            single_source_dijkstra_path(G, source, weight=weight)
            if target is None
            else (bidirectional_dijkstra(G, source, target, weight)[1])
        )
    if target is None:
        return all_pairs_dijkstra_path(G, weight=weight)
    require(G, target, "Node {} not found in graph")
    return Searches(G, weight).lengths_and_paths([target], None, Way.BACKWARD, lambda path, node: [node, *path])[1]


def shortest_lengths(G: BackendGraph, source: Hashable | None, target: Hashable | None, weight: Any) -> Any:
    """Return what ``shortest_path_length`` does, by weight."""
    if source is not None:
        if target is None:
            return single_source_dijkstra_path_length(G, source, weight=weight)
        return dijkstra_path_length(G, source, target, weight)
    if target is None:
        return all_pairs_dijkstra_path_length(G, weight=weight)
    require(G, target, "Node {} not found in graph")
    return Searches(G, weight).lengths([target], None, Way.BACKWARD)


def _require_sources(graph: BackendGraph, sources: Any) -> None:
    if not sources:
        raise ValueError("sources must not be empty")
    for source in sources:
        require(graph, source, "Node {} not found in graph")
