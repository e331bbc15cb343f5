"""Shortest paths by weight on a rank that runs the level loop."""

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dbfs_workers.base import compiling
from dbfs_workers.base.errors import InvalidOptionError, StaleRunError
from dbfs_workers.base.spec import RunSpec
from dbfs_workers.base.team import Team
from dbfs_workers.features.weights.kernels import NEEDED, TEAM
from dbfs_workers.features.weights.purpose import LEAST_SHARED, LEAST_THREADS, Weighted, weighted
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.members.loop import LoopRunner
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.reports import RankRun

if TYPE_CHECKING:
    from dbfs_workers.features.weights.levels import WeightLevels
    from dbfs_workers.features.weights.storage import WeightScratch


class LoopWeights(MemberPart):
    """The weights by column, and the working memory of the column that was used last: see ``MemberPart``.

    Attributes:
        weights: by column, those of the edges of one version: see ``columns``.
    """

    purpose = Weighted

    def __init__(self, runner: LoopRunner) -> None:
        self._runner = runner
        self.weights: dict[str, NDArray[Any]] = {}
        self._version = 0
        self._scratch: tuple[NDArray[Any], WeightScratch] | None = None
        self._team: Team | None = None

    def has(self, column: str, version: int) -> bool:
        """Return whether the weights of a column are those of a version's edges."""
        return version == self._version and column in self.weights

    def keep(self, column: str, weights: NDArray[Any], version: int) -> None:
        """Keep the weights of a version's edges, and forget those of versions before."""
        if version != self._version:
            self._version, self.weights = version, {}
        self.weights[column] = weights

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:
        column = weighted(specs.options).column
        if not self.has(column, partition.version):
            message = f"rank {partition.rank} has no weights {column!r} of this version; call again"
            # The peers would wait for this rank until the deadline.
            self._runner.abort(number, Cause.FAILED, message)
            raise StaleRunError(message)
        weights = self.weights[column]
        return self._runner.traverse_levels(lambda: self._levels(partition, weights), specs, deadline)

    def make_room(self, partition: Partition, specs: RunSpec, number: int, deadline: float) -> None:  # noqa: ARG002
        self._scratch = None

    def free(self) -> None:
        self._scratch = None
        self.weights.clear()
        if self._team is not None:
            self._team.close()

    def _levels(self, partition: Partition, weights: NDArray[Any]) -> "WeightLevels":
        # Few graphs have weights, so that the first run compiles.
        shared = self._runner.threads >= LEAST_THREADS and partition.stripe.n_local > LEAST_SHARED
        compiling.prepare((*NEEDED, *(TEAM if shared else ())))
        from dbfs_workers.features.weights.levels import WeightLevels
        from dbfs_workers.features.weights.storage import WeightScratch

        if shared and self._team is None:
            from dbfs_workers.features.weights.kernels.team import TASKS

            self._team = Team(self._runner.threads, TASKS)
        if self._scratch is None or self._scratch[0] is not weights:
            self._scratch = None
            self._scratch = weights, WeightScratch(partition, weights, self._team)
        return WeightLevels(self._scratch[1], self._runner.loop_exchange)


def weights_part(member: Member, partition: Any) -> LoopWeights:
    """Return a member's part for runs by weight.

    Raises:
        InvalidOptionError: the member traverses on a GPU, or its edges do not lie in stripes.
    """
    part = next((part for part in member.parts if isinstance(part, LoopWeights)), None)
    if part is None or part._runner.backend != "cpu":
        raise InvalidOptionError('shortest paths by weight run on CPUs; load the graph with backend="cpu"')
    if not isinstance(partition, Partition):
        raise InvalidOptionError(
            f"shortest paths by weight need edges in stripes, not a {type(partition).__name__}; load the graph with "
            'layout="1d"'
        )
    return part
