"""The edges that levels look at, by direction, against lists walked one vertex after another."""

import json
from pathlib import Path

import distributed
import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import dbfs
from benchmarks.directions import ALL, bench_directions
from dbfs.cli import main
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import graphs, oracle


def looked_at(
    n: int, src: NDArray[np.int64], dst: NDArray[np.int64], source: int, ranks: int, *, directed: bool
) -> list[tuple[int, int]]:
    """Return the edges of each level, top-down and bottom-up, of the unsorted edges' own lists."""
    if not directed:
        loops = src == dst
        src, dst = np.concatenate([src, dst[~loops]]), np.concatenate([dst, src[~loops]])
    distances = oracle.distances(oracle.adjacency(n, src, dst, directed=True), [source])
    place = Stripe(n, ranks).internal(np.arange(n))
    lists = [sorted(src[dst == vertex], key=lambda neighbour: place[neighbour]) for vertex in range(n)]
    levels = []
    for level in range(distances.max() + 1):
        bottom_up = 0
        for vertex in np.flatnonzero((distances < 0) | (distances > level)):
            hits = np.flatnonzero(distances[np.array(lists[vertex], np.int64)] == level)
            bottom_up += hits[0] + 1 if hits.size else len(lists[vertex])
        levels.append((int((distances[src] == level).sum()), int(bottom_up)))
    return levels


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("ranks", [1, 2])
def test_edges_by_level_and_direction(client: distributed.Client, ranks: int, directed: bool) -> None:
    n, src, dst = graphs.random(300, 900, 4)
    expected = looked_at(n, src, dst, int(src[0]), ranks, directed=directed)
    edges = dbfs.from_arrays(src, dst, n=n, directed=directed)
    with dbfs.load(edges, client=client, ranks=ranks, in_edges=True) as graph:
        *levels, sums = bench_directions(graph, int(src[0]))
    assert [(row.top_down, row.bottom_up) for row in levels] == expected
    assert [row.level for row in levels] == [str(level) for level in range(len(expected))]
    assert all(row.better == min(row.top_down, row.bottom_up) for row in levels)
    assert all(row.rule in (row.top_down, row.bottom_up) for row in levels)
    assert (sums.level, sums.top_down, sums.bottom_up) == (ALL, *map(sum, zip(*expected, strict=True)))
    assert all(seconds > 0 for row in levels for seconds in row.seconds)
    assert sums.seconds == pytest.approx([sum(of) for of in zip(*(row.seconds for row in levels), strict=True)])
    assert sums.better <= sums.rule == sum(row.rule for row in levels)


def test_the_command_writes_the_table(client: distributed.Client, tmp_path: Path) -> None:
    saved = tmp_path / "directions.json"
    words = ["bench", "directions", "--graph", "grid2d:side=5", "--source", "0", "--ranks", "1", "--json", str(saved)]
    answer = CliRunner().invoke(main, [*words, "--scheduler", client.scheduler.address])
    assert answer.exit_code == 0, answer.output
    assert "grid2d:side=5 from 0: edges looked at" in answer.stdout
    found = json.loads(saved.read_text(encoding="utf-8"))
    assert (found["source"], found["ranks"], found["complete"]) == (0, 1, True)
    assert [row["level"] for row in found["levels"]] == [*map(str, range(9)), ALL]
    assert found["levels"][-1]["top_down"] == 80
