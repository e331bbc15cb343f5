"""The attributes of edges during a build: what a feature that keeps them adds to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbfs.base.records import Beside
from dbfs.building.memory import Estimate
from dbfs.cluster.gang import Key, Ref, TaskGraph
from dbfs.edges.edge_list import Attributes, EdgeList
from dbfs_workers.building.pieces import GeneratedPiece
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class AttributeTasks:
    """Tasks that make a graph's attributes.

    Attributes:
        kept: keys of the attributes.
        awaited: keys of small results that the client waits for.
        beside: returns what the record says of the attributes, given the awaited results.
    """

    kept: Sequence[Key]
    awaited: Sequence[Key]
    beside: Callable[[Sequence[Any]], Beside | None]


NO_ATTRIBUTES = AttributeTasks((), (), lambda _: None)
"""Of a graph whose edges have none."""


class AttributeKeeper(ABC):
    """How the ranks keep the attributes of edges beside the partitions: a feature's."""

    @abstractmethod
    def count(self, needed: Estimate, schema: pa.Schema, rows: int) -> None:
        """Add the bytes of ``rows`` attributes on a rank, and of their build, to the estimate of a build."""

    @abstractmethod
    def add_tasks(
        self,
        graph: TaskGraph,
        edges: EdgeList,
        of: Attributes,
        pieces: Sequence[Ref | GeneratedPiece],
        attributes: Sequence[Ref],
        partitions: Sequence[Ref],
        order: Ref | None,
        stripe: Stripe,
        token: str,
        *,
        both: bool,
    ) -> AttributeTasks:
        """Add the tasks that make the attributes.

        Args:
            graph: the tasks of the build.
            edges: the edges that the attributes are of.
            of: the attributes.
            pieces: the pieces of the edges, or what was read of them; piece i is on rank i % p.
            attributes: the pieces of the attributes, there too.
            partitions: the partitions, by rank.
            order: the order by degree; None if vertices keep the order given.
            token: the end of the tasks' names.
            both: whether a rank also has the edges that end in its rows, for bottom-up levels.
        """

    @abstractmethod
    def add_loaded(
        self,
        graph: TaskGraph,
        tables: Sequence[tuple[Ref, Ref | None]],
        schema: pa.Schema,
        partitions: Sequence[Ref],
        name: str,
        token: str,
    ) -> AttributeTasks:
        """Add the tasks that keep attributes which are in the order of the partitions already.

        Args:
            tables: by rank, the Arrow tables of its edges and of its in-edges.
            schema: the schema of all tables.
            name: the edges' name, for errors.

        Other arguments as of ``add_tasks``.
        """

    @abstractmethod
    def with_vertices(self, beside: Beside | None, keys: Sequence[Key], schema: pa.Schema) -> Beside:
        """Return what the record says of a graph whose vertices have attributes that its source has too.

        Args:
            beside: what it says of the edges' attributes.
            keys: by rank, Dask keys of the Arrow tables, a row for each vertex of the rank.
            schema: the schema of these.
        """
