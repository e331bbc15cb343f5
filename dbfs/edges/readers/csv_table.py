"""Tables in text: CSV, TSV and NCOL files, and others with names of vertices; read by byte ranges.

Sources: RFC 4180, "Common Format and MIME Type for CSV Files", 2005; but a value has no line break, so that a file can
be read from any line on. NCOL, as igraph documents it: two names with blanks between them, and perhaps a weight. A
column is one of integers if the first rows hold integers, else one of strings.

pyarrow parses a block of rows. A block about which pyarrow might be lenient (hexadecimal numbers, a lone carriage
return, an empty value, a line that may be a comment) or which breaks the format is parsed again row by row, which finds
the wrong row.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Self

import numpy as np

from dbfs.edges.edge_list import IdKind
from dbfs.edges.readers.attributes import keeping
from dbfs.edges.readers.doubts import FLOAT, NoIds, require_no_matrix, require_no_triples
from dbfs.edges.readers.file import NoRows, TextFile, TextPiece, no_rows
from dbfs.edges.readers.heading import Head, read_heading
from dbfs.edges.readers.lines import INT64_MAX, Line, LineError, each_line, parsed, unreadable
from dbfs.edges.readers.options import COMMENTS, ReadOptions
from dbfs.edges.readers.pairs import AS_STRINGS, QUOTED_BREAK, why_not_id
from dbfs.edges.readers.source import Source
from dbfs.edges.tables.attributes import require_columns
from dbfs.edges.tables.ends import Columns, Ends, has_known_ends
from dbfs.edges.tables.ids import Place, edges_of, joined_ids
from dbfs.errors import EdgeInputError, TruncatedFileError
from dbfs_workers.base.text import counted
from dbfs_workers.building.pieces import IdEdges
from dbfs_workers.building.reading import Reading

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
        counted: the line that has this number of columns, for messages.
        places: index of each column of the ends.
        kinds: kind of each of these columns.
        comments: starts of comment lines. None if the caller names none: a line that begins as comments do elsewhere
            may then be an edge or a comment, and is refused.
        no_ids: strings that are no ids.
        names: names of all columns by which values are kept: those of the file, or their places.
    """

    separator: str
    columns: int
    counted: str
    ends: Ends
    places: tuple[int, ...]
    kinds: tuple[IdKind, ...]
    comments: tuple[bytes, ...] | None
    no_ids: NoIds
    names: tuple[str, ...] = ()


def fields(text: bytes, separator: str, *, skip: bool = False) -> list[str]:
    """Split a line (without line end) into its columns' values; ``skip`` passes over blanks before them.

    Raise ``LineError`` if the line is not UTF-8, or breaks the format.
    """
    if reason := unreadable(text):
        raise LineError(reason)
    blank = separator == " "
    if blank:
        if b'"' in text and b"\t" in text:
            raise LineError("a tab beside quotes, where blanks separate columns; pass sep='\\t'")
        text = text.replace(b"\t", b" ").strip(b" ")
    try:
        return next(csv.reader([text.decode()], delimiter=separator, strict=True, skipinitialspace=blank or skip), [])
    except UnicodeDecodeError:
        raise LineError("a byte that is not UTF-8; expected text in UTF-8") from None
    except csv.Error as error:
        reason = QUOTED_BREAK if "end of data" in str(error) else str(error)
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
        word = row[place].strip()
        if not word:
            end = "source" if column in layout.ends.source else "target"
            raise LineError(f"column {column!r}: the {end} is missing; an edge needs both ends")
        if reason := layout.no_ids.reason(word):
            raise LineError(f"column {column!r}: {reason}")
        if word.startswith('"') and row[place] != word and row != fields(text, layout.separator, skip=True):
            raise LineError(f"column {column!r}: a blank before quotes; pandas.read_csv(path, skipinitialspace=True)")
        if kind == "integer":
            row[place] = value = row[place].strip(" \t")
            if not re.fullmatch("0|[1-9][0-9]{0,18}", value) or int(value) > INT64_MAX:
                past = re.fullmatch("[1-9][0-9]{18}", value)
                reason = "past 2^63-1" if past else why_not_id(value.encode())
                raise LineError(f"column {column!r}: {reason}; the first rows hold integers. {AS_STRINGS}")
    return row


