"""Tasks of a build on CPUs: read a piece, bin its edges by owner, make a rank's partition of the bins.

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
from dbfs_workers.storage.stripe import Stripe

BinPair = tuple[EdgeBin, EdgeBin | None]
"""One owner's bin of edges, and its bin of reversed edges; None without in-edges."""


def read_piece(piece: Piece, _before: object = None) -> Edges:
    """Return the piece's edges, int64. ``_before`` only orders tasks."""
    return piece.read()


def keep_edges(source: Piece | Edges, n: int, name: str) -> InputEdges:
    """Return a piece's edges as uint32 vertex ids, reading the piece if needed.

    Raises:
        InvalidVertexError: a vertex id is outside 0..n-1.
    """
    from dbfs_workers.storage.building import check_ids

    src, dst = check_ids(*_as_vertices(source), n, name)
    return src.astype(np.uint32), dst.astype(np.uint32)


def count_edges(edges: Edges | InputEdges) -> int:
    """Return the number of edges. The client waits for the count, since the edges stay on the worker."""
    return edges[0].size


def count_degrees(
    source: Piece | Edges | InputEdges,
    n: int,
    symmetrise: bool,
    name: str,
    before: NDArray[np.int64] | None,
) -> NDArray[np.int64]:
    """Return the degrees, int64[n], of a piece's edges plus the degrees counted ``before``.

    Raises:
        InvalidVertexError: a vertex id is outside 0..n-1.
    """
    src, dst = _as_vertices(source)
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
    order: DegreeOrder | None,
) -> tuple[BinPair, ...]:
    """Return one pair of bins per owner; with ``in_edges`` the second bin of a pair holds reversed edges.

    Vertices become positions in ``order`` first.

    Raises:
        InvalidVertexError: a vertex id is outside 0..n-1.
    """
    from dbfs_workers.storage.building import bin_edges

    src, dst = _as_vertices(edges)
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


def _as_vertices(source: Piece | Edges | InputEdges) -> Edges:
    """Return a piece's edges as int64 vertices, reading the piece if needed."""
    src, dst = source if isinstance(source, tuple) else source.read()
    return src.astype(np.int64, copy=False), dst.astype(np.int64, copy=False)
