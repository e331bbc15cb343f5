"""Levels of a 2-D partition by strategies of the papers: what such a level searches and sends otherwise."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.grid.exchange import ID_BYTES
from dbfs_workers.features.grid.levels import Fold, GridWork
from dbfs_workers.features.lab.device import Gpu
from dbfs_workers.features.lab.enactor import policy_constants
from dbfs_workers.features.lab.purpose import strategy_of
from dbfs_workers.features.lab.radix_bins import RadixBins
from dbfs_workers.features.lab.tuning import Tuning
from dbfs_workers.search.levels.level_table import LevelTable
from dbfs_workers.search.levels.state import State
from dbfs_workers.search.levels.stepper import elapsed
from dbfs_workers.search.partition.partition import on_host
from dbfs_workers.search.reports import Row
from dbfs_workers.search.reports.crossings import Found, Nothing


@dataclass
class RowScan(Fold):
    """A level whose finds pass along the row of the grid (Krajecki 2016, algorithms 2 and 3): see ``Stepper``.

    A top-down search takes the frontier of the column as a bitmap, a word at a time.
    An exclusive scan along the row tells each rank what the ranks before it found, so that the first finder alone keeps
    a vertex. Then all ranks send the whole row what they keep: the union, which all of them mark visited.
    """

    # uint32[columns, columns * words_local]: by column of the grid, what the rank there keeps of the row's vertices.
    _kept: NDArray[np.uint32] = field(init=False)
    # Vertices of peers that this rank found and does not keep, since a rank before it found them too.
    _dropped: int = field(init=False)

    def _search_top_down(self, *, predecessors: bool) -> int:
        scratch = self.working.scratch
        bits = scratch.xp.empty(scratch.grid.rows * scratch.stripe.words_local, np.uint32)
        self.mark_frontier(bits)
        return self.working.operators.enlist(scratch, bits, predecessors=predecessors)

    def _send(self, state: State, row: Row, found: list[NDArray[np.uint32]], counts: Found) -> Found:
        scratch, messages = self.working.scratch, self.working.messages
        words, column = scratch.stripe.words_local, scratch.column
        bits = scratch.xp.empty(len(found) * words, np.uint32)
        for owner, rows in enumerate(found):
            messages.backend.mark(rows, bits[owner * words : (owner + 1) * words])
        self._kept = scratch.xp.empty((len(found), bits.size), np.uint32)
        of_all = counts
        # A message has room for so many words.
        for first in range(0, bits.size, messages.entries):
            part = np.s_[first : first + messages.entries]
            before = self._scan(state, row, bits[part])
            # A peer keeps these vertices, so they count as unvisited until its message is contracted.
            scratch.visited[part] &= ~(bits[part] & before)
            bits[part] &= ~before
            for peer, _ in self.working.row_peers():
                messages.post_words(peer, bits[part])
                row.bytes_sent += bits[part].nbytes
            of_all = messages.cross(state.level, "union", counts)
            self._kept[column][part] = bits[part]
            for peer, of_peer in self.working.row_peers():
                self._kept[of_peer][part] = messages.words(peer)
        for of_peer in range(len(found)):
            # The rank's own slice waits for the contraction, which tells new vertices by it.
            for owner in range(len(found)):
                if owner != column:
                    part = np.s_[owner * words : (owner + 1) * words]
                    scratch.visited[part] |= self._kept[of_peer][part]
        sent = sum(rows.size for rows in found) - found[column].size
        kept = self._kept[column].copy()
        kept[column * words : (column + 1) * words] = 0
        self._dropped = sent and sent - self.working.operators.unpack(kept, scratch.xp.empty(sent, np.uint32))
        return of_all

    def _contract(self, state: State, own: NDArray[np.uint32]) -> tuple[int, int, int]:
        discovered, degrees, received = super()._contract(state, own)
        # What the rank dropped was found twice, so that it counts as culled.
        return discovered, degrees, received + self._dropped

    def _scan(self, state: State, row: Row, bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return what the ranks of the columns before this one found, given what this one found."""
        scratch, messages = self.working.scratch, self.working.messages
        rank, column = scratch.partition.rank, scratch.column
        before: NDArray[np.uint32] = scratch.xp.zeros_like(bits)
        for sender in range(scratch.grid.columns - 1):
            if sender == column:
                messages.post_words(rank + 1, before | bits)
                row.bytes_sent += ID_BYTES * bits.size
            messages.cross(state.level, "scan", Nothing())
            if sender + 1 == column:
                before[:] = messages.words(rank - 1)
        return before

    def _found_of_row(
        self,
        own: NDArray[np.uint32],  # noqa: ARG002
        sizes: list[int],
    ) -> Iterator[tuple[int, NDArray[np.uint32]]]:
        scratch, operators = self.working.scratch, self.working.operators
        words = scratch.stripe.words_local
        mine = np.s_[scratch.column * words : (scratch.column + 1) * words]
        unpacked = scratch.xp.empty(scratch.stripe.n_local, np.uint32)
        for column, bits in enumerate(self._kept):
            rows = unpacked[: operators.unpack(bits[mine], unpacked)]
            if column != scratch.column:
                sizes.append(rows.size)
            yield column, rows