def unclear(text: bytes) -> LineError:
    """Return the error for a line between strings that begins as comments do."""
    mark = next(mark for mark in COMMENTS if text.lstrip().startswith(mark)).decode()
    return LineError(f"a comment, or an id? Pass comment={mark!r} to pass over such lines, else comment=''")


@lru_cache(maxsize=64)
def _lines_that_start(marks: tuple[bytes, ...]) -> re.Pattern[bytes]:
    return re.compile(rb"^[ \t]*+(?:" + b"|".join(map(re.escape, marks)) + rb")[^\n]*+\n", re.MULTILINE)


@lru_cache(maxsize=64)
def _loose_quotes(separator: str) -> re.Pattern[bytes]:
    """Return the pattern of quotes that neither begin nor end a value, of which pyarrow keeps or drops some."""
    mark = re.escape(separator.encode())
    return re.compile(rb'(?<=[^\n"' + mark + rb'])"(?=[^\r\n"' + mark + rb"])")


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
    if b'"' in block and (layout.separator == " " or _loose_quotes(layout.separator).search(block)):
        return None
    if layout.separator != " ":
        return block
    if b"\t" in block or b"  " in block:
        block = _BLANKS.sub(b" ", block)
    if block.startswith(b" ") or b"\n " in block or b" \n" in block or b" \r" in block:
        block = _EDGES_OF_LINES.sub(b"", block)
    return block


def _parse_block(block: bytes, layout: CsvLayout) -> Any:
    """Return a block of whole lines as an Arrow table; None if a row breaks, or may break, the format."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = _strings(block, layout, layout.places)
    if table is None:
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
            if _may_hold_no_ids(column, block, layout):
                return None
            columns.append(column)
    return pa.table(columns, names=layout.ends.columns)


def _strings(block: bytes, layout: CsvLayout, places: Sequence[int]) -> Any:
    """Return some columns of a block as strings, named by their places; None if a row may break the format."""
    import pyarrow as pa
    import pyarrow.csv as pacsv

    text = _as_pyarrow_reads(block, layout)
    if not text:
        return None
    names = [str(place) for place in places]
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
    return table


def _may_hold_no_ids(column: Any, block: bytes, layout: CsvLayout) -> bool:
    """Return whether a column of strings, of a block of rows, may hold values that are no ids."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # Most texts have no blanks at the ends of values.
    if b" " in block or b"\t" in block:
        column = pc.utf8_trim_whitespace(column)
    if pc.any(pc.is_in(column, pa.array(sorted(layout.no_ids.words), pa.string()))).as_py():
        return True
    points = layout.no_ids.floats and any(part in block for part in (b".", b",0", b"e+", b"E+", b"e-", b"E-"))
    return points and bool(pc.any(pc.match_substring_regex(column, f"^(?:{FLOAT})$")).as_py())


