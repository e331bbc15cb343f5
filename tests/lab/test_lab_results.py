"""What Merrill 2012 and Tödling 2019 say, checked on ``benchmarks/results/laboratory.json``, measured on an H200."""

import pytest

from benchmarks.lab_results import LabReport, speedup
from benchmarks.runner import RESULTS
from dbfs.lab import STRATEGIES, parse

REPORT = LabReport.read(RESULTS / "laboratory.json")
RATES = {(rate.graph, rate.strategy): rate for rate in REPORT.rates}
GRAPHS = list(dict.fromkeys(rate.graph for rate in REPORT.rates))
KRONECKER = "corpus:kron_g500-logn20"
SHALLOW = [graph for graph in GRAPHS if RATES[graph, "expand-contract"].depth < 10]
DEEP = [graph for graph in GRAPHS if RATES[graph, "expand-contract"].depth > 1000]


def mteps(graph: str, strategy: str) -> float:
    return RATES[graph, strategy].mteps


def test_the_results_are_of_all_strategies_on_merrills_graphs() -> None:
    assert REPORT.machine == "NVIDIA H200"
    # The queue of bits came after these measurements.
    of_one_rank = {name for name, found in STRATEGIES.items() if not found.grid}
    assert {parse(rate.strategy).strategy for rate in REPORT.rates} == of_one_rank - {"scipy", "bitmap-queue"}
    assert (len(GRAPHS), len(SHALLOW), len(DEEP)) == (13, 3, 3)


def test_without_claims_duplicates_fill_the_queue_of_a_kronecker_graph() -> None:
    assert RATES[KRONECKER, "two-phase:status=labels"].missing == "overflow"
    assert "duplicates fill it" in RATES[KRONECKER, "two-phase:status=labels"].error


@pytest.mark.parametrize("graph", DEEP)
def test_quadratic_work_loses_where_there_are_many_levels(graph: str) -> None:
    """By 7 times and more for looking at all vertices; with all edges in each level, no search ended within 30 s."""
    for strategy in ("masks", "warp-centric", "status-array", "status-scan"):
        assert 0 < mteps(graph, strategy) < mteps(graph, "expand-contract") / 7
    assert RATES[graph, "matrix-vector"].missing == "slow"


def test_two_phase_wins_on_large_frontiers_and_contract_expand_on_small_ones() -> None:
    assert all(mteps(graph, "two-phase") > mteps(graph, "contract-expand") for graph in SHALLOW)
    assert all(mteps(graph, "two-phase") < mteps(graph, "contract-expand") for graph in DEEP)


def test_the_engine_wins_on_every_graph() -> None:
    for graph in GRAPHS:
        best = max(rate.mteps for rate in REPORT.rates if rate.graph == graph and rate.strategy != "resident")
        assert mteps(graph, "resident") > 1.9 * best


def test_speedups_over_one_core() -> None:
    for rate in REPORT.rates:
        assert (speedup(REPORT.rates, rate) is None) == bool(rate.missing)
