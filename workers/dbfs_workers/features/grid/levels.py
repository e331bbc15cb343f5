"""The levels of a rank of a 2-D partition (Krajecki 2016, algorithm 2), on CPU cores or on a GPU.

A level has two crossings:

1. *Expand*, in the place of the measurement of a frontier: each rank sends its part of the frontier to the ranks of its
   column. The sums are exact, and the ranks choose the direction by them.
2. *Fold*: each rank searches its edges from the column's frontier into the row's unvisited vertices, and sends what it
   found to the owners in its row. An owner labels each vertex once, and remembers the column of the finder.

Where the next level may be bottom-up, the first crossing also carries the visited vertices along the rows. In such a
level a rank looks for those only that none in its row has visited (Buluç, Beamer, Madduri, Asanović, Patterson,
"Distributed-Memory Breadth-First Search on Massive Graphs", 2017). If the level is top-down, no rank reads them.

Parents stay with their finders until the end. An owner then asks the finder of each vertex for its parent: one parent a
vertex travels, however many ranks found the vertex (Fu, Dasari, Bebee, Berzins, Thompson, "Parallel Breadth First
Search on GPU Clusters", 2014).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.grid.exchange import GridExchange
from dbfs_workers.features.grid.operators import GridOperators
from dbfs_workers.features.grid.scratch import GridScratch
from dbfs_workers.search.levels.level_table import LevelTable
from dbfs_workers.search.levels.rank_levels import RankLevels
from dbfs_workers.search.levels.state import (
    BOTTOM_UP,
    MEASURE,
    TOP_DOWN,
    State,
    end_level,
    may_pay,
    over,
    take_sums,
)
from dbfs_workers.search.levels.stepper import RankWork, elapsed
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.reports import Row
from dbfs_workers.search.reports.crossings import Found, Measured, Most, Nothing


@dataclass
class GridWork(RankWork):
    """What the steppers of a rank of a 2-D partition work on."""

    scratch: GridScratch
    messages: GridExchange

    @property
    def operators(self) -> GridOperators:
        """The operators of the rank's device."""
        return self.messages.operators

    def row_peers(self) -> list[tuple[int, int]]:
        """Return the other ranks of the grid's row, each with its column."""
        rank, grid = self.scratch.partition.rank, self.scratch.grid
        return [(peer, peer % grid.columns) for peer in grid.row_of(rank) if peer != rank]

    def column_peers(self) -> list[int]:
        """Return the other ranks of the grid's column."""
        rank = self.scratch.partition.rank
        return [peer for peer in self.scratch.grid.column_of(rank) if peer != rank]


@dataclass
class Expand:
    """The crossing with the frontier's exact size, which sends the frontier to the column: see ``Stepper``."""

    working: GridWork

    def run(self, state: State, table: LevelTable) -> None:
        """Cross. The time counts for the level before, the bytes for the level that expands the frontier."""
        work, scratch, messages = self.working, self.working.scratch, self.working.messages
        if state.bottom_up or may_pay(state):
            for peer, _ in work.row_peers():
                messages.post_words(peer, scratch.own_visited)
        bytes_sent = messages.post(work.column_peers(), scratch.frontier)
        counts = Measured(scratch.frontier.size, state.degrees, work.count_missing_targets())
        measured = messages.cross(state.level, "expand", counts)
        take_sums(state, measured.vertices, measured.edges, measured.missing)
        table.last().exchange += elapsed(state)
        row = table.last() if over(state) else table.row()
        row.bytes_sent += bytes_sent


