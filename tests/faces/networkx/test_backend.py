"""How NetworkX and the backend meet: entry points, conversions, the choice of a backend, and the cluster."""

import ast
import gc
import logging
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import distributed
import networkx as nx
import pytest

import dbfs
import dbfs_networkx_info
from dbfs.errors import InvalidOptionError, InvalidOptionTypeError
from dbfs.networkx import BackendGraph, backend_graph, from_networkx
from dbfs.networkx.backend import backend
from dbfs.networkx.registry import OFFERS

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def no_warnings_of_the_cache() -> Iterator[None]:
    """NetworkX warns whenever it takes a converted graph a second time."""
    with nx.config(warnings_to_ignore={"cache"}):
        yield


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[dbfs.Graph]:
    """The graphs that the backend loads from here on."""
    loaded = []

    def load(*args: object, **kwargs: object) -> dbfs.Graph:
        loaded.append(dbfs.load(*args, **kwargs))  # type: ignore[arg-type]
        return loaded[-1]

    monkeypatch.setattr(backend_graph, "load", load)
    return loaded


def test_networkx_finds_the_backend() -> None:
    assert nx.utils.backends._load_backend("dbfs") is backend
    assert nx.utils.backends.backend_info["dbfs"]["functions"].keys() == OFFERS.keys()
    assert set(nx.config.backends.dbfs) == set(dbfs_networkx_info.SETTINGS)
    assert "dbfs : Breadth-first search" in str(nx.closeness_centrality.__doc__)


def test_the_summary_lists_what_is_offered() -> None:
    assert dbfs_networkx_info.FUNCTIONS.keys() == OFFERS.keys()
    assert len(OFFERS) >= 40
    for name, offer in OFFERS.items():
        original = nx.utils.backends._registered_algorithms[name].orig_func
        code = original.__code__
        assert list(offer.signature.parameters) == list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        remarks = dbfs_networkx_info.FUNCTIONS[name]
        assert (dbfs_networkx_info.WEIGHTS in remarks) == bool({"weight", "distance"} & offer.refused.keys()), name


def test_to_import_networkx_imports_nothing_of_dbfs() -> None:
    assert not [node for node in ast.walk(ast.parse(Path(dbfs_networkx_info.__file__).read_text())) if is_import(node)]
    code = "import networkx, sys; print('dbfs_networkx_info' in sys.modules, 'dbfs' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("True False\n", "")


def is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def test_a_call_runs_on_the_current_client(client: distributed.Client, loads: list[dbfs.Graph]) -> None:
    graph = nx.path_graph(5)
    assert nx.shortest_path(graph, 4, 0, backend="dbfs") == [4, 3, 2, 1, 0]
    assert [(one.n, one.ranks, one.gang.client) for one in loads] == [(5, 4, client)]


def test_a_graph_is_converted_once_until_it_changes(client: distributed.Client, loads: list[dbfs.Graph]) -> None:
    graph = nx.path_graph(5)
    assert nx.diameter(graph, backend="dbfs") == 4
    # The attributes that this function needs are not part of the conversion.
    assert len(nx.ego_graph(graph, 2, backend="dbfs")) == 3
    assert len(loads) == 1
    graph.add_edge(0, 4)
    gone = weakref.ref(loads.pop())
    gc.collect()
    assert gone() is None
    assert nx.diameter(graph, backend="dbfs") == 2
    assert len(loads) == 1


def test_a_converted_graph_stands_for_the_original(client: distributed.Client, loads: list[dbfs.Graph]) -> None:
    converted = from_networkx(nx.path_graph(["a", "b", "c"], create_using=nx.DiGraph))
    assert nx.has_path(converted, "a", "c")
    assert not nx.has_path(converted, "c", "a")
    assert nx.ancestors(converted, "c") == {"a", "b"}
    # One graph for the direction of the edges, one against.
    assert [one.directed for one in loads] == [True, True]
    assert list(backend.convert_to_nx(converted)) == ["a", "b", "c"]
    assert "directed 3 nodes, 2 edges" in repr(converted)
    assert (list(converted), len(converted), "b" in converted, ["b"] in converted) == (["a", "b", "c"], 3, True, False)


def test_a_graph_of_a_closed_client_is_loaded_again(loads: list[dbfs.Graph]) -> None:
    converted = from_networkx(nx.path_graph(4))
    for _ in range(2):
        with dbfs.connect(n_workers=1, backend="cpu", processes=False, dashboard_address=None):
            assert nx.diameter(converted) == 3
    assert len(loads) == 2


def test_the_neighbours_against_the_edges_come_as_networkx_has_them(client: distributed.Client) -> None:
    graph = nx.DiGraph([("c", "d"), ("b", "d"), ("a", "d"), ("x", "a"), ("x", "b"), ("x", "c")])
    edges = list(nx.bfs_edges(graph, "d", reverse=True))
    assert list(nx.bfs_edges(from_networkx(graph), "d", reverse=True)) == edges
    converted = from_networkx(graph)
    # The graph changed, against the rules: its neighbours are those at the conversion, in the order of the nodes.
    graph.remove_edge("c", "d")
    found = [child for parent, child in nx.bfs_edges(converted, "d", reverse=True) if parent == "d"]
    assert found == ["c", "b", "a"]


