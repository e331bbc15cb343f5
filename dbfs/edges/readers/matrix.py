"""Dense matrices in text: n lines of n numbers; an edge (i, j) for each number that is not zero.

The client reads the whole text, line by line, and keeps the edges.
"""

from __future__ import annotations

import numpy as np

from dbfs.edges.arrays import from_scipy
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.doubts import is_number, mark_of, rows_from
from dbfs.edges.readers.heading import Head, read_heading
from dbfs.edges.readers.options import ReadOptions
from dbfs.errors import FormatError, TruncatedFileError


def open_matrix(head: Head, options: ReadOptions) -> EdgeList:
    """Read a square matrix; its edges are undirected if it is symmetric, unless the caller says otherwise.

    Raises:
        FormatError: a row has another number of columns, or a value is no finite number; the message names the row.
        TruncatedFileError: there is no row, or there are fewer rows than columns.
        EdgeInputError: ``directed=False``, and the matrix is not symmetric.
    """
    import scipy.sparse

    path, first = head.source.path, read_heading(head, options, lambda _: False).first
    if first is None:
        raise TruncatedFileError(f"{path} holds no matrix; expected rows of numbers")
    size, columns = 0, list[np.ndarray[tuple[int], np.dtype[np.int64]]]()
    for row in rows_from(head, first.start, mark_of(first.text, options), options):
        size = size or len(row)
        where = f"{path}, row {len(columns) + 1} of the matrix"
        if len(row) != size or len(columns) == size:
            raise FormatError(f"{where} has {len(row)} columns; expected {size} rows of {size} numbers")
        wrong = next((value for value in row if not is_number(value) or not np.isfinite(float(value))), None)
        if wrong is not None:
            raise FormatError(
                f"{where} holds {wrong[:40]!r}; expected numbers. Names of rows and columns are read by "
                "networkx.from_pandas_adjacency(pandas.read_csv(path, index_col=0))"
            )
        columns.append(np.flatnonzero(np.array(row, float)))
    if len(columns) < size:
        raise TruncatedFileError(f"{path} has {len(columns)} rows of {size} numbers; expected as many rows as columns")
    sources = np.repeat(np.arange(size), [each.size for each in columns])
    entries = (np.ones(sources.size), (sources, np.concatenate(columns)))
    return from_scipy(scipy.sparse.coo_array(entries, (size, size)), directed=options.directed, name=path)
