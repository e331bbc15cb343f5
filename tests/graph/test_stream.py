"""``bfs_stream``: results in order, for any number of sources, with few labels on the workers."""

import itertools
import time

import distributed
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import InvalidVertexError, NoRoomForLabelsError
from dbfs.graph import traversing
from tests.support.runs import set_room


def labels_kept(graph_id: str, dask_worker: distributed.Worker) -> int:
    return len(dask_worker.plugins["dbfs"].members[graph_id].kept)


def most_kept(graph: Graph) -> int:
    return max(graph.gang.client.run(labels_kept, graph.record.graph_id, workers=list(graph.gang.addresses)).values())


def wait_until_kept(graph: Graph, most: int) -> None:
    for _ in range(100):
        if most_kept(graph) <= most:
            return
        time.sleep(0.1)
    assert most_kept(graph) <= most


def test_an_endless_stream_keeps_few_labels(client: distributed.Client) -> None:
    with dbfs.load("path:n=40", client=client, ranks=2) as graph:
        numbers = itertools.count()
        sources = (number % 40 for number in numbers)
        results = graph.bfs_stream(sources, predecessors=True)
        for source, result in zip(range(60), results, strict=False):
            assert result.sources == (source % 40,)
            assert result.depth == max(source % 40, 39 - source % 40)
            if source % 20 == 0:
                assert result.path_to(0) == list(range(source % 40, -1, -1))
        # The labels dropped last go with the next run, or after a moment. Those ahead of the loop stay.
        wait_until_kept(graph, traversing.MOST_TRAVERSALS)
        assert next(numbers) <= 60 + traversing.MOST_TRAVERSALS
        del results, result
        wait_until_kept(graph, 0)


def test_a_stream_ends_with_its_sources(client: distributed.Client) -> None:
    with dbfs.load("path:n=9", client=client, ranks=2) as graph:
        assert [result.depth for result in graph.bfs_stream([])] == []
        assert [result.sources[0] for result in graph.bfs_stream(range(9))] == list(range(9))
        found = graph.bfs_stream([0, 1, 2, 99])
        with pytest.raises(InvalidVertexError, match="99"):
            list(found)


def test_a_stream_goes_on_where_there_is_room_for_few_labels(client: distributed.Client) -> None:
    with dbfs.load("path:n=9", client=client, ranks=2) as graph:
        client.run(set_room, graph.record.graph_id, 1, workers=[graph.gang.addresses[1]])
        with pytest.raises(NoRoomForLabelsError):
            graph.bfs_many([0] * 30)
        depths = [result.depth for result in graph.bfs_stream([0, 4] * 15, predecessors=True)]
        assert depths == [8, 4] * 15
        # A caller that holds all results is refused when the room is full.
        with pytest.raises(NoRoomForLabelsError):
            list(graph.bfs_stream([0] * 30, predecessors=True))
