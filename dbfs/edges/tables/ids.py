"""The ids that a table's columns may hold, and the conversion of columns to the ids of edges.

An id is an integer from 0 to 2^63-1, a string, or a tuple of these (several columns, or the fields of a struct). A
column of any integer width, of strings of any Arrow layout, or of categories of these is taken; any other column is
refused, and so is a missing value.
The functions import pyarrow where they run, so that ``import dbfs`` stays fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs.edges.edge_list import IdKind
from dbfs.edges.tables.ends import Ends
from dbfs.errors import EdgeInputError, InvalidOptionError
from dbfs_workers.ids.table import joined

if TYPE_CHECKING:
    from dbfs_workers.ids.table import Ids

INT64_MAX = (1 << 63) - 1
_NONE: Mapping[str, str] = MappingProxyType({})
_EXPECTED = "ids are integers from 0 to 2^63-1, strings, or several columns of these"


def as_strings(ids: str | None) -> bool:
    """Return whether the option ``ids`` asks for strings: not if it is None or ``given``.

    Raise ``InvalidOptionError`` for another value.
    """
    if ids not in (None, "given", "string"):
        raise InvalidOptionError(
            f"ids is {ids!r}; expected 'given', or 'string' for ids as the strings that are written"
        )
    return ids == "string"


def as_words(values: Iterable[Any]) -> NDArray[Any]:
    """Return values of any type as an array of objects, integers among them as the strings of their digits."""
    words = [str(int(one)) if isinstance(one, int | np.integer) and type(one) is not bool else one for one in values]
    found = np.empty(len(words), object)
    found[:] = words
    return found


@dataclass(frozen=True)
class Place:
    """The place of rows, for messages.

    Attributes:
        name: the table; the file, and the part of the file.
        first: number of the first row, counted from 0.
        labels: the labels of the rows, a pandas index; None if rows have numbers only.
    """

    name: str
    first: int = 0
    labels: Any = None

    def row(self, index: int) -> str:
        """Return the place of a row, given its index among these rows."""
        return f"{self.name}, {row_words(self.first + index, self.labels)}"


def row_words(row: int, labels: Any) -> str:
    """Return the words for a row of a table: its label in a pandas index, if that is not the row's number."""
    label = row if labels is None else labels[row]
    return f"row {row:,}" if label == row else f"row {getattr(label, 'item', lambda: label)()!r} of the index"


def require_kinds(
    schema: Any, ends: Ends, name: str, dtypes: Mapping[str, str] = _NONE, rows: int | None = None
) -> tuple[IdKind, ...]:
    """Return the kind of each part of an id, by an Arrow schema; none for a table without rows and types of ids.

    Args:
        name: the table's name in messages.
        dtypes: names of the columns' types in messages, where other than Arrow's.
        rows: the number of rows, if it is known.

    Raises:
        EdgeInputError: a column's type is none of an id, or the two ends are of different kinds.
    """
    kinds: list[IdKind] = []
    if rows == 0 and not all(
        _kind_of(kind, ends.strings) for column in ends.columns for _, kind in _fields(schema, column)
    ):
        return ()
    for source, target in zip(ends.source, ends.target, strict=True):
        ours, theirs = (
            [_kind(kind, field, name, dtypes, ends.strings) for field, kind in _fields(schema, column)]
            for column in (source, target)
        )
        if ours != theirs:
            of_source, of_target = (" and ".join(f"{kind}s" for kind in each) for each in (ours, theirs))
            raise EdgeInputError(
                f"{name}: column {source!r} holds {of_source} and column {target!r} {of_target}; both ends must have "
                "ids of one kind; ids='string' takes integers as strings"
            )
        kinds += ours
    return tuple(kinds)


def require_values(table: Any, ends: Ends, place: Place) -> None:
    """Refuse missing values and integers out of range, without a conversion of the columns of an Arrow table.

    Raises:
        EdgeInputError: a value is missing, negative or past 2^63-1; the message names its row and column.
    """
    import pyarrow as pa

    for column, values in _flattened(table, ends.columns):
        _require_present(values, column, place)
        if pa.types.is_integer(values.type) and not ends.strings:
            _require_range(values, column, place)


