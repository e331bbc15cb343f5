"""Shortest paths by weight on a rank that runs the level loop."""

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dbfs_workers.base import compiling
from dbfs_workers.base.errors import StaleRunError
from dbfs_workers.base.spec import RunSpec
from dbfs_workers.base.team import Team
from dbfs_workers.features.weights.columns import EdgeWeights, Stripes
from dbfs_workers.features.weights.kernels import NEEDED, TEAM
from dbfs_workers.features.weights.purpose import LEAST_SHARED, LEAST_THREADS, Weighted, weighted
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.members.loop import LoopRunner
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.reports import RankRun

if TYPE_CHECKING:
    from dbfs_workers.features.weights.levels import WeightLevels
    from dbfs_workers.features.weights.storage import WeightScratch


class LoopWeights(MemberPart):
    """The weights by column, and the working memory of the column that was used last: see ``MemberPart``.

    The rounds are the CPU's. A rank on a GPU runs them in the host's memory, which has the weights.

    Attributes:
        weights: by column.
        stripes: the edges that they are of, if those of the graph lie in another way or on a GPU; None before the first
            column.
        goes_back: whether a search between two vertices runs from both ends.
    """

    purpose = Weighted
    goes_back = True

    def __init__(self, runner: LoopRunner) -> None:
        self._runner = runner
        self.on_host = runner.backend != "cpu"
        self.weights: dict[str, EdgeWeights] = {}
        self.stripes: Stripes | None = None
        # Of the search along the edges, and of that against them.
        self._scratch: dict[bool, tuple[NDArray[Any], WeightScratch]] = {}
        self._team: Team | None = None

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> list[RankRun]:
        column = weighted(specs.options).column
        weights = self.weights.get(column)
        if weights is None or weights.edges.version != partition.version:
            message = f"rank {partition.rank} has no weights {column!r} of this version; call again"
            # The peers would wait for this rank until the deadline.
            self._runner.abort(number, Cause.FAILED, message)
            raise StaleRunError(message)
        return self._runner.traverse_levels(lambda: self._levels(weights, specs), specs, deadline)

    def make_room(self, partition: Partition, specs: RunSpec, number: int, deadline: float) -> None:  # noqa: ARG002
        self._scratch.clear()

    def free(self) -> None:
        self._scratch.clear()
        self.weights.clear()
        self.stripes = None
        if self._team is not None:
            self._team.close()

    def _levels(self, weights: EdgeWeights, specs: RunSpec) -> "WeightLevels":
        # Few graphs have weights, so that the first run compiles.
        shared = self._runner.threads >= LEAST_THREADS and weights.edges.stripe.n_local > LEAST_SHARED
        compiling.prepare((*NEEDED, *(TEAM if shared else ())))
        from dbfs_workers.features.weights.levels import WeightLevels
        from dbfs_workers.features.weights.meeting import MeetingLevels

        if shared and self._team is None:
            from dbfs_workers.features.weights.kernels.team import TASKS

            self._team = Team(self._runner.threads, TASKS)
        ahead, exchange = self._searching(weights.edges, weights.out, back=False), self._runner.exchange.on_host()
        if weights.into is None or not weighted(specs.options).path:
            return WeightLevels(ahead, exchange)
        return MeetingLevels(ahead, self._searching(weights.edges, weights.into, back=True), exchange)

    def _searching(self, partition: Partition, weights: NDArray[Any], *, back: bool) -> "WeightScratch":
        """Return the working memory of a search by weights, which are those of its edges."""
        from dbfs_workers.features.weights.storage import WeightScratch

        if back not in self._scratch or self._scratch[back][0] is not weights:
            self._scratch.pop(back, None)
            self._scratch[back] = weights, WeightScratch(partition, weights, self._team, back=back)
        return self._scratch[back][1]
