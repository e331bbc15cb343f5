"""The resident engine: one call to the service starts the gang, and the levels run inside the workers.

The service (``dbfs.service.scheduler``) queues the run, and rank 0 leads it. The workers run the levels together
(``dbfs_workers.search.levels.loop``). They return counts and timings; the labels stay on them.
"""

import functools
import time
from collections.abc import Generator, Sequence

import distributed
import numpy as np

from dbfs import config
from dbfs.base.records import GraphRecord, RunProgress
from dbfs.cluster.deadline import Deadline
from dbfs.cluster.gang import Gang
from dbfs.engines.interface import InPositions, LevelReport, Outcome, Progress, PublishedLabels
from dbfs.service.client import ServiceClient
from dbfs.service.messages import PublishLabels
from dbfs.service.runs import RunSender
from dbfs_workers.base.spec import RunSpec, direction_name
from dbfs_workers.search.partition.labels import label_key
from dbfs_workers.search.reports import COUNT_FIELDS, TIME_FIELDS, RankReport, join, levels_of_rows
from dbfs_workers.search.reports.counts import LARGEST
from dbfs_workers.serving.reads.messages import KeptLabels

BOTTOM_UP = COUNT_FIELDS.index("bottom_up")
_FRONTIER = COUNT_FIELDS.index("frontier")


class ResidentEngine:
    """See ``dbfs.engines.interface.Engine``. Calls ``progress`` about four times a second, and after the run."""

    name = "resident"
    stripes_only = False

    def traverse(
        self,
        gang: Gang,
        record: GraphRecord,
        specs: RunSpec,
        deadline: Deadline,
        progress: Progress | None,
        in_positions: InPositions,  # noqa: ARG002 - rank 0 numbers the vertices
    ) -> Generator[Outcome, None, None]:
        """Start the run; yield the outcomes as the ranks' reports come."""
        client, run_id = gang.client, specs.options.run_id
        service, sender = ServiceClient.of(client), RunSender.of(client)
        began = time.monotonic()
        made = reached = 0
        latest: Sequence[RankReport] = ()
        for finished in sender.send(record.graph_id, specs, deadline, progress):
            for latest in zip(*finished.reports, strict=True):
                labels = ResidentLabels(service, gang, record, run_id, made, specs.options.predecessors)
                outcome = _outcome(labels, latest)
                made, reached = made + 1, outcome.reached
                yield outcome
        if progress is not None:
            progress(_finished(latest, made, reached, time.monotonic() - began))


class ResidentLabels:
    """See ``dbfs.engines.interface.LabelSource``. The ranks keep the labels until a caller reads them.

    Publishing labels as Dask data takes a millisecond of a worker and another of the scheduler, longer than many
    traversals. The labels of many results are never read.
    """

    def __init__(
        self, service: ServiceClient, gang: Gang, record: GraphRecord, run_id: str, index: int, predecessors: bool
    ) -> None:
        self._service = service
        self._gang = gang
        self._record = record
        self._run_id = run_id
        self._index = index
        self._predecessors = predecessors

    def publish(self) -> PublishedLabels:
        """Have every rank move its labels into its worker's Dask data."""
        (named,) = self.publish_all([self], "distances", *(["predecessors"] if self._predecessors else []))
        return PublishedLabels(named["distances"], named.get("predecessors"))

    @staticmethod
    def publish_all(of_run: "Sequence[ResidentLabels]", *names: str) -> list[dict[str, tuple[distributed.Future, ...]]]:
        """The same for all that the ranks keep of some traversals of a run, together: a call takes 3 ms.

        Returns:
            For each traversal futures by name (see ``label_key``), by rank.
        """
        one, indices = of_run[0], tuple(each._index for each in of_run)
        client, deadline = one._gang.client.id, config.seconds("deadline")
        one._service.call(PublishLabels(one._record.graph_id, client, one._run_id, indices, deadline))
        return [{name: each._futures(name) for name in names} for each in of_run]

    @property
    def location(self) -> KeptLabels:
        """Where the ranks keep the labels."""
        return KeptLabels(self._record.graph_id, self._run_id, self._index)

    def drop(self) -> None:
        """Have every rank free the labels, with the next run of the graph or within a fraction of a second."""
        self._service.drop(self._record.graph_id, self._run_id, self._index)

    def _futures(self, label: str) -> tuple[distributed.Future, ...]:
        keys = [label_key(label, self._run_id, self._index, rank) for rank in range(self._record.stripe.p)]
        # The service registered this client as the keys' owner. state="memory", because Dask's own notice that a key is
        # in memory may have arrived before its future existed.
        return tuple(distributed.Future(key, self._service.client, state="memory") for key in keys)


def _outcome(labels: ResidentLabels, ranks: Sequence[RankReport]) -> Outcome:
    return Outcome(
        labels=labels,
        levels=functools.partial(_level_reports, ranks),
        # Lists: a generator takes twice as long for few ranks.
        depth=max([rank.depth for rank in ranks]),
        reached=sum([rank.reached for rank in ranks]),
        edges=sum([rank.edges for rank in ranks]),
        seconds=max([rank.elapsed for rank in ranks]),
        setup_seconds=max([rank.setup for rank in ranks]),
        version=ranks[0].version,
        counters=ranks[0].counters,
        by_source=[rank.by_source for rank in ranks if rank.by_source is not None],
    )


def _finished(latest: Sequence[RankReport], traversals: int, reached: int, seconds: float) -> RunProgress:
    counts = latest[0].counts
    return RunProgress(
        traversals=traversals,
        finished=traversals,
        level=latest[0].levels,
        direction=direction_name(bool(len(counts) and counts[-1][BOTTOM_UP])),
        frontier=0,
        reached=reached,
        seconds=seconds,
    )


def _level_reports(ranks: Sequence[RankReport]) -> tuple[LevelReport, ...]:
    # Whole columns at once: a road network has thousands of levels, and a notebook shows them with every result.
    (totals,) = join(np.stack([rank.counts for rank in ranks]), (0,), LARGEST)
    covered = levels_of_rows(ranks[0].levels)
    firsts = np.cumsum(covered) - covered
    # If a level's bins held only vertices that were labelled already, the next level has nothing to expand. The
    # reports leave that level out.
    covered = np.clip(1 + max(rank.depth for rank in ranks) - firsts, 1, covered)
    rows = slice(np.count_nonzero(totals[:, _FRONTIER]))
    totals = totals[rows]
    names = [name for name in COUNT_FIELDS if name != "bottom_up"]
    columns = [totals[:, COUNT_FIELDS.index(name)].tolist() for name in names]
    wall = ranks[0].seconds[rows].sum(axis=1).tolist()
    by_rank = [[dict(zip(TIME_FIELDS, level, strict=True)) for level in rank.seconds[rows].tolist()] for rank in ranks]
    return tuple(
        LevelReport(
            level=level,
            levels=levels,
            direction="both" if 0 < bottom_up < levels else direction_name(bool(bottom_up)),
            **dict(zip(names, counts, strict=True)),
            seconds=seconds,
            phase_seconds=phases,
        )
        for level, levels, bottom_up, counts, seconds, phases in zip(
            firsts[rows].tolist(),
            covered[rows].tolist(),
            ranks[0].counts[rows, BOTTOM_UP].tolist(),
            zip(*columns, strict=True),
            wall,
            zip(*by_rank, strict=True),
            strict=True,
        )
    )
