"""Shortest paths by weight: a heap's Dijkstra in the weights' own type, and ranks that are threads of this process."""

import heapq
import itertools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import distributed
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from numpy.typing import NDArray

from dbfs.assembly import Graph
from dbfs.service.entries import first_cause
from dbfs_workers.base import compiling
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.base.team import Team
from dbfs_workers.features.weights import levels as weight_levels
from dbfs_workers.features.weights.kernels import NEEDED, TEAM
from dbfs_workers.features.weights.levels import WeightLevels
from dbfs_workers.features.weights.meeting import MeetingLevels
from dbfs_workers.features.weights.purpose import Weighted
from dbfs_workers.features.weights.storage import WeightScratch
from dbfs_workers.search.levels import loop
from dbfs_workers.search.levels.traversals import Watch
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.stripe import NO_VERTEX, Stripe
from dbfs_workers.search.reports import RankRun
from tests.support.exchanges import shared_memory
from tests.support.gang import PATIENCE, partitions
from tests.support.graphs import Arrays, random


def arcs(arrays: Arrays, weights: NDArray[Any], *, directed: bool) -> list[tuple[int, int, Any]]:
    """Every edge in each direction in which it holds, with its weight; a self-loop once."""
    _, src, dst = arrays
    forth = list(zip(src.tolist(), dst.tolist(), weights, strict=True))
    return forth if directed else forth + [(v, u, weight) for u, v, weight in forth if u != v]


def dijkstra(n: int, of: list[tuple[int, int, Any]], sources: list[int], zero: Any) -> list[Any]:
    """Distances by a heap; sums in the weights' own type, None for unreached."""
    out: list[list[tuple[int, Any]]] = [[] for _ in range(n)]
    for u, v, weight in of:
        out[u].append((v, weight))
    found: list[Any] = [None] * n
    heap = [(zero, source) for source in sources]
    while heap:
        distance, u = heapq.heappop(heap)
        if found[u] is None:
            found[u] = distance
            for v, weight in out[u]:
                if found[v] is None:
                    heapq.heappush(heap, (distance + weight, v))
    return found


