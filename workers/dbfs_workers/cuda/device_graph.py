"""A rank's slice of the graph on its GPU, with what the resident kernel wants to know of it beforehand."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dbfs_workers.cuda import layout
from dbfs_workers.stripe import NO_VERTEX, WORD_BITS, Stripe


@dataclass(frozen=True)
class DeviceGraph:
    """CSR arrays on the GPU (CuPy) and facts derived from them.

    Attributes:
        row_offsets: int64[n_local + 1].
        columns: uint32[m_local] internal ids.
        in_offsets: int64[n_local + 1] of the in-edges; ``row_offsets`` itself for a symmetric graph; None where they
            are not kept: then every level is top-down.
        in_columns: uint32, the in-neighbours.
        first_in: uint32[n_local], one in-neighbour of each row (best the one with the largest degree), ``NO_VERTEX``
            for none.
        closed: uint32[n_local / 32], padded to 16 bytes: a bit for each row without in-edges; None without in-edges.
        rows_used: rows up to the last one with an edge, in whole bitmap words.
        connected: rows of this rank that have an edge.
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
    first_in: Any | None = None,
) -> DeviceGraph:
    """Derive the facts. Arrays are CuPy's and are kept, not copied.

    Args:
        stripe: how the graph lies on the ranks.
        rank: whose rows these are.
        row_offsets: int64[n_local + 1].
        columns: uint32[m_local].
        symmetric: every edge is there in both directions, so that the out-edges are the in-edges.
        in_csr: offsets and columns of the in-edges of a directed graph, to allow bottom-up levels.
        first_in: see ``DeviceGraph``; the first of each list where not given.
    """
    import cupy

    if symmetric:
        in_csr = (row_offsets, columns)
    degrees = cupy.diff(row_offsets)
    closed = None
    has_edge = degrees > 0
    if in_csr is not None:
        in_degrees = degrees if symmetric else cupy.diff(in_csr[0])
        has_in = in_degrees > 0
        has_edge = has_edge | has_in
        closed = cupy.zeros(stripe.words_local + 4, np.uint32)
        closed[: stripe.words_local] = cupy.packbits(~has_in, bitorder="little").view(np.uint32)
        if first_in is None:
            first_in = cupy.full(stripe.n_local, NO_VERTEX, np.uint32)
            first_in[has_in] = in_csr[1][in_csr[0][:-1][has_in]]
    large = degrees[degrees > layout.LARGE_DEGREE]
    used = cupy.flatnonzero(has_edge)
    last = int(used[-1]) + 1 if used.size else 0
    return DeviceGraph(
        stripe=stripe,
        rank=rank,
        row_offsets=row_offsets,
        columns=columns,
        in_offsets=None if in_csr is None else in_csr[0],
        in_columns=None if in_csr is None else in_csr[1],
        first_in=first_in if in_csr is not None else None,
        closed=closed,
        rows_used=-(-last // WORD_BITS) * WORD_BITS,
        connected=int(used.size),
        max_degree=int(degrees.max()) if degrees.size else 0,
        chunks=int((-(-large // layout.CHUNK_EDGES)).sum()),
    )
