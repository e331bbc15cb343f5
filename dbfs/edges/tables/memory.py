"""Edge lists of tables in the client's memory: anything that offers Arrow's stream, with columns of ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dbfs.edges.edge_list import DistinctIds, EdgeList, are_dense
from dbfs.edges.tables.about import KEY, About
from dbfs.edges.tables.attributes import TableAttributes, as_stream, require_columns, values_of
from dbfs.edges.tables.ends import ColumnNames, Columns, Ends, choose_ends
from dbfs.edges.tables.ids import INT64_MAX, Place, as_words, edges_of, require_kinds, require_values, row_words
from dbfs.errors import DbfsError, EdgeInputError
from dbfs_workers.ids.sequence import IdSequence

if TYPE_CHECKING:
    import pyarrow as pa

    from dbfs_workers.building.pieces import IdEdges
    from dbfs_workers.ids.table import Ids


_OF_ANY_TYPE = ("object", "category")


@dataclass(frozen=True, eq=False)
class TablePiece:
    """Rows of a table.

    Attributes:
        table: an Arrow table of the columns of ``ends``.
        place: where the rows stand in the whole table.
        lone: ids of vertices that may have no edge; None for none.
    """

    table: pa.Table
    ends: Ends
    place: Place
    lone: Ids | None = None

    def read(self) -> IdEdges:
        """Return the rows' ids. See ``ids.edges_of``, also for errors."""
        return edges_of(self.table, self.ends, self.place)

    def lone_ids(self) -> Ids | None:
        """Return the ids of vertices that may have no edge; see ``PieceWithLoneIds``."""
        return self.lone

    def __sizeof__(self) -> int:
        return int(self.table.nbytes)

    # A pickled slice of a table would carry the buffers of the whole table; Arrow's stream carries the slice.
    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (as_stream(self.table), self.ends, self.place, self.lone)


def _unpickled(stream: Any, ends: Ends, place: Place, lone: Ids | None) -> TablePiece:
    import pyarrow as pa

    return TablePiece(pa.ipc.open_stream(stream).read_all(), ends, place, lone)


@dataclass(frozen=True, eq=False)
class TableEdges(EdgeList):
    """Edges in the rows of an Arrow table in the client's memory. A build sends each piece to one worker.

    Attributes:
        table: the columns of ``ends``; nothing is copied of them here.
        lone: ids of vertices that may have no edge; None for none.
    """

    table: pa.Table
    ends: Ends
    lone: Ids | None = None

    def cut(self, piece_edges: int) -> Sequence[TablePiece]:
        """Cut the table into slices of ``piece_edges`` rows; the last one may be shorter."""
        starts = range(0, max(self.table.num_rows, 1), piece_edges)
        first, *rest = [TablePiece(self.table.slice(at, piece_edges), self.ends, Place(self.name, at)) for at in starts]
        return [replace(first, lone=self.lone), *rest]

    @property
    def held_bytes(self) -> int:
        return int(self.table.nbytes)

    def distinct_ids(self) -> DistinctIds:
        from dbfs_workers.ids.codes import encode

        (piece,) = self.cut(max(self.table.num_rows, 1))
        lone = piece.lone_ids()
        _, ids = encode([*piece.read(), *([] if lone is None else [lone])])
        dense = isinstance(ids, np.ndarray) and are_dense(ids)
        return DistinctIds(len(ids), int(ids.nbytes), dense)


def is_table(edges: Any) -> bool:
    """Return whether an object is a table in memory: it offers Arrow's stream or batch, or is a cuDF DataFrame."""
    return hasattr(edges, "__arrow_c_stream__") or hasattr(edges, "__arrow_c_array__") or _module(edges) == "cudf"


