"""Arrow and Feather files (Arrow's IPC file format): an edge per row, read by record batches.

Source: Apache Arrow, "Arrow Columnar Format", IPC file format. The client reads the footer and the first batch's
length; workers read the batches, and of these only the columns of the ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from dbfs.edges.readers.attributes import keeping
from dbfs.edges.readers.file import TableFile, TablePiece, decoded_bytes, decoding, require_rows, table_facts
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.source import Source
from dbfs.edges.tables.about import About
from dbfs.edges.tables.ends import Ends
from dbfs.edges.tables.ids import Place, edges_of
from dbfs_workers.building.pieces import IdEdges
from dbfs_workers.building.reading import Reading, require_room

_WHAT = "Arrow file"


def open_arrow(source: Source, options: ReadOptions) -> ArrowFile:
    """Read the footer of an Arrow file; arguments and errors as of ``open_parquet``."""
    with source.opened() as raw, decoding(source.path, _WHAT):
        file = _opened(raw)
        columns = options.columns(file.schema.names, source.path)
        about, directed = About.of_metadata(file.schema.metadata, source.path), options.directed
        if about is not None:
            directed = about.direction(directed, source.path)
        batches = int(file.num_record_batches)
        facts = table_facts(source, columns, file.schema, bool(directed), None if batches else 0)
        narrow = _opened(raw, _places(file.schema, columns.ends)[:1])
        rows = narrow.get_batch(0).num_rows if batches else 0
        if about is not None and (about.lone or about.n):
            # The footer lacks the number of rows, which shows whether the table is as it was given out.
            found = sum(narrow.get_batch(index).num_rows for index in range(batches))
            facts["lone"] = about.lone_ids(file.schema, columns.ends, found, source.path)
    return ArrowFile(n=None, m=None if batches else 0, batches=batches, batch_rows=rows, **facts)


@dataclass(frozen=True)
class ArrowPiece(TablePiece):
    """The record batches [start, stop) of an Arrow file."""

    start: int
    stop: int

    def values(self, columns: Sequence[str]) -> Any:
        """See ``attributes.PieceWithValues``."""
        import pyarrow as pa

        with self.source.opened() as raw, decoding(self.source.path, _WHAT):
            schema = _opened(raw).schema
            file = _opened(raw, [schema.get_field_index(column) for column in columns])
            batches = [self._batch(file, index, self.source.path) for index in range(self.start, self.stop)]
        return pa.concat_tables([file.schema.empty_table(), *batches])

    def parts(self) -> Iterator[IdEdges]:
        """Yield the ids of each record batch."""
        reading = Reading(self.source.path, self.limits, 1)
        with self.source.opened() as raw:
            with decoding(self.source.path, _WHAT):
                schema = _opened(raw).schema
                file = _opened(raw, _places(schema, self.ends))
            yield edges_of(schema.empty_table(), self.ends, Place(self.source.path))
            for index in range(self.start, self.stop):
                reading.look()
                where = f"{self.source.path}, record batch {index}"
                table = self._batch(file, index, where)
                reading.take_edges(table.num_rows)
                yield edges_of(table, self.ends, Place(where))

    def _batch(self, file: Any, index: int, where: str) -> Any:
        """Return the columns of a record batch as an Arrow table."""
        import pyarrow as pa

        with decoding(where, _WHAT):
            batch = file.get_batch(index)
            batch.validate(full=True)
            require_rows(where, batch.num_rows, len(self.ends.columns), self.limits)
            decoded = sum(decoded_bytes(column) for column in batch.columns)
            require_room(2 * decoded, self.limits.memory_share, f"{where}: its strings")
            return pa.Table.from_batches([batch])


@dataclass(frozen=True)
class ArrowFile(TableFile):
    """Edges in the rows of an Arrow file.

    Attributes:
        batches: number of record batches.
        batch_rows: rows of the first one, which sizes the pieces: writers make batches of one length.
    """

    batches: int
    batch_rows: int

    def keeping(self, columns: Sequence[str]) -> Self:
        """See ``EdgeList``."""
        with self.source.opened() as raw, decoding(self.source.path, _WHAT):
            schema = _opened(raw).schema
        return keeping(self, self.columns, schema, columns)

    def cut(self, piece_edges: int) -> Sequence[ArrowPiece]:
        """Cut into runs of record batches of about ``piece_edges`` rows. A batch is never cut."""
        step = max(1, piece_edges // max(self.batch_rows, 1))
        limits = self.limits()
        first, *rest = [
            ArrowPiece(self.source, self.ends, limits, start, min(start + step, self.batches))
            for start in range(0, max(self.batches, 1), step)
        ]
        return [replace(first, lone=self.lone), *rest]

    def largest_piece(self, piece_edges: int, m: int) -> int:
        """See ``EdgeList``. A record batch is never cut."""
        return max(super().largest_piece(piece_edges, m), min(self.batch_rows, m))


def _opened(raw: Any, fields: Sequence[int] = ()) -> Any:
    import pyarrow as pa

    raw.seek(0)
    return pa.ipc.open_file(raw, options=pa.ipc.IpcReadOptions(included_fields=list(fields)))


def _places(schema: Any, ends: Ends) -> list[int]:
    return sorted(schema.get_field_index(column) for column in ends.columns)
