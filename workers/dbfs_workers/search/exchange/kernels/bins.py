"""Where the bins of a crossing lie in the shared segment, for kernels: see ``dbfs_workers.search.exchange.segment``."""

from numba import types
from numba.extending import register_jitable

from dbfs_workers.base.jit import UINT32, allocating_kernel, int64
from dbfs_workers.search.cpu.kernels.phases import BINS, Bins
from dbfs_workers.search.exchange.kernels.barrier import END


@register_jitable
def place_of_bin(source, owner, part, tag, body_words, entries, p):
    """Return the place in the bodies of the rows (part 0), or the parents (part 1), of a bin of a crossing.

    The bins of a rank for all owners lie one behind another, from owner 0 on. ``tag`` may be the crossing alone.
    """
    return source * body_words + ((2 * part + (tag & 1)) * p + owner) * entries


@allocating_kernel(BINS, END, int64)
def bins_for(end, crossing):
    """Return a rank's bins of a crossing that is to come."""
    p = end.bin_ends.size
    size = p * end.entries
    at = place_of_bin(end.rank, 0, 0, crossing, end.body_words, end.entries, p)
    parents_at = place_of_bin(end.rank, 0, 1, crossing, end.body_words, end.entries, p)
    return Bins(end.bodies[at : at + size], end.bodies[parents_at : parents_at + size], end.bin_ends)


@allocating_kernel(types.UniTuple(UINT32, 2), END, int64, int64, int64)
def bin_from(end, source, crossing, size):
    """Return the rows and the parents of the ``size`` entries that a peer binned for this rank before a crossing."""
    p = end.bin_ends.size
    at = place_of_bin(source, end.rank, 0, crossing, end.body_words, end.entries, p)
    parents_at = place_of_bin(source, end.rank, 1, crossing, end.body_words, end.entries, p)
    return end.bodies[at : at + size], end.bodies[parents_at : parents_at + size]
