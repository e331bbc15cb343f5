"""How clients read labels: through the buffer, as rows, and through the scheduler."""

import dataclasses
import itertools
import time
from collections.abc import Callable

import distributed
import numpy as np
import pytest

import dbfs
from dbfs.assembly import BFSResult
from dbfs.cluster import rank_calls
from dbfs.cluster.gang import Key, joined_workers
from dbfs.errors import ClientError, ExchangeUnavailableError, GraphNotFoundError, ResultReleasedError
from dbfs.graph import labels, positions
from dbfs_workers.search.partition.ordering import DegreeOrder
from dbfs_workers.search.partition.stripe import NO_VERTEX
from dbfs_workers.serving.reads.label_buffer import ClientBuffer
from tests.support import oracle
from tests.support.graphs import GRAPHS, random
from tests.support.waiting import eventually

Way = Callable[[pytest.MonkeyPatch, distributed.Client], None]


def buffer(monkeypatch: pytest.MonkeyPatch, client: distributed.Client) -> None:
    monkeypatch.setattr(labels, "FEW_VERTICES", 0)
    # Slots that hold a part of the graphs only, and that begin with any rank's vertex.
    monkeypatch.setattr(labels, "SLOT_ITEMS", 70)


def rows(monkeypatch: pytest.MonkeyPatch, client: distributed.Client) -> None:
    monkeypatch.setattr(labels, "SLOT_ITEMS", 70)


def far_away(monkeypatch: pytest.MonkeyPatch, client: distributed.Client) -> None:
    """No rank finds the client's buffer: its process number is another's."""
    buffer(monkeypatch, client)
    theirs = ClientBuffer()
    theirs.handle = dataclasses.replace(theirs.handle, token=dataclasses.replace(theirs.handle.token, pid=2**22 + 1))
    monkeypatch.setitem(labels._buffers, client, theirs)


def no_buffer(monkeypatch: pytest.MonkeyPatch, client: distributed.Client) -> None:
    """The client's system has no nameless files."""

    def refuse() -> ClientBuffer:
        raise ExchangeUnavailableError("no memfd")

    buffer(monkeypatch, client)
    monkeypatch.setattr(labels, "ClientBuffer", refuse)
    monkeypatch.setattr(labels, "_buffers", {})


def through_the_scheduler(monkeypatch: pytest.MonkeyPatch, client: distributed.Client) -> None:
    """A firewall keeps the client from the workers."""
    rows(monkeypatch, client)
    addresses = joined_workers(client)
    monkeypatch.setitem(rank_calls._reached, client, dict.fromkeys(addresses, time.monotonic() + 3600))


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("engine", ["resident", "taskgraph"])
@pytest.mark.parametrize("way", [buffer, rows, far_away, no_buffer, through_the_scheduler])
def test_labels_by_every_way(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, way: Way, engine: str, order: str, ranks: int
) -> None:
    n, src, dst = random(500, 600, 1)
    matrix = oracle.adjacency(n, src, dst, directed=False)
    source = int(src[0])
    wanted = oracle.distances(matrix, [source])
    way(monkeypatch, client)
    with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, ranks=ranks, order=order) as graph:
        result = graph.bfs(source, predecessors=True, engine=engine)
        distances, parents = result.distances(), result.predecessors()
        assert (distances.dtype, parents.dtype) == (np.int32, np.int64)
        np.testing.assert_array_equal(distances, wanted)
        oracle.assert_valid_parents(matrix, distances, parents, [source])
        for distance in (0, 2, result.depth, result.depth + 1):
            np.testing.assert_array_equal(result.vertices_at(distance), np.flatnonzero(wanted == distance))
        np.testing.assert_array_equal(result.vertices(), np.flatnonzero(wanted >= 0))
        for vertex in [*result.vertices_at(result.depth), *np.flatnonzero(wanted < 0)[:2]]:
            assert_path(result, vertex, parents)


def assert_path(result: BFSResult, vertex: int, parents: np.ndarray) -> None:  # type: ignore[type-arg]
    path = result.path_to(vertex)
    if parents[vertex] < 0:
        assert path == []
        return
    assert (path[0], path[-1]) == (result.sources[0], vertex)
    assert all(parents[child] == parent for parent, child in itertools.pairwise(path))


