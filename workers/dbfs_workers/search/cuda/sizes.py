"""Bytes that a graph takes on its rank's GPU, computed for estimates and for checks before memory is allocated.

Not counted: CUDA's context, the kernels, and the rounding up of allocations.
"""

from typing import Final

from dbfs_workers.search.cuda.window import window_layout
from dbfs_workers.search.partition.stripe import Stripe

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
    """Return the most edges, on all ranks, of a frontier that goes through the bins."""
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


KEY = 8
"""Bytes of a directed edge during a build (``cuda.building``)."""
# Bytes an edge. A chunk has at least half of ``layout.CHUNK_EDGES`` edges, and four queues hold 8 bytes a chunk.
_CHUNKS = 1 / 8


def partition(stripe: Stripe, m_local: int, *, in_edges: bool) -> dict[str, int]:
    """Return the bytes of a partition of ``m_local`` directed edges, by part."""
    copies = 2 if in_edges else 1
    return {"row offsets": copies * 8 * (stripe.n_local + 1), "columns": copies * 4 * m_local}


def member(stripe: Stripe, m_local: int, *, bottom_up: bool) -> dict[str, int]:
    """Return the bytes of a ``ResidentRunner``'s two engines, by part: with derived arrays, without the partition."""
    rows = stripe.n_local
    capacity = bin_capacity(stripe, most_sparse_edges(stripe))
    leader = leader_capacity(stripe)
    windows = sum(window_layout(stripe, capacity, leader, predecessors).nbytes for predecessors in (False, True))
    # ``hubs`` and ``closed``.
    derived = 4 * rows + rows // 8 if bottom_up else 0
    # Per row: two queues of 4 bytes without predecessors, four with; a bit of each engine's bitmap of known vertices.
    state = (2 + 4) * 4 * rows + 2 * rows // 8 + int(_CHUNKS * m_local)
    # Common degrees: see ``DeviceGraph``.
    groups = rows // 32
    # Distances of both engines, parents of one.
    spare = (4 + 8) * rows if has_spare(stripe) else 0
    return {"windows": windows, "state": derived + groups + state + spare}


def labels(stripe: Stripe) -> int:
    """Return the bytes of one result with predecessors: distances and parents, 4 bytes a row each."""
    return 8 * stripe.n_local


def build(stripe: Stripe, m_local: int, piece_edges: int, *, in_edges: bool, ordered: bool, bands: int = 1) -> int:
    """Return the peak bytes of a build, the partition included.

    Args:
        stripe, m_local: as of ``partition``; a rank sends so many edges, and receives about as many.
        in_edges: whether a directed graph's in-edges are kept too.
        ordered: whether vertices are numbered by degree.
        bands: number of bands of the build.
    """
    copies = 2 if in_edges else 1
    side, keys = KEY * m_local // bands, copies * KEY * m_local // bands
    numbering = 8 * stripe.n if ordered else 0
    rows = sum(partition(stripe, m_local, in_edges=False).values())
    earlier = copies * rows * (bands - 1) // bands
    return max(
        # Ordering: the rank's degrees, which peers may still read; the sums; the keys; the sort's second buffer.
        4 * 8 * stripe.n if ordered else 0,
        # Binning the last piece: its ids as read and as int64, 16 bytes an edge each, beside all keys.
        earlier + keys + 2 * 16 * min(piece_edges, m_local) + numbering,
        # Merging and exchanging: all pieces' keys, and one side (edges or reversed edges) once more, merged. Of several
        # ranks, each holds all keys that it sends beside all that it receives. Beside both are the order and the
        # degrees, which peers may still read.
        earlier + keys + (keys if stripe.p > 1 else side) + 2 * numbering,
        # Sorting the first side: its second buffer beside all keys. Bins that are not freed yet: the term above.
        earlier + keys + side,
        # Making the second side's CSR: its keys beside the CSRs of both sides.
        earlier + (copies - 1) * rows // bands + rows // bands + side,
        # Joining: the rows of all bands beside one side's joined CSR.
        (copies + 1) * rows if bands > 1 else 0,
    )
