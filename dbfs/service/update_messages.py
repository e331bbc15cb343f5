"""The messages of updates of a living graph. ``SchedulerService`` handles them, by ``updates.Updates``."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dbfs.records import GraphRecord
from dbfs.service.messages import SchedulerMessage
from dbfs_workers.rpc import Pickled
from dbfs_workers.storage.update_spec import UpdateSpec
from dbfs_workers.text import Identifier


@dataclass(frozen=True)
class UpdateReport:
    """The effects of an update.

    Attributes:
        record: the graph as it is now.
        edges: edges inserted or deleted.
        refused: duplicates of an insertion, or missing edges of a deletion.
        first_refused: one of these, as vertices (positions, if the graph is ordered by degree); None if none was.
        vertices: int64, the vertices inserted or deleted.
        absent: vertices to delete that were deleted before.
        applied: whether the graph has the changes; False if ``ApplyUpdate.strict`` refused the whole update.
    """

    record: GraphRecord
    edges: int
    refused: int
    first_refused: tuple[int, int] | None
    vertices: NDArray[np.int64]
    absent: int
    applied: bool


@dataclass(frozen=True)
class ApplyUpdate(SchedulerMessage[UpdateReport]):
    """Change a graph on all ranks at once, or on none, in a run of tasks that has its turn.

    Every rank prepares the next version first. Only if all have prepared it, they commit it. So after an error the
    graph has its version before, unless the error is ``WorkerLostError``: then a rank is lost.

    Attributes:
        graph_id: the graph.
        client: id of the run's client.
        run_id: the run.
        kind: kind of the update, one of ``update_spec.KINDS``.
        spec: the update. The scheduler passes it on unread.
        collections: by rank, Dask keys of the collections with the batch's edges; empty for an update without edges.
        strict: whether one duplicate, missing edge or absent vertex refuses the whole update.
        batch_id: an update with the id of one of the graph's last updates is not made again: its report is returned.

    Raises:
        GraphNotFoundError: the graph was unloaded.
        InvalidOptionError: the graph takes no updates.
        RunNotFoundError: the run does not hold the workers.
        RunCancelledError, WorkerLostError, DeadlineExceededError: the update must end early.
        GraphTooLargeError, InvalidVertexError, StaleRunError: a rank could not prepare the version.
    """

    graph_id: str
    client: Identifier
    run_id: Identifier
    kind: str
    spec: Pickled[UpdateSpec]
    collections: tuple[Hashable, ...]
    strict: bool
    batch_id: Identifier


@dataclass(frozen=True)
class UpdateEdges(SchedulerMessage[UpdateReport]):
    """Insert or delete a few edges, in a run of its own: queue the run, and change the graph as ``ApplyUpdate`` does.

    One message instead of a run of tasks: the tasks that bin a batch take tens of milliseconds, however small it is.
    If the run was decided under a lease whose holder got no answer, nothing is changed again.

    Attributes:
        graph_id, client, run_id, deadline: as in ``Enqueue``.
        kind, spec, strict, batch_id: as in ``ApplyUpdate``; the spec has the edges.

    Raises:
        InvalidOptionError: the graph takes no updates.
        ClientError, QueueFullError: see ``Enqueue``; others as for ``ApplyUpdate``.
    """

    graph_id: str
    client: Identifier
    run_id: Identifier
    deadline: float
    kind: str
    spec: Pickled[UpdateSpec]
    strict: bool
    batch_id: Identifier
