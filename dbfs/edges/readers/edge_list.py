"""Edge lists: text files with an edge per line, two id columns and any further ones; SNAP's files among them.

Source: Leskovec, Krevl, "SNAP Datasets: Stanford Large Network Dataset Collection", 2014. Its files open with comments
``# Directed graph ...`` (or ``Undirected``) and ``# Nodes: n Edges: m``. The result is a ``PairFile`` of external ids.
"""

import re

from dbfs.edges.readers.head import Head
from dbfs.edges.readers.lines import INT64_MAX, Line, bad_line, header_number, require_bytes
from dbfs.edges.readers.matrix_market import BANNER
from dbfs.edges.readers.pairs import LineError, PairFile, PairGrammar, columns_of, parse_line
from dbfs.errors import TruncatedFileError

COMMENTS = (b"#", b"%", b"//")

# Repeats are possessive: without backtracking a line of any length takes linear time.
DIRECTION = re.compile(rb"[#%/]++\s*+(un)?directed graph\b", re.IGNORECASE)
_COUNTS = re.compile(rb"[#%/]++\s*+Nodes:\s*+(\S++)\s++Edges:\s*+(\S++)", re.IGNORECASE)
_MARKED_SEPARATOR = re.compile(rb"\s*+[^\s,;]*+\s*+([,;])")
# Blank lines, and comments that say nothing of the graph.
_PASSED_OVER = re.compile(
    rb"(?:\n++|[ \t]*+(?:(?=#|%|//)(?![#%/]++[ \t]*+(?:directed|undirected|nodes))[^\n\r\0]*+)?+\r?+\n)*+",
    re.IGNORECASE,
)


def open_edge_list(head: Head, directed: bool | None) -> PairFile:
    """Read an edge list's comments and its first lines.

    The first line of data sets the separator of columns: commas, semicolons, or spaces and tabs. Columns after the
    first two are ignored. Ids are external: any integers from 0 to 2^63-1. Edges are undirected unless a comment in
    SNAP's form says ``Directed``. A line of column names may stand before the data.

    Raises:
        FormatError: the first line of data has no two ids, or the file is in another format.
        TruncatedFileError: the file holds no edge, or is too short for the count that its comment states.
    """
    source = head.source
    stated: bool | None = None
    m: int | None = None
    named = False
    for line in head.lines(_PASSED_OVER):
        text = line.text.strip()
        if line.number == 1 and text.startswith(BANNER):
            raise bad_line(source.path, 1, text, "a Matrix Market file; expected an edge list")
        if text.startswith(COMMENTS):
            if stated is None and (found := DIRECTION.match(text)):
                stated = found.group(1) is None
            if counts := _COUNTS.match(text):
                m = header_number(source, line, counts.group(2), "the count of edges")
        elif text and not named and is_names(text):
            named = True
        elif text:
            break
    else:
        raise TruncatedFileError(f"{source.path} holds no edges; expected lines of two vertex ids")
    grammar = _grammar(line)
    try:
        parse_line(line.text, grammar)
    except LineError as error:
        raise bad_line(source.path, line.number, line.text, str(error)) from None
    if m is not None:
        require_bytes(source, line.start, 4 * m, f"{m} edges")
    return PairFile(
        name=source.path,
        n=None,
        m=m,
        directed=bool(stated) if directed is None else directed,
        mirrored=False,
        source=source,
        grammar=grammar,
        body=line.start,
        edge_bytes=head.mean_line(line.start),
    )


def is_names(text: bytes) -> bool:
    """Return whether a line holds column names: two or more words that each start with a letter or an underscore."""
    # A mark separates columns, also empty ones; a run of blanks separates columns that have text.
    columns = re.split("[,;]", text.decode("utf-8", "replace"))
    words = [word.strip("\"'") for column in columns for word in column.split() or [""]]
    return len(words) > 1 and all(word[:1].isalpha() or word[:1] == "_" for word in words)


def _grammar(line: Line) -> PairGrammar:
    """Return the grammar of a file by its first line of data."""
    found = _MARKED_SEPARATOR.match(line.text)
    if found:
        separator = tail = found.group(1)
    else:
        separator = b""
        after = re.match(rb" *+[^ \t]++[ \t]++[^ \t]++([ \t]++)[^ \t]", line.text)
        tail = b"\t" if after and b"\t" in after.group(1) else b" "
    columns = columns_of(line.text, separator, tail)
    return PairGrammar(separator, low=0, high=INT64_MAX, extra=max(len(columns) - 2, 0), tail=tail, comments=COMMENTS)