@pytest.mark.parametrize("patient", [True, False])
def test_a_path_is_walked_or_all_predecessors_are_fetched(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, patient: bool
) -> None:
    monkeypatch.setattr(labels, "FEW_VERTICES", 0)
    monkeypatch.setattr(labels, "_FETCH_SECONDS", 3600 if patient else 0)
    n, src, dst = GRAPHS["path"]()
    with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, ranks=2, order="degree") as graph:
        result = graph.bfs(0, predecessors=True)
        assert result.path_to(n - 1) == list(range(n))
        assert (result._path_parents is None) == patient


def test_few_labels_of_an_ordered_graph_leave_the_order_on_the_ranks(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "FEW_VERTICES", 0)
    monkeypatch.setattr(labels, "_FETCH_SECONDS", 3600)
    entries: list[int] = []
    read_order = positions.ReadOrder
    monkeypatch.setattr(positions, "ReadOrder", lambda *given: (entries.append(given[2].size), read_order(*given))[1])
    n, src, dst = random(5000, 6000, 1)
    matrix, source = oracle.adjacency(n, src, dst, directed=False), int(src[0])
    wanted = oracle.distances(matrix, [source])
    with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, ranks=3, order="degree") as graph:
        with pytest.MonkeyPatch.context() as here:
            here.setattr(graph.numbering, "_fetch_order", lambda: pytest.fail("the whole order is fetched"))
            result = graph.bfs(source, predecessors=True)
            far = int(result.vertices_at(result.depth)[0])
            path = result.path_to(far)
            assert len(path) == 1 + wanted[far]
            assert [wanted[vertex] for vertex in path] == list(range(len(path)))
            for distance in (0, 1, 2, result.depth):
                np.testing.assert_array_equal(result.vertices_at(distance), np.flatnonzero(wanted == distance))
            near = graph.khop(source, 2)
            np.testing.assert_array_equal(near.vertices, np.flatnonzero((wanted >= 0) & (wanted <= 2)))
            table = graph.bfs(source, predecessors=True, max_depth=2).to_pandas()
            np.testing.assert_array_equal(table.distance, wanted[table.vertex])
            linked = table[table.distance > 0]
            assert (matrix[linked.predecessor.to_numpy(np.int64), linked.vertex] != 0).all()
        # Of an entry travel the index and the answer, 12 bytes; of the order 8 bytes a vertex.
        assert 12 * sum(entries) < 8 * n / 4
        entries.clear()
        result.vertices()
        np.testing.assert_array_equal(result.distances(), wanted)
        assert entries == []


