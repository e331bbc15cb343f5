"""The rate of events over the last seconds."""

import time
from collections import deque
from typing import Final

MEAN_SECONDS: Final = 10.0
"""Seconds over which events are counted."""


class RecentRate:
    """The mean number of events per second over the last ``MEAN_SECONDS``."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def add(self, count: int) -> None:
        """Count ``count`` events that have just happened."""
        self._forget()
        self._counts.append((time.monotonic(), count))

    @property
    def per_second(self) -> float:
        """Events per second."""
        self._forget()
        return sum(count for _, count in self._counts) / MEAN_SECONDS

    def _forget(self) -> None:
        while self._counts and self._counts[0][0] < time.monotonic() - MEAN_SECONDS:
            self._counts.popleft()
