"""Ends of exchanges in the test's own process."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import distributed

from dbfs_workers.base.lines.worker_door import WorkerDoor
from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange
from dbfs_workers.search.partition.stripe import Stripe


def connect(ends: Sequence[Any]) -> None:
    """Connect the ranks of a gang, or make it usable after a failed run, as the service does."""
    offers = [end.offer() for end in ends]
    for end in ends:
        end.connect(offers)


def shared_memory(stripe: Stripe, graph_id: str = "graph", entries: int | None = None) -> list[SharedMemoryExchange]:
    """Return the connected ends of all ranks of one host."""
    ends = [SharedMemoryExchange(stripe, rank, graph_id, entries=entries) for rank in range(stripe.p)]
    connect(ends)
    return ends


def plain_door() -> WorkerDoor:
    """Return the door of a worker in this process, without TLS."""
    return WorkerDoor(SimpleNamespace(address="inproc://", security=distributed.Security()))
