"""Writer of Parquet tables (Apache Parquet, by pyarrow) with an edge per row.

In comes an ``EdgeStream``; out go bytes to a ``Sink``.
"""

import json

import pyarrow as pa
import pyarrow.parquet as pq

from dbfs.edges.writers.stream import EdgeStream, Written
from dbfs.edges.writers.target import Sink


def write_parquet(stream: EdgeStream, sink: Sink) -> Written:
    """Write columns src and dst, ids as given; metadata ``dbfs`` is JSON of the graph's name, n, first_id, directed.

    Ids that are tuples take a column for each part: ``src_0``, ``src_1``, ..., ``dst_0`` and so on. Vertices without
    edges have a place only if ids are consecutive numbers.
    """
    edges = stream.edges
    n = None if edges.has_names else edges.n
    about = json.dumps({"name": edges.name, "n": n, "first_id": edges.first_id, "directed": edges.directed})
    types = [pa.int64() if kind == "integer" else pa.large_string() for kind in edges.id_kinds]
    places = [""] if len(types) == 1 else [f"_{place}" for place in range(len(types))]
    fields = [(f"{end}{place}", kind) for end in ("src", "dst") for place, kind in zip(places, types, strict=True)]
    schema = pa.schema(fields, metadata={"dbfs": about})
    count = 0
    with pq.ParquetWriter(sink.stream, schema, compression="zstd") as table:
        for ends in stream.by_ids():
            count += len(ends[0])
            parts = [part for ids in map(pa.array, ends) for part in (ids.flatten() if places[1:] else [ids])]
            table.write_table(pa.table(parts, schema=schema))
    return Written(edges.n, count, edges.directed, lone=stream.lone() if n is None else 0)
