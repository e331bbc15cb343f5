"""End clusters of this process without noise: free what graphs hold before the workers leave.

Dask's own exit handler closes the workers first, and then reports the graphs on them as lost data.
"""

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator

import distributed

from dbfs_workers.quiet import not_a_lost_wait

_frees: weakref.WeakKeyDictionary[distributed.Client, Callable[[], None]] = weakref.WeakKeyDictionary()


def free_before_close(client: distributed.Client, free: Callable[[], None]) -> None:
    """Register the function that frees all graphs of a client's cluster, which must end with this process."""
    _frees[client] = free


def free(client: distributed.Client) -> None:
    """Free all graphs of a client's cluster, if one is registered and the client can still reach its scheduler."""
    registered = _frees.pop(client, None)
    if registered is not None and client.status == "running":
        # The cluster ends in any case. A failure here must not keep it from closing.
        with contextlib.suppress(Exception):
            registered()


def ends_with_process(client: distributed.Client) -> bool:
    """Return whether the client's cluster was started by this process and closes with it."""
    cluster = client.cluster
    return isinstance(cluster, distributed.SpecCluster) and cluster.shutdown_on_close


@contextlib.contextmanager
def without_log() -> Iterator[None]:
    """Drop Dask's log of this process: while a cluster closes, cut connections and slow workers are expected."""
    # Not a level of the handlers: a local cluster sets the level back to Dask's when it closes.
    handlers = list(logging.getLogger("distributed").handlers)
    for handler in handlers:
        handler.addFilter(_drop)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(_drop)


def _drop(record: logging.LogRecord) -> bool:  # noqa: ARG001
    return False


def _close_all() -> None:
    with without_log():
        for client in list(_frees):
            free(client)
            with contextlib.suppress(Exception):
                client.close()
                if client.cluster is not None:
                    client.cluster.close()


# A forked child has no part in the clusters of its parent. It could not even wait for their end.
os.register_at_fork(after_in_child=_frees.clear)

# For good, because asyncio logs a lost wait when Python frees it, which may be long after the close.
logging.getLogger("asyncio").addFilter(not_a_lost_wait)

# atexit would be too late: Python has shut down all thread pools by then, which workers within the process need.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]
