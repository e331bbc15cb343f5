"""Paths and distances by weight between two vertices, by searches from both ends, against a heap's Dijkstra."""

from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray

import dbfs
from dbfs.errors import (
    DistanceOverflowError,
    InvalidCallError,
    InvalidOptionError,
    InvalidOptionTypeError,
    InvalidVertexError,
)
from dbfs_workers.features.weights import meeting
from dbfs_workers.features.weights.purpose import Weighted
from tests.support import graphs
from tests.support.weights import arcs, assert_path, expected, labels, runs, weighted_graphs


def path_of(made: list[Any], n: int, source: int, target: int) -> tuple[Any, list[int]]:
    """The distance that the ranks report, and the path by the parents; none for an unreached target."""
    distance = np.concatenate([run.labels.by_source for run in made]).max()
    parents = labels(made, n)[1]
    assert parents is not None
    if not 0 <= distance < np.inf:
        return distance, []
    path = [target]
    while path[-1] != source:
        path.append(int(parents[path[-1]]))
        assert len(path) <= n, "the parents have a cycle"
    return distance, path[::-1]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=weighted_graphs())
def test_any_path_is_dijkstras(graph: dict[str, Any]) -> None:
    arrays, weights, sources = graph["arrays"], graph["weights"], graph["sources"]
    n, of = arrays[0], arcs(arrays, weights, directed=graph["directed"])
    purpose = Weighted("w", delta=graph["purpose"].delta, path=True)
    for target in (sources[-1], n - 1):
        (made,) = zip(
            *runs(
                *(arrays, weights, [sources[:1]], graph["p"]),
                directed=graph["directed"],
                purpose=purpose,
                targets=(target,),
                threads=graph["threads"],
            ),
            strict=True,
        )
        want = expected(n, of, sources[:1], weights.dtype)[target]
        assert_path(of, want, *path_of([*made], n, sources[0], target), weights.dtype)


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_both_searches_reach_less_than_one(dtype: str, p: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lattice of 60 a side: each of two circles has a quarter of the vertices of one."""
    side = 60
    at = np.arange(side * side).reshape(side, side)
    src = np.append(at[:, :-1], at[:-1]).ravel()
    dst = np.append(at[:, 1:], at[1:]).ravel()
    arrays = side * side, src, dst
    weights = np.random.default_rng(1).integers(10, 20, src.size).astype(dtype)
    source, target = int(at[30, 15]), int(at[30, 45])
    of = arcs(arrays, weights, directed=False)
    reached = {}
    monkeypatch.setattr(meeting, "_TURN", 64)
    for path in (False, True):
        made = [
            one[0] for one in runs(arrays, weights, [[source]], p, purpose=Weighted("w", path=path), targets=(target,))
        ]
        reached[path] = sum(run.reached for run in made)
        if path:
            want = expected(side * side, of, [source], weights.dtype)[target]
            assert_path(of, want, *path_of(made, side * side, source, target), weights.dtype)
    assert reached[True] < 0.6 * reached[False]


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_that_are_rounded_otherwise_from_the_other_end_lose_no_path(
    dtype: str, p: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ladder: of its many ways some differ by roundings only."""
    monkeypatch.setattr(meeting, "_TURN", 16)
    n = 600
    at = np.arange(n).reshape(2, -1)
    src = np.concatenate([at[0, :-1], at[1, :-1], at[0]])
    dst = np.concatenate([at[0, 1:], at[1, 1:], at[1]])
    for seed in range(6):
        rng = np.random.default_rng(seed)
        along = rng.random(n // 2 - 1)
        weights = np.concatenate([along, along, np.full(n // 2, 1e-9)]).astype(dtype)
        of, purpose = arcs((n, src, dst), weights, directed=False), Weighted("w", path=True)
        source, target = int(at[0, 0]), int(at[seed % 2, -1])
        made = [one[0] for one in runs((n, src, dst), weights, [[source]], p, purpose=purpose, targets=(target,))]
        want = expected(n, of, [source], weights.dtype)[target]
        assert_path(of, want, *path_of(made, n, source, target), weights.dtype)


@pytest.mark.parametrize("p", [1, 2])
def test_a_path_past_int64_is_told_and_another_is_not(p: int) -> None:
    huge = 2**62
    src, dst, weights = np.arange(4), np.arange(1, 5), np.array([huge, huge - 3, 1, 2])
    options: dict[str, Any] = {"directed": True, "purpose": Weighted("w", path=True)}
    made = [one[0] for one in runs((5, src, dst), weights, [[0]], p, targets=(2,), **options)]
    assert path_of(made, 5, 0, 2) == (2**63 - 3, [0, 1, 2])
    with pytest.raises(DistanceOverflowError):
        runs((5, src, dst), weights, [[0]], p, targets=(4,), **options)


N, M = 150, 500
KINDS = np.random.default_rng(3).choice(["road", "rail"], M)


def drawn(dtype: str) -> NDArray[Any]:
    return np.random.default_rng(4).integers(0, 40, M).astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        ("int64", {"ranks": 1}),
        ("float64", {"ranks": 3, "order": "degree"}),
        ("float32", {"ranks": 2, "directed": True, "in_edges": True}),
        ("uint8", {"ranks": 2, "directed": True}),
    ],
)
def test_graphs_and_views_have_paths_by_weight(client: distributed.Client, dtype: str, options: dict[str, Any]) -> None:
    _, src, dst = graphs.random(N, M, 21)
    weights, directed = drawn(dtype), options.get("directed", False)
    names = np.array([f"v{at:03}" for at in range(N)])
    table = pa.table({"source": names[src], "target": names[dst], "minutes": weights, "kind": KINDS})
    wide = weights.astype(np.int64) if dtype == "uint8" else weights
    with dbfs.load(table, edge_columns=["minutes", "kind"], client=client, **options) as graph:
        for passing, found in (
            (np.ones(M, bool), graph),
            (KINDS == "road", graph.where(edges=pc.field("kind") == "road")),
        ):
            of = arcs((N, src[passing], dst[passing]), wide[passing], directed=directed)
            for source, target in ((3, 77), (3, 120), (50, 51), (9, 9)):
                want = expected(N, of, [source], wide.dtype)[target]
                ends = str(names[source]), str(names[target])
                distance = found.distance(*ends, weight="minutes")
                assert type(distance) is type(want.item())
                path = [int(name[1:]) for name in found.path(*ends, weight="minutes")]
                assert_path(of, want, distance, path, wide.dtype)
        # Without a weight edges are counted, as before.
        assert graph.distance("v003", "v077") == len(graph.path("v003", "v077")) - 1


def test_bad_input_names_what_would_be_right(client: distributed.Client) -> None:
    table = pa.table(
        {"source": [0, 1, 5], "target": [1, 2, 6], "w": [1, 2, 3], "lost": [1.0, -2.0, 0.5], "name": ["a"] * 3}
    )
    with dbfs.load(table, edge_columns=["w", "lost", "name"], client=client, ranks=2) as graph:
        for call in (graph.distance, graph.path):
            with pytest.raises(InvalidOptionError, match="'lost' has -2.0 at the edge from 2 to 1"):
                call(0, 1, weight="lost")
            with pytest.raises(InvalidOptionError, match="no column 'miles'; the columns are: 'w', 'lost', 'name'"):
                call(0, 1, weight="miles")
            with pytest.raises(InvalidOptionTypeError, match="'name' is of type"):
                call(0, 1, weight="name")
            with pytest.raises(InvalidOptionTypeError, match="weight must be a text, not 3"):
                call(0, 1, weight=3)
            with pytest.raises(InvalidVertexError, match="target must be one id"):
                call(0, [1, 2], weight="w")
        with pytest.raises(InvalidOptionError, match="landmarks= tells numbers of edges"):
            graph.distance(0, 1, weight="w", landmarks=graph.landmarks(1))
        assert graph.distance(0, 6, weight="w") == -1
        assert graph.path(0, 6, weight="w") == []
        assert graph.distance(0, 2, weight="w") == 3
        assert not graph.results


def test_measures_by_weight_are_refused_with_what_there_is(client: distributed.Client) -> None:
    with dbfs.load([(0, 1)], client=client, ranks=1) as graph:
        for measure in (graph.betweenness_centrality, graph.closeness_centrality, graph.diameter, graph.bfs):
            with pytest.raises(
                InvalidCallError, match=r"no option weight=: .*path\(weight=\).* centralities by weight"
            ):
                measure(**{"weight": "km"} | ({"source": 0} if measure == graph.bfs else {}))
        with pytest.raises(InvalidCallError, match="no option weights=: it is weight= here"):
            graph.path(0, 1, weights="km")  # type: ignore[call-arg]
