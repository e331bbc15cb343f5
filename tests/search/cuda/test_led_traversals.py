"""Traversals that rank 0 makes alone, without a GPU: ranks are threads, and the kernel of one rank is emulated.

Axes: 2 and 3 ranks; undirected graphs, directed ones with in-edges and without; light levels or not; sources, targets,
bounds; runs of many; room, versions, aborts and deadlines.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dbfs_workers.base.errors import (
    DbfsError,
    DeadlineExceededError,
    ExchangeUnavailableError,
    InvalidOptionError,
    RunCancelledError,
    WorkerLostError,
)
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.features.batches.purpose import Batch
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.cuda.run import Mode
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.members import led_traversals
from dbfs_workers.search.members.burst import Burst
from dbfs_workers.search.members.led_traversals import LedTraversals
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.members.resident import ResidentRunner, on_device
from dbfs_workers.search.partition.partition import GraphTotals, on_host
from dbfs_workers.search.partition.stripe import NO_VERTEX
from dbfs_workers.search.reports import COUNT_FIELDS, RankReport, join
from dbfs_workers.search.reports.counts import LARGEST
from tests.support import graphs, oracle
from tests.support.cuda_on_cpu import resident as emulated
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.gang import PATIENCE, partitions
from tests.support.graphs import Arrays

pytestmark = needs_compiler

SPEC = TraversalSpec("run", (5,), predecessors=True, backend="cuda")


def lattice(side: int) -> Arrays:
    places = np.arange(side * side).reshape(side, side)
    src = np.append(places[:, :-1], places[:-1])
    return side * side, src, np.append(places[:, 1:], places[1:])


class Gang:
    """The members of a graph's ranks.

    Args:
        parts: by rank, the partition.
    """

    def __init__(self, arrays: Arrays, p: int, *, directed: bool = False, in_edges: bool = True) -> None:
        self.directed, self.in_edges = directed, in_edges
        self.members = []
        self._set(arrays, p)
        for part in self.parts:
            runner = ResidentRunner("graph")
            member = Member(part.rank, "partition", runner, [LedTraversals(runner)])
            member.make(part)
            self.members.append(member)
        self.connect()
        self._numbers, self._runs = itertools.count(1), itertools.count(1)
        self.number = 0

    def _set(self, arrays: Arrays, p: int) -> None:
        n, src, dst = arrays
        self.parts: list[Any] = partitions(n, src, dst, p, directed=self.directed, in_edges=self.in_edges)
        self.adjacency = oracle.adjacency(n, src, dst, directed=self.directed)
        emulated.GangKernel.adjacency = self.adjacency

    def connect(self) -> None:
        """Connect the ranks, as after a failed run."""
        offers = [member.offer() for member in self.members]
        for member in self.members:
            member.connect(offers)

    def update(self, arrays: Arrays) -> None:
        """Take another version of the graph over."""
        import cupy

        self._set(arrays, len(self.parts))
        self.parts = [replace(part, version=self.parts[0].version + 1) for part in self.parts]
        on_gpus = [on_device(part.on(cupy)) for part in self.parts]
        totals = GraphTotals(
            sum(graph.m_local for graph in on_gpus),
            sum(graph.connected for graph in on_gpus),
            max(graph.max_degree for graph in on_gpus),
        )
        for member, part, graph in zip(self.members, self.parts, on_gpus, strict=True):
            member.runner.read(part, totals, graph)  # type: ignore[attr-defined]

    def begin(self, specs: RunSpec, seconds: float = PATIENCE) -> list[Any]:
        """Have each rank make a run in a thread of its own; return the futures of its reports."""
        self.number, run_id = next(self._numbers), f"run{next(self._runs)}"
        specs = replace(specs, options=replace(specs.options, run_id=run_id))
        pool = ThreadPoolExecutor(len(self.members))

        def make(member: Member, part: Any) -> list[tuple[RankReport, Any]]:
            burst = Burst(1, self.number, "client", specs, 0, 0, seconds, (), 0)
            reports = list(member.make_burst(part, burst))
            return [(report, member.kept.pop((run_id, at)).labels) for at, report in enumerate(reports)]

        futures = [pool.submit(make, *each) for each in zip(self.members, self.parts, strict=True)]
        pool.shutdown(wait=False)
        return futures

    def check(self, specs: RunSpec | TraversalSpec, *, led: bool) -> None:
        """Make a run; compare labels and counts with the oracle's, and who has made it."""
        if isinstance(specs, TraversalSpec):
            specs = RunSpec.single(specs)
        launched = emulated.Launch.count
        ranks = [future.result(PATIENCE) for future in self.begin(specs)]
        assert emulated.Launch.count - launched == led * len(specs)
        # No engine over the copy keeps labels that a client may have released.
        alone = self.members[0].runner.leading._alone  # type: ignore[attr-defined]
        assert not any(hasattr(engine, "sent") for engine in alone.values())
        for reports in zip(*ranks, strict=True):
            # The emulator's copies take a millisecond, and so do traversals of all ranks.
            assert all(1e-3 <= report.elapsed < 2e-2 for report, _ in reports)
        for sources, *made in zip(specs.sources, *ranks, strict=True):
            self._check(replace(specs.options, sources=sources), made)

    def _check(self, spec: TraversalSpec, made: list[tuple[RankReport, Any]]) -> None:
        stripe, sources = self.parts[0].stripe, [*spec.sources]
        expected = oracle.distances(self.adjacency, sources, spec.max_depth)
        if spec.targets:
            expected[expected > expected[[*spec.targets]].max()] = -1
        vertices = np.arange(stripe.n)
        internal = stripe.internal(vertices)
        distances = np.concatenate([on_host(labels.distances) for _, labels in made])
        np.testing.assert_array_equal(distances[internal], expected)
        if spec.predecessors:
            parents = np.concatenate([on_host(labels.predecessors) for _, labels in made])[internal]
            known = np.where(parents == NO_VERTEX, -1, stripe.vertex(parents.astype(np.int64)))
            oracle.assert_valid_parents(self.adjacency, expected, known, sources)
        else:
            assert all(labels.predecessors is None for _, labels in made)
        degrees = np.concatenate([np.diff(part.row_offsets) for part in self.parts])[internal]
        reached = expected >= 0
        reports = [report for report, _ in made]
        assert sum(report.reached for report in reports) == reached.sum()
        assert sum(report.edges for report in reports) == degrees[reached].sum()
        assert max(report.depth for report in reports) == expected.max()
        (table,) = join(np.stack([report.counts for report in reports]), (0,), LARGEST)
        frontier = table[:, COUNT_FIELDS.index("frontier")]
        # The last vertices are not expanded if they are at the bound, or have the last target.
        np.testing.assert_array_equal(frontier, np.bincount(expected[reached])[: len(table)])
        assert len({report.levels for report in reports}) == 1
        assert {report.version for report in reports} == {self.parts[0].version}

    def led(self) -> LedTraversals:
        """Return rank 0's part."""
        (part,) = self.members[0].parts
        assert isinstance(part, LedTraversals)
        return part

    def close(self) -> None:
        for member in self.members:
            member.disconnect()
        for member in self.members:
            member.close().result(PATIENCE)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> emulated.Cupy:
    # Small graphs pay as large ones do.
    monkeypatch.setattr(led_traversals, "_CROSSINGS", 0)
    monkeypatch.setattr(led_traversals, "_BYTES", 1e15)
    return emulated.install(monkeypatch)


