"""Writers of formats with an edge per line or row: Matrix Market, edge lists, ``.gr`` of PACE and DIMACS, Parquet.

Sources: see ``readers.matrix_market``, ``readers.edge_list`` and ``readers.gr``. In comes an ``EdgeStream``; out go
bytes to a ``Sink``.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from dbfs.edges.readers.heading import STRINGS
from dbfs.edges.tables.about import KEY, MOST_BYTES, About
from dbfs.edges.writers.edge_stream import EdgeStream, WriteReport
from dbfs.edges.writers.target import Sink
from dbfs.errors import InvalidOptionError
from dbfs_workers.ids.table import as_python

# Of an id in the metadata, with what separates ids there.
_LEAST_ID_BYTES = 3


def write_matrix_market(stream: EdgeStream, sink: Sink) -> WriteReport:
    """Write a coordinate pattern: general if edges are directed, else symmetric, with the lower triangle's entries."""
    survey, directed = stream.survey(), stream.edges.directed
    sink.write(f"%%MatrixMarket matrix coordinate pattern {'general' if directed else 'symmetric'}\n".encode())
    sink.write(f"% {stream.title}\n{survey.n} {survey.n} {survey.m}\n".encode())
    for src, dst in stream.numbered(survey):
        rows, columns = (src, dst) if directed else (np.maximum(src, dst), np.minimum(src, dst))
        _write_lines(sink, [rows + 1, columns + 1], " ")
    return stream.written(survey, first=1)


def write_edge_list(stream: EdgeStream, sink: Sink, *, separator: str) -> WriteReport:
    """Write two columns of ids after comments in SNAP's form: the direction of edges and, if known, the numbers.

    Strings stand below a line of column names, which a reader of such a table needs, and a comment says that ids are
    strings, which may look like numbers.

    Raise ``InvalidOptionError`` for ids that are tuples, for strings in a file whose name is that of no table, and for
    strings that are blank or have a line break, which no reader takes.
    """
    edges = stream.edges
    names = edges.id_kinds == ("string",)
    if len(edges.id_kinds) > 1 or (names and not any(mark in sink.name.lower() for mark in (".csv", ".tsv"))):
        what = "strings" if names else "tuples"
        raise InvalidOptionError(
            f"{sink.name}: an edge list holds integers, and the ids of {edges.name} are {what}; choose .parquet"
            + (", .csv or .tsv" if names else "")
        )
    sink.write(f"# {'Directed' if edges.directed else 'Undirected'} graph: {stream.title}\n".encode())
    if edges.n is not None and edges.m is not None and not edges.mirrored:
        sink.write(f"# Nodes: {edges.n} Edges: {edges.m}\n".encode())
    if names:
        sink.write(f"# {STRINGS}\nsrc{separator}dst\n".encode())
    count = 0
    for src, dst in stream.by_ids():
        count += len(src)
        if names:
            _require_one_line(src, sink.name)
            _require_one_line(dst, sink.name)
        _write_lines(sink, [src, dst], separator, quoted=names)
    return WriteReport(edges.n, count, edges.directed, lone=len(stream.lone()))


def write_gr(stream: EdgeStream, sink: Sink) -> WriteReport:
    """Write PACE's form for undirected edges, DIMACS's with arcs of length 1 for directed ones."""
    survey, directed = stream.survey(), stream.edges.directed
    sink.write(f"c {stream.title}\np {'sp' if directed else 'tw'} {survey.n} {survey.m}\n".encode())
    for src, dst in stream.numbered(survey):
        ids = [src + 1, dst + 1]
        _write_lines(sink, [pa.repeat("a", src.size), *ids, pa.repeat(1, src.size)] if directed else ids, " ")
    return stream.written(survey, first=1)


def _require_one_line(ids: Any, name: str) -> None:
    wrong = pc.or_(pc.match_substring_regex(ids, "[\\n\\r\\x00]"), pc.match_substring_regex(ids, r"^[\s\p{Z}]*$"))
    if pc.any(wrong).as_py():
        first = ids[pc.index(wrong, True).as_py()].as_py()
        raise InvalidOptionError(f"{name}: the id {first!r} is blank or has a line break; .parquet keeps such ids")


def _write_lines(sink: Sink, columns: Iterable[Any], separator: str, *, quoted: bool = False) -> None:
    """Write lines of columns, which are arrays of NumPy or pyarrow; ``quoted`` for quotes around strings."""
    arrays = [pa.array(column) for column in columns]
    options = pacsv.WriteOptions(
        include_header=False, delimiter=separator, quoting_style="all_valid" if quoted else "none"
    )
    buffer = pa.BufferOutputStream()
    pacsv.write_csv(pa.table(arrays, names=[str(place) for place in range(len(arrays))]), buffer, options)
    sink.write(buffer.getvalue())


def write_parquet(stream: EdgeStream, sink: Sink) -> WriteReport:
    """Write columns src and dst, ids as given; the metadata ``dbfs`` are those of ``About``.

    Ids that are tuples take a column for each part: ``src_0``, ``src_1``, ..., ``dst_0`` and so on. Vertices without
    edges have a place in the metadata, unless their ids are millions and no consecutive numbers.
    """
    edges = stream.edges
    types = [pa.int64() if kind == "integer" else pa.large_string() for kind in edges.id_kinds]
    places = [""] if len(types) == 1 else [f"_{place}" for place in range(len(types))]
    fields = [(f"{end}{place}", kind) for end in ("src", "dst") for place, kind in zip(places, types, strict=True)]
    schema = pa.schema(fields)
    count = 0
    # Without a copy of the schema, the metadata that come last are those of the schema that readers make.
    with pq.ParquetWriter(sink.stream, schema, compression="zstd", store_schema=False) as table:
        for ends in stream.by_ids():
            count += len(ends[0])
            parts = [part for ids in map(pa.array, ends) for part in (ids.flatten() if places[1:] else [ids])]
            table.write_table(pa.table(parts, schema=schema))
        about = About(edges.name, edges.directed, None if edges.has_names else edges.n, edges.first_id, count)
        left_out = 0
        if about.n is None:
            lone = stream.lone()
            left_out = len(lone)
            if left_out * _LEAST_ID_BYTES < MOST_BYTES:
                named = replace(about, lone=tuple(as_python(lone)))
                if len(named.text()) < MOST_BYTES:
                    about, left_out = named, 0
        table.add_key_value_metadata({KEY: about.text()})
    return WriteReport(edges.n, count, edges.directed, lone=left_out)
