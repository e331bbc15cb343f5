"""The phases of a level of a batch as the Numba kernels of ``kernels.batch``."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.team import Team
from dbfs_workers.features.batches.kernels import batch as kernels
from dbfs_workers.features.batches.operators import ChosenRows, Overlap, SettledRows
from dbfs_workers.features.batches.path_sums_cpu import CpuPathSums
from dbfs_workers.features.batches.purpose import width_of
from dbfs_workers.features.batches.storage import BatchScratch, RankBatch
from dbfs_workers.search.cpu import team_calls
from dbfs_workers.search.partition.partition import Csr

# In the first levels, and up to this share of the vertices, the ranks can't tell whether the sources will share.
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
    """The ``BatchOperators`` on CPU cores.

    Args:
        team: threads that share the rank's rows; None for one.
    """

    swept = CpuPathSums.lanes
    clear = staticmethod(kernels.clear)
    pack = staticmethod(kernels.pack)
    unpack = staticmethod(kernels.unpack)

    def __init__(self, team: Team | None) -> None:
        self._team = team
        self._bounds: list[int] = []
        self._looked = 0

    def path_sums(self, out: Csr, into: Csr, *, of_edges: bool) -> CpuPathSums:
        return CpuPathSums(out, into, self._team, of_edges=of_edges)

    def choose(self, scratch: BatchScratch, sources: NDArray[np.uint64]) -> ChosenRows:
        rows, live = scratch.partition.rows, scratch.live[scratch.own_words]
        chosen = np.zeros_like(live)
        place = rows.starts, rows.ends, scratch.first_id, scratch.width
        edges: int = kernels.choose(*place, live, scratch.front, sources, chosen)
        return ChosenRows(chosen, live.size, edges)

    def push(self, scratch: BatchScratch, chosen: ChosenRows | None = None) -> int:
        starts, ends, columns = scratch.partition.rows
        live, bounds = chosen.rows if chosen else scratch.live[scratch.own_words], self._parts(scratch)

        def part(begin: int, end: int) -> int:
            edges: int = kernels.push(
                starts[begin:end],
                ends[begin:end],
                columns,
                scratch.first_id + begin,
                scratch.width,
                live[begin // 32 : end // 32],
                scratch.front,
                scratch.found,
                scratch.marked,
                len(bounds) > 2,
            )
            return edges

        return sum(team_calls.each(self._team, bounds, part))

    def pull(self, scratch: BatchScratch, wanted: NDArray[np.uint64]) -> None:
        width, parents, marked = scratch.width, scratch.partition.parent_rows, scratch.marked[scratch.own_words]
        assert parents is not None
        starts, ends, columns = parents

        def part(begin: int, end: int) -> int:
            edges: int = kernels.pull(
                starts[begin:end],
                ends[begin:end],
                columns,
                scratch.first_id + begin,
                width,
                wanted,
                scratch.live,
                scratch.front,
                scratch.seen[begin * width : end * width],
                scratch.found,
                marked[begin // 32 : end // 32],
                np.zeros(2 * width, np.uint64),
            )
            return edges

        self._looked = sum(team_calls.each(self._team, self._parts(scratch), part))

    def settle(self, scratch: BatchScratch) -> SettledRows:
        rows, width, marked = scratch.partition.rows, scratch.width, scratch.marked[scratch.own_words]

        def part(begin: int, end: int) -> tuple[tuple[int, int, int, int], NDArray[np.int64]]:
            counts, planes = np.zeros(64 * width, np.int64), np.zeros(65 * width, np.uint64)
            sums = kernels.settle(
                rows.starts[begin:end],
                rows.ends[begin:end],
                scratch.first_id + begin,
                width,
                marked[begin // 32 : end // 32],
                scratch.seen[begin * width : end * width],
                scratch.found,
                planes,
                counts,
            )
            return sums, counts

        sums, counts = zip(*team_calls.each(self._team, self._parts(scratch), part), strict=True)
        rows_found, degrees, bits, bit_degrees = map(sum, zip(*sums, strict=True))
        return SettledRows(rows_found, degrees, bits, bit_degrees, self._looked, np.sum(counts, axis=0))

    def note(self, scratch: BatchScratch, distance: int, kept: RankBatch) -> None:
        distances, item, nearest = kept.flat
        marked, width, bytes_a_row = scratch.marked[scratch.own_words], scratch.width, kept.sources * item
        terms, sums = kept.terms(np.array([distance])).reshape(-1), kept.sums.reshape(-1)

        def part(begin: int, end: int) -> None:
            kernels.note(
                distance,
                scratch.first_id + begin,
                width,
                marked[begin // 32 : end // 32],
                scratch.found,
                kept.sources,
                distances[begin * bytes_a_row : end * bytes_a_row],
                item,
                nearest[2 * begin : 2 * end],
                terms,
                sums[terms.size * begin : terms.size * end],
            )

        if distances.size or nearest.size or sums.size:
            team_calls.each(self._team, self._parts(scratch), part)
        if kept.target_rows.size:
            at_targets = kept.at_targets.reshape(-1)
            of_level = distance, scratch.first_id, width, kept.target_rows, scratch.found, kept.sources
            kernels.note_targets(*of_level, at_targets)

    def pays(self, shared: Overlap) -> bool:
        if shared.levels < _SURE_LEVELS and shared.vertices < _SURE_SHARE * shared.n:
            return True
        cost = shared.vertices + shared.levels * (_LEVEL_VERTICES + _LEVEL_SHARE * shared.n)
        return shared.bits >= _LEAST_SHARED * (1 + width_of(shared.sources, "cpu") / 16) * cost

    def _parts(self, scratch: BatchScratch) -> list[int]:
        """Return the bounds of the parts of rows that the threads share."""
        if not self._bounds:
            self._bounds = team_calls.bounds_of_rows(self._team, scratch.partition.rows)
        return self._bounds

    def take_labels(self, labels: NDArray[np.int32], place: int, kept: RankBatch, largest: int) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = np.zeros(largest + 1, np.int64)
        rest: tuple[Any, ...] = *kept.flat, kept.terms(np.arange(largest + 1)).reshape(-1), kept.sums.reshape(-1)
        kernels.take_labels(labels, place, kept.sources, counts, kept.seen.size // labels.size, kept.seen, *rest)
        kept.at_targets[:, place] = labels[kept.target_rows]
        return counts
