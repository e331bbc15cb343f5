"""The workers of a game: the service's own half, whose ranks make traversals of a graph that is only a version."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from dbfs_workers.base.errors import (
    DbfsError,
    DeadlineExceededError,
    RunAbortedError,
    RunCancelledError,
    WorkerLostError,
)
from dbfs_workers.base.spec import RunSpec
from dbfs_workers.features.living.part import LivingPart
from dbfs_workers.features.living.worker import Updates
from dbfs_workers.features.rebuild.worker import VersionLogs
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.members.member import Runner
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import PartitionInfo
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import COUNT_FIELDS, TIME_FIELDS, RankRun
from dbfs_workers.search.reports.packing import CountedLevels
from dbfs_workers.serving.messages import JoinGang
from dbfs_workers.serving.plugin import WorkerService
from tests.support.simulated.fibers import Event
from tests.support.simulated.wire import Wire

_LEVELS = CountedLevels.of(np.zeros((1, len(COUNT_FIELDS)), np.int64), np.zeros((1, len(TIME_FIELDS))))
LABELS = RankLabels(np.zeros(1, np.int32), None)
# Seconds in which a rank notices that a peer's process is gone.
_NOTICED = 0.05
_ERRORS: dict[Cause, type[DbfsError]] = {
    Cause.CANCELLED: RunCancelledError,
    Cause.DEADLINE: DeadlineExceededError,
    Cause.LOST: WorkerLostError,
    Cause.FAILED: RunAbortedError,
}


@dataclass(frozen=True)
class Rows:
    """A rank's partition: nothing but the updates that made it."""

    rank: int
    stripe: Stripe
    history: tuple[int, ...] = ()
    m_local: int = 1

    @property
    def version(self) -> int:
        return len(self.history)

    @property
    def info(self) -> PartitionInfo:
        return PartitionInfo(self.rank, 1, 1, 0, 0, 1, 1, has_parents=True)


@dataclass
class Meeting:
    """The crossings of a gang's run.

    Attributes:
        arrived: how often ranks have arrived.
        rows: the versions that the ranks traverse.
        stopped: before which traversal rank 0 ends the run early.
    """

    arrived: int = 0
    rows: dict[int, Rows] = field(default_factory=dict)
    stopped: int = 1 << 30
    aborted: tuple[Cause, str] | None = None
    changed: Event = field(default_factory=Event)


class Gangs:
    """What the ranks of all gangs share, as shared memory would, and what they are held to.

    Attributes:
        histories: by graph id and version, the updates that made the version.
        given_up: the runs whose turns the scheduler ended at once: it does not wait for them any more.
        over: by graph id, the latest turn of which rank 0 said that it is over.
        refused: updates whose clients were told that they were not made.
        violations: what was found wrong; an error may be caught by the code that plays.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        # As of members on CPU cores, or on GPUs.
        self.answer_seconds = wire.dice.choice((0.0, 0.005))
        self.histories: dict[tuple[str, int], tuple[int, ...]] = {}
        self.given_up: set[tuple[str, int]] = set()
        self.over: dict[str, int] = {}
        self.refused: set[int] = set()
        self.violations: list[str] = []
        self._meetings: dict[tuple[str, int], Meeting] = {}
        self._busy: dict[str, dict[str, int]] = {}
        self._leaders: dict[str, str] = {}
        # By the id of a graph that was built again, its id before.
        self._before: dict[str, str] = {}

    def moved(self, before: str, graph_id: str) -> None:
        """Note that a graph is built again under another id."""
        self._before[graph_id] = before

    def first_id(self, graph_id: str) -> str:
        """Return the id under which a graph was loaded."""
        while graph_id in self._before:
            graph_id = self._before[graph_id]
        return graph_id

    def meeting(self, graph_id: str, number: int) -> Meeting:
        """Return the crossings of a run."""
        return self._meetings.setdefault((graph_id, number), Meeting())

    def enter(self, address: str, graph_id: str, number: int, gang: tuple[str, ...]) -> None:
        """Check that no other run uses the worker.

        But one that the scheduler gave up, that waits for a late rank, or that is over on rank 0: a rank that is late
        for its run's end keeps nobody waiting.
        """
        busy = self._busy.setdefault(address, {})
        for other, made in busy.items():
            if other != graph_id and (other, made) not in self.given_up and not self.wire.recently_stopped:
                leading = self._busy[self._leaders[other]].get(other) == made
                self.require(not leading, f"{address} makes a run of {graph_id} beside one of {other}")
        busy[graph_id], self._leaders[graph_id] = number, gang[0]

    def leave(self, address: str, graph_id: str) -> None:
        """End a rank's part in a run."""
        self._busy[address].pop(graph_id, None)

    def give_up(self, graph_id: str) -> None:
        """Note that the scheduler has ended the turn on a gang at once."""
        for busy in self._busy.values():
            if graph_id in busy:
                self.given_up.add((graph_id, busy[graph_id]))

    def require(self, holds: bool, what: str) -> None:
        """Note what is wrong unless something holds."""
        if not holds:
            self.violations.append(what)
            raise AssertionError(what)

    def ended(self, graph_id: str, turn: int) -> None:
        """Note that rank 0 said that a turn is over."""
        self.over[graph_id] = max(turn, self.over.get(graph_id, 0))

    def begins(self, graph_id: str, turn: int) -> None:
        """Check that rank 0 begins no burst in a turn that is over."""
        late = f"rank 0 of {graph_id} makes a burst of turn {turn}, which is over"
        self.require(turn > self.over.get(graph_id, 0), late)

    def traversed(self, graph_id: str, ranks: dict[int, Rows]) -> None:
        """Check that a run has one version, and that no other updates have ever made that version."""
        histories = {rows.history for rows in ranks.values()}
        self.require(len(histories) == 1, f"a run of {graph_id} traversed the versions {histories}")
        self.committed(graph_id, histories.pop())

    def committed(self, graph_id: str, history: tuple[int, ...]) -> None:
        """Check a version that a traversal reads, or that a client was told of."""
        graph_id = self.first_id(graph_id)
        self.require(len(set(history)) == len(history), f"an update of {graph_id} was made twice: {history}")
        made = self.refused & set(history)
        self.require(not made, f"{graph_id} has updates {made}, whose client was told that they were not made")
        for version in range(len(history) + 1):
            known = self.histories.setdefault((graph_id, version), history[:version])
            two = f"{graph_id} has two versions {version}: {known} and {history[:version]}"
            self.require(known == history[:version], two)


