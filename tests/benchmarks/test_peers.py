"""The comparison with other libraries: each answers alike, and a wrong answer ends it."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import shortest_path

from benchmarks import peers, peers_page
from benchmarks.runner import Results
from dbfs.errors import ValidationError

GRAPH = (8, "string", "random")


def test_a_graph_is_the_same_in_every_order_and_with_every_kind_of_id(tmp_path: Path) -> None:
    seen = set()
    for order in peers.ORDERS:
        for kind in peers.IDS:
            file, sources, edges, lone = peers.written(tmp_path, 8, kind, order)
            table = pd.read_parquet(file)
            codes, ids = pd.factorize(pd.concat([table["source"], table["target"]], ignore_index=True))
            assert (len(table), len(sources), len(set(sources))) == (edges, peers.SOURCES, peers.SOURCES)
            assert round((1 - lone) * 2**8) == len(ids)
            matrix = sp.coo_array((np.ones(edges), (codes[:edges], codes[edges:])), shape=(len(ids),) * 2)
            found = shortest_path(matrix, directed=False, unweighted=True)[pd.Index(ids).get_indexer(sources)]
            seen.add(tuple(np.where(np.isfinite(found), found, 0).sum(axis=1)))
            if (order, kind) == ("degree", "integer"):
                degrees = np.bincount(pd.concat([table["source"], table["target"]]))
                assert (np.diff(degrees) <= 0).all()
    assert len(seen) == 1


@pytest.mark.full
@pytest.mark.parametrize("name", peers.PEERS)
def test_a_peer_answers_as_scipy_does(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(peers.PEERS[name][0]) is None:
        pytest.skip(f"{name} is not installed")
    file, sources, *_ = peers.written(tmp_path, *GRAPH)
    told, peak = peers.run(name, file, sources, 300)
    assert peak > 2**20 and min(told["build"], told["one"], told["many"], told["closeness"]) > 0
    scipy = peers.Scipy(file)
    expected = [*np.ravel(scipy.many(sources)), *scipy.closeness(sources[: peers.SAMPLE])]
    np.testing.assert_allclose(told["answers"], expected, rtol=1e-9)


@pytest.mark.full
def test_a_peer_beyond_the_limit_is_killed(tmp_path: Path) -> None:
    file, sources, *_ = peers.written(tmp_path, *GRAPH)
    told, _ = peers.run("SciPy", file, sources, 0)
    assert told == {}


def test_different_answers_end_the_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"SciPy": [3.0, 4.0], "dbfs": [3.0, 5.0]}

    def run(name: str, *_: Any) -> tuple[dict[str, Any], int]:
        return {"answers": answers[name]}, 1

    monkeypatch.setattr(peers, "run", run)
    with pytest.raises(ValidationError, match="dbfs and SciPy answer differently for 8-integer-given"):
        list(peers.measure(tmp_path, [8], list(answers), ["given"], ["integer"], 1))


def test_the_page_has_the_saved_results() -> None:
    text = peers_page.PAGE.read_text(encoding="utf-8")
    assert peers_page.page(text) == text


def test_the_page_shows_the_newest_run_and_dbfs_over_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_page, "SAVED", tmp_path)
    assert peers_page.tables() == ""
    for day, build in ((3, 2.0), (4, 1.0)):
        with Results("peers", tmp_path / f"peers_2026-01-0{day}.json", machine="a laptop") as results:
            rows = [
                peers.PeerTime(peer, "1.2", 4096, kind, order, 0.25, build, one, None, 0.5, 2**30)
                for peer in ("dbfs", "igraph")
                for kind in peers.IDS
                for order, one in zip(peers.ORDERS, (0.001, 0.002, 0.003), strict=True)
            ]
            results.take("times", rows, "")
    lines = peers_page.tables().splitlines()
    figures = "1.00 | 1.00 | 1.0 / 2.0 / 3.0 | over the limit / over the limit / over the limit | 0.50 / 0.50 / 0.50"
    assert f"| igraph 1.2 | {figures} | 1.00 / 1.00 / 1.00 |" in lines
    assert [line.count("2.00") for line in lines if line.startswith("| 2026-01-03")] == [2]
    assert "25% of the generator's vertices" in peers_page.tables()
