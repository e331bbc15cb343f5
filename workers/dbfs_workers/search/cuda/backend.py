"""The CUDA backend: the phases as kernels over CuPy arrays of the current GPU.

The kernels are in ``cuda/kernels/phases/``: ``phases.cu`` and ``levels.cu``. All launches go to the default stream. A
phase returns when its counts are on the host. The order of the vertices within a bin or a queue differs from run to
run, and so does the valid parent that a vertex gets.
"""

from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import GraphTooLargeError
from dbfs_workers.search.backend import EdgeFrontier, OutgoingBins, OwnerBins
from dbfs_workers.search.cuda import owner_bins
from dbfs_workers.search.cuda.failures import typed_errors
from dbfs_workers.search.cuda.kernels.sources import LEVELS, PHASES
from dbfs_workers.search.cuda.launch_sizes import (
    LINE_WORDS,
    MOST_BLOCKS,
    MOST_THREADS,
    SEARCH_WORDS,
    THREADS,
    WARP,
    blocks_for,
)
from dbfs_workers.search.cuda.module import load
from dbfs_workers.search.cuda.words import SearchSum, TopDownSum
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import Csr, Partition
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.stripe import Stripe

KERNELS: Final = {
    PHASES: (
        *("degrees", "degree_sums", "edge_count", "expand"),
        *("count_by_owner", "copy_to_bins", "contract"),
    ),
    LEVELS: ("top_down", "bottom_up", "mark"),
}
_NULL: Final = np.uint64(0)


