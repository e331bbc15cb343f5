"""Tasks of a build on GPUs: count degrees, bin edges by owner, copy peers' bins, sort them, make a rank's partition.

Results (``gpu_data``) stay in the memory of the worker's GPU. A task waits for its GPU before it ends, so any stream,
thread or process may read what the task returned.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.building import cuda as building
from dbfs_workers.building.cuda import KEY_BYTES, BinnedKeys, CsrBand, check_ids
from dbfs_workers.building.gpu_data import (
    BandEdges,
    BinOffer,
    DegreeCounts,
    DeviceEdges,
    GpuDegreeOrder,
    Offer,
)
from dbfs_workers.building.on_cpu import count_edges, read_piece
from dbfs_workers.building.pieces import Edges, GeneratedPiece, Piece
from dbfs_workers.building.reading import read_ahead
from dbfs_workers.building.symmetry import imbalance
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.cuda.device_memory import release_pool
from dbfs_workers.search.cuda.failures import on_gpu
from dbfs_workers.search.partition.ordering import DegreeOrder
from dbfs_workers.search.partition.partition import Csr, InputEdges, Partition, PartitionInfo
from dbfs_workers.search.partition.partition import describe as partition_info
from dbfs_workers.search.partition.stripe import Stripe

__all__ = ["count_edges", "read_piece"]

# Most threads in which a rank reads pieces of files: each holds a piece in the host's memory.
_MOST_THREADS = 16

EdgeSource = Piece | Edges | InputEdges
"""A piece, or its edges, on the host or on the GPU."""


def keep_edges(source: EdgeSource, n: int, name: str) -> InputEdges:
    """Return a piece's edges as uint32 vertex ids on the GPU, reading the piece if needed.

    Errors as for ``bin_edges``.
    """
    with on_gpu(f"keeping edges of {name}"):
        src, dst = _as_vertices(source)
        check_ids(src, dst, n, name)
        return DeviceEdges((src.astype(np.uint32), dst.astype(np.uint32)))


def count_degrees(
    sources: Sequence[EdgeSource], rank: int, n: int, symmetrise: bool, name: str, ranks_here: int
) -> DegreeCounts:
    """Return the degrees of the edges in all of a rank's pieces; ``ranks_here`` as of ``bin_edges``.

    Errors as for ``bin_edges``.
    """
    where = f"rank {rank}, counting degrees of {name}"
    with on_gpu(where):
        device_memory.require(8 * n, where)
        degrees = device_memory.own_allocation(n, np.uint64)
        degrees.fill(0)
        for src, dst in _all_vertices(sources, ranks_here):
            building.count_degrees(src, dst, n, symmetrise=symmetrise, name=name, degrees=degrees)
        return DegreeCounts([degrees])


def place_degrees(near: NDArray[np.int64], rank: int, name: str) -> DegreeCounts:
    """Return what vertices are ordered by in place of degrees, int64[n] of the host, on the GPU."""
    where = f"rank {rank}, ordering {name}"
    with on_gpu(where):
        device_memory.require(8 * near.size, where)
        degrees = device_memory.own_allocation(near.size, np.uint64)
        degrees.set(near.view(np.uint64))
        return DegreeCounts([degrees])


def offer_degrees(counts: DegreeCounts, peer: int | None) -> Offer:
    """Offer a rank's degrees to one peer through the host, or to all peers (None) for mapping."""
    degrees = counts.degrees[0]
    # Each peer copies the whole array, so it is owner 0's part for all of them.
    return Offer.make(degrees, np.array([0, degrees.size]), None if peer is None else 0)


