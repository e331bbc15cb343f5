"""The service in random games: see ``tests.support.simulated``.

The scheduler's and the workers' own classes play in one thread, on a clock that jumps from event to event. Clients make
runs and updates, hold turns, cancel, load, unload and leave; workers are stopped, killed or cut off; messages are late
and come twice. In each game no two runs use a worker, no run traverses two versions, no update is made twice, no client
reads a version before one that it was told of, each call ends by its deadline, and nothing is left behind.

In every fourth game more, killed workers have successors, some of which are killed too, and clients bring lost graphs
back: by the logs of living graphs, with all updates whose clients got an answer. Some clients quit during a rebuild.

The games have a process of their own: the clock and the threads of this one are those of the cluster that tests share.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def alone(*arguments: str) -> str:
    """Run Python in a process of its own; return what it printed."""
    run = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.parametrize("games", [50, pytest.param(200, marks=pytest.mark.full)])
def test_games(games: int) -> None:
    assert f"{games} games" in alone("-m", "tests.support.simulated", "0", str(games))


@pytest.mark.long
def test_ten_thousand_games() -> None:
    assert "10,000 games" in alone("-m", "tests.support.simulated", "1000", "10000")


@pytest.mark.full
def test_a_game_is_the_same_from_the_same_seed() -> None:
    story = "from tests.support.simulated import games; print(*games.told(games.Plan.drawn(253)), sep='\\n')"
    stories = [alone("-c", story) for _ in range(2)]
    assert stories[0] == stories[1]
    assert stories[0].count("\n") > 20


def test_an_update_that_is_sent_again_while_its_decision_is_on_the_way() -> None:
    """Rank 0 had decided and was stopped. The scheduler, which had not heard of that, sent the batch once more."""
    told = alone("-c", SENT_AGAIN).splitlines()
    begun, entered = ([line for line in told if f" {kind}(" in line and "-2" in line] for kind in KINDS)
    assert len([line for line in begun if "run_id='update-2-" in line]) > 1
    assert all("run_id='update-2-0'" in line for line in entered if "batch_id='batch-2'" in line), "decided twice"


def test_a_run_that_is_cancelled_between_two_traversals_is_over() -> None:
    """Rank 0 ended its burst early, as of a turn that is over, and the client queued the rest of the run."""
    game = "from tests.support.simulated import games; print(games.play(games.Plan.drawn(2610)))"
    assert alone("-c", game).strip() == "None"


KINDS = "BeginTurn", "EnterUpdate"
# Rank 0 is stopped by the third message after the second update was sent.
SENT_AGAIN = """
from tests.support.simulated.games import Plan, Step, play, told
steps = Step(0, 0.0, "update"), Step(0, 0.1, "update"), Step(-1, 0.05, "trap", 0, 3)
assert play(Plan(10, steps)) is None
print(*told(Plan(10, steps)), sep="\\n")
"""
