"""Leases: who has the short way to a gang, and how a lease ends."""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import distributed
import numpy as np
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import (
    DeadlineExceededError,
    ExchangeUnavailableError,
    LateError,
    ResourceError,
    RunCancelledError,
    StaleRunError,
    WorkerLostError,
)
from dbfs.graph import positions
from dbfs.service import runs
from dbfs.service.client import ServiceClient
from dbfs.service.entries import QueuedRun
from dbfs.service.messages import CancelRun, Enqueue
from dbfs.service.runs import RunSender
from dbfs.service.turns import Turn, Turns
from dbfs_workers.base.lines.line import Address, Line
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.members.loop import LoopRunner
from dbfs_workers.serving.answers import answer_error
from dbfs_workers.serving.rpc import PickledValue
from dbfs_workers.serving.turns.messages import BegunTurn
from dbfs_workers.serving.turns.notes import RunNote
from dbfs_workers.serving.turns.requests import Run
from dbfs_workers.serving.turns.worker import WorkerTurns, _open_lines
from tests.support.runs import ENDLESS, Background, rank_0_ends_runs, ranks_end_runs
from tests.support.waiting import eventually

pytestmark = pytest.mark.alone

WEB = "kronecker:scale=10"


@pytest.fixture
def mortal() -> Iterator[distributed.Client]:
    """A cluster of the test's own, to be harmed."""
    with dbfs.connect(n_workers=3, backend="cpu", dashboard_address=None) as client:
        yield client


def holders(client: distributed.Client) -> dict[str, str]:
    """The clients that have a lease, by graph id."""

    def held(dask_scheduler: distributed.Scheduler) -> dict[str, str]:
        turns = dask_scheduler.plugins["dbfs"]._turns._held
        return {graph_id: turn.client for graph_id, turn in turns.items() if turn.held}

    found: dict[str, str] = client.run_on_scheduler(held)
    return found


def finished(client: distributed.Client, graph: Graph) -> int:
    """The number of the graph's traversals in the service's history, among its latest runs."""

    def count(dask_scheduler: distributed.Scheduler, name: str) -> int:
        runs = dask_scheduler.plugins["dbfs"].history.finished
        return sum(run.traversals for run in runs if run.graph == name)

    found: int = client.run_on_scheduler(count, name=graph.name)
    return found


