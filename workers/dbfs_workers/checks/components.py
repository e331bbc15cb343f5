"""Connected components on the workers: what one traversal reached is one of them, union-find makes the others.

Each rank unites the ends of its own edges, but for those of reached rows: they lead to reached vertices only, in a
directed graph as well, where components are the weak ones. The ranks' forests are then united by twos, so that neither
the number of the components nor their depth costs a round.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.checks import components_kernels as kernels
from dbfs_workers.storage.partition import Partition
from dbfs_workers.storage.stripe import Stripe

Forest = NDArray[np.uint32]
"""uint32[p * n_local], the internal id of the root of each internal id's tree."""


def reached_bits(distances: NDArray[np.int32], stripe: Stripe) -> NDArray[np.uint32]:
    """A rank's slice of the bitmap of reached vertices: uint32[words_local]."""
    rows = np.zeros(stripe.n_local, bool)
    rows[: distances.size] = distances >= 0
    return np.packbits(rows, bitorder="little").view(np.uint32)


def own_forest(partition: Partition, reached: Sequence[NDArray[np.uint32]]) -> Forest:
    """What a rank's edges connect, given the slices of the bitmap of reached vertices by rank."""
    whole = np.concatenate(reached)
    parents = np.empty(partition.stripe.p * partition.stripe.n_local, np.uint32)
    kernels.plant(whole, parents)
    first_id = partition.rank * partition.stripe.n_local
    kernels.unite_rows(partition.row_offsets, partition.columns, first_id, whole, parents)
    kernels.flatten(parents)
    return parents


def united(forest: Forest, other: Forest) -> Forest:
    """What two forests connect together."""
    parents = forest.copy()
    kernels.unite_forests(other, parents)
    kernels.flatten(parents)
    return parents


def roots(forest: Forest, stripe: Stripe) -> NDArray[np.uint32]:
    """uint32[n], the internal id of the root of each vertex (of each position, in a graph ordered by degree)."""
    by_row = forest.reshape(stripe.p, stripe.n_local).T
    return np.ascontiguousarray(by_row).ravel()[: stripe.n]
