"""The repair of labels: from an earlier version of a living graph to this one, by work in proportion to the changes.

A vertex keeps its distance as long as a neighbour is one nearer to a source (its support). The repair has three phases,
as the dynamic algorithms of Ramalingam and Reps 1996 have:

1. Doubt. A deleted edge, or a parent that lost its distance, puts its child in doubt. A vertex in doubt looks for
   another support among its neighbours, and loses its distance if there is none.
2. Border. Lost vertices get offers from their neighbours that have distances, and inserted edges carry offers.
3. Search. A vertex that an offer brought nearer makes offers to its own neighbours, until nothing changes.

All phases go in rounds of one crossing each, which a kernel makes (``kernels.repair_round``). Neighbours on other ranks
take part by messages in the bins of the exchange (``kernels.repair``). Doubt has no order between distances, so a
vertex may find its support more than once. The search runs level by level (``kernels.repair_search``).

If a rank has no labels or no log of the changes, or if the repair takes too long (``repair_limits``), all ranks make a
new traversal instead.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.jit import read_only
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.living.change_log import EdgeChanges
from dbfs_workers.features.living.kernels import repair as kernels
from dbfs_workers.features.living.kernels import repair_limits
from dbfs_workers.features.living.kernels import repair_round as round_kernels
from dbfs_workers.features.living.kernels.repair_search import take_candidates
from dbfs_workers.search.exchange.protocol import Exchange
from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange
from dbfs_workers.search.levels.loop import LevelLoop
from dbfs_workers.search.partition.kernels.rows import kernel_rows
from dbfs_workers.search.partition.labels import UNREACHED, ChangedRows, RankLabels
from dbfs_workers.search.partition.partition import Partition, Rows, require_present
from dbfs_workers.search.reports import COUNT_FIELDS, TIME_FIELDS, CountedLevels, RankRun
from dbfs_workers.search.reports.counts import Largest, Total

# Edges that a rank looks at in the time of one change: it reads the change from its log and sends it to the other end.
# A repair with too many changes does not begin. Measured on a busy machine: 0.5 microseconds each (40,000 edges of a
# grid of 1,000 x 1,000).
_CHANGE_EDGES: Final = 10
# Edges that a rank looks at before it crosses again: a share of the most edges of a repair, and at least these.
_ROUND_SHARE: Final = 0.05
_ROUND_EDGES: Final = 20_000
# A call of the kernel ends after the round in which this time has passed, in nanoseconds: progress is shown then.
_LONGEST: Final = 2_000_000

_PHASES: Final = {round_kernels.DOUBT: "doubt", round_kernels.BORDER: "border", round_kernels.SEARCH: "search"}


class Earlier(NamedTuple):
    """The crossing before a repair: see ``reports.crossings``.

    Attributes:
        lacking: 1 if the rank has nothing to repair.
        nanoseconds: duration of a new traversal on the rank, as far as is known.
        reading: edges that could be looked at while the rank reads its changes.
        depth: the largest distance of the rank's labels.
    """

    lacking: Largest
    nanoseconds: Total
    reading: Total
    depth: Total


@dataclass(frozen=True)
class EarlierLabels:
    """The labels that a repair starts from, on one rank.

    Attributes:
        labels: the labels; updated in place.
        logged: number of edges in the log since then; None if the log does not reach back so far.
        changes: returns the edges deleted and the edges inserted since then.
        seconds: duration of a new traversal, as far as is known.
        depth: the largest distance of the labels.
        take: called before the first change of the labels, which belong to no version until the repair ends.
    """

    labels: RankLabels
    logged: int | None
    changes: Callable[[], tuple[EdgeChanges, EdgeChanges] | None]
    seconds: float
    depth: int
    take: Callable[[], object]


class RepairLoop:
    """One repair on one rank; see ``Traversal``. Another thread may read the attributes: see ``traversals.Watch``.

    Args:
        partition: the rank's rows, of the version to repair to.
        spec: the traversal whose labels are repaired.
        earlier: the labels; None if the rank has none.
        anew: makes the loop of a new traversal.

    Attributes:
        level: number of the round in progress.
        bottom_up: False.
        reached: 0 until the repair ends.
        scratch: the repair itself, for its ``frontier``.
        frontier: uint32, the rows that have changed so far.

    Raises:
        InvalidVertexError: a source was deleted.
    """

    def __init__(
        self,
        partition: Partition,
        spec: TraversalSpec,
        exchange: Exchange,
        earlier: EarlierLabels | None,
        anew: Callable[[], LevelLoop],
    ) -> None:
        assert isinstance(exchange, SharedMemoryExchange)
        self._began = time.perf_counter()
        require_present(partition, spec.sources)
        self.level = self.reached = self.completed = 0
        self.bottom_up = False
        self._partition = partition
        self._spec = spec
        self._exchange = exchange
        self._earlier = earlier
        self._anew = anew
        self._state = np.zeros(1, kernels.STATE)[0]
        # Pages that are never written take no memory.
        self._touched = np.empty(partition.stripe.n_local, np.uint32)
        exchange.reset(True)

    @property
    def scratch(self) -> "RepairLoop":
        return self

    @property
    def frontier(self) -> NDArray[np.uint32]:
        """See the class."""
        return self._touched[: self._state["touched"]]

    def run(self, stops: bool = False) -> bool:  # noqa: ARG002
        """Repair the labels, or traverse anew."""
        self._result = self._repaired()
        return True

    def result(self) -> RankRun:
        """Return the labels and counts of this rank, and the rows that changed."""
        return self._result

    def _repaired(self) -> RankRun:
        earlier, partition, state = self._earlier, self._partition, self._state
        whole = self._spec.max_depth is None and not self._spec.targets
        ready = whole and earlier is not None and earlier.logged is not None
        ready = ready and earlier is not None and earlier.labels.predecessors is not None
        nanoseconds = 0 if earlier is None else int(earlier.seconds * 1e9)
        reading = 0 if earlier is None else _CHANGE_EDGES * (earlier.logged or 0)
        depth = 0 if earlier is None else earlier.depth
        state["looked"] = reading
        lacking, nanoseconds, reading, depth = self._exchange.cross(
            self.level, "start", Earlier(not ready, nanoseconds, reading, depth), sliced=False
        )
        started = time.perf_counter()
        if earlier is None:
            return self._traverse_anew(None)
        p = self._exchange.p
        limits = repair_limits.of(nanoseconds, p)
        if lacking or reading > limits.most:
            return self._traverse_anew(earlier.labels.distances)
        state["first"], state["directed"] = partition.rank * partition.stripe.n_local, partition.directed
        state["blind"], state["number"] = partition.parent_rows is None, self._exchange.number
        state["crossing"], state["started"], state["depth"] = self._exchange.crossing, int(started * 1e9), depth // p
        state["most"] = max(_ROUND_EDGES, int(_ROUND_SHARE * limits.most))
        found = earlier.changes()
        assert found is not None
        earlier.take()
        rows, labels = partition.rows, self._arrays_of(earlier.labels)
        arrays = (kernel_rows(rows), kernel_rows(partition.parent_rows or rows), labels, _changes(*found))
        outcome = self._rounds(arrays, np.empty(0, np.int64), limits)
        if outcome == round_kernels.DONE:
            state["phase"], candidates = round_kernels.SEARCH, take_candidates(labels, state)
            # A search's progress shows how long the search will take. So its limit may be later than that of the doubt.
            outcome = self._rounds(arrays, candidates, limits._replace(limit=limits.budget))
        touched, before = self.frontier, labels.before[: state["touched"]]
        if outcome == round_kernels.TOO_MUCH:
            labels.distances[touched] = before
            return self._traverse_anew(labels.distances)
        self.reached, missing, depth = kernels.count(labels.distances, rows.starts, rows.ends)
        ended = time.perf_counter()
        return RankRun(
            labels=earlier.labels,
            levels=CountedLevels.of(np.empty((0, len(COUNT_FIELDS)), np.int64), np.empty((0, len(TIME_FIELDS)))),
            reached=self.reached,
            edges=partition.m_local - missing,
            depth=depth,
            elapsed=ended - started,
            setup=started - self._began,
            version=partition.version,
            changed=np.sort(touched[labels.distances[touched] != before]),
            traversal_seconds=earlier.seconds,
        )

    def _arrays_of(self, labels: RankLabels) -> kernels.Labels:
        """Return the labels, and lists of rows that are empty yet."""
        assert labels.predecessors is not None
        n_local = self._partition.stripe.n_local
        return kernels.Labels(
            distances=labels.distances,
            predecessors=labels.predecessors,
            marks=np.zeros(n_local, np.uint8),
            queue=np.empty(n_local + 1, np.uint32),
            # A row is there twice if its bin was full between two of its questions: at most one row of a round.
            waiting=np.empty(n_local + 4, np.uint32),
            lost=np.empty(n_local, np.uint32),
            touched=self._touched,
            before=np.empty(n_local, np.int32),
        )

    def _rounds(
        self,
        arrays: tuple[Rows, Rows, kernels.Labels, round_kernels.Changes],
        candidates: NDArray[np.int64],
        limits: repair_limits.Limits,
    ) -> int:
        """Make rounds until the kernel comes to an outcome, and return that. ``arrays`` come first in its arguments."""
        state, exchange = self._state, self._exchange
        state["outcome"] = round_kernels.GOING_ON
        while state["outcome"] == round_kernels.GOING_ON:
            phase = _PHASES[int(state["phase"])]
            with exchange.in_kernel():
                status, peer = round_kernels.rounds(
                    *arrays, candidates, limits, exchange.kernel_arguments, exchange.frames, _LONGEST, state
                )
                exchange.follow(int(state["crossing"]), status, peer, int(state["rounds"]), phase, round_kernels.Round)
            self.level = int(state["rounds"])
        return int(state["outcome"])

    def _traverse_anew(self, before: NDArray[np.int32] | None) -> RankRun:
        """Make a new traversal; compare with the distances before, where the rank has them."""
        traversal = self._anew()
        traversal.run()
        run = traversal.result()
        distances = run.labels.distances
        differs = distances != (UNREACHED if before is None else before)
        return replace(run, changed=ChangedRows.where(differs))


def _changes(deleted: EdgeChanges, inserted: EdgeChanges) -> round_kernels.Changes:
    return round_kernels.Changes(*map(read_only, (deleted.rows, deleted.columns, inserted.rows, inserted.columns)))
