"""How calls hand out ids: IdArray, integers in NumPy's array, and IdSequence, strings or tuples in Arrow's buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

    CallerIds: TypeAlias = NDArray[np.int64] | "IdSequence"

# Ids of an iteration that are Python's objects at once.
_CHUNK_IDS: Final = 1 << 12
# Ids that a sequence shows of itself.
_SHOWN: Final = 6


def value_of(one: Any) -> Any:
    """Return the value of an Arrow scalar as Python's, a struct's as a tuple; all else unchanged."""
    if not hasattr(one, "as_py"):
        return one
    value = one.as_py()
    return tuple(value.values()) if isinstance(value, dict) else value


def handed_out(ids: NDArray[np.int64] | pa.Array) -> CallerIds:
    """Return ids as callers get them, without a copy."""
    return ids.view(IdArray) if isinstance(ids, np.ndarray) else IdSequence(ids)


class IdArray(np.ndarray[Any, np.dtype[np.int64]]):
    """Ids that are integers: an array of NumPy, with the calls of ``IdSequence`` for libraries of Arrow's kind."""

    def to_arrow(self) -> pa.Array:
        """Return an Arrow array of ``int64``."""
        import pyarrow as pa

        return pa.array(np.asarray(self))

    def to_pylist(self) -> list[Any]:
        """Return all ids as a list of Python's integers."""
        return self.tolist()  # type: ignore[no-any-return]

    def __contains__(self, one: object) -> bool:
        value = value_of(one)
        return isinstance(value, int | np.integer) and bool((np.asarray(self) == value).any())


class IdSequence(Sequence[Any]):
    """Ids that are strings or tuples: a sequence of Python's values over Arrow's buffers, which are not copied.

    A slice is another sequence over the same buffers. An array of indices or a mask chooses ids as in NumPy. Libraries
    that take Arrow's arrays or its stream take a sequence as it is; NumPy gets an array of objects. ``==`` compares
    all ids with those of another sequence. ``in`` and ``index`` take Arrow's scalars too.

    Args:
        array: strings, or structs of integers and strings.
    """

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    def to_arrow(self) -> pa.Array:
        """Return the Arrow array: ``large_string``, or structs of ``int64`` and ``large_string``."""
        return self._array

    def to_pylist(self) -> list[Any]:
        """Return all ids as a list of Python's strings or tuples."""
        return [*self]

    tolist = to_pylist

    def __len__(self) -> int:
        return len(self._array)

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> Any: ...

    @overload
    def __getitem__(self, index: slice | list[int] | NDArray[Any]) -> IdSequence: ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return IdSequence(self._array[index])
        if not isinstance(index, list | np.ndarray):
            return value_of(self._array[index])
        import pyarrow as pa

        # NumPy checks the indices, and wraps those below 0.
        return IdSequence(self._array.take(pa.array(np.arange(len(self))[index])))

    def __iter__(self) -> Iterator[Any]:
        for first in range(0, len(self), _CHUNK_IDS):
            listed = self._array.slice(first, _CHUNK_IDS).to_pylist()
            yield from map(tuple, map(dict.values, listed)) if self._columns else listed

    def __contains__(self, one: object) -> bool:
        return self._place(one) >= 0

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the first index of an id, among those from ``start`` up to ``stop``; ``ValueError`` if it is not."""
        first, last, _ = slice(start, stop).indices(len(self))
        place = IdSequence(self._array[first:last])._place(value)
        if place < 0:
            raise ValueError(f"{value!r} is not among the ids")
        return first + place

    def __eq__(self, other: object) -> bool:
        if isinstance(other, IdSequence) and other._array.type == self._array.type:
            return bool(self._array.equals(other._array))
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(one == another for one, another in zip(self, other, strict=True))

    # As every mutable or compared sequence of Python.
    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("ids that are strings or tuples become an array of objects by a copy only")
        return np.fromiter(self, object, len(self)).astype(dtype or object, copy=False)

    def __arrow_array__(self, type: Any = None) -> pa.Array:  # noqa: A002 - Arrow's name
        return self._array if type is None else self._array.cast(type)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        found: tuple[object, object] = self._array.__arrow_c_array__(requested_schema)
        return found

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        import pyarrow as pa

        return pa.chunked_array([self._array]).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:_SHOWN]))
        return f"<{len(self):,} ids: {shown}{', ...' if len(self) > _SHOWN else ''}>"

    @property
    def _columns(self) -> list[pa.Array]:
        """The columns of tuples; none of strings."""
        import pyarrow as pa

        found: list[pa.Array] = self._array.flatten() if pa.types.is_struct(self._array.type) else []
        return found

    def _place(self, one: Any) -> int:
        """Return the first index of an id, -1 if it is not there."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted, columns = value_of(one), self._columns
        parts = wanted if columns and isinstance(wanted, tuple) else (wanted,)
        columns = columns or [self._array]
        if len(parts) != len(columns):
            return -1
        same: Any = None
        for part, column in zip(parts, columns, strict=True):
            try:
                equal = pc.equal(column, pa.scalar(_of_column(part, column), column.type))
            except (TypeError, UnicodeEncodeError, OverflowError, pa.ArrowInvalid):
                return -1
            same = equal if same is None else pc.and_(same, equal)
        return int(pc.index(same, True).as_py())


def _of_column(part: Any, column: pa.Array) -> int | str:
    """Return a part of an id as an int or a str, as its column needs; ``TypeError`` if it is of another type."""
    import pyarrow as pa

    plain = value_of(part)
    integer = pa.types.is_integer(column.type)
    if isinstance(plain, bool) or not isinstance(plain, int | np.integer if integer else str):
        raise TypeError
    return int(plain) if integer else str(plain)
