"""The taskgraph engine: each level is a small Dask graph, which Dask's dashboard shows.

A top-down level on p ranks, after Merrill 2012, section 6: ``expand`` and ``filter-partition`` on each rank, a ``bin``
for each pair of ranks, one ``barrier``, and ``contract`` on each rank, which takes its bins from its peers. The barrier
comes before the contraction: 3 p + p**2 + 1 tasks. A bottom-up level is a ``share`` and a ``bottom-up`` on each rank.
The client reads the barrier and the counts, chooses the next level's direction, and stops when no vertex was found.

The state of a rank (``TraversalState``) is itself the result of a task. The phases change the state in place, and check
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
