"""Bins of edges: how a piece's edges travel to their owners, and how an owner keeps them until it builds its rows.

A bin is sorted by bucket: a range of ``2**bucket_bits(stripe)`` rows. The owner builds its rows bucket by bucket, and
returns the memory of a bucket's bins to the system meanwhile. So the bins (6 bytes an edge) give way to the columns
(4 bytes an edge) instead of lying beside them.
"""

import mmap
import threading
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import StaleRunError
from dbfs_workers.search.partition.stripe import Stripe

# Buckets of all owners together. The binning kernel writes to this many places in turn; more of them pass the reach of
# the processor's second cache (1 MiB), fewer leave a bucket's columns too large for that cache.
_BUCKETS = 1024
# Fewest buckets of an owner, so that the bins give way in small steps.
_BUCKETS_OF_OWNER = 32
# A row within its bucket has to fit uint16; smaller buckets than 32 rows gain nothing.
_MOST_BITS, _FEWEST_BITS = 16, 5

# Room of a chunk in edges: at least the first, and an eighth of what the store holds.
_LEAST_CHUNK = 1 << 16
_SHARE_OF_HELD = 8


def bucket_bits(stripe: Stripe) -> int:
    """Return the number of bits that name a row within its bucket."""
    wanted = max(_BUCKETS // stripe.p, _BUCKETS_OF_OWNER)
    return min(max((stripe.n_local // wanted).bit_length(), _FEWEST_BITS), _MOST_BITS)


def bucket_count(stripe: Stripe) -> int:
    """Return the number of buckets of each owner."""
    return ((stripe.n_local - 1) >> bucket_bits(stripe)) + 1


@dataclass(frozen=True)
class EdgeBin:
    """Directed edges of a piece for one owner, sorted by bucket.

    A row within its bucket takes 16 bits, half of a local id: a build needs most memory for its bins.

    Attributes:
        rows: uint16, the sources' local ids modulo the rows of a bucket.
        columns: uint32, the targets' internal ids; as long as ``rows``.
        starts: int64[buckets + 1], index of each bucket's first edge.
    """

    rows: NDArray[np.uint16]
    columns: NDArray[np.uint32]
    starts: NDArray[np.int64]


class _Chunk:
    """Memory for several bins: pages that are never written take no memory, and read pages can be returned early."""

    def __init__(self, room: int) -> None:
        # Private, because the pages of shared memory stay when they are returned.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._maps = (mmap.mmap(-1, 2 * room, flags=private), mmap.mmap(-1, 4 * room, flags=private))
        self.rows = np.frombuffer(self._maps[0], np.uint16)
        self.columns = np.frombuffer(self._maps[1], np.uint32)
        self.room = room
        self.used = 0
        self.starts: list[NDArray[np.int64]] = []

    def reserve(self, starts: NDArray[np.int64]) -> int:
        """Reserve room for a bin; return the index of its first edge."""
        at, size = self.used, int(starts[-1])
        self.starts.append(starts + at)
        self.used += size
        return at

    def release(self, first: int, end: int) -> None:
        """Return the memory of the buckets ``first`` to ``end - 1`` to the system, by whole pages.

        The buckets before ``first`` are gone already. The first page of a bin may hold edges of the bin before, so that
        page stays.
        """
        page = mmap.PAGESIZE
        for starts in self.starts:
            for pages, width in zip(self._maps, (2, 4), strict=True):
                whole = -(-width * int(starts[0]) // page) * page
                begin = max(whole, width * int(starts[first]) // page * page)
                stop = width * int(starts[end]) // page * page
                if stop > begin:
                    pages.madvise(mmap.MADV_DONTNEED, begin, stop - begin)


class BinStore:
    """Bins that an owner collected. Any thread may add a bin; afterwards the owner builds its rows."""

    def __init__(self, stripe: Stripe) -> None:
        self._buckets = bucket_count(stripe)
        self._lock = threading.Lock()
        self._chunks: list[_Chunk] | None = []
        self._released = 0
        self.edges = 0

    @classmethod
    def of(cls, stripe: Stripe, bins: Iterable[EdgeBin]) -> "BinStore":
        """Return a store with these bins."""
        store = cls(stripe)
        for edge_bin in bins:
            store.add(edge_bin)
        return store

    def add(self, edge_bin: EdgeBin) -> None:
        """Copy a bin into the store.

        Raises:
            StaleRunError: the store is closed, because its build is over.
            ValueError: the bin's arrays do not fit each other or the stripe.
        """
        rows, columns, starts = edge_bin.rows, edge_bin.columns, edge_bin.starts
        if starts.size != self._buckets + 1 or starts[0] != 0 or not rows.size == columns.size == starts[-1]:
            raise ValueError(
                f"a bin of {rows.size} rows, {columns.size} columns and {starts.size} starts; "
                f"expected as many rows as columns, and {self._buckets + 1} starts"
            )
        with self._lock:
            if self._chunks is None:
                raise StaleRunError("bins arrived after the end of their build")
            if not self._chunks or self._chunks[-1].room - self._chunks[-1].used < rows.size:
                self._chunks.append(_Chunk(max(rows.size, self.edges // _SHARE_OF_HELD, _LEAST_CHUNK)))
            chunk = self._chunks[-1]
            at = chunk.reserve(starts)
            self.edges += rows.size
        chunk.rows[at : at + rows.size] = rows
        chunk.columns[at : at + rows.size] = columns

    def chunks(self) -> list[tuple[NDArray[np.uint16], NDArray[np.uint32], NDArray[np.int64]]]:
        """Return rows, columns and starts (int64[bins, buckets + 1]) of each chunk."""
        return [
            (chunk.rows[: chunk.used], chunk.columns[: chunk.used], np.stack(chunk.starts))
            for chunk in self._chunks or ()
        ]

    def bucket_offsets(self) -> NDArray[np.int64]:
        """Return int64[buckets + 1]: the index of each bucket's first edge among all edges, sorted by bucket."""
        offsets = np.zeros(self._buckets + 1, np.int64)
        for _, _, starts in self.chunks():
            offsets += (starts - starts[:, :1]).sum(axis=0)
        return offsets

    def release_before(self, bucket: int) -> None:
        """Return the memory of all buckets before this one to the system: their edges are gone."""
        for chunk in self._chunks or ():
            chunk.release(self._released, bucket)
        self._released = bucket

    def close(self) -> None:
        """Drop all bins, and refuse further ones."""
        with self._lock:
            self._chunks = None