def test_labels_of_others(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels of an unloaded graph and of a released result are refused; a failed read leaves no buffer behind."""
    monkeypatch.setattr(labels, "FEW_VERTICES", 0)
    n, src, dst = GRAPHS["hub"]()
    with distributed.Client(client.scheduler.address, set_as_default=False) as other:
        graph = dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, ranks=2, name="labels-of-others")
        result, published = graph.bfs(0), graph.bfs(0)
        published.publish()
        wanted = published.distances()
        used = labels._buffers[client]
        dbfs.open("labels-of-others", client=other).unload()
        for read in (result.distances, result.vertices):
            with pytest.raises(GraphNotFoundError, match="the graph was unloaded, which released the labels"):
                read()
        np.testing.assert_array_equal(published.distances(), wanted)
        assert labels._buffers[client] is not used
        published.release()
        with pytest.raises(ResultReleasedError):
            published.distances()


def test_labels_of_a_closed_client(client: distributed.Client) -> None:
    with distributed.Client(client.scheduler.address, set_as_default=False) as other:
        kept = dbfs.load(dbfs.from_arrays([0], [1], n=2), client=other, ranks=1).bfs(0, predecessors=True)
    for read in (kept.distances, kept.vertices, lambda: kept.path_to(1)):
        with pytest.raises(ClientError, match=r"the distributed\.Client of this call is closed; connect and load"):
            read()


def drop(key: object, dask_worker: distributed.Worker) -> None:
    """Take a key away from a worker, as Dask does when it moves data to another worker."""
    del dask_worker.data[key]


def test_labels_that_left_their_worker(client: distributed.Client) -> None:
    with dbfs.load(dbfs.from_arrays([0], [1]), client=client, ranks=2) as graph:
        result = graph.bfs(0)
        first = result.published_labels().distances[0]
        client.run(drop, first.key, workers=[graph.record.addresses[0]])
        with pytest.raises(ResultReleasedError, match="rank 0: the labels under .* traverse again"):
            result.distances()


def keep_other_copy(key: Key, first: str, other: str, dask_scheduler: distributed.Scheduler) -> None:
    """Drop the first of two copies, as ``ReduceReplicas`` does, which Dask runs every two seconds."""
    assert {worker.address for worker in dask_scheduler.tasks[key].who_has} == {first, other}
    dask_scheduler.request_remove_replicas(first, [key], stimulus_id="test")


def use(array: np.ndarray) -> int:
    return array.size


@pytest.mark.parametrize("engine", ["resident", "taskgraph"])
def test_labels_that_dask_moved_to_another_worker(client: distributed.Client, engine: str) -> None:
    """A task on another worker took the labels, and Dask kept that worker's copy alone."""
    with dbfs.load(dbfs.from_arrays([0, 1], [1, 2]), client=client, ranks=2) as graph:
        result, addresses = graph.bfs(0, predecessors=True, engine=engine), graph.record.addresses
        moved = result.published_labels().distances[0]
        array = result.to_dask_array()
        # Dask may take a copy away by itself.
        client.amm.stop()
        try:
            client.submit(use, moved, workers=[addresses[1]]).result()
            client.run_on_scheduler(keep_other_copy, moved.key, *addresses)
        finally:
            client.amm.start()
        eventually(lambda: len(client.who_has([moved])[moved.key]) == 1)
        for _ in range(2):
            assert result.distances().tolist() == [0, 1, 2]
            assert result.path_to(2) == [0, 1, 2]
            assert result.to_dict() == {0: 0, 1: 1, 2: 2}
        result.validate()
        assert client.who_has(result.published_labels().distances)[result.published_labels().distances[0].key] == (
            addresses[0],
        )
        assert array.compute().tolist() == [0, 2, 1]


def test_vertices_past_2_to_the_31() -> None:
    arrived = np.array([0, 2**31 - 1, 2**31, 2**32 - 3, NO_VERTEX], np.uint32)
    into = np.empty(arrived.size, np.int64)
    labels._copy(arrived, "predecessors", 2**32 - 2, None, into)
    assert into.tolist() == [0, 2**31 - 1, 2**31, 2**32 - 3, -1]
    vertex = np.array([3, 2**32 - 4, 0, 1], np.uint32)
    order = DegreeOrder(vertex, vertex)
    labels._copy(np.array([1, NO_VERTEX, 0], np.uint32), "predecessors", 4, order, into[:3])
    assert into[:3].tolist() == [2**32 - 4, -1, 3]


def test_a_buffer_serves_every_read(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "FEW_VERTICES", 0)
    with dbfs.load(dbfs.from_arrays([0, 1], [1, 2]), client=client, ranks=2) as graph:
        one, other = graph.bfs(0), graph.bfs(2)
        first = one.distances()
        used = labels._buffers[client]
        np.testing.assert_array_equal(other.distances(), [2, 1, 0])
        assert labels._buffers[client] is used
        # The array is the caller's own: the next read leaves it alone.
        np.testing.assert_array_equal(first, [0, 1, 2])


def overwrite(array: np.ndarray) -> None:
    array[...] = 7


def test_labels_that_take_over_memory_are_right(client: distributed.Client) -> None:
    """Half of the vertices have no edge: their labels stay from one traversal to the next."""
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, 150, (2, 200)) * 2
    matrix = oracle.adjacency(300, src, dst, directed=False)
    with dbfs.load(dbfs.from_arrays(src, dst, n=300), client=client, ranks=2) as graph:
        for turn in range(24):
            # Odd vertices have no edge.
            first, *others = (int(source) for source in rng.integers(0, 300, 3))
            max_depth = (None, 2, 0)[turn % 3]
            results = graph.bfs_many([first, first], predecessors=turn % 2 == 0, max_depth=max_depth)
            results.append(graph.bfs([first, *others], targets=[0, 2], predecessors=True))
            for result in results:
                sources = list(result.sources)
                expected = oracle.distances(matrix, sources, max_depth if len(sources) == 1 else result.depth)
                assert result.distances().tolist() == expected.tolist()
                if result is results[2] or turn % 2 == 0:
                    oracle.assert_valid_parents(matrix, expected, result.predecessors(), sources)
            published = results[1].published_labels()
            client.gather([client.submit(overwrite, part, pure=False) for part in published.distances])
            for result in results:
                result.release()