def test_under_a_lease_no_rank_is_asked_for_positions(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 numbers the vertices of a run by degree: a message for each source would double the time of a call."""

    def refuse(*arguments: object) -> None:
        raise AssertionError("positions were read")

    edges = dbfs.kronecker(scale=8, edgefactor=4)
    with (
        dbfs.load(edges, client=client, ranks=2) as given,
        dbfs.load(edges, client=client, ranks=2, order="degree") as ordered,
    ):
        sources = ordered.sample_sources(6)
        for source in sources[:3]:
            ordered.bfs(source)
        assert holders(client)[ordered.record.graph_id] == client.id
        monkeypatch.setattr(positions, "RankCalls", refuse)
        found = [ordered.bfs(sources[3], targets=sources[4]), *ordered.bfs_many(sources)]
        monkeypatch.undo()
        wanted = [given.bfs(sources[3], targets=sources[4]), *given.bfs_many(sources)]
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one.distances(), other.distances())


def test_a_client_that_stays_gets_a_lease_and_history_learns_of_its_runs(client: distributed.Client) -> None:
    with dbfs.load(WEB, client=client, name="leased") as graph:
        graph.bfs(1)
        assert holders(client) == {}
        results = [graph.bfs(source, validate=True) for source in range(1, 6)]
        assert holders(client) == {graph.record.graph_id: client.id}
        assert [result.distances()[source] for source, result in enumerate(results, 1)] == [0] * 5
        eventually(lambda: finished(client, graph) == 6)
        assert next(status.runs for status in dbfs.graphs(client=client) if status.name == "leased") == 6
    assert holders(client) == {}


def test_clients_that_take_turns_get_their_own_answers(client: distributed.Client, other: distributed.Client) -> None:
    with dbfs.load(WEB, client=client, name="shared") as graph:
        mine = graph.bfs_many(range(1, 9))
        same = dbfs.open("shared", client=other)
        theirs = same.bfs_many(range(1, 9))
        assert holders(client) == {graph.record.graph_id: other.id}
        for source, (one, two) in enumerate(zip(mine, theirs, strict=True), 1):
            alone = graph.bfs(source)
            np.testing.assert_array_equal(one.distances(), alone.distances())
            np.testing.assert_array_equal(two.distances(), alone.distances())


@pytest.mark.full
def test_a_long_batch_lets_another_client_in(client: distributed.Client, other: distributed.Client) -> None:
    """A batch gives way after the burst under way, and is complete in the end."""
    with dbfs.load("path:n=2000", client=client, name="street", ranks=2) as graph:
        batch: list[dbfs.BFSResult] = []
        thread = threading.Thread(target=lambda: batch.extend(graph.bfs_many(list(range(500)))))
        thread.start()
        eventually(lambda: holders(client) == {graph.record.graph_id: client.id})
        short = dbfs.open("street", client=other).bfs(1999)
        assert not batch
        thread.join(60)
        assert short.depth == 1999
        assert [result.depth for result in batch] == [1999 - source for source in range(500)]
        batch[50].validate()


def test_ranks_that_answer_several_times_in_a_burst(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, leaves_nothing: None
) -> None:
    """As ranks on GPUs do: the holder makes results while the next traversals of the burst run."""
    answers: list[int] = []
    sent = RunSender.send

    def noted(*arguments: Any) -> Iterator[Any]:
        for finished in sent(*arguments):
            answers.append(len(finished.reports[0]))
            yield finished

    monkeypatch.setattr(LoopRunner, "answer_seconds", 1e-5)
    monkeypatch.setattr(RunSender, "send", noted)
    with dbfs.load("grid2d:side=20", client=client, ranks=3) as graph:
        graph.bfs_many([0, 1])
        for number in (1, 2, 40):
            answers.clear()
            for source, result in enumerate(graph.bfs_many(range(number))):
                row, column = divmod(source, 20)
                assert result.depth == max(row, 19 - row) + max(column, 19 - column)
                assert result.distances()[source] == 0
            assert sum(answers) == number
        assert answers == [1] * 40
        stream = graph.bfs_stream(range(400))
        assert [next(stream).depth for _ in range(3)] == [38, 37, 36]
        stream.close()
        assert graph.bfs(0).depth == 38


def test_threads_of_one_client_share_its_gang(client: distributed.Client) -> None:
    with dbfs.load(WEB, client=client) as graph:
        depths: list[list[int]] = []

        def traverse() -> None:
            depths.append([graph.bfs(source).depth for source in range(1, 12)])

        threads = [threading.Thread(target=traverse) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(depths) == 3
        assert depths[0] == depths[1] == depths[2]


def leased(graph: Graph) -> Graph:
    """Return the graph, after its client got a lease on the gang."""
    graph.bfs_many([0, 1], max_depth=1)
    assert graph.record.graph_id in holders(graph.gang.client)
    return graph


def test_a_leased_run_is_seen_and_cancelled(client: distributed.Client, endless: Graph) -> None:
    run = Background(leased(endless))
    eventually(lambda: [seen.status.progress is not None for seen in dbfs.runs(client=client)] == [True])
    (seen,) = dbfs.runs(client=client)
    assert seen.status.graph == endless.name
    seen.cancel()
    error = run.join()
    assert isinstance(error, RunCancelledError)
    assert "a client called run.cancel()" in str(error)
    assert dbfs.runs(client=client) == []
    assert endless.bfs(0, max_depth=5).reached == 6


def test_a_leased_run_obeys_its_deadline(
    client: distributed.Client, endless: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased(endless)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the run was queued")

    monkeypatch.setattr(ServiceClient, "call_run", refuse)
    with ranks_end_runs(client), pytest.raises(DeadlineExceededError, match=r"level \d+"):
        endless.bfs(0, direction="bottom-up", deadline=0.4)
    monkeypatch.undo()
    assert endless.bfs(0, max_depth=5).reached == 6


@pytest.mark.full
def test_an_unloaded_graph_ends_a_leased_run(client: distributed.Client) -> None:
    graph = dbfs.load(f"path:n={ENDLESS}", client=client, ranks=2)
    run = Background(leased(graph))
    graph.unload()
    assert isinstance(run.join(), RunCancelledError)
    assert holders(client) == {}


def test_without_a_line_runs_go_through_the_scheduler(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a firewall that lets a client reach the scheduler only."""
    monkeypatch.setattr("dbfs.service.runs._OPEN_SECONDS", 0.0)
    with dbfs.load(WEB, client=client) as graph:
        results = graph.bfs_many([1, 2, 3])
        assert [result.distances()[source] for source, result in enumerate(results, 1)] == [0] * 3
        assert graph.record.graph_id in RunSender.of(client)._unreachable
        assert graph.bfs(1).depth == results[0].depth
        assert holders(client) == {}


def test_a_line_between_ranks_that_broke_is_made_anew(client: distributed.Client) -> None:
    """A line breaks if a host was silent for a moment. The next run opens a new line, unseen by its caller."""

    def close_line(dask_worker: distributed.Worker, graph_id: str) -> None:
        dask_worker.plugins["dbfs"].turns._gangs[graph_id].end.close()

    with dbfs.load("path:n=50", client=client, ranks=2) as graph:
        for sources in ([0], [1], [0, 1]):
            graph.bfs_many(sources)
            client.run(close_line, graph_id=graph.record.graph_id, workers=[graph.gang.addresses[1]])
            assert [result.reached for result in graph.bfs_many(sources)] == [50] * len(sources)


@pytest.mark.parametrize(
    ("error", "raised"),
    [(OSError(errno.EMFILE, "Too many open files"), ResourceError), (KeyError("unexpected"), RuntimeError)],
)
def test_a_turn_that_can_not_begin_fails_its_run_and_no_other(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception]
) -> None:
    async def fail(*arguments: object) -> None:
        raise error

    with dbfs.load("path:n=50", client=client, rebuild="never") as graph:
        monkeypatch.setattr(WorkerTurns, "_new_leader", fail)
        with pytest.raises(raised, match=str(error.args[-1])):
            graph.bfs_many([0, 1])
        monkeypatch.undo()
        assert [result.reached for result in graph.bfs_many([0, 1])] == [50, 50]


