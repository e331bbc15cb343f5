"""A gang of two ranks in one process, with lines between them and without an exchange or a cluster."""

import pickle
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dbfs_workers.base.lines.door import Door
from dbfs_workers.base.lines.line import Line, new_token
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.living.messages import RankUpdate
from dbfs_workers.features.living.update_spec import UpdateChange, UpdateSpec
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.members.burst import Burst
from dbfs_workers.search.partition.partition import GraphTotals, PartitionInfo
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import RankReport
from dbfs_workers.serving.answers import answer_well
from dbfs_workers.serving.rpc import PickledValue
from dbfs_workers.serving.turns.calls import GangCalls
from dbfs_workers.serving.turns.leader import Leader
from dbfs_workers.serving.turns.notes import EnterUpdate, NoteRuns
from dbfs_workers.serving.turns.ranks import Follower, Peer
from dbfs_workers.serving.turns.requests import (
    Answer,
    Answers,
    BeginUpdate,
    EndUpdate,
    RankRequest,
    Request,
    Run,
    answers_of_run,
)
from tests.support.gang import repeated

REPORT = RankReport(1, 0, 0, 0.0, 0.0, b"", 0)
SPEC = TraversalSpec("run", (0,), predecessors=False, backend="cpu")
BATCH = UpdateSpec("insert-edges", hub_first=False, edges=(np.array([0]), np.array([1])))
TOTALS = GraphTotals(2, 0, 1)


def opened(door: Door, token: bytes) -> Line:
    """Open a line to a door."""
    return Line.open(door.address, token, None, 5.0)


def prepared(rank: int) -> RankUpdate:
    """Return what a rank answers that has prepared a version with one more edge."""
    info = PartitionInfo(rank, 1, 100, 0, 0, 1, 1, True)
    return RankUpdate(info, Stripe(2, 2), 1, 0, False, 1 - rank, 0, None, np.empty(0, np.int64), 0)


class Calls(GangCalls):
    """Keeps what rank 0 calls.

    Attributes:
        answer: the scheduler's answer to all updates; an exception is raised, and None is no answer.
    """

    def __init__(self) -> None:
        self.aborts: list[tuple[int, Cause]] = []
        self.lost: list[tuple[int, int | None]] = []
        self.notes: list[NoteRuns] = []
        self.entered: list[EnterUpdate] = []
        self.answer: PickledValue[Any] | Exception | None = PickledValue.of("report")

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        if cause is Cause.LOST:
            self.lost.append((number, rank))
        else:
            self.aborts.append((number, cause))

    def note(self, notes: NoteRuns) -> Future[None]:
        self.notes.append(notes)
        noted: Future[None] = Future()
        noted.set_result(None)
        return noted

    def enter(self, update: EnterUpdate) -> Future[PickledValue[Any]]:
        self.entered.append(update)
        entering: Future[PickledValue[Any]] = Future()
        if isinstance(self.answer, Exception):
            entering.set_exception(self.answer)
        elif self.answer is not None:
            entering.set_result(self.answer)
        return entering


class Gang:
    """Rank 0 and rank 1.

    Args:
        door: the workers' door.
        burst_seconds, answer_seconds: see ``Leader``.

    Attributes:
        bursts: the bursts that rank 0 has made.
        updates: by rank, the halves of updates that the rank has made.
        fail_on: by rank and class of a request, the error with which the rank ends such requests.
        fail_after: how many traversals of a run a rank makes before the error of ``fail_on``.
        refuses: whether each rank refuses an update.
        hold: rank 0 makes no burst while this is clear.
        stop_after: by a burst's first traversal, how many of its traversals the ranks make, since the turn is revoked
            meanwhile.
    """

    def __init__(self, door: Door, burst_seconds: float = 0.02, answer_seconds: float = 0.0) -> None:
        self.bursts: list[Burst] = []
        self.updates: dict[int, list[BeginUpdate | EndUpdate]] = {0: [], 1: []}
        self.fail_on: dict[tuple[int, type[Any]], Exception] = {}
        self.stop_after: dict[int, int] = {}
        self.fail_after, self.refuses = 0, False
        self.hold = threading.Event()
        self.hold.set()
        self.follower = Follower(1, partial(self.make, 1))
        token = new_token()
        door.admit(token, self.follower.serve)
        self.calls = Calls()
        peers = [Peer(1, opened(door, token))]
        self.leader = Leader(
            "graph",
            peers,
            partial(self.make, 0),
            self.calls,
            burst_seconds,
            answer_seconds,
        )
        self.holder_token = new_token()
        door.admit(self.holder_token, self.leader.serve)

    def make(self, rank: int, request: RankRequest, stops: Callable[[], bool], /) -> Answers:
        """Take a rank's part in a request."""
        if isinstance(request, Burst):
            yield from answers_of_run(request, self.make_run(rank, request, stops))
        else:
            yield answer_well(self.make_update(rank, request)), 0

    def make_run(self, rank: int, burst: Burst, stops: Callable[[], bool]) -> Generator[RankReport, None, None]:
        """Make a rank's traversals of a burst."""
        if rank == 0:
            self.bursts.append(burst)
            assert self.hold.wait(10)
        error, stop = self.fail_on.get((rank, Burst)), self.stop_after.get(burst.first)
        for index in range(len(burst.specs)):
            if error is not None and index == self.fail_after:
                raise error
            if index == stop:
                if rank == 0:
                    assert not stops()
                    self.leader.revoke(burst.turn)
                    assert stops()
                return
            yield REPORT

    def make_update(self, rank: int, half: BeginUpdate | EndUpdate) -> Any:
        """Make a rank's half of an update."""
        self.updates[rank].append(half)
        if rank == 0:
            assert self.hold.wait(10)
        if (error := self.fail_on.get((rank, type(half)))) is not None:
            raise error
        return replace(prepared(rank), refuses=self.refuses) if isinstance(half, BeginUpdate) else None


def run_of(turn: int, traversals: int = 1) -> Request:
    """Return a run in a turn."""
    return Request(turn, "run", 5.0, Run(repeated(SPEC, traversals), 0, ()))


def update_in(turn: int, deadline: float = 5.0) -> Request:
    """Return an update in a turn."""
    return Request(turn, "run", deadline, UpdateChange(BATCH, False, batch_id="batch"))


def send(line: Line, turn: int, traversals: int = 1) -> None:
    """Send rank 0 a run, as the client that holds a turn."""
    line.send(pickle.dumps(run_of(turn, traversals)), 5.0)


def send_update(line: Line, turn: int, deadline: float = 5.0) -> None:
    """Send rank 0 an update."""
    line.send(pickle.dumps(update_in(turn, deadline)), 5.0)


def receive(line: Line) -> Answer:
    """Return rank 0's next answer."""
    answer: Answer = pickle.loads(line.receive(time.monotonic() + 10))
    return answer
