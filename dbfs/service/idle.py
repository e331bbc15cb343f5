"""What keeps Dask from taking a cluster with graphs for idle, and what says that Dask closed a worker all the same.

Dask sees tasks only. Between two builds a graph's workers have none, and the runs of a graph are none either.
"""

from collections.abc import Callable, Collection
from typing import Final

import distributed
from tornado.ioloop import PeriodicCallback

# Seconds between two looks of Dask at an idle scheduler.
_LOOK_SECONDS: Final = 0.25


def keep_awake(scheduler: distributed.Scheduler, in_use: Callable[[], bool]) -> None:
    """Have the time of ``distributed.scheduler.idle-timeout`` begin anew as long as a cluster is in use."""

    def look() -> None:
        if in_use():
            scheduler.idle_since = None

    if scheduler.idle_timeout:
        # The scheduler stops these when it closes.
        looks = PeriodicCallback(look, 1e3 * min(_LOOK_SECONDS, scheduler.idle_timeout / 2))
        scheduler.periodic_callbacks["dbfs-in-use"] = looks
        looks.start()


def is_retirement(stimulus_id: str) -> bool:
    """Return whether a worker left because Dask retired it, given the cause that Dask names to its plugins."""
    return stimulus_id.startswith(("retire-workers", "worker-close-gracefully"))


def explain(retired: Collection[int]) -> str:
    """Return why ranks lost their workers, given those whose workers Dask retired."""
    ranks = ", ".join(map(str, sorted(retired)))
    return (
        f"Dask retired the worker of rank {ranks}: by retire_workers(), or at the end of its lifetime" if ranks else ""
    )
