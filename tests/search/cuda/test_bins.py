"""Filter + partition on GPUs, with the contraction behind it: the kernels compiled for this CPU.

CuPy is a stand-in on NumPy, and so are the sums of a frontier's degrees. On a GPU, ``tests/search/test_phases.py`` and
``tests/search/test_gpu.py`` check the same phases.
"""

import ctypes
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbfs_workers.base.errors import GraphTooLargeError
from dbfs_workers.base.kernel_packages import PACKAGE
from dbfs_workers.features.taskgraph import phases
from dbfs_workers.features.taskgraph import state as task_state
from dbfs_workers.search import backends
from dbfs_workers.search.backend import EdgeFrontier
from dbfs_workers.search.cuda import owner_bins
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import graphs, oracle, partitions
from tests.support.cuda_on_cpu.backend import EmulatedBackend, compiled, launcher
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.gang import spec

pytestmark = needs_compiler

KERNELS = ("edge_count", "expand", "count_by_owner", "copy_to_bins", "contract", "bottom_up", "mark")


class EmulatedPhases(EmulatedBackend):
    """The phases of the taskgraph engine."""

    def __init__(self, library: ctypes.PyDLL) -> None:
        super().__init__(library)
        # The host reads a count of each block.
        self._kernels = {name: launcher(library, name, most_blocks=1000) for name in KERNELS}

    def typed_errors(self, where: str) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.fixture(scope="module")
def backend() -> EmulatedPhases:
    return EmulatedPhases(compiled("phases"))


def bits_of(words: Any) -> Any:
    return np.unpackbits(words.view(np.uint8), bitorder="little").astype(bool)


