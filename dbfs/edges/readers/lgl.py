"""LGL: a line ``# name`` for a vertex, and then a line for each neighbour, perhaps with a weight.

Source: Adai, Date, Wieland, Marcotte, "LGL: Creating a Map of Protein Function with an Algorithm for Visualizing Very
Large Biological Networks", JMB 2004. Edges are undirected, and each is listed at one end.
"""

from __future__ import annotations

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.heading import Head
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.whole import CollectedEdges, lines_of, words_of
from dbfs.errors import TruncatedFileError


def open_lgl(head: Head, options: ReadOptions) -> EdgeList:
    """Read an LGL file.

    Raises:
        FormatError: a line is neither ``# name`` nor a name, or a name and a weight.
        TruncatedFileError: the file holds no vertex.
        GraphTooLargeError: this process has too little memory for the file.
    """
    path = head.source.path
    found = CollectedEdges(path, options, words=True, implicit=True)
    found.directions.default = False
    vertex: str | None = None
    for where, text in lines_of(head.source):
        words = words_of(text, path, where)
        if text.startswith(b"#"):
            # A blank after the mark is usual and not needed.
            name = words_of(text.lstrip(b"#"), path, where)
            if len(name) != 1:
                raise found.wrong(where, f"{' '.join(words)!r}: expected '# name', a name without blanks")
            vertex = name[0]
            found.take_vertex(vertex, where)
        elif vertex is None or len(words) > 2:
            shown = repr(" ".join(words)[:60])
            raise found.wrong(where, f"{shown}: expected '# name', and below it a neighbour, perhaps with a weight")
        else:
            found.take_edge(vertex, words[0], where)
            found.edge_values.update(dict.fromkeys(["weight"][: len(words) - 1]))
    if vertex is None:
        raise TruncatedFileError(f"{path} holds no vertex; expected a line '# name'")
    return found.edge_list()
