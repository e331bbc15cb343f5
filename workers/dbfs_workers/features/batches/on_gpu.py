"""The phases of a level of a batch as the CUDA kernels of ``features/batches/kernels/batch.cu``, over CuPy arrays.

All launches go to the default stream, and only ``choose`` and ``settle`` wait for them: their counts are wanted on the
host.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.batches.kernels.sources import BATCH
from dbfs_workers.features.batches.operators import ChosenRows, Overlap, SettledRows
from dbfs_workers.features.batches.path_sums_cuda import CudaPathSums
from dbfs_workers.features.batches.storage import BatchScratch, RankBatch
from dbfs_workers.search.cuda.launch_sizes import THREADS, blocks_for
from dbfs_workers.search.cuda.module import placed_launches
from dbfs_workers.search.partition.partition import Csr

WIDTHS: Final = (1, 2, 4, 8, 16)
KERNELS: Final = (
    *("choose", "push", "push_rows", *(f"pull_{width}" for width in WIDTHS), "pull_rest"),
    *("settle", "note", "clear", "take"),
)
# ``BatchSum`` of the kernels: ``pull`` has the sums before ``_ROWS``.
_LOOKED, _ROWS, _COUNTS = 0, 2, 6
# Edges of a row that the lanes of the row look at alone.
_ALONE_EDGES: Final = 256
# A frontier is dense if so many times its edges are more than all.
_DENSE: Final = 2
# Edges of a frontier's row up to which, on average, the lanes of a row visit them.
_FEW_EDGES: Final = 8
# Threads for each word of a bitmap: a warp takes eight words.
_LANES: Final = 4
# Times: of a level's launches; of a vertex of the frontier; of a level of one source in the resident kernel.
_LEVEL_SECONDS: Final = 120e-6
_VERTEX_SECONDS: Final = 1e-9
_ALONE_LEVEL_SECONDS: Final = 2.2e-6


class CudaBatch:
    """The ``BatchOperators`` on one GPU. A vertex has a power of two of words.

    Args:
        xp: CuPy.
        frontier_edges: see ``CudaBackend``.
    """

    swept = CudaPathSums.lanes

    def __init__(self, xp: Any, frontier_edges: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self.xp, self._frontier_edges = xp, frontier_edges
        self._launches = self._load()
        self._sums: Any = xp.zeros(_COUNTS + 64 * WIDTHS[-1], np.uint64)
        # The rows that ``pull`` leaves to ``pull_rest``, where their edges begin, and where the edges end among all.
        self._left: tuple[Any, Any, Any] | None = None
        # The bits that the last pull looked for, on the host and on the GPU.
        self._wanted: tuple[bytes, Any] = b"", None

    def path_sums(self, out: Csr, into: Csr, *, of_edges: bool) -> CudaPathSums:
        return CudaPathSums(self.xp, self._frontier_edges, out, into, of_edges=of_edges)

    def choose(self, scratch: BatchScratch, sources: NDArray[np.uint64]) -> ChosenRows:
        rows = self.xp.empty(scratch.queued, np.uint32)
        self._sums[_ROWS:].fill(0)
        self._launch(
            "choose",
            scratch.queued * scratch.width,
            scratch.queue,
            scratch.queued,
            scratch.partition.row_offsets,
            scratch.first_id,
            _log(scratch.width),
            scratch.front,
            self.xp.asarray(sources),
            rows,
            self._sums,
        )
        size, edges = self._sums[_ROWS : _ROWS + 2].get().tolist()
        return ChosenRows(rows, size, edges)

    def push(self, scratch: BatchScratch, chosen: ChosenRows | None = None) -> int:
        part = scratch.partition
        rows, size, edges = chosen or ChosenRows(scratch.queue, scratch.queued, scratch.queued_edges)
        found, log_width = (scratch.found, scratch.marked), _log(scratch.width)
        if edges > _FEW_EDGES * size:
            starts, ends = self._frontier_edges(part.row_offsets, rows[:size])
            lists = rows, starts, ends, size, part.columns, scratch.first_id
            self._launch("push", edges, *lists, log_width, scratch.front, *found)
        else:
            own = scratch.first_id, part.stripe.n_local
            words = log_width, scratch.front, scratch.seen, *found
            self._launch("push_rows", size * scratch.width, rows, size, part.row_offsets, part.columns, *own, *words)
        return edges

    def pull(self, scratch: BatchScratch, wanted: NDArray[np.uint64]) -> None:
        edges, width, n_local = scratch.partition.parents, scratch.width, scratch.partition.stripe.n_local
        assert edges is not None
        if self._left is None:
            most = min(n_local, edges.columns.size // _ALONE_EDGES) + 1
            self._left = self.xp.empty(most, np.uint32), self.xp.empty(most, np.int64), self.xp.empty(most, np.int64)
        # Most levels look for the same bits, and to copy these to the GPU takes as long as a small level.
        if self._wanted[0] != wanted.tobytes():
            self._wanted = wanted.tobytes(), self.xp.asarray(wanted)
        sources = self._wanted[1]
        self._sums[:_ROWS].fill(0)
        # A look at the bitmap pays if it spares enough looks at words.
        dense = _DENSE * scratch.queued_edges > scratch.partition.columns.size
        self._launch(
            f"pull_{width}",
            width * n_local,
            edges.row_offsets,
            edges.columns,
            scratch.first_id,
            n_local,
            sources,
            0 if dense else scratch.live,
            scratch.front,
            scratch.seen,
            scratch.found,
            scratch.marked,
            _ALONE_EDGES,
            *self._left,
            self._sums,
        )
        self._launch(
            "pull_rest",
            edges.columns.size,
            *self._left,
            self._sums,
            edges.columns,
            scratch.first_id,
            _log(width),
            sources,
            scratch.front,
            scratch.seen,
            scratch.found,
            scratch.marked,
        )

    def settle(self, scratch: BatchScratch) -> SettledRows:
        part = scratch.partition
        if scratch.queue is None:
            scratch.queue = self.xp.empty(part.stripe.n_local, np.uint32)
        self._sums[_ROWS:].fill(0)
        marked = scratch.marked[scratch.own_words]
        self._launch(
            "settle",
            _LANES * marked.size,
            part.row_offsets,
            marked.size,
            _log(scratch.width),
            marked,
            scratch.seen,
            scratch.own(scratch.found),
            scratch.queue,
            self._sums,
        )
        sums = self._sums[: _COUNTS + 64 * scratch.width].get().astype(np.int64)
        rows, degrees, bits, bit_degrees = sums[_ROWS:_COUNTS].tolist()
        scratch.queued, scratch.queued_edges = rows, degrees
        return SettledRows(rows, degrees, bits, bit_degrees, int(sums[_LOOKED]), sums[_COUNTS:])

    def note(self, scratch: BatchScratch, distance: int, kept: RankBatch) -> None:
        (distances, item, nearest), sums = kept.flat, kept.sums
        if distances.size or nearest.size or sums.size:
            marked = scratch.marked[scratch.own_words]
            self._launch(
                "note",
                _LANES * marked.size,
                distance,
                marked.size,
                _log(scratch.width),
                marked,
                scratch.own(scratch.found),
                kept.sources,
                distances,
                item if distances.size else 0,
                nearest if nearest.size else 0,
                self.xp.asarray(kept.terms(np.array([distance]))) if sums.size else 0,
                sums,
                sums.shape[1],
            )
        if kept.target_rows.size:
            words = scratch.own(scratch.found).reshape(-1, scratch.width)[kept.target_rows]
            bits = self.xp.unpackbits(words.view(np.uint8).reshape(-1), bitorder="little")
            kept.at_targets[bits.reshape(kept.target_rows.size, -1)[:, : kept.sources] > 0] = distance

    def pays(self, shared: Overlap) -> bool:
        together = shared.levels * _LEVEL_SECONDS + shared.vertices * _VERTEX_SECONDS
        return shared.sources * shared.levels * _ALONE_LEVEL_SECONDS > together

    def clear(self, width: int, bits: Any, words: Any) -> None:
        self._launch("clear", _LANES * bits.size, bits.size, _log(width), bits, words)

    def take(self, width: int, of_peer: tuple[Any, Any], bits: Any, words: Any) -> None:
        """Add the words of a peer's vertices, whose bitmap and words are mapped, to those of the same vertices here."""
        self._launch("take", _LANES * bits.size, bits.size, _log(width), *of_peer, bits, words)

    def pack(
        self, width: int, vertex: int, end: int, bits: Any, words: Any, bin_rows: Any, bin_parents: Any
    ) -> tuple[int, int]:
        """See ``BatchOperators``. Each vertex has an entry of its own."""
        first, xp = vertex // 32 * 32, self.xp
        set_bits = xp.unpackbits(bits[first // 32 : end // 32].view(np.uint8), bitorder="little")
        set_bits[: vertex - first] = 0
        most = bin_rows.size // (1 + width)
        vertices = first + xp.flatnonzero(set_bits)
        following = int(vertices[most]) if vertices.size > most else end
        vertices = vertices[:most]
        entries = xp.empty((vertices.size, 1 + width), np.uint64)
        entries[:, 0] = vertices.astype(np.uint64) | np.uint64(1 << 32)
        entries[:, 1:] = words.reshape(-1, width)[vertices]
        halves = entries.reshape(-1).view(np.uint32)
        bin_rows[: entries.size], bin_parents[: entries.size] = halves[::2], halves[1::2]
        return following, int(entries.size)

    def unpack(self, width: int, bin_rows: Any, bin_parents: Any, bits: Any, words: Any) -> None:
        xp = self.xp
        entries = xp.empty((bin_rows.size // (1 + width), 1 + width), np.uint64)
        halves = entries.reshape(-1).view(np.uint32)
        halves[::2], halves[1::2] = bin_rows, bin_parents
        vertices = bin_rows[:: 1 + width].astype(np.int64)
        words.reshape(-1, width)[vertices] |= entries[:, 1:]
        marked = xp.unpackbits(bits.view(np.uint8), bitorder="little")
        marked[vertices] = 1
        bits[:] = xp.packbits(marked, bitorder="little").view(np.uint32)

    def take_labels(self, labels: Any, place: int, kept: RankBatch, largest: int) -> NDArray[np.int64]:
        if kept.seen.size:
            of_word = kept.seen.reshape(labels.size, -1)[:, place // 64]
            of_word |= (labels >= 0).astype(np.uint64) << np.uint64(place % 64)
        if kept.distances.size:
            kept.distances[:, place] = labels
        if kept.nearest.size:
            nearer = (labels >= 0) & ((kept.nearest[:, 0] < 0) | (labels < kept.nearest[:, 0]))
            kept.nearest[:, 0] = self.xp.where(nearer, labels, kept.nearest[:, 0])
            kept.nearest[:, 1] = self.xp.where(nearer, np.int32(place), kept.nearest[:, 1])
        if kept.sums.size:
            terms = kept.terms(np.arange(largest + 1))
            # An unreached row has the label -1, and takes the last one.
            kept.sums += self.xp.asarray(np.vstack([terms, np.zeros_like(terms[:1])]))[labels]
        if kept.target_rows.size:
            kept.at_targets[:, place] = labels[kept.target_rows]
        counts: NDArray[np.int64] = self.xp.bincount(labels + np.int32(1), minlength=largest + 2).get()[1:]
        return counts.astype(np.int64)

    def _load(self) -> Callable[..., None]:
        """Return what launches the kernels."""
        return placed_launches(BATCH, "dbfs_batch_", KERNELS)

    def _launch(self, kernel: str, threads: int, *arguments: Any) -> None:
        """Launch a kernel with integers and arrays, for so many threads or more work than that."""
        if threads:
            self._launches(kernel, blocks_for(threads), THREADS, *arguments)


def _log(width: int) -> int:
    return width.bit_length() - 1
