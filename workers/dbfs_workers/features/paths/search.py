"""Searches between two vertices on one rank of CPU cores: the sides, their levels, and the paths that they leave.

A rank alone runs all levels in one kernel. Several ranks cross twice a level: with the vertices of other ranks that the
level has found, and with the sizes of the next frontier, by which all choose the side that goes on.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.jit import read_only
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.base.team import Team
from dbfs_workers.features.paths.kernels import search as kernels
from dbfs_workers.features.paths.kernels import trail as trails
from dbfs_workers.features.paths.purpose import DISTANCES, PairSearch, report
from dbfs_workers.search.cpu.kernels.phases import Bins, contract
from dbfs_workers.search.exchange.protocol import Exchange
from dbfs_workers.search.partition.kernels.rows import kernel_rows
from dbfs_workers.search.partition.partition import Partition, require_present
from dbfs_workers.search.partition.stripe import WORD_BITS, Stripe
from dbfs_workers.search.reports import RankRun
from dbfs_workers.search.reports.counts import Largest, Total
from dbfs_workers.search.reports.crossings import Most, Nothing

# Nanoseconds after which a call of a kernel ends, so that the rank looks for an abort and the deadline.
_LONGEST: Final = 4_000_000
# Fewest pairs that several threads share.
_LEAST_PAIRS: Final = 8
# Room for edges of paths at first.
_LEAST_EDGES: Final = 1 << 12
_PHASE: Final = "search from both ends"
_NO_LABELS: Final = np.empty(0, np.int32)
_NONE: Final = np.empty(0, np.uint32)


class Sent(NamedTuple):
    """The crossing with the bins of a level.

    Attributes:
        unfinished: 1 if a full bin ended the rank's walk early.
        met: 1 if the rank knows a vertex of both sides.
    """

    unfinished: Largest
    met: Largest


class Settled(NamedTuple):
    """The crossing with the sizes of a side's next frontier.

    Attributes:
        vertices, edges: vertices of the frontier, and the sum of their degrees.
        met: 1 if the rank knows a vertex of both sides.
    """

    vertices: Total
    edges: Total
    met: Largest


class Sides:
    """Memory for the two sides of a search, on one thread of a rank.

    Args:
        stripe: the graph's stripe.
        labelled: whether the sides have distances.
    """

    def __init__(self, stripe: Stripe, *, labelled: bool) -> None:
        def side() -> kernels.Side:
            distances = np.full(stripe.n_local, -1, np.int32) if labelled else _NO_LABELS
            return kernels.Side(np.zeros(stripe.words, np.uint32), np.empty(stripe.n_local, np.uint32), distances)

        self.both = side(), side()
        self.fronts, self.states = np.zeros(2, kernels.FRONTS), np.zeros(1, kernels.STATE)
        self.pair = kernels.Pair(*self.both, self.fronts, self.states, np.zeros(2, np.int64))

    def forget(self, first_id: int, *, sent: bool) -> None:
        """Clear both sides; ``sent`` says whether vertices of other ranks have bits."""
        for which, side in enumerate(self.both):
            kernels.forget(side, first_id, self.fronts, which)
            if sent:
                side.seen[:] = 0


class PathMemory:
    """What a rank keeps for searches between two vertices from run to run: their sides, and the marks of paths.

    Args:
        stripe: the graph's stripe.
    """

    def __init__(self, stripe: Stripe) -> None:
        self._stripe = stripe
        self._sides: list[Sides] = []
        self._labelled: Sides | None = None
        self._trail: trails.Trail | None = None

    def sides(self, thread: int) -> Sides:
        """Return the sides of a thread, without distances."""
        while len(self._sides) <= thread:
            self._sides.append(Sides(self._stripe, labelled=False))
        return self._sides[thread]

    def labelled(self) -> Sides:
        """Return sides with distances."""
        if self._labelled is None:
            self._labelled = Sides(self._stripe, labelled=True)
        return self._labelled

    def trail(self, edges: int = _LEAST_EDGES) -> trails.Trail:
        """Return the marks, with room for so many edges at least; those that are there stay."""
        if self._trail is None:
            marks, marked = np.zeros(self._stripe.n_local, np.uint8), np.empty(self._stripe.n_local, np.uint32)
            self._trail = trails.Trail(marks, marked, _NONE, _NONE, np.zeros(trails.PLACES, np.int64))
        if self._trail.rows.size < edges:
            room = max(edges, 2 * self._trail.rows.size)
            rows, others = (np.append(each, np.empty(room - each.size, np.uint32)) for each in self._trail[2:4])
            self._trail = self._trail._replace(rows=rows, others=others)
        return self._trail


class RankSearch(ABC):
    """The searches of one spec on one rank; see ``Traversal``.

    Args:
        partition: the rank's rows.
        spec: the vertices, in its sources.
        exchange: the rank's end of the exchange.
        memory: what the rank keeps.
        team: threads that share many pairs of a rank alone; None for one.

    Raises:
        InvalidVertexError: a vertex was deleted.
    """

    bottom_up = False

    def __init__(
        self, partition: Partition, spec: TraversalSpec, exchange: Exchange, memory: PathMemory, team: Team | None
    ) -> None:
        self._began = time.perf_counter()
        require_present(partition, spec.sources)
        assert isinstance(spec.purpose, PairSearch)
        self.level = self.reached = self.completed = 0
        self.frontier = _NONE
        self._partition, self._exchange, self._memory, self._team = partition, exchange, memory, team
        self._spec, self._purpose, self._stripe = spec, spec.purpose, partition.stripe
        self._first_id = partition.rank * partition.stripe.n_local
        into, self._forward = partition.parent_rows, kernel_rows(partition.rows)
        self._both = into is not None
        self._backward = self._forward if into is None else kernel_rows(into)
        exchange.reset(True)

    @property
    def scratch(self) -> "RankSearch":
        return self

    def run(self, stops: bool = False) -> bool:  # noqa: ARG002
        """Search."""
        self._exchange.cross(0, "start", Nothing(), sliced=False)
        self._started = time.perf_counter()
        self._answer = self._found()
        self._ended = time.perf_counter()
        return True

    @abstractmethod
    def _found(self) -> NDArray[Any]:
        """Return the answer: see ``PairAnswer``."""

    def result(self) -> RankRun:
        """Return the answer, and no labels."""
        # All ranks find the same distances.
        answers = self._exchange.rank == 0 or self._purpose.wants != DISTANCES
        answer = self._answer if answers else self._answer[:0]
        elapsed, setup = self._ended - self._started, self._started - self._began
        return report(answer, elapsed, setup, self._partition.version)

    def _bins(self) -> Bins:
        """Return the bins of the next crossing."""
        return Bins(self._exchange.bin_rows, self._exchange.bin_parents, self._exchange.bin_ends)

    def _look(self) -> None:
        """Look for an abort and the deadline, as a rank alone."""
        self._exchange.cross(self.level, _PHASE, Nothing(), sliced=False)

    def _begin(self, source: int, target: int | None) -> Sides:
        """Return sides that begin at two vertices; None for no far side."""
        sides = self._memory.labelled()
        for which, (vertex, rows) in enumerate(((source, self._forward), (target, self._backward))):
            owned = vertex is not None and self._stripe.owner(vertex) == self._partition.rank
            row = self._stripe.row(vertex) if vertex is not None and owned else -1
            kernels.begin(rows, sides.both[which], row, self._first_id, sides.fronts, which)
        sides.states[:] = 0
        sides.states["both"] = self._both
        return sides

    def _level(self, sides: Sides, which: int, ends: bool = False) -> Settled:
        """Run a level of a side; return the counts of all ranks.

        A level that finds the other side is not counted as complete if the search ``ends`` there.
        """
        exchange, first_id, fronts, states = self._exchange, self._first_id, sides.fronts, sides.states
        side, other = sides.both[which], sides.both[1 - which]
        rows, self.level = (self._forward, self._backward)[which], int(fronts["depth"].sum())
        self.frontier = side.queue[fronts["begin"][which] : fronts["end"][which]]
        distance, word = int(fronts["depth"][which]) + 1, first_id // WORD_BITS
        own, unfinished = slice(word, word + self._stripe.words_local), 1
        while unfinished:
            kernels.expand(rows, side, other.seen, self._bins(), first_id, fronts, which, states, ends)
            sent = Sent(int(states["unfinished"][0]), int(states["met"][0]))
            unfinished, met = exchange.cross(self.level, _PHASE, sent, sliced=False)
            for binned, _ in exchange.incoming():
                queued = int(fronts["queued"][which])
                fronts["queued"][which] += contract(
                    *(binned, _NONE, side.seen[own], distance, side.distances, _NONE, side.queue[queued:])
                )
            if met and ends:
                return Settled(0, 0, 1)
        kernels.settle(rows, side, other.seen, first_id, fronts, which, states)
        front = fronts[which]
        counts = Settled(int(front["end"] - front["begin"]), int(front["edges"]), int(states["met"][0]))
        settled = exchange.cross(self.level, _PHASE, counts, sliced=False)
        if settled.met:
            front["depth"] -= ends
        return settled

    def _rounds(self, step: Callable[[NDArray[np.int64]], bool]) -> Iterable[tuple[NDArray[np.uint32], Any]]:
        """Take a step in as many rounds as the bins of any rank need, and yield the bins that arrive.

        ``step`` is given where to go on, and returns whether a full bin has ended it early.
        """
        resume, unfinished = np.zeros(2, np.int64), 1
        while unfinished:
            more = step(resume)
            unfinished = self._exchange.cross(self.level, _PHASE, Most(more), sliced=False).most
            yield from self._exchange.incoming()


class PairRun(RankSearch):
    """Searches between two vertices: see ``RankSearch``."""

    def _found(self) -> NDArray[Any]:
        pairs = np.array(self._spec.sources).reshape(-1, 2).tolist()
        if self._purpose.wants != DISTANCES:
            return self._between(*pairs[0])
        if self._exchange.p == 1:
            return self._alone()
        found = np.zeros(len(pairs), np.int32)
        for at, (source, target) in enumerate(pairs):
            found[at] = self._search(source, target, ends=True)
            self._memory.labelled().forget(self._first_id, sent=True)
            self.completed = at + 1
        return found

    def _alone(self) -> NDArray[np.int32]:
        """Return the distances of all pairs, as a rank alone: its threads share the pairs."""
        pairs, count = read_only(np.array(self._spec.sources, np.int64)), len(self._spec.sources) // 2
        found = np.empty(count, np.int32)
        threads = 1 if self._team is None or count < _LEAST_PAIRS else self._team.threads
        at = [count * thread // threads for thread in range(threads)]
        stops = [*at[1:], count]
        bins, memories = self._bins(), [self._memory.sides(thread) for thread in range(threads)]

        def some(thread: int, _: int) -> None:
            sides = memories[thread]
            sides.states["both"] = self._both
            at[thread] = kernels.search_pairs(
                *(self._forward, self._backward, sides.pair, bins, pairs, found),
                *(at[thread], stops[thread], time.perf_counter_ns() + _LONGEST),
            )

        while at != stops:
            if self._team is None or threads == 1:
                some(0, 1)
            else:
                self._team.each(range(threads + 1), some)
            self.completed = count - sum(stops) + sum(at)
            self._look()
        return found

    def _search(self, source: int, target: int, *, ends: bool) -> int:
        """Search between two vertices; return the distance, -1 if no path joins them. The sides stay as they are.

        ``ends`` says whether the search may end in the middle of a level.
        """
        sides = self._begin(source, target)
        if source == target:
            return 0
        met = self._search_alone(sides, ends) if self._exchange.p == 1 else self._search_together(sides, ends)
        # The side in whose level they met is complete to its depth only where the level has ended.
        depth = int(sides.fronts["depth"].sum())
        return depth + ends if met else -1

    def _search_alone(self, sides: Sides, ends: bool) -> bool:
        arrays = self._forward, self._backward, sides.pair, self._bins(), ends
        while not kernels.search(*arrays, time.perf_counter_ns() + _LONGEST):
            self.level = int(sides.fronts["depth"].sum())
            self._look()
        return bool(sides.states["met"][0])

    def _search_together(self, sides: Sides, ends: bool) -> bool:
        """Search with other ranks; return whether the sides have met. The last level is complete unless ``ends``."""
        sizes = [(1, self._degree_sum(sides.fronts, which)) for which in (0, 1)]
        while (which := kernels.next_side(self._both, *sizes[0], *sizes[1])) >= 0:
            settled = self._level(sides, which, ends)
            if settled.met:
                return True
            sizes[which] = settled.vertices, settled.edges
        return False

    def _degree_sum(self, fronts: NDArray[Any], which: int) -> int:
        """Return the degree of an end, over all ranks."""
        edges = int(fronts["edges"][which])
        return self._exchange.cross(0, _PHASE, Settled(0, edges, 0), sliced=False).edges

    def _between(self, source: int, target: int) -> NDArray[np.uint32]:
        """Return the edges of all shortest paths that the rank knows, as positions of both ends."""
        sides, distance = self._memory.labelled(), self._search(source, target, ends=False)
        found = [np.empty((2, 0), np.int64)]
        if distance > 0:
            found += [self._marks(sides, 0, source), self._marks(sides, 1, target)[::-1]]
        sides.forget(self._first_id, sent=self._exchange.p > 1)
        return self._stripe.vertex(np.concatenate(found, axis=1)).astype(np.uint32)

    def _marks(self, sides: Sides, which: int, vertex: int) -> NDArray[np.int64]:
        """Return a side's edges on shortest paths, as internal ids, the end that is nearer to the vertex first."""
        fronts, side, alone, trail = sides.fronts[which], sides.both[which], self._exchange.p == 1, self._memory.trail()
        # The marks go the other way than the side's search went.
        rows, places = (self._backward, self._forward)[which], trail.places
        trails.mark_meetings(side, sides.both[1 - which], int(fronts["begin"]), int(fronts["end"]), trail)
        places[trails.WANTED] = fronts["depth"] - 1
        while places[trails.WANTED] > 0:
            trails.mark_levels(rows, side.distances, trail, self._bins(), self._first_id, alone)
            more = bool(places[trails.FIRST] < places[trails.END] - places[trails.BEGIN])
            more = self._exchange.cross(self.level, "paths", Most(more), sliced=False).most > 0
            for binned, others in self._exchange.incoming():
                trail = self._memory.trail(int(places[trails.EDGES]) + binned.size)
                trails.take_marks(binned, others, side.distances, trail)
            if places[trails.EDGES] == trail.rows.size:
                trail = self._memory.trail(2 * trail.rows.size)
            if not alone and not more:
                trails.next_level(trail)
        edges, last = slice(int(places[trails.EDGES])), slice(int(places[trails.BEGIN]), int(places[trails.END]))
        ends = trail.marked[last] if fronts["depth"] else trail.marked[:0]
        first_id, near = np.uint32(self._first_id), np.full(ends.size, self._stripe.internal(vertex))
        found = np.append(trail.rows[edges] + first_id, near), np.append(trail.others[edges], ends + first_id)
        trails.forget_marks(trail)
        return np.stack(found).astype(np.int64)
