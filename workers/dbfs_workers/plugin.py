"""The worker plugin: a worker's part in each graph's gang, and the handlers by which the scheduler starts runs.

A gang is formed once for a graph: rank 0 makes the exchange, the others attach to it. A run is one call of ``run`` on
every worker of the gang; the levels are looped in a thread of their own, so that the worker's event loop goes on
answering. What a run found is put among the worker's Dask data, under keys the scheduler chose: from there on it is
fetched, counted and freed like any task's result.

Handlers answer ``{"ok": bytes}`` or ``{"error": bytes}``, pickled: an exception that left a handler would be logged
here and lose its type on the way through the scheduler.
"""

import asyncio
import functools
import logging
import pickle
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import distributed
import numpy as np
from distributed.diagnostics.plugin import WorkerPlugin
from numpy.typing import NDArray

from dbfs_workers.errors import DbfsError, StaleRunError
from dbfs_workers.exchange.comm import CommExchange
from dbfs_workers.exchange.protocol import Cause, Exchange
from dbfs_workers.partition import Partition
from dbfs_workers.post import WorkerPost
from dbfs_workers.stripe import NO_VERTEX, Stripe
from dbfs_workers.traversal import RunSpec

logger = logging.getLogger(__name__)

NAME = "dbfs"
"""Name of the plugins, on workers and on the scheduler."""

Answer = dict[str, bytes]


@dataclass(frozen=True)
class RankReport:
    """One traversal on one rank, without its labels. Fields as in ``spmd.RankRun``."""

    counts: NDArray[np.int64]
    seconds: NDArray[np.float64]
    reached: int
    edges: int
    elapsed: float
    setup: float


@dataclass(frozen=True)
class RunReport:
    """A run on one rank.

    Attributes:
        traversals: one report a traversal.
        nbytes: size of each of the label keys.
    """

    traversals: list[RankReport]
    nbytes: dict[Any, int]


class Member:
    """This worker's part in one gang.

    Attributes:
        rank: its rank.
        partition_key: Dask key of its partition.
        exchange: its end of the exchange.
    """

    def __init__(self, rank: int, partition_key: Any, exchange: Exchange) -> None:
        self.rank = rank
        self.partition_key = partition_key
        self.exchange = exchange
        # One thread: a gang's runs come one after another, and the exchange belongs to the thread that crosses it.
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="dbfs-run")
        self.scratch: Any = None
        self.number = 0

    def close(self) -> None:
        """End the run in progress, if any, and let go of the memory."""
        self.exchange.abort(self.number, Cause.FAILED, f"rank {self.rank} left the gang")
        self.executor.submit(self.exchange.close)
        self.executor.shutdown(wait=False)
        self.scratch = None


def answering(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Answer]]:
    """Make a handler answer as this module's docstring says."""

    @functools.wraps(handler)
    async def wrapper(*arguments: Any, **keywords: Any) -> Answer:
        try:
            return {"ok": pickle.dumps(await handler(*arguments, **keywords))}
        except DbfsError as error:
            return {"error": pickle.dumps(error)}
        except Exception as error:
            logger.exception("dbfs: %s failed", handler.__name__)
            return {"error": pickle.dumps(RuntimeError(f"{handler.__name__}: {type(error).__name__}: {error}"))}

    return wrapper


def unpack(answer: Answer) -> Any:
    """What a handler returned; raises what it raised."""
    if "error" in answer:
        raise pickle.loads(answer["error"])
    return pickle.loads(answer["ok"])


