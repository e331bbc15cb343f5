"""``dbfs bench paths``, on a small graph."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dbfs.cli import main


@pytest.mark.full
def test_bench_paths(tmp_path: Path) -> None:
    file = tmp_path / "paths.json"
    sizes = ("--calls", "5", "--pairs", "20", "--clients", "3", "--seconds", "1")
    ran = CliRunner().invoke(main, ["bench", "paths", "--graph", "grid2d:side=9", *sizes, "--json", str(file)])
    assert ran.exit_code == 0, ran.output
    saved = json.loads(file.read_text())
    assert [row["call"] for row in saved["calls"]] == ["traversal", "bfs(targets=)", "distance", "path"]
    assert all(0 < row["middle"] <= row["worst"] for row in saved["calls"])
    (many,) = saved["pairs"]
    assert (many["pairs"], many["clients"]) == (20, 3)
    assert 0 < many["middle"] <= many["late"]
