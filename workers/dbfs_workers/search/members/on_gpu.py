"""A rank of a gang on GPUs: its partition in device memory and its resident kernels.

In ``make`` a rank allocates its engines, and uploads a partition that was built on the CPU. In ``offer`` it returns the
records that its peers need to map the engines; in ``connect`` it maps those of all others. There are two engines,
without and with predecessors: the first is faster because its window has no parents, and windows can't be exchanged in
the middle of a run.
"""

import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dbfs_workers.base.errors import (
    DbfsError,
    DeviceFailedError,
    ExchangeUnavailableError,
    InvalidOptionError,
    NoRoomForLabelsError,
    RunAbortedError,
    StaleRunError,
)
from dbfs_workers.base.lines.line import GPU_AWAKE_SECONDS
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.features.batches.storage import BatchScratch
from dbfs_workers.features.batches.words import MappedMemory
from dbfs_workers.features.lab import linked
from dbfs_workers.features.lab import member as laboratory
from dbfs_workers.features.lab.pages import LinkedPages
from dbfs_workers.features.lab.strategies import parse
from dbfs_workers.features.living.update_spec import UpdateSpec
from dbfs_workers.search.cuda import device_memory, failures, layout, sizes
from dbfs_workers.search.cuda import run as cuda_run
from dbfs_workers.search.cuda.device_graph import DeviceGraph, device_graph
from dbfs_workers.search.cuda.records import KernelLevels, counted
from dbfs_workers.search.cuda.resident import ResidentKernel
from dbfs_workers.search.cuda.summary import Summary
from dbfs_workers.search.exchange.protocol import Abort, Cause, abort_error
from dbfs_workers.search.levels.traversals import Watch
from dbfs_workers.search.members.gpu_versions import MemberOnGpu
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import GraphTotals, Partition, require_present
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import RankProgress, RankRun

if TYPE_CHECKING:
    from dbfs_workers.features.batches.levels import BatchLevels
    from dbfs_workers.features.living.versions import Updated
    from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange

# Of the memory that is free, what batches may keep beside other runs.
_BATCHES_SHARE: Final = 1 / 4
# Entries of a bin of the barrier: the counts of a batch's sources, or the handles of its arrays.
_BARRIER_ENTRIES: Final = 2**11

DIRECTIONS = {
    "auto": cuda_run.Direction.AUTO,
    "top-down": cuda_run.Direction.TOP_DOWN,
    "bottom-up": cuda_run.Direction.BOTTOM_UP,
}

Infos = tuple[cuda_run.PeerInfo, cuda_run.PeerInfo]
"""Records of the engine without predecessors, and of the engine with them."""

Offers = tuple[Infos, Any]
"""What a rank offers: its engines, and its end of the barrier of batches, which a rank alone does not offer."""


@dataclass(frozen=True)
class _Launched:
    """A traversal under way.

    Attributes:
        labels: arrays on the GPU that get its labels.
        counts: sums on the host that get its summary, see ``Summary.enqueue``; None if its kernel counts.
        lone_sources: its sources on this rank that have no edge, in rows that the summary leaves out.
        direction: its direction.
    """

    labels: RankLabels
    counts: Any
    lone_sources: int
    direction: cuda_run.Direction


