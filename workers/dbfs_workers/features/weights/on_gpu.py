"""Shortest paths by weight on GPUs that reach each other's memory: one launch a rank (``kernels/near_far.cu``)."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import DeadlineExceededError, DistanceOverflowError
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.weights import delta
from dbfs_workers.features.weights.kernels.sources import ALONE, GANG
from dbfs_workers.features.weights.keys import NONE, first_unreached, key_of, largest, number_of
from dbfs_workers.features.weights.purpose import Number, weighted
from dbfs_workers.search.cuda import device_memory, layout
from dbfs_workers.search.cuda.abort_flag import AbortFlag, wait
from dbfs_workers.search.cuda.device_graph import DeviceGraph
from dbfs_workers.search.cuda.module import Launch, load
from dbfs_workers.search.cuda.run import KernelAbortedError
from dbfs_workers.search.levels.level_table import LevelTable
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.stripe import WORD_BITS, own_rows
from dbfs_workers.search.reports import RankRun
from dbfs_workers.search.reports.counts import Largest

# ``Weights`` of launch.cuh.
_WEIGHTS: Final = np.dtype(
    [
        *((name, np.uint64) for name in ("offsets", "columns", "weights", "keys", "relaxed", "labels", "parents")),
        *((name, np.uint64, 2) for name in ("queues", "near")),
        ("far", np.uint64),
        *((name, np.uint64, 2) for name in ("lists", "pieces")),
        *((name, np.uint64) for name in ("sources", "targets", "control", "abort")),
        *((name, np.uint64) for name in ("unreached", "delta", "blank", "limit_ns")),
        ("rows", np.int64),
        *((name, np.uint32) for name in ("source_count", "target_count", "room", "few")),
        ("shifts", np.int64, layout.MAX_RANKS),
        ("flags", np.uint64),
        *((name, np.uint64, 2) for name in ("sent", "sent_bits")),
        *((name, np.uint32) for name in ("rank", "ranks", "epoch", "all_targets")),
    ]
)
# Words of ``control`` there, each on a line of its own.
_WORDS: Final = 45
_LINE: Final = 16
_NEAR_TAILS, _NEAREST = 2, slice(14, 18)
_REACHED, _DEGREES, _PAST, _FARTHEST, _RELAXED, _TAKEN = range(18, 24)
_ROUNDS, _OUTCOME, _SETUP, _WHOLE = range(25, 29)
_EPOCH: Final = 44
_DONE, _ABORTED = 1, 2
_PIECE: Final = 256
# Threads of a block: those of ``with_types``.
_THREADS: Final = 1024
# The lists of piles have room for so many rows. Of more rows a bitmap is read faster.
_ROOM: Final = 1 << 16
# One block makes rounds of so few rows alone, and of about so few edges: its barrier takes a tenth of the grid's.
_FEW_ROWS: Final = 1024
_FEW_EDGES: Final = 4096

Zeros = Callable[[int, Any], Any]

WHOLE32: Final = "whole32"
"""The kernel of integers whose sums are sure to fit 32 bits. The others are named by the type of distances."""


class GpuLabels(RankLabels):
    """Labels of distances by weight on a GPU: see ``storage.WeightedLabels``.

    Attributes:
        farthest: the largest distance, or that of the target where only the path there is wanted; an array of one.
    """

    farthest: NDArray[Any]

    @property
    def by_source(self) -> NDArray[Any]:
        return self.farthest


class Facts(NamedTuple):
    """What decides about kernel and buckets; of several ranks the largest values of any.

    Attributes:
        largest: the largest weight, of integers.
        mean: the mean of the finite weights, as the bits of a float64.
        degree: the mean degree of the rows with edges, in the same form.
    """

    largest: Largest
    mean: Largest
    degree: Largest

    @classmethod
    def of(cls, weights: NDArray[Any], row_offsets: Any) -> "Facts":
        """Return those of a rank."""
        import cupy

        whole = weights.dtype.kind == "i"
        finite = weights if whole else weights[np.isfinite(weights)]
        mean = float(finite.mean(dtype=np.float64)) if finite.size else 0.0
        degree = weights.size / max(1, int(cupy.count_nonzero(cupy.diff(row_offsets))))
        bits = (key_of(number, np.dtype(np.float64)) for number in (mean, degree))
        return cls(int(weights.max(initial=0)) if whole else 0, *bits)


@dataclass(frozen=True)
class GpuWeights:
    """The weights of a rank's edges on its GPU.

    Attributes:
        dtype: the type of distances.
        kernel: see ``WHOLE32``.
        array: by edge, CuPy's.
        mean, degree: see ``Facts``.
    """

    dtype: np.dtype[Any]
    kernel: str
    array: Any
    mean: float
    degree: float

    @classmethod
    def of(cls, weights: NDArray[Any], facts: Facts, n: int, where: str) -> "GpuWeights":
        """Copy weights to the GPU.

        Args:
            weights: int64, float64 or float32, none below 0.
            facts: of all ranks.
            n: number of vertices: a path has fewer edges.
            where: the rank and what it does, for errors.

        Raises:
            GraphTooLargeError: the GPU has too little free memory.
        """
        import cupy

        kernel, stored = weights.dtype.name, weights
        if weights.dtype.kind == "i" and facts.largest * n < 2**32 - 1:
            kernel, stored = WHOLE32, weights.astype(np.uint32)
        device_memory.require(stored.nbytes, where)
        mean, degree = (float(number_of(bits, np.dtype(np.float64))) for bits in (facts.mean, facts.degree))
        return cls(weights.dtype, kernel, cupy.asarray(stored), mean, degree)


class _Window:
    """What the peers of a rank reach: one array, with the same places on all ranks.

    Args:
        graph: the rank's part.
        key: the type of keys.
        zeros: returns an array that peers can map, of zeros, given its size and type.

    Attributes:
        address: of the array.
        flags: uint64, the records of all ranks.
        keys, parents: of the rank's rows, between those of the peers' rows.
        bits, lists: of the ids that are sent in even and in odd rounds.
    """

    def __init__(self, graph: DeviceGraph, key: np.dtype[Any], zeros: Zeros) -> None:
        rows, ids = graph.stripe.n_local, graph.stripe.p * graph.stripe.n_local
        sizes = layout.FLAG_SLOTS * layout.MAX_RANKS * layout.FLAG_WORDS * 2, ids * key.itemsize // 4, ids, ids // 16
        ends = np.cumsum([*sizes, 2 * _ROOM]).tolist()
        whole = zeros(ends[-1], np.uint32)
        self.address = device_memory.address(whole)
        self.flags, keys, parents, bits, lists = (
            whole[end - size : end] for end, size in zip(ends, (*sizes, 2 * _ROOM), strict=True)
        )
        own = np.s_[graph.rank * rows : (graph.rank + 1) * rows]
        self.keys, self.parents = keys.view(key)[own], parents[own]
        self.bits, self.lists = bits.reshape(2, -1), lists.reshape(2, -1)


class GpuSearch:
    """The working memory of traversals by one column, and what makes them.

    Args:
        graph: the rank's part of the graph.
        weights: see below.
        where: the rank and what it does, for errors.
        zeros: of several ranks, see ``_Window``; ``connect`` follows.

    Attributes:
        weights: the column.
        flag: stops the traversal under way.
        window: what peers reach; None for a rank alone.

    Raises:
        GraphTooLargeError: the GPU has too little free memory.
    """

    def __init__(self, graph: DeviceGraph, weights: GpuWeights, where: str, zeros: Zeros | None = None) -> None:
        import cupy

        self.weights, self._graph, self._where, self._cupy = weights, graph, where, cupy
        rows, small = graph.stripe.n_local, weights.kernel in (WHOLE32, "float32")
        self._key = np.dtype(np.uint32 if small else np.uint64)
        pieces = 2 * graph.m_local // _PIECE + 1
        apart = weights.kernel == WHOLE32 and zeros is None
        keys = rows * self._key.itemsize * (1 + apart)
        ids = 0 if zeros is None else graph.stripe.p * rows
        shared = ids * (self._key.itemsize + 4) + ids // 4
        device_memory.require(keys + 3 * rows // 8 + 24 * _ROOM + 16 * pieces + shared, where)
        self.window = None if zeros is None else _Window(graph, self._key, zeros)
        self._keys = cupy.empty(rows if apart else 0, self._key)
        self._relaxed, self._bits = cupy.empty(rows, self._key), cupy.empty((3, rows // WORD_BITS), np.uint32)
        self._queues, self._lists = (cupy.empty((2, _ROOM), np.uint32) for _ in range(2))
        self._pieces, self._control = cupy.empty((2, pieces), np.uint64), cupy.empty((_WORDS, _LINE), np.uint64)
        self._arguments = np.zeros(1, [("weights", _WEIGHTS)])
        # Barriers of all ranks so far.
        self._epoch = 0
        self.flag = AbortFlag()
        # Peers write into the window as soon as they know it.
        cupy.cuda.get_current_stream().synchronize()

    def connect(self, addresses: Sequence[int]) -> None:
        """Let the kernel reach the windows of all ranks, which lie at these addresses."""
        assert self.window is not None
        self._arguments["weights"][0]["shifts"][: len(addresses)] = np.array(addresses) - self.window.address

    def run(self, spec: TraversalSpec, deadline: float) -> RankRun:
        """Make a traversal.

        Args:
            deadline: its end, in seconds of ``time.monotonic()``.

        Raises:
            KernelAbortedError: the flag was set.
            KernelHungError: the kernel did not end.
            DeadlineExceededError: the deadline has passed.
            DistanceOverflowError: int64 does not hold a distance.
        """
        cupy, rows, dtype = self._cupy, self._graph.stripe.n_local, self.weights.dtype
        labels = GpuLabels(cupy.empty(rows, dtype), cupy.empty(rows, np.uint32) if spec.predecessors else None)
        mine = (own_rows(self._graph.stripe, self._graph.rank, some) for some in (spec.sources, spec.targets))
        places = [cupy.asarray(rows) for rows in mine]
        self._give(spec, labels, *places)
        seconds = deadline - time.monotonic()
        self._arguments["weights"][0]["limit_ns"] = max(0, int(1e9 * seconds))
        run_kernel(self.weights.kernel, self._arguments, self.flag, deadline, gang=self.window is not None)
        found = self._control.get()[:, 0].tolist()
        self._epoch = found[_EPOCH]
        # The host, whose clock may see the deadline first, stops the kernel then.
        if found[_OUTCOME] == _ABORTED and time.monotonic() <= deadline:
            raise KernelAbortedError(f"the run was aborted: {self._where}")
        if found[_OUTCOME] != _DONE:
            raise DeadlineExceededError(f"the run took longer than {seconds:.3g} s: {self._where}")
        if dtype.kind == "i" and found[_PAST]:
            raise DistanceOverflowError(
                f"int64 does not hold the distances of {found[_PAST]:,} vertices by {weighted(spec).column!r}, which "
                "are 2^63 - 2 or more; set max_distance, or have the column in float64"
            )
        if self.window is not None:
            if self.weights.kernel != WHOLE32:
                labels.distances[:] = self.window.keys.view(dtype)
            if labels.predecessors is not None:
                labels.predecessors[:] = self.window.parents
            cupy.cuda.get_current_stream().synchronize()
        farthest = found[_FARTHEST] if dtype.kind == "i" else number_of(found[_FARTHEST], dtype)
        labels.farthest = np.array([farthest], dtype)
        if weighted(spec).path:
            labels.farthest = labels.distances[places[1]].get()
        return _report(labels, found)

    def _give(self, spec: TraversalSpec, labels: GpuLabels, sources: Any, targets: Any) -> None:
        """Fill in the arguments and the words of control; sources and targets are rows."""
        graph, dtype, kernel, purpose = self._graph, self.weights.dtype, self.weights.kernel, weighted(spec)
        width: Number = (
            delta.delta_for(self.weights.mean, self.weights.degree, dtype, delta.GPU)
            if purpose.delta is None
            else largest(purpose.delta, dtype)
        )
        place, given = device_memory.address, self._arguments["weights"][0]
        keys, parents, window = self._keys if kernel == WHOLE32 else labels.distances, labels.predecessors, self.window
        if window is not None:
            keys, parents = window.keys, None if parents is None else window.parents
            given["flags"] = place(window.flags)
            given["sent"], given["sent_bits"] = ([place(each) for each in pair] for pair in (window.lists, window.bits))
        given["offsets"], given["columns"] = place(graph.row_offsets), place(graph.columns)
        given["weights"], given["keys"], given["relaxed"] = place(self.weights.array), place(keys), place(self._relaxed)
        given["labels"] = place(labels.distances) if kernel == WHOLE32 else 0
        given["parents"] = 0 if parents is None else place(parents)
        given["queues"], given["lists"] = ([place(each) for each in pair] for pair in (self._queues, self._lists))
        given["near"], given["far"] = [place(each) for each in self._bits[:2]], place(self._bits[2])
        given["pieces"] = [place(each) for each in self._pieces]
        given["sources"], given["targets"] = place(sources), place(targets)
        given["control"], given["abort"] = place(self._control), self.flag.address
        unreached = first_unreached(purpose.max_distance, dtype)
        given["unreached"] = min(unreached, 2**32 - 1) if kernel == WHOLE32 else unreached
        given["delta"] = min(width, NONE) if dtype.kind == "i" else key_of(width, dtype)
        given["blank"] = 2**64 - 1 if dtype.kind == "i" else key_of(np.inf, dtype)
        given["rows"], given["room"] = graph.stripe.n_local, _ROOM
        given["few"] = min(_FEW_ROWS, int(_FEW_EDGES / max(1.0, self.weights.degree)))
        given["source_count"], given["target_count"] = sources.size, targets.size
        given["rank"], given["ranks"], given["epoch"] = graph.rank, graph.stripe.p, self._epoch
        given["all_targets"] = len(spec.targets)
        words = np.zeros((_WORDS, _LINE), np.uint64)
        words[_NEAREST], words[_NEAR_TAILS] = NONE, sources.size
        self._control.set(words)


def _report(labels: GpuLabels, found: list[int]) -> RankRun:
    """Return the report of a traversal, all of whose rounds are one level; ``found`` are the words of control."""
    table = LevelTable()
    row = table.row()
    row.levels, row.frontier, row.largest_frontier = 1, found[_TAKEN], found[_TAKEN]
    # Of several ranks one may relax fewer edges than it has rows that are reached.
    row.edges, row.own = found[_RELAXED], min(found[_RELAXED], found[_REACHED])
    row.filtered = row.edges - row.own
    row.discovered = found[_REACHED]
    row.search = (found[_WHOLE] - found[_SETUP]) * 1e-9
    table.add()
    return RankRun(
        labels=labels,
        levels=table.end()[0],
        reached=found[_REACHED],
        edges=found[_DEGREES],
        depth=1,
        elapsed=row.search,
        setup=found[_SETUP] * 1e-9,
        counters=(("rounds", found[_ROUNDS]),),
    )


def run_kernel(
    name: str, arguments: "np.ndarray[Any, Any]", flag: AbortFlag, deadline: float, *, gang: bool = False
) -> None:
    """Launch a kernel, with a block on each multiprocessor, and wait for its end; stop it at the deadline.

    Raises:
        KernelHungError: it did not end.
    """
    import cupy

    kernel, blocks = _kernel(name, gang, cupy.cuda.runtime.getDevice())
    stream, done = cupy.cuda.get_current_stream(), cupy.cuda.Event(disable_timing=True)
    Launch(kernel, arguments, cooperative=True)(blocks, _THREADS, 0, stream.ptr)
    done.record(stream)
    wait(done, flag, deadline)


@cache
def _kernel(name: str, gang: bool, device: int) -> tuple[Any, int]:
    """Return a kernel and the number of multiprocessors of the current device, of this number."""
    import cupy

    kernel = load(GANG if gang else ALONE, cooperative=True).get_function(f"dbfs_weights_{name}")
    return kernel, int(cupy.cuda.Device(device).attributes["MultiProcessorCount"])
