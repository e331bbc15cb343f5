"""The threads of a worker that share the work of one rank. Kernels release the GIL, so the threads run at once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

BLOCKS_PER_THREAD: Final = 4
"""Blocks of work for each thread, so that none waits long for one with much work."""


class Team:
    """Some threads, the calling one included. ``close`` ends the others.

    Args:
        threads: number of threads, at least 2.

    Attributes:
        threads: see above.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._helpers = ThreadPoolExecutor(threads - 1, thread_name_prefix="dbfs-team")

    def map(self, work: Callable[[int], T], count: int) -> list[T]:
        """Return ``work(i)`` for each i below ``count``. Each thread takes the next i when it is free.

        Raises:
            Exception: a call of ``work`` raised it.
        """
        todo = iter(range(count))
        results: dict[int, T] = {}

        def take() -> None:
            for index in todo:
                results[index] = work(index)

        helping = [self._helpers.submit(take) for _ in range(min(self.threads, count) - 1)]
        take()
        for helper in helping:
            # A helper that has not begun finds nothing to do.
            if not helper.cancel():
                helper.result()
        return [results[index] for index in range(count)]

    def close(self) -> None:
        """End the threads."""
        self._helpers.shutdown(wait=False)
