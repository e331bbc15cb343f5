"""No wake-up is lost, whichever steps of the sleeper and of the one that wakes it come first."""

import threading

import numpy as np
import pytest

from dbfs_workers.base.team import GATE, KIND
from dbfs_workers.search.cpu.kernels import team_tasks
from dbfs_workers.search.exchange.kernels import barrier
from tests.support.interleaved import Orders, Steps, words
from tests.support.waiting import eventually

TAG = 1 << 32 | 1
STRIDE = 64
# Sleep at once, as a rank does that has lost its core.
IMPATIENT = {"_SPINS": 0, "_YIELDS": 0}


def test_a_rank_that_arrives_wakes_all_that_sleep_until_then() -> None:
    orders, sleeps = Orders(), 0
    for _ in orders.left():
        shared = words(2 * STRIDE)

        def wait(steps: Steps, shared: np.ndarray = shared) -> None:
            await_rank = steps.of(barrier.await_rank, **IMPATIENT)
            assert await_rank(shared, STRIDE, TAG, 1, words(2), words(5)) == barrier.CROSSED

        def arrive(steps: Steps, shared: np.ndarray = shared) -> None:
            steps.of(barrier.arrive)(shared, STRIDE, TAG, 1)

        assert orders.run([wait, arrive]) == [], f"order {orders.orders}"
        assert shared[STRIDE + barrier.SLEEPERS] == 0
        sleeps += 1
    # Of the two the waiting rank takes seven steps or more, the other one two or three.
    assert orders.orders == sleeps > 20


def test_a_rank_asleep_is_woken_in_time() -> None:
    """By the compiled kernels. No sleep ends by itself before the test does."""
    shared, statuses, forever = words(2 * STRIDE), list[int](), np.array([1 << 20, 0])
    backoff = words(5)
    backoff[barrier.NO_YIELD] = 1

    def wait() -> None:
        statuses.append(barrier.await_rank(shared, STRIDE, TAG, 1, forever, backoff))

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    eventually(lambda: shared[STRIDE + barrier.SLEEPERS] == 1)
    barrier.arrive(shared, STRIDE, TAG, 1)
    waiting.join(30)
    assert statuses == [barrier.CROSSED], "no one woke the rank before the deadline"


@pytest.mark.full
def test_a_task_wakes_the_helpers_and_the_last_of_them_the_leader() -> None:
    orders = Orders()
    for _ in orders.left():
        control = words(1024)

        def help_once(steps: Steps, control: np.ndarray = control) -> None:
            number = steps.of(team_tasks.next_task, _LOOKS=0)(control, 0)
            if number >= 0:
                steps.of(team_tasks.leave)(control)

        def lead(steps: Steps, control: np.ndarray = control) -> None:
            steps.of(team_tasks.begin)(control, 3)
            steps.of(team_tasks.close, _LOOKS=0)(control)

        assert orders.run([help_once, lead]) == [], f"order {orders.orders}"
        assert (control[KIND], control[GATE] & 0xFFFF) == (3, 0)
    assert orders.orders > 100
