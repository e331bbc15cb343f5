"""A rank's working memory between traversals, and its size as estimated."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from dbfs_workers.search.exchange import segment
from dbfs_workers.search.partition import scratch
from dbfs_workers.search.partition.kernels import first_labels as label_kernels
from dbfs_workers.search.partition.labels import LabelPool
from dbfs_workers.search.partition.scratch import Scratch
from dbfs_workers.search.partition.shared_rows import share, token_of
from dbfs_workers.search.partition.stripe import NO_VERTEX
from tests.support import graphs
from tests.support.gang import partitions, spec


@pytest.mark.parametrize("in_edges", [False, True])
@pytest.mark.parametrize("p", [1, 3])
def test_bytes_are_as_estimated(p: int, in_edges: bool) -> None:
    n, src, dst = graphs.GRAPHS["sparse random"]()
    for partition in partitions(n, src, dst, p, directed=True, in_edges=in_edges):
        assert Scratch(partition, np).nbytes == scratch.nbytes(partition.stripe, bottom_up=in_edges)
        resident = segment.resident_nbytes(partition.stripe, predecessors=True)
        assert resident <= 4 * segment.body_words(partition.stripe, segment.bin_entries(partition.stripe))


def test_a_traversal_forgets_the_one_before() -> None:
    n, src, dst = graphs.GRAPHS["isolated vertices"]()
    state = Scratch(partitions(n, src, dst, 1, directed=False)[0], np)
    first = state.start(spec(10, 50, 50, predecessors=True))
    assert state.frontier.tolist() == [10, 50]
    assert np.flatnonzero(first.distances == 0).tolist() == [10, 50]
    second = state.start(spec(90))
    assert state.frontier.tolist() == [90]
    assert second.predecessors is None
    assert np.flatnonzero(second.distances == 0).tolist() == [90]
    assert np.flatnonzero(first.distances == 0).tolist() == [10, 50]
    # Only the source and what no edge leads to count as visited.
    bits = np.unpackbits(state.visited.view(np.uint8), bitorder="little")[:n]
    assert np.flatnonzero(bits == 0).tolist() == [10, 50]


@pytest.mark.parametrize("predecessors", [False, True])
def test_one_source_starts_as_the_same_source_twice(predecessors: bool) -> None:
    """Of one source a kernel labels the row; of several, NumPy does."""
    n, random = 200, np.random.default_rng(7)
    # Every fourth vertex has no edge.
    src, dst = (4 * random.integers(0, n // 4, 300) + random.integers(0, 3, 300) for _ in (0, 1))
    for partition in partitions(n, src, dst, 3, directed=False):
        one, two = (Scratch(partition, np, LabelPool(partition.stripe.n_local, 1 << 20)) for _ in (0, 1))
        for source in range(n):
            started = []
            for state, sources in ((one, (source,)), (two, (source, source))):
                # What the traversal before has left.
                state.visited[:] = 0x5A5A5A5A
                traversal = spec(*sources, predecessors=predecessors)
                labels = state.start(traversal, state.labels_for(traversal))
                visited, frontier = state.visited.copy(), state.frontier.copy()
                state.end(labels)
                parents = labels.predecessors
                started.append((visited, frontier, labels.distances, np.empty(0) if parents is None else parents))
            for ours, theirs in zip(*started, strict=True):
                assert np.array_equal(ours, theirs)


def test_a_later_version_starts_in_the_memory_of_the_one_before() -> None:
    """The rows without edges change from version to version, and with them what the pool's memory holds."""
    n, random = 200, np.random.default_rng(7)
    kept: Scratch | None = None
    for version in range(6):
        # Twice each set of vertices with edges.
        reach = 20 * (3 - version // 2)
        src, dst = random.integers(0, reach, (2, 60))
        (partition,) = partitions(n, src, dst, 1, directed=False)
        fresh = Scratch(partition, np, LabelPool(partition.stripe.n_local, 1 << 20))
        if kept is None:
            kept = Scratch(partition, np, LabelPool(partition.stripe.n_local, 1 << 20))
        else:
            queues = kept.queues
            kept.take(partition)
            assert kept.queues is queues
        for source in (n - 1, int(src[0])):
            started = []
            for state in (kept, fresh):
                traversal = spec(source, predecessors=True)
                labels = state.start(traversal, state.labels_for(traversal))
                visited, frontier = state.visited.copy(), state.frontier.copy()
                state.end(labels)
                started.append((visited, frontier, labels.distances.copy(), labels.predecessors))
                # As a traversal that reaches all rows with edges.
                rows = partition.rows
                labels.distances[rows.ends > rows.starts] = 1
            assert kept.max_degree == fresh.max_degree
            for ours, theirs in zip(*started, strict=True):
                assert ours is not None
                assert np.array_equal(ours, theirs)


def test_a_later_version_shows_its_own_rows() -> None:
    """Peers map the file that the token names: the token of the version before would show them that version."""
    src = np.arange(40)
    one, two, far = (share(partitions(100, src, (src + step) % 100, 2, directed=False)[0]) for step in (1, 2, 3))
    state = Scratch(one, np)
    for partition in (one, two, far, one):
        state.take(partition)
        assert state.rows_token is not None
        assert state.rows_token is token_of(partition.rows)
        for ours, theirs in ((state.rows, partition.rows), (state.parent_rows, partition.parent_rows)):
            assert ours is not None
            assert theirs is not None
            assert ours.columns is theirs.columns


@given(bits=arrays.arrays(np.bool_, st.integers(1, 40).map(lambda words: 32 * words)), predecessors=st.booleans())
def test_only_unvisited_rows_become_unreached(bits: NDArray[np.bool_], predecessors: bool) -> None:
    distances = np.full(bits.size, 7, np.int32)
    parents = np.full(bits.size if predecessors else 0, 7, np.uint32)
    label_kernels.label_unvisited(np.packbits(bits, bitorder="little").view(np.uint32), distances, parents)
    np.testing.assert_array_equal(distances, np.where(bits, 7, -1))
    np.testing.assert_array_equal(parents, np.where(bits, 7, NO_VERTEX)[: parents.size])
