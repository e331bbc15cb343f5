"""The resident loop on a 2-D partition (Krajecki 2016, algorithm 2), on CPU cores or on a GPU.

All ranks decide from the same sums, as in ``levels.loop``. A level has two crossings:

1. *Expand*: each rank sends its part of the frontier to the ranks of its column. The sums are exact, and the ranks
   choose the direction by them.
2. *Fold*: each rank searches its edges from the column's frontier into the row's unvisited vertices, and sends what it
   found to the owners in its row. An owner labels each vertex once, and remembers the column of the finder.

Where the next level may be bottom-up, the first crossing also carries the visited vertices along the rows. In such a
level a rank looks for those only that none in its row has visited (Buluç, Beamer, Madduri, Asanović, Patterson,
"Distributed-Memory Breadth-First Search on Massive Graphs", 2017). If the level is top-down, no rank reads them.

Parents stay with their finders until the end. An owner then asks the finder of each vertex for its parent: one parent a
vertex travels, however many ranks found the vertex (Fu, Dasari, Bebee, Berzins, Thompson, "Parallel Breadth First
Search on GPU Clusters", 2014).
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.backends.grid import GridBackend
from dbfs_workers.exchange.grid import GridExchange
from dbfs_workers.levels.direction import (
    bottom_up_may_pay,
    bottom_up_pays,
    expected_search_share,
    require_direction,
)
from dbfs_workers.levels.level_table import LevelTable
from dbfs_workers.levels.traversals import Watch, traverse_each
from dbfs_workers.reports import RankRun
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.grid_scratch import GridScratch
from dbfs_workers.storage.labels import RankLabels
from dbfs_workers.storage.stripe import own_rows

# Place among the counts of a crossing: at the start, the largest degree.
_MAX_DEGREE = 4


def traverse(
    scratch: GridScratch, specs: Sequence[TraversalSpec], exchange: GridExchange, *, watch: Watch, deadline: float
) -> list[RankRun]:
    """Take part in the traversals of a run; arguments and errors as of ``loop.traverse``."""
    table = LevelTable()
    return traverse_each(
        lambda some: [GridLoop.start(scratch, spec, exchange, table) for spec in some],
        specs,
        exchange.carrier,
        watch=watch,
        deadline=deadline,
    )


@dataclass(slots=True)
class GridLoop:
    """One traversal on one rank: the loop's state between two levels. Attributes as of ``loop.LevelLoop``, and:

    Attributes:
        exchange: the rank's messages; its backend runs the levels.
        began: when this rank began to prepare the traversal, in seconds of ``time.perf_counter()``.
        column: this rank's column of the grid.
        degrees: the sum of the degrees of this rank's part of the frontier.
        frontier_edges: over all ranks, the sum of the frontier's degrees.
        found: over all ranks, vertices that the last level found, or more.
        searched: edges that the last level looked at, if it was bottom-up.
    """

    scratch: GridScratch
    spec: TraversalSpec
    exchange: GridExchange
    began: float
    labels: RankLabels
    target_rows: NDArray[np.uint32] | None
    adaptive: bool
    bottom_up: bool
    column: int
    degrees: int
    table: LevelTable
    level: int = 0
    reached: int = 0
    edges: int = 0
    started: float = 0.0
    ended: float = 0.0
    frontier: int = 0
    frontier_edges: int = 0
    unexplored_edges: int = 0
    missing_targets: int = 0
    max_degree: int = 0
    found: int = 0
    searched: int = 0
    search_share: float = field(default_factory=expected_search_share)

    @classmethod
    def start(cls, scratch: GridScratch, spec: TraversalSpec, exchange: GridExchange, table: LevelTable) -> "GridLoop":
        """Return the state before level 0: the sources are labelled and are the frontier.

        Raises:
            InvalidOptionError: as for ``loop.traverse``.
        """
        began = time.perf_counter()
        partition = scratch.partition
        require_direction(spec, in_edges=partition.blocks.into is not None)
        # The parents of a bin's entries are not sent with them.
        exchange.carrier.reset(predecessors=False)
        labels = scratch.start(spec)
        target_rows = own_rows(partition.stripe, partition.rank, spec.targets) if spec.targets else None
        return cls(
            scratch=scratch,
            spec=spec,
            exchange=exchange,
            began=began,
            labels=labels,
            target_rows=None if target_rows is None else scratch.xp.asarray(target_rows),
            adaptive=spec.direction == "auto" and partition.blocks.into is not None,
            bottom_up=spec.direction == "bottom-up",
            column=scratch.column,
            degrees=int(scratch.degrees[scratch.frontier].sum()),
            table=table,
            reached=scratch.frontier.size,
        )

    def run(self, stops: bool = False) -> bool:  # noqa: ARG002
        """Run all levels, and fetch the parents."""
        partition = self.scratch.partition
        self.table.begin()
        bytes_sent = self._expand("start", partition.m_local, int(partition.degrees.max()))
        self.max_degree = self.exchange.largest(_MAX_DEGREE)
        self.started = ended = time.perf_counter()
        while (
            self.frontier and self.level != self.spec.max_depth and (self.target_rows is None or self.missing_targets)
        ):
            counts, search, contracting = self._run_level(ended, bytes_sent)
            bytes_sent = self._expand("expand")
            self.level += 1
            last, ended = ended, time.perf_counter()
            self.table.add(counts, (search, ended - last - search - contracting, contracting))
        if self.spec.predecessors and self.level:
            bytes_sent += self._fetch_parents()
            ended = time.perf_counter()
        # Of the parents, and of a frontier that is not expanded.
        self.table.add_bytes(bytes_sent)
        self.ended = ended
        return True

    def result(self) -> RankRun:
        """Return the labels, counts and times of this rank, after ``run``."""
        records, depth = self.table.end()
        return RankRun(
            labels=self.labels,
            levels=records,
            reached=self.reached,
            edges=self.edges,
            depth=depth,
            elapsed=self.ended - self.started,
            setup=self.started - self.began,
        )

    def _expand(self, phase: str, edges: int = 0, largest: int = 0) -> int:
        """Send the frontier to the column, and choose the next level's direction; return the bytes sent.

        At the start, ``edges`` are all edges of this rank, and ``largest`` is its largest degree.
        """
        scratch = self.scratch
        if self._may_be_bottom_up():
            for peer in self._row_peers():
                self.exchange.post_words(peer, scratch.own_visited)
        self.edges += self.degrees
        bytes_sent = self.exchange.post(self._column_peers(), scratch.frontier)
        missing = 0 if self.target_rows is None else int((self.labels.distances[self.target_rows] < 0).sum())
        counts = (scratch.frontier.size, self.degrees, missing, edges, largest or self.searched)
        sums = self.exchange.cross(self.level, phase, counts)
        before = self.frontier_edges
        self.frontier, self.frontier_edges, self.missing_targets, all_edges, searched = sums
        self.unexplored_edges += all_edges
        if self.adaptive and phase != "start":
            if self.bottom_up:
                self.search_share = expected_search_share(searched, self.unexplored_edges)
            unexplored = self.unexplored_edges - self.frontier_edges
            n = scratch.stripe.n
            self.bottom_up = bottom_up_pays(self.frontier_edges, before, unexplored, n, self.search_share)
        return bytes_sent

    def _may_be_bottom_up(self) -> bool:
        """Return whether the next level may be bottom-up. All ranks have the same answer, before they have the sums."""
        if not self.adaptive:
            return self.bottom_up
        # The share that the level after this one will expect may be as small as that of the first one.
        share, n = expected_search_share(), self.scratch.stripe.n
        return bottom_up_may_pay(self.found, self.max_degree, self.unexplored_edges, n, share)

    def _run_level(self, start: float, bytes_sent: int) -> tuple[tuple[int, ...], float, float]:
        """Search the rank's edges, send along the row what it found, and label what is new.

        Args:
            start: when the level began, in seconds of ``time.perf_counter()``.
            bytes_sent: bytes already sent of the level.

        Returns:
            The level's counts in the order of ``COUNT_FIELDS``; and seconds of the search and of the contraction.
        """
        scratch, exchange, n_local, column = self.scratch, self.exchange, self.scratch.stripe.n_local, self.column
        expanded, distance = scratch.frontier.size, self.level + 1
        self.unexplored_edges -= self.frontier_edges
        scratch.found_ends[:] = 0
        if self.bottom_up:
            bytes_sent += self._absorb_visited()
            edges = self.searched = self.backend.bottom_up(scratch, predecessors=self.spec.predecessors)
        else:
            edges = self.backend.top_down(scratch, self._frontiers(), predecessors=self.spec.predecessors)
            self.searched = 0
        ends: list[int] = scratch.found_ends.tolist()
        found = [scratch.found[c * n_local : c * n_local + end] for c, end in enumerate(ends)]
        for peer in self._row_peers():
            bytes_sent += exchange.post([peer], found[self._column_of(peer)])
        searched = time.perf_counter()
        self.found = exchange.cross(self.level, "fold", (sum(ends), edges, 0, 0, 0))[0]
        crossed = time.perf_counter()
        sizes: list[int] = []
        discovered, self.degrees = self.backend.contract(
            scratch, self.labels, distance, self._found_of_row(found[column], sizes)
        )
        scratch.advance(discovered)
        self.reached += discovered
        contracted = time.perf_counter()
        own = ends[column]
        sent, culled = sum(ends) - own, sum(sizes) - discovered
        filtered = edges - own - sent
        counts = (int(self.bottom_up), expanded, edges, filtered, own, sent, culled, discovered, bytes_sent)
        return counts, searched - start, contracted - crossed

    def _frontiers(self) -> Iterator[NDArray[np.uint32]]:
        """Yield the parts of the column's frontier, by rank of the column."""
        scratch, rank = self.scratch, self.scratch.partition.rank
        for peer in scratch.grid.column_of(rank):
            yield scratch.frontier if peer == rank else self.exchange.rows(peer)

    def _found_of_row(self, own: NDArray[np.uint32], sizes: list[int]) -> Iterator[tuple[int, NDArray[np.uint32]]]:
        """Yield what the row's ranks found of this rank's rows, by finder, first ``own``; append the sizes."""
        sizes.append(own.size)
        yield self.column, own
        for peer in self._row_peers():
            rows = self.exchange.rows(peer)
            sizes.append(rows.size)
            yield self._column_of(peer), rows

    def _absorb_visited(self) -> int:
        """Assemble the column's frontier and the row's visited vertices; return the bytes of this rank's part."""
        scratch, words = self.scratch, self.scratch.stripe.words_local
        rank = scratch.partition.rank
        assert scratch.frontier_bits is not None
        for i, peer in enumerate(scratch.grid.column_of(rank)):
            bits = scratch.frontier_bits[i * words : (i + 1) * words]
            if peer == rank:
                self.backend.mark(scratch.frontier, bits)
            else:
                self.exchange.copy_bits(peer, bits)
        for peer in self._row_peers():
            c = self._column_of(peer)
            scratch.visited[c * words : (c + 1) * words] |= self.exchange.words(peer)
        return scratch.own_visited.nbytes * (scratch.grid.columns - 1)

    def _fetch_parents(self) -> int:
        """Write the parents of the rank's own rows, which the ranks of its row have; return the bytes sent."""
        scratch, exchange, column = self.scratch, self.exchange, self.column
        n_local, predecessors = scratch.stripe.n_local, self.labels.predecessors
        assert predecessors is not None
        found_by = self.backend.rows_by_finder(scratch, self.labels)
        peers = [(peer, self._column_of(peer)) for peer in self._row_peers()]
        bytes_sent = sum(exchange.post([peer], found_by[c]) for peer, c in peers)
        most = max((found_by[c].size for _, c in peers), default=0)
        exchange.cross(self.level, "ask for parents", (most, 0, 0, 0, 0))
        # All levels are over, so the lists of found vertices are free for the answers.
        answers: dict[int, NDArray[np.uint32]] = {}
        for peer, c in peers:
            asked = exchange.rows(peer)
            part = slice(c * n_local, c * n_local + asked.size)
            of_peer = scratch.parents[c * n_local : (c + 1) * n_local]
            answers[peer] = scratch.xp.take(of_peer, asked, out=scratch.found[part])
            bytes_sent += answers[peer].nbytes
        for first in range(0, exchange.largest(0), exchange.entries):
            for peer, _ in peers:
                exchange.post_words(peer, answers[peer][first : first + exchange.entries])
            exchange.cross(self.level, "answer with parents", (most, 0, 0, 0, 0))
            for peer, c in peers:
                predecessors[found_by[c][first : first + exchange.entries]] = exchange.words(peer)
        own = found_by[column]
        predecessors[own] = scratch.parents[column * n_local :][own]
        return bytes_sent

    @property
    def backend(self) -> GridBackend:
        """The backend of the rank's device."""
        return self.exchange.backend

    def _row_peers(self) -> Iterator[int]:
        """Yield the other ranks of the grid's row."""
        rank = self.scratch.partition.rank
        return (peer for peer in self.scratch.grid.row_of(rank) if peer != rank)

    def _column_peers(self) -> Iterator[int]:
        """Yield the other ranks of the grid's column."""
        rank = self.scratch.partition.rank
        return (peer for peer in self.scratch.grid.column_of(rank) if peer != rank)

    def _column_of(self, rank: int) -> int:
        return rank % self.scratch.grid.columns
