"""The levels of a batch: many sources at once, with a bit for each source where a traversal has a bit.

One look at an edge serves all sources of the batch (Then et al., "The More the Merrier: Efficient Multi-Source Graph
Traversal", VLDB 2014). A level is a stepper of the loop. Top-down, each rank adds the words of its frontier to those of
the neighbours, and sends the words of other ranks' vertices to their owners. Bottom-up, each rank sends the words of
its frontier to all others; then every row looks for the bits that it lacks, and is done when it has all that are in the
frontier. Words travel in the bins, as runs of consecutive vertices: see ``batch_kernels.pack``.

Where the sources share little, the rest of the batch runs one by one: see ``_shares``.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.backends import batch_kernels as kernels
from dbfs_workers.direction import bottom_up_pays_batch
from dbfs_workers.exchange.protocol import Exchange
from dbfs_workers.levels.level_table import LevelTable
from dbfs_workers.levels.loop import LevelLoop
from dbfs_workers.levels.rank_levels import RankLevels
from dbfs_workers.levels.state import BOTTOM_UP, TOP_DOWN, Row, State, end_level, over, take_sums
from dbfs_workers.levels.stepper import Traversed, elapsed
from dbfs_workers.spec import TraversalSpec
from dbfs_workers.storage.batch import BatchScratch, RankBatch, width_of
from dbfs_workers.storage.labels import RankLabels

# Levels before the first look whether the sources share enough. Graphs of small diameter have fewer.
_LEVELS: Final = 16
# Until so many levels, the look also waits for this share of the vertices.
_SURE_LEVELS: Final = 64
_SURE_SHARE: Final = 1 / 16
# Bits that a vertex of the frontier needs on average, or the batch takes longer than one source after another; so many
# times (1 + width / 16). A lattice of 512 a side took 90 to 195 ns a vertex with 64 sources, 215 with 256, and 36 to 41
# a bit one by one; its vertices have 1.1 to 1.3 bits.
_LEAST_SHARED: Final = 4.0
# A level costs as much as these vertices, and as this share of the graph's.
_LEVEL_VERTICES: Final = 64
_LEVEL_SHARE: Final = 1 / 1024


class BatchTraversed(Traversed):
    """See ``Traversed``. The targets of a batch end nothing."""

    labels: RankBatch

    def count_missing_targets(self) -> int:
        """Return 0."""
        return 0


class BatchLevels(RankLevels[BatchScratch]):
    """The levels of a rank in a batch: see ``RankLevels``. The class is also the stepper of these levels.

    Args:
        alone: what runs the levels of one source, of any layout.
        exchange: this rank's end of the exchange.
        free_bytes: returns the bytes that labels may still take.
        together: whether sources may share levels; only of the layout 1d.
    """

    def __init__(
        self, alone: RankLevels[Any], exchange: Exchange, free_bytes: Callable[[], int], *, together: bool
    ) -> None:
        of_one = alone.scratch
        in_edges = of_one.frontier_bits is not None
        scratch = BatchScratch(of_one.partition, of_one.max_degree, in_edges=in_edges, together=together)
        super().__init__(scratch, exchange, BatchTraversed())
        self._alone, self._free_bytes, self._together = alone, free_bytes, together
        self.steppers = {TOP_DOWN: self, BOTTOM_UP: self}

    def start(self, spec: TraversalSpec, labels: RankLabels, state: State, *, stops: bool) -> bool:
        """See ``RankLevels``."""
        assert isinstance(labels, RankBatch)
        self._spec, self._kept, self._adaptive = spec, labels, state.adaptive
        # Directions are those of ``bottom_up_pays_batch``, and targets end nothing.
        state.adaptive = state.measuring = state.measured = state.targets = False
        self._counts: list[NDArray[np.int64]] = []
        # Over all ranks: vertices of all frontiers, and their bits.
        self._vertices = self._bits = 0
        self._shared = self._together
        if not super().start(spec, labels, state, stops=stops):
            return False
        self._exchange.reset(True)
        self._edges = state.unexplored_edges
        if self._shared:
            state.reached, state.edges = self._settle(state, Row())
        else:
            state.frontier = 0
        return True

    def run(self, state: State, table: LevelTable) -> None:
        """Run a level; see ``Stepper``."""
        row, scratch, width, first = table.row(), self.scratch, self.scratch.width, self.scratch.first_id
        part, own, reached, edges = scratch.partition, scratch.own_words, state.reached, state.edges
        if state.bottom_up:
            self._send(state, row, scratch.live, scratch.front, everywhere=True)
            union, lacking = np.zeros(width, np.uint64), np.zeros(width, np.uint64)
            kernels.unite(width, scratch.live, scratch.front, union)
            assert part.parent_rows is not None
            row.edges = kernels.pull(
                *(*part.parent_rows, first, width, union, scratch.live, scratch.front, scratch.seen),
                *(scratch.found, scratch.marked[own], lacking),
            )
            row.search += elapsed(state)
        else:
            row.edges = kernels.push(
                *(*part.rows, first, width, scratch.live[own], scratch.front),
                *(scratch.found, scratch.marked),
            )
            row.search += elapsed(state)
            self._send(state, row, scratch.marked, scratch.found, everywhere=False)
        kernels.clear(width, scratch.live, scratch.front)
        new, new_edges = self._settle(state, row)
        # ``end_level`` counts vertices, where a batch counts the vertices of each source.
        state.reached, state.edges = reached + new, edges + new_edges
        table.add()

    def end(self, state: State) -> None:
        """Run the sources one by one if they share too little; complete the counts, and clear the frontier."""
        if self._shared:
            self._kept.counts = np.array(self._counts)
        else:
            self._run_alone(state)
            state.ended = time.perf_counter_ns()
        scratch = self.scratch
        kernels.clear(scratch.width, scratch.live, scratch.front)
        kernels.clear(scratch.width, scratch.marked, scratch.found)

    def _settle(self, state: State, row: Row) -> tuple[int, int]:
        """Make the new bits of the rank's rows the next frontier, cross with the sums, and choose the direction.

        Returns:
            The new bits, and the sum of their rows' degrees.
        """
        scratch, kept, width, first = self.scratch, self._kept, self.scratch.width, self.scratch.first_id
        rows, marked, found = scratch.partition.rows, scratch.marked[scratch.own_words], scratch.found
        distance, sources = len(self._counts), len(self._spec.sources)
        counts, planes = np.zeros(64 * width, np.int64), np.zeros(32 * width, np.uint64)
        new, degrees, bits, edges = kernels.settle(
            rows.starts, rows.ends, first, width, marked, scratch.seen, found, planes, counts
        )
        self._counts.append(counts[:sources])
        distances, item, nearest = kept.hold(distance, self._free_bytes)
        if distances.size or nearest.size:
            kernels.note(distance, first, width, marked, found, sources, distances, item, nearest)
        if kept.target_rows.size:
            at_targets = kept.at_targets.reshape(-1)
            kernels.note_targets(distance, first, width, kept.target_rows, found, sources, at_targets)
        row.own = new
        row.contract += elapsed(state)
        sums = self._exchange.cross(state.level, "batch", (new, degrees, bits, 0, row.edges), sliced=False)
        scratch.advance()
        if distance:
            state.found, state.inspected = sums[0], sums[4]
            end_level(state, row, new)
        else:
            state.size = new
        row.exchange += elapsed(state)
        take_sums(state, sums[0], sums[1], 0)
        self._vertices += sums[0]
        self._bits += sums[2]
        if self._adaptive:
            state.bottom_up = bottom_up_pays_batch(state, self._edges, sums[4])
        if not over(state) and not self._shares(state):
            self._shared, state.frontier = False, 0
        return bits, edges

    def _shares(self, state: State) -> bool:
        """Return whether the sources share enough so far. All ranks return the same."""
        sure = state.level >= _SURE_LEVELS or self._vertices >= _SURE_SHARE * state.n
        if state.level < _LEVELS or not sure:
            return True
        cost = self._vertices + state.level * (_LEVEL_VERTICES + _LEVEL_SHARE * state.n)
        return self._bits >= _LEAST_SHARED * (1 + self.scratch.width / 16) * cost

    def _send(self, state: State, row: Row, bits: Any, words: Any, *, everywhere: bool) -> None:
        """Send the words of vertices to their owners, and clear them here; or those of the own rows to all others.

        Args:
            state: the state.
            row: the level's row; updated.
            bits: bitmap of vertices; afterwards with the received ones.
            words: their words; updated as well.
            everywhere: whether the own rows' words go to all ranks.
        """
        exchange, width, stripe = self._exchange, self.scratch.width, self.scratch.partition.stripe
        p, rank, n_local = stripe.p, exchange.rank, stripe.n_local
        peers = [peer for peer in range(p) if peer != rank]
        following = {peer: (rank if everywhere else peer) * n_local for peer in peers}
        ends = {peer: vertex + n_local for peer, vertex in following.items()}
        unfinished = p > 1
        while unfinished:
            entries = exchange.bin_rows.size // p
            for peer in peers:
                of_peer = slice(peer * entries, (peer + 1) * entries)
                following[peer], end = kernels.pack(
                    *(width, following[peer], ends[peer], bits, words),
                    *(exchange.bin_rows[of_peer], exchange.bin_parents[of_peer]),
                )
                exchange.bin_ends[peer] = end
                row.bytes_sent += 8 * end
            left = sum(ends.values()) - sum(following.values())
            row.contract += elapsed(state)
            sums = exchange.cross(state.level, "words of a batch", (0, 0, 0, left, 0), sliced=False)
            row.exchange += elapsed(state)
            for rows, parents in exchange.incoming():
                assert parents is not None
                kernels.unpack(width, rows, parents, bits, words)
            unfinished = sums[3] > 0
        for peer in () if everywhere else peers:
            of_peer = slice(peer * stripe.words_local, (peer + 1) * stripe.words_local)
            kernels.clear(width, bits[of_peer], words[peer * n_local * width : (peer + 1) * n_local * width])

    def _run_alone(self, state: State) -> None:
        """Run the sources one by one, and take their labels. What the batch has found so far stays right."""
        kept, spec = self._kept, self._spec
        width, sources = width_of(len(spec.sources)), len(spec.sources)
        by_source: list[NDArray[np.int64]] = []
        state.reached = state.edges = 0
        for place, source in enumerate(spec.sources):
            loop = LevelLoop(self._alone, replace(spec, sources=(source,), batch=(), targets=()), counted=False)
            loop.run()
            labels, levels = loop.labels.distances, loop.state.level
            distances, item, nearest = kept.hold(levels, self._free_bytes)
            counts = np.zeros(levels + 1, np.int64)
            kernels.take_labels(labels, place, sources, counts, width, kept.seen, distances, item, nearest)
            kept.at_targets[:, place] = labels[kept.target_rows]
            by_source.append(counts)
            state.reached += loop.state.reached
            state.edges += loop.state.edges
        depth = max(len(counts) for counts in by_source)
        kept.counts = np.array([np.pad(counts, (0, depth - len(counts))) for counts in by_source]).T.copy()
