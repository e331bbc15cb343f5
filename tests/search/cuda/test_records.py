"""Records of the levels of a run, without a GPU: a stand-in writes the ring in any order that a kernel may use."""

import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dbfs_workers.search.cuda import layout
from dbfs_workers.search.cuda.records import KernelLevels, Records, counted
from dbfs_workers.search.cuda.run import Direction, KernelOutcome, Mode
from dbfs_workers.search.cuda.summary import LabelSummary
from dbfs_workers.search.reports import COUNT_FIELDS, packing

FIELDS = layout.RECORD.names or ()
CAPACITY = 64


class Kernel:
    """A stand-in for the kernel: writes the words of a level one by one in any order, its number at any time."""

    def __init__(self, seed: int, alone: bool = False) -> None:
        self.alone = alone
        self.fields = layout.RECORD_WORDS_SINGLE if alone else layout.RECORD_WORDS_GANG
        self.header = np.zeros(1, layout.HOST_HEADER)
        self.ring = np.zeros((CAPACITY, 8), np.uint64)
        self.random = random.Random(seed)
        self.level = 0
        self.words: list[tuple[int, int, int]] = []

    def start(self) -> None:
        assert not self.words
        self.header[:] = np.zeros(1, layout.HOST_HEADER)
        self.level = 0

    @property
    def has_room(self) -> bool:
        return self.level - int(self.header["drained"][0]) < CAPACITY

    def report(self) -> None:
        assert self.has_room
        slot, tag = self.level % CAPACITY, self.level & layout.TAG_LEVEL | layout.TAG_SET
        self.words += [(slot, j, tag << layout.TAG_SHIFT | value(self.level, j)) for j in range(self.fields)]
        self.level += 1
        self.header["level"] = self.level

    def arrive(self, at_most: int) -> None:
        """Let at most so many of the pending words reach the host."""
        for _ in range(min(at_most, len(self.words))):
            slot, field, word = self.words.pop(self.random.randrange(len(self.words)))
            self.ring[slot, field] = word


def value(level: int, field: int) -> int:
    if FIELDS[field] == "mode":
        return level % len(Mode)
    return (level * 31 + field) % (1 << 48)


@pytest.mark.parametrize("seed", range(5))
def test_records_of_any_depth_come_whole_and_in_order(seed: int) -> None:
    kernel = Kernel(seed, alone=seed % 2 == 1)
    records = Records(kernel.header, kernel.ring, alone=kernel.alone)
    # More levels than there are tags, then fewer, with the tags of the run before.
    for levels in (40_000 if seed == 0 else 900, 5, 0, 70):
        kernel.start()
        records.clear()
        while kernel.level < levels or kernel.words:
            for _ in range(kernel.random.randrange(CAPACITY)):
                if kernel.level < levels and kernel.has_room:
                    kernel.report()
            kernel.arrive(kernel.random.randrange(2 * CAPACITY * len(FIELDS)))
            records.drain()
        found = records.finish()
        assert found.size == levels
        for field, name in enumerate(FIELDS[: kernel.fields]):
            np.testing.assert_array_equal(found[name], [value(level, field) for level in range(levels)], name)


def test_a_full_ring_is_not_written_before_it_is_taken() -> None:
    kernel = Kernel(1)
    records = Records(kernel.header, kernel.ring, alone=kernel.alone)
    for _ in range(CAPACITY):
        kernel.report()
    assert not kernel.has_room
    kernel.arrive(CAPACITY * len(FIELDS))
    records.drain()
    assert kernel.has_room
    assert records.pending == 0
    assert not kernel.ring.any()


def test_a_kernel_as_fast_as_its_host_does_not_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(5)
    records = Records(kernel.header, kernel.ring, alone=kernel.alone)
    take = records._take

    def take_while_more_come(words: NDArray[np.uint64]) -> None:
        take(words)
        assert kernel.level < 2 * CAPACITY, "the host takes records without end"
        kernel.report()
        kernel.arrive(1000)

    monkeypatch.setattr(records, "_take", take_while_more_come)
    for _ in range(3):
        kernel.report()
    kernel.arrive(1000)
    records.drain()
    assert records.progress(0).level == 3
    assert records.pending == 1