class CudaBackend:
    """The ``Backend`` on one GPU. For its kernels a null pointer means "no array"."""

    name = "cuda"

    def __init__(self) -> None:
        import cupy

        self.xp: Any = cupy
        # Looked up here, since a look-up at every launch costs time.
        self._kernels = {
            name: load(source).get_function(f"dbfs_{name}") for source, names in KERNELS.items() for name in names
        }

    def expand(self, edges: Csr, frontier: Any, first_id: int, with_parents: bool) -> EdgeFrontier:
        """Reads 4 bytes of columns an edge and 36 of a vertex; writes 4 bytes an edge (8 with parents), 24 a vertex."""
        starts, ends = self.frontier_edges(edges.row_offsets, frontier)
        total = int(ends[-1]) if frontier.size else 0
        neighbours = self.xp.empty(total, np.uint32)
        parents = self.xp.empty(total, np.uint32) if with_parents else None
        self._launch(
            "expand",
            total,
            frontier,
            starts,
            ends,
            np.int64(frontier.size),
            edges.columns,
            np.uint32(first_id),
            neighbours,
            _pointer(parents),
        )
        # Without this wait the work would count as the next phase's time.
        self.xp.cuda.get_current_stream().synchronize()
        return EdgeFrontier(neighbours, parents)

    def filter_partition(self, edges: EdgeFrontier, visited: Any, stripe: Stripe) -> OwnerBins:
        """Cull, and sort into bins by a radix pass (Merrill 2012, section 6): ``owner_bins.cuh``.

        Reads 5 bytes and probes one byte an edge, writes 1; reads and writes 4 bytes a vertex kept, 8 with parents.

        Raises:
            GraphTooLargeError: there are more than 255 ranks.
        """
        most = owner_bins.MOST_OWNERS
        if stripe.p > most:
            raise GraphTooLargeError(f"the CUDA backend bins for at most {most} ranks; this graph has {stripe.p}")
        xp, size, n_local, ranks = self.xp, edges.neighbours.size, np.uint32(stripe.n_local), np.uint32(stripe.p)
        blocks = owner_bins.blocks_for(size, THREADS, MOST_BLOCKS) if size else 0
        owners = xp.empty(size, np.uint8)
        counts = xp.empty((stripe.p, blocks), np.uint64)
        self._launch(
            "count_by_owner",
            blocks * THREADS,
            edges.neighbours,
            np.int64(size),
            visited,
            n_local,
            ranks,
            owners,
            counts,
        )
        ends = xp.cumsum(counts)
        offsets = np.zeros(stripe.p + 1, np.int64)
        if size:
            offsets[1:] = ends[blocks - 1 :: blocks].get()
        rows = xp.empty(offsets[-1], np.uint32)
        parents = None if edges.parents is None else xp.empty(offsets[-1], np.uint32)
        if rows.size:
            self._launch(
                "copy_to_bins",
                blocks * THREADS,
                edges.neighbours,
                _pointer(edges.parents),
                owners,
                np.int64(size),
                n_local,
                ranks,
                ends,
                rows,
                _pointer(parents),
            )
            xp.cuda.get_current_stream().synchronize()
        return OwnerBins(offsets, rows, parents)

    def contract(
        self,
        rows: Any,
        parents: Any | None,
        own_visited: Any,
        distance: int,
        labels: RankLabels,
        discovered: Any,
        *,
        own: bool = False,
        team: Any | None = None,  # noqa: ARG002
    ) -> int:
        """Reads 4 bytes a vertex (8 with parents), probes a bit or a label, writes the label and the frontier."""
        count = self.xp.zeros(1, np.uint64)
        self._launch(
            "contract",
            rows.size,
            rows,
            _pointer(parents),
            np.int64(rows.size),
            own_visited,
            np.uint32(own),
            np.int32(distance),
            labels.distances,
            _pointer(labels.predecessors),
            discovered,
            count,
        )
        return int(count.item()) if rows.size else 0

    def top_down(
        self, scratch: Scratch, labels: RankLabels, distance: int, bins: OutgoingBins
    ) -> tuple[int, int, int, bool]:
        """Reads 4 bytes and probes one bit an edge, reads 60 bytes a vertex and writes 24; writes only discoveries."""
        partition, frontier, first_id = scratch.partition, scratch.frontier, np.uint32(scratch.first_id)
        starts, ends = self.frontier_edges(partition.row_offsets, frontier)
        before = np.zeros((TopDownSum.ENDS + bins.bin_ends.size, LINE_WORDS), np.uint64)
        before[TopDownSum.ENDS :, 0] = bins.bin_ends
        sums = self.to_device(before)
        self._launch(
            "top_down",
            # All blocks for any frontier: the number of its edges is on the GPU, and fetching it would make the host
            # wait.
            MOST_BLOCKS * THREADS if frontier.size else 0,
            frontier,
            starts,
            ends,
            np.int64(frontier.size),
            partition.columns,
            first_id,
            np.uint32(partition.stripe.n_local),
            scratch.visited,
            bins.bin_rows,
            bins.bin_parents,
            np.int32(distance),
            labels.distances,
            _pointer(labels.predecessors),
            scratch.next_queue,
            sums,
        )
        found = sums.get()[:, 0].astype(np.int64).tolist()
        inspected, counts = found[TopDownSum.EDGES], found[TopDownSum.ENDS :]
        own = counts[partition.rank]
        counts[partition.rank] = 0
        sent = sum(counts) - int(bins.bin_ends.sum())
        bins.bin_ends[:] = counts
        # Bins on a GPU hold ``n_local`` entries and so never are full.
        return inspected, own, sent, False

    def bottom_up(self, scratch: Scratch, labels: RankLabels, distance: int, found_bits: Any) -> tuple[int, int, int]:
        """Reads 16 bytes of offsets a row, and 4 bytes and one bit an edge up to the row's first parent."""
        parents = scratch.partition.parents
        assert parents is not None
        sums = self.xp.zeros((len(SearchSum), LINE_WORDS), np.uint64)
        self._launch(
            "bottom_up",
            -(-scratch.own_visited.size // SEARCH_WORDS) * WARP,
            parents.row_offsets,
            parents.columns,
            scratch.partition.row_offsets,
            np.uint32(scratch.own_visited.size),
            scratch.frontier_bits,
            scratch.own_visited,
            found_bits,
            np.int32(distance),
            labels.distances,
            _pointer(labels.predecessors),
            scratch.next_queue,
            sums,
        )
        found = sums.get()[:, 0].tolist()
        return found[SearchSum.SEARCHED], found[SearchSum.VERTICES], found[SearchSum.EDGES]

    def mark(self, rows: Any, bits: Any) -> None:
        """Reads 4 bytes a vertex, writes one bit a row of the rank."""
        bits.fill(0)
        self._launch("mark", rows.size, rows, np.int64(rows.size), bits)

    def absorb(self, slice_bits: Any, frontier_bits: Any, visited: Any) -> None:
        """Reads two bits a row and writes two."""
        frontier_bits[:] = slice_bits
        visited |= slice_bits

    def edge_count(self, partition: Partition, frontier: Any) -> int:
        """Reads 4 + 16 bytes a vertex."""
        total = self.xp.zeros(1, np.uint64)
        size = np.int64(frontier.size)
        self._launch("edge_count", frontier.size, partition.row_offsets, frontier, size, total)
        return int(total.item()) if frontier.size else 0

    def typed_errors(self, where: str) -> AbstractContextManager[None]:
        """Return a context that raises GraphTooLargeError and DeviceFailedError for CUDA's and CuPy's errors."""
        return typed_errors(where)

    def to_device(self, array: NDArray[Any]) -> Any:
        """Return a copy on the GPU. CuPy's ``asarray`` takes 32 us for a small array, to get pinned host memory."""
        copied = self.xp.empty(array.shape, array.dtype)
        copied.set(array)
        return copied

    def to_host(self, array: Any, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return a copy in host memory."""
        copied: NDArray[Any] = array.get(out=out)
        return copied

    def frontier_edges(self, row_offsets: Any, frontier: Any) -> tuple[Any, Any]:
        """Return the first edge of each list of a frontier, and the running sums of the degrees, for ``edges.cuh``."""
        size = frontier.size
        starts, degrees = self.xp.empty(size, np.int64), self.xp.empty(size, np.int64)
        arguments = (row_offsets, frontier, np.int64(size), starts, degrees)
        if size <= MOST_THREADS:
            if size:
                self._kernels["degree_sums"]((1,), (MOST_THREADS,), arguments)
            return starts, degrees
        self._launch("degrees", size, *arguments)
        return starts, self.xp.cumsum(degrees)

    def _launch(self, kernel: str, threads: int, *arguments: Any, shared: int = 0) -> None:
        if threads:
            self._kernels[kernel]((blocks_for(threads),), (THREADS,), arguments, shared_mem=shared)


def _pointer(array: Any | None) -> Any:
    return _NULL if array is None else array
