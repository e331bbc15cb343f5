"""The gang: the workers that hold one graph's ranks, tasks pinned to them, and waits that cannot hang.

In Dask a pinned task whose worker is lost waits for ever, because the nanny restarts the worker under another address.
Therefore every wait here has a deadline, and checks at intervals that all workers of the gang are alive.
"""

import asyncio
import contextlib
import functools
import time
import uuid
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import dask
import distributed
from dask._task_spec import Task, TaskRef
from distributed.protocol.pickle import dumps
from distributed.versions import get_versions

from dbfs.base.build import build
from dbfs.cluster.awaiting import require_open, scheduler_of, sync
from dbfs.cluster.deadline import Deadline, of_call
from dbfs.errors import (
    DbfsError,
    ExchangeUnavailableError,
    LateError,
    SchedulerLostError,
    WorkerLostError,
)
from dbfs_workers.base.errors import resource_error

Key = Hashable
T = TypeVar("T")

# A busy scheduler answers late. A killed one closes its connections, which the client notices at once.
_ANSWER_SECONDS = 2.0
# Between two looks whether the scheduler has noticed that a worker is lost.
_NOTICE_SECONDS = 0.02
# Addresses of workers that only clients on the workers' host know.
_OF_THIS_HOST: Final = ("inproc://", "tcp://127.0.0.1:", "tls://127.0.0.1:")


@dataclass(frozen=True)
class Ref:
    """Stands for the result of the task with this key, in the arguments of another task."""

    key: Key


class TaskGraph:
    """The tasks of one submission, each pinned to a rank."""

    def __init__(self) -> None:
        self._ranks: dict[int, dict[Key, Task]] = {}

    def add(self, rank: int, key: Key, function: Callable[..., Any], *arguments: Any) -> Ref:
        """Add a task that calls ``function``; arguments are plain values and results of other tasks (``Ref``)."""
        self._ranks.setdefault(rank, {})[key] = Task(key, function, *(_argument(argument) for argument in arguments))
        return Ref(key)

    def pinned(self, addresses: Sequence[str]) -> "PinnedTasks":
        """Return the tasks, each rank's pinned to the address of that rank."""
        tasks = {key: task for of_rank in self._ranks.values() for key, task in of_rank.items()}
        workers = {key: [addresses[rank]] for rank, of_rank in self._ranks.items() for key in of_rank}
        return PinnedTasks(tasks, workers)


@dataclass(frozen=True)
class PinnedTasks:
    """A Dask graph as ``Client.get`` sends it to the scheduler.

    The scheduler calls the methods that Dask's own expressions have. A ``HighLevelGraph`` of a few tasks takes the
    client and the scheduler several times as long.

    Attributes:
        tasks: the tasks by key.
        workers: by key, the address of the task's worker, as a list.
    """

    tasks: dict[Key, Task]
    workers: dict[Key, list[str]]

    def __dask_graph__(self) -> dict[Key, Task]:
        return self.tasks

    def __dask_annotations__(self) -> dict[str, dict[Key, list[str]]]:
        return {"workers": self.workers}


def _argument(argument: Any) -> Any:
    if isinstance(argument, Ref):
        return TaskRef(argument.key)
    if isinstance(argument, list):
        from dask._task_spec import List

        return List(*(_argument(item) for item in argument))
    return argument


def _started_anew(client: distributed.Client) -> SchedulerLostError:
    return SchedulerLostError(
        f"the scheduler at {scheduler_of(client).address} was started anew since the graph was loaded: its graphs, "
        "their results and the runs under way are lost. Load the graph again; or open it by its name, dbfs.open(name), "
        "if the scheduler's catalog lists it (dbfs.service.catalog)"
    )


def require_same_scheduler(client: distributed.Client, before: str | None) -> None:
    """Ask which scheduler answers: one that was started anew may do so before the client has noticed that.

    Raises:
        SchedulerLostError: it is not the one of before, which has the id ``before``.
    """

    async def asked() -> str:
        found: str = (await asyncio.wait_for(scheduler_of(client).identity(n_workers=0), _ANSWER_SECONDS))["id"]
        return found

    try:
        now = sync(client, asked)
    except (OSError, TimeoutError):
        return
    # The error is an OSError itself.
    if now != before:
        raise _started_anew(client)


