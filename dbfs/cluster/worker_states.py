"""The states of workers, as the scheduler knows them: no worker is asked, so a late one delays no call."""

from dataclasses import dataclass

from dbfs.base.records import WorkerStatus
from dbfs_workers.serving.rpc import A_co, Message


class SchedulerMessage(Message[A_co]):
    """Base of the messages to the scheduler."""


@dataclass(frozen=True)
class ListWorkers(SchedulerMessage[list[WorkerStatus]]):
    """Return the workers in the order in which they become ranks."""


@dataclass(frozen=True)
class ListNotReady(SchedulerMessage[dict[str, tuple[WorkerStatus, ...]]]):
    """Return the late and the paused workers by graph id: those that keep the graph's runs from their ends.

    Those of the whole cluster come under an empty id.
    """

    graph_ids: tuple[str, ...]


def rank_order(address: str) -> tuple[int, str]:
    """Return a key that sorts the addresses of workers as they become ranks: by length, then alphabetically."""
    return len(address), address