class WorkerService(WorkerPlugin):  # type: ignore[misc]  # distributed is untyped
    """One for each worker. Handlers are named ``dbfs_...``."""

    name = NAME

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}

    def setup(self, worker: distributed.Worker) -> None:
        """Called by Dask when the worker joins, or the plugin is installed."""
        self.worker = worker
        worker.handlers.update(
            {
                "dbfs_join": answering(self.join),
                "dbfs_leave": answering(self.leave),
                "dbfs_run_rank": answering(self.run),
                "dbfs_abort": answering(self.abort),
                "dbfs_peer_lost": answering(self.peer_lost),
                "dbfs_deliver": self.deliver,
            }
        )

    def teardown(self, worker: distributed.Worker) -> None:  # noqa: ARG002
        """Called by Dask when the worker closes."""
        for member in self.members.values():
            member.close()
        self.members = {}

    async def join(
        self,
        graph_id: str,
        rank: int,
        partition_key: Any,
        stripe: bytes,
        addresses: Sequence[str],
        handle: bytes | None,
    ) -> bytes | None:
        """Become a rank of a gang.

        Args:
            graph_id: the graph's.
            rank: this worker's rank.
            partition_key: Dask key of its partition.
            stripe: pickled ``Stripe``.
            addresses: the gang's workers, by rank.
            handle: what rank 0 returned; None for rank 0, and empty for an exchange over comms.

        Returns:
            Rank 0's handle, for the others; None on those.

        Raises:
            ExchangeUnavailableError: this worker can't share memory with rank 0.
        """
        striped: Stripe = pickle.loads(stripe)
        exchange: Exchange
        answer = None
        if handle == b"":
            post = WorkerPost(self.worker, graph_id, addresses)
            exchange = post.exchange = CommExchange(striped, rank, post)
        else:
            # Imported here: it compiles kernels, which takes the event loop's time once.
            from dbfs_workers.exchange.shared_memory import SharedMemoryExchange

            if handle is None:
                exchange = SharedMemoryExchange.create(striped)
                answer = pickle.dumps(exchange.handle)
            else:
                exchange = SharedMemoryExchange.attach(pickle.loads(handle), rank)
        if graph_id in self.members:
            self.members.pop(graph_id).close()
        self.members[graph_id] = Member(rank, _key(partition_key), exchange)
        return answer

    async def leave(self, graph_id: str) -> None:
        """Stop being a rank of a gang, if this worker is one."""
        member = self.members.pop(graph_id, None)
        if member is not None:
            member.close()

    async def run(self, graph_id: str, number: int, specs: bytes, deadline: float) -> RunReport:
        """Take part in traversals; the labels stay here under the keys of ``label_key``.

        Args:
            graph_id: the graph's.
            number: the gang's running number of this run.
            specs: pickled ``list[RunSpec]``.
            deadline: seconds the run may take.

        Raises:
            StaleRunError: this worker is no rank of that gang.
            DbfsError: see ``spmd.run``.
        """
        member = self._member(graph_id)
        member.number = number
        partition: Partition = self.worker.data[member.partition_key]
        arguments = (member, partition, number, pickle.loads(specs), time.monotonic() + deadline)
        traversals, labels = await asyncio.get_running_loop().run_in_executor(member.executor, _run, *arguments)
        nbytes = self.worker.update_data(labels)["nbytes"]
        return RunReport(traversals, nbytes)

    async def abort(self, graph_id: str, number: int, cause: int, message: str) -> None:
        """Stop a run on all ranks."""
        member = self.members.get(graph_id)
        if member is not None:
            member.exchange.abort(number, Cause(cause), message)

    async def peer_lost(self, graph_id: str, number: int, rank: int) -> None:
        """A rank's worker is gone. Who shares memory with it sees that sooner; who waits for its message can't."""
        member = self.members.get(graph_id)
        if member is not None and isinstance(member.exchange, CommExchange):
            member.exchange.lost(number, rank)

    def deliver(self, graph_id: str, message: Any) -> None:
        """Take a peer's message (``exchange.comm``)."""
        member = self.members.get(graph_id)
        # A peer's last words may come after this rank has left.
        if member is not None and isinstance(member.exchange, CommExchange):
            member.exchange.receive(WorkerPost.unwrap(message))

    def _member(self, graph_id: str) -> Member:
        member = self.members.get(graph_id)
        if member is None:
            raise StaleRunError(f"{self.worker.address} is no rank of the graph {graph_id}")
        return member


def label_key(label: str, run_id: str, index: int, rank: int) -> tuple[str, int, int]:
    """Dask key of one rank's labels: of the traversal ``index`` of a run."""
    return (f"{label}-{run_id}", index, rank)


def _run(
    member: Member, partition: Partition, number: int, specs: list[RunSpec], deadline: float
) -> tuple[list[RankReport], dict[Any, Any]]:
    from dbfs_workers import spmd
    from dbfs_workers.scratch import Scratch

    if member.scratch is None:
        member.scratch = Scratch(partition, specs[0].backend)
    stripe = partition.stripe
    owned = stripe.owned(member.rank)
    reports, labels = [], {}
    for index, (spec, done) in enumerate(
        zip(specs, spmd.run(member.scratch, specs, member.exchange, number=number, deadline=deadline), strict=True)
    ):
        labels[label_key("distances", spec.run_id, index, member.rank)] = done.labels.distances[:owned]
        if done.labels.predecessors is not None:
            ids = done.labels.predecessors[:owned]
            parents = np.where(ids == NO_VERTEX, np.int64(-1), stripe.vertex(ids.astype(np.int64)))
            labels[label_key("predecessors", spec.run_id, index, member.rank)] = parents
        reports.append(RankReport(done.counts, done.seconds, done.reached, done.edges, done.elapsed, done.setup))
    return reports, labels


def _key(sent: Any) -> Any:
    """A Dask key as it was before the comm made its tuples lists."""
    return tuple(_key(part) for part in sent) if isinstance(sent, list) else sent
