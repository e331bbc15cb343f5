"""Vertices and edges that the resident kernel counts while it labels rows, against sums over the labels.

Axes: groups of rows with one degree and with several, hubs; directions, predecessors, sources (without edges too),
targets, depths.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dbfs.edges import generate
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import oracle
from tests.support.exchanges import connect
from tests.support.gang import repeated
from tests.support.gpus import needs_gpu
from tests.support.graphs import circulant
from tests.support.partitions import build

pytestmark = needs_gpu("cupy")


def kronecker() -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """Return n and the edges of a graph ordered by degree; its last vertices have no edge."""
    edges = generate.kronecker(16)
    src, dst = edges.cut(edges.m or 1)[0].read()
    n = edges.n or 0
    position = np.empty(n, np.int64)
    position[np.argsort(-np.bincount(np.append(src, dst), minlength=n), kind="stable")] = np.arange(n)
    return n, position[src], position[dst]


def circulant_with_hub() -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """Return n and the edges of a graph whose vertices have 40 neighbours, and a hub that has 1,000 more."""
    n, src, dst = circulant(20_000, 20)
    return n, np.append(src, np.full(1000, n - 1)), np.append(dst, np.arange(1000))


GRAPHS = {"kronecker": kronecker, "circulant": circulant_with_hub}


@pytest.fixture(scope="module", params=GRAPHS)
def rank(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Partition, Any]]:
    import cupy

    from dbfs_workers.search.members.member import Member
    from dbfs_workers.search.members.resident import ResidentRunner

    n, src, dst = GRAPHS[request.param]()
    (partition,) = build(Stripe(n, 1), src, dst, directed=False)
    runner = ResidentRunner("graph")
    member = Member(0, "partition", runner)
    partition = partition.on(cupy)
    member.make(partition)
    connect([member])
    yield runner, partition, oracle.adjacency(n, src, dst, directed=False)
    member.close()


OPTIONS: list[dict[str, Any]] = [
    {},
    *({"max_depth": depth} for depth in (0, 1, 2)),
    {"targets": (17, 4000)},
    {"sources": (3, 19_990, 250)},
    {"sources": tuple(range(5, 20_000, 61))},
]


@pytest.mark.parametrize("direction", ["auto", "top-down", "bottom-up"])
@pytest.mark.parametrize("predecessors", [False, True])
def test_counts_are_those_of_the_labels(rank: tuple[Any, Partition, Any], direction: str, predecessors: bool) -> None:
    runner, partition, matrix = rank
    assert all(engine.counts_degrees for engine in runner._engines)
    degrees = np.diff(partition.row_offsets.get())
    specs = [
        TraversalSpec(
            "run", **{"sources": (2,)} | options, predecessors=predecessors, backend="cpu", direction=direction
        )
        for options in OPTIONS
    ]
    # The last vertex of the Kronecker graph has no edge.
    specs.append(TraversalSpec("run", (partition.stripe.n - 1, 2), predecessors=predecessors, backend="cpu"))
    for spec in specs:
        runs = list(runner.traverse(partition, runner._ended + 1, repeated(spec, 3), time.monotonic() + 60))
        for run in runs:
            found = runner.fetch(run.labels).distances
            if not spec.targets:
                expected = oracle.distances(matrix, list(spec.sources), spec.max_depth)
                np.testing.assert_array_equal(found[: expected.size], expected)
            reached = found >= 0
            sums = run.levels.summary.sums
            bins = sums.shape[1]
            assert sums[0].tolist() == np.bincount(found[reached], minlength=bins).tolist()
            assert sums[1].tolist() == [int(degrees[found == distance].sum()) for distance in range(bins)]
            assert (run.reached, run.edges) == (reached.sum(), degrees[reached].sum())
            assert run.depth == found.max()
