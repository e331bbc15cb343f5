"""Edges of a graph that was built before: what a build asks of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager

from dbfs.building.builder import BuildOptions, BuildSize, BuiltGraph, PartitionMaker
from dbfs.building.memory import Estimate
from dbfs.cluster.gang import Gang
from dbfs.edges.edge_list import EdgeList


class BuiltEdges(EdgeList, ABC):
    """Edges of a graph that was built before. Ranks may take their partitions as they were, in place of a build."""

    @abstractmethod
    def settled(self, options: BuildOptions) -> BuildOptions:
        """Return the options with the graph's own where they leave that open. Errors as for ``build``."""

    @abstractmethod
    def as_it_was(self, gang: Gang, options: BuildOptions, backend: str) -> PartitionMaker | None:
        """Return what gives the ranks their partitions as they were; None if the options need a build.

        ``options`` are those that ``settled`` returned.
        """

    @abstractmethod
    def estimate_as_it_was(self, size: BuildSize, backend: str) -> Estimate | None:
        """Return the bytes that the partitions take as they were; None if the options need a build."""

    @abstractmethod
    def of_rows(self) -> EdgeList:
        """Return the edges of the partitions, whether edges were kept or not."""

    @property
    @abstractmethod
    def vertex_columns(self) -> Sequence[str]:
        """Names of the columns of its vertices."""

    @abstractmethod
    def without_vertex_columns(self) -> EdgeList:
        """Return the edges of the graph without the columns of its vertices."""

    @abstractmethod
    def during_build(self, gang: Gang) -> AbstractContextManager[None]:
        """Return a context for a build of these edges, at whose end the workers free what reading them kept."""

    @abstractmethod
    def as_first_built(self, built: BuiltGraph, gang: Gang, options: BuildOptions) -> BuiltGraph:
        """Return a graph built of these edges, with the ids and the number of input edges of its first build.

        After an error the graph is freed.
        """