@dataclass(frozen=True)
class CsvPiece(TextPiece):
    """Rows of a CSV file; ``layout`` is that of its columns."""

    layout: CsvLayout

    def read(self) -> IdEdges:
        """Return the ids of the rows, see ``tables.ids.edges_of``; errors as of ``Piece.read``."""
        reading = Reading(self.source.path, self.limits, _EXPANSION)
        place = Place(self.source.path)
        parts: list[Any] = []
        for _, table in parsed(
            self.blocks(reading),
            reading,
            lambda part: _parse_block(part, self.layout),
            lambda at, part: self._by_rows(at, part, reading),
        ):
            reading.take_edges(table.num_rows)
            parts.append(edges_of(table, self.layout.ends, place))
        return joined_ids(parts or [edges_of(self._table([]), self.layout.ends, place)])

    def values(self, columns: Sequence[str]) -> Any:
        """Return some columns of the rows that ``read`` returns, as strings; a missing value is null."""
        return self.first_values(columns, None)

    def first_values(self, columns: Sequence[str], most: int | None) -> Any:
        """Return some columns of the first blocks with ``most`` rows or more, or of all."""
        import pyarrow as pa

        reading = Reading(self.source.path, self.limits, _EXPANSION)
        places = [self.layout.names.index(column) for column in columns]

        def by_rows(at: int, part: bytes) -> Any:
            rows = each_line(self.source, at, part, reading, lambda text: row_of(text, self.layout))
            found = [row for row in rows if row is not None]
            return pa.table([pa.array([row[place] for row in found], pa.string()) for place in places], [*columns])

        def whole(part: bytes) -> Any:
            found = _strings(part, self.layout, places)
            return None if found is None else found.rename_columns([*columns])

        parts = [by_rows(0, b"")]
        for _, table in parsed(self.blocks(reading), reading, whole, by_rows):
            reading.take_edges(table.num_rows)
            parts.append(table)
            if most is not None and sum(part.num_rows for part in parts) >= most:
                break
        return _without_missing(pa.concat_tables(parts), self.layout)

    def _by_rows(self, offset: int, block: bytes, reading: Reading) -> Any:
        rows = each_line(self.source, offset, block, reading, lambda text: row_of(text, self.layout))
        return self._table([[row[place] for place in self.layout.places] for row in rows if row is not None])

    def _table(self, rows: list[list[str]]) -> Any:
        import pyarrow as pa

        columns = {}
        for index, (name, kind) in enumerate(zip(self.layout.ends.columns, self.layout.kinds, strict=True)):
            values = [row[index] for row in rows]
            columns[name] = np.array(values, np.int64) if kind == "integer" else pa.array(values, pa.string())
        return pa.table(columns)


def _without_missing(table: Any, layout: CsvLayout) -> Any:
    """Return values without the words that stand for missing ones, which are null, and without blanks around."""
    import pyarrow as pa
    import pyarrow.compute as pc

    words, columns = pa.array(sorted({"", *layout.no_ids.missing}), pa.string()), []
    for column in table.columns:
        trimmed = pc.utf8_trim_whitespace(column)
        columns.append(pc.if_else(pc.is_in(trimmed, words), pa.scalar(None, pa.string()), trimmed))
    return pa.table(columns, table.schema.names)


@dataclass(frozen=True)
class CsvFile(TextFile):
    """Edges in the rows of a CSV file."""

    def keeping(self, columns: Sequence[str]) -> Self:
        """See ``EdgeList``. The first rows say which types the columns hold."""
        assert self.columns is not None
        of = replace(self.columns, names=self.layout.names)
        require_columns(columns, of.names, of.ends, self.name)
        first = self.cut(self.largest_piece(1 << 62, 1 << 62))[0]
        assert isinstance(first, CsvPiece)
        return keeping(self, of, _typed(first.first_values(columns, _TYPED_ROWS)), columns)


