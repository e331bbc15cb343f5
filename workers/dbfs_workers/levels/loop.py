"""The resident loop: every rank runs the same levels over an exchange, without returning to the client.

All ranks take every decision from the same numbers, the sums of a crossing, so they need no one to decide for them. A
level is one phase of work and one crossing. Only where the frontier may be large enough to turn around
(``direction.bottom_up_may_pay``), or where targets may be reached, do the ranks cross once more, after contraction,
with the exact size of the new frontier; its slices of the bitmap travel along, ready for a bottom-up level.
"""

import time
from collections.abc import Sequence

import numpy as np

from dbfs_workers.errors import (
    DeadlineExceededError,
    InvalidOptionError,
    RunAbortedError,
    RunCancelledError,
    WorkerLostError,
)
from dbfs_workers.exchange.protocol import Cause, Exchange
from dbfs_workers.levels.direction import bottom_up_may_pay, bottom_up_pays, share_looked_at
from dbfs_workers.levels.scratch import Scratch
from dbfs_workers.reports import COUNT_FIELDS, TIME_FIELDS, RankRun, RunPosition
from dbfs_workers.spec import DIRECTIONS, TraversalSpec
from dbfs_workers.storage.stripe import own_rows

_DISCOVERED = COUNT_FIELDS.index("discovered")

# What the counts of a crossing are: the frontier's vertices (after a top-down level: those found, some of them by two
# ranks), its edges (at the start: the graph's), targets without a label, at the start the largest degree, and after a
# bottom-up level the edges that it looked at.
_SIZE, _EDGES, _MISSING, _MAX_DEGREE, _LOOKED_AT = range(5)


