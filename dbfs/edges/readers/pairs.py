"""Formats with one edge per line: the grammar of their lines, and strict and fast parsing.

A compiled parser takes a block of lines of edges, and gives up at a byte that is not as the grammar says. Then a
pattern takes comments and blank lines out of the block. A block that still looks wrong is parsed again line by line,
which finds the wrong line.
"""

import io
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dbfs.edges.readers.file import FileEdges
from dbfs.edges.readers.lines import (
    INT64_MAX,
    bad_line,
    blocks,
    byte_ranges,
    count_lines,
    line_start,
    lines_by_samples,
    slices,
    unreadable,
)
from dbfs.edges.readers.source import Source
from dbfs_workers.storage.pieces import Edges, Piece
from dbfs_workers.storage.reading import Reading, ReadLimits

# Bytes of memory for a byte of text, while a block of the shortest lines is parsed.
_EXPANSION = 16


@dataclass(frozen=True)
class PairGrammar:
    """Grammar of the lines of a file of edges. Blank lines and comments may stand anywhere.

    Attributes:
        separator: between columns: b"," or b";" (blanks around it are ignored), b" " for any run of blanks, b"\\t" for
            a run of spaces with at most one tab, since two tabs enclose an empty column.
        low: the smallest id, 0 or 1; it is subtracted from each id.
        high: the largest id.
        prefix: the word that starts each line, or empty.
        extra: number of columns after the two ids; None for any number.
        comments: starts of comment lines: marks, or letters, which count only as a word of their own.
    """

    separator: bytes
    low: int
    high: int
    prefix: bytes = b""
    extra: int | None = None
    comments: tuple[bytes, ...] = ()

    @property
    def expected(self) -> str:
        """Description of a line, for messages."""
        gap = {b" ": " ", b"\t": "<tab or space>"}.get(self.separator, self.separator.decode())
        columns = ([self.prefix.decode()] if self.prefix else []) + ["u", "v"]
        columns += [f"value {i + 1}" for i in range(self.extra or 0)]
        most = "2^63-1" if self.high == INT64_MAX else self.high
        return f"expected {gap.join(columns)!r} with integer ids {self.low} to {most}"


@dataclass(frozen=True)
class _Patterns:
    """Patterns of a grammar.

    Attributes:
        block: a block of lines of edges, comments and blank lines.
        line: one line; its groups are the two ids.
        skipped: comments and blank lines.
    """

    block: re.Pattern[bytes]
    line: re.Pattern[bytes]
    skipped: re.Pattern[bytes]


@lru_cache(maxsize=64)
def _patterns(grammar: PairGrammar) -> _Patterns:
    # All repeats are possessive: without backtracking a long block needs no stack, and junk fails in one pass.
    lead = rb"[ \t]*+"
    match grammar.separator:
        case b" ":
            gap = rb"[ \t]++"
        case b"\t":
            lead, gap = rb" *+", rb"(?: ++\t?+ *+|\t *+)"
        case separator:
            gap = rb"[ \t]*+" + separator + rb"[ \t]*+"
    if grammar.extra is None:
        start = rb"[ \t]" if grammar.separator in b" \t" else rb"[ \t]*+" + grammar.separator
        tail = rb"(?:" + start + rb"[^\n\r\0]*+)?+[ \t]*+\r?+\n"
    else:
        tail = (gap + rb"[^\s\0]++") * grammar.extra + rb"[ \t]*+\r?+\n"
    if grammar.prefix:
        lead += re.escape(grammar.prefix) + gap
    marks = rb"|".join(re.escape(mark) + (rb"(?![^ \t\r\n])" if mark.isalpha() else b"") for mark in grammar.comments)
    comment = rb"[ \t]*+(?:" + marks + rb")[^\n\r\0]*+\r?+\n"
    skipped = rb"[ \t]*+\r?+\n" + (rb"|" + comment if marks else b"")
    data = lead + rb"[0-9]{1,19}+" + gap + rb"[0-9]{1,19}+" + tail
    ids = lead + rb"([0-9]{1,19}+)" + gap + rb"([0-9]{1,19}+)" + tail
    return _Patterns(
        block=re.compile(rb"(?:\n++|" + data + rb"|" + skipped + rb")*+"),
        line=re.compile(ids + rb"|" + skipped),
        skipped=re.compile(rb"^(?:\n++|" + skipped + rb")++", re.MULTILINE),
    )


