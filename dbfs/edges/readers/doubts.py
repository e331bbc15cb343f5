"""What stands in texts in place of edges, and would be read as edges: matrices, triples, missing values, floats."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dbfs.edges.readers.heading import Head, Heading
from dbfs.edges.readers.lines import LINE_BYTES
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.tables.ends import has_known_ends
from dbfs.errors import EdgeInputError, FormatError

# Numbers as programs write floats. A hash such as 12e4 is none, since programs write a sign or a point. Spreadsheets of
# many countries write 1,0.
FLOAT = r"[+-]?[0-9]+,0+|[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?[0-9]+[eE][+-][0-9]+"
_IS_FLOAT = re.compile(FLOAT)
_IS_NUMBER = re.compile(rf"{FLOAT}|[+-]?(?:[0-9]+(?:[eE][0-9]+)?|nan|inf(?:inity)?)", re.IGNORECASE)
_IS_DATE = re.compile(r"[0-9]{1,4}([-/.])[0-9]{1,2}\1[0-9]{1,4}(?:[T ].*)?|[0-9]{1,2}:[0-9]{2}.*", re.DOTALL)
_ARROWS = frozenset({"->", "-->", "=>", "<-", "<->", "<--", "--", "→", "←", "↔"})
_MARKS = (b",", b";", b"|", b"\t")
_CHUNK_BYTES = 1 << 16
# Columns of a square of numbers that is no edge list: of any numbers, and of zeros and ones alone.
_LEAST, _LEAST_OF_BITS = 5, 3
# Rows after which a square of numbers counts as whole: no edge has so many values.
_MOST_ROWS = 2000


@dataclass(frozen=True)
class NoIds:
    """Values of a text that are no ids, though they might be strings.

    Attributes:
        missing: words that stand for a missing value.
        floats: whether numbers with a fraction are refused: ids that became floats on their way.
        arrows: whether arrows are refused, which stand between ids.
    """

    missing: frozenset[str]
    floats: bool
    arrows: bool

    @classmethod
    def of(cls, options: ReadOptions) -> NoIds:
        """Return what the caller's options leave."""
        return cls(options.missing_words, not options.strings, not options.named)

    @property
    def words(self) -> frozenset[str]:
        """The words that are no ids."""
        return self.missing | _ARROWS if self.arrows else self.missing

    @property
    def pattern(self) -> str:
        """The regular expression of the values that are no ids."""
        words = "|".join(map(re.escape, sorted(self.words)))
        return f"(?:{words}|{FLOAT})" if self.floats else f"(?:{words})"

    def reason(self, value: str) -> str | None:
        """Return why a value is no id; None if it may be one."""
        if value in self.missing:
            return (
                f"{value!r} stands for a missing value, and an edge needs both ends. If it is a name, pass missing=() "
                "(--missing '' on the command line), else drop the row"
            )
        if self.arrows and value in _ARROWS:
            return f"{value!r} is an arrow and no id; name the columns of the ends by source= and target=, or drop it"
        if self.floats and _IS_FLOAT.fullmatch(value):
            return (
                f"{value!r} is a float and no id; a join may have made floats of integers. Write integers, or pass "
                "ids='string' if ids are strings that look so, such as versions"
            )
        return None


def is_number(value: str) -> bool:
    """Return whether a value is written as a number."""
    return _IS_NUMBER.fullmatch(value) is not None


def require_no_triples(rows: Sequence[Sequence[str]], raw: Sequence[bytes], missing: frozenset[str], path: str) -> None:
    """Refuse rows whose third column holds text, which may be an edge's target: head, relation, tail.

    Args:
        rows: the columns of the first rows, which have no names.
        raw: the lines of these rows.
        missing: as of ``NoIds``.
        path: the file.

    Raises:
        EdgeInputError: the third column of a row is no number, date, dict, mark, value in quotes (beside ids without)
            or missing value.
    """
    for row, line in zip(rows, raw, strict=True):
        value = row[2].strip() if len(row) > 2 else ""
        # Marks alone, such as + and -, name no vertex.
        marks = not any(map(str.isalnum, value))
        told = marks or value in missing or is_number(value) or _IS_DATE.fullmatch(value) or value[0] in "{["
        # Quotes tell a value from ids only if ids stand in none.
        if not told and (b'"' not in line or line.lstrip(b" \t").startswith(b'"')):
            raise EdgeInputError(
                f"{path}: the third column holds text ({value[:40]!r}): a value of the edge, or its target, as in "
                f"'head, relation, tail'? Name the ends: source='0', target='2' if it is the target, else target='1' "
                "(--source-column 0 --target-column 2), with header=False"
            )


