"""Validation on a GPU against the CPU's verdicts, and on clusters whose edges and labels lie on GPUs."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dask
import distributed
import numpy as np
import pytest

import dbfs
from dbfs.errors import ValidationError
from dbfs.features.validation import validate
from dbfs_workers.features.validation import validation
from dbfs_workers.features.validation.verdict import Rule, Verdict
from dbfs_workers.serving.reads.messages import KeptLabels
from tests.support.gpus import needs_gpu
from tests.support.graphs import GRAPHS, random
from tests.support.validation import EDGES, MUTATIONS, Setting, right_labels

pytestmark = needs_gpu("cupy", "dask_cuda")


@pytest.fixture(scope="module")
def gpu() -> Iterator[distributed.Client]:
    with dbfs.connect(n_workers=1, backend="cuda", dashboard_address=None, memory_limit=0) as client:
        yield client


def told(verdict: Verdict) -> tuple[object, ...]:
    """All but which of several edges was met first."""
    violations = [
        (found.rule, found.ranks, found.count, None if found.rule in (Rule.SPAN, Rule.COMPONENT) else found.vertices)
        for found in verdict.violations
    ]
    return violations, verdict.edges, verdict.component_edges


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("ranks", [1, 3])
def test_verdicts_are_those_of_the_cpu(ranks: int, directed: bool, edges: str) -> None:
    import cupy

    on_cpu = Setting(*GRAPHS["two components"](), ranks, directed, edges)
    on_gpu = replace(on_cpu, xp=cupy)
    for mutate in (None, *MUTATIONS):
        distances, parents = right_labels(on_cpu, [0])
        if mutate is not None:
            mutate(distances, parents)
        for given in ((distances, parents), (distances, None)):
            assert told(on_gpu.verdict(*given)) == told(on_cpu.verdict(*given)), mutate
    distances, parents = right_labels(on_cpu, [0])
    parents[[10, 31]] = 11, 5
    for farthest in (None, 31, 30):
        found = on_gpu.verdict(distances, parents, farthest=farthest)
        assert told(found) == told(on_cpu.verdict(distances, parents, farthest=farthest))


@pytest.mark.parametrize("edges", EDGES)
def test_blocks_and_many_wrong_labels(monkeypatch: pytest.MonkeyPatch, edges: str) -> None:
    import cupy

    monkeypatch.setattr(validation, "DEVICE_BLOCK_EDGES", 4096)
    for ranks, directed in itertools.product((1, 2), (False, True)):
        on_cpu = Setting(*random(3000, 20_000, 9), ranks, directed, edges)
        on_gpu = replace(on_cpu, xp=cupy)
        distances, parents = right_labels(on_cpu, [1])
        generator = np.random.default_rng(3)
        for share in (0.0, 0.001, 0.5):
            changed = generator.random(3000) < share
            distances[changed] += generator.integers(-1, 3, int(changed.sum()))
            parents[changed] = generator.integers(0, 3000, int(changed.sum()))
            for given in ((distances, parents), (distances, None)):
                assert told(on_gpu.verdict(*given, sources=(1,))) == told(on_cpu.verdict(*given, sources=(1,)))


@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("keep_edges", [False, True])
@pytest.mark.parametrize("ranks", [1, 4])
def test_results_and_labels_on_a_cluster(
    gpu: distributed.Client, sharing: distributed.Client, ranks: int, keep_edges: bool, order: str
) -> None:
    client = gpu if ranks == 1 else sharing
    edges = dbfs.kronecker(12)
    with dask.config.set({"dbfs.build.gpu-piece-edges": 9999}):
        graph = dbfs.load(edges, client=client, ranks=ranks, keep_edges=keep_edges, order=order, backend="cuda")
    with graph:
        assert graph.backend == "cuda"
        for engine in ("resident", "taskgraph"):
            result = graph.bfs(1, predecessors=True, engine=engine)
            found = dbfs.validate(graph, result)
            assert found.of_input == keep_edges
            assert found.edges == (edges.m if keep_edges else graph.m)
            assert dbfs.validate(graph, graph.bfs(1, engine=engine)) == found
            distances, parents = result.distances(), result.predecessors()
            assert dbfs.validate(graph, result) == found
            assert dbfs.validate(graph, dbfs.Labels([1], predecessors=parents)) == found
            wrong = int(np.flatnonzero(distances == 2)[7])
            distances[wrong] = 3
            with pytest.raises(ValidationError, match=rf"rule 2: .*: vertices {wrong}, "):
                dbfs.validate(graph, dbfs.Labels([1], distances, parents))


@pytest.mark.parametrize("keep_edges", [False, True])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_map_the_words_of_one_another(
    sharing: distributed.Client, monkeypatch: pytest.MonkeyPatch, ranks: int, keep_edges: bool
) -> None:
    """Ranks of several processes on one GPU, where no resident kernel runs, validate as those on GPUs of their own."""
    edges = dbfs.kronecker(12)
    call, answers = validate._Check._call, list[object]()

    def recorded(check: Any, message: Any) -> Any:
        try:
            answers.append(call(check, message))
        except Exception as error:
            answers.append(error)
            raise
        return answers[-1]

    def submitted(*_: Any, **__: Any) -> None:
        pytest.fail(f"tasks were submitted; the ranks' calls gave {answers}")

    with dbfs.load(edges, client=sharing, ranks=ranks, keep_edges=keep_edges, order="degree", backend="cuda") as graph:
        result = graph.bfs(1, predecessors=True)
        by_tasks = dbfs.validate(graph, result)
        monkeypatch.setattr(graph, "exchange", "cuda_ipc")
        with monkeypatch.context() as without_tasks:
            without_tasks.setattr(validate._Check, "_call", recorded)
            without_tasks.setattr(validate._Check, "_run", submitted)
            assert dbfs.validate(graph, result) == by_tasks
            assert dbfs.validate(graph, graph.bfs(1)) == by_tasks
        sharing.run(_spoil, result.label_location, workers=[graph.gang.addresses[ranks - 1]])
        with pytest.raises(ValidationError, match="rule"):
            dbfs.validate(graph, result)


def _spoil(place: KeptLabels, dask_worker: distributed.Worker) -> None:
    distances = dask_worker.plugins["dbfs"].kept_labels(place.graph_id, place.run_id, place.index).distances
    distances[distances == 2] += 1


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_benchmark(gpu: distributed.Client, sharing: distributed.Client, ranks: int) -> None:
    client = gpu if ranks == 1 else sharing
    on_gpu = dbfs.graph500(11, roots=5, client=client, ranks=ranks, backend="cuda")
    assert (on_gpu.backend, on_gpu.ranks) == ("cuda", ranks)
    on_cpu = dbfs.graph500(11, roots=5, client=client, ranks=ranks, backend="cpu")
    assert [(one.key, one.edges) for one in on_gpu.searches] == [(one.key, one.edges) for one in on_cpu.searches]
