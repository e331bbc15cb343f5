"""The taskgraph engine: each level is a small Dask graph, which Dask's dashboard shows.

A top-down level on p ranks, after Merrill 2012, section 6: ``expand`` and ``filter-partition`` on each rank, a ``bin``
for each pair of ranks, one ``barrier``, and ``contract`` on each rank, which takes its bins from its peers. The barrier
comes before the contraction: 3 p + p**2 + 1 tasks. A bottom-up level is a ``share`` and a ``bottom-up`` on each rank.
The client stops when the barrier's sum is 0, or when the counts say that all vertices in the bins were visited before.
Otherwise the client chooses the next level's direction by the counts.

The state of a rank (``TraversalState``) is itself the result of a task. The phases change the state in place, and check
their own order.
"""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

import distributed
import numpy as np

from dbfs.base.records import GraphRecord, RunProgress
from dbfs.cluster.deadline import Deadline
from dbfs.cluster.gang import Gang, Key, Ref, TaskGraph, release
from dbfs.engines.interface import InPositions, LevelReport, Outcome, Progress, PublishedLabels
from dbfs.errors import DbfsError, DeadlineExceededError
from dbfs.service.client import ServiceClient
from dbfs.service.held_run import HeldRun, held_run
from dbfs_workers.base.spec import RunSpec, TraversalSpec, direction_name
from dbfs_workers.features.taskgraph import phases, tasks
from dbfs_workers.features.taskgraph.bins import RankCounts
from dbfs_workers.features.taskgraph.counts import LevelCounts
from dbfs_workers.search.direction import expected_search_share
from dbfs_workers.search.levels.state import State, choose_direction, over, take_sums
from dbfs_workers.search.reports import COUNT_FIELDS, RankReport, join
from dbfs_workers.search.reports.counts import LARGEST


class TaskGraphEngine:
    """See ``dbfs.engines.interface.Engine``. Calls ``progress`` after each level."""

    name = "taskgraph"
    stripes_only = True

    def traverse(
        self,
        gang: Gang,
        record: GraphRecord,
        specs: RunSpec,
        deadline: Deadline,
        progress: Progress | None,
        in_positions: InPositions,
    ) -> Generator[Outcome, None, None]:
        """Wait for the run's turn, and run one small Dask graph after another until a barrier found no vertex."""
        # Before the run waits for its turn, since a wrong option needs none.
        State.of(specs.options, record.stripe.n, in_edges=record.infos[0].has_parents)
        specs = in_positions(specs)
        service, outcomes = ServiceClient.of(gang.client), list[Outcome]()
        reports: list[list[RankReport]] = [[] for _ in range(gang.p)]
        with held_run(service, record.graph_id, specs.options.run_id, len(specs), deadline) as run:
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
        yield from outcomes


LevelSeen = Callable[[int, bool, int, int], None]
"""Called with a level's number, whether the level is bottom-up, its frontier, and the vertices reached before it."""


