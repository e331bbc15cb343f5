"""Tables in text: CSV, TSV and NCOL files, and others with names of vertices; read by byte ranges.

Sources: RFC 4180, "Common Format and MIME Type for CSV Files", 2005; but a value has no line break, so that a file can
be read from any line on. NCOL, as igraph documents it: two names with blanks between them, and perhaps a weight. A
column is one of integers if the first rows hold integers, else one of strings.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dbfs.edges.kinds import IdKind
from dbfs.edges.readers.csv_rows import CsvLayout, CsvPiece, fields, row_of
from dbfs.edges.readers.file import TableFile
from dbfs.edges.readers.head import Head
from dbfs.edges.readers.heading import read_heading
from dbfs.edges.readers.lines import Line, bad_line, byte_ranges, lines_by_samples
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.pairs import LineError
from dbfs.edges.readers.source import Source
from dbfs.edges.tables.ends import POSITIONS, Columns, choose_ends
from dbfs.errors import EdgeInputError, TruncatedFileError

# Rows that decide whether a column holds integers.
_SAMPLE_ROWS = 100
_SEPARATORS = (b"\t", b",", b";", b"|")


def open_csv(head: Head, options: ReadOptions) -> CsvFile:
    """Read the line of column names and the first rows; comments may stand before them.

    Args:
        head: the first lines.
        options: what the caller says. Without ``header`` the first line names the columns. A file without such a line
            has the columns ``0``, ``1`` and so on, and its ends are the first two unless the caller names others.

    Raises:
        FormatError: one of the first rows breaks the format, or ids there differ in blanks only; or the line of column
            names may be an edge; or a comment or a column speaks of direction in no known form, or of two sets.
        TruncatedFileError: there is no row.
        EdgeInputError: a column is missing, or the columns of the two ends are of different kinds.
        InvalidOptionError: ``bipartite`` is asked for.
    """
    source = head.source
    heading = read_heading(head, options, lambda _: True)
    heading.remarks.require_one_set(options)
    header, first = heading.header, heading.first
    if header is None and first is None:
        raise TruncatedFileError(f"{source.path} ends before its header; expected a line of column names")
    if first is None:
        raise TruncatedFileError(f"{source.path} holds no edges; expected rows after the line of column names")
    top = first if header is None else header
    separator = options.sep or _separator(top.text)
    names = [name.strip() for name in _fields(source, top, separator)]
    if header is None:
        names = [str(place) for place in range(len(names))]
    if header is None and len(names) < 2:
        raise bad_line(source.path, top.number, top.text, "one column; expected two ids")
    columns = _columns(names, header, options, source.path)
    unknown = CsvLayout(
        separator,
        len(names),
        "the first row" if header is None else "the line of column names",
        columns.ends,
        tuple(names.index(column) for column in columns.ends.columns),
        tuple("string" for _ in columns.ends.columns),
        None if options.comment is None else options.marks,
    )
    hidden = [line for line in heading.comments(head) if header is not None or _may_be_row(line.text, unknown)]
    lines = [*hidden, first, *itertools.islice(heading.rest, _SAMPLE_ROWS - 1)]
    rows = list(_rows(source, lines, unknown))
    heading.require_untyped(names, [value.encode() for value in rows[0]], source.path, options)
    layout = replace(unknown, kinds=_kinds(rows, unknown, source.path))
    _require_no_padding(source, lines, layout)
    if header is not None and options.header is None and not options.named:
        _require_no_edge(header, rows, layout, source.path)
    return CsvFile(
        name=source.path,
        n=None,
        m=None,
        directed=heading.remarks.directed(options),
        mirrored=False,
        values=columns.others or tuple(f"column {name}" for name in names if name not in columns.ends.columns),
        source=source,
        columns=columns,
        kinds=tuple(layout.kinds[columns.ends.columns.index(column)] for column in columns.ends.source),
        body=first.start,
        layout=layout,
        row_bytes=head.mean_line(first.start),
    )


def open_ncol(head: Head, options: ReadOptions) -> CsvFile:
    """Read the first rows of an NCOL file: names with blanks between them, without a line of column names."""
    return open_csv(head, replace(options, header=False, sep=" "))


def _separator(text: bytes) -> str:
    """Return what separates the columns of a line: a mark, if there is one; else blanks, if there are any."""
    found = next((mark.decode() for mark in _SEPARATORS if mark in text.strip()), None)
    return found or (" " if b" " in text.strip() else ",")


def _fields(source: Source, line: Line, separator: str) -> list[str]:
    try:
        return fields(line.text, separator)
    except LineError as error:
        raise bad_line(source.path, line.number, line.text, str(error)) from None


def _columns(names: Sequence[str], header: Line | None, options: ReadOptions, path: str) -> Columns:
    if header is not None:
        return options.columns(names, path)
    ends = choose_ends(names, options.source, options.target, path) if options.named else POSITIONS
    return Columns((), ends)


def _rows(source: Source, lines: Sequence[Line], layout: CsvLayout) -> Iterator[list[str]]:
    for line in lines:
        try:
            row = row_of(line.text, layout)
        except LineError as error:
            raise bad_line(source.path, line.number, line.text, str(error)) from None
        if row is not None:
            yield row


def _may_be_row(text: bytes, layout: CsvLayout) -> bool:
    """Return whether a comment at the top of a file without column names may be an edge, such as ``#red,blue``."""
    columns = text.split(None if layout.separator == " " else layout.separator.encode())
    return len(columns) == layout.columns and re.match(rb"[ \t]*+[#%/]++[^\s#%/]", text) is not None


