"""The resident kernel of one rank: allocate, connect to the peers, launch, wait, read.

One ``ResidentKernel`` per rank, graph and kind of labels, in the process that owns the GPU. This module does not use
Dask. The caller moves ``PeerInfo`` records between the ranks and starts all of them within the run's deadline::

    engine = ResidentKernel(graph, graph_id, predecessors=True)
    infos = exchange(engine.info())          # every rank's record, on every rank
    engine.connect(infos)
    labels = engine.start(KernelOptions(sources=(0,)))   # returns at once
    outcome = engine.wait()                  # labels stay on the GPU
    engine.disconnect(); barrier(); engine.close()

After a failed run: once ``wait`` has returned or raised on all ranks, call ``engine.recover()`` on all, then a barrier.
"""

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dbfs_workers.base.errors import DeadlineExceededError, ExchangeUnavailableError, InvalidOptionError
from dbfs_workers.search.cuda import layout
from dbfs_workers.search.cuda.attendant import ATTENDANT
from dbfs_workers.search.cuda.device_graph import DeviceGraph
from dbfs_workers.search.cuda.device_memory import ExportedArray, address, array_at, export_array
from dbfs_workers.search.cuda.kernels.sources import Variant
from dbfs_workers.search.cuda.module import Launch, load
from dbfs_workers.search.cuda.records import CAPACITY, Slot
from dbfs_workers.search.cuda.run import (
    AHEAD,
    UNLIMITED,
    Direction,
    KernelAbortedError,
    KernelOptions,
    KernelOutcome,
    PeerInfo,
)
from dbfs_workers.search.cuda.sizes import (
    LEADER_VERTICES,
    LIGHT_DEGREE,
    SPARSE_EDGES_LEAST,
    SPARSE_SHARE,
    bin_capacity,
    has_spare,
    leader_capacity,
    most_sparse_edges,
)
from dbfs_workers.search.cuda.summary import Summary
from dbfs_workers.search.cuda.window import PeerWindows, Window, window_layout
from dbfs_workers.search.direction import GPU_ALPHA, GPU_BETA
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import GraphTotals
from dbfs_workers.search.partition.stripe import NO_VERTEX, WORD_BITS
from dbfs_workers.search.reports import RankProgress

T = TypeVar("T")


def leader_lists(graph: DeviceGraph) -> tuple[ExportedArray, ExportedArray] | None:
    """Return row offsets and columns for the leader; None if no level can be a leader level, or the export fails."""
    if graph.stripe.p == 1 or graph.max_degree > LIGHT_DEGREE:
        return None
    try:
        return export_array(graph.row_offsets), export_array(graph.columns)
    except ExchangeUnavailableError:
        return None


class SentLabels(NamedTuple):
    """Labels of a traversal of all rows that are on their way to the ranks.

    Attributes:
        own: those of the rank that sends them.
        began, ended: CUDA's events.
    """

    own: RankLabels
    began: Any
    ended: Any

    @property
    def seconds(self) -> float:
        """What the copies took, once they have ended."""
        import cupy

        return float(cupy.cuda.get_elapsed_time(self.began, self.ended)) * 1e-3


def _copies() -> Any:
    """Return a kernel that copies an array: CUDA's copies between processes have a tenth of NVLink's rate."""
    import cupy

    return cupy.ElementwiseKernel("T x", "T y", "y = x", "dbfs_copy_labels")


