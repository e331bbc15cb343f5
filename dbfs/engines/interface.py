"""What an engine takes and gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import distributed

from dbfs.cluster.gang import Deadline, Gang, release
from dbfs.records import GraphRecord, RunProgress
from dbfs_workers.levels.state import LevelCounts
from dbfs_workers.spec import TraversalSpec


@dataclass(frozen=True)
class LevelReport:
    """One level of a traversal, summed over the ranks. Counts as in ``dbfs_workers.traversal.LevelCounts``.

    Attributes:
        direction: top-down or bottom-up. A bottom-up level's ``edges`` are those it looked at; it sends bitmap slices,
            as does a top-down level of many edges on GPUs: such a level's discoveries all count as ``own``.
        seconds: wall time from the end of the level before to the end of this one, as rank 0 saw it.
        phase_seconds: by rank, the time of each phase.
    """

    level: int
    direction: str
    frontier: int
    edges: int
    filtered: int
    own: int
    sent: int
    culled: int
    discovered: int
    bytes_sent: int
    seconds: float
    phase_seconds: tuple[dict[str, float], ...]

    @classmethod
    def total(cls, level: int, direction: str, seconds: float, ranks: list[LevelCounts]) -> LevelReport:
        """Sum the ranks' counts of one level."""
        return cls(
            level=level,
            direction=direction,
            frontier=sum(rank.frontier for rank in ranks),
            edges=sum(rank.edges for rank in ranks),
            filtered=sum(rank.filtered for rank in ranks),
            own=sum(rank.own for rank in ranks),
            sent=sum(rank.sent for rank in ranks),
            culled=sum(rank.culled for rank in ranks),
            discovered=sum(rank.discovered for rank in ranks),
            bytes_sent=sum(rank.bytes_sent for rank in ranks),
            seconds=seconds,
            phase_seconds=tuple(rank.seconds for rank in ranks),
        )


class HeldLabels:
    """The labels of one traversal, where they lie on the workers.

    Attributes:
        distances: by rank, futures of int32 arrays: the rank's vertices in order, -1 unreached.
        predecessors: by rank, futures of int64 arrays of vertex ids, -1 unreached; None where not asked for.
    """

    def __init__(
        self, distances: tuple[distributed.Future, ...], predecessors: tuple[distributed.Future, ...] | None
    ) -> None:
        self.distances = distances
        self.predecessors = predecessors

    def release(self) -> None:
        """Free them."""
        release([*self.distances, *(self.predecessors or ())])


@dataclass(frozen=True)
class KeptLabels:
    """Labels that the ranks of a graph keep to themselves: those of a traversal of one of its runs."""

    graph_id: str
    run_id: str
    index: int


class LabelSource(Protocol):
    """Where the labels of a finished traversal are to be had."""

    def hold(self) -> HeldLabels:
        """The labels as Dask data of this client; asked for once.

        Raises:
            GraphNotFoundError, ResultReleasedError: they are gone, since somebody unloaded the graph.
            WorkerLostError: a worker that had some is gone.
        """
        ...

    @property
    def place(self) -> HeldLabels | KeptLabels:
        """Where they are until they are asked for."""
        ...

    def drop(self) -> None:
        """They will not be asked for."""
        ...


@dataclass(frozen=True)
class Outcome:
    """A finished traversal; its labels stay on the workers.

    Attributes:
        labels: where they are.
        levels: makes one report a level; a road network has thousands, which not everybody wants.
        depth: the largest distance.
        reached: vertices reached, the sources included.
        edges: directed edges of the traversed component: the degrees of the reached vertices.
        seconds: from the start of the first level to the end of the last.
        setup_seconds: before that, clearing the state and (on CPUs) waiting for the slowest rank; None where it is not
            told apart.
    """

    labels: LabelSource
    levels: Callable[[], tuple[LevelReport, ...]]
    depth: int
    reached: int
    edges: int
    seconds: float
    setup_seconds: float | None


Progress = Callable[[RunProgress], None]
"""Called now and then while a run lasts, and when it is over, in the thread that waits for it."""


class Engine(Protocol):
    """Runs traversals on a gang."""

    name: str

    def traverse(
        self,
        gang: Gang,
        record: GraphRecord,
        specs: Sequence[TraversalSpec],
        deadline: Deadline,
        progress: Progress | None,
    ) -> list[Outcome]:
        """Traverse a graph as often as there are specs, one after another.

        Args:
            gang: the graph's workers.
            record: the graph.
            specs: sources and options; all of one run id, and alike but for sources and targets.
            deadline: when to give up.
            progress: told where the run is; what it raises cancels the run.

        Raises:
            WorkerLostError, DeadlineExceededError, RunCancelledError, RunAbortedError, StaleRunError: the run ended
                early; nothing of it stays on the workers.
            InvalidOptionError: the engine, or the graph as it was loaded, can't do what a spec asks for.
        """
        ...
