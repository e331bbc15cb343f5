"""``dbfs bench lab``: its plans, its measurements on CPU cores, and a queue that overflows."""

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distributed
import pytest
from click.testing import CliRunner
from rich.console import Console

from benchmarks import lab, lab_figures
from benchmarks.lab import LabPlan, bench_lab
from benchmarks.lab_results import LabRate, LabReport, speedup
from benchmarks.lab_tables import lab_tables
from benchmarks.plan import find, read
from benchmarks.runner import Results
from dbfs.assembly import Graph
from dbfs.cli import main
from dbfs.errors import DeadlineExceededError, FormatError, MissingFileError, PlanError, QueueOverflowError
from dbfs.lab import STRATEGIES, parse

PLAN = """
graphs: [grid2d:side=9, "uniform:n=50,m=200"]
strategies: [sequential, scipy, resident]
sources: 2
backend: cpu
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_plans_that_come_along() -> None:
    for name in ("small", "full"):
        plan = read(LabPlan, find("lab", name))
        found = {parse(strategy).strategy for strategy in plan.strategies}
        assert found == {name for name, one in STRATEGIES.items() if not one.grid} - {"scipy"}
        assert (plan.sources, plan.backend, plan.first_vertex) == (10, "cuda", False)
    assert read(LabPlan, find("lab", "todling")).first_vertex
    for name, backend in (("grid", "cuda"), ("grid-cpu", "cpu")):
        plan = read(LabPlan, find("lab", name))
        assert (plan.layout, plan.backend, plan.ranks[0]) == ("2d", backend, 1)
    tuned = {(parse(one).threads, parse(one).items) for one in read(LabPlan, find("lab", "tuning")).strategies}
    assert len(tuned) == 11
    pages = read(LabPlan, find("lab", "pages"))
    assert pages.first_vertex
    on_pages = [parse(one) for one in pages.strategies if parse(one).storage == "pages"]
    assert len(on_pages) == 5
    assert {replace(policy, storage="csr") for policy in on_pages} < set(map(parse, pages.strategies))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("graphs: [path:n=5]", "strategies is missing"),
        ("graphs: [path:n=5]\nstrategies: [scipy, scipy]", r"strategies must be a list of different texts, not \['sc"),
        ("graphs: [path:n=5]\nstrategies: [merrill]", r"strategies\[0\]: unknown strategy 'merrill'; choose one of"),
        ("graphs: [path:n=5]\nstrategies: [scipy]\nminutes: 3", "unknown key 'minutes'; the keys are graphs, strate"),
    ],
)
def test_a_bad_plan(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        read(LabPlan, written(tmp_path, text))


def test_measurements_on_cpu_cores(client: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = written(tmp_path, PLAN), tmp_path / "lab.json"
    words = ["bench", "lab", "--plan", str(path), "--scheduler", client.scheduler.address, "--json", str(out)]
    answer = CliRunner().invoke(main, words)
    assert answer.exit_code == 0, answer.output
    assert "Median MTEPS" in answer.stdout
    report = LabReport.read(out)
    rates = list(report.rates)
    assert report.machine.endswith("cores")
    assert [(rate.graph, rate.strategy) for rate in rates] == [
        (graph, strategy)
        for graph in ("grid2d:side=9", "uniform:n=50,m=200")
        for strategy in ("sequential", "scipy", "resident")
    ]
    assert {rate.sources for rate in rates} == {2}
    assert all(0 < rate.low <= rate.mteps <= rate.high for rate in rates)
    assert speedup(rates, rates[0]) == 1
    assert [rate.expansion for rate in rates if rate.strategy != "resident"] == [1, 1, 1, 1]

    assert {rate.ranks for rate in rates} == {1}
    on_grids = LabPlan(("grid2d:side=9",), ("row-scan", "resident"), 2, backend="cpu", ranks=(1, 2), layout="2d")
    assert [rate.where for rate in bench_lab(client, on_grids)] == [
        *("row-scan", "resident", "row-scan, 2 ranks", "resident, 2 ranks"),
    ]

    unfinished = []
    for error in (QueueOverflowError("the queue needs 9 entries"), DeadlineExceededError("the deadline passed")):
        monkeypatch.setattr(Graph, "bfs", raising(error))
        plan = LabPlan(("path:n=5",), ("scipy",), 1, predecessors=(False,), backend="cpu")
        (rate,) = bench_lab(client, plan)
        assert (rate.error, rate.mteps, speedup([rate], rate)) == (str(error), 0, None)
        unfinished.append(rate)
    assert [rate.missing for rate in unfinished] == ["overflow", "slow"]
    console = Console(width=200, record=True, quiet=True)
    for table in lab_tables([*rates, *unfinished]):
        console.print(table)


def raising(error: Exception) -> Callable[..., None]:
    def bfs(*arguments: object, **options: object) -> None:
        raise error

    return bfs


def test_a_slow_strategy_takes_fewer_sources(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, 190)
    monkeypatch.setattr("benchmarks.lab.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    plan = LabPlan(("path:n=50",), ("scipy",), 9, predecessors=(False,), backend="cpu")
    (rate,) = bench_lab(client, plan)
    assert rate.sources == 2


def test_traversals_from_the_first_vertex(client: distributed.Client) -> None:
    plan = LabPlan(("path:n=50",), ("sequential",), 3, predecessors=(False,), backend="cpu", first_vertex=True)
    (rate,) = bench_lab(client, plan)
    assert (rate.sources, rate.depth) == (3, 49)
    assert (rate.frontier, rate.step) == ((1,) * 50, 1)
    (rate,) = bench_lab(client, replace(plan, graphs=("path:n=200",)))
    assert (rate.frontier, rate.step) == ((1,) * 50, 4)


def test_a_run_that_was_cut_goes_on_with_the_next_graph(
    tmp_path: Path, client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, file = tmp_path / "plan.yaml", tmp_path / "lab.json"
    plan.write_text(
        "graphs: [path:n=20, path:n=30]\nstrategies: [sequential]\nsources: 1\nbackend: cpu\npredecessors: both\n"
    )
    words = ["bench", "lab", "--plan", str(plan), "--json", str(file), "--scheduler", client.scheduler.address]
    measure, cut = lab._measure, [3]

    def until(graph: Graph, spec: str, *rest: Any) -> LabRate:
        if not cut[0]:
            raise KeyboardInterrupt
        cut[0] -= 1
        specs.append(spec)
        return measure(graph, spec, *rest)

    specs: list[str] = []
    monkeypatch.setattr(lab, "_measure", until)
    assert CliRunner().invoke(main, words).exit_code
    assert specs == ["path:n=20", "path:n=20", "path:n=30"]
    cut, specs = [9], []
    answer = CliRunner().invoke(main, words)
    assert answer.exit_code == 0, answer.output
    assert specs == ["path:n=30", "path:n=30"]
    assert [rate.n for rate in LabReport.read(file).rates] == [20, 20, 30, 30]


def test_a_file_that_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="no such file"):
        LabReport.read(tmp_path / "lab.json")
    (tmp_path / "lab.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FormatError, match=r"lab\.json: not the JSON that dbfs bench lab saves \(KeyError"):
        LabReport.read(tmp_path / "lab.json")


def test_the_table_has_the_shares_of_the_culling() -> None:
    counters = {"edges": 200, "bitmask_culled": 50, "bytes": 2**20}
    one = LabRate("path:n=5", 5, 8, "two-phase", "cuda", 2, 4.0, 3.5, 3.0, 4.0, 0.01, 1.2, counters)
    everything = lab_tables([one])[0]
    cells = [next(iter(column.cells)) for column in everything.columns]
    assert cells[:4] == ["path:n=5", "two-phase", "2", "3.5"]
    assert (cells[8], cells[-1]) == ("2.0", "1.0")
    assert "25.00" in cells


@pytest.mark.full
def test_the_figures_of_a_report(tmp_path: Path) -> None:
    """Every figure is drawn; an overflow has its word in the place of a bar."""
    rate = LabRate(
        "path:n=5", 5, 8, "two-phase", "cuda", 2, 4.0, 3.5, 3.0, 4.0, 0.01, 1.0, {"edges": 8, "bytes": 99}, (1, 2)
    )
    others = [replace(rate, strategy=name) for name in ("two-phase:gathering=scan", "expand-contract", "atomic-queue")]
    overflow = LabRate("path:n=5", 5, 8, "two-phase:status=labels", "cuda", missing="overflow", error="it needs 9")
    report = LabReport("abc", "a GPU", (rate, *others, overflow))
    with Results("lab", tmp_path / "lab.json", machine="a GPU") as results:
        results.facts["revision"] = "abc"
        results.take("rates", report.rates, lab_tables)
    assert LabReport.read(tmp_path / "lab.json") == report
    words = ["bench", "figures", str(tmp_path / "lab.json"), "--out", str(tmp_path / "drawn"), "--json"]
    drawn = json.loads(CliRunner().invoke(main, words).stdout)
    found = lab_figures.figures(report)
    assert [Path(path).stem for path in drawn] == list(found)
    assert all(Path(path).stat().st_size > 0 for path in drawn)
    (line_,) = found["frontiers"].axes[0].lines
    assert line_.get_ydata().tolist() == [1, 2]
    (ax,) = found["status"].axes
    assert [text.get_text().strip() for text in ax.texts] == ["overflow"]
    assert [bar.get_width() for bar in found["ways"].axes[0].patches] == [1, 1]


@pytest.mark.parametrize("benchmark", ["build", "corpus", "lab", "scaling"])
def test_the_help_names_every_plan(benchmark: str) -> None:
    answer = CliRunner().invoke(main, ["bench", benchmark, "--help"], terminal_width=400, max_content_width=400)
    shown = re.search(r"The plan: (.*), or the path of a YAML file\.", answer.stdout)
    assert shown is not None
    files = (Path(__file__).parents[3] / "configs" / "bench").glob(f"{benchmark}-*.yaml")
    assert shown[1].split(", ") == sorted(file.stem.removeprefix(f"{benchmark}-") for file in files)
