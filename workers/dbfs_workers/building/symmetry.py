"""Whether edges are there in both directions: the imbalance of a graph's edges, and the reverses that it lacks.

An edge (u, v) adds ``q(u) g(v) - q(v) g(u)`` to the imbalance, modulo 2^64, and its reverse the same with the other
sign. So the imbalance is 0 if each edge is there as often as its reverse; else the chance of 0 is about 2^-64. Here x
is the vertex's number plus one, times 2^64 over the golden ratio; q is the upper half of x, and g is x + q^2. No edge
between two vertices adds 0.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.building.pieces import Edges
from dbfs_workers.search.partition.partition import Csr, Partition, array_module

MODULUS = 1 << 64
MISSING_BYTES = 100
"""Bytes of memory that ``missing_reverses`` takes for an edge: the ends, the keys and the counts of both directions."""
_FACTOR, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
# Edges of which the imbalance is computed at once on a GPU, with about 60 bytes of memory each.
_GPU_ITEMS = 1 << 22


def imbalance_of_edges(src: Any, dst: Any) -> int:
    """Return the imbalance of edges: arrays of vertices, or of other numbers below 2^32, of NumPy or CuPy."""
    x, y = (ends.astype(np.uint64) * _FACTOR + _FACTOR for ends in (src, dst))
    q, r = x >> _HALF, y >> _HALF
    return int((q * (y + r * r) - r * (x + q * q)).sum())


def imbalance(rows: Csr, first_id: int, threads: int = 1) -> int:
    """Return the imbalance of a rank's edges.

    Args:
        rows: adjacency lists with internal ids as columns, on the host or on the GPU.
        first_id: internal id of the first row.
        threads: threads of this process, for rows on the host.
    """
    if isinstance(rows.columns, np.ndarray):
        return imbalance_and_largest(rows, first_id, threads)[0]
    return imbalance_on(array_module(rows.columns), rows, first_id)


def imbalance_on(xp: Any, rows: Csr, first_id: int) -> int:
    """Return the imbalance of a rank's edges, in arrays of the module ``xp``; others as of ``imbalance``."""
    total = 0
    for start in range(0, rows.columns.size, _GPU_ITEMS):
        targets = rows.columns[start : start + _GPU_ITEMS]
        own = xp.searchsorted(rows.row_offsets, xp.arange(start, start + targets.size), side="right") - 1
        total += imbalance_of_edges(own + first_id, targets)
    return total % MODULUS


def imbalance_and_largest(rows: Csr, first_id: int, threads: int) -> tuple[int, int]:
    """Return the imbalance of a rank's edges on the host, and their largest column (0 without edges), in one pass."""
    offsets, columns = rows.row_offsets, rows.columns
    # Imported here because the import compiles kernels, and GPUs need none of these.
    from dbfs_workers.search.partition.kernels.rows import imbalance_of_rows

    cuts = np.searchsorted(offsets, np.linspace(0, columns.size, threads + 1)[1:-1]).tolist()
    parts = list(pairwise([0, *cuts, offsets.size - 1]))
    with ThreadPoolExecutor(threads) as pool:
        run = pool.map if threads > 1 else map
        found = list(run(lambda part: imbalance_of_rows(offsets, columns, first_id, *part), parts))
    return sum(int(part) for part, _ in found) % MODULUS, max(int(largest) for _, largest in found)


def missing_reverses(src: NDArray[np.int64], dst: NDArray[np.int64], there: Edges | None = None) -> Edges:
    """Return the reverses of edges, each as often as it is missing.

    Args:
        src, dst: the edges: vertices below 2^32.
        there: the edges among which the reverses are looked for; those themselves if None.

    Returns:
        Sources and targets of what is missing, ascending by target and then source.
    """
    wanted, found = np.sort(_keys(src, dst)), np.sort(_keys(*((src, dst) if there is None else there)[::-1]))
    # A key's number among its equals: the second one is missing if only one is there.
    number = np.arange(wanted.size) - np.searchsorted(wanted, wanted)
    count = np.searchsorted(found, wanted, side="right") - np.searchsorted(found, wanted)
    missing = wanted[number >= count]
    return (missing & np.uint64(2**32 - 1)).astype(np.int64), (missing >> _HALF).astype(np.int64)


def missing_of(partition: Partition) -> Edges:
    """Return the edges of a rank's rows that are missing as reverses of its in-edges; see ``missing_reverses``."""
    assert partition.in_edges is not None
    ends = []
    for csr in (partition.out_edges, partition.in_edges):
        rows = np.repeat(np.arange(csr.row_offsets.size - 1), np.diff(csr.row_offsets))
        other = partition.stripe.vertex(csr.columns.astype(np.int64))
        ends.append((rows * partition.stripe.p + partition.rank, other))
    out, (own, origin) = ends
    return missing_reverses(origin, own, there=out)


def _keys(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.uint64]:
    return (first.astype(np.uint64) << _HALF) | second.astype(np.uint64)
