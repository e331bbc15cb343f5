"""Errors of runs that end early on a GPU rank, without a GPU: a stand-in replaces the engine."""

import sys
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dbfs_workers.base.errors import (
    DeadlineExceededError,
    DeviceFailedError,
    ExchangeUnavailableError,
    GraphTooLargeError,
    InvalidOptionError,
    NoRoomForLabelsError,
    RunAbortedError,
    RunCancelledError,
    StaleRunError,
    WorkerLostError,
)
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.features.batches.resident_part import ResidentBatches
from dbfs_workers.features.living.gpu_parts import ResidentLiving
from dbfs_workers.features.living.purpose import Repair
from dbfs_workers.search.cuda import layout
from dbfs_workers.search.cuda import run as cuda_run
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.members.burst import Burst
from dbfs_workers.search.members.member import Member, OwnedLabels
from dbfs_workers.search.members.resident import ResidentRunner
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import no_vertices
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import COUNT_FIELDS, TIME_FIELDS, CountedLevels, RankRun
from dbfs_workers.search.reports.crossings import Most
from tests.support.gang import PATIENCE, repeated

SPEC = TraversalSpec("run", (0,), predecessors=False, backend="cpu")
FIVE = repeated(SPEC, 5)
SYMMETRIC = SimpleNamespace(parents=object(), stripe=Stripe(100, 3), deleted=no_vertices(), version=0)


class CudaRuntimeError(RuntimeError):
    """Stands in for CuPy's error."""


class OutOfMemoryError(MemoryError):
    """Stands in for CuPy's error."""


class Engine:
    """A stand-in that ends a run as the test says. An abort during the run raises the real engine's error."""

    def __init__(self, ends: Callable[["Engine"], None]) -> None:
        self.ends = ends
        self.aborted = self.dropped = False
        self.launched = self.ended = 0
        self.options: Any = None

    def prepare(self, options: cuda_run.KernelOptions) -> None:
        self.options = options

    stream = None
    lone_sources = 0
    direction = cuda_run.Direction.AUTO

    def launch(self, then: Callable[[Any], Any]) -> tuple[Any, Any]:
        # As in the real engine, a launch clears an earlier abort.
        self.aborted = False
        self.launched += 1
        return None, None

    def abort(self) -> None:
        self.aborted = True

    def drop(self) -> None:
        self.dropped = True

    def wait(self) -> None:
        self.ends(self)
        self.ended += 1
        if self.aborted:
            raise cuda_run.KernelAbortedError("the run was aborted: rank 2, level 7, merge step")


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> ResidentRunner:
    cuda = SimpleNamespace(
        Device=lambda: SimpleNamespace(mem_info=(3, 3)),
        runtime=SimpleNamespace(CUDARuntimeError=CudaRuntimeError),
        driver=SimpleNamespace(CUDADriverError=CudaRuntimeError),
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    )
    pool = SimpleNamespace(free_bytes=lambda: 0, get_limit=lambda: 0)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, get_default_memory_pool=lambda: pool))
    runner = ResidentRunner("graph")
    Member(2, "partition", runner).number = 1
    return runner


def run(runner: ResidentRunner, ends: Callable[[Engine], None], spec: TraversalSpec = SPEC, number: int = 1) -> None:
    engine: Any = Engine(ends)
    runner._engines = [engine, engine]
    partition: Any = SYMMETRIC
    list(runner.traverse(partition, number, RunSpec.single(spec), time.monotonic() + 5))


@pytest.mark.parametrize(
    ("cause", "error", "words"),
    [
        (Cause.CANCELLED, RunCancelledError, "rank 2, level 7, merge step: cancelled: by request"),
        (Cause.DEADLINE, DeadlineExceededError, "level 7, merge step: the deadline passed.*by request"),
        (Cause.FAILED, RunAbortedError, "level 7, merge step: by request"),
    ],
)
def test_an_aborted_run_says_why(runner: ResidentRunner, cause: Cause, error: type[Exception], words: str) -> None:
    def ends(engine: Engine) -> None:
        runner.abort(1, cause, "by request")
        runner.abort(1, Cause.LOST, "too late to be the cause")

    with pytest.raises(error, match=words):
        run(runner, ends)


def test_a_lost_peer(runner: ResidentRunner) -> None:
    with pytest.raises(WorkerLostError, match="rank 2, level 7, merge step: lost rank 0; load the graph again"):
        run(runner, lambda engine: runner.abort(1, Cause.LOST, "lost rank 0", 0))