def require_no_matrix(head: Head, heading: Heading, options: ReadOptions, *, neighbours: bool = False) -> None:
    """Refuse a text that is an adjacency matrix, unless the caller names the columns of the ends.

    Args:
        head: the first lines.
        heading: the line of column names and the first row.
        options: what the caller says.
        neighbours: whether a line lists a vertex and its neighbours. In a complete graph that is a square of numbers,
            but with another vertex at the start of each line.

    Raises:
        FormatError: all of the text are k lines of k numbers, k at least 5, or at least 3 and the numbers 0 and 1; or
            the same below, or beside and below, the names of rows and columns.
    """
    top = heading.header or heading.first
    if options.named or top is None:
        return
    mark = mark_of(top.text, options)
    if len(_cells(top.text, mark)) < _LEAST_OF_BITS:
        return
    rows = itertools.islice(rows_from(head, top.start, mark, options), _MOST_ROWS + 1)
    first = next(rows, [])
    headed = heading.header is not None or first in ([str(at + start) for at in range(len(first))] for start in (0, 1))
    plain, below, beside, numbered = _Square(len(first)), _Square(len(first)), _Square(0), _Square(len(first) - 1)
    plain.take(first)
    numbered.take(first[1:])
    below.fits = headed and not (heading.header is not None and len(first) < _LEAST and has_known_ends(first))
    vertices, repeats = {first[0]} if first else set(), len(set(first)) < len(first)
    for at, row in enumerate(rows):
        numbered.fits = numbered.fits and first[0] in ("0", "1") and row[:1] == [str(int(first[0]) + at + 1)]
        numbered.take(row[1:])
        if at == 0:
            labels = first[len(first) + 1 - len(row) :]
            # Numbers in the first row may be those of an edge.
            beside = _Square(len(labels), least=None if len(row) == len(first) and all(map(is_number, first)) else 2)
            beside.fits = len(row) - len(first) in (0, 1)
        plain.take(row)
        below.take(row)
        beside.fits = beside.fits and at < len(labels) and labels[at] == row[0]
        beside.take(row[1:])
        if not (plain.fits or below.fits or beside.fits or numbered.fits):
            return
        vertices.add(row[0])
        repeats |= len(set(row)) < len(row)
    if neighbours and not repeats and len(vertices) == plain.rows:
        return
    size = next((square.size for square in (plain, below, beside, numbered) if square.whole), None)
    if size is None:
        return
    raise FormatError(
        f"{head.source.path}: {size} lines of {size} numbers look like an adjacency matrix, and not like edges. "
        "format='matrix' reads numbers without names of rows and columns; else pass a SciPy matrix, such as "
        "scipy.sparse.csr_array(numpy.loadtxt(path)). If they are edges, name the columns of the ends: source='0', "
        "target='1' with header=False"
    )


@dataclass
class _Square:
    """Rows that may be those of a square of numbers.

    Attributes:
        size: the number of columns.
        least: fewest rows and columns of a square that is no edge list; None for the least by the values.
        rows: the number of rows so far.
        fits: whether all of them have as many numbers.
        bits: whether all of the numbers are 0 or 1.
    """

    size: int
    least: int | None = None
    rows: int = 0
    fits: bool = True
    bits: bool = True

    def take(self, row: Sequence[str]) -> None:
        """Take the next row."""
        self.rows += 1
        self.fits = self.fits and len(row) == self.size >= 2 and self.rows <= self.size
        if self.fits:
            values = set(row)
            self.fits = all(map(is_number, values))
            self.bits = self.fits and self.bits and all(float(value) in (0, 1) for value in values)

    @property
    def whole(self) -> bool:
        """Whether the rows are a square that is no edge list, or so much of it that they can be nothing else."""
        least = self.least or (_LEAST_OF_BITS if self.bits else _LEAST)
        return self.fits and self.size >= least and self.rows >= min(self.size, _MOST_ROWS)


def mark_of(text: bytes, options: ReadOptions) -> bytes:
    """Return the mark between the cells of a line; nothing for blanks."""
    if options.sep is not None:
        return options.sep.encode().strip(b" ")
    return next((mark for mark in _MARKS if mark in text), b"")


def rows_from(head: Head, start: int, mark: bytes, options: ReadOptions) -> Iterator[list[str]]:
    """Yield the cells of the lines from byte ``start`` on, without comments and blank lines.

    A line of more than ``LINE_BYTES`` is the last one, and has no cells.
    """
    rest = b""
    for chunk in itertools.chain(head.source.chunks(start, size=_CHUNK_BYTES), [b"\n"]):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            text = line.strip()
            if text and not text.startswith(options.marks):
                yield _cells(line, mark)
        if len(rest) > LINE_BYTES:
            yield []
            return


def _cells(line: bytes, mark: bytes) -> list[str]:
    """Return the cells of a line, without blanks and quotes around them; empty ones at the line's end are dropped."""
    text = line.decode("utf-8", "replace").strip(" \r\n")
    cells = [cell.strip(" \t\"'") for cell in (text.split(mark.decode()) if mark else text.split())]
    while cells and not cells[-1]:
        cells.pop()
    return cells
