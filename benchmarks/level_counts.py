"""Exact counts of a traversal's levels in either layout, from the edges alone: a model of what the ranks count.

NumPy follows all ranks of an undirected graph at once, level by level, with the direction rule of the ranks. So the
bytes and messages of 1,024 ranks are known without 1,024 ranks. Full bins cut a level into rounds, which changes none
of the bytes; their crossings and messages are not counted.

Ranks find vertices as *searchers*. In the layout ``1d`` each rank is a searcher: it visits the neighbours of its own
vertices. In ``2d`` each column of the grid is one: the rank in the row of a vertex and the column of its neighbour
finds the vertex. A searcher sends a vertex once. The layout ``1d`` is a grid of one row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.building.degree_order import degree_order
from dbfs_workers.features.grid.grid import Grid
from dbfs_workers.search.levels.state import State, choose_direction, end_level, over, take_sums
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import Row

_ID_BYTES = 4

Counts = NDArray[np.int64]


@dataclass
class Level:
    """Counts of one level.

    Attributes:
        bottom_up: the direction.
        edges: int64[p], edges that each rank looks at.
        crossings: number of crossings of the level.
        sent: by kind of message, the bytes that each rank sends: int64[p].
        messages: by kind, the number of messages that each rank sends, empty messages included.
    """

    bottom_up: bool
    edges: Counts
    crossings: int
    sent: dict[str, Counts] = field(default_factory=dict)
    messages: dict[str, int] = field(default_factory=dict)

    @property
    def bytes_sent(self) -> Counts:
        """int64[p], bytes that each rank sends."""
        return sum(self.sent.values(), np.zeros_like(self.edges))

    def add(self, kind: str, sent: Counts, messages: int) -> None:
        """Add messages of a kind."""
        self.sent[kind] = self.sent.get(kind, np.zeros_like(sent)) + sent
        self.messages[kind] = self.messages.get(kind, 0) + messages


class LevelCounts:
    """The counts of traversals of one undirected graph.

    Args:
        n: number of vertices.
        src, dst: int64[m], the input edges, between vertices.
        ranks: number of ranks.
        layout: ``1d`` or ``2d``.
        order: ``given`` or ``degree``.
    """

    def __init__(
        self, n: int, src: NDArray[np.int64], dst: NDArray[np.int64], ranks: int, layout: str, order: str = "given"
    ) -> None:
        self.stripe = stripe = Stripe(n, ranks)
        self.layout = layout
        self.grid = Grid.of(ranks) if layout == "2d" else Grid(1, ranks)
        loops = src == dst
        ends, starts = np.concatenate([src, dst[~loops]]), np.concatenate([dst, src[~loops]])
        self._position: NDArray[np.uint32] | None = None
        if order == "degree":
            self._position = degree_order(np.bincount(ends, minlength=n)).position
            ends, starts = (self._position[of].astype(np.int64) for of in (ends, starts))
        self._degrees = np.bincount(ends, minlength=n)
        vertices = np.arange(n)
        self._owner = vertices % ranks
        # In 1d a row has one list, which its owner searches for a parent; in 2d a list on each rank of its row.
        self._home = self._owner % self.grid.columns
        block = self._home if layout == "2d" else np.zeros(n, np.int64)
        place = vertices if order == "degree" else stripe.internal(vertices)
        # Sorted as the ranks' lists are: by the row, the rank that has the list, and the place of the neighbour.
        blocks = self.grid.columns if layout == "2d" else 1
        places = stripe.p * stripe.n_local
        keys = (ends * blocks + block[starts]) * places + place[starts]
        keys.sort()
        lists, at = np.divmod(keys, places)
        self._ends, self._starts = lists // blocks, at if order == "degree" else stripe.vertex(at)
        self._lists = np.flatnonzero(np.diff(lists, prepend=-1))
        self._list_columns = block[self._starts[self._lists]]

    def traverse(self, source: int, *, predecessors: bool) -> list[Level]:
        """Return the counts of the levels of a traversal with ``direction="auto"``."""
        start = source if self._position is None else int(self._position[source])
        return (_Grid if self.layout == "2d" else _Stripes)(self, start, predecessors).run()

    def search(self, unvisited: NDArray[np.bool], frontier: NDArray[np.bool]) -> tuple[Counts, Counts, Counts]:
        """Search lists for a parent; return the edges that each rank looks at, and the vertices and columns of finds.

        Args:
            unvisited: bool, by list, whether the list is searched.
            frontier: bool[n].
        """
        sizes = np.diff(self._lists, append=self._starts.size)
        hits = np.where(frontier[self._starts], np.arange(self._starts.size), self._starts.size)
        first = np.minimum.reduceat(hits, self._lists) if self._lists.size else hits
        found = unvisited & (first < self._lists + sizes)
        looked = np.where(unvisited, np.where(found, first - self._lists + 1, sizes), 0)
        vertices, columns = self._ends[self._lists], self._list_columns
        ranks = self.finders(vertices, columns) if self.layout == "2d" else self._owner[vertices]
        edges = np.bincount(ranks, looked, self.stripe.p).astype(np.int64)
        return edges, vertices[found], columns[found]

    def finders(self, vertices: Counts, searchers: Counts) -> Counts:
        """Return the rank that finds each vertex for a searcher."""
        owner = self._owner[vertices]
        return owner - owner % self.grid.columns + searchers

    def owned(self, vertices: Counts, weights: Counts | None = None) -> Counts:
        """Return int64[p]: the number of the vertices that each rank owns, or the sum of their weights."""
        return np.bincount(self._owner[vertices], weights, self.stripe.p).astype(np.int64)


class _Traversal:
    """The state of a traversal in either layout: the frontier, the vertices known to each searcher, the direction."""

    def __init__(self, counts: LevelCounts, source: int, predecessors: bool) -> None:
        self.of, self.predecessors = counts, predecessors
        self.n, self.p, self.words = counts.stripe.n, counts.stripe.p, counts.stripe.words_local
        self.degrees, self.home = counts._degrees, counts._home
        self.frontier = np.array([source])
        # bool[searchers, n]: vertices that the searcher has found, or that bitmaps have shown it to be visited.
        self.known = np.zeros((counts.grid.columns, self.n), bool)
        self.known[self.home[source], source] = True
        self.levels: list[Level] = []
        self.state = State.of(TraversalSpec("counts", (source,), predecessors, "cpu"), self.n, in_edges=True)
        self.state.max_degree, self.state.unexplored_edges = int(self.degrees.max()), int(self.degrees.sum())
        self.state.frontier = 1

    def bits(self, vertices: Counts) -> NDArray[np.bool]:
        """Return bool[n] with the bits of vertices."""
        answer = np.zeros(self.n, bool)
        answer[vertices] = True
        return answer

    def visit(self) -> tuple[Counts, Counts, Counts]:
        """Visit the frontier's neighbours; return edges by rank, and vertices and searchers of the vertices found."""
        counts = self.of
        along = np.flatnonzero(self.bits(self.frontier)[counts._starts])
        targets, searchers = counts._ends[along], self.home[counts._starts[along]]
        edges = np.bincount(counts.finders(targets, searchers), minlength=self.p)
        new = ~self.known[searchers, targets]
        searchers, targets = np.divmod(np.unique(searchers[new] * self.n + targets[new]), self.n)
        self.known[searchers, targets] = True
        return edges, targets, searchers

    def adopt(self, vertices: Counts, searchers: Counts) -> Counts:
        """Make the next frontier of the found vertices that are new to their owners.

        Returns:
            int64, by vertex of the frontier: the searcher whose find the owner takes. An owner prefers its own finds,
            then those of the other searchers in ascending order.
        """
        theirs = self.home[vertices] != searchers
        seen = self.known[self.home[vertices], vertices]
        order = np.lexsort((searchers, theirs))
        order = order[~(theirs & seen)[order]]
        self.frontier, first = np.unique(vertices[order], return_index=True)
        self.known[self.home[self.frontier], self.frontier] = True
        taken: Counts = searchers[order][first]
        return taken

    def end(self, inspected: int, found: int) -> None:
        """End a level that looked at so many edges and found at most so many vertices."""
        self.state.inspected, self.state.found = inspected, found
        end_level(self.state, Row(), 0)

    def measure(self) -> None:
        """Choose the next level's direction by the exact frontier."""
        take_sums(self.state, self.frontier.size, int(self.degrees[self.frontier].sum()), 0)
        choose_direction(self.state)


