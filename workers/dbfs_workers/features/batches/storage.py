"""What a rank keeps of a batch, and its working memory: a bit for each vertex and source, in words of 64."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import NoRoomForLabelsError
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.batches.purpose import OF_DISTANCES, OF_ROWS, SWEPT, WHOLE, WORD_SOURCES, batch_of, width_of
from dbfs_workers.search.partition.labels import RankLabels, in_type, set_bits
from dbfs_workers.search.partition.partition import Partition, on_host, require_present
from dbfs_workers.search.partition.stripe import Stripe, own_rows

# Below, sums of whole numbers in float64 are exact.
_EXACT: Final = 2**53

SWEPT_SOURCES: Final = 16
"""Sources of a sweep. The numbers of a row fill two cache lines, which an edge reads at random."""


def distance_type(largest: int) -> np.dtype[Any]:
    """Return the smallest type of distances up to ``largest``; one more value, of all ones, stands for unreached."""
    return np.dtype(np.uint8 if largest < 2**8 - 1 else np.uint16 if largest < 2**16 - 1 else np.int32)


def joined(label: str, groups: Sequence[NDArray[Any]], places: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return what a rank has kept of all groups of a batch, with the sources in another order.

    Args:
        label: ``distances``, or ``reached`` for bits.
        groups: as ``RankBatch.by_name`` returns them; all groups but the last have whole words of sources.
        places: for each source of the new order, its place in the groups.
        dtype: the type of distances.
    """
    if label == "distances":
        return np.hstack([in_type(group, dtype) for group in groups])[:, places]
    bits = np.unpackbits(np.hstack(groups), axis=1, bitorder="little")
    return np.packbits(bits[:, places], axis=1, bitorder="little")


