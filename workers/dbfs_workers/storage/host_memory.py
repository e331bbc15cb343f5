"""The host memory that a process may still take, for reads of files and for the check that a graph fits."""

import psutil
from distributed.system import MEMORY_LIMIT


def room(limit: int | None, share: float) -> int:
    """Return the bytes that this process may still take: below 0 if the process has more than its share already.

    Args:
        limit: the process's memory limit; None or 0 for none. Then the machine's memory, or the container's, is the
            limit.
        share: share of the limit, and of the machine's available memory, that the process may take.
    """
    own = int(share * (limit or MEMORY_LIMIT)) - int(psutil.Process().memory_info().rss)
    return min(own, int(share * psutil.virtual_memory().available))
