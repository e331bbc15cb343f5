"""Updates that rank 0 leads: two ranks with lines between them, and what goes wrong before and after the decision."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from dbfs_workers.base.errors import (
    DeadlineExceededError,
    GraphTooLargeError,
    LateError,
    OutcomeUnknownError,
    OutputError,
    StaleRunError,
    WorkerLostError,
)
from dbfs_workers.base.lines.door import Door
from dbfs_workers.serving.answers import answer_error, answer_well, read_answer
from dbfs_workers.serving.rpc import LATE_SECONDS, PickledValue
from dbfs_workers.serving.turns.changes import Change
from dbfs_workers.serving.turns.messages import TurnEnd
from dbfs_workers.serving.turns.requests import REFUSAL, Answer, Answers, BeginUpdate, EndUpdate, RankRequest
from dbfs_workers.serving.turns.rounds import make_update
from tests.support.lines import TOTALS, Gang, opened, prepared, receive, send, send_update, update_in

Stops = Callable[[], bool]

FORGET, COMMIT = EndUpdate("run", None), EndUpdate("run", TOTALS)


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


def answer(gang: Gang, door: Door, deadline: float = 5.0) -> Answer:
    """Make an update, and return rank 0's answer to it."""
    with closing(opened(door, gang.holder_token)) as line:
        send_update(line, 1, deadline)
        return receive(line)


def halves(gang: Gang, rank: int) -> list[object]:
    """The halves of updates that a rank has made: the classes of first ones, and the second ones themselves."""
    return [BeginUpdate if isinstance(half, BeginUpdate) else half for half in gang.updates[rank]]


def test_all_ranks_prepare_before_the_decision_and_commit_after_it(door: Door, gang: Gang) -> None:
    with closing(opened(door, gang.holder_token)) as line:
        send_update(line, 1)
        found = receive(line)
        assert not found.over
        assert [read_answer(one) for one in found.ranks] == [PickledValue.of("report")]
        assert halves(gang, 0) == halves(gang, 1) == [BeginUpdate, COMMIT]
        (entered,) = gang.calls.entered
        assert (entered.run_id, entered.kind, entered.client) == ("run", "insert-edges", "me")
        assert (entered.applied, entered.settled, entered.torn) == (True, True, "")
        assert [rank.info for rank in entered.ranks.value()] == [prepared(rank).info for rank in (0, 1)]
        # The turn goes on.
        send(line, 1)
        receive(line)
        gang.leader.revoke(1)
        send_update(line, 1)
        assert receive(line) == REFUSAL
    assert gang.leader.wait_until_idle()[0] == TurnEnd(5, failed=False)
    assert len(gang.calls.entered) == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_cannot_prepare_leaves_the_version_on_all(door: Door, gang: Gang, rank: int) -> None:
    gang.fail_on[rank, BeginUpdate] = GraphTooLargeError("no memory")
    found = answer(gang, door)
    assert not found.over
    with pytest.raises(GraphTooLargeError, match="no memory"):
        read_answer(found.ranks[0])
    assert halves(gang, 0) == halves(gang, 1) == [BeginUpdate, FORGET]
    assert not gang.calls.entered
    gang.leader.revoke(1)
    assert gang.leader.wait_until_idle()[0] == TurnEnd(4, failed=False)
    (note,) = [ended for notes in gang.calls.notes for ended in notes.runs]
    assert (note.run_id, note.update, type(note.error)) == ("run", "insert-edges", GraphTooLargeError)


def test_a_refused_update_is_forgotten(door: Door, gang: Gang) -> None:
    gang.refuses = True
    with closing(opened(door, gang.holder_token)) as line:
        send_update(line, 1)
        found = receive(line)
    assert [read_answer(one) for one in found.ranks] == [PickledValue.of("report")]
    assert halves(gang, 0) == halves(gang, 1) == [BeginUpdate, FORGET]
    assert [entered.applied for entered in gang.calls.entered] == [False]


