"""Led traversals: rank 0 makes them alone, over a copy of all ranks' rows in its GPU's memory.

In a deep graph each level of several GPUs waits longer for trips between them than it works. One GPU with all rows
waits for none (docs/decisions/led-traversals.md). So the ranks make the first traversal of a graph together. If its
levels were many and small, rank 0 copies the rows of all ranks, whose vertices are then the internal ids, and runs the
kernel of one rank. The slices of its labels are the labels of the ranks: rank 0 writes them into the windows of its
peers. The peers wait at a barrier on the host.

All ranks decide by the same facts, and rank 0 tells them at the barrier whether it has room. Only rank 0
reaches the copy. Rank 0 drops the copy if a run needs the memory.
"""

import pickle
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import ExchangeUnavailableError, GraphTooLargeError
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.search.cuda import device_memory, failures, sizes
from dbfs_workers.search.cuda.device_graph import DeviceGraph, device_graph
from dbfs_workers.search.cuda.layout import LEADER
from dbfs_workers.search.cuda.resident import ResidentKernel
from dbfs_workers.search.cuda.run import Mode
from dbfs_workers.search.cuda.summary import Summary
from dbfs_workers.search.members.crossing import CrossingPart
from dbfs_workers.search.members.resident import ResidentRunner
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import COUNT_FIELDS, TIME_FIELDS, CountedLevels, RankProgress, RankRun
from dbfs_workers.search.reports.counts import Largest
from dbfs_workers.search.reports.crossings import C, Most, Nothing

_PHASE: Final = "a traversal that rank 0 makes alone"
# Share of the free memory that the copy may take.
_SHARE: Final = 1 / 4
# Measured, see docs/decisions/led-traversals.md: seconds of a level on one GPU, of a level that rank 0 leads, and of
# one that all ranks make; edges a second of a GPU; bytes a second from GPU to GPU; seconds of the crossings.
_LEVEL_ALONE: Final = 3.5e-6
_LEVEL_LED: Final = 5e-6
_LEVEL_TOGETHER: Final = 10e-6
_EDGES_ALONE: Final = 1.7e11
_EDGES_OF_SEVERAL: Final = 1.5e11
_BYTES: Final = 3e11
_CROSSINGS: Final = 5e-5
# What the ranks tell each other about the copy. The largest answer counts.
_READY, _TO_COPY, _REFUSED = range(3)


class Made(NamedTuple):
    """The crossing behind a traversal, at which rank 0 tells its peers what it has made."""

    levels: Largest = 0
    depth: Largest = 0
    nanoseconds: Largest = 0


