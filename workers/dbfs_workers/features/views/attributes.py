"""Tasks that deal the attributes of edges out to the ranks, and sort them as the edges of the partitions are sorted.

The attributes go the way of the edges once more: a piece's rows travel to the owners of the sources, with both ends of
their edges. An owner sorts its rows by the places of their edges in its partition. Parallel edges have one place; their
rows ascend by their values, so that neither the number of ranks nor the order of the input shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import EdgeInputError, FormatError
from dbfs_workers.building.layout import Layout
from dbfs_workers.building.pieces import AttributePiece, Edges, Piece, check_ids
from dbfs_workers.features.views.kept import RankAttributes, RankVertices, VertexRows
from dbfs_workers.search.partition.ordering import DegreeOrder
from dbfs_workers.search.partition.partition import InputEdges, RankEdges
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Listing:
    """How edges with attributes are listed.

    Attributes:
        name: their name, for errors.
        first_id: the id of vertex 0, for errors.
        symmetrise: whether an edge, unless it is a self-loop, also stands at its end.
        twice: whether each direction of an undirected edge has a row, and both the same values.
    """

    name: str
    first_id: int
    symmetrise: bool
    twice: bool


@dataclass(frozen=True)
class DealtRows:
    """Attributes on their way to the owner of their edges' sources.

    Attributes:
        lists: uint32, the places of the edges' adjacency lists among the rank's: 0 in the layout 1d.
        rows: uint32, the sources' local ids.
        targets: uint32, the targets: vertices, or positions in the order by degree.
        turned: bool, whether the row is of the other direction.
        table: the attributes.
    """

    lists: NDArray[np.uint32]
    rows: NDArray[np.uint32]
    targets: NDArray[np.uint32]
    turned: NDArray[np.bool]
    table: pa.Table

    def __sizeof__(self) -> int:
        arrays = (self.lists, self.rows, self.targets, self.turned)
        return sum(array.nbytes for array in arrays) + int(self.table.nbytes)


def deal_rows(
    sources: list[Piece | Edges | InputEdges],
    attributes: list[AttributePiece],
    stripe: Stripe,
    order: DegreeOrder | None,
    listing: Listing,
    layout: Layout | None,
    ways: int,
) -> list[list[DealtRows]]:
    """Deal the attributes of a rank's pieces out to the owners of the edges; return the rows by owner and way.

    Args:
        sources: the pieces, or their edges.
        attributes: the attributes of each piece.
        order: the order by degree; None if vertices keep the order given.
        layout: how the edges lie on the ranks; None in ``1d``.
        ways: 2 to deal each row also to the rank that has the edge by its end; else 1.

    Raises:
        FormatError: a piece has another number of edges than of rows.
        Other errors as for ``Piece.read`` and ``check_ids``.
    """
    import pyarrow as pa

    ends, tables, name = [], [], listing.name
    for source, piece in zip(sources, attributes, strict=True):
        read: tuple[Any, Any] = source if isinstance(source, tuple) else source.read()
        src, dst = check_ids(read[0], read[1], stripe.n, name)
        table = piece.attributes()
        if table.num_rows != src.size:
            raise FormatError(f"{name}: {src.size:,} edges have {table.num_rows:,} rows of attributes; read it again")
        ends.append((src, dst) if order is None else order.relabel(src, dst))
        tables.append(table)
    src, dst = (np.concatenate([pair[end] for pair in ends]) for end in (0, 1))
    table, rows = _joined(pa.concat_tables(tables)), np.arange(src.size)
    turned = np.zeros(src.size, bool)
    if listing.symmetrise or listing.twice:
        others = np.flatnonzero(src != dst)
        src, dst, rows = np.append(src, dst[others]), np.append(dst, src[others]), np.append(rows, others)
        turned = np.append(turned, np.ones(others.size, bool))
    dealt: list[list[DealtRows]] = [[] for _ in range(stripe.p)]
    for by_end, (start, end) in enumerate(((src, dst), (dst, src))[:ways]):
        ranks, lists = stripe.owner(start), np.zeros(start.size, np.int64)
        if layout is not None:
            ranks, lists = layout.places(ranks, stripe.owner(end), by_end=bool(by_end))
        # NumPy sorts 16 bits by radix.
        by_rank = np.argsort(ranks.astype(np.uint16), kind="stable")
        cuts = np.searchsorted(ranks[by_rank], np.arange(stripe.p + 1))
        for rank in range(stripe.p):
            here = by_rank[cuts[rank] : cuts[rank + 1]]
            of_list, row, other = (each[here].astype(np.uint32) for each in (lists, stripe.row(start), end))
            dealt[rank].append(DealtRows(of_list, row, other, turned[here], table.take(rows[here])))
    return dealt


def sort_dealt(
    parts: list[list[DealtRows]], partition: RankEdges, order: DegreeOrder | None, listing: Listing
) -> RankAttributes:
    """Return the attributes of a rank's edges, given what ``deal_rows`` dealt to it on each rank; see ``sort_rows``."""
    return sort_rows([list(way) for way in zip(*parts, strict=True)], partition, order, listing)