class SimulatedRunner(Runner):
    """Makes traversals that take some time and meet the other ranks."""

    def __init__(self, gangs: Gangs, message: JoinGang, address: str) -> None:
        self._gangs, self._address = gangs, address
        self._graph_id, self._rank, self._addresses = message.graph_id, message.rank, message.addresses
        self.answer_seconds = gangs.answer_seconds

    @property
    def dice(self) -> random.Random:
        """The game's dice."""
        return self._gangs.wire.dice

    def traverse(self, partition: Any, number: int, specs: RunSpec, deadline: float) -> Iterator[RankRun]:
        self._gangs.enter(self._address, self._graph_id, number, self._addresses)
        self._gangs.wire.tell(f"rank {self._rank} of {self._graph_id} begins run {number}: {len(specs)} traversals")
        meeting = self._gangs.meeting(self._graph_id, number)
        try:
            for index in range(len(specs)):
                Event().wait(self.dice.choice((0.0001, 0.0001, 0.01, 0.7)))
                if self._rank == 0 and index and self.member.stops():
                    meeting.stopped = index
                meeting.rows[self._rank] = partition
                self._meet(meeting, index + 1, deadline)
                if index >= meeting.stopped:
                    return
                yield RankRun(LABELS, _LEVELS, 1, 1, 1, 1e-3, 0.0, partition.version)
        finally:
            self._gangs.leave(self._address, self._graph_id)

    def _meet(self, meeting: Meeting, crossing: int, deadline: float) -> None:
        """Wait until all ranks have arrived at a crossing."""
        wire, p = self._gangs.wire, len(self._addresses)
        meeting.arrived += 1
        meeting.changed.set()
        while meeting.arrived < p * crossing:
            if meeting.aborted is not None:
                cause, message = meeting.aborted
                raise _ERRORS[cause](f"rank {self._rank}: {message}")
            gone = [rank for rank, address in enumerate(self._addresses) if address in wire.gone]
            if gone:
                raise WorkerLostError(f"lost rank {gone[0]}")
            if wire.loop.now > deadline:
                raise DeadlineExceededError(f"rank {self._rank}: not done")
            meeting.changed.clear()
            meeting.changed.wait(_NOTICED)
        self._gangs.traversed(self._graph_id, meeting.rows)

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        meeting = self._gangs.meeting(self._graph_id, number)
        meeting.aborted = meeting.aborted or (cause, message)
        meeting.changed.set()

    def free_bytes(self) -> int:
        return 1 << 40

    def pooled_bytes(self) -> int:
        return 0

    def fetch(self, labels: RankLabels) -> RankLabels:
        return labels


class SimulatedLiving(LivingPart[SimulatedRunner]):
    """Makes the next version."""

    def traverse(self, *_: Any) -> Any:
        raise AssertionError("no game repairs")

    def updated(self, partition: Any, spec: Any, edges: Any = None, in_edges: Any = None) -> Any:
        Event().wait(self._runner.dice.choice((0.0001, 0.0001, 0.05, 0.3)))
        following = replace(partition, history=(*partition.history, spec.count))
        changes = SimpleNamespace(keys=None, refused=0, first_refused=None, edges=int(partition.rank == 0))
        return SimpleNamespace(
            partition=following, changes=changes, facts=None, vertices=np.empty(0, np.int64), absent=0, in_keys=None
        )


class SimulatedService(WorkerService):
    """The workers' half of the service, whose ranks are simulated."""

    def __init__(self, gangs: Gangs) -> None:
        super().__init__(1.0, [Updates, VersionLogs], lambda _: [], lambda _: [])
        self._gangs = gangs

    def _runner(self, message: JoinGang, threads: int) -> tuple[Runner, list[MemberPart]]:
        runner = SimulatedRunner(self._gangs, message, self.worker.address)
        return runner, [SimulatedLiving(runner)]