def test_an_abort_that_comes_before_the_launch(runner: ResidentRunner) -> None:
    runner.abort(1, Cause.CANCELLED, "by request")
    with pytest.raises(RunCancelledError, match="before its first level"):
        run(runner, lambda engine: pytest.fail("the kernel was launched"))


def test_an_abort_of_another_run_is_ignored(runner: ResidentRunner) -> None:
    def ends(engine: Engine) -> None:
        runner.abort(2, Cause.CANCELLED, "the next one")
        assert not engine.aborted
        raise DeadlineExceededError("rank 2, level 3")

    with pytest.raises(DeadlineExceededError):
        run(runner, ends)
    with pytest.raises(StaleRunError, match="run 1 came after run 1"):
        run(runner, ends)
    runner.abort(1, Cause.CANCELLED, "it is over")
    runner.member.number = 2
    with pytest.raises(RunCancelledError, match="the next one"):
        run(runner, ends, number=2)


@pytest.fixture
def batch(runner: ResidentRunner, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], tuple[Engine, Iterator[RankRun]]]:
    """Make a run of five traversals, of which none fails."""
    levels = CountedLevels.of(np.empty((0, len(COUNT_FIELDS)), np.int64), np.empty((0, len(TIME_FIELDS))))
    done = RankRun(RankLabels(np.zeros(1, np.int32), None), levels, 1, 0, 0, 1.0, 0.0)
    monkeypatch.setattr(ResidentRunner, "_report", lambda self, engine, launched, outcome: done)
    monkeypatch.setattr(Member, "require_room", lambda self, stripe, specs: None)

    def begin(number: int) -> tuple[Engine, Iterator[RankRun]]:
        engine: Any = Engine(lambda engine: None)
        runner._engines, runner.member.number = [engine, engine], number
        partition: Any = SYMMETRIC
        return engine, iter(runner.traverse(partition, number, FIVE, time.monotonic() + 5))

    return begin


def test_a_traversal_is_in_hand_while_the_next_ones_run(
    batch: Callable[[int], tuple[Engine, Iterator[RankRun]]],
) -> None:
    engine, runs = batch(1)
    seen = [(engine.ended, engine.launched) for _ in runs]
    assert seen == [(ended, min(5, ended + cuda_run.AHEAD)) for ended in range(1, 6)]
    assert not engine.dropped


def test_a_part_of_a_run_reaches_its_end(runner: ResidentRunner, batch: Callable[[int], tuple[Engine, Any]]) -> None:
    engine, _ = batch(1)
    partition: Any = SYMMETRIC
    assert len(list(runner.member.make_burst(partition, Burst(1, 1, "client", FIVE, 2, 0, 5.0, (), 0)))) == 5
    assert [index for _, index in runner.member.kept] == [2, 3, 4, 5, 6]
    assert not engine.dropped
    assert runner.member.progress(1) is None


def test_a_run_that_is_left_stops_the_kernels_under_way(
    runner: ResidentRunner, batch: Callable[[int], tuple[Engine, Generator[RankRun, None, None]]]
) -> None:
    engine, runs = batch(1)
    next(runs)
    runs.close()
    assert engine.dropped
    assert runner.member.progress(1) is None
    with pytest.raises(StaleRunError):
        next(batch(1)[1])
    assert len(list(batch(2)[1])) == 5


def test_an_abort_between_two_traversals(
    runner: ResidentRunner, batch: Callable[[int], tuple[Engine, Iterator[RankRun]]]
) -> None:
    engine, runs = batch(1)
    next(runs)
    runner.abort(1, Cause.CANCELLED, "by request")
    with pytest.raises(RunCancelledError, match="by request"):
        next(runs)
    assert engine.dropped
    assert (engine.launched, engine.ended) == (1 + cuda_run.AHEAD, 1)


def test_errors_of_the_gpu_are_typed(runner: ResidentRunner) -> None:
    def breaks(engine: Engine) -> None:
        raise CudaRuntimeError("cudaErrorIllegalAddress")

    def fills(engine: Engine) -> None:
        raise OutOfMemoryError("9 bytes wanted")

    def hangs(engine: Engine) -> None:
        raise cuda_run.KernelHungError("rank 2, level 9: the kernel did not end within 5 s after it was stopped")

    with pytest.raises(DeviceFailedError, match="rank 2: its GPU failed: cudaErrorIllegalAddress"):
        run(runner, breaks)
    with pytest.raises(
        DeviceFailedError, match="level 9: the kernel did not end.*; restart its worker to free the GPU"
    ):
        run(runner, hangs, number=2)
    with pytest.raises(GraphTooLargeError, match="rank 2: 9 bytes wanted; 3 bytes are free on its GPU"):
        run(runner, fills, number=3)


