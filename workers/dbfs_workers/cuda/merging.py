"""Changes of a batch merged with a CSR on the GPU: the steps of ``storage.pages`` for GPUs (``building/merging.cu``).

A GPU copies all columns of a rank in less time than it sorts a large batch, so a batch makes a new CSR, without pages:
see docs/decisions/living-graphs.md. The CSR before stays as it is.
"""

from typing import Any, Final

import numpy as np

from dbfs_workers.cuda import building, device_memory
from dbfs_workers.storage.pages import Changes, Order
from dbfs_workers.storage.partition import Csr

_SOURCE: Final = "building/merging.cu"
# ``sums`` of merging.cu: the last one is the first key without effect.
_SUMS: Final = 7
_NO_KEY: Final = 2**64 - 1
# Of a key: its index (8), the columns that it adds (8), and their sums and the sums' copy (16).
_PLAN_BYTES: Final = 32
# Keys of a batch whose changes are logged. With more of them, a new traversal takes less time than a repair.
_MOST_LOGGED: Final = 1 << 16


def merged(csr: Csr, keys: Any, order: Order, *, directed: bool, delete: bool, where: str) -> tuple[Csr, Changes]:
    """Return the CSR after a batch, and what the batch does.

    Args:
        csr: the CSR before, on the GPU: it is returned if the batch changes nothing.
        keys: uint64 on the GPU, in any order (see ``Order.keys``); sorted afterwards.
        order: the order of a row's columns.
        directed: whether each key counts as an edge.
        delete: whether the edges are deleted; else they are inserted.
        where: the rank and what it does, for errors.

    Raises:
        GraphTooLargeError: the merged CSR, or what finds it, does not fit the GPU.
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
    building.launch(_SOURCE, "dbfs_plan_changes", keys.size, plan)
    # Before each key, the columns of the keys before it.
    before = cupy.cumsum(amounts)
    effective = cupy.asnumpy(keys[amounts[1:] > 0]) if keys.size <= _MOST_LOGGED else None
    del amounts
    sign = -1 if delete else 1
    total = sign * int(before[-1])
    if total:
        device_memory.require(8 * offsets.size + 4 * (columns.size + total), where)
        new_offsets, new_columns = cupy.empty_like(offsets), cupy.empty(columns.size + total, np.uint32)
        arguments = (keys, size, before, offsets, rows, np.uint32(delete), new_offsets, sums)
        building.launch(_SOURCE, "dbfs_merged_offsets", offsets.size, arguments, whole=True)
        if not delete:
            insertion = (keys, size, places, before, ranks, n_local, new_columns)
            building.launch(_SOURCE, "dbfs_insert_columns", keys.size, insertion)
        moves = (columns, np.int64(columns.size), places, before, size, np.uint32(delete), new_columns)
        building.launch(_SOURCE, "dbfs_move_columns", columns.size, moves)
        csr = Csr(new_offsets, new_columns)
    edges, refused, _, self_loops, duplicates, changed, first_refused = cupy.asnumpy(sums).tolist()
    refused_key = None
    if first_refused != _NO_KEY:
        refused_key = order.edge(cupy.asnumpy(keys[first_refused : first_refused + 1]), 0)
    counts = (edges, refused, total, sign * self_loops, sign * duplicates, changed)
    return csr, Changes(*counts, refused_key, effective)
