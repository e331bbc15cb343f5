"""What an update does, as clients, the scheduler and workers name it."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import DbfsError
from dbfs_workers.search.partition.partition import no_vertices
from dbfs_workers.serving.turns.changes import Change

KINDS: Final = (
    *("insert-edges", "delete-edges", "insert-vertices", "delete-vertices", "set-vertices", "replace"),
    *("compact", "freeze", "thaw", "link"),
)
"""The kinds of updates. ``set-vertices`` changes data beside the partitions (see ``carried``) alone, and ``replace``
puts what tasks have made in the place of the version. Those from ``compact`` on change the memory that the graph takes,
and make no new version. ``link`` moves the rows of one rank on a GPU to linked pages, which the laboratory has."""


class NumberedBeforeError(DbfsError, RuntimeError):
    """Raised on the ranks for an update whose new ids were numbered by an earlier version. The client numbers again.

    Users don't see it.
    """


@dataclass(frozen=True)
class UpdateSpec:
    """An update, the same for all ranks.

    Attributes:
        kind: one of ``KINDS``.
        hub_first: whether the graph is ordered by degree.
        count: number of vertices to insert.
        vertices: int64, the vertices to delete (positions, if the graph is ordered by degree).
        edges: the edges if they are few, each as int64 vertices (positions, if the graph is ordered by degree):
            sources and targets, with the reverses of an undirected graph. None if the ranks have bins of the edges.
        ids: new ids, of the vertices from ``n`` on, that the edges to insert may have as ends; see ``LaterIds``.
        n: number of vertices of the version by which they were numbered.
        replaces: whether an edge to insert that is there takes its columns from the update.
    """

    kind: str
    hub_first: bool
    count: int = 0
    vertices: NDArray[np.int64] = field(default_factory=no_vertices)
    edges: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    ids: tuple[Any, ...] = ()
    n: int = 0
    replaces: bool = False


@dataclass(frozen=True)
class UpdateChange(Change):
    """An update as the change that a turn makes.

    Attributes:
        strict: whether one duplicate, missing edge or absent vertex refuses the whole update.
        collections: by rank, Dask keys of the ``delivering.Collection`` with the update's edges, of its ``BatchRows``,
            or of what is ``Made``; empty for an update without edges, or with those of the spec or of ``TakeUpdate``.
        beside: by rank, Dask keys of the data that go with the partition (``Carried``); empty for none.
    """

    spec: UpdateSpec
    strict: bool
    collections: tuple[Hashable, ...] = ()
    beside: tuple[tuple[Hashable, ...], ...] = ()

    @property
    def kind(self) -> str:
        return self.spec.kind
