"""Consecutive top-down levels of a rank on a GPU that exchanges by NCCL: the host waits once a level.

A level's phases, its messages and the contraction of what comes are queued on the GPU one behind another. Three waits a
level, as ``loop`` has with other exchanges on GPUs, would cost more than the level of a road network.
"""

import time

import numpy as np

from dbfs_workers.exchange.nccl import NcclExchange
from dbfs_workers.exchange.protocol import Exchange
from dbfs_workers.levels.direction import bottom_up_may_pay
from dbfs_workers.levels.top_down_levels import Stretch
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.labels import RankLabels
from dbfs_workers.storage.scratch import Scratch

_PHASE = "top-down"
# Levels between two looks at the run by another thread.
_MOST_LEVELS = 64


class QueuedLevels:
    """Top-down levels of one traversal of a rank; arguments as of ``TopDownLevels``."""

    def __init__(
        self, scratch: Scratch, spec: TraversalSpec, exchange: NcclExchange, labels: RankLabels, *, adaptive: bool
    ) -> None:
        self._scratch = scratch
        self._spec = spec
        self._exchange = exchange
        self._labels = labels
        self._adaptive = adaptive

    @classmethod
    def where_possible(
        cls, scratch: Scratch, spec: TraversalSpec, exchange: Exchange, labels: RankLabels, *, adaptive: bool
    ) -> "QueuedLevels | None":
        """Return the state of a traversal whose ranks exchange by NCCL; None for other traversals."""
        if isinstance(exchange, NcclExchange):
            return cls(scratch, spec, exchange, labels, adaptive=adaptive)
        return None

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

        The time of the phases on the GPU counts as exchange, since the host waits for both together.
        """
        scratch, exchange, spec = self._scratch, self._exchange, self._spec
        n, bytes_sent = scratch.partition.stripe.n, 8 if spec.predecessors else 4
        counts, seconds = [], []
        may_turn = False
        while True:
            expanded = scratch.frontier.size
            done = exchange.cross_level(level, _PHASE, scratch, self._labels, expanded * max_degree)
            scratch.advance(done.discovered)
            unexplored_edges -= done.expanded_edges
            now = time.perf_counter()
            # In the order of COUNT_FIELDS and TIME_FIELDS.
            filtered, culled = done.edges - done.own - done.sent, done.own + done.received - done.discovered
            counts.append(
                (
                    0,
                    expanded,
                    done.edges,
                    filtered,
                    done.own,
                    done.sent,
                    culled,
                    done.discovered,
                    done.sent * bytes_sent,
                )
            )
            seconds.append((done.queued_at - ended, done.crossed_at - done.queued_at, now - done.crossed_at))
            ended, level = now, level + 1
            may_turn = self._adaptive and bottom_up_may_pay(done.found, max_degree, unexplored_edges, n, share)
            last = not done.found or level == spec.max_depth or bool(spec.targets)
            if last or may_turn or len(counts) == _MOST_LEVELS:
                return Stretch(
                    counts=np.array(counts, np.int64),
                    seconds=np.array(seconds, np.float64),
                    frontier=done.found,
                    expanded_edges=done.expanded_edges,
                    unexplored_edges=unexplored_edges,
                    may_turn=may_turn,
                    led=False,
                    ended=ended,
                )
