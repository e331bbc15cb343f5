"""CSV and TSV files with a header: an edge per row, columns by name, read by byte ranges.

Source: RFC 4180, "Common Format and MIME Type for CSV Files", 2005; but a value has no line break, so that a file can
be read from any line on. pyarrow parses a block of rows. A block about which pyarrow might be lenient (blanks,
hexadecimal numbers, a lone carriage return, an empty value) or which breaks the format is parsed again row by row,
which finds the wrong row. A column is one of integers if the first rows hold integers, else one of strings.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbfs.edges.kinds import IdKind
from dbfs.edges.readers.edge_list import COMMENTS, DIRECTION, is_names
from dbfs.edges.readers.file import FileEdges
from dbfs.edges.readers.head import Head
from dbfs.edges.readers.lines import (
    INT64_MAX,
    Line,
    bad_line,
    blocks,
    byte_ranges,
    count_lines,
    line_start,
    lines_by_samples,
    slices,
    unreadable,
)
from dbfs.edges.readers.pairs import LineError, why_not_id
from dbfs.edges.readers.source import SUFFIXES, Source
from dbfs.edges.tables.ends import ColumnNames, Ends, choose_ends
from dbfs.edges.tables.ids import Place, edges_of, joined_ids
from dbfs.errors import EdgeInputError, TruncatedFileError
from dbfs_workers.storage.pieces import IdEdges
from dbfs_workers.storage.reading import Reading, ReadLimits

# Bytes of memory for a byte of text, while a block of the shortest rows is parsed.
_EXPANSION = 16
# Rows that decide whether a column holds integers.
_SAMPLE_ROWS = 100
_SEPARATORS = (b"\t", b",", b";", b"|")
_BLANK_LINES = re.compile(rb"(?:[ \t]*+\r?+\n)*+")


@dataclass(frozen=True)
class CsvLayout:
    """The columns of a file.

    Attributes:
        separator: between columns.
        columns: number of columns.
        ends: the columns of an edge's ends.
        places: index of each column of the ends.
        kinds: kind of each of these columns.
    """

    separator: str
    columns: int
    ends: Ends
    places: tuple[int, ...]
    kinds: tuple[IdKind, ...]


def open_csv(head: Head, directed: bool | None, ends: tuple[ColumnNames, ColumnNames]) -> CsvFile:
    """Read the header of a CSV or TSV file, and its first rows; comments may stand before the header.

    Args:
        head: the first lines.
        directed: whether edges can be crossed in one direction only; None for the direction that a comment in SNAP's
            form gives, or undirected without such a comment.
        ends: names of the columns of an edge's ends; None for the file's two columns.

    Raises:
        FormatError: one of the first rows breaks the format.
        TruncatedFileError: there is no row.
        EdgeInputError: a column is missing, or the columns of the two ends are of different kinds.
    """
    source = head.source
    lines = head.lines(_BLANK_LINES)
    header: Line | None = None
    stated: bool | None = None
    for line in lines:
        if line.text.startswith(COMMENTS):
            found = DIRECTION.match(line.text)
            stated = found.group(1) is None if found and stated is None else stated
        elif line.text.strip():
            header = line
            break
    if header is None:
        raise TruncatedFileError(f"{source.path} ends before its header; expected a line of column names")
    separator = next((mark.decode() for mark in _SEPARATORS if mark in header.text), ",")
    try:
        names = [name.strip() for name in _fields(header.text, separator)]
    except LineError as error:
        raise bad_line(source.path, header.number, header.text, str(error)) from None
    chosen = choose_ends(names, *ends, source.path)
    places = tuple(names.index(column) for column in chosen.columns)
    unknown = CsvLayout(separator, len(names), chosen, places, tuple("string" for _ in places))
    rows: list[list[str]] = []
    for line in itertools.islice(lines, _SAMPLE_ROWS):
        rows += _sampled(source, line, unknown)
    if not rows:
        raise TruncatedFileError(f"{source.path} holds no edges; expected rows after the line of column names")
    kinds: tuple[IdKind, ...] = tuple(_kind(values) for values in zip(*rows, strict=True))
    layout = CsvLayout(separator, len(names), chosen, places, kinds)
    by_name = dict(zip(chosen.columns, kinds, strict=True))
    for one, other in zip(chosen.source, chosen.target, strict=True):
        if by_name[one] != by_name[other]:
            raise EdgeInputError(
                f"{source.path}: column {one!r} holds {by_name[one]}s and column {other!r} {by_name[other]}s in the "
                "first rows; both ends must have ids of one kind"
            )
    return CsvFile(
        name=source.path,
        n=None,
        m=None,
        directed=bool(stated) if directed is None else directed,
        mirrored=False,
        source=source,
        body=header.end,
        layout=layout,
        row_bytes=head.mean_line(header.end),
    )


def _sampled(source: Source, line: Line, layout: CsvLayout) -> list[list[str]]:
    try:
        row = _row(line.text, layout)
    except LineError as error:
        raise bad_line(source.path, line.number, line.text, str(error)) from None
    return [] if row is None else [row]


def _kind(values: Sequence[str]) -> IdKind:
    # A number with leading zeros is a code, such as a post code: as an integer it would lose them.
    return "integer" if all(re.fullmatch("0|[1-9][0-9]{0,18}", value) for value in values) else "string"


def _fields(text: bytes, separator: str) -> list[str]:
    """Split a line (without line end) into its columns' values.

    Raises:
        LineError: the line is not UTF-8, or breaks the format.
    """
    if reason := unreadable(text):
        raise LineError(reason)
    try:
        return next(csv.reader([text.decode()], delimiter=separator, strict=True), [])
    except UnicodeDecodeError:
        raise LineError("a byte that is not UTF-8; expected text in UTF-8") from None
    except csv.Error as error:
        reason = "a line break within quotes" if "end of data" in str(error) else str(error)
        raise LineError(f"{reason}; expected one row per line") from None


def _row(text: bytes, layout: CsvLayout) -> list[str] | None:
    """Return the values of the columns of the ends in a line; None for a blank line.

    Raises:
        LineError: the line breaks the format, a value is missing, or an integer is none.
    """
    text = text.removesuffix(b"\r")
    if not text.strip():
        return None
    fields = _fields(text, layout.separator)
    if len(fields) != layout.columns:
        raise LineError(f"{len(fields)} columns; expected {layout.columns} as in the line of column names")
    row = [fields[place] for place in layout.places]
    for column, kind, index in zip(layout.ends.columns, layout.kinds, range(len(row)), strict=True):
        if not row[index].strip():
            raise LineError(f"column {column!r}: an id is missing")
        if kind == "integer":
            row[index] = value = row[index].strip()
            if not re.fullmatch("[0-9]{1,19}", value) or int(value) > INT64_MAX:
                reason = why_not_id(value.encode()) if len(value) != 19 or not value.isdecimal() else "past 2^63-1"
                raise LineError(f"column {column!r}: {reason}; the first rows hold integers")
    return row


def _parse_block(block: bytes, layout: CsvLayout) -> Any:
    """Return a block of whole lines as an Arrow table; None if a row breaks, or may break, the format."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pacsv

    if b"\0" in block or block.count(b"\r") != block.count(b"\r\n"):
        return None
    names = [str(place) for place in layout.places]
    try:
        table = pacsv.read_csv(
            pa.BufferReader(block),
            pacsv.ReadOptions(
                use_threads=False, block_size=len(block) + 1, column_names=list(map(str, range(layout.columns)))
            ),
            pacsv.ParseOptions(delimiter=layout.separator),
            pacsv.ConvertOptions(include_columns=names, column_types=dict.fromkeys(names, pa.string()), null_values=[]),
        )
    except pa.ArrowInvalid:
        return None
    # Blank lines, and line breaks within quotes, make another number of rows.
    if table.num_rows != block.count(b"\n"):
        return None
    columns = []
    for column, kind in zip(table.columns, layout.kinds, strict=True):
        if kind == "integer":
            if not pc.all(pc.ascii_is_decimal(column)).as_py():
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
                row = _row(text, self.layout)
            except LineError as error:
                number = count_lines(self.source, offset, reading) + index + 1
                raise bad_line(self.source.path, number, text.removesuffix(b"\r"), str(error)) from None
            if row is not None:
                rows.append(row)
        return self._table(rows)

    def _table(self, rows: list[list[str]]) -> Any:
        import pyarrow as pa

        columns = {}
        for index, (name, kind) in enumerate(zip(self.layout.ends.columns, self.layout.kinds, strict=True)):
            values = [row[index] for row in rows]
            columns[name] = np.array(values, np.int64) if kind == "integer" else pa.array(values, pa.string())
        return pa.table(columns)


