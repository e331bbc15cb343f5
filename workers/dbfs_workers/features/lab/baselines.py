"""The baselines on one CPU core: Merrill's sequential algorithm, and SciPy."""

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import GraphTooLargeError, InvalidOptionError
from dbfs_workers.features.lab.enactor import Level, Watch
from dbfs_workers.features.lab.result import rank_run
from dbfs_workers.features.lab.strategies import Policy
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import Rows
from dbfs_workers.search.partition.stripe import NO_VERTEX
from dbfs_workers.search.reports import RankRun

Baseline = Callable[[Rows, int, RankLabels, Watch], tuple[list[Level], float, float]]
"""Labels what a source reaches; returns the levels, and when they began and ended, on ``time.perf_counter()``."""

# SciPy's graphs have 32-bit row offsets.
_MOST_EDGES: Final = 2**31 - 1


def traverse(rows: Rows, source: int, policy: Policy, watch: Watch, labels: RankLabels, version: int) -> RankRun:
    """Traverse a graph of one rank by a baseline.

    Args:
        rows: the adjacency lists.
        source: row of the source.
        policy: the baseline.
        watch: called before each level; raises an error to end the traversal. SciPy has one call for all levels.
        labels: of the rank's rows, all unreached; updated.
        version: version of the graph, for the report.

    Raises:
        InvalidOptionError: the strategy needs a GPU.
        GraphTooLargeError: SciPy takes fewer edges.
    """
    began = time.perf_counter()
    if policy.strategy not in BASELINES:
        raise InvalidOptionError(f"strategy {policy.strategy} needs a GPU; on CPU cores choose one of {names()}")
    levels, started, ended = BASELINES[policy.strategy](rows, source, labels, watch)
    return rank_run(
        labels,
        rows.ends - rows.starts,
        levels,
        (("edges", sum(level.edges for level in levels)),),
        host=np.asarray,
        elapsed=ended - started,
        setup=started - began,
        version=version,
    )


def sequential(rows: Rows, source: int, labels: RankLabels, watch: Watch) -> tuple[list[Level], float, float]:
    """Take vertices from one queue and append each unvisited neighbour (Merrill 2012, algorithm 1)."""
    from dbfs_workers.features.lab.kernels.sequential import sequential_level

    queue = np.empty(rows.starts.size, np.uint32)
    parents = labels.arrays.predecessors
    queue[0], labels.distances[source] = source, 0
    if parents.size:
        parents[source] = source
    levels: list[Level] = []
    first, last = 0, 1
    started = ended = time.perf_counter()
    while first < last:
        watch(len(levels), last - first)
        tail, edges = sequential_level(
            *rows,
            queue,
            first,
            last,
            len(levels) + 1,
            *labels.arrays,
        )
        now = time.perf_counter()
        levels.append(Level(last - first, edges, tail - last, now - ended))
        first, last, ended = last, tail, now
    return levels, started, ended


def scipy(rows: Rows, source: int, labels: RankLabels, watch: Watch) -> tuple[list[Level], float, float]:
    """Call SciPy's ``breadth_first_order``, and label the vertices along its order."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    from dbfs_workers.features.lab.kernels.sequential import distances_along

    count = rows.starts.size
    degrees = rows.ends - rows.starts
    offsets = np.concatenate([[0], np.cumsum(degrees)])
    if offsets[-1] > _MOST_EDGES:
        raise GraphTooLargeError(f"strategy scipy takes up to {_MOST_EDGES} directed edges, not {offsets[-1]}")
    columns = _gathered(rows, degrees, offsets).astype(np.int32)
    matrix = csr_array((np.ones(columns.size, np.int8), columns, offsets.astype(np.int32)), shape=(count, count))
    watch(0, 1)
    started = time.perf_counter()
    order, parents = breadth_first_order(matrix, source, directed=True)
    distances_along(order, parents, labels.distances)
    ended = time.perf_counter()
    if labels.predecessors is not None:
        labels.predecessors[:] = np.where(parents < 0, NO_VERTEX, parents)
        labels.predecessors[source] = source
    frontiers = np.bincount(labels.distances[order])
    edges = np.bincount(labels.distances[order], weights=degrees[order])
    after = [*frontiers[1:].tolist(), 0]
    levels = [Level(int(row[0]), int(row[1]), int(row[2]), 0.0) for row in zip(frontiers, edges, after, strict=True)]
    return levels, started, ended


def names() -> str:
    """Return the baselines' names for messages."""
    return ", ".join(BASELINES)


def _gathered(rows: Rows, degrees: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return the columns of all rows, one row behind the other: rows of a living graph lie in pages."""
    if np.array_equal(rows.starts, offsets[:-1]):
        return rows.columns[: offsets[-1]]
    places: Any = np.arange(offsets[-1]) + np.repeat(rows.starts - offsets[:-1], degrees)
    gathered: NDArray[np.uint32] = rows.columns[places]
    return gathered


BASELINES: Final[dict[str, Baseline]] = {"sequential": sequential, "scipy": scipy}
"""The strategies that run on a CPU core, by name."""
