"""Labels of a graph ordered by degree, in the order of its vertices (launch of ``kernels/by_vertex.cu``)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.building import cuda as building
from dbfs_workers.search.cuda.failures import typed_errors
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.serving.reads.kernels.sources import BY_VERTEX


def write(
    stripe: Stripe, rank: int, values: Any, into: NDArray[Any], first: int, order: Any, *, predecessors: bool
) -> None:
    """Write a rank's labels of consecutive vertices, and set all bits of the labels of other ranks' vertices.

    Args:
        stripe, rank: how the graph lies on the ranks, and the rank.
        values: the labels of the rank's rows, CuPy's: int32 distances, uint32 predecessors (internal ids), or int64
            predecessors (positions).
        into: uint8, uint16 or uint32, one a vertex, in host memory; gets the labels' lowest bits.
        first: the first vertex.
        order: the graph's order by degree, attributes as in ``DegreeOrder``.
        predecessors: whether the labels are predecessors, which are written as vertices.

    Errors as for ``typed_errors``.
    """
    import cupy

    with typed_errors(f"rank {rank}, writing its labels"):
        rows = stripe.n_local if predecessors and values.dtype == np.uint32 else 0
        # -1 becomes NO_VERTEX.
        labels = cupy.asarray(values)
        labels = labels.view(np.uint32) if labels.itemsize == 4 else labels.astype(np.uint32)
        position = cupy.asarray(order.position)
        vertex = cupy.asarray(order.vertex) if predecessors else np.uint64(0)
        out = cupy.empty(into.size, into.dtype)
        where = (np.int64(first), np.int64(into.size), np.uint32(rank), np.uint32(stripe.p), np.uint32(rows))
        name = f"dbfs_by_vertex_{into.itemsize}"
        building.launch(BY_VERTEX, name, into.size, (labels, position, vertex, *where, out))
        out.get(out=into)