@dataclass(frozen=True)
class CsvFile(FileEdges):
    """A CSV file with a header.

    Attributes:
        body: byte offset of the text after the header.
        layout: its columns.
        row_bytes: estimate of the mean bytes of a row; sizes the pieces.
    """

    body: int
    layout: CsvLayout
    row_bytes: float

    def cut(self, piece_edges: int) -> Sequence[CsvPiece]:
        """Cut into byte ranges of about ``piece_edges`` rows. A compressed file is one piece, since it is streamed."""
        limits = self.limits()
        ranges = byte_ranges(self.source, self.body, self.row_bytes, piece_edges)
        return [CsvPiece(self.source, self.layout, *at, limits) for at in ranges]

    def sampled_edges(self) -> int | None:
        """See ``EdgeList``. A row over several lines counts as several edges."""
        return lines_by_samples(self.source, self.body)

    @property
    def id_kinds(self) -> tuple[IdKind, ...]:
        """See ``EdgeList``."""
        by_name = dict(zip(self.layout.ends.columns, self.layout.kinds, strict=True))
        return tuple(by_name[column] for column in self.layout.ends.source)


def is_csv_table(head: Head) -> bool:
    """Return whether a file named ``.csv`` or ``.tsv`` has a line of names, and then a row that is no edge of integers.

    Such a file, read as an edge list, would be refused at that row.
    """
    name = head.source.path.lower()
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    if not name.endswith((".csv", ".tsv")):
        return False
    lines = head.lines(_BLANK_LINES)
    texts = (line.text.strip() for line in lines)
    header = next((text for text in texts if text and not text.startswith(COMMENTS)), b"")
    row = next(filter(None, texts), b"")
    if not row or not is_names(header):
        return False
    separator = next((mark for mark in _SEPARATORS if mark in header), None)
    if separator is None or row.startswith(COMMENTS):
        return False
    ids = [value.strip() for value in row.split(separator)[:2]]
    return len(ids) == 2 and all(ids) and not all(re.fullmatch(rb"[0-9]+(?:\s.*)?", value) for value in ids)
