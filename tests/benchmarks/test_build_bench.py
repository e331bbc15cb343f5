"""``dbfs bench build``: each form holds the same graph, and each build is measured."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.build import FORMS, BuildPlan, arrives
from benchmarks.plan import find, read
from dbfs.cli import main
from dbfs.edges.resolve import edge_list
from dbfs_workers.building.pieces import portions_of


def degrees(source: Any) -> list[int]:
    """Return the degrees of all vertices that have edges, ascending: the same whatever the ids."""
    ends = []
    for piece in edge_list(source).cut(1000):
        for edges in portions_of(piece):
            ends += [np.asarray(end) for end in edges]
    return sorted(np.unique(np.concatenate(ends), return_counts=True)[1].tolist())


@pytest.mark.parametrize("form", FORMS)
def test_each_form_holds_the_same_edges(form: str, tmp_path: Path) -> None:
    made = arrives("uniform:n=99,m=5000", form, tmp_path)
    listed = edge_list(made)
    assert listed.m in (5000, None)
    assert listed.id_kinds == (("string",) if form == "parquet-names" else ("integer",))
    assert degrees(made) == degrees("uniform:n=99,m=5000")


def test_the_plans_have_all_forms() -> None:
    for name in ("small", "full"):
        assert read(BuildPlan, find("build", name)).forms == FORMS


@pytest.mark.full
def test_the_command() -> None:
    command = ["bench", "build", "--graph", "path:n=3000", "--form", "parquet-names", "--ranks", "1", "--json"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)["costs"]
    assert (found["edges"], found["form"], found["estimate"]) == (2999, "parquet-names", None)
    assert found["peak"][0] >= 0