class LineError(ValueError):
    """A line breaks the grammar. Holds the reason, for a message that also names file and line."""


def parse_line(line: bytes, grammar: PairGrammar) -> tuple[int, int] | None:
    """Parse one line (without line end) to two ids in Python; return None for a blank line or a comment.

    Raises:
        LineError: the line breaks the grammar.
    """
    found = _patterns(grammar).line.fullmatch(line + b"\n")
    if found is None:
        reason = _why_wrong(line.removesuffix(b"\r"), grammar)
        raise LineError(f"{reason}; {grammar.expected}")
    if found.group(1) is None:
        return None
    u, v = int(found.group(1)), int(found.group(2))
    for vertex in (u, v):
        if not grammar.low <= vertex <= grammar.high:
            raise LineError(f"id {vertex} is out of range; {grammar.expected}")
    return u - grammar.low, v - grammar.low


def _why_wrong(text: bytes, grammar: PairGrammar) -> str:
    """Return why a line without carriage return breaks the grammar."""
    if reason := unreadable(text):
        return reason
    columns = _columns(text, grammar.separator)
    if grammar.prefix and columns.pop(0) != grammar.prefix:
        return f"doesn't start with {grammar.prefix.decode()!r}"
    for column in columns[:2]:
        if not re.fullmatch(rb"[0-9]{1,19}", column):
            return why_not_id(column)
    if len(columns) < 2:
        return "the second id is missing"
    return f"{len(columns)} columns"


def _columns(text: bytes, separator: bytes) -> list[bytes]:
    """Split a line at the separator of a grammar, in time linear in its length."""
    text = text.strip(b" \t") if separator != b"\t" else text.rstrip(b" \t").lstrip(b" ")
    if separator == b" ":
        return re.split(rb"[ \t]++", text)
    if separator == b"\t":
        # A tab separates columns, also empty ones; a run of spaces separates columns that have text.
        return [word for column in text.split(b"\t") for word in re.split(rb" ++", column.strip(b" "))]
    return [column.strip(b" \t") for column in text.split(separator)]


def why_not_id(token: bytes) -> str:
    """Return why a token that isn't 1 to 19 decimal digits is not an id."""
    shown = repr(token[:40].decode("utf-8", "replace"))
    if not token:
        return "an id is missing"
    if re.fullmatch(rb"[0-9]+", token):
        return f"id {shown} is past 2^63-1"
    if re.fullmatch(rb"-[0-9]+", token):
        return f"id {shown} is negative"
    return f"id {shown} is not a plain decimal integer"


def parse_block(block: bytes, grammar: PairGrammar) -> Edges | None:
    """Parse a block of whole lines to sources and targets; return None if a line breaks the grammar."""
    edges = _parse_edges(block, grammar)
    if edges is not None:
        return edges
    patterns = _patterns(grammar)
    if not patterns.block.fullmatch(block):
        return None
    # Python makes an object of each run of lines that stays: of a slice at a time, they take little memory.
    return _parse_edges(b"".join(patterns.skipped.sub(b"", part) for part in slices(block)), grammar)


