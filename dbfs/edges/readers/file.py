"""Bases of the edge lists of files: of all formats, of those with columns of ids, of those read by ranges of lines.

Also, for tables in binary files: errors of the libraries, and the memory for a table's ids.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dbfs import config
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.lines import LINE_BYTES, blocks, line_start, lines_by_samples, split_points
from dbfs.edges.readers.source import Source
from dbfs.edges.tables.ends import Columns, Ends
from dbfs.edges.tables.ids import in_portions, joined_ids, require_kinds
from dbfs.errors import DbfsError, FormatError, GraphTooLargeError, InvalidOptionError, UnreadableFileError
from dbfs_workers.base.memory_room import return_freed
from dbfs_workers.building.pieces import IdEdges, Piece
from dbfs_workers.building.reading import Reading, ReadLimits, require_room

if TYPE_CHECKING:
    from dbfs_workers.ids.table import Ids


@dataclass(frozen=True)
class FileEdges(EdgeList):
    """Edges in a file.

    Attributes:
        source: the file.
        columns: its columns; None if the file is no table.
    """

    source: Source
    columns: Columns | None = field(default=None, kw_only=True)
    kernels = ("dbfs_workers.building.kernels.pairs",)

    @property
    def path(self) -> str:
        """Path or URL of the file."""
        return self.source.path

    def largest_piece(self, piece_edges: int, m: int) -> int:
        """See ``EdgeList``. A compressed file is one piece, since it can only be streamed."""
        return super().largest_piece(piece_edges if self.source.seekable else max(piece_edges, m), m)

    def limits(self) -> ReadLimits:
        """Return the limits of the reads of the file, by the header and the configuration."""
        return ReadLimits(self.m, float(config.get("build.memory-share")), config.seconds("build-deadline"))


@dataclass(frozen=True)
class TableFile(FileEdges):
    """Edges in the rows of a table in a file.

    Attributes:
        lone: ids of vertices that may have no edge; None for none.
    """

    columns: Columns = field(kw_only=True)
    lone: Ids | None = field(default=None, kw_only=True)

    @property
    def ends(self) -> Ends:
        """The columns of an edge's ends."""
        return self.columns.ends


def table_facts(
    source: Source, columns: Columns, schema: Any, directed: bool, rows: int | None = None
) -> dict[str, Any]:
    """Return the fields of a ``TableFile`` that all formats of tables fill alike.

    Args:
        source, columns, directed: as of ``TableFile``.
        schema: the Arrow schema of the columns of the ends, and perhaps of others.
        rows: the number of rows, if it is known; a table without rows may have no kinds of ids.

    Errors as for ``tables.ids.require_kinds``.
    """
    kinds = require_kinds(schema, columns.ends, source.path, rows=rows)
    found = {"name": source.path, "directed": directed, "values": columns.others, "id_kinds": kinds}
    return {**found, "source": source, "columns": columns}


@dataclass(frozen=True)
class TextPiece:
    """The lines that start in a byte range of a text.

    Attributes:
        source: the file.
        start, stop: the byte range, not on line boundaries; stop None is the end of the file.
        aligned: whether ``start`` is the start of a line.
    """

    source: Source
    start: int
    stop: int | None
    aligned: bool
    limits: ReadLimits

    def blocks(self, reading: Reading, line_bytes: int = LINE_BYTES) -> Iterator[tuple[int, bytes]]:
        """Yield the lines in blocks; see ``lines.blocks``."""
        start = self.start if self.aligned else line_start(self.source, self.start, reading, line_bytes)
        stop = None if self.stop is None else line_start(self.source, self.stop, reading, line_bytes)
        return blocks(self.source, start, stop, reading, line_bytes)