def open_table(
    table: Any,
    *,
    source: ColumnNames,
    target: ColumnNames,
    directed: bool | None,
    name: str = "",
    strings: bool = False,
    attributes: Sequence[str] = (),
) -> TableEdges:
    """Make an edge list of a table in memory: an edge for each row.

    Args:
        table: a pandas, Polars or cuDF DataFrame, a pyarrow Table or RecordBatchReader, a DuckDB relation, or any other
            object with ``__arrow_c_stream__`` or ``__arrow_c_array__``.
        source, target: names of the columns; see ``dbfs.load``.
        directed: whether edges can be crossed in one direction only. None for what a table of dbfs says of itself, and
            for undirected edges in all others.
        name: the table's name; if empty, that of its columns, and ``table`` in messages of this function.
        strings: whether integers are taken as the strings of their digits.
        attributes: names of columns that are kept as attributes of the edges.

    Raises:
        EdgeInputError: the columns are not there, hold no ids, or miss a value; the message names the row. Or an
            attribute's column is an end, or of a type that can't be kept.
        InvalidOptionError, InvalidOptionTypeError: the names are not names of columns; or the edges of a table of dbfs
            have no order, and ``directed`` is true.
    """
    title = name or "table"
    try:
        whole, ends, others = _selected(table, source, target, title, strings, attributes)
        columns = whole.select(ends.columns)
        about = About.of_metadata(columns.schema.metadata, title)
    except DbfsError:
        raise
    except Exception as error:
        # The producer of the stream may be any library: its errors are of any type.
        raise EdgeInputError(f"{title}: the {type(table).__name__} can't be read as a table: {error}") from error
    labels, dtypes = None, {}
    if _module(table) == "pandas":
        of_column = {str(label): str(dtype) for label, dtype in table.dtypes.items()}
        # Values of any type are named by their Arrow type, which says more.
        dtypes = {column: of_column[column] for column in ends.columns if of_column[column] not in _OF_ANY_TYPE}
        labels = table.index
    kinds = require_kinds(columns.schema, ends, title, dtypes, columns.num_rows)
    if not kinds:
        raise EdgeInputError(f"{title} has no rows, and its columns have no type of ids; expected edges")
    require_values(columns, ends, Place(title, labels=labels))
    is_directed, lone, rows = bool(directed), None, columns.num_rows
    if about is not None:
        is_directed = about.direction(directed, title)
        lone = about.lone_ids(columns.schema, ends, rows, title)
    facts = {"values": others, "table": columns, "ends": ends, "id_kinds": kinds, "lone": lone}
    if attributes:
        facts["values"] = tuple(other for other in others if other not in attributes)
        facts["attributes"] = TableAttributes.of(whole.select(list(attributes)), title)
    return TableEdges(name or str(ends), None, rows, is_directed, **facts)


def open_columns(src: Any, dst: Any, *, directed: bool, name: str = "arrays", strings: bool = False) -> TableEdges:
    """Make an edge list of two columns that are no arrays of integers: arrays, Series or Arrow arrays of one length.

    Errors as for ``open_table``, and ``EdgeInputError`` if the columns differ in length.
    """
    source, target = _array(src, "src", name, strings), _array(dst, "dst", name, strings)
    if len(source) != len(target):
        raise EdgeInputError(f"src has {len(source)} ids and dst {len(target)}; both must have the same length")
    import pyarrow as pa

    ends = {"src": _parts(source), "dst": _parts(target)}
    names = {
        end: [f"{end}{place}" if len(parts) > 1 else end for place in range(len(parts))] for end, parts in ends.items()
    }
    table = pa.table([*ends["src"], *ends["dst"]], names=[*names["src"], *names["dst"]])
    columns = {"source": names["src"], "target": names["dst"]}
    return open_table(table, **columns, directed=directed, name=name, strings=strings)


def _parts(ids: Any) -> list[Any]:
    """Return the columns of ids: those of tuples, which are structs of two parts or more, else the ids themselves."""
    import pyarrow as pa

    tuples = pa.types.is_struct(ids.type) and ids.type.num_fields > 1 and not ids.null_count
    return [*ids.flatten()] if tuples else [ids]


