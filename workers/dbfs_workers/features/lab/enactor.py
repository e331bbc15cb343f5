"""The base of all enactors: chains of launches, queues that overflow, and a record of the levels.

A chain is launched without waiting: each kernel reads how many entries the kernel before it appended, and the host
waits for the counters of the whole chain. Where levels are small, a chain has many of them (``Ahead``), because there
the host's wait would take longer than the level.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import QueueOverflowError
from dbfs_workers.features.lab.device import CHAIN, Device
from dbfs_workers.features.lab.layout import COUNTERS, START_DISTANCE, START_LAUNCH, LabCounter
from dbfs_workers.features.lab.problem import Problem, Queue
from dbfs_workers.features.lab.strategies import CHOICES, CULLING, Policy

# The fewest entries that a block takes: one for each lane of a warp.
_LANES: Final = 32
C2050_THREADS: Final = 21_504
"""Threads that run at once on the GPU of Merrill 2012: 14 multiprocessors of 1,536 each."""
# Launches that the words of ``tile_sums`` tell apart.
_LAUNCHES: Final = (1 << 22) - 1
# The most levels of a launch of several levels.
_LEVELS: Final = 64
_ANY_SIZE: Final = (0, (1 << 64) - 1)
_ROW_BYTES: Final = COUNTERS * np.dtype(np.uint64).itemsize

RECORD: Final = [LabCounter.EXPANDED, LabCounter.EDGES, LabCounter.LABELLED]
"""The counters of a level that ``leave`` records, in its order."""

Watch = Callable[[int, int], None]
"""Called before each level with its number and its frontier; raises an error to end the traversal. The levels of a
chain are announced together, with the frontier of the first."""


@dataclass(frozen=True)
class Level:
    """One level of a strategy.

    Attributes:
        frontier: vertices whose lists were read, duplicates included.
        edges: neighbours in these lists.
        kept: neighbours that got a label, duplicates included.
        seconds: time since the end of the level before; an equal share of a chain's time.
    """

    frontier: int
    edges: int
    kept: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Step:
    """One kernel of a chain. A step is equal to itself only.

    Attributes:
        source: the kernel's file in ``cuda/kernels``.
        kernel: the kernel's name.
        rows: whether the kernel looks at all rows; if not, at the entries of an input queue.
        capacity: entries that the output queue holds; None if the kernel appends nothing.
        sizes: the shortest and the longest input queue that the kernel takes; any other ends the chain.
        arguments: addresses and capacities of the queues, by name.
    """

    source: str
    kernel: str
    rows: bool
    capacity: int | None
    arguments: dict[str, int]
    sizes: tuple[int, int] = _ANY_SIZE


class Ahead:
    """How many levels to launch before the host waits for their counters.

    Twice as many as before, as long as frontiers are small and do not grow fast: a chain's launches have few blocks.

    Args:
        below: the largest input queue of a chain of several levels.
        most: the most levels of a chain.

    Attributes:
        levels: levels of the next chain.
    """

    # Grids of two and three dimensions grow by less; from the second level on, a Kronecker graph grows by more.
    _GROWTH: Final = 4

    def __init__(self, below: int, most: int) -> None:
        self._below, self._most = below, most
        self.levels = 1

    def follow(self, before: int, after: int) -> None:
        """Choose the next chain's levels by the frontiers at the beginning and at the end of this chain."""
        calm = after <= self._below and after <= self._GROWTH * before
        self.levels = min(2 * self.levels, self._most) if calm else 1


_NUMBERED: Final = ("gathering", "status", "culling", "tiles", "neighbours", "storage")


def policy_numbers(policy: Policy) -> dict[str, int]:
    """Return the options that the kernels know, as they number them, by name."""
    return {name: CHOICES[name].index(getattr(policy, name)) for name in _NUMBERED}


