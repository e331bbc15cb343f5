"""A grid on GPUs of several hosts and its way to NCCL, through the service: GPUs, hosts and NCCL are stand-ins."""

from collections.abc import Iterator
from dataclasses import replace

import distributed
import numpy as np
import pytest

import dbfs
from dbfs.errors import DeadlineExceededError
from tests.support.graphs import GRAPHS
from tests.support.nccl import cluster_by_nccl
from tests.support.parity import Way, check, loaded
from tests.support.runs import ranks_end_runs


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[distributed.Client]:
    with cluster_by_nccl() as client:
        yield client


@pytest.mark.parametrize("shape", ["2x2", "1x4", "4x1"])
def test_ranks_on_several_hosts_exchange_by_nccl(two_hosts: distributed.Client, shape: str) -> None:
    arrays, way = GRAPHS["sparse random"](), Way("resident", layout=f"2d:{shape}", backend="cuda")
    with loaded(two_hosts, arrays, way, directed=True, ranks=4) as graph:
        assert (graph.layout, str(graph.grid), graph.exchange) == ("2d", shape, "nccl")
        for direction in ("auto", "top-down", "bottom-up"):
            check(graph, arrays, replace(way, direction=direction), [5, 30, 5])
        scan = graph.bfs(5, strategy="row-scan", predecessors=True, validate=True)
        np.testing.assert_array_equal(scan.distances(), graph.bfs(5).distances())


def test_a_run_that_fails_leaves_a_gang_that_serves(two_hosts: distributed.Client) -> None:
    with dbfs.load("path:n=100000", client=two_hosts, layout="2d", backend="cuda") as graph:
        for strategy in ("resident", "row-scan"):
            with (
                ranks_end_runs(two_hosts),
                pytest.raises(DeadlineExceededError, match=r"rank \d, level \d+, \w"),
            ):
                graph.bfs(0, strategy=strategy, deadline=0.5)
            assert graph.bfs(0, max_depth=9, predecessors=True, validate=True).reached == 10
