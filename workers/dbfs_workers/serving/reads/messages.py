"""The messages by which a client reads labels, ids and edges. ``server`` answers them on a worker."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.serving.messages import WorkerMessage
from dbfs_workers.serving.reads.label_buffer import BufferHandle
from dbfs_workers.serving.rpc import A_co

MOST_STEPS: Final = 512
"""Most vertices that a rank walks in one call, so that no call takes long on a GPU, where each takes a copy."""


@dataclass(frozen=True)
class KeptLabels:
    """Labels that a rank keeps.

    Attributes:
        graph_id: the graph that was traversed.
        run_id: the run that made the traversal.
        index: the traversal's index in the run.
    """

    graph_id: str
    run_id: str
    index: int


@dataclass(frozen=True)
class LabelData:
    """Labels that are Dask data of a worker.

    Attributes:
        distances: key of the distances, int32.
        predecessors: key of the predecessors, int64; None if the traversal recorded none.
    """

    distances: Hashable
    predecessors: Hashable | None


@dataclass(frozen=True)
class ReadMessage(WorkerMessage[A_co]):
    """Base of the messages.

    Attributes:
        place: where the rank has the labels.
        rank: the worker's rank.

    Raises:
        ResultReleasedError: the labels were released, or Dask has moved them to another worker.
        StaleRunError: the worker is not a rank of that gang.
    """

    place: KeptLabels | LabelData
    stripe: Stripe
    rank: int


@dataclass(frozen=True)
class ReadRows(ReadMessage[NDArray[np.uint32]]):
    """Return labels of consecutive rows, in the form that ``reads.server`` describes.

    Attributes:
        label: ``distances`` or ``predecessors``.
        first, last: the first row, and the row after the last; rows that the rank lacks are left out.
    """

    label: str
    first: int
    last: int


@dataclass(frozen=True)
class WriteLabels(ReadMessage[bool]):
    """Write labels into a slot of the client's buffer; return False if the worker can't open the buffer.

    Attributes:
        label: ``distances`` or ``predecessors``.
        buffer: the client's buffer.
        first: the slot's first vertex; None if the client wrote the positions of the slot's vertices there.
        count: number of vertices.
    """

    label: str
    buffer: BufferHandle
    slot: int
    first: int | None
    count: int


@dataclass(frozen=True)
class WriteByVertex(ReadMessage[bool]):
    """Write labels of consecutive vertices of a graph ordered by degree into the rank's section of a slot, from a GPU.

    Returns False if the worker can't open the buffer.

    Attributes:
        label: ``distances`` or ``predecessors``.
        buffer: the client's buffer.
        first: the first vertex.
        count: number of vertices.
        width: bytes of a label: 1, 2 or 4. Its bits are the lowest of the label as it travels (``server``); all of
            them are set for an unreached vertex, and for another rank's.
        order: Dask key of the order beside the rank's edges (``serving.orders.place_order``).

    Raises:
        StaleRunError: the worker does not have the order: the graph was unloaded.
        GraphTooLargeError, DeviceFailedError: the rank's GPU is full, or failed.
    """

    label: str
    buffer: BufferHandle
    slot: int
    first: int
    count: int
    width: int
    order: Hashable


@dataclass(frozen=True)
class FindRows(ReadMessage[NDArray[np.uint32]]):
    """Return the rows at a distance of ``least`` to ``most``, and their labels; see ``RankRows.between``.

    Attributes:
        least, most: the distances; -1 is that of unreached vertices.
        labels: the labels to return, ``distances`` or ``predecessors``.
    """

    least: int
    most: int
    labels: tuple[str, ...]


@dataclass(frozen=True)
class FindChanged(ReadMessage[NDArray[np.uint32]]):
    """Return the rows, ascending, whose distance the repair of the labels has changed; none for labels of a traversal.

    Raises:
        ResultReleasedError: the labels are Dask data, which keeps no changes.
    """


@dataclass(frozen=True)
class Walk(ReadMessage[tuple[list[int], bool]]):
    """Follow predecessors on the rank; return what ``RankRows.walk`` returns.

    Attributes:
        position: where to begin, a position that the rank owns.
    """

    position: int


@dataclass(frozen=True)
class WalkAll(ReadMessage[NDArray[np.int64]]):
    """Follow predecessors on the rank from many positions; return what ``RankRows.walk_all`` returns.

    Attributes:
        positions: int64, where to begin, positions that the rank owns.
    """

    positions: NDArray[np.int64]


@dataclass(frozen=True)
class FindVertices(WorkerMessage[NDArray[np.int64]]):
    """Return the vertices of ids, -1 for an id that the rank's table lacks.

    Attributes:
        table: Dask key of the ``ids.table.IdTable``.
        ids: the ids, in the form of ``ids.table.as_ids``.

    Raises:
        StaleRunError: the worker does not have the table: the graph was unloaded.
    """

    table: Hashable
    ids: Any


@dataclass(frozen=True)
class FindIds(WorkerMessage[Any]):
    """Return the ids of vertices of the rank's table, in the form of ``ids.table.as_ids``.

    Attributes:
        table: Dask key of the ``ids.table.IdTable``.
        vertices: the vertices; None for all of the table's.

    Errors as for ``FindVertices``.
    """

    table: Hashable
    vertices: NDArray[np.int64] | None


@dataclass(frozen=True)
class FindIdsAround(WorkerMessage[list[Any]]):
    """Return ids around one that the rank's table lacks; see ``IdTable.around``.

    Attributes:
        table: Dask key of the ``ids.table.IdTable``.
        one: an integer, string or tuple.

    Errors as for ``FindVertices``.
    """

    table: Hashable
    one: Any


@dataclass(frozen=True)
class FindLaterVertices(WorkerMessage[list[int]]):
    """Return the vertices of ids that came after the load, -1 for an id that the graph lacks. Any rank can answer.

    Attributes:
        partition: Dask key of the rank's partition.
        ids: Python's integers, strings or tuples.
        n: number of vertices of the client's version.

    Raises:
        StaleRunError: see ``FindVertices``.
        LateError: the rank has yet to commit the first version with such ids.
    """

    partition: Hashable
    ids: list[Any]
    n: int


@dataclass(frozen=True)
class FindLaterIds(WorkerMessage[list[Any]]):
    """Return the ids of vertices that came after the load, as Python's values. Any rank can answer.

    Attributes:
        partition: Dask key of the rank's partition.

    Errors as for ``FindLaterVertices``.
    """

    partition: Hashable
    vertices: list[int]


@dataclass(frozen=True)
class ReadOrder(WorkerMessage[NDArray[np.uint32]]):
    """Return positions of vertices, or vertices at positions, of a graph ordered by degree.

    Attributes:
        order: Dask key of the ``ordering.DegreeOrder``, of which one rank or several have a copy.
        wanted: ``position`` or ``vertex``.
        indices: the vertices, or the positions.

    Errors as for ``FindVertices``.
    """

    order: Hashable
    wanted: str
    indices: NDArray[np.int64]


@dataclass(frozen=True)
class ReadNeighbours(WorkerMessage[NDArray[np.uint32]]):
    """Return the ends of the edges from a vertex that the rank has: internal ids, one for each edge.

    Attributes:
        partition: Dask key of the rank's partition.
        position: the vertex; its position, if the graph is ordered by degree.

    Raises:
        InvalidVertexError: the vertex was deleted.
        StaleRunError: the worker does not have the partition: the graph was unloaded.
    """

    partition: Hashable
    position: int
