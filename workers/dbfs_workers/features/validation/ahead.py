"""What a first graph on a GPU has CuPy compile, some 0.3 s a kernel: done ahead, on two vertices, by another process.

CuPy keeps its kernels on disk, where the workers find them.
"""

import numpy as np

from dbfs_workers.features.validation import tasks as validation
from dbfs_workers.features.validation.validation import PackedLabels
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.serving import queries


def run() -> None:
    """Choose sources of an edge, and validate the labels of a traversal of the edge."""
    import cupy

    stripe = Stripe(2, 1)
    offsets = np.full(stripe.n_local + 1, 2, np.int64)
    offsets[:2] = 0, 1
    partition = Partition(stripe, 0, offsets, np.array([1, 0], np.uint32), 0, 0, 1, False).on(cupy)
    queries.rows_with_neighbours(partition, np.arange(2))
    packed = PackedLabels(cupy.asarray(np.array([1 << 32, 2 << 32], np.uint64)), ())
    validation.check_partition(partition, [packed], True, False, None)


if __name__ == "__main__":
    run()
