"""The tasks of the taskgraph engine, which workers run, and the results that the tasks pass on.

The engine (``dbfs.engines.taskgraph``) submits a graph of these tasks for each level. Arguments named ``_after`` only
order tasks: the task that they stand for changed the state in place.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from dask.sizeof import sizeof
from distributed.protocol import cuda_deserialize, cuda_serialize, register_generic
from numpy.typing import NDArray

from dbfs_workers.backends.protocol import EdgeFrontier
from dbfs_workers.levels import phases, state
from dbfs_workers.levels.bins import Bin
from dbfs_workers.levels.counts import LevelCounts
from dbfs_workers.levels.state import TraversalState
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.labels import UNREACHED
from dbfs_workers.storage.partition import Partition
from dbfs_workers.storage.stripe import NO_VERTEX

# Comms that carry GPU memory (UCX) then send a bin's CuPy arrays from there. Other comms copy them through the host.
register_generic(Bin, "cuda", cuda_serialize, cuda_deserialize)


@dataclass(frozen=True)
class Discoveries:
    """The result of one rank's first two phases of a level.

    Attributes:
        expanded: the vertices of this rank's frontier, all labelled by the level before.
        count: vertices in this rank's bins, its own bin included; another rank may have binned the same vertices.
        missing: targets of this rank without a label when the level began.
        bins: the bins by owner if they travel with the counts; empty if the owners fetch their bins one by one.
    """

    expanded: int
    count: int
    missing: int
    bins: tuple[Bin, ...]


@dataclass(frozen=True)
class Barrier:
    """The sums over the ranks' ``Discoveries`` of one level. It exists once every rank has finished the level.

    Attributes:
        expanded: vertices of the level's frontier.
        count: vertices in all bins; 0 ends the traversal.
        missing: targets without a label when the level began.
        bins: all bins of the level if they travel with the counts.
        at: when the barrier was reached, in seconds of rank 0's ``time.perf_counter()``.
    """

    expanded: int
    count: int
    missing: int
    bins: tuple[Bin, ...]
    at: float

    def __sizeof__(self) -> int:
        return 64 + int(sum(sizeof(sent) for sent in self.bins))


@dataclass(frozen=True)
class RankSummary:
    """One rank's part of a finished traversal.

    Attributes:
        reached: vertices labelled on this rank, the sources included.
        edges: the sum of their degrees.
        levels: the counts of each level.
        started: when the rank's state was ready, in seconds of its ``time.perf_counter()``.
    """

    reached: int
    edges: int
    levels: list[LevelCounts]
    started: float


def start(partition: Partition, spec: TraversalSpec) -> TraversalState:
    """Return a rank's state before level 0."""
    return state.start(partition, spec)


def expand(traversal: TraversalState, run_id: str, level: int, _after: object) -> EdgeFrontier:
    """Return the level's edge frontier."""
    return phases.expand(traversal, run_id, level)


def filter_partition(traversal: TraversalState, run_id: str, level: int, edges: EdgeFrontier) -> Discoveries:
    """Make the level's bins, which stay in the state's outbox; return their counts."""
    bins = phases.filter_partition(traversal, run_id, level, edges)
    return _discoveries(traversal, bins, ())


def take_bin(traversal: TraversalState, run_id: str, level: int, target: int, _after: object) -> Bin:
    """Return the outbox's bin for rank ``target``."""
    return phases.take_bin(traversal, run_id, level, target)


def contract(traversal: TraversalState, run_id: str, level: int, bins: list[Bin], _after: object) -> int:
    """Label the vertices of the bins; return the number of new ones."""
    return phases.contract(traversal, run_id, level, bins)


def contract_from_barrier(traversal: TraversalState, run_id: str, level: int, barrier: Barrier, _after: object) -> int:
    """Label the vertices of the barrier's bins for this rank; return the number of new ones."""
    mine = [sent for sent in barrier.bins if sent.target == traversal.rank]
    return phases.contract(traversal, run_id, level, mine)


def contract_expand_filter_partition(
    traversal: TraversalState, run_id: str, level: int, before: Barrier | None, after: object
) -> Discoveries:
    """Run a small level as one task: contract the level before, then expand and filter + partition this one.

    ``before`` is the barrier with the bins of the level before; None if they are contracted already.
    """
    if before is not None:
        contract_from_barrier(traversal, run_id, level - 1, before, after)
    bins = phases.filter_partition(traversal, run_id, level, phases.expand(traversal, run_id, level))
    return _discoveries(traversal, bins, bins)


def barrier(found: list[Discoveries]) -> Barrier:
    """Sum the ranks' discoveries of one level. Runs on rank 0 once every rank has finished the level."""
    bins = tuple(sent for discoveries in found for sent in discoveries.bins)
    return Barrier(
        expanded=sum(discoveries.expanded for discoveries in found),
        count=sum(discoveries.count for discoveries in found),
        missing=sum(discoveries.missing for discoveries in found),
        bins=bins,
        at=time.perf_counter(),
    )


def summarise(traversal: TraversalState, _after: object) -> RankSummary:
    """Return a rank's counts when the traversal is over."""
    reached, edges = phases.edges_traversed(traversal)
    return RankSummary(reached, edges, traversal.levels, traversal.started)


def distances(traversal: TraversalState, _after: object) -> NDArray[np.int32]:
    """Return the distances of a rank's vertices, without padding; -1 unreached."""
    own = traversal.labels.distances[: traversal.partition.stripe.owned(traversal.rank)]
    return traversal.backend.to_host(own)


def predecessors(traversal: TraversalState, _after: object) -> NDArray[np.int64]:
    """Return the predecessors of a rank's vertices as vertex ids, without padding; -1 unreached."""
    parents = traversal.labels.predecessors
    assert parents is not None
    stripe = traversal.partition.stripe
    ids = traversal.backend.to_host(parents[: stripe.owned(traversal.rank)])
    return np.where(ids == NO_VERTEX, np.int64(UNREACHED), stripe.vertex(ids.astype(np.int64)))


def _discoveries(traversal: TraversalState, bins: Sequence[Bin], travelling: tuple[Bin, ...]) -> Discoveries:
    count = sum(made.rows.size for made in bins)
    return Discoveries(traversal.levels[-1].frontier, count, traversal.targets_missing(), travelling)
