"""Forked children, which have no use of their parent's clients; and objects that are refused to other processes."""

import copy
import logging
import pickle
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import cloudpickle
import distributed
import pytest

import dbfs
from dbfs.cluster.awaiting import AsyncView
from dbfs.cluster.own_process import StaysHere
from dbfs.errors import ClientError

FORK = """
import gc, multiprocessing, os, sys
import distributed, networkx, dbfs

fork = multiprocessing.get_context("fork")

def in_child(call, *arguments):
    child = fork.Process(target=show, args=(call, *arguments))
    child.start()
    child.join(60)
    print("exit", child.exitcode, flush=True)
    if child.is_alive():
        child.kill()

def show(call, *arguments):
    try:
        print(call(*arguments), flush=True)
    except dbfs.errors.ClientError as error:
        print(str(error).replace(str(os.getppid()), "PARENT").replace(str(os.getpid()), "CHILD"), flush=True)
"""


def output(program: str) -> list[str]:
    """Run a program behind ``FORK``; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK + program], capture_output=True, text=True, check=False, timeout=100
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


INHERITED = (
    "the distributed.Client of this call belongs to process PARENT; process CHILD is a fork without the client's "
    "threads; connect in the child, and open a graph there with dbfs.open(name)"
)

CALLS = """
client = dbfs.connect(n_workers=2, processes=False, dashboard_address=None)
graph = dbfs.load("kronecker:scale=17,edgefactor=1", client=client)
results = [graph.bfs(1), graph.bfs(2)]
in_child(lambda: graph.bfs(1))
in_child(lambda: results[0].distances())
in_child(graph.degree_counts)
in_child(lambda: graph.bfs(1, engine="taskgraph"))
in_child(dbfs.load, [(0, 1)])
in_child(dbfs.graphs)
in_child(lambda: list(graph.bfs_stream([1, 2])))

def drop():
    global graph
    results.clear()
    graph = None
    gc.collect()
    client.close()
    return "dropped"

in_child(drop)
print(graph.bfs(1).reached == results[0].reached, len(dbfs.graphs()))
client.close()
"""


@pytest.mark.full
def test_a_call_in_a_forked_child_is_refused_and_the_parent_goes_on() -> None:
    assert output(CALLS) == [INHERITED, "exit 0"] * 7 + ["dropped", "exit 0", "True 1"]


CONNECTS = """
client = dbfs.connect(n_workers=1, processes=False, dashboard_address=None)
print(dbfs.load([("a", "b"), ("b", "c")]).bfs("a").to_dict())

def anew():
    with dbfs.connect(n_workers=2, processes=False, dashboard_address=None):
        return dbfs.load([("a", "b"), ("b", "c")]).bfs("a").to_dict()

in_child(anew)
in_child(lambda: "no call")
client.close()
"""


@pytest.mark.full
def test_a_forked_child_connects_and_leaves() -> None:
    distances = "{'a': 0, 'b': 1, 'c': 2}"
    assert output(CONNECTS) == [distances, distances, "exit 0", "no call", "exit 0"]


BACKEND = """
path = networkx.path_graph(5)
print(networkx.diameter(path, backend="dbfs"))
in_child(lambda: networkx.diameter(path, backend="dbfs"))
client = dbfs.connect(n_workers=1, processes=False, dashboard_address=None)
print(networkx.diameter(path, backend="dbfs"))
in_child(lambda: networkx.diameter(path, backend="dbfs"))
"""


@pytest.mark.full
def test_the_backend_for_networkx_in_a_forked_child() -> None:
    # Of its own accord the backend starts a cluster in each process. A client that the user connected is the user's.
    assert output(BACKEND) == ["4", "4", "exit 0", "4", INHERITED, "exit 0"]


BY_ADDRESS = """
if __name__ == "__main__":
    with dbfs.connect(n_workers=2, dashboard_address=None) as client:
        graph = dbfs.load("path:n=100000", client=client, name="road")

        def open_there():
            with dbfs.connect(client.scheduler.address):
                return dbfs.open("road").bfs(0).distances().sum()

        in_child(open_there)
        print(graph.bfs(0).depth)
"""


@pytest.mark.full
def test_a_forked_child_opens_a_graph_by_its_name() -> None:
    assert output(BY_ADDRESS) == [str(99_999 * 50_000), "exit 0", "99999"]


@pytest.fixture(scope="module")
def graph(client: distributed.Client) -> dbfs.Graph:
    return dbfs.load([(0, 1), (1, 2), (4, 5)], client=client, ranks=1, mutable=True)


KEPT: dict[str, tuple[Callable[[dbfs.Graph], StaysHere], str]] = {
    "Graph": (lambda graph: graph, r"load the graph with name=, and open the graph there: dbfs\.open\(name\)"),
    "BFSResult": (lambda graph: graph.bfs(0), r"distances\(\), to_arrow\(\) or to_dict\(\)"),
    "Neighbourhood": (lambda graph: graph.khop(0, 1), "vertices and distances"),
    "Components": (lambda graph: graph.components(), "labels, sizes"),
    "Watch": (lambda graph: graph.watch(0), "the changes"),
    "AsyncGraph": (
        lambda graph: dbfs.AsyncGraph(graph),
        r"open the graph there: dbfs\.open\(name\)",
    ),
}

WAYS: dict[str, Callable[[distributed.Client, Any], Any]] = {
    "pickle": lambda client, value: pickle.dumps(value),
    "cloudpickle": lambda client, value: cloudpickle.dumps([value]),
    "spawn": lambda client, value: ForkingPickler.dumps(value),
    "deepcopy": lambda client, value: copy.deepcopy(value),
    "submit": lambda client, value: client.submit(str, value).result(),
    "submit in a list": lambda client, value: client.submit(len, [value]).result(),
    "map": lambda client, value: client.gather(client.map(str, [value])),
    "scatter": lambda client, value: client.scatter(value),
    "scatter several": lambda client, value: client.scatter([value]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.matrix
def test_what_needs_its_client_is_not_sent(
    client: distributed.Client, graph: dbfs.Graph, kind: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    make, advice = KEPT[kind]
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(ClientError, match=f"a {kind} object needs the client .*{advice}"),
    ):
        WAYS[way](client, make(graph))
    assert not caplog.records


def test_every_view_and_its_object_stay_here() -> None:
    assert issubclass(AsyncView, StaysHere)
    assert issubclass(dbfs.Run, StaysHere)


def opened(name: str) -> dict[Any, int]:
    return dbfs.open(name, client=distributed.get_client()).bfs(0).to_dict()


def test_the_error_says_how_a_task_opens_the_graph(client: distributed.Client) -> None:
    with dbfs.load([(0, 1), (1, 2)], client=client, name="for tasks") as graph:
        with pytest.raises(
            ClientError, match=r"in a task dbfs\.open\('for tasks', client=distributed\.get_client\(\)\)"
        ):
            pickle.dumps(graph)
        assert client.submit(opened, "for tasks").result() == {0: 0, 1: 1, 2: 2}
