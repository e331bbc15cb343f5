"""Living partitions on a GPU: each update makes a new CSR (``kernels/merging.cu``). See ``versions`` for CPUs.

A GPU copies all columns of a rank in less time than it sorts a large update, so it makes a new CSR, without pages:
see docs/decisions/living-graphs.md. The CSR before stays as it is.
"""

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import InvalidOptionError
from dbfs_workers.building import cuda as building
from dbfs_workers.building.bin_store import BinStore
from dbfs_workers.features.living.kernels.sources import MERGING
from dbfs_workers.features.living.pages import Changes, Order
from dbfs_workers.features.living.update_spec import UpdateSpec
from dbfs_workers.features.living.versions import NextVersion, with_ids, with_vertices
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.partition.partition import Csr, Partition, require_present

# ``sums`` of merging.cu: the last one is the first key without effect.
_SUMS: Final = 7
_NO_KEY: Final = 2**64 - 1
# Of a key: its index (8), the columns that it adds (8), and their sums and the sums' copy (16).
_PLAN_BYTES: Final = 32
MOST_LOGGED: Final = 1 << 16
"""Keys of an update whose changes are logged. With more of them, a new traversal takes less time than a repair."""


def merged(csr: Csr, keys: Any, order: Order, *, directed: bool, delete: bool, where: str) -> tuple[Csr, Changes]:
    """Return the CSR after an update, and what the update does.

    Args:
        csr: the CSR before, on the GPU: it is returned if the update changes nothing.
        keys: uint64 on the GPU, in any order (see ``Order.keys``); sorted afterwards.
        order, directed, delete: as of ``Pages.changed``.
        where: the rank and what it does, for errors.

    Errors as for ``device_memory.require``.
    """
    import cupy

    offsets, columns = csr.row_offsets, csr.columns
    size, rows = np.int64(keys.size), np.int64(offsets.size - 1)
    # The maximum, not the sum: the sort's second buffer is released before.
    device_memory.require(max(building.sort_bytes(keys.nbytes), _PLAN_BYTES * keys.size), where)
    keys.sort()
    places, amounts = cupy.empty(keys.size, np.int64), cupy.zeros(keys.size + 1, np.int64)
    found = np.zeros(_SUMS, np.uint64)
    found[-1] = _NO_KEY
    sums = cupy.asarray(found)
    ranks, n_local = np.uint32(order.ranks), np.uint32(order.stripe.n_local)
    row_order = (np.uint32(order.first_id), ranks, n_local, np.uint32(directed), np.uint32(delete))
    plan = (keys, size, offsets, columns, *row_order, places, amounts, sums)
    building.launch(MERGING, "dbfs_plan_changes", keys.size, plan)
    # Before each key, the columns of the keys before it.
    before = cupy.cumsum(amounts)
    effective = cupy.asnumpy(keys[amounts[1:] > 0]) if keys.size <= MOST_LOGGED else None
    del amounts
    sign = -1 if delete else 1
    total = sign * int(before[-1])
    if total:
        device_memory.require(8 * offsets.size + 4 * (columns.size + total), where)
        new_offsets, new_columns = cupy.empty_like(offsets), cupy.empty(columns.size + total, np.uint32)
        arguments = (keys, size, before, offsets, rows, np.uint32(delete), new_offsets, sums)
        building.launch(MERGING, "dbfs_merged_offsets", offsets.size, arguments, whole=True)
        if not delete:
            insertion = (keys, size, places, before, ranks, n_local, new_columns)
            building.launch(MERGING, "dbfs_insert_columns", keys.size, insertion)
        moves = (columns, np.int64(columns.size), places, before, size, np.uint32(delete), new_columns)
        building.launch(MERGING, "dbfs_move_columns", columns.size, moves)
        csr = Csr(new_offsets, new_columns)
    edges, refused, _, self_loops, duplicates, changed, first_refused = cupy.asnumpy(sums).tolist()
    refused_key = None
    if first_refused != _NO_KEY:
        refused_key = order.edge(cupy.asnumpy(keys[first_refused : first_refused + 1]), 0)
    counts = (edges, refused, total, sign * self_loops, sign * duplicates, changed)
    return csr, Changes(*counts, refused_key, effective)


UpdateEdges = BinStore | Any | None
"""Edges of an update on their rank: bins, or keys on the GPU in any order (see ``pages.Order.keys``)."""

# Of an edge of an update: its ends as they came (8 bytes) and as int64 (16), and its keys.
_END_BYTES = 24


