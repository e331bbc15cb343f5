"""Edge lists: text files with an edge per line, two id columns and any further ones; SNAP's and KONECT's among them.

The pieces are of pairs of external ids; of rows of a table if ids are strings, or the ends are not the first columns.
"""

import itertools
import re
from dataclasses import replace

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.csv_table import open_csv
from dbfs.edges.readers.doubts import require_no_matrix, require_no_triples
from dbfs.edges.readers.file import TextFile, no_rows
from dbfs.edges.readers.heading import Head, Heading, is_names, read_heading
from dbfs.edges.readers.lines import INT64_MAX, Line, LineError, require_bytes
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.pairs import PairGrammar, PairPiece, columns_of, parse_line
from dbfs.edges.tables.ends import POSITIONS, Columns
from dbfs.errors import TruncatedFileError
from dbfs_workers.base.text import counted

_MARKED_SEPARATOR = re.compile(rb"\s*+[^\s,;|]*+\s*+([,;|])")
_AFTER_IDS = re.compile(rb" *+[^ \t]++([ \t]++)[^ \t]++([ \t]++)[^ \t]")
# Lines among which a leading zero makes the ids of a table strings.
_SAMPLE_LINES = 100
_AT_THE_TOP = "skip_rows= passes over lines at the top"
_IF_NAMES = "If the vertices have names, pass header=True or header=False: whether the first line names the columns"


def open_edge_list(head: Head, options: ReadOptions) -> EdgeList:
    """Read an edge list's comments and its first lines.

    The first line of data sets the separator of columns (commas, semicolons, bars, or spaces and tabs) and their
    number. A line of column names may stand before the data; the ends are then the columns of well-known names, at any
    place, or else the only two. Further columns are ignored. Ids are external: any integers from 0 to 2^63-1; or
    strings, in files named ``.csv`` or ``.tsv``, and where the caller says whether a line names the columns. Edges are
    undirected unless a comment or the caller says otherwise.

    Raises:
        FormatError: the first line of data has no two ids, or the file is in another format; or a comment speaks of
            direction in no known form.
        TruncatedFileError: the file holds no edge, or is too short for a count that is a promise.
        EdgeInputError: the columns of the ends can't be told.
        InvalidOptionError: ``bipartite`` is asked for, and no comment gives the numbers of vertices.
    """
    source = head.source
    heading = read_heading(head, options, is_names)
    first, remarks = heading.first, heading.remarks
    spreadsheet = source.bare_name.endswith((".csv", ".tsv"))
    if first is None and heading.header is not None and (spreadsheet or options.header):
        return no_rows(source)
    if first is None:
        hint = f". {_IF_NAMES}" if heading.header is not None else ""
        raise TruncatedFileError(f"{source.path} holds no edges; expected lines of two vertex ids{hint}")
    if remarks.strings:
        return open_csv(head, replace(options, header=True))
    require_no_matrix(head, heading, options)
    grammar = _grammar(heading.header, first, options)
    row = columns_of(first.text, grammar.separator, grammar.tail)
    names: list[str] = []
    if options.strings:
        if heading.header is not None and options.header is None and not spreadsheet:
            raise heading.header.wrong(source.path, f"an edge, or names of columns? {_IF_NAMES}")
        _require_no_neighbours(heading, first, row, options, source.path)
        return open_csv(head, options if heading.header else replace(options, header=False))
    table = options.header is not None or spreadsheet
    if table and not _digits(row) and (heading.header is not None or options.header is False):
        return open_csv(head, options)
    if heading.header is not None:
        grammar, row, names = _named(heading.header, first, grammar, source.path)
    columns = Columns((), POSITIONS)
    if table and not _digits(row) and names:
        return open_csv(head, options)
    if names and (table or _digits(row)):
        columns = options.columns(names, source.path)
        heading.require_untyped(names, row, source.path, options)
    if columns.names and columns.ends.columns != names[:2]:
        return open_csv(head, options)
    if table and _digits(row) and _has_codes(heading, grammar):
        return open_csv(head, replace(options, header=bool(names)))
    try:
        parse_line(first.text, grammar)
    except LineError as error:
        hint = f". {_IF_NAMES}" if options.header is None and is_names(b" ".join(row[:2])) else ""
        if len(row) > 2 and row[0].isdigit() and not re.search(rb"[0-9]", row[1]):
            hint = ". Other columns may be the ends: source='0', target='2' with header=False"
        elif not hint and not row[0][:1].isdigit():
            hint = f". {_AT_THE_TOP}"
        raise first.wrong(source.path, f"{error}{hint}") from None
    if remarks.banner and len(row) == 3 and _digits(row) and row[2].isdigit():
        reason = "may be the size line of a matrix, because a banner stands above; format='matrix-market' reads it"
        raise first.wrong(source.path, reason)
    _require_no_neighbours(heading, first, row, options, source.path)
    if not names:
        shown = [cell.decode(errors="replace") for cell in row]
        require_no_triples([shown], [first.text], options.missing_words, source.path)
    sides = _sides(heading, options)
    if sides is not None:
        grammar = replace(grammar, low=1, high=sides[0], right=sides[1])
    if options.strict and remarks.edges is not None:
        require_bytes(source, first.start, 4 * remarks.edges, counted(remarks.edges, "edge"))
    return TextFile(
        name=source.path,
        first_id=grammar.low,
        n=None if sides is None else sum(sides),
        m=remarks.edges if options.strict else None,
        directed=remarks.directed(options),
        stated=remarks.edges,
        values=columns.others or tuple(f"column {place}" for place in range(2, 2 + grammar.extra)),
        source=source,
        columns=columns,
        piece=PairPiece,
        layout=grammar,
        body=first.start,
        edge_bytes=head.mean_line(first.start),
    )


