"""Ids: the caller's words for vertices, and the table that maps one rank's range of ids to vertices and back.

An id is an integer from 0 to 2^63 - 1, a string, or a tuple of such columns. Many ids are an int64 NumPy array, or an
Arrow array: ``large_string``, or a struct of ``int64`` and ``large_string`` columns for tuples. Vertices are numbered
in ascending order of their ids: integers by value, strings by their UTF-8 bytes, tuples column by column. The ids are
divided into ranges, and the table of each range has consecutive vertices.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import EdgeInputError
from dbfs_workers.ids.sequence import IdSequence

if TYPE_CHECKING:
    import pyarrow as pa

    Ids: TypeAlias = NDArray[np.int64] | pa.Array


INTEGER: Final = "int64"
STRING: Final = "string"

ABSENT: Final = -1
"""Stands for the vertex of an id that no vertex has."""

_LARGEST: Final = np.iinfo(np.int64).max
# Ids that are looked up one by one: hashing a whole table takes longer than these binary searches.
_SEARCHED: Final = 1 << 10
# Strings on either side of an unknown one, among which a client looks for close spellings.
_AROUND: Final = 100


@dataclass(frozen=True)
class IdType:
    """The type of a graph's ids.

    Attributes:
        columns: the type of each column, ``int64`` or ``string``.
        names: the columns' names if ids are tuples; empty if an id is a single integer or string.
    """

    columns: tuple[str, ...] = (INTEGER,)
    names: tuple[str, ...] = ()

    @property
    def is_integer(self) -> bool:
        """Whether an id is a single integer."""
        return not self.names and self.columns == (INTEGER,)

    @property
    def is_tuple(self) -> bool:
        """Whether an id is a tuple."""
        return bool(self.names)

    @property
    def arrow(self) -> Any:
        """The Arrow type of arrays of the ids: a ``pyarrow.DataType``."""
        import pyarrow as pa

        types = [pa.int64() if column == INTEGER else pa.large_string() for column in self.columns]
        return pa.struct(list(zip(self.names, types, strict=True))) if self.names else types[0]

    @classmethod
    def of(cls, ids: Ids) -> IdType:
        """Return the type of an array of ids in the form of ``as_ids``."""
        if isinstance(ids, np.ndarray):
            return INTEGERS
        import pyarrow as pa

        if pa.types.is_struct(ids.type):
            fields = [ids.type.field(index) for index in range(ids.type.num_fields)]
            names = tuple(field.name for field in fields)
            return cls(tuple(INTEGER if pa.types.is_integer(field.type) else STRING for field in fields), names)
        return cls((STRING,))

    def __str__(self) -> str:
        words = ["integer" if column == INTEGER else "string" for column in self.columns]
        return f"tuple ({', '.join(words)})" if self.names else words[0]


INTEGERS: Final = IdType()
"""The type of ids that are single integers."""


def as_ids(values: Any) -> Ids:
    """Return a piece's ids in the one form that this module describes; arrays in that form are not copied.

    Args:
        values: integers as a NumPy array, or an Arrow array of integers, strings, dictionaries or structs of these,
            without nulls.

    Raise ``EdgeInputError`` for values of another type, and for those negative, above 2^63 - 1, or null.
    """
    if isinstance(values, np.ndarray):
        if values.size and values.min() < 0:
            raise EdgeInputError(f"the id {values.min()} is negative; ids are 0 to 2^63-1")
        if values.dtype.kind == "u" and values.size and values.max() > _LARGEST:
            raise EdgeInputError(f"the id {values.max()} is too large; ids are 0 to 2^63-1")
        return values.astype(np.int64, copy=False)
    import pyarrow as pa

    kind = values.type
    if pa.types.is_dictionary(kind):
        return as_ids(values.cast(kind.value_type))
    if values.null_count:
        raise EdgeInputError(f"{values.null_count:,} of {len(values):,} ids are null; every edge needs two ids")
    if pa.types.is_integer(kind):
        return as_ids(values.to_numpy(zero_copy_only=False))
    if pa.types.is_large_string(kind):
        return values
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return values.cast(pa.large_string())
    if pa.types.is_struct(kind):
        columns = [as_ids(column) for column in values.flatten()]
        arrays = [pa.array(column) if isinstance(column, np.ndarray) else column for column in columns]
        return pa.StructArray.from_arrays(arrays, names=[kind.field(index).name for index in range(kind.num_fields)])
    raise EdgeInputError(f"ids are integers, strings, or tuples of these, not {kind}")


def combined(values: Any) -> Any:
    """Return an Arrow array of the values of one, or of the chunks of a chunked array."""
    import pyarrow as pa

    return pa.concat_arrays(values.chunks or [pa.array([], values.type)]) if hasattr(values, "chunks") else values


def take(ids: Ids, indices: NDArray[Any]) -> Ids:
    """Return the ids at the given indices, copied."""
    if isinstance(ids, np.ndarray):
        return ids[indices]
    import pyarrow as pa

    return ids.take(pa.array(indices))


def joined(parts: Sequence[Ids]) -> Ids:
    """Return the ids of all parts, at least one, in their order."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import pyarrow as pa

    return pa.concat_arrays(parts)


def as_python(ids: Ids) -> list[Any]:
    """Return ids as Python's integers, strings or tuples."""
    if isinstance(ids, np.ndarray):
        return list(ids.tolist())
    import pyarrow as pa

    found: list[Any] = ids.to_pylist()
    return [tuple(one.values()) for one in found] if pa.types.is_struct(ids.type) else found


