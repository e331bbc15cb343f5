"""Formats with one edge a line: Matrix Market, edge lists, PACE's and DIMACS's .gr. Sources: see the readers."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from dbfs.edges.writers.stream import EdgeStream, Written
from dbfs.edges.writers.target import Sink


def write_matrix_market(stream: EdgeStream, sink: Sink) -> Written:
    """A coordinate pattern: general where directed, else symmetric with the lower triangle's entries."""
    survey, directed = stream.survey(), stream.edges.directed
    sink.write(f"%%MatrixMarket matrix coordinate pattern {'general' if directed else 'symmetric'}\n".encode())
    sink.write(f"% {stream.title}\n{survey.n} {survey.n} {survey.m}\n".encode())
    for src, dst in stream.numbered(survey):
        rows, columns = (src, dst) if directed else (np.maximum(src, dst), np.minimum(src, dst))
        _write_lines(sink, [rows + 1, columns + 1], " ")
    return stream.written(survey)


def write_edge_list(stream: EdgeStream, sink: Sink, *, separator: str) -> Written:
    """Two columns of ids, after comments in SNAP's form: whether edges are directed and, where known, the counts."""
    edges = stream.edges
    sink.write(f"# {'Directed' if edges.directed else 'Undirected'} graph: {stream.title}\n".encode())
    if edges.n is not None and edges.m is not None and not edges.mirrored:
        sink.write(f"# Nodes: {edges.n} Edges: {edges.m}\n".encode())
    count = 0
    for src, dst in stream.pieces():
        count += src.size
        _write_lines(sink, [src, dst], separator)
    return Written(edges.n, count, edges.directed)


def write_gr(stream: EdgeStream, sink: Sink) -> Written:
    """PACE's form where edges are undirected, DIMACS's with lengths 1 where they are directed."""
    survey, directed = stream.survey(), stream.edges.directed
    sink.write(f"c {stream.title}\np {'sp' if directed else 'tw'} {survey.n} {survey.m}\n".encode())
    for src, dst in stream.numbered(survey):
        ids = [src + 1, dst + 1]
        _write_lines(sink, [pa.repeat("a", src.size), *ids, pa.repeat(1, src.size)] if directed else ids, " ")
    return stream.written(survey)


def _write_lines(sink: Sink, columns: Iterable[Any], separator: str) -> None:
    """Lines of columns, which are NumPy's or pyarrow's arrays."""
    arrays = [pa.array(column) for column in columns]
    options = pacsv.WriteOptions(include_header=False, delimiter=separator, quoting_style="none")
    buffer = pa.BufferOutputStream()
    pacsv.write_csv(pa.table(arrays, names=[str(place) for place in range(len(arrays))]), buffer, options)
    sink.write(buffer.getvalue())
