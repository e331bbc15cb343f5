"""Tasks of a build on CPUs: read a piece, bin and deliver its edges, make a rank's partition of the bins.

The tasks that need kernels import them where they run, so that a client that submits the tasks does not import Numba.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import FormatError
from dbfs_workers.base.text import counted
from dbfs_workers.building import degree_order as ordering
from dbfs_workers.building.delivering import Bins, Collection, deliver
from dbfs_workers.building.layout import Layout
from dbfs_workers.building.pieces import Edges, IdEdges, Piece, check_ids, portions_of
from dbfs_workers.building.symmetry import imbalance
from dbfs_workers.ids.codes import MOST_SMALL_IDS
from dbfs_workers.search.partition.ordering import DegreeOrder
from dbfs_workers.search.partition.partition import InputEdges, Partition
from dbfs_workers.search.partition.partition import describe as describe
from dbfs_workers.search.partition.stripe import Stripe

# Edges of a piece in memory that become int64, and then bins, at a time.
_PORTION_EDGES = 1 << 18


def read_piece(piece: Piece) -> Edges | InputEdges:
    """Return the piece's edges: uint32 if all ids fit, which halves the memory until they are binned; else int64."""
    parts = [_narrowed(*_int64(edges)) for edges in portions_of(piece)]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([src for src, _ in parts]), np.concatenate([dst for _, dst in parts])


def keep_edges(source: Piece | Edges, n: int, name: str) -> InputEdges:
    """Return a piece's edges as uint32 vertex ids, reading the piece if needed. Errors as for ``check_ids``."""
    src, dst = check_ids(*_int64(source if isinstance(source, tuple) else source.read()), n, name)
    return src.astype(np.uint32), dst.astype(np.uint32)


def count_edges(edges: Edges | InputEdges) -> int:
    """Return the number of edges. The client waits for the count, since the edges stay on the worker."""
    return edges[0].size


def count_degrees(sources: list[Piece | Edges | InputEdges], n: int, symmetrise: bool, name: str) -> NDArray[np.int64]:
    """Return the degrees, int64[n], of the edges in all of a rank's pieces, which the worker's threads read.

    Errors as for ``check_ids``.
    """
    degrees, counting = np.zeros(n, np.int64), threading.Lock()

    def count(source: Piece | Edges | InputEdges) -> None:
        for src, dst in _portions(source):
            with counting:
                ordering.count_degrees(src, dst, n, symmetrise=symmetrise, name=name, degrees=degrees)

    with ThreadPoolExecutor(distributed.get_worker().state.nthreads) as pool:
        list(pool.map(count, sources))
    return degrees


def add_degrees(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sums of two counts of degrees."""
    return first + second


def degree_order(degrees: NDArray[np.int64]) -> DegreeOrder:
    """Return the vertices' order by degree."""
    return ordering.degree_order(degrees)


def bin_piece(
    source: Piece | Edges | InputEdges,
    collection: Collection,
    _open: list[bool],
    addresses: Sequence[str],
    stripe: Stripe,
    symmetrise: bool,
    name: str,
    order: DegreeOrder | None,
    timeout: float,
    layout: Layout | None = None,
    owners: Sequence[int] | None = None,
) -> int:
    """Bin a piece's edges, reading the piece if needed, and deliver the bins; return the number of edges read.

    Vertices become positions in ``order`` first.

    Args:
        source: the piece, or its edges.
        collection: this rank's collection; a second store takes the reversed edges.
        addresses: the workers' addresses, by rank. All of them have opened their collections.
        timeout: seconds that the delivery may take.
        layout: how the edges lie on the ranks; None in ``1d``.
        owners: the ranks that take bins; all of them if None.
        stripe, symmetrise, name: see ``binning.bin_edges``.

    Errors as for ``binning.bin_edges`` and ``delivering.deliver``.
    """
    from dbfs_workers.building.binning import bin_edges

    count = 0
    bins: Sequence[Bins]
    try:
        for src, dst in _portions(source):
            count += src.size
            if order is not None:
                src, dst = order.relabel(src, dst)
            if layout is not None:
                bins = layout.bins(src, dst, stripe, len(collection.stores), symmetrise=symmetrise, name=name)
            else:
                ways = [(src, dst), (dst, src)][: len(collection.stores)]
                binned = [bin_edges(*ends, stripe, symmetrise=symmetrise, name=name) for ends in ways]
                bins = list(zip(*binned, strict=True))
            deliver(collection, bins, addresses, timeout, owners)
    except BaseException as error:
        # The error's traceback would keep the bins until the error is forgotten.
        collection.close(error)
        raise
    return count


def make_partition(
    stripe: Stripe,
    rank: int,
    collection: Collection,
    read: list[int],
    directed: bool,
    hub_first: bool,
    name: str,
    m: int,
    paired: bool,
) -> Partition:
    """Return the rank's partition, made of the bins that the rank collected.

    Args:
        read: edges read by the tasks of all ranks.
        m: edges promised.
        paired: whether each edge's reverse must be there too: the partition then has its imbalance.
        stripe, rank, directed, hub_first: see ``building.build_partition``.

    Errors as for ``require_promised``.
    """
    from dbfs_workers.building.partitions import build_partition
    from dbfs_workers.search.partition.shared_rows import share

    threads = distributed.get_worker().state.nthreads
    try:
        require_promised(read, m, name)
        edges, *into = collection.stores
        partition = build_partition(
            stripe,
            rank,
            edges,
            input_edges=sum(read),
            directed=directed,
            in_edges=into[0] if into else None,
            hub_first=hub_first,
            threads=threads,
        )
        if paired:
            found = imbalance(partition.out_edges, rank * stripe.n_local, threads)
            partition = replace(partition, imbalance=found)
        return share(partition)
    finally:
        collection.close()


def require_promised(read: list[int], m: int, name: str) -> None:
    """Check that the tasks of all ranks read at most the promised edges. Raise ``FormatError`` if they read more."""
    if sum(read) > m:
        raise FormatError(f"{name} promises {counted(m, 'edge')} (by its header), and has {sum(read):,}")


def _portions(source: Piece | Edges | InputEdges) -> Iterator[Edges]:
    """Yield a piece's edges as int64 vertices, portion by portion, reading the piece if needed."""
    if not isinstance(source, tuple):
        yield from map(_int64, portions_of(source))
        return
    src, dst = source
    for start in range(0, max(src.size, 1), _PORTION_EDGES):
        yield _int64((src[start : start + _PORTION_EDGES], dst[start : start + _PORTION_EDGES]))


def _narrowed(src: NDArray[np.int64], dst: NDArray[np.int64]) -> Edges | InputEdges:
    """Return edges as uint32 if all ids fit."""
    if src.size and min(src.min(), dst.min()) >= 0 and max(src.max(), dst.max()) < MOST_SMALL_IDS:
        return src.astype(np.uint32), dst.astype(np.uint32)
    return src, dst


def _int64(edges: Edges | IdEdges | InputEdges) -> Edges:
    src, dst = edges
    return src.astype(np.int64, copy=False), dst.astype(np.int64, copy=False)
