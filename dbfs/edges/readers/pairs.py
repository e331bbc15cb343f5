"""Formats with one edge per line: the grammar of their lines, and strict and fast parsing.

A compiled parser takes a block of lines of edges, and gives up at a byte that is not as the grammar says. Then a
pattern takes comments and blank lines out of the block. A block that still looks wrong is parsed again line by line,
which finds the wrong line.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Self

import numpy as np

from dbfs.edges.readers.attributes import with_weights
from dbfs.edges.readers.file import TextFile, TextPiece
from dbfs.edges.readers.lines import INT64_MAX, LineError, each_line, parsed, slices, unreadable
from dbfs.edges.readers.options import MISSING
from dbfs.edges.readers.source import Source
from dbfs_workers.building.pieces import Edges
from dbfs_workers.building.reading import Reading

if TYPE_CHECKING:
    import pyarrow as pa

# Bytes of memory for a byte of text, while a block of the shortest lines is parsed.
_EXPANSION = 16
# A zero before other digits belongs to a code, such as 007, that is no number.
_ID = rb"(?:0|[1-9][0-9]{0,18}+)"
_MISSING = frozenset(word.encode() for word in MISSING)
_WHOLE_ID = re.compile(_ID)
# Data in braces, or a comment, at the end of a line without marks.
_REST = re.compile(rb"(?<=[ \t])(?:(\{)|#).*+", re.DOTALL)
AS_STRINGS = "ids='string' takes ids as the strings that are written"

QUOTED_BREAK = "a line break within quotes; pass pandas.read_csv(path, dtype=str), which reads such values"


@dataclass(frozen=True)
class PairGrammar:
    """Grammar of the lines of a file of edges. Blank lines and comments may stand anywhere.

    Attributes:
        separator: between columns. A mark, such as b"," or b"\\t": blanks around it are ignored. b" ": any run of
            blanks. b"": a run of spaces with at most one tab, since two tabs enclose an empty column.
        low: the smallest id, 0 or 1; it is subtracted from each id.
        high: the largest id.
        right: the largest id of a target, if sources and targets are two sets; the targets are then numbered after the
            sources. None for one set.
        prefix: the word that starts each line, or empty.
        extra: number of columns after the two ids.
        tail: between these columns: a mark, whose columns may be empty, hold blanks, or stand in quotes; or b" " for
            the separator. With an empty separator and b" " the column that begins with a brace is the line's last one
            (NetworkX writes an edge's data so), and a word that begins with ``#`` begins a comment.
        comments: starts of comment lines: marks, or letters, which count only as a word of their own.
    """

    separator: bytes
    low: int
    high: int
    right: int | None = None
    prefix: bytes = b""
    extra: int = 0
    tail: bytes = b" "
    comments: tuple[bytes, ...] = ()

    @property
    def expected(self) -> str:
        """Description of a line, for messages."""
        gap = _SHOWN.get(self.separator, self.separator.decode())
        after = _SHOWN.get(self.tail, self.tail.decode()) if self.tail != b" " else gap
        ids = gap.join([*([self.prefix.decode()] if self.prefix else []), "u", "v"])
        values = [f"value {i + 1}" for i in range(min(self.extra, 2))]
        values += [f"... value {self.extra}"] if self.extra > 2 else []
        high = min(self.high, INT64_MAX if self.right is None else self.right)
        most = "2^63-1" if high == INT64_MAX else high
        return f"expected {after.join([ids, *values])!r} with integer ids {self.low} to {most}"


_SHOWN = {b"": "<tab or space>", b"\t": "<tab>"}


# All repeats are possessive: without backtracking a long block needs no stack, and junk fails in one pass.
def _blanks(separator: bytes) -> bytes:
    """Return the pattern of blanks that may stand around a mark, or begin a line."""
    return rb" *+" if separator in (b"", b"\t") else rb"[ \t]*+"


def _gap(separator: bytes) -> bytes:
    """Return the pattern of what stands between two columns."""
    if separator == b" ":
        return rb"[ \t]++"
    if separator == b"":
        return rb"(?: ++\t?+ *+|\t *+)"
    return _blanks(separator) + re.escape(separator) + _blanks(separator)


def _tail(grammar: PairGrammar) -> bytes:
    """Return the pattern of the rest of a line after the second id."""
    end, times = rb"[ \t]*+\r?+\n", b"{%d}+" % grammar.extra
    if grammar.tail != b" ":
        quoted = rb'"(?:[^"\n\r\0]|"")*+"' + _blanks(grammar.tail)
        value = rb"(?:" + quoted + rb'|(?!")[^\n\r\0' + re.escape(grammar.tail) + rb"]*+)"
        return rb"(?:" + _gap(grammar.tail) + value + rb")" + times + end
    value = rb"[^\s\0]++"
    if grammar.separator == b"":
        value = rb"(?:\{[^\n\r\0]*+|" + value + rb")"
        end = rb"(?:[ \t]++#[^\n\r\0]*+)?+" + end
    return rb"(?:" + _gap(grammar.separator) + value + rb")" + times + end


@lru_cache(maxsize=64)
def _patterns(grammar: PairGrammar) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return the pattern of a line, whose groups are the two ids, and that of comments and blank lines."""
    lead, gap, tail = _blanks(grammar.separator), _gap(grammar.separator), _tail(grammar)
    if grammar.prefix:
        lead += re.escape(grammar.prefix) + gap
    # After the first edge a mark "#" alone may begin the edges of TGF, unless the caller says that it is a comment.
    after = {b"#": rb"(?![ \t]*+\r?+\n)"} if len(grammar.comments) > 1 else {}
    marks = rb"|".join(
        re.escape(mark) + (rb"(?![^ \t\r\n])" if mark.isalpha() else after.get(mark, b"")) for mark in grammar.comments
    )
    comment = rb"[ \t]*+(?:" + marks + rb")[^\n\r\0]*+\r?+\n"
    skipped = rb"[ \t]*+\r?+\n" + (rb"|" + comment if marks else b"")
    ids = lead + rb"(" + _ID + rb")" + gap + rb"(" + _ID + rb")" + tail
    return re.compile(ids + rb"|" + skipped), re.compile(rb"^(?:\n++|" + skipped + rb")++", re.MULTILINE)


def parse_line(line: bytes, grammar: PairGrammar) -> tuple[int, int] | None:
    """Parse one line (without line end) to two ids in Python; return None for a blank line or a comment.

    Raise ``LineError`` if the line breaks the grammar.
    """
    found = _patterns(grammar)[0].fullmatch(line + b"\n")
    if found is None:
        reason = _why_wrong(line.removesuffix(b"\r"), grammar)
        raise LineError(f"{reason}; {grammar.expected}")
    if found.group(1) is None:
        return None
    u, v = int(found.group(1)), int(found.group(2))
    last = grammar.high if grammar.right is None else grammar.right
    for vertex, high in ((u, grammar.high), (v, last)):
        if not grammar.low <= vertex <= high:
            hint = f". {AS_STRINGS}" if high == INT64_MAX else ""
            raise LineError(f"id {vertex} is out of range{hint}; {grammar.expected}")
    before = 0 if grammar.right is None else grammar.high - grammar.low + 1
    return u - grammar.low, v - grammar.low + before


def _why_wrong(text: bytes, grammar: PairGrammar) -> str:
    """Return why a line without carriage return breaks the grammar."""
    if reason := unreadable(text):
        return reason
    if text.strip() == b"#":
        return "a mark alone. In TGF it begins the edges (format='tgf'); comment='#' passes over it"
    columns = columns_of(text, grammar.separator, grammar.tail)
    if grammar.prefix and columns.pop(0) != grammar.prefix:
        return f"doesn't start with {grammar.prefix.decode()!r}"
    for end, column in zip(("source", "target"), [*columns[:2], b"", b""], strict=False):
        if not column:
            return f"the {end} is missing"
        if not _WHOLE_ID.fullmatch(column):
            reason = why_not_id(column)
            if grammar.separator == b" ":
                return reason
            return f"{reason}. {AS_STRINGS}" + (", with missing=() also this one" if column in _MISSING else "")
    if text.count(b'"') % 2:
        return QUOTED_BREAK
    if len(columns) == 2 + grammar.extra:
        return "the columns are not separated as in the first line, or quotes don't enclose a whole column"
    return f"{len(columns)} columns" + (
        "" if grammar.separator == b" " else "; all lines need as many as the first one"
    )


def columns_of(text: bytes, separator: bytes, tail: bytes) -> list[bytes]:
    """Split a line (without line end) into columns, in time linear in its length; the arguments are a grammar's."""
    if separator == b" ":
        return re.split(rb"[ \t]++", text.strip(b" \t"))
    if separator != b"":
        return _marked(text, separator)
    text = text.rstrip(b" \t").lstrip(b" ")
    if tail == b" ":
        # A tab separates columns, also empty ones; a run of spaces separates columns that have text.
        text = _REST.sub(lambda rest: rest.group(1) or b"", text).rstrip(b" \t")
        return [word for column in text.split(b"\t") for word in re.split(rb" ++", column.strip(b" "))]
    ids = re.match(rb"([^ \t]*+)" + _gap(b"") + rb"([^ \t]*+) *+\t?+", text)
    return [text] if ids is None else [*ids.groups(), *_marked(text[ids.end() :], tail)]


def _marked(text: bytes, mark: bytes) -> list[bytes]:
    """Split a line at the marks that stand in no quotes."""
    if b'"' not in text:
        return [column.strip(b" \t") for column in text.split(mark)]
    blanks, one = _blanks(mark), re.escape(mark)
    value = rb'"(?:[^"]|"")*+"' + blanks + rb"(?=" + one + rb"|$)|[^" + one + rb"]*+"
    return [
        column.strip(b" \t") for column in re.findall(rb"(?:^|" + one + rb")" + blanks + rb"(" + value + rb")", text)
    ]


def why_not_id(token: bytes) -> str:
    """Return why a token is not an id: a decimal integer of 1 to 19 digits without leading zeros."""
    shown = repr(token[:40].decode("utf-8", "replace"))
    if not token:
        return "an id is missing"
    if re.fullmatch(rb"0[0-9]+", token):
        return f"id {shown} has a leading zero, which an integer would lose"
    if re.fullmatch(rb"[0-9]+", token):
        return f"id {shown} is past 2^63-1"
    if token in _MISSING:
        return f"id {shown} stands for a missing value; an edge needs both ends"
    if re.fullmatch(rb"-[0-9]+", token):
        return f"id {shown} is negative"
    return f"id {shown} is not a plain decimal integer"


def parse_block(block: bytes, grammar: PairGrammar) -> Edges | None:
    """Parse a block of whole lines to sources and targets; return None if a line breaks the grammar."""
    edges = _parse_edges(block, grammar)
    if edges is not None:
        return edges
    skipped = _patterns(grammar)[1]
    # Python makes an object of each run of lines that stays: of a slice at a time, they take little memory.
    return _parse_edges(b"".join(skipped.sub(b"", part) for part in slices(block)), grammar)


def _parse_edges(block: bytes, grammar: PairGrammar) -> Edges | None:
    """Parse a block of lines of edges only; return None if a line is another, or an id is out of range."""
    # Imported here, because a client that reads no edges needs no Numba.
    from dbfs_workers.building.kernels.pairs import parse_pairs

    text = np.frombuffer(block, np.uint8)
    # The shortest line has 4 bytes. Pages of the arrays that receive no edge take no memory.
    src, dst = np.empty(text.size // 4 + 1, np.int64), np.empty(text.size // 4 + 1, np.int64)
    prefix = np.frombuffer(grammar.prefix, np.uint8)
    marks = (ord(grammar.separator or b"\0"), ord(grammar.tail))
    right = -1 if grammar.right is None else grammar.right
    count = parse_pairs(text, prefix, *marks, grammar.low, grammar.high, right, grammar.extra, src, dst)
    return (src[:count], dst[:count]) if count >= 0 else None


def parse_lines(source: Source, offset: int, block: bytes, grammar: PairGrammar, reading: Reading) -> Edges:
    """Parse a block as ``parse_block``, but line by line: slow, and it finds the wrong line.

    Errors as for ``lines.each_line``.
    """
    # An array of the C type takes a tenth of the memory of Python's integers.
    ends = array("q")
    for ids in each_line(source, offset, block, reading, lambda text: parse_line(text, grammar)):
        ends.extend(ids or ())
    table = np.array(ends, dtype=np.int64).reshape(-1, 2)
    return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])


