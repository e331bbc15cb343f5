"""The room for labels: a traversal is refused if its labels, beside those that are kept, would fill a worker's memory.

Labels are not Dask data until they are published, so Dask does not spill them. Without a bound, Dask's nanny would kill
a worker that keeps too many, and all graphs of the worker would be lost.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Self

import distributed

from dbfs_workers.base.errors import NoRoomForLabelsError
from dbfs_workers.base.memory_room import MemoryRoom, room_for
from dbfs_workers.base.spec import RunSpec
from dbfs_workers.base.text import counted
from dbfs_workers.search.partition.labels import RankLabels, label_bytes
from dbfs_workers.search.partition.stripe import Stripe


class LabelRoom(MemoryRoom):
    """The memory of a worker that labels may fill: less than what makes Dask write partitions to disk."""

    @classmethod
    def of(cls, worker: distributed.Worker, share: float) -> Self:
        """Return the room on a Dask worker; ``share`` is the largest share that may be taken."""
        room = super().of(worker, share)
        spill = worker.memory_manager.memory_spill_fraction
        return replace(room, share=min(room.share, spill)) if room.limit and spill else room


def require(
    free_bytes: Callable[[], int],
    pooled_bytes: Callable[[], int],
    kept: Collection[RankLabels],
    stripe: Stripe,
    specs: RunSpec,
    following: int,
    *,
    where: str,
) -> None:
    """Refuse traversals whose labels won't fit.

    The labels of two traversals with predecessors are never refused: the check before the build has counted them.

    Args:
        free_bytes: returns the bytes that labels may take. Called only if the labels may be refused.
        pooled_bytes: returns the bytes of released labels that the process keeps for later ones. Called only then, too.
        kept: labels that the rank keeps.
        stripe: the graph's stripe.
        specs: the traversals.
        following: number of further ones.
        where: the rank and what it does, for the message.

    Raises:
        NoRoomForLabelsError: with the bytes needed and the bytes free.
    """
    options, traversals, held = specs.options, len(specs) + following, sum(labels.nbytes for labels in kept)
    purpose = options.purpose
    other = None if purpose is None else purpose.nbytes(specs, traversals, stripe.p, stripe.n_local)
    if other is not None:
        needed, what, way = other
    else:
        needed = traversals * label_bytes(stripe, predecessors=options.predecessors)
        what = f"the labels of {counted(traversals, 'traversal')}"
        way = "traverse with graph.bfs_stream, which keeps few results at a time"
    if held + needed <= 2 * label_bytes(stripe, predecessors=True):
        return
    pooled = pooled_bytes()
    # The pool of a CPU rank serves labels only.
    pool_serves = other is None or options.backend != "cpu"
    if needed <= pooled and pool_serves:
        return
    free = room_for(needed, lambda: free_bytes() - (0 if pool_serves else pooled))
    if needed > free:
        raise NoRoomForLabelsError(
            f"{where}: {what} need {needed:,} bytes, {max(0, free):,} bytes are free for labels; the rank keeps "
            f"{held:,} bytes of {len(kept):,} results of the graph. Release results (result.release()), have Dask "
            f"spill them to disk (result.publish(), if distributed.worker.memory.spill is on), unload graphs, or {way}"
        )