def _require_no_padding(source: Source, lines: Sequence[Line], layout: CsvLayout) -> None:
    """Refuse strings that differ in blanks at their ends, as those after a comma and a blank do.

    Raises:
        FormatError: such strings are in the first rows, not in quotes; or one of these has an integer past 2^63-1.
    """
    ids: dict[str, Line] = {}
    for line in lines:
        rows = _rows(source, [line], layout) if b'"' not in line.text else ()
        ids |= {row[place]: line for row in rows for place in layout.places}
    padded = next((one for one in ids if one.strip(" ") != one and one.strip(" ") in ids), None)
    if padded is not None:
        ways = "put ids in quotes, or drop the blanks by pandas.read_csv(path, skipinitialspace=True)"
        reason = f"{padded!r} and {padded.strip(' ')!r} would be two vertices; {ways}"
        raise bad_line(source.path, ids[padded].number, ids[padded].text, reason)


def _kinds(rows: Sequence[Sequence[str]], layout: CsvLayout, path: str) -> tuple[IdKind, ...]:
    """Return the kind of each column of the ends.

    Raises:
        EdgeInputError: the two ends are of different kinds. Digits alone may be strings as well.
    """
    values = {
        column: [row[place] for row in rows] for column, place in zip(layout.ends.columns, layout.places, strict=True)
    }
    kinds = {column: _kind(each) for column, each in values.items()}
    for one, other in zip(layout.ends.source, layout.ends.target, strict=True):
        if kinds[one] != kinds[other]:
            if not all(value.strip().isdigit() for end in (one, other) for value in values[end]):
                raise EdgeInputError(
                    f"{path}: column {one!r} holds {kinds[one]}s and column {other!r} {kinds[other]}s in the first "
                    f"rows; both ends must have ids of one kind: pandas.read_csv({path!r}, dtype=str) reads strings"
                )
            kinds[one] = kinds[other] = "string"
    return tuple(kinds[column] for column in layout.ends.columns)


def _kind(values: Sequence[str]) -> IdKind:
    # A number with leading zeros is a code, such as a post code: as an integer it would lose them.
    integers = all(re.fullmatch("[ \t]*+(?:0|[1-9][0-9]{0,18}+)[ \t]*+", value) for value in values)
    return "integer" if integers else "string"


def _require_no_edge(header: Line, rows: Sequence[Sequence[str]], layout: CsvLayout, path: str) -> None:
    """Refuse a line of column names that may be an edge: one of its names is an id in the first rows.

    Raises:
        FormatError: there is such a name.
    """
    ids = {row[place] for row in rows for place in layout.places}
    found = [column for column in layout.ends.columns if column in ids]
    if found:
        reason = f"{found[0]!r} is an id in the next lines. Is this line an edge? Pass header=False, else header=True"
        raise bad_line(path, header.number, header.text, reason)


@dataclass(frozen=True)
class CsvFile(TableFile):
    """A table in text.

    Attributes:
        body: byte offset of the first row.
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
        """See ``EdgeList``. Comments and blank lines among the rows count as edges."""
        return lines_by_samples(self.source, self.body)
