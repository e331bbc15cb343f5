"""What the enactors share: launches with counters, queues that overflow, and a record of the levels."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.cuda.lab_layout import ARGUMENTS, COUNTERS, Culling, Gathering, LabCounter, Status
from dbfs_workers.errors import QueueOverflowError
from dbfs_workers.lab.device import Device
from dbfs_workers.lab.problem import Problem, Queue
from dbfs_workers.lab.strategies import CULLING, GATHERING, STATUS, Policy

# Launches whose counters are cleared at once.
_ROWS: Final = 256

Watch = Callable[[int, int], None]
"""Called before each level with its number and its frontier; raises an error to end the traversal."""


@dataclass(frozen=True)
class Level:
    """One level of a strategy.

    Attributes:
        frontier: vertices whose lists were read, duplicates included.
        edges: neighbours in these lists.
        kept: neighbours that got a label, duplicates included.
        seconds: time since the end of the level before.
    """

    frontier: int
    edges: int
    kept: int
    seconds: float


def policy_numbers(policy: Policy) -> tuple[int, int, int]:
    """Return the policy's gathering, status and culling as the kernels number them."""
    return (
        int(Gathering(GATHERING.index(policy.gathering))),
        int(Status(STATUS.index(policy.status))),
        int(Culling(CULLING.index(policy.culling))),
    )


class Enactor:
    """Runs the launches of one traversal.

    Args:
        device: where the kernels run.
        problem: the graph and the labels.
        policy: the strategy and its options.
        source: row of the source.
        watch: called before each level.

    Attributes:
        levels: the levels so far.
        totals: int64[COUNTERS], sums of the counters of all launches.
    """

    def __init__(self, device: Device, problem: Problem, policy: Policy, source: int, watch: Watch) -> None:
        self._device = device
        self.problem = problem
        self.policy = policy
        self.source = source
        self._watch = watch
        self.levels: list[Level] = []
        self.totals = np.zeros(COUNTERS, np.int64)
        self._launches = 0
        self._counters: Any = device.xp.zeros((_ROWS, COUNTERS), np.uint64)
        self._ended = time.perf_counter()
        self._arguments = np.zeros(1, ARGUMENTS)
        gathering, status, culling = policy_numbers(policy)
        self._set(
            offsets=self.address(problem.offsets),
            columns=self.address(problem.columns),
            labels=self.address(problem.labels),
            parents=self.address(problem.parents),
            bitmask=self.address(problem.bitmask),
            rows=problem.rows,
            gathering=gathering,
            status=status,
            culling=culling,
        )

    def enter(self, frontier: int) -> None:
        """Begin a level."""
        self._watch(len(self.levels), frontier)

    def leave(self, frontier: int, edges: int, kept: int) -> None:
        """Record a level. Fields as of ``Level``."""
        now = time.perf_counter()
        self.levels.append(Level(frontier, edges, kept, now - self._ended))
        self._ended = now

    def queued(
        self, source: str, kernel: str, into: Queue | None, size: int, out: Queue, distance: int
    ) -> NDArray[np.int64]:
        """Launch a kernel that takes one queue to another; return its counters.

        Args:
            source: the kernel's file in ``cuda/kernels/lab``.
            kernel: its name after ``dbfs_lab_``.
            into: the input queue; None if the kernel looks at all rows.
            size: entries of it, or the number of rows.
            out: the output queue.
            distance: the label of the launch's discoveries.

        Raises:
            QueueOverflowError: the output queue is too short.
        """
        self._set(
            in_ids=0 if into is None else self.address(into.ids),
            in_parents=0 if into is None else self.address(into.parents),
            out_ids=self.address(out.ids),
            out_parents=self.address(out.parents),
            in_size=size,
            out_capacity=out.capacity,
        )
        counts = self.launched(source, kernel, size, distance)
        needed = int(counts[LabCounter.QUEUED])
        if needed > out.capacity:
            culled_most = self.policy.culling == CULLING[-1]
            raise QueueOverflowError(
                f"strategy {self.policy.strategy}, level {len(self.levels)}: the queue needs {needed} entries and has "
                f"{out.capacity} for {self.problem.rows} vertices and {self.problem.columns.size} edges; duplicates "
                f"fill it with culling={self.policy.culling}{'' if culled_most else f': choose culling={CULLING[-1]}'}"
            )
        return counts

    def launched(self, source: str, kernel: str, threads: int, distance: int, **arguments: Any) -> NDArray[np.int64]:
        """Launch a kernel on so many threads, in whole blocks and not above the most; return its counters."""
        row = self._launches % _ROWS
        if row == 0:
            self._counters.fill(0)
        self._launches += 1
        self._set(counters=self.address(self._counters[row]), distance=distance, **arguments)
        blocks = max(1, min(self.problem.tuning.most_blocks, -(-threads // self._device.threads)))
        self._device.launch(f"lab/{source}.cu", f"dbfs_lab_{kernel}", blocks, self._arguments)
        counts = self._device.read(self._counters[row]).astype(np.int64)
        self.totals += counts
        return counts

    def vertex_queue_to_vertex_queue(self, source: str, kernel: str) -> None:
        """Run all levels of a strategy with one launch a level, which takes a vertex queue to the next one."""
        self.problem.start(self.source)
        queue, after = self.problem.vertex_queue(), self.problem.vertex_queue()
        queue.ids[0] = self.source
        size = distance = 1
        while size:
            self.enter(size)
            counts = self.queued(source, kernel, queue, size, after, distance)
            expanded, edges, labelled = (LabCounter.EXPANDED, LabCounter.EDGES, LabCounter.LABELLED)
            self.leave(int(counts[expanded]), int(counts[edges]), int(counts[labelled]))
            queue, after, size, distance = after, queue, int(counts[LabCounter.QUEUED]), distance + 1

    def address(self, array: Any | None) -> int:
        """Return an array's address for a kernel's arguments; 0 for None."""
        return 0 if array is None else self._device.address(array)

    def _set(self, **arguments: Any) -> None:
        for name, value in arguments.items():
            self._arguments[name] = value
