"""The resident loop in real processes against SciPy: gang x direction x directed x predecessors x graph.

A gang: 1 to 16 ranks on the CPU; on the CPU with bins so small that most levels take several rounds; on the CPU with
several threads a rank that share all levels; on the CPU with the exchange for devices, whose host and device are then
both NumPy's; 1 to 4 ranks that share a GPU.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbfs_workers.base.errors import InvalidOptionError
from dbfs_workers.base.spec import DIRECTIONS
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import COUNT_FIELDS
from tests.support import graphs, oracle
from tests.support.answers import assert_scipys, every_spec
from tests.support.gang import Gang, partitions, spec
from tests.support.gpus import on_gpu

GANGS = [
    *(pytest.param((p, "cpu", False, None, 0), id=f"{p} ranks", marks=pytest.mark.full) for p in (1, 2, 4)),
    pytest.param((3, "cpu", False, 2, 0), id="3 ranks, small bins"),
    pytest.param((2, "cpu", False, 2, 3), id="2 ranks of 3 threads, small bins"),
    pytest.param((1, "cpu", False, None, 3), id="1 rank of 3 threads", marks=pytest.mark.full),
    pytest.param((3, "cpu", True, None, 2), id="3 ranks of 2 threads, staged", marks=pytest.mark.full),
    pytest.param((3, "cpu", True, None, 0), id="3 ranks, staged", marks=pytest.mark.full),
    *(on_gpu((p, "cuda", True, None, 0), id=f"{p} ranks, cuda") for p in (1, 2, 3, 4)),
]


@pytest.fixture(scope="module", params=GANGS)
def gang(request: pytest.FixtureRequest) -> Iterator[Gang]:
    p, backend, staged, entries, team = request.param
    gang = Gang(p, backend, staged=staged, entries=entries, team=team)
    yield gang
    gang.stop()


def check(gang: Gang, arrays: graphs.Arrays, sources: list[int], *, directed: bool) -> None:
    """Every direction, with and without predecessors, in one gang call on one loaded graph."""
    n, src, dst = arrays
    stripe = Stripe(n, gang.p)
    gang.load(partitions(n, src, dst, gang.p, directed=directed))
    specs = every_spec(sources)
    assert_scipys(specs, gang.run(*specs), arrays, stripe, directed=directed)
    assert gang.disconnect() == [False] * gang.p


@pytest.mark.matrix
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@pytest.mark.parametrize("name", graphs.GRAPHS)
def test_labels_are_scipys(gang: Gang, name: str, directed: bool) -> None:
    arrays = graphs.GRAPHS[name]()
    check(gang, arrays, [arrays[0] // 3], directed=directed)


@st.composite
def arrays(draw: st.DrawFn) -> graphs.Arrays:
    n = draw(st.integers(1, 150))
    m = draw(st.integers(0, 4 * n))
    return graphs.random(n, m, draw(st.integers(0, 2**32 - 1)))


@pytest.mark.full
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arrays=arrays(), directed=st.booleans(), data=st.data())
def test_random_graphs_and_several_sources(
    gang: Gang, arrays: graphs.Arrays, directed: bool, data: st.DataObject
) -> None:
    sources = data.draw(st.lists(st.integers(0, arrays[0] - 1), min_size=1, max_size=3))
    check(gang, arrays, sources, directed=directed)


def test_a_dense_graph_turns_bottom_up_and_back(gang: Gang) -> None:
    """A dense middle and a long tail: the loop switches to bottom-up and back, and the tail's levels are top-down."""
    n, src, dst = graphs.random(3000, 60_000, 5)
    tail = np.arange(3000, 4500)
    src, dst, n = np.concatenate([src, [7], tail[:-1]]), np.concatenate([dst, [3000], tail[1:]]), 4500
    gang.load(partitions(n, src, dst, gang.p, directed=False))
    answer = gang.run(spec(0))[0]
    expected = oracle.distances(oracle.adjacency(n, src, dst, directed=False), [0])
    np.testing.assert_array_equal(answer.distances(Stripe(n, gang.p)), expected)
    for run in answer.ranks:
        directions = run.counts[:, COUNT_FIELDS.index("bottom_up")]
        assert directions[0] == 0
        assert directions.any()
        assert not directions[-100:].any()
    gang.disconnect()


@pytest.mark.matrix
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("depth", [0, 1, 5, 1000])
def test_max_depth_bounds_the_labels(gang: Gang, direction: str, depth: int) -> None:
    n, src, dst = graphs.GRAPHS["sparse random"]()
    gang.load(partitions(n, src, dst, gang.p, directed=False))
    answers = gang.run(*(spec(source, max_depth=depth, direction=direction) for source in (3, 4)))
    matrix = oracle.adjacency(n, src, dst, directed=False)
    for source, answer in zip((3, 4), answers, strict=True):
        expected = oracle.distances(matrix, [source], depth)
        np.testing.assert_array_equal(answer.distances(Stripe(n, gang.p)), expected)
        assert answer.total(lambda run: run.reached) == (expected >= 0).sum()
    gang.disconnect()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_targets_end_the_run_at_their_distance(gang: Gang, direction: str) -> None:
    n, src, dst = graphs.GRAPHS["cycle"]()
    gang.load(partitions(n, src, dst, gang.p, directed=False))
    matrix = oracle.adjacency(n, src, dst, directed=False)
    for targets, depth in (((0,), 0), ((1, 39), 1), ((7, 36), 7), ((0, 20), None)):
        answer = gang.run(spec(0, targets=targets, direction=direction))[0]
        np.testing.assert_array_equal(answer.distances(Stripe(n, gang.p)), oracle.distances(matrix, [0], depth))
    gang.disconnect()


def test_auto_without_in_edges_stays_top_down_and_bottom_up_is_refused(gang: Gang) -> None:
    n, src, dst = graphs.GRAPHS["dense random"]()
    gang.load(partitions(n, src, dst, gang.p, directed=True, in_edges=False))
    answer = gang.run(spec(0))[0]
    assert not answer.ranks[0].counts[:, COUNT_FIELDS.index("bottom_up")].any()
    with pytest.raises(InvalidOptionError, match="in_edges=True"):
        gang.run(spec(0, direction="bottom-up"))
    with pytest.raises(InvalidOptionError, match="choose one of auto, top-down, bottom-up"):
        gang.run(spec(0, direction="sideways"))
    np.testing.assert_array_equal(
        gang.run(spec(0))[0].distances(Stripe(n, gang.p)), answer.distances(Stripe(n, gang.p))
    )
    gang.disconnect()
