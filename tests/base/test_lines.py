"""Lines, doors, and the halves of a turn that need no cluster."""

import itertools
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import dask
import pytest

from dbfs_workers.base.errors import (
    ExchangeUnavailableError,
    LateError,
    RunAbortedError,
    RunCancelledError,
    StaleRunError,
)
from dbfs_workers.base.lines import line as line_module
from dbfs_workers.base.lines.door import Door
from dbfs_workers.base.lines.line import TOKEN_BYTES, Line, LineClosedError, new_token
from dbfs_workers.base.lines.worker_door import ports_of
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.members.burst import Burst
from dbfs_workers.serving.answers import answer_well, more_follow, read_answer
from dbfs_workers.serving.turns.messages import TurnEnd
from dbfs_workers.serving.turns.notes import RunNote
from dbfs_workers.serving.turns.requests import REFUSAL, Answer, Answers, RankRequest, answers_of_run
from tests.support.gang import repeated
from tests.support.lines import REPORT, SPEC, Gang, opened, receive, run_of, send


@pytest.fixture
def door() -> Iterator[Door]:
    door = Door("127.0.0.1", None)
    yield door
    door.close()


def echo(line: Line) -> None:
    try:
        while True:
            line.send(line.receive(None), 5.0)
    except LineClosedError:
        pass


@pytest.mark.parametrize("awake", [0.0, 0.02])
@pytest.mark.parametrize("size", [0, 1, 100_000, 5_000_000])
def test_frames_arrive_whole(door: Door, size: int, awake: float) -> None:
    token = new_token()
    door.admit(token, echo)
    with closing(opened(door, token)) as line:
        line.awake_seconds = awake
        frame = bytes(range(256)) * (size // 256 + 1)
        line.send(frame[:size], 5.0)
        assert line.receive(time.monotonic() + 5) == frame[:size]


def test_a_door_closes_lines_without_a_valid_token(door: Door) -> None:
    token = new_token()
    door.admit(token, echo)
    with pytest.raises(LineClosedError, match="no line to 127.0.0.1.*token is not valid"):
        opened(door, new_token())
    door.refuse(token)
    with pytest.raises(LineClosedError):
        opened(door, token)
    for junk in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 4, pickle.dumps(SPEC) * 9, b"\0" * 500):
        with socket.create_connection(door.address, 5) as stranger:
            stranger.sendall(junk)
            with suppress(ConnectionResetError):
                assert stranger.recv(100) == b""


def test_a_closed_door_is_out_of_reach(door: Door) -> None:
    door.close()
    with pytest.raises(ExchangeUnavailableError, match="no line to 127.0.0.1"):
        opened(door, new_token())


