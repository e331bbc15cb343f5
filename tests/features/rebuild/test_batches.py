"""Batches and measures go on after a loss: what is finished and needs no worker is not made again."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import distributed
import networkx as nx
import numpy as np
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import LabelsLostError, WorkerLostError
from dbfs.features.batches import batch, sweeps
from dbfs.graph.striped import StripedGraph
from tests.support.losses import lose

pytestmark = pytest.mark.usefixtures("leaves_nothing_behind")
# How a batch makes its runs.
FINISHED: Any = vars(batch)["finished"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs of one group of 64 sources; the number of groups that each run was given."""
    runs = list[int]()

    def counted(graph: Graph, runner: Any, run: Any, progress: Any) -> Any:
        runs.append(len(run))
        return FINISHED(graph, runner, run, progress)

    monkeypatch.setattr(batch, "finished", counted)
    for module in (batch, sweeps):
        monkeypatch.setattr(module, "MOST_SOURCES", 64)
    return runs


def losing(mortal: distributed.Client, monkeypatch: pytest.MonkeyPatch, after: int) -> list[str]:
    """Have runs lose a worker once, after so many groups."""
    finished: Any = vars(batch)["finished"]
    lost = list[str]()

    def breaking(graph: Graph, *arguments: Any) -> Any:
        for number, each in enumerate(finished(graph, *arguments), 1):
            yield each
            if number == after and not lost:
                lost.append(graph.gang.addresses[1])
                lose(mortal, *lost)
                raise WorkerLostError("lost rank 1, by the test")

    monkeypatch.setattr(batch, "finished", breaking)
    return lost


def test_a_batch_goes_on_after_its_finished_groups(
    mortal: distributed.Client, monkeypatch: pytest.MonkeyPatch, made: list[int]
) -> None:
    sources = np.random.default_rng(5).permutation(512)[:250].tolist()
    with dbfs.load("kronecker:scale=9", client=mortal) as graph:
        before = graph.bfs_batch(sources)
        lost = losing(mortal, monkeypatch, 3)
        after = graph.bfs_batch(sources)
        assert lost
        assert made == [4, 4, 1]
        assert np.array_equal(after.counts, before.counts)
        assert (after.edges, after.depth, after.groups) == (before.edges, before.depth, 4)
        # Distances are striped, so those of the finished groups are lost too.
        lost.clear()
        kept = graph.bfs_batch(sources, keep="distances")
        assert lost
        assert made[3:] == [4, 4]
        kept.validate()


MEASURES: dict[str, tuple[Callable[[Graph], Any], Callable[[nx.Graph], Any], list[int]]] = {
    # The first run finds an order of the sources. The third one is lost, and for sums over sources made again.
    "closeness": (lambda graph: graph.closeness_centrality(), nx.closeness_centrality, [1, 3, 1, 1]),
    "betweenness": (lambda graph: graph.betweenness_centrality(), nx.betweenness_centrality, [1] * 6),
    "edges": (
        lambda graph: graph.edge_betweenness_centrality(),
        lambda network: {(min(edge), max(edge)): of for edge, of in nx.edge_betweenness_centrality(network).items()},
        [1] * 6,
    ),
}


@pytest.mark.parametrize("replaced", [True, False])
@pytest.mark.parametrize("measure", ["closeness", "betweenness", pytest.param("edges", marks=pytest.mark.full)])
def test_a_measure_goes_on_after_its_finished_runs(
    mortal: distributed.Client,
    monkeypatch: pytest.MonkeyPatch,
    made: list[int],
    tmp_path: Path,
    measure: str,
    replaced: bool,
) -> None:
    """Where ranks are lost in a run, or before what they keep of it is read; also on fewer ranks."""
    network = nx.gnm_random_graph(200, 400, seed=3)
    network = nx.Graph(list(network.edges))
    call, expected, runs = MEASURES[measure]
    fetch, finished, lost = batch.BatchResult._fetch, vars(batch)["finished"], list[str]()

    def lose_one(graph: StripedGraph) -> None:
        if len(made) == 3 and not lost:
            lost.append(graph.gang.addresses[2])
            lose(mortal, *lost, replaced=replaced)

    def fetched(result: batch.BatchResult, label: str) -> Any:
        lose_one(result.graph)
        return fetch(result, label)

    def run(graph: Graph, *arguments: Any) -> Any:
        made_of = finished(graph, *arguments)
        if measure == "closeness":
            lose_one(graph)
        return made_of

    monkeypatch.setattr(batch.BatchResult, "_fetch", fetched)
    monkeypatch.setattr(batch, "finished", run)
    path = tmp_path / "edges.txt"
    path.write_text("".join(f"{source} {target}\n" for source, target in network.edges))
    with dask.config.set({"dbfs.rebuild-wait": "200 ms"}), dbfs.load(str(path), client=mortal) as graph:
        found = call(graph).to_dict()
        assert lost
        assert made == runs
        for key, value in expected(network).items():
            assert found[key] == pytest.approx(value)


def test_a_batch_says_that_it_is_lost_and_is_recomputed(mortal: distributed.Client) -> None:
    with dbfs.load("kronecker:scale=9", client=mortal, name="web") as graph:
        options: dict[str, Any] = {"keep": "distances", "targets": [5, 3, 5], "nearest": True, "max_depth": 2}
        result, moved = (graph.bfs_batch([7, 1, 4], **options) for _ in range(2))

        def answers() -> list[Any]:
            everything = result.distances(), result.target_distances(), *result.nearest(), result.counts
            return [np.asarray(each).tolist() for each in everything]

        before, sources, targets = answers(), result.sources, result.targets
        lose(mortal, graph.gang.addresses[1])
        with pytest.raises(LabelsLostError, match=f"kept of batch {result.run_id} is lost.*recompute"):
            result.distances()
        assert result.recompute() is result
        assert answers() == before
        assert (result.sources, result.targets) == (sources, targets)
        graph.rebalance(ranks=2)
        # A reader of old stripes would read them as new ones.
        for each in (result, moved):
            with pytest.raises(LabelsLostError, match="was built again since"):
                each.distances()
        assert (result.recompute().counts.tolist(), answers()) == (before[-1], before)


def test_an_asynchronous_batch_is_recomputed(mortal: distributed.Client) -> None:
    async def calls() -> None:
        async with distributed.Client(mortal.scheduler.address, asynchronous=True, set_as_default=False) as own:
            async with await dbfs.load("kronecker:scale=9", client=own) as graph:
                result = await graph.bfs_batch([1, 2], keep="distances")
                before = await result.distances()
                await asyncio.to_thread(lose, mortal, graph.gang.addresses[1])
                with pytest.raises(LabelsLostError):
                    await result.distances()
                again = await result.recompute()
                assert again.run_id != result.run_id
                assert np.array_equal(await again.distances(), before)

    asyncio.run(calls())