class LedTraversals(CrossingPart):
    """See ``Leading``. A part of the member, since it crosses: no run is of its purpose."""

    def __init__(self, runner: ResidentRunner) -> None:
        super().__init__(runner)
        # Over the copy, without predecessors or with; none without a copy.
        self._alone: dict[bool, ResidentKernel] = {}
        self._refused = False
        # Levels that rank 0 led, and others, of the deepest traversal that all ranks made.
        self._levels = (0, 0)
        # The run that a peer waits for, and the index of the traversal.
        self._waits: tuple[int, int] | None = None

    def make(self, partition: Partition) -> None:
        super().make(partition)
        if partition.stripe.p > 1:
            self._runner.leading = self

    def connect(self, offers: Sequence[Any]) -> None:
        # After a failed run the ranks may have noted different traversals.
        self.forget()
        super().connect(offers)

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> NoReturn:
        raise NotImplementedError

    def make_room(self, partition: Partition, specs: RunSpec, number: int, deadline: float) -> None:  # noqa: ARG002
        """See ``MemberPart``. Rank 0 drops the copy without asking its peers, which have not mapped it."""
        if not self._alone or specs.options.run_id == self._runner.member.checked_run:
            return
        # The engine holds the labels of all rows twice: those of a run, and those for the next one.
        if not self._fits(partition.stripe, specs, 2 * sizes.labels(_whole(partition.stripe)), 1):
            self.drop()

    def progress(self, number: int) -> RankProgress | None:
        """Return the place of a peer, which counts nothing. The runner has rank 0's."""
        waits = self._waits
        return RankProgress(waits[1], 0, False, 0, 0) if waits is not None and waits[0] == number else None

    def free(self) -> None:
        self.drop()
        super().free()

    def note(self, records: NDArray[Any]) -> None:
        if records.size > sum(self._levels):
            led = int(np.count_nonzero(records["mode"] == Mode.LEADER))
            self._levels = led, records.size - led

    def forget(self) -> None:
        self._levels, self._refused = (0, 0), False
        self.drop()

    def drop(self) -> None:
        if self._alone:
            while self._alone:
                self._alone.popitem()[1].close()
            device_memory.release_pool()

    def takes(self, engine: ResidentKernel, number: int, specs: RunSpec, deadline: float) -> bool:
        if self._refused or not self._pays(engine, specs.options):
            return False
        assert self.barrier is not None
        # A repair of several traversals comes here several times in a run.
        if self.barrier.number != number:
            self._watch_run(number)
            self.barrier.begin(specs.options.run_id, number, deadline)
        answer = self._agree(self._answer(engine, specs))
        if answer == _TO_COPY:
            answer = self._agree(self._offer_rows()) or self._agree(self._copy_rows(specs.options.predecessors))
            self._refused = answer == _REFUSED
        return answer == _READY

    def led(
        self, engine: ResidentKernel, number: int, specs: RunSpec, deadline: float
    ) -> Generator[RankRun, None, None]:
        stripe = engine.graph.stripe
        by_internal_id = specs.renumbered(lambda ids: stripe.internal(np.asarray(ids, np.int64)).tolist())
        for index, spec in enumerate(by_internal_id):
            if index:
                # The peers have taken the labels of the traversal before out of their windows.
                self._cross(Nothing())
            if engine.graph.rank == LEADER:
                yield self._lead(number, index, spec, deadline)
            else:
                yield self._follow(engine, number, index)

    def _pays(self, engine: ResidentKernel, options: TraversalSpec) -> bool:
        """Return whether a traversal takes less time on rank 0 alone than on all ranks."""
        levels, p = sum(self._levels), engine.graph.stripe.p
        if not levels or options.direction == "bottom-up":
            return False
        led, together = self._levels
        waits = led * (_LEVEL_LED - _LEVEL_ALONE) + together * (_LEVEL_TOGETHER - _LEVEL_ALONE)
        work = engine.edges_total * (1 / _EDGES_ALONE - 1 / (_EDGES_OF_SEVERAL * p))
        label_bytes = (1 + options.predecessors) * 4 * engine.graph.stripe.n_local * (p - 1)
        part = 1.0 if options.max_depth is None else min(1.0, options.max_depth / levels)
        return part * (waits - work) > _CROSSINGS + label_bytes / _BYTES

    def _answer(self, engine: ResidentKernel, specs: RunSpec) -> int:
        """Return whether the rank is ready: rank 0 needs the copy, the engine, and room for them."""
        graph, predecessors = engine.graph, specs.options.predecessors
        if graph.rank != LEADER:
            return _READY
        if self._alone:
            copy = next(iter(self._alone.values())).graph
            return _READY if predecessors in self._alone else self._make_engine(predecessors, lambda: copy)
        whole, m, directed = _whole(graph.stripe), engine.edges_total, graph.in_offsets is not graph.row_offsets
        needed = sum(sizes.partition(whole, m, in_edges=directed and graph.in_offsets is not None).values())
        needed += sum(sizes.member(whole, m, bottom_up=graph.in_offsets is not None).values())
        return _TO_COPY if self._fits(graph.stripe, specs, needed, _SHARE) else _REFUSED

    def _fits(self, stripe: Stripe, specs: RunSpec, needed: int, share: float) -> bool:
        """Return whether so many bytes fit into a share of the free memory, and beside the labels of a run."""
        free, member = self._runner.free_bytes(), self._runner.member
        return needed <= share * free and member.has_room(stripe, specs, needed)

    def _offer_rows(self) -> int:
        """Bin the places of the rank's lists for rank 0."""
        assert self.barrier is not None
        try:
            offers = [(device_memory.export_array(each), each.size) for each in _lists(self._runner.graph())]
        except ExchangeUnavailableError:
            return _REFUSED
        packed = pickle.dumps(offers)
        words = np.frombuffer(packed + bytes(-len(packed) % 4), np.uint32)
        self.barrier.bin_rows[LEADER * self.barrier.entries :][: words.size] = words
        self.barrier.bin_ends[LEADER] = words.size
        return _READY

    def _copy_rows(self, predecessors: bool) -> int:
        """Copy the rows of all ranks, on rank 0, and make the engine."""
        barrier, graph = self.barrier, self._runner.graph()
        assert barrier is not None
        if graph.rank != LEADER:
            return _READY
        offers = [pickle.loads(barrier.rows_from(rank).tobytes()) for rank in range(1, barrier.p)]
        device_memory.release_pool()
        return self._make_engine(predecessors, lambda: _all_rows(graph, offers))

    def _make_engine(self, predecessors: bool, rows: Callable[[], DeviceGraph]) -> int:
        """Make an engine over the copy, which ``rows`` returns."""
        try:
            with failures.typed_errors("rank 0, copying all rows"):
                leads = self._runner.engine(predecessors)
                leads.load_copies()
                copy = rows()
                summary = Summary(copy)
                engine = ResidentKernel(copy, self._runner.graph_id, predecessors=predecessors)
        except (ExchangeUnavailableError, GraphTooLargeError):
            self.drop()
            return _REFUSED
        engine.summary, engine.leads = summary, leads
        engine.connect([engine.info()])
        self._alone[predecessors] = engine
        return _READY

    def _lead(self, number: int, index: int, spec: TraversalSpec, deadline: float) -> RankRun:
        """Make a traversal, and give each rank its labels."""
        alone = self._alone[spec.predecessors]
        (run,) = self._runner.launched(alone, number, RunSpec.single(spec), deadline, index)
        run.labels = alone.sent.own
        run.elapsed += alone.sent.seconds
        # The client may release the labels long before another traversal.
        del alone.sent
        self._cross(Made(len(run.levels), run.depth, int(run.elapsed * 1e9)))
        return run

    def _follow(self, engine: ResidentKernel, number: int, index: int) -> RankRun:
        """Wait for a traversal of rank 0. Its report has all counts."""
        self._waits = number, index
        try:
            made = self._cross(Made())
        finally:
            self._waits = None
        counts, seconds = (np.zeros((made.levels, len(names))) for names in (COUNT_FIELDS, TIME_FIELDS))
        levels = CountedLevels.of(counts.astype(np.int64), seconds)
        return RankRun(engine.receive_labels(), levels, 0, 0, made.depth, made.nanoseconds * 1e-9, 0.0)

    def _agree(self, answer: int) -> int:
        return self._cross(Most(answer)).most

    def _cross(self, counts: C) -> C:
        assert self.barrier is not None
        return self.barrier.cross(0, _PHASE, counts, sliced=False)


