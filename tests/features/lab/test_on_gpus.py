"""Every strategy on a GPU against SciPy, and the check itself on an emulated one."""

import pytest

from dbfs.edges import generate
from dbfs_workers.features.lab import enact
from dbfs_workers.features.lab.strategies import Policy
from dbfs_workers.features.lab.tuning import Tuning
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.cuda_on_cpu.device import THREADS, EmulatedGpu
from tests.support.gpus import needs_gpu
from tests.support.lab_checks import GRAPHS, Case, failures, policies, words

TUNING = Tuning(threads=THREADS, most_blocks=2, spare=200)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("strategy", [pytest.param(name, marks=needs_gpu("cupy")) for name in enact.ENACTORS])
def test_every_policy_of_a_strategy_on_a_gpu(strategy: str, graph: str) -> None:
    case = Case.of(graph, GRAPHS[graph]())
    assert [found for found in failures(policies(strategy), case) if found] == []


@needs_compiler
def test_the_check_of_all_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case.of("grid", generate.grid2d(5))
    chosen = list(policies("status-scan"))
    assert [words(policy) for policy in chosen] == [
        "status-scan",
        *(f"status-scan:gathering={value}" for value in ("serial", "warp", "scan")),
    ]
    assert list(failures(chosen, case, EmulatedGpu(), TUNING)) == [None] * 12
    monkeypatch.setattr(EmulatedGpu, "launch", lambda *arguments, **options: None)
    found = list(failures(chosen, case, EmulatedGpu(), TUNING))
    assert len(found) == 12
    assert all(each and each.what.startswith("24 distances differ; vertex ") for each in found)


@needs_compiler
def test_a_policy_leaves_no_argument_to_the_next_on_a_device() -> None:
    case = Case.of("star", generate.star(90))
    chosen = list(policies("degree-classes"))
    assert list(failures(chosen, case, EmulatedGpu(), TUNING)) == [None] * 3 * len(chosen)


@pytest.mark.full
@needs_compiler
def test_a_directed_graph_is_checked_in_its_directions() -> None:
    case = Case.of("directed", generate.uniform(60, 90, directed=True))
    chosen = [Policy(strategy) for strategy in enact.ENACTORS]
    assert list(failures(chosen, case, EmulatedGpu(), TUNING)) == [None] * 3 * len(chosen)
