"""The page beside Tödling 2019 and Krajecki 2016: as the saved results say, and with columns for results that come."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import papers_page
from benchmarks.lab_results import LabRate
from benchmarks.lab_updates import PageRates
from benchmarks.plan import find, read
from benchmarks.rates import Rates, ScalingPlan
from benchmarks.runner import Results, revision


def test_the_page_has_the_saved_results() -> None:
    text = papers_page.PAGE.read_text(encoding="utf-8")
    assert papers_page.page(text) == text
    assert "| all | 23,489,787 | 24,269,001 | 618,131 | 33,552,794 |" in text


def test_the_plans_are_the_papers() -> None:
    for name, ranks, backend in (("krajecki", [1, 2, 4, 8, 16], "cpu"), ("krajecki-gpus", [1, 2, 4], "cuda")):
        plan = read(ScalingPlan, find("scaling", name))
        strong, weak = plan.series
        assert (list(strong.graphs), list(weak.graphs), plan.backend) == (ranks, ranks, backend)
        assert set(strong.graphs.values()) == {"kronecker:scale=21"}
    for name, ranks, backend in (("krajecki-grid", [1, 4, 16], "cpu"), ("krajecki-grid-gpus", [1, 2, 4], "cuda")):
        plan = read(ScalingPlan, find("scaling", name))
        assert (plan.layout, plan.strategies, plan.backend) == ("2d", ("row-scan",), backend)
        assert all(list(series.graphs) == ranks for series in plan.series)


def test_results_become_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(papers_page, "SAVED", tmp_path)
    empty = papers_page.tables()
    assert "one core" not in empty.replace("and one core", "")
    assert "Linked pages" not in empty
    naive, queue = "status-array", "atomic-queue:gathering=serial"
    strategies = [naive, f"{naive}:storage=pages", queue, f"{queue},storage=pages", "resident", "sequential"]
    rates = [
        LabRate(
            f"corpus:{graph}", 7, 9, strategy, "cuda", depth=3.0, mteps=1000.0 * (1 + at), milliseconds=1.0 + at / 10
        )
        for graph in papers_page.GRAPHS
        for at, strategy in enumerate(strategies)
    ]
    for name in ("todling", "todling_pages"):
        saved(tmp_path / f"{name}.json", "lab", rates, machine="a GPU")
    classes = "degree-classes:classes=3"
    tuned = [
        LabRate("corpus:cage15", 7, 9, strategy, "cuda", mteps=mteps, milliseconds=2.5, allocation=0.5, copy=7.25)
        for strategy, mteps in (
            (classes, 100.0),
            (f"{classes},items=4", 110.0),
            (f"{classes},threads=64,items=1", 55.0),
        )
    ]
    saved(tmp_path / "todling_tuning.json", "lab", tuned, machine="a GPU")
    on_ranks = [
        LabRate("corpus:rmat.2Mv.128Me", 7, 9, "row-scan", "cuda", mteps=1000.0 * ranks**0.5, ranks=ranks)
        for ranks in (1, 4)
    ]
    saved(tmp_path / "krajecki_grid_gpus.json", "lab", on_ranks, machine="GPUs")
    shares = {"search": 0.75, "exchange": 0.05, "contract": 0.2}
    in_rows = [replace(on_ranks[0], grid="1x1"), replace(on_ranks[1], grid="1x4", shares=shares)]
    in_rows += [replace(on_ranks[0], predecessors=True, mteps=500.0), replace(on_ranks[1], ranks=3, missing="overflow")]
    saved(tmp_path / "merrill_section6.json", "lab", in_rows, machine="GPUs")
    updates = [PageRates("corpus:cage15", 9, 100, 150, 0.1, 1 << 20, 123.4, 567.8)]
    saved(tmp_path / "todling_updates.json", "lab-updates", updates)
    point = Rates(
        "Kronecker",
        "weak",
        "kronecker:scale=17",
        8,
        9,
        1.0,
        4,
        "auto",
        3.0,
        9000.0,
        5000.0,
        1.0,
        1.0,
        1.0,
        None,
        None,
        1.0,
        "cpu",
        "shared_memory",
    )
    in_grid = replace(point, direction="row-scan", exchange="nccl", grid="2x2")
    saved(
        tmp_path / "krajecki_scaling_cpu.json",
        "scaling",
        [replace(point, ranks=1, predecessor_mteps=2000.0), point, in_grid],
    )
    made = papers_page.tables()
    assert "| `cage15` | 5,154,859 | 7 | 99,199,551 | 9 | 500 | 3 | 3 | 5 | 6 |" in made
    assert (
        "| naive | `status-array` | far slower on europe.osm and kron_g500-logn20, best of all on af_shell9 | 1 |"
        in made
    )
    assert f"| naive | slower by more than the classes | {' | '.join(['1.10'] * 10)} |" in made
    assert f"| queue |  | {' | '.join(['1.08'] * 10)} |" in made
    assert "| graph | classes, sorted while exploring |" in made
    assert "| `cage15` | 0.5, 2.5, 7.25 |" in made
    assert "| `cage15` | 256 x 4 | 1.10 | 0.55 |" in made
    assert "| graph | strategy | on | 1 x 1 | 2 x 2 |" in made
    assert "| `rmat.2Mv.128Me` | `row-scan` | cuda | 1 | 2, 2.00 |" in made
    assert f"| `krajecki_grid_gpus.json` | `{revision()}` | GPUs |" in made
    assert "| `rmat.2Mv.128Me` | `row-scan` | distances | 1 | overflow | 2, 2.00 (25% with peers) |" in made
    assert "| `rmat.2Mv.128Me` | `row-scan` | predecessors | 0.5 |  |  |" in made
    assert "| `cage15` | 1,048,576 | 123 | 568 | 1.50 |" in made
    assert "| experiment | on | 1 rank | 4 ranks |" in made
    assert "| Kronecker, weak, auto | cpu, shared_memory | 1 | 2.5 |" in made
    assert "| Kronecker, weak, row-scan | cpu, nccl, 2x2 |  | 2.5 |" in made


def saved(file: Path, benchmark: str, rows: Sequence[object], **facts: str) -> None:
    """Save rows as a benchmark does."""
    with Results(benchmark, file, **facts) as results:
        results.take("rates", rows, lambda _: [])
