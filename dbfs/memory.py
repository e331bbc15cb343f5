"""What a graph takes of each worker's memory, and the refusal of what won't fit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dask.utils import format_bytes

from dbfs import config
from dbfs.errors import GraphTooLargeError
from dbfs.gang import Gang
from dbfs_workers.stripe import Stripe


@dataclass(frozen=True)
class Estimate:
    """Bytes on one rank, the edges being spread evenly.

    Attributes:
        partition: the rank's CSR, resident until the graph is unloaded.
        build_peak: the most that building takes, the partition included.
        run: a traversal with predecessors, beside the partition.
    """

    partition: int
    build_peak: int
    run: int

    @property
    def peak(self) -> int:
        """The most at any time."""
        return max(self.build_peak, self.partition + self.run)


def estimate(stripe: Stripe, directed_edges: int, piece_edges: int) -> Estimate:
    """Bytes per rank of a graph with ``directed_edges`` stored, built from pieces of ``piece_edges`` input edges."""
    m_local = -(-directed_edges // stripe.p)
    rows = stripe.n_local
    partition = 4 * m_local + 8 * (rows + 1)
    # A piece: its ids (16 bytes an edge) and both directions' bins, twice while they are copied apart; two are in hand.
    pieces = 2 * piece_edges * (16 + 2 * 2 * 8)
    build_peak = 8 * m_local + partition + 8 * rows + pieces
    # Visited bitmap, labels as they are and as they are returned (4 + 4, 4 + 8), the frontier, and the widest level:
    # every edge with its parent, what is kept of them, and the bins.
    run = 4 * stripe.words + 20 * rows + 4 * rows + 8 * m_local + 2 * 8 * min(m_local, stripe.p * rows)
    return Estimate(partition, build_peak, run)


def require_fit(gang: Gang, stripe: Stripe, directed_edges: int, piece_edges: int, name: str) -> None:
    """Refuse a graph whose build or run would pass the workers' memory limits.

    Raises:
        GraphTooLargeError: with the bytes needed and the bytes there.
    """
    needed = estimate(stripe, directed_edges, piece_edges).peak
    workers: Mapping[str, Any] = gang.client.scheduler_info(n_workers=-1)["workers"]
    share = float(config.get("build.memory-share"))
    for rank, address in enumerate(gang.addresses):
        limit = workers.get(address, {}).get("memory_limit")
        if limit and needed > share * limit:
            raise GraphTooLargeError(
                f"{name}: {stripe.n} vertices and {directed_edges} directed edges on {stripe.p} ranks need about "
                f"{needed} bytes ({format_bytes(needed)}) a rank; rank {rank} may take {int(share * limit)} bytes "
                f"({share:.0%} of its limit of {format_bytes(limit)}). More ranks or larger workers would hold it."
            )