@pytest.mark.parametrize(
    "error",
    [ExchangeUnavailableError("no line to a peer"), pytest.param(StaleRunError("over"), marks=pytest.mark.full)],
)
def test_a_rank_lost_while_a_turn_begins_is_told_although_its_line_breaks_first(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    plugins = client.cluster.scheduler.plugins
    begin = Turns._begin
    lost = []

    async def lose(run: QueuedRun) -> None:
        run.stop(WorkerLostError("lost rank 1; load the graph again"))
        await plugins["dbfs"]._turns.stop(run.graph.record.graph_id, Cause.LOST, "lost rank 1", 1)

    async def fail(*arguments: object) -> None:
        raise error

    async def failed(self: Turns, turn: Turn, run: QueuedRun, *arguments: Any) -> BegunTurn:
        try:
            return await begin(self, turn, run, *arguments)
        finally:
            # The scheduler hears of the loss after rank 0 has failed.
            asyncio.get_running_loop().call_soon(lambda: lost.append(asyncio.ensure_future(lose(run))))

    with dbfs.load("path:n=50", client=client) as graph:
        monkeypatch.setattr(WorkerTurns, "_new_leader", fail)
        monkeypatch.setattr(Turns, "_begin", failed)
        with pytest.raises(WorkerLostError, match="lost rank 1; load the graph again"):
            graph.bfs_many([0, 1])
        assert lost


def test_a_rank_that_is_stopped_while_a_turn_begins_is_late() -> None:
    def open_line(address: Address, token: bytes, seconds: float) -> Line:
        time.sleep(seconds)
        raise ExchangeUnavailableError("timed out")

    with pytest.raises(LateError, match="no line to rank 1 in time: timed out"):
        _open_lines(open_line, [("127.0.0.1", 1)], b"", time.monotonic() + 0.01)


def test_a_run_that_is_cancelled_as_its_turn_begins_leaves_the_next_one_alone(
    client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranks are told to end its turn before the first run begins."""
    lead = Turns.lead

    async def cancelled(self: Turns, run: Any, work: Any, *, holds: bool) -> Any:
        led = await lead(self, run, work, holds=holds)
        await client.cluster.scheduler.plugins["dbfs"].cancel_run(CancelRun(run.run_id, run.client))
        return led

    with dbfs.load("path:n=50", client=client) as graph:
        work = PickledValue.of(Run(RunSpec(TraversalSpec("given up", (), False, "cpu"), ((0,), (1,))), 0, ()))
        enqueue = Enqueue(graph.record.graph_id, client.id, "given up", work, 2, 9.0, holds=True)
        monkeypatch.setattr(Turns, "lead", cancelled)
        with contextlib.suppress(RunCancelledError):
            # The client does not send its run to rank 0 any more.
            ServiceClient.of(client).call(enqueue)
        monkeypatch.undo()
        for _ in range(3):
            assert [result.reached for result in graph.bfs_many([0, 1])] == [50, 50]


def test_a_run_that_is_cancelled_on_its_way_to_rank_0_does_not_begin(
    client: distributed.Client, endless: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 refuses the run, since the lease has ended, and its client queues it again."""
    held = runs._HeldTurn

    def cancelled(*arguments: Any) -> Any:
        (listed,) = dbfs.runs(client=client)
        listed.cancel()
        return held(*arguments)

    monkeypatch.setattr(runs, "_HeldTurn", cancelled)
    with pytest.raises(RunCancelledError):
        endless.bfs_many([0, 1], direction="bottom-up", deadline=9)


@pytest.mark.full
def test_batches_of_unequal_length_share_the_gang(client: distributed.Client, other: distributed.Client) -> None:
    with dbfs.load("path:n=20000", client=client, name="street", ranks=2) as graph:
        graph.bfs(0)
        same = dbfs.open("street", client=other)
        done: list[tuple[str, int]] = []

        def batch(of: Graph, name: str, sources: list[int]) -> None:
            results = of.bfs_many(sources)
            done.append((name, sum(result.depth for result in results)))

        long = threading.Thread(target=batch, args=(graph, "long", list(range(100))))
        long.start()
        eventually(lambda: holders(client) == {graph.record.graph_id: client.id})
        batch(same, "short", [0, 1, 2])
        long.join(120)
        assert done == [("short", 3 * 19_999 - 3), ("long", sum(19_999 - source for source in range(100)))]


HOLDER = """
import sys, dbfs, distributed
with distributed.Client(sys.argv[1]) as client:
    graph = dbfs.open("street", client=client)
    graph.bfs_many([0, 1], max_depth=1)
    print("leased", flush=True)
    graph.bfs(0, direction="bottom-up", deadline=60)
"""


@pytest.mark.full
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
def test_a_holder_that_is_killed_or_stopped_gives_way(client: distributed.Client, sign: signal.Signals) -> None:
    with dbfs.load(f"path:n={ENDLESS}", client=client, name="street", ranks=2) as graph:
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, client.scheduler.address], stdout=subprocess.PIPE, text=True
        )
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "leased\n"
            eventually(lambda: len(dbfs.runs(client=client)) == 1)
            os.kill(holder.pid, sign)
            if sign == signal.SIGSTOP:
                # A stopped client is a live one to Dask: its run goes on until a client cancels the run.
                (run,) = dbfs.runs(client=client)
                with pytest.raises(DeadlineExceededError, match="behind run"):
                    graph.bfs(0, max_depth=3, deadline=0.5)
                graph.unload()
                assert run.status.client not in holders(client).values()
            else:
                assert graph.bfs(0, max_depth=3, deadline=10).reached == 4
        finally:
            holder.kill()
            holder.wait()


