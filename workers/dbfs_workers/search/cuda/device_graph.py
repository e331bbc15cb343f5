"""A rank's slice of the graph on its GPU, with the facts that the resident kernel needs before a run."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dbfs_workers.search.cuda import device_memory, layout
from dbfs_workers.search.cuda.kernels.sources import FACTS
from dbfs_workers.search.cuda.module import load
from dbfs_workers.search.partition.stripe import WORD_BITS, Stripe

_THREADS = 256
_LANES = 32
# Edges that a thread counts: so many that a graph has fewer threads than a launch may have.
_EDGES = 64


@dataclass(frozen=True)
class DeviceGraph:
    """CSR arrays on the GPU (CuPy) and facts derived from them.

    Without in-edges (a directed graph loaded without them) every level is top-down.

    Attributes:
        rank: the rank that owns the rows.
        row_offsets: int64[n_local + 1].
        columns: uint32[m_local], internal ids.
        in_offsets: int64[n_local + 1] of the in-edges; ``row_offsets`` itself for a symmetric graph; None without
            in-edges.
        in_columns: uint32, internal ids of the in-neighbours; None without in-edges.
        hubs: uint32[n_local], an in-neighbour of each row, ``NO_VERTEX`` for none; None without in-edges. Of the first
            64 the one that most rows of this rank have. The first one in a graph of one rank without large vertices,
            or where the GPU is full.
        closed: uint32[n_local / 32 + 4], a bitmap of the rows that have no in-edge, padded by 16 bytes; None without
            in-edges.
        rows_used: rows up to the last one that has an out-edge or an in-edge, rounded up to a multiple of 32; all rows
            without in-edges.
        connected: number of rows that have an out-edge or an in-edge; without in-edges, an out-edge.
        max_degree: largest number of out-neighbours of a row.
        chunks: number of chunks that the neighbour lists of all large vertices are cut into.
        common: uint32[rows_used / 128, rounded up], the out-degree that the rows of a group have in common, or 2^32 - 1
            for a mixed group, whose rows have several.
        mixed: number of mixed groups.
        table: uint32[n_local, 4 or 8], the neighbours of each row besides itself, ``NO_VERTEX`` past the last; None
            with more neighbours, of several ranks, or where the GPU is full.
    """

    stripe: Stripe
    rank: int
    row_offsets: Any
    columns: Any
    in_offsets: Any | None
    in_columns: Any | None
    hubs: Any | None
    closed: Any | None
    rows_used: int
    connected: int
    max_degree: int
    chunks: int
    common: Any
    mixed: int
    table: Any | None

    @property
    def m_local(self) -> int:
        """Number of directed edges of this rank."""
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
    """Derive the facts on the GPU. The arrays are CuPy's, and the result refers to them without a copy.

    Args:
        stripe, rank, row_offsets, columns: as of ``DeviceGraph``.
        symmetric: every edge is stored in both directions, so the out-edges are also the in-edges.
        in_csr: offsets and columns of a directed graph's in-edges; None leaves only top-down levels.
    """
    import cupy

    if symmetric:
        in_csr = (row_offsets, columns)
    rows = stripe.n_local
    in_offsets, in_columns = (None, None) if in_csr is None else in_csr
    hubs = closed = None
    if in_csr is not None:
        hubs = cupy.empty(rows, np.uint32)
        closed = cupy.zeros(stripe.words_local + 4, np.uint32)
    sums = cupy.zeros(6, np.uint64)
    nothing = np.uint64(0)
    module = load(FACTS)
    kernel = module.get_function("dbfs_facts")
    arrays = (nothing if array is None else array for array in (in_offsets, in_columns, hubs, closed))
    cuts = (np.uint32(cut) for cut in (layout.TABLE_DEGREE, layout.LARGE_DEGREE, layout.CHUNK_EDGES))
    kernel((-(-rows // _THREADS),), (_THREADS,), (row_offsets, columns, *arrays, np.int64(rows), *cuts, sums))
    last, connected, max_degree, max_others, chunks, _ = cupy.asnumpy(sums).tolist()
    # Without in-edges, any row may be the target of another rank's edge.
    used = rows if in_csr is None else -(-last // WORD_BITS) * WORD_BITS
    groups = -(-used // layout.GROUP_ROWS)
    common = cupy.empty(max(1, groups), np.uint32)
    if groups:
        blocks = -(-groups * _LANES // _THREADS)
        kernel = module.get_function("dbfs_common_degrees")
        kernel((blocks,), (_THREADS,), (row_offsets, np.int64(used), common, sums[-1:]))
    ids = stripe.p * rows
    # The hubs of several ranks may all lie on others.
    has_hubs = stripe.p > 1 or max_degree > layout.LARGE_DEGREE
    if in_csr is not None and has_hubs and 4 * ids <= device_memory.free_bytes() // 8:
        uses = cupy.zeros(ids, np.uint32)
        blocks = -(-max(1, in_csr[1].size) // (_THREADS * _EDGES))
        module.get_function("dbfs_uses")((blocks,), (_THREADS,), (in_csr[1], np.int64(in_csr[1].size), uses))
        arguments = (*in_csr, uses, np.int64(rows), hubs)
        module.get_function("dbfs_hubs")((-(-rows // _THREADS),), (_THREADS,), arguments)
    table = None
    log = 2 if max_others <= 4 else 3
    table_bytes = 4 * rows << log
    if stripe.p == 1 and 0 < max_others <= layout.TABLE_DEGREE and table_bytes <= device_memory.free_bytes() // 8:
        table = cupy.empty((rows, 1 << log), np.uint32)
        listed = (row_offsets, columns, np.int64(rows))
        module.get_function("dbfs_table")((-(-rows // _THREADS),), (_THREADS,), (*listed, np.uint32(log), table))
    return DeviceGraph(
        stripe=stripe,
        rank=rank,
        row_offsets=row_offsets,
        columns=columns,
        in_offsets=in_offsets,
        in_columns=in_columns,
        hubs=hubs,
        closed=closed,
        rows_used=used,
        connected=connected,
        max_degree=max_degree,
        chunks=chunks,
        common=common,
        mixed=int(sums[-1]),
        table=table,
    )
