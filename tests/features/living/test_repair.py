"""Results of living graphs that are brought up to date: labels against SciPy, what changed, and what goes wrong."""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import dask
import distributed
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbfs
from dbfs.assembly import BFSResult, Graph
from dbfs.errors import (
    GraphNotFoundError,
    InvalidOptionError,
    InvalidVertexError,
    ResultReleasedError,
    WorkerLostError,
)
from dbfs.service.client import ServiceClient
from dbfs.service.worker_calls import WorkerCalls
from dbfs_workers.features.living.change_log import ChangeLog, EdgeChanges, VersionChanges
from dbfs_workers.features.living.kernels import repair_limits
from dbfs_workers.search.members.loop import LoopRunner
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.partition.labels import ChangedRows
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.serving.turns.messages import BeginTurn
from tests.support import oracle
from tests.support.graphs import random
from tests.support.pretended_hosts import pretended_hosts

Edge = tuple[int, int]
N = 60
LAYOUTS = ("undirected", "by degree", "directed", "in-edges")


def load(client: distributed.Client, layout: str, ranks: int, m: int = 80) -> tuple[Graph, set[Edge]]:
    """Return a random living graph, and its edges."""
    directed = layout in ("directed", "in-edges")
    _, src, dst = random(N, m, 5)
    options: dict[str, Any] = {"in_edges": layout == "in-edges", "order": "degree" if layout == "by degree" else None}
    source = dbfs.from_arrays(src, dst, n=N, directed=directed)
    graph = dbfs.load(source, client=client, ranks=ranks, mutable=True, **options)
    return graph, set(zip(src.tolist(), dst.tolist(), strict=True))


def apply(graph: Graph, edges: set[Edge], kind: str, batch: list[Edge]) -> None:
    """Insert or delete a batch, in the graph and in the set."""
    src, dst = np.array(batch, np.int64).reshape(-1, 2).T
    both = {*batch, *(() if graph.directed else ((v, u) for u, v in batch))}
    source = dbfs.from_arrays(src, dst, n=graph.n, directed=graph.directed)
    if kind == "insert":
        graph.insert_edges(source)
        edges |= both
    else:
        graph.delete_edges(source)
        edges -= both


def update(result: BFSResult, edges: set[Edge]) -> None:
    """Update a result, and compare everything about it with SciPy's answer."""
    graph, before, sources = result.graph, result.distances(), list(result.source_vertices)
    assert result.update() is result
    src, dst = np.array(sorted(edges), np.int64).reshape(-1, 2).T
    matrix = oracle.adjacency(graph.n, src, dst, directed=graph.directed)
    expected = oracle.distances(matrix, sources)
    found = result.distances()
    assert (found == expected).all()
    oracle.assert_valid_parents(matrix, found, result.predecessors(), sources)
    assert (np.asarray(result.changed()) == np.flatnonzero(before != expected)).all()
    assert (result.version, result.reached) == (graph.record.version, (expected >= 0).sum())
    assert result.depth == expected.max()
    assert result.edges == graph.bfs(list(result.sources)).edges


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_updated_results_agree_with_scipy(
    client: distributed.Client, leaves_nothing: None, layout: str, ranks: int
) -> None:
    graph, edges = load(client, layout, ranks)
    generator = np.random.default_rng(ranks)
    with graph:
        result, several = graph.bfs(1, predecessors=True), graph.bfs([0, 7], predecessors=True)
        for step in range(3):
            apply(graph, edges, "delete", sorted(edges)[step::4])
            update(result, edges)
            apply(graph, edges, "insert", [(int(u), int(v)) for u, v in generator.integers(0, N, (20, 2))])
            update(result, edges)
        # Six versions at once.
        update(several, edges)


