"""Tables of ids out of the files of a saved graph: whole ones, or parts of several for other numbers of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dbfs_workers.errors import FormatError
from dbfs_workers.storage.id_table import INTEGER, IdTable, IdType, as_python, from_python, joined, sort_keys
from dbfs_workers.storage.saved.blocks import Content
from dbfs_workers.storage.saved.folder import Folder
from dbfs_workers.storage.saved.manifest import SavedTable, array

if TYPE_CHECKING:
    from dbfs_workers.storage.id_table import Ids

Ends = tuple[Any, Any] | None
"""The first and the last id of a table; None if the table is empty."""


def id_table(folder: Folder, tables: Sequence[SavedTable], id_type: IdType, first: int, stop: int) -> IdTable:
    """Return the ids of the vertices from ``first`` to ``stop``; those of one whole file as they are in it.

    Raises:
        FormatError: the ids do not ascend, or are no ids.
        MissingFileError, UnreadableFileError, TruncatedFileError: see ``blocks.Content``.
    """
    parts = []
    for table in tables:
        low, high = max(first, table.first), min(stop, table.first + table.length)
        if low < high:
            parts.append(_ids(folder, table, id_type, low - table.first, high - table.first))
    if not parts:
        return IdTable(first, from_python([], id_type))
    ids = parts[0] if len(parts) == 1 else joined(parts)
    _require_ascending(ids, folder)
    return IdTable(first, ids)


def ends(table: IdTable) -> Ends:
    """Return the first and the last id of a table as Python's values."""
    if len(table) == 0:
        return None
    first, last = (as_python(table.ids[at : at + 1])[0] for at in (0, len(table) - 1))
    return first, last


def _ids(folder: Folder, table: SavedTable, id_type: IdType, start: int, stop: int) -> Ids:
    """Return the ids of some rows of a table's file."""
    import pyarrow as pa

    content = Content(folder, table.file)
    columns: list[Any] = []
    for index, kind in enumerate(id_type.columns):
        if kind == INTEGER:
            columns.append(content.part(array(table.file, f"id.{index}"), start, stop))
            continue
        place = array(table.file, f"text.{index}")
        found: Any = content.part(array(table.file, f"ends.{index}"), start, stop + 1)
        low, high = int(found[0]), int(found[-1])
        if not 0 <= low <= high <= place.length or bool((found[1:] < found[:-1]).any()):
            raise FormatError(f"{folder.file(table.file.name)}: a string begins or ends outside of the text")
        text: Any = content.part(place, low, high)
        buffers = [pa.py_buffer(found - low if low else found), pa.py_buffer(text)]
        column = pa.LargeStringArray.from_buffers(stop - start, *buffers)
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise FormatError(f"{folder.file(table.file.name)}: {error}") from None
        columns.append(column)
    if not id_type.is_tuple:
        return columns[0]
    return pa.StructArray.from_arrays([pa.array(column) for column in columns], names=list(id_type.names))


def _require_ascending(ids: Ids, folder: Folder) -> None:
    """Refuse ids that are negative, or that do not ascend: lookups would find wrong vertices."""
    keys: Any = sort_keys(ids)
    if isinstance(keys, np.ndarray):
        right = bool(keys[0] >= 0) and bool((keys[1:] > keys[:-1]).all())
    else:
        import pyarrow.compute as pc

        right = len(keys) < 2 or bool(pc.all(pc.less(keys[:-1], keys[1:])).as_py())
    if not right:
        raise FormatError(f"{folder.path}: the ids of the vertices are negative, or do not ascend")
