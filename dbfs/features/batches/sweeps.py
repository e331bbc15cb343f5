"""Traversals from many sources, some sources after others: what measures and matrices of distances are made of.

Batches of sources (``batch``) count distances, in runs of a few groups, so that other runs of the gang get
their turns in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import part_of
from dbfs.base.integers import whole_count
from dbfs.base.memory import require_room
from dbfs.base.progress import ProgressOption, run_reporter
from dbfs.base.records import RunProgress
from dbfs.cluster.deadline import bounded
from dbfs.errors import DisconnectedGraphError
from dbfs.features.batches.batch import MOST_SOURCES, BatchResult, batch
from dbfs.graph.distances import DistanceMatrix
from dbfs.graph.graph import Graph, R
from dbfs.graph.result import BFSResult
from dbfs.graph.striped import StripedGraph
from dbfs.graph.traversing import require_one_version, stream, traverse

Progress = ProgressOption[RunProgress]
Result = TypeVar("Result", BFSResult, BatchResult)

# Groups of sources of the first run that keeps counts only. A run that keeps distances has one group.
_RUN_GROUPS: Final = 2
# Runs that keep counts only grow to about this time, in seconds, by so many times at most. A run costs the client 15 ms
# beside its levels, as much as half a group of a graph of 10,000 vertices.
_SHORT_RUN: Final = 0.25
_RUN_GROWTH: Final = 4
# Vertices whose distances say which sources lie near each other. Of astro-ph a sweep for betweenness takes 1.4 times as
# long with 4 of them, and twice as long with sources in any order.
_MARKS: Final = 16


def counts_of(
    graph: StripedGraph,
    sources: NDArray[np.int64],
    progress: Progress,
    *,
    what: str,
    finished: int = 0,
    max_depth: int | None = None,
) -> Iterator[NDArray[np.int64]]:
    """Yield int64[sources, depth + 1] for some sources after others: the vertices at each distance up to ``max_depth``.

    The first ``finished`` sources are left out. One source is traversed from by itself. ``what`` is measured: a bar
    says so.

    Raises:
        InvalidOptionError: another client updated the graph in between. Other errors as of ``Graph.bfs_batch``.
    """
    if sources.size > 1:
        for result in batches_of(graph, sources, progress, what=what, finished=finished, max_depth=max_depth):
            yield result.counts
        return
    with run_reporter(progress, graph.name, graph.n, sources.size, what) as report:

        def run(some: list[int]) -> list[BFSResult]:
            told = shifted(report, finished, sources.size)
            return traverse(graph, BFSResult, [(source,) for source in some], max_depth=max_depth, progress=told)

        for one in of_one_version(graph, stream(sources[finished:].tolist(), run)):
            finished += 1
            yield level_counts(one)[None]


def level_counts(result: BFSResult) -> NDArray[np.int64]:
    """Return the number of vertices at each distance, from distance 0 on. Labels travel if there are many distances."""
    if result.reports and result.reports[0].levels > 1:
        distances = result.distances()
        return np.bincount(distances[distances >= 0])
    counts = [len(result.sources), *(report.discovered for report in result.reports)]
    return np.array(counts[: result.depth + 1], np.int64)


def near_together(graph: StripedGraph, sources: NDArray[np.int64], together: int | None = None) -> NDArray[np.int64]:
    """Return the places of sources in an order in which those beside each other tend to lie near each other.

    The order is that of the distances from some of them. A vertex is looked at once for each of its distances from
    sources that are traversed from together, and has few from such that lie near each other. No more than ``together``
    sources, by default those of a group, stay in their order.
    """
    if sources.size <= (together or MOST_SOURCES):
        return np.arange(sources.size)
    some, targets = sources[:: -(-sources.size // _MARKS)], tuple(sources.tolist())
    made = batches_of(graph, some, False, what="order of sources", targets=targets)
    rows = [batch.distances_to_targets() for batch in made]
    return np.lexsort(np.concatenate(rows))


def batches_of(
    graph: StripedGraph,
    sources: NDArray[np.int64],
    progress: Progress,
    *,
    what: str,
    keep: tuple[str, ...] = (),
    targets: tuple[int, ...] = (),
    finished: int = 0,
    max_depth: int | None = None,
) -> Iterator[BatchResult]:
    """Yield batches of some sources after others, each until the next one is taken.

    The first ``finished`` sources are left out. ``what`` and the errors are as for ``counts_of``. Other arguments are
    those of ``dbfs.features.batches.batch.batch``.
    """

    def runs(report: Callable[[RunProgress], None] | None) -> Iterator[BatchResult]:
        # Many ranks need as many groups to share the sources: see ``dbfs.features.batches.batch``.
        first, size = finished, MOST_SOURCES * (max(_RUN_GROUPS, graph.ranks) if not keep else 1)
        while first < sources.size:
            began = time.monotonic()
            made = batch(
                graph,
                tuple(sources[first : first + size].tolist()),
                keep=keep,
                targets=targets,
                nearest=False,
                max_depth=max_depth,
                direction="auto",
                progress=shifted(report, first, sources.size),
            )
            first += size
            if not keep:
                size *= max(1, min(_RUN_GROWTH, int(_SHORT_RUN / (time.monotonic() - began))))
            yield made

    with run_reporter(progress, graph.name, graph.n, sources.size, what) as report:
        yield from of_one_version(graph, runs(report))


def of_one_version(graph: StripedGraph, results: Iterable[Result]) -> Iterator[Result]:
    """Yield results, each until the next one is taken; errors as of ``require_one_version``."""
    version: int | None = None
    for result in results:
        try:
            version = result.version if version is None else version
            require_one_version(graph, version, result.version)
            yield result
        finally:
            result.release()


def disconnected(graph: StripedGraph, source: int, reached: int) -> DisconnectedGraphError:
    """Return the error for a measure that needs a path between all vertices."""
    kind = "strongly connected" if graph.directed else "connected"
    return DisconnectedGraphError(
        f"{graph.name} is not {kind}: {graph.python_ids([source])[0]!r} reaches {reached:,} of "
        f"{graph.n - graph.deleted:,} vertices; "
        "load one component, or take harmonic_centrality or neighbourhood_function, which need no path"
    )


def shifted(report: Callable[[RunProgress], None] | None, first: int, sources: int) -> Progress:
    """Return a function that reports a run's progress as that of all sources, of which ``first`` are finished."""
    if report is None:
        return False
    return lambda made: report(replace(made, traversals=sources, finished=first + made.finished))


