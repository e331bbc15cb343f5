"""The taskgraph engine: every level is a small Dask graph, to be watched in Dask's dashboard.

A level has the tasks ``contract`` (of the level before), ``expand`` and ``filter-partition`` on each rank, and one
``barrier`` that adds up what they found; ``bin`` tasks carry the bins from the ranks that made them to the ranks that
contract them. The client reads the barrier and stops when every bin is empty. The ranks' state
(``TraversalState``) is itself a task's result; the phases change it in place and guard their order.

A task costs milliseconds however little it does. So a level that starts with few vertices runs as one fused task a
rank: the contraction of the level before, expand, and filter + partition; its bins travel through the barrier (6
transfers on 4 ranks, not 15). While the frontier grows slowly, several such levels are submitted as one graph.
Measured with 4 ranks on 2 cores, path graph, milliseconds a level: 13 tasks with bins fetched one by one 54, with bins
through the barrier 35, expand and filter + partition fused 28, all three fused 25, and 20 with 4 levels a graph
(``dbfs bench levels``). Every level is top-down.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import distributed

from dbfs import config
from dbfs.cluster.gang import Deadline, Gang, Key, Ref, TaskGraph, release
from dbfs.engines.interface import HeldLabels, LevelReport, Outcome, Progress
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

        def tell(level: int, frontier: int, reached: int) -> None:
            if progress is not None:
                seconds = time.monotonic() - began
                progress(RunProgress(len(specs), len(outcomes), level, "top-down", frontier, reached, seconds))

        for index, spec in enumerate(specs):
            # Keys carry the run id: each traversal of a run needs one of its own.
            run = TaskgraphTraversal(
                gang, record, spec if index == 0 else replace(spec, run_id=f"{spec.run_id}-{index}"), deadline
            )
            try:
                outcomes.append(run.traverse(tell))
            finally:
                release(run.held.values())
            tell(len(outcomes[-1].levels()), 0, outcomes[-1].reached)
        return outcomes


class TaskLabels:
    """See ``dbfs.engines.interface.LabelSource``: the results of the last tasks."""

    def __init__(self, held: HeldLabels) -> None:
        self._held = held

    def hold(self) -> HeldLabels:
        """The results."""
        return self._held

    @property
    def place(self) -> HeldLabels:
        """The results."""
        return self._held

    def drop(self) -> None:
        """Let go of them."""
        self._held.release()


class TaskgraphTraversal:
    """One traversal: which tasks were submitted, and which futures keep their results alive."""

    def __init__(self, gang: Gang, record: GraphRecord, spec: TraversalSpec, deadline: Deadline) -> None:
        self.gang = gang
        self.spec = spec
        self.deadline = deadline
        self.ranks = range(gang.p)
        self.level = 0
        self.partitions = record.partition_keys
        self.state: list[Ref] = []
        # What each rank's next task follows.
        self.last: list[Ref] = []
        # The last level's barrier while its bins are to be contracted, and whether it has them or the outboxes do.
        self.uncontracted: Ref | None = None
        self.bins_in_barrier = False
        self.held: dict[Key, distributed.Future] = {}

    def traverse(self, tell: Callable[[int, int, int], None]) -> Outcome:
        """Run the levels; ``tell`` takes a level, its frontier, and the vertices reached when it began."""
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
                # Seen by the level after the one that reached the last of them, whose own finds don't count.
                self.uncontracted = None
                break
            for barrier in passed:
                # Of what its bins hold only the next level knows how much is new.
                reached += barrier.expanded
                tell(len(barriers), barrier.expanded, reached)
                barriers.append(barrier)
                if not barrier.count:
                    break
            # Several levels a graph only where the frontier hardly grows: in the middle of a window a level can't
            # change its shape, and one that explodes would send all its bins through the barrier. Nor where a level
            # past the last target must not count.
            grows = max(barrier.count for barrier in passed) > 2 * found
            window = 1 if grows or not fused or self.spec.targets else min(2 * window, most)
            found = passed[-1].count
        return self._finish(barriers)

    def _levels(self, window: int, fused: bool) -> list[tasks.Barrier]:
        """Submit this many levels and wait for their barriers."""
        graph = TaskGraph()
        barriers = [self._fused_level(graph) if fused else self._level(graph) for _ in range(window)]
        keys = [barrier.key for barrier in barriers]
        self._submit(graph, [*keys, *(last.key for last in self.last)])
        reached: list[tasks.Barrier] = self.gang.gather([self.held[key] for key in keys], self.deadline, self._doing)
        return reached

    def _fused_level(self, graph: TaskGraph) -> Ref:
        """One task a rank: contract the level before, expand, filter + partition; the bins go through the barrier."""
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
        """A task for each phase; the bins stay in the outboxes."""
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
        self.uncontracted = graph.add(0, self._key("barrier", self.level), tasks.barrier, list(self.last))
        self.level += 1
        return self.uncontracted

    def _contract(self, graph: TaskGraph) -> None:
        """Contract the last level's bins, each rank those that are for it."""
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
        """Tasks that take one rank's bins of the last level out of all outboxes."""
        run, level = self.spec.run_id, self.level - 1
        bins = []
        for source in self.ranks:
            key = self._key("bin", level, source, target)
            bins.append(graph.add(source, key, tasks.take_bin, self.state[source], run, level, target, barrier))
        return bins

    def _finish(self, barriers: list[tasks.Barrier]) -> Outcome:
        """Take the labels out of the states, add up the counts, and let go of everything else."""
        graph = TaskGraph()
        self._contract(graph)
        made: dict[str, Callable[..., Any]] = {"summary": tasks.summarise, "distances": tasks.distances}
        if self.spec.predecessors:
            made["predecessors"] = tasks.predecessors
        keys = {kind: [self._key(kind, rank) for rank in self.ranks] for kind in made}
        for kind, task in made.items():
            for rank in self.ranks:
                graph.add(rank, keys[kind][rank], task, self.state[rank], self.last[rank])
        futures = self.gang.submit(graph, [key for ranks in keys.values() for key in ranks])
        labels = {kind: tuple(futures[key] for key in ranks) for kind, ranks in keys.items()}
        try:
            summaries: list[tasks.RankSummary] = self.gang.gather(labels["summary"], self.deadline, self._doing)
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
            # A level whose bins held only what others had found first is followed by one with nothing to expand.
            if report.frontier:
                reports.append(report)
        return Outcome(
            labels=TaskLabels(HeldLabels(labels["distances"], labels.get("predecessors"))),
            levels=lambda: tuple(reports),
            depth=sum(report.discovered > 0 for report in reports),
            reached=sum(summary.reached for summary in summaries),
            edges=sum(summary.edges for summary in summaries),
            seconds=before - summaries[0].started,
            setup_seconds=None,
        )

    def _submit(self, graph: TaskGraph, keys: list[Key]) -> None:
        # A wait looks at the clock now and then; levels that are done sooner would never let it.
        self.deadline.enforce(self._doing)
        # The graph before may be let go only now that the new one refers to its results. The states stay.
        submitted = self.gang.submit(graph, keys)
        states = {state.key for state in self.state}
        release(future for key, future in self.held.items() if key not in states)
        self.held = {key: future for key, future in self.held.items() if key in states} | submitted

    def _doing(self) -> str:
        return f"run {self.spec.run_id}, level {max(self.level - 1, 0)}"

    def _key(self, name: str, *index: int) -> Key:
        return (f"{name}-{self.spec.run_id}", *index)
