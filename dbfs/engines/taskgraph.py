"""The taskgraph engine: levels are small Dask graphs, which Dask's dashboard shows.

A top-down level has three phases on each rank and one ``barrier`` that adds up the ranks' counts. The client reads the
barrier, chooses the next level's direction, and stops when no vertex was found. Bins and counts go by mail
(``dbfs_workers.tasks.mail``), so that Dask moves no results between workers. The shapes of a level on p ranks:

- Small: consecutive small levels are a window, one ``small-levels`` task on each rank
  (``dbfs_workers.tasks.windows``). Bins and counts travel through rank 0: 2 (p - 1) letters a level. There are p tasks
  for up to ``MOST_LEVELS`` levels.
- Large: ``expand-filter-partition`` and ``contract`` on each rank. A rank sends each bin to its owner. There are
  2 p + 1 tasks. The barrier counts the next frontier exactly.
- Phases, if ``dbfs.taskgraph.fuse-below`` is 0: as large, with ``expand`` and ``filter-partition`` as tasks of their
  own. There are 3 p + 1 tasks.
- Bottom-up: one ``bottom-up`` task on each rank. The ranks send each other bitmaps of the frontier. There are p + 1
  tasks.

No level is submitted before the barrier of the level before is read, and a window ends where the traversal does. The
state of a rank (``TraversalState``) is itself the result of a task. The phases change the state in place, and check
their own order.
"""

import time
from collections.abc import Generator
from dataclasses import replace

from dbfs.cluster.deadline import Deadline
from dbfs.cluster.gang import Gang
from dbfs.engines.directions import Directions
from dbfs.engines.interface import InPositions, Outcome, Progress
from dbfs.engines.task_levels import TaskGraphTraversal
from dbfs.records import GraphRecord, RunProgress
from dbfs.service.client import ServiceClient
from dbfs.service.held_run import held_run
from dbfs_workers.reports import RankReport
from dbfs_workers.spec import RunSpec, direction_name


class TaskGraphEngine:
    """See ``dbfs.engines.interface.Engine``. Calls ``progress`` after each level."""

    name = "taskgraph"

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
        Directions(record, specs.options)
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
