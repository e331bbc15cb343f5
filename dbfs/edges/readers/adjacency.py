"""Adjacency lists: text files in which a line lists a vertex and its neighbours, with blanks between them.

Source: NetworkX, "Adjacency List", https://networkx.org/documentation/stable/reference/readwrite/adjlist.html. An edge
may be listed in the line of either end, or in both. A vertex alone in its line is a vertex, with edges or without. Ids
are integers if those of the first lines are, else strings.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from dbfs.edges.edge_list import IdKind
from dbfs.edges.readers.csv_table import unclear
from dbfs.edges.readers.doubts import NoIds, require_no_matrix
from dbfs.edges.readers.file import TextFile, TextPiece
from dbfs.edges.readers.heading import Head, read_heading
from dbfs.edges.readers.lines import INT64_MAX, LineError, each_line, unreadable
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.pairs import AS_STRINGS, why_not_id
from dbfs.edges.readers.source import is_utf8
from dbfs.errors import TruncatedFileError
from dbfs_workers.building.pieces import IdEdges
from dbfs_workers.building.reading import Reading
from dbfs_workers.ids.table import joined

if TYPE_CHECKING:
    from dbfs_workers.ids.table import Ids

# Bytes of memory for a byte of text, while a block of the shortest words is parsed: Python makes an object of each.
_EXPANSION = 64
# Longest line: that of a vertex with some million neighbours.
_LINE_BYTES = 1 << 26
# Lines that decide whether ids are integers.
_SAMPLE_LINES = 100
_ID = re.compile(rb"0|[1-9][0-9]{0,18}+")
# A leading zero, or so many digits that the number may be past 2^63-1.
_NO_ID = re.compile(rb"(?<![0-9])0[0-9]|[0-9]{19}")
# Comments elsewhere, and ids to NetworkX. A blank after the mark, above all rows, says that a line is a comment.
_UNCLEAR = (b"%", b"//")
_MAY_BE_ROW = re.compile(rb"[ \t]*+(?:%++|//++)[^\s%/]")
# All controls but the line end and the tab, and a carriage return that ends no line.
_CONTROL = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x1f]|\r(?!\n)")


@lru_cache(maxsize=64)
def _no_ids(no_ids: NoIds) -> re.Pattern[bytes]:
    """Return the pattern of the words of a block that are no ids."""
    return re.compile(rb"(?<![^ \t\n])" + no_ids.pattern.encode() + rb"(?![^ \t\r\n])")


@dataclass(frozen=True)
class AdjacencyLayout:
    """What the words of a file are.

    Attributes:
        separator: between words; a space for any run of blanks.
        comments: starts of comment lines.
        unclear: starts of these that other programs take for ids: such lines are refused.
        other: blanks that separate no words of the first lines, and may belong to names: lines with one are refused.
        no_ids: strings that are no ids.
    """

    separator: bytes
    kind: IdKind
    comments: tuple[bytes, ...]
    unclear: tuple[bytes, ...]
    other: tuple[bytes, ...]
    no_ids: NoIds

    def plain(self, block: bytes) -> list[list[bytes]] | None:
        """Return what ``words`` returns for each line of a block, but fast; None if a line needs a closer look."""
        if self.separator not in (b" ", b"\t") or _CONTROL.search(block):
            return None
        if any(mark in block for mark in (*self.comments, *self.other)):
            return None
        if self.separator == b"\t" and (b" " in block or b"\t\t" in block):
            return None
        if self.kind == "integer" and (_NO_ID.search(block) or not block.translate(None, b" \t\r\n").isdigit()):
            return None
        if self.kind == "string" and _no_ids(self.no_ids).search(block):
            return None
        return [line.split() for line in block.split(b"\n")] if is_utf8(block) else None

    def words(self, line: bytes) -> list[bytes]:
        """Return the vertex of a line (without line end) and its neighbours; nothing for a comment or a blank line.

        Raise ``LineError`` if the line is no text, or may be a comment, or a word is no id.
        """
        text = line.strip(b" \t\r")
        if reason := unreadable(line.removesuffix(b"\r")):
            raise LineError(reason)
        if not is_utf8(text + b"\n"):
            raise LineError("a byte that is not UTF-8; expected text in UTF-8")
        if text.startswith(self.unclear):
            raise unclear(text)
        if not text or text.startswith(self.comments):
            return []
        if any(blank in text for blank in self.other):
            raise LineError("blanks of two kinds, of which one may belong to names: pass sep='\\t', else sep=' '")
        words = re.split(rb"[ \t]++", text) if self.separator == b" " else text.split(self.separator)
        words = [word.strip(b" \t") for word in words]
        for word in words:
            if not word:
                raise LineError("an id is missing")
            if self.kind == "integer" and not (_ID.fullmatch(word) and int(word) <= INT64_MAX):
                past = re.fullmatch(rb"[1-9][0-9]{18}", word)
                reason = f"id {word.decode()} is past 2^63-1" if past else why_not_id(word)
                raise LineError(f"{reason}; the first lines hold integers. {AS_STRINGS}")
            if self.kind == "string" and (why := self.no_ids.reason(word.decode())):
                raise LineError(why)
        return words


def open_adjacency_list(head: Head, options: ReadOptions) -> AdjacencyFile:
    """Read the comments and the first lines of an adjacency list; edges are undirected unless these say otherwise.

    Raises:
        FormatError: one of the first lines is no text, or a comment speaks of direction in no known form, or
            of two sets of vertices.
        TruncatedFileError: there is no line.
    """
    source = head.source
    heading = read_heading(head, options, lambda _: False)
    heading.remarks.require_one_set(options)
    first = heading.first
    if first is None:
        raise TruncatedFileError(f"{source.path} holds no vertices; expected lines of a vertex and its neighbours")
    require_no_matrix(head, heading, options, neighbours=True)
    lines = [first, *islice(heading.rest, _SAMPLE_LINES - 1)]
    texts = [text for line in lines if (text := line.text.strip()) and not text.startswith(options.marks)]
    if all(re.match(rb"[^ \t:]++:[ \t]", text) for text in texts):
        raise first.wrong(source.path, "a colon after the vertex; expected a vertex and its neighbours without a mark")
    separator = (options.sep or " ").encode()
    layout = AdjacencyLayout(separator, "string", options.marks, (), (), NoIds.of(options))
    whole = not options.strings and all(_ID.fullmatch(word) for text in texts for word in text.split())
    if options.sep is None and not whole:
        # Names may hold blanks of the kind that separates no words.
        tabs = any(b"\t" in text for text in texts)
        layout = replace(layout, separator=b"\t" if tabs else b" ", other=(b" " if tabs else b"\t",))
    words: list[bytes] = []
    for line in lines:
        words += line.parsed(source.path, layout.words)
    if all(map(_ID.fullmatch, words)) and not options.strings:
        layout = replace(layout, kind="integer")
    if layout.kind == "string" and options.comment is None:
        layout = replace(layout, unclear=_UNCLEAR)
        top = next((line for line in heading.comments(head) if _MAY_BE_ROW.match(line.text)), None)
        if top is not None:
            raise top.wrong(source.path, unclear(top.text))
    return AdjacencyFile(
        name=source.path,
        n=None,
        m=None,
        directed=heading.remarks.directed(options),
        stated=heading.remarks.edges,
        source=source,
        body=first.start,
        piece=AdjacencyPiece,
        layout=layout,
        id_kinds=(layout.kind,),
        edge_bytes=1 + sum(map(len, words)) / len(words),
    )


@dataclass(frozen=True)
class AdjacencyPiece(TextPiece):
    """Lines of an adjacency list; ``layout`` is that of their words."""

    layout: AdjacencyLayout
    _lone: list[Ids] = field(default_factory=list, init=False, compare=False)

    def read(self) -> IdEdges:
        """Return the ids of vertices and their neighbours, int64 or Arrow arrays; errors as of ``Piece.read``."""
        reading = Reading(self.source.path, self.limits, _EXPANSION)
        sources, targets, lone = ([self._ids([])] for _ in range(3))
        for offset, block in self.blocks(reading, _LINE_BYTES):
            words, counts = self._parse(offset, block, reading)
            ids, counted = self._ids(words), np.array(counts, np.int64)
            firsts = np.cumsum(counted) - counted
            others = np.ones(len(words), bool)
            others[firsts] = False
            neighbours = np.flatnonzero(others)
            sources.append(ids.take(np.repeat(firsts, counted - 1)))
            targets.append(ids.take(neighbours))
            lone.append(ids.take(firsts[counted == 1]))
            reading.take_edges(neighbours.size, len(counts))
        self._lone[:] = [joined(lone)]
        return joined(sources), joined(targets)

    def lone_ids(self) -> Ids:
        """Return the vertices that are alone in their lines; see ``PieceWithLoneIds``."""
        if not self._lone:
            self.read()
        return self._lone.pop()

    def _parse(self, offset: int, block: bytes, reading: Reading) -> tuple[list[bytes], array[int]]:
        """Return the words of a block's lines, and their number in each line that has any."""
        if (plain := self.layout.plain(block)) is not None:
            return list(chain.from_iterable(plain)), array("q", [len(words) for words in plain if words])
        words: list[bytes] = []
        counts = array("q")
        for found in each_line(self.source, offset, block, reading, self.layout.words):
            if found:
                words += found
                counts.append(len(found))
        return words, counts

    def _ids(self, words: list[bytes]) -> Any:
        import pyarrow as pa

        if self.layout.kind == "integer":
            return np.array([int(word) for word in words], np.int64)
        return pa.array(words, pa.large_binary()).cast(pa.large_string())


@dataclass(frozen=True)
class AdjacencyFile(TextFile):
    """An adjacency list: a word stands for an edge."""

    def sampled_edges(self) -> None:
        """See ``EdgeList``: a line has any number of edges."""
