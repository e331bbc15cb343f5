"""Living partitions on a GPU: each batch merges into a new CSR (``cuda.merging``). See ``storage.living`` for CPUs."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.cuda import building, device_memory, merging
from dbfs_workers.storage.edge_bins import BinStore
from dbfs_workers.storage.living import Updated, with_ids, with_vertices
from dbfs_workers.storage.pages import Order
from dbfs_workers.storage.partition import Partition, require_present
from dbfs_workers.storage.update_spec import UpdateSpec

BatchEdges = BinStore | Any | None
"""Edges of a batch on their rank: bins, or keys on the GPU in any order (see ``pages.Order.keys``)."""

# Of an edge of a batch: its ends as they came (8 bytes) and as int64 (16), and its keys.
_END_BYTES = 24


def updated(partition: Partition, spec: UpdateSpec, edges: BatchEdges, in_edges: BatchEdges) -> Updated:
    """Return a partition's next version, on the GPU. The partition stays as it is.

    Arguments as for ``storage.living.updated``.

    Raises:
        GraphTooLargeError: the version does not fit the GPU, or the stripe has no room for the new vertices.
        InvalidVertexError: an edge to insert has an end that was deleted.
        NumberedBeforeError: see ``storage.living.with_ids``.
    """
    import cupy

    partition = partition.on(cupy)
    if spec.kind in ("compact", "freeze", "thaw"):
        # A CSR has no free pages, and takes updates as it is.
        return Updated(partition)
    version, where = partition.version + 1, f"rank {partition.rank}, changing its edges"
    if spec.kind == "insert-vertices":
        stripe, vertices = with_vertices(partition, spec.count)
        deleted = np.setdiff1d(partition.deleted, vertices, assume_unique=True)
        return Updated(replace(partition, stripe=stripe, deleted=deleted, version=version), vertices=vertices)
    stripe, later, fresh = with_ids(partition, spec)
    order, delete = Order(stripe, partition.rank, spec.hub_first), spec.kind != "insert-edges"
    keys = _keys(order, spec, edges, where, reverse=False)
    if not delete and partition.deleted.size:
        require_present(partition, np.concatenate(order.ends(cupy.asnumpy(keys))))
    directed = partition.directed
    out, changes = merging.merged(partition.out_edges, keys, order, directed=directed, delete=delete, where=where)
    into = partition.in_edges
    if into is not None:
        in_keys = _keys(order, spec, in_edges, where, reverse=True)
        into, _ = merging.merged(into, in_keys, order, directed=True, delete=delete, where=where)
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
    return Updated(following, changes, vertices if delete else fresh, absent)


def batch_keys(
    partition: Partition, src: NDArray[np.uint32], dst: NDArray[np.uint32], *, symmetrise: bool
) -> tuple[Any, Any | None]:
    """Return the keys of a batch's edges on the GPU and, if the partition has in-edges, those of their reverses.

    Arguments as for ``storage.living.batch_keys``.

    Raises:
        GraphTooLargeError: the batch does not fit the GPU.
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


def _keys(order: Order, spec: UpdateSpec, edges: BatchEdges, where: str, *, reverse: bool) -> Any:
    """Return the keys of a batch's edges, or of their reverses, on the GPU; the spec itself may have the edges."""
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
