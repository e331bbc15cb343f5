"""Parquet files: an edge per row, read by row groups.

Source: Apache Parquet, "File Format", https://parquet.apache.org/docs/file-format/. The client reads the footer;
workers read the row groups, and of these only the columns of the ends. A file made by dbfs says in its metadata
``dbfs`` which vertices there are, and whether edges are directed: see ``tables.about``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from dbfs.edges.readers.attributes import keeping
from dbfs.edges.readers.file import (
    PORTION_ROWS,
    SYSTEM_POOL,
    TableFile,
    TablePiece,
    decoded_bytes,
    decoding,
    require_rows,
    table_facts,
)
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.source import Source
from dbfs.edges.tables.about import About
from dbfs.edges.tables.ids import Place, edges_of
from dbfs.errors import FormatError
from dbfs_workers.building.pieces import IdEdges
from dbfs_workers.building.reading import Reading, require_room

_WHAT = "Parquet file"
# Rows of strings decoded at a time: a few bytes of a file may say that one long string is the value of all rows.
_PORTION_STRINGS = 1 << 12
# Bytes of strings between two looks at the free memory, each of which takes 0.2 ms.
_LOOK_BYTES = 1 << 24


def open_parquet(source: Source, options: ReadOptions) -> ParquetFile:
    """Read the footer of a Parquet file.

    Args:
        source: the file.
        options: what the caller says. Edges are undirected if neither the caller nor the metadata ``dbfs`` says more.

    Raises:
        FormatError: the footer is broken.
        EdgeInputError: the columns are not there, or hold no ids.
        InvalidOptionError: the caller directs edges that have no order by the metadata.
    """
    with source.opened() as raw, decoding(source.path, _WHAT):
        file = _opened(raw)
        schema, metadata = file.schema_arrow, file.metadata
        groups = tuple(metadata.row_group(index).num_rows for index in range(metadata.num_row_groups))
        columns = options.columns(schema.names, source.path)
    if any(rows < 0 for rows in groups) or sum(groups) != metadata.num_rows:
        raise FormatError(
            f"{source.path}: its footer promises {metadata.num_rows:,} rows, its row groups {sum(groups):,}"
        )
    about, rows = About.of_metadata(schema.metadata, source.path), sum(groups)
    directed = options.directed if about is None else about.direction(options.directed, source.path)
    facts, n = table_facts(source, columns, schema, bool(directed), rows), None
    numbered = about is not None and about.n is not None and about.edges in (None, rows)
    if about is not None and numbered and not options.named and not options.strings:
        n, facts["first_id"] = about.n, about.first_id
    elif about is not None:
        facts["lone"] = about.lone_ids(schema, columns.ends, rows, source.path)
    return ParquetFile(n=n, m=rows, groups=groups, **facts)


@dataclass(frozen=True)
class ParquetPiece(TablePiece):
    """Some row groups of a Parquet file.

    Attributes:
        groups: indices of the row groups.
        rows: number of rows of each of these groups.
        first: number of the first row.
        first_id: the id of vertex 0 if the rows become vertices; else 0.
    """

    groups: tuple[int, ...]
    rows: tuple[int, ...]
    first: int
    first_id: int

    def read(self) -> IdEdges:
        """See ``TablePiece``. The memory for all rows is checked first."""
        require_rows(self.source.path, sum(self.rows), len(self.ends.columns), self.limits)
        return super().read()

    def values(self, columns: Sequence[str]) -> Any:
        """See ``attributes.PieceWithValues``."""
        require_rows(self.source.path, sum(self.rows), len(columns), self.limits)
        with SYSTEM_POOL.used(), self.source.opened() as raw, decoding(self.source.path, _WHAT):
            return _opened(raw).read_row_groups([*self.groups], [*columns], use_threads=False)

    def parts(self) -> Iterator[IdEdges]:
        """Yield the ids of parts of the row groups."""
        reading = Reading(self.source.path, self.limits, 1)
        require_rows(self.source.path, _portion_rows(sum(self.rows)), len(self.ends.columns), self.limits)
        with SYSTEM_POOL.used(), self.source.opened() as raw:
            with decoding(self.source.path, _WHAT):
                file = _opened(raw)
            yield edges_of(file.schema_arrow.empty_table(), self.ends, Place(self.source.path))
            first = self.first
            for group, rows in zip(self.groups, self.rows, strict=True):
                where, found = f"{self.source.path}, row group {group}", 0
                for table in self._tables(file, group, where, reading):
                    found += table.num_rows
                    if found > rows:
                        break
                    reading.take_edges(table.num_rows)
                    src, dst = edges_of(table, self.ends, Place(where, first))
                    yield (src - self.first_id, dst - self.first_id) if self.first_id else (src, dst)
                    first += table.num_rows
                if found != rows:
                    raise FormatError(f"{where} holds {found:,} rows; its footer promises {rows:,}")

    def _tables(self, file: Any, group: int, where: str, reading: Reading) -> Iterator[Any]:
        """Yield the columns of a row group as Arrow tables of about ``PORTION_ROWS`` rows."""
        import pyarrow as pa

        textual = self.ends.strings or any(
            not pa.types.is_integer(file.schema_arrow.field(column).type) for column in self.ends.columns
        )
        # Decoded in this thread: Dask's nannies leave Arrow's pool one thread, for which all readers would wait.
        size = _PORTION_STRINGS if textual else PORTION_ROWS
        decoded = file.iter_batches(size, [group], self.ends.columns, use_threads=False)
        # As of ``in_portions``.
        most = PORTION_ROWS // 4 if textual else PORTION_ROWS
        batches, rows, taken, looked = list[Any](), 0, 0, 0
        while True:
            with decoding(where, _WHAT):
                batch = next(decoded, None)
                if batch is None:
                    break
                reading.look()
                batch.validate(full=textual)
                batches.append(batch.select(self.ends.columns))
                rows += batch.num_rows
                taken += batch.nbytes + sum(decoded_bytes(column) for column in batch.columns) if textual else 0
            if taken > looked + _LOOK_BYTES:
                require_room(2 * taken, self.limits.memory_share, f"{where}: its strings")
                looked = taken
            if rows >= most:
                yield pa.Table.from_batches(batches)
                batches, rows = [], 0
        if batches:
            yield pa.Table.from_batches(batches)


@dataclass(frozen=True)
class ParquetFile(TableFile):
    """Edges in the rows of a Parquet file.

    Attributes:
        groups: number of rows of each row group.
    """

    groups: tuple[int, ...]

    def keeping(self, columns: Sequence[str]) -> Self:
        """See ``EdgeList``."""
        with self.source.opened() as raw, decoding(self.source.path, _WHAT):
            schema = _opened(raw).schema_arrow
        return keeping(self, self.columns, schema, columns)

    def cut(self, piece_edges: int) -> Sequence[ParquetPiece]:
        """Cut into runs of row groups, of at most ``piece_edges`` rows, or of one group. A group is never cut."""
        limits, first_id, lone = self.limits(), 0 if self.n is None else self.first_id, self.lone
        pieces: list[ParquetPiece] = []
        start = first = taken = 0
        for stop, rows in enumerate(self.groups, start=1):
            taken += rows
            # Another group would make the piece larger than asked for.
            if stop == len(self.groups) or taken + self.groups[stop] > piece_edges:
                groups = tuple(range(start, stop))
                sizes = self.groups[start:stop]
                pieces.append(ParquetPiece(self.source, self.ends, limits, groups, sizes, first, first_id, lone=lone))
                start, first, taken, lone = stop, first + taken, 0, None
        return pieces or [ParquetPiece(self.source, self.ends, limits, (), (), 0, first_id, lone=lone)]

    def largest_piece(self, piece_edges: int, m: int) -> int:
        """See ``EdgeList``. A row group is never cut."""
        return max(super().largest_piece(piece_edges, m), *self.groups, 1)

    def largest_portion(self, piece_edges: int, m: int) -> int:
        """See ``EdgeList``. A row group is decoded by portions, of compressed columns that are held meanwhile."""
        return _portion_rows(self.largest_piece(piece_edges, m))


def _portion_rows(rows: int) -> int:
    """Return the number of rows whose ids are in memory at once while a piece of ``rows`` rows is read.

    An edge of a portion takes 80 bytes. The compressed values and codes of all rows take at most about 20 bytes a row.
    """
    return min(rows, max(PORTION_ROWS, rows // 4))


def _opened(raw: Any) -> Any:
    import pyarrow.parquet as pq

    # Buffered before: a remote file takes one request for each column of a row group.
    return pq.ParquetFile(raw, pre_buffer=True)
