"""Connected components on the workers: the set that one traversal reached is a component, union-find finds the others.

Each rank unites the ends of its own edges, except the edges of reached rows: those lead to reached vertices only, in a
directed graph as well, whose weak components are meant. The ranks' forests are then united by twos, so that the rounds
depend on the number of ranks alone, not on the number or the depth of the components.

The functions are Dask tasks. They import Numba kernels where they run, so that a client never does.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.partition.partition import RankEdges
from dbfs_workers.search.partition.stripe import Stripe

Forest = NDArray[np.uint32]
"""uint32[p * n_local], the internal id of the root of each internal id's tree."""


def reached_bits(distances: NDArray[np.int32], stripe: Stripe) -> NDArray[np.uint32]:
    """Return a rank's slice of the bitmap of reached vertices: uint32[words_local]."""
    rows = np.zeros(stripe.n_local, bool)
    rows[: distances.size] = distances >= 0
    return np.packbits(rows, bitorder="little").view(np.uint32)


def own_forest(edges: RankEdges, reached: Sequence[NDArray[np.uint32]]) -> Forest:
    """Return the forest of a rank's edges, given the slices of the bitmap of reached vertices by rank."""
    from dbfs_workers.features.components.kernels import components as kernels

    whole = np.concatenate(reached)
    parents = np.empty(edges.stripe.p * edges.stripe.n_local, np.uint32)
    kernels.plant(whole, parents)
    for part in edges.parts():
        rows, first_id = part.on(np), part.rank * part.stripe.n_local
        kernels.unite_rows(rows.row_offsets, rows.columns, first_id, whole, parents)
    kernels.flatten(parents)
    return parents


def united(forest: Forest, other: Forest) -> Forest:
    """Return the forest that connects whatever one of two forests connects."""
    from dbfs_workers.features.components.kernels import components as kernels

    parents = forest.copy()
    kernels.unite_forests(other, parents)
    kernels.flatten(parents)
    return parents


def roots(forest: Forest, stripe: Stripe) -> NDArray[np.uint32]:
    """Return uint32[n], the internal id of each vertex's root (of each position's, in a graph ordered by degree)."""
    by_row = forest.reshape(stripe.p, stripe.n_local).T
    return np.ascontiguousarray(by_row).ravel()[: stripe.n]