@dataclass
class Fold:
    """A level in either direction: see ``Stepper``.

    Attributes:
        working: what the levels work on.
        searches_bottom_up: whether a level may be bottom-up.
    """

    searches_bottom_up: ClassVar[bool] = True
    working: GridWork

    def run(self, state: State, table: LevelTable) -> None:
        """Search the rank's edges, send along the row what it found, and label what is new."""
        scratch, row = self.working.scratch, table.row()
        state.size = scratch.frontier.size
        if state.bottom_up:
            row.bytes_sent += self._absorb_visited()
        row.edges, found = self._search(bottom_up=state.bottom_up)
        row.search += elapsed(state)
        ends = [rows.size for rows in found]
        of_all = self._send(state, row, found, Found(sum(ends), row.edges))
        row.exchange += elapsed(state)
        state.found, state.inspected = of_all.vertices, of_all.edges
        discovered, degrees, received = self._contract(state, found[scratch.column])
        row.contract += elapsed(state)
        row.own, row.sent, row.received = ends[scratch.column], sum(ends) - ends[scratch.column], received
        end_level(state, row, discovered)
        state.degrees = degrees
        table.add()

    def end(self, state: State, table: LevelTable) -> None:
        """End the traversal: fetch the parents."""
        state.edges += state.degrees
        if self.working.labels.predecessors is not None and state.level:
            table.last().bytes_sent += self._fetch_parents(state.level)
            elapsed(state)

    def _search(self, *, bottom_up: bool) -> tuple[int, list[NDArray[np.uint32]]]:
        """Search the rank's edges; return how many were inspected, and the local ids found, by column of the owner."""
        work, scratch, n_local = self.working, self.working.scratch, self.working.scratch.stripe.n_local
        parents = work.labels.predecessors is not None
        scratch.found_ends[:] = 0
        if bottom_up:
            edges = work.operators.bottom_up(scratch, predecessors=parents)
        else:
            edges = self._search_top_down(predecessors=parents)
        ends: list[int] = scratch.found_ends.tolist()
        return edges, [scratch.found[c * n_local : c * n_local + end] for c, end in enumerate(ends)]

    def _search_top_down(self, *, predecessors: bool) -> int:
        """Search the edges from the column's frontier; return how many were inspected."""
        work = self.working
        return work.operators.top_down(work.scratch, self.frontiers(), predecessors=predecessors)

    def _send(self, state: State, row: Row, found: list[NDArray[np.uint32]], counts: Found) -> Found:
        """Send along the row what this rank found, and cross; return the counts of all ranks."""
        for peer, column in self.working.row_peers():
            row.bytes_sent += self.working.messages.post([peer], found[column])
        row.search += elapsed(state)
        return self.working.messages.cross(state.level, "fold", counts)

    def _contract(self, state: State, own: NDArray[np.uint32]) -> tuple[int, int, int]:
        """Label what is new of what the row's ranks found, ``own`` being this rank's finds, and make it the frontier.

        Return the number of new vertices, their degrees, and the number of vertices that peers sent.
        """
        work, sizes = self.working, list[int]()
        found = self._found_of_row(own, sizes)
        discovered, degrees = work.operators.contract(work.scratch, work.labels, state.level + 1, found)
        work.scratch.advance(discovered)
        return discovered, degrees, sum(sizes)

    def frontiers(self) -> Iterator[NDArray[np.uint32]]:
        """Yield the parts of the column's frontier, by rank of the column."""
        scratch, rank = self.working.scratch, self.working.scratch.partition.rank
        for peer in scratch.grid.column_of(rank):
            yield scratch.frontier if peer == rank else self.working.messages.rows(peer)

    def mark_frontier(self, column_bits: NDArray[np.uint32]) -> None:
        """Write the column's frontier into uint32[rows * words_local], a bit for each vertex."""
        work, scratch, words = self.working, self.working.scratch, self.working.scratch.stripe.words_local
        rank = scratch.partition.rank
        for i, peer in enumerate(scratch.grid.column_of(rank)):
            bits = column_bits[i * words : (i + 1) * words]
            if peer == rank:
                work.messages.backend.mark(scratch.frontier, bits)
            else:
                work.messages.copy_bits(peer, bits)

    def _found_of_row(self, own: NDArray[np.uint32], sizes: list[int]) -> Iterator[tuple[int, NDArray[np.uint32]]]:
        """Yield what the row's ranks found of this rank's rows, by finder, first ``own``; append the peers' sizes."""
        yield self.working.scratch.column, own
        for peer, column in self.working.row_peers():
            rows = self.working.messages.rows(peer)
            sizes.append(rows.size)
            yield column, rows

    def _absorb_visited(self) -> int:
        """Assemble the column's frontier and the row's visited vertices; return the bytes of this rank's part."""
        work, scratch, words = self.working, self.working.scratch, self.working.scratch.stripe.words_local
        assert scratch.frontier_bits is not None
        self.mark_frontier(scratch.frontier_bits)
        for peer, c in work.row_peers():
            scratch.visited[c * words : (c + 1) * words] |= work.messages.words(peer)
        return scratch.own_visited.nbytes * (scratch.grid.columns - 1)

    def _fetch_parents(self, level: int) -> int:
        """Write the parents of the rank's own rows, which the ranks of its row have; return the bytes sent."""
        work, scratch, messages = self.working, self.working.scratch, self.working.messages
        n_local, predecessors = scratch.stripe.n_local, work.labels.predecessors
        assert predecessors is not None
        found_by, peers = work.operators.rows_by_finder(scratch, work.labels), work.row_peers()
        bytes_sent = sum(messages.post([peer], found_by[c]) for peer, c in peers)
        most = max((found_by[c].size for _, c in peers), default=0)
        answers_of_any = messages.cross(level, "ask for parents", Most(most)).most
        # All levels are over, so the lists of found vertices are free for the answers.
        answers: dict[int, NDArray[np.uint32]] = {}
        for peer, c in peers:
            asked = messages.rows(peer)
            part = slice(c * n_local, c * n_local + asked.size)
            of_peer = scratch.parents[c * n_local : (c + 1) * n_local]
            answers[peer] = scratch.xp.take(of_peer, asked, out=scratch.found[part])
            bytes_sent += answers[peer].nbytes
        for first in range(0, answers_of_any, messages.entries):
            for peer, _ in peers:
                messages.post_words(peer, answers[peer][first : first + messages.entries])
            messages.cross(level, "answer with parents", Nothing())
            for peer, c in peers:
                predecessors[found_by[c][first : first + messages.entries]] = messages.words(peer)
        own = found_by[scratch.column]
        predecessors[own] = scratch.parents[scratch.column * n_local :][own]
        return bytes_sent


