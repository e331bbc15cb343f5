"""The benchmark of views: what it yields on a small graph."""

import distributed

from benchmarks.views import bench_views


def test_views_and_loads_are_measured_in_turns(client: distributed.Client) -> None:
    (found,) = bench_views(client, "uniform:n=60,m=300", "degree", 2, (0.5,), 1)
    assert (found.ranks, found.share) == (2, 0.5)
    assert min(found.load, found.view, found.loaded_bfs, found.view_bfs) > 0
    assert found.times == found.load / found.view