class Gang:
    """The workers of one graph in rank order.

    Args:
        client: a client of the workers' cluster.
        addresses: worker addresses by rank.

    Attributes:
        addresses: worker addresses by rank.
    """

    def __init__(self, client: distributed.Client, addresses: tuple[str, ...]) -> None:
        self._client = client
        self._scheduler = scheduler_id(client)
        self.addresses = addresses

    @property
    def client(self) -> distributed.Client:
        """The client of the workers' cluster.

        Raises:
            SchedulerLostError: the scheduler was started anew since this object was made, and the client reached it.
        """
        now = scheduler_id(self._client)
        # A closed client has no scheduler. What uses the client says that it is closed.
        if None not in (now, self._scheduler) and now != self._scheduler:
            raise _started_anew(self._client)
        return self._client

    def is_of(self, client: distributed.Client) -> bool:
        """Return whether this is a gang of a client and of the scheduler that the client has now."""
        return client is self._client and scheduler_id(client) == self._scheduler

    @property
    def p(self) -> int:
        """Number of ranks."""
        return len(self.addresses)

    def submit(self, graph: TaskGraph, keys: Iterable[Key]) -> dict[Key, distributed.Future]:
        """Submit a graph. Return futures by key; the results of ``keys`` stay on the workers while the futures live."""
        require_connected(self.client)
        keys = list(keys)
        with in_span():
            futures = self.client.get(graph.pinned(self.addresses), keys, sync=False)
        return dict(zip(keys, futures, strict=True))

    def compute(self, delayed: Sequence[Any]) -> list[distributed.Future]:
        """Compute ``dask.delayed`` values on workers that Dask chooses; return their futures."""
        require_connected(self.client)
        with in_span():
            return self.client.compute(delayed)  # type: ignore[no-any-return]

    def gather(
        self,
        futures: Sequence[distributed.Future],
        deadline: Deadline,
        doing: Callable[[], str] | str,
        watch: Callable[[], None] | None = None,
    ) -> list[Any]:
        """Wait for futures and fetch their results, in the order of the futures.

        Args:
            doing: the operation, named in errors; a function if its name changes during the wait.
            watch: called at intervals until all futures are done.

        Raises:
            WorkerLostError: a worker of the gang is lost.
            SchedulerLostError: the connection to the scheduler is lost.
            DeadlineExceededError: the deadline passed first.
        """
        # Wait first, then fetch: Client.gather, if cancelled during a wait, leaves tasks that log their exceptions.
        self.wait(futures, deadline, doing, watch)
        try:
            with of_call().lookout.over(self.addresses):
                return sync(self.client, self._fetch, futures, deadline, doing)
        except ExchangeUnavailableError as error:
            # Memory that can't be mapped may belong to a lost worker.
            self.check(_text(doing), error)
            raise
        except DbfsError:
            raise
        except Exception as error:
            # Dask's own error for a lost worker (cancelled future, killed worker, closed comm) names no rank.
            self.check(_text(doing), error)
            lacking = resource_error(error, f"{_text(doing)}: a worker")
            if lacking is not None:
                raise lacking from error
            raise

    def wait(
        self,
        futures: Sequence[distributed.Future],
        deadline: Deadline,
        doing: Callable[[], str] | str,
        watch: Callable[[], None] | None = None,
    ) -> None:
        """Wait until futures are done. Arguments and errors as for ``gather``."""
        try:
            with of_call().lookout.over(self.addresses):
                while not sync(self.client, self._done, futures, deadline.interval()):
                    self.check(_text(doing))
                    of_call().lookout.look(self.client)
                    deadline.enforce(doing)
                    if watch is not None:
                        watch()
        except DbfsError:
            raise
        except Exception as error:
            self.check(_text(doing), error)
            raise

    def finish(self, futures: Sequence[distributed.Future], deadline: Deadline, doing: str) -> None:
        """Wait until futures are done, and raise the error of one that failed. The results stay where they are.

        Arguments and errors as for ``gather``.
        """
        self.wait(futures, deadline, doing)
        self.gather([future for future in futures if future.status != "finished"], deadline, doing)

    def on_each_rank(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Sequence[Sequence[Any]],
        deadline: Deadline,
        doing: Callable[[], str] | str,
    ) -> list[Any]:
        """Call a function once on each rank, or on the first ones, and return its results by rank.

        Args:
            name: prefix of the tasks' keys, shown in Dask's dashboard.
            function: the function; the workers must be able to import it.
            arguments: by rank, plain values and results of tasks (``Ref``); of the first ranks only to call no others.
            doing: the operation, named in errors.

        Errors as for ``gather``.
        """
        graph, token = TaskGraph(), uuid.uuid4().hex
        keys: list[Key] = [(f"{name}-{token}", rank) for rank in range(len(arguments))]
        for rank, key in enumerate(keys):
            graph.add(rank, key, function, *arguments[rank])
        futures = self.submit(graph, keys)
        try:
            return self.gather([futures[key] for key in keys], deadline, doing)
        finally:
            release(futures.values())

    def run(self, function: Callable[..., T], doing: str) -> list[T]:
        """Call a function on each rank's worker beside its tasks, by ``Client.run``; return the results by rank.

        Dask tries for half a minute to reach a worker that has left; this wait ends before. Errors as for ``gather``.
        """
        deadline = of_call()
        try:
            with deadline.lookout.over(self.addresses):
                return sync(self.client, self._run, function, deadline, doing)
        except DbfsError:
            raise
        except OSError as error:
            self._raise_lost(doing, error)
            raise

    def strayed(self, futures: Sequence[Sequence[distributed.Future]], deadline: Deadline, doing: str) -> bool:
        """Return whether a rank's result is on another worker, in place of the rank's own or beside that.

        A task on another worker that takes a result leaves two copies, of which Dask keeps either.

        Args:
            futures: of each kind of result, the futures by rank.
            deadline, doing: as of ``gather``, as are the errors.
        """
        try:
            return sync(self.client, self._strayed, futures, deadline, doing)
        except OSError as error:
            self._raise_lost(doing, error)
            raise

    def send(self, rank: int, value: Any, doing: str) -> distributed.Future:
        """Send a value to the worker of a rank, not by way of the scheduler. Errors as for ``check``."""
        try:
            (future,) = self.client.scatter([value], workers=[self.addresses[rank]], hash=False)
        except KeyError as error:
            # Dask knows no such worker any more.
            self.check(doing, error)
            raise
        return future

    def check(self, doing: str = "", cause: BaseException | None = None) -> None:
        """Raise ``WorkerLostError`` if a worker of the gang is lost, ``SchedulerLostError`` if the scheduler is."""
        sync(self.client, self._check, doing, cause, of_call().last)

    def _raise_lost(self, doing: str, error: OSError) -> None:
        """Raise as ``check``. A worker's connections break one by one, and one of the scheduler's may be the first."""
        end = time.monotonic() + min(_ANSWER_SECONDS, of_call().last)
        self.check(doing, error)
        while time.monotonic() < end:
            time.sleep(_NOTICE_SECONDS)
            self.check(doing, error)

    async def _done(self, futures: Sequence[distributed.Future], timeout: float) -> bool:
        """Return whether all futures finished within ``timeout`` seconds.

        Returns False instead of raising: an exception that passes ``Client.sync`` forms a cycle with its callers'
        frames. Everything that the frames hold, results and their labels included, would live until the next garbage
        collection.
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
        deadline: Deadline,
        doing: Callable[[], str] | str,
    ) -> list[Any]:
        # By way of the scheduler results take 2 to 10 times as long. A client may not reach workers on other hosts.
        near = True if all(address.startswith(_OF_THIS_HOST) for address in self.addresses) else None
        fetching = self.client.gather(list(futures), direct=near, asynchronous=True)
        found: list[Any] = await self._unless_lost(fetching, deadline, doing)
        return found

    async def _run(self, function: Callable[..., T], deadline: Deadline, doing: str) -> list[T]:
        run = functools.partial(self.client.run, function, workers=list(self.addresses))
        found: dict[str, T] = await self._unless_lost(run(), deadline, doing)
        return [found[address] for address in self.addresses]

    async def _strayed(self, futures: Sequence[Sequence[distributed.Future]], deadline: Deadline, doing: str) -> bool:
        places = {future.key: (address,) for of in futures for address, future in zip(self.addresses, of, strict=True)}
        asking = scheduler_of(self.client).who_has(keys=[*places])
        found: dict[Key, Sequence[str]] = await self._unless_lost(asking, deadline, doing)
        return any(tuple(found[key]) not in ((), place) for key, place in places.items())

    async def _unless_lost(self, answer: Awaitable[T], deadline: Deadline, doing: Callable[[], str] | str) -> T:
        """Wait for an answer as long as all workers are there, and no longer than the deadline."""
        waiting = asyncio.ensure_future(answer)
        try:
            while not (await asyncio.wait({waiting}, timeout=deadline.interval()))[0]:
                await self._check(_text(doing), None, deadline.last)
                deadline.enforce(doing)
            return waiting.result()
        finally:
            waiting.cancel()

    async def _check(self, doing: str, cause: BaseException | None, seconds: float) -> None:
        where = f"{doing}: " if doing else ""
        try:
            if self.client.status != "running":
                # The client noticed the loss, and would try to connect again for half a minute. The futures are lost.
                raise ConnectionError(f"the client is {self.client.status}")
            # n_workers=-1, because Dask lists only five workers by default.
            asking = self.client.scheduler.identity(n_workers=-1)
            info: Mapping[str, Any] = await asyncio.wait_for(asking, min(_ANSWER_SECONDS, seconds))
        except TimeoutError:
            # The scheduler is busy, or its host fell silent, which the client will notice. The wait has a deadline.
            return
        except OSError as error:
            raise scheduler_lost(self.client, doing) from error
        lost = [rank for rank, address in enumerate(self.addresses) if address not in info["workers"]]
        if lost:
            ranks = ", ".join(f"rank {rank} ({self.addresses[rank]})" for rank in lost)
            raise WorkerLostError(f"{where}lost {ranks}; load the graph again") from cause


def run_on(
    client: distributed.Client,
    function: Callable[..., T],
    *arguments: Any,
    workers: Sequence[str],
    **options: Any,
) -> dict[str, T]:
    """Call a function on workers beside their tasks, by ``Client.run``; return the results by address.

    Raises:
        LateError: a worker, or the scheduler, did not answer in time.
        OSError: the connection to a worker broke.
        Exception: the function raised it.
    """
    with of_call().lookout.over(workers):
        return sync(client, functools.partial(client.run, function, *arguments, workers=list(workers), **options))


async def run_within(
    seconds: float, client: distributed.Client, function: Callable[..., T], *arguments: Any, workers: Sequence[str]
) -> dict[str, T]:
    """Call a function on workers as ``run_on``, in the client's event loop; return the results by address.

    Raise ``TimeoutError`` if a worker did not answer within ``seconds``; other errors as for ``run_on``.
    """
    run = functools.partial(client.run, function, *arguments, workers=list(workers))
    async with asyncio.timeout(seconds):
        found: dict[str, T] = await run()
    return found


async def answers_within(
    seconds: float, client: distributed.Client, function: Callable[..., T], *arguments: Any, workers: Sequence[str]
) -> dict[str, T]:
    """Call a function on workers as ``run_on``, in the client's event loop; return what came within ``seconds``.

    A worker that is stopped, or that left, delays no other.
    """

    async def ask(address: str) -> dict[str, T]:
        run = functools.partial(client.run, function, *arguments, workers=[address])
        async with asyncio.timeout(seconds):
            answers: dict[str, T] = await run()
            return answers

    found: dict[str, T] = {}
    for answer in await asyncio.gather(*map(ask, workers), return_exceptions=True):
        if isinstance(answer, dict):
            found |= answer
        elif not isinstance(answer, OSError):
            raise answer
    return found


def host_of(address: str) -> str:
    """Return a worker's address without its port, which is the same for all workers of one host."""
    return address.rpartition(":")[0]


