"""Bounds by landmarks against the distances of all pairs."""

import pickle
from pathlib import Path

import distributed
import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.errors import ClientError, DirectedGraphError, InvalidOptionError, InvalidOptionTypeError, InvalidVertexError
from dbfs.features.batches import landmarks

edge_lists = st.integers(1, 25).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=60))
)


@pytest.mark.full
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=edge_lists, ranks=st.integers(1, 3), k=st.integers(1, 30))
def test_bounds_of_all_pairs(
    client: distributed.Client, edges: tuple[int, list[tuple[int, int]]], ranks: int, k: int
) -> None:
    n, pairs = edges
    graph = nx.Graph(pairs)
    graph.add_nodes_from(range(n))
    lengths = dict(nx.all_pairs_shortest_path_length(graph))
    one, other = (part.ravel() for part in np.meshgrid(np.arange(n), np.arange(n)))
    right = np.array([lengths[u].get(v, -1) for u, v in zip(one.tolist(), other.tolist(), strict=True)])
    src, dst = np.array(pairs, np.int64).reshape(-1, 2).T
    with dbfs.load(dbfs.from_arrays(src, dst, n=n, directed=False), client=client, ranks=ranks) as ours:
        marks = ours.landmarks(k)
        lower, upper = marks.bounds(one, other)
    component = nx.node_connected_component(graph, marks.ids[0])
    assert graph.degree(marks.ids[0]) >= 1 or not pairs
    assert len(set(marks.ids)) == len(marks.ids) == min(k, len(component))
    assert set(marks.ids) <= component
    for mark, row in zip(marks.ids, marks.distances.tolist(), strict=True):
        assert row == [lengths[mark].get(vertex, -1) for vertex in range(n)]
    inside = np.isin(one, [*component]), np.isin(other, [*component])
    within, across = inside[0] & inside[1], inside[0] != inside[1]
    assert (lower[within] <= right[within]).all()
    assert (right[within] <= upper[within]).all()
    assert (lower[across] == -1).all()
    assert (upper[across] == -1).all()
    # No landmark reaches the others.
    beyond = ~within & ~across
    assert (lower[beyond] == (one != other)[beyond]).all()
    assert (upper[beyond] == np.where(one == other, 0, -1)[beyond]).all()
    # The distance from a landmark is known.
    known = np.isin(one, marks.ids) & within
    assert (lower[known] == right[known]).all()
    assert (upper[known] == right[known]).all()


def test_landmarks_lie_apart(client: distributed.Client) -> None:
    with dbfs.load("path:n=40000", client=client, ranks=2) as graph:
        marks = graph.landmarks(3)
        # After a vertex near the beginning the end, and the middle.
        assert (marks.ids[1:], marks.distances.dtype) == ((39_999, 20_000), np.int32)
        lower, upper = marks.bounds([5, 100, 39_000], 15_000)
        assert lower.tolist() == [14_995, 14_900, 24_000]
        assert (upper >= lower).all()
    with dbfs.load("grid2d:side=30", client=client, ranks=2) as graph:
        assert graph.landmarks(5).distances.dtype == np.int16


def test_landmarks_that_a_file_keeps(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = tmp_path / "marks.npz"
    with dbfs.load("grid2d:side=20", client=client, ranks=2) as graph:
        right = graph.landmarks(5)
        assert graph.landmarks(2, checkpoint=kept).ids == right.ids[:2]
        assert graph.landmarks(5, checkpoint=kept).ids == right.ids
    with dbfs.load("grid2d:side=20", client=client, ranks=3) as graph:
        monkeypatch.setattr(landmarks, "traverse", lambda *given, **options: pytest.fail("the file has the landmarks"))
        for k in 5, 3:
            marks = graph.landmarks(k, checkpoint=kept)
            assert marks.ids == right.ids[:k]
            np.testing.assert_array_equal(marks.distances, right.distances[:k])
        assert marks.bounds(*marks.ids[:2])[0] == right.distances[0, marks.ids[1]]
    with dbfs.load("grid2d:side=21", client=client) as graph:
        with pytest.raises(InvalidOptionError, match="checkpoint of another graph"):
            graph.landmarks(2, checkpoint=kept)


def test_ids_of_the_caller_and_what_is_refused(client: distributed.Client) -> None:
    with dbfs.load([("a", "b"), ("b", "c")], client=client, ranks=2, mutable=True) as graph:
        marks = graph.landmarks(9)
        assert sorted(marks.ids) == ["a", "b", "c"]
        assert [each.tolist() for each in marks.bounds("a", ["a", "b", "c"])] == [[0, 1, 2]] * 2
        assert [each.tolist() for each in marks.bounds([], "a")] == [[], []]
        with pytest.raises(InvalidOptionError, match="as many targets as sources, or one of either, not 2 and 3"):
            marks.bounds(["a", "b"], ["a", "b", "c"])
        with pytest.raises(InvalidVertexError, match="target 'x'"):
            marks.bounds("a", "x")
        with pytest.raises(ClientError, match="use its distances"):
            pickle.dumps(marks)
        for k, error in (0, InvalidOptionError), (2.5, InvalidOptionTypeError):
            with pytest.raises(error, match="k must be"):
                graph.landmarks(k)  # type: ignore[arg-type]
        graph.insert_edges([("a", "c")])
        with pytest.raises(InvalidOptionError, match="the set of landmarks is of version 0"):
            marks.bounds("a", "c")
    with dbfs.load("path:n=5", client=client, ranks=1) as graph:
        assert graph.landmarks(1).bounds(0, 4)[0].shape == (1,)
    with dbfs.load(dbfs.from_arrays([0], [1], directed=True), client=client, ranks=1) as graph:
        with pytest.raises(DirectedGraphError, match="directed"):
            graph.landmarks(2)
    with dbfs.load(dbfs.from_arrays([], []), client=client, ranks=1) as graph:
        with pytest.raises(InvalidVertexError, match="has no vertices"):
            graph.landmarks(2)