def updated(partition: Partition, spec: UpdateSpec, edges: UpdateEdges, in_edges: UpdateEdges) -> NextVersion:
    """Return a partition's next version, on the GPU. Arguments and errors as for ``versions.updated``."""
    import cupy

    partition = partition.on(cupy)
    if spec.kind == "link":
        raise InvalidOptionError("storage='pages' needs exchange='cuda_ipc', on a GPU of the worker's own")
    if spec.kind in ("compact", "freeze", "thaw"):
        # A CSR has no free pages, and takes updates as it is.
        return NextVersion(partition)
    version, where = partition.version + 1, f"rank {partition.rank}, changing its edges"
    if spec.kind == "insert-vertices":
        stripe, vertices = with_vertices(partition, spec.count)
        deleted = np.setdiff1d(partition.deleted, vertices, assume_unique=True)
        return NextVersion(replace(partition, stripe=stripe, deleted=deleted, version=version), vertices=vertices)
    stripe, later, fresh = with_ids(partition, spec)
    order, delete = Order(stripe, partition.rank, spec.hub_first), spec.kind != "insert-edges"
    keys = keys_of_update(order, spec, edges, where, reverse=False)
    if not delete and partition.deleted.size:
        require_present(partition, np.concatenate(order.ends(cupy.asnumpy(keys))))
    directed = partition.directed
    out, changes = merged(partition.out_edges, keys, order, directed=directed, delete=delete, where=where)
    into = partition.in_edges
    if into is not None:
        in_keys = keys_of_update(order, spec, in_edges, where, reverse=True)
        into, _ = merged(into, in_keys, order, directed=True, delete=delete, where=where)
    vertices = np.setdiff1d(spec.vertices, partition.deleted)
    following = replace(
        partition,
        stripe=stripe,
        later=later,
        row_offsets=out.row_offsets,
        columns=out.columns,
        in_edges=into,
        self_loops=partition.self_loops + changes.self_loops,
        duplicates=partition.duplicates + changes.duplicates,
        version=version,
        deleted=np.union1d(partition.deleted, vertices) if vertices.size else partition.deleted,
    )
    absent = np.unique(spec.vertices).size - vertices.size
    return NextVersion(following, changes, vertices if delete else fresh, absent)


def update_keys(
    partition: Partition, src: NDArray[np.uint32], dst: NDArray[np.uint32], *, symmetrise: bool
) -> tuple[Any, Any | None]:
    """Return the keys of an update's edges and, if the partition has in-edges, those of their reverses, on the GPU.

    Arguments and errors as for ``versions.update_keys``.
    """
    import cupy

    where = f"rank {partition.rank}, binning a batch of {src.size:,} edges"
    has_in_edges = partition.directed and partition.in_edges is not None
    directed_edges = src.size * (2 if symmetrise else 1)
    device_memory.require(_END_BYTES * src.size + building.KEY_BYTES * directed_edges * (1 + has_in_edges), where)
    ends = [cupy.asarray(side).astype(np.int64) for side in (src, dst)]
    keys = _own_keys(partition, *ends, symmetrise=symmetrise, where=where)
    return keys, _own_keys(partition, *reversed(ends), symmetrise=symmetrise, where=where) if has_in_edges else None


def _own_keys(partition: Partition, src: Any, dst: Any, *, symmetrise: bool, where: str) -> Any:
    """Return the keys of those edges that start in the rank's rows."""
    stripe, rank = partition.stripe, partition.rank
    rows = (0, stripe.n_local)
    binned = building.bin_edges(src, dst, stripe, symmetrise=symmetrise, name="the batch", where=where, rows=rows)
    first, end = binned.starts[rank : rank + 2].tolist()
    # A copy, so that the keys of other ranks are freed.
    return binned.keys if stripe.p == 1 else binned.keys[first:end].copy()


def keys_of_update(order: Order, spec: UpdateSpec, edges: UpdateEdges, where: str, *, reverse: bool) -> Any:
    """Return the keys of an update's edges, or of their reverses, on the GPU; the spec itself may have the edges."""
    import cupy

    if spec.edges is not None:
        src, dst = spec.edges
        return cupy.asarray(order.keys_of(dst, src) if reverse else order.keys_of(src, dst))
    assert edges is not None
    if not isinstance(edges, BinStore):
        return edges
    keys, _ = order.gathered(edges)
    device_memory.require(keys.nbytes, where)
    return cupy.asarray(keys)