def _whole(stripe: Stripe) -> Stripe:
    """Return the stripe of a single rank whose vertices are the internal ids."""
    return Stripe(stripe.p * stripe.n_local, 1)


def _lists(graph: DeviceGraph) -> list[Any]:
    """Return row offsets and columns of the out-edges, and of the in-edges if those are others."""
    lists = [graph.row_offsets, graph.columns]
    if graph.in_offsets is not None and graph.in_offsets is not graph.row_offsets:
        lists += [graph.in_offsets, graph.in_columns]
    return lists


def _all_rows(graph: DeviceGraph, offers: Sequence[Sequence[tuple[device_memory.ExportedArray, int]]]) -> DeviceGraph:
    """Return rank 0's rows and those of all others, given the places and sizes of the lists of each."""
    import cupy

    rows, own = graph.stripe.n_local, _lists(graph)
    lists: list[Any] = []
    for place in range(0, len(own), 2):
        sizes_of_ranks = [own[place + 1].size, *(of_rank[place + 1][1] for of_rank in offers)]
        offsets = cupy.empty(graph.stripe.p * rows + 1, np.int64)
        columns = cupy.empty(sum(sizes_of_ranks), np.uint32)
        offsets[: rows + 1], columns[: own[place + 1].size] = own[place], own[place + 1]
        end = own[place + 1].size
        for rank, of_rank in enumerate(offers, 1):
            theirs = offsets[rank * rows : (rank + 1) * rows + 1]
            for (exported, size), here in zip(of_rank[place:], (theirs, columns[end:]), strict=False):
                if size:
                    with device_memory.mapped(exported.handle) as address:
                        device_memory.copy_from(address + exported.offset, here[:size])
            theirs += end
            end += sizes_of_ranks[rank]
        lists += [offsets, columns]
    return device_graph(
        _whole(graph.stripe),
        LEADER,
        *lists[:2],
        symmetric=graph.in_offsets is graph.row_offsets,
        in_csr=tuple(lists[2:]) or None,
    )