def from_python(values: Sequence[Any], id_type: IdType) -> Ids:
    """Return Python's integers (of 64 bits), strings or tuples as ids of a type."""
    if id_type.is_integer:
        return np.array(values, np.int64)
    import pyarrow as pa

    rows = [dict(zip(id_type.names, one, strict=True)) for one in values] if id_type.is_tuple else values
    return pa.array(rows, id_type.arrow)


def ranges_of(ids: Ids, splitters: Sequence[Any]) -> NDArray[np.int64]:
    """Return the range of each id: the number of splitters, Python's values in ascending order, that are not above."""
    if isinstance(ids, np.ndarray):
        return np.searchsorted(np.array(splitters, np.int64), ids, side="right")
    import pyarrow.compute as pc

    keys = sort_keys(ids)
    ranges = np.zeros(len(ids), np.int64)
    for splitter in sort_keys(from_python(splitters, IdType.of(ids))):
        ranges += pc.greater_equal(keys, splitter).to_numpy(zero_copy_only=False)
    return ranges


def nbytes(ids: Ids) -> int:
    """Return the bytes of ids in memory."""
    return int(ids.nbytes)


def sort_keys(ids: Ids) -> Ids:
    """Return keys of ids that Arrow hashes and compares: the ids themselves, or for tuples binary keys.

    A binary key sorts as its tuple does: an integer is 8 bytes, the highest first; a string ends with two bytes 0, and
    each byte 0 in it is followed by a byte 255.
    """
    if isinstance(ids, np.ndarray):
        return ids
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_struct(ids.type):
        return ids
    keys = []
    for column in ids.flatten():
        if pa.types.is_integer(column.type):
            highest_first = pa.py_buffer(column.to_numpy().astype(">i8").tobytes())
            ends = pa.py_buffer(np.arange(0, 8 * len(column) + 1, 8))
            keys.append(pa.Array.from_buffers(pa.large_binary(), len(column), [None, ends, highest_first]))
        else:
            marked = pc.replace_substring(column.cast(pa.large_binary()), pattern=b"\0", replacement=b"\0\xff")
            end = pa.scalar(b"\0\0", pa.large_binary())
            keys.append(pc.binary_join_element_wise(marked, end, pa.scalar(b"", pa.large_binary())))
    return pc.binary_join_element_wise(*keys, pa.scalar(b"", pa.large_binary()))


@dataclass(frozen=True)
class IdTable:
    """The ids of a range of vertices.

    Attributes:
        first: the vertex of the first id.
        ids: the ids, ascending and distinct.
    """

    first: int
    ids: Ids

    def __len__(self) -> int:
        return len(self.ids)

    def __sizeof__(self) -> int:
        return nbytes(self.ids)

    def vertices(self, ids: Ids) -> NDArray[np.int64]:
        """Return the vertices of ids of the table's type, int64; ``ABSENT`` for an id that the table lacks."""
        if len(self.ids) == 0:
            return np.full(len(ids), ABSENT, np.int64)
        rows = self._rows(ids)
        return np.where(rows < 0, ABSENT, rows + self.first)

    def ids_of(self, vertices: NDArray[np.int64]) -> Ids:
        """Return the ids of vertices of the table's range."""
        return take(self.ids, vertices - self.first)

    def around(self, one: Any) -> list[Any]:
        """Return ids around one that the table lacks, as Python's values: those just below and above; strings more."""
        reach = _AROUND if isinstance(one, str) else 1
        at = bisect.bisect_left(self.ids if isinstance(self.ids, np.ndarray) else IdSequence(self.ids), one)
        return as_python(self.ids[max(at - reach, 0) : at + reach])

    def _rows(self, ids: Ids) -> NDArray[np.int64]:
        """Return the index of each id in the table, -1 for an id that the table lacks."""
        if isinstance(self.ids, np.ndarray):
            rows = np.searchsorted(self.ids, ids)
            rows[rows == self.ids.size] = 0
            return np.where(self.ids[rows] == ids, rows, -1)
        if len(ids) <= _SEARCHED:
            listed = IdSequence(self.ids)
            wanted = as_python(ids)
            found = [bisect.bisect_left(listed, one) for one in wanted]
            size = len(listed)
            same = [at < size and listed[at] == one for at, one in zip(found, wanted, strict=True)]
            return np.where(np.array(same, bool), np.array(found, np.int64), -1)
        import pyarrow.compute as pc

        places = pc.index_in(sort_keys(ids), value_set=sort_keys(self.ids)).fill_null(-1)
        return np.asarray(places.to_numpy(zero_copy_only=False), np.int64)


class LaterIds:
    """The ids of the vertices from ``first`` on, which updates added, in the order in which they came.

    They are the same on all ranks. One object serves all versions of a graph. A version with ``n`` vertices has those
    of the ids that belong to vertices below ``n``. So an update that was prepared and then forgotten leaves ids that no
    version has, until the next update with new ids replaces them.

    Args:
        first: the first vertex that has no id in a table.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._ids: list[Any] = []
        self._vertices: dict[Any, int] = {}

    def extend(self, ids: Sequence[Any], n: int) -> None:
        """Add the ids of the vertices from ``n`` on."""
        for one in self._ids[n - self._first :]:
            del self._vertices[one]
        del self._ids[n - self._first :]
        self._ids += ids
        self._vertices.update((one, n + at) for at, one in enumerate(ids))

    def vertices(self, ids: Sequence[Any], n: int, absent: int) -> list[int]:
        """Return the vertex of each id in the version with ``n`` vertices; ``absent`` for other ids."""
        found = (self._vertices.get(one, n) for one in ids)
        return [vertex if vertex < n else absent for vertex in found]

    def ids(self, vertices: Sequence[int]) -> list[Any]:
        """Return the ids of vertices."""
        return [self._ids[vertex - self._first] for vertex in vertices]
