"""The taskgraph engine: every level is a small Dask graph, which Dask's dashboard shows.

A top-down level has three phases on each rank and one ``barrier`` that adds up the ranks' counts. The client reads the
barrier, chooses the next level's direction, and stops when no vertex was found. The shapes of a level on p ranks:

- Small: one task on each rank contracts the bins of the level before, expands, and filters + partitions. The bins
  travel through the barrier: 2 (p - 1) transfers. There are p + 1 tasks.
- Large: ``expand-filter-partition`` and ``contract`` on each rank. A contraction fetches its bins from the ranks that
  made them. There are 2 p + 1 tasks. The barrier counts the next frontier exactly.
- Phases, if ``dbfs.taskgraph.fuse-below`` is 0: as large, with ``expand`` and ``filter-partition`` as tasks of their
  own. There are 3 p + 1 tasks.
- Bottom-up: one ``bottom-up`` task on each rank takes the bitmaps that all ranks made of the frontier. There are p + 1
  tasks.

While the frontier grows slowly, two small levels are one graph, which the client submits and reads at once. At most one
level is submitted in vain. The state of a rank (``TraversalState``) is itself the result of a task;
the phases change the state in place and check their own order.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import distributed

from dbfs import config
from dbfs.cluster.gang import Deadline, Gang, Key, Ref, TaskGraph, release
from dbfs.engines.directions import Directions
from dbfs.engines.interface import LevelReport, Outcome, Progress, PublishedLabels
from dbfs.errors import DbfsError
from dbfs.records import GraphRecord, RunProgress
from dbfs.service.client import ServiceClient
from dbfs.service.held_run import HeldRun, held_run
from dbfs_workers.reports import RankReport
from dbfs_workers.spec import TraversalSpec, direction_name
from dbfs_workers.tasks import taskgraph as tasks

LevelSeen = Callable[[int, bool, int, int], None]
"""Called with a level's number, whether the level is bottom-up, its frontier, and the vertices reached before it."""


class TaskGraphEngine:
    """See ``dbfs.engines.interface.Engine``. Calls ``progress`` after each level."""

    name = "taskgraph"

    def traverse(
        self,
        gang: Gang,
        record: GraphRecord,
        specs: Sequence[TraversalSpec],
        deadline: Deadline,
        progress: Progress | None,
    ) -> list[Outcome]:
        """Wait for the run's turn, and run one small Dask graph after another until a barrier found no vertex."""
        # Before the run waits for its turn, since a wrong option needs none.
        Directions(record, specs[0])
        service, outcomes = ServiceClient.of(gang.client), list[Outcome]()
        reports: list[list[RankReport]] = [[] for _ in range(gang.p)]
        with held_run(service, record.graph_id, specs[0].run_id, len(specs), deadline) as run:
            began = time.monotonic()

            def see_level(level: int, bottom_up: bool, frontier: int, reached: int) -> None:
                seconds, direction = time.monotonic() - began, direction_name(bottom_up)
                seen = RunProgress(len(specs), len(outcomes), level, direction, frontier, reached, seconds)
                run.note(seen)
                if progress is not None:
                    progress(seen)

            try:
                for index, spec in enumerate(specs):
                    # Task keys carry the run id, so that each traversal of a run needs a run id of its own.
                    own = spec if index == 0 else replace(spec, run_id=f"{spec.run_id}-{index}")
                    traversal = TaskGraphTraversal(gang, record, own, deadline, run)
                    try:
                        outcome, ranks = traversal.traverse(see_level)
                    finally:
                        traversal.release()
                    outcomes.append(outcome)
                    for of_rank, report in zip(reports, ranks, strict=True):
                        of_rank.append(report)
                    levels = outcome.levels()
                    last_bottom_up = bool(levels) and levels[-1].direction == direction_name(True)
                    see_level(len(levels), last_bottom_up, 0, outcome.reached)
            except BaseException:
                for outcome in outcomes:
                    outcome.labels.drop()
                raise
            run.reports = reports
        return outcomes


