"""Rows that come and go: a row is a run of fixed-size pages in one pool, and freed runs are used again.

Tödling 2019 (section 7) runs breadth-first search on faimGraph's pages, which a row links into a list; Hornet (Busato
2018) keeps a row in one block instead. Here a row's pages lie one after another, so that the kernels of a level read
pages as they read a CSR.

``Pages`` never change. An update writes every row that it changes to free pages, and makes a new ``Pages`` that shares
the pool. The version before stays whole until the update commits: an update that fails is forgotten, without undoing.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import GraphTooLargeError
from dbfs_workers.base.jit import read_only
from dbfs_workers.building.bin_store import BinStore, bucket_bits
from dbfs_workers.building.kernels.sorting import sort_rows
from dbfs_workers.features.living.kernels import pages as kernels
from dbfs_workers.features.living.row_versions import PAGE, SPARE, RowVersion
from dbfs_workers.search.partition.kernels.rows import kernel_rows
from dbfs_workers.search.partition.partition import Csr, Rows
from dbfs_workers.search.partition.stripe import Stripe

_NONE = np.empty(0, np.int64)
# An update with edges of this part of the rows, or more, writes all rows to a new pool. So no row is read twice: to
# find its place, and to copy it.
_REWRITTEN = 0.5
# Edges of an update below which one sort takes less time than a sort of each bucket.
_SMALL_UPDATE = 1 << 15

FreeBytes = Callable[[], int]
"""Returns the bytes of memory that a pool may still take."""


@dataclass(frozen=True)
class Changes:
    """The effects of an update on a rank's rows.

    Attributes:
        edges: edges inserted or deleted. Over all ranks, an undirected edge counts once.
        refused: duplicates of an insertion, or missing edges of a deletion; counted alike.
        columns: columns added, or removed (below 0).
        self_loops: self-loops among these columns.
        duplicates: duplicates among these columns, which repeat the column before them.
        rows: rows changed.
        first_refused: the first edge refused, as vertices (see ``Order.ends``); None if none was.
        keys: uint64, ascending: the keys of the edges inserted or deleted. An undirected edge has one on each end's
            rank. None if these are more than a log of a GPU's changes keeps.
    """

    edges: int
    refused: int
    columns: int
    self_loops: int
    duplicates: int
    rows: int
    first_refused: tuple[int, int] | None
    keys: NDArray[np.uint64] | None = field(default_factory=lambda: np.empty(0, np.uint64), compare=False, repr=False)


NO_CHANGES = Changes(0, 0, 0, 0, 0, 0, None)


@dataclass(frozen=True)
class Order:
    """The order of a row's columns.

    Attributes:
        stripe, rank: as of ``Partition``.
        hub_first: whether columns ascend by position in the order by degree, instead of by internal id.
    """

    stripe: Stripe
    rank: int
    hub_first: bool

    @property
    def first_id(self) -> int:
        """Internal id of row 0."""
        return self.rank * self.stripe.n_local

    @property
    def ranks(self) -> int:
        """The argument ``ranks`` of the kernels."""
        return self.stripe.p if self.hub_first else 0

    def keys(self, bins: BinStore) -> NDArray[np.uint64]:
        """Return the keys of an update's edges, ascending, and close the bins."""
        keys, offsets = self.gathered(bins)
        if keys.size < _SMALL_UPDATE:
            keys.sort()
            return keys
        # Bucket by bucket: each fits the processor's second cache.
        for first, end in itertools.pairwise(offsets.tolist()):
            keys[first:end].sort()
        return keys

    def gathered(self, bins: BinStore) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return the keys of an update's edges by bucket, and where each bucket begins and ends; close the bins."""
        keys, bits, offsets = np.empty(bins.edges, np.uint64), bucket_bits(self.stripe), bins.bucket_offsets()
        cursor = offsets[:-1].copy()
        for rows, columns, starts in bins.chunks():
            kernels.bin_keys(rows, columns, starts, bits, self.ranks, self.stripe.n_local, cursor, keys)
        bins.close()
        return keys, offsets

    def keys_of(self, src: NDArray[np.int64], dst: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the keys of those edges that start in the rank's rows, ascending; see ``UpdateSpec.edges``."""
        stripe = self.stripe
        own = stripe.owner(src) == self.rank
        rows, others = stripe.row(src[own]), dst[own]
        places = others if self.hub_first else stripe.internal(others)
        keys: NDArray[np.uint64] = rows.astype(np.uint64) << np.uint64(32) | places.astype(np.uint64)
        keys.sort()
        return keys

    def keys_of_update(
        self, src: NDArray[np.uint32], dst: NDArray[np.uint32], *, symmetrise: bool
    ) -> NDArray[np.uint64]:
        """Return the keys of those edges of a large update that start in the rank's rows, ascending.

        Sorts by row first, by counting, and then within each row: a third of the time of a sort of the keys.

        Args:
            src: sources, uint32 vertices. The graph is not ordered by degree.
            dst: targets.
            symmetrise: whether the keys of the reverses are returned too; a self-loop is its own reverse.
        """
        stripe = self.stripe
        offsets = np.zeros(stripe.n_local + 1, np.int64)
        kernels.count_own(src, dst, symmetrise, stripe.p, self.rank, offsets)
        np.cumsum(offsets, out=offsets)
        columns, keys = np.empty(offsets[-1], np.uint32), np.empty(offsets[-1], np.uint64)
        cursor = offsets[:-1].copy()
        kernels.place_own(src, dst, symmetrise, stripe.p, self.rank, stripe.n_local, cursor, columns)
        sort_rows(offsets, columns, 0, 1, stripe.p * stripe.n_local - 1)
        kernels.row_keys(offsets, columns, keys)
        return keys

    def ends(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the edges of keys as vertices (positions, with ``hub_first``): the rank's own ends, and the others."""
        stripe, places = self.stripe, (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
        own = (keys >> np.uint64(32)).astype(np.int64) * stripe.p + self.rank
        return own, places if self.hub_first else stripe.vertex(places)

    def edge(self, keys: NDArray[np.uint64], index: int) -> tuple[int, int]:
        """Return the edge of one key; see ``ends``."""
        own, other = self.ends(keys[index : index + 1])
        return int(own[0]), int(other[0])


@dataclass(frozen=True)
class Pages:
    """One version of a rank's rows.

    Attributes:
        places: where the rows lie in the pool.
        pool: uint32, the pages: columns of the rows, and free pages.
        used: columns of the pool that were ever handed out; those after them are free.
        m_local: columns of all rows.
        max_degree: columns of the longest row.
        free: by length in pages, the first columns of freed runs: int64 arrays.
    """

    places: RowVersion
    pool: NDArray[np.uint32]
    used: int
    m_local: int
    max_degree: int
    free: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Rows, free_bytes: FreeBytes, *, spare: bool) -> "Pages":
        """Copy rows into a new pool without gaps; ``spare`` says whether updates will follow, which need free pages.

        Raise ``GraphTooLargeError`` if the pool does not fit in the memory that is free.
        """
        pages = cls._laid_out(rows.ends - rows.starts, SPARE if spare else 0, free_bytes)
        kernels.copy_rows(rows.starts, rows.ends, rows.columns, pages.rows.starts, pages.rows.columns)
        return pages

    @classmethod
    def _laid_out(cls, degrees: NDArray[np.int64], spare: float, free_bytes: FreeBytes) -> "Pages":
        """Return rows of given degrees whose columns are not written yet, one after another; errors as for ``of``."""
        capacities = PAGE * run_pages(degrees)
        ends = np.cumsum(capacities)
        starts = ends - capacities
        used = int(ends[-1])
        # Pages that no row is written to take no memory.
        size = used + int(spare * used)
        needed = 4 * size + 16 * degrees.size
        # Only a large pool is checked, since reading the free memory takes longer than a small update.
        if needed > 2**20 and needed > (free := free_bytes()):
            raise GraphTooLargeError(
                f"the pages of the rows need {needed:,} bytes, {max(0, free):,} bytes are free; delete edges or use "
                "more workers"
            )
        places = RowVersion(starts, starts + degrees)
        return cls(places, np.empty(size, np.uint32), used, int(degrees.sum()), int(degrees.max()))

    @property
    def rows(self) -> Rows:
        """The rows, as CPU kernels read them."""
        return Rows(self.places.starts, self.places.ends, self.pool)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of the pages in use, free runs included."""
        return 4 * self.used + self.places.starts.nbytes + self.places.ends.nbytes

    @property
    def free_pages(self) -> int:
        """Pages in freed runs, and never used ones."""
        freed = sum(length * starts.size for length, starts in self.free.items())
        return freed + (self.pool.size - self.used) // PAGE

    def csr(self) -> Csr:
        """Return the rows as a CSR of its own memory."""
        rows = self.rows
        row_offsets = np.zeros(rows.starts.size + 1, np.int64)
        np.cumsum(rows.ends - rows.starts, out=row_offsets[1:])
        columns = np.empty(row_offsets[-1], np.uint32)
        kernels.copy_rows(rows.starts, rows.ends, rows.columns, row_offsets[:-1], columns)
        return Csr(row_offsets, columns)

    def changed(
        self, keys: NDArray[np.uint64], order: Order, *, directed: bool, delete: bool, free_bytes: FreeBytes
    ) -> tuple["Pages", Changes]:
        """Return the version after an update, and the effects of the update. This version stays as it is.

        The pool has one writer: of the versions that follow this one, only the last that was made may be kept.

        Args:
            keys: uint64, ascending; see ``Order.keys``.
            order: the order of a row's columns.
            directed: whether each key counts as an edge; see ``Changes.edges``.
            delete: whether the edges are deleted; else they are inserted.
            free_bytes: the memory that a larger pool may take.

        Errors as for ``of``.
        """
        rows, size = self.rows, keys.size
        takes, counts = np.zeros(size, bool), np.zeros(7, np.int64)
        groups, degrees = np.empty(size + 1, np.int64), np.empty(size, np.int64)
        update = kernels.EdgeUpdate(
            read_only(keys),
            takes,
            kernel_rows(rows),
            order.first_id,
            order.ranks,
            order.stripe.n_local,
            directed,
            delete,
        )
        rewritten = self._rewritten(update, counts, free_bytes)
        changed = int(kernels.plan(update, groups, degrees, counts) if rewritten is None else counts[6])
        sign = -1 if delete else 1
        changes = Changes(
            edges=int(counts[0]),
            refused=int(counts[1]),
            columns=sign * int(counts[2]),
            self_loops=sign * int(counts[3]),
            duplicates=sign * int(counts[4]),
            rows=changed,
            first_refused=None if counts[5] < 0 else order.edge(keys, int(counts[5])),
            keys=keys[takes],
        )
        if not changed:
            return self, changes
        if rewritten is not None:
            return rewritten, changes
        degrees = degrees[:changed]
        moved = (keys[groups[:changed]] >> np.uint64(32)).astype(np.int64)
        place = self._places(degrees)
        if place is None:
            # The version gets a pool of its own, without gaps.
            after, staying = rows.ends - rows.starts, rows.ends.copy()
            after[moved], staying[moved] = degrees, rows.starts[moved]
            following = Pages._laid_out(after, SPARE, free_bytes)
            pool = following.pool
            kernels.copy_rows(rows.starts, staying, rows.columns, following.places.starts, pool)
            new_starts = following.places.starts[moved]
        else:
            new_starts, used, free = place
            pool, before_degrees = rows.columns, rows.ends[moved] - rows.starts[moved]
            places = self.places.moved(moved, new_starts, new_starts + degrees)
            m_local = self.m_local + int(degrees.sum() - before_degrees.sum())
            most = max(self.max_degree, int(degrees.max()))
            if most == self.max_degree and most in before_degrees:
                # The longest row may be shorter now.
                most = kernels.largest_degree(places.starts, places.ends, most)
            freed = _with_runs(free, rows.starts[moved], run_pages(before_degrees))
            following = Pages(places, pool, used, m_local, most, freed)
        kernels.merge(update, groups, changed, new_starts, pool)
        return following, changes

    def _rewritten(
        self, update: kernels.EdgeUpdate, counts: NDArray[np.int64], free_bytes: FreeBytes
    ) -> "Pages | None":
        """Return the version after an update with edges of many rows, in a pool of its own; None for other updates.

        Args:
            update: the update, whose ``takes`` is filled in.
            counts: int64[7], filled in: see ``kernels.rewrite``.
            free_bytes: see ``changed``; as are the errors.
        """
        keys, delete = update.keys, update.delete
        least = _REWRITTEN * self.places.starts.size
        if keys.size < least:
            return None
        grown = self.rows.ends - self.rows.starts
        if kernels.add_degrees(keys, grown) < least:
            return None
        # With the room that the rows need if each key changes its row.
        most = self.rows.ends - self.rows.starts if delete else grown
        room = Pages._laid_out(most, SPARE, free_bytes)
        used, largest = kernels.rewrite(update, counts, room.places.starts, room.places.ends, room.pool)
        m_local = self.m_local + int(-counts[2] if delete else counts[2])
        return Pages(room.places, room.pool[: used + int(SPARE * used)], used, m_local, largest)

    def _places(self, degrees: NDArray[np.int64]) -> tuple[NDArray[np.int64], int, dict[int, NDArray[np.int64]]] | None:
        """Find free pages for rows: their first columns, and then ``used`` and ``free``; None if the pool is full."""
        lengths = run_pages(degrees)
        by_length = np.argsort(lengths, kind="stable")
        starts, used, free = np.zeros(degrees.size, np.int64), self.used, dict(self.free)
        kinds, firsts = np.unique(lengths[by_length], return_index=True)
        for length, first, end in zip(kinds.tolist(), firsts, [*firsts[1:], degrees.size], strict=True):
            if length == 0:
                continue
            runs = free.pop(length, _NONE)
            taken = min(runs.size, end - first)
            if taken < runs.size:
                free[length] = runs[: runs.size - taken]
            fresh = used + PAGE * length * np.arange(end - first - taken)
            used += PAGE * length * int(end - first - taken)
            starts[by_length[first:end]] = np.concatenate([runs[runs.size - taken :], fresh])
        return None if used > self.pool.size else (starts, used, free)


def run_pages(degrees: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the pages of the runs that hold rows of given degrees, int64.

    Up to 8 pages a run is as short as can be. Longer runs have one of four lengths between two powers of two, so that
    a freed run soon fits another row; at most a fifth of such a run is empty.
    """
    pages = -(-degrees // PAGE)
    # The number of binary digits of each, exact below 2**53.
    digits = np.frexp(pages.astype(np.float64))[1].astype(np.int64)
    step = np.int64(1) << np.maximum(digits - 3, 0)
    runs: NDArray[np.int64] = -(-pages // step) * step
    return runs


def _with_runs(
    free: Mapping[int, NDArray[np.int64]], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> dict[int, NDArray[np.int64]]:
    """Return the free runs with more of them added."""
    by_length = np.argsort(lengths, kind="stable")
    kinds, firsts = np.unique(lengths[by_length], return_index=True)
    added = dict(free)
    for length, runs in zip(kinds.tolist(), np.split(starts[by_length], firsts[1:]), strict=True):
        if length:
            added[length] = np.concatenate([added.get(length, _NONE), runs])
    return added
