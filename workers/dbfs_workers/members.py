"""A worker's part in one gang: what a run needs from one traversal to the next, on the CPU or on a GPU.

``Member`` is what the worker plugin knows; ``LoopMember`` stands here. ``CudaMember`` in ``dbfs_workers.cuda.member``
and ``StagedMember`` in ``dbfs_workers.cuda.staged`` are imported only where a gang runs on GPUs.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from dbfs_workers.exchange.comm import CommExchange
from dbfs_workers.exchange.protocol import Cause, Exchange
from dbfs_workers.partition import Partition
from dbfs_workers.scratch import Labels
from dbfs_workers.traversal import Position, RunSpec

if TYPE_CHECKING:
    from dbfs_workers import spmd

T = TypeVar("T")


@dataclass(frozen=True)
class Kept:
    """The labels of one traversal, and the client they belong to."""

    client: str
    labels: Labels


class Member(ABC):
    """This worker's part in one gang.

    Attributes:
        rank: its rank.
        partition_key: Dask key of its partition.
        number: of the run under way, or the last one.
        kept: labels of traversals, by run id and index.
    """

    def __init__(self, rank: int, partition_key: Any) -> None:
        self.rank = rank
        self.partition_key = partition_key
        # One thread: a gang's runs come one after another, and exchange and GPU belong to the thread that uses them.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="dbfs-run")
        self.number = 0
        self.kept: dict[tuple[str, int], Kept] = {}

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Do something in the member's thread, after what is under way there."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)

    def drop(self, dropped: Iterable[Sequence[Any]]) -> None:
        """Forget labels."""
        for run_id, index in dropped:
            self.kept.pop((run_id, index), None)

    def close(self) -> None:
        """End the run in progress, if any, and let go of the memory."""
        self.abort(self.number, Cause.FAILED, f"rank {self.rank} left the gang")
        self._executor.submit(self._free)
        self._executor.shutdown(wait=False)
        self.kept = {}

    @abstractmethod
    def run(self, partition: Partition, number: int, specs: list[RunSpec], deadline: float) -> "list[spmd.RankRun]":
        """Take part in traversals, in the member's thread; arguments and errors as for ``spmd.run``."""

    @abstractmethod
    def position(self, number: int) -> Position | None:
        """Where a run is; None where it is not under way here, or before its first level. From any thread."""

    @abstractmethod
    def fetch(self, labels: Labels) -> Labels:
        """A traversal's labels as NumPy arrays."""

    @abstractmethod
    def abort(self, number: int, cause: Cause, message: str) -> None:
        """Stop a run; from any thread. Later causes of the same run, and runs that are over, are ignored."""

    @abstractmethod
    def peer_lost(self, number: int, rank: int) -> None:
        """A rank's worker is gone."""

    @abstractmethod
    def _free(self) -> None:
        """Let go of the memory, in the member's thread."""


class LoopMember(Member):
    """A rank on the CPU: ``Scratch``, an exchange, and the loop of ``dbfs_workers.spmd``.

    Attributes:
        backend: name of the backend that runs the phases.
        exchange: the host's end of the exchange.
    """

    backend = "cpu"

    def __init__(self, rank: int, partition_key: Any, exchange: Exchange) -> None:
        super().__init__(rank, partition_key)
        self.exchange = exchange
        # What the loop crosses by.
        self._end = exchange
        self._scratch: Any = None
        self._watch: spmd.Watch | None = None

    def run(self, partition: Partition, number: int, specs: list[RunSpec], deadline: float) -> "list[spmd.RankRun]":
        """See ``Member``. The scratch is made by the first run."""
        from dbfs_workers import spmd
        from dbfs_workers.scratch import Scratch

        if self._scratch is None:
            self._scratch = Scratch(partition, self.backend)
        self._watch = spmd.Watch(number)
        return spmd.run(self._scratch, specs, self._end, watch=self._watch, deadline=deadline)

    def position(self, number: int) -> Position | None:
        """See ``Member``."""
        watch = self._watch
        return None if watch is None or watch.number != number else watch.position()

    def fetch(self, labels: Labels) -> Labels:
        """They are NumPy's."""
        return labels

    def abort(self, number: int, cause: Cause, message: str) -> None:
        """Stop a run on all ranks."""
        self.exchange.abort(number, cause, message)

    def peer_lost(self, number: int, rank: int) -> None:
        """Who shares memory with it sees that sooner; who waits for its message can't."""
        if isinstance(self.exchange, CommExchange):
            self.exchange.lost(number, rank)

    def _free(self) -> None:
        self.exchange.close()
        self._end = self.exchange
        self._scratch = None
