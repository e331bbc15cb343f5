"""The workers of a cluster, as the scheduler lists them."""

from collections.abc import Mapping
from typing import Any

import distributed

from dbfs.cluster.awaiting import scheduler_of, sync
from dbfs.cluster.gang import require_connected, scheduler_lost
from dbfs.errors import LateError


def joined_workers(client: distributed.Client) -> Mapping[str, Mapping[str, Any]]:
    """Return the scheduler's description of each worker that has joined, by address.

    ``Client.scheduler_info`` has no such answer: it returns the client's copy of the last answer, and the client
    replaces that copy every two seconds by one without workers.

    Raises:
        ClientError: the client is closed, or this thread runs its event loop.
        LateError: the scheduler did not answer in time.
        SchedulerLostError: the connection to the scheduler is lost.
    """
    require_connected(client)
    try:
        identity: Mapping[str, Any] = sync(client, _identity, client)
    except LateError:
        raise
    except OSError as error:
        raise scheduler_lost(client) from error
    workers: Mapping[str, Mapping[str, Any]] = identity["workers"]
    return workers


async def _identity(client: distributed.Client) -> Mapping[str, Any]:
    # n_workers=-1 lists them all. Schedulers before Dask 2026.7.1 list only five workers by default.
    identity: Mapping[str, Any] = await scheduler_of(client).identity(n_workers=-1)
    return identity
