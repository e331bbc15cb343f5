"""Parity: every engine gives SciPy's answers. The axes: graph x directed x ranks x way of running a level.

The ways are those of the taskgraph engine: every phase a task, small levels fused, several of them a submission.
"""

import dask
import distributed
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbfs
from tests import oracle
from tests.graphs import GRAPHS, Arrays

RANKS = (1, 2, 3, 4)
WAYS = {
    "phases": {"fuse-below": 0, "levels-per-submission": 1},
    "fused": {"fuse-below": 4096, "levels-per-submission": 1},
    "windows": {"fuse-below": 4096, "levels-per-submission": 4},
    "mixed": {"fuse-below": 4, "levels-per-submission": 2},
}


def check(
    client: distributed.Client,
    arrays: Arrays,
    *,
    directed: bool,
    ranks: int,
    sources: list[int],
    max_depth: int | None = None,
) -> None:
    n, src, dst = arrays
    matrix = oracle.adjacency(n, src, dst, directed=directed)
    with dbfs.load(dbfs.from_arrays(src, dst, n=n, directed=directed), client=client, ranks=ranks) as graph:
        result = graph.bfs(sources, predecessors=True, max_depth=max_depth)
        expected = oracle.distances(matrix, sources, max_depth)
        np.testing.assert_array_equal(result.distances(), expected)
        oracle.assert_valid_parents(matrix, result.distances(), result.predecessors(), sources)
        result.validate()
        assert result.reached == (expected >= 0).sum()
        assert result.depth == expected.max()
        assert result.levels["discovered"].sum() == result.reached - len(set(sources))
        levels = result.levels
        assert (levels["edges"] - levels["filtered"] - levels["culled"] == levels["discovered"]).all()


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(client: distributed.Client, name: str, directed: bool, ranks: int) -> None:
    arrays = GRAPHS[name]()
    check(client, arrays, directed=directed, ranks=ranks, sources=[0])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", ["path", "hub", "sparse random", "dense random"])
def test_ways_of_running_a_level(client: distributed.Client, name: str, ranks: int, way: str) -> None:
    with dask.config.set({f"dbfs.taskgraph.{key}": value for key, value in WAYS[way].items()}):
        check(client, GRAPHS[name](), directed=False, ranks=ranks, sources=[5])
        check(client, GRAPHS[name](), directed=False, ranks=ranks, sources=[5], max_depth=2)


@pytest.mark.parametrize("max_depth", [0, 1, 7, 68, 69, 1000])
def test_max_depth(client: distributed.Client, max_depth: int) -> None:
    check(client, GRAPHS["path"](), directed=False, ranks=3, sources=[0], max_depth=max_depth)


@pytest.mark.parametrize("ranks", RANKS)
def test_several_sources(client: distributed.Client, ranks: int) -> None:
    check(client, GRAPHS["sparse random"](), directed=True, ranks=ranks, sources=[3, 400, 3, 77])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_graphs(client: distributed.Client, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 80), "n")
    edges = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=200), "edges")
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    check(
        client,
        (n, src, dst),
        directed=data.draw(st.booleans(), "directed"),
        ranks=data.draw(st.sampled_from(RANKS), "ranks"),
        sources=[data.draw(st.integers(0, n - 1), "source")],
    )
