"""Bytes that a rank of a 2-D partition takes on its GPU, as those in ``search.cuda.sizes``."""

from dbfs_workers.features.grid import scratch
from dbfs_workers.features.grid.grid import Grid
from dbfs_workers.search.cuda.communicator import HEADER, INLINE
from dbfs_workers.search.partition.stripe import Stripe


def run_on_gpu(stripe: Stripe, grid: Grid, *, bottom_up: bool) -> dict[str, int]:
    """Return the bytes of a rank by part, the partition and labels excluded."""
    # A search's places, their first edges, degrees and the sums of these. Of the row, a peer's list, and the bits of a
    # message with their counts and the sums of these; or a flag a row and the rows by finder.
    level = stripe.n_local * (grid.rows * (4 + 3 * 8) + 2 * 4) + stripe.words_local * (2 * 4 + 2 * 8)
    # Messages of either parity, if the peers map them; by NCCL those sent and received, and the headers.
    places = 2 * 4 * grid.bin_entries(stripe) + 8 * (HEADER + INLINE)
    messages = stripe.p * places if stripe.p > 1 else 0
    return {"state": scratch.nbytes(stripe, grid, bottom_up=bottom_up), "levels": level, "messages": messages}