def require_connected(client: distributed.Client) -> None:
    """Raise ``ClientError`` if a client is closed, ``SchedulerLostError`` if it lost its scheduler."""
    require_open(client)
    # An asynchronous client that was not awaited has had no scheduler yet.
    if client.status == "connecting" and client.scheduler is not None:
        # The client would try for half a minute. The graphs are lost even if the scheduler answers again.
        raise scheduler_lost(client)


def scheduler_id(client: distributed.Client) -> str | None:
    """Return the id of the scheduler process that a client is connected to, or was last; no message is sent.

    None for an asynchronous client that was not awaited. Dask's client reads the id whenever it connects.
    """
    identity: Mapping[str, str] = client._scheduler_identity
    return identity.get("id")


def scheduler_lost(client: distributed.Client, doing: str = "") -> SchedulerLostError:
    """Return the error for a scheduler that does not answer any more; ``doing`` goes into the message.

    Raise ``ClientError`` if the connection ended because the client was closed.
    """
    where = f"{doing}: " if doing else ""
    address = scheduler_of(client).address
    return SchedulerLostError(
        f"{where}lost the connection to the scheduler at {address}; connect to a running scheduler and load again"
    )


def release(futures: Iterable[distributed.Future]) -> None:
    """Release results at once, even if an exception's frames still hold the futures.

    ``Client.cancel`` is no alternative: for a task in flight it fails an assertion in Dask's scheduler.
    """
    for future in futures:
        future.release()