def test_options_of_a_run(runner: ResidentRunner) -> None:
    def ends(engine: Engine) -> None:
        assert engine.options.sources == (5, 3)
        assert engine.options.direction is cuda_run.Direction.BOTTOM_UP
        assert engine.options.max_depth == 4
        assert 4 < engine.options.timeout <= 5
        raise DeadlineExceededError("enough")

    spec = TraversalSpec("run", (5, 3, 5), predecessors=True, backend="cpu", direction="bottom-up", max_depth=4)
    with pytest.raises(DeadlineExceededError):
        run(runner, ends, spec)
    nowhere: Any = SimpleNamespace(parents=None, deleted=no_vertices())
    with pytest.raises(InvalidOptionError, match="in_edges=True"):
        list(runner.traverse(nowhere, 2, RunSpec.single(spec), time.monotonic() + 5))


def test_more_gpus_than_a_kernel_serves_are_refused(runner: ResidentRunner) -> None:
    """A gang without a fixed exchange goes on to NCCL then."""
    partition: Any = SimpleNamespace(stripe=Stripe(100, layout.MAX_RANKS + 1))
    with pytest.raises(ExchangeUnavailableError, match="cuda_ipc serves up to 8 ranks, not 9"):
        runner.make(partition)


def test_the_state_of_a_failed_run_is_cleared_when_the_ranks_connect_again(runner: ResidentRunner) -> None:
    calls: list[Any] = []
    for name in ("without", "with"):
        engine: Any = SimpleNamespace(
            info=lambda name=name: calls.append("info") or name,
            connect=lambda records: calls.append([*records]),
            recover=lambda: calls.append("recover"),
            disconnect=lambda: calls.append("disconnect"),
        )
        runner._engines.append(engine)
    member = runner.member
    offer: Any = member.offer()
    of_peer: Any = [("peer's", "peer's")]
    assert offer == [("without", "with")]
    member.connect([offer, of_peer])
    # The peers have mapped what was offered first.
    assert member.offer()[0] is offer[0]
    member.connect([offer, of_peer])
    member.disconnect()
    mapped = [["without", "peer's"], ["with", "peer's"]]
    assert calls == [*["info"] * 2, *mapped, *["recover"] * 2, *["disconnect"] * 2]


class Barrier:
    """A stand-in for the crossings of a member whose peers say what they want of the memory of batches."""

    def __init__(self, peers_want: int = 0, during: Callable[[], None] = lambda: None) -> None:
        self.peers_want, self.during = peers_want, during
        self.begun: list[int] = []
        self.aborted: list[Cause] = []

    def begin(self, run_id: str, number: int, deadline: float) -> None:
        self.begun.append(number)

    def cross(self, level: int, phase: str, counts: Most, *, sliced: bool) -> Most:
        self.during()
        if self.aborted:
            raise RunCancelledError("in the crossing")
        return Most(max(counts.most, self.peers_want))

    def abort(self, number: int, cause: Cause, message: str, rank: int | None) -> None:
        self.aborted.append(cause)


