"""The tasks of a build. They run on workers, which import the kernels: a client needs none."""

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.storage import ordering
from dbfs_workers.storage.ordering import DegreeOrder
from dbfs_workers.storage.partition import EdgeBin, InputEdges, Partition
from dbfs_workers.storage.partition import describe as describe
from dbfs_workers.storage.pieces import Edges, Piece
from dbfs_workers.storage.stripe import Stripe

UnitedIds = tuple[NDArray[np.int64], int]
"""Distinct ids in ascending order, and the number of edges they were found in."""

BinPair = tuple[EdgeBin, EdgeBin | None]
"""Edges by their source's owner, and by their target's."""


def read(piece: Piece, _before: object = None) -> Edges:
    """A piece's edges. ``_before`` only orders tasks."""
    return piece.read()


def distinct(read: Edges, wanted: bool) -> UnitedIds:
    """The distinct ids of a piece (none where not ``wanted``), and how many edges it has."""
    src, dst = read
    return np.unique(np.concatenate([src, dst])) if wanted else np.empty(0, np.int64), src.size


def unite(parts: list[UnitedIds]) -> UnitedIds:
    """The distinct ids of all pieces in ascending order, and the number of edges."""
    return np.unique(np.concatenate([ids for ids, _ in parts])), sum(count for _, count in parts)


def summarise_ids(united: UnitedIds) -> tuple[int, int, bool]:
    """Number of distinct ids, number of edges, and whether the ids are 0..n-1 already."""
    ids, m = united
    return ids.size, m, bool(ids.size == 0 or ids[-1] == ids.size - 1)


def keep(source: Piece | Edges, n: int, name: str, united: UnitedIds | None) -> InputEdges:
    """A piece's edges, read now if that was not done, between vertices."""
    from dbfs_workers.storage.building import check_ids

    src, dst = check_ids(*_vertices(source, united), n, name)
    return src.astype(np.uint32), dst.astype(np.uint32)


def count(edges: InputEdges) -> int:
    """How many there are."""
    return edges[0].size


def count_degrees(
    source: Piece | Edges | InputEdges,
    n: int,
    symmetrise: bool,
    name: str,
    united: UnitedIds | None,
    before: NDArray[np.int64] | None,
) -> NDArray[np.int64]:
    """Degrees int64[n] of a piece's edges, added to those counted ``before``."""
    src, dst = _vertices(source, united)
    degrees = ordering.count_degrees(src, dst, n, symmetrise=symmetrise, name=name)
    return degrees if before is None else degrees + before


def degree_order(counted: list[NDArray[np.int64]]) -> DegreeOrder:
    """The order of the sum of all degrees."""
    return ordering.degree_order(np.sum(counted, axis=0))


def bin_piece(
    read: Edges | InputEdges,
    stripe: Stripe,
    symmetrise: bool,
    in_edges: bool,
    name: str,
    united: UnitedIds | None,
    order: DegreeOrder | None,
) -> tuple[BinPair, ...]:
    """A piece's edges by owner, and those of their reverses where in-edges are wanted.

    First the ids of ``united`` (where given) become their ranks, then vertices their positions in ``order``.
    """
    from dbfs_workers.storage.building import bin_edges

    src, dst = _vertices(read, united)
    if order is not None:
        src, dst = order.relabel(src, dst)
    out = bin_edges(src, dst, stripe, symmetrise=symmetrise, name=name)
    if not in_edges:
        return tuple((made, None) for made in out)
    return tuple(zip(out, bin_edges(dst, src, stripe, symmetrise=symmetrise, name=name), strict=True))


def edge_bin(bins: tuple[BinPair, ...], owner: int) -> BinPair:
    """One owner's bins."""
    return bins[owner]


def make_partition(
    stripe: Stripe, rank: int, rounds: list[list[BinPair]], directed: bool, hub_first: bool
) -> Partition:
    """The partition of a rank from the rounds of bins that it collected."""
    from dbfs_workers.storage.building import build_partition

    out = [[pair[0] for pair in received] for received in rounds]
    into = [[pair[1] for pair in received if pair[1] is not None] for received in rounds]
    wanted = any(into)
    return build_partition(
        stripe, rank, out, directed=directed, in_rounds=into if wanted else None, hub_first=hub_first
    )


def _vertices(source: Piece | Edges | InputEdges, united: UnitedIds | None) -> Edges:
    """What was read of a piece, or is read now, as vertices: of ids their ranks in ``united``, where that is given."""
    src, dst = source if isinstance(source, tuple) else source.read()
    if united is not None:
        return np.searchsorted(united[0], src), np.searchsorted(united[0], dst)
    return src.astype(np.int64, copy=False), dst.astype(np.int64, copy=False)
