"""Strategies by name and option, and on which graphs they run: through a cluster, as callers take them."""

import json
from pathlib import Path

import distributed
import numpy as np
import pytest
from click.testing import CliRunner

import dbfs
from dbfs import lab
from dbfs.cli import main
from dbfs.errors import InvalidOptionError, RunCancelledError
from dbfs_workers.features.lab import enact
from dbfs_workers.features.lab.baselines import BASELINES
from tests.support import graphs, oracle


def test_options_of_a_strategy_are_parsed() -> None:
    assert lab.parse("two-phase") == lab.Policy("two-phase")
    text = "hybrid:gathering=warp,culling=none,status=labels"
    assert lab.parse(text) == lab.Policy("hybrid", gathering="warp", status="labels", culling="none")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("merrill", "unknown strategy 'merrill'; choose one of expand-contract, contract-expand, two-phase"),
        ("hybrid:speed=9", "strategy hybrid has no option 'speed'; its options are gathering, status, culling"),
        ("sequential:culling=warp", "strategy sequential has no option 'culling'; it takes none"),
        ("hybrid:culling=all", r"culling=all is not a choice; choose one of none, warp, history, warp\+history"),
        ("hybrid:culling", "culling= is not a choice"),
        ("hybrid:tiles=oversubscribe,grid=c2050", "grid=c2050 allows 84 blocks; choose tiles=steal"),
    ],
)
def test_a_wrong_strategy_or_option_is_named(text: str, words: str) -> None:
    with pytest.raises(InvalidOptionError, match=words):
        lab.parse(text)


def test_every_strategy_has_an_enactor_and_its_facts() -> None:
    runs = {"gpu": list(enact.ENACTORS), "cpu": list(BASELINES), "any": ["resident"]}
    for device, names in runs.items():
        of_one_rank = [name for name, found in lab.STRATEGIES.items() if found.device == device and not found.grid]
        assert of_one_rank == names
    assert [name for name, found in lab.STRATEGIES.items() if found.grid] == ["radix-bins", "row-scan"]
    for strategy in lab.STRATEGIES.values():
        assert strategy.does.endswith(".")
        assert strategy.teaches
        assert strategy.source


@pytest.mark.parametrize("strategy", ["sequential", "scipy", "resident"])
def test_baselines_on_cpu_cores(client: distributed.Client, strategy: str) -> None:
    n, src, dst = graphs.random(400, 700, 5)
    matrix = oracle.adjacency(n, src, dst, directed=True)
    edges = dbfs.from_arrays(src, dst, n=n, directed=True)
    with dbfs.load(edges, client=client, ranks=1) as graph:
        source = int(src[0])
        result = graph.bfs(source, strategy=strategy, predecessors=True, validate=True)
        expected = oracle.distances(matrix, [source])
        np.testing.assert_array_equal(result.distances(), expected)
        oracle.assert_valid_parents(matrix, expected, result.predecessors(), [source])
        usual = graph.bfs(source)
        assert (result.reached, result.edges, result.depth) == (usual.reached, usual.edges, usual.depth)
        if strategy != "resident":
            assert result.counters == {"edges": usual.edges}
            assert [report.discovered for report in result.reports] == [r.discovered for r in usual.reports]
            with pytest.raises(RunCancelledError):
                graph.bfs(source, strategy=strategy, progress=_cancel)


def _cancel(_progress: object) -> None:
    raise RunCancelledError("by the caller")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strategy": "hybrid"}, "hybrid needs a graph on one GPU.* 1 rank, backend cpu.*cores: sequential, scipy"),
        ({"strategy": "none"}, "unknown strategy 'none'"),
        ({"strategy": "scipy", "max_depth": 2}, "takes no max_depth, no targets, and no direction but auto"),
        ({"strategy": "scipy", "targets": 2}, "takes no max_depth, no targets"),
        ({"strategy": "scipy", "direction": "top-down"}, "no direction but auto"),
        ({"strategy": "scipy", "engine": "taskgraph"}, "runs within the resident engine, not engine='taskgraph'"),
    ],
)
def test_a_graph_refuses_what_a_strategy_does_not_take(
    client: distributed.Client, options: dict[str, object], words: str
) -> None:
    with dbfs.load("path:n=9", client=client, ranks=1) as graph, pytest.raises(InvalidOptionError, match=words):
        graph.bfs(0, **options)


