"""The runner of a rank whose GPU maps its peers' memory: the partition in device memory, and resident kernels.

In ``make`` a rank allocates its engines, and uploads a partition that was built on the CPU. In ``offer`` it returns the
records that its peers need to map the engines; in ``connect`` it maps those of all others. There are two engines,
without and with predecessors: the first is faster because its window has no parents, and windows can't be exchanged in
the middle of a run.
"""

import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import (
    DbfsError,
    DeviceFailedError,
    ExchangeUnavailableError,
    InvalidOptionError,
    RunAbortedError,
    StaleRunError,
)
from dbfs_workers.base.lines.line import GPU_AWAKE_SECONDS
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.search.cuda import device_memory, failures, layout, sizes
from dbfs_workers.search.cuda import run as cuda_run
from dbfs_workers.search.cuda.device_graph import DeviceGraph, device_graph
from dbfs_workers.search.cuda.records import KernelLevels, counted
from dbfs_workers.search.cuda.resident import ResidentKernel
from dbfs_workers.search.cuda.summary import Summary
from dbfs_workers.search.exchange.protocol import Abort, Cause, abort_error
from dbfs_workers.search.members.member import Runner
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import GraphTotals, Partition, require_present
from dbfs_workers.search.reports import RankProgress, RankRun

DIRECTIONS = {
    "auto": cuda_run.Direction.AUTO,
    "top-down": cuda_run.Direction.TOP_DOWN,
    "bottom-up": cuda_run.Direction.BOTTOM_UP,
}


class Leading(Protocol):
    """Has rank 0 make traversals alone: see ``led_traversals``."""

    def note(self, records: NDArray[Any]) -> None:
        """Note the records of a traversal that all ranks have made."""

    def forget(self) -> None:
        """Forget what was noted and made of the version."""

    def drop(self) -> None:
        """Free what was made of the version, on this rank."""

    def takes(self, engine: ResidentKernel, number: int, specs: RunSpec, deadline: float) -> bool:
        """Return whether rank 0 makes the traversals alone, and make that ready. All ranks call together."""

    def led(
        self, engine: ResidentKernel, number: int, specs: RunSpec, deadline: float
    ) -> Generator[RankRun, None, None]:
        """Make the traversals that ``takes`` has taken."""


Infos = tuple[cuda_run.PeerInfo, cuda_run.PeerInfo]
"""Records of the engine without predecessors, and of the engine with them."""


@dataclass(frozen=True)
class _LaunchedTraversal:
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