def order_by_degree(
    own: DegreeCounts, offers: Sequence[Offer], stripe: Stripe, bands: int, rank: int, name: str, are_degrees: bool
) -> GpuDegreeOrder:
    """Add up all ranks' degrees and return the vertices' order by the sums. Errors as for ``bin_edges``.

    If they are no degrees (``place_degrees``), bands have equally many rows instead of edges.
    """
    import cupy

    where = f"rank {rank}, ordering {name}"
    with on_gpu(where):
        # The sums and the sorted keys; beside them a peer's degrees, or the sort's second buffer.
        device_memory.require(2 * 8 * stripe.n + building.sort_bytes(8 * stripe.n), where)
        degrees = own.degrees[0].copy()
        peers = cupy.empty_like(degrees)
        for offer in offers:
            offer.copy_part(0, peers)
            degrees += peers
        del peers
        position, vertex = building.degree_order(degrees)
        rows = building.even_rows(stripe, bands)
        if bands > 1 and are_degrees:
            # Replaces the degrees by vertex, whose memory the running sums then take.
            degrees = degrees[vertex]
            rows = building.rows_by_degree(stripe, bands, degrees)
        return GpuDegreeOrder(position, vertex, rows)


def degrees_read(order: GpuDegreeOrder) -> int:
    """Return n once a rank has read its peers' degrees: the peers may then free them."""
    return int(order.position.size)


def degree_order(order: GpuDegreeOrder) -> DegreeOrder:
    """Copy the order to the host, for clients."""
    import cupy

    return DegreeOrder(cupy.asnumpy(order.position), cupy.asnumpy(order.vertex))


def bin_edges(
    sources: Sequence[EdgeSource],
    stripe: Stripe,
    rank: int,
    symmetrise: bool,
    in_edges: bool,
    name: str,
    order: GpuDegreeOrder | None,
    band: int,
    bands: int,
    ranks_here: int,
    _before: object,
) -> BandEdges[BinnedKeys]:
    """Return the edges of all of a rank's pieces by owner: those of one band of the rows.

    Args:
        sources: the rank's pieces, or their edges. Pieces that are not generated are read by threads.
        stripe, symmetrise, name, order: see ``cuda.bin_edges``.
        in_edges: also bin the reversed edges.
        band, bands: the band, and the number of bands.
        ranks_here: number of ranks of the graph on this host, which share its cores.
        _before: only orders tasks.

    Errors as for ``cuda.bin_edges``.
    """
    where = f"rank {rank}, binning {name}"
    position = None if order is None else order.position
    bins: BandEdges[BinnedKeys] = BandEdges(
        0, (building.even_rows(stripe, bands) if order is None else order.rows)[band]
    )
    bin_piece = partial(
        building.bin_edges,
        stripe=stripe,
        symmetrise=symmetrise,
        name=name,
        where=where,
        rows=bins.rows,
        position=position,
    )
    with on_gpu(where):
        for src, dst in _all_vertices(sources, ranks_here):
            bins.read += src.size
            bins.out.append(bin_piece(src, dst))
            if in_edges:
                bins.into.append(bin_piece(dst, src))
            del src, dst
        bins.out = [building.merge(bins.out, stripe.p, where)]
        bins.into = [building.merge(bins.into, stripe.p, where)] if in_edges else []
    return bins


def offer_bins(bins: BandEdges[BinnedKeys], peer: int | None) -> BinOffer:
    """Offer a rank's bins to one peer through the host, or to all peers (None) for mapping."""
    out, *into = (Offer.make(binned.keys, binned.starts, peer) for binned in (*bins.out, *bins.into))
    return BinOffer(bins.read, out, into[0] if into else None)


def collect_keys(
    own: BandEdges[BinnedKeys], offers: Sequence[BinOffer], rank: int, name: str, unused: DegreeCounts | None
) -> BandEdges[Any]:
    """Copy an owner's keys from all ranks' bins. Degrees that are ``unused`` by now are freed first.

    Errors as for ``Offer.copy_part``, and ``GraphTooLargeError`` if the keys don't fit the GPU.
    """
    if unused is not None:
        unused.degrees.clear()
    where = f"rank {rank}, collecting {name}"
    with on_gpu(where):
        out = [_collect(binned, [offer.out for offer in offers], rank, where) for binned in own.out]
        from_peers = [offer.into for offer in offers if offer.into is not None]
        into = [_collect(binned, from_peers, rank, where) for binned in own.into]
        return BandEdges(own.read + sum(offer.read for offer in offers), own.rows, out, into)


def bins_read(collected: BandEdges[Any]) -> int:
    """Return the number of input edges once an owner has read all ranks' bins: the ranks may then free them."""
    return collected.read