@dataclass(frozen=True)
class TextFile(FileEdges):
    """Edges in the lines of a text.

    Attributes:
        body: byte offset of the text after the header.
        edge_bytes: estimate of the mean bytes that an edge takes; sizes the pieces.
        piece: class of the pieces.
        layout: their last field, which says what a line is.
    """

    body: int
    edge_bytes: float
    piece: type[Any]
    layout: Any

    def cut(self, piece_edges: int) -> Sequence[Piece]:
        """Cut into byte ranges of about ``piece_edges`` edges; a compressed file is streamed as one.

        Raise ``InvalidOptionError`` if ``piece_edges`` is below 1.
        """
        if piece_edges < 1:
            raise InvalidOptionError(f"piece_edges is {piece_edges}; expected at least 1")
        lines = 0 if self.source.size is None else (self.source.size - self.body) / self.edge_bytes
        starts = [self.body, *split_points(self.source, self.body, int(-(-lines // piece_edges)))]
        ranges, limits = zip(starts, [*starts[1:], None], strict=True), self.limits()
        return [self.piece(self.source, *at, at[0] == self.body, limits, self.layout) for at in ranges]

    def sampled_edges(self) -> int | None:
        """See ``EdgeList``. Comments and blank lines among the edges count as edges."""
        return lines_by_samples(self.source, self.body)


@dataclass(frozen=True)
class NoRows(FileEdges):
    """A text that ends after its line of column names: an empty table among the files of one graph."""

    def cut(self, piece_edges: int) -> Sequence[Piece]:  # noqa: ARG002 - there is nothing to cut
        """Return no piece."""
        return ()


def no_rows(source: Source) -> NoRows:
    """Return the edges of a text that ends after its line of column names."""
    return NoRows(source.path, None, 0, directed=False, id_kinds=(), source=source)


PORTION_ROWS = 1 << 18
"""Rows that a build takes at a time: few enough to look at the limits often, enough to decode at full speed."""

# Bytes of memory for an integer that is read: as stored in the file, as an id, and in the data of the build.
_INTEGER_BYTES = 40


@contextmanager
def decoding(where: str, what: str) -> Iterator[None]:
    """Turn a library's errors about a file's bytes into dbfs's.

    Args:
        where: the file, and the part of it, for messages.
        what: the format, such as ``Parquet file``.

    Raises:
        FormatError: the bytes are not what the format says.
        GraphTooLargeError: the bytes ask for more memory than there is.
        UnreadableFileError: the machine or the network failed.
    """
    try:
        yield
    except DbfsError:
        raise
    except MemoryError as error:
        raise GraphTooLargeError(f"{where}: a part of the {what} takes more memory than there is ({error})") from error
    except Exception as error:
        # Libraries raise OSError for broken bytes too, without a number. Errors of the machine have one.
        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, OSError) and error.errno is not None:
            raise UnreadableFileError(f"{where} can't be read: {error.strerror or reason}") from error
        raise FormatError(f"{where} is no valid {what}: {reason}") from error


class _SystemPool:
    """Arrow's memory pool while files are read: the C library's, which returns freed memory to the system.

    Arrow's own pools keep freed memory: after 4 million rows of Parquet, 1.3 times the partition built of them. The C
    library keeps small blocks between others, 16 MB after a million rows of strings; it is made to return them, too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers = 0
        self._before: Any = None

    @contextmanager
    def used(self) -> Iterator[None]:
        """Make Arrow take memory from this pool until the last reader of this process is done."""
        import pyarrow as pa

        with self._lock:
            if not self._readers:
                self._before = pa.default_memory_pool()
                pa.set_memory_pool(pa.system_memory_pool())
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if not self._readers:
                    pa.set_memory_pool(self._before)
            return_freed()


SYSTEM_POOL = _SystemPool()


def require_rows(where: str, rows: int, columns: int, limits: ReadLimits) -> None:
    """Refuse to read rows of ``columns`` integers, or references to strings, that the memory will not hold.

    Raises:
        FormatError: the number of rows is negative.
        GraphTooLargeError: this process has too little memory left.
    """
    if rows < 0:
        raise FormatError(f"{where} promises {rows} rows; expected 0 or more")
    require_room(rows * columns * _INTEGER_BYTES, limits.memory_share, f"{where}: reading its {rows:,} rows")


def decoded_bytes(column: Any) -> int:
    """Return the bytes that a column of an Arrow batch takes without its dictionary; 0 if it has none.

    A few bytes of a file may say that one long string is the value of a million rows.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type) or pa.types.is_integer(column.type.value_type):
        return 0
    lengths = pc.cast(pc.binary_length(column.dictionary), pa.int64())
    return int(pc.sum(pc.take(lengths, column.indices)).as_py() or 0)


@dataclass(frozen=True)
class TablePiece(ABC):
    """Some rows of a table in a file.

    Attributes:
        source: the file.
        lone: ids of vertices that may have no edge; None for none.
    """

    source: Source
    ends: Ends
    limits: ReadLimits
    lone: Ids | None = field(default=None, kw_only=True)

    def lone_ids(self) -> Ids | None:
        """Return the ids of vertices that may have no edge; see ``PieceWithLoneIds``."""
        return self.lone

    def read(self) -> IdEdges:
        """Return the ids of the rows; errors as of ``Piece.read``."""
        return joined_ids(list(self.portions()))

    def portions(self) -> Iterator[IdEdges]:
        """Yield the ids of ``PORTION_ROWS`` rows at a time, or somewhat more; errors as of ``Piece.read``."""
        return in_portions(self.parts(), PORTION_ROWS)

    @abstractmethod
    def parts(self) -> Iterator[IdEdges]:
        """Yield the ids of the rows, part by part: see ``tables.ids.edges_of``."""