def test_views_convert(client: distributed.Client) -> None:
    graph = nx.path_graph(6, create_using=nx.DiGraph)
    assert nx.descendants(graph.subgraph([1, 2, 3, 5]), 1, backend="dbfs") == {2, 3}
    assert nx.descendants(graph.reverse(copy=False), 2, backend="dbfs") == {0, 1}


def test_what_can_not_run_says_why() -> None:
    graph = nx.path_graph(4)
    assert backend.can_run("shortest_path", (graph, 0), {}) is True
    assert "counts edges here, and adds up no weights" in str(backend.can_run("diameter", (graph,), {"weight": "km"}))
    assert "neighbours in the graph's order" in str(backend.can_run("bfs_edges", (graph, 0, False, None, sorted), {}))
    assert "the distances are given" in str(backend.can_run("diameter", (graph,), {"e": {0: 1}}))
    assert backend.can_run("pagerank", (graph,), {}) == "dbfs does not offer pagerank"
    with pytest.raises(NotImplementedError, match="not implemented by 'dbfs' backend for the given arguments"):
        nx.diameter(graph, weight="km", backend="dbfs")
    with pytest.raises(TypeError, match="argument"):
        nx.diameter(graph, nonsense=1, backend="dbfs")


def test_what_networkx_should_run_itself(client: distributed.Client) -> None:
    graph = nx.path_graph(50)
    assert "has 99 nodes and edges" in str(backend.should_run("diameter", (graph,), {}))
    with nx.config.backends.dbfs(min_size=99):
        assert backend.should_run("diameter", (graph,), {}) is True
        assert backend.should_run("shortest_path", (graph,), {}) is True
        for name, args in (
            ("shortest_path", (graph, 0)),
            ("closeness_centrality", (graph, 0)),
            ("has_path", (graph, 0, 1)),
        ):
            assert "longer than one traversal" in str(backend.should_run(name, args, {}))
        nx.is_connected(graph, backend="dbfs")
        assert backend.should_run("shortest_path", (graph, 0), {}) is True


def test_networkx_chooses_by_itself(client: distributed.Client, caplog: pytest.LogCaptureFixture) -> None:
    graph = nx.cycle_graph(40)
    with nx.config(backend_priority=["dbfs"]), nx.config.backends.dbfs(min_size=80), caplog.at_level(logging.DEBUG):
        assert nx.diameter(graph) == 20
        assert nx.diameter(nx.cycle_graph(39)) == 19
    said = [record.getMessage() for record in caplog.records if record.name.startswith("networkx")]
    assert sum(line.startswith("Using backend 'dbfs' for call to 'diameter'") for line in said) == 1
    assert any("shouldn't run `diameter`" in line and "has 78 nodes and edges" in line for line in said)


@pytest.mark.parametrize(
    ("setting", "value", "error"),
    [
        ("ranks", 0, InvalidOptionError),
        ("ranks", "two", InvalidOptionTypeError),
        ("scheduler", 8786, InvalidOptionError),
    ],
)
def test_settings_are_checked(client: distributed.Client, setting: str, value: object, error: type[Exception]) -> None:
    with nx.config.backends.dbfs(**{setting: value}):
        with pytest.raises(error, match=rf"nx\.config\.backends\.dbfs\.{setting}"):
            nx.is_connected(nx.path_graph(3), backend="dbfs")


def test_settings_choose_the_cluster(client: distributed.Client, loads: list[dbfs.Graph]) -> None:
    with nx.config.backends.dbfs(scheduler=client.scheduler.address, ranks=2):
        assert nx.is_connected(nx.path_graph(3), backend="dbfs")
        used = backend_graph.client()
        assert backend_graph.client() is used
    assert used is not client
    assert [(one.ranks, one.gang.client) for one in loads] == [(2, used)]
    assert distributed.Client.current() is client
    loads.clear()
    used.close()


def test_without_a_client_a_cluster_starts_within_the_process(
    client: distributed.Client, loads: list[dbfs.Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_graph, "_current", lambda: None)
    graphs = [nx.path_graph(9), nx.cycle_graph(9)]
    assert [nx.diameter(graph, backend="dbfs") for graph in graphs] == [8, 4]
    assert [one.ranks for one in loads] == [1, 1]
    own = loads[0].gang.client
    assert own is loads[1].gang.client is not client
    with nx.config.backends.dbfs(ranks=2):
        # One worker is too few, so that another cluster starts.
        assert nx.diameter(graphs[0], backend="dbfs") == 8
    assert own.status == "closed"
    assert loads[2].ranks == 2
    assert distributed.Client.current() is client
    loads[2].gang.client.close()


OWN_CLUSTER = """
import distributed, networkx as nx
print(nx.diameter(nx.path_graph(9), backend="dbfs"))
try:
    distributed.Client.current()
except ValueError:
    print("no current client")
with nx.config.backends.dbfs(ranks=3):
    print(nx.diameter(nx.path_graph(9), backend="dbfs"))
    from dbfs.cluster.gang import joined_workers
    from dbfs.networkx import backend_graph
    print(len(joined_workers(backend_graph.client())))
"""


@pytest.mark.full
def test_a_cluster_of_its_own_ends_with_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OWN_CLUSTER], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == ("8\nno current client\n8\n3\n", "", 0)


def test_the_original_may_be_gone() -> None:
    graph = nx.path_graph(3)
    converted = backend.convert_from_nx(graph)
    assert isinstance(converted, BackendGraph)
    del graph
    gc.collect()
    with pytest.raises(NotImplementedError, match="is gone"):
        backend.convert_to_nx(converted)
