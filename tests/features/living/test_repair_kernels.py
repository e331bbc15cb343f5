"""Kernels of a repair by themselves: bins that are full, and rows that no message may bring into doubt."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.jit import read_only
from dbfs_workers.features.living.kernels import repair as kernels
from dbfs_workers.features.living.kernels import repair_round as rounds
from dbfs_workers.search.cpu.kernels.phases import Bins
from dbfs_workers.search.partition.partition import Rows

WIDTH = 64
NONE = np.uint32(0xFFFFFFFF)


class Rank:
    """Rank 0 of two: its labels and its bins of ``entries`` entries, as the kernels take them."""

    def __init__(self, entries: int) -> None:
        rows, ring = np.zeros(WIDTH, np.uint32), np.zeros(WIDTH + 4, np.uint32)
        self.distances, self.predecessors = np.full(WIDTH, -1, np.int32), np.full(WIDTH, NONE)
        lists = (ring, ring.copy(), rows, rows.copy(), np.zeros(WIDTH, np.int32))
        self.labels = kernels.Labels(self.distances, self.predecessors, np.zeros(WIDTH, np.uint8), *lists)
        self.state: Any = np.zeros(1, kernels.STATE).view(np.recarray)[0]
        self.state.most = 1 << 20
        self.bins = Bins(np.zeros(2 * entries, np.uint32), np.zeros(2 * entries, np.uint32), np.zeros(2, int))
        self.entries = entries

    @property
    def queued(self) -> list[int]:
        """The rows in the queue."""
        return self.labels.queue[: self.state.tail].tolist()

    def taken(self) -> list[int]:
        """Empty the bin for rank 1, and return its rows."""
        found = self.bins.rows[self.entries : self.entries + self.bins.ends[1]].tolist()
        self.bins.ends[:] = 0
        return found


def rows_of(columns: list[int], rows: int) -> Rows:
    """Return lists of which the first ``rows`` ones all have these columns."""
    starts, ends = np.zeros(WIDTH, np.int64), np.zeros(WIDTH, np.int64)
    ends[:rows] = len(columns)
    return Rows(read_only(starts), read_only(ends), read_only(np.array(columns, np.uint32)))


def entries(*found: int) -> NDArray[np.uint32]:
    """Return one half of the entries of a bin."""
    return np.array(found, np.uint32)


def test_a_source_is_never_in_doubt() -> None:
    rank = Rank(4)
    # A source is its own predecessor; a notice comes along its self-loop.
    rank.distances[0], rank.predecessors[0] = 0, 0
    rank.distances[1], rank.predecessors[1] = 1, 0
    for row in (0, 1):
        kernels.doubt(row, np.uint32(0), rank.labels, rank.state)
    assert rank.queued == [1]


def test_an_offer_takes_two_entries_or_none() -> None:
    for size, fits in ((2, 1), (3, 1), (4, 2), (5, 2)):
        rank = Rank(size)
        offer = (np.uint32(WIDTH + 7), np.uint32(WIDTH), np.uint32(3), np.int32(5))
        sent = [kernels.offer(*offer, rank.bins) for _ in range(3)]
        assert sent == [index < fits for index in range(3)]
        assert rank.bins.ends.tolist() == [0, 2 * fits]
        assert rank.taken() == [7, 5] * fits


def test_questions_go_on_after_a_full_bin_where_they_stopped() -> None:
    rank = Rank(4)
    parents = rows_of([*range(WIDTH, WIDTH + 5)], 2)
    rank.labels.lost[:] = np.arange(WIDTH)
    rank.state.lost = 2
    asked = []
    for _ in range(8):
        rounds.ask_around(parents, rank.labels, rank.bins, rank.state)
        asked += rank.taken()
    assert rank.state.asked == 2
    assert asked == [*range(5), *range(5)]


def test_changed_edges_go_on_after_a_full_bin_where_they_stopped() -> None:
    rank = Rank(5)
    rank.distances[:3], rank.predecessors[1] = (4, 9, -1), 0
    # Row 2 has no distance to offer; row 1 is a child of row 0 on this rank.
    sources, targets = (0, 2, 0, 0, 0, 0, 0), (WIDTH + 1, WIDTH + 2, 1, WIDTH + 3, WIDTH + 4, WIDTH + 5, WIDTH + 6)
    changes = rounds.Changes(*(read_only(entries(*half)) for half in (sources, targets) * 2))
    rounds.send_deleted(changes, rank.labels, rank.bins, rank.state)
    assert (rank.state.deleted, rank.taken(), rank.queued) == (6, [1, 2, 3, 4, 5], [1])
    rounds.send_deleted(changes, rank.labels, rank.bins, rank.state)
    assert (rank.state.deleted, rank.taken()) == (7, [6])
    for inserted, sent in ((4, [1, 4, 3, 4]), (6, [4, 4, 5, 4]), (7, [6, 4])):
        rounds.send_inserted(changes, rank.labels, rank.bins, rank.state)
        assert (rank.state.inserted, rank.taken()) == (inserted, sent)
    assert (rank.distances[1], rank.queued) == (5, [1, 1])


def test_a_row_takes_a_parent_that_brings_it_nearer_and_is_queued_once() -> None:
    rank = Rank(4)
    rank.distances[:3] = (7, 5, -1)
    for row, parent, distance in ((0, 9, 5), (0, 8, 3), (1, 9, 4), (1, 9, 9), (2, 9, 4)):
        kernels.relax(row, np.uint32(parent), distance, rank.labels, rank.state)
    assert rank.distances[:3].tolist() == [4, 5, 5]
    assert rank.predecessors[:3].tolist() == [8, NONE, 9]
    assert rank.queued == [0, 2]
    # The distances that the rows had before their first change are noted once each.
    assert rank.state.touched == 2
    assert rank.labels.before[:2].tolist() == [7, -1]


def test_a_row_that_loses_its_distance_brings_its_children_into_doubt() -> None:
    rank = Rank(4)
    rank.distances[:4] = (1, 2, 2, 2)
    rank.predecessors[:4] = (9, 0, 0, 1)
    # Row 0 has rows 1 to 3 as neighbours, and one of the other rank.
    kernels.lose(0, rows_of([1, 2, 3, WIDTH + 1], 1), rank.labels, rank.state)
    assert (rank.distances[0], rank.predecessors[0], rank.state.lost) == (-1, NONE, 1)
    assert rank.queued == [1, 2]
    assert rank.state.looked == 4


def test_offers_are_taken_and_questions_answered_with_the_distance() -> None:
    rank = Rank(4)
    rank.distances[5] = 3
    # A header, two offers, and questions behind them.
    rows, others = entries(5, 0, 6, 5, 1, 0, 1, 5), entries(0, 70, 0, 71, 0, WIDTH + 4, WIDTH + 5, WIDTH + 6)
    kernels.take_offers(rows, others, 1, 5, rank.labels, rank.state)
    assert (rank.distances[0], rank.distances[5], rank.distances[1]) == (7, 2, -1)
    rounds.answer(rows, others, rank.labels, rank.bins, rank.state)
    assert rank.taken() == [4, 7, 6, 2]
    assert kernels.count(rank.distances, np.zeros(WIDTH, np.int64), np.full(WIDTH, 3)) == (2, 3 * (WIDTH - 2), 7)