def joined(parts: list[Edges]) -> Edges:
    """Return the edges of all parts, int64, and empty the list."""
    parts.append((np.empty(0, np.int64), np.empty(0, np.int64)))
    src = np.concatenate([u for u, _ in parts])
    targets = [v for _, v in parts]
    # The sources of the parts are freed before the targets are joined.
    parts.clear()
    return src, np.concatenate(targets)


@dataclass(frozen=True)
class PairPiece(TextPiece):
    """Lines of a file of edges; ``grammar`` is their grammar."""

    grammar: PairGrammar

    def read(self) -> Edges:
        """Return sources and targets, int64; errors as of ``Piece.read``."""
        reading = Reading(self.source.path, self.limits, _EXPANSION)
        parts: list[Edges] = []
        for _, edges in parsed(
            self.blocks(reading),
            reading,
            lambda part: parse_block(part, self.grammar),
            lambda at, part: parse_lines(self.source, at, part, self.grammar, reading),
        ):
            reading.take_edges(edges[0].size)
            parts.append(edges)
        return joined(parts)

    def values(self, columns: Sequence[str]) -> pa.Table:
        """Return the words of the one value of each edge, in a column of the one name; errors as of ``Piece.read``."""
        import pyarrow as pa

        reading, skipped = Reading(self.source.path, self.limits, _EXPANSION), _patterns(self.grammar)[1]
        words, step = [pa.array([], pa.string())], 3 + bool(self.grammar.prefix)
        for _, block in self.blocks(reading):
            # ``read`` found that a line of an edge has as many words as the grammar says.
            found = b"".join(skipped.sub(b"", part) for part in slices(block)).split()[step - 1 :: step]
            reading.take_edges(len(found))
            words.append(pa.array([word.decode("utf-8", "replace").removeprefix("+") for word in found], pa.string()))
        return pa.table([pa.chunked_array(words)], [*columns])


@dataclass(frozen=True)
class WeightedFile(TextFile):
    """Edges in the lines of a text, with at most one value each.

    Attributes:
        kind: Arrow's name of the type of these values; empty without any that can be kept.
        listed_twice: whether an edge that is crossed both ways may be there in both directions.
    """

    kind: str
    listed_twice: bool

    def keeping(self, columns: Sequence[str]) -> Self:
        """See ``EdgeList``; errors as for ``with_weights``."""
        return with_weights(self, self.kind, columns, twice=self.listed_twice)
