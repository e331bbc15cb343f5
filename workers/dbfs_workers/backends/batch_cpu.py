"""The phases of a level of a batch as the Numba kernels of ``batch_kernels``."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.backends import batch_kernels as kernels
from dbfs_workers.backends.batch import Chosen, Settled, Shared
from dbfs_workers.backends.sweeps_cpu import CpuSweeps
from dbfs_workers.storage.batch import BatchScratch, RankBatch, width_of

# Before so many levels, and before this share of the vertices, nothing is known of the rest.
_SURE_LEVELS: Final = 64
_SURE_SHARE: Final = 1 / 16
# Bits that a vertex of the frontier needs on average, or the batch takes longer than one source after another; so many
# times (1 + width / 16). A lattice of 512 a side took 90 to 195 ns a vertex with 64 sources, 215 with 256, and 36 to 41
# a bit one by one; its vertices have 1.1 to 1.3 bits.
_LEAST_SHARED: Final = 4.0
# A level costs as much as these vertices, and as this share of the graph's.
_LEVEL_VERTICES: Final = 64
_LEVEL_SHARE: Final = 1 / 1024


class CpuBatch:
    """The ``BatchOperators`` on a CPU core."""

    swept = CpuSweeps.lanes
    sweeps = CpuSweeps
    clear = staticmethod(kernels.clear)
    pack = staticmethod(kernels.pack)
    unpack = staticmethod(kernels.unpack)

    def choose(self, scratch: BatchScratch, sources: NDArray[np.uint64]) -> Chosen:
        """See ``BatchOperators``."""
        rows, live = scratch.partition.rows, scratch.live[scratch.own_words]
        chosen = np.zeros_like(live)
        place = rows.starts, rows.ends, scratch.first_id, scratch.width
        edges: int = kernels.choose(*place, live, scratch.front, sources, chosen)
        return Chosen(chosen, live.size, edges)

    def push(self, scratch: BatchScratch, chosen: Chosen | None = None) -> int:
        """See ``BatchOperators``."""
        edges: int = kernels.push(
            *(*scratch.partition.rows, scratch.first_id, scratch.width),
            *(chosen.rows if chosen else scratch.live[scratch.own_words], scratch.front, scratch.found, scratch.marked),
        )
        return edges

    def pull(self, scratch: BatchScratch, wanted: NDArray[np.uint64]) -> int:
        """See ``BatchOperators``."""
        width, parents = scratch.width, scratch.partition.parent_rows
        assert parents is not None
        edges: int = kernels.pull(
            *(*parents, scratch.first_id, width, wanted, scratch.live, scratch.front, scratch.seen),
            *(scratch.found, scratch.marked[scratch.own_words], np.zeros(2 * width, np.uint64)),
        )
        return edges

    def settle(self, scratch: BatchScratch) -> Settled:
        """See ``BatchOperators``."""
        rows, width = scratch.partition.rows, scratch.width
        counts, planes = np.zeros(64 * width, np.int64), np.zeros(65 * width, np.uint64)
        sums = kernels.settle(
            *(rows.starts, rows.ends, scratch.first_id, width, scratch.marked[scratch.own_words], scratch.seen),
            *(scratch.found, planes, counts),
        )
        rows_found, degrees, bits, bit_degrees = sums
        return Settled(rows_found, degrees, bits, bit_degrees, counts)

    def note(self, scratch: BatchScratch, distance: int, kept: RankBatch) -> None:
        """See ``BatchOperators``."""
        place = distance, scratch.first_id, scratch.width
        distances, item, nearest = kept.flat
        if distances.size or nearest.size:
            marked = scratch.marked[scratch.own_words]
            kernels.note(*place, marked, scratch.found, kept.sources, distances, item, nearest)
        if kept.target_rows.size:
            at_targets = kept.at_targets.reshape(-1)
            kernels.note_targets(*place, kept.target_rows, scratch.found, kept.sources, at_targets)

    def pays(self, shared: Shared) -> bool:
        """See ``BatchOperators``."""
        if shared.levels < _SURE_LEVELS and shared.vertices < _SURE_SHARE * shared.n:
            return True
        cost = shared.vertices + shared.levels * (_LEVEL_VERTICES + _LEVEL_SHARE * shared.n)
        return shared.bits >= _LEAST_SHARED * (1 + width_of(shared.sources, "cpu") / 16) * cost

    def take_labels(self, labels: NDArray[np.int32], place: int, kept: RankBatch, largest: int) -> NDArray[np.int64]:
        """See ``BatchOperators``."""
        counts: NDArray[np.int64] = np.zeros(largest + 1, np.int64)
        rest: tuple[Any, ...] = kept.flat
        kernels.take_labels(labels, place, kept.sources, counts, kept.seen.size // labels.size, kept.seen, *rest)
        kept.at_targets[:, place] = labels[kept.target_rows]
        return counts
