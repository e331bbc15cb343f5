"""Deadlines: what is left of one, and the calls that one bounds."""

import dask
import pytest

from dbfs.cluster.deadline import GRACE_SECONDS, Deadline, bounded, limit, of_call
from dbfs.errors import DeadlineExceededError


def test_a_deadline_that_has_passed_leaves_a_millisecond() -> None:
    """Zero and less are no timeouts for some who read the rest."""
    over = Deadline(-0.5)
    assert (over.remaining, over.interval()) == (1e-3, 1e-3)
    assert Deadline(-0.5 - GRACE_SECONDS).last == 1e-3
    with pytest.raises(DeadlineExceededError, match=r"^waiting: not done after -0\.5 s$"):
        over.enforce("waiting")
    Deadline(60).enforce("waiting")


def test_an_answer_may_come_a_little_later() -> None:
    over = Deadline(-GRACE_SECONDS / 2)
    assert not over.over
    assert 0 < over.last <= GRACE_SECONDS / 2
    assert Deadline(-2 * GRACE_SECONDS).over


def test_the_earlier_of_two_deadlines_holds() -> None:
    with limit(60) as outer:
        with limit(3600) as inner:
            assert of_call() is inner
            assert inner.seconds == 60
            assert inner.remaining <= outer.remaining
        with limit(7) as inner:
            assert 6 < inner.remaining <= 7
        assert of_call() is outer
    with dask.config.set({"dbfs.deadline": 5}):
        assert of_call().seconds == 5


def test_a_bounded_call_has_its_own_name_and_deadline() -> None:
    @bounded()
    def call(*, deadline: float | None = None) -> float:
        """Return the deadline."""
        return of_call().seconds

    assert (call.__name__, call.__doc__) == ("call", "Return the deadline.")
    assert call(deadline=7) == 7
    with dask.config.set({"dbfs.deadline": 5}):
        assert call() == 5
        with limit(60):
            # A call inside another one has the time that is left of that one.
            assert call() == 60
            assert call(deadline=7) == 7


def test_the_error_of_a_call_says_at_its_end_for_whom_it_waited() -> None:
    def wait() -> None:
        with limit(60) as deadline:
            deadline.lookout.why = "rank 1 is late"
            raise DeadlineExceededError("waiting")

    with pytest.raises(DeadlineExceededError, match=r"^waiting; rank 1 is late$"):
        wait()
    # A context inside another one leaves that to the outer one.
    with pytest.raises(DeadlineExceededError, match=r"^waiting; rank 1 is late$"), limit(60):
        wait()
    assert of_call() is not of_call()
