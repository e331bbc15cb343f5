"""The threads of a worker that share the work of one rank.

The work is a kernel that runs on all threads at once. A thread that begins a call from Python needs the GIL: with 16
threads, one after another, that took 1.5 ms. So the helpers wait inside a kernel, which does the work without a
return to Python: see ``search.cpu.kernels.team_tasks``.
"""

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

# Places in ``control``, int64[CONTROL]. Words that different threads write lie pairs of cache lines apart.
LAST: Final = 0  # number of the last task; helpers sleep until it changes
KIND: Final = 1  # the kernel that the task is for
TIMEOUT: Final = 2  # seconds and nanoseconds: the longest single sleep
SLEEPERS: Final = 16  # helpers that sleep until the next task
GATE: Final = 32  # number of the last task in the upper half; below, whether helpers may join, and those at work
ENDED: Final = 48  # 1 to end the helpers
CONTROL: Final = 64

TASK: Final = 32
"""Words of a task: see ``intrinsics.from_words``."""

RESULTS: Final = 16
"""Words of a thread's results."""


class Helper(Protocol):
    """The kernel in which a helper waits and works, until ``control[ENDED]`` is 1."""

    def __call__(
        self, control: NDArray[np.int64], task: NDArray[np.int64], results: NDArray[np.int64], thread: int
    ) -> None:
        """Take part in tasks as one of the threads."""


class Leader(Protocol):
    """The kernel in which the calling thread runs a task, until all that joined have finished."""

    def __call__(
        self, control: NDArray[np.int64], task: NDArray[np.int64], results: NDArray[np.int64], kind: int
    ) -> None:
        """Run the task of a kind."""


@dataclass(frozen=True)
class Tasks:
    """The kernels by which a team shares tasks of some kinds.

    Attributes:
        serve, lead: see ``Helper`` and ``Leader``.
        end: ends the helpers, given ``control``.
        kinds: the number of each kind of task, by the class of its fields.
    """

    serve: Helper
    lead: Leader
    end: Callable[[NDArray[np.int64]], None]
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
        self.control = np.zeros(CONTROL, np.int64)
        self.control[TIMEOUT] = 1
        self.task = np.zeros(TASK, np.int64)
        self.results = np.zeros(threads * RESULTS, np.int64)
        for thread in range(1, threads):
            # The helpers hold the arrays, not the team: so a forgotten team ends its helpers too.
            arguments = (self.control, self.task, self.results, thread)
            threading.Thread(target=tasks.serve, args=arguments, name=f"dbfs-team-{thread}", daemon=True).start()
        self._end = weakref.finalize(self, tasks.end, self.control)

    def close(self) -> None:
        """End the helpers."""
        self._end()
