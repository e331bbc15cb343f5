"""Matrix Market coordinate files: an entry (i, j) is the edge i -> j, whatever its value, including an explicit zero.

Source: Boisvert, Pozo, Remington, "The Matrix Market Exchange Formats: Initial Design", NISTIR 5935, 1996. The pieces
are of pairs of vertices 0..n-1; of a bipartite graph the rows are the first vertices, and the columns follow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from dbfs.edges.readers.heading import Head, Remarks, ask_direction, passed_over
from dbfs.edges.readers.lines import Line, header_number, require_bytes
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.pairs import PairGrammar, PairPiece, WeightedFile
from dbfs.edges.readers.source import Source
from dbfs.errors import EdgeInputError, TruncatedFileError

# Values after the two ids of an entry, by field.
_VALUE = ("value",)
_VALUES = {
    "pattern": (),
    "integer": _VALUE,
    "real": _VALUE,
    "double": _VALUE,
    "complex": ("real part", "imaginary part"),
}
_KINDS = {"integer": "int64", "real": "double", "double": "double"}
"""By field: Arrow's name of the type of the weights that a graph keeps."""
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
# SciPy reads banners with one percent sign, and indented ones.
BANNER = re.compile(rb"\s*+%%?+MatrixMarket(?=\s)")
_EXPECTED = "expected '%%MatrixMarket matrix coordinate <field> <symmetry>'"
_MARK = b"%"


def open_matrix_market(head: Head, options: ReadOptions) -> MatrixFile:
    """Read the header of a coordinate matrix.

    A general matrix is directed. A symmetric, skew-symmetric or hermitian matrix lists each edge once, as an entry of
    its lower triangle, and the edge can be crossed both ways. With ``bipartite`` rows and columns are two sets of
    vertices, and edges are undirected unless the caller says otherwise.

    Raises:
        FormatError: the header isn't one of a coordinate matrix, or the matrix is neither square nor bipartite; or a
            comment calls a general matrix undirected.
        TruncatedFileError: the file ends in its header, or is too short for its number of entries.
    """
    source, lines, remarks = head.source, head.lines(passed_over((_MARK,))), Remarks(head)
    first = next(lines, None)
    if first is None:
        raise TruncatedFileError(f"{source.path} holds nothing; expected a Matrix Market file")
    field, symmetry = _banner(source, first)
    values, symmetric = _VALUES[field], symmetry != "general"
    for line in lines:
        if line.text.lstrip().startswith(_MARK):
            remarks.take(line, _MARK, options)
        elif line.text.strip():
            break
    else:
        raise TruncatedFileError(f"{source.path} ends before its size line; expected 'rows columns entries'")
    sizes = line.text.split()
    if len(sizes) != 3:
        reason = "expected the size line 'rows columns entries'; format='edge-list' reads a file without one"
        raise line.wrong(source.path, reason)
    names = ("the count of rows", "the count of columns", "the count of entries")
    rows, columns, m = (header_number(source, line, size, name) for size, name in zip(sizes, names, strict=True))
    bipartite = bool(options.bipartite)
    if rows != columns and not bipartite:
        reason = "not square; bipartite=True makes a vertex of each row, and another of each column"
        raise line.wrong(source.path, reason)
    if bipartite and symmetric:
        raise first.wrong(source.path, "a symmetric matrix is not bipartite=True")
    if min(rows, columns) == 0 and m > 0:
        raise line.wrong(source.path, "a matrix without rows or columns has no entries")
    if not (symmetric or bipartite) and options.directed is None and remarks.undirected is not None:
        raise ask_direction(source.path, remarks.undirected, "the banner says general, and a comment undirected")
    least = 4 + 2 * len(values)
    require_bytes(source, line.end, m * least, f"{m} entries")
    return MatrixFile(
        name=source.path,
        first_id=1,
        n=rows + columns if bipartite else rows,
        m=m,
        directed=not (symmetric or bipartite) if options.directed is None else options.directed,
        values=values,
        source=source,
        piece=PairPiece,
        layout=PairGrammar(
            b" ", low=1, high=rows, right=columns if bipartite else None, extra=len(values), comments=(_MARK,)
        ),
        body=line.end,
        edge_bytes=max(least, ((source.size or 0) - line.end) / max(m, 1)),
        kind=_KINDS.get(field, ""),
        listed_twice=not (symmetric or bipartite),
        turns_sign=symmetry == "skew-symmetric",
    )


@dataclass(frozen=True)
class MatrixFile(WeightedFile):
    """The entries of a matrix.

    Attributes:
        turns_sign: whether the entry (j, i) is minus the entry (i, j), which alone is listed.
    """

    turns_sign: bool

    def keeping(self, columns: Sequence[str]) -> Self:
        """See ``WeightedFile``; undirected edges of a skew-symmetric matrix are refused by ``EdgeInputError``."""
        if self.turns_sign and not self.directed:
            raise EdgeInputError(
                f"{self.name}: the matrix is skew-symmetric, so that an edge has another value in its other direction. "
                "directed=True keeps the entries that are listed"
            )
        return super().keeping(columns)


def _banner(source: Source, line: Line) -> tuple[str, str]:
    """Return the field of the matrix, and its symmetry."""
    words = line.text.decode("utf-8", "replace").lower().split()
    if not BANNER.match(line.text):
        raise line.wrong(source.path, f"not a Matrix Market file; {_EXPECTED}")
    if len(words) != 5 or words[1] != "matrix":
        raise line.wrong(source.path, _EXPECTED)
    _, _, layout, field, symmetry = words
    if layout != "coordinate":
        raise line.wrong(source.path, f"layout {layout!r} is not supported; only coordinate is")
    if field not in _VALUES:
        raise line.wrong(source.path, f"field {field!r} is unknown; expected one of {', '.join(_VALUES)}")
    if symmetry not in _SYMMETRIES:
        raise line.wrong(source.path, f"symmetry {symmetry!r} is unknown; expected one of {', '.join(_SYMMETRIES)}")
    return field, symmetry