class ResidentKernel:
    """Buffers and kernel of one rank of one graph. Up to 1 + ``AHEAD`` runs may be under way: ``wait`` waits for
    the oldest one.

    Args:
        graph: the rank's slice.
        graph_id: id of the graph, which the ranks' tokens must have.
        predecessors: record parents beside distances.

    Attributes:
        summary: adds up the labels of its runs. The caller sets it.
        leads: the engine of all ranks, if this one makes their traversals on rank 0. The caller sets it.
        sent: the labels of the run launched last, on their way to these ranks.
    """

    summary: Summary
    leads: "ResidentKernel | None" = None
    sent: SentLabels

    def __init__(self, graph: DeviceGraph, graph_id: str, *, predecessors: bool) -> None:
        import cupy

        stripe = graph.stripe
        if stripe.p > layout.MAX_RANKS:
            raise InvalidOptionError(f"the resident engine runs on up to {layout.MAX_RANKS} GPUs, not {stripe.p}")
        self.graph = graph
        self._graph_id = graph_id
        self._cupy = cupy
        self._device = cupy.cuda.Device()
        self._most_edges = most_sparse_edges(stripe)
        self._bin_capacity = bin_capacity(stripe, self._most_edges)
        self._variant = Variant(stripe.p > 1, predecessors)
        self._kernel = load(self._variant.source, cooperative=True).get_function("dbfs_resident")
        # The rest of the multiprocessor's memory is the L1 cache, which should hold the visited bitmap.
        room = self._device.attributes["MaxSharedMemoryPerMultiprocessor"]
        used = self._kernel.shared_size_bytes + 1024
        self._kernel.preferred_shared_memory_carveout = min(100, math.ceil(100 * used / room))
        self._blocks = self._device.attributes["MultiProcessorCount"]
        self._known = cupy.zeros(stripe.words_local + 4, np.uint32)
        self._queues = [cupy.empty(stripe.n_local, np.uint32) for _ in range(2)]
        self._queue_parents = [cupy.empty(stripe.n_local if predecessors else 1, np.uint32) for _ in range(2)]
        self._chunks = [cupy.empty(graph.chunks + 1, np.uint64) for _ in range(2)]
        self._control = cupy.zeros(layout.CONTROL_BYTES // 8, np.uint64)
        # After the CuPy arrays: if one of those finds no room, CuPy frees the others. This buffer is freed by hand.
        parts = window_layout(stripe, self._bin_capacity, leader_capacity(stripe), predecessors)
        self._window = Window(parts, graph_id)
        self._peers: PeerWindows | None = None
        self._own_distances = False
        # The version whose lists the leader has mapped.
        self._exported: DeviceGraph | None = None
        # Several ranks reach into each other's labels: into distances in leader levels, and into parents in dense
        # ones. Those labels lie in the window, and a result gets a copy of them.
        self._shared_labels: RankLabels | None = None
        if stripe.p > 1:
            distances = self._window.array("distances", stripe.n_local, np.int32)
            distances.fill(-1)
            parents = None
            if predecessors:
                parents = self._window.array("parents", stripe.p * stripe.n_local, np.uint32)
                parents = parents[graph.rank * stripe.n_local : (graph.rank + 1) * stripe.n_local]
                parents.fill(NO_VERTEX)
            self._shared_labels = RankLabels(distances, parents)
        # The slot of the next run comes first, that of the last run last.
        self._slots = deque(Slot(cupy, alone=stripe.p == 1) for _ in range(1 + AHEAD))
        # Slots of the runs under way, the oldest first.
        self._under_way: deque[Slot] = deque()
        self._target_bits: Any | None = None
        self._many_sources: Any | None = None
        self._dirty_tail = True
        self._spare: RankLabels | None = None
        self._rows = stripe.n_local
        self._prepared: tuple[object, ...] = ()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._arguments = np.zeros(1, [("params", layout.PARAMS)])
        self._params = self._arguments["params"]
        self._launch = Launch(self._kernel, self._arguments, cooperative=True)
        cupy.cuda.get_current_stream().synchronize()

    def info(self) -> PeerInfo:
        """Return this rank's facts for the other ranks."""
        graph = self.graph
        lists = leader_lists(graph)
        self._exported = None if lists is None else graph
        return PeerInfo(
            rank=graph.rank,
            handle=self._window.export() if graph.stripe.p > 1 else b"",
            token=self._window.token,
            m_local=graph.m_local,
            connected=graph.connected,
            max_degree=graph.max_degree,
            bottom_up=graph.in_columns is not None,
            csr=lists,
        )

    def connect(self, infos: Iterable[PeerInfo]) -> None:
        """Map the peers' windows, given the records of all ranks, this one included."""
        graph, stripe = self.graph, self.graph.stripe
        by_rank = {info.rank: info for info in infos}
        if sorted(by_rank) != list(range(stripe.p)):
            raise InvalidOptionError(
                f"rank {graph.rank} needs the records of ranks 0 to {stripe.p - 1}, got {sorted(by_rank)}"
            )
        params, ranks = self._params[0], by_rank.values()
        totals = GraphTotals(
            sum(info.m_local for info in ranks),
            sum(info.connected for info in ranks),
            max(info.max_degree for info in ranks),
        )
        light = self._lanes_a_vertex(totals.max_degree, stripe.p)
        has_leader = light > 0 and all(info.csr is not None for info in ranks)
        is_leader = graph.rank == layout.LEADER and has_leader
        self._peers = PeerWindows(graph.rank, self._window, by_rank, self._graph_id, is_leader=is_leader)
        params["peers"] = self._peers.params()
        self._bottom_up = all(info.bottom_up for info in ranks)
        self._set_graph(totals)
        params["known"] = self._known.data.ptr
        params["queues"] = [queue.data.ptr for queue in self._queues]
        params["queue_parents"] = [queue.data.ptr for queue in self._queue_parents]
        params["control"] = self._control.data.ptr
        params["rank"], params["ranks"] = graph.rank, stripe.p
        params["n_local"], params["words_local"] = stripe.n_local, stripe.words_local
        params["bin_capacity"], params["stats_capacity"] = self._bin_capacity, CAPACITY
        params["leader_vertices"], params["leader_capacity"] = (
            LEADER_VERTICES if has_leader else 0,
            leader_capacity(stripe),
        )

    def take_over(self, graph: DeviceGraph, totals: GraphTotals) -> None:
        """Traverse another version of the graph from now on. No run is under way, and all ranks do so.

        Leader levels end: the leader has mapped the lists of the first version, which stay in memory for that.

        Args:
            graph: the rank's slice of the version, of as many rows as before.
            totals: counts of the version, the same on all ranks.
        """
        self.graph = graph
        self._chunks = [self._cupy.empty(graph.chunks + 1, np.uint64) for _ in range(2)]
        self._params[0]["leader_vertices"] = 0
        self._prepared = ()
        self._dirty_tail = True
        self._set_graph(totals)

    def _set_graph(self, totals: GraphTotals) -> None:
        """Set the graph's addresses and totals in the kernel's argument."""
        params, graph = self._params[0], self.graph
        # Clamped to 32 bits: the kernel only compares it with small numbers.
        params["max_degree"] = min(2**32 - 1, totals.max_degree)
        params["light"] = self._lanes_a_vertex(totals.max_degree, graph.stripe.p)
        params["edges_total"], params["vertices_total"] = totals.edges, max(1, totals.connected)
        params["out"] = params["peers"][graph.rank]["out"] = (graph.row_offsets.data.ptr, graph.columns.data.ptr)
        if graph.in_offsets is not None and graph.in_columns is not None and graph.hubs is not None:
            params["in"] = (graph.in_offsets.data.ptr, graph.in_columns.data.ptr)
            params["hubs"] = graph.hubs.data.ptr
        params["table"], params["table_log"] = 0, 0
        if graph.table is not None:
            params["table"], params["table_log"] = graph.table.data.ptr, graph.table.shape[1].bit_length() - 1
        params["closed"] = 0 if graph.closed is None else graph.closed.data.ptr
        params["chunks"] = [queue.data.ptr for queue in self._chunks]
        params["rows_used"] = graph.rows_used
        # Counting a row of a mixed group costs as much as the summary. Light levels have no time to count.
        few_mixed = graph.mixed * layout.GROUP_ROWS * 2 <= graph.rows_used
        params["common"] = graph.common.data.ptr if few_mixed and not params["light"] else 0
        # Whether a run writes its distances into the result itself.
        self._own_distances = self._shared_labels is None or not params["light"]
        if self._shared_labels is not None:
            params["distances"] = address(self._shared_labels.distances)

    @staticmethod
    def _lanes_a_vertex(max_degree: int, ranks: int) -> int:
        """Return 1 + log2 of the lanes that share a vertex in light levels (8 at most); 0 if no level can be light."""
        # The stage of a block has room for the discoveries of one beat even if all go to one of four owners.
        if max_degree > LIGHT_DEGREE or ranks > 4:
            return 0
        return 1 + min(3, max(0, max_degree - 1).bit_length())

    def prepare(self, options: KernelOptions) -> None:
        """Upload the options of a run."""
        cupy, stripe, rank = self._cupy, self.graph.stripe, self.graph.rank
        if self._peers is None:
            raise InvalidOptionError(f"rank {rank}: call connect() before the first run")
        if options.direction is Direction.BOTTOM_UP and not self._bottom_up:
            raise InvalidOptionError(
                "bottom-up levels of a directed graph need its in-edges: load it with in_edges=True"
            )
        params = self._params[0]
        self._lone_sources = self._place_sources(options.sources)
        # Rows past the last edge are reached only as sources. A reset may skip them if the labels are those of the
        # previous run, and it had no such source.
        clean = not self._own_distances and not self._dirty_tail
        params["reset_rows"] = self.graph.rows_used if clean else stripe.n_local
        self._dirty_tail = self._lone_sources > 0
        params["target_total"] = params["target_bits"] = 0
        if options.targets:
            targets = np.unique(np.asarray(options.targets, np.int64))
            params["target_total"] = targets.size
            bits = np.zeros(stripe.words_local, np.uint32)
            rows = stripe.row(targets[stripe.owner(targets) == rank])
            np.bitwise_or.at(bits, rows // WORD_BITS, (1 << (rows % WORD_BITS)).astype(np.uint32))
            self._target_bits = cupy.asarray(bits)
            params["target_bits"] = self._target_bits.data.ptr
            cupy.cuda.get_current_stream().synchronize()
        # Mostly the same as in the run before: writing these fields takes as long as the launch.
        given = (options.direction, options.max_depth)
        if given != self._prepared:
            self._prepare_levels(options)
            self._prepared = given
        params["timeout_ns"] = int(options.timeout * 1e9)
        self._timeout = options.timeout

    def _prepare_levels(self, options: KernelOptions) -> None:
        """Set the thresholds by which the kernel decides at a barrier."""
        params, stripe = self._params[0], self.graph.stripe
        direction = options.direction if self._bottom_up else Direction.TOP_DOWN
        self.direction = direction
        params["direction"], params["max_depth"] = direction, min(options.max_depth, UNLIMITED)
        params["alpha"], params["beta"] = GPU_ALPHA, GPU_BETA
        limit = self._most_edges if params["light"] else max(SPARSE_EDGES_LEAST, stripe.n // SPARSE_SHARE)
        params["sparse_edges"] = min(limit, self._most_edges)

    def _place_sources(self, sources: Sequence[int]) -> int:
        """Set the sources of the next run; return how many of them lie on this rank in rows that have no edge."""
        params, stripe, cupy = self._params[0], self.graph.stripe, self._cupy
        params["source_count"] = len(sources)
        rank, used = self.graph.rank, self.graph.rows_used
        if len(sources) <= layout.FEW_SOURCES:
            # Without arrays, which would take as long as the launch.
            few, lone = params["few_sources"], 0
            for index, source in enumerate(sources):
                row, owner = divmod(source, stripe.p)
                few[index] = owner * self._rows + row
                lone += owner == rank and row >= used
            return lone
        ids = np.asarray(sources, np.int64)
        self._many_sources = cupy.asarray(stripe.internal(ids).astype(np.uint32))
        params["sources"] = self._many_sources.data.ptr
        cupy.cuda.get_current_stream().synchronize()
        return int(np.count_nonzero(stripe.row(ids[stripe.owner(ids) == rank]) >= used))

    def launch(self, then: Callable[[RankLabels], T]) -> tuple[RankLabels, T]:
        """Launch the prepared run on ``stream``.

        Args:
            then: enqueues work on the run's labels on ``stream``, for which ``wait`` waits as well.

        Returns:
            The labels, which the run has yet to write: int32 and, with predecessors, uint32[n_local], on the GPU. And
            what ``then`` returned.
        """
        slot = self._slots[0]
        self._slots.rotate(-1)
        slot.clear()
        params = self._params[0]
        params["host"] = slot.host.address
        labels = self._spare or self._empty_labels()
        if self._own_distances:
            params["distances"] = address(labels.distances)
        if self._shared_labels is None:
            own = params["peers"][0]
            own["distances"] = params["distances"]
            if labels.predecessors is not None:
                own["parents"] = address(labels.predecessors)
        ATTENDANT.begin(slot)
        self._launch(self._blocks, self._variant.threads, 0, self.stream.ptr)
        self._under_way.append(slot)
        if self._shared_labels is not None:
            self._copy_labels(self._shared_labels, labels)
        followed = then(labels)
        if self.leads is not None:
            self.sent = self.leads.send_labels(labels, self.stream)
        slot.done.record(self.stream)
        # While the kernel runs. CUDA takes 0.3 ms to hand out memory that a validation has returned.
        self._spare = self._spare_labels()
        return labels, followed

    def _spare_labels(self) -> RankLabels | None:
        """Return arrays for the labels of the next run; None if they are large, or the GPU is full."""
        if not has_spare(self.graph.stripe):
            return None
        try:
            return self._empty_labels()
        except self._cupy.cuda.memory.OutOfMemoryError:
            return None

    def _empty_labels(self) -> RankLabels:
        rows, cupy = self.graph.stripe.n_local, self._cupy
        parents = cupy.empty(rows, np.uint32) if self._variant.predecessors else None
        return RankLabels(cupy.empty(rows, np.int32), parents)

    def _copy_labels(self, source: RankLabels, target: RankLabels) -> None:
        """Enqueue a copy of the labels that the run did not write into the result. Returns at once."""
        if not self._own_distances:
            self._copy(source.distances, target.distances)
        if source.predecessors is not None:
            self._copy(source.predecessors, target.predecessors)

    def _copy(self, source: Any, target: Any) -> None:
        runtime = self._cupy.cuda.runtime
        kind = runtime.memcpyDeviceToDevice
        runtime.memcpyAsync(address(target), address(source), source.nbytes, kind, self.stream.ptr)

    def load_copies(self) -> None:
        """Load the kernels of ``send_labels``, which CUDA does not do while a run is under way."""
        own = self._empty_labels()
        for labels in (own.distances, own.predecessors):
            if labels is not None:
                _copies()(labels, labels)

    def send_labels(self, whole: RankLabels, stream: Any) -> "SentLabels":
        """Enqueue copies of the labels of all rows to their ranks: those of the peers go to their windows.

        Args:
            whole: the labels by internal id.
            stream: where they are written; the peers have taken what their windows had.
        """
        cupy, rows, p = self._cupy, self.graph.stripe.n_local, self.graph.stripe.p
        own, copy = self._empty_labels(), _copies()
        began, ended = cupy.cuda.Event(), cupy.cuda.Event()
        with stream:
            began.record()
            for rank, peer in enumerate(self._params[0]["peers"][:p]):
                mine, part = rank == self.graph.rank, slice(rank * rows, (rank + 1) * rows)
                there = int(peer["distances"]), int(peer["parents"]) + 4 * rank * rows
                lists = (whole.distances, own.distances), (whole.predecessors, own.predecessors)
                for place, (labels, to) in zip(there, lists, strict=True):
                    if labels is not None:
                        copy(labels[part], to if mine else array_at(place, rows, labels.dtype, self._peers))
            ended.record()
        return SentLabels(own, began, ended)

    def receive_labels(self) -> RankLabels:
        """Return this rank's labels that a peer has written into the window."""
        labels, window = self._empty_labels(), self._shared_labels
        assert window is not None
        self._copy(window.distances, labels.distances)
        if window.predecessors is not None:
            self._copy(window.predecessors, labels.predecessors)
        # The next run finds labels there that are not its own engine's.
        self._dirty_tail = True
        self.stream.synchronize()
        return labels

    @property
    def edges_total(self) -> int:
        """Directed edges on all ranks."""
        return int(self._params[0]["edges_total"])

    @property
    def counts_degrees(self) -> bool:
        """Whether a run counts the vertices that it labels, and their out-edges, in its records."""
        return bool(self._params[0]["common"])

    @property
    def lone_sources(self) -> int:
        """Sources of the run launched last that lie on this rank in rows past the last edge."""
        return self._lone_sources

    def start(self, options: KernelOptions) -> RankLabels:
        """Prepare and launch a run; every rank of the gang must do so within the timeout. Returns at once."""
        self.prepare(options)
        return self.launch(lambda _labels: None)[0]

    def progress(self, traversal: int) -> RankProgress:
        """Return the progress of the run that ``wait`` waits for, as of the last records taken. Any thread.

        Args:
            traversal: index of that run, for the answer.
        """
        try:
            slot = self._under_way[0]
        except IndexError:
            slot = self._slots[-1]
        return slot.records.progress(traversal)

    def abort(self) -> None:
        """Stop the kernels under way; ``wait`` then raises ``KernelAbortedError``. Any thread."""
        for slot in self._slots:
            slot.host.header["abort"] = 1

    def wait(self) -> KernelOutcome:
        """Wait for the oldest run under way, and read its results from host memory.

        Errors as for ``Slot.wait`` and ``Slot.outcome``.
        """
        slot = self._under_way[0]
        ATTENDANT.end(slot)
        give_up = time.monotonic() + self._timeout
        try:
            slot.wait(self.graph.rank, give_up, self.abort)
        finally:
            self._under_way.popleft()
        return slot.outcome(self.graph.rank, self._timeout, give_up)

    def drop(self) -> None:
        """Stop the runs under way and wait until their kernels have ended. Errors as for ``wait``."""
        self.abort()
        while self._under_way:
            with contextlib.suppress(KernelAbortedError, DeadlineExceededError):
                self.wait()

    def recover(self) -> None:
        """Make the engine usable after a failed run. The kernels of all ranks have ended; a gang barrier follows."""
        self._control.fill(0)
        self._window.clear_flags()
        self._under_way.clear()
        for slot in self._slots:
            ATTENDANT.end(slot)
            slot.clear()
            slot.records.clear_ring()
        self._dirty_tail = True
        self._cupy.cuda.runtime.deviceSynchronize()

    def disconnect(self) -> None:
        """Unmap the peers' windows. A gang barrier must come between this and ``close``."""
        if self._peers is not None:
            self._peers.close()
            self._peers = None

    @property
    def shared(self) -> bool:
        """True if peers may have mapped this rank's memory: ``disconnect`` was not called since ``connect``."""
        return self._peers is not None and self.graph.stripe.p > 1

    def close(self) -> None:
        """Free the buffers. A ``shared`` window stays until the process ends: a peer's kernel may use it."""
        shared = self.shared
        self.disconnect()
        if not shared:
            self._window.free()
        for slot in self._slots:
            ATTENDANT.end(slot)
            slot.host.free()