def test_silent_strangers_do_not_keep_others_out(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    token = new_token()
    door.admit(token, echo)
    silent = [socket.create_connection(door.address, 5) for _ in range(20)]
    with closing(opened(door, token)) as line:
        line.send(b"here", 5.0)
        assert line.receive(time.monotonic() + 5) == b"here"
    for stranger in silent:
        stranger.close()


def test_a_closed_line_is_noticed_at_both_ends(door: Door) -> None:
    ended = threading.Event()

    def serve(line: Line) -> None:
        with pytest.raises(LineClosedError):
            line.receive(None)
        ended.set()

    token = new_token()
    door.admit(token, serve)
    line = opened(door, token)
    assert not line.hung_up
    line.close()
    assert ended.wait(5)


@pytest.mark.parametrize("awake", [0.0, 0.02])
def test_a_frame_that_does_not_come_is_a_timeout(door: Door, awake: float) -> None:
    token = new_token()
    door.admit(token, lambda line: time.sleep(1))
    with closing(opened(door, token)) as line, pytest.raises(TimeoutError):
        line.awake_seconds = awake
        line.receive(time.monotonic() + 0.05)


def test_a_thread_that_waits_looks_until_a_frame_begins(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has arrived of the frame's length before a look is not lost."""
    monkeypatch.setattr(line_module, "_LOOK_SECONDS", 0.001)
    token, seen, looks = new_token(), threading.Event(), itertools.count()

    def send(line: Line) -> None:
        length = (5).to_bytes(8, "little")
        line._connection.sendall(length[:3])
        seen.wait(5)
        line._connection.sendall(length[3:] + b"frame")
        seen.clear()

    def look() -> None:
        if next(looks) == 3:
            seen.set()

    door.admit(token, send)
    with closing(opened(door, token)) as line:
        assert line.receive(time.monotonic() + 5, look) == b"frame"
    assert next(looks) > 3
    door.admit(token, lambda _line: time.sleep(1))
    with closing(opened(door, token)) as line, pytest.raises(ZeroDivisionError):
        line.receive(time.monotonic() + 5, lambda: 1 // 0)  # type: ignore[arg-type]


def test_a_thread_that_stays_awake_sees_the_other_end_close(door: Door) -> None:
    token = new_token()
    door.admit(token, lambda _line: time.sleep(0.1))
    with closing(opened(door, token)) as line, pytest.raises(LineClosedError):
        line.awake_seconds = 5.0
        line.receive(None)


def answers(line: Line) -> list[Answer]:
    """Return the answers to a run up to the last one."""
    found: list[Answer] = []
    while not (found and found[-1].last):
        found.append(receive(line))
    return found


@pytest.fixture
def gang(door: Door) -> Iterator[Gang]:
    gang = Gang(door)
    yield gang
    gang.leader.close()
    gang.follower.close()


def test_a_stale_turn_is_refused_by_rank_0(door: Door, gang: Gang) -> None:
    with closing(opened(door, gang.holder_token)) as line:
        send(line, 1)
        assert receive(line) == REFUSAL
        gang.leader.grant(2, "me", 7)
        send(line, 1)
        assert receive(line) == REFUSAL
        send(line, 2)
        answer = receive(line)
        assert answer.last
        assert [read_answer(rank) for rank in answer.ranks] == [[REPORT], [REPORT]]
        gang.leader.revoke(2)
        send(line, 2)
        assert receive(line) == REFUSAL
    assert [burst.number for burst in gang.bursts] == [7]
    assert gang.leader.wait_until_idle()[0] == TurnEnd(8, failed=False)


def test_a_stale_turn_is_refused_by_the_other_ranks(door: Door, gang: Gang) -> None:
    gang.leader.grant(2, "me", 7)
    gang.follower.stop(2, lambda number: None)
    with closing(opened(door, gang.holder_token)) as line:
        send(line, 2)
        answer = receive(line)
        with pytest.raises(StaleRunError, match="rank 1: run 7 is of turn 2, which is over"):
            read_answer(answer.ranks[1])
    assert gang.leader.wait_until_idle()[0] == TurnEnd(8, failed=True)


def test_a_batch_is_made_in_bursts_and_ends_early_if_its_turn_is_revoked(door: Door, gang: Gang) -> None:
    gang.leader.grant(1, "me", 1)
    with closing(opened(door, gang.holder_token)) as line:
        gang.hold.clear()
        send(line, 1, 100)
        while not gang.bursts:
            time.sleep(0.001)
        gang.leader.revoke(1)
        gang.hold.set()
        answer = receive(line)
        assert answer.last
        assert len(read_answer(answer.ranks[0])) == 1
    assert [(burst.first, len(burst.specs)) for burst in gang.bursts] == [(0, 1)]


@pytest.mark.parametrize(
    ("answer_seconds", "expected"), [(0.0, [1, 2, 2]), (1e-9, [1, 1, 1, 1, 1, 0])], ids=["one answer", "several"]
)
def test_a_burst_that_stops_early_ends_the_run_with_what_was_made(
    door: Door, answer_seconds: float, expected: list[int]
) -> None:
    gang = Gang(door, 1e6, answer_seconds)
    gang.stop_after[3] = 2
    gang.leader.grant(1, "me", 1)
    with closing(opened(door, gang.holder_token)) as line:
        send(line, 1, 100)
        made = [[len(read_answer(rank)) for rank in answer.ranks] for answer in answers(line)]
        send(line, 1)
        assert receive(line) == REFUSAL
    assert made == [[count, count] for count in expected]
    assert [(burst.first, len(burst.specs)) for burst in gang.bursts] == [(0, 1), (1, 2), (3, 4)]
    assert gang.leader.wait_until_idle()[0] == TurnEnd(4, failed=False)
    (note,) = [ended for notes in gang.calls.notes for ended in notes.runs]
    assert note.summary is not None
    summary = note.summary.value()
    assert (note.traversals, note.error, summary.traversals, summary.last) == (5, None, 5, (REPORT, REPORT))
    gang.leader.close()
    gang.follower.close()


def test_the_run_that_a_turn_was_granted_to_is_made_before_a_revocation(door: Door, gang: Gang) -> None:
    gang.leader.grant(1, "me", 1, "run")
    revoking = threading.Thread(target=gang.leader.revoke, args=(1,))
    revoking.start()
    with closing(opened(door, gang.holder_token)) as line:
        send(line, 1)
        assert receive(line).ranks
        revoking.join(5)
        send(line, 1)
        assert receive(line) == REFUSAL
    gang.leader.grant(2, "gone", 2, "run that never comes")
    gang.leader.revoke(2)
    assert gang.leader.wait_until_idle()[0] == TurnEnd(2, failed=False)


@pytest.mark.parametrize(("burst_seconds", "lengths"), [(0.0, [1] * 15), (1e6, [1, 2, 4, 8])])
def test_bursts_double_up_to_their_time(door: Door, burst_seconds: float, lengths: list[int]) -> None:
    gang = Gang(door, burst_seconds)
    gang.leader.grant(1, "me", 1)
    with closing(opened(door, gang.holder_token)) as line:
        send(line, 1, 15)
        answers(line)
    assert [len(burst.specs) for burst in gang.bursts] == lengths
    gang.leader.close()
    gang.follower.close()


@pytest.fixture
def talkative(door: Door) -> Iterator[Gang]:
    """A gang whose ranks answer after each traversal."""
    gang = Gang(door, 1e6, 1e-9)
    gang.leader.grant(1, "me", 4)
    yield gang
    gang.leader.close()
    gang.follower.close()


def quick_line(door: Door, gang: Gang) -> Line:
    """Return a line of turn 1 after a first traversal: its next run has one burst."""
    line = opened(door, gang.holder_token)
    send(line, 1)
    receive(line)
    return line


def require_whole_run(door: Door, gang: Gang, turn: int) -> None:
    """Grant the next turn, and check that a run gets all of its answers, and no other ones."""
    gang.leader.grant(turn, "me", 7)
    with closing(opened(door, gang.holder_token)) as line:
        send(line, turn, 5)
        assert sum(len(read_answer(answer.ranks[1])) for answer in answers(line)) == 5


def test_a_burst_is_answered_several_times(door: Door, talkative: Gang) -> None:
    with closing(quick_line(door, talkative)) as line:
        send(line, 1, 9)
        found = answers(line)
    assert [[read_answer(rank) for rank in answer.ranks] for answer in found] == [[[REPORT], [REPORT]]] * 9
    assert [len(burst.specs) for burst in talkative.bursts] == [1, 9]
    talkative.leader.wait_until_idle()
    assert [note.traversals for notes in talkative.calls.notes for note in notes.runs] == [1, 9]


@pytest.mark.parametrize(
    ("each", "traversals", "sizes"),
    [(0, 9, [9]), (8, 30, [8, 8, 7, 3, 2, 1, 1]), (8, 1, [1]), (40, 40, [20, 10, 5, 5]), (1, 3, [1, 1, 1])],
)
def test_the_last_answers_are_small(each: int, traversals: int, sizes: list[int]) -> None:
    burst = Burst(1, 2, "me", repeated(SPEC, traversals), 0, 0, 5.0, (), each)
    found = list(answers_of_run(burst, (REPORT for _ in range(traversals))))
    assert [made for _, made in found] == [len(read_answer(answer)) for answer, _ in found] == sizes
    assert [more_follow(answer) for answer, _ in found] == [True] * (len(sizes) - 1) + [False]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_fails_between_two_answers(door: Door, talkative: Gang, rank: int) -> None:
    talkative.fail_after = 3
    with closing(quick_line(door, talkative)) as line:
        talkative.fail_on[rank, Burst] = RunAbortedError("the device is on fire")
        send(line, 1, 9)
        *well, last = answers(line)
        assert len(well) == 3
        with pytest.raises(RunAbortedError, match="on fire"):
            read_answer(last.ranks[rank])
        assert talkative.calls.aborts[0] == (5, Cause.FAILED)
        assert talkative.leader.wait_until_idle()[0] == TurnEnd(6, failed=True)
    (note,) = [ended for notes in talkative.calls.notes for ended in notes.runs if ended.error is not None]
    assert note.summary is not None
    summary = note.summary.value()
    assert (note.traversals, summary.traversals) == (9, 3)
    # The answers that rank 1 had under way are not taken for those of the next run.
    talkative.fail_on.clear()
    require_whole_run(door, talkative, 2)


def test_a_holder_that_leaves_between_two_answers(door: Door, talkative: Gang, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbfs_workers.serving.turns.leader._END_SECONDS", 30)
    line = quick_line(door, talkative)
    send(line, 1, 20_000)
    receive(line)
    line.close()
    assert talkative.leader.wait_until_idle()[0] == TurnEnd(6, failed=True)
    assert (5, Cause.CANCELLED) in talkative.calls.aborts
    (note,) = [ended for notes in talkative.calls.notes for ended in notes.runs if ended.error is not None]
    assert isinstance(note.error, RunCancelledError)
    assert note.summary is not None
    summary = note.summary.value()
    assert 0 < summary.traversals < note.traversals == 20_000
    require_whole_run(door, talkative, 2)


def test_a_batch_reaches_its_end_in_order(door: Door, gang: Gang) -> None:
    gang.leader.grant(1, "me", 1)
    with closing(opened(door, gang.holder_token)) as line:
        send(line, 1, 1000)
        assert sum(len(read_answer(answer.ranks[1])) for answer in answers(line)) == 1000
    firsts = [burst.first for burst in gang.bursts]
    assert firsts == sorted(firsts)
    assert sum(len(burst.specs) for burst in gang.bursts) == 1000
    gang.leader.wait_until_idle()
    (note,) = [ended for notes in gang.calls.notes for ended in notes.runs]
    assert (note.run_id, note.traversals, note.error) == ("run", 1000, None)


def test_a_rank_that_fails_ends_the_run_while_rank_0_waits(door: Door, gang: Gang) -> None:
    gang.leader.grant(1, "me", 4)
    gang.fail_on[1, Burst] = RunAbortedError("the device is on fire")
    gang.hold.clear()
    with closing(opened(door, gang.holder_token)) as line:
        send(line, 1)
        end = time.monotonic() + 5
        while not gang.calls.aborts:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert gang.calls.aborts[0] == (4, Cause.FAILED)
        gang.hold.set()
        answer = receive(line)
        with pytest.raises(RunAbortedError, match="on fire"):
            read_answer(answer.ranks[1])
        send(line, 1)
        assert receive(line) == REFUSAL


def test_a_holder_that_leaves_ends_its_run(door: Door, gang: Gang) -> None:
    gang.leader.grant(1, "me", 4)
    gang.hold.clear()
    line = opened(door, gang.holder_token)
    send(line, 1)
    while not gang.bursts:
        time.sleep(0.001)
    line.close()
    end = time.monotonic() + 5
    while not gang.calls.aborts:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert gang.calls.aborts[0] == (4, Cause.CANCELLED)
    gang.hold.set()
    assert gang.leader.wait_until_idle()[0].number == 5


def test_a_stop_between_two_bursts_is_not_lost(door: Door, gang: Gang) -> None:
    gang.leader.grant(1, "me", 4)
    ended: list[int] = []
    gang.leader.stop(1, ended.append)
    gang.leader._revoked = False  # as if rank 0 had looked just before
    with closing(opened(door, gang.holder_token)) as line:
        send(line, 1)
        receive(line)
    assert ended == [4]


def test_the_end_of_a_turn_waits_for_a_long_burst_in_no_thread(
    door: Door, gang: Gang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler asks again and again: each time a thread would wait, and a worker has few for its messages."""
    monkeypatch.setattr("dbfs_workers.serving.turns.leader._END_SECONDS", 0.01)
    gang.leader.grant(1, "me", 4)
    gang.hold.clear()
    with closing(opened(door, gang.holder_token)) as line:
        send(line, 1)
        while not gang.bursts:
            time.sleep(0.001)
        gang.leader.revoke(1)
        with pytest.raises(LateError, match="rank 0: a run of turn 1 is under way yet"):
            gang.leader.wait_until_idle()
        gang.hold.set()
        assert receive(line).over
    monkeypatch.undo()
    assert gang.leader.wait_until_idle()[0] == TurnEnd(5, failed=False)


def test_a_late_rank_does_not_hold_up_the_error_of_rank_0(
    door: Door, gang: Gang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 was cancelled, and rank 1 is stopped: nobody waits for rank 1 until the run's deadline."""
    monkeypatch.setattr("dbfs_workers.serving.turns.leader._END_SECONDS", 0.01)
    goes_on = threading.Event()

    def waiting(request: RankRequest, stops: object) -> Answers:
        assert goes_on.wait(10)
        yield answer_well([REPORT]), 1

    gang.follower._make = waiting
    gang.fail_on[0, Burst] = RunCancelledError("cancelled: by the test")
    gang.leader.grant(1, "me", 4)
    began = time.monotonic()
    with pytest.raises(RunCancelledError, match="by the test"):
        read_answer(gang.leader.lead(run_of(1)).ranks[0])
    # A bound against a wait for the deadline, which is 5 s away.
    assert time.monotonic() - began < 4
    goes_on.set()


def test_a_run_that_the_scheduler_leads_is_one_burst_and_needs_no_note(gang: Gang) -> None:
    gang.leader.grant(1, "me", 4)
    answer = gang.leader.lead(run_of(1, 20))
    assert (answer.last, answer.over) == (True, False)
    assert [len(read_answer(rank)) for rank in answer.ranks] == [20, 20]
    assert [(burst.number, len(burst.specs)) for burst in gang.bursts] == [(4, 20)]
    gang.leader.revoke(1)
    assert gang.leader.wait_until_idle()[0] == TurnEnd(5, failed=False)
    assert not gang.calls.notes
    assert gang.leader.lead(run_of(1)) == REFUSAL


def test_no_run_begins_over_a_broken_line(door: Door, gang: Gang) -> None:
    """Its ranks would wait for the one that gets no burst. The scheduler finds out why, and has the lines remade."""
    gang.leader.grant(1, "me", 4)
    gang.follower.close()
    with closing(opened(door, gang.holder_token)) as line:
        send(line, 1)
        assert receive(line) == REFUSAL
    assert gang.leader.wait_until_idle()[0] == TurnEnd(4, failed=True)
    assert not gang.bursts


def test_a_peer_that_is_lost_in_the_middle_is_named(door: Door, gang: Gang) -> None:
    gang.leader.grant(1, "me", 4)
    goes_on = threading.Event()

    def waiting(request: RankRequest, stops: object) -> Answers:
        assert goes_on.wait(10)
        yield answer_well([REPORT]), 1

    gang.follower._make = waiting
    with closing(opened(door, gang.holder_token)) as line:
        send(line, 1)
        while not gang.bursts:
            time.sleep(0.001)
        gang.follower.close()
        answer = receive(line)
        goes_on.set()
    with pytest.raises(ConnectionError, match="lost rank 1"):
        read_answer(answer.ranks[1])
    assert gang.leader.wait_until_idle()[0] == TurnEnd(5, failed=True)


def test_tokens_are_long_and_differ() -> None:
    assert len(new_token()) == TOKEN_BYTES
    assert new_token() != new_token()


def test_a_door_at_the_ports_that_are_configured() -> None:
    with closing(Door("127.0.0.1", None)) as taken:
        # The next port may be in use by another program.
        first = taken.address[1]
        with closing(Door("127.0.0.1", None, range(first, first + 20))) as door:
            assert first < door.address[1] < first + 20
        with pytest.raises(OSError, match="in use"):
            Door("127.0.0.1", None, [first])
    for value, ports in (("any", range(1)), (9000, range(9000, 9001)), ("9000:9002", range(9000, 9003))):
        with dask.config.set({"dbfs.lines.ports": value}):
            assert ports_of("dbfs.lines.ports", "any") == ports
    for wrong in ("some", "0", "9:8", "1:70000", ""):
        with (
            dask.config.set({"dbfs.lines.ports": wrong}),
            pytest.raises(ValueError, match=r"^dbfs\.lines\.ports: .* is neither 'any' nor a port"),
        ):
            ports_of("dbfs.lines.ports", "any")


def test_a_line_that_is_handed_over_keeps_what_has_arrived(door: Door) -> None:
    token = new_token()
    door.admit(token, echo)
    with closing(opened(door, token)) as line:
        line.send(b"one", 5.0)
        assert line.receive(time.monotonic() + 5) == b"one"
        line.send(b"two", 5.0)
        connection, ahead = line.release()
        with connection:
            connection.settimeout(5)
            assert ahead + connection.recv(11 - len(ahead)) == (3).to_bytes(8, "little") + b"two"


def test_all_bursts_of_a_run_share_its_deadline(door: Door) -> None:
    gang = Gang(door, burst_seconds=1e-9)
    gang.leader.grant(1, "me", 1)
    with closing(opened(door, gang.holder_token)) as line:
        send(line, 1, 20)
        answers(line)
    left = [burst.deadline for burst in gang.bursts]
    assert len(left) == 20
    assert 5.0 > left[0] > left[19]
    assert left == sorted(left, reverse=True)


def test_a_stop_between_two_bursts_ends_the_next_one(door: Door) -> None:
    """The stop read the number of the burst before."""
    gang, ended = Gang(door, burst_seconds=1e-9), list[int]()
    gang.leader.grant(1, "me", 1)
    with closing(opened(door, gang.holder_token)) as line:
        gang.leader._end_run = ended.append
        send(line, 1, 2)
        answers(line)
    assert ended == [1, 2]


def test_a_holder_that_leaves_between_two_runs_gives_up_its_turn(door: Door, gang: Gang) -> None:
    gang.leader.grant(1, "me", 4)
    ended, token = threading.Event(), new_token()

    def serve(line: Line) -> None:
        gang.leader.serve(line)
        ended.set()

    door.admit(token, serve)
    stranger, holder = opened(door, token), opened(door, gang.holder_token)
    with closing(opened(door, token)) as line:
        stranger.close()
        assert ended.wait(5)
        ended.clear()
        send(line, 1)
        assert receive(line).ranks
    assert ended.wait(5)
    with closing(holder):
        send(holder, 1)
        assert receive(holder) == REFUSAL


@pytest.mark.parametrize("began", [False, True])
def test_the_watch_rests_unless_a_run_began(gang: Gang, began: bool) -> None:
    awake = []

    class Awake(threading.Event):
        def clear(self) -> None:
            super().clear()
            if began:
                gang.leader._under_way = RunNote("run", time.time(), 1)

        def wait(self, timeout: float | None = None) -> bool:
            awake.append(self.is_set())
            gang.leader._closed = len(awake) == 2
            return True

    before, gang.leader._awake = gang.leader._awake, Awake()
    gang.leader._awake.set()
    gang.leader._watch()
    before.set()
    assert awake == [True, began]
