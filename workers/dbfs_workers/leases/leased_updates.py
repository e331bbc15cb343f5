"""An update of a few edges under a lease, on rank 0: all ranks prepare the version, the scheduler decides, all commit.

Preparing changes nothing that a traversal reads, so until the decision an error leaves the graph as it was. From the
decision on the version is the graph's, whatever becomes of the client or the lease. If a rank does not commit the
version then, the graph is lost: when the lease ends, the scheduler finds fewer commits than decisions.
"""

import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dbfs_workers.errors import DeadlineExceededError, WorkerLostError
from dbfs_workers.leases.follower import MakeUpdate
from dbfs_workers.leases.notes import DecideUpdate, Decision
from dbfs_workers.leases.peer import LATE, Peer
from dbfs_workers.leases.requests import (
    EndOfUpdate,
    LeasedUpdate,
    PartOfUpdate,
    answer_error,
    answer_well,
    failed,
    read_answer,
)
from dbfs_workers.lines.line import LineClosedError
from dbfs_workers.rpc import Pickled

# Seconds after the deadline, or from now on, in which a rank commits or forgets a version.
_GRACE: Final = 2.0


@dataclass(frozen=True)
class Outcome:
    """The end of an update.

    Attributes:
        answers: what its client gets: see ``UpdateAnswer``.
        decided: whether the scheduler has decided, and so has the update in its history.
        committed: whether all ranks have committed a new version.
        over: whether the lease is over, since a rank is lost, late or without the version.
    """

    answers: tuple[bytes, ...]
    decided: bool = False
    committed: bool = False
    over: bool = False


class LeasedUpdates:
    """The updates under a gang's leases, on rank 0.

    Args:
        graph_id: the graph.
        peers: lines to the other ranks, by rank.
        make_update: makes rank 0's part.
        decide: returns the scheduler's decision.
    """

    def __init__(
        self,
        graph_id: str,
        peers: Sequence[Peer],
        make_update: MakeUpdate,
        decide: Callable[[DecideUpdate], Decision],
    ) -> None:
        self._graph_id = graph_id
        self._peers = peers
        self._make_update = make_update
        self._decide = decide

    def make(self, update: LeasedUpdate, began: float) -> Outcome:
        """Change the graph on all ranks or on none; ``began`` is in seconds since the epoch."""
        end = time.monotonic() + update.deadline
        answers = self._on_all(update, PartOfUpdate(update.lease, update.run_id, update.spec), end + LATE)
        if any(map(failed, answers)):
            return self._forgotten(update, tuple(filter(failed, answers)))
        ranks = Pickled.of(tuple(map(read_answer, answers)))
        kind, strict = update.spec.kind, update.strict
        try:
            decision = self._decide(
                DecideUpdate(self._graph_id, update.lease, update.run_id, kind, strict, began, ranks)
            )
        except Exception as error:  # the holder raises it
            return self._forgotten(update, (answer_error(error),))
        report = answer_well(decision.report)
        if decision.totals is None:
            return self._forgotten(update, (report,), decided=True)
        answers = self._on_all(update, EndOfUpdate(update.run_id, decision.totals), end + _GRACE)
        if any(map(failed, answers)):
            why = next(answer for answer in answers if failed(answer))
            return Outcome((_torn(update, why),), decided=True, over=True)
        return Outcome((report,), decided=True, committed=True)

    def _forgotten(self, update: LeasedUpdate, answers: tuple[bytes, ...], *, decided: bool = False) -> Outcome:
        """Have all ranks forget the version."""
        forgot = self._on_all(update, EndOfUpdate(update.run_id, None), time.monotonic() + _GRACE)
        over = any(map(_rank_is_gone, (*answers, *forgot)))
        return Outcome(answers, decided=decided, over=over)

    def _on_all(self, update: LeasedUpdate, part: PartOfUpdate | EndOfUpdate, end: float) -> list[bytes]:
        """Have all ranks make a part; return their answers, for which rank 0 waits until ``end``."""
        broken: dict[int, bytes] = {}
        frame = pickle.dumps(part, protocol=5) if self._peers else b""
        for peer in self._peers:
            try:
                peer.ask(frame)
            except LineClosedError as error:
                broken[peer.rank] = peer.lost(update.run_id, error)
        try:
            own = answer_well(self._make_update(part))
        except Exception as error:  # the holder raises it
            own = answer_error(error)
        others = (
            broken.get(peer.rank) or peer.answer_or_error(update.run_id, update.deadline, end) for peer in self._peers
        )
        return [own, *others]


def _rank_is_gone(answer: bytes) -> bool:
    """Return whether an answer says that a rank, or the scheduler, gave none."""
    if not failed(answer):
        return False
    try:
        read_answer(answer)
    except (DeadlineExceededError, WorkerLostError):
        return True
    except Exception:  # of a rank that goes on
        return False
    return False


def _torn(update: LeasedUpdate, answer: bytes) -> bytes:
    """Return what the holder gets after one of the ranks failed to commit."""
    try:
        read_answer(answer)
    except Exception as error:
        why = f"run {update.run_id}: not all ranks committed the version that it made; load the graph again"
        return answer_error(WorkerLostError(f"{why} ({error})"))
    return answer