def _selected(
    table: Any, source: ColumnNames, target: ColumnNames, name: str, strings: bool, attributes: Sequence[str]
) -> tuple[pa.Table, Ends, tuple[str, ...]]:
    """Return the columns of the ends and of attributes as an Arrow table, the ends, and the names of all but the ends.

    No other columns are read where the library allows it.
    """
    import pyarrow as pa

    def chosen(names: list[str]) -> tuple[Ends, tuple[str, ...]]:
        ends = replace(choose_ends(names, source, target, name), strings=strings)
        require_columns(attributes, names, ends, name)
        return ends, Columns(tuple(names), ends).others

    if _module(table) in ("pandas", "cudf"):
        labels = list(table.columns)
        if source is None and target is None:
            _require_no_matrix(table, [str(label) for label in labels], name)
        ends, others = chosen([str(label) for label in labels])
        picked = {column: table[_label(labels, column)] for column in (*ends.columns, *attributes)}
        if _module(table) == "cudf":
            return pa.table({column: series.to_arrow() for column, series in picked.items()}), ends, others
        columns = pa.table({column: _array(picked[column], column, name, strings) for column in ends.columns})
        for column in attributes:
            columns = columns.append_column(column, values_of(picked[column], column, name))
        if isinstance(text := table.attrs.get(KEY), str):
            typed = None if columns.num_rows else About.of_text(text, name).empty(ends.columns)
            columns = (columns if typed is None or attributes else typed).replace_schema_metadata({KEY: text})
        return columns, ends, others
    if not hasattr(table, "__arrow_c_stream__"):
        table = pa.table(pa.record_batch(table))
    reader = pa.RecordBatchReader.from_stream(table)
    ends, others = chosen(reader.schema.names)
    chosen_columns = [*ends.columns, *attributes]
    schema = pa.schema([reader.schema.field(column) for column in chosen_columns], reader.schema.metadata)
    return pa.Table.from_batches([batch.select(chosen_columns) for batch in reader], schema), ends, others


def _require_no_matrix(table: Any, labels: list[str], name: str) -> None:
    """Raise ``EdgeInputError`` for a DataFrame whose rows have the labels of its columns: an adjacency matrix.

    Two rows of two columns without labels may be edges.
    """
    if len(table) == len(labels) > 1 and labels != ["0", "1"]:
        rows = table.index.to_pandas() if _module(table) == "cudf" else table.index
        if [str(row) for row in rows] == labels:
            raise EdgeInputError(
                f"{name}: its rows have the labels of its columns, as those of an adjacency matrix have. Pass "
                "networkx.from_pandas_adjacency(frame), whose ids are the labels, or a SciPy matrix; of edges name the "
                "columns of the ends by source= and target="
            )


def _label(labels: list[Any], column: str) -> Any:
    """Return the label of a column, which need not be a string."""
    return next(label for label in labels if str(label) == column)


def _array(values: Any, column: str, name: str, strings: bool = False) -> Any:
    """Return a column as an Arrow array or chunked array; ``strings`` as of ``open_table``.

    Raise ``EdgeInputError`` if the values are of several types, or of none that Arrow has.
    """
    import pyarrow as pa

    if strings and str(getattr(values, "dtype", "")) in _OF_ANY_TYPE:
        values = as_words(values)

    try:
        if isinstance(values, pa.Array | pa.ChunkedArray | IdSequence):
            return values.to_arrow() if isinstance(values, IdSequence) else values
        if _module(values) == "pandas" and any(isinstance(value, tuple) for value in values[:1]):
            parts = [pa.array(part) for part in zip(*values, strict=True)]
            return pa.StructArray.from_arrays(parts, [str(place) for place in range(len(parts))])
        # Not through Arrow's stream: that of a Series drops the names of its values' types in errors.
        return pa.array(values if _module(values) == "pandas" else _plain(values), from_pandas=True)
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        ValueError,
        TypeError,
        OverflowError,
    ) as error:
        raise EdgeInputError(f"{name}: column {column!r} {_first_wrong(values) or f'holds no ids: {error}'}") from None


def _plain(values: Any) -> Any:
    array = values if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"its array is {array.ndim}-dimensional; expected one dimension")
    return array


def _first_wrong(values: Any) -> str | None:
    """Return which two types a column mixes, or which integer is past int64, with the rows; None if neither is so."""
    first: tuple[str, str] | None = None
    labels = values.index if _module(values) == "pandas" else None
    for row, value in enumerate(values):
        if value is None or value != value:
            continue
        if isinstance(value, int) and value > INT64_MAX:
            where = row_words(row, labels)
            most = f"the largest integer id is {INT64_MAX}. ids='string' takes any id as a string"
            return f"is {value} in {where}; {most}"
        kind = type(value).__name__
        if first is None:
            first = (kind, row_words(row, labels))
        elif kind != first[0]:
            return (
                f"mixes types: {first[0]} in {first[1]} and {kind} in {row_words(row, labels)}; ids must be of one "
                "type. ids='string' takes integers as strings"
            )
    return None


def _module(value: Any) -> str:
    return type(value).__module__.partition(".")[0]
