"""Writers of formats that keep a vertex's edges together: METIS, and SciPy's sparse matrices (.npz).

Source of METIS: see ``readers.metis``. In comes an ``EdgeStream``, read into a CSR matrix in memory; out go bytes to a
``Sink``.
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from dbfs.base.memory import require_room
from dbfs.edges.writers.edge_stream import EdgeStream, Survey, WriteReport
from dbfs.edges.writers.target import Sink
from dbfs.errors import InvalidOptionError

# Peak bytes of an entry: the pieces' ids and their concatenation, or the rows, columns and values of both the
# coordinates and the CSR.
_ENTRY_BYTES = 40
_ROW_BYTES = 8
# Entries converted to text at a time.
_BLOCK_ENTRIES = 2**20


def write_metis(stream: EdgeStream, sink: Sink) -> WriteReport:
    """Write a METIS graph: a line of neighbours for each vertex. Self-loops and duplicates are left out.

    Raise ``InvalidOptionError`` if the edges are directed.
    """
    if stream.edges.directed:
        raise InvalidOptionError(
            f"{sink.name}: METIS holds undirected graphs, and {stream.edges.name} is directed; choose another format"
        )
    survey = stream.survey()
    matrix = _matrix(stream, survey, simple=True)
    edges = matrix.nnz // 2
    sink.write(f"% {stream.title}\n{survey.n} {edges}\n".encode())
    row = 0
    while row < survey.n:
        stop = int(np.searchsorted(matrix.indptr, matrix.indptr[row] + _BLOCK_ENTRIES, "right")) - 1
        stop = max(row + 1, min(stop, survey.n))
        _write_rows(sink, matrix, row, stop)
        row = stop
    return stream.without(stream.written(survey, first=1), survey.m - edges)


def _write_rows(sink: Sink, matrix: Any, start: int, stop: int) -> None:
    """Write the lines of the rows [start, stop): 1-based neighbours, or a blank line for none."""
    first, last = int(matrix.indptr[start]), int(matrix.indptr[stop])
    neighbours = pc.cast(pa.array(matrix.indices[first:last].astype(np.int64) + 1), pa.string())
    offsets = pa.array((matrix.indptr[start : stop + 1] - first).astype(np.int32))
    lines = pc.binary_join(pa.ListArray.from_arrays(offsets, neighbours), " ")
    everything = pa.ListArray.from_arrays(pa.array([0, stop - start], pa.int32()), lines)
    sink.write(pc.binary_join(everything, "\n")[0].as_py().encode() + b"\n")


def write_npz(stream: EdgeStream, sink: Sink) -> WriteReport:
    """Write a CSR matrix for ``scipy.sparse.load_npz``: an entry (i, j) of 1 for each edge from i to j.

    An undirected edge is at (i, j) and at (j, i), a self-loop once. SciPy adds up the entries of parallel edges.
    """
    survey = stream.survey()
    matrix = _matrix(stream, survey, simple=False)
    # What SciPy's save_npz writes, and the direction, which ``readers.npz`` looks for.
    np.savez_compressed(
        sink.stream,
        indices=matrix.indices,
        indptr=matrix.indptr,
        format=matrix.format.encode("ascii"),
        shape=matrix.shape,
        data=matrix.data,
        _is_array=True,
        dbfs=json.dumps({"name": stream.title, "directed": stream.edges.directed}),
    )
    return stream.written(survey, first=0)


def _matrix(stream: EdgeStream, survey: Survey, *, simple: bool) -> Any:
    """Return the adjacency matrix, CSR with int32 ones; without self-loops and with one entry a pair if ``simple``.

    Raise ``GraphTooLargeError`` if the memory will not hold it.
    """
    entries = survey.m * (1 if stream.edges.directed else 2)
    what = f"{stream.edges.name}: a matrix of {entries} entries takes"
    needed = entries * _ENTRY_BYTES + survey.n * _ROW_BYTES
    require_room(needed, what, "an edge list, .mtx or .gr needs none")
    pieces = [(np.empty(0, np.int64), np.empty(0, np.int64)), *stream.numbered(survey)]
    rows, columns = (np.concatenate([piece[side] for piece in pieces]) for side in (0, 1))
    del pieces
    between = rows != columns
    if simple:
        rows, columns, between = rows[between], columns[between], between[between]
    if not stream.edges.directed:
        rows, columns = np.concatenate([rows, columns[between]]), np.concatenate([columns, rows[between]])
    ones = np.ones(rows.size, np.int32)
    matrix = sp.coo_array((ones, (rows, columns)), shape=(survey.n, survey.n))
    # SciPy does not add up what it believes to be distinct.
    matrix.has_canonical_format = not simple
    found = matrix.tocsr()
    found.sort_indices()
    return found
