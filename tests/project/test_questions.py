"""The page "Questions and calls": its calls run, and the site's search finds it first for the questions' words."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import networkx as nx
import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pytest
import scipy.sparse

import dbfs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "questions.md").read_text(encoding="utf-8")
ROWS = [line.strip("|").split(" | ") for line in PAGE.splitlines() if re.match(r"\| (?!---|question)", line)]
CALLS = {call.strip(" `"): about for _, call, about in (row for row in ROWS if len(row) == 3) if call.strip()}

# A ring of five with a chord, and its answers, found by hand.
EDGES = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "a"), ("a", "c")]
ANSWERS = {
    'graph.path("a", "b")': ["a", "b"],
    'graph.distance("a", "b")': 1,
    'graph.reachable("a", "b")': True,
    'list(graph.paths("a", "b", limit=10))': [["a", "b"]],
    'dbfs.load(table).where(without=["c"]).bfs("a", targets="d", predecessors=True).path_to("d")': ["a", "e", "d"],
    'dbfs.load(table).where(vertices=["a", "b", "c"]).bfs("a").to_dict()': {"a": 0, "b": 1, "c": 1},
    'graph.neighbors("a")': ["b", "c", "e"],
    "graph.components().count": 1,
    'dbfs.load("kronecker:scale=12").rebalance(ranks=2)': None,
    "graph.diameter()": 2,
    '"a" in graph': True,
    'nx.is_bipartite(g, backend="dbfs")': False,
    'nx.shortest_path(nx.restricted_view(g, ["c"], []), "a", "b", backend="dbfs")': ["a", "b"],
    'dbfs.load(table, source="source", target="target", edge_columns="km").path("a", "b", weight="km")': [
        "a",
        "c",
        "b",
    ],
}


@pytest.fixture(scope="module")
def names(client: distributed.Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the page's calls use."""
    table = pd.DataFrame({"source": [u for u, _ in EDGES], "target": [v for _, v in EDGES]})
    table["open"], table["km"] = table["target"] != "e", [9, 2, 2, 2, 2, 2]
    shared = dbfs.load(table, client=client, name="shared")
    graph = dbfs.load(table, source="source", target="target", client=client, mutable=True)
    yield {
        "dbfs": dbfs,
        "nx": nx,
        "pc": pc,
        "scipy": scipy,
        "graph": graph,
        "table": table,
        "g": nx.Graph(EDGES),
        "matrix": scipy.sparse.csr_array(np.eye(3)),
        "folder": tmp_path_factory.mktemp("saved") / "graph",
    }
    # The test of another file counts the graphs by name.
    shared.unload()
    graph.unload()


@pytest.mark.parametrize("call", sorted(CALLS, key=lambda call: "delete_edges" in call))
@pytest.mark.filterwarnings("ignore")
def test_a_call_of_the_page_runs(call: str, names: dict[str, Any], client: distributed.Client) -> None:
    with client.as_current():
        found = eval(call, names)
    assert found == ANSWERS[call] if call in ANSWERS else found is not None
    if isinstance(found, dbfs.Graph) and found is not names["graph"]:
        assert set(found.ids().to_pylist()) == (set("abde") if '["c"]' in call else set("abcde"))


def test_the_page_has_an_answer_for_each_kind_of_question() -> None:
    assert set(ANSWERS) <= set(CALLS)
    assert len(CALLS) > 40
    options = {option for call in CALLS for option in re.findall(r"(\w+)=", call)}
    assert {"targets", "max_depth", "sample", "predecessors", "keep", "unreached"} <= options


QUERIES = {
    "multiple sources": "how-to/questions",
    "many sources": "how-to/questions",
    "exclude": "how-to/questions",
    "exclude vertices": "how-to/questions",
    "filter": "how-to/questions",
    "filter edges": "how-to/questions",
    "dijkstra": "how-to/questions",
    "weight": "how-to/questions",
    "weighted": "how-to/questions",
    "cutoff": "how-to/questions",
    "shortest path between two vertices": "how-to/questions",
    "within k hops": "how-to/questions",
    "nearest": "how-to/questions",
    "connected components": "how-to/questions",
    "pagerank": "how-to/questions",
    # Pages whose own subject is asked for come first.
    "networkx": "how-to/networkx",
    "gpu": "how-to/gpus",
    "security": "how-to/security",
    "ids": "how-to/own-data",
    "install": "get-started",
}


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("node") is None, reason="no node to run the site's search")
def test_the_search_of_the_site_finds_the_page_first(tmp_path: Path) -> None:
    """Sphinx's own search, by its own index."""
    pytest.importorskip("sphinx")
    build = [sys.executable, "-m", "sphinx", "-W", "-q", "-n", "-b", "html", ROOT / "docs", tmp_path]
    subprocess.run(build, check=True)
    search = ["node", ROOT / "tests" / "support" / "site_search.js", tmp_path, *QUERIES]
    done = subprocess.run(search, capture_output=True, text=True, check=True)
    first = {query: found[0] for query, *found in map(json.loads, done.stdout.splitlines())}
    assert first == QUERIES
