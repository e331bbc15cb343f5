"""Ranks that fail, wait or die at a half of an update: as they prepare the next version, or as they commit it."""

import os
import signal
import threading
from typing import Any

import distributed

from dbfs.errors import GraphTooLargeError


def at_each_half(client: distributed.Client, rank: int, half: str, doing: str) -> None:
    """Have the worker of a rank do something before its half of an update.

    Args:
        client: the cluster.
        rank: the rank.
        half: ``prepare`` or ``finish``.
        doing: ``die`` or ``fail``; ``wait``, until the next call of this function; empty for nothing any more.
    """

    def change(rank: int, half: str, doing: str, dask_worker: distributed.Worker) -> None:
        updates = dask_worker.plugins["dbfs"].changes
        vars(updates).pop(half, None)
        do = getattr(updates, half)
        if gate := vars(updates).pop("gate", None):
            gate.set()

        def doing_it(member: Any, *arguments: Any) -> Any:
            if member.rank == rank:
                if doing == "die":
                    os.kill(os.getpid(), signal.SIGKILL)
                if doing == "fail":
                    raise GraphTooLargeError(f"rank {rank} has no memory")
                updates.gate = threading.Event()
                updates.gate.wait(60)
            return do(member, *arguments)

        if doing:
            setattr(updates, half, doing_it)

    client.run(change, rank, half, doing)


def is_at_its_half(dask_worker: distributed.Worker) -> bool:
    return hasattr(dask_worker.plugins["dbfs"].changes, "gate")
