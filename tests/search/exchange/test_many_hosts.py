"""Gangs over several hosts: workers of one machine pretend to be on different hosts. ``test_hosts`` has real networks.

The axes of the parity rows: hosts of the ranks x graph x directed x direction, for 2 to 4 ranks.
"""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import dask
import distributed
import pytest

import dbfs
from benchmarks.hosts import bench_gpu_hosts, bench_hosts
from dbfs.cluster.gang import joined_workers
from dbfs.errors import DeadlineExceededError, ExchangeUnavailableError, WorkerLostError
from dbfs_workers.serving.rpc import NAME
from tests.support.graphs import GRAPHS
from tests.support.parity import Way, assert_options_agree, check, loaded
from tests.support.pretended_hosts import pretended_hosts
from tests.support.runs import ENDLESS, Background, ranks_end_runs
from tests.support.standin import pretend_to_have_a_gpu
from tests.support.waiting import PATIENCE, eventually

BOTH = "shared_memory+tcp"
HOSTS = {
    "2 ranks on 2 hosts": ((0, 1), "tcp"),
    "3 ranks on 2 hosts": ((0, 0, 1), BOTH),
    "3 ranks on 3 hosts": ((0, 1, 2), "tcp"),
    "4 ranks on 2 hosts": ((0, 1, 0, 1), BOTH),
    "4 ranks on 3 hosts": ((0, 1, 1, 2), BOTH),
    "4 ranks on 4 hosts": ((0, 1, 2, 3), "tcp"),
}


