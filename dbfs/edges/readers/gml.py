"""GML, the Graph Modelling Language: keys, each with a number, a text or a list of keys in brackets.

Source: Himsolt, "GML: A Portable Graph File Format", University of Passau, 1997. The ids are those of the key ``id``,
integers or texts, and not the labels. NetworkX's reader refuses parallel edges unless the file has ``multigraph 1``,
and text that is not ASCII; labels with umlauts and repeated edges are common in public files.
"""

from __future__ import annotations

import html
import re

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.heading import Head
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.source import Source, is_utf8
from dbfs.edges.readers.whole import CollectedEdges, text_of
from dbfs.errors import FormatError, TruncatedFileError

# All repeats are possessive: text of any kind takes linear time.
_SKIPPED = re.compile(rb"(?:\s++|#[^\n]*+)*+")
_KEY = re.compile(rb"[A-Za-z]\w*+")
_TEXT = re.compile(rb'"([^"]*+)"')
_WORD = re.compile(rb'[^\s\[\]"#]++')
_REAL = re.compile(rb"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_INTEGER = re.compile(rb"[+-]?(?:0|[1-9][0-9]{0,18}+)")
# By the keys around it, what an element's keys are that are read.
_READ = {
    ("graph",): ("directed",),
    ("graph", "node"): ("id",),
    ("graph", "edge"): ("source", "target"),
}
_Value = int | str


def open_gml(head: Head, options: ReadOptions) -> EdgeList:
    """Read a GML file: the vertices and edges of its one graph. A graph is undirected unless it has ``directed 1``.

    Raises:
        FormatError: the text is no GML; or it holds several graphs or none, a vertex without an id, two vertices with
            one id, or an edge without an end.
        TruncatedFileError: a bracket or a quote is left open.
        GraphTooLargeError: this process has too little memory for the file.
    """
    return _Gml(head.source, options).read()


class _Gml:
    def __init__(self, source: Source, options: ReadOptions) -> None:
        self._path = source.path
        self._text = bytes(text_of(source).removeprefix(b"\xef\xbb\xbf"))
        self._encoding = "utf-8" if is_utf8(self._text) else "latin-1"
        self._found = CollectedEdges(source.path, options)
        self._found.directions.default = False
        # Line ends up to a place, for the number of its line.
        self._lines = (1, 0)
        self._graphs = 0

    def read(self) -> EdgeList:
        """Return the file's edges; errors as of ``open_gml``."""
        at, size, keys = 0, len(self._text), list[str]()
        values: dict[str, _Value] = {}
        edges: list[tuple[_Value | None, _Value | None, str]] = []
        while (at := self._skip(at)) < size:
            if self._text[at] == ord("]"):
                if not keys:
                    raise self._wrong(at, "a bracket that closes nothing")
                if keys == ["graph", "node"]:
                    self._found.take_vertex(values.get("id"), self._where(at))
                elif keys == ["graph", "edge"]:
                    edges.append((values.get("source"), values.get("target"), self._where(at)))
                keys.pop()
                at += 1
                continue
            found = _KEY.match(self._text, at)
            if found is None:
                raise self._wrong(at, "expected a key, which begins with a letter, or ']'")
            key, at = found.group().decode().lower(), self._skip(found.end())
            if self._text[at : at + 1] == b"[":
                if not keys and key == "graph":
                    self._graphs += 1
                if self._graphs > 1:
                    raise self._wrong(at, "a second graph; expected one graph in a file")
                if keys == ["graph"]:
                    values = {}
                keys.append(key)
                at += 1
                continue
            start, (value, at) = at, self._value(at)
            around = tuple(keys)
            if key in _READ.get(around, ()):
                if around == ("graph",):
                    self._take_direction(value, start)
                elif _REAL.match(self._text, start) and not isinstance(value, int):
                    raise self._wrong(start, "the id of a vertex is an integer, 0 to 2^63-1, or a text in quotes")
                elif key in values:
                    raise self._wrong(start, f"a second {key!r} of one {keys[-1]}")
                else:
                    values[key] = value
            elif around == ("graph", "node"):
                self._found.vertex_values[key] += 1
            elif around == ("graph", "edge"):
                self._found.edge_values[key] = None
        if keys:
            raise TruncatedFileError(f"{self._path} ends within {keys[-1]!r}, whose bracket is not closed")
        if not self._graphs:
            raise FormatError(f"{self._path} holds no graph; expected 'graph [' with nodes and edges")
        # The direction may stand below the edges.
        for source, target, where in edges:
            self._found.take_edge(source, target, where)
        return self._found.edge_list()

    def _take_direction(self, value: _Value, at: int) -> None:
        if value not in (0, 1, "0", "1"):
            raise self._wrong(at, f"directed is {value!r}; expected 0 or 1")
        self._found.directions.default = value in (1, "1")

    def _value(self, at: int) -> tuple[_Value, int]:
        """Return the value at a place, and the place after it: an integer, a text, or another word as a text."""
        found = _TEXT.match(self._text, at)
        if found is not None:
            return html.unescape(found.group(1).decode(self._encoding)), found.end()
        if self._text[at : at + 1] == b'"':
            raise TruncatedFileError(f"{self._path}, {self._where(at)}: the quote is not closed")
        found = _WORD.match(self._text, at)
        if found is None:
            raise self._wrong(at, "expected a number, a text in quotes, or '['")
        word = found.group()
        return int(word) if _INTEGER.fullmatch(word) else word.decode(self._encoding), found.end()

    def _skip(self, at: int) -> int:
        found = _SKIPPED.match(self._text, at)
        return at if found is None else found.end()

    def _where(self, at: int) -> str:
        number, seen = self._lines
        self._lines = number + self._text.count(b"\n", seen, at), at
        return f"line {self._lines[0]}"

    def _wrong(self, at: int, reason: str) -> FormatError:
        shown = self._text[at : at + 40].partition(b"\n")[0].decode(self._encoding, "replace")
        return self._found.wrong(self._where(at), f"{shown!r}: {reason}")
