"""Batches of sources through the service: every reader against SciPy, groups, bad input, and runs that end early."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

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
    ValidationError,
)
from dbfs.features.batches import batch as batches
from dbfs_workers.base import memory_room
from dbfs_workers.base.spec import RunSpec
from dbfs_workers.features.batches import levels as batch_levels
from dbfs_workers.features.batches.copied_rows import copied_rows
from dbfs_workers.features.batches.purpose import batch_of
from dbfs_workers.search.partition.partition import Partition
from tests.support import oracle
from tests.support.batch_results import ARRAYS, SOURCES, N, assert_batch, assert_cancelled, loaded
from tests.support.runs import set_room


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
    [
        {"ranks": 2, "keep_edges": True},
        *(
            pytest.param(of, marks=pytest.mark.full)
            for of in ({"ranks": 3, "order": "degree"}, {"ranks": 4, "layout": "2d"})
        ),
    ],
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


def test_a_batch_is_of_one_version(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, leaves_nothing: None
) -> None:
    """The runs of other clients come between two groups, and so do updates."""
    finished = batches.finished

    def updated_in_between(graph: Any, engine: Any, run: RunSpec, progress: Any) -> Iterator[Any]:
        for part in run.sources:
            yield from finished(graph, engine, RunSpec(replace(run.options, run_id=uuid4().hex), (part,)), progress)
            graph.insert_edges([(0, 199)])

    with loaded(client, mutable=True) as graph:
        assert graph.bfs_batch(SOURCES).groups == 1
        monkeypatch.setattr(batches, "MOST_SOURCES", 64)
        monkeypatch.setattr(batches, "finished", updated_in_between)
        with pytest.raises(InvalidOptionError, match="updated from version 0 to 2 during the call, .* call again"):
            graph.bfs_batch(SOURCES, keep="distances")


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


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[RunSpec]:
    """The runs of the test's batches. Ranks share the sources where each has eight of them."""
    finished, seen = batches.finished, list[RunSpec]()
    monkeypatch.setattr(batches, "_SHARES", {"cpu": 8, "cuda": 8})
    monkeypatch.setattr(batches, "finished", lambda *given: (seen.append(given[2]), finished(*given))[1])
    return seen


@pytest.mark.parametrize("options", [{"ranks": 2}, {"ranks": 3, "order": "degree"}], ids=str)
def test_ranks_share_the_sources(client: distributed.Client, runs: list[RunSpec], options: dict[str, Any]) -> None:
    with loaded(client, **options) as graph:
        counts = graph.bfs_batch(SOURCES).counts
        assert [batch_of(run.options).copied for run in runs] == [True]
        striped = graph.bfs_batch(SOURCES, nearest=True)
        assert not batch_of(runs[-1].options).copied
        np.testing.assert_array_equal(counts, striped.counts)
        graph.bfs_batch(SOURCES[: 8 * graph.ranks - 1])
        assert not batch_of(runs[-1].options).copied


def test_ranks_share_the_sources_of_a_version(client: distributed.Client, runs: list[RunSpec]) -> None:
    with loaded(client, ranks=2, mutable=True) as graph:
        before = graph.bfs_batch(SOURCES[:32]).counts
        graph.insert_edges([(SOURCES[0], other) for other in SOURCES[1:]])
        after = graph.bfs_batch(SOURCES[:32]).counts
        assert after[0][1] >= len(SOURCES) - 1 > before[0][1]
        np.testing.assert_array_equal(after, graph.bfs_batch(SOURCES[:32], nearest=True).counts)
        graph.delete_vertices([SOURCES[1]])
        with pytest.raises(InvalidVertexError, match=f"vertex {SOURCES[1]} was deleted"):
            graph.bfs_batch(SOURCES[:32])
        assert all(batch_of(run.options).copied for run in (*runs[:2], runs[-1]))


def set_copies(copies: Callable[..., Partition]) -> Callable[..., Partition]:
    before, batch_levels.copied_rows = batch_levels.copied_rows, copies
    return before


def no_copy_on_rank_1(partition: Partition, *given: Any) -> Partition:
    if partition.rank == 1:
        raise NoRoomForLabelsError("no room")
    return copied_rows(partition, *given)


def test_rows_are_shared_where_a_rank_has_no_room_for_a_copy(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, runs: list[RunSpec]
) -> None:
    monkeypatch.setattr(batches, "MOST_SOURCES", 128)
    with loaded(client, ranks=2) as graph:
        client.run(set_copies, no_copy_on_rank_1, workers=graph.gang.addresses)
        try:
            result = graph.bfs_batch(SOURCES)
        finally:
            client.run(set_copies, copied_rows, workers=graph.gang.addresses)
        assert [(batch_of(run.options).copied, len(run)) for run in runs] == [(True, 1), (False, 2)]
        assert result.groups == 2
        np.testing.assert_array_equal(result.counts, graph.bfs_batch(SOURCES, nearest=True).counts)


def test_groups_become_smaller_until_they_fit(client: distributed.Client) -> None:
    """Distances of 150 sources fit beside bits of 64; a limit below that refuses the batch."""
    n = 200_000
    with dbfs.load(f"path:n={n}", client=client, ranks=1) as graph:
        graph.bfs_batch(range(64), max_depth=1)
        (address,) = graph.gang.addresses
        client.run(memory_room.return_freed, workers=[address])
        rss = client.run(memory_room.resident_bytes, workers=[address])[address]
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


def test_the_benchmark_compares_both_ways(client: distributed.Client) -> None:
    (row,) = bench_batch(client, "grid2d:side=8", "given", 2, (5,), "distances", 1)
    assert (row.graph, row.sources, row.ranks) == ("grid2d:side=8", 5, 2)
    assert row.times == pytest.approx(row.one_by_one / row.batch)
