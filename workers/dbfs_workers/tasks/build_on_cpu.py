"""Tasks of a build on CPUs: read a piece, map its ids, bin its edges by owner, make a rank's partition of the bins.

The tasks that need kernels import them where they run, so that a client that submits the tasks does not import Numba.
"""

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.errors import FormatError
from dbfs_workers.storage import ordering
from dbfs_workers.storage.ordering import DegreeOrder
from dbfs_workers.storage.partition import EdgeBin, InputEdges, Partition
from dbfs_workers.storage.partition import describe as describe
from dbfs_workers.storage.pieces import Edges, Piece
from dbfs_workers.storage.reading import require_room
from dbfs_workers.storage.stripe import Stripe

IdTable = tuple[NDArray[np.int64], int]
"""Distinct external ids in ascending order, and the number of edges that hold them. An id's index is its vertex."""

BinPair = tuple[EdgeBin, EdgeBin | None]
"""One owner's bin of edges, and its bin of reversed edges; None without in-edges."""


def read_piece(piece: Piece, _before: object = None) -> Edges:
    """Return the piece's edges, int64. ``_before`` only orders tasks."""
    return piece.read()


def distinct_ids(edges: Edges, external: bool) -> IdTable:
    """Return a piece's distinct ids (none unless ids are ``external``) and its number of edges."""
    return _distinct(list(edges)) if external else np.empty(0, np.int64), edges[0].size


def unite_ids(tables: list[IdTable], memory_share: float, name: str) -> IdTable:
    """Return the distinct ids of all pieces and their number of edges.

    Raises:
        GraphTooLargeError: the ids take more memory than this worker has left.
    """
    parts = [ids for ids, _ in tables]
    if len(parts) > 1:
        require_room(2 * sum(ids.nbytes for ids in parts), memory_share, f"{name}: the table of its vertex ids")
    return parts[0] if len(parts) == 1 else _distinct(parts), sum(count for _, count in tables)


def summarise_ids(table: IdTable) -> tuple[int, int, bool]:
    """Return the number of distinct ids, the number of edges, and whether the ids are 0..n-1 already."""
    ids, m = table
    return ids.size, m, bool(ids.size == 0 or ids[-1] == ids.size - 1)


def keep_edges(source: Piece | Edges, n: int, name: str, id_table: IdTable | None) -> InputEdges:
    """Return a piece's edges as uint32 vertex ids, reading the piece if needed.

    Raises:
        InvalidVertexError: a vertex id is outside 0..n-1.
    """
    from dbfs_workers.storage.building import check_ids

    src, dst = check_ids(*_as_vertices(source, id_table), n, name)
    return src.astype(np.uint32), dst.astype(np.uint32)


def count_edges(edges: InputEdges) -> int:
    """Return the number of edges. The client waits for the count, since the edges stay on the worker."""
    return edges[0].size


def count_degrees(
    source: Piece | Edges | InputEdges,
    n: int,
    symmetrise: bool,
    name: str,
    id_table: IdTable | None,
    before: NDArray[np.int64] | None,
) -> NDArray[np.int64]:
    """Return the degrees, int64[n], of a piece's edges plus the degrees counted ``before``.

    Raises:
        InvalidVertexError: a vertex id is outside 0..n-1.
    """
    src, dst = _as_vertices(source, id_table)
    degrees = ordering.count_degrees(src, dst, n, symmetrise=symmetrise, name=name)
    return degrees if before is None else degrees + before


def degree_order(counts: list[NDArray[np.int64]]) -> DegreeOrder:
    """Return the vertices' order by the sum of all ranks' degrees."""
    return ordering.degree_order(np.sum(counts, axis=0))


def bin_piece(
    edges: Edges | InputEdges,
    stripe: Stripe,
    symmetrise: bool,
    in_edges: bool,
    name: str,
    id_table: IdTable | None,
    order: DegreeOrder | None,
) -> tuple[BinPair, ...]:
    """Return one pair of bins per owner; with ``in_edges`` the second bin of a pair holds reversed edges.

    External ids first become vertices by ``id_table``; vertices then become positions in ``order``.

    Raises:
        InvalidVertexError: a vertex id is outside 0..n-1.
    """
    from dbfs_workers.storage.building import bin_edges

    src, dst = _as_vertices(edges, id_table)
    if order is not None:
        src, dst = order.relabel(src, dst)
    out = bin_edges(src, dst, stripe, symmetrise=symmetrise, name=name)
    if not in_edges:
        return tuple((edge_bin, None) for edge_bin in out)
    return tuple(zip(out, bin_edges(dst, src, stripe, symmetrise=symmetrise, name=name), strict=True))


def select_bin(bins: tuple[BinPair, ...], owner: int) -> BinPair:
    """Return one owner's bins, so that Dask sends an owner only its own."""
    return bins[owner]


def make_partition(
    stripe: Stripe, rank: int, rounds: list[list[BinPair]], directed: bool, hub_first: bool, name: str, m: int
) -> Partition:
    """Return the rank's partition, made of the rounds of bins that the rank collected.

    Raises:
        FormatError: the pieces held more than ``m`` edges. The partition would take more memory than was estimated.
    """
    from dbfs_workers.storage.building import build_partition

    read = sum(pair[0].read for received in rounds for pair in received)
    if read > m:
        raise FormatError(f"{name}: {m:,} edges are promised (by its header), {read:,} were read")
    out = [[pair[0] for pair in received] for received in rounds]
    into = [[pair[1] for pair in received if pair[1] is not None] for received in rounds]
    return build_partition(
        stripe, rank, out, directed=directed, in_rounds=into if any(into) else None, hub_first=hub_first
    )


def _as_vertices(source: Piece | Edges | InputEdges, id_table: IdTable | None) -> Edges:
    """Return a piece's edges as int64 vertex ids, reading the piece if needed.

    With ``id_table``, each external id is replaced by its index there.
    """
    src, dst = source if isinstance(source, tuple) else source.read()
    if id_table is not None:
        return np.searchsorted(id_table[0], src), np.searchsorted(id_table[0], dst)
    return src.astype(np.int64, copy=False), dst.astype(np.int64, copy=False)


def _distinct(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the distinct ids of all parts in ascending order.

    ``numpy.unique`` makes a hash table of 40 bytes for each id; this takes 17.
    """
    ids = np.concatenate(parts)
    ids.sort()
    first = np.empty(ids.size, bool)
    first[:1] = True
    np.not_equal(ids[1:], ids[:-1], out=first[1:])
    return ids[first]