def _typed(table: Any) -> Any:
    """Return the schema of columns of strings, by how all values of a column are written.

    A code with leading zeros is a string, and so is a number with more digits than its type keeps.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    day, whole = "[0-9]{4}-[0-9]{2}-[0-9]{2}", "(0|[1-9][0-9]{0,14})"
    patterns = [
        ("-?(0|[1-9][0-9]{0,17})", pa.int64()),
        (f"[+-]?({whole}([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?|[+-]?inf", pa.float64()),
        ("[Tt]rue|[Ff]alse|TRUE|FALSE", pa.bool_()),
        (day, pa.date32()),
        (f"{day}[T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.][0-9]{{1,6}})?)?", pa.timestamp("us")),
    ]
    fields = []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        written = column.drop_null()
        fitting = (
            kind
            for pattern, kind in patterns
            if len(written) and pc.all(pc.match_substring_regex(written, f"^({pattern})$")).as_py()
        )
        fields.append(pa.field(name, next(fitting, pa.string())))
    return pa.schema(fields)


# Names of the columns of NCOL's files, which have none, by their number.
_PLACES: Final = {3: ("0", "1", "weight")}
# Rows, at least, that decide the types of values.
_TYPED_ROWS: Final = 10_000

# Rows that decide whether a column holds integers.
_SAMPLE_ROWS = 100
_SEPARATORS = (b"\t", b",", b";", b"|")


def open_csv(head: Head, options: ReadOptions, *, blanks: bool = False) -> TextFile | NoRows:
    """Read the line of column names and the first rows; comments may stand before them.

    Args:
        head: the first lines.
        options: what the caller says. Without ``header`` the first line names the columns. A file without such a line
            has the columns ``0``, ``1`` and so on, and its ends are the first two unless the caller names others.
        blanks: whether blanks separate columns, whatever the lines say.

    Raises:
        FormatError: one of the first rows breaks the format, or ids there differ in blanks only; or the line of column
            names may be an edge; or a comment or a column speaks of direction in no known form, or of two sets.
        TruncatedFileError: there is no row.
        EdgeInputError: a column is missing, or the columns of the two ends are of different kinds, or the third column
            may be the target.
        InvalidOptionError: ``bipartite`` is asked for.
    """
    source = head.source
    heading = read_heading(head, options, lambda _: True)
    heading.remarks.require_one_set(options)
    if heading.remarks.strings:
        # The comment is dbfs's own: all ids are strings, whatever they look like.
        options = replace(options, ids="string", missing=())
    header, first = heading.header, heading.first
    if header is None and first is None:
        raise TruncatedFileError(f"{source.path} ends before its header; expected a line of column names")
    if first is None:
        return no_rows(source)
    require_no_matrix(head, heading, options)
    top = first if header is None else header
    separator = " " if blanks else options.sep or _separator(top.text)
    names = [name.strip() for name in top.parsed(source.path, lambda text: fields(text, separator))]
    if header is None:
        names = [str(place) for place in range(len(names))]
    if header is None and len(names) < 2:
        raise top.wrong(source.path, "one column; expected two ids")
    columns = _columns(names, header, options, source.path)
    unknown = CsvLayout(
        separator,
        len(names),
        "the first row" if header is None else "the line of column names",
        columns.ends,
        tuple(names.index(column) for column in columns.ends.columns),
        tuple("string" for _ in columns.ends.columns),
        None if options.comment is None else options.marks,
        NoIds.of(options),
        _PLACES.get(len(names), tuple(names)) if blanks else tuple(names),
    )
    hidden = [line for line in heading.comments(head) if header is not None or _may_be_row(line.text, unknown)]
    lines = [*hidden, first, *itertools.islice(heading.rest, _SAMPLE_ROWS - 1)]
    data = list(_rows(source, lines, unknown))
    rows = [row for _, row in data]
    if separator == " " and options.sep is None:
        _require_one_blank(source, [line for line, _ in data])
    heading.require_untyped(names, [value.encode() for value in rows[0]], source.path, options)
    guessed = options.header is None and not options.named
    if header is not None and guessed and has_known_ends([rows[0][place].lower() for place in unknown.places]):
        raise first.wrong(source.path, f"names of columns? Pass skip_rows={first.number - 1}, else source= and target=")
    if header is None and not options.named:
        require_no_triples(rows, [line.text for line, _ in data], options.missing_words, source.path)
    layout = unknown if options.strings else replace(unknown, kinds=_kinds(rows, unknown, source.path))
    _require_no_padding(source, lines, layout)
    if header is not None and guessed:
        _require_no_edge(header, rows, layout, source.path)
    return CsvFile(
        name=source.path,
        n=None,
        m=None,
        directed=heading.remarks.directed(options),
        values=columns.others or tuple(f"column {name}" for name in names if name not in columns.ends.columns),
        source=source,
        columns=columns,
        id_kinds=tuple(layout.kinds[columns.ends.columns.index(column)] for column in columns.ends.source),
        body=first.start,
        piece=CsvPiece,
        layout=layout,
        edge_bytes=head.mean_line(first.start),
    )


def open_ncol(head: Head, options: ReadOptions) -> TextFile | NoRows:
    """Read the first rows of an NCOL file: names with blanks between them, without a line of column names."""
    return open_csv(head, replace(options, header=False), blanks=options.sep is None)


def _separator(text: bytes) -> str:
    """Return what separates the columns of a line: a mark, if there is one; else blanks, if there are any."""
    found = next((mark.decode() for mark in _SEPARATORS if mark in text.strip()), None)
    return found or (" " if b" " in text.strip() else ",")


def _columns(names: Sequence[str], header: Line | None, options: ReadOptions, path: str) -> Columns:
    if header is not None:
        return options.columns(names, path)
    return Columns((), options.positions(len(names), path))


def _rows(source: Source, lines: Sequence[Line], layout: CsvLayout) -> Iterator[tuple[Line, list[str]]]:
    rows = (line.parsed(source.path, lambda text: row_of(text, layout)) for line in lines)
    return ((line, row) for line, row in zip(lines, rows, strict=True) if row is not None)


def _may_be_row(text: bytes, layout: CsvLayout) -> bool:
    """Return whether a comment at the top of a file without column names may be an edge, such as ``#red,blue``."""
    columns = text.split(None if layout.separator == " " else layout.separator.encode())
    return len(columns) == layout.columns and re.match(rb"[ \t]*+[#%/]++[^\s#%/]", text) is not None


