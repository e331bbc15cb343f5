"""Living graphs on a cluster: updates against SciPy, versions that all ranks take or none, and clients that die."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import distributed
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import (
    DbfsError,
    EdgeInputError,
    GraphTooLargeError,
    InvalidOptionError,
    InvalidOptionTypeError,
    InvalidVertexError,
    InvalidVertexTypeError,
    RunNotFoundError,
)
from dbfs.features.living import living
from dbfs.service.client import ServiceClient
from dbfs.service.messages import AwaitEnd, EnqueueTasks
from tests.support import oracle
from tests.support.graphs import random
from tests.support.halves import at_each_half

Edge = tuple[int, int]
N = 60


def check(graph: Graph, edges: set[Edge], source: int, *, tasks: bool = False) -> None:
    """Compare traversals in all directions with SciPy's answer, with ``tasks`` by the taskgraph engine too."""
    src, dst = np.array(sorted(edges), np.int64).reshape(-1, 2).T
    matrix = oracle.adjacency(graph.n, src, dst, directed=graph.directed)
    expected = oracle.distances(matrix, [source])
    directions = ["auto", "top-down", "bottom-up"]
    if graph.directed and not graph.record.infos[0].has_parents:
        directions.remove("bottom-up")
    for engine, direction in [*(("resident", each) for each in directions), *[("taskgraph", "auto")] * tasks]:
        result = graph.bfs(source, predecessors=True, engine=engine, direction=direction)
        assert (result.distances() == expected).all()
        oracle.assert_valid_parents(matrix, result.distances(), result.predecessors(), [source])
        assert result.version == graph.record.version


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("layout", ["undirected", "by degree", "directed", "in-edges"])
def test_updates_agree_with_scipy(
    client: distributed.Client, leaves_nothing: None, monkeypatch: pytest.MonkeyPatch, layout: str, ranks: int
) -> None:
    directed = layout in ("directed", "in-edges")
    _, src, dst = random(N, 80, ranks)
    options: dict[str, Any] = {"in_edges": layout == "in-edges", "order": "degree" if layout == "by degree" else None}
    source = dbfs.from_arrays(src, dst, n=N, directed=directed)
    with dbfs.load(source, client=client, ranks=ranks, mutable=True, **options) as graph:
        edges = set(zip(src.tolist(), dst.tolist(), strict=True))
        generator = np.random.default_rng(ranks)
        for version in (1, 2, 3):
            batch = [(int(u), int(v)) for u, v in generator.integers(0, N, (30, 2))]
            # Batches go with the update's message, or whole to every rank, or are binned by tasks.
            few, whole = ((4096, 1 << 23), (0, 1 << 23), (0, 0))[(version + ranks) % 3]
            monkeypatch.setattr(living, "_FEW_EDGES", few)
            monkeypatch.setattr(living, "_WHOLE_EDGES", whole)
            if version == 2:
                batch = sorted(edges)[::2]
                graph.delete_edges(batch)
                edges -= {*batch, *(() if directed else ((v, u) for u, v in batch))}
            else:
                graph.insert_edges(batch)
                edges |= set(batch)
            assert graph.version == version
            check(graph, edges, version, tasks=version == 3)
        graph.freeze()
        check(graph, edges, 0)
        graph.bfs(1, validate=True)


@pytest.mark.full
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(
                st.just("insert"), st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, N - 1)), max_size=30)
            ),
            st.tuples(
                st.just("delete"), st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, N - 1)), max_size=30)
            ),
            st.tuples(st.just("vertices"), st.lists(st.integers(1, N - 1), min_size=1, max_size=4)),
            st.tuples(st.just("compact"), st.none()),
        ),
        max_size=5,
    ),
    ranks=st.integers(1, 4),
    directed=st.booleans(),
)
def test_random_sequences_of_updates(
    client: distributed.Client, steps: list[tuple[str, Any]], ranks: int, directed: bool
) -> None:
    _, src, dst = random(N, 70, 5)
    source = dbfs.from_arrays(src, dst, n=N, directed=directed)
    with dbfs.load(source, client=client, ranks=ranks, mutable=True, in_edges=directed, room=8) as graph:
        edges = set(zip(src.tolist(), dst.tolist(), strict=True))
        for kind, what in steps:
            reverse = set() if directed or kind not in ("insert", "delete") else {(v, u) for u, v in what}
            if kind == "insert":
                graph.insert_edges(dbfs.from_arrays(*np.array(what, np.int64).reshape(-1, 2).T, n=N, directed=directed))
                edges |= {*what, *reverse}
            elif kind == "delete":
                graph.delete_edges(dbfs.from_arrays(*np.array(what, np.int64).reshape(-1, 2).T, n=N, directed=directed))
                edges -= {*what, *reverse}
            elif kind == "vertices":
                graph.delete_vertices(what)
                edges = {(u, v) for u, v in edges if u not in what and v not in what}
                again = graph.insert_vertices(len(set(what)))
                assert set(again.ids) == set(what)
            else:
                graph.compact()
            check(graph, edges, 0, tasks=kind == "insert")


