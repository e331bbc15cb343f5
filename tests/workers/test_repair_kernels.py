"""Kernels of a repair by themselves: bins that are full, and rows that no message may bring into doubt."""

import numpy as np

from dbfs_workers.levels import repair_kernels as kernels

WIDTH = 64
NONE = np.uint32(0xFFFFFFFF)


class Rank:
    """Rank 0 of two: its labels and its bins of ``entries`` entries, as the kernels take them."""

    def __init__(self, entries: int) -> None:
        self.distances, self.predecessors = np.full(WIDTH, -1, np.int32), np.full(WIDTH, NONE)
        self.marks, self.queue = np.zeros(WIDTH, np.uint8), np.zeros(WIDTH, np.uint32)
        self.state = np.zeros(kernels.STATE, np.int64)
        self.state[kernels.MOST] = 1 << 20
        self.rows = np.zeros(2 * entries, np.uint32)
        self.parents = np.zeros(2 * entries, np.uint32)
        self.ends = np.zeros(2, np.int64)
        self.entries = entries

    @property
    def labels(self):
        touched, before = np.zeros(WIDTH, np.uint32), np.zeros(WIDTH, np.int32)
        return (self.distances, self.predecessors, self.marks, self.queue, touched, before, self.state)

    @property
    def bins(self):
        return self.rows, self.parents, self.ends

    def taken(self) -> list[int]:
        """Empty the bin for rank 1, and return its rows."""
        found = self.rows[self.entries : self.entries + self.ends[1]].tolist()
        self.ends[:] = 0
        return found


def test_a_source_is_never_in_doubt() -> None:
    rank = Rank(4)
    # A source is its own predecessor; a notice comes along its self-loop.
    rank.distances[0], rank.predecessors[0] = 0, 0
    rank.distances[1], rank.predecessors[1] = 1, 0
    for row in (0, 1):
        kernels.doubt(row, np.uint32(0), rank.distances, rank.predecessors, rank.marks, rank.queue, rank.state)
    assert rank.queue[: rank.state[kernels.TAIL]].tolist() == [1]


def test_an_offer_takes_two_entries_or_none() -> None:
    for entries, fits in ((2, 1), (3, 1), (4, 2), (5, 2)):
        rank = Rank(entries)
        offer = (np.uint32(WIDTH + 7), np.uint32(WIDTH), np.uint32(3), np.int32(5))
        sent = [kernels.offer(*offer, *rank.bins) for _ in range(3)]
        assert sent == [index < fits for index in range(3)]
        assert rank.ends.tolist() == [0, 2 * fits]
        assert rank.taken() == [7, 5] * fits


def test_questions_go_on_after_a_full_bin_where_they_stopped() -> None:
    rank = Rank(4)
    neighbours = np.arange(WIDTH, WIDTH + 5, dtype=np.uint32)
    starts, ends = np.zeros(WIDTH, np.int64), np.zeros(WIDTH, np.int64)
    ends[0] = ends[1] = neighbours.size
    lost = np.arange(WIDTH, dtype=np.uint32)
    rank.state[kernels.LOST] = 2
    asked = []
    for _ in range(8):
        kernels.ask_around(starts, ends, neighbours, np.uint32(0), lost, *rank.labels, *rank.bins)
        asked += rank.taken()
    assert rank.state[kernels.ASKED] == 2
    assert asked == [*range(5), *range(5)]


def test_a_row_takes_a_parent_that_brings_it_nearer_and_is_queued_once() -> None:
    rank = Rank(4)
    rank.distances[:3] = (7, 5, -1)
    for row, parent, distance in ((0, 9, 5), (0, 8, 3), (1, 9, 4), (1, 9, 9), (2, 9, 4)):
        kernels.relax(row, np.uint32(parent), distance, *rank.labels)
    assert rank.distances[:3].tolist() == [4, 5, 5]
    assert rank.predecessors[:3].tolist() == [8, NONE, 9]
    assert rank.queue[: rank.state[kernels.TAIL]].tolist() == [0, 2]
    # The distances that the rows had before their first change are noted once each.
    assert rank.state[kernels.TOUCHED] == 2


def test_a_row_that_loses_its_distance_brings_its_children_into_doubt() -> None:
    rank = Rank(4)
    rank.distances[:4] = (1, 2, 2, 2)
    rank.predecessors[:4] = (9, 0, 0, 1)
    starts, ends = np.zeros(WIDTH, np.int64), np.zeros(WIDTH, np.int64)
    # Row 0 has rows 1 to 3 as neighbours, and one of the other rank.
    columns = np.array([1, 2, 3, WIDTH + 1], np.uint32)
    ends[0] = columns.size
    lost = np.zeros(WIDTH, np.uint32)
    kernels.lose(0, starts, ends, columns, np.uint32(0), lost, *rank.labels)
    assert (rank.distances[0], rank.predecessors[0], rank.state[kernels.LOST]) == (-1, NONE, 1)
    assert rank.queue[: rank.state[kernels.TAIL]].tolist() == [1, 2]
    assert rank.state[kernels.LOOKED] == columns.size


def test_offers_are_taken_and_questions_answered_with_the_distance() -> None:
    rank = Rank(4)
    rank.distances[5] = 3
    kernels.take_offers(np.array([0, 6, 5, 1], np.uint32), np.array([70, 0, 71, 0], np.uint32), *rank.labels)
    assert (rank.distances[0], rank.distances[5], rank.distances[1]) == (7, 2, -1)
    asked, askers = np.array([0, 1, 5], np.uint32), np.array([WIDTH + 4, WIDTH + 5, WIDTH + 6], np.uint32)
    kernels.answer(asked, askers, np.uint32(0), rank.distances, rank.state, *rank.bins)
    assert rank.taken() == [4, 7, 6, 2]
    assert kernels.count(rank.distances, np.zeros(WIDTH, np.int64), np.full(WIDTH, 3)) == (2, 3 * (WIDTH - 2), 7)
