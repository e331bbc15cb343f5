"""A rank's slice of the graph on its GPU, with what the resident kernel wants to know of it beforehand."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dbfs_workers.cuda import layout
from dbfs_workers.cuda.module import load
from dbfs_workers.storage.stripe import WORD_BITS, Stripe

_THREADS = 256


@dataclass(frozen=True)
class DeviceGraph:
    """CSR arrays on the GPU (CuPy) and facts derived from them.

    Attributes:
        row_offsets: int64[n_local + 1].
        columns: uint32[m_local] internal ids.
        in_offsets: int64[n_local + 1] of the in-edges; ``row_offsets`` itself for a symmetric graph; None where they
            are not kept: then every level is top-down.
        in_columns: uint32, the in-neighbours.
        first_in: uint32[n_local], the first in-neighbour of each row (the one with the largest degree in a hub-first
            partition), ``NO_VERTEX`` for none.
        closed: uint32[n_local / 32], padded to 16 bytes: a bit for each row without in-edges; None without in-edges.
        rows_used: rows up to the last one that has an edge or may be reached by one, in whole bitmap words.
        connected: rows of this rank that have an edge; an out-edge, where in-edges are not kept.
        max_degree: largest number of neighbours of a row.
        chunks: pieces that the lists of all large vertices are cut into.
    """

    stripe: Stripe
    rank: int
    row_offsets: Any
    columns: Any
    in_offsets: Any | None
    in_columns: Any | None
    first_in: Any | None
    closed: Any | None
    rows_used: int
    connected: int
    max_degree: int
    chunks: int

    @property
    def m_local(self) -> int:
        """Directed edges of this rank."""
        return int(self.columns.size)


def device_graph(
    stripe: Stripe,
    rank: int,
    row_offsets: Any,
    columns: Any,
    *,
    symmetric: bool,
    in_csr: tuple[Any, Any] | None = None,
) -> DeviceGraph:
    """Derive the facts. Arrays are CuPy's and are kept, not copied.

    Args:
        stripe: how the graph lies on the ranks.
        rank: whose rows these are.
        row_offsets: int64[n_local + 1].
        columns: uint32[m_local].
        symmetric: every edge is there in both directions, so that the out-edges are the in-edges.
        in_csr: offsets and columns of the in-edges of a directed graph, to allow bottom-up levels.
    """
    import cupy

    if symmetric:
        in_csr = (row_offsets, columns)
    rows = stripe.n_local
    in_offsets, in_columns = (None, None) if in_csr is None else in_csr
    first_in = closed = None
    if in_csr is not None:
        first_in = cupy.empty(rows, np.uint32)
        closed = cupy.zeros(stripe.words_local + 4, np.uint32)
    sums = cupy.zeros(4, np.uint64)
    nothing = np.uint64(0)
    kernel = load("building/facts.cu").get_function("dbfs_facts")
    arrays = (nothing if array is None else array for array in (in_offsets, in_columns, first_in, closed))
    cuts = (np.uint32(layout.LARGE_DEGREE), np.uint32(layout.CHUNK_EDGES))
    kernel((-(-rows // _THREADS),), (_THREADS,), (row_offsets, *arrays, np.int64(rows), *cuts, sums))
    last, connected, max_degree, chunks = cupy.asnumpy(sums).tolist()
    # Without in-edges nobody here knows which rows are reached.
    used = rows if in_csr is None else -(-last // WORD_BITS) * WORD_BITS
    return DeviceGraph(
        stripe=stripe,
        rank=rank,
        row_offsets=row_offsets,
        columns=columns,
        in_offsets=in_offsets,
        in_columns=in_columns,
        first_in=first_in,
        closed=closed,
        rows_used=used,
        connected=connected,
        max_degree=max_degree,
        chunks=chunks,
    )
