"""Parts of a member whose resident kernels make traversals, and whose ranks also cross on the host."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.levels.traversals import Watch
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.search.members.resident import ResidentRunner
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange

# Entries of a bin of the barrier: the counts of a batch's sources, or the handles of arrays.
_BARRIER_ENTRIES: Final = 2**11


class CrossingPart(MemberPart):
    """A part whose ranks cross on the host.

    Attributes:
        barrier: this rank's end of the barrier; None before the first run of a rank alone.
    """

    def __init__(self, runner: ResidentRunner) -> None:
        self._runner = runner
        self.barrier: SharedMemoryExchange | None = None
        # The run whose aborts reach the barrier, guarded by the runner's lock.
        self._watch: Watch | None = None

    def make(self, partition: Partition) -> None:
        if partition.stripe.p > 1:
            self.barrier = barrier_of(partition.stripe, self._runner.member.rank, self._runner.graph_id)

    def offer(self) -> Any:
        """Return this rank's end of the barrier, which a rank alone does not offer."""
        return None if self.barrier is None else self.barrier.offer()

    def connect(self, offers: Sequence[Any]) -> None:
        if self.barrier is not None:
            self.barrier.connect(offers)

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        if self.barrier is not None and self._watch is not None and self._watch.number == number:
            self.barrier.abort(number, cause, message, rank)

    def free(self) -> None:
        if self.barrier is not None:
            self.barrier.close()

    def _watch_run(self, number: int) -> Watch:
        """Let aborts of the run reach the barrier from now on."""
        with self._runner.lock:
            self._runner.raise_if_stopped(number, f"rank {self._runner.member.rank}, before its first level")
            self._watch = Watch(number)
        return self._watch


def barrier_of(stripe: Stripe, rank: int, graph_id: str) -> "SharedMemoryExchange":
    """Return a rank's end of a barrier at which the ranks of one host cross."""
    from dbfs_workers.base import compiling
    from dbfs_workers.search.exchange.kernels import ON_ONE_HOST

    compiling.prepare(ON_ONE_HOST)
    from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange

    return SharedMemoryExchange(stripe, rank, graph_id, entries=_BARRIER_ENTRIES)
