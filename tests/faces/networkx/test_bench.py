"""``dbfs bench networkx``: every function is measured on both sides, and wrong results are found out."""

import json

import distributed
import networkx as nx
import pytest
from click.testing import CliRunner

from benchmarks.networkx import bench_networkx
from dbfs.cli import main
from dbfs.errors import ValidationError
from dbfs.networkx.backend import backend


def test_both_sides_are_measured(client: distributed.Client) -> None:
    with nx.config.backends.dbfs(ranks=1):
        measured = list(bench_networkx(client, 8, 7, 1))
    conversions = [each for each in measured if each.networkx is None]
    assert [(each.function, each.scale, each.ratio) for each in conversions] == [
        ("conversion and loading", 8, None),
        ("conversion and loading", 7, None),
    ]
    functions = [each for each in measured if each not in conversions]
    assert len(functions) >= 15
    assert {each.function for each in functions if each.scale == 7} >= {"diameter()", "closeness_centrality()"}
    for each in functions:
        assert each.networkx is not None
        assert each.ratio == each.networkx / each.dbfs > 0


def test_a_wrong_result_ends_the_benchmark(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "is_connected", lambda graph: False)
    with pytest.raises(ValidationError, match=r"is_connected\(\): the backend's result is not that of NetworkX"):
        list(bench_networkx(client, 7, 7, 1))


@pytest.mark.full
def test_the_command() -> None:
    command = ["bench", "networkx", "--scale", "7", "--pairs-scale", "7", "--times", "1"]
    done = CliRunner().invoke(main, [*command, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["times"]
    assert {"function", "scale", "networkx", "dbfs", "ratio"} == found[1].keys()
    shown = CliRunner().invoke(main, command)
    assert shown.exit_code == 0, shown.output
    assert all(each["function"] in shown.stdout for each in found)