def sort_rows(
    parts: list[list[DealtRows]], partition: RankEdges, order: DegreeOrder | None, listing: Listing
) -> RankAttributes:
    """Return the attributes of a rank's edges, given what all ranks dealt to it.

    Args:
        parts: by way, from each rank: the edges by their starts, and by their ends if the rank has them so.
        order: the order by degree, in which columns are sorted by position instead of by internal id; None for none.

    Raises:
        FormatError: the rows are not those of the partition's edges.
        EdgeInputError: the two directions of an edge have other values.
    """
    tables = []
    for way, lists in zip(parts, (partition.out_lists(), partition.in_lists() or []), strict=False):
        tables.append(_sorted(way, [each.owner for each in lists], partition.stripe, order, listing))
    return of_tables(tables[0], tables[1] if len(tables) > 1 else None, partition, listing.name)


def rows_of(edges: RankEdges, attributes: RankAttributes, owner: int, *, by_end: bool) -> DealtRows:
    """Return the attributes of the edges of a rank that are in the rows of an owner, for its partition in ``1d``."""
    (table, into), lists, stripe = attributes.tables_of(edges), edges.out_lists(), edges.stripe
    if by_end:
        assert into is not None
        lists, table = edges.in_lists() or [], into
    at = next(at for at, each in enumerate(lists) if each.owner == owner)
    first, each = sum(before.columns.size for before in lists[:at]), lists[at]
    rows = np.repeat(np.arange(stripe.n_local, dtype=np.uint32), np.diff(each.csr.row_offsets))
    targets = stripe.vertex(each.columns.astype(np.int64)).astype(np.uint32)
    return DealtRows(np.zeros_like(rows), rows, targets, np.zeros(rows.size, bool), table.slice(first, rows.size))


def of_tables(out: pa.Table, into: pa.Table | None, partition: RankEdges, name: str) -> RankAttributes:
    """Return the attributes of a rank's edges, which are in the order of its lists. Errors as for ``sort_rows``."""
    in_lists = partition.in_lists()
    sizes = [out.num_rows, None if into is None else into.num_rows]
    expected = [partition.m_local, None if in_lists is None else sum(each.columns.size for each in in_lists)]
    if sizes != expected:
        raise FormatError(f"{name}: rank {partition.rank} has {expected} edges, and {sizes} rows of attributes")
    return RankAttributes(out, into)


def describe(attributes: RankAttributes) -> int:
    """Return the bytes of a rank's attributes, which stay on the worker."""
    return attributes.nbytes


def place_rows(piece: AttributePiece, rows: NDArray[np.int64], owned: int) -> RankVertices:
    """Return the attributes of all vertices that a rank owns, in the order of its rows; null where there are none.

    Args:
        piece: the attributes that there are.
        rows: the row of the rank of each of them.
        owned: number of vertices that the rank owns.

    Errors as for ``AttributePiece.attributes``.
    """
    import pyarrow as pa

    places = np.full(owned, -1)
    places[rows] = np.arange(rows.size)
    # A null index takes a null.
    return RankVertices(_joined(piece.attributes()).take(pa.array(places, mask=places < 0)))


def given_rows(piece: AttributePiece, rows: NDArray[np.int64]) -> VertexRows:
    """Return attributes that some rows of a rank get. Errors as for ``AttributePiece.attributes``."""
    return VertexRows(rows, piece.attributes())


