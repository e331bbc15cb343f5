"""The taskgraph engine: every level is a small Dask graph, which Dask's dashboard shows.

A level has the tasks ``contract`` (of the previous level), ``expand`` and ``filter-partition`` on each rank, and one
``barrier`` that adds up their counts. ``bin`` tasks carry bins from the ranks that made them to the ranks that contract
them. The client reads the barrier and stops when every bin is empty. The state of a rank (``TraversalState``) is itself
the result of a task; the phases change the state in place and check their own order.

A task takes milliseconds, however small its work is. Therefore a level that starts with few vertices runs as one fused
task per rank: the contraction of the previous level, expand, and filter + partition. The bins of such a level travel
through the barrier (6 transfers on 4 ranks instead of 15). While the frontier grows slowly, the client submits several
such levels as one graph. Every level is top-down.

Measured with 4 ranks on 2 cores, path graph, milliseconds per level (``dbfs bench levels``): 54 with 13 tasks and bins
fetched one by one, 35 with bins through the barrier, 28 with expand and filter + partition fused, 25 with all three
fused, and 20 with 4 levels per graph.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import distributed

from dbfs import config
from dbfs.cluster.gang import Deadline, Gang, Key, Ref, TaskGraph, release
from dbfs.engines.interface import LevelReport, Outcome, Progress, PublishedLabels
from dbfs.errors import InvalidOptionError
from dbfs.records import GraphRecord, RunProgress
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.tasks import taskgraph as tasks


class TaskGraphEngine:
    """See ``dbfs.engines.interface.Engine``."""

    name = "taskgraph"

    def traverse(
        self,
        gang: Gang,
        record: GraphRecord,
        specs: Sequence[TraversalSpec],
        deadline: Deadline,
        progress: Progress | None,
    ) -> list[Outcome]:
        """Run one small Dask graph after another until a barrier finds every bin empty."""
        if specs[0].direction == "bottom-up":
            raise InvalidOptionError("the taskgraph engine has top-down levels only; use the resident engine")
        outcomes: list[Outcome] = []
        began = time.monotonic()

        def report_level(level: int, frontier: int, reached: int) -> None:
            if progress is not None:
                seconds = time.monotonic() - began
                progress(RunProgress(len(specs), len(outcomes), level, "top-down", frontier, reached, seconds))

        for index, spec in enumerate(specs):
            # Task keys carry the run id, so that each traversal of a run needs a run id of its own.
            traversal = TaskGraphTraversal(
                gang, record, spec if index == 0 else replace(spec, run_id=f"{spec.run_id}-{index}"), deadline
            )
            try:
                outcomes.append(traversal.traverse(report_level))
            finally:
                release(traversal.futures.values())
            report_level(len(outcomes[-1].levels()), 0, outcomes[-1].reached)
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


class TaskGraphTraversal:
    """One traversal: the tasks submitted so far, and the futures that keep their results on the workers.

    Attributes:
        level: number of levels submitted so far.
        state: by rank, the task that made the rank's state.
        last: by rank, the task that the rank's next task must follow.
        uncontracted: the last level's barrier, while no task contracts that level's bins yet; else None.
        bins_in_barrier: whether the last level's bins are in its barrier; else they are in the ranks' outboxes.
        futures: by key, the results kept for the next submission.
    """

    def __init__(self, gang: Gang, record: GraphRecord, spec: TraversalSpec, deadline: Deadline) -> None:
        self.gang = gang
        self.spec = spec
        self.deadline = deadline
        self.ranks = range(gang.p)
        self.level = 0
        self.partitions = record.partition_keys
        self.state: list[Ref] = []
        self.last: list[Ref] = []
        self.uncontracted: Ref | None = None
        self.bins_in_barrier = False
        self.futures: dict[Key, distributed.Future] = {}

    def traverse(self, report_level: Callable[[int, int, int], None]) -> Outcome:
        """Run the levels.

        Args:
            report_level: called with each level's number, its frontier and the vertices reached when the level began.
        """
        graph = TaskGraph()
        for rank in self.ranks:
            key = self._key("state", rank)
            self.state.append(graph.add(rank, key, tasks.start, Ref(self.partitions[rank]), self.spec))
        self.last = list(self.state)
        self._submit(graph, [state.key for state in self.state])

        fuse_below = config.count("taskgraph.fuse-below", least=0)
        most = config.count("taskgraph.levels-per-submission")
        max_depth = self.spec.max_depth
        barriers: list[tasks.Barrier] = []
        found, window = len(self.spec.sources), 1
        reached = 0
        while found and self.level != max_depth:
            fused = found < fuse_below
            if max_depth is not None:
                window = min(window, max_depth - self.level)
            passed = self._levels(window, fused)
            if self.spec.targets and not passed[0].missing:
                # The level after the one that reached the last target sees this. Its own discoveries do not count.
                self.uncontracted = None
                break
            for barrier in passed:
                # Bins may repeat vertices: the frontier of the next level is the exact count of new ones.
                reached += barrier.expanded
                report_level(len(barriers), barrier.expanded, reached)
                barriers.append(barrier)
                if not barrier.count:
                    break
            # Several levels per graph only while the frontier hardly grows: a level inside a window stays fused, and an
            # exploding one would send all its bins through the barrier. With targets one level at a time, since a
            # level past the last target must not count.
            grows = max(barrier.count for barrier in passed) > 2 * found
            window = 1 if grows or not fused or self.spec.targets else min(2 * window, most)
            found = passed[-1].count
        return self._finish(barriers)

    def _levels(self, window: int, fused: bool) -> list[tasks.Barrier]:
        """Submit ``window`` levels as one graph and wait for their barriers."""
        graph = TaskGraph()
        barriers = [self._fused_level(graph) if fused else self._level(graph) for _ in range(window)]
        keys = [barrier.key for barrier in barriers]
        self._submit(graph, [*keys, *(last.key for last in self.last)])
        futures = [self.futures[key] for key in keys]
        passed: list[tasks.Barrier] = self.gang.gather(futures, self.deadline, self._doing)
        return passed

    def _fused_level(self, graph: TaskGraph) -> Ref:
        """Add one task per rank: contract the last level, expand, filter + partition. The barrier carries the bins."""
        run, level = self.spec.run_id, self.level
        if not self.bins_in_barrier:
            self._contract(graph)
        self.last = [
            graph.add(
                rank,
                self._key("contract-expand-filter-partition", level, rank),
                tasks.contract_expand_filter_partition,
                self.state[rank],
                run,
                level,
                self.uncontracted,
                self.last[rank],
            )
            for rank in self.ranks
        ]
        self.bins_in_barrier = True
        return self._barrier(graph)

    def _level(self, graph: TaskGraph) -> Ref:
        """Add one task per rank for each phase. The bins stay in the outboxes."""
        run, level = self.spec.run_id, self.level
        self._contract(graph)
        for rank in self.ranks:
            state = self.state[rank]
            edges = graph.add(rank, self._key("expand", level, rank), tasks.expand, state, run, level, self.last[rank])
            key = self._key("filter-partition", level, rank)
            self.last[rank] = graph.add(rank, key, tasks.filter_partition, state, run, level, edges)
        self.bins_in_barrier = False
        return self._barrier(graph)

    def _barrier(self, graph: TaskGraph) -> Ref:
        """Add the level's barrier."""
        self.uncontracted = graph.add(0, self._key("barrier", self.level), tasks.barrier, list(self.last))
        self.level += 1
        return self.uncontracted

    def _contract(self, graph: TaskGraph) -> None:
        """Add one task per rank that contracts the last level's bins for that rank."""
        barrier, run, level = self.uncontracted, self.spec.run_id, self.level - 1
        if barrier is None:
            return
        for rank in self.ranks:
            state, key = self.state[rank], self._key("contract", level, rank)
            task: Callable[..., int] = tasks.contract_from_barrier if self.bins_in_barrier else tasks.contract
            bins = barrier if self.bins_in_barrier else self._bins(graph, rank, barrier)
            self.last[rank] = graph.add(rank, key, task, state, run, level, bins, self.last[rank])
        self.uncontracted = None

    def _bins(self, graph: TaskGraph, target: int, barrier: Ref) -> list[Ref]:
        """Add the tasks that take one rank's bins of the last level out of all outboxes."""
        run, level = self.spec.run_id, self.level - 1
        bins = []
        for source in self.ranks:
            key = self._key("bin", level, source, target)
            bins.append(graph.add(source, key, tasks.take_bin, self.state[source], run, level, target, barrier))
        return bins

    def _finish(self, barriers: list[tasks.Barrier]) -> Outcome:
        """Take the labels out of the states and add up the counts; the states are freed with their futures."""
        graph = TaskGraph()
        self._contract(graph)
        kinds: dict[str, Callable[..., Any]] = {"summary": tasks.summarise, "distances": tasks.distances}
        if self.spec.predecessors:
            kinds["predecessors"] = tasks.predecessors
        keys = {kind: [self._key(kind, rank) for rank in self.ranks] for kind in kinds}
        for kind, task in kinds.items():
            for rank in self.ranks:
                graph.add(rank, keys[kind][rank], task, self.state[rank], self.last[rank])
        futures = self.gang.submit(graph, [key for ranks in keys.values() for key in ranks])
        results = {kind: tuple(futures[key] for key in ranks) for kind, ranks in keys.items()}
        try:
            summaries: list[tasks.RankSummary] = self.gang.gather(results["summary"], self.deadline, self._doing)
        except BaseException:
            release(futures.values())
            raise
        reports = []
        before = summaries[0].started
        for level, barrier in enumerate(barriers):
            report = LevelReport.total(
                level, "top-down", barrier.at - before, [summary.levels[level] for summary in summaries]
            )
            before = barrier.at
            # If a level's bins held only vertices that were labelled already, the next level has nothing to expand.
            if report.frontier:
                reports.append(report)
        return Outcome(
            labels=TaskGraphLabels(PublishedLabels(results["distances"], results.get("predecessors"))),
            levels=lambda: tuple(reports),
            depth=sum(report.discovered > 0 for report in reports),
            reached=sum(summary.reached for summary in summaries),
            edges=sum(summary.edges for summary in summaries),
            seconds=before - summaries[0].started,
            setup_seconds=None,
        )

    def _submit(self, graph: TaskGraph, keys: list[Key]) -> None:
        # gather checks the deadline only at intervals, which short levels never reach.
        self.deadline.enforce(self._doing)
        # Release the previous graph's results only after submitting the graph that refers to them. The states stay.
        submitted = self.gang.submit(graph, keys)
        states = {state.key for state in self.state}
        release(future for key, future in self.futures.items() if key not in states)
        self.futures = {key: future for key, future in self.futures.items() if key in states} | submitted

    def _doing(self) -> str:
        return f"run {self.spec.run_id}, level {max(self.level - 1, 0)}"

    def _key(self, name: str, *index: int) -> Key:
        return (f"{name}-{self.spec.run_id}", *index)