class TaskGraphTraversal:
    """One traversal of a gang.

    Attributes:
        state: the traversal's state over all ranks.
        states: by rank, the task whose result is the rank's state.
        kept: the futures of the states.
    """

    def __init__(self, gang: Gang, record: GraphRecord, spec: TraversalSpec, deadline: Deadline, run: HeldRun) -> None:
        self.gang = gang
        self.record = record
        self.spec = spec
        self.deadline = deadline
        self.run = run
        self.ranks = range(gang.p)
        self.state = State.of(spec, record.stripe.n, in_edges=record.infos[0].has_parents)
        self.states: list[Ref] = []
        self.kept: list[distributed.Future] = []

    def traverse(self, see_level: LevelSeen) -> tuple[Outcome, list[RankReport]]:
        """Run the levels; return the outcome, and the ranks' reports."""
        self._start()
        spec, state = self.spec, self.state
        directions: list[bool] = []
        ends: list[float] = []
        sources, reached = set(spec.sources), 0
        state.unexplored_edges = sum(info.m_local for info in self.record.infos)
        take_sums(state, len(sources), 0, len(set(spec.targets) - sources))
        while not over(state):
            counts, entries = self._run(*self.level_graph(bottom_up=state.bottom_up))
            reached += state.frontier
            see_level(state.level, state.bottom_up, state.frontier, reached)
            directions.append(state.bottom_up)
            ends.append(counts[0].ended)
            if entries == 0:
                # By the barrier's sum no bin has a vertex, so no rank has a next frontier.
                break
            self._end_level(counts)
        return self._finish(directions, ends)

    def _end_level(self, counts: Sequence[RankCounts]) -> None:
        """End a level by the counts of the ranks, and choose the direction of the next one."""
        state = self.state
        state.level += 1
        state.expanded_edges = state.frontier_edges if state.bottom_up else sum(each.edges for each in counts)
        state.unexplored_edges -= state.expanded_edges
        if state.bottom_up:
            searched = sum(each.searched for each in counts)
            state.search_share = expected_search_share(searched, state.unexplored_edges)
        frontier, degrees = sum(each.count for each in counts), sum(each.degrees for each in counts)
        take_sums(state, frontier, degrees, sum(each.missing for each in counts))
        choose_direction(state)

    def release(self) -> None:
        """Release the states."""
        release(self.kept)

    def level_graph(self, *, bottom_up: bool) -> tuple[TaskGraph, list[Key]]:
        """Return the tasks of the next level, and the keys of those whose results the client reads.

        The results are the ranks' counts, by rank; in a top-down level the barrier's sum comes after them.
        """
        graph, run, level = TaskGraph(), self.spec.run_id, self.state.level

        def add(rank: int, name: str, task: Callable[..., Any], *arguments: Any, of: tuple[int, ...] = ()) -> Ref:
            return graph.add(rank, self._key(name, level, rank, *of), task, self.states[rank], *arguments)

        if bottom_up:
            slices = [add(rank, "share", phases.share, level) for rank in self.ranks]
            searched = [add(rank, "bottom-up", phases.bottom_up, run, level, slices) for rank in self.ranks]
            return graph, [ref.key for ref in searched]
        edges = [add(rank, "expand", phases.expand, run, level) for rank in self.ranks]
        entries = [
            add(rank, "filter-partition", tasks.filter_partition, run, level, edges[rank]) for rank in self.ranks
        ]
        barrier = graph.add(0, self._key("barrier", level), tasks.barrier, entries)
        contracted = []
        for owner in self.ranks:
            bins = [
                add(rank, "bin", tasks.take_bin, run, level, owner, entries[rank], of=(owner,)) for rank in self.ranks
            ]
            contracted.append(add(owner, "contract", tasks.contract, run, level, bins, barrier))
        return graph, [ref.key for ref in (*contracted, barrier)]

    def _start(self) -> None:
        """Submit the tasks that make the ranks' states."""
        graph = TaskGraph()
        for rank, partition in enumerate(self.record.partition_keys):
            key = self._key("state", rank)
            self.states.append(graph.add(rank, key, tasks.start, Ref(partition), self.spec, self.record.graph_id))
        self.kept = list(self.gang.submit(graph, [ref.key for ref in self.states]).values())

    def _run(self, graph: TaskGraph, keys: list[Key]) -> tuple[list[RankCounts], int | None]:
        """Submit a level and wait for its end; return the ranks' counts, and the barrier's sum of a top-down level."""
        # A wait looks at the deadline and the run at intervals only, which short levels never reach.
        self.deadline.enforce(self._doing)
        self.run.check(self._doing)
        futures = self.gang.submit(graph, keys)
        try:
            results = self._gather(list(futures.values()))
            return results[: self.gang.p], results[self.gang.p] if len(results) > self.gang.p else None
        finally:
            release(futures.values())

    def _finish(self, directions: list[bool], ends: list[float]) -> tuple[Outcome, list[RankReport]]:
        """Take the labels out of the states and add up the counts.

        Args:
            directions: by level, whether the level was bottom-up.
            ends: by level, when rank 0 ended the level.
        """
        graph = TaskGraph()
        kinds: dict[str, Callable[..., Any]] = {"summary": tasks.summarise, "distances": tasks.distances}
        if self.spec.predecessors:
            kinds["predecessors"] = tasks.predecessors
        keys = {kind: [self._key(kind, rank) for rank in self.ranks] for kind in kinds}
        for kind, task in kinds.items():
            for rank, key in enumerate(keys[kind]):
                graph.add(rank, key, task, self.states[rank])
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
        for level, (bottom_up, end) in enumerate(zip(directions, ends, strict=True)):
            counts = [summary.levels[level] for summary in summaries]
            reports.append(_report(level, bottom_up, end - before, counts))
            before = end
        seconds = before - summaries[0].started
        ranks = [replace(summary.report, elapsed=seconds) for summary in summaries]
        outcome = Outcome(
            labels=PublishedLabels(results["distances"], results.get("predecessors")),
            levels=lambda: tuple(reports),
            depth=sum(report.discovered > 0 for report in reports),
            reached=sum(rank.reached for rank in ranks),
            edges=sum(rank.edges for rank in ranks),
            seconds=seconds,
            setup_seconds=None,
            version=ranks[0].version,
        )
        return outcome, ranks

    def _gather(self, futures: Sequence[distributed.Future]) -> list[Any]:
        """Wait for tasks and return their results; the first ones are the ranks'. The run may have to end meanwhile."""
        try:
            return self.gang.gather(futures, self.deadline, self._doing, watch=lambda: self.run.check(self._doing))
        except DeadlineExceededError as error:
            waiting = [rank for rank, future in zip(self.ranks, futures, strict=False) if future.status == "pending"]
            of = ", ".join(f"rank {rank} ({self.gang.addresses[rank]})" for rank in waiting)
            raise type(error)(f"{error}; {of} did not end" if of else error) from error
        except DbfsError:
            raise
        except Exception:
            self.run.check_soon(self._doing)
            raise

    def _doing(self) -> str:
        return f"run {self.spec.run_id}, level {self.state.level}"

    def _key(self, name: str, *index: int) -> Key:
        return (f"{name}-{self.spec.run_id}", *index)


def _report(level: int, bottom_up: bool, seconds: float, ranks: list[LevelCounts]) -> LevelReport:
    """Join the counts of all ranks for one level."""
    (joined,) = join(np.array([[getattr(rank, name) for name in COUNT_FIELDS] for rank in ranks]), (0,), LARGEST)
    counts = dict(zip(COUNT_FIELDS, joined.tolist(), strict=True))
    del counts["bottom_up"]
    phases = tuple(rank.seconds for rank in ranks)
    return LevelReport(level, 1, direction_name(bottom_up), **counts, seconds=seconds, phase_seconds=phases)