class ResidentRunner(Runner):
    """A runner by one kernel for all levels. See ``Runner``.

    Args:
        graph_id: see below.

    Attributes:
        graph_id: the graph.
        lock: held while an abort is taken: what a run must not miss of aborts is done under it.
        leading: has rank 0 make traversals alone; None if all are made together.
    """

    awake_seconds = GPU_AWAKE_SECONDS
    answer_seconds = 0.0025

    def __init__(self, graph_id: str) -> None:
        self.graph_id = graph_id
        self.leading: Leading | None = None
        self._graph: DeviceGraph | None = None
        # The latest version with its totals, if the engines have yet to read it.
        self._unread: tuple[Partition, GraphTotals] | None = None
        self._engines: list[ResidentKernel] = []
        self._infos: Infos | None = None
        self._connected = False
        # Guards the attributes below. Aborts come from the event loop's thread, and a launch clears the abort flag.
        self.lock = threading.Lock()
        self._ended = 0
        self._running: ResidentKernel | None = None
        self._index = 0
        self._stop: Abort | None = None

    def make(self, partition: Partition) -> None:
        """Allocate the engines. Compiles the kernels that the cache lacks."""
        import cupy

        stripe = partition.stripe
        if stripe.p > layout.MAX_RANKS:
            raise ExchangeUnavailableError(f"cuda_ipc serves up to {layout.MAX_RANKS} ranks, not {stripe.p}")
        where = f"rank {self.member.rank}, allocating its engines"
        needed = sizes.member(stripe, partition.m_local, bottom_up=partition.parents is not None)
        uploaded = partition.nbytes if isinstance(partition.columns, np.ndarray) else 0
        with failures.typed_errors(where):
            device_memory.require(sum(needed.values()) + uploaded, where)
            device_memory.release_pool()
            self._graph = on_device(partition.on(cupy))
            summary = Summary(self._graph)
            # Appended one by one: if the second finds no room, the first is closed with this rank.
            for predecessors in (False, True):
                self._engines.append(ResidentKernel(self._graph, self.graph_id, predecessors=predecessors))
                self._engines[-1].summary = summary

    def offer(self) -> Infos:
        """See ``GangExchange.offer``. The engines are offered once: peers keep them mapped."""
        if self._infos is None:
            self._infos = (self._engines[0].info(), self._engines[1].info())
        return self._infos

    def connect(self, offers: Sequence[Infos]) -> None:
        """Map the windows of all ranks; if they are mapped, clear the state of a failed run.

        The kernels of all ranks have ended: a running kernel would write to cleared memory.

        Raises:
            ExchangeUnavailableError: a peer's memory can't be mapped, because the peer is on another host, in another
                container or in the same process; or a token is of another graph.
        """
        import cupy

        if self._connected:
            for engine in self._engines:
                engine.recover()
            return
        try:
            for engine, records_of_ranks in zip(self._engines, zip(*offers, strict=True), strict=True):
                engine.connect(records_of_ranks)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise ExchangeUnavailableError(
                f"rank {self.member.rank} can't map its peers' GPU memory: {error}"
            ) from error
        self._connected = True

    def traverse(
        self, partition: Partition, number: int, specs: RunSpec, deadline: float
    ) -> Generator[RankRun, None, None]:
        """See ``Runner``. While the caller has one traversal in hand, the GPU makes the next ones."""
        if number <= self._ended:
            raise StaleRunError(f"rank {self.member.rank}: run {number} came after run {self._ended}")
        purpose = specs.options.purpose
        maker = None if purpose is None else self.member.part_for(purpose)
        try:
            require_present(partition, tuple(chain.from_iterable(specs.sources)))
            if specs.options.direction == "bottom-up" and partition.parents is None:
                raise InvalidOptionError(
                    "bottom-up levels of a directed graph need its in-edges: load it with in_edges=True"
                )
            # Unreleased results also lie on the GPU, so it may be full.
            with failures.typed_errors(f"rank {self.member.rank}"):
                for part in self.member.parts:
                    if part is not maker:
                        part.make_room(partition, specs, number, deadline)
                if maker is not None:
                    yield from maker.traverse(partition, number, specs, deadline)
                    return
                self.member.require_room(partition.stripe, specs)
                with closing(self.traverse_all(number, specs, deadline)) as runs:
                    for run in runs:
                        run.version = partition.version
                        yield run
        finally:
            with self.lock:
                self._ended = number

    def progress(self, number: int) -> RankProgress | None:
        """See ``MemberPart``."""
        engine, index = self._running, self._index
        return None if engine is None or number != self.member.number else engine.progress(index)

    def free_bytes(self) -> int:
        """See ``Runner``."""
        return device_memory.free_for_labels(self.member.room.share)

    def pooled_bytes(self) -> int:
        """See ``Runner``."""
        return device_memory.pooled_bytes()

    def fetch(self, labels: RankLabels) -> RankLabels:
        """Copy labels from the GPU."""
        return labels.to_host()

    def read(self, partition: Partition, totals: GraphTotals, graph: DeviceGraph | None) -> None:
        """Have the engines read another version of the partition. Called in the member's thread.

        Args:
            partition: the version.
            totals: its counts over all ranks.
            graph: the version in the form that the engines take; None to make that before the next run that reads it.
        """
        self._unread = None if graph is not None else (partition, totals)
        if self.leading is not None:
            self.leading.forget()
        if graph is not None:
            self._read(graph, totals)

    def graph(self) -> DeviceGraph:
        """Return the graph that the engines read, of the latest version."""
        if self._unread is not None:
            partition, totals = self._unread
            self._read(on_device(partition), totals)
            self._unread = None
        assert self._graph is not None
        return self._graph

    @property
    def unread(self) -> bool:
        """Whether the engines have yet to read the latest version."""
        return self._unread is not None

    def _read(self, graph: DeviceGraph, totals: GraphTotals) -> None:
        self._graph = graph
        summary = Summary(graph)
        for engine in self._engines:
            engine.take_over(graph, totals)
            engine.summary = summary

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        """Stop this rank's kernel. The caller aborts each peer by itself, since kernels do not stop each other."""
        with self.lock:
            if number <= self._ended or (self._stop is not None and self._stop.number == number):
                return
            self._stop = Abort(number, cause, self.member.rank if rank is None else rank, message)
            if self._running is not None and number == self.member.number:
                self._running.abort()
            for part in self.member.parts:
                part.abort(number, cause, message, rank)

    def disconnect(self) -> None:
        """See ``MemberPart``."""
        for engine in self._engines:
            engine.disconnect()

    def traverse_all(self, number: int, specs: RunSpec, deadline: float) -> Generator[RankRun, None, None]:
        """Make the traversals of a run: all ranks together, or rank 0 alone."""
        if self._unread is not None:
            self.graph()
        engine = self.engine(specs.options.predecessors)
        if self.leading is not None and self.leading.takes(engine, number, specs, deadline):
            yield from self.leading.led(engine, number, specs, deadline)
        else:
            yield from self.launched(engine, number, specs, deadline)

    def engine(self, predecessors: bool) -> ResidentKernel:
        """Return the engine that all ranks have for traversals with predecessors or without."""
        return self._engines[int(predecessors)]

    def launched(
        self, engine: ResidentKernel, number: int, specs: RunSpec, deadline: float, made: int = 0
    ) -> Generator[RankRun, None, None]:
        """Make traversals by an engine. While a kernel runs, the next ones are launched, and reports are made.

        ``made`` is the number of the run's traversals that were made before.
        """
        # Targets and many sources of a run under way must stay in the GPU's memory, where they have one place.
        alone = specs.options.targets or max(map(len, specs.sources)) > layout.FEW_SOURCES
        ahead = 0 if alone else cuda_run.AHEAD
        under_way: deque[_LaunchedTraversal] = deque()
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
            with self.lock:
                self._running = None

    def _launch(
        self, engine: ResidentKernel, number: int, index: int, spec: TraversalSpec, deadline: float
    ) -> "_LaunchedTraversal":
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
            return None if engine.counts_degrees else engine.summary.enqueue(labels.distances, engine.stream)

        with self.lock:
            self.raise_if_stopped(number, f"rank {self.member.rank}, before its first level")
            labels, counts = engine.launch(add_up)
            self._index, self._running = index, engine
        return _LaunchedTraversal(labels, counts, engine.lone_sources, engine.direction)

    def _finish(self, engine: ResidentKernel, number: int, index: int, launched: "_LaunchedTraversal") -> RankRun:
        """Wait for a traversal and report it."""
        self._index = index
        try:
            outcome = engine.wait()
        except cuda_run.KernelAbortedError as error:
            self.raise_if_stopped(number, str(error))
            raise RunAbortedError(str(error)) from error
        except cuda_run.KernelHungError as error:
            raise DeviceFailedError(f"{error}; restart its worker to free the GPU") from error
        return self._report(engine, launched, outcome)

    def raise_if_stopped(self, number: int, where: str) -> None:
        """Raise the error of the run if it was aborted; ``where`` says how far it is."""
        stop = self._stop
        if stop is None or stop.number != number:
            return
        error: DbfsError = abort_error(stop.cause, where, stop.rank, stop.message)
        raise RunAbortedError(f"{where}: {stop.message}") if stop.cause is Cause.FAILED else error

    def _report(
        self, engine: ResidentKernel, launched: "_LaunchedTraversal", outcome: cuda_run.KernelOutcome
    ) -> RankRun:
        labels = launched.labels
        if self.leading is not None and engine.graph.stripe.p > 1:
            self.leading.note(outcome.records)
        if launched.counts is None:
            summary = counted(outcome)
        else:
            summary = engine.summary.read(
                launched.counts, labels.distances, outcome.records.size, launched.lone_sources
            )
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

    def free(self) -> None:
        """See ``MemberPart``."""
        # If the worker closes during a run, the leader may be reading this rank's adjacency lists.
        shared = any(engine.shared for engine in self._engines)
        for engine in self._engines:
            engine.close()
        self._engines = []
        self._graph = self._unread = None
        if not shared:
            device_memory.release_pool()


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
