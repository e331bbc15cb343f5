"""Changes of a graph that all ranks make in a turn: all prepare the next version, then all commit it or forget it.

``rounds`` leads a change on rank 0. What a change does is a feature's: see ``RankChanges``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray

from dbfs_workers.search.members.member import Member
from dbfs_workers.search.partition.partition import GraphTotals, Partition, PartitionInfo
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.serving.feature import WorkerFeature


@dataclass(frozen=True, kw_only=True)
class Change(ABC):
    """A change to make. A feature's subclass says what to change.

    Attributes:
        batch_id: id under which the scheduler keeps the change's report; empty for that of the run.
    """

    batch_id: str = ""

    @property
    @abstractmethod
    def kind(self) -> str:
        """Name of what the change does, as the list of runs shows it."""


@dataclass(frozen=True)
class RankVersion:
    """A rank's prepared version, as rank 0 and the scheduler learn of it. A feature adds what its report needs.

    Attributes:
        info: counts of the partition.
        connected: rows that have an edge, if the version is on a GPU whose engines need that; else 0.
        refuses: whether the rank refuses the change, so that all ranks forget the version.
    """

    info: PartitionInfo
    stripe: Stripe
    version: int
    connected: int
    refuses: bool


def totals_of(ranks: Sequence[RankVersion]) -> GraphTotals:
    """Return the counts of a version over all ranks."""
    return GraphTotals(
        sum(rank.info.m_local for rank in ranks),
        sum(rank.connected for rank in ranks),
        max(rank.info.max_degree for rank in ranks),
    )


class RankChanges(WorkerFeature, ABC):
    """The feature that changes graphs: a rank prepares the next version, and then commits it or forgets it.

    Preparing changes nothing that a traversal reads.

    Attributes:
        kernels: CPU kernels that a rank of a graph which may change needs compiled, as ``compiling.found`` takes them.
    """

    kernels: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def prepare(self, member: Member, graph_id: str, run_id: str, partition: Partition, change: Change) -> RankVersion:
        """Prepare the version that follows ``partition``. Called in a thread that has the member for itself.

        Args:
            member: the rank's part in the gang.
            run_id: the change's run.
            partition: the version of before.

        Raises:
            DbfsError: the rank can't prepare the version.
        """

    @abstractmethod
    def finish(self, member: Member, graph_id: str, run_id: str, totals: GraphTotals | None) -> None:
        """Commit the prepared version, or forget it if ``totals`` is None. Called in the thread of a line.

        Raises:
            StaleRunError: the rank has prepared no version in this run.
            DbfsError: the rank can't commit the version.
        """

    @abstractmethod
    def redo(self, graph_id: str, run_id: str) -> "Redo | None":
        """Return what makes the prepared version again; None if it is no new version. Called after ``prepare``."""


@dataclass(frozen=True)
class Redo:
    """What makes a rank's version again of the version before.

    Attributes:
        version: number of the version.
        facts: what JSON can say of it.
        arrays: int64 or uint64, by name.
    """

    version: int
    facts: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


class VersionLog(WorkerFeature, ABC):
    """The feature that keeps the versions of graphs on a disk, so that they come back after a loss."""

    @abstractmethod
    def open(self, graph_id: str, rank: int, path: str, version: int) -> None:
        """Begin the log of a gang that the worker joins, in the folder at a path. Not called in the event loop.

        Args:
            version: the version of the rank's partition.

        Raises:
            OutputError: the file system refuses, or another graph has added versions to the log since.
        """

    @abstractmethod
    def keeps(self, graph_id: str) -> bool:
        """Return whether the versions of a graph are kept."""

    @abstractmethod
    def keep(self, graph_id: str, run_id: str, redo: Redo) -> None:
        """Keep what makes a version that the rank has prepared. Errors as of ``open``: then no rank commits it."""

    @abstractmethod
    def decide(self, graph_id: str, run_id: str, change: Change, ranks: Sequence[RankVersion]) -> None:
        """Keep rank 0's decision that a version is the graph's, before any rank commits it.

        Args:
            ranks: the version by rank.

        Errors as of ``open``: then no rank commits it.
        """
