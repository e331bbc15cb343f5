"""The rounds of shortest paths by weight, as levels of the loop: delta-stepping with a near and a far pile.

A round is a stepper's level. Each rank relaxes the edges of its near pile (``kernels.rounds``), sends what has fallen
to the owners, with the distance and the parent beside the vertex, and takes what peers send (``kernels.entries``). A
vertex of another rank is sent only when its distance falls below all that the rank has sent. A round that sends nothing
and leaves no near vertex on any rank ends the bucket: all distances up to its bound are final.

A rank that has the whole graph runs many rounds in one call.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from dbfs_workers.base.errors import DistanceOverflowError
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.weights.delta import delta_for
from dbfs_workers.features.weights.kernels import entries as entry_kernels
from dbfs_workers.features.weights.kernels import rounds as round_kernels
from dbfs_workers.features.weights.keys import NONE, key_of, largest, number_of
from dbfs_workers.features.weights.purpose import LEAST_SHARED, Number, weighted
from dbfs_workers.features.weights.storage import WeightedLabels, WeightScratch, distances_of
from dbfs_workers.search.exchange.protocol import Exchange
from dbfs_workers.search.levels.level_table import LevelTable
from dbfs_workers.search.levels.rank_levels import RankLevels
from dbfs_workers.search.levels.state import TOP_DOWN, State
from dbfs_workers.search.levels.stepper import RankWork, elapsed
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.reports import Row
from dbfs_workers.search.reports.counts import Largest, Total
from dbfs_workers.search.reports.crossings import Sum

PHASE: Final = "weights"
"""The phase of the rounds, for errors."""

_KERNELS: Final[dict[str, Callable[..., None]]] = {
    "int64": round_kernels.rounds_int64,
    "float64": round_kernels.rounds_float64,
    "float32": round_kernels.rounds_float32,
}


class Round(NamedTuple):
    """The crossing with the entries of a round.

    Attributes:
        frontier: vertices of the near piles that the round took.
        going: entries sent, and vertices of the next near piles.
        left: entries that the bins had no room for.
        missing: targets whose distance is not final when the bucket ends.
        before: ``NONE`` less the lower bound of the far pile's keys: 0 for an empty one.
    """

    frontier: Total
    going: Total
    left: Total
    missing: Total
    before: Largest


class Facts(NamedTuple):
    """The crossing before the first round, from which the width of a bucket follows.

    Attributes:
        mean: the key of the largest mean of a rank's weights.
        edges: edges.
        rows: rows with edges.
    """

    mean: Largest
    edges: Total
    rows: Total


class Farthest(NamedTuple):
    """The crossing after the last round of a traversal with targets.

    Attributes:
        key: the key of the farthest one.
    """

    key: Largest


class WeightWork(RankWork):
    """See ``RankWork``. The rounds count targets themselves."""

    labels: WeightedLabels

    def count_missing_targets(self) -> int:
        """Return 0."""
        return 0


class WeightLevels(RankLevels[WeightScratch]):
    """The rounds of a rank: see ``RankLevels``. The class is also their stepper."""

    # Edges relaxed after which a call of the kernel ends with a bucket, on a rank that has the whole graph.
    _least = NONE

    def __init__(self, scratch: WeightScratch, exchange: Exchange) -> None:
        super().__init__(scratch, exchange, WeightWork())
        self.steppers = {TOP_DOWN: self}
        self._rounds = _KERNELS[scratch.weights.dtype.name]
        self._delta: Number = 0
        # The key where the next bucket begins; ``NONE`` within a bucket.
        self._begins = NONE

    def start(self, spec: TraversalSpec, labels: RankLabels, state: State, *, stops: bool) -> bool:
        if not super().start(spec, labels, state, stops=stops):
            return False
        # Entries have parents, whether the labels have them or not.
        self._exchange.reset(True)
        self._column = weighted(spec).column
        self._delta, self._begins = self._width_of_buckets(spec), 0
        state.frontier, state.reached, state.targets = 1, self.scratch.piles.reached, False
        return True

    def run(self, state: State, table: LevelTable) -> None:
        """Run a round, or many on a rank that has the whole graph; see ``Stepper``."""
        scratch, piles = self.scratch, self.scratch.piles
        search, weights, alone = scratch.search, scratch.weights, self._exchange.p == 1
        reached, piles.ended, rows = piles.reached, state.ended, table.room(round_kernels.LEVELS)
        # The kernels of a team know no limits.
        most = NONE if scratch.team is None or search.limits.size else LEAST_SHARED
        self._rounds(search, weights, scratch.records, rows, self._begins, self._delta, alone, most, self._least)
        state.ended = piles.ended
        levels = piles.done
        if alone:
            table.add(levels)
        if piles.near > most:
            row = table.row()
            scratch.share(row)
            row.search += elapsed(state)
            if alone:
                round_kernels.swap(scratch.records)
                table.add()
                levels += 1
        if alone:
            made = self._cross(state, table.last(), piles.near, 0)
        else:
            made = self._send(state, table.row(), reached)
            levels = int(made.frontier > 0)
            table.add(levels)
            round_kernels.swap(scratch.records)
        state.level += levels
        state.reached = piles.reached
        state.frontier, self._begins = made.going, NONE
        # Without anything on its way, the bucket has ended on all ranks.
        if not made.going and made.before and (made.missing or not self._has_targets):
            state.frontier, self._begins = 1, NONE - made.before

    def end(self, state: State) -> None:
        """Make the labels.

        Raises:
            DistanceOverflowError: int64 does not hold a distance; on all ranks.
        """
        scratch, labels, dtype = self.scratch, self._work.labels, self.scratch.weights.dtype
        parents = np.empty(0, np.uint32) if labels.predecessors is None else labels.predecessors
        final = scratch.final
        if self._has_targets:
            farthest = Farthest(int(scratch.search.distances[scratch.target_ids].max(initial=0)))
            final = min(final, self._exchange.cross(state.level, PHASE, farthest, sliced=False).key)
        state.reached, state.edges, past = entry_kernels.finish(scratch.search, final, parents)
        labels.distances = distances_of(scratch.search.distances[scratch.own], dtype)
        told = self._exchange.cross(state.level, PHASE, Sum(past), sliced=False)
        state.ended = time.perf_counter_ns()
        if told.total:
            raise DistanceOverflowError(
                f"int64 does not hold the distances of {told.total:,} vertices by {self._column!r}, which are "
                "2^63 - 2 or more; set max_distance, or have the column in float64"
            )

    def _width_of_buckets(self, spec: TraversalSpec) -> Number:
        """Return the width of a bucket, the same on all ranks."""
        purpose, scratch = weighted(spec), self.scratch
        self._has_targets, dtype = bool(spec.targets), scratch.weights.dtype
        if purpose.delta is not None:
            return largest(purpose.delta, dtype)
        mean, rows = scratch.facts
        told = self._exchange.cross(0, PHASE, Facts(key_of(mean, dtype), scratch.weights.size, rows), sliced=False)
        return delta_for(number_of(told.mean, dtype), told.edges / max(told.rows, 1), dtype)

    def _send(self, state: State, row: Row, reached: int) -> Round:
        """Send what has fallen to its owners and take what peers send, in as many crossings as the bins need."""
        exchange, scratch, piles = self._exchange, self.scratch, self.scratch.piles
        going, unfinished = 0, True
        while unfinished:
            made, left = entry_kernels.pack(scratch.search, exchange.bin_rows, exchange.bin_parents, exchange.bin_ends)
            row.bytes_sent += entry_kernels.BYTES * made
            row.contract += elapsed(state)
            told = self._cross(state, row, made + piles.queued, left)
            going += told.going
            for rows, parents in exchange.incoming():
                row.received += rows.size // entry_kernels.PLACES
                entry_kernels.take(scratch.search, scratch.records, rows, parents)
            row.contract += elapsed(state)
            unfinished = told.left > 0
        row.levels, row.discovered = 1, piles.reached - reached
        row.culled = row.own + row.received - row.discovered
        return told._replace(going=going)

    def _cross(self, state: State, row: Row, going: int, left: int) -> Round:
        scratch, piles = self.scratch, self.scratch.piles
        missing = round_kernels.missing_targets(scratch.search, piles.bound) if self._has_targets else 0
        counts = Round(row.frontier, going, left, missing, NONE - piles.nearest)
        told = self._exchange.cross(state.level, PHASE, counts, sliced=False)
        row.exchange += elapsed(state)
        return told