def _text(doing: Callable[[], str] | str) -> str:
    return doing if isinstance(doing, str) else doing()


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
        return sync(client, identified_workers, client)
    except LateError:
        raise
    except OSError as error:
        raise scheduler_lost(client) from error


async def identified_workers(client: distributed.Client) -> Mapping[str, Mapping[str, Any]]:
    """Return the same as ``joined_workers``, in the client's event loop; errors of Dask's as they are."""
    # n_workers=-1 lists them all. Schedulers before Dask 2026.7.1 list only five workers by default.
    identity: Mapping[str, Any] = await scheduler_of(client).identity(n_workers=-1)
    workers: Mapping[str, Mapping[str, Any]] = identity["workers"]
    return workers


async def versions_of(client: distributed.Client, packages: Sequence[str]) -> dict[str, Any]:
    """Return the versions of some packages as ``Client.get_versions``, of the workers that answer soon.

    ``Client.get_versions`` waits for each worker without an end. The version of dbfs is that of ``build``, as far as a
    process can tell. Raise ``OSError`` if the scheduler is lost.
    """
    scheduler = scheduler_of(client)
    own: dict[str, Any] = get_versions(packages=packages)
    # Of another version a process may not have this function.
    version, asked_build = own["packages"].get("dbfs"), {"function": dumps(build)}

    async def of_worker(address: str) -> dict[str, Any]:
        def ask(message: dict[str, Any]) -> Any:
            return scheduler.broadcast(msg=message, workers=[address], on_error="ignore")

        answer: dict[str, Any] = await ask({"op": "versions", "packages": list(packages)})
        for info in answer.values():
            if version is not None and info["packages"]["dbfs"] == version:
                told = await ask({"op": "run", **asked_build})
                _with_build(info, told.get(address, {}))
        return answer

    asking = {asyncio.ensure_future(of_worker(address)) for address in await identified_workers(client)}
    workers: dict[str, Any] = {}
    try:
        while asking:
            done, asking = await asyncio.wait(asking, timeout=_ANSWER_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for answered in done:
                workers |= answered.result()
        of_scheduler = await scheduler.versions(packages=packages)
        if version is not None and of_scheduler["packages"]["dbfs"] == version:
            with contextlib.suppress(ImportError):
                _with_build(of_scheduler, await scheduler.run_function(**asked_build))
        return {"client": _with_build(own, {"result": build()}), "scheduler": of_scheduler, "workers": workers}
    finally:
        for late in asking:
            late.cancel()


def _with_build(info: dict[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """Put the build that a process told into its versions; none if the process could not tell."""
    info["packages"]["dbfs"] = told.get("result", info["packages"]["dbfs"])
    return info


SPAN: Final = "dbfs"
"""Name and id of the span of dbfs's tasks: Dask keeps metrics of tasks by span.

Dask opens a new span whenever an idle cluster gets tasks without one. The scheduler keeps every span and its groups of
tasks for ever, and workers keep the metrics of every span. Therefore all tasks of dbfs have one span, and the scheduler
forgets the groups of that span that are over.
"""

# Groups that are over may stay until there are so many more than groups in use: then looking for them costs little.
_GROUPS_OVER: Final = 100


def in_span() -> AbstractContextManager[Any]:
    """Return a context for submitting tasks. If the caller opened a span of Dask's, the tasks belong to that span."""
    own: AbstractContextManager[Any] = dask.annotate(span={"name": (SPAN,), "ids": (SPAN,)})
    return nullcontext() if "span" in dask.get_annotations() else own


def tidy(scheduler: distributed.Scheduler, tasks: Iterable[Any], annotations: Mapping[str, Any]) -> None:
    """Keep what the scheduler records of dbfs's tasks bounded.

    Args:
        scheduler: the scheduler, which has just taken tasks of any client.
        tasks: keys of these tasks, and of those that they depend on.
        annotations: annotations of these tasks.
    """
    spans = scheduler.extensions.get("spans")
    own = None if spans is None else spans.spans.get(SPAN)
    if own is None or not any(span["ids"] == (SPAN,) for span in annotations.get("span", {}).values()):
        return
    # Scattered data has no annotations, so Dask opens a span for it. No worker reports metrics of such a span, because
    # its tasks do not run.
    touched = [scheduler.tasks[key] for key in tasks]
    data = {task.group for task in touched if task.run_spec is None and not task.group.start}
    for other in {spans.spans[group.span_id] for group in data} - {own}:
        if other.name == ("default",) and other.groups <= data:
            for group in other.groups:
                group.span_id = SPAN
            own.groups |= other.groups
            del spans.spans[other.id]
            by_name, by_tag = spans.spans_search_by_name[other.name], spans.spans_search_by_tag[other.name[0]]
            for listed in (spans.root_spans, by_name, by_tag):
                listed.remove(other)
    if len(own.groups) > len(scheduler.task_groups) + _GROUPS_OVER:
        own.groups.intersection_update(scheduler.task_groups.values())
        # One entry for each submission, all alike.
        own.metadata["collections"].clear()
