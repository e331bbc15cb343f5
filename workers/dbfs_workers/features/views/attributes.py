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

from dbfs_workers.base.errors import FormatError
from dbfs_workers.building.pieces import AttributePiece, Edges, Piece, check_ids
from dbfs_workers.features.views.kept import RankAttributes, RankVertices, VertexRows
from dbfs_workers.search.partition.ordering import DegreeOrder
from dbfs_workers.search.partition.partition import InputEdges, Partition
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class DealtRows:
    """Attributes on their way to the owner of their edges' sources.

    Attributes:
        rows: uint32, the sources' local ids.
        targets: uint32, the targets: vertices, or positions in the order by degree.
        table: the attributes.
    """

    rows: NDArray[np.uint32]
    targets: NDArray[np.uint32]
    table: pa.Table

    def __sizeof__(self) -> int:
        return self.rows.nbytes + self.targets.nbytes + int(self.table.nbytes)


def deal_rows(
    sources: list[Piece | Edges | InputEdges],
    attributes: list[AttributePiece],
    stripe: Stripe,
    order: DegreeOrder | None,
    symmetrise: bool,
    ways: int,
    name: str,
) -> list[list[DealtRows]]:
    """Deal the attributes of a rank's pieces out to the owners of the edges; return the rows by owner and way.

    Args:
        sources: the pieces, or their edges.
        attributes: the attributes of each piece.
        order: the order by degree; None if vertices keep the order given.
        symmetrise: whether an edge, unless it is a self-loop, also stands at its end.
        ways: 2 to deal each row also to the owner of its edge's end, for the in-edges; else 1.
        name: the edges' name, for errors.

    Raises:
        FormatError: a piece has another number of edges than of rows.
        Other errors as for ``Piece.read`` and ``check_ids``.
    """
    import pyarrow as pa

    ends, tables = [], []
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
    if symmetrise:
        others = np.flatnonzero(src != dst)
        src, dst, rows = np.append(src, dst[others]), np.append(dst, src[others]), np.append(rows, others)
    dealt: list[list[DealtRows]] = [[] for _ in range(stripe.p)]
    for start, end in ((src, dst), (dst, src))[:ways]:
        owners = stripe.owner(start)
        by_owner = np.argsort(owners, kind="stable")
        cuts = np.searchsorted(owners[by_owner], np.arange(stripe.p + 1))
        for owner in range(stripe.p):
            here = by_owner[cuts[owner] : cuts[owner + 1]]
            places = (stripe.row(start[here]).astype(np.uint32), end[here].astype(np.uint32))
            dealt[owner].append(DealtRows(*places, table.take(rows[here])))
    return dealt


def sort_rows(parts: list[list[DealtRows]], partition: Partition, hub_first: bool, name: str) -> RankAttributes:
    """Return the attributes of a rank's edges, given what all ranks dealt to it.

    Args:
        hub_first: whether columns are sorted by position, instead of by internal id.
        name: the edges' name, for errors.

    Raises:
        FormatError: the rows are not those of the partition's edges.
    """
    tables = [_sorted([part[way] for part in parts], partition, hub_first) for way in range(len(parts[0]))]
    into = None if partition.in_edges is None else partition.in_edges.columns.size
    sizes, expected = [table.num_rows for table in tables], [partition.m_local, *([] if into is None else [into])]
    if sizes != expected:
        raise FormatError(f"{name}: rank {partition.rank} has {expected} edges, and {sizes} rows of attributes")
    return RankAttributes(tables[0], tables[1] if len(tables) > 1 else None)


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


def _sorted(parts: Sequence[DealtRows], partition: Partition, hub_first: bool) -> pa.Table:
    import pyarrow as pa

    stripe = partition.stripe
    targets = np.concatenate([part.targets for part in parts]).astype(np.int64)
    places = targets if hub_first else stripe.internal(targets)
    keys = (np.concatenate([part.rows for part in parts]).astype(np.uint64) << np.uint64(32)) | places.astype(np.uint64)
    table, by_place = _joined(pa.concat_tables([part.table for part in parts])), np.argsort(keys)
    keys = keys[by_place]
    repeats = keys[1:] == keys[:-1]
    if repeats.any():
        parallel = np.zeros(keys.size, bool)
        parallel[1:] |= repeats
        parallel[:-1] |= repeats
        at = np.flatnonzero(parallel)
        by_place[at] = by_place[at][_by_values(keys[at], table.take(by_place[at]))]
    return table.take(by_place)


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