def test_a_scheduler_that_does_not_confirm_leaves_the_outcome_unknown(door: Door, gang: Gang) -> None:
    gang.calls.answer = None
    found = answer(gang, door, deadline=0.05)
    assert not found.over
    with pytest.raises(OutcomeUnknownError, match=r"run run: .* graph.version shows the outcome"):
        read_answer(found.ranks[0])
    # The end of the turn waits until the scheduler has the update.
    assert not gang.leader.wait_until_idle()[1][-1].done()


def test_what_the_scheduler_refuses_is_the_answer(door: Door, gang: Gang) -> None:
    gang.calls.answer = StaleRunError("the graph was unloaded")
    with pytest.raises(StaleRunError, match="the graph was unloaded"):
        read_answer(answer(gang, door).ranks[0])


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_does_not_commit_tears_the_graph(door: Door, gang: Gang, rank: int) -> None:
    gang.fail_on[rank, EndUpdate] = StaleRunError("has prepared no version")
    assert answer(gang, door).over
    assert [entered.torn for entered in gang.calls.entered] == ["has prepared no version"]
    assert gang.leader.wait_until_idle()[0] == TurnEnd(4, failed=True)


def test_a_rank_that_commits_late_leaves_the_version_unsettled(door: Door, gang: Gang) -> None:
    goes_on = threading.Event()

    def late(half: RankRequest, stops: Stops) -> Answers:
        if isinstance(half, EndUpdate):
            assert goes_on.wait(10)
        return gang.make(1, half, stops)

    gang.follower._make = late
    found = answer(gang, door, deadline=0.05)
    goes_on.set()
    # The version is decided, so the client has its report. The next run waits for the rank.
    assert found.over
    assert [read_answer(one) for one in found.ranks] == [PickledValue.of("report")]
    assert [(entered.settled, entered.torn) for entered in gang.calls.entered] == [(False, "")]


def test_a_decided_update_is_committed_though_its_turn_ends(door: Door, gang: Gang) -> None:
    def stop_and_make(half: RankRequest, stops: Stops) -> Answers:
        if isinstance(half, EndUpdate):
            gang.follower.stop(1, lambda number: None)
            gang.leader.stop(1, lambda number: None)
        return gang.make(0, half, stops)

    gang.leader._make = stop_and_make
    answer(gang, door)
    assert halves(gang, 0) == halves(gang, 1) == [BeginUpdate, COMMIT]


def test_an_update_whose_holder_gave_up_is_not_made(door: Door, gang: Gang) -> None:
    gang.hold.clear()
    line = opened(door, gang.holder_token)
    send_update(line, 1)
    while not gang.updates[0]:
        time.sleep(0.001)
    line.close()
    gang.hold.set()
    gang.leader.wait_until_idle()
    assert halves(gang, 0) == halves(gang, 1) == [BeginUpdate, FORGET]
    assert not gang.calls.entered


def test_a_decision_after_the_deadline_is_refused(door: Door, gang: Gang) -> None:
    gang.hold.clear()
    line = opened(door, gang.holder_token)
    send_update(line, 1, deadline=0.01)
    while not gang.updates[0]:
        time.sleep(0.001)
    time.sleep(0.02)
    gang.hold.set()
    found = receive(line)
    with pytest.raises(DeadlineExceededError, match=r"not done after 0.01 s; (the graph|no answer from rank)"):
        read_answer(found.ranks[0])
    assert halves(gang, 0)[-1] == FORGET
    assert not gang.calls.entered
    line.close()


def test_a_rank_that_is_late_leaves_the_version_and_forgets_its_own(door: Door, gang: Gang) -> None:
    ended = []

    def slowly(half: RankRequest, stops: Stops) -> Answers:
        if isinstance(half, BeginUpdate):
            time.sleep(1)
        ended.append(half)
        return gang.make(1, half, stops)

    gang.follower._make = slowly
    found = answer(gang, door, deadline=0.05)
    assert found.over
    with pytest.raises(LateError, match="no answer from rank 1"):
        read_answer(found.ranks[0])
    assert not gang.calls.entered
    end = time.monotonic() + 10
    while len(ended) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert ended[1] == FORGET