@part_of("Graph")
class DistancesGraph(Graph[R]):
    """Distances between many vertices."""

    @bounded()
    def distance_matrix(
        self,
        sources: Any,
        targets: Any,
        *,
        max_depth: int | None = None,
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
    ) -> DistanceMatrix:
        """Return int32[sources, targets]: the distance of each target from each source, -1 unreached.

        The array is a table too, in ids: ``graph.distance_matrix(...).to_pandas()``.

        The traversals are those of ``bfs_batch``, from the sources; in an undirected graph from the targets, if these
        are fewer.

        Args:
            sources, targets: an id, or several; ids may occur again.
            max_depth: largest distance; a target farther away is unreached.
            deadline, progress: see ``eccentricity``.

        Raises:
            InvalidVertexError: a source or a target is not in the graph, or was deleted.
            InvalidOptionError: another client updated the graph in between.
            GraphTooLargeError: this machine has no memory for the array.
            Other errors as for ``bfs_batch``.
        """
        if max_depth is not None:
            whole_count(max_depth, "max_depth")
        rows = self.vertices_named(sources, "source", present=True)
        columns = self.vertices_named(targets, "target", present=True)
        ids = self.ids_of(np.array(rows, np.int64)), self.ids_of(np.array(columns, np.int64))
        if not rows or not columns:
            return DistanceMatrix(np.empty((len(rows), len(columns)), np.int32), *ids)
        entries = len(rows) * len(columns)
        require_room(
            2 * 4 * entries, f"the distances of {entries:,} pairs need", "take fewer sources or targets at a time"
        )
        turned = not self.directed and len(set(columns)) < len(set(rows))
        if turned:
            rows, columns = columns, rows
        once, places = np.unique(np.array(rows, np.int64), return_inverse=True)
        made = batches_of(self, once, progress, what="distance_matrix", targets=columns, max_depth=max_depth)
        parts = [batch.distances_to_targets() for batch in made]
        found: NDArray[np.int32] = np.concatenate(parts)[places]
        return DistanceMatrix(np.ascontiguousarray(found.T) if turned else found, *ids)
