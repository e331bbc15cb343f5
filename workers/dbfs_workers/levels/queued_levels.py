"""The levels of a rank on a GPU that exchanges by NCCL: the host waits at most once a level.

A level's phases, its messages and the contraction of the received bins are queued on the GPU one behind another. Three
waits a level, as ``loop`` has with other exchanges on GPUs, would cost more than the level of a road network. Small
levels are queued several at a time: the GPU runs one while the host queues the next, and the host waits once for all.

Levels queued ahead run top-down, whatever they find. So the ranks queue ahead only while no possible frontier could
make a bottom-up level pay. A bottom-up level, and the measurement of a frontier, is queued with its crossing as well.
"""

import time

import numpy as np

from dbfs_workers.cuda.communicator import MOST_AHEAD
from dbfs_workers.exchange.nccl import NcclExchange
from dbfs_workers.exchange.protocol import Exchange
from dbfs_workers.levels.direction import ROWS_PER_EDGE, bottom_up_may_pay
from dbfs_workers.levels.top_down_levels import Stretch
from dbfs_workers.reports import COUNT_FIELDS
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.labels import RankLabels
from dbfs_workers.storage.scratch import Scratch

_PHASE = "top-down"
_EDGES, _DISCOVERED = map(COUNT_FIELDS.index, ("edges", "discovered"))
# Levels between two looks at the run by another thread.
_MOST_LEVELS = 64


class QueuedLevels:
    """Levels of a rank, in one traversal after another; arguments as of ``TopDownLevels``."""

    def __init__(self, scratch: Scratch, exchange: NcclExchange) -> None:
        self._scratch = scratch
        self._exchange = exchange
        self._spec: TraversalSpec
        self._labels: RankLabels
        self._adaptive = False
        # Levels to queue together next, and the level for which this holds.
        self._ahead, self._ahead_at = 1, 0

    @classmethod
    def where_possible(cls, scratch: Scratch, exchange: Exchange) -> "QueuedLevels | None":
        """Return the state for ranks that exchange by NCCL; None for other ranks."""
        if isinstance(exchange, NcclExchange):
            return cls(scratch, exchange)
        return None

    def begin(self, spec: TraversalSpec, labels: RankLabels, *, adaptive: bool) -> None:
        """See ``TopDownLevels.begin``."""
        self._spec, self._labels, self._adaptive = spec, labels, adaptive
        self._ahead, self._ahead_at = 1, 0

    def run(
        self,
        level: int,
        max_degree: int,
        unexplored_edges: int,
        share: float,
        ended: float,
        led_vertices: int = 0,  # noqa: ARG002
        led_edges: int = 0,  # noqa: ARG002
    ) -> Stretch:
        """See ``TopDownLevels.run``. No level is led.

        The time of the phases on the GPU counts as exchange, since the host waits for both together. Levels queued
        together count as equally long.
        """
        scratch, exchange, spec = self._scratch, self._exchange, self._spec
        n, bytes_sent = scratch.partition.stripe.n, 8 if spec.predecessors else 4
        counts: list[tuple[int, ...]] = []
        seconds: list[tuple[float, float, float]] = []
        may_turn = False
        most = self._most_ahead(max_degree)
        if level != self._ahead_at:
            # Levels of another kind came between.
            self._ahead = 1
        while True:
            expanded = scratch.frontier.size
            count = min(self._ahead, _MOST_LEVELS - len(counts))
            if spec.max_depth is not None:
                count = min(count, spec.max_depth - level)
            done = exchange.cross_levels(
                level, _PHASE, scratch, self._labels, edges=expanded * max_degree, count=count, most=most
            )
            now, ran = time.perf_counter(), len(done.levels)
            times = (done.queued_at - ended) / ran, (done.crossed_at - done.queued_at) / ran
            seconds += [(*times, (now - done.crossed_at) / ran)] * ran
            for one in done.levels:
                unexplored_edges -= one.expanded_edges
                # In the order of COUNT_FIELDS.
                filtered, culled = one.edges - one.own - one.sent, one.own + one.received - one.discovered
                sent = one.sent, culled, one.discovered, one.sent * bytes_sent
                counts.append((0, expanded, one.edges, filtered, one.own, *sent))
                expanded = one.discovered
            ended, level, last = now, level + ran, done.levels[-1]
            self._ahead, self._ahead_at = min(2 * self._ahead, MOST_AHEAD) if last.found <= most else 1, level
            may_turn = self._adaptive and bottom_up_may_pay(last.found, max_degree, unexplored_edges, n, share)
            over = not last.found or level == spec.max_depth or bool(spec.targets)
            if over or may_turn or len(counts) == _MOST_LEVELS:
                table = np.array(counts, np.int64)
                return Stretch(
                    counts=table,
                    seconds=np.array(seconds, np.float64),
                    discovered=int(table[:, _DISCOVERED].sum()),
                    edges=int(table[:, _EDGES].sum()),
                    frontier=last.found,
                    expanded_edges=last.expanded_edges,
                    unexplored_edges=unexplored_edges,
                    may_turn=may_turn,
                    led=False,
                    ended=ended,
                )

    def absorb(self) -> None:
        """Absorb the slices of the last crossing."""
        self._exchange.absorb(self._scratch)

    def bottom_up(self, level: int) -> tuple[list[int], list[int], float]:
        """Run a bottom-up level: see ``NcclExchange.cross_search``."""
        return self._exchange.cross_search(level, "bottom-up", self._scratch, self._labels)

    def measure(self, level: int) -> tuple[list[int], list[int]]:
        """Cross with the slice, size and degrees of the frontier; return the own counts and their sums."""
        own, sums, _ = self._exchange.cross_measured(level, "measure", self._scratch)
        return own, sums

    def _most_ahead(self, max_degree: int) -> int:
        """Return the largest frontier, over all ranks, whose level is queued before the host has read its size."""
        if self._spec.targets:
            return 0
        most = self._exchange.most_ahead(max_degree)
        if self._adaptive:
            # A frontier with fewer edges never goes bottom-up: see ``bottom_up_may_pay``.
            most = min(most, self._scratch.partition.stripe.n // (ROWS_PER_EDGE * max(1, max_degree)))
        return most
