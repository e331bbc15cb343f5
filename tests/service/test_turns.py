"""Turns on a gang, without a gang."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dbfs.errors import RunAbortedError
from dbfs.service import turns
from dbfs.service.turns import Turns


def test_a_run_waits_for_no_answer_when_its_turn_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 may be stopped, so that its answer never comes."""
    monkeypatch.setattr(turns, "LATE_SECONDS", 1e-3)

    def aborted() -> None:
        raise RunAbortedError("a rank is lost")

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        turn: Any = SimpleNamespace(over=loop.create_future())
        run: Any = SimpleNamespace(remaining=3600.0, stopped=loop.create_future(), require_going_on=aborted)
        loop.call_soon(turn.over.set_result, None)
        never: Any = loop.create_future()
        given: Any = None
        await asyncio.wait_for(Turns._unless_over(given, turn, run, never), 60)

    with pytest.raises(RunAbortedError, match="a rank is lost"):
        asyncio.run(wait())
