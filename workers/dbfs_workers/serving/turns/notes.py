"""The messages of rank 0 to the scheduler: notes of the runs of a client's turn, and the updates that rank 0 decided.

The scheduler's history, lists, page and metrics learn of the runs from the notes. A run that is under way for a while
is noted as under way, so that it can be seen and cancelled. Every run is noted once it has ended.
"""

from dataclasses import dataclass, field
from typing import Any

from dbfs_workers.base.errors import DbfsError
from dbfs_workers.base.text import Identifier
from dbfs_workers.search.reports import RankReport, RunSummary
from dbfs_workers.serving.answers import read_answer
from dbfs_workers.serving.rpc import Message, PickledValue
from dbfs_workers.serving.turns.changes import RankVersion


@dataclass(frozen=True)
class NotedRun:
    """A run as the scheduler learns of it. Times are seconds since the epoch.

    Attributes:
        began: when rank 0 took the run.
        traversals: number of traversals to do, or done by a run that ended well.
        number: the gang's serial number of the burst under way, or of the last one.
        finished: number of traversals that are done.
        ended: when the run ended, or was left because the turn was revoked; 0 while it is under way.
        summary: sums of the traversals that are done; None if there are none, or the run is under way.
        error: why the run failed; None if it did not.
        update: kind of the update, if the run is one that failed before rank 0's decision; empty for traversals.
    """

    run_id: Identifier
    began: float
    traversals: int
    number: int = 0
    finished: int = 0
    ended: float = 0.0
    summary: PickledValue[RunSummary] | None = None
    error: DbfsError | None = None
    update: str = ""


@dataclass
class RunNote:
    """A run as rank 0 notes it. Other attributes as in ``NotedRun``.

    Attributes:
        answers: by burst, the ranks' answers.
        shown: whether the run was noted as under way.
        led: whether the scheduler waits for the run itself, and needs no note.
    """

    run_id: str
    began: float
    traversals: int
    number: int = 0
    finished: int = 0
    answers: list[list[bytes]] = field(default_factory=list)
    ended: float = 0.0
    shown: bool = False
    update: str = ""
    led: bool = False

    def noted(self) -> NotedRun:
        """Return the run for the scheduler. If the run ended, this reads the ranks' answers."""
        ranks: list[list[RankReport]] = []
        error: DbfsError | None = None
        for answers in self.answers if self.ended else ():
            try:
                parts = [read_answer(answer) for answer in answers]
                ranks = [before + part for before, part in zip(ranks, parts, strict=True)] if ranks else parts
            except DbfsError as raised:
                error = raised
            except RuntimeError as raised:
                error = DbfsError(raised)
        summary = PickledValue.of(RunSummary.of(ranks)) if ranks and ranks[0] else None
        traversals = self.finished if self.ended and error is None else self.traversals
        return NotedRun(
            self.run_id, self.began, traversals, self.number, self.finished, self.ended, summary, error, self.update
        )


@dataclass(frozen=True)
class NoteRuns(Message[None]):
    """Take notes of the runs of a client's turn. Rank 0 sends it to the scheduler, in the order of the runs.

    Attributes:
        runs: runs that ended since the last message, and the run under way, if it has been for a while.
    """

    graph_id: Identifier
    turn: int
    runs: tuple[NotedRun, ...]


@dataclass(frozen=True)
class EnterUpdate(Message[PickledValue[Any]]):
    """Enter an update into the scheduler's record of the graph; return its report, pickled.

    From rank 0, which has decided: the ranks have the version already, or have forgotten it. Entered once, however
    often the message comes.

    Attributes:
        client: id of the client that made it.
        batch_id: see ``Change``.
        kind: kind of the update.
        began: when rank 0 took the update, in seconds since the epoch.
        ranks: by rank, the version that the rank has prepared.
        applied: whether the ranks commit the version; False if one refused the update.
        settled: whether all ranks have said that they committed it. If not, the next run waits until they have.
        torn: why a rank could not commit it, which makes the graph lost; empty if none failed.

    Raises:
        GraphNotFoundError: the graph was unloaded.
        WorkerLostError: the graph is lost.
    """

    graph_id: Identifier
    client: str
    run_id: Identifier
    batch_id: Identifier
    kind: str
    began: float
    ranks: PickledValue[tuple[RankVersion, ...]]
    applied: bool
    settled: bool
    torn: str
