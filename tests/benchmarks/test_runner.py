"""What all benchmarks share: their tables, their JSON, and what is left of a benchmark that ends with an error."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
from click.testing import CliRunner

from benchmarks import COMMANDS, runner
from benchmarks.runner import Column, Results, in_turns, read, revision
from dbfs.cli import main
from dbfs.errors import FormatError


@dataclass(frozen=True)
class Timing:
    """A row with each kind of field."""

    graph: Annotated[str, Column()]
    seconds: Annotated[float | None, Column("ms", ",.1f", "time of a call", times=1e3)]
    sizes: Annotated[tuple[int, ...], Column("largest", lambda sizes: str(max(sizes)))]
    hidden: int = 0


ROWS = [Timing("[path]", 1.5, (1, 3)), Timing("grid", None, (2,), 9)]


def measured(*rows: Timing) -> Iterator[Timing]:
    yield from rows
    raise RuntimeError("the rest failed")


def test_rows_are_shown_and_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.json"
    with Results("some", file, gpus=2) as results:
        assert results.take("rows", ROWS, "The title") == ROWS
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown[:2] == [["The", "title"], ["graph", "ms", "largest"]]
    assert shown[3:6] == [["[path]", "1,500.0", "3"], ["grid", "2"], ["ms:", "time", "of", "a", "call."]]
    found = read(file, {"some": {"rows": Timing}}, ("revision", "gpus"))
    assert (found["rows"], found["gpus"]) == (ROWS, 2)
    assert capsys.readouterr().err == ""
    with pytest.raises(FormatError, match=r"not the JSON that dbfs bench other saves .*it is of dbfs bench some"):
        read(file, {"other": {"rows": Timing}})


def test_the_rows_of_a_cut_run_are_found_by_a_run_like_it(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    with pytest.raises(RuntimeError, match="the rest failed"), Results("some", file, gpus=2) as results:
        results.take("rows", measured(*ROWS), "The title")
    assert Results("some", None, "-", file, gpus=2).of_cut_run("rows", Timing) == ROWS
    assert not Results("some", file, gpus=1).of_cut_run("rows", Timing)
    assert not Results("other", file, gpus=2).of_cut_run("rows", Timing)
    with Results("some", file, gpus=2) as results:
        results.take("rows", ROWS, "The title")
    assert not Results("some", file, gpus=2).of_cut_run("rows", Timing)
    file.write_text(file.read_text()[:-9])
    assert not Results("some", file, gpus=2).of_cut_run("rows", Timing)


def test_only_code_and_plans_make_a_revision_dirty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_ROOT", tmp_path)
    monkeypatch.setattr(runner, "RESULTS", tmp_path / "benchmarks" / "results")
    assert revision() == "unknown"
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    for file in ("benchmarks/some.py", "benchmarks/results/some.json", "page.md"):
        (tmp_path / file).write_text("1")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "all"]):
        subprocess.run([*git, *command], check=True)
    clean = revision()
    for file in ("benchmarks/results/some.json", "benchmarks/results/new.json", "page.md"):
        (tmp_path / file).write_text("2")
    assert revision() == clean
    (tmp_path / "benchmarks" / "new.py").write_text("2")
    assert revision() == f"{clean}-dirty"


def test_rows_before_an_error_are_saved_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.json"
    with pytest.raises(RuntimeError, match="the rest failed"), Results("some", file) as results:
        results.take("rows", measured(ROWS[0]), "The title")
    assert "[path]" in capsys.readouterr().out
    assert read(file, {"some": {"rows": Timing}})["rows"] == ROWS[:1]
    assert "rows.json: the benchmark ended early" in capsys.readouterr().err
    # Half a JSON on stdout could be taken for the whole.
    with pytest.raises(RuntimeError), Results("some", "-") as results:
        results.take("rows", measured(ROWS[0]), "The title")
    assert capsys.readouterr().out == ""


def test_turns() -> None:
    made: list[str] = []
    calls = {name: lambda name=name: made.append(name) or float(len(made)) for name in "ab"}
    figures, answers = in_turns(calls, 2, warm_up=1, figure=lambda _, answer: answer)
    assert made == ["a", "b"] * 3
    assert (figures, answers) == ({"a": [3, 5], "b": [4, 6]}, {"a": 5, "b": 6})


@pytest.mark.parametrize("command", COMMANDS)
def test_every_benchmark_has_help_with_an_example(command: str) -> None:
    answer = CliRunner().invoke(main, ["bench", command, "--help"])
    assert answer.exit_code == 0, answer.output
    assert f"Example: dbfs bench {command}" in answer.output
