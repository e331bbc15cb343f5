"""Traversals of so many levels that reports sum up neighbouring ones: the answers, and the memory that they take."""

import distributed
import numpy as np
import pytest

import dbfs
from dbfs.features.batches.sweeps import level_counts
from dbfs_workers.search.reports import MOST_ROWS

N = MOST_ROWS + 1000


@pytest.mark.full
@pytest.mark.parametrize("layout", ["1d", "2d"])
def test_reports_of_many_levels_have_their_sums(client: distributed.Client, layout: str) -> None:
    with dbfs.load(f"path:n={N}", client=client, ranks=2, layout=layout) as graph:
        result = graph.bfs(0)
        levels = result.levels
        assert result.depth == N - 1
        assert len(levels) <= MOST_ROWS
        assert (levels["levels"].sum(), levels["discovered"].sum(), levels["frontier"].sum()) == (N, N - 1, N)
        firsts = np.cumsum(levels["levels"]) - levels["levels"]
        assert firsts.tolist() == levels.index.tolist()
        assert (levels["levels"][:-1] == 2).all()
        assert (levels["frontier"] == levels["levels"]).all()
        assert levels["edges"].sum() == 2 * (N - 1)
        # What shows levels shows these.
        assert f"{N:,}" in result._repr_html_()
        assert result.plot_frontier().get_xlim()[1] == N - 0.5
        assert result.plot_levels()
        # A limit that ends the traversal is told from the end of the graph.
        shorter = graph.bfs(0, targets=[N - 2])
        assert (shorter.farthest, shorter.depth) == (N - 2, N - 2)
        assert graph.bfs(0, targets=[N - 1]).farthest == N - 1


def test_what_needs_one_level_does_not_take_a_sum(client: distributed.Client) -> None:
    with dbfs.load(f"path:n={N}", client=client, ranks=2) as graph:
        bounds = graph.eccentricity_bound(0)
        assert (bounds.lower, bounds.upper) == (N - 1, N - 1)
        np.testing.assert_array_equal(level_counts(graph.bfs(0)), np.ones(N))
        np.testing.assert_array_equal(level_counts(graph.bfs(10)), [1] + [2] * 10 + [1] * (N - 21))


@pytest.mark.parametrize(
    ("n", "ranks", "memory"),
    [
        pytest.param(1_500_000, 2, "480 MiB", marks=pytest.mark.full),
        pytest.param(20_000_000, 3, "2 GiB", marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
)
def test_a_deep_traversal_fits_workers_that_its_estimate_fits(n: int, ranks: int, memory: str) -> None:
    """A nanny kills a worker that takes more than its limit."""
    assert dbfs.estimate(f"path:n={n}", ranks, memory=memory).fits
    with (
        dbfs.connect(n_workers=ranks, threads_per_worker=1, memory_limit=memory) as client,
        dbfs.load(f"path:n={n}", client=client, ranks=ranks) as graph,
    ):
        result = graph.bfs(0, deadline=1500)
        assert (result.depth, result.reached, result.levels["levels"].sum()) == (n - 1, n, n)
        np.testing.assert_array_equal(result.distances(), np.arange(n))
