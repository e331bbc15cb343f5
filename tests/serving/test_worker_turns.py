"""The turns of a worker, without a cluster: messages that end a turn may overlap with the next turn, or come first."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from dbfs_workers.base.errors import StaleRunError
from dbfs_workers.base.lines.line import Line, new_token
from dbfs_workers.base.lines.worker_door import WorkerDoor
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.serving.turns.leader import Leader
from dbfs_workers.serving.turns.messages import BeginTurn, EndTurn
from dbfs_workers.serving.turns.worker import WorkerTurns


async def sent(**_: Any) -> None:
    """Stand in for the scheduler's handler."""


def begin(turn: int, token: bytes) -> BeginTurn:
    """Return the message that begins a turn of a gang of one rank."""
    return BeginTurn("id", turn, "me", turn, "", None, token, (), 1, 1.0, None)


@contextlib.contextmanager
def worker_turns() -> Iterator[WorkerTurns]:
    """The turns of a worker that is rank 0 of a gang. Used within an event loop."""
    security = SimpleNamespace(get_connection_args=lambda _: {}, get_listen_args=lambda _: {})
    worker: Any = SimpleNamespace(
        address="tcp://127.0.0.1:1",
        security=security,
        data={"key": None},
        scheduler=SimpleNamespace(dbfs_note_runs=sent),
    )
    runner = SimpleNamespace(awake_seconds=0.0, burst_seconds=0.02, answer_seconds=0.0)
    member: Any = SimpleNamespace(rank=0, partition_key="key", closed=False, runner=runner)
    door = WorkerDoor(worker)
    turns = WorkerTurns(worker, door, None, None, lambda _: member)  # type: ignore[arg-type]
    yield turns
    turns.close()
    door.close()


def test_a_late_end_of_a_turn_leaves_the_next_one_alone() -> None:
    tokens = [new_token(), new_token()]

    async def overlap() -> None:
        with worker_turns() as turns:
            await turns.begin_turn(begin(1, tokens[0]))
            leader, resume = turns._gangs["id"].end, threading.Event()
            assert isinstance(leader, Leader)
            idle = leader.wait_until_idle

            def slowly() -> Any:
                resume.wait(5)
                return idle()

            leader.wait_until_idle = slowly  # type: ignore[method-assign]
            late = asyncio.ensure_future(turns.end_turn(EndTurn("id", 1)))
            await asyncio.sleep(0.05)
            leader.wait_until_idle = idle  # type: ignore[method-assign]
            await turns.end_turn(EndTurn("id", 1, Cause.CANCELLED, "by the test"))
            begun = await turns.begin_turn(begin(2, tokens[1]))
            resume.set()
            await late
            assert begun.address is not None
            line = await asyncio.to_thread(Line.open, begun.address, tokens[1], None, 5.0)
            line.close()

    asyncio.run(overlap())


def test_a_turn_that_was_ended_before_it_began_is_refused() -> None:
    """The message that begins a turn may come after the message that ends the turn. The turn then does not begin."""

    async def overtaken() -> None:
        with worker_turns() as turns:
            end = await turns.end_turn(EndTurn("id", 3, Cause.DEADLINE, "not done"))
            assert end.number == 0
            for stale in (2, 3):
                with pytest.raises(StaleRunError, match=f"turn {stale} comes late, after turn 3"):
                    await turns.begin_turn(begin(stale, new_token()))
            await turns.begin_turn(begin(4, new_token()))

    asyncio.run(overtaken())
