"""Edges of a graph that was built before: what a build asks of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from dbfs.edges.edge_list import EdgeList

if TYPE_CHECKING:
    import distributed

    from dbfs.building.builder import BuildOptions, Built
    from dbfs.building.memory import Estimate
    from dbfs.cluster.gang import Gang
    from dbfs_workers.search.exchange.hosts import Hosts


class Making(ABC):
    """What makes the partitions of a graph, by a build or without one. The caller releases ``held`` after ``run``.

    Attributes:
        gang: the workers that hold the graph's ranks.
        token: the end of the names of its tasks.
        held: futures of what is made on the way, except those of the result.
        watch: called now and then while the client waits; None to call nothing.
    """

    gang: Gang
    token: str
    held: set[distributed.Future]
    watch: Callable[[], None] | None

    @abstractmethod
    def run(self) -> Built:
        """Make the graph; errors as of ``dbfs.building.build.build``."""


class BuiltBefore(EdgeList, ABC):
    """Edges of a graph that was built before. Ranks may take their partitions as they were, in place of a build."""

    @abstractmethod
    def settled(self, options: BuildOptions) -> BuildOptions:
        """Return the options with the graph's own where they leave that open. Errors as for ``build``."""

    @abstractmethod
    def as_it_was(self, gang: Gang, options: BuildOptions, backend: str) -> Making | None:
        """Return what gives the ranks their partitions as they were; None if the options need a build.

        ``options`` are those that ``settled`` returned.
        """

    @abstractmethod
    def estimate_as_it_was(
        self, ranks: int, options: BuildOptions, backend: str, memory: int | None, hosts: Hosts
    ) -> Estimate | None:
        """Return the bytes that the partitions take as they were; None if the options need a build."""

    @abstractmethod
    def of_rows(self) -> EdgeList:
        """Return the edges of the partitions, whether edges were kept or not."""

    @abstractmethod
    def during_build(self, gang: Gang) -> AbstractContextManager[None]:
        """Return a context for a build of these edges, at whose end the workers free what reading them kept."""

    @abstractmethod
    def as_first_built(self, built: Built, gang: Gang, options: BuildOptions) -> Built:
        """Return a graph built of these edges, with the ids and the number of input edges of its first build.

        After an error the graph is freed.
        """
