"""The contract of a backend's phases, against plain Python over sets: backend x graph x ranks x predecessors.

Orders within a bin and a queue, and which of several parents is chosen, are the backend's own.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dbfs_workers.base.errors import InvalidOptionError
from dbfs_workers.search import backends
from dbfs_workers.search.backend import Backend
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.stripe import NO_VERTEX, Stripe
from tests.support import graphs
from tests.support.gang import partitions, spec
from tests.support.gpus import on_gpu


@pytest.fixture(scope="module", params=["cpu", on_gpu("cuda", id="cuda")])
def backend(request: pytest.FixtureRequest) -> Backend:
    return backends.get(request.param)


@dataclass
class Case:
    """A level of rank ``rank``: its rows, a frontier of them, and what was visited before (the frontier among it)."""

    partition: Partition
    frontier: NDArray[np.uint32]
    visited: set[int]

    @property
    def stripe(self) -> Stripe:
        return self.partition.stripe

    @property
    def first_id(self) -> int:
        return self.partition.rank * self.stripe.n_local

    def edges(self) -> list[tuple[int, int]]:
        """(parent, neighbour) of each edge of the frontier, as internal ids."""
        offsets, columns = self.partition.row_offsets, self.partition.columns
        return [
            (self.first_id + row, int(u))
            for row in self.frontier.tolist()
            for u in columns[offsets[row] : offsets[row + 1]]
        ]

    def found(self) -> dict[int, set[int]]:
        """The parents of each neighbour that was not visited."""
        found: dict[int, set[int]] = {}
        for parent, neighbour in self.edges():
            if neighbour not in self.visited:
                found.setdefault(neighbour, set()).add(parent)
        return found


def bitmap(ids: set[int], words: int) -> NDArray[np.uint32]:
    bits = np.zeros(words * 32, bool)
    bits[list(ids)] = True
    return np.packbits(bits, bitorder="little").view(np.uint32)


def members(bits: NDArray[np.uint32]) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist())


@st.composite
def cases(draw: st.DrawFn) -> Case:
    # Past 512 edges a warp's piece ends within a list; past 1024 rows the degrees are summed by a scan of its own.
    n = draw(st.sampled_from([1, 5, 40, 1500, 5000]))
    arrays = graphs.random(n, draw(st.integers(0, 6)) * n, draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):
        spokes = np.arange(n)
        arrays = n, np.concatenate([arrays[1], 0 * spokes]), np.concatenate([arrays[2], spokes])
    p = draw(st.integers(1, 4))
    partition = draw(st.sampled_from(partitions(*arrays, p, directed=True)))
    owned = partition.stripe.owned(partition.rank)
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    frontier = chance.permutation(owned)[: chance.integers(0, owned + 1)].astype(np.uint32)
    ids = [partition.stripe.internal(v) for v in range(n)]
    visited = set(chance.choice(ids, chance.integers(0, n + 1), replace=False).tolist())
    visited |= {partition.rank * partition.stripe.n_local + row for row in frontier.tolist()}
    return Case(partition, frontier, visited)


class Device:
    """A case's arrays on a backend's device; it stands for the bins of an exchange as well."""

    def __init__(self, case: Case, backend: Backend) -> None:
        xp, stripe = backend.xp, case.stripe
        self.scratch = Scratch(case.partition, xp)
        self.scratch.visited[:] = xp.asarray(bitmap(case.visited, stripe.words))
        self.scratch.frontier = xp.asarray(case.frontier)
        self.labels = RankLabels.unreached(xp, stripe, predecessors=True)
        self.distances_only = RankLabels(self.labels.distances, None)
        self.bin_rows = xp.full(stripe.p * stripe.n_local, NO_VERTEX, np.uint32)
        self.bin_parents = xp.full(stripe.p * stripe.n_local, NO_VERTEX, np.uint32)
        self.bin_ends = np.zeros(stripe.p, np.int64)


examples = settings(max_examples=60, deadline=None, derandomize=True)
wanted = st.booleans()


@examples
@given(case=cases(), with_parents=wanted)
def test_expand_and_filter_partition(backend: Backend, case: Case, with_parents: bool) -> None:
    on, stripe = Device(case, backend), case.stripe
    partition, frontier = on.scratch.partition, on.scratch.frontier
    edges = backend.expand(partition.out_edges, frontier, case.first_id, with_parents)
    neighbours = backend.to_host(edges.neighbours).tolist()
    assert backend.edge_count(partition, frontier) == len(neighbours) == len(case.edges())
    if with_parents:
        assert sorted(zip(backend.to_host(edges.parents).tolist(), neighbours, strict=True)) == sorted(case.edges())
    else:
        assert edges.parents is None
        assert sorted(neighbours) == sorted(u for _, u in case.edges())

    bins, found = backend.filter_partition(edges, on.scratch.visited, stripe), case.found()
    rows = backend.to_host(bins.rows).astype(np.int64)
    ids = rows + np.repeat(np.arange(stripe.p), np.diff(bins.offsets)) * stripe.n_local
    assert set(ids.tolist()) == set(found)
    assert (rows < stripe.n_local).all()
    marked = members(backend.to_host(on.scratch.visited))
    assert case.visited <= marked <= case.visited | set(found)
    if backend.name == "cpu":
        assert len(ids) == len(found)
        assert marked == case.visited | set(found)
    if with_parents:
        parents = backend.to_host(bins.parents).tolist()
        assert all(parent in found[u] for u, parent in zip(ids.tolist(), parents, strict=True))


@examples
@given(case=cases(), with_parents=wanted, own=st.booleans())
def test_contract_labels_the_new_vertices_of_a_bin(backend: Backend, case: Case, with_parents: bool, own: bool) -> None:
    on, xp = Device(case, backend), backend.xp
    rows = np.arange(case.stripe.owned(case.partition.rank))[::-1].astype(np.uint32)
    visited_rows = {i - case.first_id for i in case.visited} if not own else set()
    new = [row for row in rows.tolist() if row not in visited_rows]
    parents = xp.asarray(rows + np.uint32(7)) if with_parents else None
    found = backend.contract(
        xp.asarray(rows),
        parents,
        on.scratch.own_visited,
        3,
        on.labels if with_parents else on.distances_only,
        on.scratch.next_queue,
        own=own,
    )
    assert sorted(backend.to_host(on.scratch.next_queue)[:found].tolist()) == sorted(new)
    expected = np.full(case.stripe.n_local, -1)
    expected[new] = 3
    np.testing.assert_array_equal(backend.to_host(on.labels.distances), expected)
    expected_parents = np.full(case.stripe.n_local, NO_VERTEX)
    if with_parents:
        expected_parents[new] = np.array(new, np.uint32) + np.uint32(7)
    np.testing.assert_array_equal(backend.to_host(on.labels.predecessors), expected_parents)
    if not own:
        assert members(backend.to_host(on.scratch.own_visited)) >= set(rows.tolist())
        again = backend.contract(
            xp.asarray(rows), parents, on.scratch.own_visited, 4, on.distances_only, on.scratch.next_queue
        )
        assert again == 0


@examples
@given(case=cases(), with_parents=wanted)
def test_top_down_labels_own_rows_and_bins_the_others(backend: Backend, case: Case, with_parents: bool) -> None:
    on, stripe, rank = Device(case, backend), case.stripe, case.partition.rank
    # Something was binned in a level before: it stays.
    before = np.minimum(np.arange(stripe.p), stripe.n_local - stripe.owned(rank))
    before[rank] = 0
    on.bin_ends[:] = before
    found = case.found()
    labels = on.labels if with_parents else on.distances_only
    edges, own, sent, unfinished = backend.top_down(on.scratch, labels, 5, on)
    assert not unfinished
    own_rows = backend.to_host(on.scratch.next_queue)[:own].tolist()
    binned = {}
    rows, parents = backend.to_host(on.bin_rows), backend.to_host(on.bin_parents)
    for owner in range(stripe.p):
        for at in range(owner * stripe.n_local + int(before[owner]), owner * stripe.n_local + int(on.bin_ends[owner])):
            binned[owner * stripe.n_local + int(rows[at])] = int(parents[at])
    assert (edges, sent) == (len(case.edges()), len(binned))
    assert sorted([case.first_id + row for row in own_rows] + list(binned)) == sorted(found)
    assert on.bin_ends[rank] == 0
    np.testing.assert_array_equal(np.flatnonzero(backend.to_host(on.labels.distances) == 5), sorted(own_rows))
    assert members(backend.to_host(on.scratch.visited)) == case.visited | set(found)
    if with_parents:
        chosen = backend.to_host(on.labels.predecessors)
        assert all(int(chosen[row]) in found[case.first_id + row] for row in own_rows)
        assert all(parent in found[u] for u, parent in binned.items())


@examples
@given(case=cases(), with_parents=wanted, chance=st.integers(0, 2**32 - 1))
def test_bottom_up_finds_the_unvisited_rows_with_a_parent(
    backend: Backend, case: Case, with_parents: bool, chance: int
) -> None:
    on, stripe, xp = Device(case, backend), case.stripe, backend.xp
    into = case.partition.in_edges
    assert into is not None
    ids = [stripe.internal(v) for v in range(stripe.n)]
    # Often few, so that long lists have no parent near their start.
    pick = np.random.default_rng(chance)
    frontier = set(pick.choice(ids, min(len(ids), int(pick.integers(0, 9))), replace=False).tolist())
    unvisited = [row for row in range(stripe.n_local) if case.first_id + row not in case.visited]
    lists = {row: into.columns[into.row_offsets[row] : into.row_offsets[row + 1]].tolist() for row in unvisited}
    first = {row: next((u for u in parents if u in frontier), None) for row, parents in lists.items()}
    expected = {row: parent for row, parent in first.items() if parent is not None}
    looked = sum(
        1 + parents.index(expected[row]) if row in expected else len(parents) for row, parents in lists.items()
    )
    degrees = np.diff(case.partition.row_offsets)

    found_bits = xp.full(stripe.words_local, 0xDEADBEEF, np.uint32)
    assert on.scratch.frontier_bits is not None
    on.scratch.frontier_bits[:] = xp.asarray(bitmap(frontier, stripe.words))
    labels = on.labels if with_parents else on.distances_only
    edges, found, found_degrees = backend.bottom_up(on.scratch, labels, 2, found_bits)
    assert (edges, found, found_degrees) == (looked, len(expected), degrees[list(expected)].sum())
    assert sorted(backend.to_host(on.scratch.next_queue)[:found].tolist()) == sorted(expected)
    assert members(backend.to_host(found_bits)) == set(expected)
    own = {i - case.first_id for i in case.visited if 0 <= i - case.first_id < stripe.n_local}
    assert members(backend.to_host(on.scratch.own_visited)) == own | set(expected)
    np.testing.assert_array_equal(np.flatnonzero(backend.to_host(on.labels.distances) == 2), sorted(expected))
    if with_parents:
        chosen = backend.to_host(on.labels.predecessors)
        assert {row: int(chosen[row]) for row in expected} == expected


@examples
@given(case=cases())
def test_slices_are_marked_and_absorbed(backend: Backend, case: Case) -> None:
    on, stripe, xp = Device(case, backend), case.stripe, backend.xp
    marked = xp.full(stripe.words_local, 0xDEADBEEF, np.uint32)
    backend.mark(on.scratch.frontier, marked)
    assert members(backend.to_host(marked)) == set(case.frontier.tolist())

    own = members(backend.to_host(on.scratch.own_visited))
    frontier_bits = xp.full(stripe.words_local, 0xDEADBEEF, np.uint32)
    backend.absorb(marked, frontier_bits, on.scratch.own_visited)
    assert members(backend.to_host(frontier_bits)) == set(case.frontier.tolist())
    assert members(backend.to_host(on.scratch.own_visited)) == own | set(case.frontier.tolist())
    # A slice of the bitmap, not a copy: the rest of it is as it was.
    ranks = set(range(stripe.p)) - {case.partition.rank}
    others = {i for i in members(backend.to_host(on.scratch.visited)) if i // stripe.n_local in ranks}
    assert others == {i for i in case.visited if i // stripe.n_local in ranks}


@examples
@given(case=cases())
def test_rows_without_in_edges_count_as_visited(backend: Backend, case: Case) -> None:
    scratch, into = Scratch(case.partition, backend.xp), case.partition.in_edges
    assert into is not None
    scratch.start(spec(*range(case.stripe.n)))
    scratch.start(spec())
    unreachable = set(np.flatnonzero(np.diff(into.row_offsets) == 0).tolist())
    assert members(backend.to_host(scratch.own_visited)) == unreachable
    assert members(backend.to_host(scratch.visited)) == {case.first_id + row for row in unreachable}


def test_copies_to_and_from_the_device(backend: Backend) -> None:
    array: Any = backend.to_device(np.arange(10, dtype=np.uint32))
    assert isinstance(array, backend.xp.ndarray)
    out = np.zeros(4, np.uint32)
    assert backend.to_host(array[3:7], out) is out
    assert out.tolist() == [3, 4, 5, 6]
    assert isinstance(backend.to_host(array), np.ndarray)


def test_an_unknown_backend() -> None:
    with pytest.raises(InvalidOptionError, match="unknown backend 'auto'; choose one of cpu, cuda"):
        backends.get("auto")
