"""GraphML and GEXF: XML files of vertices and edges, by Python's expat.

Sources: Brandes, Eiglsperger, Herman, Himsolt, Marshall, "GraphML Progress Report", GD 2001, and the GraphML primer;
GEXF Working Group, "GEXF Primer", versions 1.1 to 1.3. Ids are strings. A vertex within another one's nested graph is
a vertex, a group of yEd too, and an edge there is an edge. NetworkX's readers, which build a tree of the whole file,
take the first of several graphs, pass over nested ones, and refuse a file for a value of an attribute; nothing but
ids, ends and directions is read here.

A document type could define entities that grow without bound, or name other files. A file that has one is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from xml.parsers import expat

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.heading import Head
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.source import Source
from dbfs.edges.readers.whole import CollectedEdges, text_of
from dbfs.errors import FormatError

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_KINDS = {"directed": True, "undirected": False}
_IGNORED = ""


def open_graphml(head: Head, options: ReadOptions) -> EdgeList:
    """Read a GraphML file.

    Raises:
        FormatError: the XML is broken or has a document type; or the file holds several graphs or none, a hyperedge, an
            edge without an end in the file, or edges of both directions.
        GraphTooLargeError: this process has too little memory for the file.
    """
    return _GraphML(head.source, options).read()


def open_gexf(head: Head, options: ReadOptions) -> EdgeList:
    """Read a GEXF file, edges of all times; a mutual edge is an edge and its reverse. Errors as of ``open_graphml``."""
    return _Gexf(head.source, options).read()


class _Reader(ABC):
    """Reads the elements of one namespace, that of the root. Others may have the same names within an attribute.

    Args:
        source: the file.
        options: what the caller says.

    Attributes:
        root: the name of the root element.
    """

    root: str

    def __init__(self, source: Source, options: ReadOptions) -> None:
        self._source = source
        self._found = CollectedEdges(source.path, options)
        self._namespace = ""
        self._open: list[str] = []
        self._graphs = 0
        # By kind and id of an attribute: its name.
        self._names: dict[tuple[str, str], str] = {}
        # A name of a namespace must not hold the separator; some programs write one with a blank at its end.
        self._parser = expat.ParserCreate(namespace_separator="}")
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end

    def read(self) -> EdgeList:
        """Return the file's edges; errors as of ``open_graphml``."""
        text = text_of(self._source)
        try:
            self._parser.Parse(text, True)
        except expat.ExpatError as error:
            words = f"no valid XML: {expat.errors.messages.get(error.code, error)}"
            raise FormatError(f"{self._source.path}, line {error.lineno}: {words}") from None
        if not self._graphs:
            raise FormatError(f"{self._source.path} holds no graph; expected an element 'graph' in '{self.root}'")
        return self._found.edge_list()

    def _where(self) -> str:
        return f"line {self._parser.CurrentLineNumber}"

    def _wrong(self, reason: str) -> FormatError:
        return self._found.wrong(self._where(), reason)

    def _doctype(self, *_: object) -> None:
        raise self._wrong("a document type, which may define entities; XML is read without. Delete '<!DOCTYPE ...>'")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        namespace, _, local = name.rpartition("}")
        if not self._open:
            self._namespace = namespace
            if local != self.root:
                raise self._wrong(f"the root element is {local!r}; expected {self.root!r}")
        elif namespace != self._namespace or not self._take(local, self._open[-1], attributes):
            local = _IGNORED
        self._open.append(local)

    def _end(self, _: str) -> None:
        self._close(self._open.pop())

    def _take_graph(self) -> None:
        self._graphs += 1
        if self._graphs > 1:
            raise self._wrong("a second graph; expected one graph in a file")

    @abstractmethod
    def _take(self, name: str, parent: str, attributes: Mapping[str, str]) -> bool:
        """Take the start of an element. Return whether elements within it are looked at."""

    def _close(self, name: str) -> None:  # noqa: B027 - most elements need nothing at their end
        """Take the end of an element that ``_take`` took; the name is empty for others."""

    def _kind(self, value: str | None, kinds: Mapping[str, bool], what: str) -> bool | None:
        """Return the direction that an attribute says; None if there is no such attribute."""
        if value is not None and value not in kinds:
            raise self._wrong(f"{what} is {value!r}; expected one of {', '.join(kinds)}")
        return None if value is None else kinds[value]


