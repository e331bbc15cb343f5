"""One call of searches between two vertices: by the ranks from both ends, or made of traversals where they can't."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from dbfs.base.progress import ProgressOption
from dbfs.base.records import RunProgress
from dbfs.cluster.deadline import of_call
from dbfs.engines import Outcome
from dbfs.engines.resident import ResidentEngine
from dbfs.errors import TooManyPathsError
from dbfs.features.batches.batch import MOST_SOURCES, batch
from dbfs.features.subgraphs.subgraph import cut_out
from dbfs.graph.degrees import have_neighbours
from dbfs.graph.result import BFSResult
from dbfs.graph.striped import StripedGraph
from dbfs.graph.traversing import finished, require_one_version, traverse
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.features.paths.purpose import BETWEEN, COUNTS, DISTANCES, PairSearch
from dbfs_workers.ids.label_table import places_of

_PAIRS: Final = 4096
"""Pairs of a spec."""

_MATRIX: Final = 1 << 24
"""Most distances that a sweep keeps for a call, unless it has one source."""

_MOST_EXACT: Final = 2.0**63


def searched_by_ranks(graph: StripedGraph) -> bool:
    """Return whether the ranks search from both ends: on CPUs, where each has the edges of its vertices."""
    return graph.backend == "cpu" and graph.layout == "1d"


def _many_searched(graph: StripedGraph) -> bool:
    """Return whether the ranks search for many pairs from both ends: also a GPU alone, where edges lead backwards.

    A search that goes forward alone would see half of the edges for each pair, on one of many blocks of the GPU; a
    sweep sees them once for 512 sources.
    """
    alone = graph.exchange == "cuda_ipc" and graph.layout == "1d" and graph.ranks == 1
    return searched_by_ranks(graph) or (alone and graph.record.infos[0].has_parents)


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
    options = TraversalSpec(
        run_id=uuid.uuid4().hex,
        sources=(),
        predecessors=False,
        backend=graph.backend,
        purpose=PairSearch(wants, in_floats),
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
    if not searched_by_ranks(graph) and np.unique(pairs[:, 0]).size < 2:
        # All of a GPU makes one traversal sooner than one of its blocks makes a search.
        return _by_traversals(graph, pairs, progress)
    if not _many_searched(graph):
        return _by_batches(graph, pairs, progress)
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


def _by_batches(
    graph: StripedGraph, pairs: NDArray[np.int64], progress: ProgressOption[RunProgress]
) -> tuple[NDArray[np.int32], int | None]:
    """Do the same by sweeps from many sources at once, each sweep for the targets of its sources."""
    sources, targets = pairs.T
    found, version = np.where(sources == targets, 0, -1).astype(np.int32), None
    left = np.flatnonzero(found < 0)
    if not graph.record.mutable:
        # Half of a Kronecker graph's vertices have no edges. Those of a living graph may get some meanwhile.
        ends = (sources,) if graph.directed else (sources, targets)
        for end in ends:
            left = left[have_neighbours(graph, end[left], of_call(), f"searching pairs of {graph.name}")]
    if not graph.directed and np.unique(targets[left]).size < np.unique(sources[left]).size:
        sources, targets = targets, sources
    left = left[np.argsort(sources[left], kind="stable")]
    firsts, counts = np.unique(sources[left], return_counts=True)
    first = 0
    while first < firsts.size:
        sizes = np.cumsum(counts[first : first + MOST_SOURCES])
        most = max(1, int(np.count_nonzero(sizes * np.arange(1, sizes.size + 1) <= _MATRIX)))
        some, mine = firsts[first : first + most], left[: sizes[most - 1]]
        wanted, places = np.unique(targets[mine], return_inverse=True)
        made = batch(
            graph,
            tuple(some.tolist()),
            keep=(),
            targets=tuple(wanted.tolist()),
            nearest=False,
            max_depth=None,
            direction="auto",
            progress=progress,
        )
        version = made.version if version is None else version
        require_one_version(graph, version, made.version)
        found[mine] = made.distances_to_targets()[np.searchsorted(some, sources[mine]), places]
        made.release()
        first, left = first + some.size, left[mine.size :]
    return found, version


@dataclass(frozen=True)
class Between:
    """The vertices and edges of all shortest paths between two vertices.

    Attributes:
        vertices: int64, ascending, the source and the target among them; none without a path.
        begins, after: int64, the indices of the vertices after i, ascending: ``after[begins[i] : begins[i + 1]]``.
    """

    vertices: NDArray[np.int64]
    begins: NDArray[np.int64]
    after: NDArray[np.int64]

    @classmethod
    def of(cls, vertices: NDArray[np.int64], sources: NDArray[np.int64], targets: NDArray[np.int64]) -> Self:
        """Make it of edges, given as indices of both ends; edges may occur again."""
        sources, targets = np.divmod(_ascending(sources * vertices.size + targets), max(1, vertices.size))
        return cls(vertices, np.searchsorted(sources, np.arange(vertices.size + 1)), targets)

    def paths(self, source: int) -> Iterator[list[int]]:
        """Yield all paths, as indices, in the order of their vertices from the source on."""
        if not self.vertices.size:
            return
        path = [int(np.searchsorted(self.vertices, source))]
        untried = [iter(self._after(path[0]))]
        while path:
            if self.begins[path[-1]] == self.begins[path[-1] + 1]:
                yield path.copy()
            following = next(untried[-1], None)
            if following is None:
                path.pop()
                untried.pop()
            else:
                path.append(following)
                untried.append(iter(self._after(following)))

    def _after(self, index: int) -> list[int]:
        after: list[int] = self.after[self.begins[index] : self.begins[index + 1]].tolist()
        return after


def _ascending(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return numbers in ascending order, each once. NumPy's own way takes ten times as long for millions."""
    ordered = np.sort(numbers)
    first = np.append(True, ordered[1:] != ordered[:-1])[: ordered.size]
    found: NDArray[np.int64] = ordered[first]
    return found


