"""Batches on ranks that are threads of the test's process, and what they keep against SciPy's distances."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from dbfs_workers.base import compiling
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.base.team import Team
from dbfs_workers.features.batches import levels as batch_levels
from dbfs_workers.features.batches.kernels import NEEDED
from dbfs_workers.features.batches.levels import BatchLevels, levels_of_batches
from dbfs_workers.features.batches.purpose import OF_DISTANCES, OF_ROWS, Batch
from dbfs_workers.features.batches.storage import RankBatch, distance_type
from dbfs_workers.search import backends
from dbfs_workers.search.cpu.kernels.team_tasks import TASKS
from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange
from dbfs_workers.search.levels import loop
from dbfs_workers.search.levels.traversals import Watch
from dbfs_workers.search.partition.labels import in_type
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import COUNT_FIELDS
from dbfs_workers.search.reports.run import RankRun
from tests.support import graphs, oracle
from tests.support.exchanges import shared_memory
from tests.support.gang import PATIENCE, levels_of, partitions
from tests.support.graphs import Arrays

EVERYTHING = ("counts", "reached", "distances", "targets", "nearest", *OF_DISTANCES)
EMPTY = np.iinfo(np.int64).max


Levels = Callable[[Partition, SharedMemoryExchange, Callable[[], int]], BatchLevels]


def on_cpu(part: Partition, end: SharedMemoryExchange, free: Callable[[], int], *, threads: int = 1) -> BatchLevels:
    """Return what runs the levels of a rank's batches."""
    scratch = Scratch(part, np)
    scratch.team = Team(threads, TASKS) if threads > 1 else None
    return levels_of_batches(levels_of(scratch, end)(), backends.get("cpu"), end, free)


def on_threads(part: Partition, end: SharedMemoryExchange, free: Callable[[], int]) -> BatchLevels:
    """The same, with three threads of each rank."""
    return on_cpu(part, end, free, threads=3)


def runs(
    arrays: Arrays,
    sources: list[int],
    p: int = 1,
    *,
    directed: bool = False,
    free: Callable[[], int] = lambda: EMPTY,
    levels: Levels = on_cpu,
    backend: str = "cpu",
    staged: bool = False,
    entries: int | None = None,
    keeps: tuple[str, ...] = EVERYTHING,
    copied: bool = False,
    small_frontiers: bool = False,
    **options: Any,
) -> list[RankRun]:
    """Make two batches, of some sources and of one; return the first by rank.

    With ``small_frontiers``, frontiers of a small graph count as small.
    """
    compiling.prepare(NEEDED)
    n, src, dst = arrays
    stripe, deadline = Stripe(n, p), time.monotonic() + PATIENCE
    ends = shared_memory(stripe, entries=stripe.n_local if staged else entries)
    parts = partitions(n, src, dst, p, directed=directed)
    purpose = Batch(keeps, copied)
    specs = [
        TraversalSpec("1", tuple(some), False, backend, purpose=purpose, **options) for some in (sources, sources[:1])
    ]

    def traverse(rank: int) -> RankRun:
        def of_rank() -> BatchLevels:
            return levels(parts[rank], ends[rank], free)

        made, _ = loop.traverse(of_rank, specs, ends[rank], watch=Watch(1), deadline=deadline)
        return replace(made, labels=made.labels.to_host())

    small = (
        {"_SMALL_FRONTIERS": (1 / 2, 1 / 8), "_SMALL_EDGES": 1 / 4, "_LARGE_EDGES": 0}
        if small_frontiers
        else {"_SMALL_FRONTIERS": ()}
    )
    try:
        with mock.patch.multiple(batch_levels, **small), ThreadPoolExecutor(p) as pool:
            return list(pool.map(traverse, range(p)))
    finally:
        for end in ends:
            end.close()


