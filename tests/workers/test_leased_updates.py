"""Updates under a lease: two ranks with lines between them, and what goes wrong between preparing and committing."""

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from dbfs_workers.errors import DeadlineExceededError, GraphTooLargeError, StaleRunError, WorkerLostError
from dbfs_workers.leases.messages import LeaseEnd
from dbfs_workers.leases.notes import Decision
from dbfs_workers.leases.requests import EndOfUpdate, PartOfUpdate, Refusal, UpdateAnswer, read_answer
from dbfs_workers.lines.door import Door
from dbfs_workers.rpc import Pickled
from tests.support.lines import TOTALS, Gang, opened, prepared, receive, send, send_update

FORGET, COMMIT = EndOfUpdate("run", None), EndOfUpdate("run", TOTALS)


@pytest.fixture
def door() -> Iterator[Door]:
    door = Door("127.0.0.1", None)
    yield door
    door.close()


@pytest.fixture
def gang(door: Door) -> Iterator[Gang]:
    gang = Gang(door)
    gang.leader.grant(1, "me", 4)
    yield gang
    gang.leader.close()
    gang.follower.close()


def answer(gang: Gang, door: Door, deadline: float = 5.0) -> UpdateAnswer:
    """Make an update, and return rank 0's answer to it."""
    with closing(opened(door, gang.holder_token)) as line:
        send_update(line, 1, deadline)
        answer = receive(line)
    assert isinstance(answer, UpdateAnswer)
    return answer


def halves(gang: Gang, rank: int) -> list[object]:
    """The parts of updates that a rank has made: classes of first halves, and second halves."""
    return [PartOfUpdate if isinstance(part, PartOfUpdate) else part for part in gang.updates[rank]]


def test_all_ranks_prepare_before_the_decision_and_commit_after_it(door: Door, gang: Gang) -> None:
    with closing(opened(door, gang.holder_token)) as line:
        send_update(line, 1)
        found = receive(line)
        assert isinstance(found, UpdateAnswer)
        assert not found.over
        assert [read_answer(one) for one in found.answers] == [Pickled.of("report")]
        assert halves(gang, 0) == halves(gang, 1) == [PartOfUpdate, COMMIT]
        (decided,) = gang.calls.decided
        assert (decided.run_id, decided.kind, decided.lease) == ("run", "insert-edges", 1)
        assert [rank.info for rank in decided.ranks.value()] == [prepared(rank).info for rank in (0, 1)]
        # The lease goes on.
        send(line, 1)
        receive(line)
        gang.leader.revoke(1)
        send_update(line, 1)
        assert isinstance(receive(line), Refusal)
    assert gang.leader.wait_until_idle()[0] == LeaseEnd(5, failed=False, committed=1)
    assert max(notes.committed for notes in gang.calls.notes) == 1
    assert len(gang.calls.decided) == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_cannot_prepare_leaves_the_version_on_all(door: Door, gang: Gang, rank: int) -> None:
    gang.fail_on[rank, PartOfUpdate] = GraphTooLargeError("no memory")
    found = answer(gang, door)
    assert not found.over
    with pytest.raises(GraphTooLargeError, match="no memory"):
        read_answer(found.answers[0])
    assert halves(gang, 0) == halves(gang, 1) == [PartOfUpdate, FORGET]
    assert not gang.calls.decided
    gang.leader.revoke(1)
    assert gang.leader.wait_until_idle()[0] == LeaseEnd(4, failed=False)
    (note,) = [ended for notes in gang.calls.notes for ended in notes.ended]
    assert (note.run_id, note.update, type(note.error)) == ("run", "insert-edges", GraphTooLargeError)


def test_a_refused_update_is_forgotten(door: Door, gang: Gang) -> None:
    gang.calls.decision = Decision(None, Pickled.of("refused"))
    found = answer(gang, door)
    assert [read_answer(one) for one in found.answers] == [Pickled.of("refused")]
    assert halves(gang, 0) == halves(gang, 1) == [PartOfUpdate, FORGET]
    assert gang.leader.wait_until_idle()[0].committed == 0


def test_an_update_without_a_decision_is_forgotten(door: Door, gang: Gang) -> None:
    gang.calls.decision = StaleRunError("lease 1 is over")
    found = answer(gang, door)
    assert not found.over
    with pytest.raises(StaleRunError, match="lease 1 is over"):
        read_answer(found.answers[0])
    assert halves(gang, 0) == halves(gang, 1) == [PartOfUpdate, FORGET]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_does_not_commit_is_not_counted(door: Door, gang: Gang, rank: int) -> None:
    gang.fail_on[rank, EndOfUpdate] = StaleRunError("has prepared no version")
    found = answer(gang, door)
    assert found.over
    with pytest.raises(WorkerLostError, match=r"load the graph again \(has prepared no version\)"):
        read_answer(found.answers[0])
    # The scheduler has decided once: with no commit counted, the graph is lost.
    assert gang.leader.wait_until_idle()[0] == LeaseEnd(4, failed=True, committed=0)


def test_a_decided_update_is_committed_though_its_lease_ends(door: Door, gang: Gang) -> None:
    decide = gang.calls.decide

    def stop_and_decide(update: object) -> Decision:
        gang.follower.stop(1, lambda number: None)
        gang.leader.stop(1, lambda number: None)
        return decide(update)  # type: ignore[arg-type]

    gang.leader._updates._decide = stop_and_decide
    answer(gang, door)
    assert halves(gang, 0) == halves(gang, 1) == [PartOfUpdate, COMMIT]
    assert gang.leader.wait_until_idle()[0].committed == 1


def test_an_update_goes_on_without_its_holder(door: Door, gang: Gang) -> None:
    gang.hold.clear()
    line = opened(door, gang.holder_token)
    send_update(line, 1)
    while not gang.updates[0]:
        time.sleep(0.001)
    line.close()
    gang.hold.set()
    assert gang.leader.wait_until_idle()[0].committed == 1
    assert halves(gang, 1) == [PartOfUpdate, COMMIT]


def test_a_rank_that_is_late_leaves_the_version_and_forgets_its_own(door: Door, gang: Gang) -> None:
    make, ended = gang.make_update, []

    def slowly(part: object) -> object:
        if isinstance(part, PartOfUpdate):
            time.sleep(1)
        ended.append(part)
        return make(1, part)  # type: ignore[arg-type]

    gang.follower._make_update = slowly
    found = answer(gang, door, deadline=0.05)
    assert found.over
    with pytest.raises(DeadlineExceededError, match="no answer from rank 1"):
        read_answer(found.answers[0])
    assert not gang.calls.decided
    end = time.monotonic() + 10
    while len(ended) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert ended[1] == FORGET


def test_a_rank_that_is_gone_is_named(door: Door, gang: Gang) -> None:
    gang.follower.close()
    found = answer(gang, door)
    assert found.over
    with pytest.raises(WorkerLostError, match="lost rank 1"):
        read_answer(found.answers[0])
    assert halves(gang, 0) == [PartOfUpdate, FORGET]
