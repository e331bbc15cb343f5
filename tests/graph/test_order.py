"""``order="auto"``: what it takes, against the orders by name; the times are given, never measured."""

import itertools
import logging
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import distributed
import numpy as np
import pytest

import dbfs
from dbfs.building import build as building
from dbfs.cluster.deadline import of_call
from dbfs.errors import (
    DeadlineExceededError,
    GraphTooLargeError,
    InvalidOptionError,
    InvalidOptionTypeError,
    NoRoomForLabelsError,
)
from dbfs.graph import load, order
from tests.support.graphs import random

Builds = list[str | None]


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Builds]:
    """The orders of the builds of loads."""
    made: Builds = []

    def counted(edges: Any, gang: Any, options: Any, *more: Any, **named: Any) -> Any:
        made.append(options.order)
        return building.build(edges, gang, options, *more, **named)

    monkeypatch.setattr(load, "build", counted)
    return made


def taking(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(order, "choose", lambda *_: (name, "the test says so"))


@pytest.mark.parametrize(
    ("backend", "largest", "depth", "seconds", "traversals", "wanted"),
    [
        # Hubs: 0.4 of 1 ms on a GPU, 0.3 on a CPU, against a second build of two seconds.
        ("cuda", 1000, 6, 0.001, 4999, "given"),
        ("cuda", 1000, 6, 0.001, 5001, "degree"),
        ("cpu", 1000, 6, 0.001, 6666, "given"),
        ("cpu", 1000, 6, 0.001, 6667, "degree"),
        ("cpu", 1000, 500, 0.001, 6667, "degree"),
        # No hub: 256 edges at most, or 16 times the mean of 20.
        ("cuda", 320, 6, 1.0, 10**9, "given"),
        ("cpu", 321, 6, 1.0, 10**9, "degree"),
        # Deep.
        ("cpu", 4, 100, 1.0, 10**9, "given"),
        ("cpu", 4, 101, 0.1, 10**9, "bfs"),
        ("cpu", 4, 101, 0.1, 10, "given"),
        ("cuda", 4, 5000, 1.0, 10**9, "given"),
        ("cpu", 4, 101, 0.0, 10**9, "given"),
    ],
)
def test_an_order_is_taken_only_where_it_pays(
    backend: str, largest: int, depth: int, seconds: float, traversals: int, wanted: str
) -> None:
    graph: Any = SimpleNamespace(n=100, m=2000, max_degree=largest, backend=backend)
    name, why = order.choose(graph, depth, seconds, 1.0, traversals)
    assert name == wanted
    if largest > 320 or (backend, depth) == ("cpu", 101):
        assert f"{traversals:,} traversals of {1e3 * seconds:.3g} ms" in why
        assert "a second build takes up to 2 s" in why
    else:
        assert f"{depth:,} levels whose largest degree is {largest:,}" in why


def test_graphs_of_low_degree_have_no_hubs() -> None:
    graph: Any = SimpleNamespace(n=100, m=200, max_degree=256, backend="cpu")
    assert order.choose(graph, 6, 1.0, 1.0, 10**9)[0] == "given"


@pytest.mark.parametrize("name", ["given", "degree", "bfs"])
@pytest.mark.parametrize(
    "options",
    [
        {"ranks": 3},
        {"ranks": 3, "directed": True, "in_edges": True, "keep_edges": True},
        {"ranks": 2, "mutable": True},
        {"ranks": 4, "layout": "2d"},
    ],
    ids=lambda options: "-".join(options),
)
def test_the_order_taken_is_that_of_its_name(
    client: distributed.Client,
    leaves_nothing: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    builds: Builds,
    options: dict[str, Any],
    name: str,
) -> None:
    n, src, dst = random(60, 110, 5)
    ids = np.array([f"v{vertex:02}" for vertex in range(n)])
    edges = (ids[src], ids[dst])
    taking(monkeypatch, name)
    with caplog.at_level(logging.INFO, "dbfs"):
        chosen = dbfs.load(edges, client=client, order="auto", traversals=5, **options)
    assert builds == ([None] if name == "given" else [None, name])
    assert [words for words in caplog.messages if "since" in words] == [
        f"{chosen.name}: order {name}, since the test says so"
    ]
    with chosen, dbfs.load(edges, client=client, order=name, **options) as wanted:
        assert chosen.order_name == wanted.order_name == name
        assert (chosen.order is None) == (wanted.order is None) == (name == "given")
        if chosen.order is not None and wanted.order is not None:
            assert np.array_equal(chosen.order.vertex, wanted.order.vertex)
        assert chosen.ids().tolist() == wanted.ids().tolist()
        assert chosen.record.infos == wanted.record.infos
        for source in (ids[src[0]], ids[dst[0]]):
            found = chosen.bfs(source, predecessors=True, validate=True)
            assert found.to_dict() == wanted.bfs(source).to_dict()
        assert len(dbfs.graphs(client=client)) == 2


@pytest.mark.parametrize("n", [0, 3])
def test_graphs_without_edges_are_built_once(
    client: distributed.Client, leaves_nothing: None, builds: Builds, n: int
) -> None:
    none = np.zeros(0, np.int64)
    with dbfs.load(dbfs.from_arrays(none, none, n=n), client=client, order="auto", traversals=10**9) as graph:
        assert (graph.order_name, graph.n) == ("given", n)
    assert builds == [None]


def test_the_times_are_those_of_the_build_and_of_the_faster_traversal(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[Any, ...]] = []
    traverse = order.traverse_from
    times = iter([0.5, 0.25])

    def timed(graph: Any, vertex: int) -> Any:
        result = traverse(graph, vertex)
        result.seconds = next(times)
        return result

    def choose(*arguments: Any) -> tuple[str, str]:
        told.append(arguments[1:])
        return "given", ""

    monkeypatch.setattr(order, "traverse_from", timed)
    monkeypatch.setattr(order, "choose", choose)
    with dbfs.load("path:n=9", client=client, ranks=1, order="auto", traversals=7) as graph:
        assert told == [(7, 0.25, graph.build_seconds, 7)]


def test_a_saved_graph_keeps_the_order_taken(
    client: distributed.Client, leaves_nothing: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    taking(monkeypatch, "bfs")
    with dbfs.load("grid2d:side=9", client=client, order="auto", traversals=1, ranks=2) as graph:
        assert graph.order is not None
        vertices = graph.order.vertex
        graph.save(tmp_path / "saved")
    with dbfs.load(tmp_path / "saved", client=client, ranks=2) as graph:
        assert (graph.order_name, graph.order and graph.order.vertex.tolist()) == ("kept", vertices.tolist())
    with pytest.raises(InvalidOptionError, match=r"saved was built: leave out order="):
        dbfs.load(tmp_path / "saved", client=client, order="auto", traversals=1)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"order": "auto"},
            InvalidOptionError,
            r"order='auto' needs traversals= \(--traversals\)",
        ),
        ({"traversals": 3}, InvalidOptionError, "traversals=3 is for order='auto' only, not for order=None"),
        ({"order": "bfs", "traversals": 3}, InvalidOptionError, "only, not for order='bfs'"),
        ({"order": "auto", "traversals": 0}, InvalidOptionError, "traversals must be at least 1, not 0"),
        ({"order": "auto", "traversals": 2.5}, InvalidOptionTypeError, "traversals must be an integer, not 2.5"),
        ({"order": "auto", "traversals": True}, InvalidOptionTypeError, "traversals must be an integer, not True"),
        (
            {"order": "auto", "traversals": 3, "mutable": True, "room": 2},
            InvalidOptionError,
            "room= does not go with order='auto'",
        ),
        ({"order": "best"}, InvalidOptionError, "unknown order 'best'; choose one of given, degree, bfs, auto"),
    ],
)
def test_what_does_not_go_together(
    client: distributed.Client, leaves_nothing: None, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        dbfs.load("path:n=9", client=client, **options)


def second(monkeypatch: pytest.MonkeyPatch, before: Callable[[], None]) -> None:
    """Have a function called within the second build."""
    count, whole = itertools.count(), building._whole

    def builds(*arguments: Any) -> Any:
        if next(count) == 1:
            before()
        return whole(*arguments)

    monkeypatch.setattr(building, "_whole", builds)


@pytest.mark.parametrize("name", ["degree", "bfs"])
def test_a_deadline_that_ends_during_the_second_build_leaves_nothing(
    client: distributed.Client, leaves_nothing: None, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    taking(monkeypatch, name)
    second(monkeypatch, lambda: time.sleep(of_call("build-deadline").remaining + 0.01))
    options: dict[str, Any] = {"client": client, "order": "auto", "traversals": 1, "name": "late"}
    with pytest.raises(DeadlineExceededError):
        dbfs.load("grid2d:side=30", deadline=8, **options)
    assert dbfs.graphs(client=client) == []
    # The name is free.
    with dbfs.load("grid2d:side=30", **options) as graph:
        assert graph.order_name == name


@pytest.mark.parametrize("name", ["degree", "bfs"])
def test_an_order_that_does_not_fit_is_left_out(
    client: distributed.Client,
    leaves_nothing: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    def too_large() -> None:
        raise GraphTooLargeError("no room")

    taking(monkeypatch, name)
    second(monkeypatch, too_large)
    with (
        caplog.at_level(logging.INFO, "dbfs"),
        dbfs.load("grid2d:side=9", client=client, order="auto", traversals=1) as graph,
    ):
        assert (graph.order_name, graph.order, graph.bfs(0).depth) == ("given", None, 16)
    assert any("order given after all: no room" in words for words in caplog.messages)


def test_a_traversal_that_fails_leaves_nothing(
    client: distributed.Client, leaves_nothing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("no")

    for broken in ("choose", "near"):
        taking(monkeypatch, "bfs")
        monkeypatch.setattr(order, broken, fails)
        with pytest.raises(RuntimeError, match="no"):
            dbfs.load("path:n=9", client=client, order="auto", traversals=1)
        assert dbfs.graphs(client=client) == []


def test_a_graph_without_room_to_be_traversed_stays_as_given(
    client: distributed.Client, leaves_nothing: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> Any:
        raise NoRoomForLabelsError("no room")

    monkeypatch.setattr(order, "traverse_from", full)
    with (
        caplog.at_level(logging.INFO, "dbfs"),
        dbfs.load("path:n=9", client=client, order="auto", traversals=1) as graph,
    ):
        assert (graph.order_name, graph.bfs(0).depth) == ("given", 8)
    assert any("since it was not traversed: no room" in words for words in caplog.messages)