class _GraphML(_Reader):
    root = "graphml"

    def __init__(self, source: Source, options: ReadOptions) -> None:
        super().__init__(source, options)
        # Directions of the graphs around the one that is read.
        self._outer: list[bool | None] = []

    def _take(self, name: str, parent: str, attributes: Mapping[str, str]) -> bool:
        found = self._found
        match name, parent:
            case "graph", "graphml" | "node" | "edge":
                if parent == "graphml":
                    self._take_graph()
                self._outer.append(found.directions.default)
                found.directions.default = self._kind(attributes.get("edgedefault"), _KINDS, "edgedefault")
            case "node", "graph":
                found.take_vertex(attributes.get("id"), self._where())
            case "edge", "graph":
                directed = self._kind(attributes.get("directed"), _BOOLEANS, "directed")
                found.take_edge(attributes.get("source"), attributes.get("target"), self._where(), directed)
            case "hyperedge", "graph":
                raise self._wrong("a hyperedge, which joins any number of vertices; expected edges of two ends")
            case "locator", "graph" | "node":
                raise self._wrong("a locator: a part of the graph is in another file; expected all of it in this one")
            case "key", "graphml":
                name = attributes.get("attr.name") or attributes.get("yfiles.type") or attributes.get("id", "")
                self._names["", attributes.get("id", "")] = name
            case "data", "node" | "edge":
                name = self._names.get(("", attributes.get("key", "")), attributes.get("key", "data"))
                if parent == "node":
                    found.vertex_values[name] += 1
                else:
                    found.edge_values[name] = None
                return False
            case _:
                return False
        return True

    def _close(self, name: str) -> None:
        if name == "graph":
            outer = self._outer.pop()
            # The direction of the outermost graph stays, for a file without edges.
            self._found.directions.default = outer if self._outer else self._found.directions.default


class _Gexf(_Reader):
    root = "gexf"

    def __init__(self, source: Source, options: ReadOptions) -> None:
        super().__init__(source, options)
        self._directed = options.directed
        # What the attributes are of that are declared: "node" or "edge".
        self._of = ""

    def _take(self, name: str, parent: str, attributes: Mapping[str, str]) -> bool:
        found = self._found
        match name, parent:
            case "graph", "gexf":
                self._take_graph()
                kinds = {**_KINDS, "mutual": False}
                found.directions.default = self._kind(
                    attributes.get("defaultedgetype", "undirected"), kinds, "defaultedgetype"
                )
            case "attributes", "graph":
                self._of = attributes.get("class", "")
            case "attribute", "attributes":
                self._names[self._of, attributes.get("id", "")] = attributes.get("title", "")
            case ("nodes" | "edges", "graph" | "node") | ("attvalues", "node" | "edge"):
                pass
            case "node", "nodes":
                found.take_vertex(attributes.get("id"), self._where())
                found.vertex_values.update(key for key in attributes if key not in ("id", "pid"))
            case "edge", "edges":
                self._take_edge(attributes)
            case "attvalue", "attvalues":
                of, key = self._open[-2], attributes.get("for") or attributes.get("id", "")
                name = self._names.get((of, key), key)
                if of == "node":
                    found.vertex_values[name] += 1
                else:
                    found.edge_values[name] = None
            case _:
                return False
        return True

    def _take_edge(self, attributes: Mapping[str, str]) -> None:
        found, where = self._found, self._where()
        source, target = attributes.get("source"), attributes.get("target")
        kind = attributes.get("type")
        mutual = kind == "mutual"
        # A mutual edge is one that is crossed both ways: in a directed graph, an edge and its reverse.
        directed = None if mutual else self._kind(kind, _KINDS, "type")
        found.take_edge(source, target, where, directed)
        if mutual and (found.directions.default or self._directed):
            found.take_edge(target, source, where)
        found.edge_values.update(
            dict.fromkeys(key for key in attributes if key not in ("id", "source", "target", "type"))
        )
