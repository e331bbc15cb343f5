"""Edge lists of pairs: any iterable of ``(source, target)``, such as a list of tuples, a set, or a generator."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from dbfs.edges.tables.ends import Ends
from dbfs.edges.tables.ids import Place, as_words, ids_of, require_kinds, require_values
from dbfs.edges.tables.memory import TableEdges
from dbfs.errors import EdgeInputError
from dbfs_workers.ids.sequence import value_of

if TYPE_CHECKING:
    import pyarrow as pa


SINGLE = ["source", "target"]
"""Columns of ids that are no tuples."""

# Pairs converted at a time: Python's objects of so many pairs take little memory.
_CHUNK_PAIRS = 1 << 18


def is_pairs(edges: Any) -> TypeGuard[Iterable[Any]]:
    """Return whether an object may be an iterable of pairs: a list, a tuple, a set, an iterator, items of a dict."""
    return isinstance(edges, list | tuple | Set | Iterator)


def open_pairs(
    pairs: Iterable[Any], *, directed: bool, name: str = "pairs", lone: Sequence[Any] = (), strings: bool = False
) -> TableEdges:
    """Make an edge list of pairs ``(source, target)``; each is a tuple or a list.

    Args:
        pairs: the edges; an iterator is read to its end.
        directed: whether edges can be crossed in one direction only.
        name: the edges' name in messages.
        lone: ids of further vertices, which may have no edge.
        strings: whether integers are taken as the strings of their digits.

    Raises:
        EdgeInputError: an element is no pair, or the ids are not all integers, all strings, or all tuples of these.
    """
    import pyarrow as pa

    tables = []
    source, rest = iter(pairs), 0
    while chunk := list(itertools.islice(source, _CHUNK_PAIRS)):
        tables.append(_table(*_transposed(chunk, name, rest), name, strings=strings))
        rest += len(chunk)
    lone_columns = columns_of(lone, "vertex") if len(lone) else None
    if not tables:
        kinds = lone_columns or columns_of([], "vertex")
        tables.append(_table([], [], name, [column.type for column in kinds]))
    first = tables[0].schema
    for table in tables:
        if table.schema != first:
            raise EdgeInputError(f"{name}: ids are of several types; ids are all integers, all strings, or all tuples")
    return with_lone(pa.concat_tables(tables), lone_columns, directed=directed, name=name)


def with_lone(table: pa.Table, lone: Sequence[pa.Array] | None, *, directed: bool, name: str) -> TableEdges:
    """Return the edge list of a table whose first half of columns is the source, the second half the target.

    Args:
        table: a column, or for ids that are tuples a column for each part, of both ends.
        lone: ids of further vertices, with as many columns as an end; None for none.
        directed, name: as of ``open_pairs``.

    Errors as for ``require_kinds`` and ``require_values``, and ``EdgeInputError`` for further ids of another type.
    """
    import pyarrow as pa

    half = len(table.column_names) // 2
    ends = Ends(tuple(table.column_names[:half]), tuple(table.column_names[half:]))
    kinds = require_kinds(table.schema, ends, name)
    require_values(table, ends, Place(name))
    others = None
    if lone is not None:
        if [column.type for column in lone] != [table.schema.field(column).type for column in ends.source]:
            raise EdgeInputError(f"{name}: vertices without edges have ids of another type than those with edges")
        columns, place = pa.table(list(lone), names=list(ends.source)), Place(f"{name}, vertices without edges")
        others = ids_of(columns, ends.source, ends, place)
    return TableEdges(name, None, table.num_rows, directed, table=table, ends=ends, id_kinds=kinds, lone=others)


def _transposed(chunk: list[Any], name: str, first: int) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the sources and the targets of pairs, of which the first is number ``first``.

    Raise ``EdgeInputError``, which names the element, if one is no pair.
    """
    if all(issubclass(kind, tuple | list) for kind in set(map(type, chunk))) and set(map(len, chunk)) == {2}:
        source, target = zip(*chunk, strict=True)
        return source, target
    for place, pair in enumerate(chunk, start=first):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            shown = textwrap.shorten(repr(pair), 60, placeholder="...")
            raise EdgeInputError(f"{name}: element {place:,} is {shown}; expected a pair (source, target)")
    raise AssertionError("a chunk with an element that is no pair has no such element")


def _table(
    source: Sequence[Any],
    target: Sequence[Any],
    name: str,
    types: Sequence[Any] | None = None,
    *,
    strings: bool = False,
) -> pa.Table:
    """Return pairs as a table: ``SINGLE``, or for tuples a column for each part of the source and of the target."""
    import pyarrow as pa

    if types is not None:
        sides = [[pa.array([], kind) for kind in types]] * 2
    else:
        try:
            # Together, so that both ends are of one type.
            both = columns_of([*source, *target], "vertex", strings=strings)
        except EdgeInputError as error:
            raise EdgeInputError(f"{name}: {error}") from None
        sides = [[column.slice(0, len(source)) for column in both], [column.slice(len(source)) for column in both]]
    parts = range(len(sides[0]))
    names = SINGLE if len(parts) == 1 else [f"{side}{place}" for side in ("", "target ") for place in parts]
    return pa.table([*sides[0], *sides[1]], names=names)


def columns_of(values: Sequence[Any], what: str, *, strings: bool = False) -> list[pa.Array]:
    """Return ids as Arrow arrays: int64 or ``large_string``; an array for each part of ids that are tuples.

    Args:
        values: integers (NumPy's too), strings, or tuples of one length, 2 or more, of these, or Arrow's scalars. No
            values are integers.
        what: what a value is, for messages, such as ``node``.
        strings: whether integers are taken as the strings of their digits.

    Raises:
        EdgeInputError: the values are of several types, of another type, or past int64.
    """
    values = _python(values)
    kinds = set(map(type, values))
    if kinds and all(issubclass(kind, tuple) for kind in kinds):
        lengths = sorted(set(map(len, values)))
        if len(lengths) > 1 or lengths[0] < 2:
            another = f", and another of length {lengths[-1]}" if len(lengths) > 1 else ""
            raise EdgeInputError(f"a {what} is a tuple of length {lengths[0]}{another}; expected one length, 2 or more")
        parts = enumerate(zip(*values, strict=True))
        return [_column(part, f"part {place} of a {what}", strings) for place, part in parts]
    return [_column(values, what, strings)]


def _python(values: Sequence[Any]) -> Sequence[Any]:
    """Return Arrow's scalars among values as Python's."""
    return [*map(value_of, values)] if any(hasattr(kind, "as_py") for kind in set(map(type, values))) else values


def _column(values: Sequence[Any], what: str, strings: bool) -> pa.Array:
    import pyarrow as pa

    values = _python(values)
    if strings:
        values = as_words(values).tolist()
    kinds = set(map(type, values))
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        try:
            return pa.array(values, pa.int64())
        except (pa.ArrowInvalid, OverflowError):
            wide = next(value for value in values if not -(1 << 63) <= int(value) < 1 << 63)
            raise EdgeInputError(
                f"a {what} is {wide}; integer ids are 0 to 2^63-1. ids='string' takes any id as a string"
            ) from None
    if all(issubclass(kind, str) for kind in kinds):
        try:
            return pa.array(values, pa.large_string())
        except UnicodeEncodeError as error:
            raise EdgeInputError(f"a {what} is no text that UTF-8 can hold: {error.object!r}") from None
    names = sorted(kind.__name__ for kind in kinds)
    raise EdgeInputError(
        f"a {what} is of type {' or '.join(names[:4])}; ids are all integers, all strings, or all tuples of these"
    )