def free_bins(bins: BandEdges[BinnedKeys], _bins_read: list[int]) -> None:
    """Free a rank's bins. ``_bins_read`` makes the task wait until all owners have read them."""
    bins.out.clear()
    bins.into.clear()
    release_pool()


def sort_rows(
    collected: BandEdges[Any], _freed: None, stripe: Stripe, rank: int, by_position: bool, name: str
) -> BandEdges[CsrBand]:
    """Sort an owner's keys into rows. ``_freed`` makes the task wait for memory: the rank's bins are freed first.

    Errors as for ``bin_edges``.
    """
    where = f"rank {rank}, sorting {name}"
    rows: BandEdges[CsrBand] = BandEdges(collected.read, collected.rows)
    with on_gpu(where):
        for keys, bands in ((collected.out, rows.out), (collected.into, rows.into)):
            if keys:
                make_csr = partial(building.make_csr, rows=collected.rows, by_position=by_position, where=where)
                bands.append(make_csr(keys.pop(), stripe, rank))
    return rows


def make_partition(
    bands: list[BandEdges[CsrBand]], stripe: Stripe, rank: int, directed: bool, name: str, paired: bool
) -> Partition:
    """Join the rows of all bands to the rank's partition, and free them; ``paired`` as of ``on_cpu.make_partition``.

    Errors as for ``bin_edges``.
    """
    where = f"rank {rank}, joining {name}"
    with on_gpu(where):
        out = building.join([rows.out.pop() for rows in bands], where)
        edges = Csr(out.row_offsets, out.columns)
        into = building.join([rows.into.pop() for rows in bands], where) if bands[0].into else None
        return Partition(
            stripe,
            rank,
            out.row_offsets,
            out.columns,
            out.self_loops,
            out.duplicates,
            bands[0].read,
            directed,
            None if into is None else Csr(into.row_offsets, into.columns),
            imbalance=imbalance(edges, rank * stripe.n_local) if paired else 0,
        )


def describe(partition: Partition) -> PartitionInfo:
    """Return the partition's counts: see ``partition.describe``."""
    with on_gpu(f"rank {partition.rank}, describing its partition"):
        return partition_info(partition)


def _collect(own: BinnedKeys, offers: Sequence[Offer], rank: int, where: str) -> Any:
    """Return the rank's keys of its own bins and of its peers': one uint64 array on the GPU."""
    import cupy

    mine = own.keys[own.starts[rank] : own.starts[rank + 1]]
    if not offers:
        return mine
    sizes = [mine.size, *(offer.size(rank) for offer in offers)]
    device_memory.require(KEY_BYTES * sum(sizes), where)
    keys = cupy.empty(sum(sizes), np.uint64)
    keys[: mine.size] = mine
    for offer, (start, end) in zip(offers, pairwise(np.cumsum(sizes).tolist()), strict=True):
        offer.copy_part(rank, keys[start:end])
    return keys


def _all_vertices(sources: Sequence[EdgeSource], ranks_here: int) -> Iterator[Edges]:
    """Yield the edges of each source as int64 vertices on the GPU. Threads read pieces of files while the GPU works."""
    if all(isinstance(source, (GeneratedPiece, tuple)) for source in sources):
        yield from map(_as_vertices, sources)
        return
    threads = max(1, min(_MOST_THREADS, len(os.sched_getaffinity(0)) // ranks_here))
    yield from map(_as_vertices, read_ahead(sources, _on_host, threads))


def _on_host(source: EdgeSource) -> EdgeSource:
    """Return a piece's edges on the host, reading the piece if needed; a generated piece is made on the GPU."""
    return source if isinstance(source, (GeneratedPiece, tuple)) else read_piece(source)


def _as_vertices(source: EdgeSource) -> Edges:
    """Return a piece's edges as int64 vertices on the GPU, reading or generating the piece if needed."""
    import cupy

    if isinstance(source, GeneratedPiece):
        ends = source.read_on(cupy)
    else:
        ends = source if isinstance(source, tuple) else source.read()
    src, dst = (cupy.asarray(side).astype(np.int64, copy=False) for side in ends)
    return cupy.ascontiguousarray(src), cupy.ascontiguousarray(dst)
