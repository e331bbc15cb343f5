"""What a feature adds to a worker: a ``WorkerFeature``, which the plugin is given.

A feature's class travels with the plugin, from the scheduler to the workers. So its module imports neither Numba nor
CuPy.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import distributed

from dbfs_workers.search.members.member import Member
from dbfs_workers.search.partition.partition import GraphTotals, Partition
from dbfs_workers.serving.reads.server import Keeper
from dbfs_workers.serving.turns.changes import Change, RankVersion


@dataclass(frozen=True)
class WorkerView:
    """A worker, as its features see it.

    Attributes:
        worker: the worker.
        member: returns the worker's part in the gang of a graph, or raises ``StaleRunError``.
        kept_labels: returns labels that the worker's rank keeps; see ``WorkerService.kept_labels``.
    """

    worker: distributed.Worker
    member: Callable[[str], Member]
    kept_labels: Keeper


class WorkerFeature:
    """A feature's half on one worker, made once, as the plugin is set up.

    Its methods that are marked by ``@AMessage.handler`` handle the feature's messages.

    Args:
        view: the worker.
    """

    def __init__(self, view: WorkerView) -> None:
        self.view = view

    def forget(self, run_id: str) -> None:
        """Forget what is kept for a run of tasks that ended early."""

    def leave(self, graph_id: str) -> None:
        """Forget what is kept of a gang that the worker leaves."""


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
            graph_id: the graph.
            run_id: the change's run.
            partition: the version of before.
            change: the change.

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
