"""What a graph takes of its rank's GPU, in bytes: for checks before memory is taken, and for estimates.

CUDA's context, the kernels and what lies below the granularity of allocations are not counted.
"""

from dbfs_workers.cuda.resident import bin_capacity, leader_capacity, most_sparse_edges
from dbfs_workers.cuda.window import window_layout
from dbfs_workers.storage.stripe import Stripe

KEY = 8
"""A directed edge while it is built (``cuda.building``)."""
# Lists of large vertices are cut into chunks of at least half of ``layout.CHUNK_EDGES``, 8 bytes each, four times kept.
_CHUNKS = 1 / 8


def partition(stripe: Stripe, m_local: int, *, in_edges: bool) -> dict[str, int]:
    """A partition of ``m_local`` directed edges."""
    copies = 2 if in_edges else 1
    return {"row offsets": copies * 8 * (stripe.n_local + 1), "columns": copies * 4 * m_local}


def member(stripe: Stripe, m_local: int, *, bottom_up: bool) -> dict[str, int]:
    """Both engines of a ``CudaMember``, with what they derive from the partition; not the partition itself."""
    rows = stripe.n_local
    capacity = bin_capacity(stripe, most_sparse_edges(stripe))
    led = leader_capacity(stripe)
    windows = sum(window_layout(stripe, capacity, led, predecessors).nbytes for predecessors in (False, True))
    # An in-neighbour and a bit a row; two queues, with predecessors another two; a bit a row known.
    derived = 4 * rows + rows // 8 if bottom_up else 0
    state = (2 + 4) * 4 * rows + 2 * rows // 8 + int(_CHUNKS * m_local)
    return {"windows": windows, "state": derived + state}


def labels(stripe: Stripe) -> int:
    """One result with predecessors, kept until it is dropped."""
    return 8 * stripe.n_local


def build(stripe: Stripe, m_local: int, piece_edges: int, *, in_edges: bool, ordered: bool, turns: int = 1) -> int:
    """The peak of a build, the partition included.

    Args:
        stripe: how the graph lies on the ranks.
        m_local: directed edges of a rank, sent and received.
        piece_edges: edges of a piece.
        in_edges: whether a directed graph's in-edges are kept, too.
        ordered: whether vertices are numbered by degree.
        turns: in how many turns it is built.
    """
    copies = 2 if in_edges else 1
    side, keys = KEY * m_local // turns, copies * KEY * m_local // turns
    numbering = 8 * stripe.n if ordered else 0
    rows = sum(partition(stripe, m_local, in_edges=False).values())
    earlier = copies * rows * (turns - 1) // turns
    return max(
        # Degrees, that peers may still read, their sum, the keys of the order and the sort's second buffer.
        4 * 8 * stripe.n if ordered else 0,
        # Ids as they are read, and as int64.
        earlier + keys + 2 * 16 * min(piece_edges, m_local) + numbering,
        # One side's pieces and what they are merged to, and the other's; several ranks hold all that they send beside
        # all that they receive. Beside the numbering and the degrees that peers may still read.
        earlier + keys + (keys if stripe.p > 1 else side) + 2 * numbering,
        # The sort of one side beside the keys of the other, or what they became. Bins sent beside keys received take no
        # more than what was merged.
        earlier + keys + side,
        earlier + (copies - 1) * rows // turns + rows // turns + side,
        # The rows of all turns beside what they are joined to.
        (copies + 1) * rows if turns > 1 else 0,
    )