def run(arrays: Arrays, sources: list[int], p: int = 1, **options: Any) -> list[RankBatch]:
    """Return what the ranks keep of the first batch of ``runs``."""
    kept = []
    for made in runs(arrays, sources, p, **options):
        assert isinstance(made.labels, RankBatch)
        kept.append(made.labels)
    return kept


def expected(arrays: Arrays, sources: list[int], *, directed: bool, max_depth: int | None) -> NDArray[np.int32]:
    """int32[n, sources], by SciPy."""
    n, src, dst = arrays
    adjacency = oracle.adjacency(n, src, dst, directed=directed)
    found = np.array([oracle.distances(adjacency, [source]) for source in sources]).T
    if max_depth is not None:
        found[found > max_depth] = -1
    return found


def assert_right(
    arrays: Arrays,
    sources: list[int],
    p: int,
    *,
    directed: bool = False,
    max_depth: int | None = None,
    targets: tuple[int, ...] = (),
    **options: Any,
) -> list[RankBatch]:
    kept = run(arrays, sources, p, directed=directed, max_depth=max_depth, targets=targets, **options)
    distances, stripe = expected(arrays, sources, directed=directed, max_depth=max_depth), Stripe(arrays[0], p)
    for rank, of_rank in enumerate(kept):
        named, mine = of_rank.by_name(stripe, rank), distances[rank::p]
        depth = len(of_rank.counts)
        counts = [np.bincount(column[column >= 0], minlength=depth) for column in mine.T]
        np.testing.assert_array_equal(of_rank.by_source.T, counts)
        assert named["distances"].dtype == distance_type(depth - 1)
        np.testing.assert_array_equal(in_type(named["distances"], np.dtype(np.int32)), mine)
        bits = np.unpackbits(named["reached"], axis=1, count=len(sources), bitorder="little")
        np.testing.assert_array_equal(bits, mine >= 0)
        own = sorted({target for target in targets if target % p == rank})
        np.testing.assert_array_equal(named["targets"], distances[own])
        far = np.where(mine < 0, 2**31 - 1, mine)
        reached = np.any(mine >= 0, axis=1)
        nearest = np.where(reached[:, None], np.stack([far.min(axis=1), far.argmin(axis=1)], axis=1), -1)
        np.testing.assert_array_equal(named["nearest"], nearest)
        assert_sums([named[name] for name in OF_DISTANCES], mine)
    return kept


def assert_sums(sums: list[NDArray[np.float64]], distances: NDArray[np.int32]) -> None:
    """The sums over the sources, by the definitions of ``OF_DISTANCES``; ``distances`` is int32[rows, sources]."""
    for row, found in zip(distances.tolist(), zip(*sums, strict=True), strict=True):
        far = [one for one in row if one > 0]
        assert found[:3] == (len(far), sum(far), sum(one * one for one in far))
        np.testing.assert_allclose(found[3:], (sum(1 / one for one in far), sum(1 / one**2 for one in far)), 1e-12)


def assert_looks_are_counted(**options: Any) -> None:
    """Each leaf of a star looks at its only edge, and the centre, which is the source, lacks nothing."""
    star = 90, np.zeros(89, np.int64), np.arange(1, 90)
    (made,) = runs(star, [0], direction="bottom-up", **options)
    columns = [COUNT_FIELDS.index(name) for name in ("bottom_up", "edges")]
    assert made.counts[:, columns].tolist() == [[1, 89]]


def assert_counted(arrays: Arrays, sources: list[int], p: int, *, directed: bool = False, **options: Any) -> None:
    """The counts of ranks that share the sources."""
    kept = run(arrays, sources, p, directed=directed, keeps=("counts",), copied=True, **options)
    distances = expected(arrays, sources, directed=directed, max_depth=options.get("max_depth"))
    assert_counts([of_rank.counts for of_rank in kept], distances)