class Watch:
    """Shows another thread where a run is: it reads the loop's own variables, which costs the loop nothing.

    Args:
        number: the run's.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._under_way: tuple[int, LevelLoop] | None = None

    def show(self, index: int, traversal: "LevelLoop") -> None:
        """The traversal of that index begins."""
        self._under_way = (index, traversal)

    def position(self) -> RunPosition | None:
        """Where the run is; None before its first traversal."""
        if self._under_way is None:
            return None
        index, traversal = self._under_way
        frontier = traversal.scratch.frontier.size
        return RunPosition(index, traversal.level, traversal.bottom_up, frontier, traversal.reached)


def traverse(
    scratch: Scratch, specs: Sequence[TraversalSpec], exchange: Exchange, *, watch: Watch, deadline: float
) -> list[RankRun]:
    """Take part in traversals, one after another. Every rank calls this with the same specs and number.

    Args:
        scratch: this rank's state.
        specs: the traversals; all of one run id.
        exchange: this rank's end of the gang's exchange.
        watch: shows where the run is; its number is the gang's running number of this call: see ``Exchange.begin``.
        deadline: when to give up, on ``time.monotonic()``'s clock.

    Raises:
        DeadlineExceededError, RunCancelledError, RunAbortedError, WorkerLostError, StaleRunError: the run is over on
            every rank; the exchange serves the next one.
        InvalidOptionError: bottom-up was asked for and the graph's in-edges are not there.
    """
    # Outside of the try: a start that came twice must not abort the run that the first one started.
    exchange.begin(specs[0].run_id, watch.number, deadline)
    try:
        runs = []
        for index, spec in enumerate(specs):
            traversal = LevelLoop(scratch, spec, exchange)
            watch.show(index, traversal)
            runs.append(traversal.run())
        return runs
    except (DeadlineExceededError, RunCancelledError, RunAbortedError, WorkerLostError):
        raise
    except BaseException as error:
        # Peers would wait for this rank until the deadline.
        exchange.abort(watch.number, Cause.FAILED, f"{type(error).__name__}: {error}")
        raise


class LevelLoop:
    """One traversal: the loop's variables. ``size`` and what follows it are sums over the ranks."""

    def __init__(self, scratch: Scratch, spec: TraversalSpec, exchange: Exchange) -> None:
        if spec.direction not in DIRECTIONS:
            raise InvalidOptionError(f"unknown direction {spec.direction!r}; choose one of {', '.join(DIRECTIONS)}")
        parents = scratch.partition.parents
        if spec.direction == "bottom-up" and parents is None:
            raise InvalidOptionError(
                "bottom-up levels of a directed graph need its in-edges: load it with in_edges=True"
            )
        self.scratch = scratch
        self.spec = spec
        self.exchange = exchange
        self.adaptive = spec.direction == "auto" and parents is not None
        self.bottom_up = spec.direction == "bottom-up"
        self.share = share_looked_at()
        self.counts: list[tuple[int, ...]] = []
        self.seconds: list[tuple[float, float, float]] = []
        self.edges = 0
        self.reached = 0
        self.level = 0
        self.sliced = self.bottom_up

    def run(self) -> RankRun:
        """Run all levels; returns the labels and the counts of this rank."""
        began = time.perf_counter()
        scratch, spec, stripe = self.scratch, self.spec, self.scratch.partition.stripe
        self.exchange.reset(spec.predecessors)
        self.labels = scratch.start(spec)
        targets = own_rows(stripe, scratch.partition.rank, spec.targets) if spec.targets else None
        self.targets = None if targets is None else scratch.backend.xp.asarray(targets)
        self.reached = scratch.frontier.size
        self.degrees = scratch.backend.edge_count(scratch.partition.row_offsets, scratch.frontier)
        self._slice()
        sums = self._cross("start", (self.reached, scratch.partition.m_local, self._missing(), scratch.max_degree, 0))
        self.size, self.remaining, self.missing = sums[_SIZE], sums[_EDGES], sums[_MISSING]
        self.max_degree = int(self.exchange.gathered[:, _MAX_DEGREE].max())
        # The frontier's degrees, where they are known: after a crossing that summed them.
        self.frontier_edges = 0
        # Those that the last top-down level expanded.
        self.expanded = 0

        started = self.ended = time.perf_counter()
        while self.size and self.level != spec.max_depth and (self.targets is None or self.missing):
            if self.sliced:
                self._absorb()
            self.reached += self._bottom_up_level() if self.bottom_up else self._top_down_level()
            self.level += 1
        if scratch.frontier.size:
            self.edges += scratch.backend.edge_count(scratch.partition.row_offsets, scratch.frontier)
        counts = np.array(self.counts, np.int64).reshape(-1, len(COUNT_FIELDS))
        return RankRun(
            labels=self.labels,
            counts=counts,
            seconds=np.array(self.seconds, np.float64).reshape(-1, len(TIME_FIELDS)),
            reached=self.reached,
            edges=self.edges,
            depth=int(np.flatnonzero(counts[:, _DISCOVERED]).max(initial=-1)) + 1,
            elapsed=self.ended - started,
            setup=started - began,
        )

    def _top_down_level(self) -> int:
        scratch, exchange, labels = self.scratch, self.exchange, self.labels
        partition, backend = scratch.partition, scratch.backend
        frontier, queue, distance = scratch.frontier, scratch.next_queue, self.level + 1
        self.sliced = False
        start = self.ended
        edges, own, sent = backend.top_down(
            partition.out_edges,
            frontier,
            scratch.first_id,
            scratch.visited,
            exchange,
            distance,
            labels.distances,
            labels.predecessors,
            queue,
        )
        binned = time.perf_counter()
        sums = self._cross("top-down", (own + sent, edges, 0, 0, 0))
        crossed = time.perf_counter()
        discovered = own
        received = 0
        for rows, parents in exchange.incoming():
            received += rows.size
            discovered += backend.contract(
                rows,
                parents,
                scratch.own_visited,
                distance,
                labels.distances,
                labels.predecessors,
                queue[discovered:],
            )
        scratch.advance(discovered)
        self.edges += edges
        self.ended = contracted = time.perf_counter()
        # Vertices that two ranks found are counted twice here: it is 0 when the frontier is empty, at least.
        self.size = sums[_SIZE]
        self.remaining -= sums[_EDGES]
        self.expanded = sums[_EDGES]
        waited = crossed - binned
        sent_bytes = sent * (8 if self.spec.predecessors else 4)
        if self.size and (self.targets is not None or self._may_turn()):
            sent_bytes += self._measure()
            self.ended = time.perf_counter()
            waited += self.ended - contracted
        self.counts.append(
            (
                0,
                frontier.size,
                edges,
                edges - own - sent,
                own,
                sent,
                own + received - discovered,
                discovered,
                sent_bytes,
            )
        )
        self.seconds.append((binned - start, waited, contracted - crossed))
        return discovered

    def _bottom_up_level(self) -> int:
        scratch, labels = self.scratch, self.labels
        partition, frontier = scratch.partition, scratch.frontier
        assert partition.parents is not None
        assert scratch.frontier_bits is not None
        start = self.ended
        found_bits = self.exchange.slice()
        edges, discovered, degrees = scratch.backend.bottom_up(
            partition.parents,
            partition.row_offsets,
            scratch.frontier_bits,
            scratch.own_visited,
            found_bits,
            self.level + 1,
            labels.distances,
            labels.predecessors,
            scratch.next_queue,
        )
        self.edges += self.degrees
        self.degrees = degrees
        scratch.advance(discovered)
        searched = time.perf_counter()
        self.sliced = True
        sums = self._cross("bottom-up", (discovered, degrees, self._missing(), 0, edges))
        self.ended = time.perf_counter()
        self.share = share_looked_at(sums[_LOOKED_AT], self.remaining)
        self._turn(sums)
        sent_bytes = found_bits.nbytes * (self.exchange.p - 1)
        self.counts.append((1, frontier.size, edges, edges - discovered, discovered, 0, 0, discovered, sent_bytes))
        self.seconds.append((searched - start, self.ended - searched, 0.0))
        return discovered

    def _measure(self) -> int:
        """Cross again, with what the new frontier really is; returns the bytes sent."""
        scratch = self.scratch
        self.degrees = scratch.backend.edge_count(scratch.partition.row_offsets, scratch.frontier)
        self.sliced = self.adaptive
        self._slice()
        self._turn(self._cross("measure", (scratch.frontier.size, self.degrees, self._missing(), 0, 0)))
        return scratch.partition.stripe.words_local * 4 * (self.exchange.p - 1) if self.sliced else 0

    def _turn(self, sums: list[int]) -> None:
        """Choose the next level's direction by the sums over the new frontier."""
        before = self.frontier_edges if self.bottom_up else self.expanded
        self.size, self.frontier_edges, self.missing = sums[_SIZE], sums[_EDGES], sums[_MISSING]
        if self.adaptive:
            unexplored = self.remaining - self.frontier_edges
            n = self.scratch.partition.stripe.n
            self.bottom_up = bottom_up_pays(self.frontier_edges, before, unexplored, n, self.share)
        if self.bottom_up:
            # A top-down level counts its edges itself.
            self.remaining -= self.frontier_edges

    def _may_turn(self) -> bool:
        n = self.scratch.partition.stripe.n
        return self.adaptive and bottom_up_may_pay(self.size, self.max_degree, self.remaining, n, self.share)

    def _slice(self) -> None:
        if self.sliced:
            self.scratch.backend.mark(self.scratch.frontier, self.exchange.slice())

    def _absorb(self) -> None:
        scratch = self.scratch
        words = scratch.partition.stripe.words_local
        assert scratch.frontier_bits is not None
        for source in range(self.exchange.p):
            own = slice(source * words, (source + 1) * words)
            scratch.backend.absorb(self.exchange.slice_of(source), scratch.frontier_bits[own], scratch.visited[own])

    def _missing(self) -> int:
        """Targets of this rank without a label."""
        return 0 if self.targets is None else int((self.labels.distances[self.targets] < 0).sum())

    def _cross(self, phase: str, counts: tuple[int, int, int, int, int]) -> list[int]:
        return self.exchange.cross(self.level, phase, counts, sliced=self.sliced)
