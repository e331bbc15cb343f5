"""One traversal of the taskgraph engine: the Dask graph of each level, and the choice of the level's shape."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import distributed

from dbfs import config
from dbfs.cluster.gang import Deadline, Gang, Key, Ref, TaskGraph, release
from dbfs.cluster.rank_calls import RankCalls
from dbfs.engines.directions import Directions
from dbfs.engines.interface import LevelReport, Outcome, PublishedLabels
from dbfs.errors import DbfsError
from dbfs.records import GraphRecord
from dbfs.service.held_run import HeldRun
from dbfs_workers.messages import ReadBarrier
from dbfs_workers.reports import RankReport
from dbfs_workers.spec import TraversalSpec, direction_name
from dbfs_workers.tasks import taskgraph as tasks
from dbfs_workers.tasks.barriers import Barrier, reach
from dbfs_workers.tasks.mail import Post

# Seconds that rank 0 waits for a barrier before it answers that there is none. The client then asks again.
_READ_SECONDS = 5.0

LevelSeen = Callable[[int, bool, int, int], None]
"""Called with a level's number, whether the level is bottom-up, its frontier, and the vertices reached before it."""


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
        number: the level's number.
        barrier: the level's barrier.
        tasks: the last task of each rank but rank 0. No task depends on them: Dask would move their results.
        bottom_up: the level's direction.
        counted: whether the barrier counts the next frontier exactly; else the level's bins are not contracted yet.
    """

    number: int
    barrier: Ref
    tasks: tuple[Ref, ...]
    bottom_up: bool
    counted: bool


class TaskGraphTraversal:
    """One traversal: the tasks submitted so far, and the futures that keep their results on the workers.

    Attributes:
        level: number of levels submitted so far.
        state: by rank, the task that made the rank's state.
        unread: levels whose barriers the client has not read, oldest first.
        found_bottom_up: whether the level submitted last is bottom-up.
        carrying: the barrier of the level submitted last, if rank 0 passes that level's bins on; else None.
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
        self.graph_id = record.graph_id
        self.state: list[Ref] = []
        self.found_bottom_up = False
        self.unread: deque[Level] = deque()
        self.carrying: Ref | None = None
        self.futures: dict[Key, distributed.Future] = {}

    def traverse(self, see_level: LevelSeen) -> tuple[Outcome, list[RankReport]]:
        """Run the levels; return the outcome, and the ranks' reports."""
        self._start()
        spec = self.spec
        barriers: list[Barrier] = []
        directions: list[bool] = []
        # Vertices of the next level's frontier, or more.
        found, grows, reached = len(set(spec.sources)), True, 0
        over = bool(spec.targets) and set(spec.targets) <= set(spec.sources)
        while not over:
            self._submit_levels(found, grows)
            if not self.unread:
                break
            counts = self._read(self.unread[0])
            level = self.unread.popleft()
            # Bins may repeat vertices: the frontier of the next level is the exact count of new ones.
            frontier = found if level.bottom_up else counts.expanded
            reached += frontier
            see_level(len(barriers), level.bottom_up, frontier, reached)
            barriers.append(counts)
            directions.append(level.bottom_up)
            if level.counted:
                self.directions.pass_counted(counts)
            else:
                self.directions.pass_uncounted(counts)
            grows = counts.count > 2 * found
            found = counts.count
            over = not found or (bool(spec.targets) and not counts.missing)
        return self._finish(barriers, directions)

    def release(self) -> None:
        """Release the results that are kept for further levels."""
        release(self.futures.values())

    def _start(self) -> None:
        """Submit the tasks that make the ranks' states."""
        graph = TaskGraph()
        for rank in self.ranks:
            key = self._key("state", rank)
            self.state.append(graph.add(rank, key, tasks.start, Ref(self.partitions[rank]), self.spec, self.graph_id))
        self._submit(graph, self.state)

    def _submit_levels(self, found: int, grows: bool) -> None:
        """Submit the next level if no level is unread; then the level after it, if both are small."""
        if not self.unread and self.level != self.spec.max_depth:
            self._submit_level(found)
        # An unread frontier may be larger. A level that explodes would send all of its bins to rank 0.
        steady = not grows and 2 * found < self.fuse_below and self.carrying is not None
        if len(self.unread) == 1 and steady and self.level != self.spec.max_depth and self._is_small(found):
            self._submit_level(found)

    def _is_small(self, found: int) -> bool:
        """Return whether the next level runs as one task on each rank, with its bins in the barrier.

        The number of targets without a label, and the size of a frontier that may turn the traversal bottom-up, are
        known after the contraction only. Such a level is not small.
        """
        if self.directions.bottom_up or self.spec.targets or found >= self.fuse_below:
            return False
        most = found * self.max_degree if self.unread else found
        return not self.directions.may_turn_bottom_up(most)

    def _submit_level(self, found: int) -> None:
        """Submit the tasks of the next level."""
        graph = TaskGraph()
        if self.directions.bottom_up:
            level = self._bottom_up_level(graph)
        elif self._is_small(found):
            level = self._small_level(graph)
        else:
            level = self._large_level(graph)
        self.found_bottom_up = level.bottom_up
        self.level += 1
        self.unread.append(level)
        self._submit(graph, [level.barrier, *level.tasks])

    def _small_level(self, graph: TaskGraph) -> Level:
        """Add one task per rank. Rank 0 takes all bins, and passes them on when all have arrived."""
        level = self._level(graph, self._expand_filter_partition(graph, carry=True), carry=True)
        self.carrying = level.barrier
        return level

    def _large_level(self, graph: TaskGraph) -> Level:
        """Add two tasks per rank, or one for each phase. A rank sends its bins to their owners."""
        run, level, post = self.spec.run_id, self.level, self._post()
        if self.fuse_below:
            found = self._expand_filter_partition(graph, carry=False)
        else:
            found = []
            for rank in self.ranks:
                state, key = self.state[rank], self._key("expand", level, rank)
                edges = graph.add(rank, key, tasks.expand, state, run, level, post, self.found_bottom_up)
                key = self._key("filter-partition", level, rank)
                found.append(graph.add(rank, key, tasks.filter_partition, state, run, level, edges, post))
        self.carrying = None
        contracted = [
            graph.add(
                rank,
                self._key("contract", level, rank),
                tasks.contract,
                self.state[rank],
                run,
                level,
                post,
                found[rank],
            )
            for rank in self.ranks
        ]
        return self._level(graph, contracted)

    def _bottom_up_level(self, graph: TaskGraph) -> Level:
        """Add one task per rank. The ranks send each other their parts of the frontier."""
        run, level, post = self.spec.run_id, self.level, self._post()
        searched = [
            graph.add(rank, self._key("bottom-up", level, rank), tasks.bottom_up, self.state[rank], run, level, post)
            for rank in self.ranks
        ]
        return self._level(graph, searched, bottom_up=True)

    def _expand_filter_partition(self, graph: TaskGraph, *, carry: bool) -> list[Ref]:
        """Add the task of each rank that runs the first two phases, after it contracted carried bins."""
        name = "expand-filter-partition" if self.carrying is None else "contract-expand-filter-partition"
        run, level, post = self.spec.run_id, self.level, self._post()
        return [
            graph.add(
                rank,
                self._key(name, level, rank),
                tasks.expand_filter_partition,
                self.state[rank],
                run,
                level,
                post,
                self.found_bottom_up,
                self.carrying is not None,
                carry,
                # A worker with one thread must not wait for bins that its own next task would pass on.
                self.carrying if rank == 0 else None,
            )
            for rank in self.ranks
        ]

    def _level(self, graph: TaskGraph, last: list[Ref], *, bottom_up: bool = False, carry: bool = False) -> Level:
        """Add the barrier of a level; ``last`` has the last task of each rank."""
        key, level = self._key("barrier", self.level), self.level
        barrier = graph.add(0, key, reach, self.state[0], level, self._post(), carry, last[0])
        return Level(level, barrier, tuple(last[1:]), bottom_up, counted=not carry)

    def _post(self) -> Post:
        return Post(self.gang.addresses, self.deadline.remaining)

    def _finish(self, barriers: list[Barrier], directions: list[bool]) -> tuple[Outcome, list[RankReport]]:
        """Take the labels out of the states and add up the counts; the states are freed with their futures."""
        graph, run = TaskGraph(), self.spec.run_id
        # The barrier of a level that was submitted in vain: its tasks end before the states are freed.
        after: list[Ref | None] = [self.carrying if rank == 0 else None for rank in self.ranks]
        if barriers and barriers[-1].count and self.carrying is not None:
            last = self.level - 1
            for rank in self.ranks:
                key = self._key("contract", last, rank)
                arguments = (run, last, self._post(), after[rank])
                after[rank] = graph.add(rank, key, tasks.contract_carried, self.state[rank], *arguments)
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
        # A worker with one thread runs the levels in their order: a task that waits for bins keeps its thread.
        submitted = self.gang.submit(graph, [ref.key for ref in kept], priority=-self.level)
        # After the submission of the graph that refers to them.
        unread = [ref for level in self.unread for ref in (level.barrier, *level.tasks)]
        wanted = {ref.key for ref in (*self.state, *unread)}
        release(future for key, future in self.futures.items() if key not in wanted)
        self.futures = {key: future for key, future in self.futures.items() if key in wanted} | submitted

    def _read(self, level: Level) -> Barrier:
        """Wait for a level's barrier and return the counts; the run may have to end meanwhile."""
        futures = [self.futures[ref.key] for ref in (level.barrier, *level.tasks)]

        def watch() -> None:
            self.run.check(self._doing)
            failed = [future for future in futures if future.status not in ("pending", "finished")]
            if failed:
                self._gather(failed)

        message = ReadBarrier(self.spec.run_id, level.number, _READ_SECONDS)
        while (counts := RankCalls(self.gang, {0: message}, self.deadline, self._doing()).answers(watch)[0]) is None:
            watch()
            self.deadline.enforce(self._doing)
        return counts

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