class _Stripes(_Traversal):
    """A traversal in the layout ``1d``: see ``levels.rank_levels``."""

    def run(self) -> list[Level]:
        """Run all levels."""
        sliced = False
        while not over(self.state):
            if sliced:
                self.known[:, self.frontier] = True
            sliced = self._search() if self.state.bottom_up else self._expand()
        return self.levels

    def _expand(self) -> bool:
        """Run a top-down level; return whether slices were sent."""
        before = int(self.degrees[self.frontier].sum())
        edges, targets, searchers = self.visit()
        level = Level(False, edges, 1)
        self.levels.append(level)
        away = searchers[self.home[targets] != searchers]
        sent = np.bincount(away, minlength=self.p) * _ID_BYTES * (2 if self.predecessors else 1)
        level.add("bins", sent, self.p - 1)
        self.adopt(targets, searchers)
        self.end(before, targets.size)
        choose_direction(self.state)
        if over(self.state) or not self.state.measuring:
            return False
        level.crossings += 1
        level.add("slices", self._slices(), self.p - 1)
        self.measure()
        return True

    def _search(self) -> bool:
        """Run a bottom-up level; return as ``_expand`` does."""
        counts = self.of
        rows = counts._ends[counts._lists]
        edges, found, _ = counts.search(~self.known[self.home[rows], rows], self.bits(self.frontier))
        level = Level(True, edges, 1)
        self.levels.append(level)
        level.add("slices", self._slices(), self.p - 1)
        self.frontier = found
        self.known[self.home[found], found] = True
        self.end(int(edges.sum()), found.size)
        self.measure()
        return True

    def _slices(self) -> Counts:
        return np.full(self.p, _ID_BYTES * self.words * (self.p - 1))


