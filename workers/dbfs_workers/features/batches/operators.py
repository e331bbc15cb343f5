"""The interface of the phases of a level of a batch on one rank.

``on_cpu`` and ``on_gpu`` implement the interface, and ``levels`` calls it. Arrays are of the device's module unless
said otherwise. Vertex ``i`` has the words ``i * width`` to ``(i + 1) * width - 1`` of an array,
with a bit for each source; bitmaps have a bit a vertex, and a vertex whose bit is clear has no bit set in its words.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.batches.path_sums import PathSums
from dbfs_workers.features.batches.storage import BatchScratch, RankBatch
from dbfs_workers.search.partition.partition import Csr


class SettledRows(NamedTuple):
    """What a rank's rows have become of a level.

    Attributes:
        rows: rows of the next frontier.
        degrees: the sum of their degrees.
        bits: their new bits.
        bit_degrees: the sum of the degrees times the new bits.
        looked: edges that the last ``pull`` has looked at.
        counts: int64, for each source the rows with its bit; NumPy's.
    """

    rows: int
    degrees: int
    bits: int
    bit_degrees: int
    looked: int
    counts: NDArray[np.int64]


class ChosenRows(NamedTuple):
    """Some rows of the rank's frontier.

    Attributes:
        rows: uint32, the rows on a GPU; their bitmap on a CPU.
        size: used elements of ``rows``.
        edges: the sum of their degrees.
    """

    rows: NDArray[np.uint32]
    size: int
    edges: int


class Overlap(NamedTuple):
    """How much the sources of a batch have shared so far, over all ranks.

    Attributes:
        sources: their number.
        levels: levels so far.
        vertices: vertices of all frontiers.
        bits: their bits.
        n: vertices of the graph.
    """

    sources: int
    levels: int
    vertices: int
    bits: int
    n: int


class BatchOperators(Protocol):
    """The phases of a level of a batch on one kind of device, for one scratch.

    Attributes:
        swept: sources of a block of ``path_sums``.
    """

    swept: int

    def path_sums(self, out: Csr, into: Csr, *, of_edges: bool) -> PathSums:
        """Return what sweeps over the paths of blocks of sources.

        Args:
            out, into: the out-edges and in-edges of the rows of all ranks, by internal id.
            of_edges: whether the sums of edges are wanted.
        """

    def choose(self, scratch: BatchScratch, sources: NDArray[np.uint64]) -> ChosenRows:
        """Return the rows of the rank's frontier that have a bit of some sources: uint64[width], NumPy's."""

    def push(self, scratch: BatchScratch, chosen: ChosenRows | None = None) -> int:
        """Add the words of the rank's frontier to those of the neighbours in ``found``, and mark these vertices.

        Args:
            chosen: the rows of the frontier that are pushed; None for all.

        Returns:
            The number of edges.
        """

    def pull(self, scratch: BatchScratch, wanted: NDArray[np.uint64]) -> None:
        """Search the in-neighbours of each of the rank's rows for bits of the whole frontier that the row lacks.

        A row is done once it has all bits that are wanted. ``found`` and ``marked`` are updated, which have nothing of
        the rank's rows before.

        Args:
            wanted: uint64[width], some of the frontier's bits; NumPy's.
        """

    def settle(self, scratch: BatchScratch) -> SettledRows:
        """Reduce ``found`` to the new bits of the rank's rows, which become seen; unmark the rows without any."""

    def note(self, scratch: BatchScratch, distance: int, kept: RankBatch) -> None:
        """Note the distance of the rows that ``settle`` has left marked."""

    def pays(self, shared: Overlap) -> bool:
        """Return whether the batch takes less time than one source after another would."""

    def clear(self, width: int, bits: NDArray[np.uint32], words: NDArray[np.uint64]) -> None:
        """Clear a bitmap, and the words of its vertices."""

    def pack(
        self,
        width: int,
        vertex: int,
        end: int,
        bits: NDArray[np.uint32],
        words: NDArray[np.uint64],
        bin_rows: NDArray[np.uint32],
        bin_parents: NDArray[np.uint32],
    ) -> tuple[int, int]:
        """Write the words of a bitmap's vertices into a bin, as far as it holds them.

        Args:
            width: words of a vertex.
            vertex, end: the first vertex that is written, and the one after the last.
            bits, words: the bitmap and the words.

        Returns:
            (the next vertex to write, the entries of the bin).
        """

    def unpack(
        self,
        width: int,
        bin_rows: NDArray[np.uint32],
        bin_parents: NDArray[np.uint32],
        bits: NDArray[np.uint32],
        words: NDArray[np.uint64],
    ) -> None:
        """Add the words that ``pack`` wrote into a bin to those of a bitmap's vertices."""

    def take_labels(self, labels: NDArray[np.int32], place: int, kept: RankBatch, largest: int) -> NDArray[np.int64]:
        """Take the labels of one source's traversal into what the rank keeps.

        Args:
            labels: int32, by row the distance, -1 unreached.
            place: the source's place in the batch. Sources are taken in their order.
            kept: updated, but for its counts. There is room for the distances.
            largest: the largest distance that counts.

        Returns:
            int64[largest + 1], the rows by distance; NumPy's.
        """
