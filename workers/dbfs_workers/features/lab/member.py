"""Traversals by strategies of the laboratory on a member: under the run's deadline, and cancelled between levels."""

import time
from collections.abc import Callable

from dbfs_workers.base.errors import DeadlineExceededError
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.lab import baselines, enact
from dbfs_workers.features.lab.pages import LinkedPages
from dbfs_workers.features.lab.purpose import strategy_of
from dbfs_workers.search.cuda.device_graph import DeviceGraph
from dbfs_workers.search.exchange.protocol import Exchange
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.reports import RankRun
from dbfs_workers.search.reports.crossings import Nothing


class BaselineTraversal:
    """One traversal by a baseline on a CPU rank; see ``levels.traversals.Traversal``.

    Each level crosses the exchange of the one rank, which raises the error of a cancelled or late run.
    """

    def __init__(self, scratch: Scratch, spec: TraversalSpec, exchange: Exchange) -> None:
        self.scratch = scratch
        self.level = self.reached = self.completed = 0
        self.bottom_up = False
        self._spec = spec
        self._exchange = exchange

    def run(self, stops: bool = False) -> bool:
        """See ``Traversal``. There are no other ranks to stop."""
        if stops:
            return False
        partition, spec = self.scratch.partition, self._spec
        self._exchange.reset(spec.predecessors)
        labels = self.scratch.start(spec)
        policy, source = strategy_of(spec).policy, spec.sources[0]
        self._result = baselines.traverse(partition.rows, source, policy, self._enter, labels, partition.version)
        return True

    def result(self) -> RankRun:
        return self._result

    def _enter(self, level: int, frontier: int) -> None:
        self.level = level
        self.reached += frontier
        self._exchange.cross(level, "strategy", Nothing(), sliced=False)


def traverse_on_gpu(
    graph: DeviceGraph | LinkedPages, spec: TraversalSpec, deadline: float, raise_if_stopped: Callable[[str], None]
) -> RankRun:
    """Traverse a graph of one rank on its GPU.

    Args:
        graph: the rank's slice, which is the graph; or the graph on linked pages, for ``storage=pages``.
        deadline: its end, in seconds of ``time.monotonic()``.
        raise_if_stopped: raises the error of a run that was aborted; called with the place that the run reached.

    Raises:
        DeadlineExceededError: the deadline passed.
        InvalidOptionError, QueueOverflowError: see ``lab.enact.traverse``.
    """

    def watch(level: int, _frontier: int) -> None:
        where = f"rank 0, level {level}, strategy {strategy_of(spec).strategy}"
        raise_if_stopped(where)
        if time.monotonic() > deadline:
            raise DeadlineExceededError(f"run {spec.run_id}: {where}: the deadline passed")

    policy, source = strategy_of(spec).policy, spec.sources[0]
    if isinstance(graph, LinkedPages):
        return enact.traverse(None, None, source, policy, watch, predecessors=spec.predecessors, pages=graph)
    return enact.traverse(
        graph.row_offsets,
        graph.columns,
        source,
        policy,
        watch,
        predecessors=spec.predecessors,
        in_edges=None if graph.in_offsets is None else (graph.in_offsets, graph.in_columns),
    )
