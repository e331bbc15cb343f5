"""Waits of tests for what happens a little later, on a busy machine by many seconds."""

import time
from collections.abc import Callable
from typing import Any

import pytest

PATIENCE = 60.0


def eventually(look: Callable[[], Any], enough: Callable[[Any], object] = bool, seconds: float = PATIENCE) -> Any:
    """Return what ``look()`` returns once that is enough; fail the test if it is not within ``seconds``."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if enough(found):
            return found
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds:g} s: {found!r}")
        time.sleep(0.02)
