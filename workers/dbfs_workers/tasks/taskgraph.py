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
from dbfs_workers.levels.bins import Bin, FrontierPart
from dbfs_workers.levels.counts import LevelCounts
from dbfs_workers.levels.state import TraversalState
from dbfs_workers.reports import COUNT_FIELDS, TIME_FIELDS, CountedLevels, RankReport, RankRun
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.labels import UNREACHED
from dbfs_workers.storage.partition import Partition
from dbfs_workers.storage.stripe import NO_VERTEX
from dbfs_workers.tasks.fetching import fetch_bins, offer_bins

# Comms that carry GPU memory (UCX) then send CuPy arrays from there. Other comms copy them through the host.
register_generic(Bin, "cuda", cuda_serialize, cuda_deserialize)
register_generic(FrontierPart, "cuda", cuda_serialize, cuda_deserialize)


@dataclass(frozen=True)
class Discoveries:
    """The result of one rank's first two phases of a top-down level.

    Attributes:
        expanded: the vertices of this rank's frontier, all labelled by the level before.
        edges: edges inspected.
        count: vertices in this rank's bins, its own bin included; another rank may have binned the same vertices.
        bins: the bins by owner if they travel with the counts; empty if the owners fetch their bins.
    """

    expanded: int
    edges: int
    count: int
    bins: tuple[Bin, ...]


@dataclass(frozen=True)
class Barrier:
    """The sums over the ranks of one level's counts. It exists once every rank has finished the level.

    Attributes:
        expanded: vertices of a top-down level's frontier.
        edges: edges that a top-down level inspected.
        count: vertices of the next frontier; more than that if ``bins`` holds vertices twice. 0 ends the traversal.
        degrees: sum of the next frontier's degrees; 0 if the bins are not contracted.
        missing: targets without a label; 0 if the bins are not contracted.
        searched: edges that a bottom-up level looked at.
        bins: all bins of the level if the next task contracts them; else empty.
        at: when the barrier was reached, in seconds of rank 0's ``time.perf_counter()``.
    """

    expanded: int
    edges: int
    count: int
    degrees: int
    missing: int
    searched: int
    bins: tuple[Bin, ...]
    at: float

    def __sizeof__(self) -> int:
        return 128 + int(sum(sizeof(sent) for sent in self.bins))


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


def start(partition: Partition, spec: TraversalSpec) -> TraversalState:
    """Return a rank's state before level 0."""
    started = state.start(partition, spec)
    offer_bins(started)
    return started


def frontier(traversal: TraversalState) -> FrontierPart:
    """Return a rank's part of level 0's frontier, the sources, for a bottom-up level."""
    return phases.measure(traversal, 0, bits=True)


def expand(traversal: TraversalState, run_id: str, level: int, seen: list[FrontierPart]) -> EdgeFrontier:
    """Return the level's edge frontier; ``seen`` as in ``expand_filter_partition``."""
    phases.absorb(traversal, seen)
    return phases.expand(traversal, run_id, level)


def filter_partition(traversal: TraversalState, run_id: str, level: int, edges: EdgeFrontier) -> Discoveries:
    """Make the level's bins, which stay in the state's outbox; return their counts."""
    return _discoveries(traversal, phases.filter_partition(traversal, run_id, level, edges), carry=False)


def expand_filter_partition(
    traversal: TraversalState, run_id: str, level: int, before: Barrier | None, seen: list[FrontierPart], carry: bool
) -> Discoveries:
    """Run the first two phases of a level as one task.

    Args:
        traversal: the state.
        run_id: the run.
        level: the level.
        before: the barrier with the bins of the level before, which are contracted first; None if they are contracted.
        seen: the frontier, if a bottom-up level found it: the rank need not send these vertices. Else empty.
        carry: whether the result carries the bins. Otherwise their owners fetch them.
    """
    if before is not None:
        contract_carried(traversal, run_id, level - 1, before)
    phases.absorb(traversal, seen)
    bins = phases.filter_partition(traversal, run_id, level, phases.expand(traversal, run_id, level))
    return _discoveries(traversal, bins, carry=carry)


def contract(
    traversal: TraversalState,
    run_id: str,
    level: int,
    _after: list[Discoveries],
    addresses: Sequence[str],
    timeout: float,
    bits: bool,
) -> FrontierPart:
    """Fetch this rank's bins and label their vertices; return the rank's part of the next frontier.

    Args:
        traversal: the state.
        run_id: the run.
        level: the level.
        addresses: the workers' addresses, by rank.
        timeout: seconds that the fetch may take.
        bits: whether the part carries its bitmap.
    """
    phases.contract(traversal, run_id, level, fetch_bins(traversal, level, addresses, timeout))
    return phases.measure(traversal, level + 1, bits=bits)


def contract_carried(traversal: TraversalState, run_id: str, level: int, barrier: Barrier) -> int:
    """Label the vertices of the barrier's bins for this rank; return the number of new ones."""
    mine = [sent for sent in barrier.bins if sent.target == traversal.rank]
    return phases.contract(traversal, run_id, level, mine)


def bottom_up(traversal: TraversalState, run_id: str, level: int, frontier: list[FrontierPart]) -> FrontierPart:
    """Run a bottom-up level; return the rank's part of the next frontier."""
    return phases.bottom_up(traversal, run_id, level, frontier)


def barrier(found: list[Discoveries], parts: list[FrontierPart]) -> Barrier:
    """Sum the ranks' counts of one level. Runs on rank 0 once every rank has finished the level.

    Args:
        found: by rank, the discoveries of a top-down level; empty for a bottom-up level.
        parts: by rank, the parts of the next frontier; empty if the bins travel with the discoveries.
    """
    return Barrier(
        expanded=sum(discoveries.expanded for discoveries in found),
        edges=sum(discoveries.edges for discoveries in found),
        count=sum(part.count for part in parts) if parts else sum(discoveries.count for discoveries in found),
        degrees=sum(part.degrees for part in parts),
        missing=sum(part.missing for part in parts),
        searched=sum(part.searched for part in parts),
        bins=tuple(sent for discoveries in found for sent in discoveries.bins),
        at=time.perf_counter(),
    )


def summarise(traversal: TraversalState, levels: int, _after: object) -> RankSummary:
    """Return a rank's counts of the first levels when the traversal is over; later levels had an empty frontier."""
    reached, edges = phases.edges_traversed(traversal)
    counted = traversal.levels[:levels]
    counts = np.array([level.row() for level in counted], np.int64).reshape(-1, len(COUNT_FIELDS))
    times = np.array([level.times() for level in counted], np.float64).reshape(-1, len(TIME_FIELDS))
    run = RankRun(
        labels=traversal.labels,
        levels=CountedLevels(counts, times),
        reached=reached,
        edges=edges,
        depth=int(np.flatnonzero(counts[:, COUNT_FIELDS.index("discovered")]).max(initial=-1)) + 1,
        elapsed=0.0,
        setup=0.0,
    )
    return RankSummary(RankReport.of(run), counted, traversal.started)


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


def _discoveries(traversal: TraversalState, bins: tuple[Bin, ...], *, carry: bool) -> Discoveries:
    counts = traversal.levels[-1]
    return Discoveries(counts.frontier, counts.edges, counts.own + counts.sent, bins if carry else ())
