"""Public graphs with the answers SciPy gave (``expected.json``)."""

import hashlib
import json
from pathlib import Path

import distributed
import numpy as np
import pytest

import dbfs

FILES = [
    "karate.mtx",
    *(
        pytest.param(name, marks=pytest.mark.full)
        for name in (
            "email-Eu-core.csv",
            "PGPgiantcompo.graph",
            "astro-ph.graph",
            "netscience.mtx",
            "wiki-Vote.txt",
            "road-NY.gr.xz",
            "road-FLA.gr.xz",
        )
    ),
]


@pytest.mark.parametrize("name", FILES)
def test_real_graphs_have_the_expected_answers(client: distributed.Client, shared_data: Path, name: str) -> None:
    expected = json.loads((shared_data / "expected.json").read_text())[name]
    with dbfs.load(shared_data / name, client=client) as graph:
        assert graph.n == expected["n"]
        assert graph.m - graph.duplicates == expected["distinct_directed_edges"]
        for number, answer in enumerate(expected["sources"]):
            # A level as Dask tasks takes tens of milliseconds: too long for the hundreds of a road network.
            for engine in ("resident", "taskgraph") if number == 0 and answer["depth"] < 30 else ("resident",):
                source = graph.id_of(answer["source"])
                check(graph.bfs(source, engine=engine, predecessors=True, validate=True), answer)


def check(result: dbfs.BFSResult, answer: dict[str, object]) -> None:
    distances = result.distances()
    assert (result.reached, result.depth) == (answer["reached"], answer["depth"])
    assert distances[distances >= 0].sum() == answer["sum_of_distances"]
    assert hashlib.sha256(distances.astype("<i4").tobytes()).hexdigest() == answer["sha256_of_int32_distances"]


def test_sparse_ids_of_a_real_graph(client: distributed.Client, shared_data: Path) -> None:
    with dbfs.load(shared_data / "wiki-Vote.txt", client=client) as graph:
        ids = graph.ids()
        assert len(ids) == graph.n
        assert (np.diff(ids) > 0).all()
        assert graph.vertex(30) == int(np.flatnonzero(ids == 30)[0])
        with pytest.raises(dbfs.errors.InvalidVertexError, match="id 1 is not in .*wiki-Vote.txt; ids near it are 3"):
            graph.vertex(1)
    with dbfs.load(shared_data / "email-Eu-core.csv", client=client) as graph:
        assert graph.record.ids.kind == "dense"
        assert graph.vertex(1004) == 1004
