"""A rank that is stopped (SIGSTOP) delays no error by more than a second after the deadline."""

import os
import signal
import time
from collections.abc import Callable, Iterator

import dask
import distributed
import pytest

import dbfs
from dbfs.errors import DeadlineExceededError
from dbfs.graph.graph import Graph
from dbfs.service.runs import RunSender

pytestmark = [pytest.mark.full, pytest.mark.alone]

DEADLINE = 0.5
# A second after the deadline, and a busy machine's delay. A scheduler that waits for the stopped rank takes longer.
MOST = DEADLINE + 1.0 + 0.5


@pytest.fixture(scope="module")
def mortal() -> Iterator[distributed.Client]:
    """A cluster of this module's own, whose workers are stopped."""
    with dbfs.connect(n_workers=3, backend="cpu", dashboard_address=None) as client:
        yield client


@pytest.fixture
def graph(mortal: distributed.Client) -> Iterator[Graph]:
    with dbfs.load("path:n=3000", client=mortal) as graph:
        graph.bfs(0, max_depth=2)
        yield graph


def lease(graph: Graph) -> Callable[[], object]:
    graph.bfs_many([0, 1], max_depth=1)
    return lambda: graph.bfs(0, deadline=DEADLINE)


def scheduler(graph: Graph) -> Callable[[], object]:
    # Without lines, the scheduler conducts the run.
    RunSender.of(graph.gang.client)._unreachable.add(graph.record.graph_id)
    return lambda: graph.bfs(0, deadline=DEADLINE)


def taskgraph(graph: Graph) -> Callable[[], object]:
    graph.bfs(0, max_depth=3, engine="taskgraph")
    return lambda: graph.bfs(0, deadline=DEADLINE, engine="taskgraph")


def taskgraph_phases(graph: Graph) -> Callable[[], object]:
    def traverse() -> object:
        with dask.config.set({"dbfs.taskgraph.fuse-below": 0}):
            return graph.bfs(0, deadline=DEADLINE, engine="taskgraph")

    return traverse


def labels(graph: Graph) -> Callable[[], object]:
    result = graph.bfs(0)
    return lambda: result.distances()


def published(graph: Graph) -> Callable[[], object]:
    result = graph.bfs(0, max_depth=3, engine="taskgraph")
    return lambda: result.distances()


def publish(graph: Graph) -> Callable[[], object]:
    result = graph.bfs(0)
    return lambda: result.publish()


def validation(graph: Graph) -> Callable[[], object]:
    result = graph.bfs(0, predecessors=True)
    return lambda: result.validate()


WAYS = [lease, scheduler, taskgraph, taskgraph_phases, labels, published, publish, validation]


@pytest.mark.matrix
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("prepare", WAYS, ids=lambda way: str(way.__name__))
def test_a_stopped_rank_is_told_a_second_after_the_deadline(
    graph: Graph, prepare: Callable[[Graph], Callable[[], object]], rank: int
) -> None:
    call = prepare(graph)
    victim = graph.gang.addresses[rank]
    pid = graph.gang.client.run(os.getpid, workers=[victim])[victim]
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises(DeadlineExceededError), dask.config.set({"dbfs.deadline": f"{DEADLINE} s"}):
            call()
        taken = time.monotonic() - began
    finally:
        os.kill(pid, signal.SIGCONT)
    assert taken < MOST
    assert graph.bfs(0, max_depth=5, deadline=20).reached == 6