def _sorted(
    parts: Sequence[DealtRows], owners: Sequence[int], stripe: Stripe, order: DegreeOrder | None, listing: Listing
) -> pa.Table:
    """Return the rows in the order of a rank's lists, which are of the rows of some owners."""
    import pyarrow as pa

    from dbfs_workers.features.views.kernels.ordering import in_order

    bits = np.uint64((stripe.p * stripe.n_local).bit_length())
    keys, table = _keys(parts, stripe, order, bits), _joined(pa.concat_tables([part.table for part in parts]))
    ascending, by_place = in_order(keys)
    if listing.twice:
        turned = np.concatenate([part.turned for part in parts])
        wrong = _unlike(keys, table, turned)
        if wrong is not None:
            row, column = (int(part) for part in divmod(keys[wrong[0]], np.uint64(1) << bits))
            end = column if order is not None else stripe.vertex(column)
            ends = (owners[row // stripe.n_local] + stripe.p * (row % stripe.n_local), end)
            ids = [int(end if order is None else order.vertex[end]) + listing.first_id for end in ends]
            here, there = ([*table.slice(row, 1).to_pylist()[0].values()] for row in wrong)
            raise EdgeInputError(
                f"{listing.name}: the edge from {ids[0]} to {ids[1]} has {here}, and its other direction {there}; an "
                "undirected edge has one value. directed=True keeps both"
            )
        if not listing.symmetrise:
            kept = ~turned[by_place]
            ascending, by_place = ascending[kept], by_place[kept]
    return table.take(_in_order(ascending, table, by_place))


def _keys(parts: Sequence[DealtRows], stripe: Stripe, order: DegreeOrder | None, bits: np.uint64) -> NDArray[np.uint64]:
    """Return by edge its column, in the lowest bits, and above them its row, counted through the rank's lists."""
    lists, rows, targets = (
        np.concatenate([getattr(part, of) for part in parts]).astype(np.int64) for of in ("lists", "rows", "targets")
    )
    columns = targets if order is not None else stripe.internal(targets)
    whole: NDArray[np.uint64] = (lists * stripe.n_local + rows).astype(np.uint64) << bits
    return whole | columns.astype(np.uint64)


def _in_order(keys: NDArray[np.uint64], table: pa.Table, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return rows, whose keys ascend, in an order in which those of one key ascend by their values."""
    repeats = keys[1:] == keys[:-1]
    if repeats.any():
        parallel = np.zeros(keys.size, bool)
        parallel[1:] |= repeats
        parallel[:-1] |= repeats
        at = np.flatnonzero(parallel)
        rows[at] = rows[at][_by_values(keys[at], table.take(rows[at]))]
    return rows


def _unlike(keys: NDArray[np.uint64], table: pa.Table, turned: NDArray[np.bool]) -> tuple[int, int] | None:
    """Return a row of an edge, and one of its other direction, where some row has values that none of those has.

    None if there is no such edge. One that is listed in one direction alone is passed over.

    Args:
        turned: whether a row is of the other direction.
    """
    import pyarrow as pa

    codes = np.zeros(keys.size, np.int64)
    for column in table.columns:
        values = column.combine_chunks()
        if not pa.types.is_dictionary(values.type):
            values = values.dictionary_encode(null_encoding="encode")
        own = values.indices.fill_null(-1).to_numpy().astype(np.int64) + 1
        codes = np.unique(codes * (own.max(initial=0) + 1) + own, return_inverse=True)[1]
    places = np.unique(keys, return_inverse=True)[1]
    rows = places * (codes.max(initial=0) + 1) + codes
    for side in (turned, ~turned):
        here, there = np.flatnonzero(side), np.flatnonzero(~side)
        lacking = here[np.isin(places[here], places[there]) & ~np.isin(rows[here], rows[there])]
        if lacking.size:
            found = (lacking[0], there[places[there] == places[lacking[0]]][0])
            return found if not turned[lacking[0]] else found[::-1]
    return None


def _by_values(keys: NDArray[np.uint64], table: pa.Table) -> NDArray[np.int64]:
    """Return the order of rows by keys that ascend, those of one key by their values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # Arrow sorts no dictionaries.
    columns = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    names = [str(place) for place in range(len(columns) + 1)]
    rows = pa.table([pa.array(keys), *columns], names)
    order: NDArray[np.int64] = pc.sort_indices(rows, [(name, "ascending") for name in names]).to_numpy()
    return order.astype(np.int64)


def _joined(table: pa.Table) -> Any:
    """Return a table whose columns have one chunk, and so one dictionary, each."""
    return table.unify_dictionaries().combine_chunks()