class TaskGraphLabels:
    """See ``dbfs.engines.interface.LabelSource``. The labels are results of tasks, and so Dask data from the start."""

    def __init__(self, published: PublishedLabels) -> None:
        self._published = published

    def publish(self) -> PublishedLabels:
        """Return the tasks' results."""
        return self._published

    @property
    def location(self) -> PublishedLabels:
        """The tasks' results."""
        return self._published

    def drop(self) -> None:
        """Release the tasks' results."""
        self._published.release()


@dataclass(frozen=True)
class Level:
    """A level that was submitted.

    Attributes:
        barrier: the level's barrier.
        bottom_up: the level's direction.
        counted: whether the barrier counts the next frontier exactly; else the barrier carries the level's bins.
    """

    barrier: Ref
    bottom_up: bool
    counted: bool


class TaskGraphTraversal:
    """One traversal: the tasks submitted so far, and the futures that keep their results on the workers.

    Attributes:
        level: number of levels submitted so far.
        state: by rank, the task that made the rank's state.
        parts: by rank, the task that made the rank's part of the next frontier, with its bitmap; empty if none did.
        unread: levels whose barriers the client has not read, oldest first.
        found_bottom_up: ``parts`` if the last level was bottom-up, else empty.
        carrying: the barrier of the level submitted last, if no task contracts that level's bins yet; else None.
        futures: by key, the results kept for the next submission.
    """

    def __init__(self, gang: Gang, record: GraphRecord, spec: TraversalSpec, deadline: Deadline, run: HeldRun) -> None:
        self.gang = gang
        self.spec = spec
        self.deadline = deadline
        self.run = run
        self.ranks = range(gang.p)
        self.directions = Directions(record, spec)
        self.max_degree = max(info.max_degree for info in record.infos)
        self.fuse_below = config.count("taskgraph.fuse-below", least=0)
        self.level = 0
        self.partitions = record.partition_keys
        self.state: list[Ref] = []
        self.parts: list[Ref] = []
        self.found_bottom_up: list[Ref] = []
        self.unread: deque[Level] = deque()
        self.carrying: Ref | None = None
        self.futures: dict[Key, distributed.Future] = {}

    def traverse(self, see_level: LevelSeen) -> tuple[Outcome, list[RankReport]]:
        """Run the levels; return the outcome, and the ranks' reports."""
        self._start()
        spec = self.spec
        barriers: list[tasks.Barrier] = []
        read: deque[tasks.Barrier] = deque()
        directions: list[bool] = []
        # Vertices of the next level's frontier, or more.
        found, grows, reached = len(set(spec.sources)), True, 0
        over = bool(spec.targets) and set(spec.targets) <= set(spec.sources)
        while not over:
            if not self.unread:
                if self.level == spec.max_depth:
                    break
                self._submit_levels(found, grows)
                read.extend(self._gather([self.futures[level.barrier.key] for level in self.unread]))
            level, barrier = self.unread.popleft(), read.popleft()
            # Bins may repeat vertices: the frontier of the next level is the exact count of new ones.
            frontier = found if level.bottom_up else barrier.expanded
            reached += frontier
            see_level(len(barriers), level.bottom_up, frontier, reached)
            barriers.append(barrier)
            directions.append(level.bottom_up)
            if level.counted:
                self.directions.pass_counted(barrier)
            else:
                self.directions.pass_uncounted(barrier)
            grows = barrier.count > 2 * found
            found = barrier.count
            over = not found or (bool(spec.targets) and not barrier.missing)
        return self._finish(barriers, directions)

    def release(self) -> None:
        """Release the results that are kept for further levels."""
        release(self.futures.values())

    def _start(self) -> None:
        """Submit the tasks that make the ranks' states."""
        graph = TaskGraph()
        for rank in self.ranks:
            key = self._key("state", rank)
            self.state.append(graph.add(rank, key, tasks.start, Ref(self.partitions[rank]), self.spec))
        if self.directions.bottom_up:
            for rank in self.ranks:
                self.parts.append(graph.add(rank, self._key("frontier", rank), tasks.frontier, self.state[rank]))
        self._submit(graph, [*self.state, *self.parts])

    def _submit_levels(self, found: int, grows: bool) -> None:
        """Submit the next level; as one graph with it the level after, if both are small."""
        graph = TaskGraph()
        kept = self._add_level(graph, found)
        # An unread frontier may be larger. A level that explodes would send all of its bins through the barrier.
        steady = not grows and 2 * found < self.fuse_below
        if steady and self.carrying is not None and self.level != self.spec.max_depth and self._is_small(found):
            kept += self._add_level(graph, found)
        self._submit(graph, kept)

    def _is_small(self, found: int) -> bool:
        """Return whether the next level runs as one task on each rank, with its bins in the barrier.

        The number of targets without a label, and the size of a frontier that may turn the traversal bottom-up, are
        known after the contraction only. Such a level is not small.
        """
        if self.directions.bottom_up or self.spec.targets or found >= self.fuse_below:
            return False
        most = found * self.max_degree if self.unread else found
        return not self.directions.may_turn_bottom_up(most)

    def _add_level(self, graph: TaskGraph, found: int) -> list[Ref]:
        """Add the tasks of the next level; return the tasks whose results are kept."""
        if self.directions.bottom_up:
            level = self._bottom_up_level(graph)
        elif self._is_small(found):
            level = self._small_level(graph)
        else:
            level = self._large_level(graph)
        self.found_bottom_up = self.parts if level.bottom_up else []
        self.level += 1
        self.unread.append(level)
        kept = self.parts if level.bottom_up or (level.counted and self.directions.adaptive) else []
        return [level.barrier, *kept]

    def _small_level(self, graph: TaskGraph) -> Level:
        """Add one task per rank. The barrier carries the bins."""
        found = self._expand_filter_partition(graph, carry=True)
        self.carrying = self._barrier(graph, found, [])
        self.parts = []
        return Level(self.carrying, bottom_up=False, counted=False)

    def _large_level(self, graph: TaskGraph) -> Level:
        """Add two tasks per rank, or one for each phase. A rank fetches the bins that it contracts."""
        run, level = self.spec.run_id, self.level
        if self.fuse_below:
            found = self._expand_filter_partition(graph, carry=False)
        else:
            found = []
            for rank in self.ranks:
                state, key = self.state[rank], self._key("expand", level, rank)
                edges = graph.add(rank, key, tasks.expand, state, run, level, self.found_bottom_up)
                key = self._key("filter-partition", level, rank)
                found.append(graph.add(rank, key, tasks.filter_partition, state, run, level, edges))
        self.carrying = None
        fetching = (self.gang.addresses, self.deadline.remaining)
        self.parts = [
            graph.add(
                rank,
                self._key("contract", level, rank),
                tasks.contract,
                self.state[rank],
                run,
                level,
                found,
                *fetching,
                self.directions.adaptive,
            )
            for rank in self.ranks
        ]
        return Level(self._barrier(graph, found, self.parts), bottom_up=False, counted=True)

    def _bottom_up_level(self, graph: TaskGraph) -> Level:
        """Add one task per rank, which takes all ranks' parts of the frontier."""
        run, level, frontier = self.spec.run_id, self.level, self.parts
        self.parts = [
            graph.add(
                rank,
                self._key("bottom-up", level, rank),
                tasks.bottom_up,
                self.state[rank],
                run,
                level,
                frontier,
            )
            for rank in self.ranks
        ]
        return Level(self._barrier(graph, [], self.parts), bottom_up=True, counted=True)

    def _expand_filter_partition(self, graph: TaskGraph, *, carry: bool) -> list[Ref]:
        """Add the task of each rank that runs the first two phases, after it contracted carried bins."""
        name = "expand-filter-partition" if self.carrying is None else "contract-expand-filter-partition"
        run, level = self.spec.run_id, self.level
        return [
            graph.add(
                rank,
                self._key(name, level, rank),
                tasks.expand_filter_partition,
                self.state[rank],
                run,
                level,
                self.carrying,
                self.found_bottom_up,
                carry,
            )
            for rank in self.ranks
        ]

    def _barrier(self, graph: TaskGraph, found: list[Ref], parts: list[Ref]) -> Ref:
        return graph.add(0, self._key("barrier", self.level), tasks.barrier, found, parts)

    def _finish(self, barriers: list[tasks.Barrier], directions: list[bool]) -> tuple[Outcome, list[RankReport]]:
        """Take the labels out of the states and add up the counts; the states are freed with their futures."""
        graph, run = TaskGraph(), self.spec.run_id
        after: list[Ref | None] = [self.carrying for _ in self.ranks]
        if barriers and barriers[-1].count and barriers[-1].bins:
            assert self.carrying is not None
            last = self.level - 1
            for rank in self.ranks:
                key = self._key("contract", last, rank)
                after[rank] = graph.add(rank, key, tasks.contract_carried, self.state[rank], run, last, self.carrying)
        keys = {"summary": [self._key("summary", rank) for rank in self.ranks]}
        for rank, key in enumerate(keys["summary"]):
            graph.add(rank, key, tasks.summarise, self.state[rank], len(barriers), after[rank])
        kinds: dict[str, Callable[..., Any]] = {"distances": tasks.distances}
        if self.spec.predecessors:
            kinds["predecessors"] = tasks.predecessors
        for kind, task in kinds.items():
            keys[kind] = [self._key(kind, rank) for rank in self.ranks]
            for rank, key in enumerate(keys[kind]):
                graph.add(rank, key, task, self.state[rank], after[rank])
        futures = self.gang.submit(graph, [key for ranks in keys.values() for key in ranks])
        results = {kind: tuple(futures[key] for key in ranks) for kind, ranks in keys.items()}
        try:
            summaries: list[tasks.RankSummary] = self._gather(results["summary"])
        except BaseException:
            release(futures.values())
            raise
        release(results["summary"])
        reports = []
        before = summaries[0].started
        for level, (barrier, bottom_up) in enumerate(zip(barriers, directions, strict=True)):
            counts = [summary.levels[level] for summary in summaries]
            report = LevelReport.total(level, direction_name(bottom_up), barrier.at - before, counts)
            before = barrier.at
            # If a level's bins held only vertices that were labelled already, the next level has nothing to expand.
            if report.frontier:
                reports.append(report)
        seconds = before - summaries[0].started
        ranks = [replace(summary.report, elapsed=seconds) for summary in summaries]
        outcome = Outcome(
            labels=TaskGraphLabels(PublishedLabels(results["distances"], results.get("predecessors"))),
            levels=lambda: tuple(reports),
            depth=sum(report.discovered > 0 for report in reports),
            reached=sum(rank.reached for rank in ranks),
            edges=sum(rank.edges for rank in ranks),
            seconds=seconds,
            setup_seconds=None,
        )
        return outcome, ranks

    def _submit(self, graph: TaskGraph, kept: Sequence[Ref]) -> None:
        """Submit a graph, keep the results of the given tasks, and release results that no further task needs."""
        # A wait looks at the deadline and the run at intervals only, which short levels never reach.
        self.deadline.enforce(self._doing)
        self.run.check(self._doing)
        submitted = self.gang.submit(graph, [ref.key for ref in kept])
        # After the submission of the graph that refers to them.
        wanted = {ref.key for ref in (*self.state, *(level.barrier for level in self.unread), *self.parts)}
        release(future for key, future in self.futures.items() if key not in wanted)
        self.futures = {key: future for key, future in self.futures.items() if key in wanted} | submitted

    def _gather(self, futures: Sequence[distributed.Future]) -> list[Any]:
        """Wait for tasks and return their results; the run may have to end meanwhile."""
        try:
            return self.gang.gather(futures, self.deadline, self._doing, watch=lambda: self.run.check(self._doing))
        except DbfsError:
            raise
        except Exception:
            self.run.check_soon(self._doing)
            raise

    def _doing(self) -> str:
        return f"run {self.spec.run_id}, level {max(self.level - 1, 0)}"

    def _key(self, name: str, *index: int) -> Key:
        return (f"{name}-{self.spec.run_id}", *index)
