"""One call of searches between two vertices: by the ranks from both ends, or made of traversals where they can't."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs.base.progress import ProgressOption
from dbfs.base.records import RunProgress
from dbfs.cluster.deadline import of_call
from dbfs.cluster.rank_calls import ask_ranks
from dbfs.engines import Outcome
from dbfs.engines.resident import ResidentEngine
from dbfs.errors import TooManyPathsError
from dbfs.features.subgraphs.subgraph import cut_out
from dbfs.graph.result import BFSResult
from dbfs.graph.striped import StripedGraph
from dbfs.graph.traversing import finished, require_one_version, traverse
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.features.paths.messages import PlaceIds
from dbfs_workers.features.paths.purpose import BETWEEN, COUNTS, DISTANCES, PATH, PairSearch

_PAIRS: Final = 4096
"""Pairs of a spec."""

_MOST_EXACT: Final = 2.0**63

_placed: Final = weakref.WeakSet[StripedGraph]()
"""Graphs whose ranks have the order by degree."""


def searched_by_ranks(graph: StripedGraph) -> bool:
    """Return whether the ranks search from both ends: on CPUs, where each has the edges of its vertices."""
    return graph.backend == "cpu" and graph.layout == "1d"


def _goes_back(graph: StripedGraph) -> bool:
    """Return whether the ranks can follow edges backwards."""
    return searched_by_ranks(graph) and graph.record.infos[0].has_parents


def _answers(
    graph: StripedGraph,
    wants: str,
    pairs: Sequence[tuple[int, ...]],
    progress: ProgressOption[RunProgress] = False,
    *,
    in_floats: bool = False,
) -> Iterator[Outcome]:
    """Yield the outcome of each spec of a run, whose ``by_source`` has the answers by rank; errors as of ``bfs``."""
    # Of all wants, a path alone compares ids.
    ordered = wants == PATH and graph.numbering.by_degree
    if ordered and graph not in _placed:
        doing = f"placing the order of {graph.name}"
        keys = graph.numbering.on_ranks(of_call(), doing)
        messages = {rank: PlaceIds(graph.record.graph_id, key) for rank, key in enumerate(keys)}
        ask_ranks(graph.gang, messages, doing, graph.name)
        _placed.add(graph)
    options = TraversalSpec(
        run_id=uuid.uuid4().hex,
        sources=(),
        predecessors=False,
        backend=graph.backend,
        purpose=PairSearch(wants, ordered, in_floats),
    )
    for _, made in finished(graph, ResidentEngine(), RunSpec(options, tuple(pairs)), progress):
        made.labels.drop()
        yield made


def distances_of(
    graph: StripedGraph, pairs: NDArray[np.int64], progress: ProgressOption[RunProgress] = None
) -> tuple[NDArray[np.int32], int | None]:
    """Return int32[k], the distances of int64[k, 2] pairs, -1 without a path; and the version, None without a pair.

    Errors as for ``Graph.pair_distances``.
    """
    if not searched_by_ranks(graph):
        return _by_traversals(graph, pairs, progress)
    parts = [tuple(pairs[first : first + _PAIRS].ravel().tolist()) for first in range(0, len(pairs), _PAIRS)]
    found, version = [np.empty(0, np.int32)], None
    for made in _answers(graph, DISTANCES, parts, progress) if parts else ():
        version = made.version if version is None else version
        require_one_version(graph, version, made.version)
        found.append(made.by_source[0])
    return np.concatenate(found), version


def _by_traversals(
    graph: StripedGraph, pairs: NDArray[np.int64], progress: ProgressOption[RunProgress]
) -> tuple[NDArray[np.int32], int | None]:
    """Do the same by a traversal from each source, which ends at its last target."""
    found, version = np.zeros(len(pairs), np.int32), None
    for source in np.unique(pairs[:, 0]).tolist():
        mine = np.flatnonzero(pairs[:, 0] == source)
        targets = pairs[mine, 1]
        (result,) = traverse(graph, BFSResult, [(source,)], targets=tuple(targets.tolist()), progress=progress)
        version = result.version if version is None else version
        require_one_version(graph, version, result.version)
        found[mine] = result.distances()[targets]
        result.release()
    return found, version


@dataclass(frozen=True)
class Between:
    """The vertices and edges of all shortest paths between two vertices.

    Attributes:
        vertices: int64, ascending, the source and the target among them; none without a path.
        after: for each vertex the indices of those that follow it on paths, ascending.
    """

    vertices: NDArray[np.int64]
    after: list[NDArray[np.int64]]

    def paths(self, source: int) -> Iterator[list[int]]:
        """Yield all paths, as vertices, in the order of their vertices from the source on."""
        if not self.vertices.size:
            return
        path = [int(np.searchsorted(self.vertices, source))]
        untried = [iter(self.after[path[0]].tolist())]
        while path:
            if not self.after[path[-1]].size:
                yield self.vertices[path].tolist()
            following = next(untried[-1], None)
            if following is None:
                path.pop()
                untried.pop()
            else:
                path.append(following)
                untried.append(iter(self.after[following].tolist()))


def between(graph: StripedGraph, source: int, target: int) -> tuple[Between, int]:
    """Return what lies on shortest paths between two vertices, and the version; errors as of ``Graph.paths``."""
    if _goes_back(graph):
        (made,) = _answers(graph, BETWEEN, [(source, target)])
        version, (positions, levels) = made.version, np.concatenate([*made.by_source], axis=1)
        vertices = graph.numbering.vertices(positions)
    else:
        vertices, levels, version = _between_by_traversals(graph, source, target)
    ascending = np.argsort(vertices)
    vertices, levels = vertices[ascending], levels[ascending]
    return _leading_to(vertices, levels, *_next_edges(graph, vertices, levels, version), target), version


def _next_edges(
    graph: StripedGraph, vertices: NDArray[np.int64], levels: NDArray[np.int64], version: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the edges between vertices that lead to the next level, as indices of both ends, each edge once."""
    ends = cut_out(graph, vertices, graph.ids_of(vertices[:0]))
    # Edges are read after the search.
    graph.refresh()
    require_one_version(graph, version, graph.record.version)
    sources, targets = ends.sources, ends.targets
    if not graph.directed:
        sources, targets = np.append(sources, targets), np.append(targets, sources)
    leads_on = levels[targets] == levels[sources] + 1
    return sources[leads_on], targets[leads_on]


