"""``dbfs bench files``: all ways are measured, and other edges than those written are found out."""

import json
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest
from click.testing import CliRunner

import dbfs
from benchmarks import files
from benchmarks.files import bench_files
from dbfs.cli import main
from dbfs.errors import ValidationError

SMALL = ("grid2d:side=9", "uniform:n=50,m=300")


def test_all_ways_are_measured(client: distributed.Client, tmp_path: Path) -> None:
    rates = list(bench_files(client, *SMALL, tmp_path, "cpu", 2))
    assert [rate.what for rate in rates][:4] == [
        "labels written as Parquet",
        "graph saved",
        "saved graph opened",
        "Matrix Market read",
    ]
    assert rates[0].nbytes == 81 * 20
    assert rates[1].nbytes == rates[2].nbytes > 0
    assert all(rate.rate == rate.nbytes / rate.seconds > 0 for rate in rates)
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_another_graph_is_found_out(
    client: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load: Any = dbfs.load

    def other(what: Any, **options: Any) -> dbfs.Graph:
        found: dbfs.Graph = load("path:n=81" if isinstance(what, Path) else what, **options)
        return found

    monkeypatch.setattr(dbfs, "load", other)
    with pytest.raises(ValidationError, match="grid2d:side=9: the graph opened has other levels"):
        list(bench_files(client, *SMALL, tmp_path, "cpu", 1))


def test_the_other_reader_has_the_same_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fast_matrix_market")
    path = tmp_path / "edges.mtx"
    path.write_text("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 1\n", encoding="ascii")
    assert [rate.what for rate in files._matrix_market(path, 1)][1] == "Matrix Market read by fast_matrix_market"
    monkeypatch.setattr(files, "_read", lambda path: [(np.array([0]), np.array([1]))])
    with pytest.raises(ValidationError, match="fast_matrix_market reads other edges"):
        list(files._matrix_market(path, 1))


@pytest.mark.full
def test_the_command(tmp_path: Path) -> None:
    command = ["bench", "files", "--graph", SMALL[0], "--text", SMALL[1], "--times", "1", "--folder", str(tmp_path)]
    shown = CliRunner().invoke(main, command)
    assert shown.exit_code == 0, shown.output
    assert "labels written as Parquet" in shown.stdout
    assert "MB/s" in shown.stdout
    found = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)["rates"]
    assert {"what", "nbytes", "seconds", "rate"} == found[0].keys()
    assert not list(tmp_path.iterdir())
