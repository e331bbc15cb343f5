"""``.gr`` files: undirected ones of the PACE challenges, and directed ones of the 9th DIMACS challenge.

Sources: PACE 2016 and later, treewidth track, input format (``p tw n m``, then ``u v``); 9th DIMACS Implementation
Challenge, "Shortest Paths", file formats (``p sp n m``, then ``a u v w``). Both have 1-based ids and comments ``c``.
The pieces are of pairs of vertices 0..n-1.
"""

import re

from dbfs.edges.readers.heading import Head
from dbfs.edges.readers.lines import header_number, require_bytes
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.pairs import PairGrammar, PairPiece, WeightedFile
from dbfs.errors import TruncatedFileError
from dbfs_workers.base.text import counted

_PASSED_OVER = re.compile(rb"(?:\n++|[ \t]*+(?:c(?:[ \t][^\n\r\0]*+)?+)?+\r?+\n)*+")


def open_gr(head: Head, options: ReadOptions) -> WeightedFile:
    """Read the header of a ``.gr`` file. The lengths of arcs are weights.

    Raises:
        FormatError: the first line after comments isn't ``p tw n m`` or ``p sp n m``.
        TruncatedFileError: the file ends in its header, or is too short for its number of edges.
    """
    source = head.source
    for line in head.lines(_PASSED_OVER):
        words = line.text.split()
        if words and words[0] != b"c":
            break
    else:
        raise TruncatedFileError(f"{source.path} ends before its header; expected 'p tw n m' or 'p sp n m'")
    if len(words) != 4 or words[0] != b"p" or words[1] not in (b"tw", b"sp"):
        raise line.wrong(source.path, "expected the header 'p tw n m' or 'p sp n m'")
    n = header_number(source, line, words[2], "the count of vertices")
    m = header_number(source, line, words[3], "the count of edges")
    if n == 0 and m > 0:
        raise line.wrong(source.path, "a graph without vertices has no edges")
    arcs = words[1] == b"sp"
    least = 8 if arcs else 4
    require_bytes(source, line.end, m * least, counted(m, "edge"))
    return WeightedFile(
        name=source.path,
        first_id=1,
        n=n,
        m=m,
        directed=arcs if options.directed is None else options.directed,
        values=("length",) if arcs else (),
        source=source,
        piece=PairPiece,
        layout=PairGrammar(b" ", low=1, high=n, prefix=b"a" if arcs else b"", extra=1 if arcs else 0, comments=(b"c",)),
        body=line.end,
        edge_bytes=max(least, ((source.size or 0) - line.end) / max(m, 1)),
        kind="int64" if arcs else "",
        listed_twice=True,
    )
