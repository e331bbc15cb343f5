"""What a table says of its graph beyond its rows: whether edges are directed, and which vertices have no edge.

Tables of edges that dbfs hands out, and the Parquet files that it writes, carry a JSON text under the key ``dbfs``: in
the metadata of their Arrow schema, which Parquet and Arrow files keep, and in pandas' ``attrs``. Readers and ``load``
take the text back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from dbfs.base.memory import require_room
from dbfs.edges.tables.ids import Place, edges_of
from dbfs.errors import EdgeInputError, FormatError, InvalidOptionError
from dbfs_workers.base.text import counted
from dbfs_workers.ids.table import INTEGER, STRING, IdType, from_python

if TYPE_CHECKING:
    import pyarrow as pa

    from dbfs.edges.tables.ends import Ends
    from dbfs_workers.ids.sequence import CallerIds
    from dbfs_workers.ids.table import Ids

logger = logging.getLogger(__name__)

KEY: Final = "dbfs"
"""Key of the text in a schema's metadata, and in pandas' ``attrs``."""

MOST_BYTES: Final = 1 << 26
"""Longest text that a file holds: Arrow refuses footers with texts of 100 MB."""


@dataclass(frozen=True)
class About:
    """What a table says of its graph.

    Attributes:
        directed: whether edges can be crossed in one direction only.
        n: number of vertices, if their ids are ``first_id`` and those after it; else None.
        first_id: the id of the first vertex, if ``n`` is given.
        edges: number of rows. A table with another number was changed since, so that ``n`` and ``lone`` may be wrong.
        lone: ids of vertices without edges, as Python's values, if ``n`` is None.
    """

    name: str
    directed: bool
    n: int | None = None
    first_id: int = 0
    edges: int | None = None
    lone: tuple[Any, ...] = ()

    @classmethod
    def of_metadata(cls, metadata: Mapping[bytes, bytes] | None, where: str) -> Self | None:
        """Read the metadata of an Arrow schema, pandas' own among them; None if dbfs did not make the table.

        Raise ``FormatError`` for other text than dbfs writes.
        """
        found = dict(metadata or {})
        text = found.get(KEY.encode())
        if text is None and b"PANDAS_ATTRS" in found:
            # Where pandas keeps ``attrs`` in a Parquet file.
            try:
                text = json.loads(found[b"PANDAS_ATTRS"]).get(KEY)
            except (ValueError, AttributeError):
                return None
        return None if text is None else cls.of_text(text, where)

    @classmethod
    def of_text(cls, text: bytes | str, where: str) -> Self:
        """Read the text of a table; errors as of ``of_metadata``."""
        try:
            # Files of earlier versions lack the first id, which is 0 there.
            told = {"first_id": 0, "edges": None, "lone": [], "name": "", **json.loads(text)}
            lone = tuple(tuple(one) if isinstance(one, list) else one for one in told["lone"])
            made = cls(told["name"], told["directed"], told["n"], told["first_id"], told["edges"], lone)
        except (ValueError, TypeError, KeyError) as error:
            raise _refusal(text, where) from error
        numbers = (made.first_id, *(number for number in (made.n, made.edges) if number is not None))
        if not isinstance(made.directed, bool) or not all(map(_is_number, numbers)) or not all(map(_is_id, made.lone)):
            raise _refusal(text, where)
        return made

    def text(self) -> str:
        """Return the text that ``of_text`` reads."""
        return json.dumps(asdict(self) if self.lone else {k: v for k, v in asdict(self).items() if k != "lone"})

    @property
    def told(self) -> str:
        """What a table without this text leaves out, in words; empty if nothing."""
        lone = counted(len(self.lone), "vertex without edges", "vertices without edges") if self.lone else ""
        return " and ".join(filter(None, ["the direction of edges" if self.directed else "", lone]))

    def put_on(self, table: pa.Table) -> pa.Table:
        """Return a table of edges whose schema has this text."""
        return table.replace_schema_metadata({KEY: self.text()})

    def empty(self, columns: Sequence[str]) -> pa.Table | None:
        """Return a table without rows whose columns have the type of ``lone``; None if there are none.

        pandas keeps no type of a column of tuples without rows.
        """
        import pyarrow as pa

        if not self.lone:
            return None
        parts = _columns_of(self.lone[0])
        names = tuple(map(str, range(len(parts)))) if isinstance(self.lone[0], tuple) else ()
        return pa.table({column: pa.array([], IdType(parts, names).arrow) for column in columns})

    def direction(self, asked: bool | None, where: str) -> bool:
        """Return whether edges are directed: by the caller, else by the table.

        Raise ``InvalidOptionError`` if the caller directs edges that have no order.
        """
        if asked and not self.directed:
            raise InvalidOptionError(
                f"{where}: directed=True, but the table was made of an undirected graph: its edges have no order"
            )
        return self.directed if asked is None else asked

    def lone_ids(self, schema: pa.Schema, ends: Ends, rows: int | None, where: str) -> Ids | None:
        """Return the ids of vertices that may have no edge; None for none.

        Args:
            schema: the table's columns.
            rows: number of rows; None if unknown.
            where: the table's name in messages.

        If the table has lost or got rows, its vertices are those of its rows, and a warning says so.

        Raises:
            EdgeInputError: the ids are of another type than those of the columns.
            GraphTooLargeError: this machine has no memory for the ids.
        """
        if not self.lone and not self.n:
            return None
        if None not in (self.edges, rows) and self.edges != rows:
            words = "%s has %s, and dbfs gave out %s: vertices without edges that were beside these are left out"
            logger.warning(words, where, counted(rows or 0, "row"), counted(self.edges or 0, "edge"))
            return None
        of = IdType.of(edges_of(schema.empty_table(), ends, Place(where))[0])
        for one in self.lone if self.n is None else (self.first_id,):
            if _columns_of(one) != of.columns or isinstance(one, tuple) != of.is_tuple:
                raise EdgeInputError(f"{where}: its metadata 'dbfs' name the vertex {one!r}, and its ids are {of}s")
        if self.n is None:
            return from_python(self.lone, of)
        require_room(8 * self.n, f"the {self.n:,} vertices of {where} need", "the file itself needs none")
        return np.arange(self.first_id, self.first_id + self.n, dtype=np.int64)


def of_graph(name: str, *, directed: bool, edges: int, lone: CallerIds) -> About:
    """Return what a table of edges says of its graph; ``lone`` are the ids of vertices without edges."""
    return About(name, directed, edges=edges, lone=tuple(lone.tolist()))


def _refusal(text: bytes | str, where: str) -> FormatError:
    return FormatError(f"{where}: its metadata 'dbfs' is {text[:60]!r}; expected JSON of name, n and directed")


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_id(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and not any(isinstance(part, tuple) for part in value) and all(map(_is_id, value))
    if isinstance(value, str):
        # JSON can have half of a surrogate pair, which UTF-8 can't.
        return value.encode(errors="replace").decode() == value
    return _is_number(value)


def _columns_of(one: Any) -> tuple[str, ...]:
    parts = one if isinstance(one, tuple) else (one,)
    return tuple(INTEGER if isinstance(part, int) else STRING for part in parts)
