"""Shortest paths by weight on a rank whose GPU has the whole graph, or maps its peers' memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from numpy.typing import NDArray

from dbfs_workers.base.errors import DeviceFailedError, NoRoomForLabelsError, RunAbortedError, StaleRunError
from dbfs_workers.base.spec import RunSpec
from dbfs_workers.features.batches.resident_part import MappingPart
from dbfs_workers.features.weights.columns import EdgeWeights
from dbfs_workers.features.weights.purpose import Weighted, weighted
from dbfs_workers.search.cuda.run import KernelAbortedError, KernelHungError
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.members.resident import ResidentRunner
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.reports import RankRun
from dbfs_workers.search.reports.crossings import Most

if TYPE_CHECKING:
    from dbfs_workers.features.weights.on_gpu import GpuSearch

_PHASE: Final = "memory of a search by weight"


class ResidentWeights(MappingPart):
    """The weights by column, on the host, and the working memory of the column that was used last.

    Attributes:
        weights, stripes, goes_back: see ``LoopWeights``. The edges are in stripes.
    """

    purpose = Weighted
    stripes = None
    goes_back = False

    def __init__(self, runner: ResidentRunner) -> None:
        super().__init__(runner)
        self.weights: dict[str, EdgeWeights] = {}
        self._search: tuple[NDArray[Any], GpuSearch] | None = None
        # The run under way, guarded by the runner's lock.
        self._number = 0

    def connect(self, offers: Sequence[Any]) -> None:
        self._drop()
        super().connect(offers)

    def traverse(self, partition: Partition, number: int, specs: RunSpec, deadline: float) -> Iterator[RankRun]:
        column = weighted(specs.options).column
        weights = self.weights.get(column)
        if weights is None or weights.out.size != partition.m_local:
            raise StaleRunError(f"rank {partition.rank} has no weights {column!r} of this version; call again")
        if partition.stripe.p > 1:
            self._begin(specs, number, deadline)
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

    def make_room(self, partition: Partition, specs: RunSpec, number: int, deadline: float) -> None:
        # Of several ranks all have it, or none. They ask each other before a run's first burst.
        several = partition.stripe.p > 1
        if self._search is None or (several and specs.options.run_id == self._runner.member.checked_run):
            return
        wanted = False
        try:
            self._runner.member.require_room(partition.stripe, specs)
        except NoRoomForLabelsError:
            # The run itself says so if that is not enough.
            wanted = True
        if several:
            self._begin(specs, number, deadline)
            wanted = self._any(wanted)
        if wanted:
            self._drop()
            if several:
                self._any(False)
                self._memory.free()

    def abort(self, number: int, cause: Cause, message: str, rank: int | None = None) -> None:
        super().abort(number, cause, message, rank)
        if self._search is not None and number == self._number:
            self._search[1].flag.word[0] = 1

    def free(self) -> None:
        self._drop()
        self.weights.clear()
        super().free()

    def _begin(self, specs: RunSpec, number: int, deadline: float) -> None:
        assert self.barrier is not None
        self._watch_run(number)
        self.barrier.begin(specs.options.run_id, number, deadline)

    def _any(self, wanted: bool) -> bool:
        """Cross, and return whether any rank wants something."""
        assert self.barrier is not None
        return bool(self.barrier.cross(0, _PHASE, Most(wanted), sliced=False).most)

    def _search_of(self, partition: Partition, weights: NDArray[Any]) -> GpuSearch:
        several = partition.stripe.p > 1
        renews = self._search is None or self._search[0] is not weights
        if self._any(renews) if several else renews:
            self._drop()
            self._search = weights, self._new_search(partition, weights)
        assert self._search is not None
        return self._search[1]

    def _new_search(self, partition: Partition, weights: NDArray[Any]) -> GpuSearch:
        from dbfs_workers.features.weights.on_gpu import Facts, GpuSearch, GpuWeights

        graph, where, barrier = self._runner.graph(), f"rank {partition.rank}, by weights", self.barrier
        facts = Facts.of(weights, graph.row_offsets)
        if barrier is None:
            return GpuSearch(graph, GpuWeights.of(weights, facts, partition.stripe.n, where), where)
        facts = barrier.cross(0, _PHASE, facts, sliced=False)
        # No rank maps the last column's memory any more.
        self._memory.free()
        on_gpu = GpuWeights.of(weights, facts, partition.stripe.n, where)
        search = GpuSearch(graph, on_gpu, where, self._memory.zeros)
        self._memory.connect(barrier, 0)
        search.connect([self._memory.address(rank, 0) for rank in range(partition.stripe.p)])
        return search

    def _drop(self) -> None:
        self._memory.unmap()
        if self._search is not None:
            self._search[1].flag.free()
            self._search = None
