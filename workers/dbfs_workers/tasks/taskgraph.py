"""The tasks of the taskgraph engine, and what they hand on. They run on workers.

Arguments named ``_after`` only order tasks: what they stand for was done to the state in place.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from dask.sizeof import sizeof
from distributed.protocol import cuda_deserialize, cuda_serialize, register_generic
from numpy.typing import NDArray

from dbfs_workers.backends.protocol import EdgeFrontier
from dbfs_workers.levels import phases as phases
from dbfs_workers.levels import state as traversal
from dbfs_workers.levels.state import Bin, LevelCounts, TraversalState
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.partition import Partition
from dbfs_workers.storage.stripe import NO_VERTEX

# Comms that carry GPU memory (UCX) then take a bin's CuPy arrays as they are; others copy them through the host.
register_generic(Bin, "cuda", cuda_serialize, cuda_deserialize)


@dataclass(frozen=True)
class Discoveries:
    """What one rank found in one level.

    Attributes:
        expanded: vertices it expanded: those of its own that the level before labelled.
        count: vertices in its bins, its own bin included; another rank may have binned them, too.
        missing: targets of this rank without a label when the level began.
        bins: the bins by owner where they travel with the counts; empty where they are fetched one by one.
    """

    expanded: int
    count: int
    missing: int
    bins: tuple[Bin, ...]


@dataclass(frozen=True)
class Barrier:
    """What all ranks found in one level, once all have finished it.

    Attributes:
        expanded: vertices that were expanded, the level's frontier.
        count: vertices in all bins; 0 ends the traversal.
        missing: targets without a label when the level began.
        bins: all bins of a level whose bins travel with the counts.
        at: when the barrier was reached, in seconds on rank 0's clock.
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
    """One rank's part of a finished run."""

    reached: int
    edges: int
    levels: list[LevelCounts]
    started: float


def start(partition: Partition, spec: TraversalSpec) -> TraversalState:
    """A rank's state before level 0."""
    return traversal.start(partition, spec)


def expand(state: TraversalState, run_id: str, level: int, _after: object) -> EdgeFrontier:
    """The level's edge frontier."""
    return phases.expand(state, run_id, level)


def filter_partition(state: TraversalState, run_id: str, level: int, edges: EdgeFrontier) -> Discoveries:
    """Make the level's bins; they stay in the state's outbox."""
    bins = phases.filter_partition(state, run_id, level, edges)
    return _discoveries(state, bins, ())


def take_bin(state: TraversalState, run_id: str, level: int, target: int, _after: object) -> Bin:
    """One bin out of the outbox."""
    return phases.take_bin(state, run_id, level, target)


def contract(state: TraversalState, run_id: str, level: int, bins: list[Bin], _after: object) -> int:
    """Label what the bins hold; returns how many were new."""
    return phases.contract(state, run_id, level, bins)


def contract_from_barrier(state: TraversalState, run_id: str, level: int, barrier: Barrier, _after: object) -> int:
    """Label what the barrier's bins hold for this rank; returns how many were new."""
    mine = [sent for sent in barrier.bins if sent.target == state.rank]
    return phases.contract(state, run_id, level, mine)


def contract_expand_filter_partition(
    state: TraversalState, run_id: str, level: int, before: Barrier | None, after: object
) -> Discoveries:
    """A small level at once: contract the level before (where its bins are in ``before``), then this level's phases."""
    if before is not None:
        contract_from_barrier(state, run_id, level - 1, before, after)
    bins = phases.filter_partition(state, run_id, level, phases.expand(state, run_id, level))
    return _discoveries(state, bins, bins)


def barrier(found: list[Discoveries]) -> Barrier:
    """Add up what the ranks found; runs on rank 0 when all have finished the level."""
    bins = tuple(sent for discoveries in found for sent in discoveries.bins)
    return Barrier(
        expanded=sum(discoveries.expanded for discoveries in found),
        count=sum(discoveries.count for discoveries in found),
        missing=sum(discoveries.missing for discoveries in found),
        bins=bins,
        at=time.perf_counter(),
    )


def summarise(state: TraversalState, _after: object) -> RankSummary:
    """A rank's counts when the run is over."""
    reached, edges = phases.edges_traversed(state)
    return RankSummary(reached, edges, state.levels, state.started)


def distances(state: TraversalState, _after: object) -> NDArray[np.int32]:
    """The distances of a rank's vertices, without padding."""
    return state.backend.to_host(state.distances[: state.partition.stripe.owned(state.rank)])


def predecessors(state: TraversalState, _after: object) -> NDArray[np.int64]:
    """The predecessors of a rank's vertices as vertex ids, -1 unreached, without padding."""
    assert state.predecessors is not None
    stripe = state.partition.stripe
    ids = state.backend.to_host(state.predecessors[: stripe.owned(state.rank)])
    return np.where(ids == NO_VERTEX, np.int64(-1), stripe.vertex(ids.astype(np.int64)))


def _discoveries(state: TraversalState, made: Sequence[Bin], handed_on: tuple[Bin, ...]) -> Discoveries:
    count = sum(found.rows.size for found in made)
    return Discoveries(state.levels[-1].frontier, count, state.targets_missing(), handed_on)
