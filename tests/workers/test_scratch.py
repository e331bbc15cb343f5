"""A rank's working memory between traversals, and its size as estimated."""

import numpy as np
import pytest

from dbfs_workers.exchange import segment
from dbfs_workers.storage import scratch
from dbfs_workers.storage.scratch import Scratch
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
