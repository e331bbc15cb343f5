"""Distances and paths between vertices of graphs on GPUs against NetworkX: single pairs, and pairs that share sweeps.

Axes: undirected and directed with in-edges; as given and by degree; 1 and 2 ranks; GPUs, and CPU ranks that are asked
as if they were GPUs.
"""

from collections.abc import Iterator
from typing import Any

import distributed
import networkx as nx
import numpy as np
import pytest

import dbfs
from dbfs.features.paths import search
from tests.support.gpus import GPUS, needs_gpu
from tests.support.graphs import random

N, M = 300, 420


@pytest.fixture(
    scope="module",
    params=[False, pytest.param(True, marks=needs_gpu("cupy", "dask_cuda"))],
    ids=["cpu", "gpu"],
)
def on_gpus(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def own(on_gpus: bool, client: distributed.Client) -> Iterator[distributed.Client]:
    if not on_gpus:
        yield client
        return
    with dbfs.connect(dashboard_address=None, memory_limit=0) as mapped:
        yield mapped


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(("directed", "order"), [(False, "given"), (False, "degree"), (True, "degree")])
def test_distances_and_paths(
    own: distributed.Client, on_gpus: bool, monkeypatch: pytest.MonkeyPatch, ranks: int, directed: bool, order: str
) -> None:
    if on_gpus and ranks > GPUS:
        pytest.skip(f"{ranks} GPUs wanted, {GPUS} there")
    monkeypatch.setattr(search, "searched_by_ranks", lambda graph: False)
    _, src, dst = random(N, M, 12)
    right: nx.Graph[int] = nx.DiGraph() if directed else nx.Graph()
    right.add_nodes_from(range(N))
    right.add_edges_from(zip(src.tolist(), dst.tolist(), strict=True))
    lengths = dict(nx.all_pairs_shortest_path_length(right))
    pairs = np.random.default_rng(12).integers(0, N, (2000, 2))
    expected = [lengths[u].get(v, -1) for u, v in pairs.tolist()]
    backend = "cuda" if on_gpus else "cpu"
    options: dict[str, Any] = {"client": own, "ranks": ranks, "backend": backend, "order": order, "in_edges": directed}
    with dbfs.load(dbfs.from_arrays(src, dst, n=N, directed=directed), **options) as graph:
        np.testing.assert_array_equal(graph.pair_distances(pairs), expected)
        # Sweeps of few sources, and of few distances; and pairs of one source, one target, and one vertex.
        monkeypatch.setattr(search, "_MATRIX", 20_000)
        np.testing.assert_array_equal(graph.pair_distances(pairs[:700]), expected[:700])
        for at in (0, 1):
            mine = np.flatnonzero(pairs[:, at] == pairs[0, at])
            found = graph.pair_distances(pairs[mine])
            np.testing.assert_array_equal(found, [expected[place] for place in mine])
        assert graph.pair_distances([(5, 5), (6, 6)]).tolist() == [0, 0]
        assert graph.pair_distances([]).tolist() == []
        for u, v in pairs[:5].tolist():
            paths = sorted(nx.all_shortest_paths(right, u, v)) if v in lengths[u] else []
            assert graph.distance(u, v) == lengths[u].get(v, -1)
            assert graph.path(u, v) == (paths[0] if paths else [])
            assert list(graph.paths(u, v)) == paths
