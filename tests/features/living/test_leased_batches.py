"""Batches of a few edges under their client's lease: one version on all ranks, whatever dies meanwhile."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import distributed
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import EdgeInputError, GraphTooLargeError, InvalidVertexError, WorkerLostError
from dbfs.service.runs import RunSender
from dbfs_workers.base.lines.line import LineClosedError
from tests.support.halves import at_each_half, is_at_its_half
from tests.support.waiting import eventually


@pytest.fixture
def mortal() -> Iterator[distributed.Client]:
    """A cluster of the test's own, to be harmed."""
    with dbfs.connect(n_workers=2, backend="cpu", dashboard_address=None) as client:
        yield client


def lease(client: distributed.Client, graph: Graph) -> int:
    """Return the serial number of the lease on a graph's gang; 0 if there is none."""

    def held(dask_scheduler: distributed.Scheduler, graph_id: str) -> int:
        found = dask_scheduler.plugins["dbfs"]._turns._held.get(graph_id)
        return int(found.serial) if found is not None and found.held else 0

    serial: int = client.run_on_scheduler(held, graph_id=graph.record.graph_id)
    return serial


def test_a_small_batch_leaves_its_clients_lease(client: distributed.Client, leaves_nothing: None) -> None:
    with (
        dbfs.load("path:n=40", client=client, name="street", mutable=True) as graph,
        distributed.Client(client.scheduler.address, set_as_default=False) as other,
    ):
        result = graph.bfs(0, predecessors=True)
        graph.bfs_many([0, 1])
        serial = lease(client, graph)
        assert serial
        graph.insert_edges([(0, 30)])
        assert result.update().depth == 15
        graph.delete_edges([(0, 30)])
        assert result.update().depth == 39
        assert lease(client, graph) == serial
        assert graph.version == 2
        assert {status.name: status.version for status in dbfs.graphs(client=client)}["street"] == 2
        # So does a batch that is refused.
        graph.delete_vertices(39)
        graph.bfs_many([0, 1])
        serial = lease(client, graph)
        with pytest.raises(InvalidVertexError, match="deleted"):
            graph.insert_edges([(0, 39)])
        with pytest.raises(EdgeInputError, match="strict=True"):
            graph.insert_edges([(0, 1), (0, 5)], strict=True)
        assert (graph.version, graph.bfs(0).depth) == (3, 38)
        assert graph.delete_edges([(0, 1), (0, 5)]).skipped == 1
        assert graph.insert_edges([(0, 1), (1, 2)]).skipped == 1
        assert graph.bfs(0, validate=True).depth == 38
        assert lease(client, graph) == serial
        # A batch of another client ends it.
        dbfs.open("street", client=other).insert_edges([(0, 20)])
        assert lease(client, graph) == 0
        assert result.update().depth == 19


def test_a_batch_whose_answer_is_lost_is_made_once(
    client: distributed.Client, leaves_nothing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line to rank 0 breaks while the client waits. The scheduler has decided, and says so to the same run."""
    with dbfs.load("path:n=40", client=client, mutable=True) as graph:
        graph.bfs_many([0, 1])
        receive = RunSender._receive

        def broken(self: RunSender, *arguments: Any) -> Any:
            receive(self, *arguments)
            raise LineClosedError("by the test")

        monkeypatch.setattr(RunSender, "_receive", broken)
        found = graph.insert_edges([(0, 30), (0, 1)])
        monkeypatch.undo()
        assert (found.version, found.edges, found.skipped) == (1, 1, 1)
        assert graph.insert_edges([(0, 30)], strict=False).skipped == 1
        assert graph.bfs(0, validate=True).depth == 15


def test_threads_of_one_client_traverse_and_update(client: distributed.Client, leaves_nothing: None) -> None:
    """Each traversal sees one version on all ranks, whichever thread has the lease meanwhile."""
    with dbfs.load("path:n=40", client=client, mutable=True) as graph:
        done, depths = threading.Event(), []

        def traverse() -> None:
            while not done.is_set():
                result = graph.bfs(0)
                depths.append((result.version % 2, result.depth))

        threads = [threading.Thread(target=traverse) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                graph.insert_edges([(0, 30)])
                graph.delete_edges([(0, 30)])
        finally:
            done.set()
            for thread in threads:
                thread.join(60)
        assert graph.bfs(0).version == 20
        assert set(depths) <= {(0, 39), (1, 15)}


@pytest.mark.full
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("half", ["prepare", "finish"])
@pytest.mark.parametrize("held", [True, False])
def test_a_rank_killed_in_the_middle_of_an_update(mortal: distributed.Client, half: str, rank: int, held: bool) -> None:
    graph = dbfs.load("path:n=30", client=mortal, mutable=True, rebuild="never")
    if held:
        graph.bfs_many([0, 1])
    assert bool(lease(mortal, graph)) == held
    at_each_half(mortal, rank, half, "die")
    with pytest.raises(WorkerLostError, match="load the graph again"):
        graph.insert_edges([(0, 29)])
    with pytest.raises(WorkerLostError, match="load the graph again"):
        graph.bfs(0)
    with pytest.raises(WorkerLostError, match="load the graph again"):
        graph.insert_edges([(0, 28)])


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_fails_under_a_lease(client: distributed.Client, leaves_nothing: None, rank: int) -> None:
    with dbfs.load("path:n=30", client=client, mutable=True, ranks=2) as graph:
        graph.bfs_many([0, 1])
        at_each_half(client, rank, "prepare", "fail")
        with pytest.raises(GraphTooLargeError, match=f"rank {rank} has no memory"):
            graph.insert_edges([(0, 29)])
        at_each_half(client, rank, "prepare", "")
        assert graph.version == 0
        assert graph.bfs(0, validate=True).depth == 29
        assert graph.insert_edges([(0, 29)]).version == 1
        # A version that only some ranks have is no version.
        at_each_half(client, rank, "finish", "fail")
        with pytest.raises(WorkerLostError, match="not all ranks committed"):
            graph.delete_edges([(0, 29)])
        at_each_half(client, rank, "finish", "")
        for _ in range(2):
            with pytest.raises(WorkerLostError, match="load the graph again"):
                graph.bfs(0)


@pytest.mark.full
@pytest.mark.parametrize("half", ["prepare", "finish"])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("held", [True, False])
def test_a_client_that_dies_while_the_ranks_change(
    client: distributed.Client, half: str, rank: int, held: bool
) -> None:
    with dbfs.load("path:n=30", client=client, name="street", mutable=True) as graph:
        other = distributed.Client(client.scheduler.address, set_as_default=False)
        theirs = dbfs.open("street", client=other)
        if held:
            theirs.bfs_many([0, 1])
        assert bool(lease(client, graph)) == held
        at_each_half(client, rank, half, "wait")

        def insert() -> None:
            # The client is closed under the call, which fails in one of several ways.
            with contextlib.suppress(BaseException):
                theirs.insert_edges([(0, 29), (3, 20)])

        dying = threading.Thread(target=insert, daemon=True)
        dying.start()
        eventually(lambda: client.run(is_at_its_half), lambda are: any(are.values()))
        other.close()
        at_each_half(client, rank, half, "")
        # Waits for its turn, and so for the end of the update.
        result = graph.bfs(0, validate=True)
        assert graph.version == result.version
        assert graph.m == 2 * (29 + 2 * result.version)
        assert (result.depth == 29) == (result.version == 0)
        dying.join(30)
