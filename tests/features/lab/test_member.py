"""A GPU rank that traverses by a strategy, on an emulated GPU: labels, deadline, cancellation between levels."""

import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dbfs_workers.assembly import resident_parts
from dbfs_workers.base.errors import DeadlineExceededError, RunCancelledError
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.lab import enact
from dbfs_workers.features.lab.purpose import ByStrategy
from dbfs_workers.features.lab.tuning import Tuning
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.members.resident import ResidentRunner
from dbfs_workers.search.partition.partition import no_vertices
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.search.reports import RankRun
from tests.support import graphs, oracle
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.cuda_on_cpu.device import THREADS, EmulatedGpu
from tests.support.gang import repeated

pytestmark = needs_compiler

N, SRC, DST = graphs.GRAPHS["path"]()
MATRIX = oracle.adjacency(N, SRC, DST, directed=False)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> ResidentRunner:
    failing = SimpleNamespace(CUDARuntimeError=KeyError, CUDADriverError=KeyError, OutOfMemoryError=MemoryError)
    cuda = SimpleNamespace(runtime=failing, driver=failing, memory=failing)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(device_memory, "free_for_labels", lambda share: 1 << 30)
    monkeypatch.setattr(enact, "Gpu", lambda *policy: EmulatedGpu())
    monkeypatch.setattr(enact, "Tuning", lambda **_: Tuning(threads=THREADS, most_blocks=3))
    runner = ResidentRunner("graph")
    graph: Any = SimpleNamespace(
        in_offsets=None, rank=0, row_offsets=MATRIX.indptr.astype(np.int64), columns=MATRIX.indices.astype(np.uint32)
    )
    runner._graph = graph
    Member(0, "partition", runner, resident_parts(runner)).number = 1
    return runner


def run(runner: ResidentRunner, seconds: float) -> list[RankRun]:
    spec = TraversalSpec("run", (9,), predecessors=True, backend="cuda", purpose=ByStrategy("two-phase:gathering=warp"))
    partition: Any = SimpleNamespace(parents=object(), stripe=Stripe(N, 1), deleted=no_vertices(), version=0)
    return list(runner.traverse(partition, 1, repeated(spec, 2), time.monotonic() + seconds))


def test_a_run_by_a_strategy(runner: ResidentRunner) -> None:
    expected = oracle.distances(MATRIX, [9])
    for answer in run(runner, 60):
        np.testing.assert_array_equal(answer.labels.distances, expected)
        assert (answer.reached, answer.depth) == (N, 60)
        assert dict(answer.counters)["expanded"] == N


def test_a_deadline_ends_a_run_by_a_strategy(runner: ResidentRunner) -> None:
    words = "run run: rank 0, level 0, strategy two-phase:gathering=warp: the deadline passed"
    with pytest.raises(DeadlineExceededError, match=words):
        run(runner, -1)


def test_a_cancelled_run_by_a_strategy_ends_at_its_next_chain(
    runner: ResidentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = EmulatedGpu.launch

    def cancelling(self: EmulatedGpu, source: str, kernel: str, blocks: int, **options: bool) -> None:
        launch(self, source, kernel, blocks, **options)
        if self.launches == 7:
            runner.abort(1, Cause.CANCELLED, "by request")

    monkeypatch.setattr(EmulatedGpu, "launch", cancelling)
    with pytest.raises(RunCancelledError, match="rank 0, level 7, strategy two-phase.*by request"):
        run(runner, 60)
