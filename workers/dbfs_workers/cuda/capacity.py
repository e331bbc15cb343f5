"""Room for the ids of a level in the resident engine: bins and the leader's queue. Which engines hold spare labels."""

from typing import Final

from dbfs_workers.storage.stripe import Stripe

# Measured: docs/decisions/light-levels.md and leader-levels.md.
# Bins hold an eighth of the vertices. In graphs with large degrees a dense level is faster from a 64th on.
CAPACITY_SHARE: Final = 8
SPARSE_SHARE: Final = 64
# Largest degree of a graph whose levels may be light.
LIGHT_DEGREE: Final = 32
SPARSE_EDGES_LEAST: Final = 1 << 16
# Most rows of a rank whose engines hold spare arrays.
SPARE_ROWS: Final = 1 << 26
# Longest frontier of a leader level.
LEADER_VERTICES: Final = 1 << 14


def most_sparse_edges(stripe: Stripe) -> int:
    """Return the default of ``sparse_edges``: most edges of a frontier that goes through the bins."""
    return max(SPARSE_EDGES_LEAST, stripe.n // CAPACITY_SHARE)


def bin_capacity(stripe: Stripe, sparse_edges: int) -> int:
    """Return the number of ids that a bin has room for.

    A rank sends a vertex at most once in a run, and in a sparse level at most one vertex per frontier edge.
    """
    return max(1, min(stripe.n_local, sparse_edges))


def leader_capacity(stripe: Stripe) -> int:
    """Return the number of ids that a leader level's queue has room for: most discoveries of the longest frontier."""
    return min(stripe.n, LEADER_VERTICES * LIGHT_DEGREE)


def has_spare(stripe: Stripe) -> bool:
    """Return whether an engine holds arrays for the labels of the next run. Long runs need not save the allocation."""
    return stripe.n_local <= SPARE_ROWS