def test_a_failed_run_leaves_nothing_to_the_next() -> None:
    kernel = Kernel(2)
    records = Records(kernel.header, kernel.ring, alone=kernel.alone)
    for _ in range(9):
        kernel.report()
    kernel.arrive(1000)
    records.clear()
    records.clear_ring()
    kernel.start()
    for _ in range(9):
        kernel.report()
    records.drain()
    assert records.pending == 9
    kernel.arrive(1000)
    assert records.finish().size == 9


def test_a_run_of_one_look_leaves_its_place_and_an_empty_ring() -> None:
    kernel = Kernel(4)
    records = Records(kernel.header, kernel.ring, alone=kernel.alone)
    for _ in range(3):
        kernel.report()
    kernel.arrive(1000)
    found = records.finish()
    assert records.progress(4)[:3] == (4, 3, bool(found["mode"][-1] == Mode.BOTTOM_UP))
    assert records.progress(4).reached == found["frontier"].sum() + found["discovered"][-1]
    assert not kernel.ring.any()


def test_where_a_run_is() -> None:
    kernel = Kernel(3)
    records = Records(kernel.header, kernel.ring, alone=kernel.alone)
    assert records.progress(4) == (4, 0, False, 0, 0, 0)
    for _ in range(3):
        kernel.report()
    kernel.arrive(1000)
    records.drain()
    discovered = value(2, FIELDS.index("discovered"))
    reached = sum(value(level, 0) for level in range(3)) + discovered
    assert records.progress(4) == (4, 3, True, discovered, reached, 0)


def outcome(*levels: dict[str, int]) -> KernelOutcome:
    records = np.zeros(len(levels), layout.RECORD)
    for record, level in zip(records, levels, strict=True):
        for name, given in level.items():
            record[name] = given
    return KernelOutcome(
        levels=len(levels),
        records=records,
        source_rows=1,
        source_edges=9,
        nanoseconds_a_cycle=0.5,
        seconds=1.0,
        reset_seconds=0.1,
    )


def labels(rows: list[int], degrees: list[int] | None = None) -> LabelSummary:
    """Return a summary by distance; ``degrees`` are the edges of each level, and the last distance has none."""
    return LabelSummary(np.array([rows, [*(degrees or [0] * (len(rows) - 1)), 0]]))


def counts(run: KernelOutcome, summary: LabelSummary, **facts: Any) -> NDArray[np.int64]:
    """Return the counts that a client reads from the report of a run."""
    levels = KernelLevels(run.records.tobytes(), run.nanoseconds_a_cycle, summary.sums.tobytes(), **facts)
    packed: NDArray[np.int64] = packing.unpack(packing.pack(levels))[0]
    return packed


def column(found: NDArray[np.int64], name: str) -> list[int]:
    numbers: list[int] = found[:, COUNT_FIELDS.index(name)].tolist()
    return numbers


def test_leader_levels_are_blank_on_the_other_ranks() -> None:
    kernel = Kernel(4)
    records = Records(kernel.header, kernel.ring, alone=False)
    leader_levels = 3 * CAPACITY + 5
    kernel.start()
    kernel.header["leader_levels"] = leader_levels
    assert records.pending == 0
    records.drain()
    assert records.progress(0) == (0, leader_levels, False, 0, 0, 0)
    kernel.level = leader_levels
    for _ in range(7):
        kernel.report()
    kernel.arrive(1000)
    records.drain()
    found = records.finish()
    assert found.size == leader_levels + 7
    assert set(found["mode"][:leader_levels].tolist()) == {Mode.LEADER}
    assert not any(found[name][:leader_levels].any() for name in FIELDS if name != "mode")
    assert found["frontier"][leader_levels:].tolist() == [
        value(level, 0) for level in range(leader_levels, leader_levels + 7)
    ]
    # The leader discovered vertices of this rank, which sent nothing.
    few = outcome({"mode": Mode.LEADER}, {"mode": Mode.LEADER}, {"mode": Mode.LIGHT, "frontier": 2, "found": 1})
    table = counts(few, labels([0, 0, 2, 1]), ranks=2, slice_bytes=8, predecessors=False, direction=Direction.AUTO)
    assert column(table, "sent") == column(table, "bytes_sent") == [0, 0, 0]
    assert column(table, "culled") == [0, -2, 0]


