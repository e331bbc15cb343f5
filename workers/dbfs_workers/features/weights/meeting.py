"""A search by weight from both ends: a traversal from the source, and one against the edges from the target.

They take turns by buckets: the one goes on that has reached fewer vertices. All distances below the least one in a far
pile, the *radius* of a search, are final. A way that neither search has whole has a vertex in the far pile of one that
is final in the other, if it is shorter than both radii together (Pohl, "Bi-directional search", 1971).

So once the radii together exceed the shortest way found, the search from the source goes on among the vertices alone on
a way of that length, until the target is final. Its distance is the sum in the order of the path, as without the other
search. Sums from the other end are rounded otherwise, so that the length has a slack for floats.
"""

import math
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.weights.keys import NONE, number_of
from dbfs_workers.features.weights.levels import PHASE, WeightLevels
from dbfs_workers.features.weights.purpose import Number
from dbfs_workers.features.weights.storage import WeightScratch
from dbfs_workers.search.exchange.protocol import Exchange
from dbfs_workers.search.levels.level_table import LevelTable
from dbfs_workers.search.levels.state import State
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.reports.counts import Largest, Total

_AHEAD, _BACK = 0, 1

_TURN: Final = 1 << 14
"""Edges of a turn at least, on a rank that has the whole graph: the rest of a turn takes as long as 4,000."""

_SLACK: Final = 8
"""Roundings for which there is slack, in those of a path over all vertices. A sum and its parts take 5 of them."""


class Met(NamedTuple):
    """The crossing after a turn.

    Attributes:
        best: ``NONE`` less the key of the shortest way found.
        reached: vertices that the search has reached.
    """

    best: Largest
    reached: Total


class MeetingLevels(WeightLevels):
    """The rounds of a rank of both searches.

    Args:
        ahead: working memory of the search along the edges, from the source.
        back: of that against them, from the target.
        exchange: see ``WeightLevels``.
    """

    def __init__(self, ahead: WeightScratch, back: WeightScratch, exchange: Exchange) -> None:
        super().__init__(ahead, exchange)
        self._sides = ahead, back

    def start(self, spec: TraversalSpec, labels: RankLabels, state: State, *, stops: bool) -> bool:
        self.scratch, self._least = self._sides[_AHEAD], _TURN
        if not super().start(spec, labels, state, stops=stops):
            return False
        self._sides[_BACK].start(replace(spec, sources=spec.targets, targets=spec.sources), labels)
        self._side, self._best, self._met = _AHEAD, NONE, False
        self._radii, self._reached = [0, 0], [1, 1]
        return True

    def run(self, state: State, table: LevelTable) -> None:
        super().run(state, table)
        within = state.frontier and self._begins == NONE
        if self._met or within or not (state.frontier or self._side):
            return
        other = self._sides[1 - self._side]
        told = self._exchange.cross(
            state.level, PHASE, Met(NONE - self.scratch.way_over(other), self.scratch.piles.reached), sliced=False
        )
        self._best = min(self._best, NONE - told.best)
        self._radii[self._side] = self._begins if state.frontier else NONE
        self._reached[self._side] = told.reached
        self._met = self._radii_meet()
        self._side = _BACK if not self._met and self._reached[_BACK] < self._reached[_AHEAD] else _AHEAD
        self.scratch = self._sides[self._side]
        self._begins, state.frontier = self._radii[self._side], int(not self._met or self._best != NONE)
        if self._met and state.frontier:
            self._least = NONE
            self.scratch.keep_to(self._sides[_BACK], self._longest())

    def _radii_meet(self) -> bool:
        """Return whether no way is shorter than the best one found, but for roundings."""
        if NONE in self._radii:
            return True
        ahead, back = (number_of(radius, self.scratch.weights.dtype) for radius in self._radii)
        return self._best != NONE and ahead + back > self._longest()

    def _longest(self) -> Number:
        """Return the length of the longest way that may be the shortest, given the best one found."""
        dtype = self.scratch.weights.dtype
        best = number_of(self._best, dtype)
        if dtype.kind == "i":
            return best
        return best * math.exp(_SLACK * self.scratch.partition.stripe.n * float(np.finfo(dtype).epsneg))
