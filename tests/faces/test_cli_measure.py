"""``dbfs measure``: against NetworkX, as a table, as JSON and as files, and what the command refuses."""

import json
from collections.abc import Callable
from pathlib import Path

import distributed
import networkx as nx
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import dbfs
from dbfs.cli import main

Invoke = Callable[..., Result]
EDGES = "who,whom\nalice,bob\nbob,carol\ncarol,dave\ncarol,erin\n"


@pytest.fixture
def invoke(client: distributed.Client, tmp_path: Path) -> Invoke:
    """Measure the graph of ``EDGES``, or another one."""
    table = tmp_path / "follows.csv"
    table.write_text(EDGES)

    def run(measure: str, *options: str, graph: str = str(table)) -> Result:
        return CliRunner().invoke(main, ["measure", measure, graph, "--scheduler", client.scheduler.address, *options])

    return run


@pytest.fixture
def theirs() -> nx.Graph:
    return nx.Graph(line.split(",") for line in EDGES.splitlines()[1:])


@pytest.mark.parametrize(
    ("measure", "function"),
    [
        ("closeness", nx.closeness_centrality),
        pytest.param("harmonic", nx.harmonic_centrality, marks=pytest.mark.full),
        pytest.param("betweenness", nx.betweenness_centrality, marks=pytest.mark.full),
        ("eccentricity", nx.eccentricity),
    ],
)
def test_values_of_vertices(
    invoke: Invoke, theirs: nx.Graph, tmp_path: Path, measure: str, function: Callable[[nx.Graph], dict[str, float]]
) -> None:
    expected = dict(sorted(function(theirs).items()))
    # NetworkX adds in the order of a set, so that equal values may differ in the last digit.
    largest = sorted(expected, key=lambda name: -round(expected[name], 9))[:3]
    for out in (tmp_path / "out.parquet", tmp_path / "out.csv"):
        answer = invoke(measure, "--undirected", "--json", "--top", "3", "--out", str(out))
        assert answer.exit_code == 0, answer.output
        found = json.loads(answer.stdout)
        assert (found["measure"], found["sources"]) == (function.__name__, 5)
        assert [row["vertex"] for row in found["vertices"]] == largest
        rows = [row[function.__name__] for row in found["vertices"]]
        assert rows == pytest.approx([expected[name] for name in largest])
        table = pd.read_csv(out) if out.suffix == ".csv" else pd.read_parquet(out)
        assert dict(zip(*map(table.get, ["vertex", function.__name__]), strict=True)) == pytest.approx(expected)
    answer = invoke(measure, "--undirected", "--top", "2", "--out", str(tmp_path / "out.csv"))
    words = answer.stdout
    assert answer.exit_code == 0, answer.output
    assert "left out" not in words
    assert ("alice" in words, "carol" in words) == ("alice" in largest[:2], "carol" in largest[:2])
    assert "5 vertices, 4 undirected edges" in words
    assert f"{tmp_path / 'out.csv'}: wrote 5 values, " in words


def test_values_of_edges(invoke: Invoke, theirs: nx.Graph, tmp_path: Path) -> None:
    answer = invoke("edge-betweenness", "--undirected", "--json", "--top", "2", "--out", str(tmp_path / "out.csv"))
    found = json.loads(answer.stdout)
    assert (found["measure"], found["sources"]) == ("edge_betweenness_centrality", 5)
    expected = {tuple(sorted(ends)): value for ends, value in nx.edge_betweenness_centrality(theirs).items()}
    largest = [(row["source"], row["target"], row["edge_betweenness_centrality"]) for row in found["edges"]]
    assert largest == [("bob", "carol", pytest.approx(0.6)), ("alice", "bob", pytest.approx(0.4))]
    rows = pd.read_csv(tmp_path / "out.csv").itertuples(index=False)
    assert {row[:2]: row[2] for row in rows} == pytest.approx(expected)
    words = invoke("edge-betweenness", "--undirected", "--sample", "5", "--top", "1").stdout
    assert "standard_error" in words
    for suffix in (".csv", ".parquet"):
        answer = invoke("edge-betweenness", "--directed", "--in-edges", "--out", str(tmp_path / f"out{suffix}"))
        assert answer.exit_code == 0, answer.output
        assert ("left out: " in answer.stdout) == (suffix == ".csv")
    assert "bob" in words and "alice" not in words.splitlines()[-2]


def test_paths_within_a_depth(invoke: Invoke) -> None:
    found = json.loads(invoke("harmonic", "--undirected", "--max-depth", "1", "--top", "1", "--json").stdout)
    assert found["vertices"] == [{"vertex": "carol", "harmonic_centrality": 3}]


def test_sizes_within_k_edges(invoke: Invoke) -> None:
    found = json.loads(invoke("khop-sizes", "--undirected", "--k", "1", "--top", "2", "--json").stdout)
    assert found["vertices"] == [{"vertex": "carol", "khop_sizes": 4}, {"vertex": "bob", "khop_sizes": 3}]


