"""TGF, the trivial graph format: a line for each vertex, its id and label; a line ``#``; a line for each edge.

Source: yWorks, "Trivial Graph Format", yEd manual.
"""

from __future__ import annotations

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.heading import Head
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.whole import CollectedEdges, lines_of, words_of
from dbfs.errors import TruncatedFileError


def open_tgf(head: Head, options: ReadOptions) -> EdgeList:
    """Read a TGF file. Its edges are undirected unless the caller says otherwise, as those of any list of edges.

    Raises:
        FormatError: a line breaks the format, an edge ends at no vertex of the file, or two vertices have one id.
        TruncatedFileError: there is no line ``#``.
        GraphTooLargeError: this process has too little memory for the file.
    """
    path = head.source.path
    found, edges = CollectedEdges(path, options, words=True), False
    found.directions.default = False
    for where, text in lines_of(head.source):
        words = words_of(text, path, where)
        if words == ["#"]:
            if edges:
                raise found.wrong(where, "a second line '#'; expected an edge")
            edges = True
        elif not edges:
            found.take_vertex(words[0], where)
            found.vertex_values.update(["label"][: len(words) - 1])
        elif len(words) < 2:
            raise found.wrong(where, f"{words[0]!r}: the second end is missing")
        else:
            found.take_edge(words[0], words[1], where)
            found.edge_values.update(dict.fromkeys(["label"][: len(words) - 2]))
    if not edges:
        raise TruncatedFileError(f"{path} ends before its edges; expected vertices, a line '#', and edges")
    return found.edge_list()
