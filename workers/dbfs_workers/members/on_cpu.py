"""A worker's part in one gang: what a run needs from one traversal to the next, on the CPU or on a GPU.

``Member`` is what the worker plugin knows; ``LoopMember`` stands here. ``CudaMember`` in ``dbfs_workers.cuda.member``
and ``StagedMember`` in ``dbfs_workers.cuda.staged`` are imported only where a gang runs on GPUs.
"""

from typing import TYPE_CHECKING, Any, TypeVar

from dbfs_workers.exchange.comm import CommExchange
from dbfs_workers.exchange.protocol import Cause, Exchange
from dbfs_workers.members.member import Member
from dbfs_workers.reports import RankRun, RunPosition
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.labels import RankLabels
from dbfs_workers.storage.partition import Partition

if TYPE_CHECKING:
    from dbfs_workers.levels import loop

T = TypeVar("T")


class LoopMember(Member):
    """A rank on the CPU: ``Scratch``, an exchange, and the loop of ``dbfs_workers.levels.loop``.

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
        self._watch: loop.Watch | None = None

    def traverse(self, partition: Partition, number: int, specs: list[TraversalSpec], deadline: float) -> list[RankRun]:
        """See ``Member``. The scratch is made by the first run."""
        from dbfs_workers.levels import loop
        from dbfs_workers.levels.scratch import Scratch

        if self._scratch is None:
            self._scratch = Scratch(partition, self.backend)
        self._watch = loop.Watch(number)
        return loop.traverse(self._scratch, specs, self._end, watch=self._watch, deadline=deadline)

    def position(self, number: int) -> RunPosition | None:
        """See ``Member``."""
        watch = self._watch
        return None if watch is None or watch.number != number else watch.position()

    def fetch(self, labels: RankLabels) -> RankLabels:
        """They are NumPy's."""
        return labels

    def abort(self, number: int, cause: Cause, message: str) -> None:
        """Stop a run on all ranks."""
        self.exchange.abort(number, cause, message)

    def peer_lost(self, number: int, rank: int) -> None:
        """Who shares memory with it sees that sooner; who waits for its message can't."""
        if isinstance(self.exchange, CommExchange):
            self.exchange.peer_lost(number, rank)

    def _free(self) -> None:
        self.exchange.close()
        self._end = self.exchange
        self._scratch = None