def test_numbers_of_a_graph(invoke: Invoke, theirs: nx.Graph) -> None:
    mean = json.loads(invoke("average-path-length", "--undirected", "--json").stdout)
    assert mean == {
        "measure": "average_shortest_path_length",
        "value": nx.average_shortest_path_length(theirs),
        "standard_error": 0,
        "sources": 5,
    }
    assert invoke("wiener", "--undirected").stdout.endswith("\nWiener index: 18\n")
    for measure, expected in ("diameter", 3), ("radius", 2):
        assert json.loads(invoke(measure, "--undirected", "--json").stdout) == {"measure": measure, "value": expected}
        assert invoke(measure, "--undirected").stdout.endswith(f"\n{measure.capitalize()}: {expected}\n")
    # A directed path has pairs without a path.
    assert json.loads(invoke("wiener", "--directed", "--json").stdout) == {"measure": "wiener_index", "value": None}
    assert invoke("wiener", "--directed").stdout.endswith("\nWiener index: inf\n")


def test_a_neighbourhood_function(invoke: Invoke, tmp_path: Path) -> None:
    answer = invoke("neighbourhood", "--undirected", "--json", "--out", str(tmp_path / "pairs.csv"))
    found = json.loads(answer.stdout)
    assert (found["pairs"], found["standard_errors"]) == ([5, 13, 21, 25], [0, 0, 0, 0])
    assert found["effective_diameter"] == pytest.approx(2 + 1.5 / 4)
    assert pd.read_csv(tmp_path / "pairs.csv")["pairs"].tolist() == found["pairs"]
    words = invoke("neighbourhood", "--undirected").stdout
    assert words.endswith("\neffective diameter: 2.375\n")


def test_a_sample_has_errors(invoke: Invoke, client: distributed.Client) -> None:
    options = ("--sample", "20", "--seed", "3", "--json")
    graph = "grid2d:side=9"
    found = json.loads(invoke("closeness", *options, graph=graph).stdout)
    mean = json.loads(invoke("average-path-length", *options, graph=graph).stdout)
    with dbfs.load(graph, client=client) as ours:
        right = ours.closeness_centrality(sample=20, seed=3).to_pandas()
        expected = ours.average_shortest_path_length(sample=20, seed=3)
    top = right.nlargest(10, "closeness_centrality")
    assert found["vertices"] == top.to_dict("records")
    assert found["sources"] == 20
    assert (mean["value"], mean["standard_error"]) == (expected.value, expected.error)
    assert f", standard error {expected.error:.3g}\n" in invoke(
        "average-path-length", *options[:-1], graph=graph
    ).stdout  # fmt: skip
    # One vertex of two components is not reached from the sample: its error is not told.
    lonely = json.loads(invoke("closeness", "--sample", "3", "--json", graph="uniform:n=400,m=20").stdout)
    assert None in [row["standard_error"] for row in lonely["vertices"]]


def test_a_loaded_graph(invoke: Invoke, client: distributed.Client) -> None:
    with dbfs.load("path:n=9", client=client, name="measured"):
        found = json.loads(invoke("eccentricity", "--loaded", "--json", "--top", "1", graph="measured").stdout)
    assert found["vertices"] == [{"vertex": 0, "eccentricity": 8}]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["pagerank", "path:n=5"], 2, "'pagerank' is not one of"),
        (["closeness", "path:n=5", "--sample", "9"], 2, "sample must be at most 5, the vertices of path:n=5, not 9"),
        (["eccentricity", "path:n=5", "--sample", "3"], 2, "--sample is not for eccentricity"),
        (["eccentricity", "path:n=5", "--max-depth", "3"], 2, "--max-depth is not for eccentricity"),
        (["khop-sizes", "path:n=5"], 2, "--k is for khop-sizes, which needs it"),
        (["wiener", "path:n=5", "--k", "3"], 2, "--k is for khop-sizes, which needs it"),
        (["radius", "path:n=5", "--checkpoint", "/no/such/x"], 2, "there is no folder /no/such"),
        (["wiener", "path:n=5", "--checkpoint", "/no/such/x"], 2, "there is no folder /no/such"),
        (["wiener", "path:n=5", "--out", "x.csv"], 2, "--out is for tables, and wiener is one number"),
        (["closeness", "path:n=5", "--out", "x.npy"], 2, "--out x.npy: the name must end in .parquet or .csv"),
        (["eccentricity", "uniform:n=9,m=0"], 2, "is not connected: 0 reaches 1 of 9 vertices"),
        (["closeness", "nobody", "--loaded"], 2, "no graph is named 'nobody'"),
        (["closeness", "path:n=5", "--deadline", "soon"], 2, "soon"),
    ],
)
def test_what_is_refused(client: distributed.Client, arguments: list[str], code: int, words: str) -> None:
    answer = CliRunner().invoke(main, ["measure", *arguments, "--scheduler", client.scheduler.address])
    assert answer.exit_code == code, answer.output
    assert words in answer.stderr
    assert "Traceback" not in answer.output