@dataclass
class SortedBins(Fold):
    """A level of ranks in one row whose neighbours are sorted into bins (Merrill 2012, section 6): see ``Stepper``.

    Duplicates may go on, so the counts of vertices are exact only when the traversal has ended.
    """

    searches_bottom_up: ClassVar[bool] = False
    bins: RadixBins

    def end(self, state: State, table: LevelTable) -> None:
        """Count the vertices by their labels. The finders have written the parents."""
        distances, scratch, rows = self.working.labels.distances, self.working.scratch, table.rows()
        reached = distances >= 0
        state.reached, state.edges = int(reached.sum()), int(scratch.degrees[reached].sum())
        by_level = scratch.xp.bincount(distances[reached], minlength=table.levels + 1)[1:]
        if len(rows):
            new = np.add.reduceat(on_host(by_level), np.cumsum(rows["levels"]) - rows["levels"])
            rows["culled"] += rows["discovered"] - new
            rows["discovered"] = new

    def _search(self, *, bottom_up: bool) -> tuple[int, list[NDArray[np.uint32]]]:  # noqa: ARG002
        return self.bins.sort(self.working.scratch.frontier)

    def _send(self, state: State, row: Row, found: list[NDArray[np.uint32]], counts: Found) -> Found:
        """Cross; the peers read the bins where these are."""
        words = 1 if self.working.labels.predecessors is None else 2
        row.bytes_sent += ID_BYTES * words * sum(found[column].size for _, column in self.working.row_peers())
        row.search += elapsed(state)
        return self.working.messages.cross(state.level, "fold", counts)

    def _contract(self, state: State, own: NDArray[np.uint32]) -> tuple[int, int, int]:
        scratch, labels = self.working.scratch, self.working.labels
        scratch.frontier, entries = self.bins.contract(labels, state.level + 1, state.found)
        return scratch.frontier.size, 0, entries - own.size


def fold_of(working: GridWork, spec: TraversalSpec) -> Fold:
    """Return what runs the levels of a traversal by a strategy."""
    policy = strategy_of(spec).policy
    if policy.strategy == "row-scan":
        return RowScan(working)
    (edges,), rank, ranks = working.scratch.blocks.out, working.scratch.partition.rank, working.scratch.grid.columns
    device, lend = Gpu(Tuning().threads, policy_constants(policy)), working.messages.lend
    options: dict[str, Any] = {"rank": rank, "ranks": ranks, "policy": policy, "predecessors": spec.predecessors}
    return SortedBins(working, RadixBins(device, edges.row_offsets, edges.columns, lend=lend, **options))
