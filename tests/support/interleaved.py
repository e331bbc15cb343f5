"""Functions that share memory run one step of one of them at a time, in every order that there is.

A step is a call of one of the intrinsics that all see at once: an atomic load, an exchange, an addition, a sleep, a
wake-up. Sleeps have no end but a wake-up, so that a lost one leaves a function asleep.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from dbfs_workers.base.jit import Kernel


class _Abandoned(BaseException):
    """Raised in what still runs when an order is given up."""


class Orders:
    """Every order of the steps of some functions. Each ``run`` takes the next order.

    Attributes:
        orders: how many orders were run.
    """

    def __init__(self) -> None:
        self.orders = 0
        # By step of the order under way, which of those that could go on went, and how many could.
        self._choices: list[tuple[int, int]] = []

    def left(self) -> Iterator[None]:
        """Yield before each order that is left."""
        while True:
            yield
            self.orders += 1
            while self._choices and self._choices[-1][0] + 1 == self._choices[-1][1]:
                self._choices.pop()
            if not self._choices:
                return
            last, of = self._choices.pop()
            self._choices.append((last + 1, of))

    def run(self, functions: Sequence[Callable[["Steps"], object]]) -> list[int]:
        """Run functions by the order; return the numbers of those that no one woke.

        They sleep when nothing can go on, although the word that they look at has changed.
        """
        steps = Steps(len(functions))

        def thread(number: int) -> None:
            steps.numbers[threading.get_ident()] = number
            try:
                functions[number](steps)
            except _Abandoned:
                pass
            finally:
                steps.end()

        threads = [threading.Thread(target=thread, args=(number,)) for number in range(len(functions))]
        for each in threads:
            each.start()
        taken = 0
        while ready := steps.ready():
            if taken == len(self._choices):
                self._choices.append((0, len(ready)))
            steps.go(ready[self._choices[taken][0]])
            taken += 1
        asleep = steps.abandon()
        for each in threads:
            each.join()
        return asleep


class Steps:
    """The steps of functions that run, each in a thread: the intrinsics, as those of ``base.intrinsics``."""

    def __init__(self, count: int) -> None:
        self.numbers: dict[int, int] = {}
        self._changed = threading.Condition()
        self._waiting: set[int] = set()
        # By function the words, the place among them, and the value that is to change.
        self._asleep: dict[int, tuple[Any, int, int]] = {}
        self._running, self._turn, self._given_up = count, -1, False

    def ready(self) -> list[int]:
        """Wait until all functions wait for a turn, sleep or have ended; return those that can take a turn."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) + len(self._asleep) == self._running)
            return sorted(self._waiting)

    def go(self, number: int) -> None:
        """Let a function take a step."""
        with self._changed:
            self._waiting.discard(number)
            self._turn = number
            self._changed.notify_all()

    def abandon(self) -> list[int]:
        """End what sleeps; return the numbers of those whose word has changed."""
        with self._changed:
            unwoken = [number for number, (words, at, value) in self._asleep.items() if words[at] != value]
            self._given_up = True
            self._changed.notify_all()
            return unwoken

    def await_turn(self) -> None:
        number = self.numbers[threading.get_ident()]
        with self._changed:
            self._waiting.add(number)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._turn == number)
            self._turn = -1

    def end(self) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def load_acquire(self, words: Any, place: int) -> int:
        self.await_turn()
        return int(words[place])

    def exchange(self, words: Any, place: int, value: int) -> int:
        self.await_turn()
        before, words[place] = int(words[place]), value
        return before

    def fetch_add(self, words: Any, place: int, value: int) -> int:
        self.await_turn()
        before = int(words[place])
        words[place] = before + value
        return before

    def compare_exchange(self, words: Any, place: int, expected: int, value: int) -> int:
        self.await_turn()
        before = int(words[place])
        if before == expected:
            words[place] = value
        return before

    def sleep_while(self, words: Any, place: int, value: int, timeout: Any) -> None:
        """Sleep until a wake-up, if the word has the value: as the kernel's futex, both in one step."""
        self.await_turn()
        if words[place] != value:
            return
        number = self.numbers[threading.get_ident()]
        with self._changed:
            self._asleep[number] = words, place, value
            self._changed.notify_all()
            self._changed.wait_for(lambda: number not in self._asleep or self._given_up)
            if self._given_up:
                self._asleep.pop(number, None)
                raise _Abandoned

    def wake(self, words: Any, place: int) -> None:
        self.await_turn()
        with self._changed:
            for number in [number for number, (_, at, _) in self._asleep.items() if at == place]:
                del self._asleep[number]
            # What was woken waits for its next turn before another function takes one.
            self._changed.notify_all()

    def of(self, kernel: Kernel, **values: Any) -> Callable[..., Any]:
        """Return a kernel as Python runs it by these steps; ``values`` take the place of its module's."""
        known = {**kernel.py_func.__globals__, **values}
        for name, value in list(known.items()):
            if name in _INTRINSICS:
                known[name] = getattr(self, name)
            elif isinstance(value, Kernel):
                known[name] = FunctionType(value.py_func.__code__, known)
        return FunctionType(kernel.py_func.__code__, known)


_INTRINSICS = ("load_acquire", "exchange", "fetch_add", "compare_exchange", "sleep_while", "wake")


def words(size: int) -> Any:
    """Return int64 words, all 0."""
    return np.zeros(size, np.int64)
