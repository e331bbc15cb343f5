"""Led levels: one rank runs the levels of all, against SciPy; the rows that ranks share; what ends a run meanwhile."""

import mmap
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dbfs_workers.base import compiling
from dbfs_workers.base.errors import DeadlineExceededError, ExchangeUnavailableError, RunCancelledError
from dbfs_workers.base.spec import DIRECTIONS, TraversalSpec
from dbfs_workers.base.tokens import Token
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange
from dbfs_workers.search.levels import led_size, loop
from dbfs_workers.search.levels.kernels import LED, TOP_DOWN
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.shared_rows import LARGEST_DEGREE, HostRows, share, token_of
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import COUNT_FIELDS, RankRun
from tests.support import graphs, oracle
from tests.support.exchanges import shared_memory
from tests.support.gang import PATIENCE, Answer, levels_of, partitions, spec, started

LENGTH = 3000


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    """Kernels that are not compiled yet leave their levels to the host."""
    compiling.prepare((*TOP_DOWN, *LED))


def path(length: int) -> graphs.Arrays:
    steps = np.arange(length - 1)
    return length, steps, steps + 1


def traverse(
    arrays: graphs.Arrays,
    p: int,
    specs: list[TraversalSpec],
    *,
    entries: int | None = None,
    led_size: int = 0,
    shared: Callable[[int], bool] = lambda _: True,
    free_bytes: int = 2**30,
    directed: bool = False,
) -> list[Answer]:
    """Traverse with ranks that are threads; ``shared`` says which ranks share their rows."""
    n, src, dst = arrays
    ends = shared_memory(Stripe(n, p), entries=entries)
    ends[0].led_size = led_size
    parts = partitions(n, src, dst, p, directed=directed)

    def part(end: SharedMemoryExchange, partition: Partition) -> list[RankRun]:
        scratch = Scratch(share(partition) if shared(end.rank) else partition, np)
        deadline = time.monotonic() + PATIENCE
        levels = levels_of(scratch, end, free_bytes=free_bytes)
        return loop.traverse(levels, specs, end, watch=loop.Watch(1), deadline=deadline)

    with ThreadPoolExecutor(p) as pool:
        ranks = list(pool.map(part, ends, parts))
    for end in ends:
        end.close()
    return [Answer(runs) for runs in zip(*ranks, strict=True)]


def led_levels(answer: Answer) -> NDArray[np.bool_]:
    """Return whether rank 0 led each level: the other ranks take no time for it."""
    led: NDArray[np.bool_] = (answer.ranks[1].seconds == 0).all(axis=1)
    return led


def check(arrays: graphs.Arrays, traversal: TraversalSpec, answer: Answer) -> None:
    n, src, dst = arrays
    sources = list(traversal.sources)
    matrix = oracle.adjacency(n, src, dst, directed=False)
    expected = oracle.distances(matrix, sources, traversal.max_depth)
    if traversal.targets and (of_targets := expected[[*traversal.targets]]).min() >= 0:
        expected[expected > of_targets.max()] = -1
    np.testing.assert_array_equal(answer.distances(Stripe(n, len(answer.ranks))), expected, err_msg=str(traversal))
    if traversal.predecessors:
        oracle.assert_valid_parents(matrix, expected, answer.parents(Stripe(n, len(answer.ranks))), sources)
    assert answer.total(lambda run: run.reached) == (expected >= 0).sum()
    assert max(run.depth for run in answer.ranks) == expected.max()
    counts = answer.counts()
    np.testing.assert_array_equal(counts["edges"], counts["filtered"] + counts["own"] + counts["sent"])
    found = np.bincount(expected[expected > 0], minlength=len(counts["discovered"]) + 1)[1:]
    np.testing.assert_array_equal(counts["discovered"], found)


@st.composite
def cases(draw: st.DrawFn) -> tuple[graphs.Arrays, int, list[TraversalSpec], int | None, int]:
    """A random graph with a path at one vertex; ranks; traversals; the entries of a bin; the size of a led level."""
    n = draw(st.integers(2, 300))
    n, src, dst = graphs.random(n, draw(st.integers(0, 3 * n)), draw(st.integers(0, 2**32 - 1)))
    tail = np.arange(n, n + draw(st.integers(1, 200)))
    src, dst = np.concatenate([src, [draw(st.integers(0, n - 1))], tail[:-1]]), np.concatenate([dst, tail])
    n += tail.size
    specs = [
        spec(
            *draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=3)),
            direction=draw(st.sampled_from(DIRECTIONS)),
            predecessors=draw(st.booleans()),
            max_depth=draw(st.sampled_from([None, None, 3, 50])),
            targets=tuple(draw(st.lists(st.integers(0, n - 1), max_size=3))),
        )
        for _ in range(3)
    ]
    entries = draw(st.sampled_from([None, None, 3, 40]))
    return (n, src, dst), draw(st.integers(2, 6)), specs, entries, draw(st.sampled_from([0, 4, 32, 300]))