def test_an_update_of_a_strategys_result_knows_what_has_changed(client: distributed.Client) -> None:
    with dbfs.load("path:n=9", client=client, ranks=1, mutable=True) as graph:
        result = graph.bfs(0, strategy="sequential", predecessors=True)
        graph.insert_edges([(0, 7)])
        assert [*result.update().changed()] == [5, 6, 7, 8]
        assert (result.depth, result.counters) == (4, {})


def test_a_strategy_takes_one_source_on_one_rank(client: distributed.Client) -> None:
    with dbfs.load("path:n=9", client=client, ranks=1) as graph, pytest.raises(InvalidOptionError, match="not 2"):
        graph.bfs([0, 3], strategy="sequential")
    with dbfs.load("path:n=9", client=client, ranks=2) as graph:
        with pytest.raises(InvalidOptionError, match=r"needs a graph on one rank, dbfs.load\(..., ranks=1\).* 2 ranks"):
            graph.bfs(0, strategy="sequential")
        assert graph.bfs(0, strategy="resident").depth == 8
        with pytest.raises(InvalidOptionError, match=r"needs a grid of ranks, dbfs.load\(..., layout='2d'\).* 2 ranks"):
            graph.bfs(0, strategy="row-scan")
        with pytest.raises(
            InvalidOptionError, match=r"needs a graph on GPUs, dbfs.load\(..., layout='2d:1x2', backend="
        ):
            graph.bfs(0, strategy="radix-bins")


def test_the_page_has_every_choice() -> None:
    page = (Path(__file__).parents[3] / "docs" / "laboratory.md").read_text(encoding="utf-8")
    for option, choices in lab.CHOICES.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{option}` ("))
        assert all(f"`{choice}`" in row for choice in choices)


def test_the_list_as_a_table_and_as_json() -> None:
    table = CliRunner().invoke(main, ["lab", "list"])
    assert "two-phase" in table.stdout
    assert "culling: none, warp, history, warp+history" in table.stdout
    found = json.loads(CliRunner().invoke(main, ["lab", "list", "--json"]).stdout)
    assert [each["name"] for each in found] == list(lab.STRATEGIES)


def test_a_run_is_validated(client: distributed.Client) -> None:
    words = ["lab", "run", "grid2d:side=5", "--source", "0", "--strategy", "sequential"]
    words += ["--scheduler", client.scheduler.address]
    answer = CliRunner().invoke(main, words)
    assert answer.exit_code == 0, answer.output
    assert "by sequential on cpu: 25 reached, depth 8" in answer.stdout
    assert "the result is valid" in answer.stdout
    assert "redundant expansion: 1.000" in answer.stdout
    found = json.loads(CliRunner().invoke(main, [*words, "--predecessors", "--json"]).stdout)
    assert (found["validated"], found["counters"]) == (True, {"edges": 80})


def test_a_run_on_a_grid_is_validated(client: distributed.Client) -> None:
    words = ["lab", "run", "grid2d:side=5", "--source", "0", "--strategy", "row-scan", "--ranks", "3", "--predecessors"]
    answer = CliRunner().invoke(main, [*words, "--scheduler", client.scheduler.address])
    assert answer.exit_code == 0, answer.output
    assert "by row-scan on cpu: 25 reached, depth 8" in answer.stdout
    assert "the result is valid" in answer.stdout


def test_an_unknown_strategy_is_reported_before_a_connection() -> None:
    answer = CliRunner().invoke(main, ["lab", "run", "grid2d:side=5", "--source", "0", "--strategy", "fast"])
    assert answer.exit_code == 2
    assert "unknown strategy 'fast'" in answer.stderr
