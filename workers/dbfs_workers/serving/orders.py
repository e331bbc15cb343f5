"""The order by degree beside the ranks' edges, where reads of labels and checks of edges look vertices up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dbfs_workers.building.gpu_data import GpuResident
from dbfs_workers.search.cuda.failures import typed_errors
from dbfs_workers.search.partition.partition import InputEdges, RankEdges, array_module

if TYPE_CHECKING:
    from dbfs_workers.search.partition.ordering import DegreeOrder


@dataclass(frozen=True)
class OrderOnGpu(GpuResident):
    """A ``DegreeOrder`` on a rank's GPU. Attributes as there, CuPy's."""

    position: Any
    vertex: Any


def place_order(order: DegreeOrder, edges: list[InputEdges] | RankEdges) -> DegreeOrder | OrderOnGpu:
    """Return the order where a rank's edges are, on the host or on its GPU. A GPU's errors are
    dbfs's, which a client without CuPy can read."""
    if isinstance(edges, list):
        xp = array_module(edges[0][0]) if edges else np
    else:
        xp = array_module(next(edges.parts()).columns)
    if xp is np:
        return order

    with typed_errors("placing the degree order"):
        return OrderOnGpu(xp.asarray(order.position), xp.asarray(order.vertex))
