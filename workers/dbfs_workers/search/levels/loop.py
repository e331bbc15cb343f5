"""The loop: every rank runs the same levels over an exchange, without returning to the client.

All ranks decide from the same numbers, the sums of a crossing, so no rank has to decide for the others::

    while not over(state):
        steppers[choose(state)].run(state, table)
        choose_direction(state)

``state`` has what they decide by. A stepper runs a stretch of levels, or a step between two (``stepper``): the host
directs each level; one kernel runs consecutive top-down levels where CPU ranks share memory (``top_down_levels``); one
rank runs small levels for all (``led_levels``); a GPU has the levels queued (``queued_levels``). ``rank_levels`` says
which steppers a rank has.

A level is one phase of work and one crossing. After some top-down levels the ranks cross a second time, when the peers'
bins are contracted: if the witness of the targets may have a label (``State.witness``), and if the frontier may be
large enough for a bottom-up level. The second crossing carries the exact size of the new frontier. If the loop chooses
directions, it also carries the frontier's bitmap in slices, ready for a bottom-up level.

On GPUs that map each other's memory one kernel runs all levels instead: ``dbfs_workers.search.cuda.resident``.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.search.exchange.protocol import Exchange
from dbfs_workers.search.levels.rank_levels import RankLevels
from dbfs_workers.search.levels.state import State, choose, choose_direction, over
from dbfs_workers.search.levels.traversals import Frontier, Watch, never, traverse_each
from dbfs_workers.search.reports import RankRun

Levels = RankLevels[Any]

# Traversals of a run that are made ready together: see ``traverse_each``.
_AHEAD = 64


def traverse(
    levels: Callable[[], Levels],
    specs: Sequence[TraversalSpec],
    exchange: Exchange,
    *,
    watch: Watch,
    deadline: float,
    stops: Callable[[], bool] = never,
) -> list[RankRun]:
    """Take part in the traversals of a run by the loop: see ``traverse_each``, also for other arguments and errors.

    ``levels`` makes what runs this rank's levels.

    Raises:
        InvalidOptionError: the direction is unknown, or it is bottom-up and the graph's in-edges are not loaded.
    """

    def start(some: Sequence[TraversalSpec]) -> list[LevelLoop]:
        of_all = levels()
        return [LevelLoop(of_all, spec) for spec in some]

    return traverse_each(start, specs, exchange, watch=watch, deadline=deadline, ahead=_AHEAD, stops=stops)


class LevelLoop:
    """One traversal on one rank, made ready beside others. See ``Traversal``.

    Args:
        levels: runs the levels; ``run`` has them to itself.
        spec: the traversal.
        counted: whether the counts of its levels are wanted; without them there is no ``result``.

    Attributes:
        state: the traversal's state. Another thread may read it: see ``Watch``.
        setup: seconds that this rank took to make the traversal ready; after the first crossing, all seconds before.

    Raises:
        InvalidOptionError: as for ``traverse``.
    """

    def __init__(self, levels: Levels, spec: TraversalSpec, *, counted: bool = True) -> None:
        began = time.perf_counter_ns()
        self._levels, self._spec, self._counted = levels, spec, counted
        scratch = levels.scratch
        self.state = State.of(spec, scratch.partition.stripe.n, in_edges=scratch.frontier_bits is not None)
        self.labels = scratch.labels_for(spec)
        self.setup = (time.perf_counter_ns() - began) * 1e-9

    def run(self, stops: bool = False) -> bool:
        """Run all levels; see ``Traversal``."""
        began = time.perf_counter_ns()
        levels, state, table = self._levels, self.state, self._levels.table
        table.begin()
        if not levels.start(self._spec, self.labels, state, stops=stops):
            return False
        state.started = state.ended = time.perf_counter_ns()
        self.setup += (state.started - began) * 1e-9
        steppers = levels.steppers
        while not over(state):
            steppers[choose(state)].run(state, table)
            choose_direction(state)
        levels.end(state)
        if self._counted:
            self._records, self._depth = table.end()
        else:
            table.drop()
        return True

    def result(self) -> RankRun:
        """Return the labels, counts and times of this rank, after ``run``."""
        state = self.state
        return RankRun(
            labels=self.labels,
            levels=self._records,
            reached=state.reached,
            edges=state.edges,
            depth=self._depth,
            elapsed=(state.ended - state.started) * 1e-9,
            setup=self.setup,
            version=self._levels.scratch.partition.version,
        )

    @property
    def scratch(self) -> Frontier:
        """See ``Traversal``."""
        scratch: Frontier = self._levels.scratch
        return scratch

    @property
    def level(self) -> int:
        """See ``Traversal``."""
        return self.state.level

    @property
    def bottom_up(self) -> bool:
        """See ``Traversal``."""
        return self.state.bottom_up

    @property
    def reached(self) -> int:
        """See ``Traversal``."""
        return self.state.reached

    @property
    def completed(self) -> int:
        """See ``Traversal``."""
        return self.state.completed