def test_counts_of_the_leader() -> None:
    leader_levels = outcome({"mode": Mode.LEADER, "frontier": 4, "found": 7})
    table = counts(
        leader_levels, labels([2, 3], [12]), ranks=2, slice_bytes=8, predecessors=True, direction=Direction.AUTO
    )
    assert [column(table, name) for name in ("own", "sent", "culled", "filtered")] == [[3], [4], [4], [5]]
    assert column(table, "bytes_sent") == [32]
    # The frontier of the record counts all ranks, that of the report this rank.
    assert (column(table, "frontier"), column(table, "edges")) == ([2], [12])


RUN = outcome(
    {"mode": Mode.SPARSE, "sent": 4, "found": 7, "cycles": 10},
    {"mode": Mode.DENSE, "sent": 5, "found": 99},
    {"mode": Mode.BOTTOM_UP, "looked_at": 30, "sent": 99, "found": 99},
    {"mode": Mode.LIGHT, "sent": 1, "found": 2},
    {"mode": Mode.BOTTOM_UP, "looked_at": 2},
)
DISCOVERED = [6, 20, 3, 1, 0]
LABELS = labels([1, *DISCOVERED], [9, 50, 999, 6, 999])


def test_counts_of_one_rank_among_several() -> None:
    found = counts(RUN, LABELS, ranks=4, slice_bytes=100, predecessors=True, direction=Direction.AUTO)
    assert column(found, "bottom_up") == [0, 0, 1, 0, 1]
    assert column(found, "frontier") == [1, 6, 20, 3, 1]
    assert column(found, "edges") == [9, 50, 30, 6, 2]
    assert column(found, "own") == [3, 20, 3, 1, 0]
    assert column(found, "sent") == [4, 0, 0, 1, 0]
    assert column(found, "culled") == [1, 0, 0, 1, 0]
    assert column(found, "filtered") == [2, 30, 27, 4, 2]
    # Bins with parents; slices there and back for three peers, and five parents; slices; a bin; two times slices.
    assert column(found, "bytes_sent") == [32, 2 * 300 + 20, 300, 8, 600]
    top_down = counts(RUN, LABELS, ranks=4, slice_bytes=100, predecessors=False, direction=Direction.TOP_DOWN)
    assert column(top_down, "bytes_sent")[:2] == [16, 300]
    _, seconds = KernelLevels(RUN.records.tobytes(), 0.5, LABELS.sums.tobytes(), 4, 100, False, Direction.AUTO).unpack()
    np.testing.assert_array_equal(seconds[:, 0], [5e-9, 0, 0, 0, 0])


def test_counts_of_a_rank_alone() -> None:
    found = counts(RUN, LABELS, ranks=1, slice_bytes=100, predecessors=False, direction=Direction.AUTO)
    assert column(found, "own") == column(found, "discovered") == DISCOVERED
    assert not any(column(found, "sent") + column(found, "culled"))
    assert column(found, "bytes_sent") == [0] * 5


def test_more_levels_than_a_report_has_rows() -> None:
    levels = 2 * packing.MOST_ROWS
    run = outcome(*[{"mode": Mode.LIGHT, "found": 1, "cycles": level} for level in range(levels)])
    summary = labels([1, *[2, 3] * (levels // 2)], [1] * levels)
    table, seconds = packing.unpack(
        packing.pack(KernelLevels(run.records.tobytes(), 0.5, summary.sums.tobytes(), 1, 8, False, Direction.AUTO))
    )
    assert column(table, "frontier") == [3, *[5] * (levels // 2 - 1)]
    assert column(table, "largest_frontier") == [2, *[3] * (levels // 2 - 1)]
    np.testing.assert_allclose(seconds[:, 0], (4 * np.arange(levels // 2) + 1) * 0.5e-9)


def test_counts_that_the_kernel_made() -> None:
    run = outcome(
        {"mode": Mode.DENSE, "discovered": 6, "edges": 50}, {"mode": Mode.BOTTOM_UP, "discovered": 20, "edges": 70}
    )
    assert counted(run).sums.tolist() == [[1, 6, 20], [9, 50, 70]]
    assert counted(outcome()).sums.tolist() == [[1], [9]]


def test_counts_of_no_levels() -> None:
    empty = counts(outcome(), labels([1]), ranks=2, slice_bytes=8, predecessors=False, direction=0)
    assert empty.shape == (0, len(COUNT_FIELDS))
