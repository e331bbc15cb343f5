"""Saved results measured anew: every graph and strategy of a plan once, joined in the plan's order."""

import json
import threading
from pathlib import Path

import pytest
import yaml

from benchmarks import plan as plans
from benchmarks import records
from benchmarks.lab import LabPlan


@pytest.mark.parametrize("record", records.LAB)
def test_the_jobs_have_each_row_of_the_plan_once(tmp_path: Path, record: str) -> None:
    whole = plans.read(LabPlan, plans.find("lab", records.LAB[record]))
    found = []
    for job in records.jobs_of(record, tmp_path, 2):
        part = plans.read(LabPlan, Path(job.command[4]))
        assert job.gpus == (max(part.ranks) if part.backend == "cuda" else 0)
        assert (part.sources, part.predecessors, part.layout) == (whole.sources, whole.predecessors, whole.layout)
        found += [(graph, p, name) for graph in part.graphs for p in part.ranks for name in part.strategies]
    fitting = [p for p in whole.ranks if p <= 2 or whole.backend == "cpu"]
    expected = {(graph, p, name) for graph in whole.graphs for p in fitting for name in whole.strategies}
    assert set(found) == expected
    assert len(found) == len(expected)


def test_series_keep_the_ranks_that_have_a_gpu(tmp_path: Path) -> None:
    (job,) = records.jobs_of("krajecki_scaling_nccl", tmp_path, 2)
    plan = yaml.safe_load(Path(job.command[4]).read_text())
    assert [series["ranks"] for series in plan["strong"]] == [[1, 2]]
    assert [list(series["graphs"]) for series in plan["weak"]] == [[1, 2]]
    assert (job.gpus, job.exchange) == (2, "nccl")


@pytest.mark.full
def test_a_result_is_measured_cut_and_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "tiny.yaml"
    plan.write_text("graphs: ['path:n=9', 'star:n=5']\nstrategies: [sequential]\nsources: 2\nbackend: cpu\n")
    monkeypatch.setattr(records, "LAB", {"todling": str(plan)})
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    arguments = [str(tmp_path / "parts"), "--gpus", "0", "todling"]
    records.main([*arguments, "--seconds", "0"])
    assert "2 of 2 jobs are left: 000 002" in capsys.readouterr().out
    assert not (tmp_path / "todling.json").exists()
    records.main(arguments)
    first = tmp_path / "parts" / "todling-000.json"
    written = first.stat().st_mtime_ns
    records.main(arguments)
    assert first.stat().st_mtime_ns == written, "a job that was done ran again"
    result = json.loads((tmp_path / "todling.json").read_text())
    assert [(row["graph"], row["strategy"]) for row in result["rates"]] == [
        ("path:n=9", "sequential"),
        ("star:n=5", "sequential"),
    ]
    assert (result["complete"], result["plan"]) == (True, str(plan))


def test_jobs_of_two_revisions_are_not_joined() -> None:
    with pytest.raises(SystemExit, match="several revisions: a, b"):
        records.joined([{"revision": "a", "rates": []}, {"revision": "b", "rates": []}], {})


def test_no_two_jobs_share_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, used, most, ran = threading.Lock(), set[int](), [0], []

    def run(_: records.Runner, job: records.Job, devices: str) -> None:
        mine = {int(number) for number in devices.split(",") if number}
        with lock:
            assert not mine & used
            assert len(mine) == job.gpus
            used.update(mine)
            most[0] = max(most[0], len(used))
        beside.wait()
        with lock:
            used.difference_update(mine)
            ran.append(job.name)

    # Two GPUs with a job each, and a job of one core.
    beside = threading.Barrier(3, timeout=60)
    monkeypatch.setattr(records.Runner, "_run", run)
    jobs = [records.Job("todling", str(number), (), gpus) for number, gpus in enumerate((1, 1, 0))]
    records.Runner(tmp_path, 9.0).run_all(jobs, 2)
    assert most[0] == 2
    beside = threading.Barrier(1)
    jobs = [records.Job("todling", str(number), (), gpus) for number, gpus in enumerate((1, 2, 4, 0, 3, 1, 2))]
    records.Runner(tmp_path, 9.0).run_all(jobs, 4)
    assert sorted(ran[3:]) == [job.name for job in jobs]
