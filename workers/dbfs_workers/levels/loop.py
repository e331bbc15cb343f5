"""The resident loop: every rank runs the same levels over an exchange, without returning to the client.

All ranks decide from the same numbers, the sums of a crossing, so no rank has to decide for the others. A level is one
phase of work and one crossing. If a rank's bins are too small for a top-down level, all ranks take the level in several
rounds, with a crossing each. On CPUs that share memory one kernel runs consecutive top-down levels
(``top_down_levels``), and one rank runs small levels for all (``led_levels``).

After some top-down levels the ranks cross a second time, when the peers' bins are contracted: in a traversal with
targets, and if the frontier may be large enough for a bottom-up level (``direction.bottom_up_may_pay``). The second
crossing carries the exact size of the new frontier. If the loop chooses directions, it also carries the frontier's
bitmap in slices, ready for a bottom-up level.

On GPUs that map each other's memory one kernel runs such levels instead: ``dbfs_workers.cuda.resident``.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.backends.protocol import Backend
from dbfs_workers.exchange.protocol import Exchange
from dbfs_workers.levels.direction import (
    bottom_up_may_pay,
    bottom_up_pays,
    expected_search_share,
    require_direction,
)
from dbfs_workers.levels.led_levels import LedLevels
from dbfs_workers.levels.level_table import LevelTable
from dbfs_workers.levels.queued_levels import QueuedLevels
from dbfs_workers.levels.rank_levels import RankLevels
from dbfs_workers.levels.top_down_levels import TopDownLevels
from dbfs_workers.levels.traversals import Watch, never, traverse_each
from dbfs_workers.reports import COUNT_FIELDS, TIME_FIELDS, LevelRecords, RankRun
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage import reading
from dbfs_workers.storage.labels import RankLabels
from dbfs_workers.storage.scratch import Scratch
from dbfs_workers.storage.stripe import own_rows

_EDGES, _DISCOVERED, _BYTES_SENT = map(COUNT_FIELDS.index, ("edges", "discovered", "bytes_sent"))
_EXCHANGE = TIME_FIELDS.index("exchange")
# Places among the counts of a crossing: see ``LevelLoop._cross``.
_MAX_DEGREE = _UNFINISHED = 3
_WANTED = 4
# In the place of ``_WANTED``, from rank 0: the run stops before this traversal.
_STOP = -1
# Traversals of a run that are made ready together: see ``traverse_each``.
_AHEAD = 64


def traverse(
    backend: Backend,
    scratch: Scratch,
    specs: Sequence[TraversalSpec],
    exchange: Exchange,
    *,
    watch: Watch,
    deadline: float,
    free_bytes: Callable[[], int] = lambda: reading.room(None, 1),
    stops: Callable[[], bool] = never,
) -> list[RankRun]:
    """Take part in the traversals of a run, one after another. Every rank calls this with the same specs and number.

    Args:
        backend: runs the phases, on the device of ``scratch``.
        scratch: this rank's working memory.
        specs: the traversals; all of one run id.
        exchange: this rank's end of the gang's exchange.
        watch: shows how far the run is. Its number is the gang's serial number of the run: see ``Exchange.begin``.
        deadline: end of all waits, in seconds of ``time.monotonic()``.
        free_bytes: returns the bytes of memory that this process may still take.
        stops: see ``traverse_each``.

    Raises:
        DeadlineExceededError, RunCancelledError, RunAbortedError, WorkerLostError, StaleRunError: the run is over on
            every rank; the exchange serves the next one.
        InvalidOptionError: the direction is unknown, or it is bottom-up and the graph's in-edges are not loaded.
    """

    def start(some: Sequence[TraversalSpec]) -> list[LevelLoop]:
        levels = RankLevels.of(backend, scratch, exchange, free_bytes)
        return [LevelLoop.start(levels, spec) for spec in some]

    return traverse_each(
        start,
        specs,
        exchange,
        watch=watch,
        deadline=deadline,
        ahead=_AHEAD,
        stops=stops,
    )


@dataclass(slots=True)
class LevelLoop:
    """One traversal on one rank: the loop's state between two levels. Another thread may read it: see ``Watch``.

    Attributes:
        backend: runs the phases.
        scratch: this rank's working memory.
        spec: the traversal.
        exchange: this rank's end of the gang's exchange.
        setup: seconds that this rank took to make the traversal ready; after the first crossing, all seconds before.
        labels: this rank's labels.
        target_rows: local ids of this rank's targets, on the device; None for a traversal without targets.
        adaptive: whether the loop chooses each level's direction.
        bottom_up: direction of the level in progress, or of the next one.
        sliced: whether the last crossing carried slices of the frontier's bitmap.
        level: the level in progress, or the next one; it labels vertices with ``level + 1``.
        reached: vertices of this rank labelled so far.
        edges: sum of the degrees of this rank's expanded vertices.
        frontier_degrees: sum of the degrees of this rank's part of the frontier; exact before a bottom-up level only.
        kernel: runs consecutive top-down levels, by one kernel or queued on a GPU; None if this loop runs each level.
        led: this rank's part in led levels; None if there are none.
        table: counts and times of the levels.
        records: after ``run``, the records of the levels.
        depth: after ``run``, the largest distance of this rank's vertices.
        led_next: whether the next level is to be led.
        started: when the first crossing ended, in seconds of ``time.perf_counter()``.
        ended: when the last level ended, on the same clock.
        frontier: over all ranks, vertices of the frontier; an upper bound after a top-down level with one crossing.
        frontier_edges: over all ranks, the sum of the frontier's degrees; exact before a bottom-up level only.
        expanded_edges: over all ranks, edges that the last top-down level expanded.
        unexplored_edges: over all ranks, the sum of the degrees of vertices that are not expanded. The frontier of a
            bottom-up level counts as expanded when its direction is chosen.
        missing_targets: over all ranks, targets without a label.
        max_degree: the graph's largest degree.
        search_share: share of the unexplored edges that a bottom-up level is expected to look at.
    """

    backend: Backend
    scratch: Scratch
    spec: TraversalSpec
    exchange: Exchange
    setup: float
    labels: RankLabels
    target_rows: NDArray[np.uint32] | None
    adaptive: bool
    bottom_up: bool
    sliced: bool
    kernel: TopDownLevels | QueuedLevels | None
    led: LedLevels | None
    table: LevelTable
    records: LevelRecords | None = None
    depth: int = 0
    led_next: bool = False
    level: int = 0
    reached: int = 0
    edges: int = 0
    frontier_degrees: int = 0
    started: float = 0.0
    ended: float = 0.0
    frontier: int = 0
    frontier_edges: int = 0
    expanded_edges: int = 0
    unexplored_edges: int = 0
    missing_targets: int = 0
    max_degree: int = 0
    search_share: float = field(default_factory=expected_search_share)

    @classmethod
    def start(cls, levels: RankLevels, spec: TraversalSpec) -> "LevelLoop":
        """Return a traversal that is made ready, beside others. ``run`` takes the scratch and the exchange.

        Raises:
            InvalidOptionError: as for ``traverse``.
        """
        began = time.perf_counter()
        backend, scratch = levels.backend, levels.scratch
        partition, in_edges = scratch.partition, scratch.parent_rows is not None
        require_direction(spec, in_edges=in_edges)
        targets = own_rows(partition.stripe, partition.rank, spec.targets) if spec.targets else None
        loop = cls(
            backend=backend,
            scratch=scratch,
            spec=spec,
            exchange=levels.exchange,
            setup=0.0,
            labels=scratch.labels_for(spec),
            target_rows=None if targets is None else backend.xp.asarray(targets),
            adaptive=spec.direction == "auto" and in_edges,
            bottom_up=spec.direction == "bottom-up",
            sliced=spec.direction == "bottom-up",
            kernel=levels.kernel,
            led=None if spec.targets else levels.led,
            table=levels.table,
        )
        loop.setup = time.perf_counter() - began
        return loop

    def run(self, stops: bool = False) -> bool:
        """Run all levels; see ``Traversal``."""
        began = time.perf_counter()
        scratch, partition = self.scratch, self.scratch.partition
        self.exchange.reset(self.spec.predecessors)
        scratch.start(self.spec, self.labels)
        self.reached = scratch.frontier.size
        if self.bottom_up:
            self.frontier_degrees = self.backend.edge_count(partition, scratch.frontier)
        self._mark_slice()
        self.table.begin()
        led = self.led
        wanted = 0 if led is None else led.begin(self.spec, self.labels, adaptive=self.adaptive)
        if self.kernel is not None:
            self.kernel.begin(self.spec, self.labels, adaptive=self.adaptive)
        if stops:
            wanted = _STOP
        self.frontier, self.unexplored_edges, self.missing_targets, _, _ = self._cross(
            "start", self.reached, partition.m_local, self._count_missing_targets(), scratch.max_degree, wanted
        )
        # Functions of NumPy take some microseconds on their first call after the levels.
        ranks = self.exchange.gathered.tolist()
        if ranks[0][_WANTED] == _STOP:
            return False
        if led is not None and not led.agree([rank[_WANTED] for rank in ranks]):
            self.led = None
        self.max_degree = max([rank[_MAX_DEGREE] for rank in ranks])

        self.started = self.ended = time.perf_counter()
        self.setup += self.started - began
        while (
            self.frontier and self.level != self.spec.max_depth and (self.target_rows is None or self.missing_targets)
        ):
            if self.sliced:
                self._absorb_slices()
            if self.bottom_up:
                self._bottom_up_level()
            elif self.led is not None and self.led_next:
                self._led_levels(self.led)
            elif self.kernel is None:
                self._top_down_level()
            else:
                self._top_down_levels(self.kernel)
        if scratch.frontier.size:
            self.edges += self.backend.edge_count(partition, scratch.frontier)
        scratch.end(self.labels)
        if led is not None and led.leads and led.were_run:
            led.learn(self.table.rows())
        self.records, self.depth = self.table.end()
        return True

    def result(self) -> RankRun:
        """Return the labels, counts and times of this rank, after ``run``."""
        assert self.records is not None
        return RankRun(
            labels=self.labels,
            levels=self.records,
            reached=self.reached,
            edges=self.edges,
            depth=self.depth,
            elapsed=self.ended - self.started,
            setup=self.setup,
            version=self.scratch.partition.version,
        )

    def _top_down_levels(self, kernel: TopDownLevels | QueuedLevels) -> None:
        """Run consecutive top-down levels, until the traversal may end or change direction."""
        self.sliced = False
        most = (0, 0) if self.led is None else (self.led.most_vertices, self.led.most_edges)
        stretch = kernel.run(self.level, self.max_degree, self.unexplored_edges, self.search_share, self.ended, *most)
        counts, seconds = stretch.counts, stretch.seconds
        # The last level, for errors, until the next one begins.
        self.level += len(counts) - 1
        self.reached += stretch.discovered
        self.edges += stretch.edges
        self.frontier, self.ended, self.led_next = stretch.frontier, stretch.ended, stretch.led
        self.expanded_edges, self.unexplored_edges = stretch.expanded_edges, stretch.unexplored_edges
        if self.frontier and (self.target_rows is not None or stretch.may_turn):
            counts[-1, _BYTES_SENT] += self._measure_frontier()
            self.ended = time.perf_counter()
            seconds[-1, _EXCHANGE] += self.ended - stretch.ended
        self.level += 1
        self.table.extend(counts, seconds)

    def _led_levels(self, led: LedLevels) -> None:
        """Run top-down levels led by rank 0. Rank 0 counts them for all ranks."""
        self.sliced = False
        reached = self.reached
        led.offer(self.level)
        if led.leads:
            for stretch in led.lead(self.max_degree, self.unexplored_edges, self.search_share, self.ended):
                self.level += len(stretch.counts)
                self.reached += int(stretch.counts[:, _DISCOVERED].sum())
                self.edges += int(stretch.counts[:, _EDGES].sum())
                self.table.extend(stretch.counts, stretch.seconds, led=True)
                self.ended = time.perf_counter()
        end = led.finish()
        if not led.leads:
            self.level += end.levels
            self.table.skip(end.levels)
        self.reached = reached + end.discovered
        self.ended = time.perf_counter()
        if not end.levels:
            self.led, self.led_next = None, False
            return
        self.frontier, self.expanded_edges = end.frontier, end.expanded_edges
        self.unexplored_edges = end.unexplored_edges
        # A full log ends led levels too. Then the next level is led again.
        self.led_next = not end.may_turn and led.pays(self.frontier, self.max_degree, self.unexplored_edges)
        if self.frontier and end.may_turn:
            self._measure_frontier()

    def _top_down_level(self) -> None:
        """Expand the frontier, cross with the bins, and contract the peers' bins."""
        scratch, expanded = self.scratch, self.scratch.frontier.size
        self.sliced = False
        self.frontier = self.expanded_edges = 0
        rounds = [self._top_down_round()]
        while self.exchange.gathered[:, _UNFINISHED].any():
            rounds.append(self._top_down_round())
        edges, own, sent, received = map(sum, zip(*(counts for counts, _ in rounds), strict=True))
        searching, crossing, contracting = map(sum, zip(*(seconds for _, seconds in rounds), strict=True))
        measuring = 0.0
        discovered = scratch.queued
        scratch.advance(discovered)
        self.reached += discovered
        self.edges += edges
        self.unexplored_edges -= self.expanded_edges
        bytes_sent = sent * (8 if self.spec.predecessors else 4)
        if self.frontier and (self.target_rows is not None or self._may_turn_bottom_up()):
            contracted = self.ended
            bytes_sent += self._measure_frontier()
            self.ended = time.perf_counter()
            measuring = self.ended - contracted
        filtered, culled = edges - own - sent, own + received - discovered
        # In the order of COUNT_FIELDS.
        counts = (0, expanded, edges, filtered, own, sent, culled, discovered, bytes_sent)
        self._end_level(counts, (searching, crossing + measuring, contracting))

    def _top_down_round(self) -> tuple[tuple[int, int, int, int], tuple[float, float, float]]:
        """Expand the frontier as far as the bins hold its neighbours, cross with them, and contract the peers' bins.

        Returns:
            Edges inspected, own vertices discovered, vertices sent and vertices received; and seconds of the work on
            own edges, of the crossing and of the contraction.
        """
        scratch, backend, labels, distance = self.scratch, self.backend, self.labels, self.level + 1
        start = self.ended
        edges, own, sent, unfinished = backend.top_down(scratch, labels, distance, self.exchange)
        scratch.queued += own
        binned = time.perf_counter()
        # A vertex that two ranks found counts twice in the first sum. A sum of 0, which ends the traversal, is exact.
        found, expanded_edges, _, _, _ = self._cross("top-down", own + sent, edges, 0, int(unfinished))
        self.frontier += found
        self.expanded_edges += expanded_edges
        crossed = time.perf_counter()
        received = 0
        for rows, parents in self.exchange.incoming():
            received += rows.size
            new = backend.contract(rows, parents, scratch.own_visited, distance, labels, scratch.next_queue)
            scratch.queued += new
        self.ended = time.perf_counter()
        return (edges, own, sent, received), (binned - start, crossed - binned, self.ended - crossed)

    def _bottom_up_level(self) -> None:
        """Search the unvisited rows for parents, and cross with the slices."""
        scratch, expanded = self.scratch, self.scratch.frontier.size
        start = self.ended
        found_bits = self.exchange.slice()
        self.sliced = True
        if isinstance(self.kernel, QueuedLevels) and self.target_rows is None:
            own, sums, found = self.kernel.bottom_up(self.level)
            discovered, degrees, _, _, searched = own
            scratch.advance(discovered)
        else:
            searched, discovered, degrees = self.backend.bottom_up(scratch, self.labels, self.level + 1, found_bits)
            scratch.advance(discovered)
            found = time.perf_counter()
            sums = self._cross("bottom-up", discovered, degrees, self._count_missing_targets(), 0, searched)
        frontier, edges, missing, _, all_searched = sums
        self.ended = time.perf_counter()
        self.edges += self.frontier_degrees
        self.frontier_degrees = degrees
        self.reached += discovered
        self.search_share = expected_search_share(all_searched, self.unexplored_edges)
        self._choose_direction(frontier, edges, missing)
        bytes_sent = found_bits.nbytes * (self.exchange.p - 1)
        # In the order of COUNT_FIELDS.
        counts = (1, expanded, searched, searched - discovered, discovered, 0, 0, discovered, bytes_sent)
        self._end_level(counts, (found - start, self.ended - found, 0.0))

    def _end_level(self, counts: tuple[int, ...], seconds: tuple[float, ...]) -> None:
        """Record a level's counts and times."""
        self.level += 1
        self.table.add(counts, seconds)

    def _measure_frontier(self) -> int:
        """Cross again, with the exact size and degrees of the new frontier; return the bytes sent."""
        scratch = self.scratch
        self.sliced = self.adaptive
        if isinstance(self.kernel, QueuedLevels) and self.target_rows is None:
            (_, self.frontier_degrees, *_), sums = self.kernel.measure(self.level)
        else:
            self.frontier_degrees = self.backend.edge_count(scratch.partition, scratch.frontier)
            self._mark_slice()
            missing = self._count_missing_targets()
            sums = self._cross("measure", scratch.frontier.size, self.frontier_degrees, missing)
        frontier, edges, missing, _, _ = sums
        self._choose_direction(frontier, edges, missing)
        return scratch.partition.stripe.words_local * 4 * (self.exchange.p - 1) if self.sliced else 0

    def _choose_direction(self, frontier: int, edges: int, missing: int) -> None:
        """Choose the next level's direction by the exact sums of a crossing over the new frontier."""
        before = self.frontier_edges if self.bottom_up else self.expanded_edges
        self.frontier, self.frontier_edges, self.missing_targets = frontier, edges, missing
        if self.adaptive:
            unexplored = self.unexplored_edges - self.frontier_edges
            n = self.scratch.partition.stripe.n
            self.bottom_up = bottom_up_pays(self.frontier_edges, before, unexplored, n, self.search_share)
        if self.bottom_up:
            # A top-down level counts its edges itself, and subtracts them then.
            self.unexplored_edges -= self.frontier_edges

    def _may_turn_bottom_up(self) -> bool:
        n, remaining = self.scratch.partition.stripe.n, self.unexplored_edges
        return self.adaptive and bottom_up_may_pay(self.frontier, self.max_degree, remaining, n, self.search_share)

    def _mark_slice(self) -> None:
        """Write this rank's slice of the frontier for the next crossing, if the crossing carries slices."""
        if self.sliced:
            self.backend.mark(self.scratch.frontier, self.exchange.slice())

    def _absorb_slices(self) -> None:
        """Assemble the frontier's bitmap from all ranks' slices, and mark the frontier visited."""
        scratch = self.scratch
        words = scratch.partition.stripe.words_local
        assert scratch.frontier_bits is not None
        if isinstance(self.kernel, QueuedLevels):
            self.kernel.absorb()
            return
        for source in range(self.exchange.p):
            own = slice(source * words, (source + 1) * words)
            self.backend.absorb(self.exchange.slice_of(source), scratch.frontier_bits[own], scratch.visited[own])

    def _count_missing_targets(self) -> int:
        """Return the number of this rank's targets without a label."""
        return 0 if self.target_rows is None else int((self.labels.distances[self.target_rows] < 0).sum())

    def _cross(
        self, phase: str, frontier: int, edges: int, missing: int = 0, extra: int = 0, searched: int = 0
    ) -> list[int]:
        """Cross with the peers; return the sums over the ranks of the five counts, in the order of the parameters.

        The counts are a plain tuple and list: with named tuples a path's level took 7.3 us instead of 4.6.

        Args:
            phase: the phase, for errors.
            frontier: vertices of this rank's new frontier; in phase "top-down" those that it found for any rank.
            edges: sum of the new frontier's degrees; in phase "top-down" the edges that this rank expanded, in phase
                "start" all edges of this rank.
            missing: this rank's targets without a label; 0 in phase "top-down".
            extra: at the start, the largest degree of this rank's rows; in phase "top-down", 1 if a full bin ended this
                rank's work early. The peers read it in ``gathered``.
            searched: after a bottom-up level, the edges that it looked at; at the start, what ``LedLevels.begin``
                returned, or ``_STOP``.
        """
        counts = (frontier, edges, missing, extra, searched)
        return self.exchange.cross(self.level, phase, counts, sliced=self.sliced)
