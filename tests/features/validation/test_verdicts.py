"""Validations by calls straight to the ranks, as on GPUs that map each other's memory: stand-ins take their place here.

Axes: ranks; the graph's own edges or the input's; right labels, wrong labels, and words that a worker has dropped.
"""

from collections.abc import Iterator
from typing import Any

import distributed
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import ResultReleasedError, ValidationError
from dbfs.features.validation import validate as validation
from dbfs_workers.features.validation import on_gpu as on_gpus
from dbfs_workers.features.validation import verdicts
from dbfs_workers.serving.reads.messages import KeptLabels
from tests.support import standin
from tests.support.graphs import random


@pytest.fixture(params=[(1, True), (3, True), (3, False)], ids=["1 rank", "3 ranks", "3 ranks, own edges"])
def graph(
    request: pytest.FixtureRequest,
    client: distributed.Client,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> Iterator[Graph]:
    if pytestconfig.getoption("--worker-processes"):
        pytest.skip("the workers' processes have no stand-ins")
    ranks, keep_edges = request.param
    n, src, dst = random(700, 2000, 3)
    options: dict[str, Any] = {"ranks": ranks, "order": "degree", "backend": "cpu", "keep_edges": keep_edges}
    with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, **options) as graph:
        standin.install(monkeypatch, mapped=True)
        own_words = on_gpus.OwnWords
        monkeypatch.setattr(on_gpus, "OwnWords", lambda words, owner: own_words(words.view(standin.Array), owner))
        monkeypatch.setattr(graph, "exchange", "cuda_ipc")
        yield graph


def no_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation._Check, "_run", lambda *_, **__: pytest.fail("tasks were submitted"))


@pytest.mark.parametrize("predecessors", [False, True])
@pytest.mark.parametrize("max_depth", [None, 2])
def test_right_labels_take_no_task(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, max_depth: int | None, predecessors: bool
) -> None:
    result = graph.bfs(5, predecessors=predecessors, max_depth=max_depth)
    with monkeypatch.context() as by_tasks:
        by_tasks.setattr(graph, "exchange", "shared_memory")
        expected = dbfs.validate(graph, result)
    no_tasks(monkeypatch)
    assert dbfs.validate(graph, result) == expected


def spoil(place: KeptLabels, row: int | None, distance: int, dask_worker: distributed.Worker) -> None:
    """Set the distance of a row, or add to those of all reached rows but sources."""
    kept = dask_worker.plugins["dbfs"].kept_labels(place.graph_id, place.run_id, place.index).distances
    if row is None:
        kept[kept > 0] += distance
    else:
        kept[row] = distance


def test_wrong_labels_are_named_by_the_tasks(client: distributed.Client, graph: Graph) -> None:
    result = graph.bfs(5, predecessors=True)
    vertex = int(result.vertices_at(2)[0])
    (position,) = graph.numbering.positions([vertex])
    owner = graph.gang.addresses[graph.stripe.owner(position)]
    client.run(spoil, result.label_location, graph.stripe.row(position), 1, workers=[owner])
    with pytest.raises(ValidationError, match="rule"):
        dbfs.validate(graph, result)


def test_labels_without_support_are_named_by_the_tasks(client: distributed.Client, graph: Graph) -> None:
    result = graph.bfs(5)
    client.run(spoil, result.label_location, None, 1, workers=list(graph.gang.addresses))
    with pytest.raises(ValidationError, match="rule"):
        dbfs.validate(graph, result)


def test_words_that_a_worker_dropped(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    result = graph.bfs(5, predecessors=True)
    expected = dbfs.validate(graph, result)
    monkeypatch.setattr(verdicts, "_MOST_VALIDATIONS", 0)
    monkeypatch.setattr(graph, "exchange", "cuda_ipc")
    monkeypatch.setattr(validation._Check, "_run", lambda *_, **__: expected)
    assert dbfs.validate(graph, result) is expected


def test_released_labels(graph: Graph) -> None:
    result = graph.bfs(5)
    result.release()
    with pytest.raises(ResultReleasedError):
        dbfs.validate(graph, result)