def expected(n: int, of: list[tuple[int, int, Any]], sources: list[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The same, as an array: -1 or infinity for unreached. Integers are Python's, of any size."""
    exact = [(u, v, int(weight) if dtype.kind == "i" else weight) for u, v, weight in of]
    unreached = -1 if dtype.kind == "i" else np.inf
    found = dijkstra(n, exact, sources, 0 if dtype.kind == "i" else dtype.type(0))
    return np.array([unreached if one is None else one for one in found], dtype)


def against(part: Partition) -> Any:
    """The in-edges of a rank, as ``by_column`` reads them."""
    edges = part.parents
    assert edges is not None
    return SimpleNamespace(rank=part.rank, stripe=part.stripe, row_offsets=edges.row_offsets, columns=edges.columns)


def by_column(part: Any, of: list[tuple[int, int, Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The weights of a rank's edges in the order of its columns; vertices are positions."""
    stripe = part.stripe
    between: dict[tuple[int, int], list[Any]] = {}
    for u, v, weight in of:
        if stripe.owner(u) == part.rank:
            between.setdefault((stripe.row(u), int(stripe.internal(v))), []).append(weight)
    rows = np.repeat(np.arange(stripe.n_local), np.diff(part.row_offsets)).tolist()
    found = [between[edge].pop() for edge in zip(rows, part.columns.tolist(), strict=True)]
    assert not any(between.values())
    return np.array(found, dtype)


def runs(
    arrays: Arrays,
    weights: NDArray[Any],
    source_sets: list[list[int]],
    p: int = 1,
    *,
    directed: bool = False,
    entries: int | None = None,
    purpose: Weighted | None = None,
    predecessors: bool = True,
    targets: tuple[int, ...] = (),
    threads: int = 1,
) -> list[list[RankRun]]:
    """Make traversals one after another in one working memory; return them by rank. Threads share all rounds."""
    compiling.prepare((*NEEDED, *(TEAM if threads > 1 else ())))
    n, src, dst = arrays
    of, stripe, deadline = arcs(arrays, weights, directed=directed), Stripe(n, p), time.monotonic() + PATIENCE
    ends, parts = shared_memory(stripe, entries=entries), partitions(n, src, dst, p, directed=directed)
    options: dict[str, Any] = {"direction": "top-down", "purpose": purpose or Weighted("w"), "targets": targets}
    specs = [TraversalSpec("1", tuple(some), predecessors, "cpu", **options) for some in source_sets]

    def traverse(rank: int) -> list[RankRun]:
        team = None
        if threads > 1:
            from dbfs_workers.features.weights.kernels.team import TASKS

            team = Team(threads, TASKS)
        part, back = parts[rank], None
        scratch = WeightScratch(part, by_column(part, of, weights.dtype), team)
        if purpose is not None and purpose.path:
            turned = by_column(against(part), [(v, u, weight) for u, v, weight in of], weights.dtype)
            back = WeightScratch(part, turned, team, back=True)

        def levels() -> WeightLevels:
            return WeightLevels(scratch, ends[rank]) if back is None else MeetingLevels(scratch, back, ends[rank])

        return loop.traverse(levels, specs, ends[rank], watch=Watch(1), deadline=deadline)

    try:
        with mock.patch.object(weight_levels, "LEAST_SHARED", 0), ThreadPoolExecutor(p) as pool:
            made = [pool.submit(traverse, rank) for rank in range(p)]
        errors = [error for future in made if (error := future.exception()) is not None]
        if errors:
            # One rank's failure ends the others' waits.
            raise first_cause(errors)
        return [future.result() for future in made]
    finally:
        for end in ends:
            end.close()


def labels(made: list[RankRun], n: int) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
    """Distances and parents by vertex, of one traversal by rank. The padding is never reached."""
    stripe = Stripe(n, len(made))
    distances = np.empty(n, made[0].labels.distances.dtype)
    parents = np.full(n, -1, np.int64)
    for rank, run in enumerate(made):
        distances[rank :: stripe.p], above = run.labels.of_rows(stripe, rank)
        if above is not None:
            parents[rank :: stripe.p] = above
        padding = run.labels.distances[stripe.owned(rank) :]
        assert ((padding == -1) | (padding == np.inf)).all()
        if run.labels.predecessors is not None:
            assert (run.labels.predecessors[stripe.owned(rank) :] == NO_VERTEX).all()
    return distances, None if made[0].labels.predecessors is None else parents


def assert_path(
    of: list[tuple[int, int, Any]], want: Any, distance: Any, path: list[int], dtype: np.dtype[Any]
) -> None:
    """The distance is Dijkstra's, bit for bit, and the sum over the lightest edges of the path in its order."""
    assert distance == want
    if not path:
        assert want in (-1, np.inf)
        return
    between: dict[tuple[int, int], Any] = {}
    for u, v, weight in of:
        between[u, v] = min(weight, between.get((u, v), weight))
    total = dtype.type(0)
    for step in itertools.pairwise(path):
        total += dtype.type(between[step])
    assert total == want


def assert_tree(
    of: list[tuple[int, int, Any]], sources: list[int], distances: NDArray[Any], parents: NDArray[np.int64]
) -> None:
    """Each reached vertex comes to a source by its parents, over edges whose sums are the distances, bit for bit."""
    between: dict[tuple[int, int], set[Any]] = {}
    for u, v, weight in of:
        between.setdefault((u, v), set()).add(weight)
    whole = distances.dtype.kind == "i"
    reached = distances >= 0 if whole else np.isfinite(distances)
    assert ((parents >= 0) == reached).all()
    for vertex in np.flatnonzero(reached).tolist():
        parent = int(parents[vertex])
        if vertex in sources:
            assert parent == vertex and distances[vertex] == 0
        else:
            assert any(distances[parent] + weight == distances[vertex] for weight in between[parent, vertex])
        seen = 0
        while parent not in sources:
            parent, seen = int(parents[parent]), seen + 1
            assert seen <= distances.size, "the parents have a cycle"


def assert_right(
    arrays: Arrays, weights: NDArray[Any], sources: list[int], p: int, *, directed: bool, **options: Any
) -> list[RankRun]:
    """Two traversals in the same memory, of which the second one counts."""
    n, of = arrays[0], arcs(arrays, weights, directed=directed)
    made = [both[1] for both in runs(arrays, weights, [[n - 1], sources], p, directed=directed, **options)]
    distances, parents = labels(made, n)
    want = expected(n, of, sources, weights.dtype)
    np.testing.assert_array_equal(distances, want)
    assert parents is not None
    assert_tree(of, sources, distances, parents)
    reached = want >= 0 if weights.dtype.kind == "i" else np.isfinite(want)
    assert sum(run.reached for run in made) == reached.sum()
    assert sum(run.edges for run in made) == sum(bool(reached[u]) for u, _, _ in of)
    return made


@st.composite
def weighted_graphs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw random graphs with duplicates and self-loops, and weights that collide, are 0, or vanish in sums."""
    n = draw(st.integers(1, 40) | st.integers(1, 300))
    arrays = random(n, draw(st.integers(0, 4 * n)), draw(st.integers(0, 2**16)))
    generator, m = np.random.default_rng(draw(st.integers(0, 2**16))), arrays[1].size
    dtype = np.dtype(draw(st.sampled_from(["int64", "float64", "float32"])))
    drawn: dict[str, Callable[[], NDArray[Any]]] = {
        "small": lambda: generator.integers(0, 3, m),
        "large": lambda: generator.integers(0, 1 << 40, m),
        "zero": lambda: np.zeros(m),
        "vanishing": lambda: np.where(generator.random(m) < 0.5, 1 << 30, generator.random(m) < 0.5),
        "wide": lambda: np.exp(generator.normal(0, 6, m)),
    }
    weights = drawn[draw(st.sampled_from([*drawn]))]().astype(dtype)
    return {
        "arrays": arrays,
        "weights": weights,
        "sources": generator.permutation(n)[: draw(st.integers(1, 3))].tolist(),
        "p": draw(st.integers(1, 4)),
        "directed": draw(st.booleans()),
        "threads": draw(st.sampled_from([1, 1, 3])),
        "purpose": Weighted("w", delta=draw(st.none() | st.just(0) | st.sampled_from([1, 100, 10**9]))),
    }


@dataclass
class Attributes:
    """Columns of a rank's edges, in the order of the partition's: the form in which ranks keep them."""

    out: Any

    def columns_of(self, partition: Any) -> Any:
        """Return the columns."""
        return self.out

    def tables_of(self, partition: Any) -> tuple[Any, Any]:
        """Return the columns, and none of in-edges."""
        return self.out, None


def hold(
    graph: Graph, src: NDArray[np.int64], dst: NDArray[np.int64], columns: dict[str, Any]
) -> list[distributed.Future]:
    """Keep columns of the edges, which are ids, on the ranks of a graph; return them by rank as Dask data.

    A column is an Arrow array. The rank takes it by the places of the edges in it.
    """
    src, dst = (np.array(graph.numbering.positions(graph.vertices_of(ends).tolist()), np.int64) for ends in (src, dst))
    of = arcs((graph.n, src, dst), np.arange(src.size), directed=graph.directed)

    def places(dask_worker: distributed.Worker, partition: Any) -> NDArray[np.int64]:
        return by_column(dask_worker.data[partition], of, np.dtype(np.int64))

    futures, client = [], graph.gang.client
    for partition, address in zip(graph.partition_keys, graph.gang.addresses, strict=True):
        (found,) = client.run(places, partition=partition, workers=[address]).values()
        table = pa.table({name: column.take(pa.array(found)) for name, column in columns.items()})
        futures.append(client.scatter(Attributes(table), workers=[address], hash=False))
    return futures
