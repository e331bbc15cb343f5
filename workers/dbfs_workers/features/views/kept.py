"""The attributes that a rank keeps of its edges and of its vertices, version by version.

The tables of edges lie in the order of the partition's columns. An update adds to a log what it inserts, deletes and
replaces. The tables of the version are made when they are read, or when the log has grown long: a small update of a
large graph takes no time for all rows.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import FormatError, StaleRunError
from dbfs_workers.features.living.carried import BatchRows, Keys, Step
from dbfs_workers.search.partition.partition import Csr, RankEdges
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    import pyarrow as pa

DELETE, INSERT, REPLACE = range(3)

# A log of this many rows, or of this part of all rows, is long. Each entry counts as some more rows.
_LEAST: Final = 1 << 16
_SHARE: Final = 1 / 16
_ENTRY: Final = 64

# Tables of vertices grow by a chunk for each update.
_MOST_CHUNKS: Final = 64


class Entry(NamedTuple):
    """What an update did to edges in one direction.

    Attributes:
        kind: ``DELETE``, ``INSERT`` or ``REPLACE``.
        keys: of the edges, ascending and each once.
        table: their attributes; None for nulls, and of edges that are gone.
    """

    kind: int
    keys: Keys
    table: pa.Table | None


class _Base(NamedTuple):
    """The edges of the version whose attributes the tables have, and the order of their columns."""

    out: Csr
    into: Csr | None
    stripe: Stripe
    hub_first: bool


class RankAttributes:
    """The attributes of a rank's edges, a row for each edge. See ``Carried``.

    Args:
        out: in the order of the columns of ``RankEdges.out_lists``, one list after another.
        into: in that of ``in_lists``; None if the rank has none.
        version: the partition's version.
    """

    def __init__(self, out: pa.Table, into: pa.Table | None, version: int = 0) -> None:
        self.version = version
        self._out, self._into = out, into
        self._base: _Base | None = None
        # By update, the entries of either direction.
        self._log: tuple[tuple[list[Entry], list[Entry]], ...] = ()
        self._settling = threading.Lock()

    def columns_of(self, partition: RankEdges) -> pa.Table:
        """Return the attributes of the edges that start in the rank's rows. Errors as for ``tables_of``."""
        return self.tables_of(partition)[0]

    def tables_of(self, partition: RankEdges) -> tuple[pa.Table, pa.Table | None]:
        """Return the attributes in the order of a partition's columns, and of those of its in-edges if it has them.

        Raises:
            StaleRunError: the partition is of another version.
            FormatError: the rows are not those of the partition's edges.
        """
        if partition.version != self.version:
            raise StaleRunError(
                f"rank {partition.rank}: the graph was updated from version {partition.version} meanwhile; call again"
            )
        with self._settling:
            self._settle()
            out, into = self._out, self._into
        in_lists = partition.in_lists()
        expected = [partition.m_local, *([] if in_lists is None else [sum(each.columns.size for each in in_lists)])]
        sizes = [table.num_rows for table in (out, into) if table is not None]
        if sizes != expected:
            raise FormatError(f"rank {partition.rank} has {expected} edges, and {sizes} rows of attributes")
        return out, into

    def following(self, step: Step) -> RankAttributes:
        """See ``Carried``. Takes time by the length of the update, and at times by the number of all rows."""
        if step.kind in ("compact", "freeze"):
            with self._settling:
                self._settle()
            return self
        if step.after.version == step.before.version:
            return self
        with self._settling:
            after = RankAttributes(self._out, self._into, step.after.version)
            after._base, after._log = self._base, self._log
        entries = _entries(step, reverse=False), _entries(step, reverse=True)
        if any(entries):
            if not after._log:
                before = step.before
                after._base = _Base(before.out_edges, before.in_edges, before.stripe, step.hub_first)
            after._log = (*after._log, entries)
            long = sum(_ENTRY + entry.keys.size for update in after._log for way in update for entry in way)
            if long > max(_LEAST, _SHARE * after._out.num_rows):
                after._settle()
        return after

    def _settle(self) -> None:
        """Make the tables those of the version, and empty the log."""
        base = self._base
        if not self._log or base is None:
            return
        ways = [[entry for update in self._log for entry in update[way]] for way in (0, 1)]
        self._out = _settled(self._out, base.out, base, ways[0])
        if self._into is not None and base.into is not None:
            self._into = _settled(self._into, base.into, base, ways[1])
        self._base, self._log = None, ()

    @property
    def facts(self) -> int:
        """The bytes."""
        return self.nbytes

    @property
    def nbytes(self) -> int:
        """Bytes of the tables and of the log."""
        tables = [self._out, self._into, *(entry.table for update in self._log for way in update for entry in way)]
        keys = sum(entry.keys.nbytes for update in self._log for way in update for entry in way)
        base = 0 if self._base is None else sum(csr.nbytes for csr in self._base[:2] if csr is not None)
        return sum(int(table.nbytes) for table in tables if table is not None) + keys + base

    def __sizeof__(self) -> int:
        return self.nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        with self._settling:
            self._settle()
            return RankAttributes, (self._out, self._into, self.version)