@pytest.fixture
def gang(cupy: emulated.Cupy) -> Iterator[Callable[..., Gang]]:
    made: list[Gang] = []

    def make(*arguments: Any, **options: Any) -> Gang:
        made.append(Gang(*arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()
    # Nothing is left behind.
    assert not cupy.runtime.memory


@pytest.mark.parametrize("p", [2, 3])
@pytest.mark.parametrize("name", ["lattice", "path", "directed", "no in-edges", "heavy"])
def test_the_first_traversal_tells_whether_later_ones_are_led(gang: Callable[..., Gang], name: str, p: int) -> None:
    if name == "lattice":
        made = gang(lattice(17), p)
    elif name == "path":
        # More levels than a summary has bins at first.
        made = gang((310, np.arange(309), np.arange(1, 310)), p)
    elif name == "heavy":
        # A hub, so that no level is light.
        n, src, dst = lattice(12)
        made = gang((n, np.append(src, np.zeros(60, np.int64)), np.append(dst, np.arange(0, 120, 2))), p)
    else:
        n, src, dst = graphs.random(300, 700, 3)
        made = gang((n, src, dst), p, directed=True, in_edges=name == "directed")
    made.check(SPEC, led=False)
    made.check(SPEC, led=True)
    # The next run that all ranks make clears labels that are not of their engines.
    peer: Any = made.members[1].runner
    assert peer.engine(True)._dirty_tail
    made.check(replace(SPEC, sources=(0, 77, 130), predecessors=False), led=True)
    made.check(replace(SPEC, sources=(*range(40, 80),)), led=True)
    made.check(RunSpec(SPEC, ((3,), (5, 9), (140,))), led=True)
    near = int(made.adjacency.indices[made.adjacency.indptr[5]])
    made.check(replace(SPEC, targets=(near, 5)), led=True)
    made.check(replace(SPEC, max_depth=2), led=True)
    made.check(replace(SPEC, direction="top-down"), led=True)
    made.check(replace(SPEC, max_depth=0), led=False)
    if not made.directed:
        made.check(replace(SPEC, direction="bottom-up"), led=False)


def test_shallow_graphs_are_traversed_by_all(gang: Callable[..., Gang], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(led_traversals, "_CROSSINGS", 5e-5)
    made = gang(graphs.random(300, 3000, 3), 2)
    for _ in range(3):
        made.check(SPEC, led=False)


def test_more_edges_pay_for_more_gpus(gang: Callable[..., Gang], monkeypatch: pytest.MonkeyPatch) -> None:
    made = gang(lattice(12), 2)
    monkeypatch.setattr(led_traversals, "_EDGES_ALONE", 1e6)
    made.check(SPEC, led=False)
    made.check(SPEC, led=False)
    # A rank's levels cost more than those that rank 0 leads.
    monkeypatch.setattr(led_traversals, "_EDGES_ALONE", 6e6)
    made.check(SPEC, led=False)
    monkeypatch.setattr(emulated.GangKernel, "modes", staticmethod(lambda levels: np.full(levels, Mode.LIGHT)))
    made.check(replace(SPEC, sources=(0,)), led=False)
    made.check(SPEC, led=True)


def test_a_copy_is_made_and_kept_only_with_room(gang: Callable[..., Gang]) -> None:
    made = gang(lattice(12), 2)
    runner, led = made.members[0].runner, made.led()
    made.check(SPEC, led=False)
    free = [1000]
    runner.free_bytes = lambda: free[0]  # type: ignore[method-assign]
    made.check(SPEC, led=False)
    free[0] = 1 << 30
    made.check(SPEC, led=True)
    # The labels of many traversals leave no room.
    many = RunSpec(SPEC, ((5,),) * 4)
    runner.free_bytes = lambda: 1000 if led._alone else 5000  # type: ignore[method-assign]
    made.check(many, led=False)
    assert led._alone == {}
    runner.free_bytes = lambda: 1 << 30  # type: ignore[method-assign]
    made.check(many, led=True)
    # Nor does little memory leave room for the labels of all rows.
    runner.free_bytes = lambda: 3000  # type: ignore[method-assign]
    made.check(SPEC, led=False)
    assert led._alone == {}


@pytest.mark.parametrize("fails", ["rank 1's export", "rank 0's map", "a rank's rows", "the engine"])
def test_ranks_that_can_not_copy_traverse_together(
    gang: Callable[..., Gang], cupy: emulated.Cupy, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    made = gang(lattice(12), 2)
    made.check(SPEC, led=False)
    with monkeypatch.context() as patch:
        if fails == "rank 1's export":
            columns, exported = made.members[1].runner.graph().columns, device_memory.export_array  # type: ignore[attr-defined]

            def export(array: Any) -> Any:
                if array is columns:
                    raise ExchangeUnavailableError("pretended")
                return exported(array)

            patch.setattr(device_memory, "export_array", export)
        elif fails == "rank 0's map":

            def refuse(handle: bytes, what: str) -> int:
                raise ExchangeUnavailableError(what)

            patch.setattr(device_memory, "open_handle", refuse)
        else:

            def fill(*_: Any, **__: Any) -> Any:
                raise cupy.cuda.memory.OutOfMemoryError

            patch.setattr(led_traversals, "device_graph" if fails == "a rank's rows" else "ResidentKernel", fill)
        made.check(SPEC, led=False)
        assert made.led()._alone == {}
    # They do not try again with this version.
    made.check(SPEC, led=False)
    made.update(lattice(12))
    made.check(SPEC, led=False)
    made.check(SPEC, led=True)


def test_another_version_has_another_copy(gang: Callable[..., Gang]) -> None:
    made = gang(lattice(12), 2)
    made.check(SPEC, led=False)
    made.check(SPEC, led=True)
    n, src, dst = lattice(12)
    made.update((n, src[::-1][20:], dst[::-1][20:]))
    assert made.led()._alone == {}
    made.check(SPEC, led=False)
    made.check(SPEC, led=True)


@pytest.mark.parametrize(
    ("cause", "error"), [(Cause.CANCELLED, RunCancelledError), (Cause.LOST, WorkerLostError), (None, None)]
)
def test_a_led_traversal_ends_early_on_all_ranks(
    gang: Callable[..., Gang], cupy: emulated.Cupy, cause: Cause | None, error: type[DbfsError] | None
) -> None:
    made = gang(lattice(12), 3)
    made.check(SPEC, led=False)
    made.check(SPEC, led=True)
    cupy.runtime.held = []
    futures = made.begin(RunSpec.single(SPEC), PATIENCE if cause else 0.5)
    while not cupy.runtime.held:
        time.sleep(0.01)
    if cause is not None:
        number = made.number
        while any(member.progress(number) is None for member in made.members):
            time.sleep(0.01)
        assert made.members[1].progress(number) == (0, 0, False, 0, 0, 0)
        for member in made.members:
            member.runner.abort(number, cause, "by request", 1)
    for future in futures:
        with pytest.raises(error or DeadlineExceededError):
            future.result(PATIENCE)
    cupy.runtime.held = None
    assert made.members[1].progress(made.number) is None
    made.connect()
    assert made.led()._alone == {}
    made.check(SPEC, led=False)
    made.check(SPEC, led=True)


def test_an_abort_before_the_run(gang: Callable[..., Gang]) -> None:
    made = gang(lattice(12), 2)
    made.check(SPEC, led=False)
    for member in made.members:
        member.runner.abort(2, Cause.CANCELLED, "by request")
    for future in made.begin(RunSpec.single(SPEC)):
        with pytest.raises(RunCancelledError, match="before its first level"):
            future.result(PATIENCE)


def test_runs_within_a_run_begin_once(gang: Callable[..., Gang]) -> None:
    """A repair that finds no labels makes a traversal of its own, and there may be several in a run."""
    made = gang(lattice(12), 2)
    made.check(SPEC, led=False)
    launched = emulated.Launch.count
    with ThreadPoolExecutor(2) as pool:

        def twice(member: Member) -> list[int]:
            member.number = 7
            end, one = time.monotonic() + PATIENCE, RunSpec.single(SPEC)
            runner: Any = member.runner
            return [next(iter([*runner.traverse_all(7, one, end)])).depth for _ in range(2)]

        depths = list(pool.map(twice, made.members))
    assert depths == [[depths[0][0]] * 2] * 2
    assert emulated.Launch.count == launched + 2


def test_a_graph_of_one_rank_is_never_led(cupy: emulated.Cupy) -> None:
    runner = ResidentRunner("graph")
    part = LedTraversals(runner)
    rank: Any = SimpleNamespace(rank=0, stripe=SimpleNamespace(p=1))
    part.make(rank)
    assert runner.leading is None
    assert part.offer() is None


def test_no_run_with_a_purpose_is_of_this_part(gang: Callable[..., Gang]) -> None:
    member = gang(graphs.random(40, 60, 1), 2).members[0]
    with pytest.raises(InvalidOptionError, match="makes no Batch"):
        member.part_for(Batch(()))
