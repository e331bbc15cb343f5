"""Rows of tables in text: the layout of their columns, strict and fast parsing, and the pieces of a file.

pyarrow parses a block of rows. A block about which pyarrow might be lenient (hexadecimal numbers, a lone carriage
return, an empty value, a line that may be a comment) or which breaks the format is parsed again row by row, which finds
the wrong row.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dbfs.edges.kinds import IdKind
from dbfs.edges.readers.lines import INT64_MAX, bad_line, blocks, count_lines, line_start, slices, unreadable
from dbfs.edges.readers.options import COMMENTS
from dbfs.edges.readers.pairs import LineError, why_not_id
from dbfs.edges.readers.source import Source
from dbfs.edges.tables.ends import Ends
from dbfs.edges.tables.ids import Place, edges_of, joined_ids
from dbfs_workers.storage.pieces import IdEdges
from dbfs_workers.storage.reading import Reading, ReadLimits
from dbfs_workers.text import counted

# Bytes of memory for a byte of text, while a block of the shortest rows is parsed.
_EXPANSION = 16
_BLANKS = re.compile(rb"[ \t]++")
# Blanks that pyarrow would take for empty columns, once each run of them is one space.
_EDGES_OF_LINES = re.compile(rb"(?:^ | (?=\r?$))", re.MULTILINE)


@dataclass(frozen=True)
class CsvLayout:
    """The columns of a file.

    Attributes:
        separator: between columns; a space for any run of blanks.
        columns: number of columns.
        counted: the line that has this number of columns, for messages.
        ends: the columns of an edge's ends.
        places: index of each column of the ends.
        kinds: kind of each of these columns.
        comments: starts of comment lines. None if the caller names none: a line that begins as comments do elsewhere
            may then be an edge or a comment, and is refused.
    """

    separator: str
    columns: int
    counted: str
    ends: Ends
    places: tuple[int, ...]
    kinds: tuple[IdKind, ...]
    comments: tuple[bytes, ...] | None


def fields(text: bytes, separator: str) -> list[str]:
    """Split a line (without line end) into its columns' values.

    Raises:
        LineError: the line is not UTF-8, or breaks the format.
    """
    if reason := unreadable(text):
        raise LineError(reason)
    blank = separator == " "
    if blank:
        if b'"' in text and b"\t" in text:
            raise LineError("a tab beside quotes, where blanks separate columns; pass sep='\\t'")
        text = text.replace(b"\t", b" ").strip(b" ")
    try:
        return next(csv.reader([text.decode()], delimiter=separator, strict=True, skipinitialspace=blank), [])
    except UnicodeDecodeError:
        raise LineError("a byte that is not UTF-8; expected text in UTF-8") from None
    except csv.Error as error:
        reason = "a line break within quotes" if "end of data" in str(error) else str(error)
        raise LineError(f"{reason}; expected one row per line") from None


def row_of(text: bytes, layout: CsvLayout) -> list[str] | None:
    """Return the values of all columns in a line; None for a blank line or a comment.

    Raises:
        LineError: the line breaks the format, or may be a comment; a value of the ends is missing, or an integer is
            none.
    """
    text = text.removesuffix(b"\r")
    if not text.strip():
        return None
    if text.lstrip().startswith(COMMENTS if layout.comments is None else layout.comments):
        if layout.comments is None:
            raise unclear(text)
        return None
    row = fields(text, layout.separator)
    if len(row) != layout.columns:
        raise LineError(f"{counted(len(row), 'column')}; expected {layout.columns} as in {layout.counted}")
    for column, kind, place in zip(layout.ends.columns, layout.kinds, layout.places, strict=True):
        if not row[place].strip():
            raise LineError(f"column {column!r}: an id is missing")
        if kind == "integer":
            row[place] = value = row[place].strip(" \t")
            if not re.fullmatch("0|[1-9][0-9]{0,18}", value) or int(value) > INT64_MAX:
                past = re.fullmatch("[1-9][0-9]{18}", value)
                reason = "past 2^63-1" if past else why_not_id(value.encode())
                hint = "; pandas.read_csv(path, dtype=str) keeps the zeros of all ids" if value.startswith("0") else ""
                raise LineError(f"column {column!r}: {reason}; the first rows hold integers{hint}")
    return row


def unclear(text: bytes) -> LineError:
    """Return the error for a line between strings that begins as comments do."""
    mark = next(mark for mark in COMMENTS if text.lstrip().startswith(mark)).decode()
    return LineError(f"a comment, or an id? Pass comment={mark!r} to pass over such lines, else comment=''")


@lru_cache(maxsize=64)
def _lines_that_start(marks: tuple[bytes, ...]) -> re.Pattern[bytes]:
    return re.compile(rb"^[ \t]*+(?:" + b"|".join(map(re.escape, marks)) + rb")[^\n]*+\n", re.MULTILINE)


def _may_have_comments(block: bytes, marks: tuple[bytes, ...]) -> bool:
    """Return whether a line of a block may begin with a mark, perhaps after blanks."""
    marks = tuple(mark for mark in marks if mark[:1] in block)
    starts = [*marks, *(blank for blank in (b" ", b"\t") if blank in block)]
    return bool(marks) and any(block.startswith(start) or b"\n" + start in block for start in starts)


def _as_pyarrow_reads(block: bytes, layout: CsvLayout) -> bytes | None:
    """Return a block without comments and with one space for each run of blanks; None if a line needs a closer look."""
    # Searches for one byte come first: they take a tenth of the time of those for two.
    if b"\0" in block or (b"\r" in block and block.count(b"\r") != block.count(b"\r\n")):
        return None
    marks = COMMENTS if layout.comments is None else layout.comments
    if _may_have_comments(block, marks):
        comments = _lines_that_start(marks)
        if layout.comments is not None:
            block = comments.sub(b"", block)
        elif comments.search(block):
            return None
    if layout.separator != " ":
        return block
    if b'"' in block:
        return None
    if b"\t" in block or b"  " in block:
        block = _BLANKS.sub(b" ", block)
    if block.startswith(b" ") or b"\n " in block or b" \n" in block or b" \r" in block:
        block = _EDGES_OF_LINES.sub(b"", block)
    return block


def _parse_block(block: bytes, layout: CsvLayout) -> Any:
    """Return a block of whole lines as an Arrow table; None if a row breaks, or may break, the format."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pacsv

    text = _as_pyarrow_reads(block, layout)
    if not text:
        return None
    names = [str(place) for place in layout.places]
    try:
        table = pacsv.read_csv(
            pa.BufferReader(text),
            pacsv.ReadOptions(
                use_threads=False, block_size=len(text) + 1, column_names=list(map(str, range(layout.columns)))
            ),
            pacsv.ParseOptions(delimiter=layout.separator),
            pacsv.ConvertOptions(include_columns=names, column_types=dict.fromkeys(names, pa.string()), null_values=[]),
        )
    except pa.ArrowInvalid:
        return None
    # Blank lines, and line breaks within quotes, make another number of rows.
    if table.num_rows != text.count(b"\n"):
        return None
    columns = []
    for column, kind in zip(table.columns, layout.kinds, strict=True):
        if kind == "integer":
            if not pc.all(pc.ascii_is_decimal(column)).as_py():
                column = pc.ascii_trim(column, " \t")
                if not pc.all(pc.ascii_is_decimal(column)).as_py():
                    return None
            zeros = pc.starts_with(column, "0")
            if pc.any(zeros).as_py() and pc.any(pc.and_(zeros, pc.greater(pc.binary_length(column), 1))).as_py():
                return None
            try:
                columns.append(column.cast(pa.int64()))
            except pa.ArrowInvalid:
                return None
        else:
            if pc.min(pc.binary_length(column)).as_py() == 0 or pc.any(pc.utf8_is_space(column)).as_py():
                return None
            columns.append(column)
    return pa.table(columns, names=layout.ends.columns)