def _entries(step: Step, *, reverse: bool) -> list[Entry]:
    """Return what an update does to edges in one direction."""
    keys = step.in_keys if reverse else step.keys
    if keys is None or step.kind not in ("insert-edges", "delete-edges", "delete-vertices"):
        return []
    keys = np.unique(keys)
    if step.kind != "insert-edges":
        entries = [Entry(DELETE, keys, None)]
    elif not isinstance(step.batch, BatchRows):
        entries = [Entry(INSERT, keys, None)]
    else:
        given, table = step.batch.keys, step.batch.table
        if reverse:
            if step.batch.in_keys is None:
                return []
            given, table = step.batch.in_keys, step.batch.in_table
        # Of an edge that occurs again the first row counts, and the last one where rows replace others.
        rows = np.searchsorted(given, keys, "right") - 1 if step.replaces else np.searchsorted(given, keys)
        entries = [Entry(INSERT, keys, table.take(rows))]
        if step.replaces:
            last = np.flatnonzero(np.append(given[1:] != given[:-1], np.ones(min(1, given.size), bool)))
            there = last[~np.isin(given[last], keys)]
            entries.append(Entry(REPLACE, given[there], table.take(there)))
    return [entry for entry in entries if entry.keys.size]


def _settled(table: pa.Table, csr: Csr, base: _Base, entries: list[Entry]) -> pa.Table:
    """Return a table after updates: ``table`` has the rows of ``csr``, and ``entries`` are in their order."""
    import pyarrow as pa

    if not entries:
        return table
    tables, firsts, first = [table], list[NDArray[np.int64]](), table.num_rows
    for entry in entries:
        if entry.table is None:
            firsts.append(np.full(entry.keys.size, -1))
            continue
        tables.append(entry.table)
        firsts.append(first + np.arange(entry.keys.size))
        first += entry.keys.size
    changed = np.concatenate([entry.keys for entry in entries])
    kinds = np.repeat([entry.kind for entry in entries], [entry.keys.size for entry in entries])
    by_key = np.argsort(changed, kind="stable")
    changed, kinds, rows = changed[by_key], kinds[by_key], np.concatenate(firsts)[by_key]
    # The last entry of a key decides. An edge that came with the log has one row, whatever was there before.
    starts = np.flatnonzero(np.append(True, changed[1:] != changed[:-1]))
    lasts = np.append(starts[1:], changed.size) - 1
    inserted = np.logical_or.reduceat(kinds == INSERT, starts)
    replaced = (kinds[lasts] == REPLACE) & ~inserted
    comes = (kinds[lasts] != DELETE) & ~replaced
    changed, rows = changed[starts], rows[lasts]

    keys = _keys(csr, base)
    begins, ends = np.searchsorted(keys, changed, "left"), np.searchsorted(keys, changed, "right")
    places, stays = np.arange(keys.size), np.ones(keys.size, bool)
    at, which = _ranges(begins[replaced], ends[replaced])
    places[at] = rows[replaced][which]
    stays[_ranges(begins[~replaced], ends[~replaced])[0]] = False
    keys, places = keys[stays], places[stays]
    places = np.insert(places, np.searchsorted(keys, changed[comes]), rows[comes])
    whole = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    return whole.take(pa.array(places, mask=places < 0))


def _keys(csr: Csr, base: _Base) -> Keys:
    """Return the keys of all edges of a rank, ascending."""
    rows = np.repeat(np.arange(csr.row_offsets.size - 1, dtype=np.uint64), np.diff(csr.row_offsets))
    columns = csr.columns.astype(np.int64)
    places = base.stripe.vertex(columns) if base.hub_first else columns
    keys: Keys = rows << np.uint64(32) | places.astype(np.uint64)
    return keys


def _ranges(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all places in ranges, and of each the number of its range."""
    sizes = ends - begins
    which = np.repeat(np.arange(sizes.size), sizes)
    return np.arange(which.size) - np.repeat(np.cumsum(sizes) - sizes, sizes) + begins[which], which


@dataclass(frozen=True)
class VertexRows:
    """Attributes that some vertices of a rank get.

    Attributes:
        rows: int64, their rows, each once.
        table: the attributes.
    """

    rows: NDArray[np.int64]
    table: pa.Table

    def __sizeof__(self) -> int:
        return self.rows.nbytes + int(self.table.nbytes)


@dataclass(frozen=True)
class RankVertices:
    """The attributes of the vertices that a rank owns, in the order of its rows. See ``Carried``."""

    table: pa.Table

    def following(self, step: Step) -> Self:
        """See ``Carried``. Vertices that were inserted have nulls, those whose ids are used again too."""
        import pyarrow as pa

        stripe, rank, table = step.after.stripe, step.after.rank, self.table
        places, given = np.arange(table.num_rows), []
        if step.kind == "insert-vertices":
            rows = stripe.row(step.vertices[stripe.owner(step.vertices) == rank])
            places[rows[rows < places.size]] = -1
        elif isinstance(step.batch, VertexRows):
            places[step.batch.rows] = places.size + np.arange(step.batch.rows.size)
            given = [step.batch.table]
        if given or (places < 0).any():
            whole = pa.concat_tables([table, *given]).unify_dictionaries().combine_chunks()
            table = whole.take(pa.array(places, mask=places < 0))
        more = stripe.owned(rank) - table.num_rows
        if more > 0:
            nulls = pa.table([pa.nulls(more, field.type) for field in table.schema], table.schema)
            table = pa.concat_tables([table, nulls])
            if table.num_columns and table.column(0).num_chunks > _MOST_CHUNKS:
                table = table.unify_dictionaries().combine_chunks()
        return self if table is self.table else type(self)(table)

    @property
    def facts(self) -> int:
        """The bytes."""
        return int(self.table.nbytes)

    def __sizeof__(self) -> int:
        return int(self.table.nbytes)
