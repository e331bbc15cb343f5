"""The exact model of a traversal's counts, against what ranks in threads count."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.layouts import count_peers
from benchmarks.level_counts import LevelCounts
from dbfs_workers.building.degree_order import count_degrees, degree_order
from dbfs_workers.search.levels import loop
from dbfs_workers.search.levels.traversals import Watch
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import COUNT_FIELDS
from tests.support import grids, partitions
from tests.support.exchanges import shared_memory
from tests.support.gang import levels_of, spec
from tests.support.graphs import random

_BOTTOM_UP, _EDGES, _BYTES = map(COUNT_FIELDS.index, ("bottom_up", "edges", "bytes_sent"))
_ANSWER_SECONDS = 60.0

Ends = tuple[int, NDArray[np.int64], NDArray[np.int64]]


def hubs(n: int, m: int) -> Ends:
    """A graph whose low ids are hubs, with loops and repeated edges."""
    generator = np.random.default_rng(n)
    src, dst = (n * generator.random((2, m)) ** 3).astype(np.int64)
    return n, src, dst


def run_stripes(stripe: Stripe, src: NDArray[np.int64], dst: NDArray[np.int64], hub_first: bool, *specs: Any) -> Any:
    """Run traversals on ranks of the 1-D partition; return the counts as int64[levels, ranks, fields] of each."""
    parts = partitions.build(stripe, src, dst, directed=False, hub_first=hub_first)
    ends = shared_memory(stripe)
    deadline = time.monotonic() + _ANSWER_SECONDS

    def traverse(rank: int) -> Any:
        scratch = Scratch(parts[rank], np)
        return loop.traverse(levels_of(scratch, ends[rank]), specs, ends[rank], watch=Watch(1), deadline=deadline)

    with ThreadPoolExecutor(stripe.p) as pool:
        runs = list(pool.map(traverse, range(stripe.p)))
    for end in ends:
        end.close()
    return [np.stack([run.levels.counts for run in of], axis=1) for of in zip(*runs, strict=True)]


def run_grid(stripe: Stripe, src: NDArray[np.int64], dst: NDArray[np.int64], hub_first: bool, *specs: Any) -> Any:
    """Run traversals on ranks of the 2-D partition; return as ``run_stripes`` does."""
    with grids.gang(grids.build(stripe, src, dst, directed=False, hub_first=hub_first)) as ranks:
        return [np.stack([run.levels.counts for run in answer.ranks], axis=1) for answer in ranks.run(*specs)]


RUNS: dict[str, Callable[..., Any]] = {"1d": run_stripes, "2d": run_grid}


def assert_exact(graph: Ends, ranks: int, layout: str, order: str, source: int) -> None:
    n, src, dst = graph
    stripe = Stripe(n, ranks)
    counts = LevelCounts(n, src, dst, ranks, layout, order)
    relabelled, start = (src, dst), source
    if order == "degree":
        by_degree = degree_order(count_degrees(src, dst, n, symmetrise=True, name="test"))
        relabelled, start = by_degree.relabel(src, dst), by_degree.positions_of([source])[0]
    specs = [spec(start, predecessors=predecessors) for predecessors in (False, True)]
    for one, measured in zip(specs, RUNS[layout](stripe, *relabelled, order == "degree", *specs), strict=True):
        levels = counts.traverse(source, predecessors=one.predecessors)
        assert [level.bottom_up for level in levels] == measured[:, 0, _BOTTOM_UP].tolist()
        np.testing.assert_array_equal([level.edges for level in levels], measured[:, :, _EDGES])
        np.testing.assert_array_equal([level.bytes_sent for level in levels], measured[:, :, _BYTES])


@pytest.mark.parametrize(("layout", "ranks", "order"), [("1d", 4, "given"), ("2d", 6, "degree")])
def test_edges_and_bytes_by_level_and_rank(layout: str, ranks: int, order: str) -> None:
    assert_exact(hubs(1500, 12_000), ranks, layout, order, 3)


@pytest.mark.full
@pytest.mark.matrix
@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 9, 16])
@pytest.mark.parametrize("layout", ["1d", "2d"])
def test_edges_and_bytes_on_more_graphs(layout: str, ranks: int, order: str) -> None:
    for graph, source in ((random(700, 2000, 3), 5), (random(300, 6000, 4), 7), (hubs(4000, 60_000), 9)):
        assert_exact(graph, ranks, layout, order, source)


@pytest.mark.parametrize(("layout", "bottom_up"), [("1d", 7), ("2d", 1 + 2 * 3)])
def test_messages_of_a_rank_go_to_its_peers(layout: str, bottom_up: int) -> None:
    n, src, dst = hubs(1500, 12_000)
    ranks = 8
    levels = LevelCounts(n, src, dst, ranks, layout).traverse(3, predecessors=False)
    # The last level of the grid also sends the frontier that is not expanded.
    for level in levels[:-1]:
        sent = sum(messages for kind, messages in level.messages.items() if kind != "slices" or level.bottom_up)
        assert sent == (bottom_up if level.bottom_up else count_peers(layout, ranks))