@dataclass(frozen=True)
class CsvPiece:
    """The rows that start in a byte range of a CSV file.

    Attributes:
        source: the file.
        layout: its columns.
        start, stop: the byte range, not on line boundaries; stop None is the end of the file.
        aligned: whether ``start`` is the start of a line.
        limits: limits of the read.
    """

    source: Source
    layout: CsvLayout
    start: int
    stop: int | None
    aligned: bool
    limits: ReadLimits

    def read(self) -> IdEdges:
        """Return the ids of the rows: int64 arrays, or Arrow arrays; see ``tables.ids.edges_of``.

        Raises:
            FormatError: a row breaks the format (the message names file and line), or much text holds few rows.
            GraphTooLargeError: the edges take more memory than this worker has left.
            TruncatedFileError: a compressed file is truncated.
            MissingFileError, UnreadableFileError: this machine has no such file, or can't read it.
            RunCancelledError, DeadlineExceededError: no client waits for the edges any more.
        """
        reading = Reading(self.source.path, self.limits, _EXPANSION)
        start = self.start if self.aligned else line_start(self.source, self.start, reading)
        stop = None if self.stop is None else line_start(self.source, self.stop, reading)
        parts: list[Any] = []
        for offset, block in blocks(self.source, start, stop, reading):
            table = _parse_block(block, self.layout)
            for part in [table] if table is not None else self._by_slices(offset, block, reading):
                reading.take_edges(part.num_rows)
                parts.append(edges_of(part, self.layout.ends, Place(self.source.path)))
        if not parts:
            parts.append(edges_of(self._table([]), self.layout.ends, Place(self.source.path)))
        return joined_ids(parts)

    def _by_slices(self, offset: int, block: bytes, reading: Reading) -> list[Any]:
        """Parse a block that has a row which is, or may be, wrong; errors as of ``read``."""
        tables = []
        for part in slices(block):
            reading.look()
            table = _parse_block(part, self.layout)
            tables.append(self._by_rows(offset, part, reading) if table is None else table)
            offset += len(part)
        return tables

    def _by_rows(self, offset: int, block: bytes, reading: Reading) -> Any:
        rows = []
        for index, line in enumerate(io.BytesIO(block)):
            text = line.removesuffix(b"\n")
            try:
                row = row_of(text, self.layout)
            except LineError as error:
                number = count_lines(self.source, offset, reading) + index + 1
                raise bad_line(self.source.path, number, text.removesuffix(b"\r"), str(error)) from None
            if row is not None:
                rows.append([row[place] for place in self.layout.places])
        return self._table(rows)

    def _table(self, rows: list[list[str]]) -> Any:
        import pyarrow as pa

        columns = {}
        for index, (name, kind) in enumerate(zip(self.layout.ends.columns, self.layout.kinds, strict=True)):
            values = [row[index] for row in rows]
            columns[name] = np.array(values, np.int64) if kind == "integer" else pa.array(values, pa.string())
        return pa.table(columns)