def distance_terms(names: Sequence[str], distances: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return float64[distances, names], what a source at each distance adds to sums of ``OF_DISTANCES``.

    A source at distance 0, the row itself, adds nothing.
    """
    far = distances > 0
    length = distances.astype(np.float64)
    inverse = np.divide(1, length, where=far, out=np.zeros(length.size))
    terms = dict(zip(OF_DISTANCES, (far.astype(np.float64), length, length**2, inverse, inverse**2), strict=True))
    return np.array([terms[name] for name in names]).reshape(len(names), length.size).T.copy()


def nearest_of(groups: Sequence[NDArray[np.int32]], firsts: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the nearest source of each row among all groups, the first one of several: see ``RankBatch.nearest``.

    Args:
        groups: by group, its nearest sources.
        firsts: the place of each group's first source.
    """
    found = np.full_like(groups[0], -1)
    for group, first in zip(groups, firsts, strict=False):
        nearer = (group[:, 0] >= 0) & ((found[:, 0] < 0) | (group[:, 0] < found[:, 0]))
        found[nearer] = group[nearer] + np.array([0, first], np.int32)
    return found


@dataclass
class RankBatch(RankLabels):
    """What a rank keeps of a batch, padding included, on its device but for ``counts``. Arrays not kept are empty.

    Attributes:
        distances: [n_local, sources] of a type of ``distance_type``.
        keeps: see ``purpose.Batch``.
        counts: int64[distances, sources], the rank's vertices at each distance; complete at the end.
        seen: uint64[n_local * width], the sources that have reached each row.
        target_rows: uint32, local ids of the rank's targets, ascending, each once.
        at_targets: int32[target_rows, sources], -1 unreached.
        nearest: int32[n_local, 2], by row the distance of its nearest source and the source's place, -1 unreached.
        sums: float64[n_local, kept], by row the sums over the sources. Those of ``OF_ROWS``, empty until the sweeps,
            are of the sources' dependencies on the row (Brandes 2001), of the squares, and the number of other vertices
            among the sources that reach the row. Those of ``OF_DISTANCES`` are this number, and the sums of the
            distances from these sources, of the squares, of the inverse distances and of their squares. On the host
            sums of ``WHOLE`` alone are of the smallest type that holds them.
        edge_sums: float64[edges * 2], by edge in the order of the rows the sums of the dependencies on the edge, and of
            their squares; 0 for an edge that repeats the one before. Empty until the sweeps.
    """

    distances: NDArray[Any]
    sources: int
    keeps: tuple[str, ...]
    counts: NDArray[np.int64]
    seen: NDArray[np.uint64]
    target_rows: NDArray[np.uint32]
    at_targets: NDArray[np.int32]
    nearest: NDArray[np.int32]
    sums: NDArray[Any]
    edge_sums: NDArray[np.float64]

    @classmethod
    def empty(cls, xp: Any, stripe: Stripe, rank: int, spec: TraversalSpec) -> "RankBatch":
        """Return what a rank keeps of a batch that has reached nothing, as arrays of ``xp`` (NumPy, CuPy)."""
        sources, keeps, targets = len(spec.sources), batch_of(spec).keeps, own_rows(stripe, rank, spec.targets)

        def rows(*names: str) -> int:
            return stripe.n_local if {*names} & {*keeps} else 0

        return cls(
            distances=xp.full((rows("distances", *SWEPT), sources), 255, np.uint8),
            predecessors=None,
            sources=sources,
            keeps=keeps,
            counts=np.zeros((0, sources), np.int64),
            seen=xp.zeros(rows("reached") * width_of(sources, spec.backend), np.uint64),
            target_rows=xp.asarray(targets),
            at_targets=xp.full((targets.size, sources), -1, np.int32),
            nearest=xp.full((rows("nearest"), 2), -1, np.int32),
            sums=xp.zeros((rows(*OF_DISTANCES), len({*OF_DISTANCES} & {*keeps}))),
            edge_sums=xp.empty(0),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        kept = self.distances, self.counts, self.seen, self.at_targets, self.nearest, self.sums, self.edge_sums
        return sum(each.nbytes for each in kept)

    @property
    def row_sums(self) -> list[str]:
        """The names of ``sums``."""
        return [name for name in (*OF_ROWS, *OF_DISTANCES) if name in self.keeps]

    def terms(self, distances: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return ``distance_terms`` of the sums that are added up level by level; none without such sums."""
        names = [name for name in OF_DISTANCES if name in self.keeps]
        return distance_terms(names, distances) if names else np.empty((0, 0))

    @property
    def flat(self) -> tuple[NDArray[np.uint8], int, NDArray[np.int32]]:
        """The bytes of ``distances``, the bytes of one of them, and ``nearest``, all flat, as kernels take them."""
        flat = self.distances.reshape(-1)
        return flat.view(np.uint8), flat.itemsize, self.nearest.reshape(-1)

    def to_host(self) -> "RankBatch":
        names = "distances", "seen", "target_rows", "at_targets", "nearest", "edge_sums"
        largest = self.sources * (len(self.counts) - 1) ** 2
        # The sums of a name lie in one piece, so that they travel without a copy, and whole numbers in few bytes.
        if WHOLE.issuperset(self.row_sums) and largest < _EXACT:
            sums = on_host(self.sums.T.astype(np.min_scalar_type(largest), order="C"))
        else:
            sums = np.ascontiguousarray(on_host(self.sums).T)
        return replace(self, sums=sums.T, **{name: on_host(getattr(self, name)) for name in names})

    def hold(self, largest: int, free_bytes: Callable[[], int]) -> None:
        """Make room for distances up to ``largest``.

        Raises:
            NoRoomForLabelsError: distances of that size do not fit.
        """
        dtype = distance_type(largest)
        if self.distances.size and dtype.itemsize > self.distances.itemsize:
            needed, free = self.distances.size * dtype.itemsize, free_bytes()
            if needed > free:
                raise NoRoomForLabelsError(
                    f"the batch has distances of {largest:,} and more, which take {dtype.itemsize} bytes each: "
                    f"{needed:,} bytes, {max(0, free):,} bytes are free; make it of fewer sources, or keep less"
                )
            self.distances = in_type(self.distances, dtype)

    @property
    def by_source(self) -> NDArray[Any]:
        """``counts`` in the smallest type: a road network has thousands of distances, with few vertices each."""
        return self.counts.astype(np.min_scalar_type(self.counts.max(initial=0)))

    def by_name(self, stripe: Stripe, rank: int) -> dict[str, NDArray[Any]]:
        """See ``RankLabels``: ``keeps`` but for counts; ``reached`` is uint8[rows, bytes], a bit for each source."""
        owned = stripe.owned(rank)
        reached = self.seen.view(np.uint8).reshape(stripe.n_local, -1)[:owned, : -(-self.sources // 8)]
        kept: dict[str, NDArray[Any]] = {
            "reached": reached,
            "distances": in_type(self.distances, distance_type(len(self.counts) - 1))[:owned],
            "targets": self.at_targets,
            "nearest": self.nearest[:owned],
            "edge_betweenness": self.edge_sums.reshape(-1, 2),
            **{name: column[:owned] for name, column in zip(self.row_sums, self.sums.T, strict=True)},
        }
        return {name: kept[name] for name in self.keeps if name != "counts"}


Zeros = Callable[[int, Any], Any]
"""Makes an array of so many zeros of a type, in a memory that fits its use."""


def zeros_in_lines(size: int, dtype: Any) -> NDArray[Any]:
    """Return zeros that begin with a line of the caches, so that a vertex has as few lines as may be."""
    nbytes = size * np.dtype(dtype).itemsize
    memory = np.zeros(nbytes + 64, np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + nbytes].view(dtype)


class BatchScratch:
    """One rank's working memory of a batch: see ``operators``.

    Args:
        partition: the rank's edges.
        xp: the module of all arrays, NumPy or CuPy.
        zeros: makes the bitmaps and words.
        in_edges: whether the partition has what bottom-up levels need.
        together: whether sources share levels. Else nothing here is used.

    Attributes:
        partition, xp: see above.
        max_degree: 0; a batch does without.
        first_id: internal id of the rank's row 0.
        width: words of a vertex.
        live: uint32[words], bitmap of the frontier: of the rank's rows, and of others in a bottom-up level.
        front: uint64[ids * width], the frontier's words.
        marked, found: the same of what a level finds.
        turned: whether the two pairs have changed places an odd number of times.
        seen: uint64[n_local * width], the sources that have reached each row.
        queue: uint32[n_local], the rank's frontier: ``queued`` rows with ``queued_edges`` edges. None on CPUs.
        frontier_bits: the same as ``live`` if the partition has what bottom-up levels need; else None.
    """

    max_degree = 0

    def __init__(self, partition: Partition, xp: Any, zeros: Zeros, *, in_edges: bool, together: bool) -> None:
        self.partition, self.xp, self._zeros, self._together = partition, xp, zeros, together
        self.first_id, self.width, self.turned = partition.rank * partition.stripe.n_local, 0, False
        self.live = self.marked = np.empty(0, np.uint32)
        self.front = self.found = self.seen = np.empty(0, np.uint64)
        self.frontier_bits = self.live if in_edges else None
        self.queue: Any = None
        self.queued = self.queued_edges = 0
        self._seen_is_kept = False

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, without what the rank keeps."""
        arrays = self.live, self.front, self.marked, self.found, self.queue, None if self._seen_is_kept else self.seen
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def own_words(self) -> slice:
        """The slice of a bitmap with the rank's rows."""
        words = self.partition.stripe.words_local
        return slice(self.partition.rank * words, (self.partition.rank + 1) * words)

    def own(self, words: Any) -> Any:
        """Return the part of ``front`` or ``found`` with the rank's rows."""
        return words[self.first_id * self.width : (self.first_id + self.partition.stripe.n_local) * self.width]

    @property
    def frontier(self) -> NDArray[np.uint32]:
        """The rank's vertices of the frontier, as local ids."""
        if self.queue is not None:
            return self.queue[: self.queued]  # type: ignore[no-any-return]
        return np.flatnonzero(np.unpackbits(self.live[self.own_words].view(np.uint8), bitorder="little")).astype(
            np.uint32
        )

    def labels_for(self, spec: TraversalSpec) -> RankBatch:
        """Return what the rank is to keep of a batch that ``start`` begins."""
        return RankBatch.empty(self.xp, self.partition.stripe, self.partition.rank, spec)

    def start(self, spec: TraversalSpec, labels: RankLabels) -> RankBatch:
        """Give each source its bit. ``BatchLevels.end`` has cleared the frontier of the group before.

        Raises:
            InvalidVertexError: a source was deleted.
        """
        assert isinstance(labels, RankBatch)
        self.queued = 0
        if not self._together:
            return labels
        require_present(self.partition, spec.sources)
        stripe, rank, xp = self.partition.stripe, self.partition.rank, self.xp
        self.width = width = width_of(len(spec.sources), spec.backend)
        ids = stripe.p * stripe.n_local
        # What the group before has touched stays: the first write to a new page takes longer than all later ones.
        if self.front.size != ids * width:
            self.live, self.marked = (self._zeros(stripe.words, np.uint32) for _ in (0, 1))
            self.front, self.found = (self._zeros(ids * width, np.uint64) for _ in (0, 1))
        if labels.seen.size:
            self.seen, self._seen_is_kept = labels.seen, True
        elif self.seen.size != stripe.n_local * width:
            self.seen = xp.zeros(stripe.n_local * width, np.uint64)
        else:
            self.seen[:] = 0
        sources = np.asarray(spec.sources, np.int64)
        places = np.flatnonzero(stripe.owner(sources) == rank)
        vertices = stripe.internal(sources[places])
        set_bits(xp, self.marked, vertices)
        bits = np.uint64(1) << (places % WORD_SOURCES).astype(np.uint64)
        self.found[xp.asarray(vertices * width + places // WORD_SOURCES)] = xp.asarray(bits)
        return labels

    def forget_kept(self) -> None:
        """Forget what the rank keeps."""
        if self._seen_is_kept:
            self.seen, self._seen_is_kept = np.empty(0, np.uint64), False

    def release(self) -> None:
        """Forget the bitmaps and words."""
        self.live = self.marked = np.empty(0, np.uint32)
        self.front = self.found = np.empty(0, np.uint64)
        self.turned = False

    def reset(self) -> None:
        """Clear the bitmaps and words that a run has left when its end was an error."""
        for array in (self.live, self.marked, self.front, self.found):
            array[:] = 0

    def advance(self) -> None:
        """Make what a level has found the frontier; the frontier before takes its place."""
        self.live, self.marked = self.marked, self.live
        self.front, self.found = self.found, self.front
        self.turned = not self.turned
