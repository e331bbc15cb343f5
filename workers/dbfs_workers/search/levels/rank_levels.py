"""What runs the levels of a rank: its steppers, made once for all traversals that are made together."""

from abc import ABC
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base import compiling
from dbfs_workers.base.jit import SMALL
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.search.backend import Backend
from dbfs_workers.search.cpu.kernels.level import top_down
from dbfs_workers.search.exchange.protocol import CrossedBy, Exchange
from dbfs_workers.search.levels import kernels
from dbfs_workers.search.levels.led_levels import LedLevels
from dbfs_workers.search.levels.level_table import LevelTable
from dbfs_workers.search.levels.queued_levels import QueuedAbsorb, QueuedBottomUp, QueuedLevels, QueuedMeasure
from dbfs_workers.search.levels.state import ABSORB, BOTTOM_UP, BY_THREADS, LED, MEASURE, TOP_DOWN, State, watch_target
from dbfs_workers.search.levels.stepper import Absorb, BottomUp, Measure, RankWork, Stepper, StripeWork, TopDown
from dbfs_workers.search.levels.top_down_levels import TopDownLevels
from dbfs_workers.search.levels.traversals import Frontier
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import RankEdges
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.stripe import own_rows
from dbfs_workers.search.reports.crossings import STOP, Start, place

_TOP_DOWN, _LED = compiling.Optional(*kernels.TOP_DOWN), compiling.Optional(*kernels.LED)
_WANTED = place(Start, "led")


class RankScratch(Frontier, Protocol):
    """What the levels ask of a rank's working memory, of any layout: see ``Scratch``."""

    @property
    def partition(self) -> RankEdges:
        """The rank's edges."""
        ...

    @property
    def xp(self) -> Any:
        """The module of all arrays, NumPy or CuPy."""
        ...

    @property
    def max_degree(self) -> int:
        """The largest degree of the rank's rows; 0 if the levels do without."""
        ...

    @property
    def frontier_bits(self) -> NDArray[np.uint32] | None:
        """The frontier as a bitmap; None without what bottom-up levels need."""
        ...

    def labels_for(self, spec: TraversalSpec) -> RankLabels:
        """Return the labels that a traversal is to write."""
        ...

    def start(self, spec: TraversalSpec, labels: RankLabels) -> object:
        """Label the sources, and make them the frontier."""
        ...


S = TypeVar("S", bound=RankScratch)


class RankLevels(ABC, Generic[S]):
    """What runs the levels of a rank, in one traversal after another.

    Args:
        scratch: this rank's working memory.
        exchange: this rank's end of the gang's exchange.
        work: what the steppers know of the traversal under way.

    Attributes:
        scratch: see above.
        steppers: what runs the levels, by what ``state.choose`` returns.
        table: the levels of the traversals.
    """

    steppers: dict[int, Stepper]
    _parents_in_bins = True

    def __init__(self, scratch: S, exchange: Exchange, work: RankWork) -> None:
        self.scratch: S = scratch
        self.table = LevelTable()
        self._exchange, self._work = exchange, work

    def start(self, spec: TraversalSpec, labels: RankLabels, state: State, *, stops: bool) -> bool:
        """Label the sources, make them the frontier, and cross.

        Args:
            spec: the traversal.
            labels: what ``scratch.labels_for`` returned.
            state: the traversal's new state; updated.
            stops: whether the run is to stop before this traversal. The value of rank 0 counts.

        Returns:
            False if the run stops.
        """
        scratch, exchange, work = self.scratch, self._exchange, self._work
        partition = scratch.partition
        targets = own_rows(partition.stripe, partition.rank, spec.targets) if spec.targets else None
        work.labels = labels
        work.target_rows = None if targets is None else scratch.xp.asarray(targets)
        exchange.reset(spec.predecessors and self._parents_in_bins)
        scratch.start(spec, labels)
        state.reached = scratch.frontier.size
        led, missing = STOP if stops else self._led_size(), work.count_missing_targets()
        own = Start(state.reached, partition.m_local, missing, max_degree=scratch.max_degree, led=led)
        start = exchange.cross(0, "start", own, sliced=False)
        wanted: list[int] = exchange.gathered[:, _WANTED].tolist()
        if wanted[0] == STOP:
            return False
        state.frontier, state.unexplored_edges, state.missing_targets = start.vertices, start.edges, start.missing
        state.max_degree = start.max_degree
        self._agree(state, wanted)
        if state.missing_targets:
            watch_target(state, work.first_witness(spec))
        return True

    def end(self, state: State) -> None:
        """End the traversal."""

    def _led_size(self) -> int:
        """Return the most vertices of a led level that this rank wants; 0 if no level can be led."""
        return 0

    def _agree(self, state: State, wanted: list[int]) -> None:
        """Agree on led levels, given what all ranks want."""