class CudaMember(MemberOnGpu):
    """See ``Member``."""

    awake_seconds = GPU_AWAKE_SECONDS
    answer_seconds = 0.0025
    takes_over = True

    def __init__(self, rank: int, partition_key: Any, graph_id: str) -> None:
        super().__init__(rank, partition_key)
        self._graph_id = graph_id
        self._graph: DeviceGraph | None = None
        # Of a graph on linked pages: the pages, and the latest version with its totals if the engines have yet to read
        # it, from a copy.
        self._pages: LinkedPages | None = None
        self._ahead: tuple[Partition, GraphTotals] | None = None
        self._engines: list[ResidentKernel] = []
        self._infos: Infos | None = None
        self._connected = False
        self._summary: Any = None
        # Guards the attributes below. Aborts come from the event loop's thread, and a launch clears the abort flag.
        self._lock = threading.Lock()
        self._ended = 0
        self._running: ResidentKernel | None = None
        self._index = 0
        self._stop: Abort | None = None
        # Of batches: the barrier, what peers map, what has run the levels of the last batch, and the run.
        self._barrier: SharedMemoryExchange | None = None
        self._memory = MappedMemory()
        self._batches: BatchLevels | None = None
        self._watch: Watch | None = None
        self._deadline = 0.0

    def make(self, partition: Partition) -> None:
        """Allocate the engines. Compiles the kernels that the cache lacks."""
        import cupy

        stripe = partition.stripe
        if stripe.p > layout.MAX_RANKS:
            raise ExchangeUnavailableError(f"cuda_ipc serves up to {layout.MAX_RANKS} ranks, not {stripe.p}")
        where = f"rank {self.rank}, allocating its engines"
        needed = sizes.member(stripe, partition.m_local, bottom_up=partition.parents is not None)
        uploaded = partition.nbytes if isinstance(partition.columns, np.ndarray) else 0
        with failures.typed_errors(where):
            device_memory.require(sum(needed.values()) + uploaded, where)
            device_memory.release_pool()
            self._graph = on_device(partition.on(cupy))
            if isinstance(partition, linked.LinkedPartition):
                self._pages = partition.out_pages.latest.pages
            self._summary = Summary(self._graph)
            # Appended one by one: if the second finds no room, the first is closed with this rank.
            for predecessors in (False, True):
                self._engines.append(ResidentKernel(self._graph, self._graph_id, predecessors=predecessors))
            if stripe.p > 1:
                self._barrier = barrier_of(stripe, self.rank, self._graph_id)

    def offer(self) -> Offers:
        """See ``Member``. The kernel of the run before has ended. The peers map what was offered first."""
        if self._infos is None:
            self._infos = (self._engines[0].info(), self._engines[1].info())
        self._memory.unmap()
        return self._infos, None if self._barrier is None else self._barrier.offer()

    def connect(self, offers: Sequence[Offers]) -> None:
        """Map the windows of all ranks; if they are mapped, clear the state of a failed run.

        The kernels of all ranks have ended: a running kernel would write to cleared memory.

        Raises:
            ExchangeUnavailableError: a peer's memory can't be mapped, because the peer is on another host, in another
                container or in the same process; or a token is of another graph.
        """
        import cupy

        self._batches = None
        self._memory.free()
        if self._barrier is not None:
            self._barrier.connect([barrier for _, barrier in offers])
        if self._connected:
            for engine in self._engines:
                engine.recover()
            return
        try:
            infos = zip(*(infos for infos, _ in offers), strict=True)
            for engine, records_of_ranks in zip(self._engines, infos, strict=True):
                engine.connect(records_of_ranks)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise ExchangeUnavailableError(f"rank {self.rank} can't map its peers' GPU memory: {error}") from error
        self._connected = True

    def traverse(
        self, partition: Partition, number: int, specs: RunSpec, deadline: float
    ) -> Generator[RankRun, None, None]:
        """See ``Member``. While the caller has one traversal in hand, the GPU makes the next ones."""
        if number <= self._ended:
            raise StaleRunError(f"rank {self.rank}: run {number} came after run {self._ended}")
        try:
            require_present(partition, tuple(chain.from_iterable(specs.sources)))
            if specs.options.direction == "bottom-up" and partition.parents is None:
                raise InvalidOptionError(
                    "bottom-up levels of a directed graph need its in-edges: load it with in_edges=True"
                )
            # Unreleased results also lie on the GPU, so it may be full.
            with failures.typed_errors(f"rank {self.rank}"):
                if specs.options.batch:
                    yield from self._make_batches(partition, number, specs, deadline)
                    return
                self._free_batches(partition, specs, number, deadline)
                self.require_room(partition.stripe, specs)
                if specs.options.repairs:
                    for spec in specs:
                        yield self._repair(partition, number, spec, deadline)
                    return
                with closing(self._traverse_all(number, specs, deadline)) as runs:
                    for run in runs:
                        yield self._of_version(run, specs.options, partition)
        finally:
            with self._lock:
                self._ended = number

    def progress(self, number: int) -> RankProgress | None:
        """See ``Member``."""
        if self._watch is not None and self._watch.number == number:
            return self._watch.progress()
        engine, index = self._running, self._index
        return None if engine is None or number != self.number else engine.progress(index)

    def updated(
        self, partition: Partition, spec: UpdateSpec, edges: Any | None = None, in_edges: Any | None = None
    ) -> "Updated":
        """See ``Member``."""
        where = f"rank {self.rank}, changing its edges"
        if spec.kind == "link" or isinstance(partition, linked.LinkedPartition):
            with failures.typed_errors(where):
                return linked.updated(partition, spec, edges, where)
        following = super().updated(partition, spec, edges, in_edges)
        with failures.typed_errors(where):
            return replace(following, facts=on_device(following.partition))

    def take_over(self, partition: Partition, totals: GraphTotals, facts: "DeviceGraph | linked.Prepared") -> None:
        """See ``Member``."""
        with failures.typed_errors(f"rank {self.rank}, taking version {partition.version} over"):
            if isinstance(facts, DeviceGraph):
                self._read_graph(facts, totals)
                return
            assert self._graph is not None
            assert isinstance(partition, linked.LinkedPartition)
            self._pages = linked.commit(partition, facts)
            if self._ahead or facts.batch or self._graph.stripe != partition.stripe:
                self._ahead = partition, totals

    def _read_graph(self, graph: DeviceGraph, totals: GraphTotals) -> None:
        """Have the engines read a version."""
        self._graph = graph
        self._summary = Summary(graph)
        for engine in self._engines:
            engine.take_over(graph, totals)

    def _catch_up(self) -> DeviceGraph:
        """Return the graph that the engines read: that of the latest version, of which linked pages are copied."""
        if self._ahead is not None:
            partition, totals = self._ahead
            self._read_graph(on_device(partition), totals)
            self._ahead = None
        assert self._graph is not None
        return self._graph

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        """Stop this rank's kernel. The caller aborts each peer by itself, since kernels do not stop each other."""
        with self._lock:
            if number <= self._ended or (self._stop is not None and self._stop.number == number):
                return
            self._stop = Abort(number, cause, self.rank if rank is None else rank, message)
            if self._running is not None and number == self.number:
                self._running.abort()
            if self._barrier is not None and self._watch is not None and self._watch.number == number:
                self._barrier.abort(number, cause, message, rank)

    def disconnect(self) -> None:
        """See ``Member``."""
        self._memory.unmap()
        for engine in self._engines:
            engine.disconnect()

    def _make_batches(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:
        """Make the batches of a run. Kernels are launched level by level, and ranks cross on the host."""
        from dbfs_workers.search.levels.loop import traverse

        if self._barrier is None:
            self._barrier = barrier_of(partition.stripe, self.rank, self._graph_id)
            self._barrier.connect([self._barrier.offer()])
        watch = self._watch_run(number)
        self._deadline = deadline
        try:
            runs = traverse(
                *(lambda: self._batch_levels(partition, specs, number), specs, self._barrier),
                watch=watch,
                deadline=deadline,
                stops=self._stops,
            )
        except BaseException:
            if self._batches is not None:
                self._batches.reset()
            raise
        return [replace(run, version=partition.version) for run in runs]

    def _watch_run(self, number: int) -> Watch:
        """Let aborts of the run reach the barrier from now on."""
        with self._lock:
            self._raise_if_stopped(number, f"rank {self.rank}, before its first level")
            self._watch = Watch(number)
        return self._watch

    def _free_batches(self, partition: Partition, specs: RunSpec, number: int, deadline: float) -> None:
        """Free what the batches before have left, on all ranks together, if a rank needs the memory.

        The ranks ask each other before the first burst of a run. A run of batches has begun to cross already.
        """
        levels, options = self._batches, specs.options
        if levels is None or self._barrier is None:
            return
        # Versions are those of all ranks, where a partition may be another object on one of them.
        wanted = levels.scratch.partition.version != partition.version
        if options.run_id == self._roomy[0] and not wanted:
            return
        if not options.batch:
            self._watch_run(number)
            self._barrier.begin(options.run_id, number, deadline)
        wanted |= not options.batch and levels.nbytes > _BATCHES_SHARE * self.free_bytes()
        try:
            self.require_room(partition.stripe, specs)
        except NoRoomForLabelsError:
            wanted = True
        if self._barrier.cross(0, "memory of a batch", (int(wanted), 0, 0, 0, 0), sliced=False)[0]:
            levels.close()
            self._batches = None
        if not options.batch:
            self._watch = None

    def _batch_levels(self, partition: Partition, specs: RunSpec, number: int) -> "BatchLevels":
        """Return what runs the levels of batches. Its memory stays: peers take longer to map it than a batch takes."""
        self._free_batches(partition, specs, number, self._deadline)
        self.require_room(partition.stripe, specs)
        levels = self._batches or self._new_batch_levels(partition)
        levels.scratch.partition = partition
        self._batches = levels if partition.stripe.p > 1 else None
        return levels

    def _new_batch_levels(self, partition: Partition) -> "BatchLevels":
        import cupy

        from dbfs_workers.features.batches.levels import Alone, BatchLevels, Placed
        from dbfs_workers.features.batches.words import BatchWords, MappedWords, OwnWords
        from dbfs_workers.search import backends
        from dbfs_workers.search.cpu.row_threads import RowThreads

        def alone(specs: RunSpec) -> Iterator[Alone]:
            for run in self._traverse_all(self.number, specs, self._deadline):
                yield Alone(run.labels.distances, run.depth, run.reached, run.edges)

        assert self._barrier is not None
        barrier, memory = self._barrier, self._memory

        def place(part: Partition) -> Placed:
            operators, mapped = backends.get("cuda").batch(RowThreads(1)), part.stripe.p > 1
            zeros = memory.zeros if mapped else cupy.zeros
            scratch = BatchScratch(part, cupy, zeros, in_edges=part.parents is not None, together=True)
            words: BatchWords = MappedWords(scratch, operators, barrier, memory) if mapped else OwnWords(scratch)
            return Placed(scratch, operators, words)

        return BatchLevels(place(partition), place, barrier, self.free_bytes, alone, together=True)

    def _traverse_all(self, number: int, specs: RunSpec, deadline: float) -> Generator[RankRun, None, None]:
        """Make the traversals of a run. While a kernel runs, the next ones are launched, and reports are made."""
        if specs.options.strategy:
            for spec in specs:
                yield self._traverse_by_strategy(number, spec, deadline)
            return
        if self._ahead is not None:
            self._catch_up()
        engine = self._engines[int(specs.options.predecessors)]
        # Targets and many sources of a run under way must stay in the GPU's memory, where they have one place.
        alone = specs.options.targets or max(map(len, specs.sources)) > layout.FEW_SOURCES
        ahead = 0 if alone else cuda_run.AHEAD
        under_way: deque[_Launched] = deque()
        made = 0
        try:
            for spec in specs:
                under_way.append(self._launch(engine, number, made, spec, deadline))
                if len(under_way) > ahead:
                    yield self._finish(engine, number, made, under_way.popleft())
                    made += 1
            while under_way:
                yield self._finish(engine, number, made, under_way.popleft())
                made += 1
        except BaseException:
            try:
                engine.drop()
            except cuda_run.KernelHungError as error:
                raise DeviceFailedError(f"{error}; restart its worker to free the GPU") from error
            raise
        finally:
            with self._lock:
                self._running = None

    def _repair(self, partition: Partition, number: int, spec: TraversalSpec, deadline: float) -> RankRun:
        """Repair the labels of an earlier traversal, or make a new one."""
        self._raise_if_stopped(number, f"rank {self.rank}, before a repair")
        kept = self.kept.get(spec.repairs or ("", 0))
        repaired = self._repaired(self._catch_up(), partition, spec, kept)
        if repaired is None:
            (run,) = self._traverse_all(number, RunSpec.single(spec), deadline)
            return self._of_version(run, spec, partition, kept)
        return repaired

    def _launch(
        self, engine: ResidentKernel, number: int, index: int, spec: TraversalSpec, deadline: float
    ) -> "_Launched":
        """Launch a traversal; ``index`` is that of the traversal that ``wait`` waits for."""
        engine.prepare(
            cuda_run.KernelOptions(
                sources=tuple(dict.fromkeys(spec.sources)),
                targets=spec.targets,
                max_depth=cuda_run.UNLIMITED if spec.max_depth is None else spec.max_depth,
                direction=DIRECTIONS[spec.direction],
                timeout=max(1e-3, deadline - time.monotonic()),
            )
        )

        def add_up(labels: RankLabels) -> Any:
            # Behind the kernel on its stream, so that the host waits once.
            return None if engine.counts_degrees else self._summary.enqueue(labels.distances, engine.stream)

        with self._lock:
            self._raise_if_stopped(number, f"rank {self.rank}, before its first level")
            labels, counts = engine.launch(add_up)
            self._index, self._running = index, engine
        return _Launched(labels, counts, engine.lone_sources, engine.direction)

    def _finish(self, engine: ResidentKernel, number: int, index: int, launched: "_Launched") -> RankRun:
        """Wait for a traversal and report it."""
        self._index = index
        try:
            outcome = engine.wait()
        except cuda_run.KernelAbortedError as error:
            self._raise_if_stopped(number, str(error))
            raise RunAbortedError(str(error)) from error
        except cuda_run.KernelHungError as error:
            raise DeviceFailedError(f"{error}; restart its worker to free the GPU") from error
        return self._report(engine, launched, outcome)

    def _traverse_by_strategy(self, number: int, spec: TraversalSpec, deadline: float) -> RankRun:
        """Make a traversal by a strategy of the laboratory."""
        pages = self._pages if parse(spec.strategy).storage == "pages" else None
        return laboratory.traverse_on_gpu(
            pages or self._catch_up(), spec, deadline, lambda where: self._raise_if_stopped(number, where)
        )

    def _raise_if_stopped(self, number: int, where: str) -> None:
        """Raise the error of the run if it was aborted."""
        stop = self._stop
        if stop is None or stop.number != number:
            return
        error: DbfsError = abort_error(stop.cause, where, stop.rank, stop.message)
        raise RunAbortedError(f"{where}: {stop.message}") if stop.cause is Cause.FAILED else error

    def _report(self, engine: ResidentKernel, launched: "_Launched", outcome: cuda_run.KernelOutcome) -> RankRun:
        labels = launched.labels
        if launched.counts is None:
            summary = counted(outcome)
        else:
            summary = self._summary.read(launched.counts, labels.distances, outcome.records.size, launched.lone_sources)
        return RankRun(
            labels=labels,
            levels=KernelLevels(
                outcome.records.tobytes(),
                outcome.nanoseconds_a_cycle,
                summary.sums.tobytes(),
                ranks=engine.graph.stripe.p,
                slice_bytes=engine.graph.rows_used // 8,
                predecessors=labels.predecessors is not None,
                direction=launched.direction,
            ),
            reached=sum(summary.rows.tolist()),
            edges=sum(summary.degrees.tolist()),
            depth=summary.depth,
            elapsed=outcome.seconds - outcome.reset_seconds,
            setup=outcome.reset_seconds,
        )

    def _free(self) -> None:
        import cupy

        # If the worker closes during a run, the leader may be reading this rank's adjacency lists.
        shared = any(engine.shared for engine in self._engines)
        for engine in self._engines:
            engine.close()
        self._batches = None
        self._memory.unmap()
        self._memory.free()
        if self._barrier is not None:
            self._barrier.close()
        self._engines = []
        self._graph = self._summary = self._pages = self._ahead = None
        if not shared:
            cupy.get_default_memory_pool().free_all_blocks()


def barrier_of(stripe: Stripe, rank: int, graph_id: str) -> "SharedMemoryExchange":
    """Return a rank's end of the barrier at which the ranks of one host cross in batches."""
    from dbfs_workers.base import compiling
    from dbfs_workers.search.exchange.kernels import ON_ONE_HOST

    compiling.prepare(ON_ONE_HOST)
    from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange

    return SharedMemoryExchange(stripe, rank, graph_id, entries=_BARRIER_ENTRIES)


def on_device(partition: Partition) -> DeviceGraph:
    """Return a partition of CuPy arrays in the form that the engines take."""
    into = partition.in_edges
    return device_graph(
        partition.stripe,
        partition.rank,
        partition.row_offsets,
        partition.columns,
        symmetric=not partition.directed,
        in_csr=None if into is None else (into.row_offsets, into.columns),
    )