@pytest.mark.full
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_killed_under_a_lease_is_told_at_once(mortal: distributed.Client, rank: int) -> None:
    graph = dbfs.load(f"path:n={ENDLESS}", client=mortal, rebuild="never")
    run = Background(leased(graph))
    victim = graph.gang.addresses[rank]
    pid = mortal.run(os.getpid, workers=[victim])[victim]
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    error = run.join()
    assert isinstance(error, WorkerLostError)
    assert f"rank {rank}" in str(error)
    # A bound against a wait for the deadline, which is minutes away.
    assert time.monotonic() - began < 10
    with pytest.raises(WorkerLostError, match=f"rank {rank}"):
        graph.bfs(0)
    with dbfs.load("path:n=50", client=mortal, ranks=2) as new:
        assert new.bfs(0).depth == 49


@pytest.mark.full
def test_a_stopped_rank_is_noticed_by_the_deadline(mortal: distributed.Client) -> None:
    graph = leased(dbfs.load("path:n=2000", client=mortal))
    victim = graph.gang.addresses[1]
    pid = mortal.run(os.getpid, workers=[victim])[victim]
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with rank_0_ends_runs(), pytest.raises(DeadlineExceededError, match="rank 1"):
            graph.bfs(0, deadline=1)
        assert time.monotonic() - began < 5
    finally:
        os.kill(pid, signal.SIGCONT)
    assert graph.bfs(0, deadline=20).depth == 1999


@pytest.mark.full
def test_a_stream_left_halfway_frees_the_gang(client: distributed.Client, other: distributed.Client) -> None:
    with dbfs.load("path:n=3000", client=client, name="street", ranks=2) as graph:
        stream = graph.bfs_stream(range(500))
        assert [next(stream).depth for _ in range(3)] == [2999, 2998, 2997]
        assert dbfs.open("street", client=other).bfs(0).depth == 2999
        stream.close()
        assert graph.bfs(5).depth == 2994
        eventually(lambda: dbfs.runs(client=client) == [])


def test_the_note_of_a_failed_batch_has_the_number_of_its_traversals() -> None:
    note = RunNote("run", 1.0, 3, answers=[[answer_error(WorkerLostError("lost rank 1"))]], ended=2.0)
    assert note.noted().traversals == 3