class StripeLevels(RankLevels[Scratch]):
    """The levels of a rank of the layout 1d.

    Args:
        backend: runs the phases.
        scratch: this rank's working memory.
        exchange: this rank's end of the gang's exchange.
        free_bytes: returns the bytes of memory that this process may still take.
    """

    def __init__(self, backend: Backend, scratch: Scratch, exchange: Exchange, free_bytes: Callable[[], int]) -> None:
        self.working = working = StripeWork(backend, scratch, exchange)
        super().__init__(scratch, exchange, working)
        self.steppers, self._led = _STEPPERS[exchange.crossed_by](working, exchange, free_bytes)

    def end(self, state: State) -> None:
        """See ``RankLevels``."""
        scratch, working = self.scratch, self.working
        if scratch.frontier.size:
            state.edges += working.backend.edge_count(scratch.partition, scratch.frontier)
        scratch.end(working.labels)
        if state.led_levels and self._led is not None and self._led.leads:
            self._led.learn(state, self.table)

    def _led_size(self) -> int:
        return 0 if self._led is None else self._led.wanted()

    def _agree(self, state: State, wanted: list[int]) -> None:
        if self._led is not None:
            self._led.agree(state, wanted)


_Steppers = tuple[dict[int, Stepper], LedLevels | None]


def _by_host(working: StripeWork, exchange: Exchange, free_bytes: Callable[[], int]) -> _Steppers:  # noqa: ARG001
    by_host = TopDown(working)
    steppers: dict[int, Stepper] = {
        TOP_DOWN: by_host,
        BY_THREADS: by_host,
        BOTTOM_UP: BottomUp(working),
        MEASURE: Measure(working),
        ABSORB: Absorb(working),
    }
    return steppers, None


def _by_kernels(working: StripeWork, exchange: Any, free_bytes: Callable[[], int]) -> _Steppers:
    # Until the kernel for many levels is compiled, the host directs levels, with the same crossings. On small graphs
    # the host does so until its time has paid for loading kernels.
    (steppers, led), partition = _by_host(working, exchange, free_bytes), working.scratch.partition
    size = partition.m_local + partition.stripe.n_local
    if (size > SMALL or exchange.p > 1 or top_down.signatures) and _TOP_DOWN.ready():
        steppers[TOP_DOWN] = TopDownLevels(working, exchange)
    if exchange.p > 1 and exchange.on_one_host and _LED.ready():
        steppers[LED] = led = LedLevels(working, exchange, free_bytes)
    return steppers, led


def _by_queue(working: StripeWork, exchange: Any, free_bytes: Callable[[], int]) -> _Steppers:  # noqa: ARG001
    steppers: dict[int, Stepper] = {
        TOP_DOWN: QueuedLevels(working, exchange),
        BOTTOM_UP: QueuedBottomUp(working, exchange),
        MEASURE: QueuedMeasure(working, exchange),
        ABSORB: QueuedAbsorb(working, exchange),
    }
    return steppers, None


_STEPPERS: Final = {CrossedBy.HOST: _by_host, CrossedBy.KERNELS: _by_kernels, CrossedBy.QUEUE: _by_queue}
