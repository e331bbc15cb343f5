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

from dbfs_workers.exchange.protocol import Cause
from dbfs_workers.reports import RankRun, RunPosition
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.labels import RankLabels
from dbfs_workers.storage.partition import Partition

if TYPE_CHECKING:
    pass

T = TypeVar("T")


@dataclass(frozen=True)
class OwnedLabels:
    """The labels of one traversal, and the client they belong to."""

    client: str
    labels: RankLabels


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
        self.kept: dict[tuple[str, int], OwnedLabels] = {}

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
    def traverse(self, partition: Partition, number: int, specs: list[TraversalSpec], deadline: float) -> list[RankRun]:
        """Take part in traversals, in the member's thread; arguments and errors as for ``levels.loop.traverse``."""

    @abstractmethod
    def position(self, number: int) -> RunPosition | None:
        """Where a run is; None where it is not under way here, or before its first level. From any thread."""

    @abstractmethod
    def fetch(self, labels: RankLabels) -> RankLabels:
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
