"""Rebuilds in a game: clients bring lost graphs back by the real ``bring_back``, whose builds are simulated.

The logs of living graphs are the real ones, in a folder of the game. A worker that is killed has a successor.
"""

import asyncio
import re
import time
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from dbfs.base.records import GraphRecord
from dbfs.building.builder import BuildOptions
from dbfs.cluster.deadline import limit, of_call
from dbfs.errors import WorkerLostError
from dbfs.features.rebuild import rebuilding
from dbfs.features.rebuild.lineage import Lineage
from dbfs.features.rebuild.messages import KeepLineage, RebuildTask
from dbfs.features.saved.edges import SavedEdges
from dbfs.service import worker_calls
from dbfs.service.messages import SchedulerMessage
from dbfs_workers.features.rebuild import log, tasks
from dbfs_workers.features.rebuild.worker import VersionLogs
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.serving.rpc import PickledValue
from tests.support.simulated.fibers import to_thread
from tests.support.simulated.ranks import Rows


@dataclass(frozen=True)
class SimulatedLineage(Lineage):
    """What a graph of a game was made of: nothing."""

    def opened(self, name: str) -> Any:
        return object.__new__(SavedEdges)


LINEAGE = SimulatedLineage("a game", {}, BuildOptions(), ())


def keeping(graph_id: str) -> KeepLineage:
    """Return the message that a graph can be built again."""
    return KeepLineage(graph_id, PickledValue.of(LINEAGE), None)


class _Service:
    """A client's calls of the service: see ``ServiceClient``."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def call(self, message: SchedulerMessage[Any]) -> Any:
        asking = self.client.ask(message, of_call().last)
        return asyncio.run_coroutine_threadsafe(asking, self.client.wire.loop).result()

    def tell(self, message: SchedulerMessage[Any]) -> None:
        asyncio.run_coroutine_threadsafe(self.client.ask(message, 1.0), self.client.wire.loop)


async def bring_back(client: Any, record: GraphRecord) -> None:
    """Have a client bring a graph back, in a thread of its process; errors as of ``rebuilding.bring_back``."""
    graph = SimpleNamespace(name=record.name, record=record, gang=SimpleNamespace(client=client))
    graph.follow = lambda record, _: setattr(graph, "record", record)

    def work() -> None:
        with limit(client.deadline):
            rebuilding.bring_back(graph)  # type: ignore[arg-type]

    await to_thread(work)


def patch(patched: pytest.MonkeyPatch) -> None:
    """Have rebuilds speak to the game's processes, and build its partitions."""
    patched.setattr(rebuilding, "ServiceClient", SimpleNamespace(of=_Service))
    patched.setattr(
        rebuilding,
        "Gang",
        lambda client, addresses: SimpleNamespace(client=client, addresses=addresses, p=len(addresses)),
    )
    patched.setattr(rebuilding, "_built", _built)
    patched.setattr(rebuilding, "redone", _redone)
    patched.setattr(rebuilding, "log_of", lambda _: None)
    patched.setattr(tasks, "room_of_task", lambda _: SimpleNamespace(free_bytes=0))
    patched.setattr(tasks, "made_again", lambda rows, facts, *_: replace(rows, history=(*rows.history, facts["count"])))
    patched.setattr(log, "synced", lambda _: None)
    patched.setattr(worker_calls, "get_address_host_port", lambda address: (address, 1))
    # A game's ids have words.
    patched.setattr(log, "_DECISIONS", re.compile(r"decided-(\d{8})-(.+)"))


def close_logs(workers: list[Any]) -> None:
    """Close the files that the processes of a game have open."""
    for worker in workers:
        for feature in worker.service.features:
            if isinstance(feature, VersionLogs):
                for graph_id in [*feature._logs]:
                    feature.leave(graph_id)


def _worker(client: Any, address: str) -> Any:
    """Return the worker of an address. Raise ``WorkerLostError`` if its process is gone."""
    if address in client.wire.gone:
        raise WorkerLostError(f"lost {address} in the build")
    return client.cluster.workers[address]


def _built(gang: Any, task: RebuildTask, *_: Any) -> tuple[GraphRecord, list[Any]]:
    """See ``rebuilding._built``: the graph as it was loaded."""
    before, client, p = task.record, gang.client, gang.p
    stripe = before.stripe if p == before.stripe.p else Stripe(8 * p, p)
    keys = [*before.partition_keys] if len(task.lost) < p else [""] * p
    for rank in task.lost:
        time.sleep(client.wire.dice.choice((0.001, 0.1, 1.0)))
        keys[rank] = f"part-{task.rebuild_id}-{rank}"
        _worker(client, task.addresses[rank]).data[keys[rank]] = Rows(rank, stripe)
    client.cluster.gangs.moved(before.graph_id, task.rebuild_id)
    made: dict[str, Any] = {"graph_id": task.rebuild_id, "client": client.id, "addresses": task.addresses}
    infos = tuple(Rows(rank, stripe).info for rank in range(p))
    return replace(before, **made, stripe=stripe, partition_keys=tuple(keys), infos=infos, version=0), []


def _redone(gang: Any, record: GraphRecord, _: Any, places: Any, ranks: Any, *, anew: bool) -> Any:
    """See ``versions.redone``."""
    for rank in ranks:
        worker, key = _worker(gang.client, record.addresses[rank]), record.partition_keys[rank]
        worker.data[key] = tasks.redone(worker.data[key], record.log, places, anew, 1.0)
    return replace(record, version=len(places)), []
