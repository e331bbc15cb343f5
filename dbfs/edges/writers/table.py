"""Writer of Parquet tables (Apache Parquet, by pyarrow) with an edge per row.

In comes an ``EdgeStream``; out go bytes to a ``Sink``.
"""

import json

import pyarrow as pa
import pyarrow.parquet as pq

from dbfs.edges.writers.stream import EdgeStream, Written
from dbfs.edges.writers.target import Sink


def write_parquet(stream: EdgeStream, sink: Sink) -> Written:
    """Write columns src and dst, int64 ids as given; metadata ``dbfs`` is JSON of the graph's name, n, directed."""
    edges = stream.edges
    about = json.dumps({"name": edges.name, "n": edges.n, "directed": edges.directed})
    schema = pa.schema([("src", pa.int64()), ("dst", pa.int64())], metadata={"dbfs": about})
    count = 0
    with pq.ParquetWriter(sink.stream, schema, compression="zstd") as table:
        for src, dst in stream.pieces():
            count += src.size
            table.write_table(pa.table([pa.array(src), pa.array(dst)], schema=schema))
    return Written(edges.n, count, edges.directed)