def test_batches_of_many_kinds(client: distributed.Client, leaves_nothing: None, tmp_path: Path) -> None:
    with dbfs.load("path:n=30", client=client, mutable=True, room=3) as graph:
        update = graph.insert_edges([(0, 29), (0, 1), (29, 0)])
        assert (update.version, update.edges, update.skipped) == (1, 1, 2)
        assert graph.insert_edges((np.array([3]), np.array([9]))).edges == 1
        assert graph.insert_edges(pd.DataFrame({"a": [4], "b": [8]})).edges == 1
        assert graph.insert_edges(nx.Graph([(5, 11)])).edges == 1
        assert graph.insert_edges("grid2d:side=5").edges == 20
        assert graph.delete_edges("path:n=5").edges == 4
        assert graph.m == 2 * (29 + 4 + 20 - 4)
        assert graph.insert_vertices(2).ids == (30, 31)
        assert graph.n == 32
        assert graph.delete_vertices([30, 5]).ids == (5, 30)
        assert graph.insert_edges([(31, 0)]).version == graph.version == 9
        assert graph.bfs(31, validate=True).reached == graph.components().sizes[0] == 30
        graph.delete_vertices(5)
        assert graph.insert_vertices(2).ids == (5, 30)
    with dbfs.load("path:n=30", client=client, mutable=True, room=500) as graph:
        graph.insert_vertices(300)
        graph.save(tmp_path / "saved")
    for ranks, left in ((None, 200), (1, 0)):
        with dbfs.load(tmp_path / "saved", client=client, ranks=ranks, mutable=True) as graph:
            assert (graph.n, graph.record.stripe.room) == (330, left)
            assert len(graph.insert_vertices(left).ids) == left
            assert graph.bfs(0, validate=True).reached == 30
    with dbfs.load([("a", "b"), ("b", "c")], client=client, mutable=True) as graph:
        assert graph.insert_edges([("c", "a")]).edges == 1
        assert graph.bfs("a").depth == 1
        assert graph.delete_vertices("b").ids == ("b",)
        with pytest.raises(GraphTooLargeError, match="room for 0 .*'z'"):
            graph.insert_edges([("a", "z")])
        with pytest.raises(InvalidOptionError, match="not consecutive integers"):
            graph.insert_vertices(1)


