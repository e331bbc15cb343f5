"""Many ranks that share memory, as threads of one process: p x direction x predecessors against SciPy."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dbfs_workers.base.errors import RunAbortedError
from dbfs_workers.base.spec import DIRECTIONS
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange
from dbfs_workers.search.levels import loop
from dbfs_workers.search.levels.traversals import Watch, never
from dbfs_workers.search.partition.labels import LabelPool
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import RankRun
from dbfs_workers.search.reports.crossings import Nothing
from tests.support import graphs, oracle
from tests.support.exchanges import connect, shared_memory
from tests.support.gang import PATIENCE, Answer, levels_of, partitions, spec


def exchanges(stripe: Stripe, ranks: range) -> Iterator[SharedMemoryExchange]:
    """Yield the ends of an exchange. Ranks outside of ``ranks`` never join."""
    ends = [SharedMemoryExchange(stripe, rank, "graph") for rank in ranks]
    connect(ends)
    yield from ends


@pytest.mark.parametrize("p", [7, pytest.param(16, marks=pytest.mark.full)])
def test_labels_are_scipys(p: int) -> None:
    n, src, dst = graphs.random(3000, 30_000, 5)
    tail = np.arange(3000, 3400)
    src, dst, n = np.concatenate([src, [7], tail[:-1]]), np.concatenate([dst, [3000], tail[1:]]), 3400
    matrix = oracle.adjacency(n, src, dst, directed=False)
    specs = [
        spec(source, direction=direction, predecessors=predecessors)
        for source in (0, n - 1)
        for direction in DIRECTIONS
        for predecessors in (False, True)
    ]

    def part(end: SharedMemoryExchange, partition: Partition) -> list[RankRun]:
        deadline = time.monotonic() + PATIENCE
        scratch = Scratch(partition, np)
        return loop.traverse(levels_of(scratch, end), specs, end, watch=Watch(1), deadline=deadline)

    stripe = Stripe(n, p)
    ends = list(exchanges(stripe, range(p)))
    with ThreadPoolExecutor(p) as pool:
        ranks = list(pool.map(part, ends, partitions(n, src, dst, p, directed=False)))
    for traversal, runs in zip(specs, zip(*ranks, strict=True), strict=True):
        answer, sources = Answer(runs), list(traversal.sources)
        expected = oracle.distances(matrix, sources)
        np.testing.assert_array_equal(answer.distances(stripe), expected, err_msg=str(traversal))
        if traversal.predecessors:
            oracle.assert_valid_parents(matrix, expected, answer.parents(stripe), sources)
    for end in ends:
        end.close()


@pytest.mark.parametrize(("p", "made"), [(1, 1), (3, 1), (3, 20)])
def test_a_run_stops_before_a_traversal_on_all_ranks_and_the_next_run_is_whole(p: int, made: int) -> None:
    """Rank 0 alone is asked, and only before the second traversal and later ones."""
    n, src, dst = graphs.random(300, 900, 5)
    matrix, stripe = oracle.adjacency(n, src, dst, directed=False), Stripe(n, p)
    specs = [spec(source, direction=DIRECTIONS[source % 3], predecessors=source % 2 == 0) for source in range(40)]
    parts = partitions(n, src, dst, p, directed=False)
    scratches = [Scratch(partition, np, LabelPool(stripe.n_local, 1 << 20)) for partition in parts]
    asked: list[int] = []

    def stops(rank: int) -> bool:
        asked.append(rank)
        return rank > 0 or asked.count(0) == made

    def part(end: SharedMemoryExchange, number: int, stops: Callable[[], bool]) -> list[RankRun]:
        deadline, watch = time.monotonic() + PATIENCE, Watch(number)
        levels = levels_of(scratches[end.rank], end)
        return loop.traverse(levels, specs, end, watch=watch, deadline=deadline, stops=stops)

    ends = list(exchanges(stripe, range(p)))
    with ThreadPoolExecutor(p) as pool:
        stopped = list(pool.map(lambda end: part(end, 1, lambda: stops(end.rank)), ends))
        whole = list(pool.map(lambda end: part(end, 2, never), ends))
    assert [len(runs) for runs in stopped] == [made] * p
    for ranks, expected in ((stopped, specs[:made]), (whole, specs)):
        for traversal, runs in zip(expected, zip(*ranks, strict=True), strict=True):
            distances = oracle.distances(matrix, list(traversal.sources))
            np.testing.assert_array_equal(Answer(runs).distances(stripe), distances, err_msg=str(traversal))
    for end in ends:
        end.close()


def test_the_labels_of_a_finished_run_return_to_the_pool() -> None:
    n, src, dst = graphs.random(300, 900, 5)
    (partition,) = partitions(n, src, dst, 1, directed=False)
    stripe, watch = partition.stripe, Watch(1)
    pool, end = LabelPool(stripe.n_local, 1 << 20), shared_memory(stripe)[0]
    scratch, deadline = Scratch(partition, np, pool), time.monotonic() + PATIENCE
    runs = loop.traverse(levels_of(scratch, end), [spec(0), spec(1)], end, watch=watch, deadline=deadline)
    assert len(runs) == 2
    del runs
    # The watch still exists: another thread may look at it until the next run.
    assert watch.progress() is None
    assert pool.nbytes == 2 * 4 * stripe.n_local
    end.close()


def test_an_abort_names_any_rank_and_a_run_any_number() -> None:
    last, number = 999, 2**31 - 1
    stripe = Stripe(2000, last + 1)
    first, *_, other = exchanges(stripe, range(0, last + 1, last))
    first.begin("run", number, time.monotonic() + PATIENCE)
    other.abort(number, Cause.FAILED, "no memory")
    with pytest.raises(RunAbortedError, match=f"rank 0, level 3, test: rank {last} failed first: no memory"):
        first.cross(3, "test", Nothing(), sliced=False)
    first.close()
    other.close()
