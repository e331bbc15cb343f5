"""The resident engine: one call to the service starts the gang, and the levels run inside the workers.

The service (``dbfs.catalog``) queues the run and calls every worker of the gang once; they loop over the levels
together (``dbfs_workers.spmd``) and only counts and timings come back.
"""

import pickle
from collections.abc import Sequence

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs.engines.interface import LevelReport, Outcome, Progress
from dbfs.gang import Deadline, Gang
from dbfs.records import GraphRecord
from dbfs.service import Service
from dbfs_workers.traversal import LevelCounts, RunSpec

DIRECTIONS = ("top-down", "bottom-up")


class ResidentEngine:
    """See ``dbfs.engines.interface.Engine``. Progress is reported when the run is over."""

    name = "resident"

    def run(
        self,
        gang: Gang,
        record: GraphRecord,
        specs: Sequence[RunSpec],
        deadline: Deadline,
        progress: Progress | None,
    ) -> list[Outcome]:
        """Start the run and wait for the ranks' reports."""
        from dbfs_workers.plugin import RunReport, label_key

        service = Service(gang.client)
        run_id = specs[0].run_id
        try:
            reports: list[RunReport] = service.call(
                "run",
                graph_id=record.graph_id,
                client=gang.client.id,
                run_id=run_id,
                specs=pickle.dumps(list(specs)),
                traversals=len(specs),
                deadline=deadline.seconds,
            )
        except KeyboardInterrupt:
            service.tell("cancel", run_id=run_id)
            raise

        def futures(label: str, index: int) -> tuple[distributed.Future, ...]:
            keys = [label_key(label, run_id, index, rank) for rank in range(gang.p)]
            # The service told the scheduler that this client wants them. They are known to be there: Dask's own word of
            # it may have come before the future that it was for.
            return tuple(distributed.Future(key, gang.client, state="memory") for key in keys)

        outcomes = []
        for index, spec in enumerate(specs):
            ranks = [report.traversals[index] for report in reports]
            levels = [
                _level_report(level, [rank.counts[level] for rank in ranks], [rank.seconds[level] for rank in ranks])
                for level in range(len(ranks[0].counts))
            ]
            if progress is not None:
                for level in levels:
                    progress(level.level, level.discovered)
            outcomes.append(
                Outcome(
                    distances=futures("distances", index),
                    predecessors=futures("predecessors", index) if spec.predecessors else None,
                    levels=tuple(levels),
                    reached=sum(rank.reached for rank in ranks),
                    edges=sum(rank.edges for rank in ranks),
                    seconds=max(rank.elapsed for rank in ranks),
                )
            )
        return outcomes


def _level_report(
    level: int, counts: Sequence[NDArray[np.int64]], seconds: Sequence[NDArray[np.float64]]
) -> LevelReport:
    from dbfs_workers.spmd import COUNT_FIELDS, TIME_FIELDS

    ranks = [
        LevelCounts(
            **{name: int(value) for name, value in zip(COUNT_FIELDS, rank, strict=True) if name != "bottom_up"},
            seconds=dict(zip(TIME_FIELDS, times.tolist(), strict=True)),
        )
        for rank, times in zip(counts, seconds, strict=True)
    ]
    direction = DIRECTIONS[int(counts[0][COUNT_FIELDS.index("bottom_up")])]
    return LevelReport.total(level, direction, float(seconds[0].sum()), ranks)