def test_ranks_on_several_hosts(client: distributed.Client, leaves_nothing: None) -> None:
    with pretended_hosts(client, (0, 1, 0, 1)):
        graph, edges = load(client, "undirected", 4)
        with graph:
            assert graph.exchange == "shared_memory+tcp"
            result = graph.bfs(1, predecessors=True)
            apply(graph, edges, "delete", sorted(edges)[::3])
            update(result, edges)
            apply(graph, edges, "insert", [(1, 40), (3, 50)])
            update(result, edges)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_send_messages(client: distributed.Client, leaves_nothing: None, ranks: int) -> None:
    with dask.config.set({"dbfs.exchange": "tcp"}):
        graph, edges = load(client, "undirected", ranks)
        with graph:
            result = graph.bfs(1, predecessors=True)
            for step in (3, 2):
                apply(graph, edges, "delete", sorted(edges)[::step])
                update(result, edges)
                apply(graph, edges, "insert", [(1, 40), (3, 50), (step, 20)])
                update(result, edges)


EDGES = st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, N - 1)), max_size=30)


@pytest.mark.full
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.tuples(st.sampled_from(["insert", "delete", "cut", "vertices"]), EDGES), max_size=6),
    every=st.integers(1, 3),
    ranks=st.integers(1, 4),
    layout=st.sampled_from(LAYOUTS),
)
def test_random_sequences_of_batches_and_updates(
    client: distributed.Client, steps: list[tuple[str, list[Edge]]], every: int, ranks: int, layout: str
) -> None:
    graph, edges = load(client, layout, ranks)
    with graph:
        result = graph.bfs(0, predecessors=True)
        for number, (kind, batch) in enumerate(steps, 1):
            if kind == "vertices":
                gone = {u for u, _ in batch if u}
                graph.delete_vertices(sorted(gone))
                edges -= {(u, v) for u, v in edges if u in gone or v in gone}
                if not graph.record.order_key:
                    graph.insert_vertices(len(gone))
                else:
                    return
            elif kind == "cut":
                # Edges of the tree itself.
                parents = result.predecessors()
                apply(graph, edges, "delete", [(int(parents[v]), v) for _, v in batch if parents[v] >= 0])
            else:
                apply(graph, edges, kind, batch)
            if number % every == 0:
                update(result, edges)


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_repair_that_looks_at_too_much_becomes_a_traversal(
    client: distributed.Client, leaves_nothing: None, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    # Beside other programs the first traversal may take so long that a repair is given as much time.
    known = repair_limits.of
    monkeypatch.setattr(repair_limits, "of", lambda _, p: known(0, p)._replace(budget=0))
    n = 300_000
    with dbfs.load(f"star:n={n}", client=client, ranks=ranks, mutable=True) as graph:
        result = graph.bfs(9, predecessors=True)
        # All vertices lose their distances with the centre.
        graph.delete_edges([(0, 9)])
        assert len(result.update().reports) == 1
        assert (result.reached, result.depth) == (1, 0)
        assert (np.asarray(result.changed()) == np.delete(np.arange(n), 9)).all()


def test_what_an_update_reports(client: distributed.Client, leaves_nothing: None) -> None:
    with dbfs.load("path:n=300", client=client, mutable=True) as graph:
        result, bounded = graph.bfs(0, predecessors=True), graph.bfs(0, predecessors=True, max_depth=5)
        assert len(result.reports) == 300
        run_id = result.run_id
        graph.delete_edges([(298, 299)])
        result.update()
        assert (result.depth, result.reached, list(result.changed())) == (298, 299, [299])
        assert result.run_id != run_id
        assert result.path_to(299) == []
        assert len(result.path_to(298)) == 299
        # Nothing to do.
        assert list(result.update().changed()) == []
        graph.insert_edges([(0, 8)])
        assert bounded.update().reached == 13
        assert list(bounded.changed()) == [5, 6, 7, 8, 9, 10, 11, 12]


@pytest.mark.full
def test_results_that_cannot_be_updated(client: distributed.Client, leaves_nothing: None) -> None:
    with dbfs.load("path:n=30", client=client, mutable=True, name="street") as graph:
        result = graph.bfs(0, predecessors=True)
        plain = graph.bfs(0)
        at_seven = graph.bfs(7, predecessors=True)
        released = graph.bfs(0, predecessors=True)
        released.release()
        published = graph.bfs(0, predecessors=True)
        published.publish()
        tasks = graph.bfs(0, predecessors=True, engine="taskgraph")
        dropped = graph.bfs(0, predecessors=True)
        ServiceClient.of(client).drop(graph.record.graph_id, dropped.run_id, 0)
        graph.delete_vertices(7)
        assert result.version == 0
        assert result.distances().max() == 29
        for refused, error, words in (
            (plain, InvalidOptionError, "recorded no predecessors"),
            (released, ResultReleasedError, "released"),
            (at_seven, InvalidVertexError, "vertex 7 was deleted"),
        ):
            with pytest.raises(error, match=words):
                refused.update()
        # The refused result stays of its version.
        assert at_seven.distances().max() == 22
        for each in (result, published, tasks, dropped):
            assert (each.update().reached, each.depth, each.version) == (7, 6, 1)
            assert each.distances().max() == 6
        assert len(result.changed()) == 23
        assert len(published.changed()) == 7
        result.publish()
        with pytest.raises(ResultReleasedError, match="published"):
            result.changed()
        with distributed.Client(client.scheduler.address, set_as_default=False) as other:
            theirs = dbfs.open("street", client=other)
            followed = theirs.bfs(0, predecessors=True)
            graph.insert_edges([(6, 8)])
            graph.unload()
            with pytest.raises(GraphNotFoundError):
                followed.update()
    with pytest.raises(ResultReleasedError, match="unloaded"):
        result.update()
    with dbfs.load("path:n=5", client=client) as still, pytest.raises(InvalidOptionError, match="mutable=True"):
        still.watch(0)


def test_a_watch_hears_of_the_batches_of_all_clients(client: distributed.Client, leaves_nothing: None) -> None:
    with (
        dbfs.load("path:n=40", client=client, name="street", mutable=True) as graph,
        distributed.Client(client.scheduler.address, set_as_default=False) as other,
    ):
        theirs = dbfs.open("street", client=other)
        watch = graph.watch(0, timeout=60)
        assert watch.update() is None
        graph.insert_edges([(0, 39)])
        changes = iter(watch)
        first = next(changes)
        assert (first.version, list(first.ids)) == (1, list(range(21, 40)))
        later = threading.Thread(target=lambda: (time.sleep(0.2), theirs.delete_edges([(0, 39)])))
        later.start()
        second = next(changes)
        later.join(30)
        assert (second.version, list(second.ids)) == (2, list(range(21, 40)))
        assert watch.result.depth == 39
        assert list(graph.watch(3, timeout=0.01)) == []


@pytest.mark.full
def test_a_rank_killed_in_the_middle_of_a_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    call = WorkerCalls.call
    with dbfs.connect(n_workers=2, backend="cpu", dashboard_address=None) as mortal:
        graph = dbfs.load("path:n=30", client=mortal, mutable=True)
        result = graph.bfs(0, predecessors=True)
        graph.insert_edges([(0, 29)])
        victim = graph.gang.addresses[1]
        pid = mortal.run(os.getpid, workers=[victim])[victim]

        async def killing(self: WorkerCalls, address: str, message: Any, seconds: float) -> Any:
            if isinstance(message, BeginTurn):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(0.2)
            return await call(self, address, message, seconds)

        monkeypatch.setattr(WorkerCalls, "call", killing)
        for _ in range(2):
            with pytest.raises(WorkerLostError):
                result.update()


@pytest.mark.full
@pytest.mark.parametrize("phase", ["doubt", "border", "search"])
def test_a_rank_killed_between_the_crossings_of_a_repair(phase: str) -> None:
    def die_at(phase: str, rank: int) -> None:
        from dbfs_workers.features.living import repair
        from dbfs_workers.features.living.kernels import repair_limits
        from dbfs_workers.search.exchange.shared_memory import SharedMemoryExchange

        follow = SharedMemoryExchange.follow

        def following(
            self: SharedMemoryExchange, crossing: int, status: int, peer: int, level: int, at: str, kind: Any
        ) -> None:
            follow(self, crossing, status, peer, level, at, kind)
            if at == phase and self.rank == rank:
                os.kill(os.getpid(), signal.SIGKILL)

        SharedMemoryExchange.follow = following  # type: ignore[method-assign]
        # The kernel returns after each round.
        repair._LONGEST = 0  # type: ignore[misc]
        # However busy the machine is, no new traversal takes the repair's place.
        repair_limits._LEAST_NANOSECONDS = 10**12  # type: ignore[misc]

    with dbfs.connect(n_workers=2, backend="cpu", dashboard_address=None) as mortal:
        graph = dbfs.load("grid2d:side=9", client=mortal, mutable=True)
        result = graph.bfs(0, predecessors=True)
        graph.delete_edges([(0, 1), (9, 10), (18, 19)])
        mortal.run(die_at, phase, 1)
        for _ in range(2):
            with pytest.raises(WorkerLostError, match="rank 1"):
                result.update()
        # The labels were changed in place: none of any version are left.
        with pytest.raises((ResultReleasedError, WorkerLostError)):
            result.distances()


def test_too_many_changes_are_not_followed(client: distributed.Client, leaves_nothing: None) -> None:
    graph, edges = load(client, "undirected", 2)
    with graph, limits(client, _LEAST_EDGES=0, _BUDGET_SHARE=0.0):
        result = graph.bfs(1, predecessors=True)
        apply(graph, edges, "delete", sorted(edges)[::3])
        update(result, edges)
        # Only new traversals have levels to report.
        assert result.reports


@contextlib.contextmanager
def limits(client: distributed.Client, **limits: float) -> Iterator[None]:
    """Give repairs other limits meanwhile, by the names in ``repair_limits``."""

    def change(limits: dict[str, float]) -> None:
        from dbfs_workers.features.living.kernels import repair_limits

        vars(repair_limits).update(limits)

    # Workers that are threads share the module with this process; others have its values.
    before = {name: vars(repair_limits)[name] for name in limits}
    client.run(change, limits)
    try:
        yield
    finally:
        client.run(change, before)


@pytest.mark.full
@pytest.mark.parametrize("exchange", ["shared_memory", "tcp"])
def test_a_repair_without_an_end_in_sight_becomes_a_traversal(
    client: distributed.Client, leaves_nothing: None, exchange: str
) -> None:
    """2,000 chains of 7 vertices lose their first edge. After two rounds nobody sees how long the chains are."""
    chains, length = 2000, 7
    ends = np.arange(chains * length).reshape(chains, length) + 1
    starts = np.hstack([np.zeros((chains, 1), np.int64), ends[:, :-1]])
    spider = dbfs.from_arrays(starts.ravel(), ends.ravel(), n=chains * length + 1)
    with (
        dask.config.set({"dbfs.exchange": exchange}),
        dbfs.load(spider, client=client, ranks=2, mutable=True) as graph,
    ):
        result = graph.bfs(0, predecessors=True)
        # The time is no matter. 2,000 chains look like more than 1,000 edges to come, and 5 do not.
        shares = {"_BUDGET_SHARE": 0.0, "_LIMIT_SHARE": 1e6, "_PATIENCE_SHARE": 1e6}
        with limits(client, _LEAST_EDGES=1000, _LEAST_NANOSECONDS=0, **shares):
            for cut, anew in ((5, False), (chains, True)):
                graph.delete_edges((starts[:cut, 0], ends[:cut, 0]))
                result.update()
                assert bool(result.reports) == anew
                assert result.reached == 1 + (chains - cut) * length


def test_a_repair_that_waits_for_a_core_goes_on(client: distributed.Client, leaves_nothing: None) -> None:
    with dbfs.load("path:n=300", client=client, ranks=2, mutable=True) as graph:
        result = graph.bfs(0, predecessors=True)
        # The time is over at once, and the repair has looked at few edges.
        with limits(client, _LEAST_NANOSECONDS=0, _LIMIT_SHARE=1e-3, _BUSY_NANOSECONDS=1e-6, _PATIENCE_SHARE=1e6):
            graph.delete_edges([(295, 296)])
            assert not result.update().reports
            assert (result.reached, result.depth) == (296, 295)
            with limits(client, _PATIENCE_SHARE=0.0):
                graph.insert_edges([(295, 296)])
                assert result.update().reports
                assert result.depth == 299


def test_when_a_repair_is_given_up() -> None:
    limits = repair_limits.of(100_000_000, 2)
    most, budget, limit, few, patience = limits
    assert (most, budget, limit, patience) == (1_200_000, 61_000_000, 21_000_000, 101_000_000)

    def gives_up(looked: int, ahead: int, passed: int) -> bool:
        return bool(repair_limits.too_much(limits, looked, ahead, passed))

    # What lies ahead counts: at 10 ns for an edge, and at 100 ns.
    assert [gives_up(100_000, ahead, 1_000_000) for ahead in (6_100_000, 6_100_001)] == [False, True]
    assert [gives_up(100_000, ahead, 10_000_000) for ahead in (1_200_000, 1_200_001)] == [False, True]
    # After the limit, as much again may lie ahead. With few edges so far, other programs have had the cores.
    assert [gives_up(few + 1, 2 * few, passed) for passed in (limit, limit + 1)] == [False, True]
    assert [gives_up(10 * few, ahead, 2 * limit) for ahead in (5 * few, 5 * few + 1)] == [False, True]
    assert [gives_up(few, 2 * few, passed) for passed in (limit + 1, patience, patience + 1)] == [False, False, True]


def test_what_lies_ahead_of_a_search() -> None:
    # 100 of 400 levels took 50 edges.
    assert repair_limits.ahead_of_search(50, 100, 200, 500) == 150
    # The first levels count as a 32nd of all.
    assert repair_limits.ahead_of_search(50, 100, 101, 500) == 50 * 399 // 15
    # No level follows.
    assert [repair_limits.ahead_of_search(50, 100, level, 500) for level in (500, 501, 1 << 40)] == [0, 0, 0]


@pytest.mark.parametrize("rows", [[], [0], [31, 32], [63, 64, 95], range(96)])
def test_changed_rows_are_a_bitmap_until_they_are_read(rows: Sequence[int]) -> None:
    differs = np.zeros(96, bool)
    differs[list(rows)] = True
    changed = ChangedRows.where(differs)
    (bits,) = vars(changed).values()
    assert (bits.dtype, bits.nbytes) == (np.uint32, 96 // 8)
    found = changed.get()
    assert found.dtype == np.uint32
    assert found.tolist() == list(rows)


def test_the_time_of_a_new_traversal_is_that_of_the_fastest() -> None:
    def run(reached: int, elapsed: float) -> None:
        member._note_speed(SimpleNamespace(reached=reached, elapsed=elapsed))  # type: ignore[arg-type]

    member = Member(0, "partition", LoopRunner(None))  # type: ignore[arg-type]
    run(10, 0.1)
    run(1000, 9.0)
    run(980, 3.0)
    run(1005, 4.0)
    run(500, 0.5)
    assert member.fastest == 3.0


def test_the_log_has_the_last_change_of_each_edge() -> None:
    def changes(version: int, keys: list[int], *, delete: bool) -> VersionChanges:
        edges = EdgeChanges.of(np.array(keys, np.uint64), Stripe(100, 1), hub_first=False)
        return VersionChanges(version, edges, delete)

    log = ChangeLog()
    log.add(changes(1, [1 << 32 | 5, 2 << 32 | 6], delete=False), 100)
    log.add(changes(2, [2 << 32 | 6], delete=True), 100)
    log.add(changes(3, [], delete=False), 100)
    found = log.between(0, 3)
    assert found is not None
    assert [(each.rows.tolist(), each.columns.tolist()) for each in found] == [([2], [6]), ([1], [5])]
    assert log.count(0, 3) == 3
    latest = log.between(2, 3)
    assert latest is not None
    assert all(each.rows.size == 0 for each in latest)
    log.add(changes(4, list(range(65_500)), delete=False), 100)
    assert log.between(1, 4) is None
    assert log.count(1, 4) is None
    assert log.between(3, 4) is not None
    log.add(changes(5, list(range(1 << 16)), delete=False), 100)
    assert log.between(4, 5) is None
    assert log.between(5, 5) is not None
    log.add(changes(6, [], delete=False), 100)
    assert log.between(5, 6) is not None
    log.add(VersionChanges(7, None, delete=True), 100)
    log.add(changes(8, [], delete=False), 100)
    assert log.between(6, 8) is None
    assert log.between(7, 8) is not None
