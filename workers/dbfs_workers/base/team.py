"""The threads of a worker that share the work of one rank.

The work is a kernel that runs on all threads at once. A thread that begins a call from Python needs the GIL: with 16
threads, one after another, that took 1.5 ms. So the helpers wait inside a kernel, which does the work without a
return to Python: see ``search.cpu.kernels.team_tasks``. The same threads share calls of Python functions, for work that
takes longer than that.
"""

import itertools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
Control = NDArray[np.int64]

# Places in ``control``, int64[CONTROL]. Words that different threads write lie pairs of cache lines apart.
LAST: Final = 0  # number of the last task; helpers sleep until it changes
KIND: Final = 1  # the kernel that the task is for
TIMEOUT: Final = 2  # seconds and nanoseconds: the longest single sleep
SLEEPERS: Final = 16  # helpers that sleep until the next task
GATE: Final = 32  # number of the last task in the upper half; below, whether helpers may join, and those at work
ENDED: Final = 48  # 1 to end the helpers
CONTROL: Final = 64

CALLS: Final = 0
"""The kind of a task of calls of Python functions; others have numbers from 1 on."""

TASK: Final = 32
"""Words of a task: see ``intrinsics.from_words``."""

RESULTS: Final = 16
"""Words of a thread's results."""


class Helper(Protocol):
    """The kernel in which a helper waits and works."""

    def __call__(
        self, control: Control, task: NDArray[np.int64], results: NDArray[np.int64], thread: int, number: int
    ) -> int:
        """Take part in the tasks after that of ``number`` as one of the threads.

        Returns the number of a task of calls, which the helper has joined and has to leave, or -1 once
        ``control[ENDED]`` is 1.
        """
        ...


class Leader(Protocol):
    """The kernel in which the calling thread runs a task, until all that joined have finished."""

    def __call__(self, control: Control, task: NDArray[np.int64], results: NDArray[np.int64], kind: int) -> None:
        """Run the task of a kind."""


@dataclass(frozen=True)
class Tasks:
    """The kernels by which a team shares tasks of some kinds.

    Attributes:
        serve, lead: see ``Helper`` and ``Leader``.
        begin, leave, close, end: given ``control``, let the helpers join a task of a kind, end a helper's part, await
            the end of all parts, and end the helpers.
        kinds: the number of each kind of task, by the class of its fields.
    """

    serve: Helper
    lead: Leader
    begin: Callable[[Control, int], None]
    leave: Callable[[Control], None]
    close: Callable[[Control], None]
    end: Callable[[Control], None]
    kinds: Mapping[type[NamedTuple], int]


class Team:
    """Some threads, the calling one included. ``close`` ends the others.

    Args:
        threads: number of threads, at least 2.
        tasks: what the threads can share.

    Attributes:
        threads, tasks: see above.
        control: see above.
        task: int64[TASK], the task's fields.
        results: int64[threads * RESULTS], what the kernel returned, by thread.
    """

    def __init__(self, threads: int, tasks: Tasks) -> None:
        self.threads, self.tasks = threads, tasks
        self._calls: list[Callable[[], None]] = []
        self.control = np.zeros(CONTROL, np.int64)
        self.control[TIMEOUT] = 1
        self.task = np.zeros(TASK, np.int64)
        self.results = np.zeros(threads * RESULTS, np.int64)
        for thread in range(1, threads):
            # The helpers hold the arrays, not the team: so a forgotten team ends its helpers too.
            arguments = (tasks, self._calls, self.control, self.task, self.results, thread)
            threading.Thread(target=_help, args=arguments, name=f"dbfs-team-{thread}", daemon=True).start()
        self._end = weakref.finalize(self, tasks.end, self.control)

    def close(self) -> None:
        """End the helpers."""
        self._end()

    def each(self, bounds: Sequence[int], work: Callable[[int, int], T]) -> list[T]:
        """Call a function for the bounds of each part, on all threads; return the results in the order of the parts.

        Raises:
            BaseException: a call's error, after all calls.
        """
        parts = [*itertools.pairwise(bounds)]
        results: list[Any] = [None] * len(parts)
        errors: list[BaseException] = []
        places = iter(range(len(parts)))

        def share() -> None:
            for at in places:
                try:
                    results[at] = work(*parts[at])
                except BaseException as error:
                    errors.append(error)

        self._calls[:] = [share]
        self.tasks.begin(self.control, CALLS)
        share()
        self.tasks.close(self.control)
        self._calls.clear()
        if errors:
            raise errors[0]
        return results


def _help(
    tasks: Tasks,
    calls: list[Callable[[], None]],
    control: Control,
    task: NDArray[np.int64],
    results: NDArray[np.int64],
    thread: int,
) -> None:
    """Take part in tasks until the team ends."""
    number = 0
    while (number := tasks.serve(control, task, results, thread, number)) >= 0:
        calls[0]()
        tasks.leave(control)
