"""The gang: the workers that hold one graph's ranks, how tasks are pinned to them, and waits that can't hang.

A pinned task whose worker is gone waits for ever in Dask: the nanny brings the worker back under another address. So
every wait here has a deadline and looks at intervals whether the gang is whole.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import distributed
from dask._task_spec import Task, TaskRef
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dbfs import config
from dbfs.errors import DbfsError, DeadlineExceededError, WorkerLostError

Key = Hashable


@dataclass(frozen=True)
class Ref:
    """In a task's arguments: the result of the task with this key."""

    key: Key


class Deadline:
    """A moment that no wait passes."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def passed(self) -> bool:
        """Whether the moment is over."""
        return time.monotonic() > self._end


class TaskGraph:
    """Tasks of one submission, each pinned to a rank."""

    def __init__(self) -> None:
        self._ranks: dict[int, dict[Key, Task]] = {}

    def add(self, rank: int, key: Key, function: Callable[..., Any], *arguments: Any) -> Ref:
        """Add a task that calls ``function`` with plain values and the results of other tasks (``Ref``)."""
        self._ranks.setdefault(rank, {})[key] = Task(key, function, *(_argument(argument) for argument in arguments))
        return Ref(key)

    def pinned(self, addresses: Sequence[str]) -> HighLevelGraph:
        """The graph as Dask takes it."""
        layers = {
            f"rank-{rank}-{uuid.uuid4().hex}": MaterializedLayer(tasks, annotations={"workers": [addresses[rank]]})
            for rank, tasks in self._ranks.items()
        }
        return HighLevelGraph(layers, {name: set() for name in layers})


def _argument(argument: Any) -> Any:
    if isinstance(argument, Ref):
        return TaskRef(argument.key)
    if isinstance(argument, list):
        from dask._task_spec import List

        return List(*(_argument(item) for item in argument))
    return argument


@dataclass(frozen=True)
class Gang:
    """The workers of one graph in rank order.

    Attributes:
        client: a synchronous client of their cluster.
        addresses: worker addresses; index is rank.
    """

    client: distributed.Client
    addresses: tuple[str, ...]

    @property
    def p(self) -> int:
        """Number of ranks."""
        return len(self.addresses)

    def submit(self, graph: TaskGraph, keys: Iterable[Key]) -> dict[Key, distributed.Future]:
        """Start a graph; its results stay on the workers while the futures returned for ``keys`` live."""
        keys = list(keys)
        futures = self.client.get(graph.pinned(self.addresses), keys, sync=False)
        return dict(zip(keys, futures, strict=True))

    def gather(
        self, futures: Sequence[distributed.Future], deadline: Deadline, doing: Callable[[], str] | str
    ) -> list[Any]:
        """Wait for futures and fetch their results.

        Raises:
            WorkerLostError: a worker of the gang is gone.
            DeadlineExceededError: the deadline passed first.
        """
        result: list[Any] = self.client.sync(self._gather, futures, deadline, doing)
        return result

    def check(self) -> None:
        """Raise ``WorkerLostError`` if a worker of the gang is gone."""
        self.client.sync(self._check, "")

    async def _gather(
        self, futures: Sequence[distributed.Future], deadline: Deadline, doing: Callable[[], str] | str
    ) -> list[Any]:
        interval = config.seconds("liveness-interval")
        collecting = asyncio.ensure_future(self.client.gather(list(futures), asynchronous=True))
        try:
            while not (await asyncio.wait({collecting}, timeout=interval))[0]:
                await self._check(_words(doing))
                if deadline.passed:
                    raise DeadlineExceededError(f"{_words(doing)}: not done after {deadline.seconds:g} s")
            return collecting.result()  # type: ignore[no-any-return]
        except (DbfsError, asyncio.CancelledError):
            raise
        except Exception as error:
            # What Dask says of a lost worker (a cancelled future, a killed worker, a closed comm) names no rank.
            await self._check(_words(doing), error)
            raise
        finally:
            collecting.cancel()

    async def _check(self, doing: str, cause: Exception | None = None) -> None:
        where = f"{doing}: " if doing else ""
        try:
            # n_workers=-1: Dask lists only five workers otherwise.
            info: Mapping[str, Any] = await self.client.scheduler.identity(n_workers=-1)
        except OSError as error:
            raise WorkerLostError(f"{where}the scheduler at {self.client.scheduler.address} is gone") from error
        lost = [rank for rank, address in enumerate(self.addresses) if address not in info["workers"]]
        if lost:
            ranks = ", ".join(f"rank {rank} ({self.addresses[rank]})" for rank in lost)
            raise WorkerLostError(f"{where}lost {ranks}; load the graph again") from cause


def _words(doing: Callable[[], str] | str) -> str:
    return doing if isinstance(doing, str) else doing()
