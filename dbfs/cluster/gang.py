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

    def enforce(self, doing: Callable[[], str] | str) -> None:
        """Raise ``DeadlineExceededError`` if the moment is over."""
        if time.monotonic() > self._end:
            raise DeadlineExceededError(f"{_words(doing)}: not done after {self.seconds:g} s")


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
        self,
        futures: Sequence[distributed.Future],
        deadline: Deadline,
        doing: Callable[[], str] | str,
        watch: Callable[[], None] | None = None,
    ) -> list[Any]:
        """Wait for futures and fetch their results.

        Args:
            futures: the futures.
            deadline: when to give up.
            doing: what they are for, as errors say it.
            watch: called now and then while they are not done.

        Raises:
            WorkerLostError: a worker of the gang is gone.
            DeadlineExceededError: the deadline passed first.
        """
        interval = config.seconds("liveness-interval")
        # Waiting and fetching apart: Client.gather, cancelled while it waits, leaves tasks that log their exceptions.
        try:
            while not self.client.sync(self._done, futures, interval):
                self.check(_words(doing))
                deadline.enforce(doing)
                if watch is not None:
                    watch()
            result: list[Any] = self.client.sync(self._fetch, futures, interval, deadline, doing)
        except DbfsError:
            raise
        except Exception as error:
            # What Dask says of a lost worker (a cancelled future, a killed worker, a closed comm) has no rank.
            self.check(_words(doing), error)
            raise
        return result

    def on_each_rank(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Sequence[Sequence[Any]],
        deadline: Deadline,
        doing: Callable[[], str] | str,
    ) -> list[Any]:
        """Call a function once on each rank, with plain values and results there (``Ref``); its answers by rank.

        Args:
            name: of the tasks.
            function: what to call; picklable.
            arguments: by rank.
            deadline: when to give up.
            doing: what this is for, for messages.

        Raises:
            WorkerLostError, DeadlineExceededError: see ``gather``.
        """
        graph, token = TaskGraph(), uuid.uuid4().hex
        keys: list[Key] = [(f"{name}-{token}", rank) for rank in range(self.p)]
        for rank, key in enumerate(keys):
            graph.add(rank, key, function, *arguments[rank])
        futures = self.submit(graph, keys)
        try:
            return self.gather([futures[key] for key in keys], deadline, doing)
        finally:
            release(futures.values())

    def check(self, doing: str = "", cause: BaseException | None = None) -> None:
        """Raise ``WorkerLostError`` if a worker of the gang is gone."""
        self.client.sync(self._check, doing, cause)

    async def _done(self, futures: Sequence[distributed.Future], timeout: float) -> bool:
        """Whether all are, by then.

        An answer and no error: one that passes ``Client.sync`` is left in a cycle with its callers' frames, and all
        that those hold, results and their labels among it, lives on until the collector comes by.
        """
        with self.client.as_current():
            try:
                await distributed.wait(futures, timeout=timeout)
            except TimeoutError:
                return False
        return True

    async def _fetch(
        self,
        futures: Sequence[distributed.Future],
        interval: float,
        deadline: Deadline,
        doing: Callable[[], str] | str,
    ) -> list[Any]:
        fetching = asyncio.ensure_future(self.client.gather(list(futures), asynchronous=True))
        try:
            while not (await asyncio.wait({fetching}, timeout=interval))[0]:
                await self._check(_words(doing), None)
                deadline.enforce(doing)
            return fetching.result()  # type: ignore[no-any-return]
        finally:
            fetching.cancel()

    async def _check(self, doing: str, cause: BaseException | None) -> None:
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


def host_of(address: str) -> str:
    """What workers of one host have in common: a worker's address but for its port."""
    return address.rpartition(":")[0]


def release(futures: Iterable[distributed.Future]) -> None:
    """Let go of results now, also where an exception's frames still hold the futures.

    Not by ``Client.cancel``: of a task in flight that fails an assertion in Dask's scheduler.
    """
    for future in futures:
        future.release()


def _words(doing: Callable[[], str] | str) -> str:
    return doing if isinstance(doing, str) else doing()