def policy_constants(policy: Policy) -> dict[str, int]:
    """Return what the kernels of a policy are compiled with, by name."""
    return {**policy_numbers(policy), "items": int(policy.items)}


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
        # The first row is what a chain's start says; a launch has a row of counters behind it.
        self._blank = np.zeros((1 + max(CHAIN, _LEVELS + 1), COUNTERS), np.uint64)
        self._counters: Any = device.xp.empty(self._blank.shape, np.uint64)
        self._start = self.address(self._counters)
        self._ended = time.perf_counter()
        # Views of the fields: to write through them takes a third of the time.
        self._fields = {name: device.arguments[name] for name in device.arguments.dtype.names or ()}
        few = -(-C2050_THREADS // device.threads) if policy.grid == "c2050" else problem.tuning.most_blocks
        self._most_blocks = min(problem.tuning.most_blocks, few)
        self._launches = 0
        self._set(
            offsets=self.address(problem.offsets),
            columns=self.address(problem.columns),
            lists=self.address(problem.pages and problem.pages.lists),
            pages=self.address(problem.pages and problem.pages.pool),
            labels=self.address(problem.labels),
            parents=self.address(problem.parents),
            bitmask=self.address(problem.bitmask),
            tile_sums=self.address(problem.tile_sums),
            start=self._start,
            rows=problem.rows,
            width=int(policy.width),
            **policy_numbers(policy),
        )

    @property
    def multiprocessors(self) -> int:
        """Blocks that run at once in any case."""
        return self._device.multiprocessors

    @property
    def resident_threads(self) -> int:
        """Threads that run at once at most."""
        return min(self._device.resident_threads, self._most_blocks * self._device.threads)

    def ahead(self) -> Ahead:
        """Return the rule for the levels of chains."""
        return Ahead(self.problem.tuning.ahead_below, self.problem.tuning.most_ahead)

    def enter(self, frontier: int, levels: int = 1) -> None:
        """Begin ``levels`` levels; ``frontier`` is that of the first."""
        for level in range(len(self.levels), len(self.levels) + levels):
            self._watch(level, frontier)

    def leave(self, levels: Sequence[tuple[int, int, int]]) -> None:
        """Record the levels of a chain: ``frontier``, ``edges`` and ``kept`` of each."""
        now = time.perf_counter()
        self.levels += [Level(*level, (now - self._ended) / len(levels)) for level in levels]
        self._ended = now

    def step(self, source: str, kernel: str, into: Queue | None, out: Queue | None) -> Step:
        """Return a step. Without ``into`` the kernel looks at all rows, without ``out`` it appends nothing."""
        addresses: dict[str, int] = {}
        if into is not None:
            addresses.update(in_ids=self.address(into.ids), in_parents=self.address(into.parents))
            addresses["in_size"] = into.capacity
        if out is not None:
            addresses.update(out_ids=self.address(out.ids), out_parents=self.address(out.parents))
            addresses["out_capacity"] = out.capacity
        return Step(source, f"dbfs_lab_{kernel}", into is None, None if out is None else out.capacity, addresses)

    def chain(self, levels: Sequence[Sequence[Step]], size: int, distance: int) -> NDArray[np.int64]:
        """Launch the steps of levels without a wait, each on the queue that the step before fills.

        Args:
            levels: the steps of each level; as many in each.
            size: entries of the first one's input queue.
            distance: the label of the first level's discoveries.

        Returns:
            int64[levels, COUNTERS], sums over a level's steps.

        Raise ``QueueOverflowError`` if an output queue is too short.
        """
        steps = [step for level in levels for step in level]
        launches = [
            (step.source, step.kernel, self._blocks(step, size, first=not at and len(levels) == 1))
            for at, step in enumerate(steps)
        ]
        self._begin(len(steps), size, distance)
        same = tuple((step, blocks) for step, (_, _, blocks) in zip(steps, launches, strict=True))
        self._device.chain(same, launches, lambda: self._prepare(steps, len(levels)))
        counts = self._read(len(steps))
        for at, step in enumerate(steps):
            needed = int(counts[at, LabCounter.QUEUED])
            if step.capacity is not None and needed > step.capacity:
                raise self._overflow(needed, step.capacity, distance + at * len(levels) // len(steps))
        sums: NDArray[np.int64] = counts.reshape(len(levels), -1, COUNTERS).sum(axis=1)
        return sums

    def _prepare(self, steps: Sequence[Step], levels: int) -> None:
        """Set the arguments of a chain's launches.

        A column for all launches: the host's time for one is longer than many a level.
        """
        every, launches = np.arange(len(steps)), slice(len(steps))
        self._device.arguments[launches] = self._device.arguments[0]
        for name in dict.fromkeys(name for step in steps for name in step.arguments):
            self._fields[name][launches] = [step.arguments.get(name, 0) for step in steps]
        self._fields["before"][launches] = self._start + every * _ROW_BYTES
        self._fields["counters"][launches] = self._start + (1 + every) * _ROW_BYTES
        self._fields["distance"][launches] = every * levels // len(steps)
        self._fields["launch"][launches] = every
        self._fields["least"][launches] = [step.sizes[0] for step in steps]
        self._fields["most"][launches] = [step.sizes[1] for step in steps]

    def launched(
        self, source: str, launches: Sequence[tuple[str, int, dict[str, int]]], distance: int, **common: int
    ) -> NDArray[np.int64]:
        """Launch kernels that count together; return the counters.

        Args:
            source: the kernels' file.
            launches: each kernel's name, its threads and its own arguments.
            distance: the label of the discoveries.
            common: arguments of all kernels.
        """
        self._begin(1, 0, distance)
        self._set(counters=self._start + _ROW_BYTES, before=0, distance=0, launch=0, **common)
        self._set(least=_ANY_SIZE[0], most=_ANY_SIZE[1])
        for kernel, threads, arguments in launches:
            self._set(**arguments)
            self._device.launch(source, f"dbfs_lab_{kernel}", self._at_most(-(-threads // self._device.threads)))
        counts: NDArray[np.int64] = self._read(1)[0]
        return counts

    def many_levels(
        self, step: Step, blocks: int, sizes: tuple[int, int], size: int, distance: int, **arguments: int
    ) -> NDArray[np.int64]:
        """Launch a step that runs level after level, one queue after the other; return the counters of each level.

        Args:
            step: the kernel.
            blocks: blocks of the grid; all run at once.
            sizes: the smallest and the largest frontier that it follows; the launch ends at any other.
            size: entries of the input queue, within ``sizes``.
            distance: the label of the first level's discoveries.
            arguments: further arguments of the kernel.

        Returns:
            int64[levels, COUNTERS]; the levels that did not run have no counts.
        """
        # The row behind those of the levels is the barrier's.
        self._begin(_LEVELS + 1, size, distance)
        first = self._start + _ROW_BYTES
        self._set(**step.arguments)
        self._set(counters=first, barrier=first + _LEVELS * _ROW_BYTES, before=self._start, distance=0, launch=0)
        self._set(least=sizes[0], most=sizes[1], levels=_LEVELS, **arguments)
        self._device.launch(step.source, step.kernel, blocks, cooperative=blocks > 1)
        return self._read(_LEVELS)

    def by_levels(self, steps: Sequence[Sequence[Step]], *, ahead: bool, **arguments: int) -> None:
        """Run all levels of a strategy whose levels take one of some lists of steps after another.

        Args:
            steps: for the first levels, the steps of each; the levels after those begin with the first again.
            ahead: whether a chain may have several levels: the first step of a level takes its input queue from the
                last step of the level before.
            arguments: further arguments of all kernels.
        """
        self._set(**arguments)
        size = distance = 1
        rule = self.ahead()
        while size:
            self.enter(size, rule.levels)
            chain = [steps[(distance + at) % len(steps)] for at in range(rule.levels)]
            wanted = self.chain(chain, size, distance)[:, RECORD].tolist()
            done: list[tuple[int, int, int]] = []
            before = size
            for level in wanted:
                if size:
                    done.append(level)
                    size = level[2]
            self.leave(done)
            distance += len(done)
            if ahead:
                rule.follow(before, size)

    def address(self, array: Any | None) -> int:
        """Return an array's address for a kernel's arguments; 0 for None."""
        return 0 if array is None else self._device.address(array)

    def _blocks(self, step: Step, size: int, *, first: bool) -> int:
        """Return the blocks of a step's launch: one for 32 entries of the queue, as far as the policy allows.

        The host knows the queue of the first step of a chain. For the steps behind it the queue may have grown.
        """
        tuning, threads = self.problem.tuning, self._device.threads
        if step.rows:
            return self._at_most(-(-self.problem.rows // threads))
        blocks = -(-size // _LANES)
        if not first:
            # Powers of two, so that chains are alike.
            grown = min(tuning.growth * size, step.arguments["in_size"])
            blocks = max(1 << (grown // _LANES).bit_length(), tuning.least_behind)
        if self.policy.tiles == "oversubscribe":
            return max(self._at_most(blocks), -(-blocks * _LANES // threads))
        return self._at_most(blocks)

    def _begin(self, rows: int, size: int, distance: int) -> None:
        """Clear ``rows`` rows of counters, and say how many entries the first queue has and which label follows."""
        self._blank[0, [LabCounter.QUEUED, START_DISTANCE, START_LAUNCH]] = size, distance, self._number(rows)
        self._device.write(self._counters[: 1 + rows], self._blank[: 1 + rows])

    def _read(self, rows: int) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = self._device.read(self._counters[1 : 1 + rows]).astype(np.int64)
        self.totals += counts.sum(axis=0)
        return counts

    def _at_most(self, blocks: int) -> int:
        """Return ``blocks``, or the most that the policy and the tuning allow; at least one."""
        return max(1, min(self._most_blocks, blocks))

    def _number(self, launches: int) -> int:
        """Return the first of ``launches`` consecutive numbers that no word of ``tile_sums`` has."""
        if self._launches + launches > _LAUNCHES:
            self.problem.tile_sums.fill(0)
            self._launches = 0
        self._launches += launches
        return self._launches - launches + 1

    def _overflow(self, needed: int, capacity: int, distance: int) -> QueueOverflowError:
        culls = self.policy.culling == CULLING[-1]
        choose = "" if self.policy.status == "claims" else "status=claims" if culls else f"culling={CULLING[-1]}"
        return QueueOverflowError(
            f"strategy {self.policy.strategy}, level {max(0, distance - 1)}: the queue needs {needed} entries and has "
            f"{capacity} for {self.problem.rows} vertices and {self.problem.edges} edges; duplicates "
            f"fill it with status={self.policy.status},culling={self.policy.culling}{choose and f': choose {choose}'}"
        )

    def _set(self, **arguments: Any) -> None:
        for name, value in arguments.items():
            self._fields[name][0] = value
