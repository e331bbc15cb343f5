"""A rank's part of a saved graph as it is in memory: the partition, the kept edges, the degree order.

Checksums find damage. The checks here find arrays that are whole and wrong, because a program other than dbfs wrote
them: no kernel may meet a column or a row offset that leads out of its arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.errors import FormatError
from dbfs_workers.storage.ordering import DegreeOrder
from dbfs_workers.storage.partition import Csr, InputEdges, Partition, array_module, on_host
from dbfs_workers.storage.saved.manifest import SavedRank
from dbfs_workers.storage.stripe import Stripe
from dbfs_workers.storage.symmetry import imbalance, imbalance_and_largest

# Items that are checked at once: few enough for the cache of a core.
_HOST_ITEMS = 2**17
# On a GPU a check costs a launch, and 13 bytes an item.
_GPU_ITEMS = 2**24


@dataclass(frozen=True)
class RankFacts:
    """A rank's place in a saved graph.

    Attributes:
        stripe: how the graph lies on the ranks.
        rank: the rank.
        directed: whether edges can be crossed in one direction only.
        input_edges: number of edges that the graph was built of.
    """

    stripe: Stripe
    rank: int
    directed: bool
    input_edges: int


def partition(saved: SavedRank, facts: RankFacts, arrays: list[Any], path: str, threads: int) -> Partition:
    """Make a rank's partition of its file's arrays, NumPy's or CuPy's.

    Args:
        saved: the manifest's entry of the rank.
        facts: the rank's place in the graph.
        arrays: those of the file.
        path: the file's path, for messages.
        threads: threads of this process.

    Raises:
        FormatError: a row offset or a column leads out of the arrays or to no vertex.
    """
    csrs = [Csr(offsets, columns) for offsets, columns in zip(arrays[::2], arrays[1::2], strict=True)]
    for csr in csrs:
        check_rows(csr, facts.stripe, facts.rank, path)
    for csr in csrs if facts.directed else csrs[1:]:
        check_columns(csr, facts.stripe, path)
    found = 0 if facts.directed else balance_columns(csrs[0], facts.stripe, facts.rank, path, threads)
    return Partition(
        facts.stripe,
        facts.rank,
        csrs[0].row_offsets,
        csrs[0].columns,
        saved.self_loops,
        saved.duplicates,
        facts.input_edges,
        facts.directed,
        csrs[1] if len(csrs) > 1 else None,
        imbalance=found,
    )


def input_edges(n: int, arrays: list[Any], path: str) -> list[InputEdges]:
    """Return the batches of edges in the arrays of a file of kept edges.

    Raises:
        FormatError: an id is not that of one of the ``n`` vertices.
    """
    for ids in arrays:
        if ids.size and int(ids.max()) >= n:
            raise FormatError(f"{path} has an edge of the vertex {int(ids.max())}; vertices are 0..{n - 1}")
    return list(zip(arrays[::2], arrays[1::2], strict=True))


def degree_order(vertex: Any, path: str) -> DegreeOrder:
    """Make a degree order of its vertices by position, NumPy's or CuPy's, on the host.

    Raises:
        FormatError: a vertex is missing, or occurs twice.
    """
    xp: Any = array_module(vertex)
    n = vertex.size
    position = xp.full(n, n, np.uint32)
    inside = not n or int(vertex.max()) < n
    if inside:
        position[vertex] = xp.arange(n, dtype=np.uint32)
    # n writes fill n places only if each goes to its own.
    if not inside or (n and int(position.max()) >= n):
        raise FormatError(f"{path} is not an order of the vertices 0..{n - 1}: a vertex is missing or occurs twice")
    return DegreeOrder(on_host(position), on_host(vertex))


def check_rows(csr: Csr, stripe: Stripe, rank: int, path: str) -> None:
    """Check that row offsets ascend over all columns, and that rows past the last vertex are empty.

    Raises:
        FormatError: a row offset is wrong.
    """
    offsets, columns = csr.row_offsets, csr.columns
    if int(offsets[0]) != 0 or int(offsets[-1]) != columns.size:
        raise FormatError(
            f"{path}: its rows begin at {int(offsets[0]):,} and end at {int(offsets[-1]):,} of {columns.size:,} columns"
        )
    owned = int(offsets[stripe.owned(rank)])
    if owned != columns.size:
        raise FormatError(f"{path}: {columns.size - owned:,} columns are of rows past the last vertex of rank {rank}")
    items, ascend = (_HOST_ITEMS, _ascend_here) if array_module(columns) is np else (_GPU_ITEMS, _ascend)
    for at in range(0, offsets.size - 1, items):
        if not ascend(offsets[at : at + items + 1]):
            raise FormatError(f"{path}: its row offsets do not ascend between the rows {at:,} and {at + items:,}")


def check_columns(csr: Csr, stripe: Stripe, path: str) -> None:
    """Check that columns are internal ids of vertices.

    Raises:
        FormatError: a column is none.
    """
    on_cpu = array_module(csr.columns) is np
    items, are_vertices = (_HOST_ITEMS, _are_vertices_here) if on_cpu else (_GPU_ITEMS, _are_vertices)
    for at in range(0, csr.columns.size, items):
        ids = csr.columns[at : at + items]
        if not are_vertices(ids, stripe):
            raise _no_vertex(stripe, path, at, at + ids.size)


def balance_columns(csr: Csr, stripe: Stripe, rank: int, path: str, threads: int) -> int:
    """Check the columns of an undirected graph, and return their imbalance.

    On the host one pass does both: a column that is none of the rows of all ranks is found here. One that is a row past
    the last vertex has no reverse, since those rows are empty, and so the graph's imbalance is not 0.

    Raises:
        FormatError: a column is no internal id.
    """
    first_id = rank * stripe.n_local
    if array_module(csr.columns) is not np:
        check_columns(csr, stripe, path)
        return imbalance(csr, first_id)
    found, largest = imbalance_and_largest(csr, first_id, threads)
    if largest >= stripe.p * stripe.n_local:
        raise _no_vertex(stripe, path, 0, csr.columns.size)
    return found


def _no_vertex(stripe: Stripe, path: str, start: int, stop: int) -> FormatError:
    return FormatError(
        f"{path}: a column between {start:,} and {stop:,} is the internal id of no vertex, with n = {stripe.n} on "
        f"{stripe.p} ranks"
    )


def _ascend_here(offsets: NDArray[np.int64]) -> bool:
    """Return whether row offsets on the host ascend."""
    # Imported here because the import compiles kernels, and GPUs need none of these.
    from dbfs_workers.storage.saved import check_kernels as kernels

    return bool(kernels.ascend(offsets))


def _are_vertices_here(columns: NDArray[np.uint32], stripe: Stripe) -> bool:
    """Return whether columns on the host are internal ids of vertices."""
    from dbfs_workers.storage.saved import check_kernels as kernels

    return bool(kernels.are_vertices(columns, stripe.n, stripe.p, stripe.n_local))


def _ascend(offsets: Any) -> bool:
    """Return whether row offsets on the GPU ascend."""
    return not bool((offsets[1:] < offsets[:-1]).any())


def _are_vertices(columns: Any, stripe: Stripe) -> bool:
    """Return whether columns on the GPU, at least one, are internal ids of vertices and not of padding rows."""
    if int(columns.max()) >= stripe.p * stripe.n_local:
        return False
    n_local = np.uint32(stripe.n_local)
    owner = columns // n_local
    row = columns - owner * n_local
    # A row below n // p is a vertex's on every rank.
    last = np.uint32(stripe.n // stripe.p)
    past = row >= last
    if not bool(past.any()):
        return True
    return bool((row[past].astype(np.int64) * stripe.p + owner[past] < stripe.n).all())
