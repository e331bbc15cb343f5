"""The labels of one traversal on one rank, and the Dask keys under which labels are published."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.storage.label_pool import LabelPool
from dbfs_workers.storage.stripe import NO_VERTEX, WORD_BITS, Stripe, own_rows

UNREACHED: Final = -1


@dataclass(frozen=True)
class RankLabels:
    """The labels of one rank's rows, padding included. Arrays are NumPy's or CuPy's.

    Attributes:
        distances: int32[n_local], -1 unreached.
        predecessors: uint32[n_local] internal ids, ``NO_VERTEX`` unreached; None if the traversal records none.
    """

    distances: NDArray[np.int32]
    predecessors: NDArray[np.uint32] | None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.distances.nbytes + (0 if self.predecessors is None else self.predecessors.nbytes)

    @classmethod
    def begun(cls, pool: LabelPool, owner: object, *, predecessors: bool) -> "RankLabels":
        """Return labels that are unreached in the rows without in-edges; see ``LabelPool.begun``."""
        return cls(pool.begun(owner, np.int32), pool.begun(owner, np.uint32) if predecessors else None)

    @classmethod
    def unreached(cls, xp: Any, stripe: Stripe, *, predecessors: bool, pool: LabelPool | None = None) -> "RankLabels":
        """Return the labels of a rank that has reached nothing, as arrays of ``xp`` (NumPy, CuPy).

        Args:
            xp: the module of the arrays.
            stripe: the graph's stripe.
            predecessors: whether there are predecessors.
            pool: where the memory comes from; only with NumPy. None for new memory.
        """

        def full(value: Any, dtype: Any) -> NDArray[Any]:
            filled: NDArray[Any] = xp.full(stripe.n_local, value, dtype) if pool is None else pool.full(value, dtype)
            return filled

        return cls(full(UNREACHED, np.int32), full(NO_VERTEX, np.uint32) if predecessors else None)

    def of_rows(self, stripe: Stripe, rank: int) -> tuple[NDArray[np.int32], NDArray[np.int64] | None]:
        """Return the labels without padding: int32 distances, and int64 predecessors as vertices, -1 unreached.

        In a graph ordered by degree the predecessors are positions. They are None if the traversal records none.
        """
        owned = stripe.owned(rank)
        if self.predecessors is None:
            return self.distances[:owned], None
        ids = self.predecessors[:owned].astype(np.int64)
        vertices = stripe.vertex(ids)
        vertices[ids == NO_VERTEX] = UNREACHED
        return self.distances[:owned], vertices


def label_bytes(stripe: Stripe, *, predecessors: bool) -> int:
    """Return ``RankLabels.nbytes`` of one traversal: 4 bytes per row for each label."""
    return (8 if predecessors else 4) * stripe.n_local


def label_sources(
    xp: Any, stripe: Stripe, rank: int, sources: Sequence[int], visited: NDArray[np.uint32], labels: RankLabels
) -> NDArray[np.uint32]:
    """Label the sources that a rank owns, each as its own predecessor, and mark them visited.

    Args:
        xp: the module of all arrays, NumPy or CuPy.
        stripe: how the graph lies on the ranks.
        rank: the rank.
        sources: vertices, repetitions allowed.
        visited: uint32[stripe.words], the rank's bitmap over all internal ids; updated.
        labels: the rank's labels; updated.

    Returns:
        uint32 local ids of the labelled vertices, ascending and each once.
    """
    own = own_rows(stripe, rank, sources)
    ids = own.astype(np.int64) + rank * stripe.n_local
    set_bits(xp, visited, ids)
    rows: NDArray[np.uint32] = xp.asarray(own)
    labels.distances[rows] = 0
    if labels.predecessors is not None:
        labels.predecessors[rows] = xp.asarray(ids.astype(np.uint32))
    return rows


def set_bits(xp: Any, bitmap: NDArray[np.uint32], places: NDArray[np.int64]) -> None:
    """Set bits of a bitmap of ``xp`` (NumPy, CuPy); ``places`` is NumPy's, each once."""
    words, bits = places // WORD_BITS, (1 << (places % WORD_BITS)).astype(np.uint32)
    if places.size > 1:
        # The bits of a word are joined first: CuPy does not define the result of indexing one word twice.
        words, which = np.unique(words, return_inverse=True)
        joined = np.zeros(words.size, np.uint32)
        np.bitwise_or.at(joined, which, bits)
        bits = joined
    bitmap[xp.asarray(words)] |= xp.asarray(bits)


def label_key(label: str, run_id: str, index: int, rank: int) -> tuple[str, int, int]:
    """Return the Dask key of one rank's ``label`` (distances, predecessors) of traversal ``index`` of a run."""
    return (f"{label}-{run_id}", index, rank)
