"""The interface of an engine: what ``Engine.traverse`` takes and returns."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import distributed
from numpy.typing import NDArray

from dbfs.base.records import GraphRecord, RunProgress
from dbfs.cluster.deadline import Deadline
from dbfs.cluster.gang import Gang, release
from dbfs_workers.base.spec import RunSpec
from dbfs_workers.serving.reads.messages import KeptLabels


@dataclass(frozen=True)
class LevelReport:
    """One level of a traversal, over all ranks. Counts as in ``dbfs_workers.search.reports.counts.Row``.

    A traversal of more than 4,096 levels has reports of several levels each, whose counts are joined by the same rules.

    Attributes:
        level: the level, or the first one of several.
        levels: number of levels: 1, or a power of two; the last report may have fewer.
        direction: ``top-down`` or ``bottom-up``; ``both`` if several levels differ. The ``edges`` of a bottom-up level
            are the edges that it inspected. A bottom-up level sends bitmap slices, and so does a top-down level of many
            edges on GPUs; all discoveries of such a level count as ``own``.
        seconds: wall time from the end of the previous level to the end of this one, by rank 0's clock.
        phase_seconds: by rank, the time of each phase.
    """

    level: int
    levels: int
    direction: str
    frontier: int
    edges: int
    filtered: int
    own: int
    sent: int
    culled: int
    discovered: int
    bytes_sent: int
    largest_frontier: int
    seconds: float
    phase_seconds: tuple[dict[str, float], ...]


@dataclass(frozen=True)
class PublishedLabels:
    """The labels of one traversal as Dask data, one array per rank, on the worker of that rank: a ``LabelSource``.

    Attributes:
        distances: by rank, futures of int32 arrays: the rank's vertices in order, -1 unreached.
        predecessors: by rank, futures of int64 arrays of vertex ids (positions, if the graph is ordered by degree), -1
            unreached; None if the traversal did not record them.
    """

    distances: tuple[distributed.Future, ...]
    predecessors: tuple[distributed.Future, ...] | None

    @property
    def location(self) -> PublishedLabels:
        return self

    def publish(self) -> PublishedLabels:
        return self

    def drop(self) -> None:
        release([*self.distances, *(self.predecessors or ())])


class LabelSource(Protocol):
    """Access to the labels of a finished traversal. Either ``publish`` or ``drop`` is called, once."""

    def publish(self) -> PublishedLabels:
        """Make the labels Dask data of this client.

        Raises:
            GraphNotFoundError, ResultReleasedError: the labels are freed, because a client unloaded the graph.
            WorkerLostError: a worker that kept labels is lost.
        """

    @property
    def location(self) -> PublishedLabels | KeptLabels:
        """The place of the labels before ``publish`` is called."""

    def drop(self) -> None:
        """Free the labels, which were not published."""


@dataclass(slots=True)
class Outcome:
    """A finished traversal; its labels stay on the workers.

    Attributes:
        labels: access to the labels.
        levels: makes the reports of the levels. A function, because a road network has thousands of levels and many
            callers read none of the reports.
        depth: the largest distance.
        reached: number of vertices reached, the sources included.
        edges: directed edges of the traversed component: the sum of the degrees of the reached vertices.
        seconds: time from the start of the first level to the end of the last.
        setup_seconds: time before that: clearing the state and (on CPUs) waiting for the slowest rank; None if the
            engine does not measure it.
        version: version of the graph that was traversed.
        counters: counters of a strategy of the laboratory, by name; none of the engines.
        by_source: of a batch, by rank the counts of its report; else empty.
    """

    labels: LabelSource
    levels: Callable[[], tuple[LevelReport, ...]]
    depth: int
    reached: int
    edges: int
    seconds: float
    setup_seconds: float | None
    version: int = 0
    counters: tuple[tuple[str, int], ...] = ()
    by_source: Sequence[NDArray[Any]] = ()


Progress = Callable[[RunProgress], None]
"""Called at intervals during a run, and once after its end, in the thread that waits for the run."""


InPositions = Callable[[RunSpec], RunSpec]
"""Returns specs in the numbering of the ranks, given in vertices: see ``RunSpec.renumbered``."""


class Engine(Protocol):
    """Runs traversals on a gang.

    Attributes:
        name: the engine's name.
        stripes_only: whether it traverses no graph but those whose edges lie in stripes, layout ``1d``.
    """

    name: str
    stripes_only: bool

    def traverse(
        self,
        gang: Gang,
        record: GraphRecord,
        specs: RunSpec,
        deadline: Deadline,
        progress: Progress | None,
        in_positions: InPositions,
    ) -> Generator[Outcome, None, None]:
        """Run one traversal for each spec, one after another; yield the outcomes in the same order.

        While the caller makes a result of one outcome, the ranks may make the next. If the run ends early, the caller
        drops the outcomes that it has.

        Args:
            gang: the graph's workers.
            specs: sources and options, in vertices.
            progress: called with the state of the run; an exception that it raises cancels the run.
            in_positions: returns specs in the numbering of the ranks; may send a message to a rank.

        Raises:
            WorkerLostError, DeadlineExceededError, RunCancelledError, RunAbortedError, DeviceFailedError,
            StaleRunError: the run ended early.
            InvalidOptionError: the engine, or the graph as it was loaded, does not support an option of a spec.
        """