@pytest.mark.full
@settings(max_examples=80, deadline=None)
@given(case=cases())
def test_random_graphs_have_scipys_labels(
    case: tuple[graphs.Arrays, int, list[TraversalSpec], int | None, int],
) -> None:
    arrays, p, specs, entries, size = case
    for traversal, answer in zip(specs, traverse(arrays, p, specs, entries=entries, led_size=size), strict=True):
        check(arrays, traversal, answer)


def test_a_path_is_led_and_labelled_by_its_owners() -> None:
    arrays = path(LENGTH)
    specs = [spec(0, predecessors=True), spec(LENGTH // 2), spec(7, max_depth=40), spec(0, targets=(20, 90, 55))]
    answers = traverse(arrays, 3, specs)
    for traversal, answer in zip(specs, answers, strict=True):
        check(arrays, traversal, answer)
        # A level that reaches the witness is followed by a count, and each target may be the witness.
        counted = [target - 1 for target in traversal.targets]
        assert np.delete(led_levels(answer), counted)[8:].all()


@pytest.mark.parametrize("reason", [{"shared": lambda rank: rank != 1}, {"free_bytes": 0}])
def test_ranks_go_on_together_where_none_can_lead(reason: dict[str, Any]) -> None:
    arrays, traversal = path(200), spec(100, predecessors=True)
    (answer,) = traverse(arrays, 2, [traversal], **reason)
    check(arrays, traversal, answer)
    assert not led_levels(answer).any()


def test_a_frontier_that_grows_and_shrinks_changes_the_way() -> None:
    side = 100
    ids = np.arange(side * side).reshape(side, side)
    src = np.concatenate([ids[:, :-1].ravel(), ids[:-1].ravel()])
    dst = np.concatenate([ids[:, 1:].ravel(), ids[1:].ravel()])
    arrays, traversal = (side * side, src, dst), spec(0, predecessors=True, direction="top-down")
    (answer,) = traverse(arrays, 3, [traversal], led_size=40)
    check(arrays, traversal, answer)
    frontier = np.minimum(np.arange(1, 2 * side), np.arange(2 * side - 1, 0, -1))
    led = led_levels(answer)
    # Led levels begin after eight small ones, and end once the frontier has twice the size.
    np.testing.assert_array_equal(led[10:side], frontier[10:side] <= 80)
    # Until then ranks count a vertex that several of them found as often.
    assert not (led & (frontier > 40))[side:].any()
    assert led[-5:].all()


@pytest.mark.parametrize("entries", [2, 3, 4])
def test_a_log_that_is_full_to_the_last_word(entries: int) -> None:
    """Each level adds a mark and two rows to one log; with one of these bins, two words are left before a level."""
    n = 400
    src = np.arange(0, n - 4, 2)
    sources = [0, 2]
    (answer,) = traverse((n, src, src + 4), 2, [spec(*sources, predecessors=True)], entries=entries, directed=True)
    matrix = oracle.adjacency(n, src, src + 4, directed=True)
    expected = oracle.distances(matrix, sources)
    np.testing.assert_array_equal(answer.distances(Stripe(n, 2)), expected)
    oracle.assert_valid_parents(matrix, expected, answer.parents(Stripe(n, 2)), sources)
    assert led_levels(answer).any()


@pytest.mark.parametrize("entries", [3, 7])
def test_a_bin_that_is_full_in_the_middle_of_a_row(entries: int) -> None:
    """The pass goes on at the next edge, again and again, and then with the rows behind."""
    n, src, dst = graphs.random(500, 2000, 4)
    src, dst = np.concatenate([src, np.zeros(n, np.int64)]), np.concatenate([dst, np.arange(n)])
    traversal = spec(0, 1, 2, predecessors=True, direction="top-down")
    (answer,) = traverse((n, src, dst), 3, [traversal], entries=entries, shared=lambda _: False)
    check((n, src, dst), traversal, answer)
    edges = np.count_nonzero(src != dst) * 2 + np.count_nonzero(src == dst)
    assert answer.total(lambda run: run.counts)[:, COUNT_FIELDS.index("edges")].sum() == edges


def test_levels_are_led_again_after_bottom_up_ones() -> None:
    """The first stretch ends because a bottom-up level may pay. The last one begins anew."""
    before, size, after = 40, 3000, 200
    _, src, dst = graphs.random(size, 60_000, 1)
    paths = [np.arange(size, size + before), np.arange(size + before, size + before + after)]
    ends = [np.append(paths[0][1:], 0), np.append(paths[1][1:], 1)]
    arrays = (size + before + after, np.concatenate([src, *paths]), np.concatenate([dst, *ends]))
    (answer,) = traverse(arrays, 2, [spec(size)])
    check(arrays, spec(size), answer)
    led = led_levels(answer)
    assert led[before - 5 : before - 2].all()
    assert answer.ranks[0].counts[:, COUNT_FIELDS.index("bottom_up")].any()
    assert led[-5:].all()


def test_the_leader_looks_for_an_end_of_the_run_between_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, look = [], SharedMemoryExchange.look

    def seen(exchange: SharedMemoryExchange, level: int, phase: str) -> None:
        looks.append(level)
        look(exchange, level, phase)

    monkeypatch.setattr(SharedMemoryExchange, "look", seen)
    traverse(path(LENGTH), 2, [spec(0)])
    # A call has 256 levels at most.
    assert len(looks) >= LENGTH // 256


def test_the_size_follows_the_measured_times() -> None:
    assert led_size.first_size(4, cores=2) == led_size.MOST
    assert led_size.first_size(4, cores=4) < led_size.first_size(28, cores=32) < led_size.MOST
    assert led_size.first_size(32, cores=32) == led_size.MOST
    frontier = np.repeat(np.array([60, 150]), 50)
    led, levels = frontier == 60, np.ones(100, np.int64)
    for led_cost, size in ((0.5, 200), (2.0, 50)):
        assert led_size.next_size(100, levels, frontier, frontier * np.where(led, led_cost, 1.0), led) == size
    assert led_size.next_size(100, levels, frontier, 1.0 * frontier, np.ones(100, bool)) == 100
    assert led_size.next_size(led_size.MOST, levels, 50 * frontier, 1.0 * frontier * ~led, led) == led_size.MOST


@pytest.mark.parametrize(
    ("led_levels", "vertices", "size"),
    [(16, 100, 200), (15, 100, 100), (16, 26, 200), (16, 25, 100), (16, 400, 200), (16, 401, 100)],
)
def test_sixteen_levels_of_about_the_size_are_compared(led_levels: int, vertices: int, size: int) -> None:
    """A quarter of the size up to four times the size. Led levels are the faster ones here."""
    levels = np.array([led_levels, 16])
    frontier, led = levels * [vertices, 100], np.array([True, False])
    assert led_size.next_size(100, levels, frontier, np.array([0.001, 1.0]) * frontier, led) == size


def rows_of(arrays: graphs.Arrays, p: int) -> list[Partition]:
    n, src, dst = arrays
    return partitions(n, src, dst, p, directed=False)


def test_shared_rows_are_the_rows() -> None:
    before, after = rows_of(path(50_001), 2), [share(part) for part in rows_of(path(50_001), 2)]
    tokens = []
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(new.row_offsets, old.row_offsets)
        np.testing.assert_array_equal(new.columns, old.columns)
        token = token_of(new.rows)
        assert token is not None
        assert Token.of_words(token.words(), "rows") == token
        tokens.append(token)
    of_host = HostRows(before[0].stripe)
    (rows, first), (again, second) = (of_host.copied(tokens, lambda: 2**30) for _ in (1, 2))
    assert (rows is again, first, second) == (True, True, False)
    lists = [np.split(of.columns, of.row_offsets[1:-1]) for of in (*before, rows)]
    for one, other in zip(lists[0] + lists[1], lists[2], strict=True):
        np.testing.assert_array_equal(one, other)
    del after, new
    # The files end with the arrays.
    with pytest.raises(ExchangeUnavailableError, match="the rows of rank 0 can't be mapped"):
        HostRows(before[0].stripe).copied(tokens, lambda: 2**30)


def test_rows_leave_the_memory_of_a_file_s_copy() -> None:
    """The arrays of a saved graph are parts of one array, which is not needed beside their copies."""
    (rows, _) = rows_of(path(500_001), 2)
    whole = np.concatenate([rows.row_offsets.view(np.uint8), rows.columns.view(np.uint8)])
    cut = rows.row_offsets.nbytes
    parts = replace(rows, row_offsets=whole[:cut].view(np.int64), columns=whole[cut:].view(np.uint32))
    shared = share(parts)
    np.testing.assert_array_equal(shared.row_offsets, rows.row_offsets)
    np.testing.assert_array_equal(shared.columns, rows.columns)
    # Memory that was given back has zeros when it is looked at again; the ends of the arrays are within pages.
    assert np.count_nonzero(whole) < 2 * mmap.PAGESIZE


def files_of_rows() -> int:
    """Return the number of memfds that this process has open. A cluster in the same process opens other files."""
    links = []
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            links.append(str(file.readlink()))
    return sum(link.startswith("/memfd:") for link in links)


def test_threads_share_and_drop_rows_at_once() -> None:
    """Memory that one thread gives back is another's at once, before the first thread has forgotten its file."""

    def share_many(_: int) -> None:
        for _ in range(400):
            part = share(rows[0])
            token = token_of(part.rows)
            assert token is not None
            assert os.fstat(token.descriptor).st_size == rows[0].out_edges.nbytes

    rows = rows_of(path(100), 2)
    before = files_of_rows()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(share_many, range(4)))
    assert files_of_rows() <= before


def test_rows_that_no_rank_leads_stay_as_they_are() -> None:
    star: NDArray[np.int64] = np.arange(1, LARGEST_DEGREE + 2)
    for arrays, p in ((path(10), 1), ((star.size + 1, np.zeros_like(star), star), 2)):
        partition = rows_of(arrays, p)[0]
        assert share(partition) is partition
        assert token_of(partition.rows) is None


@pytest.mark.parametrize("fault", ["too large", "other stripe", "other graph"])
def test_wrong_rows_are_not_copied(fault: str) -> None:
    parts = [share(part) for part in rows_of(path(100), 2)]
    token, other = (token_of(part.rows) for part in parts)
    assert token is not None
    assert other is not None
    stripe = Stripe(10_000 if fault == "other stripe" else 100, 2)
    if fault == "other graph":
        token = Token(token.pid, token.descriptor, token.label[:-1] + "x")
    one = "the rows of rank 0 can't be mapped"
    words = {
        "too large": "the rows of all ranks can't be copied: .* at most 100 may be",
        "other stripe": f"{one}: .* do not hold 5,025 row",
        "other graph": f"{one}: .*another file",
    }
    with pytest.raises(ExchangeUnavailableError, match=words[fault]):
        HostRows(stripe).copied([token, other], lambda: 400 if fault == "too large" else 2**30)


@pytest.mark.full
def test_a_run_ends_while_one_rank_leads() -> None:
    """Cancelled by a sleeping rank; past the deadline; and with a leader that was stopped."""
    n, src, dst = path(200_000)
    with started(3) as gang:
        gang.load(partitions(n, src, dst, 3, directed=False))
        running = gang.everywhere("run", [spec(0)] * 1000, gang.next_number(), PATIENCE)
        time.sleep(0.3)
        gang.call(1, "abort", gang.number, Cause.CANCELLED, "its client is gone").result()
        for answered in running:
            with pytest.raises(RunCancelledError, match="cancelled: its client is gone"):
                answered.result()
        for answered in gang.everywhere("run", [spec(0)] * 1000, gang.next_number(), 0.5):
            with pytest.raises(DeadlineExceededError, match="run run, rank ., level .*deadline passed"):
                answered.result()
        running = gang.everywhere("run", [spec(0)] * 1000, gang.next_number(), 1.5)
        time.sleep(0.3)
        leader = gang.processes[0].pid
        assert "memfd:dbfs" in Path(f"/proc/{leader}/maps").read_text()
        os.kill(leader, signal.SIGSTOP)
        for answered in running[1:]:
            with pytest.raises(DeadlineExceededError, match="waiting for rank 0"):
                answered.result()
        os.kill(leader, signal.SIGCONT)
        with pytest.raises(DeadlineExceededError):
            running[0].result()
        (answer,) = gang.run(spec(0))
        np.testing.assert_array_equal(answer.distances(Stripe(n, 3)), np.arange(n))
