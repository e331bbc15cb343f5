"""What a graph takes of each worker's memory, and the refusal of what won't fit."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dask.utils import format_bytes

from dbfs import config
from dbfs.cluster.gang import Gang
from dbfs.errors import GraphTooLargeError
from dbfs_workers.cuda import failures, sizes
from dbfs_workers.exchange import segment
from dbfs_workers.levels import scratch
from dbfs_workers.storage.stripe import Stripe

_LOOK_SECONDS = 0.1
_MOST_LOOKS = 20


@dataclass(frozen=True)
class Estimate:
    """Bytes of one rank's memory, or of its GPU's, by part, the edges being spread evenly.

    Attributes:
        partition: the rank's CSR (and that of in-edges, and the edges as read), resident until the graph is unloaded.
        build: what building takes on top of the partition, at its peak.
        run: what a traversal with predecessors by the resident engine takes on top of the partition: the state a rank
            keeps, the bins it shares, the labels of one result, and its validation where edges are kept for that.
    """

    partition: dict[str, int]
    build: dict[str, int]
    run: dict[str, int]

    @property
    def partition_bytes(self) -> int:
        """All of the partition."""
        return sum(self.partition.values())

    @property
    def peak_bytes(self) -> int:
        """The most at any time."""
        return self.partition_bytes + max(sum(self.build.values()), sum(self.run.values()))

    def __str__(self) -> str:
        parts = [
            f"{name}: {format_bytes(sum(part.values()))} "
            f"({', '.join(f'{what} {format_bytes(size)}' for what, size in part.items())})"
            for name, part in (("partition", self.partition), ("build", self.build), ("run", self.run))
        ]
        return "; ".join(parts) + f"; at most {format_bytes(self.peak_bytes)} a rank"


def estimate_bytes(
    stripe: Stripe, directed_edges: int, piece_edges: int, *, in_edges: bool, ordered: bool, kept_edges: int = 0
) -> Estimate:
    """Bytes per rank.

    Args:
        stripe: how the graph lies on the ranks.
        directed_edges: edges stored, both directions of an undirected one.
        piece_edges: edges of a piece of the edge list.
        in_edges: whether a directed graph's in-edges are kept, too.
        ordered: whether vertices are numbered by degree.
        kept_edges: edges of the input that are kept as they were read.
    """
    m_local = -(-directed_edges // stripe.p)
    rows, copies = stripe.n_local, 2 if in_edges else 1
    partition = {"row offsets": copies * 8 * (rows + 1), "columns": copies * 4 * m_local}
    build = {
        "bins": copies * 6 * m_local,
        "cursors": 8 * rows,
        # Ids (16 bytes an edge) and both directions' bins, twice while they are copied apart; two pieces are in hand.
        "pieces": 2 * piece_edges * (16 + copies * 24),
    }
    if ordered:
        build["degree order"] = 3 * 8 * stripe.n
    run = {
        "state": scratch.nbytes(stripe, bottom_up=True),
        "bins": segment.resident_nbytes(stripe, predecessors=True),
        # Distances and predecessors as the rank keeps them, and predecessors as they are handed out.
        "labels": (4 + 4 + 8) * rows,
    }
    _add_kept(partition, run, stripe, kept_edges)
    return Estimate(partition, build, run)


def estimate_device_bytes(
    stripe: Stripe,
    directed_edges: int,
    piece_edges: int,
    *,
    directed: bool,
    in_edges: bool,
    ordered: bool,
    kept_edges: int = 0,
    turns: int = 1,
) -> Estimate:
    """Bytes per rank of GPU memory; arguments as for ``estimate_bytes``, and:

    Args:
        directed: whether edges hold in one direction only.
        turns: in how many turns the graph is built.
    """
    m_local = -(-directed_edges // stripe.p)
    partition = sizes.partition(stripe, m_local, in_edges=in_edges)
    peak = sizes.build(stripe, m_local, piece_edges, in_edges=in_edges, ordered=ordered, turns=turns)
    build = {"keys": max(0, peak - sum(partition.values()))}
    run = {
        **sizes.member(stripe, m_local, bottom_up=in_edges or not directed),
        "labels": sizes.labels(stripe),
    }
    _add_kept(partition, run, stripe, kept_edges)
    return Estimate(partition, build, run)


def _add_kept(partition: dict[str, int], run: dict[str, int], stripe: Stripe, kept_edges: int) -> None:
    """Add edges that are kept, and what results are validated in: who keeps them means to."""
    if kept_edges:
        partition["input edges"] = 8 * -(-kept_edges // stripe.p)
        # Everybody's labels as words, the table of them, and a flag a vertex; this rank's in the making.
        run["validation"] = (8 + 8 + 1) * stripe.n + 16 * stripe.n_local


def require_fit(gang: Gang, stripe: Stripe, needed: Estimate, name: str) -> None:
    """Refuse a graph whose build or run would pass the workers' memory limits.

    Raises:
        GraphTooLargeError: with the bytes needed, by part, and the bytes there.
    """
    workers: Mapping[str, Any] = gang.client.scheduler_info(n_workers=-1)["workers"]
    share = float(config.get("build.memory-share"))
    for rank, address in enumerate(gang.addresses):
        limit = workers.get(address, {}).get("memory_limit")
        if limit and needed.peak_bytes > share * limit:
            raise GraphTooLargeError(
                f"{name}: {stripe.n} vertices on {stripe.p} ranks need about {needed.peak_bytes} bytes "
                f"({format_bytes(needed.peak_bytes)}) a rank; rank {rank} may take {int(share * limit)} bytes "
                f"({share:.0%} of its limit of {format_bytes(limit)}). More ranks or larger workers would hold it. "
                f"Needed: {needed}"
            )


def free_of_gpus(gang: Gang, wanted: int) -> list[int]:
    """Bytes that each rank can still take of its GPU; asked again while one has less than wanted, and that changes.

    Raises:
        WorkerLostError: a worker of the gang is gone.
        GraphTooLargeError, RunAbortedError: a GPU has no room to say it, or failed.
    """
    free, before = _free_of_gpus(gang), None
    for _ in range(_MOST_LOOKS):
        if min(free) >= wanted or free == before:
            break
        # Dask lets go of what was released some 10 ms later: a graph unloaded just now, or the bins of a build that
        # begins anew, through the host.
        time.sleep(_LOOK_SECONDS)
        free, before = _free_of_gpus(gang), free
    return free


def _free_of_gpus(gang: Gang) -> list[int]:
    try:
        found: Mapping[str, int] = gang.client.run(failures.room, workers=list(gang.addresses))
    except OSError as error:
        gang.check("looking for room on its GPU", error)
        raise
    return [found[address] for address in gang.addresses]


def too_large_for_gpus(stripe: Stripe, needed: Estimate, free: Sequence[int], name: str) -> GraphTooLargeError:
    """The error of a graph whose build or run would pass what is free on the ranks' GPUs."""
    rank = min(range(stripe.p), key=lambda rank: free[rank])
    return GraphTooLargeError(
        f"{name}: {stripe.n} vertices on {stripe.p} ranks need about {needed.peak_bytes} bytes "
        f"({format_bytes(needed.peak_bytes)}) of each GPU; rank {rank}'s has {free[rank]} bytes free "
        f"({format_bytes(free[rank])}). More ranks or larger GPUs would hold it. Needed: {needed}"
    )
