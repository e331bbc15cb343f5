"""A batch as the purpose of a run: many sources, each traversed from by itself, and what is kept of them."""

from dataclasses import dataclass
from typing import Final

from dbfs_workers.base.spec import Purpose, RunBytes, RunSpec, TraversalSpec

WORD_SOURCES: Final = 64
"""Sources of a word."""

OF_ROWS: Final = ("betweenness", "betweenness_squares", "betweenness_reached")
"""What is kept of the sweeps over the shortest paths by row: see ``storage.RankBatch.sums``."""

OF_DISTANCES: Final = ("reaching", "distance_sum", "distance_squares", "inverse_sum", "inverse_squares")
"""What is kept of the distances by row: see ``storage.RankBatch.sums``."""

WHOLE: Final = frozenset(OF_DISTANCES[:3])
"""Names of ``OF_DISTANCES`` whose sums are whole numbers."""

SWEPT: Final = frozenset({*OF_ROWS, "edge_betweenness"})
"""What is kept of the sweeps: see ``path_sweeps``."""


def width_of(sources: int, backend: str) -> int:
    """Return the words of a vertex: on GPUs a power of two, since as many lanes of a warp take a vertex."""
    words = max(1, -(-sources // WORD_SOURCES))
    return words if backend == "cpu" else 1 << (words - 1).bit_length()


@dataclass(frozen=True)
class Batch(Purpose):
    """A run whose specs are batches. A batch keeps the distances of its targets, and does not stop.

    Attributes:
        keeps: ``counts``, and any of ``reached``, ``distances``, ``targets``, ``nearest``, and of ``OF_DISTANCES`` or
            ``SWEPT``.
        copied: whether each rank copies the rows of all ranks, and traverses from its share of the sources. Only where
            counts alone are kept.
    """

    by_source = True
    keeps: tuple[str, ...]
    copied: bool = False

    def nbytes(self, specs: RunSpec, traversals: int, ranks: int, rows: int) -> RunBytes:
        most = max(map(len, specs.sources))
        working, each = self.bytes_of(specs.options, most, ranks, rows)
        return RunBytes(
            working + traversals * each,
            f"the bits and results of {traversals:,} times {most:,} sources",
            "make the batch of fewer sources, or keep less of it",
        )

    def bytes_of(self, spec: TraversalSpec, sources: int, ranks: int, rows: int) -> tuple[int, int]:
        """Return the bytes of a rank's working memory for so many sources, and of what it keeps of them.

        Distances are counted with a byte each: see ``RankBatch.hold``. What sweeps take is checked by ``path_sweeps``,
        and a copy of all rows by ``copied_rows``.
        """
        if self.copied:
            ranks, rows, sources = 1, ranks * rows, -(-sources // ranks)
        ids, words = ranks * rows, width_of(sources, spec.backend)
        working = 8 * words * (rows + 2 * ids) + 2 * ids // 8 + 8 * rows * (spec.backend == "cuda")
        each_row = 8 * words * ("reached" in self.keeps) + sources * ("distances" in self.keeps)
        if SWEPT & set(self.keeps):
            working += rows * sources
            each_row += 24
        each_row += 8 * len(set(OF_DISTANCES) & set(self.keeps))
        return working, rows * (each_row + 8 * ("nearest" in self.keeps)) + 4 * len(spec.targets) * sources


def batch_of(spec: TraversalSpec) -> Batch:
    """Return the purpose of a batch's spec."""
    assert isinstance(spec.purpose, Batch)
    return spec.purpose