def _grammar(header: Line | None, line: Line, options: ReadOptions) -> PairGrammar:
    """Return the grammar of a file by its first row, and by the marks between column names: ids may hold blanks."""
    tops = (line,) if header is None else (header, line)
    found = next(filter(None, (_MARKED_SEPARATOR.match(top.text) for top in tops)), None)
    separator = b"" if found is None else found.group(1)
    if options.sep is not None:
        separator = options.sep.encode().strip(b" ")
    tail = separator or b" "
    if not separator and options.sep is None and b"\t" in line.text:
        after = _AFTER_IDS.match(line.text)
        if not _digits(columns_of(line.text, b"", b" ")):
            # Names may hold spaces.
            separator = tail = b"\t"
        elif after and b"\t" in after[2]:
            tail = b"\t"
    extra = max(len(columns_of(line.text, separator, tail)) - 2, 0)
    return PairGrammar(separator, low=0, high=INT64_MAX, extra=extra, tail=tail, comments=options.marks)


def _named(header: Line, line: Line, grammar: PairGrammar, path: str) -> tuple[PairGrammar, list[bytes], list[str]]:
    """Return the grammar of a file, the columns of its first row, and the names in the line above.

    Raise ``FormatError`` if there are more or fewer names than columns.
    """
    marks, tabs = (grammar.separator, grammar.tail), (b"\t", b"\t")
    # Between tabs, names may hold blanks, and a value may be empty.
    for of_names, of_row in ((marks, marks), (tabs, marks), (tabs, tabs)):
        names, row = columns_of(header.text, *of_names), columns_of(line.text, *of_row)
        if len(names) == len(row) > 1:
            if of_row != marks:
                grammar = replace(grammar, separator=b"\t", tail=b"\t", extra=len(row) - 2)
            return grammar, row, [name.strip(b" \t\"'").decode("utf-8", "replace") for name in names]
    counts = [len(columns_of(text, *marks)) for text in (header.text, line.text)]
    raise header.wrong(
        path, f"{counts[0]} columns, and {counts[1]} in the next line; expected a name for each column. {_AT_THE_TOP}"
    )


def _require_no_neighbours(heading: Heading, line: Line, row: list[bytes], options: ReadOptions, path: str) -> None:
    """Refuse a line, an edge and values by its grammar, that is written as a vertex, a tab, and its neighbours."""
    found = _AFTER_IDS.match(line.text) if options.sep is None and not heading.remarks.konect else None
    if found is not None and b"\t" in found[1] and b"\t" not in found[2] and all(map(bytes.isdigit, row)):
        reason = "a tab, and then blanks: format='adjacency-list' reads neighbours, and sep=' ' reads values of an edge"
        raise line.wrong(path, reason)


def _digits(row: list[bytes]) -> bool:
    """Return whether the first two columns hold digits alone."""
    return len(row) > 1 and all(column.isdigit() for column in row[:2])


def _has_codes(heading: Heading, grammar: PairGrammar) -> bool:
    """Return whether an id of the first lines is a code, such as 007, that is no number."""
    lines = itertools.chain([heading.first], itertools.islice(heading.rest, _SAMPLE_LINES - 1))
    rows = (columns_of(line.text, grammar.separator, grammar.tail) for line in lines if line is not None)
    return any(re.match(rb"0[0-9]", column) for row in rows for column in row[:2])


def _sides(heading: Heading, options: ReadOptions) -> tuple[int, int] | None:
    """Return the numbers of vertices of two sets; None if sources and targets are of one set.

    Raise ``FormatError`` or ``InvalidOptionError`` if there are two sets, and no comment gives their numbers.
    """
    remarks = heading.remarks
    if remarks.sides is None:
        remarks.require_one_set(options)
    two_sets = remarks.two_sets if options.bipartite is None else options.bipartite
    return remarks.sides if two_sets else None
