"""Building a rank's partition on its GPU: the steps of ``partitions`` and ``degree_order`` on CuPy arrays.

``bin_edges`` makes a 64-bit key of each directed edge, by owner. The key's high half is the source's row; the low half
is the target's internal id or, in a degree order, the target's position. An owner sorts the keys that it collects
(``make_csr``): the sorted keys are its CSR. The same edges give the same arrays as on the CPU.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import GraphTooLargeError, outside
from dbfs_workers.building.kernels.sources import BINNING, CSR, DEGREE_ORDER, KRONECKER
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.cuda.module import load
from dbfs_workers.search.cuda.source import Source
from dbfs_workers.search.partition.stripe import Stripe

THREADS: Final = 256
# 16 blocks on each of the 132 multiprocessors of an H100 fill the GPU; their threads stride over the rest.
MOST_BLOCKS: Final = 132 * 16
# ``kMaxRanks`` of binning.cu.
MOST_RANKS: Final = 256
# Number of the first bad edge as long as a kernel has found none.
_NO_EDGE: Final = 2**64 - 1
KEY_BYTES: Final = 8


@dataclass(frozen=True)
class BinnedKeys:
    """Directed edges by owner.

    Attributes:
        keys: uint64 on the GPU, in an allocation of their own, so that peers can map it.
        starts: int64[p + 1] on the host: where each owner's keys start, and their number.
    """

    keys: Any
    starts: NDArray[np.int64]


@dataclass(frozen=True)
class CsrBand:
    """Some of a rank's rows as a CSR on the GPU.

    Attributes:
        rows: the first row, and the one after the last.
        row_offsets: int64[rows + 1], from 0.
        columns: uint32, internal ids.
        self_loops, duplicates: as in ``Partition``.
    """

    rows: tuple[int, int]
    row_offsets: Any
    columns: Any
    self_loops: int
    duplicates: int


def bin_edges(
    src: Any,
    dst: Any,
    stripe: Stripe,
    *,
    symmetrise: bool,
    name: str,
    where: str,
    rows: tuple[int, int],
    position: Any | None = None,
) -> BinnedKeys:
    """Cut edges into one bin per owner of their source.

    Args:
        src: sources, int64 vertex ids on the GPU.
        dst, stripe, symmetrise, name: as of ``binning.bin_edges``.
        where: the rank and what it does, for errors.
        rows: bin only the edges of these rows of each owner: the first, and the one after the last.
        position: uint32[n] of a degree order: vertices become positions, and columns are sorted by position.

    Raises:
        InvalidVertexError: an id is outside 0..n-1; nothing is binned.
        GraphTooLargeError: the keys don't fit the GPU, or there are more than ``MOST_RANKS`` ranks.
    """
    import cupy

    if stripe.p > MOST_RANKS:
        raise GraphTooLargeError(f"{where}: GPUs bin for up to {MOST_RANKS} ranks, not {stripe.p}")
    positions = np.uint64(0) if position is None else position
    p = stripe.p
    found = np.zeros(p + 1, np.uint64)
    found[p] = _NO_EDGE
    counts = cupy.asarray(found)
    count = (src, dst, np.int64(src.size), np.uint64(stripe.n), positions, np.uint32(p), np.uint32(symmetrise))
    first_row, end_row = map(np.uint32, rows)
    launch(BINNING, "dbfs_count_owners", src.size, (*count, first_row, end_row, counts, counts[p:]))
    found = cupy.asnumpy(counts)
    _check_inside(src, dst, int(found[p]), stripe.n, name)
    starts = np.zeros(p + 1, np.int64)
    np.cumsum(found[:p], out=starts[1:])
    total = int(starts[p])
    device_memory.require(KEY_BYTES * total, where)
    keys = device_memory.own_allocation(total, np.uint64)
    layout = (np.uint32(p), np.uint32(stripe.n_local), np.uint32(symmetrise), first_row, end_row)
    cursors = cupy.asarray(starts[:p].astype(np.uint64))
    launch(
        BINNING,
        "dbfs_bin_edges",
        src.size,
        (src, dst, np.int64(src.size), positions, *layout, cursors, keys),
    )
    return BinnedKeys(keys, starts)


def merge(pieces: list[BinnedKeys], p: int, where: str) -> BinnedKeys:
    """Merge the bins of several pieces, owner by owner, for ``p`` owners. Empties the list to free each piece early.

    A peer takes 4 to 5 ms to map an allocation, however large (docs/decisions/building-on-gpus.md), so each rank
    offers only one.

    Errors as for ``device_memory.require``.
    """
    if len(pieces) == 1:
        return pieces.pop()
    starts = np.sum([piece.starts for piece in pieces], axis=0) if pieces else np.zeros(p + 1, np.int64)
    total = int(starts[p])
    device_memory.require(KEY_BYTES * total, where)
    keys = device_memory.own_allocation(total, np.uint64)
    cursors = starts[:p].tolist()
    while pieces:
        piece = pieces.pop()
        for owner, (start, end) in enumerate(pairwise(piece.starts.tolist())):
            keys[cursors[owner] : cursors[owner] + end - start] = piece.keys[start:end]
            cursors[owner] += end - start
    return BinnedKeys(keys, starts)


def check_ids(src: Any, dst: Any, n: int, name: str) -> None:
    """Raise ``InvalidVertexError`` if an id (int64 on the GPU) is outside 0..n-1."""
    import cupy

    bad = (src < 0) | (src >= n) | (dst < 0) | (dst >= n)
    if bad.any():
        _check_inside(src, dst, int(cupy.argmax(bad)), n, name)


def sort_bytes(nbytes: int) -> int:
    """Return the bytes that a sort of ``nbytes`` of keys takes: a second buffer, and counters per block of ~4,000 keys.

    Check them before a sort. If CuPy can't allocate them, Thrust gets no error and writes to address 0, which makes the
    GPU unusable for the worker.
    """
    return nbytes + nbytes // 32


def make_csr(keys: Any, stripe: Stripe, rank: int, *, rows: tuple[int, int], by_position: bool, where: str) -> CsrBand:
    """Sort a rank's keys in place, and make a CSR of them.

    Args:
        keys: uint64 on the GPU; sorted afterwards.
        stripe, rank: as of ``partitions.build_partition``.
        rows: the rows of the keys: the first, and the one after the last.
        by_position: the keys hold positions of a degree order, so each row's hubs come first.
        where: the rank and what it does, for errors.

    Errors as for ``device_memory.require``.
    """
    import cupy

    count = rows[1] - rows[0]
    # The maximum, not the sum: the sort's second buffer is released before the CSR is allocated.
    device_memory.require(max(sort_bytes(keys.nbytes), keys.nbytes // 2 + 8 * (count + 1)), where)
    keys.sort()
    device_memory.release_pool()
    row_offsets = cupy.empty(count + 1, np.int64)
    columns = cupy.empty(keys.size, np.uint32)
    sums = cupy.zeros(2, np.uint64)
    size = np.int64(keys.size)
    bounds = (size, np.int64(rows[0]), np.int64(count))
    launch(CSR, "dbfs_row_offsets", count + 1, (keys, *bounds, row_offsets), whole=True)
    ids = (np.uint32(rank), np.uint32(stripe.p), np.uint32(stripe.n_local), np.uint32(by_position))
    launch(CSR, "dbfs_columns", keys.size, (keys, size, *ids, columns, sums))
    self_loops, duplicates = cupy.asnumpy(sums).tolist()
    return CsrBand(rows, row_offsets, columns, self_loops, duplicates)


def join(bands: list[CsrBand], where: str) -> CsrBand:
    """Join bands of consecutive rows, given in order, to one. Empties the list to free each band early.

    Errors as for ``device_memory.require``.
    """
    import cupy

    if len(bands) == 1:
        return bands.pop()
    rows = (bands[0].rows[0], bands[-1].rows[1])
    size = sum(part.columns.size for part in bands)
    self_loops, duplicates = (sum(getattr(part, name) for part in bands) for name in ("self_loops", "duplicates"))
    device_memory.require(4 * size + 8 * (rows[1] - rows[0] + 1), where)
    row_offsets, columns = cupy.empty(rows[1] - rows[0] + 1, np.int64), cupy.empty(size, np.uint32)
    at = 0
    while bands:
        part = bands.pop(0)
        first, end = part.rows[0] - rows[0], part.rows[1] - rows[0]
        row_offsets[first : end + 1] = part.row_offsets + at
        columns[at : at + part.columns.size] = part.columns
        at += part.columns.size
    return CsrBand(rows, row_offsets, columns, self_loops, duplicates)


def count_degrees(src: Any, dst: Any, n: int, *, symmetrise: bool, name: str, degrees: Any) -> None:
    """Add each vertex's number of edges, at either end, to ``degrees`` (uint64[n]): see ``degree_order.count_degrees``.

    Errors as for ``check_ids``.
    """
    import cupy

    bad = cupy.full(1, _NO_EDGE, np.uint64)
    arguments = (src, dst, np.int64(src.size), np.uint64(n), np.uint32(symmetrise), degrees, bad)
    launch(BINNING, "dbfs_count_degrees", src.size, arguments)
    _check_inside(src, dst, int(bad[0]), n, name)


def even_rows(stripe: Stripe, bands: int) -> list[tuple[int, int]]:
    """Return each band of every owner's rows (the first, and the one after the last): equally many rows a band.

    That means about equally many edges if vertex ids don't depend on degrees.
    """
    cuts = [stripe.n_local * band // bands for band in range(bands + 1)]
    return list(pairwise(cuts))


def rows_by_degree(stripe: Stripe, bands: int, degrees: Any) -> list[tuple[int, int]]:
    """Return each band of the rows as ``even_rows``, with about equally many edges a band.

    Args:
        degrees: uint64[n] on the GPU, by position in a degree order.
    """
    import cupy

    sums = cupy.cumsum(degrees)
    shares = cupy.asarray([int(sums[-1]) * band // bands for band in range(1, bands)])
    cuts = (cupy.searchsorted(sums, shares) // stripe.p).tolist()
    return list(pairwise([0, *cuts, stripe.n_local]))


def degree_order(degrees: Any) -> tuple[Any, Any]:
    """Return ``position`` and ``vertex`` (uint32[n]) of ``ordering.DegreeOrder``.

    Degrees (uint64[n]) past 2^32 - 1 count as equal.
    """
    import cupy

    n = degrees.size
    keys = cupy.empty(n, np.uint64)
    launch(DEGREE_ORDER, "dbfs_order_keys", n, (degrees, np.int64(n), keys), whole=True)
    keys.sort()
    position, vertex = cupy.empty(n, np.uint32), cupy.empty(n, np.uint32)
    launch(DEGREE_ORDER, "dbfs_order", n, (keys, np.int64(n), position, vertex), whole=True)
    return position, vertex


def launch(source: Source, name: str, threads: int, arguments: tuple[Any, ...], *, whole: bool = False) -> None:
    """Launch a kernel for ``threads`` items. ``whole``: a thread an item, since the kernel's threads don't stride."""
    if threads:
        blocks = -(-threads // THREADS)
        kernel = load(source).get_function(name)
        kernel((blocks if whole else min(MOST_BLOCKS, blocks),), (THREADS,), arguments)


def _check_inside(src: Any, dst: Any, at: int, n: int, name: str) -> None:
    """Raise ``InvalidVertexError`` for edge ``at`` unless it is ``_NO_EDGE``."""
    if at != _NO_EDGE:
        raise outside(name, int(src[at]), int(dst[at]), n)


# Edges of a block that draws Kronecker edges.
_DRAWN: Final = THREADS * 32


def draw_edges(
    powers: NDArray[np.uint32],
    seed: NDArray[np.uint32],
    first: int,
    count: int,
    scale: int,
    value0: int,
    value1: int,
) -> tuple[Any, Any]:
    """Draw the edges ``first`` to ``first + count - 1``.

    Args:
        powers: uint32[bits, 5, 5], item i the random generator's transition over 2^i edges, for every bit of an edge's
            number.
        seed: uint32[5], the generator's state of edge 0.
        first: number of the first edge.
        count: number of edges.
        scale: bits of an id.
        value0, value1: the constants that scramble ids.

    Returns:
        Sources and targets, int64[count] each, on the GPU.
    """
    import cupy

    sources, targets = cupy.empty(count, np.int64), cupy.empty(count, np.int64)
    if count:
        kernel = load(KRONECKER).get_function("dbfs_kronecker")
        # The kernel takes the state as a struct by value, which CuPy passes from an array of one record.
        state = seed.view([("z", np.uint32, 5)])
        numbers = (np.uint64(first), np.int64(count), np.uint32(scale), np.uint64(value0), np.uint64(value1))
        kernel((-(-count // _DRAWN),), (THREADS,), (cupy.asarray(powers), state, *numbers, sources, targets))
    return sources, targets
