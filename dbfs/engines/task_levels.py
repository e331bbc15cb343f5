"""One traversal of the taskgraph engine: the Dask graphs of its levels, and the choice of each level's shape."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import distributed

from dbfs import config
from dbfs.cluster.deadline import Deadline
from dbfs.cluster.gang import Gang, Key, Ref, TaskGraph, release
from dbfs.cluster.rank_calls import RankCalls
from dbfs.engines.directions import Directions
from dbfs.engines.interface import LevelReport, Outcome, PublishedLabels
from dbfs.errors import DbfsError
from dbfs.records import GraphRecord
from dbfs.service.held_run import HeldRun
from dbfs_workers.messages import ReadBarriers
from dbfs_workers.reports import RankReport
from dbfs_workers.spec import TraversalSpec, direction_name
from dbfs_workers.tasks import taskgraph as tasks
from dbfs_workers.tasks.barriers import Barrier, reach
from dbfs_workers.tasks.mail import Post
from dbfs_workers.tasks.windows import MOST_LEVELS, SmallLevels, run_window

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
class Submission:
    """A level, or a window of levels, that was submitted.

    Attributes:
        first: number of the first level.
        last: the last task of each rank.
        bottom_up: the direction of the levels.
    """

    first: int
    last: tuple[Ref, ...]
    bottom_up: bool


class TaskGraphTraversal:
    """One traversal: the tasks submitted so far, and the futures that keep their results on the workers.

    Attributes:
        level: number of levels run so far; during a level its number.
        state: by rank, the task that made the rank's state.
        last: by rank, the last task submitted so far.
        found_bottom_up: whether the last level is bottom-up.
        futures: by key, the results kept for the next submission.
    """

    def __init__(self, gang: Gang, record: GraphRecord, spec: TraversalSpec, deadline: Deadline, run: HeldRun) -> None:
        self.gang = gang
        self.spec = spec
        self.deadline = deadline
        self.run = run
        self.ranks = range(gang.p)
        self.directions = Directions(record, spec)
        self.fuse_below = config.count("taskgraph.fuse-below", least=0)
        self.level = 0
        self.partitions = record.partition_keys
        self.graph_id = record.graph_id
        self.state: list[Ref] = []
        self.last: tuple[Ref, ...] = ()
        self.found_bottom_up = False
        self.futures: dict[Key, distributed.Future] = {}

    def traverse(self, see_level: LevelSeen) -> tuple[Outcome, list[RankReport]]:
        """Run the levels; return the outcome, and the ranks' reports."""
        self._start()
        spec = self.spec
        barriers: list[Barrier] = []
        directions: list[bool] = []
        # Vertices of the next level's frontier, or more.
        found, reached = len(set(spec.sources)), 0
        over = bool(spec.targets) and set(spec.targets) <= set(spec.sources)
        while not over and self.level != spec.max_depth:
            submission = self._submit_levels(found)
            for counts in self._read(submission):
                # Bins may repeat vertices: the frontier of the next level is the exact count of new ones.
                frontier = found if submission.bottom_up else counts.expanded
                reached += frontier
                see_level(self.level, submission.bottom_up, frontier, reached)
                barriers.append(counts)
                directions.append(submission.bottom_up)
                self.level += 1
                self.directions.pass_level(counts)
                found = counts.count
                over = not found or (bool(spec.targets) and not counts.missing)
            self.found_bottom_up = submission.bottom_up
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
        self.last = tuple(self.state)
        self._submit(graph)

    def _submit_levels(self, found: int) -> Submission:
        """Submit the tasks of the next level, or of a window that begins with it."""
        graph = TaskGraph()
        small = self.directions.small_levels(self.fuse_below)
        if self.directions.bottom_up:
            submission = self._bottom_up_level(graph)
        elif small.include(found):
            submission = self._window(graph, small)
        else:
            submission = self._large_level(graph)
        self.last = submission.last
        self._submit(graph)
        return submission

    def _window(self, graph: TaskGraph, small: SmallLevels) -> Submission:
        """Add one task per rank, which runs small levels. Rank 0 takes all bins, and passes them on."""
        first, depth = self.level, self.spec.max_depth
        most = MOST_LEVELS if depth is None else min(MOST_LEVELS, depth - first)
        post = self._post()
        last = tuple(
            graph.add(
                rank,
                self._key("small-levels", first, rank),
                run_window,
                self.state[rank],
                self.spec.run_id,
                first,
                most,
                small,
                post,
                self.found_bottom_up,
                self.last[rank],
            )
            for rank in self.ranks
        )
        return Submission(first, last, bottom_up=False)

    def _large_level(self, graph: TaskGraph) -> Submission:
        """Add two tasks per rank, or one for each phase. A rank sends its bins to their owners."""
        run, level, post, share = self.spec.run_id, self.level, self._post(), self.found_bottom_up
        contracted = []
        for rank in self.ranks:
            state, last = self.state[rank], self.last[rank]
            if self.fuse_below:
                key = self._key("expand-filter-partition", level, rank)
                found = graph.add(rank, key, tasks.expand_filter_partition, state, run, level, post, share, last)
            else:
                key = self._key("expand", level, rank)
                edges = graph.add(rank, key, tasks.expand, state, run, level, post, share, last)
                key = self._key("filter-partition", level, rank)
                found = graph.add(rank, key, tasks.filter_partition, state, run, level, edges, post)
            key = self._key("contract", level, rank)
            contracted.append(graph.add(rank, key, tasks.contract, state, run, level, post, found))
        return self._level(graph, contracted, bottom_up=False)

    def _bottom_up_level(self, graph: TaskGraph) -> Submission:
        """Add one task per rank. The ranks send each other their parts of the frontier."""
        run, level, post = self.spec.run_id, self.level, self._post()
        searched = [
            graph.add(
                rank,
                self._key("bottom-up", level, rank),
                tasks.bottom_up,
                self.state[rank],
                run,
                level,
                post,
                self.last[rank],
            )
            for rank in self.ranks
        ]
        return self._level(graph, searched, bottom_up=True)

    def _level(self, graph: TaskGraph, last: list[Ref], *, bottom_up: bool) -> Submission:
        """Add the barrier of a level; ``last`` has the last task of each rank before it."""
        key, level = self._key("barrier", self.level), self.level
        barrier = graph.add(0, key, reach, self.state[0], level, self._post(), last[0])
        return Submission(level, (barrier, *last[1:]), bottom_up)

    def _post(self) -> Post:
        return Post(self.gang.addresses, self.deadline.remaining)

    def _finish(self, barriers: list[Barrier], directions: list[bool]) -> tuple[Outcome, list[RankReport]]:
        """Take the labels out of the states and add up the counts; the states are freed with their futures."""
        graph = TaskGraph()
        keys = {"summary": [self._key("summary", rank) for rank in self.ranks]}
        for rank, key in enumerate(keys["summary"]):
            graph.add(rank, key, tasks.summarise, self.state[rank], len(barriers), self.last[rank])
        kinds: dict[str, Callable[..., Any]] = {"distances": tasks.distances}
        if self.spec.predecessors:
            kinds["predecessors"] = tasks.predecessors
        for kind, task in kinds.items():
            keys[kind] = [self._key(kind, rank) for rank in self.ranks]
            for rank, key in enumerate(keys[kind]):
                graph.add(rank, key, task, self.state[rank], self.last[rank])
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
            version=ranks[0].version,
        )
        return outcome, ranks

    def _submit(self, graph: TaskGraph) -> None:
        """Submit a graph, keep the results of the last tasks, and release results that no further task needs."""
        # A wait looks at the deadline and the run at intervals only, which short levels never reach.
        self.deadline.enforce(self._doing)
        self.run.check(self._doing)
        submitted = self.gang.submit(graph, [ref.key for ref in self.last])
        # After the submission of the graph that refers to them.
        states = {ref.key for ref in self.state}
        release(future for key, future in self.futures.items() if key not in states)
        self.futures = {key: future for key, future in self.futures.items() if key in states} | submitted

    def _read(self, submission: Submission) -> Iterator[Barrier]:
        """Wait for the barriers of a level or a window, and yield the counts; the run may have to end meanwhile."""
        futures = [self.futures[ref.key] for ref in submission.last]

        def watch() -> None:
            self.run.check(self._doing)
            failed = [future for future in futures if future.status not in ("pending", "finished")]
            if failed:
                self._gather(failed)

        level, last = submission.first, False
        while not last:
            message = ReadBarriers(self.spec.run_id, level, _READ_SECONDS)
            barriers = RankCalls(self.gang, {0: message}, self.deadline, self._doing()).answers(watch)[0]
            yield from barriers
            level += len(barriers)
            last = bool(barriers) and barriers[-1].last
            if not last:
                watch()
                self.deadline.enforce(self._doing)

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
        return f"run {self.spec.run_id}, level {self.level}"

    def _key(self, name: str, *index: int) -> Key:
        return (f"{name}-{self.spec.run_id}", *index)
