"""The leases of a worker, without a cluster: messages that end a lease may overlap with the next lease."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from dbfs_workers.exchange.protocol import Cause
from dbfs_workers.leases.messages import EndLease, GrantLease
from dbfs_workers.leases.worker import WorkerLeases
from dbfs_workers.lines.line import Line, new_token
from dbfs_workers.lines.worker_door import WorkerDoor


async def sent(**_: Any) -> None:
    """Stand in for the scheduler's handler."""


def test_a_late_end_of_a_lease_leaves_the_next_one_alone() -> None:
    security = SimpleNamespace(get_connection_args=lambda _: {}, get_listen_args=lambda _: {})
    worker: Any = SimpleNamespace(
        address="tcp://127.0.0.1:1",
        security=security,
        data={"key": None},
        scheduler=SimpleNamespace(dbfs_note_runs=sent),
    )
    member: Any = SimpleNamespace(
        rank=0, partition_key="key", closed=False, awake_seconds=0.0, burst_seconds=0.02, answer_seconds=0.0
    )
    tokens = [new_token(), new_token()]

    def granting(lease: int) -> GrantLease:
        return GrantLease("id", lease, "me", lease, "", tokens[lease - 1], (), (), b"", 1, 1.0, None)

    async def overlap() -> None:
        door = WorkerDoor(worker)
        leases = WorkerLeases(worker, door, None)  # type: ignore[arg-type]
        await leases.grant(granting(1), member)
        (leader, _), resume = leases._leaders["id"], threading.Event()
        idle = leader.wait_until_idle

        def slowly() -> Any:
            resume.wait(5)
            return idle()

        leader.wait_until_idle = slowly  # type: ignore[method-assign]
        late = asyncio.ensure_future(leases.end(EndLease("id", 1), member))
        await asyncio.sleep(0.05)
        leader.wait_until_idle = idle  # type: ignore[method-assign]
        await leases.end(EndLease("id", 1, Cause.CANCELLED, "by the test"), member)
        address = await leases.grant(granting(2), member)
        resume.set()
        await late
        line = await asyncio.to_thread(Line.open, address, tokens[1], None, 5.0)
        line.close()
        leases.close()
        door.close()

    asyncio.run(overlap())