class _Grid(_Traversal):
    """A traversal in the layout ``2d``: see ``levels.grid_levels``."""

    def run(self) -> list[Level]:
        """Run all levels, and fetch the parents."""
        columns = self.of.grid.columns
        finder = np.full(self.n, -1)
        expanded = self._frontier_bytes()
        while self.frontier.size:
            level = Level(self.state.bottom_up, np.zeros(self.p, np.int64), 2)
            self.levels.append(level)
            level.add("frontier", expanded, self.of.grid.rows - 1)
            if level.bottom_up:
                level.add("visited", np.full(self.p, _ID_BYTES * self.words * (columns - 1)), columns - 1)
                vertices, searchers = self._search(level)
            else:
                level.edges, vertices, searchers = self.visit()
            level.add("found", self._lists(self.of.finders(vertices, searchers), vertices), columns - 1)
            taken = self.adopt(vertices, searchers)
            finder[self.frontier] = taken
            self.end(int(level.edges.sum()), vertices.size)
            self.measure()
            expanded = self._frontier_bytes()
        last = self.levels[-1]
        last.add("frontier", expanded, self.of.grid.rows - 1)
        if self.predecessors:
            self._fetch(last, finder)
        return self.levels

    def _search(self, level: Level) -> tuple[Counts, Counts]:
        """Search the unvisited vertices of the rows; set the level's edges; return vertices and searchers of finds."""
        counts = self.of
        # After the crossing a rank has seen what any owner in its row has visited.
        own = np.flatnonzero(self.known[self.home, np.arange(self.n)])
        self.known[:, own] = True
        rows = counts._ends[counts._lists]
        level.edges, vertices, searchers = counts.search(
            ~self.known[counts._list_columns, rows], self.bits(self.frontier)
        )
        self.known[searchers, vertices] = True
        return vertices, searchers

    def _frontier_bytes(self) -> Counts:
        """Return int64[p]: bytes of each rank's part of the frontier for its column."""
        return self._message(self.of.owned(self.frontier)) * (self.of.grid.rows - 1)

    def _message(self, sizes: Counts) -> Counts:
        """Return the bytes of messages, given the number of ids in each: a list, or a bitmap if that is shorter."""
        sent: Counts = _ID_BYTES * np.minimum(sizes, self.words)
        return sent

    def _lists(self, senders: Counts, vertices: Counts) -> Counts:
        """Return int64[p]: the bytes that each sender has for the other ranks of its row."""
        columns = self.of.grid.columns
        sizes = np.bincount(senders * columns + self.home[vertices], minlength=self.p * columns)
        sent = self._message(sizes).reshape(self.p, columns)
        sent[np.arange(self.p), np.arange(self.p) % columns] = 0
        total: Counts = sent.sum(axis=1)
        return total

    def _fetch(self, level: Level, finder: Counts) -> None:
        """Add the parents that owners fetch from the finders of their vertices."""
        columns = self.of.grid.columns
        level.crossings += 2
        away = np.flatnonzero((finder >= 0) & (finder != self.home))
        owner = self.of._owner[away]
        asked = np.bincount(owner * columns + finder[away], minlength=self.p * columns).reshape(self.p, columns)
        answered = np.bincount(self.of.finders(away, finder[away]), minlength=self.p)
        level.add("parents", self._message(asked).sum(axis=1) + _ID_BYTES * answered, 2 * (columns - 1))
