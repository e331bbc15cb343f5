"""Several clients of one cluster do anything in any order: every answer is right, or the error that a model expects.

The model knows which graphs are loaded, under which names, and which of them lost a worker. Distances come from SciPy.
After each sequence nothing is left: no graph, no run, no reserved name, no label and no key.
"""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import dask
import distributed
import numpy as np
import pytest
import scipy.sparse
from distributed.core import Status
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

import dbfs
from dbfs.assembly import BFSResult, Graph
from dbfs.cluster.gang import joined_workers
from dbfs.errors import (
    ClientError,
    DbfsError,
    DeadlineExceededError,
    GraphNotFoundError,
    NameTakenError,
    NotOwnerError,
    ResultReleasedError,
    RunCancelledError,
    WorkerLostError,
)
from dbfs.service.client import ServiceClient
from dbfs.service.messages import UnloadGraph
from tests.support import oracle
from tests.support.graphs import GRAPHS
from tests.support.runs import Background

WORKERS = 3
KINDS = ("path", "hub", "sparse random", "two components", "one vertex")
# A bottom-up traversal from the end of this path lasts until a test ends it.
LONG = 100_000
PATIENCE = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[distributed.Client]:
    """A cluster for all sequences. A worker that is killed comes back under another address."""
    # Dask's local cluster would close a worker this long after it was killed, though the worker is back.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 day"}),
        dbfs.connect(n_workers=WORKERS, backend="cpu", dashboard_address=None) as client,
    ):
        yield client


@dataclass(eq=False)
class Loaded:
    """A graph as the model sees it: its edges, and what happened to it."""

    name: str
    named: bool
    owner: distributed.Client
    addresses: tuple[str, ...]
    matrix: scipy.sparse.csr_array
    gone: bool = False
    lost: bool = False

    @property
    def n(self) -> int:
        return int(self.matrix.shape[0])


@dataclass(eq=False)
class Handle:
    """A client's ``Graph``."""

    graph: Graph
    of: Loaded

    @property
    def closed(self) -> bool:
        return self.graph.gang.client.status == "closed"

    def expected(self) -> type[DbfsError] | None:
        """Return the error of a traversal; None if it succeeds."""
        if self.graph.unloaded:
            return ResultReleasedError
        if self.closed:
            return ClientError
        if self.of.gone:
            return GraphNotFoundError
        return WorkerLostError if self.of.lost else None


@dataclass(eq=False)
class Held:
    """A result that a client holds."""

    result: BFSResult
    handle: Handle
    source: int
    published: bool = False
    released: bool = False

    def expected(self) -> tuple[type[DbfsError], ...]:
        """Return the errors that reading the labels may raise; none if that succeeds."""
        if self.released:
            return (ResultReleasedError,)
        if self.handle.closed:
            return (ClientError,)
        lost = (WorkerLostError,) if self.handle.of.lost else ()
        # Of a graph that lost a worker and was unloaded, the rank that answers first decides.
        return (GraphNotFoundError, *lost) if self.handle.of.gone and not self.published else lost


