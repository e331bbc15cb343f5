"""The labels of one traversal on one rank: their memory, the rows that an update changes, the keys for Dask."""

import ctypes
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.partition.partition import array_module, on_host
from dbfs_workers.search.partition.stripe import NO_VERTEX, WORD_BITS, Stripe, own_rows

# Distance and predecessor of an unreached row: -1 and ``NO_VERTEX``.
_UNREACHED = 2**32 - 1
_NONE: Final = np.empty(0, np.uint32)


class LabelArrays(NamedTuple):
    """The labels of one rank's rows as CPU kernels take them: int32[n_local], and uint32[n_local] or empty for none."""

    distances: NDArray[np.int32]
    predecessors: NDArray[np.uint32]


@dataclass
class _Memory:
    """Memory of a label.

    Attributes:
        array: uint32[rows].
        address: where the array begins.
        owner: whose rows without in-edges are unreached here, as ``LabelPool.begun`` was given it; None if unknown.
    """

    array: NDArray[np.uint32]
    address: int
    owner: object = None


class LabelPool:
    """The memory of one rank's released labels. A label takes 4 bytes a row, distances and predecessors alike.

    Memory returns to the pool when the last array that shows it is gone, in whatever thread, so that a reader or Dask
    may hold labels for any length of time.

    Args:
        rows: number of rows of a label.
        most: bytes that the pool may keep. Further memory goes back to the system.
    """

    def __init__(self, rows: int, most: int) -> None:
        self._rows = rows
        # A full deque drops its first entry for a new one. No lock: a finalizer may interrupt any line of this class.
        self._free: deque[_Memory] = deque(maxlen=most // (4 * rows))
        # Memory that is lent, by address.
        self._lent: dict[int, _Memory] = {}
        self._lent_type = ctypes.c_char * (4 * rows)
        self._closed = False

    @property
    def nbytes(self) -> int:
        """Bytes that the pool keeps, free for labels."""
        return 4 * self._rows * len(self._free)

    def full(self, value: Any, dtype: Any) -> NDArray[Any]:
        """Return an array of ``value``, one entry a row; ``dtype`` is a type of 4 bytes."""
        memory = self._take()
        memory.owner = None
        labels = self._lend(memory, dtype)
        labels[:] = value
        return labels

    def begun(self, owner: object, dtype: Any) -> NDArray[Any]:
        """Return an array for the labels of a traversal, unreached in the rows without in-edges.

        The other rows hold anything: the caller writes all of them. If the caller writes a row without in-edges too,
        ``forget_owner`` follows.

        Args:
            owner: stands for the set of rows without in-edges.
            dtype: a type of 4 bytes.
        """
        memory = self._take()
        if memory.owner is not owner:
            memory.array[:] = _UNREACHED
            memory.owner = owner
        return self._lend(memory, dtype)

    def forget_owner(self, labels: NDArray[Any]) -> None:
        """Have a lent array written in full before its memory is used again: others may write any row of it."""
        memory = self._lent.get(labels.ctypes.data)
        if memory is not None:
            memory.owner = None

    def close(self) -> None:
        """Give the kept memory back to the system, and keep no more."""
        self._closed = True
        self._free.clear()

    def _take(self) -> _Memory:
        try:
            return self._free.pop()
        except IndexError:
            array = np.empty(self._rows, np.uint32)
            return _Memory(array, array.ctypes.data)

    def _lend(self, memory: _Memory, dtype: Any) -> NDArray[Any]:
        # Views of an array have the array's own base as base, so that an array may end before its views. All of them
        # hold the object that is lent here.
        lent = self._lent_type.from_buffer(memory.array.data)
        weakref.finalize(lent, self._take_back, memory).atexit = False
        self._lent[memory.address] = memory
        return np.frombuffer(memoryview(lent), dtype)

    def _take_back(self, memory: _Memory) -> None:
        self._lent.pop(memory.address, None)
        if not self._closed:
            self._free.append(memory)


UNREACHED: Final = -1


@dataclass
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

    @property
    def arrays(self) -> LabelArrays:
        """The labels, on the CPU, as kernels take them."""
        return LabelArrays(self.distances, _NONE if self.predecessors is None else self.predecessors)

    def to_host(self) -> "RankLabels":
        """Return the labels as NumPy arrays: themselves if they are."""
        parents = self.predecessors
        return RankLabels(on_host(self.distances), None if parents is None else on_host(parents))

    @classmethod
    def begun(cls, pool: LabelPool, owner: object, *, predecessors: bool) -> "RankLabels":
        """Return labels that are unreached in the rows without in-edges; see ``LabelPool.begun``."""
        return cls(pool.begun(owner, np.int32), pool.begun(owner, np.uint32) if predecessors else None)

    @classmethod
    def unreached(cls, xp: Any, stripe: Stripe, *, predecessors: bool, pool: LabelPool | None = None) -> "RankLabels":
        """Return the labels of a rank that has reached nothing, as arrays of ``xp`` (NumPy, CuPy).

        Args:
            xp: the module of the arrays.
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

    @property
    def by_source(self) -> NDArray[Any] | None:
        """Counts that travel with the report: of a batch, see ``RankBatch``; else None."""
        return None

    def by_name(self, stripe: Stripe, rank: int) -> dict[str, NDArray[Any]]:
        """Return what a caller may read as Dask data, by the names of ``label_key``, without padding."""
        distances, vertices = self.of_rows(stripe, rank)
        return {"distances": distances} | ({} if vertices is None else {"predecessors": vertices})


def label_bytes(stripe: Stripe, *, predecessors: bool) -> int:
    """Return ``RankLabels.nbytes`` of one traversal: 4 bytes per row for each label."""
    return (8 if predecessors else 4) * stripe.n_local


def label_sources(
    xp: Any, stripe: Stripe, rank: int, sources: Sequence[int], visited: NDArray[np.uint32], labels: RankLabels
) -> NDArray[np.uint32]:
    """Label the sources that a rank owns, each as its own predecessor, and mark them visited.

    Args:
        xp: the module of all arrays, NumPy or CuPy.
        sources: vertices, repetitions allowed.
        visited: uint32[stripe.words_local], the rank's bitmap of its own rows; updated.
        labels: the rank's labels; updated.

    Returns:
        uint32 local ids of the labelled vertices, ascending and each once.
    """
    own = own_rows(stripe, rank, sources)
    set_bits(xp, visited, own.astype(np.int64))
    rows: NDArray[np.uint32] = xp.asarray(own)
    labels.distances[rows] = 0
    if labels.predecessors is not None:
        labels.predecessors[rows] = rows + np.uint32(rank * stripe.n_local)
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
    """Return the Dask key of one rank's ``label`` (see ``by_name``) of traversal ``index`` of a run."""
    return (f"{label}-{run_id}", index, rank)


class ChangedRows:
    """The rows whose distance an update of labels has changed, as a bitmap until a caller reads them.

    A new traversal after a repair that was given up may change half of all distances. A list of these rows took 1 to 7
    ms after a traversal of 45 ms (stand-in for europe.osm at a 64th, 2 ranks); the bitmap takes less than 0.5 ms.

    Args:
        bits: uint32[n_local / 32], a bitmap of the rows, on the labels' device.
    """

    def __init__(self, bits: Any) -> None:
        self._bits = bits

    @classmethod
    def where(cls, differs: Any) -> "ChangedRows":
        """Return the rows where ``differs``, bool[n_local] of NumPy or CuPy, is true."""
        return cls(array_module(differs).packbits(differs, bitorder="little").view("<u4"))

    def get(self) -> NDArray[np.uint32]:
        """Return the rows: uint32, ascending, on the host."""
        words: NDArray[np.uint32] = on_host(self._bits)
        found = np.flatnonzero(words)
        bits = np.unpackbits(words[found].astype("<u4").view(np.uint8), bitorder="little").reshape(-1, WORD_BITS)
        places, bits_set = np.nonzero(bits)
        return (found[places] * WORD_BITS + bits_set).astype(np.uint32)


def unreached_of(dtype: np.dtype[Any]) -> int:
    """Return what stands for unreached in a type of distances."""
    return -1 if dtype.kind == "i" else int(np.iinfo(dtype).max)


def in_type(distances: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return distances in a type, unsigned or int32, that is at least as wide as theirs."""
    if distances.dtype == dtype:
        return distances
    wide = distances.astype(dtype)
    wide[distances == np.iinfo(distances.dtype).max] = unreached_of(dtype)
    return wide