def edges_of(table: Any, ends: Ends, place: Place) -> tuple[Ids, Ids]:
    """Return the sources and targets in an Arrow table's columns: int64 arrays, or Arrow arrays.

    Strings become ``large_string``. Ids of several columns become a struct whose fields, each int64 or
    ``large_string``, have the names of the source's columns.

    Errors as for ``require_kinds`` and ``require_values``, and ``EdgeInputError`` for a string that is not valid UTF-8.
    """
    require_kinds(table.schema, ends, place.name)
    return ids_of(table, ends.source, ends, place), ids_of(table, ends.target, ends, place)


def joined_ids(parts: list[tuple[Ids, Ids]]) -> tuple[Ids, Ids]:
    """Return the edges of all parts, at least one, of one kind."""
    return joined([src for src, _ in parts]), joined([dst for _, dst in parts])


def in_portions(parts: Iterable[tuple[Ids, Ids]], size: int) -> Iterator[tuple[Ids, Ids]]:
    """Yield the edges of consecutive parts, at least one, as portions of ``size`` edges or somewhat more.

    Portions of strings and tuples have a quarter as many: they take more bytes. The last portion may be smaller.
    """
    held: list[tuple[Ids, Ids]] = []
    count, empty = 0, True
    for part in parts:
        held = [*held, part] if count else [part]
        count += len(part[0])
        if count >= (size if isinstance(part[0], np.ndarray) else size // 4):
            yield joined_ids(held) if len(held) > 1 else part
            held, count, empty = [], 0, False
    if count or empty:
        yield joined_ids(held)


def ids_of(table: Any, columns: Sequence[str], ends: Ends, place: Place) -> Ids:
    """Return the ids in columns of an Arrow table.

    The sources of ``ends`` name the fields of ids that are tuples. A struct's own fields have names.

    Errors as for ``edges_of``.
    """
    import pyarrow as pa

    parts = [_column(values, column, place, ends.strings) for column, values in _flattened(table, columns)]
    first = table.schema.field(ends.source[0]).type
    if len(ends.source) == 1 and not pa.types.is_struct(first):
        return parts[0]
    tuples = len(ends.source) == 1
    fields = [first.field(index).name for index in range(first.num_fields)] if tuples else list(ends.source)
    return pa.StructArray.from_arrays([pa.array(part) for part in parts], fields)


def _flattened(table: Any, columns: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield some columns of an Arrow table with their names; of a struct its fields, ``column.field``."""
    import pyarrow as pa

    for column in columns:
        values = table.column(column)
        if pa.types.is_struct(values.type):
            fields = [values.type.field(index).name for index in range(values.type.num_fields)]
            yield from zip((f"{column}.{field}" for field in fields), values.flatten(), strict=True)
        else:
            yield column, values


def _fields(schema: Any, column: str) -> list[tuple[str, Any]]:
    """Return the fields of a column of structs, ``column.field``, else the column itself, with their Arrow types."""
    import pyarrow as pa

    kind = schema.field(column).type
    if not pa.types.is_struct(kind) or not kind.num_fields:
        return [(column, kind)]
    fields = [kind.field(index) for index in range(kind.num_fields)]
    return [(f"{column}.{field.name}", field.type) for field in fields]


def _inner(kind: Any) -> Any:
    """Return the type of the values of an Arrow type, which may be one of categories."""
    import pyarrow as pa

    while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    return kind


def _kind_of(kind: Any, strings: bool) -> IdKind | None:
    """Return the kind of ids of an Arrow type; None if no id has it. ``strings`` as of ``Ends``."""
    import pyarrow as pa

    types, inner = pa.types, _inner(kind)
    if types.is_integer(inner):
        return "string" if strings else "integer"
    texts = types.is_string(inner) or types.is_large_string(inner) or types.is_string_view(inner)
    # DuckDB's integers of 128 bits become decimals without a scale.
    return "string" if texts or (strings and types.is_decimal(inner) and inner.scale == 0) else None


def _kind(kind: Any, column: str, name: str, dtypes: Mapping[str, str], strings: bool) -> IdKind:
    """Return the kind of ids of an Arrow type; arguments as of ``require_kinds`` and ``Ends``.

    Raises:
        EdgeInputError: no id has the type. The message says what to do about the most frequent ones.
    """
    import pyarrow as pa

    found = _kind_of(kind, strings)
    if found is not None:
        return found
    types, inner = pa.types, _inner(kind)
    if types.is_floating(inner):
        hint = (
            "Missing values turn integers into floats in pandas: drop those rows and convert the column, "
            f"frame.dropna(subset=[{column!r}]).astype({{{column!r}: 'int64'}})"
        )
    elif types.is_null(inner):
        hint = "All of its values are missing"
    elif types.is_nested(inner):
        hint = "For ids that are tuples, name a column for each part: source=['a', 'b']"
    else:
        hint = "Convert the column to integers or strings"
    raise EdgeInputError(f"{name}: column {column!r} holds {dtypes.get(column, kind)}; {_EXPECTED}. {hint}")


def _column(values: Any, column: str, place: Place, strings: bool) -> Ids:
    """Return the ids of one column: int64, or a ``large_string`` array; ``strings`` as of ``Ends``, errors as of
    ``edges_of``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_run_end_encoded(values.type):
        values = pc.run_end_decode(values)
    if pa.types.is_dictionary(values.type):
        values = decoded(values, column, place)
    _require_present(values, column, place)
    if pa.types.is_integer(values.type) and not strings:
        _require_range(values, column, place)
        return np.ascontiguousarray(values.to_numpy(), dtype=np.int64)
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise EdgeInputError(f"{place.name}: column {column!r} holds text that is not UTF-8 ({error})") from None
    if values.type != pa.large_string():
        values = values.cast(pa.large_string())
    return values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks or [pa.array([], values.type)])


def decoded(values: Any, column: str, place: Place) -> Any:
    """Return the values of a column of categories: strings, integers, or decimals without a scale.

    Raise ``EdgeInputError`` for categories that are broken.
    """
    import pyarrow as pa

    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise EdgeInputError(f"{place.name}: column {column!r} holds broken categories ({error})") from None
    inner = values.type.value_type
    if pa.types.is_string_view(inner):
        # Arrow can't take values of views.
        chunks = [
            pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.large_string()))
            for chunk in values.chunks
        ]
        values = pa.chunked_array(chunks, pa.dictionary(values.type.index_type, pa.large_string()))
    whole = pa.types.is_integer(inner) or pa.types.is_decimal(inner)
    return values.cast(inner if whole else pa.large_string())


def _require_present(values: Any, column: str, place: Place) -> None:
    import pyarrow.compute as pc

    if values.null_count:
        row = place.row(pc.index(pc.is_null(values), True).as_py())
        raise EdgeInputError(f"{row}: column {column!r} is null; an edge needs both ends. Drop rows with missing ids")


def _require_range(values: Any, column: str, place: Place) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    bounds = pc.min_max(values)
    if values.length() == 0:
        return
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low < 0:
        row = place.row(pc.index(pc.less(values, pa.scalar(0, values.type)), True).as_py())
        first = pc.filter(values, pc.less(values, pa.scalar(0, values.type)))[0].as_py()
        raise EdgeInputError(
            f"{row}: column {column!r} is {first}; integer ids are 0 or more. ids='string' takes any id as a string"
        )
    if high > INT64_MAX:
        over = pc.greater(values, pa.scalar(INT64_MAX, values.type))
        row, first = place.row(pc.index(over, True).as_py()), pc.filter(values, over)[0].as_py()
        raise EdgeInputError(
            f"{row}: column {column!r} is {first}; the largest integer id is {INT64_MAX}. "
            "ids='string' takes any id as a string"
        )