class Service(RuleBasedStateMachine):
    """The service of one cluster, and a model of it."""

    main: distributed.Client
    handles = Bundle("handles")
    results = Bundle("results")
    clients = st.integers(0, 1)
    names = st.sampled_from(["a", "b"])

    @initialize()
    def connect(self) -> None:
        self.users = [self.client() for _ in range(2)]
        self.all_loaded: list[Loaded] = []
        self.all_held: list[Held] = []
        # At most one worker per sequence is killed, and two runs are ended: these take longer than all other steps.
        self.killed = False
        self.ended = 0

    def client(self) -> distributed.Client:
        return distributed.Client(self.main.scheduler.address, set_as_default=False)

    @property
    def loaded(self) -> list[Loaded]:
        return [graph for graph in self.all_loaded if not graph.gone]

    @rule(
        target=handles,
        user=clients,
        kind=st.sampled_from(KINDS),
        name=st.none() | names,
        replace=st.sampled_from([False, True, "first"]),
        ranks=st.integers(1, WORKERS),
    )
    def load(self, user: int, kind: str, name: str | None, replace: bool | str, ranks: int) -> object:
        n, src, dst = GRAPHS[kind]()
        client = self.users[user]
        edges = dbfs.from_arrays(src, dst, n=n)
        same = [graph for graph in self.loaded if name is not None and graph.name == name]
        replace = False if name is None else replace
        # What is left of a graph that lost a worker keeps no name.
        if not replace and not all(graph.lost for graph in same):
            with pytest.raises(NameTakenError):
                dbfs.load(edges, client=client, name=name, ranks=ranks, rebuild="never")
            return multiple()
        graph = dbfs.load(edges, client=client, name=name, ranks=ranks, replace=replace, rebuild="never")
        for replaced in same:
            replaced.gone = True
        matrix = oracle.adjacency(n, src, dst, directed=False)
        loaded = Loaded(graph.name, name is not None, client, graph.gang.addresses, matrix)
        self.all_loaded.append(loaded)
        return Handle(graph, loaded)

    @rule(target=handles, user=clients, name=names)
    def open(self, user: int, name: str) -> object:
        found = [graph for graph in self.loaded if graph.named and graph.name == name]
        if not found:
            with pytest.raises(GraphNotFoundError):
                dbfs.open(name, client=self.users[user])
            return multiple()
        return Handle(dbfs.open(name, client=self.users[user]), found[0])

    @rule(target=results, handle=handles, source=st.integers(0, 2**16), predecessors=st.booleans())
    def bfs(self, handle: Handle, source: int, predecessors: bool) -> object:
        source %= handle.of.n
        error = handle.expected()
        if error is not None:
            with pytest.raises(error):
                handle.graph.bfs(source, predecessors=predecessors)
            return multiple()
        result = handle.graph.bfs(source, predecessors=predecessors)
        expected = oracle.distances(handle.of.matrix, [source])
        assert (result.reached, result.depth) == ((expected >= 0).sum(), expected.max())
        held = Held(result, handle, source)
        self.all_held.append(held)
        return held

    @rule(handle=handles, first=st.integers(0, 2**16), count=st.integers(0, 20), taken=st.integers(0, 20))
    def stream(self, handle: Handle, first: int, count: int, taken: int) -> None:
        sources = [(first + step) % handle.of.n for step in range(count)]
        error = handle.expected()
        results = handle.graph.bfs_stream(sources)
        if error is not None and sources:
            with pytest.raises(error):
                next(results)
            return
        # The rest is abandoned.
        for source, result in zip(sources[:taken], results, strict=False):
            expected = oracle.distances(handle.of.matrix, [source])
            assert (result.sources, result.depth) == ((source,), expected.max())

    @rule(held=results)
    def read(self, held: Held) -> None:
        errors = held.expected()
        if errors:
            with pytest.raises(errors):
                held.result.distances()
            return
        expected = oracle.distances(held.handle.of.matrix, [held.source])
        np.testing.assert_array_equal(held.result.distances(), expected)
        held.published = True
        if held.result.spec.predecessors:
            parents = held.result.predecessors()
            oracle.assert_valid_parents(held.handle.of.matrix, expected, parents, [held.source])

    @rule(held=results)
    def release(self, held: Held) -> None:
        held.result.release()
        held.released = True

    @rule(handle=handles)
    def unload(self, handle: Handle) -> None:
        if handle.closed and not handle.graph.unloaded:
            with pytest.raises(ClientError):
                handle.graph.unload()
            return
        known = not handle.graph.unloaded and not handle.of.gone
        handle.graph.unload()
        if known:
            handle.of.gone = True
            for held in self.all_held:
                if held.handle is handle and not held.released and not handle.of.lost:
                    held.published = True

    @rule(handle=handles, user=clients)
    def unload_as_a_stranger(self, handle: Handle, user: int) -> None:
        client = self.users[user]
        if handle.of.named or handle.of.gone or handle.of.owner is client:
            return
        with pytest.raises(NotOwnerError):
            ServiceClient.of(client).call(UnloadGraph(handle.graph.record.graph_id, client.id))

    @precondition(lambda self: self.ended < 2)
    @rule(
        user=clients,
        how=st.sampled_from(["cancel", "unload"] * 4 + ["deadline", "kill"]),
        ranks=st.integers(2, WORKERS),
    )
    def interrupt(self, user: int, how: str, ranks: int) -> None:
        """End a run that another client's run waits for."""
        self.ended += 1
        if how == "kill" and self.killed:
            how = "cancel"
        client, stranger = self.users[user], self.users[1 - user]
        graph = dbfs.load(f"path:n={LONG}", client=client, ranks=ranks, rebuild="never")
        waits = dbfs.load("path:n=9", client=stranger, ranks=WORKERS, rebuild="never")
        if how == "deadline":
            with ThreadPoolExecutor(1) as thread:
                late = thread.submit(graph.bfs, 0, direction="bottom-up", deadline=0.3)
                assert waits.bfs(0).depth == 8
                assert isinstance(late.exception(), DeadlineExceededError)
        else:
            self.end(how, Background(graph, deadline=60), waits)
        graph.unload()
        waits.unload()

    def end(self, how: str, run: Background, waits: Graph) -> None:
        client, stranger = run.graph.gang.client, waits.gang.client
        with pytest.raises(DeadlineExceededError):
            waits.bfs(0, deadline=0.05)
        with pytest.raises(NotOwnerError):
            dbfs.runs(client=stranger)[0].cancel()
        if how == "cancel":
            dbfs.runs(client=client)[0].cancel()
        elif how == "unload":
            run.graph.unload()
        else:
            self.kill_worker(run.graph.gang.addresses[-1])
        assert isinstance(run.join(), WorkerLostError if how == "kill" else RunCancelledError)
        if how == "kill":
            with pytest.raises(WorkerLostError):
                waits.bfs(0)
        else:
            assert waits.bfs(0).depth == 8

    @precondition(lambda self: not self.killed)
    @rule(worker=st.integers(0, 6 * WORKERS - 1))
    def kill(self, worker: int) -> None:
        if worker < WORKERS:
            self.kill_worker(sorted(joined_workers(self.main))[worker])

    @rule(user=clients)
    def leave(self, user: int) -> None:
        client = self.users[user]
        client.close()
        self.users[user] = self.client()
        for graph in self.loaded:
            graph.gone |= graph.owner is client and not graph.named

    @invariant()
    def the_service_has_what_the_model_has(self) -> None:
        expected = sorted((graph.name, graph.n, graph.lost) for graph in self.loaded), 0
        found = None
        for _ in range(int(PATIENCE / 0.02)):
            # The scheduler learns a moment later that a client has left, or abandoned a stream.
            graphs, runs = dbfs.graphs(client=self.main), dbfs.runs(client=self.main)
            found = sorted((status.name, status.n, bool(status.lost)) for status in graphs), len(runs)
            if found == expected:
                break
            time.sleep(0.02)
        assert found == expected

    def kill_worker(self, address: str) -> None:
        self.killed = True
        os.kill(self.main.run(os.getpid, workers=[address])[address], signal.SIGKILL)
        while address in joined_workers(self.main):
            time.sleep(0.01)
        for graph in self.all_loaded:
            graph.lost |= address in graph.addresses
        self.wait_for_workers()

    def wait_for_workers(self) -> None:
        """Wait until every worker has joined. A nanny that still starts its worker gives up when that one is killed."""
        nannies = self.main.cluster.workers.values()
        for _ in range(int(PATIENCE / 0.01)):
            there = set(joined_workers(self.main))
            if all(nanny.status is Status.running for nanny in nannies) and there == {
                nanny.worker_address for nanny in nannies
            }:
                return
            time.sleep(0.01)
        pytest.fail("a killed worker did not come back")

    def teardown(self) -> None:
        if not hasattr(self, "users"):
            return
        for held in self.all_held:
            held.result.release()
        for client in self.users:
            client.close()
        for name in {graph.name for graph in self.loaded if graph.named}:
            dbfs.open(name, client=self.main).unload()
        for _ in range(int(PATIENCE / 0.05)):
            left = self.main.run_on_scheduler(left_on_scheduler), self.main.run(left_on_worker)
            if left[0] == (0, 0, 0, 0) and set(left[1].values()) == {(0, 0)}:
                return
            time.sleep(0.05)
        assert left[0] == (0, 0, 0, 0)
        assert set(left[1].values()) == {(0, 0)}


def left_on_scheduler(dask_scheduler: distributed.Scheduler) -> tuple[int, int, int, int]:
    """Return the numbers of graphs, runs, reserved names and keys."""
    service = dask_scheduler.plugins["dbfs"]
    return len(service.graphs), len(service.records.runs), len(service.reserved), len(dask_scheduler.tasks)


def left_on_worker(dask_worker: distributed.Worker) -> tuple[int, int]:
    """Return the numbers of ranks and of keys."""
    return len(dask_worker.plugins["dbfs"].members), len(dask_worker.data)


@pytest.mark.full
@pytest.mark.fuzz
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("examples", [20, pytest.param(120, marks=pytest.mark.long)])
def test_any_sequence_of_calls(cluster: distributed.Client, examples: int) -> None:
    Service.main = cluster
    dbfs.install(cluster)
    options = settings(
        max_examples=examples,
        stateful_step_count=12,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    run_machine(Service, settings=options)
