"""The model of a traversal's time, its command and its figures. ``test_level_counts`` checks the counts."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import dbfs
from benchmarks import layouts, scale_model
from benchmarks.layouts import LayoutCost
from benchmarks.runner import Results
from benchmarks.scale_model import SmallGraph, cpu_milliseconds, errors, fit_cpu, gpu_rates, share_on_host
from dbfs.assembly import BuildOptions
from dbfs.cli import main
from dbfs.errors import DbfsError, FormatError, InvalidOptionError, MissingFileError

TRUE = [2e-6, 7e-6, 3e-9, 1e-10, 5e-11]


def point(layout: str, ranks: int, scale: int, predecessors: bool) -> LayoutCost:
    """A point whose time is exactly by the costs ``TRUE``."""
    n = 2**scale
    measured = LayoutCost(
        graph=f"kronecker:scale={scale}",
        n=n,
        m=32 * n,
        layout=layout,
        predecessors=predecessors,
        ranks=ranks,
        cores=2,
        peers=ranks - 1,
        levels=5.0 + scale % 3,
        bottom_up_levels=2.0 + scale % 2,
        edges=n * (1.5 if layout == "1d" else 2.5),
        bytes_sent=(n // 8) * (ranks - 1) * (1 + predecessors),
        ratio=1.0,
        milliseconds=1.0,
        bytes_per_rank=130 * n / ranks,
        state_bytes=8 * n // ranks,
    )
    return replace(measured, milliseconds=cpu_milliseconds(TRUE, measured))


POINTS = [
    point(layout, ranks, scale, predecessors)
    for scale in (14, 15, 16, 17)
    for ranks in (1, 2, 3, 4, 8)
    for layout in ("1d", "2d")
    for predecessors in (False, True)
]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "layouts.json"
    with Results("layouts", path) as results:
        results.take("costs", POINTS, "Layouts")
    return path


def test_the_fit_finds_the_costs_that_made_the_points() -> None:
    costs = fit_cpu(POINTS)
    assert costs == pytest.approx(TRUE)
    fitted, held_out = errors(costs, POINTS)
    assert (fitted.number, held_out.number) == (48, 32)
    assert max(fitted.largest, held_out.largest) < 1e-6
    # Errors are relative to what was measured.
    slower = [replace(one, milliseconds=2 * one.milliseconds) if one.ranks == 8 else one for one in POINTS]
    assert list(errors(costs, slower))[1].largest == pytest.approx(0.5)


def test_too_few_points_are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="at least 5 measurements on 1, 2, 4, 16 ranks, not 3"):
        fit_cpu(POINTS[:3])


def test_saved_points_come_back(saved: Path, tmp_path: Path) -> None:
    assert layouts.read(saved) == POINTS
    with pytest.raises(MissingFileError):
        layouts.read(tmp_path / "none.json")
    for wrong in ("[]", '{"benchmark": "scaling"}', '{"benchmark": "layouts", "costs": [{"n": 3}]}', "{"):
        saved.write_text(wrong)
        with pytest.raises(FormatError, match="not the JSON that dbfs bench layouts saves"):
            layouts.read(saved)


@pytest.mark.parametrize(("layout", "ranks"), [("1d", 1), ("1d", 16), ("2d", 6), ("2d", 16)])
def test_memory_is_the_estimate(layout: str, ranks: int) -> None:
    expected = dbfs.estimate("kronecker:scale=20", ranks, BuildOptions(layout=layout))
    found = scale_model.memory(20, ranks, layout)
    assert (found.partition, found.run) == (expected.partition, expected.run)


def test_memory_of_graphs_that_no_stripe_holds() -> None:
    with pytest.raises(DbfsError):
        dbfs.estimate("kronecker:scale=36", 1024)
    assert scale_model.memory(36, 1024, "1d").partition["columns"] == 4 * 2 * 16 * 2**36 // 1024


def test_peers_on_the_same_host() -> None:
    assert share_on_host("1d", 8, by_column=False) == 1
    assert share_on_host("1d", 64, by_column=False) == pytest.approx(7 / 63)
    assert share_on_host("2d", 64, by_column=False) == 1
    assert share_on_host("2d", 64, by_column=True) == 0
    assert share_on_host("1d", 1, by_column=False) == 1


def test_rates_of_gpus_that_the_model_was_not_fitted_to() -> None:
    counted = SmallGraph(12, sources=2)
    rates = list(gpu_rates(scale_model.fit_gpus(counted), counted))
    assert [(one.scale, one.gpus, one.measured) for one in rates] == list(scale_model.MEASURED)
    assert all(abs(one.error) < 0.3 for one in rates)


@pytest.mark.full
def test_the_command_and_its_figures(saved: Path, tmp_path: Path) -> None:
    def run(*options: str) -> str:
        arguments = ["bench", "scale-model", str(saved), "--counted", "10", "--gpus", "16", *options]
        return CliRunner().invoke(main, arguments, catch_exceptions=False).stdout

    text = run("--out", str(tmp_path))
    for title in ("Strong scaling", "Weak scaling", "Costs on CPU ranks", "Relative errors", "Kronecker 36"):
        assert title in text
    for name, charts in (("strong", 3), ("weak", 2), ("scale", 3)):
        text = (tmp_path / f"{name}.svg").read_text()
        axes = [
            g for g in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}g") if "axes" in g.get("id", "")
        ]
        assert len(axes) == charts
        assert text.startswith("<svg")
        assert "<title>" in text
        assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    answer = json.loads(run("--json", "--scale", "30"))
    assert [(one["gpus"], one["layout"]) for one in answer["predictions"]] == [(16, "1d"), (16, "2d")]
    assert answer["errors"][1]["number"] == 32
