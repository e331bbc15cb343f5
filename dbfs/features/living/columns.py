"""The columns of a batch of edges, which the ranks keep with the edges that they insert."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs.base.records import GraphRecord
from dbfs.cluster.gang import Gang
from dbfs.edges.arrays import ArrayEdges
from dbfs.edges.edge_list import EdgeList, tell_left_out
from dbfs.edges.resolve import edge_list
from dbfs.edges.tables.attributes import as_stored, columns_of
from dbfs.edges.tables.ids import Place
from dbfs.edges.tables.memory import is_table
from dbfs.errors import EdgeInputError
from dbfs_workers.features.living.carried import BatchRows, Keys
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    import pyarrow as pa

    from dbfs.edges.resolve import EdgeSource


def readable(edges: EdgeSource) -> EdgeSource:
    """Return a batch that can be read twice: a table of Arrow in the place of a stream, or of a dict of columns."""
    import pyarrow as pa

    if isinstance(edges, dict):
        try:
            return pa.table(edges)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise EdgeInputError(f"the dict can't be read as a table of columns: {error}") from None
    return edges.read_all() if isinstance(edges, pa.RecordBatchReader) else edges


def columns_in(edges: EdgeSource, listed: EdgeList, schema: pa.Schema, options: dict[str, Any]) -> pa.Table | None:
    """Return the columns of a batch's edges, in the order and of the types of ``schema``; nulls in those that it lacks.

    None if the batch has none of the columns. Its other columns are left out, as the log says.

    Args:
        edges, listed: the batch as it was given, and as an edge list.
        options: arguments of ``edge_list`` of which ``listed`` was made.

    Raises:
        EdgeInputError: values of a column are of another type than those of the graph. For files see also ``load``.
    """
    import pyarrow as pa

    of_matrix = isinstance(listed, ArrayEdges) and listed.weights is not None
    there = ("weight",) if of_matrix else listed.values
    names = [name for name in schema.names if name in there]
    if not of_matrix:
        tell_left_out(replace(listed, values=tuple(name for name in there if name not in names)))
    if not names:
        return None
    if is_table(edges):
        table = columns_of(edges, names, listed.name)
    else:
        kept = edge_list(edges, **options, attributes=names)
        kept = kept.keeping(names) if kept.attributes is None else kept
        assert kept.attributes is not None
        table = pa.concat_tables([piece.attributes() for piece in kept.attributes.cut(max(listed.m or 0, 1 << 20))])
    return fitted(table, schema, listed.name)


def fitted(table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """Return a table of some columns as one of all columns of ``schema``, in its types; nulls in the others.

    Raise ``EdgeInputError`` if values of a column are of another type; ``name`` is the table's name there.
    """
    import pyarrow as pa

    there = [field for field in schema if field.name in table.column_names]
    for field in there:
        _require_kind(table.schema.field(field.name).type, field.type, f"{name}: column {field.name!r}")
    given = as_stored(table, pa.schema(there), Place(name))
    columns = [given[field.name] if field in there else pa.nulls(table.num_rows, field.type) for field in schema]
    return pa.table(columns, schema).unify_dictionaries().combine_chunks()


def _require_kind(given: Any, kept: Any, where: str) -> None:
    """Raise ``EdgeInputError`` unless values of a type may be kept as another: numbers as numbers, texts as texts."""
    import pyarrow as pa

    kinds = pa.types

    def family(kind: Any) -> str:
        if kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind):
            return family(kind.value_type)
        if kinds.is_integer(kind) or kinds.is_floating(kind):
            return "numbers"
        texts = kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)
        return "texts" if texts else "booleans" if kinds.is_boolean(kind) else "times"

    of_times = kinds.is_temporal(given) or family(given) != "times"
    if not kinds.is_null(given) and not (of_times and family(given) == family(kept)):
        shown = kept.value_type if kinds.is_dictionary(kept) else kept
        raise EdgeInputError(f"{where} holds {given}, and that of the graph {shown}; convert the column")


def sent_rows(
    gang: Gang,
    record: GraphRecord,
    stripe: Stripe,
    ends: tuple[NDArray[np.int64], NDArray[np.int64]],
    rows: NDArray[np.int64],
    table: pa.Table,
) -> list[distributed.Future]:
    """Send the edges of a batch with their columns to the ranks; return by rank a future of its ``BatchRows``.

    Args:
        stripe: of the version that has the new vertices.
        ends: sources and targets, with the reverses of an undirected graph: positions.
        rows: the row of ``table`` of each edge.
    """
    src, dst = ends
    reverse = record.directed and record.infos[0].has_parents
    held = list[distributed.Future]()
    for rank in range(gang.p):

        def of_rank(src: NDArray[np.int64], dst: NDArray[np.int64], rank: int = rank) -> tuple[Keys, pa.Table]:
            own = np.flatnonzero(stripe.owner(src) == rank)
            places = dst[own] if record.order_key is not None else stripe.internal(dst[own])
            keys = stripe.row(src[own]).astype(np.uint64) << np.uint64(32) | places.astype(np.uint64)
            ascending = np.argsort(keys, kind="stable")
            return keys[ascending], table.take(rows[own][ascending])

        batch = BatchRows(*of_rank(src, dst), *(of_rank(dst, src) if reverse else (None, None)))
        held.append(gang.send(rank, batch, f"changing {record.name}"))
    return held


def keys_beside(record: GraphRecord) -> tuple[tuple[Hashable, ...], ...]:
    """Return by rank the Dask keys of the data beside a graph's partitions; nothing if there are none."""
    if record.beside is None or not record.beside.keys:
        return ()
    keys: Sequence[tuple[Hashable, ...]] = [tuple(record.beside.keys_of(rank)) for rank in range(record.stripe.p)]
    return tuple(keys)
