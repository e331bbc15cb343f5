"""The service as the dashboard reads it: graphs, runs and history, read-only.

The service on the scheduler (``dbfs.service.scheduler``) satisfies ``ServiceView``. The page and the metrics read
through it, so that the dashboard depends on records alone and the service can install the dashboard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dbfs.records import EarlyEnd, FinishedRun, Formed, GraphRecord, RunProgress
from dbfs_workers.reports import RankReport


class GraphView(Protocol):
    """A graph in the cluster."""

    @property
    def record(self) -> GraphRecord:
        """The graph as it is now."""
        ...

    @property
    def formed(self) -> Formed:
        """The backend and the exchange of its gang."""
        ...

    @property
    def lost(self) -> set[int]:
        """Ranks whose workers are lost."""
        ...

    @property
    def runs(self) -> int:
        """Runs started so far."""
        ...

    @property
    def changes_per_second(self) -> float:
        """Edges and vertices that updates have inserted and deleted in each of the last seconds."""
        ...


class RunView(Protocol):
    """A run that waits or is under way. Times are seconds since the epoch."""

    @property
    def graph(self) -> GraphView:
        """The graph that is traversed."""
        ...

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    @property
    def traversals(self) -> int:
        """Number of traversals."""
        ...

    @property
    def update(self) -> str:
        """Kind of the update that the run makes; empty for traversals."""
        ...

    @property
    def queued(self) -> float:
        """When the run was queued."""
        ...

    @property
    def started(self) -> float | None:
        """When the run started; None while it waits."""
        ...

    @property
    def progress(self) -> RunProgress | None:
        """The latest sample of the run; None before the first."""
        ...

    @property
    def trail(self) -> Sequence[RunProgress]:
        """Samples of the traversal under way that found a frontier, oldest first."""
        ...


class HistoryView(Protocol):
    """Runs that are over, and sums over all runs."""

    @property
    def finished(self) -> Sequence[FinishedRun]:
        """The latest runs that finished, oldest first."""
        ...

    @property
    def failed(self) -> Sequence[FinishedRun]:
        """The latest runs that failed or were cancelled, oldest first."""
        ...

    @property
    def last(self) -> Sequence[RankReport]:
        """By rank, the report of the last traversal of the latest run that finished."""
        ...

    @property
    def early(self) -> EarlyEnd | None:
        """The most recent run that failed or was cancelled; None if a later run finished."""
        ...

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Number of runs by outcome: ``finished``, ``cancelled`` or ``failed``."""
        ...

    @property
    def traversals(self) -> int:
        """Traversals made."""
        ...

    @property
    def edges(self) -> int:
        """Directed edges traversed."""
        ...

    @property
    def seconds(self) -> float:
        """Time that traversals took."""
        ...


class ServiceView(Protocol):
    """The service on the scheduler."""

    @property
    def graphs(self) -> Mapping[str, GraphView]:
        """Graphs by graph id, in the order of loading."""
        ...

    @property
    def runs(self) -> Sequence[RunView]:
        """Runs that wait or are under way, in the order of arrival."""
        ...

    @property
    def history(self) -> HistoryView:
        """Runs that are over."""
        ...
