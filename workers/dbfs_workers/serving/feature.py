"""What a feature adds to a worker: a ``WorkerFeature``, which the plugin is given.

A feature's class travels with the plugin, from the scheduler to the workers. So its module imports neither Numba nor
CuPy.
"""

from collections.abc import Callable
from dataclasses import dataclass

import distributed

from dbfs_workers.search.members.member import Member
from dbfs_workers.serving.reads.server import Keeper


@dataclass(frozen=True)
class WorkerView:
    """A worker, as its features see it.

    Attributes:
        member: returns the worker's part in the gang of a graph, or raises ``StaleRunError``.
        kept_labels: returns labels that the worker's rank keeps; see ``WorkerService.kept_labels``.
    """

    worker: distributed.Worker
    member: Callable[[str], Member]
    kept_labels: Keeper


class WorkerFeature:
    """A feature's half on one worker, made once, as the plugin is set up.

    Its methods that are marked by ``@AMessage.handler`` handle the feature's messages.
    """

    def __init__(self, view: WorkerView) -> None:
        self.view = view

    def forget(self, run_id: str) -> None:
        """Forget what is kept for a run of tasks that ended early."""

    def leave(self, graph_id: str) -> None:
        """Forget what is kept of a gang that the worker leaves."""