def test_no_update_begins_over_a_broken_line(door: Door, gang: Gang) -> None:
    """The scheduler then finds out whether a rank is lost, and has the lines remade."""
    gang.follower.close()
    with closing(opened(door, gang.holder_token)) as line:
        send_update(line, 1)
        assert receive(line) == REFUSAL
    assert gang.leader.wait_until_idle()[0] == TurnEnd(4, failed=True)
    assert not halves(gang, 0)


def test_a_rank_that_goes_in_the_middle_is_named(door: Door, gang: Gang) -> None:
    goes_on = threading.Event()

    def waiting(half: RankRequest, stops: Stops) -> Answers:
        assert goes_on.wait(10)
        return gang.make(1, half, stops)

    gang.follower._make = waiting
    with closing(opened(door, gang.holder_token)) as line:
        send_update(line, 1)
        while not gang.updates[0]:
            time.sleep(0.001)
        gang.follower.close()
        found = receive(line)
        goes_on.set()
    assert found.over
    with pytest.raises(WorkerLostError, match="lost rank 1"):
        read_answer(found.ranks[0])
    assert halves(gang, 0) == [BeginUpdate, FORGET]


@pytest.mark.parametrize(
    ("refuses", "prepared_at", "until"), [(False, 1.0, 5.0), (False, 4.95, 4.95 + LATE_SECONDS), (True, 1.0, 5.0)]
)
def test_a_rank_that_is_late_in_the_second_round(refuses: bool, prepared_at: float, until: float) -> None:
    """The scheduler has the version by the deadline. No rank commits a refused version."""
    clock = [0.0]
    request = update_in(1)
    assert isinstance(request.work, Change)
    asked, decided = list[tuple[BeginUpdate | EndUpdate, float]](), list[Any]()

    def ask(half: BeginUpdate | EndUpdate, end: float) -> list[bytes]:
        asked.append((half, end))
        if isinstance(half, BeginUpdate):
            clock[0] = prepared_at
            return [answer_well(replace(prepared(rank), refuses=refuses)) for rank in (0, 1)]
        return [answer_well(None), answer_error(LateError("no answer from rank 1"))]

    outcome = make_update(
        request, request.work, "graph", "me", 0.0, ask, lambda: clock[0], lambda: False, decided.append
    )
    (first, end), second = asked
    # Before a rank commits, and only what is committed.
    assert [[rank.version for rank in ranks] for ranks in decided] == ([] if refuses else [[1, 1]])
    assert (type(first), end) == (BeginUpdate, 5.0)
    assert second == (FORGET if refuses else COMMIT, until)
    assert outcome.entry is not None
    assert (outcome.errors, outcome.over) == ((), True)
    assert (outcome.entry.applied, outcome.entry.settled, outcome.entry.torn) == (not refuses, refuses, "")


def test_a_decision_that_can_not_be_kept_is_none() -> None:
    request, asked = update_in(1), list[BeginUpdate | EndUpdate]()
    assert isinstance(request.work, Change)

    def ask(half: BeginUpdate | EndUpdate, _: float) -> list[bytes]:
        asked.append(half)
        return [answer_well(prepared(rank) if isinstance(half, BeginUpdate) else None) for rank in (0, 1)]

    def decide(_: Any) -> None:
        raise OutputError("the disk is full")

    outcome = make_update(request, request.work, "graph", "me", 0.0, ask, lambda: 0.0, lambda: False, decide)
    assert asked[1:] == [FORGET]
    assert (outcome.entry, outcome.over) == (None, False)
    with pytest.raises(OutputError, match="full"):
        read_answer(outcome.errors[0])
