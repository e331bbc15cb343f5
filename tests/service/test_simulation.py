"""The service in random games: see ``tests.support.simulated``.

The scheduler's and the workers' own classes play in one thread, on a clock that jumps from event to event. Clients make
runs and updates, hold turns, cancel, load, unload and leave; workers are stopped, killed or cut off; messages are late
and come twice. In each game no two runs use a worker, no run traverses two versions, no update is made twice, no client
reads a version before one that it was told of, each call ends by its deadline, and nothing is left behind.
"""

import pytest

from tests.support.simulated import games


def test_two_hundred_games() -> None:
    games.play_all(range(200))


@pytest.mark.long
def test_ten_thousand_games() -> None:
    games.play_all(range(1000, 11_000))


def test_a_game_is_the_same_from_the_same_seed() -> None:
    stories = [games.told(games.Plan.drawn(253)) for _ in range(2)]
    assert stories[0] == stories[1]
    assert len(stories[0]) > 20


def test_an_update_that_is_sent_again_while_its_decision_is_on_the_way() -> None:
    """Rank 0 had decided and was stopped. The scheduler, which had not heard of that, sent the batch once more."""
    plan = games.Plan.drawn(151)
    entered = [line for line in games.told(plan) if " EnterUpdate(" in line and "batch_id='batch-4'" in line]
    assert len(entered) > 1
    assert all("run_id='update-4-0'" in line for line in entered), "the batch was decided twice"
    assert games.play(plan) is None
