"""The repair of labels: from an earlier version of a living graph to this one, by work in proportion to the changes.

A vertex keeps its distance as long as a neighbour is one nearer to a source (its support). The repair has two parts, as
the dynamic algorithms of Ramalingam and Reps 1996 have:

1. Doubt. A deleted edge, or a parent that lost its distance, puts its child in doubt. A vertex in doubt looks for
   another support among its neighbours, and loses its distance if there is none.
2. Search. Lost vertices get offers from their neighbours that have distances, and inserted edges carry offers. A vertex
   that an offer brings nearer makes offers to its own neighbours, until nothing changes.

Doubt runs in rounds without order between distances, so a vertex may find its support more than once. The search runs
level by level (``repair_search_kernels``). Neighbours on other ranks take part by messages in the bins of the exchange
(``repair_kernels``). A round, or a level, has one crossing. Ranks that cross in memory make their rounds in a kernel
(``repair_round_kernels``).

If a rank has no labels or no log of the changes, or if the repair takes too long (``repair_limits``), all ranks make a
new traversal instead.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.exchange.protocol import Exchange
from dbfs_workers.exchange.shared_memory import SharedMemoryExchange
from dbfs_workers.levels import repair_kernels as kernels
from dbfs_workers.levels import repair_limits as limits
from dbfs_workers.levels import repair_round_kernels as round_kernels
from dbfs_workers.levels import repair_search_kernels as search_kernels
from dbfs_workers.levels.loop import LevelLoop
from dbfs_workers.reports import COUNT_FIELDS, TIME_FIELDS, CountedLevels, RankRun
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.change_log import EdgeChanges
from dbfs_workers.storage.labels import UNREACHED, ChangedRows, RankLabels
from dbfs_workers.storage.partition import Partition, Rows, require_present

# Edges that could be looked at in the time of a crossing from Python.
_CROSSING_EDGES: Final = 250
# Edges that could be looked at while one change is read from the log and sent to its other end. A repair with too many
# changes does not begin. Measured on a busy machine: 0.5 microseconds each (40,000 edges of a grid of 1,000 x 1,000).
_CHANGE_EDGES: Final = 10
# Edges that a kernel looks at before its rank crosses again: a share of the most edges of a repair, and at least these.
_CALL_SHARE: Final = 0.05
_CALL_EDGES: Final = 20_000


def _nothing(_active: int, _looked: int) -> int:
    return 0


class _TooMuchError(Exception):
    """The repair has looked at too many edges, or for too long. All ranks raise this at the same crossing."""


@dataclass(frozen=True)
class Earlier:
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
        exchange: this rank's end of the gang's exchange.
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
        earlier: Earlier | None,
        anew: Callable[[], LevelLoop],
    ) -> None:
        self._began = time.perf_counter()
        require_present(partition, spec.sources)
        self.level = self.reached = 0
        self.bottom_up = False
        self._partition = partition
        self._spec = spec
        self._exchange = exchange
        self._earlier = earlier
        self._anew = anew
        self._started = self._began
        self._state = np.zeros(kernels.STATE, np.int64)
        n_local = partition.stripe.n_local
        # Pages that are never written take no memory.
        self._touched, self._lost = (np.empty(n_local + 1, np.uint32) for _ in range(2))
        # A row is there once, or twice if its bin was full between two of its questions: at most one row of a round.
        self._waiting = np.empty(n_local + 4, np.uint32)
        self._candidates = np.empty(0, np.int64)
        self._depth = self._looked = self._first_level = self._searched_from = 0
        self._opened = np.zeros(exchange.p, np.int64)
        self._received: list[Any] = []
        self._before = np.empty(n_local, np.int32)
        self._first = partition.rank * n_local
        exchange.reset(True)

    @property
    def scratch(self) -> "RepairLoop":
        """See ``traversals.Traversal``."""
        return self

    @property
    def frontier(self) -> NDArray[np.uint32]:
        """See the class."""
        return self._touched[: int(self._state[kernels.TOUCHED])]

    def run(self, stops: bool = False) -> bool:  # noqa: ARG002
        """Repair the labels, or traverse anew."""
        self._result = self._repaired()
        return True

    def result(self) -> RankRun:
        """Return the labels and counts of this rank, and the rows that changed."""
        return self._result

    def _repaired(self) -> RankRun:
        earlier = self._earlier
        whole = self._spec.max_depth is None and not self._spec.targets
        ready = whole and earlier is not None and earlier.logged is not None
        ready = ready and earlier is not None and earlier.labels.predecessors is not None
        nanoseconds = 0 if earlier is None else int(earlier.seconds * 1e9)
        reading = 0 if earlier is None else _CHANGE_EDGES * (earlier.logged or 0)
        self._state[kernels.LOOKED] = reading
        depth = 0 if earlier is None else earlier.depth
        lacking, nanoseconds, reading, depth, _ = self._cross_with("start", int(not ready), nanoseconds, reading, depth)
        self._depth = depth // self._exchange.p
        self._started = time.perf_counter()
        if earlier is None:
            return self._traverse_anew(None)
        self._limits = limits.of(nanoseconds, self._exchange.p)
        most = int(self._limits[limits.MOST])
        self._state[kernels.MOST] = max(_CALL_EDGES, int(_CALL_SHARE * most))
        self._state[kernels.DIRECTED] = self._partition.directed
        if lacking or reading > most:
            return self._traverse_anew(earlier.labels.distances)
        changes = earlier.changes()
        assert changes is not None
        deleted, inserted = changes
        earlier.take()
        labels = (earlier.labels.distances, earlier.labels.predecessors)
        queue = np.empty(self._partition.stripe.n_local + 1, np.uint32)
        marks = np.zeros(self._partition.stripe.n_local, np.uint8)
        self._labels: tuple[Any, ...] = (*labels, marks, queue, self._touched, self._before, self._state)
        try:
            self._doubt(deleted)
            self._search(inserted)
        except _TooMuchError:
            touched = self.frontier
            earlier.labels.distances[touched] = self._before[: touched.size]
            return self._traverse_anew(earlier.labels.distances)
        rows, touched = self._partition.rows, self.frontier
        self.reached, missing, depth = kernels.count(earlier.labels.distances, rows.starts, rows.ends)
        ended = time.perf_counter()
        return RankRun(
            labels=earlier.labels,
            levels=CountedLevels.of(np.empty((0, len(COUNT_FIELDS)), np.int64), np.empty((0, len(TIME_FIELDS)))),
            reached=self.reached,
            edges=self._partition.m_local - missing,
            depth=depth,
            elapsed=ended - self._started,
            setup=self._started - self._began,
            version=self._partition.version,
            changed=np.sort(touched[earlier.labels.distances[touched] != self._before[: touched.size]]),
            traversal_seconds=earlier.seconds,
        )

    def _doubt(self, deleted: EdgeChanges) -> None:
        """Take away the distance of every row that has no support any more."""
        rows, parents = self._partition.rows, self._partition.parent_rows
        self._send_edges("deleted edges", deleted, offers=False)
        if parents is None:
            # In a directed graph without in-edges no rank sees the other supports of a row.
            if self._cross("doubt", self._queued()):
                raise _TooMuchError
            return
        self._rounds("doubt", rows, parents, searching=False)

    def _search(self, inserted: EdgeChanges) -> None:
        """Label the lost rows, and all rows that have come nearer."""
        state, rows, parents = self._state, self._partition.rows, self._partition.parent_rows
        lost = False
        while parents is not None:
            active = int(state[kernels.LOST] - state[kernels.ASKED])
            kernels.ask_around(*_arrays(parents), self._first, self._lost, *self._labels, *self._bins)
            if not self._cross("questions", active):
                break
            self._answer()
            self._take_offers()
            self.level += 1
            lost = True
        self._send_edges("inserted edges", inserted, offers=True)
        distances, _, marks, queue, *_ = self._labels
        self._candidates = search_kernels.take_candidates(distances, marks, queue, state)
        nearest = search_kernels.nearest(self._candidates, distances, state, np.zeros_like(self._opened))
        # An inserted edge brings a tree of rows nearer. The lost rows have been counted among the edges looked at.
        rows_each = 0 if lost else self._depth // 2
        self._cross("candidates", self._candidates.size, 0, nearest, ahead=lambda active, _: active * rows_each)
        self._first_level = state[kernels.NEXT_LEVEL] = int(self._exchange.gathered[:, 4].min())
        self._searched_from = self._looked
        # The search takes as long as the progress shows: less than the doubt, if rows were lost.
        self._limits[limits.LIMIT] = self._limits[limits.BUDGET]
        self._rounds("search", rows, rows if parents is None else parents, searching=True)

    def _rounds(self, phase: str, rows: Rows, parents: Rows, *, searching: bool) -> None:
        """Make rounds of doubt, or of the search, until nothing changes on any rank.

        Raises:
            _TooMuchError: the repair takes too long.
        """
        exchange, before = self._exchange, self.level
        mine: tuple[Any, ...] = (
            *(*_arrays(rows), *_arrays(parents), self._first, self._waiting, self._lost, *self._labels, self._opened),
            *(self._candidates, self._limits),
        )
        if not isinstance(exchange, SharedMemoryExchange):
            while self._round(phase, rows, parents, self.level - before, searching=searching):
                self.level += 1
            return
        control = np.zeros(round_kernels.CONTROL, np.int64)
        control[round_kernels.SEARCHING], control[round_kernels.FRESH] = searching, 1
        control[round_kernels.STARTED] = int(self._started * 1e9)
        control[round_kernels.DEPTH] = self._depth
        control[round_kernels.FIRST_LEVEL] = self._first_level
        control[round_kernels.SEARCHED_FROM] = self._searched_from
        control[round_kernels.NUMBER], control[round_kernels.CROSSING] = exchange.number, exchange.crossing
        while control[round_kernels.OUTCOME] == round_kernels.GOING_ON:
            with exchange.in_kernel():
                status, peer = round_kernels.rounds(*mine, control, *exchange.kernel_arguments)
                exchange.follow(int(control[round_kernels.CROSSING]), status, peer, self.level, phase)
            self.level = before + int(control[round_kernels.ROUND])
        if control[round_kernels.OUTCOME] == round_kernels.TOO_MUCH:
            raise _TooMuchError

    def _round(self, phase: str, rows: Rows, parents: Rows, number: int, *, searching: bool) -> bool:
        """Make one round that Python crosses; return whether another one follows."""
        labels, bins, opened = self._labels, self._bins, self._opened
        received, self._received = self._received, []
        unfinished = nearest = 0
        if searching:
            opened[:] = self._exchange.bin_ends
            for entries in received:
                kernels.take_offers(*entries, *labels)
            search_kernels.begin_level(self._candidates, labels[0], labels[3], self._state)
            unfinished = search_kernels.expand(*_arrays(rows), self._first, *labels, *bins)
            nearest = search_kernels.nearest(self._candidates, labels[0], self._state, bins[2] - opened)
            left = search_kernels.count_left(self._candidates, self._state, bins[2] - opened)
        else:
            round_kernels.open_bins(opened, bins[0].size // opened.size, bins[2])
            for entries in received:
                round_kernels.take_answers(*entries, *labels[:3])
            round_kernels.settle(*_arrays(rows), self._first, self._waiting, self._lost, *labels)
            for entries in received:
                round_kernels.take_questions(*entries, self._first, *labels[:4], self._state, *bins)
            left = round_kernels.send_doubts(
                *(*_arrays(rows), *_arrays(parents), self._first, self._waiting, self._lost, *labels, opened, *bins)
            )

        def ahead(active: int, looked: int) -> int:
            if not searching:
                return int(limits.ahead_of_doubt(active, number, self._depth))
            level = int(self._state[kernels.NEXT_LEVEL])
            return int(limits.ahead_of_search(looked - self._searched_from, self._first_level, level, self._depth))

        if not self._cross(phase, left, unfinished, nearest, ahead=ahead):
            return False
        if searching and not self._exchange.gathered[:, 3].any():
            self._state[kernels.NEXT_LEVEL] = self._exchange.gathered[:, 4].min()
        self._received = list(self._exchange.incoming())
        return True

    def _send_edges(self, phase: str, edges: EdgeChanges, *, offers: bool) -> None:
        """Send a message along each of some edges."""
        at, take = 0, self._take_offers if offers else self._take_notices
        while True:
            active = edges.rows.size - at
            at = kernels.send_edges(edges.rows, edges.columns, at, offers, self._first, *self._labels, *self._bins)
            if not self._cross(phase, active):
                return
            take()

    def _answer(self) -> None:
        """Answer the questions of the last crossing, and cross with the answers."""
        distances = self._labels[0]
        for received, senders in self._exchange.incoming():
            kernels.answer(received, senders, self._first, distances, self._state, *self._bins)
        self._cross("answers", 0)

    def _take_notices(self) -> None:
        for received, senders in self._exchange.incoming():
            kernels.take_notices(received, senders, *self._labels[:4], self._state)

    def _take_offers(self) -> None:
        for received, senders in self._exchange.incoming():
            kernels.take_offers(received, senders, *self._labels)

    def _queued(self) -> int:
        return int(self._state[kernels.TAIL] - self._state[kernels.HEAD])

    @property
    def _bins(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        return self._exchange.bin_rows, self._exchange.bin_parents, self._exchange.bin_ends

    def _cross(
        self,
        phase: str,
        active: int,
        unfinished: int = 0,
        nearest: int = 0,
        ahead: Callable[[int, int], int] = _nothing,
    ) -> int:
        """Cross with the peers; return the sum of the ranks' ``active``.

        Args:
            phase: the phase, named in errors.
            active: what is left to deal with.
            unfinished: rows of the search's level that are left.
            nearest: the nearest level that follows.
            ahead: returns the edges that the ranks are expected to look at yet, from what is left and the edges that
                they have looked at.

        Raises:
            _TooMuchError: the repair takes too long.
        """
        self._state[kernels.LOOKED] += _CROSSING_EDGES
        passed = int((time.perf_counter() - self._started) * 1e9)
        looked = int(self._state[kernels.LOOKED])
        active, self._looked, passed, _, _ = self._cross_with(phase, active, looked, passed, unfinished, nearest)
        if limits.too_much(self._limits, self._looked, ahead(active, self._looked), passed):
            raise _TooMuchError
        return active

    def _cross_with(
        self, phase: str, first: int, second: int, third: int, fourth: int = 0, fifth: int = 0
    ) -> list[int]:
        return self._exchange.cross(self.level, phase, (first, second, third, fourth, fifth), sliced=False)

    def _traverse_anew(self, before: NDArray[np.int32] | None) -> RankRun:
        """Make a new traversal; compare with the distances before, where the rank has them."""
        traversal = self._anew()
        traversal.run()
        run = traversal.result()
        distances = run.labels.distances
        differs = distances != (UNREACHED if before is None else before)
        return replace(run, changed=ChangedRows.where(differs))


def _arrays(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32]]:
    return rows.starts, rows.ends, rows.columns