def assert_counts(of_ranks: Sequence[NDArray[np.int64]], distances: NDArray[np.int32]) -> None:
    """The counts of all ranks together are those of distances, int32[n, sources]."""
    depth = max(map(len, of_ranks))
    found = sum(np.pad(counts, ((0, depth - len(counts)), (0, 0))) for counts in of_ranks)
    by_source = [np.bincount(one[one >= 0], minlength=depth) for one in distances.T]
    np.testing.assert_array_equal(found, np.array(by_source).T)


def dependencies(arrays: Arrays, sources: list[int], *, directed: bool) -> tuple[Any, Any]:
    """The sums of ``RankBatch`` by vertex [n, 3], and by both ends of an edge [n, n, 2], as they are defined."""
    n, src, dst = arrays
    edge = np.zeros((n, n))
    edge[src, dst] = 1
    edge = edge if directed else np.maximum(edge, edge.T)
    far = expected(arrays, [*range(n)], directed=directed, max_depth=None).T.astype(float)
    far[far < 0] = np.inf
    # The walks of as many edges as the distance has.
    paths, walks = np.eye(n), np.eye(n)
    for length in range(1, n):
        walks = walks @ edge
        paths += np.where(far == length, walks, 0)
    of_rows, of_edges = np.zeros((n, 3)), np.zeros((n, n, 2))
    for source in sources:
        reached = np.isfinite(far[source])
        share = np.divide(1, paths[source], where=reached, out=np.zeros(n))
        between = far[source][:, None] + far == far[source]
        others = ~np.eye(n, dtype=bool) & reached
        one = (paths[source][:, None] * paths * share * (between & others)).sum(axis=1)
        one[source] = 0
        of_rows += np.stack([one, one**2, reached & (np.arange(n) != source)], axis=1)
        for u, w in np.argwhere(edge):
            on = far[source, u] + 1 + far[w] == far[source]
            flow = (paths[source, u] * paths[w] * share * (on & reached)).sum()
            of_edges[u, w] += flow, flow**2
    return of_rows, of_edges


def assert_swept(arrays: Arrays, sources: list[int], p: int, *, directed: bool, **options: Any) -> None:
    stripe, (of_rows, of_edges) = Stripe(arrays[0], p), dependencies(arrays, sources, directed=directed)
    keeps = ("counts", *OF_ROWS, "edge_betweenness")
    for rank, kept in enumerate(run(arrays, sources, p, directed=directed, keeps=keeps, **options)):
        named = kept.by_name(stripe, rank)
        np.testing.assert_allclose(np.stack([named[name] for name in OF_ROWS], axis=1), of_rows[rank::p], rtol=1e-12)
        part = partitions(*arrays, p, directed=directed)[rank]
        found = np.zeros_like(of_edges)
        rows = np.repeat(np.arange(stripe.n_local), np.diff(part.row_offsets)) * p + rank
        np.add.at(found, (rows, stripe.vertex(part.columns.astype(np.int64))), named["edge_betweenness"])
        np.testing.assert_allclose(found[rank::p], of_edges[rank::p], rtol=1e-12)
        assert not kept.distances.size


@st.composite
def shared_batches(draw: st.DrawFn) -> dict[str, Any]:
    """Draw batches whose sources the ranks share. There may be fewer sources than ranks."""
    batch = draw(batches())
    del batch["targets"]
    return batch


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Any]:
    n = draw(st.integers(1, 40) | st.integers(1, 400))
    arrays = graphs.random(n, draw(st.integers(0, 3 * n)), draw(st.integers(0, 2**16)))
    count = draw(st.integers(1, min(n, 140)))
    directed = draw(st.booleans())
    return {
        "arrays": arrays,
        "sources": np.random.default_rng(count).permutation(n)[:count].tolist(),
        "p": draw(st.integers(1, 4)),
        "directed": directed,
        "max_depth": draw(st.none() | st.integers(0, 4)),
        "targets": tuple(draw(st.lists(st.integers(0, n - 1), max_size=4))),
        "direction": draw(st.sampled_from(["auto", "top-down"] + ["bottom-up"] * (not directed))),
        "small_frontiers": draw(st.booleans()),
    }
