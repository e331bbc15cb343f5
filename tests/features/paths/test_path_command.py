"""``dbfs path``."""

import json

import distributed
from click.testing import CliRunner

from dbfs.cli import main


def printed(client: distributed.Client, *words: str) -> str:
    ran = CliRunner().invoke(main, ["path", *words, "--scheduler", client.scheduler.address])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_a_path_and_all_paths(client: distributed.Client) -> None:
    square = ("grid2d:side=3", "0", "8")
    assert printed(client, *square).splitlines()[-1] == "path: 4 edges: 0 1 2 5 8"
    lines = printed(client, *square, "--all").splitlines()
    assert [line for line in lines if line.startswith("path")] == [
        *("path: 4 edges: 0 1 2 5 8", "path: 4 edges: 0 1 4 5 8", "path: 4 edges: 0 1 4 7 8"),
        *("path: 4 edges: 0 3 4 5 8", "path: 4 edges: 0 3 4 7 8", "path: 4 edges: 0 3 6 7 8"),
    ]
    lines = printed(client, *square, "--all", "--limit", "2").splitlines()
    assert lines[-2:] == ["path: 4 edges: 0 1 4 5 8", "there are more than 2 paths; --limit prints more"]
    found = json.loads(printed(client, *square, "--all", "--limit", "1", "--json"))
    assert found == {"distance": 4, "paths": [[0, 1, 2, 5, 8]], "more": True}
    assert json.loads(printed(client, *square, "--json")) == {"distance": 4, "path": [0, 1, 2, 5, 8]}


def test_no_path_and_wrong_ids(client: distributed.Client) -> None:
    apart = ("uniform:n=50,m=1", "0", "1")
    assert "path: there is none" in printed(client, *apart)
    assert json.loads(printed(client, *apart, "--json")) == {"distance": -1, "path": []}
    wrong = CliRunner().invoke(main, ["path", "path:n=4", "0", "9", "--scheduler", client.scheduler.address])
    assert wrong.exit_code == 2
    assert "target 9 is not in path:n=4" in wrong.output
