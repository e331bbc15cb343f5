"""Every strategy on a GPU against SciPy, and the check itself on an emulated one."""

import pytest

from dbfs.edges import generate
from dbfs_workers.lab import enact
from dbfs_workers.lab.tuning import Tuning
from tests.support.cuda_on_cpu.device import COMPILER, THREADS, EmulatedGpu
from tests.support.gpus import needs_gpu
from tests.support.lab_checks import GRAPHS, failures, policies, words

TUNING = Tuning(threads=THREADS, most_blocks=2, spare=200)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("strategy", [pytest.param(name, marks=needs_gpu("cupy")) for name in enact.ENACTORS])
def test_every_policy_of_a_strategy_on_a_gpu(strategy: str, graph: str) -> None:
    assert [found for found in failures(strategy, graph, GRAPHS[graph]()) if found] == []


@pytest.mark.skipif(not COMPILER, reason="no g++ here, which compiles the kernels for this CPU")
def test_the_check_of_all_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = generate.grid2d(5)
    chosen = [words(policy) for policy in policies("status-scan")]
    assert chosen == ["status-scan", *(f"status-scan:gathering={value}" for value in ("serial", "warp", "scan"))]
    assert list(failures("status-scan", "grid", graph, EmulatedGpu(), TUNING)) == [None] * 12
    monkeypatch.setattr(EmulatedGpu, "launch", lambda *arguments: None)
    found = list(failures("status-scan", "grid", graph, EmulatedGpu(), TUNING))
    assert len(found) == 12
    assert all(each and each.what.startswith("24 distances differ; vertex ") for each in found)