def _require_one_blank(source: Source, lines: Sequence[Line]) -> None:
    """Raise ``FormatError`` for lines whose columns any run of blanks would separate, and tabs alone as well."""
    for line in lines if all(b"\t" in line.text.strip() for line in lines) else ():
        text = line.text.strip()
        if b" " in text and not text.translate(None, b" \t").isdigit():
            raise line.wrong(source.path, "names with blanks between tabs? Pass sep='\\t', else sep=' '")


def _require_no_padding(source: Source, lines: Sequence[Line], layout: CsvLayout) -> None:
    """Refuse strings that differ in blanks at their ends, as those after a comma and a blank do.

    Raise ``FormatError`` for such strings in the first rows that stand in no quotes, and for integers past 2^63-1.
    """
    ids: dict[str, Line] = {}
    for line in lines:
        rows = _rows(source, [line], layout) if b'"' not in line.text else ()
        ids |= {row[place]: line for _, row in rows for place in layout.places}
    padded = next((one for one in ids if one.strip(" ") != one and one.strip(" ") in ids), None)
    if padded is not None:
        ways = "put ids in quotes, or drop the blanks by pandas.read_csv(path, skipinitialspace=True)"
        raise ids[padded].wrong(source.path, f"{padded!r} and {padded.strip(' ')!r} would be two vertices; {ways}")


def _kinds(rows: Sequence[Sequence[str]], layout: CsvLayout, path: str) -> tuple[IdKind, ...]:
    """Return the kind of each column of the ends.

    Raises:
        EdgeInputError: the two ends are of different kinds. Digits alone may be strings as well.
    """
    values = {
        column: [row[place] for row in rows] for column, place in zip(layout.ends.columns, layout.places, strict=True)
    }
    kinds = {column: _kind(rows, place) for column, place in zip(layout.ends.columns, layout.places, strict=True)}
    for one, other in zip(layout.ends.source, layout.ends.target, strict=True):
        if kinds[one] != kinds[other]:
            if not all(value.strip().isdigit() for end in (one, other) for value in values[end]):
                raise EdgeInputError(
                    f"{path}: column {one!r} holds {kinds[one]}s and column {other!r} {kinds[other]}s in the first "
                    f"rows; both ends must have ids of one kind. {AS_STRINGS}; source= and target= name other columns"
                )
            kinds[one] = kinds[other] = "string"
    return tuple(kinds[column] for column in layout.ends.columns)


def _kind(rows: Sequence[Sequence[str]], place: int) -> IdKind:
    # A number with leading zeros is a code, such as a post code: as an integer it would lose them.
    integers = all(re.fullmatch("[ \t]*+(?:0|[1-9][0-9]{0,18}+)[ \t]*+", row[place]) for row in rows)
    return "integer" if integers else "string"


def _require_no_edge(header: Line, rows: Sequence[Sequence[str]], layout: CsvLayout, path: str) -> None:
    """Raise ``FormatError`` if the line of column names may be an edge: a name is an id in the first rows."""
    ids = {row[place] for row in rows for place in layout.places}
    found = [column for column in layout.ends.columns if column in ids]
    if found:
        reason = f"{found[0]!r} is an id in the next lines. Is this line an edge? Pass header=False, else header=True"
        raise header.wrong(path, reason)
