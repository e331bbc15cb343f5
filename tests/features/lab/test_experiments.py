"""The experiments of Merrill 2012, section 4, by the emulator of a GPU."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import lab_experiments, lab_page
from benchmarks.lab_experiments import COUNTED, KERNELS, Experiment, measure, read
from benchmarks.lab_results import LabRate
from benchmarks.runner import Results, revision
from dbfs.errors import FormatError
from dbfs_workers.features.lab.strategies import GATHERING
from dbfs_workers.features.lab.tuning import Tuning
from tests.support import graphs, oracle
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.cuda_on_cpu.device import THREADS, EmulatedGpu

pytestmark = needs_compiler


@pytest.mark.full
def test_the_experiments_of_a_level_look_at_all_its_edges() -> None:
    """``measure`` itself asserts that each kernel looked at all entries of its queue."""
    matrix = oracle.adjacency(*graphs.random(300, 1500, 3), directed=False)
    lists = matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32)
    tuning = Tuning(threads=THREADS, most_blocks=3)
    found = measure("random", *lists, 5, levels=3, repeats=1, device=lambda policy: EmulatedGpu(), tuning=tuning)
    distances = oracle.distances(matrix, [5])
    edges = np.bincount(distances[distances >= 0], weights=np.diff(matrix.indptr)[distances >= 0])
    assert [one.gathering for one in found] == list(GATHERING)
    for one in found:
        assert (one.levels, one.edges) == (3, int(np.sort(edges)[-3:].sum()))
        assert set(one.rates) == {"expand", *KERNELS}
        assert all(rate > 0 for rate in one.rates.values())


def test_what_was_counted_is_added_to_the_run_under_the_profiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates, largest, counters = (tmp_path / name for name in ("rates.json", "largest.json", "counters.csv"))
    measured = []

    def of_graph(graph: str, levels: int | None, _: int) -> list[Experiment]:
        measured.append(graph)
        if graph == "cut" and len(measured) == 2:
            raise KeyboardInterrupt
        times = dict.fromkeys(COUNTED, 0.5)
        return [Experiment(graph, gathering, levels or 9, 100, times) for gathering in GATHERING]

    monkeypatch.setattr(lab_experiments, "_of_graph", of_graph)
    monkeypatch.setattr(lab_experiments, "own_gpu_name", lambda: "a GPU")

    def run(*words: object) -> None:
        monkeypatch.setattr(sys, "argv", ["lab_experiments", *map(str, words)])
        lab_experiments.main()

    with pytest.raises(KeyboardInterrupt):
        run(rates, "one", "cut")
    run(rates, "one", "cut")
    assert measured == ["one", "cut", "cut"]
    run("--levels", "1", largest, "one")
    monkeypatch.setattr(lab_page, "EXPERIMENTS", rates)
    monkeypatch.setattr(lab_page, "COUNTERS", largest)
    figures = (1000 * (1 + at) for at in range(2 * len(COUNTED) * len(GATHERING)))
    counters.write_text('"Metric Value"\n' + "\n".join(f'"{figure:,}"' for figure in figures))
    assert "| `one` | 9 |" in lab_page.tables()
    run("--counted", counters, largest)
    with pytest.raises(FormatError, match="have 32 figures, not 24; count all"):
        lab_experiments.counted(read(largest)[0][1:], counters.read_text().splitlines())
    with pytest.raises(FormatError, match="have 31 figures, not 32; count all"):
        lab_experiments.counted(read(largest)[0], counters.read_text().splitlines()[:-1])
    found, facts = read(largest)
    assert (facts["revision"], len(found)) == (revision(), len(GATHERING))
    assert found[1].bytes_per_edge == {kernel: 90 + 20 * at for at, kernel in enumerate(COUNTED)}
    assert found[1].instructions_per_byte["expand"] == round(10 / 9, 2)
    # The page has the rates of one file beside the counts of the other.
    made = lab_page.tables()
    (one,) = (line for line in made.splitlines() if line.startswith("| `one` | 9 |"))
    assert one.endswith(" | 270.0, 290.0, 310.0 | 1.3, 1.1, 1.1, 1.0 |")
    (cut,) = (line for line in made.splitlines() if line.startswith("| `cut` | 9 |"))
    assert cut.endswith(" |  |  |")


def test_the_page_has_tables_for_results_that_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RATES", "PREDECESSORS", "UNIFORM", "EXPERIMENTS", "COUNTERS", "TILES", "EVERY"):
        monkeypatch.setattr(lab_page, name, tmp_path / f"{name.lower()}.json")
    empty = lab_page.tables()
    assert "Section 4.1" not in empty
    assert "Every strategy" not in empty
    assert "revision" not in empty
    ways = ("hybrid:grid=c2050,items=1,tiles=share", "hybrid:grid=c2050,items=1,tiles=steal")
    ways += ("two-phase:tiles=share", "two-phase:tiles=steal", "two-phase:tiles=oversubscribe")
    rates = [
        LabRate("corpus:cage15", 7, 9, way, "cuda", mteps=1000.0 * (1 + at), expansion=1 + at / 100)
        for at, way in enumerate(ways)
    ]
    rates[-1] = replace(rates[-1], missing="overflow")
    for file in (lab_page.TILES, lab_page.EVERY):
        with Results("lab", file, machine="a GPU") as results:
            results.take("rates", rates, lambda _: [])
    made = lab_page.tables()
    assert f"| `tiles.json` | `{revision()}` | a GPU |" in made
    assert "| share, steal, oversubscribe | hybrid, C2050's threads | two-phase |" in made
    assert "| `cage15` | 1.00, 1.01 | 1.02, 1.03, overflow |" in made
    assert "| `cage15` | 1, 2 | 3, 4, overflow |" in made
    assert "| strategy | `cage15` |" in made
    assert "| `two-phase:tiles=steal` | 4 |" in made


def test_the_page_beside_the_paper_has_the_saved_results() -> None:
    text = lab_page.PAGE.read_text(encoding="utf-8")
    assert lab_page.page(text) == text
    for graph in lab_page.PUBLISHED:
        assert f"| `{graph}` |" in text