def between(graph: StripedGraph, source: int, target: int) -> Between:
    """Return what lies on shortest paths between two vertices; errors as of ``Graph.paths``."""
    if source == target:
        return Between.of(np.array([source]), *np.empty((2, 0), np.int64))
    if not _goes_back(graph):
        return _between_by_traversals(graph, source, target)
    (made,) = _answers(graph, BETWEEN, [(source, target)])
    ends = graph.numbering.vertices(np.concatenate([*made.by_source], axis=1).ravel().astype(np.int64))
    vertices = _ascending(ends)
    return Between.of(vertices, *places_of(ends, vertices, graph.n).reshape(2, -1))


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


def _between_by_traversals(graph: StripedGraph, source: int, target: int) -> Between:
    """Do as ``between`` does, by the edges between vertices that may lie on paths: these travel."""
    (near,) = traverse(graph, BFSResult, [(source,)], targets=(target,))
    distances = near.distances().astype(np.int64)
    near.release()
    within = (distances >= 0) & (distances <= distances[target])
    if not graph.directed:
        (far,) = traverse(graph, BFSResult, [(target,)], targets=(source,))
        require_one_version(graph, near.version, far.version)
        rest = far.distances()
        far.release()
        within &= (rest >= 0) & (distances + rest == distances[target])
    vertices = np.flatnonzero(within)
    levels = distances[vertices]
    sources, targets = _next_edges(graph, vertices, levels, near.version)
    # Of a directed graph not all of them lead to the target.
    kept = vertices == target
    for level in range(int(levels.max(initial=0)) - 1, -1, -1):
        edges = (levels[sources] == level) & kept[targets]
        kept[sources[edges]] = True
    leading = kept[sources] & kept[targets]
    places = np.cumsum(kept) - 1
    return Between.of(vertices[kept], places[sources[leading]], places[targets[leading]])


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
