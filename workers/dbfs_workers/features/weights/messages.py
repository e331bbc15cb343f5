"""The messages of shortest paths by weight. ``worker`` beside them answers them on a worker."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dbfs_workers.features.weights.columns import WrongWeight
from dbfs_workers.serving.messages import WorkerMessage
from dbfs_workers.serving.reads.messages import ReadMessage
from dbfs_workers.serving.rpc import PickledValue


@dataclass(frozen=True)
class PrepareWeights(WorkerMessage[PickledValue[WrongWeight | None]]):
    """Make a column ready for runs by it on the rank, if all edges have weights; return an edge without one.

    Attributes:
        graph_id: the graph.
        partition: Dask key of the rank's partition.
        attributes: Dask key of the attributes of its edges, whose ``out`` is an Arrow table.
        column: the column's name.
        path: whether it is for paths: see ``Weighted``.

    Raises:
        InvalidOptionError: the rank can't run by weight; or the graph has no such column.
        InvalidOptionTypeError: the column has no numbers.
        StaleRunError: the graph was unloaded.
    """

    graph_id: str
    partition: Hashable
    attributes: Hashable
    column: str
    path: bool


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
