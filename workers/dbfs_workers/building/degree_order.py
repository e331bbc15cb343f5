"""How a build makes the order by degree: see ``search.partition.ordering``."""

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.building.pieces import check_ids
from dbfs_workers.search.partition.ordering import DegreeOrder


def count_degrees(
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    n: int,
    *,
    symmetrise: bool,
    name: str,
    degrees: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Return the number of edges that start or end at each vertex, int64[n], added to ``degrees`` if given.

    In a symmetrised graph this is the degree. In a directed graph it is the sum of both degrees, so that vertices with
    many in-edges are hubs as well.

    Errors as for ``check_ids``.
    """
    # Imported here because the import compiles CPU kernels, which an order made on a GPU does not need.
    from dbfs_workers.building.kernels import building as kernels

    src, dst = check_ids(src, dst, n, name)
    degrees = np.zeros(n, np.int64) if degrees is None else degrees
    kernels.count_both_ends(src, dst, symmetrise, degrees)
    return degrees


def degree_order(degrees: NDArray[np.int64]) -> DegreeOrder:
    """Return the order by falling degree; vertices of equal degree stay in the order of their ids."""
    vertex = np.argsort(-degrees, kind="stable").astype(np.uint32)
    position = np.empty_like(vertex)
    position[vertex] = np.arange(vertex.size, dtype=np.uint32)
    return DegreeOrder(position, vertex)
