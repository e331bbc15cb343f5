"""What makes some of the runs of a rank's member, and what it keeps there between runs."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from dbfs_workers.base.spec import Purpose, RunSpec
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.reports import RankProgress, RankRun


class MemberPart(ABC):
    """A part of a member: its runner, or what a feature has there. Those of features get the runner as they are made.

    All ranks of a gang have the same parts. The member's thread calls the methods, unless they say otherwise.

    Attributes:
        purpose: the class of the runs that a feature's part makes; () for none.
        on_host: whether these runs compute on the CPU, in the host's memory, though the rank is on a GPU.
    """

    purpose: ClassVar[type[Purpose] | tuple[()]] = ()
    on_host = False

    def make(self, partition: Partition) -> None:  # noqa: B027 - most parts make what they need in their first run
        """Make ready to offer and to run, on a GPU. Errors as for ``Member.make``."""

    def offer(self) -> Any:
        """Return what peers need to reach this part: see ``Member.offer``."""
        return None

    def connect(self, offers: Sequence[Any]) -> None:  # noqa: B027 - most parts reach no peers
        """Reach the peers, given the offers of all ranks' parts. After a failed run this also clears its state."""

    def disconnect(self) -> None:  # noqa: B027
        """Unmap the peers' GPU memory: see ``Member.disconnect``."""

    def make_room(  # noqa: B027 - most parts keep little
        self, partition: Partition, specs: RunSpec, number: int, deadline: float
    ) -> None:
        """Free memory for a run that the part does not make, if a rank needs that; arguments as of ``traverse``."""

    @abstractmethod
    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> Iterable[RankRun]:
        """Make the traversals of a run of the part's purpose; see ``Runner.traverse``."""

    def progress(self, number: int) -> RankProgress | None:  # noqa: ARG002
        """Return how far a run of the part is; see ``Member.progress``."""
        return None

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:  # noqa: B027
        """Stop a run that crosses in another way than the runner's; arguments as of ``Runner.abort``.

        Called with the runner's lock, from any thread.
        """

    def free(self) -> None:  # noqa: B027
        """Release the memory."""