def _parse_edges(block: bytes, grammar: PairGrammar) -> Edges | None:
    """Parse a block of lines of edges only; return None if a line is another, or an id is out of range."""
    # Imported here, because a client that reads no edges needs no Numba.
    from dbfs.edges.readers._pairs_kernel import parse_pairs

    text = np.frombuffer(block, np.uint8)
    # The shortest line has 4 bytes. Pages of the arrays that receive no edge take no memory.
    src, dst = np.empty(text.size // 4 + 1, np.int64), np.empty(text.size // 4 + 1, np.int64)
    extra = -1 if grammar.extra is None else grammar.extra
    prefix = np.frombuffer(grammar.prefix, np.uint8)
    count = parse_pairs(text, prefix, ord(grammar.separator), grammar.low, grammar.high, extra, src, dst)
    return (src[:count], dst[:count]) if count >= 0 else None


def parse_lines(source: Source, offset: int, block: bytes, grammar: PairGrammar, reading: Reading) -> Edges:
    """Parse a block as ``parse_block``, but line by line: slow, and it finds the wrong line.

    Raises:
        FormatError: a line breaks the grammar; the message names the first one.
    """
    # An array of the C type takes a tenth of the memory of Python's integers.
    ends = array("q")
    for index, line in enumerate(io.BytesIO(block)):
        text = line.removesuffix(b"\n")
        try:
            ends.extend(parse_line(text, grammar) or ())
        except LineError as error:
            number = count_lines(source, offset, reading) + index + 1
            raise bad_line(source.path, number, text.removesuffix(b"\r"), str(error)) from None
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
class PairPiece:
    """The lines that start in a byte range of a file of edges.

    Attributes:
        source: the file.
        grammar: grammar of its lines.
        start, stop: the byte range, not on line boundaries; stop None is the end of the file.
        aligned: whether ``start`` is the start of a line.
        limits: limits of the read.
    """

    source: Source
    grammar: PairGrammar
    start: int
    stop: int | None
    aligned: bool
    limits: ReadLimits

    def read(self) -> Edges:
        """Return sources and targets, int64.

        Raises:
            FormatError: a line breaks the grammar (the message names file and line), there are more edges than the
                header promises, or much text holds few edges.
            GraphTooLargeError: the edges take more memory than this worker has left.
            TruncatedFileError: a compressed file is truncated.
            MissingFileError, UnreadableFileError: this machine has no such file, or can't read it.
            RunCancelledError, DeadlineExceededError: no client waits for the edges any more.
        """
        reading = Reading(self.source.path, self.limits, _EXPANSION)
        start = self.start if self.aligned else line_start(self.source, self.start, reading)
        stop = None if self.stop is None else line_start(self.source, self.stop, reading)
        parts: list[Edges] = []
        for offset, block in blocks(self.source, start, stop, reading):
            edges = parse_block(block, self.grammar)
            if edges is None:
                edges = self._by_slices(offset, block, reading)
            reading.take_edges(edges[0].size)
            parts.append(edges)
        return joined(parts)

    def _by_slices(self, offset: int, block: bytes, reading: Reading) -> Edges:
        """Parse a block that has a line which is, or may be, wrong; errors as of ``read``."""
        parts: list[Edges] = []
        for part in slices(block):
            reading.look()
            edges = parse_block(part, self.grammar)
            parts.append(parse_lines(self.source, offset, part, self.grammar, reading) if edges is None else edges)
            offset += len(part)
        return joined(parts)


@dataclass(frozen=True)
class PairFile(FileEdges):
    """A file with one edge per line; ``body`` is the offset of those lines.

    Attributes:
        body: byte offset of the text after the header.
        grammar: grammar of its lines after the header.
        edge_bytes: estimate of the mean bytes of a line; sizes the pieces.
    """

    body: int
    grammar: PairGrammar
    edge_bytes: float

    def cut(self, piece_edges: int) -> Sequence[Piece]:
        """Cut into byte ranges of about ``piece_edges`` lines. A compressed file is one piece, since it is streamed."""
        limits = self.limits()
        ranges = byte_ranges(self.source, self.body, self.edge_bytes, piece_edges)
        return [PairPiece(self.source, self.grammar, *at, limits) for at in ranges]

    def sampled_edges(self) -> int | None:
        """See ``EdgeList``. Comments and blank lines among the edges count as edges."""
        return lines_by_samples(self.source, self.body)
