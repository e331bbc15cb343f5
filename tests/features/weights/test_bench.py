"""The benchmark of shortest paths by weight: what it yields on a small graph."""

import distributed

from benchmarks.sssp import _edges, _loaded, bench_all, bench_pairs


def test_searches_and_pairs_are_measured_in_turns(client: distributed.Client) -> None:
    spec = "uniform:n=60,m=300"
    with _loaded(client, spec, "degree", 2, "cpu") as graph:
        found = [*bench_all(graph, _edges(spec), 2, 1)]
        assert [row.way for row in found][:2] == ["SciPy", "dbfs"]
        assert all(row.searches == 2 and row.milliseconds > 0 and row.mteps > 0 for row in found)
        assert found[0].times == 1
        assert [row.way for row in bench_pairs(graph, 2, 1)] == ["sssp(targets=)", "distance", "path"]
