"""Batches of sources through the service: every reader against SciPy, groups, bad input, and runs that end early."""

import threading
from collections.abc import Iterator
from typing import Any

import distributed
import numpy as np
import pytest

import dbfs
from benchmarks.batch import bench_batch
from dbfs.engines.resident import ResidentLabels
from dbfs.errors import (
    InvalidOptionError,
    InvalidVertexError,
    NoRoomForLabelsError,
    ResultReleasedError,
    RunCancelledError,
    ValidationError,
)
from dbfs.graph import batch as batches
from dbfs.graph.graph import Graph
from tests.support import graphs, oracle
from tests.support.runs import set_room

N = 200
ARRAYS = graphs.random(N, 500, 3)
SOURCES = np.random.default_rng(1).permutation(N)[:150].tolist()


def loaded(client: distributed.Client, **options: Any) -> Graph:
    n, src, dst = ARRAYS
    return dbfs.load(dbfs.from_arrays(src, dst, n=n, directed=False), client=client, **options)


def assert_batch(graph: Graph, **options: Any) -> dbfs.BatchResult:
    """Everything that a batch may keep."""
    expected = np.array([oracle.distances(oracle.adjacency(*ARRAYS, directed=False), [one]) for one in SOURCES]).T
    targets = [7, 3, 7, 199]
    result = graph.bfs_batch(SOURCES, keep="distances", targets=targets, nearest=True, **options)
    assert (result.sources, result.depth, result.keep) == (tuple(SOURCES), expected.max(), "distances")
    counts = [np.bincount(one[one >= 0], minlength=result.depth + 1) for one in expected.T]
    np.testing.assert_array_equal(result.counts, counts)
    distances = result.distances()
    assert distances.dtype == np.uint8
    np.testing.assert_array_equal(np.where(distances == 255, -1, distances.astype(int)), expected)
    np.testing.assert_array_equal(result.target_distances(), expected[targets].T)
    far = np.where(expected < 0, 10**6, expected)
    least = far.min(axis=1)
    smallest = np.where(far == least[:, None], SOURCES, 10**6).min(axis=1)
    vertices, nearest = result.nearest()
    np.testing.assert_array_equal(nearest, np.where(least < 10**6, least, -1))
    np.testing.assert_array_equal(vertices, np.where(least < 10**6, smallest, -1))
    reached = graph.bfs_batch(SOURCES, keep="reached", **options).reached_bits()
    bits = np.unpackbits(reached, axis=1, count=len(SOURCES), bitorder="little")
    np.testing.assert_array_equal(bits, expected >= 0)
    return result


