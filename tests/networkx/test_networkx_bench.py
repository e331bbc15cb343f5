"""``dbfs bench networkx``: every function is measured on both sides, and wrong results are found out."""

import json

import distributed
import networkx as nx
import pytest
from click.testing import CliRunner

from dbfs.bench.networkx import bench_networkx
from dbfs.cli import main
from dbfs.errors import ValidationError
from dbfs.networkx.backend import backend


def test_both_sides_are_measured(client: distributed.Client) -> None:
    with nx.config.backends.dbfs(ranks=1):
        first, *others = bench_networkx(client, 7, 1)
    assert (first.function, first.networkx, first.ratio) == ("conversion and loading", None, None)
    assert len(others) >= 10
    for each in others:
        assert each.networkx is not None
        assert each.ratio == each.networkx / each.dbfs > 0


def test_a_wrong_result_ends_the_benchmark(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "is_connected", lambda graph: False)
    with pytest.raises(ValidationError, match=r"is_connected\(\): the backend's result is not that of NetworkX"):
        list(bench_networkx(client, 7, 1))


@pytest.mark.full
def test_the_command() -> None:
    done = CliRunner().invoke(main, ["bench", "networkx", "--scale", "7", "--times", "1", "--json"])
    assert done.exit_code == 0, done.output
    assert {"function", "networkx", "dbfs"} <= json.loads(done.stdout)[0].keys()
