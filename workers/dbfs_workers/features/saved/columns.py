"""Columns of edges and of vertices in files of a saved graph.

A file has a record batch whose rows are the edges, or the vertices, of a rank. The arrays of its columns are, by the
manifest's names for them: of a column of strings ``ends.NAME`` and ``text.NAME``, the distinct strings; then, of each
column, ``valid.NAME``, the bits of values that are there, if some are null, and ``value.NAME``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import FormatError
from dbfs_workers.base.folder import Folder
from dbfs_workers.features.saved.blocks import Content
from dbfs_workers.features.saved.manifest import BOOLEANS, STRINGS, SavedColumn, SavedFile, array
from dbfs_workers.features.saved.writing import write_file

if TYPE_CHECKING:
    import pyarrow as pa

    Named = list[tuple[str, NDArray[Any]]]


def columns_of(table: pa.Table | None) -> tuple[SavedColumn, ...]:
    """Return the columns of a table that the ranks keep; none of None."""
    return () if table is None else tuple(SavedColumn(field.name, _kind_of(field.type)) for field in table.schema)


def _kind_of(kind: Any) -> str:
    import pyarrow as pa

    return str(kind.value_type if pa.types.is_dictionary(kind) else kind)


def schema_of(columns: Sequence[SavedColumn]) -> pa.Schema:
    """Return the Arrow schema of columns as the ranks keep them."""
    import pyarrow as pa

    return pa.schema([pa.field(column.name, _type_of(column.kind)) for column in columns])


def _type_of(kind: str) -> Any:
    import pyarrow as pa

    if kind == STRINGS:
        return pa.dictionary(pa.int32(), pa.string())
    unit, zoned, zone = kind.removeprefix("timestamp[").removesuffix("]").partition(", tz=")
    return pa.timestamp(unit, zone) if zoned else pa.type_for_alias(kind)


def write(folder: Folder, name: str, table: pa.Table, look: Callable[[], None]) -> SavedFile:
    """Write a table to a new file; arguments and errors as of ``writing.write_partition``."""
    import pyarrow as pa

    texts, values, arrays = list[Any](), list[Any](), list[Any]()
    for column, values_of in zip(columns_of(table), table.columns, strict=True):
        made, strings, own = _taken_apart(column, values_of.combine_chunks())
        arrays.append(made)
        texts += strings
        values += own
    batch = pa.record_batch(arrays, table.schema.names)
    return write_file(folder, name, [(batch, [*texts, *values])], look)


def _taken_apart(column: SavedColumn, values: Any) -> tuple[Any, Named, Named]:
    """Return the values of a column in buffers of their own, as Arrow's array; and the buffers as named arrays.

    The first ones are those of distinct strings. Arrow writes what is not cut off or padded as it is.
    """
    import pyarrow as pa

    name, rows = column.name, len(values)
    valid = None
    if values.null_count:
        valid = np.packbits(values.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    if column.kind == STRINGS:
        if values.dictionary.null_count:
            values = values.cast(pa.string()).dictionary_encode()
        own = values.indices.fill_null(0).to_numpy()
    elif column.kind == BOOLEANS:
        own = np.packbits(values.fill_null(False).to_numpy(zero_copy_only=False), bitorder="little")
    else:
        own = np.frombuffer(values.buffers()[1] or b"", column.dtype)[values.offset : values.offset + rows]
    own = np.array(own, column.dtype)
    named: Named = [] if valid is None else [(f"valid.{name}", valid)]
    named.append((f"value.{name}", own))
    if column.kind != STRINGS:
        return _made(_type_of(column.kind), rows, valid, own), [], named
    # A slice of a larger array would have a part of its buffers, and an array without strings may have none.
    count = len(values.dictionary)
    strings = values.dictionary.take(pa.array(np.arange(count))) if count else pa.array([""])
    ends = np.frombuffer(strings.buffers()[1], np.int32, len(strings) + 1)
    text = np.frombuffer(strings.buffers()[2] or b"", np.uint8, ends[-1])
    made = pa.DictionaryArray.from_arrays(_made(pa.int32(), rows, valid, own), strings)
    return made, [(f"ends.{name}", ends), (f"text.{name}", text)], named


def _made(kind: Any, rows: int, valid: Any, values: Any) -> Any:
    """Return an Arrow array of bits of what is there, or None, and values, or their bits."""
    import pyarrow as pa

    return pa.Array.from_buffers(kind, rows, [None if valid is None else pa.py_buffer(valid), pa.py_buffer(values)])


def read(
    folder: Folder, file: SavedFile, columns: Sequence[SavedColumn], start: int, stop: int, threads: int = 1
) -> pa.Table:
    """Return the rows from ``start`` to ``stop`` of some columns of a file.

    Args:
        threads: as of ``Content``.

    Errors as for ``Content``, and ``FormatError`` for what are no values of the column's type.
    """
    import pyarrow as pa

    content, there, found = Content(folder, file, threads), {place.name for place in file.arrays}, []
    for column in columns:
        name = column.name
        valid = _bits(content, file, f"valid.{name}", start, stop) if f"valid.{name}" in there else None
        if column.kind == BOOLEANS:
            values: Any = _bits(content, file, f"value.{name}", start, stop)
        else:
            values = content.part(array(file, f"value.{name}"), start, stop)
        try:
            if column.kind == STRINGS:
                made = _of_strings(content, file, name, _made(pa.int32(), stop - start, valid, values))
            else:
                made = _made(_type_of(column.kind), stop - start, valid, values)
            made.validate(full=True)
        except (pa.ArrowException, ValueError, IndexError) as error:
            raise FormatError(f"{folder.file(file.name)}, column {name!r}: {error}") from None
        found.append(made)
    return pa.table(found, schema_of(columns))


def _of_strings(content: Content, file: SavedFile, name: str, indices: Any) -> Any:
    import pyarrow as pa

    ends, text = (array(file, f"{what}.{name}") for what in ("ends", "text"))
    buffers = [pa.py_buffer(content.part(place, 0, place.length)) for place in (ends, text)]
    strings = pa.StringArray.from_buffers(ends.length - 1, *buffers)
    strings.validate(full=True)
    return pa.DictionaryArray.from_arrays(indices, strings)


def _bits(content: Content, file: SavedFile, name: str, start: int, stop: int) -> NDArray[np.uint8]:
    """Return the bits from ``start`` to ``stop`` of an array of bits."""
    found: Any = content.part(array(file, name), start // 8, -(-stop // 8))
    if start % 8 == 0:
        return found  # type: ignore[no-any-return]
    bits = np.unpackbits(found, bitorder="little")[start % 8 :][: stop - start]
    return np.packbits(bits, bitorder="little")
