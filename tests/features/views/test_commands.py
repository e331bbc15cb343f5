"""Filters on the command line: ``dbfs run --where``, and ``dbfs load --edge-column``."""

from __future__ import annotations

import json
from pathlib import Path

import distributed
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from dbfs.cli import main

TABLE = pa.table({"source": [1, 2, 3, 1], "target": [2, 3, 4, 4], "kind": ["road"] * 3 + ["rail"], "km": [5, 6, 7, 8]})


@pytest.fixture
def path(tmp_path: Path) -> str:
    pq.write_table(TABLE, tmp_path / "edges.parquet")
    return str(tmp_path / "edges.parquet")


def run(client: distributed.Client, *arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"DASK_SCHEDULER_ADDRESS": client.scheduler.address})


def path_of(client: distributed.Client, *arguments: str) -> list[int]:
    answer = run(client, "run", *arguments, "--from", "1", "--to", "4", "--json")
    assert answer.exit_code == 0, answer.output
    found: list[int] = json.loads(answer.stdout)["path"]
    return found


def test_a_run_with_a_filter(client: distributed.Client, path: str, leaves_nothing: None) -> None:
    assert path_of(client, path) == [1, 4]
    assert path_of(client, path, "--where", "kind = 'road' and km < 9") == [1, 2, 3, 4]
    assert path_of(client, path, "--where", "kind = 'road' and km < 7") == []
    for where, words in (("kinds = 'road'", "no column 'kinds'"), ("km +", "no expression"), ("km", "no condition")):
        answer = run(client, "run", path, "--from", "1", "--where", where)
        assert answer.exit_code
        assert words in answer.output


def test_a_filter_of_a_loaded_graph(client: distributed.Client, path: str, leaves_nothing: None) -> None:
    assert run(client, "load", path, "--name", "roads", "--edge-column", "kind").exit_code == 0
    try:
        assert path_of(client, "roads", "--loaded", "--where", "kind = 'road'") == [1, 2, 3, 4]
        assert "no column 'km'" in run(client, "run", "roads", "--loaded", "--from", "1", "--where", "km < 3").output
    finally:
        assert run(client, "unload", "roads").exit_code == 0