@settings(max_examples=60, deadline=None)
@given(
    p=st.sampled_from([1, 2, 3, 40, 255]),
    words=st.sampled_from([1, 2, 20]),
    size=st.integers(0, 3000),
    distinct=st.sampled_from([1, 5, 300, 100_000]),
    visited=st.sampled_from([0.0, 0.5, 1.0]),
    with_parents=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_bins_have_every_new_neighbour_in_order(
    backend: EmulatedPhases,
    p: int,
    words: int,
    size: int,
    distinct: int,
    visited: float,
    with_parents: bool,
    seed: int,
) -> None:
    """Few distinct ids are duplicates and empty bins; then the own bin is contracted."""
    stripe, chance = Stripe(32 * words * p, p), np.random.default_rng(seed)
    ids = stripe.p * stripe.n_local
    neighbours = chance.choice(chance.integers(0, ids, min(distinct, ids)), size).astype(np.uint32)
    before = chance.random(ids) < visited
    bitmap = np.packbits(before, bitorder="little").view(np.uint32)
    places = np.arange(size, dtype=np.uint32)
    edges = EdgeFrontier(neighbours, places if with_parents else None)
    new = np.unique(neighbours[~before[neighbours]])

    bins = backend.filter_partition(edges, bitmap, stripe)
    owner = np.repeat(np.arange(p), np.diff(bins.offsets))
    binned = np.asarray(bins.rows) + owner * stripe.n_local
    assert (bins.rows < stripe.n_local).all()
    np.testing.assert_array_equal(np.unique(binned), new)
    marked = bits_of(bitmap)
    assert (marked >= before).all()
    assert not (marked & ~before)[np.setdiff1d(np.arange(ids), new)].any()
    if with_parents:
        assert bins.parents is not None
        np.testing.assert_array_equal(binned, neighbours[bins.parents])
        assert all((np.diff(bins.parents[owner == one].astype(np.int64)) > 0).all() for one in np.unique(owner))

    rank = int(chance.integers(p))
    mine, own = slice(*bins.offsets[rank : rank + 2]), slice(rank * words, (rank + 1) * words)
    labels = RankLabels.unreached(np, stripe, predecessors=with_parents)
    queue = np.zeros(stripe.n_local, np.uint32)
    parents = None if bins.parents is None else bins.parents[mine]
    found = backend.contract(bins.rows[mine], parents, bitmap[own], 3, labels, queue, own=True)
    discovered = new[new // stripe.n_local == rank] - rank * stripe.n_local
    np.testing.assert_array_equal(np.sort(queue[:found]), discovered)
    np.testing.assert_array_equal(np.flatnonzero(labels.distances == 3), discovered)
    # A mark that the filter lost is there now, for bottom-up levels.
    assert bits_of(bitmap[own])[discovered].all()
    if labels.predecessors is not None:
        chosen = neighbours[labels.predecessors[discovered]] - rank * stripe.n_local
        np.testing.assert_array_equal(chosen, discovered)


@pytest.mark.parametrize("size", [1000, 5000])
def test_of_one_vertex_a_block_keeps_one(backend: EmulatedPhases, size: int) -> None:
    stripe = Stripe(64, 2)
    bins = backend.filter_partition(
        EdgeFrontier(np.full(size, 40, np.uint32), None), np.zeros(stripe.words, np.uint32), stripe
    )
    assert bins.offsets[1] == 0
    assert 1 <= bins.rows.size <= owner_bins.blocks_for(size, 256, 1000)
    assert (bins.rows == 40 - stripe.n_local).all()


def test_a_lost_mark_is_mended_by_the_contraction(backend: EmulatedPhases) -> None:
    stripe, bitmap = Stripe(64, 1), np.zeros(2, np.uint32)
    labels, queue = RankLabels.unreached(np, stripe, predecessors=False), np.zeros(64, np.uint32)
    rows = np.array([7, 40, 7, 7], np.uint32)
    assert backend.contract(rows, None, bitmap, 2, labels, queue, own=True) == 2
    assert np.flatnonzero(bits_of(bitmap)).tolist() == [7, 40]
    assert backend.contract(rows, None, bitmap, 3, labels, queue) == 0


def test_more_owners_than_a_byte_has(backend: EmulatedPhases) -> None:
    header = (PACKAGE / "search/cuda/kernels/common/owner_bins.cuh").read_text()
    assert f"constexpr u32 kMostOwners = {owner_bins.MOST_OWNERS};" in header
    stripe = Stripe(9000, 256)
    with pytest.raises(GraphTooLargeError, match="bins for at most 255 ranks; this graph has 256"):
        backend.filter_partition(EdgeFrontier(np.zeros(1, np.uint32), None), np.zeros(stripe.words, np.uint32), stripe)


@pytest.mark.parametrize("p", [1, 2, 5])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 999), edges=st.integers(0, 2500))
def test_levels_of_tasks_against_scipy(backend: EmulatedPhases, p: int, seed: int, edges: int) -> None:
    """Whole traversals by the phases of the taskgraph engine; every third level is bottom-up."""
    n, src, dst = graphs.random(300, edges, seed)
    stripe, one = Stripe(n, p), spec(0, predecessors=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "get", lambda _: backend)
        states = [task_state.start(part, one) for part in partitions.build(stripe, src, dst, directed=False)]
    run, level = one.run_id, 0
    while any(state.scratch.frontier.size for state in states):
        if level % 3 == 2:
            slices = [phases.share(state, level) for state in states]
            counts = [phases.bottom_up(state, run, level, slices) for state in states]
        else:
            found = [phases.filter_partition(s, run, level, phases.expand(s, run, level)) for s in states]
            counts = [
                phases.contract(state, run, level, [bins[rank] for bins in found]) for rank, state in enumerate(states)
            ]
        level += 1
        for count, state in zip(counts, states, strict=True):
            assert count.count == (np.asarray(state.labels.distances) == level).sum()
    place = stripe.internal(np.arange(n))
    matrix = oracle.adjacency(n, src, dst, directed=False)
    expected = oracle.distances(matrix, [0])
    np.testing.assert_array_equal(np.concatenate([state.labels.distances for state in states])[place], expected)
    above = np.concatenate([state.labels.predecessors for state in states])[place].astype(np.int64)
    oracle.assert_valid_parents(matrix, expected, np.where(expected < 0, -1, stripe.vertex(above)), [0])