FoldOf = Callable[[GridWork, TraversalSpec], Fold]
"""Returns what runs the levels of a traversal."""


def engine_fold(working: GridWork, spec: TraversalSpec) -> Fold:  # noqa: ARG001
    """Return what runs the levels of a traversal by the engine."""
    return Fold(working)


class GridLevels(RankLevels[GridScratch]):
    """The levels of a rank of a 2-D partition.

    Args:
        messages: this rank's messages; their backend runs the levels.
        fold_of: returns what runs the levels of a traversal.
    """

    _parents_in_bins = False

    def __init__(self, scratch: GridScratch, messages: GridExchange, fold_of: FoldOf = engine_fold) -> None:
        self._working = working = GridWork(scratch, messages)
        super().__init__(scratch, messages.carrier, working)
        self._fold_of = fold_of
        self._measure = Expand(working)

    def start(self, spec: TraversalSpec, labels: RankLabels, state: State, *, stops: bool) -> bool:
        self._fold = fold = self._fold_of(self._working, spec)
        state.adaptive = state.adaptive and fold.searches_bottom_up
        self.steppers = {TOP_DOWN: fold, BOTTOM_UP: fold, MEASURE: self._measure}
        state.measured = state.measuring = True
        # The bytes of messages are counted as they are sent.
        state.entry_bytes = 0
        goes_on = super().start(spec, labels, state, stops=stops)
        state.degrees = int(self.scratch.degrees[self.scratch.frontier].sum())
        return goes_on

    def end(self, state: State) -> None:
        self._fold.end(state, self.table)
