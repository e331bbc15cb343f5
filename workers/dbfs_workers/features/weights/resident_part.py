"""Shortest paths by weight on a rank whose GPU has the whole graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dbfs_workers.base.errors import DeviceFailedError, NoRoomForLabelsError, RunAbortedError, StaleRunError
from dbfs_workers.base.spec import RunSpec
from dbfs_workers.features.weights.columns import EdgeWeights
from dbfs_workers.features.weights.purpose import Weighted, weighted
from dbfs_workers.search.cuda.run import KernelAbortedError, KernelHungError
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.members.part import MemberPart
from dbfs_workers.search.members.resident import ResidentRunner
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.reports import RankRun

if TYPE_CHECKING:
    from dbfs_workers.features.weights.on_gpu import GpuSearch


class ResidentWeights(MemberPart):
    """The weights by column, on the host, and the working memory of the column that was used last.

    Attributes:
        weights: see ``LoopWeights``.
    """

    purpose = Weighted

    def __init__(self, runner: ResidentRunner) -> None:
        self._runner = runner
        self.weights: dict[str, EdgeWeights] = {}
        self._search: tuple[NDArray[Any], GpuSearch] | None = None
        # The run under way, guarded by the runner's lock.
        self._number = 0

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> Iterator[RankRun]:
        column = weighted(specs.options).column
        weights = self.weights.get(column)
        if weights is None or weights.out.size != partition.m_local:
            raise StaleRunError(f"rank {partition.rank} has no weights {column!r} of this version; call again")
        self._runner.member.require_room(partition.stripe, specs)
        search = self._search_of(partition, weights.out)
        try:
            for spec in specs:
                with self._runner.lock:
                    self._runner.raise_if_stopped(number, f"rank {partition.rank}, before its first level")
                    search.flag.word[0], self._number = 0, number
                run = search.run(spec, deadline)
                run.version = partition.version
                yield run
        except KernelAbortedError as error:
            self._runner.raise_if_stopped(number, str(error))
            raise RunAbortedError(str(error)) from error
        except KernelHungError as error:
            raise DeviceFailedError(f"{error}; restart its worker to free the GPU") from error
        finally:
            with self._runner.lock:
                self._number = 0

    def make_room(self, partition: Partition, specs: RunSpec, number: int, deadline: float) -> None:  # noqa: ARG002
        try:
            self._runner.member.require_room(partition.stripe, specs)
        except NoRoomForLabelsError:
            # The run itself says so if that is not enough.
            self._drop()

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:  # noqa: ARG002
        if self._search is not None and number == self._number:
            self._search[1].flag.word[0] = 1

    def free(self) -> None:
        self._drop()
        self.weights.clear()

    def _search_of(self, partition: Partition, weights: NDArray[Any]) -> GpuSearch:
        from dbfs_workers.features.weights.on_gpu import GpuSearch, GpuWeights

        if self._search is None or self._search[0] is not weights:
            self._drop()
            where = f"rank {partition.rank}, by weights"
            on_gpu = GpuWeights.of(weights, partition.stripe.n, where)
            self._search = weights, GpuSearch(self._runner.graph(), on_gpu, where)
        return self._search[1]

    def _drop(self) -> None:
        if self._search is not None:
            self._search[1].flag.free()
            self._search = None