@pytest.mark.matrix
@pytest.mark.parametrize("direction", ["auto", "top-down", "bottom-up"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", ["cycle", "hub", "dense random"])
@pytest.mark.parametrize("ranks", HOSTS)
def test_ranks_on_hosts(client: distributed.Client, ranks: str, name: str, directed: bool, direction: str) -> None:
    of_ranks, exchange = HOSTS[ranks]
    way, arrays = Way("resident", "auto", direction=direction), GRAPHS[name]()
    with pretended_hosts(client, of_ranks):
        with loaded(client, arrays, way, directed=directed, ranks=len(of_ranks)) as graph:
            assert graph.exchange == exchange
            check(graph, arrays, way, [5])
            check(graph, arrays, way, [5, 30, 5], max_depth=2)


def groupings(ranks: int) -> list[tuple[int, ...]]:
    """Return all ways to put ranks on hosts; hosts are numbered in the order of their lowest ranks."""
    if ranks == 0:
        return [()]
    return [(*before, host) for before in groupings(ranks - 1) for host in range(max(before, default=-1) + 2)]


@pytest.mark.full
@pytest.mark.parametrize("of_ranks", [of_ranks for ranks in (1, 2, 3, 4) for of_ranks in groupings(ranks)], ids=str)
def test_every_grouping_of_ranks_has_one_result(client: distributed.Client, of_ranks: tuple[int, ...]) -> None:
    ranks, hosts = len(of_ranks), max(of_ranks) + 1
    exchange = "shared_memory" if hosts == 1 else "tcp" if hosts == ranks else BOTH
    arrays = GRAPHS["sparse random"]()
    with pretended_hosts(client, of_ranks):
        # Half of the groupings with each, so chosen that neighbours in the list differ.
        order = ("given", "degree")[sum(of_ranks) % 2]
        way = Way("resident", order=order)
        with loaded(client, arrays, way, directed=False, ranks=ranks) as graph:
            assert graph.exchange == exchange
            check(graph, arrays, way, [5])
            check(graph, arrays, replace(way, direction="top-down"), [5, 30, 5], max_depth=2)


@pytest.mark.full
@pytest.mark.parametrize(("of_ranks", "seed"), [((0, 1), 11), ((0, 1, 0), 12), ((0, 0, 1, 1), 13), ((0, 1, 2, 1), 14)])
def test_random_graphs_and_options(client: distributed.Client, of_ranks: tuple[int, ...], seed: int) -> None:
    with pretended_hosts(client, of_ranks):
        assert_options_agree(client, Way("resident"), len(of_ranks), seed)


def test_shared_memory_that_was_asked_for_is_refused(client: distributed.Client) -> None:
    with pretended_hosts(client, (0, 1)), dask.config.set({"dbfs.exchange": "shared_memory"}):
        with pytest.raises(ExchangeUnavailableError, match=r"rank 1 \(.*\) is on another host than rank 0"):
            dbfs.load("path:n=9", client=client, ranks=2)


@pytest.mark.full
@pytest.mark.parametrize(
    "security", [pytest.param(False, id="tcp", marks=pytest.mark.long), pytest.param(True, id="tls")]
)
def test_gpus_of_several_hosts_exchange_as_cpus_do(security: bool) -> None:
    """The GPUs are pretended: their arrays are NumPy's, and pass through ``StagedExchange``."""
    arrays = GRAPHS["dense random"]()
    with (
        distributed.LocalCluster(
            n_workers=3,
            threads_per_worker=1,
            dashboard_address=None,
            security=distributed.Security.temporary() if security else None,
        ) as cluster,
        distributed.Client(cluster) as client,
        pretended_hosts(client, (0, 0, 1)),
    ):
        client.run(pretend_to_have_a_gpu)
        for exchange, got in (("auto", BOTH), ("tcp", "tcp")):
            way = Way("resident", exchange, backend="cuda")
            with loaded(client, arrays, way, directed=True, ranks=3) as graph:
                assert graph.gang.addresses[0].startswith("tls://" if security else "tcp://")
                assert graph.exchange == got
                for direction in ("auto", "top-down", "bottom-up"):
                    check(graph, arrays, replace(way, direction=direction), [5, 30])
        with dask.config.set({"dbfs.exchange": "tcp"}), dbfs.load("path:n=100000", client=client) as graph:
            # The ranks have lines to each other before a run has little time.
            assert graph.bfs(0, max_depth=2).depth == 2
            with ranks_end_runs(client), pytest.raises(DeadlineExceededError, match=r"level \d+"):
                graph.bfs(0, deadline=0.4)
            assert graph.bfs(0, max_depth=50, validate=True).depth == 50


@pytest.mark.full
def test_runs_that_end_early_leave_the_next_run_alone(client: distributed.Client) -> None:
    with pretended_hosts(client, (0, 1, 0, 1)), dbfs.load("path:n=100000", client=client, ranks=4) as graph:
        assert graph.bfs(0, max_depth=2).depth == 2
        for _ in range(2):
            with ranks_end_runs(client), pytest.raises(DeadlineExceededError, match=r"level \d+"):
                graph.bfs(0, deadline=0.4)
            assert graph.bfs(99_900, validate=True, max_depth=50).depth == 50
        # Under a lease as well.
        with pytest.raises(DeadlineExceededError):
            graph.bfs_many([0] * 50, deadline=0.2)
        assert [result.depth for result in graph.bfs_many([0] * 3, max_depth=9)] == [9, 9, 9]


@pytest.fixture(scope="module")
def mortal() -> Iterator[distributed.Client]:
    """A cluster whose nannies replace killed workers."""
    with dbfs.connect(n_workers=4, backend="cpu", dashboard_address=None) as client:
        yield client


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.parametrize(("victim", "layout"), [(0, "1d"), (1, "1d"), (3, "1d"), (1, "2d"), (2, "2d")])
def test_a_worker_killed_mid_run(mortal: distributed.Client, victim: int, layout: str) -> None:
    with pretended_hosts(mortal, (0, 1, 0, 1)):
        graph = dbfs.load(dbfs.path(ENDLESS), client=mortal, ranks=4, layout=layout, rebuild="never")
        assert graph.exchange == BOTH
        run = Background(graph)
        address = graph.gang.addresses[victim]
        os.kill(mortal.run(os.getpid, workers=[address])[address], signal.SIGKILL)
        error = run.join()
        assert isinstance(error, WorkerLostError)
        assert f"lost rank {victim}" in str(error)
        with pytest.raises(WorkerLostError, match=f"lost rank {victim}.*load the graph again"):
            graph.bfs(0)
        eventually(lambda: address not in joined_workers(mortal))
        mortal.wait_for_workers(4, timeout=PATIENCE)
        with dbfs.load(dbfs.path(50), client=mortal) as again:
            assert again.bfs(0, validate=True).depth == 49


@pytest.mark.full
@pytest.mark.parametrize("layout", ["1d", "2d"])
def test_a_connection_that_is_cut_is_made_anew(client: distributed.Client, layout: str) -> None:
    with (
        pretended_hosts(client, (0, 1, 0, 1)),
        # The run would begin again, since all workers are there.
        dask.config.set({"dbfs.retries": 0}),
        dbfs.load(dbfs.path(ENDLESS), client=client, ranks=4, layout=layout) as graph,
    ):
        run = Background(graph)
        client.run(cut_connections, graph.record.graph_id, workers=[graph.gang.addresses[1]])
        assert isinstance(run.join(), WorkerLostError)
        assert graph.bfs(5, max_depth=9, validate=True).reached == 15


def cut_connections(graph_id: str, dask_worker: distributed.Worker) -> None:
    """Cut the connections of a rank to other hosts, as a router between them might."""
    for link in dask_worker.plugins[NAME].members[graph_id].runner.exchange._links.values():
        link.live()._connection.shutdown(2)


@pytest.mark.full
def test_the_exchanges_are_measured(client: distributed.Client) -> None:
    costs = list(bench_hosts(client, 3, "kronecker:scale=8", levels=20, rounds=1))
    assert [(cost.exchange, cost.hosts) for cost in costs] == [("shared_memory", 1), (BOTH, 2), ("tcp", 3)]
    # The measurement of GPUs, with exchanges that CPUs have.
    costs += bench_gpu_hosts(client, 2, "kronecker:scale=8", levels=20, rounds=1, ways=("tcp", "shared_memory"))
    assert [(cost.exchange, cost.ranks) for cost in costs[3:]] == [("tcp", 2), ("shared_memory", 2)]
    for first in (costs[0], costs[3]):
        assert (first.level_ratio, first.graph_ratio) == (1, 1)
    assert all(min(cost.level, cost.graph) > 0 for cost in costs)
