"""What makes the new traversals of a member: its runner, which is chosen once, as the member is made."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dbfs_workers.base.spec import RunSpec
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.reports import RankRun

if TYPE_CHECKING:
    from dbfs_workers.search.members.member import Member


class Runner(MemberPart):
    """The part of a member that makes new traversals, and has the parts of features make runs with a purpose.

    Attributes:
        member: the member, which sets itself.
        awake_seconds: how long a thread waits for the rank's next run before it sleeps; see ``Line``. 0 where the
            levels of the ranks need the cores.
        burst_seconds: about how long a burst takes. Another client waits for the end of a burst, or for the end of a
            traversal if the burst can stop there. Between two bursts threads of ranks and client wake,
            which takes ranks on CPU cores from their levels.
        answer_seconds: about how long the traversals of one answer take, while those of the next one run; 0 if a burst
            has one answer, at its end.
    """

    member: "Member"
    awake_seconds = 0.0
    burst_seconds = 0.02
    answer_seconds = 0.0

    @abstractmethod
    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> Iterable[RankRun]:
        """Take part in the traversals of a run. Called, and iterated, in the member's thread.

        Args:
            partition: this rank's edges.
            number: the gang's serial number of the run.
            specs: the traversals.
            deadline: end of all waits, in seconds of ``time.monotonic()``.

        Returns:
            The labels, counts and times of each traversal on this rank, fewer than ``specs`` if the run stopped early:
            a list, or a generator that makes the traversals as they are taken.

        Raises:
            DeadlineExceededError, RunCancelledError, RunAbortedError, WorkerLostError: the run is over on all ranks.
            StaleRunError: the number is not greater than that of the last run, or a peer is in another run.
            InvalidOptionError: a traversal is bottom-up, and the partition has no in-edges; or no part makes the run.
            NoRoomForLabelsError: the labels do not fit.
        """

    @abstractmethod
    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        """Stop a run by its next level, on this rank at least; arguments as of ``Exchange.abort``. From any thread.

        Ignored if this run was aborted before, or is over.
        """

    @abstractmethod
    def free_bytes(self) -> int:
        """Return the bytes that labels may still take in the memory of the rank's device."""

    @abstractmethod
    def pooled_bytes(self) -> int:
        """Return the bytes of released labels that the process keeps for later labels. ``free_bytes`` counts them."""

    @abstractmethod
    def fetch(self, labels: RankLabels) -> RankLabels:
        """Return labels as NumPy arrays."""
