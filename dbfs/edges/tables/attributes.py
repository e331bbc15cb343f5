"""Attributes of edges: columns of a table that are kept beside the ends, as Arrow.

Integers, floats, booleans, dates, times and strings are kept, with nulls. Strings are kept as dictionaries: an index of
32 bits for each edge, and each distinct string once. The functions import pyarrow where they run, so that ``import
dbfs`` stays fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbfs.edges.edge_list import Attributes
from dbfs.edges.tables.ends import Ends, listed
from dbfs.edges.tables.ids import Place, decoded
from dbfs.errors import EdgeInputError, InvalidOptionError, InvalidOptionTypeError
from dbfs_workers.base.text import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

_EXPECTED = "integers, floats, booleans, dates, times and strings are kept"


def column_names(given: Any, option: str) -> tuple[str, ...]:
    """Return the names of columns that a caller gives: one, several, or None for none.

    Raises:
        InvalidOptionTypeError: they are no names.
        InvalidOptionError: a name occurs twice.
    """
    if given is None:
        return ()
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list | tuple) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise InvalidOptionTypeError(f"{option} must be a column's name or a list of names, not {given!r}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidOptionError(f"{option}= names column {twice!r} twice")
    return names


def require_columns(names: Sequence[str], there: Sequence[str], ends: Ends, where: str) -> None:
    """Check that columns may be attributes; ``there`` are all columns of the table, and ``where`` its name.

    Raises:
        EdgeInputError: a column is not there, or occurs twice, or is one of the ends.
    """
    require_there(names, there, where)
    end = next((name for name in names if name in ends.columns), None)
    if end is not None:
        raise EdgeInputError(f"{where}: column {end!r} is an end of the edges; edge_columns= names other columns")


def require_there(names: Sequence[str], there: Sequence[str], where: str) -> None:
    """Check that columns are among those of a table. Errors as for ``require_columns``."""
    for name in names:
        found = there.count(name)
        if not found:
            raise EdgeInputError(
                f"{where} has no column {name!r}{did_you_mean(name, there)} Its columns: {listed(list(there))}"
            )
        if found > 1:
            raise EdgeInputError(f"{where} has {found} columns named {name!r}; expected one")


def columns_of(table: Any, names: Sequence[str], where: str) -> pa.Table:
    """Return some columns of a table in memory as an Arrow table; ``where`` is its name in messages.

    Raises:
        EdgeInputError: the table can't be read, or Arrow has no type of a column's values.
    """
    import pyarrow as pa

    try:
        if type(table).__module__.partition(".")[0] in ("pandas", "cudf"):
            series = {str(label): table[label] for label in table.columns}
            return pa.table({name: values_of(series[name], name, where) for name in names})
        return pa.RecordBatchReader.from_stream(table).read_all().select([*names])
    except pa.ArrowException as error:
        raise EdgeInputError(f"{where}: the {type(table).__name__} can't be read as a table: {error}") from error


def values_of(series: Any, column: str, where: str) -> Any:
    """Return a Series of pandas or cuDF as an Arrow array; raise ``EdgeInputError`` if Arrow has no such values."""
    import pyarrow as pa

    try:
        return series.to_arrow() if hasattr(series, "to_arrow") else pa.array(series, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise EdgeInputError(f"{where}: column {column!r} can't be kept: {error}") from None


def stored_schema(schema: pa.Schema, names: Sequence[str], where: str) -> pa.Schema:
    """Return the schema in which columns are kept, given that of the table.

    Raises:
        EdgeInputError: a column's values are of a type that can't be kept.
    """
    import pyarrow as pa

    fields = []
    for name in names:
        kind = schema.field(name).type
        stored = _stored(kind)
        if stored is None:
            hint = "All of its values are missing" if pa.types.is_null(kind) else "Convert the column"
            raise EdgeInputError(f"{where}: column {name!r} holds {kind}; {_EXPECTED}. {hint}")
        fields.append(pa.field(name, stored))
    return pa.schema(fields)


def _stored(kind: Any) -> Any:
    """Return the Arrow type in which values of a type are kept; None if they are not."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _stored(kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.dictionary(pa.int32(), pa.string())
    kept = types.is_integer(kind) or types.is_boolean(kind) or types.is_temporal(kind) or types.is_floating(kind)
    # Arrow neither sorts halves nor intervals of months.
    return kind if kept and not types.is_float16(kind) and not types.is_interval(kind) else None


def as_stored(table: pa.Table, schema: pa.Schema, place: Place) -> pa.Table:
    """Return the columns of a table in the types in which they are kept.

    Raises:
        EdgeInputError: a value can't be converted, or a string is not valid UTF-8.
    """
    import pyarrow as pa

    columns = []
    for field in schema:
        try:
            columns.append(_as_stored(table.column(field.name), field, place))
        except pa.ArrowInvalid as error:
            raise EdgeInputError(
                f"{place.name}: column {field.name!r} can't be kept as {field.type}: {error}"
            ) from None
    return pa.table(columns, schema)


def _as_stored(values: Any, field: Any, place: Place) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_run_end_encoded(values.type):
        values = pc.run_end_decode(values)
    if not pa.types.is_dictionary(field.type):
        return values.cast(field.type)
    if values.type == field.type:
        return values.unify_dictionaries()
    if pa.types.is_dictionary(values.type):
        values = decoded(values, field.name, place)
    values.validate(full=True)
    return values.cast(pa.string()).dictionary_encode()


@dataclass(frozen=True, eq=False)
class AttributeRows:
    """The attributes of a slice of a table in the client's memory."""

    table: pa.Table
    schema: pa.Schema
    place: Place

    def attributes(self) -> pa.Table:
        """Return the rows as they are kept; errors as for ``as_stored``."""
        return as_stored(self.table, self.schema, self.place)

    def __sizeof__(self) -> int:
        return int(self.table.nbytes)

    # A pickled slice of a table would carry the buffers of the whole table; Arrow's stream carries the slice.
    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (as_stream(self.table), self.schema, self.place)


def as_stream(table: pa.Table) -> Any:
    """Return a table as the bytes of Arrow's stream, which carry the rows of a slice alone."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def _unpickled(stream: Any, schema: pa.Schema, place: Place) -> AttributeRows:
    import pyarrow as pa

    buffer = pa.py_buffer(stream)
    # It may lie anywhere in a message, and Arrow computes on words.
    aligned = buffer if buffer.address % 8 == 0 else pa.py_buffer(buffer.to_pybytes())
    return AttributeRows(pa.ipc.open_stream(aligned).read_all(), schema, place)


@dataclass(frozen=True, eq=False)
class TableAttributes(Attributes):
    """Attributes in the columns of an Arrow table in the client's memory.

    Attributes:
        table: the columns, a row for each edge.
        name: the table's name in messages.
    """

    table: pa.Table
    name: str

    @classmethod
    def of(cls, table: pa.Table, name: str) -> TableAttributes:
        """Return the attributes in all columns of a table. Errors as for ``stored_schema``."""
        return cls(stored_schema(table.schema, table.schema.names, name), table, name)

    def cut(self, piece_edges: int) -> Sequence[AttributeRows]:
        """Cut the table into slices of ``piece_edges`` rows; the last one may be shorter."""
        starts = range(0, max(self.table.num_rows, 1), piece_edges)
        return [AttributeRows(self.table.slice(at, piece_edges), self.schema, Place(self.name, at)) for at in starts]
