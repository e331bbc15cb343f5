"""Weights on the command line: ``dbfs run --weight`` and ``dbfs path --weight``."""

import json
from pathlib import Path

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from dbfs.cli import main

TABLE = pa.table(
    {"source": [1, 2, 3, 1], "target": [2, 3, 4, 4], "kind": ["road"] * 3 + ["rail"], "km": [0.5, 1.5, 2.0, 9.0]}
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    pq.write_table(TABLE, tmp_path / "edges.parquet")
    return str(tmp_path / "edges.parquet")


def run(client: distributed.Client, *arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"DASK_SCHEDULER_ADDRESS": client.scheduler.address})


def test_a_run_by_weight(client: distributed.Client, path: str, tmp_path: Path, leaves_nothing: None) -> None:
    arguments = ("run", path, "--from", "1", "--weight", "km")
    found = json.loads(run(client, *arguments, "--to", "4", "--validate", "--json").stdout)
    assert (found["path"], found["depth"], found["validated"]) == ([1, 2, 3, 4], 4.0, True)
    found = json.loads(run(client, *arguments, "--where", "kind = 'rail'", "--to", "4", "--json").stdout)
    assert (found["path"], found["depth"]) == ([1, 4], 9.0)
    out = tmp_path / "labels.npy"
    answer = run(client, *arguments, "--max-distance", "2", "--predecessors", "--out", str(out))
    assert answer.exit_code == 0, answer.output
    labels = np.load(out)
    assert labels["distance"].tolist() == [0, 0.5, 2, np.inf]
    assert labels["predecessor"].tolist() == [0, 0, 1, -1]


def test_a_path_by_weight(client: distributed.Client, path: str) -> None:
    answer = run(client, "path", path, "1", "4", "--weight", "km")
    assert answer.stdout.splitlines()[-1] == "path: 3 edges, km 4.0: 1 2 3 4"
    assert run(client, "path", path, "1", "4").stdout.splitlines()[-1] == "path: 1 edge: 1 4"
    found = json.loads(run(client, "path", path, "1", "4", "--weight", "km", "--json").stdout)
    assert found == {"distance": 4.0, "path": [1, 2, 3, 4]}
    # A generator draws the column.
    drawn = run(client, "path", "path:n=5", "0", "4", "--weight", "minutes", "--json")
    assert json.loads(drawn.stdout)["path"] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--from", "1", "--max-distance", "3"), "--max-distance goes with --weight"),
        (("run", "--from", "1", "--weight", "km", "--max-depth", "3"), "--max-depth does not go with --weight"),
        (("run", "--from", "1", "--weight", "km", "--direction", "top-down"), "--direction does not go with --weight"),
        (("run", "--from", "1", "--weight", "kind"), "column 'kind' is of type"),
        (("run", "--from", "1", "--weight", "miles"), "no column 'miles'"),
        (("path", "1", "4", "--weight", "km", "--all"), "--all does not go with --weight"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    client: distributed.Client, path: str, arguments: tuple[str, ...], words: str
) -> None:
    answer = run(client, arguments[0], path, *arguments[1:])
    assert answer.exit_code == 2
    assert words in answer.stderr
