"""The messages of shortest paths by weight. ``worker`` beside them answers them on a worker."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dbfs_workers.features.weights.columns import Prepared
from dbfs_workers.serving.messages import WorkerMessage
from dbfs_workers.serving.reads.messages import ReadMessage
from dbfs_workers.serving.rpc import PickledValue


@dataclass(frozen=True)
class PrepareWeights(WorkerMessage[PickledValue[Prepared]]):
    """Make a column ready for runs by it on the rank, if all edges have weights.

    Attributes:
        graph_id: the graph.
        partition: Dask key of the rank's partition.
        attributes: Dask key of the attributes of its edges: see ``Beside.edge_keys``.
        column: the column's name.
        path: whether it is for paths: see ``Weighted``.
        stripes: Dask keys of the partition and attributes of the same edges in stripes, which the rank then keeps; None
            if it is to use what it has.

    Raises:
        InvalidOptionError: the graph has no such column.
        InvalidOptionTypeError: the column has no numbers.
        StaleRunError: the graph was unloaded, or updated meanwhile.
    """

    graph_id: str
    partition: Hashable
    attributes: Hashable
    column: str
    path: bool
    stripes: tuple[Hashable, Hashable] | None = None


@dataclass(frozen=True)
class ReadWeighted(ReadMessage[list[NDArray[Any]]]):
    """Return the rows of a rank at some distances, ascending, their distances, and their predecessors.

    Attributes:
        least, most: the distances; a ``most`` of None is for all rows, the unreached ones among them.
        predecessors: whether predecessors are wanted: uint32 positions, ``NO_VERTEX`` for unreached rows.
    """

    least: int | float
    most: int | float | None
    predecessors: bool
