"""The tasks of the taskgraph engine, which workers run.

The engine (``dbfs.engines.taskgraph``) submits a graph of these tasks for each level. What ranks send each other goes
by mail (``tasks.mail``), so that a task depends on tasks of its own rank only. Arguments named ``_after`` only order
tasks: the task that they stand for changed the state in place.

The tasks of a level are coroutines of the worker's event loop. A level with little work runs there, which saves two
changes of threads; the work of other levels runs in a thread.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

import distributed
import numpy as np
from distributed.protocol import cuda_deserialize, cuda_serialize, register_generic
from numpy.typing import NDArray

from dbfs_workers.backends.protocol import EdgeFrontier
from dbfs_workers.levels import phases, state
from dbfs_workers.levels.bins import Bin, FrontierPart
from dbfs_workers.levels.counts import LevelCounts
from dbfs_workers.levels.state import TraversalState
from dbfs_workers.reports import COUNT_FIELDS, TIME_FIELDS, CountedLevels, RankReport, RankRun
from dbfs_workers.rpc import NAME
from dbfs_workers.spec import RunSpec, TraversalSpec
from dbfs_workers.storage.labels import UNREACHED
from dbfs_workers.storage.partition import Partition
from dbfs_workers.storage.stripe import NO_VERTEX, Stripe
from dbfs_workers.tasks.barriers import RankCounts
from dbfs_workers.tasks.mail import Post, open_box, receive, send

MOST_EDGES: Final = 20_000
"""Edges of a frontier that a task expands in the worker's event loop, in about 0.1 ms. More go to another thread."""

# Comms that carry GPU memory (UCX) then send CuPy arrays from there. Other comms copy them through the host.
register_generic(Bin, "cuda", cuda_serialize, cuda_deserialize)
register_generic(FrontierPart, "cuda", cuda_serialize, cuda_deserialize)


class LabelRooms(Protocol):
    """The worker's plugin, as these tasks use it."""

    def require_room(self, graph_id: str, stripe: Stripe, specs: RunSpec) -> None:
        """See ``WorkerService.require_room``."""
        ...


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
    """Return a rank's state before level 0.

    Raises:
        NoRoomForLabelsError: see ``label_room.require``.
        StaleRunError: the worker is not a rank of the graph.
    """
    rooms: LabelRooms = distributed.get_worker().plugins[NAME]
    rooms.require_room(graph_id, partition.stripe, RunSpec.single(spec))
    started = state.start(partition, spec)
    open_box(started)
    return started


async def expand(
    traversal: TraversalState, run_id: str, level: int, post: Post, share: bool, _after: object
) -> EdgeFrontier:
    """Return the level's edge frontier; arguments as for ``expand_filter_partition``."""
    if share:
        await share_frontier(traversal, level, post)
    return await asyncio.to_thread(phases.expand, traversal, run_id, level)


async def filter_partition(traversal: TraversalState, run_id: str, level: int, edges: EdgeFrontier, post: Post) -> None:
    """Make the level's bins, and send each to its owner."""
    await _send_bins(await asyncio.to_thread(phases.filter_partition, traversal, run_id, level, edges), post)


async def expand_filter_partition(
    traversal: TraversalState, run_id: str, level: int, post: Post, share: bool, _after: object
) -> None:
    """Run the first two phases of a level as one task, and send each bin to its owner.

    Args:
        traversal: the state.
        run_id: the run.
        level: the level.
        post: the ranks' addresses.
        share: whether the ranks send each other the frontier first, which a bottom-up level found: so a rank need not
            send vertices that the frontier has.
    """
    if share:
        await share_frontier(traversal, level, post)
    await _send_bins(await make_bins(traversal, run_id, level), post)


async def contract(traversal: TraversalState, run_id: str, level: int, post: Post, _after: object) -> None:
    """Receive this rank's bins, label their vertices, and send rank 0 the level's counts."""
    ranks = range(len(post.addresses))
    bins: list[Bin] = [await receive(post, run_id, traversal.rank, ("bin", level, source)) for source in ranks]

    def run() -> FrontierPart:
        phases.contract(traversal, run_id, level, bins)
        return phases.measure(traversal, level + 1, bits=False)

    counts, part = traversal.levels[level], await asyncio.to_thread(run)
    await send_counts(traversal, level, part, post, counts.frontier, counts.edges)


async def bottom_up(traversal: TraversalState, run_id: str, level: int, post: Post, _after: object) -> None:
    """Share the frontier, run a bottom-up level, and send rank 0 the level's counts."""
    frontier = await _exchange_frontier(traversal, level, post)
    part = await asyncio.to_thread(phases.bottom_up, traversal, run_id, level, frontier)
    await send_counts(traversal, level, part, post)


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
        version=traversal.partition.version,
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


async def make_bins(traversal: TraversalState, run_id: str, level: int) -> tuple[Bin, ...]:
    """Run the first two phases of a level, in a thread if the frontier has many edges; return the bins by owner."""

    def run() -> tuple[Bin, ...]:
        return phases.filter_partition(traversal, run_id, level, phases.expand(traversal, run_id, level))

    edges = traversal.backend.edge_count(traversal.partition, traversal.scratch.frontier)
    return await asyncio.to_thread(run) if edges > MOST_EDGES else run()


async def share_frontier(traversal: TraversalState, level: int, post: Post) -> None:
    """Mark all ranks' frontier of a level as visited."""
    frontier = await _exchange_frontier(traversal, level, post)
    await asyncio.to_thread(phases.absorb, traversal, frontier)


async def send_counts(
    traversal: TraversalState, level: int, part: FrontierPart, post: Post, expanded: int = 0, edges: int = 0
) -> None:
    """Send rank 0 the exact counts of a level; ``part`` is the rank's part of the next frontier."""
    counts = RankCounts(expanded, edges, part.count, part.degrees, part.missing, part.searched)
    await send(post, traversal.spec.run_id, 0, ("counts", level, traversal.rank), counts)


async def _exchange_frontier(traversal: TraversalState, level: int, post: Post) -> list[FrontierPart]:
    """Send the rank's part of a level's frontier to all ranks, and return the parts of all."""
    run_id, ranks = traversal.spec.run_id, range(len(post.addresses))
    own = await asyncio.to_thread(phases.measure, traversal, level, bits=True)
    assert own.bits is not None
    for rank in ranks:
        await send(post, run_id, rank, ("part", level, traversal.rank), own, own.bits.nbytes)
    return [await receive(post, run_id, traversal.rank, ("part", level, source)) for source in ranks]


async def _send_bins(bins: tuple[Bin, ...], post: Post) -> None:
    for sent in bins:
        await send(post, sent.run_id, sent.target, ("bin", sent.level, sent.source), sent, sent.nbytes)
