"""Matrix Market coordinate files: an entry (i, j) is the edge i -> j, whatever its value, including an explicit zero.

Source: Boisvert, Pozo, Remington, "The Matrix Market Exchange Formats: Initial Design", NISTIR 5935, 1996. The result
is a ``PairFile`` with vertices 0..n-1.
"""

import re

from dbfs.edges.readers.head import Head
from dbfs.edges.readers.lines import Line, bad_line, header_number, require_bytes
from dbfs.edges.readers.pairs import PairFile, PairGrammar
from dbfs.edges.readers.source import Source
from dbfs.errors import FormatError, TruncatedFileError

# Values after the two ids of an entry, by field.
_VALUES = {"pattern": 0, "integer": 1, "real": 1, "double": 1, "complex": 2}
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
BANNER = b"%%MatrixMarket"
_PASSED_OVER = re.compile(rb"(?:\n++|[ \t]*+(?:%[^\n\r\0]*+)?+\r?+\n)*+")


def open_matrix_market(head: Head, directed: bool | None) -> PairFile:
    """Read the header of a square coordinate matrix.

    A general matrix is directed. A symmetric, skew-symmetric or hermitian matrix lists each edge once, as an entry of
    its lower triangle, and the edge can be crossed both ways.

    Raises:
        FormatError: the header isn't one of a square coordinate matrix.
        TruncatedFileError: the file ends in its header, or is too short for its number of entries.
    """
    source, lines = head.source, head.lines(_PASSED_OVER)
    first = next(lines, None)
    if first is None:
        raise TruncatedFileError(f"{source.path} holds nothing; expected a Matrix Market file")
    values, symmetric = _banner(source, first)
    for line in lines:
        if line.text.strip() and not line.text.lstrip().startswith(b"%"):
            break
    else:
        raise TruncatedFileError(f"{source.path} ends before its size line; expected 'rows columns entries'")
    sizes = line.text.split()
    if len(sizes) != 3:
        raise bad_line(source.path, line.number, line.text, "expected the size line 'rows columns entries'")
    names = ("the count of rows", "the count of columns", "the count of entries")
    rows, columns, m = (header_number(source, line, size, name) for size, name in zip(sizes, names, strict=True))
    if rows != columns:
        raise bad_line(source.path, line.number, line.text, "not square; expected as many rows as columns")
    if rows == 0 and m > 0:
        raise bad_line(source.path, line.number, line.text, "a matrix without rows has no entries")
    least = 4 + 2 * values
    require_bytes(source, line.end, m * least, f"{m} entries")
    return PairFile(
        name=source.path,
        first_id=1,
        n=rows,
        m=m,
        directed=not symmetric if directed is None else directed,
        mirrored=False,
        source=source,
        grammar=PairGrammar(b" ", low=1, high=rows, extra=values, comments=(b"%",)),
        body=line.end,
        edge_bytes=max(least, ((source.size or 0) - line.end) / max(m, 1)),
    )


def _banner(source: Source, line: Line) -> tuple[int, bool]:
    """Return the number of values of an entry, and whether the matrix is symmetric, skew-symmetric or hermitian."""
    words = line.text.decode("utf-8", "replace").lower().split()

    def wrong(reason: str) -> FormatError:
        return bad_line(source.path, line.number, line.text, reason)

    if not line.text.startswith(BANNER):
        raise wrong("not a Matrix Market file; expected '%%MatrixMarket matrix coordinate <field> <symmetry>'")
    if len(words) != 5 or words[1] != "matrix":
        raise wrong("expected '%%MatrixMarket matrix coordinate <field> <symmetry>'")
    _, _, layout, field, symmetry = words
    if layout != "coordinate":
        raise wrong(f"layout {layout!r} is not supported; only coordinate is")
    if field not in _VALUES:
        raise wrong(f"field {field!r} is unknown; expected one of {', '.join(_VALUES)}")
    if symmetry not in _SYMMETRIES:
        raise wrong(f"symmetry {symmetry!r} is unknown; expected one of {', '.join(_SYMMETRIES)}")
    return _VALUES[field], symmetry != "general"
