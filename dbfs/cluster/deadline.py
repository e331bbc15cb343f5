"""The deadline of a call: one clock, kept by the client, for all waits that a public call makes.

A public call is ``bounded``. All waits for other processes inside the call, however deep, end by the call's deadline:
``awaiting.sync``, ``Gang`` and ``RankCalls`` read the deadline here. Outside of a bounded call each wait has the time
of ``dbfs.deadline``. So no wait is without an end, whatever has become of the other process.
"""

from __future__ import annotations

import contextvars
import functools
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar

from dbfs import config
from dbfs.cluster.lookout import Lookout
from dbfs.errors import DeadlineExceededError, WorkerLostError

P = ParamSpec("P")
T = TypeVar("T")

GRACE_SECONDS: Final = 0.4
"""Seconds after a deadline in which the answer of the other process, which names the cause, may still arrive."""


class Deadline:
    """The end of the time that an operation may take.

    Args:
        seconds: the time, from now on.
        outer: the deadline of the call around the operation, which ends no later; None if there is none.

    Attributes:
        seconds: the whole time, from the creation of this object, or of ``outer`` if that one ends first.
        lookout: looks out for the processes that the operation waits for, one for each call.

    In the context of a deadline all waits of this thread end by it. The error of a call that met its deadline says at
    its end for whom the call waited, if that is known.
    """

    def __init__(self, seconds: float, outer: Deadline | None = None) -> None:
        self.seconds = seconds
        self.lookout: Lookout = Lookout() if outer is None else outer.lookout
        self._end = time.monotonic() + seconds
        self._outer = outer
        if outer is not None and outer._end < self._end:
            self.seconds, self._end = outer.seconds, outer._end

    def __enter__(self) -> Deadline:
        _of_call.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _of_call.set(self._outer)
        if self._outer is None:
            self.lookout.close()
            if isinstance(error, DeadlineExceededError) and self.lookout.why:
                error.args = (f"{error}; {self.lookout.why}",)

    @property
    def remaining(self) -> float:
        """Seconds until the end, in whole milliseconds, and at least one."""
        return max(1e-3, round(self._end - time.monotonic(), 3))

    @property
    def last(self) -> float:
        """Seconds until ``GRACE_SECONDS`` after the end, at least a millisecond: the longest wait for an answer."""
        return max(1e-3, self._end + GRACE_SECONDS - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether no answer is waited for any more."""
        return time.monotonic() > self._end + GRACE_SECONDS

    def interval(self) -> float:
        """Return after how many seconds a wait looks whether all workers are alive; no later than the end."""
        return min(config.seconds("liveness-interval"), self.remaining)

    def enforce(self, doing: Callable[[], str] | str) -> None:
        """Raise ``DeadlineExceededError`` if the deadline has passed; ``doing`` names the operation in the message."""
        if time.monotonic() > self._end:
            what = doing if isinstance(doing, str) else doing()
            raise DeadlineExceededError(f"{what}: not done after {self.seconds:g} s")


_of_call: contextvars.ContextVar[Deadline | None] = contextvars.ContextVar("dbfs_deadline", default=None)


def of_call(key: str = "deadline") -> Deadline:
    """Return the deadline of the call that this thread makes; outside of one, a new deadline of ``dbfs.<key>``."""
    return _of_call.get() or Deadline(config.seconds(key))


def limit(seconds: float) -> Deadline:
    """Return a context that bounds all waits of this thread; the deadline of a call around the context holds too."""
    return Deadline(seconds, _of_call.get())


def bounded(key: str = "deadline") -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a public call: its waits end by its argument ``deadline``, or by ``dbfs.<key>`` if that is None.

    A method that lost a worker begins again, if its object has a method ``begins_again`` that says so (see
    ``StripedGraph.begins_again``). Of nested calls the outermost one does.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            given: Any = options.get("deadline")
            outer = _of_call.get()
            if outer is not None and given is None:
                return function(*arguments, **options)
            with Deadline(config.seconds(key, given), outer):
                made = 0
                while True:
                    made += 1
                    try:
                        return function(*arguments, **options)
                    except WorkerLostError as error:
                        again = getattr(arguments[0], "begins_again", None) if arguments and outer is None else None
                        if again is None or not again(error, made):
                            raise

        return call

    return decorate
