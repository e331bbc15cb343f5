"""The comparison with other libraries: each answers alike, and a wrong answer ends it."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import shortest_path

from benchmarks import peers
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