@pytest.fixture
def after_batches(runner: ResidentRunner, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Make a run after one of batches; return what was done to the memory of these."""
    batches = ResidentBatches(runner)
    Member(2, "partition", runner, [batches])
    monkeypatch.setattr(ResidentRunner, "free_bytes", lambda self: 200 if batches.levels else 300)

    def make(barrier: Barrier, *, version: int = 0, nbytes: int = 50, kept: int = 0, number: int = 1) -> list[str]:
        done: list[str] = []
        levels: Any = SimpleNamespace(
            nbytes=nbytes,
            scratch=SimpleNamespace(partition=SimpleNamespace(version=version)),
            close=lambda: done.append("closed"),
        )
        end: Any = barrier
        labels = RankLabels.unreached(np, SYMMETRIC.stripe, predecessors=True)
        runner.member.kept = {("earlier", index): OwnedLabels("client", labels) for index in range(kept)}
        batches.levels, batches.barrier, runner.member.number = levels, end, number

        def ends(engine: Engine) -> None:
            done.append("traversed")
            raise DeadlineExceededError("enough")

        with pytest.raises((DeadlineExceededError, RunCancelledError)):
            run(runner, ends, number=number)
        assert (batches.levels is None) == ("closed" in done)
        assert batches._watch is None or barrier.aborted
        return done

    return make


def test_the_memory_of_batches_stays_while_others_run(after_batches: Callable[..., list[str]]) -> None:
    barrier = Barrier()
    assert after_batches(barrier) == ["traversed"]
    # The next burst of the same run.
    assert after_batches(barrier, number=2) == ["traversed"]
    assert barrier.begun == [1]
    # An update came between two bursts.
    assert after_batches(barrier, number=3, version=1)[0] == "closed"


@pytest.mark.parametrize(
    ("peers_want", "options"),
    [(1, {}), (0, {"version": 1}), (0, {"nbytes": 51}), (0, {"kept": 2})],
    ids=["a peer", "another version", "a large part", "labels"],
)
def test_the_memory_of_batches_goes_if_a_rank_wants_it(
    after_batches: Callable[..., list[str]], peers_want: int, options: dict[str, int]
) -> None:
    assert after_batches(Barrier(peers_want), **options)[0] == "closed"


def test_an_abort_reaches_ranks_that_ask_each_other_for_memory(
    runner: ResidentRunner, after_batches: Callable[..., list[str]]
) -> None:
    barrier = Barrier(during=lambda: runner.abort(1, Cause.CANCELLED, "by request"))
    assert after_batches(barrier) == []
    assert barrier.aborted == [Cause.CANCELLED]


def test_memory_stays_until_the_thread_of_a_run_has_left_it(runner: ResidentRunner) -> None:
    freed: list[bool] = []
    runner.free = lambda: freed.append(runner.member.in_use.locked())  # type: ignore[method-assign]
    with runner.member.in_use:
        done = runner.member.close()
        assert runner.member.closed
        assert not freed
    done.result(PATIENCE)
    assert freed == [True]
    assert not runner.member.in_use.locked()


def test_labels_that_are_kept_leave_no_room_for_more(runner: ResidentRunner) -> None:
    labels = RankLabels.unreached(np, SYMMETRIC.stripe, predecessors=True)
    runner.member.kept = {("earlier", index): OwnedLabels("client", labels) for index in range(2)}
    with pytest.raises(NoRoomForLabelsError, match="run run, rank 2: .* 3 bytes are free for labels"):
        run(runner, lambda engine: pytest.fail("the kernel was launched"))


def test_a_run_that_no_part_makes_is_refused(runner: ResidentRunner) -> None:
    spec = replace(SPEC, purpose=Repair(("earlier", 0)))
    with pytest.raises(InvalidOptionError, match="rank 2 makes no Repair: its worker has no part for that"):
        run(runner, lambda engine: pytest.fail("the kernel was launched"), spec)


@pytest.mark.parametrize(("kept", "changed"), [(True, [3, 7]), (False, [7, 9])], ids=["kept", "lost"])
def test_a_new_traversal_in_the_place_of_a_repair_knows_what_has_changed(
    runner: ResidentRunner, monkeypatch: pytest.MonkeyPatch, kept: bool, changed: list[int]
) -> None:
    before, after = np.full(96, -1, np.int32), np.full(96, -1, np.int32)
    before[[3, 9]], after[[7, 9]] = 1, 1
    levels = CountedLevels.of(np.empty((0, len(COUNT_FIELDS)), np.int64), np.empty((0, len(TIME_FIELDS))))
    made = RankRun(RankLabels(after, None), levels, 2, 0, 1, 1.0, 0.0)
    stream: Any = SimpleNamespace(synchronize=lambda: None)
    monkeypatch.setattr(sys.modules["cupy"].cuda, "get_current_stream", lambda: stream, raising=False)
    monkeypatch.setattr(ResidentRunner, "_report", lambda self, engine, launched, outcome: made)
    graph: Any = SimpleNamespace(stripe=Stripe(96, 1), in_columns=object())
    runner._graph = graph
    Member(2, "partition", runner, [ResidentLiving(runner)]).number = 1
    if kept:
        # So fast a traversal is not repaired.
        runner.member.kept = {("earlier", 0): OwnedLabels("client", RankLabels(before, before), 3, seconds=1e-6)}
    partition: Any = SimpleNamespace(**vars(SYMMETRIC) | {"version": 4})
    engine: Any = Engine(lambda engine: None)
    runner._engines = [engine, engine]
    specs = RunSpec.single(replace(SPEC, purpose=Repair(("earlier", 0))))
    burst = Burst(1, 1, "client", specs, 0, 0, 5.0, (), 0)
    assert len(list(runner.member.make_burst(partition, burst))) == 1
    (place, labels), *others = runner.member.kept.items()
    assert (place, labels.version, others) == (("run", 0), 4, [])
    assert labels.changed.get().tolist() == changed