def _between_by_traversals(
    graph: StripedGraph, source: int, target: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return vertices that include all on shortest paths, their distances from the source, and the version."""
    (near,) = traverse(graph, BFSResult, [(source,)], targets=(target,))
    levels = near.distances().astype(np.int64)
    near.release()
    if levels[target] < 0:
        return np.empty(0, np.int64), np.empty(0, np.int64), near.version
    within = (levels >= 0) & (levels <= levels[target])
    if not graph.directed:
        (far,) = traverse(graph, BFSResult, [(target,)], targets=(source,))
        require_one_version(graph, near.version, far.version)
        rest = far.distances()
        far.release()
        within &= (rest >= 0) & (levels + rest == levels[target])
    vertices = np.flatnonzero(within)
    return vertices, levels[vertices], near.version


def _leading_to(
    vertices: NDArray[np.int64],
    levels: NDArray[np.int64],
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
    target: int,
) -> Between:
    """Keep the edges from which a path leads to the target, given edges from each level to the next."""
    on_path = vertices == target
    by_level = np.argsort(levels[sources], kind="stable")
    bounds = np.searchsorted(levels[sources][by_level], np.arange(levels.max(initial=0) + 1))
    for edges in np.split(by_level, bounds[1:])[::-1]:
        on_path[sources[edges[on_path[targets[edges]]]]] = True
    kept = on_path[targets]
    sources, targets = sources[kept], targets[kept]
    order = np.lexsort((targets, sources))
    after = np.split(targets[order], np.searchsorted(sources[order], np.arange(1, vertices.size)))
    return Between(vertices, after if vertices.size else [])


def first_path(graph: StripedGraph, source: int, target: int) -> tuple[list[int], int]:
    """Return the first of all shortest paths, as vertices, and the version; errors as of ``Graph.path``."""
    if _goes_back(graph):
        (made,) = _answers(graph, PATH, [(source, target)])
        return graph.numbering.vertices_at(made.by_source[0].tolist()), made.version
    found, version = between(graph, source, target)
    return next(found.paths(source), []), version


def counts_of_paths(graph: StripedGraph, source: int, *, in_floats: bool) -> NDArray[Any]:
    """Return int64[n] or float64[n], the numbers of shortest paths; errors as of ``Graph.count_paths``."""
    if searched_by_ranks(graph):
        (made,) = _answers(graph, COUNTS, [(source,)], in_floats=in_floats)
        counts = np.empty(graph.n, made.by_source[0].dtype)
        for rank, part in enumerate(made.by_source):
            counts[rank :: graph.ranks] = part
        return counts if graph.order is None else counts[graph.order.position]
    (result,) = traverse(graph, BFSResult, [(source,)])
    distances = result.distances().astype(np.int64)
    result.release()
    vertices = np.flatnonzero(distances >= 0)
    levels = distances[vertices]
    sources, targets = _next_edges(graph, vertices, levels, result.version)
    found, floats = (levels == 0).astype(np.int64), (levels == 0).astype(np.float64)
    with np.errstate(over="ignore"):
        for level in range(result.depth):
            edges = levels[sources] == level
            for numbers in (found, floats):
                np.add.at(numbers, targets[edges], numbers[sources[edges]])
    # Where an integer is too large, the float beside it says so.
    if floats.max() >= (np.inf if in_floats else _MOST_EXACT):
        raise TooManyPathsError(f"a vertex of {graph.name} has too many shortest paths; see floats=")
    counts = np.zeros(graph.n, np.float64 if in_floats else np.int64)
    counts[vertices] = floats if in_floats else found
    return counts
