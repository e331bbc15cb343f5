"""Which thread makes a committed version the worker's."""

import asyncio
import threading
from collections import UserDict
from types import SimpleNamespace
from typing import Any

import pytest

from dbfs_workers.features.living.part import LoopLiving
from dbfs_workers.features.living.worker import Updates, _PreparedVersion
from dbfs_workers.search.members.loop import LoopRunner
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.partition.partition import GraphTotals
from dbfs_workers.serving.feature import WorkerView


class Store(UserDict[str, Any]):
    """A worker's store that notes which threads write to it, as dask-cuda's is one for the event loop alone."""

    threads: list[int]

    def __init__(self) -> None:
        self.threads = []
        super().__init__()

    def __setitem__(self, key: str, value: Any) -> None:
        self.threads.append(threading.get_ident())
        super().__setitem__(key, value)


@pytest.mark.parametrize("of_one_thread", [True, False])
def test_a_store_of_one_thread_is_written_by_the_event_loop(of_one_thread: bool) -> None:
    async def commit() -> None:
        loop, data = asyncio.get_running_loop(), Store() if of_one_thread else {}
        worker: Any = SimpleNamespace(data=data, loop=SimpleNamespace(asyncio_loop=loop))
        runner = LoopRunner(None)  # type: ignore[arg-type]
        member = Member(0, "partition", runner, [LoopLiving(runner)])
        view = WorkerView(worker, lambda _: member, None)  # type: ignore[arg-type]
        updates, version = Updates(view), SimpleNamespace(m_local=3)
        updates._prepared["graph"] = _PreparedVersion("run", version, None, None, None, None)  # type: ignore[arg-type]
        await asyncio.to_thread(updates.finish, member, "graph", "run", GraphTotals(3, 2, 1))
        assert data["partition"] is version
        assert member.latest is version
        if isinstance(data, Store):
            assert data.threads == [threading.get_ident()]

    asyncio.run(commit())
