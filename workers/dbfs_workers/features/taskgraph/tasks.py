"""The tasks of the taskgraph engine, which workers run: the phases of Merrill 2012, section 6, as Dask tasks.

The client's engine submits a graph of these tasks for each level. The phases change a rank's state in place, and
check their own order. Of ``phases``, those that move nothing between ranks are tasks themselves. Arguments named
``_after`` only order tasks.
"""

from dataclasses import dataclass
from typing import Protocol

import distributed
import numpy as np
from distributed.protocol import cuda_deserialize, cuda_serialize, register_generic
from numpy.typing import NDArray

from dbfs_workers.base.errors import StaleRunError
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.features.taskgraph import phases
from dbfs_workers.features.taskgraph import state as task_state
from dbfs_workers.features.taskgraph.bins import Bin, FrontierSlice, RankCounts
from dbfs_workers.features.taskgraph.counts import LevelCounts
from dbfs_workers.features.taskgraph.state import TraversalState
from dbfs_workers.search.backend import EdgeFrontier
from dbfs_workers.search.partition.labels import UNREACHED
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.stripe import NO_VERTEX, Stripe
from dbfs_workers.search.reports import ROW, CountedLevels, RankReport, RankRun, tables
from dbfs_workers.serving.rpc import NAME

# Comms that carry GPU memory (UCX) then send CuPy arrays from there. Other comms copy them through the host.
register_generic(Bin, "cuda", cuda_serialize, cuda_deserialize)
register_generic(FrontierSlice, "cuda", cuda_serialize, cuda_deserialize)


class LabelRooms(Protocol):
    """The worker's plugin, as these tasks use it."""

    def require_room(self, graph_id: str, stripe: Stripe, specs: RunSpec) -> None:
        """See ``WorkerService.require_room``."""


@dataclass(frozen=True)
class RankSummary:
    """One rank's part of a finished traversal.

    Attributes:
        report: the rank's report; ``elapsed`` and ``setup`` are 0, since ranks do not measure these.
        levels: the counts of each level.
        started: when the rank's state was ready, in seconds of its ``time.perf_counter()``.
    """

    report: RankReport
    levels: list[LevelCounts]
    started: float


def start(partition: Partition, spec: TraversalSpec, graph_id: str) -> TraversalState:
    """Return a rank's state before level 0. Errors as for ``WorkerService.require_room``."""
    rooms: LabelRooms = distributed.get_worker().plugins[NAME]
    rooms.require_room(graph_id, partition.stripe, RunSpec.single(spec))
    return task_state.start(partition, spec)


def filter_partition(traversal: TraversalState, run_id: str, level: int, edges: EdgeFrontier) -> int:
    """Make the level's bins, and leave them in the state; return their entries, for the barrier."""
    traversal.bins = list(phases.filter_partition(traversal, run_id, level, edges))
    return sum(made.rows.size for made in traversal.bins if made is not None)


def take_bin(traversal: TraversalState, run_id: str, level: int, owner: int, _after: int) -> Bin:
    """Take the bin for an owner out of the state. The bin moves once, from here to the owner's contraction.

    Raise ``StaleRunError`` if it is not there.
    """
    made, traversal.bins[owner] = traversal.bins[owner], None
    if made is None or (made.run_id, made.level) != (run_id, level):
        raise StaleRunError(f"rank {traversal.rank}: no bin for rank {owner} of level {level} of run {run_id}")
    return made


def barrier(entries: list[int]) -> int:
    """Return the entries of all bins of a level. No rank contracts before all ranks have made theirs."""
    return sum(entries)


def contract(traversal: TraversalState, run_id: str, level: int, bins: list[Bin], _after: int) -> RankCounts:
    """Label the vertices of this rank's bins; return the exact counts of the next frontier."""
    return phases.contract(traversal, run_id, level, bins)


def summarise(traversal: TraversalState) -> RankSummary:
    """Return a rank's counts of all levels when the traversal is over."""
    reached, edges = phases.edges_traversed(traversal)
    for level in traversal.levels:
        level.contract = level.seconds["contract"]
        level.search = sum(level.seconds.values()) - level.contract
    rows = np.frombuffer(b"".join(map(bytes, traversal.levels)), ROW)
    run = RankRun(
        labels=traversal.labels,
        levels=CountedLevels.of(*tables(rows)),
        reached=reached,
        edges=edges,
        depth=int(np.flatnonzero(rows["discovered"]).max(initial=-1)) + 1,
        elapsed=0.0,
        setup=0.0,
        version=traversal.partition.version,
    )
    return RankSummary(RankReport.of(run), traversal.levels, traversal.started)


def distances(traversal: TraversalState) -> NDArray[np.int32]:
    """Return the distances of a rank's vertices, without padding; -1 unreached."""
    own = traversal.labels.distances[: traversal.partition.stripe.owned(traversal.rank)]
    return traversal.backend.to_host(own)


def predecessors(traversal: TraversalState) -> NDArray[np.int64]:
    """Return the predecessors of a rank's vertices as vertex ids, without padding; -1 unreached."""
    parents = traversal.labels.predecessors
    assert parents is not None
    stripe = traversal.partition.stripe
    ids = traversal.backend.to_host(parents[: stripe.owned(traversal.rank)])
    return np.where(ids == NO_VERTEX, np.int64(UNREACHED), stripe.vertex(ids.astype(np.int64)))