@pytest.mark.parametrize("few", [0, 4096])
def test_a_batch_between_ids_that_are_numbers_of_others(
    client: distributed.Client, leaves_nothing: None, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """The ids 1, 2, 3 and 9 are the vertices 0 to 3: ids are mapped once, however the batch travels."""
    monkeypatch.setattr(living, "_FEW_EDGES", few)
    with dbfs.load([(1, 2), (3, 9)], client=client, mutable=True) as graph:
        assert graph.insert_edges([(2, 3)]).edges == 1
        assert graph.bfs(1).to_dict() == {1: 0, 2: 1, 3: 2, 9: 3}


def test_bad_input_leaves_the_version(client: distributed.Client, leaves_nothing: None, tmp_path: Path) -> None:
    calls: list[tuple[type[DbfsError], str, Callable[[Graph], object]]] = [
        (InvalidVertexError, r"edge \(0, 300\) .* ids are 0..29", lambda graph: graph.insert_edges([(0, 300)])),
        (InvalidVertexError, "vertex 7 was deleted", lambda graph: graph.insert_edges([(6, 7)])),
        (InvalidVertexError, "vertex 7 was deleted", lambda graph: graph.bfs(7)),
        (InvalidVertexError, "vertex 7 was deleted", lambda graph: graph.bfs(7, engine="taskgraph")),
        (InvalidVertexError, "deleted before", lambda graph: graph.delete_vertices([7, 9], strict=True)),
        (InvalidVertexError, "no vertex 30|30", lambda graph: graph.delete_vertices(30)),
        (InvalidVertexTypeError, "integers", lambda graph: graph.insert_edges([("a", "b")])),
        (
            EdgeInputError,
            "edges of the batch are there already, or occur twice, 1 in all",
            lambda graph: graph.insert_edges([(0, 1)], strict=True),
        ),
        (EdgeInputError, r"not there.*\(0, 9\)|\(9, 0\)", lambda graph: graph.delete_edges([(0, 9)], strict=True)),
        (EdgeInputError, "edges must be", lambda graph: graph.insert_edges(5)),
        (InvalidOptionError, "directed", lambda graph: graph.insert_edges(dbfs.from_arrays([0], [2], directed=True))),
        (InvalidOptionTypeError, "count", lambda graph: graph.insert_vertices(1.5)),  # type: ignore[arg-type]
        (GraphTooLargeError, "room for 1", lambda graph: graph.insert_vertices(2)),
    ]
    with dbfs.load("path:n=30", client=client, mutable=True) as graph:
        graph.delete_vertices(7)
        for error, words, call in calls:
            with pytest.raises(error, match=words):
                call(graph)
        assert graph.version == 1
        graph.freeze()
        with pytest.raises(InvalidOptionError, match="thaw"):
            graph.insert_edges([(0, 2)])
        graph.thaw()
        old = graph.bfs(0)
        assert graph.insert_edges([(6, 8)]).version == 2
        assert graph.bfs(0).depth == 28
        assert old.depth == old.distances().max() == 6
        with pytest.raises(InvalidOptionError, match="of version 1 of .* is 2 now"):
            old.validate()
        # The error's frames keep the result.
        old.release()
    refused: list[dict[str, Any]] = [
        {"room": 5},
        {"mutable": True, "keep_edges": True},
        {"mutable": True, "room": 5, "order": "degree"},
    ]
    for options in refused:
        with pytest.raises(InvalidOptionError, match="mutable=True|order='degree'"):
            dbfs.load("path:n=5", client=client, **options)
    with dbfs.load("path:n=5", client=client) as graph, pytest.raises(InvalidOptionError, match="mutable=True"):
        graph.insert_edges([(0, 2)])
    others: list[dict[str, Any]] = [{"layout": "2d"}, {"keep_edges": True}]
    for other in others:
        with dbfs.load("path:n=5", client=client, **other) as graph:
            with pytest.raises(InvalidOptionError, match="no pages|updates leave behind"):
                graph.thaw()
    with dbfs.load("path:n=5", client=client, keep_edges=True) as graph:
        graph.save(tmp_path / "kept")
    with pytest.raises(InvalidOptionError, match="leave the kept edges behind"):
        dbfs.load(tmp_path / "kept", client=client, mutable=True)


@pytest.mark.full
def test_pages_take_half_as_much_again_as_a_csr_at_most(client: distributed.Client, leaves_nothing: None) -> None:
    generator, n, m = np.random.default_rng(1), 2**14, 2**14 * 16
    spec = f"kronecker:scale=14,edgefactor={m // n}"
    needed = dbfs.estimate(spec, len(client.ncores()), mutable=True)
    with dbfs.load(spec, client=client, mutable=True) as graph:
        csr, most = sum(graph.nbytes), 0
        # In all, updates of as large a part of the edges as 10 million are of Kronecker 24, and more.
        for _ in range(10):
            batch = dbfs.from_arrays(*generator.integers(0, n, (2, m // 100)), n=n)
            graph.insert_edges(batch)
            most = max(most, sum(graph.nbytes))
            graph.delete_edges(batch)
        assert most <= 1.5 * csr
        assert most <= graph.ranks * (needed.partition_bytes + needed.update["pages"])
        # Pages that became free are used again.
        assert sum(graph.nbytes) <= most
        graph.compact()
        assert sum(graph.nbytes) <= 1.3 * csr


def test_any_client_updates_a_named_graph(client: distributed.Client, leaves_nothing: None) -> None:
    with (
        dbfs.load("path:n=40", client=client, name="street", mutable=True, room=2) as graph,
        distributed.Client(client.scheduler.address, set_as_default=False) as other,
    ):
        theirs = dbfs.open("street", client=other)
        before = graph.bfs(0)
        theirs.insert_vertices(2)
        # This client has not heard of the vertices.
        graph.insert_edges([(39, 40), (40, 41)])
        assert graph.bfs(41).depth == 41
        assert graph.version == 2
        graph.freeze()
        with pytest.raises(InvalidOptionError, match="or thaw"):
            theirs.insert_edges([(0, 3)])
        theirs.refresh()
        graph.thaw()
        assert before.version == 0
        assert before.distances().max() == 39
        # Updates of both clients at once come one after another.
        others = threading.Thread(target=lambda: [theirs.insert_edges([(0, v)]) for v in range(2, 7)])
        others.start()
        for v in range(10, 15):
            graph.insert_edges([(1, v)])
        others.join(30)
        assert graph.version == theirs.version == 12
        assert {status.name: status.version for status in dbfs.graphs(client=client)}["street"] == 12
        assert graph.m == 2 * (39 + 2 + 10)


@pytest.fixture
def mortal() -> Iterator[distributed.Client]:
    """A cluster of the test's own, to be harmed."""
    with dbfs.connect(n_workers=2, backend="cpu", dashboard_address=None) as client:
        yield client


Intercepted = Callable[[str, Any], Any]


def batches_taken(client: distributed.Client) -> int:
    """Return the number of batches that ranks keep for an update to come."""

    def taken(dask_worker: distributed.Worker) -> int:
        return len(dask_worker.plugins["dbfs"].changes._taken)

    return sum(client.run(taken).values())


def test_a_rank_that_fails_leaves_the_version_on_all(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dbfs.load("path:n=30", client=client, mutable=True) as graph:
        at_each_half(client, 1, "prepare", "fail")
        for few in (4096, 0):
            monkeypatch.setattr(living, "_FEW_EDGES", few)
            with pytest.raises(GraphTooLargeError, match="rank 1 has no memory"):
                graph.insert_edges([(0, 29), (1, 28)])
        end = time.monotonic() + 30
        while batches_taken(client) and time.monotonic() < end:
            time.sleep(0.02)
        assert batches_taken(client) == 0
        assert graph.version == 0
        assert graph.bfs(0, validate=True).depth == 29
        at_each_half(client, 1, "prepare", "")
        assert graph.insert_edges([(0, 29)]).version == 1
        assert graph.bfs(0).depth == 15


@pytest.mark.full
def test_a_client_that_dies_before_its_batch_is_whole(client: distributed.Client) -> None:
    with dbfs.load("path:n=30", client=client, name="street", mutable=True) as graph:
        other = distributed.Client(client.scheduler.address, set_as_default=False)
        begin = EnqueueTasks(graph.record.graph_id, other.id, "half", 0, 60.0, "insert-edges")
        assert ServiceClient.of(other).call(begin).startswith("waited ")
        listed = [run.status for run in dbfs.runs(client=client)]
        assert [(status.update, status.version, status.running) for status in listed] == [("insert-edges", 0, True)]
        with pytest.raises(RunNotFoundError, match="it is over"):
            ServiceClient.of(other).call(AwaitEnd("gone", other.id))
        other.close()
        assert graph.insert_edges([(0, 29)]).version == 1
        assert graph.bfs(0, validate=True).depth == 15


def test_an_update_meets_a_freeze_that_came_first(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        dbfs.load("path:n=40", client=client, name="frozen", mutable=True) as graph,
        distributed.Client(client.scheduler.address, set_as_default=False) as other,
    ):
        theirs, held = dbfs.open("frozen", client=other), living.held_run

        def after_theirs(*arguments: Any) -> Any:
            monkeypatch.undo()
            theirs.freeze()
            return held(*arguments)

        monkeypatch.setattr(living, "held_run", after_theirs)
        with pytest.raises(InvalidOptionError, match="or thaw"):
            graph.delete_vertices(3)
        assert not graph.record.mutable
        assert graph.bfs(0).reached == 40


def test_an_older_record_is_not_taken_over(client: distributed.Client) -> None:
    """Two updates of one client in two threads may be answered in either order."""
    with dbfs.load("path:n=8", client=client, ranks=2, mutable=True) as graph:
        before = graph.record
        graph.insert_edges([(0, 7)])
        latest = graph.record
        graph.take(before)
        assert graph.record is latest
        assert graph.version == 1