@pytest.mark.parametrize(
    "options", [{"ranks": 2}, {"ranks": 3, "order": "degree"}, {"ranks": 2, "layout": "2d"}], ids=str
)
def test_a_batch_in_one_group_and_in_several(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    with loaded(client, **options) as graph:
        assert assert_batch(graph).groups == 1
        monkeypatch.setattr(batches, "MOST_SOURCES", 64)
        seen: list[dbfs.RunProgress] = []
        result = assert_batch(graph, progress=seen.append)
        assert result.groups == 3
        assert (seen[-1].traversals, seen[-1].finished) == (150, 150)
        striped = result.to_dask_array()
    # The graph is unloaded, and the result is still there.
    parts = striped.compute()
    assert (parts.shape, parts.dtype, striped.numblocks) == ((N, 150), np.uint8, (graph.ranks, 1))
    result.release()
    with pytest.raises(ResultReleasedError):
        result.distances()


@pytest.mark.parametrize(
    "options",
    [{"ranks": 2, "keep_edges": True}, {"ranks": 3, "order": "degree"}, {"ranks": 4, "layout": "2d"}],
    ids=str,
)
def test_every_source_of_a_batch_is_validated(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(batches, "MOST_SOURCES", 64)
    with loaded(client, **options) as graph:
        result = graph.bfs_batch(SOURCES[:70], keep="distances", max_depth=4)
        found = dbfs.validate(graph, result)
        alone = dbfs.validate(graph, graph.bfs(SOURCES[0], max_depth=4))
        assert (found.of_input, found.edges) == (alone.of_input, 70 * alone.edges)
        # A wrong distance of the last source, on rank 0.
        kept = result._kept[1]["distances"]
        wrong = kept[0].result().copy()
        wrong[np.argmax(wrong[:, -1] == 2), -1] = 4
        with monkeypatch.context() as patch:
            patched = (client.scatter(wrong, workers=[graph.gang.addresses[0]]), *kept[1:])
            patch.setitem(result._kept[1], "distances", patched)
            with pytest.raises(ValidationError, match=rf"arrays, source {max(SOURCES[:70])}: rule 3"):
                result.validate()
        result.validate()
        graph.unload()
        with pytest.raises(ResultReleasedError):
            result.validate()


@pytest.mark.parametrize("options", [{"ranks": 2}, {"ranks": 3, "order": "degree"}], ids=str)
def test_the_nearest_of_the_sources_of_a_traversal(client: distributed.Client, options: dict[str, Any]) -> None:
    adjacency = oracle.adjacency(*ARRAYS, directed=False)
    sources = [31, 5, 150, 5]
    far = np.array([oracle.distances(adjacency, [source]) for source in sources])
    with loaded(client, **options) as graph:
        for result in (graph.bfs(sources), graph.bfs(sources, max_depth=2), graph.bfs(sources, targets=[77])):
            vertices, distances = result.nearest()
            np.testing.assert_array_equal(distances, result.distances())
            expected = np.where((far == distances) & (distances >= 0), np.array(sources)[:, None], N).min(axis=0)
            np.testing.assert_array_equal(vertices, np.where(expected < N, expected, -1))


def test_the_nearest_sources_are_of_the_traversed_version(client: distributed.Client) -> None:
    with loaded(client, mutable=True) as graph:
        result = graph.bfs([0, 1])
        graph.insert_edges([[0, 199]])
        with pytest.raises(InvalidOptionError, match="is of version 0 .* which is 1 now; traverse again"):
            result.nearest()


def test_bad_input(client: distributed.Client) -> None:
    with loaded(client, ranks=2) as graph:
        for sources, match in ([], "at least one source"), ([3, 5, 3, 3], "3 is given 3 times"), ([N], "200"):
            with pytest.raises(InvalidVertexError, match=match):
                graph.bfs_batch(sources)
        with pytest.raises(InvalidVertexError):
            graph.bfs_batch([0], targets=[N])
        with pytest.raises(InvalidOptionError, match="keep='labels'; choose one of counts, reached, distances"):
            graph.bfs_batch([0], keep="labels")
        with pytest.raises(InvalidOptionError, match="direction"):
            graph.bfs_batch([0], direction="up")
        result = graph.bfs_batch([0])
        for read, option in [
            (result.distances, "keep='distances'"),
            (result.validate, "keep='distances'"),
            (result.reached_bits, "keep='reached'"),
            (result.target_distances, "targets="),
            (result.nearest, "nearest=True"),
        ]:
            with pytest.raises(InvalidOptionError, match=option):
                read()


def test_groups_become_smaller_until_they_fit(client: distributed.Client) -> None:
    """Distances of 150 sources fit beside bits of 64; a limit below that refuses the batch."""
    n = 200_000
    with dbfs.load(f"path:n={n}", client=client, ranks=1) as graph:
        graph.bfs_batch(range(64), max_depth=1)
        (address,) = graph.gang.addresses
        rss = client.run(lambda dask_worker: dask_worker.monitor.proc.memory_info().rss, workers=[address])[address]
        client.run(set_room, graph.record.graph_id, int(rss + 50 * n), workers=[address])
        assert graph.bfs_batch(range(512), max_depth=1).groups > 1
        client.run(set_room, graph.record.graph_id, 1, workers=[address])
        with pytest.raises(NoRoomForLabelsError, match=r"64 sources need .* free .* make the batch of fewer sources"):
            graph.bfs_batch(range(512), max_depth=1)


def test_groups_before_one_that_does_not_fit_are_dropped(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished, dropped = batches.finished, []

    def short(*given: Any) -> Iterator[Any]:
        yield next(finished(*given))
        raise NoRoomForLabelsError("no room")

    monkeypatch.setattr(batches, "finished", short)
    monkeypatch.setattr(batches, "MOST_SOURCES", 128)
    monkeypatch.setattr(ResidentLabels, "drop", lambda self: dropped.append(self._index))
    with loaded(client) as graph:
        # Groups of 128 sources, then of 64.
        with pytest.raises(NoRoomForLabelsError, match="no room"):
            graph.bfs_batch(SOURCES)
        assert dropped == [0, 0]


def test_a_batch_is_cancelled_by_its_next_level(client: distributed.Client) -> None:
    assert_cancelled(client, ranks=2)


def assert_cancelled(client: distributed.Client, ranks: int) -> None:
    with dbfs.load("path:n=1000000", client=client, ranks=ranks) as graph:
        errors: list[BaseException] = []
        levels = threading.Event()

        def run() -> None:
            try:
                graph.bfs_batch([0, 1], direction="bottom-up", progress=lambda made: levels.set())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert levels.wait(60)
        (listed,) = dbfs.runs(client=client)
        listed.cancel()
        thread.join(60)
        assert [type(error) for error in errors] == [RunCancelledError]
        assert graph.bfs_batch([0], max_depth=3).counts.tolist() == [[1, 1, 1, 1]]


def test_the_benchmark_compares_both_ways(client: distributed.Client) -> None:
    (row,) = bench_batch(client, "grid2d:side=8", "given", 2, (5,), "distances", 1)
    assert (row.graph, row.sources, row.ranks) == ("grid2d:side=8", 5, 2)
    assert row.times == pytest.approx(row.one_by_one / row.batch)
