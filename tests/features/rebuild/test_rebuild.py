"""Graphs that lost workers come back: whole, right, under their names, for all their clients."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import dask
import distributed
import numpy as np
import pytest
import scipy.sparse

import dbfs
from dbfs.assembly import Graph
from dbfs.cluster.gang import joined_workers
from dbfs.errors import (
    DeadlineExceededError,
    GraphLostError,
    InvalidOptionError,
    InvalidOptionTypeError,
    LabelsLostError,
    NameTakenError,
    NoWorkersError,
    OutputError,
    StaleRunError,
    WorkerLostError,
)
from dbfs.features.rebuild import rebuilding
from dbfs.features.rebuild.messages import BeginRebuild, EndRebuild, GiveUpRebuild, RebuildTask
from dbfs.service.client import ServiceClient
from dbfs_workers.base import folder as folder_module
from tests.support import oracle
from tests.support.losses import WORKERS, lose, replace_lost
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("leaves_nothing_behind")
ENDS = tuple(np.random.default_rng(7).integers(0, 400, (2, 900)))


def text_file(folder: Path, *, named: bool = False) -> str:
    """Write the edges, each with its ids as they are or as words; return the path."""
    word = "v{},v{}\n" if named else "{} {}\n"
    path = folder / ("edges.csv" if named else "edges.txt")
    path.write_text(
        "source,target\n" * named
        + "".join(word.format(*edge) for edge in zip(*(ends.tolist() for ends in ENDS), strict=True))
    )
    return str(path)


def one_sided_file(folder: Path) -> str:
    """Write a matrix that has most edges in both directions, and some in one; return the file's path."""
    path, (src, dst) = folder / "edges.npz", ENDS
    both = scipy.sparse.coo_array((np.ones(src.size), (src, dst)), (400, 400)).tocsr()
    both = both + scipy.sparse.coo_array((np.ones(src.size - 9), (dst[9:], src[9:])), (400, 400)).tocsr()
    scipy.sparse.save_npz(path, both.tocoo())
    return str(path)


def parquet_folder(folder: Path) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    where = folder / "table"
    where.mkdir()
    for part in range(4):
        source, target = (pa.array(ends[part::4]) for ends in ENDS)
        pq.write_table(pa.table({"source": source, "target": target}), where / f"{part}.parquet", row_group_size=50)
    return str(where)


def saved(client: distributed.Client, folder: Path, **options: Any) -> str:
    where = str(folder / "saved")
    with dbfs.load(text_file(folder), client=client, **options) as graph:
        graph.save(where)
    return where


SOURCES: dict[str, Callable[[distributed.Client, Path], tuple[Any, dict[str, Any]]]] = {
    "generator": lambda client, folder: ("kronecker:scale=9", {}),
    "generator by degree": lambda client, folder: ("kronecker:scale=9", {"order": "degree"}),
    "generator by distance": lambda client, folder: ("grid2d:side=12", {"order": "bfs"}),
    "generator by auto": lambda client, folder: ("kronecker:scale=9", {"order": "auto", "traversals": 10**9}),
    "checkpoint by auto": lambda client, folder: (
        ENDS,
        {"order": "auto", "traversals": 10**9, "checkpoint": folder / "checkpoint"},
    ),
    "file": lambda client, folder: (text_file(folder), {}),
    "file of names": lambda client, folder: (text_file(folder, named=True), {}),
    "directed file": lambda client, folder: (text_file(folder), {"directed": True, "in_edges": True}),
    "kept edges": lambda client, folder: (text_file(folder), {"keep_edges": True}),
    "kept edges by degree": lambda client, folder: (
        text_file(folder, named=True),
        {"keep_edges": True, "order": "degree", "directed": True},
    ),
    "parquet": lambda client, folder: (parquet_folder(folder), {}),
    "saved": lambda client, folder: (saved(client, folder), {}),
    "saved of fewer ranks": lambda client, folder: (saved(client, folder, ranks=2), {}),
    "saved by degree": lambda client, folder: (saved(client, folder, order="degree", keep_edges=True), {}),
    "file that lacks reverses": lambda client, folder: (one_sided_file(folder), {"directed": False}),
    "grid": lambda client, folder: ("kronecker:scale=9", {"layout": "2d"}),
    "mutable": lambda client, folder: ("kronecker:scale=9", {"mutable": True}),
    "checkpoint": lambda client, folder: (ENDS, {"checkpoint": folder / "checkpoint"}),
    "checkpoint of names": lambda client, folder: (
        [(f"a{u}", f"b{v}") for u, v in zip(*ENDS, strict=True)],
        {"checkpoint": folder / "checkpoint", "directed": True},
    ),
}
OFTEN = {"file of names", "saved by degree", "grid", "checkpoint of names"}
"""The sources of the first size."""
STAND = {name for name in SOURCES if name not in ("grid", "mutable")}


def answers(graph: Graph) -> tuple[Any, ...]:
    """Return what callers get of a graph, in ids."""
    ids = graph.ids().tolist()[:5]
    found = graph.bfs(ids[1], predecessors=True, validate=True)
    return ids, found.to_dict(), [graph.neighbors(each) for each in ids], graph.n, graph.m, graph.input_edges


@pytest.mark.matrix
@pytest.mark.parametrize("rank", range(WORKERS))
@pytest.mark.parametrize(
    "source", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.full) for name in SOURCES]
)
def test_a_lost_rank_comes_back_and_the_others_stand(
    mortal: distributed.Client, tmp_path: Path, source: str, rank: int
) -> None:
    edges, options = SOURCES[source](mortal, tmp_path)
    with dbfs.load(edges, client=mortal, name="web", **options) as graph:
        before, keys, others = answers(graph), graph.record.partition_keys, dbfs.open("web", client=mortal)
        order, n_local = graph.order, graph.stripe.n_local
        infos = graph.record.infos
        lose(mortal, graph.gang.addresses[rank])
        assert answers(graph) == before
        # Another object of the graph follows.
        assert answers(others) == before
        now = graph.record.partition_keys
        assert [old == new for old, new in zip(keys, now, strict=True)] == [
            source in STAND and other != rank for other in range(WORKERS)
        ]
        state = graph.state()
        built = [rank] if source in STAND else range(WORKERS)
        assert (state.state, state.lost, state.rebuilt) == ("whole", (), 1)
        assert state.bytes_built == sum(infos[other].nbytes for other in built)
        assert graph.stripe.n_local == n_local
        if order is not None:
            assert np.array_equal(graph.order.vertex, order.vertex)
        assert [status.name for status in dbfs.graphs(client=mortal)] == ["web"]


CALLS = (
    *("bfs", "bfs_many", "bfs_batch", "neighbors", "ids", "degree_counts", "components", "sample_sources", "contains"),
    *("closeness_centrality", "betweenness_centrality"),
)


@pytest.mark.parametrize(
    "call",
    [
        call if call in ("bfs_many", "bfs_batch", "neighbors") else pytest.param(call, marks=pytest.mark.full)
        for call in CALLS
    ],
)
def test_any_call_brings_a_graph_back(mortal: distributed.Client, tmp_path: Path, call: str) -> None:
    def made(graph: Graph) -> Any:
        match call:
            case "bfs":
                return graph.bfs("v1").to_dict()
            case "bfs_many":
                return [result.to_dict() for result in graph.bfs_many(["v1", "v2"])]
            case "bfs_batch":
                return graph.bfs_batch(["v1", "v2"], keep="distances").distances().tolist()
            case "ids":
                return graph.ids_of([0, 1]).tolist()
            case "degree_counts":
                return [part.tolist() for part in graph.degree_counts()]
            case "components":
                return graph.components().count
            case "closeness_centrality" | "betweenness_centrality":
                return getattr(graph, call)(["v1", "v2", "v3"]).to_pandas().round(9).to_dict()
            case "sample_sources":
                return graph.sample_sources(3)
            case "contains":
                return "v1" in graph, "w" in graph
        return getattr(graph, call)("v1")

    with dbfs.load(text_file(tmp_path, named=True), client=mortal) as graph:
        before = made(graph)
        lose(mortal, graph.gang.addresses[1], graph.gang.addresses[2])
        assert made(graph) == before


def test_results_say_that_their_labels_are_lost_and_are_recomputed(mortal: distributed.Client) -> None:
    with dbfs.load("kronecker:scale=9", client=mortal, name="web") as graph:
        unread, read, published = graph.bfs(1), graph.bfs(1), graph.bfs(1)
        stale = dbfs.open("web", client=mortal)
        of_stale = stale.bfs(1)
        distances = read.distances()
        published.publish()
        lose(mortal, graph.gang.addresses[1])
        for result in (unread, of_stale):
            with pytest.raises(LabelsLostError, match=f"labels of run {result.run_id} are lost.*recompute"):
                result.distances()
        assert np.array_equal(graph.bfs(1).distances(), distances)
        for result in (unread, published, read, of_stale):
            with pytest.raises(LabelsLostError, match="recompute"):
                result.to_dict()
            assert result.recompute() is result
            assert np.array_equal(result.distances(), distances)
        # Counts need no label.
        assert unread.reached == np.count_nonzero(distances >= 0)
        unread.release()


def test_runs_begin_again_as_often_as_configured(mortal: distributed.Client) -> None:
    with dbfs.load("kronecker:scale=9", client=mortal) as graph:
        assert graph.bfs(1).attempts == 1
        before = graph.bfs(1).to_dict()
        lose(mortal, graph.gang.addresses[2])
        with dask.config.set({"dbfs.retries": 0}), pytest.raises(WorkerLostError, match="lost rank 2"):
            graph.bfs(1)
        assert graph.state().state == "lost"
        again = graph.bfs(1)
        assert (again.attempts, again.to_dict()) == (2, before)


def test_two_clients_build_once(mortal: distributed.Client) -> None:
    with distributed.Client(mortal.scheduler.address, set_as_default=False) as second:
        with dbfs.load("kronecker:scale=9", client=mortal, name="web") as graph:
            objects = [graph, dbfs.open("web", client=second), dbfs.open("web", client=second)]
            before, found = graph.bfs(1).to_dict(), list[Any]()
            lose(mortal, graph.gang.addresses[0])
            threads = [
                threading.Thread(target=lambda each=each: found.append(each.bfs(1).to_dict())) for each in objects
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert found == [before] * 3
            assert graph.state().rebuilt == 1


def test_a_client_that_leaves_in_a_rebuild_is_followed_by_another(mortal: distributed.Client) -> None:
    with dbfs.load("kronecker:scale=9", client=mortal, name="web") as graph:
        before = graph.bfs(1).to_dict()
        with distributed.Client(mortal.scheduler.address, set_as_default=False) as second:
            lose(mortal, graph.gang.addresses[0])
            service = ServiceClient.of(second)
            task = service.call(BeginRebuild(graph.record.graph_id, second.id, 5.0, 60.0))
            assert isinstance(task, RebuildTask)
            waits = ServiceClient.of(mortal).call(BeginRebuild(graph.record.graph_id, mortal.id, 5.0, 60.0))
            assert isinstance(waits, str)
            assert second.id in waits
            assert graph.state().state == "rebuilding"
            with pytest.raises(NameTakenError, match="being built"):
                dbfs.load("path:n=9", client=mortal, name="web", replace=True)
            with pytest.raises(DeadlineExceededError, match="again"):
                graph.bfs(1, deadline=1.0)
        assert graph.bfs(1).to_dict() == before


def test_a_client_that_takes_too_long_is_followed_by_another(mortal: distributed.Client) -> None:
    with dbfs.load("kronecker:scale=9", client=mortal) as graph:
        before = graph.bfs(1).to_dict()
        lose(mortal, graph.gang.addresses[0])
        task = ServiceClient.of(mortal).call(BeginRebuild(graph.record.graph_id, mortal.id, 5.0, 0.5))
        assert isinstance(task, RebuildTask)
        assert graph.bfs(1).to_dict() == before
        # What comes late changes nothing.
        with pytest.raises(StaleRunError, match="is over"):
            ServiceClient.of(mortal).call(EndRebuild(task.record, 1, 5.0))
        assert graph.bfs(1).to_dict() == before


def test_a_worker_that_is_lost_in_a_rebuild(mortal: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new one, and then one that stood."""
    build, victims = rebuilding.build, [1, 0]

    def losing(edges: Any, gang: Any, *arguments: Any) -> Any:
        if victims:
            lose(mortal, gang.addresses[victims.pop(0)])
        return build(edges, gang, *arguments)

    with dbfs.load("kronecker:scale=9", client=mortal) as graph:
        before = graph.bfs(1).to_dict()
        lose(mortal, graph.gang.addresses[1])
        monkeypatch.setattr(rebuilding, "build", losing)
        # Dask tries half a minute to connect to a worker that has gone, unless it is told otherwise.
        with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
            assert graph.bfs(1).to_dict() == before
        assert not victims
        assert graph.state().rebuilt == 1


def test_a_worker_that_is_lost_after_the_build(mortal: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its partition is lost before the gang is formed."""
    build, lost = rebuilding.build, list[str]()

    def losing(edges: Any, gang: Any, *arguments: Any) -> Any:
        built = build(edges, gang, *arguments)
        if not lost:
            lost.append(gang.addresses[1])
            lose(mortal, *lost)
        return built

    with dbfs.load("kronecker:scale=9", client=mortal) as graph:
        before = graph.bfs(1).to_dict()
        lose(mortal, graph.gang.addresses[1])
        monkeypatch.setattr(rebuilding, "build", losing)
        assert graph.bfs(1).to_dict() == before


def test_a_source_that_was_changed_is_refused(mortal: distributed.Client, tmp_path: Path) -> None:
    path = text_file(tmp_path)
    with dbfs.load(path, client=mortal, name="web") as graph:
        before = Path(path).read_text()
        lose(mortal, graph.gang.addresses[1])
        Path(path).write_text(before.replace(" 1\n", " 2\n"))
        for each in (graph, dbfs.open("web", client=mortal)):
            with pytest.raises(GraphLostError, match=f"lost rank 1 .*source was changed since it was read, {path}"):
                each.bfs(1)
        assert graph.state().state == "lost"
        assert "was changed" in graph.state().why
        # Its name can be taken.
        with dbfs.load(path, client=mortal, name="web", replace=True) as new:
            assert new.bfs(1, validate=True).reached


def test_a_generator_that_makes_other_edges_is_refused(
    mortal: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of another release might."""
    from dbfs.features.rebuild.lineage import Lineage

    with dbfs.load("path:n=90", client=mortal) as graph:
        lose(mortal, graph.gang.addresses[1])
        monkeypatch.setattr(Lineage, "opened", lambda *_: dbfs.star(90))
        with pytest.raises(GraphLostError, match="has other edges or columns than when it was read"):
            graph.bfs(1)


def test_edges_of_a_clients_memory_are_lost(mortal: distributed.Client) -> None:
    with dbfs.load(ENDS, client=mortal) as graph:
        lose(mortal, graph.gang.addresses[1])
        for _ in range(2):
            with pytest.raises(GraphLostError, match="came from a client's memory.*checkpoint="):
                graph.bfs(1)
        assert not graph.state().can_return


def test_a_graph_that_shall_not_come_back(mortal: distributed.Client) -> None:
    with dbfs.load("path:n=90", client=mortal, rebuild="never") as graph:
        lose(mortal, graph.gang.addresses[1])
        with pytest.raises(GraphLostError, match="rebuild='never'"):
            graph.bfs(1)


def test_what_is_left_of_a_graph_is_unloaded_by_its_name(mortal: distributed.Client) -> None:
    loaded = dbfs.load(ENDS, client=mortal, name="pairs")
    lose(mortal, loaded.gang.addresses[1])
    left = dbfs.open("pairs", client=mortal)
    with pytest.raises(GraphLostError, match="came from a client's memory"):
        left.bfs(1)
    left.unload()
    assert dbfs.graphs(client=mortal) == []
    assert set(mortal.run(lambda dask_worker: len(dask_worker.plugins["dbfs"].members)).values()) == {0}


def test_a_graph_that_was_updated_does_not_come_back_by_its_source(mortal: distributed.Client) -> None:
    with dbfs.load("path:n=90", client=mortal, mutable=True) as graph:
        graph.insert_edges([(0, 89)])
        lose(mortal, graph.gang.addresses[1])
        with pytest.raises(GraphLostError, match="version 1 of it, which its source does not have"):
            graph.bfs(1)


def test_an_update_of_a_lost_graph_is_made_once(mortal: distributed.Client) -> None:
    with dbfs.load("path:n=90", client=mortal, mutable=True) as graph:
        lose(mortal, graph.gang.addresses[1])
        assert graph.insert_edges([(0, 89)]).version == 1
        assert graph.bfs(0, validate=True).depth == 45


@pytest.mark.parametrize("ranks", [2, *(pytest.param(ranks, marks=pytest.mark.full) for ranks in (1, 5))])
def test_a_graph_is_spread_over_more_or_fewer_workers(mortal: distributed.Client, tmp_path: Path, ranks: int) -> None:
    replace_lost(mortal, 5)
    try:
        with dbfs.load(text_file(tmp_path, named=True), client=mortal, name="web", ranks=3, keep_edges=True) as graph:
            stale, before, result = dbfs.open("web", client=mortal), answers(graph), graph.bfs("v1")
            result.publish()
            ended, found = threading.Event(), list[Any]()

            def traverse() -> None:
                while not ended.is_set():
                    found.append(stale.bfs("v1").reached)

            thread = threading.Thread(target=traverse)
            thread.start()
            eventually(lambda: found)
            graph.rebalance(ranks=ranks)
            count = len(found)
            eventually(lambda: len(found) > count)
            ended.set()
            thread.join()
            assert {*found} == {result.reached}
            assert (graph.ranks, stale.ranks) == (ranks, ranks)
            assert answers(graph) == answers(stale) == before
            # A reader of old stripes would read them as new ones.
            with pytest.raises(LabelsLostError):
                result.distances()
    finally:
        spare = sorted(joined_workers(mortal))[WORKERS:]
        lose(mortal, *spare, replaced=False)


def test_a_graph_that_can_not_be_spread(mortal: distributed.Client) -> None:
    with dbfs.load("path:n=90", client=mortal) as graph, dbfs.load(ENDS, client=mortal) as other:
        with pytest.raises(NoWorkersError, match="9 ranks need as many workers, and the cluster has 3"):
            graph.rebalance(ranks=9)
        with pytest.raises(InvalidOptionError, match="a client's memory"):
            other.rebalance(ranks=2)
        with pytest.raises(InvalidOptionTypeError):
            graph.rebalance(ranks=2.5)  # type: ignore[arg-type]
        with pytest.raises(InvalidOptionError):
            graph.rebalance(ranks=0)
        assert graph.bfs(0).depth == 89
        assert other.bfs(1, validate=True).reached


def test_fewer_workers_than_ranks(mortal: distributed.Client) -> None:
    with dbfs.load("kronecker:scale=9", client=mortal, order="degree") as graph:
        before = graph.bfs(1).to_dict()
        lose(mortal, graph.gang.addresses[0], replaced=False)
        with dask.config.set({"dbfs.rebuild-wait": "200 ms"}):
            assert graph.bfs(1, validate=True).to_dict() == before
        assert (graph.ranks, graph.state().state) == (2, "whole")


def test_all_workers_lost(mortal: distributed.Client) -> None:
    with dbfs.load("kronecker:scale=9", client=mortal) as graph:
        before = graph.bfs(1).to_dict()
        lose(mortal, *graph.gang.addresses)
        assert graph.bfs(1, validate=True).to_dict() == before
        lose(mortal, *graph.gang.addresses, replaced=False)
        with pytest.raises(DeadlineExceededError, match="waits for 3 workers: lost rank 0"):
            graph.bfs(1, deadline=1.5)
        replace_lost(mortal, WORKERS)
        assert graph.bfs(1).to_dict() == before


def test_a_graph_comes_back_at_once(mortal: distributed.Client) -> None:
    with dbfs.load("kronecker:scale=9", client=mortal, rebuild="eager") as graph:
        before = graph.bfs(1).to_dict()
        for count in (1, 2):
            lose(mortal, graph.gang.addresses[0])
            eventually(lambda count=count: graph.state().rebuilt == count)
            assert graph.bfs(1).to_dict() == before


def test_a_checkpoint_of_another_graph_or_of_none(mortal: distributed.Client, tmp_path: Path) -> None:
    with dbfs.load(ENDS, client=mortal, checkpoint=tmp_path / "kept"):
        with pytest.raises(InvalidOptionError, match="has a graph already"):
            dbfs.load("path:n=9", client=mortal, checkpoint=tmp_path / "kept")
    for options in ({"rebuild": "never"}, {"rebuild": "sometimes"}):
        with pytest.raises(InvalidOptionError):
            dbfs.load("path:n=9", client=mortal, checkpoint=tmp_path / "other", **options)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises((OutputError, dbfs.errors.FormatError)):
        dbfs.load("path:n=9", client=mortal, checkpoint=tmp_path / "file")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("files", [0, 2])
def test_the_disk_of_a_checkpoint_is_full(
    mortal: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    sync, synced = folder_module._sync, list[None]()

    def full(raw: IO[bytes]) -> None:
        synced.append(None)
        if len(synced) > files:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(raw)

    monkeypatch.setattr(folder_module, "_sync", full)
    with pytest.raises(OutputError, match="No space left"):
        dbfs.load(ENDS, client=mortal, name="web", checkpoint=tmp_path / "kept")
    assert len(synced) > files
    assert dbfs.graphs(client=mortal) == []
    assert not list((tmp_path / "kept").glob("*"))


def test_a_checkpoint_that_is_gone_or_damaged(mortal: distributed.Client, tmp_path: Path) -> None:
    with dbfs.load(ENDS, client=mortal, checkpoint=tmp_path / "kept") as graph:
        (victim,) = (tmp_path / "kept").glob("rank-1-*")
        content = bytearray(victim.read_bytes())
        content[len(content) // 2] ^= 1
        victim.write_bytes(content)
        lose(mortal, graph.gang.addresses[1])
        with pytest.raises(GraphLostError, match="was changed"):
            graph.bfs(1)


def test_an_asynchronous_client(mortal: distributed.Client) -> None:
    async def calls() -> None:
        async with distributed.Client(mortal.scheduler.address, asynchronous=True, set_as_default=False) as own:
            async with await dbfs.load("kronecker:scale=9", client=own) as graph:
                result = await graph.bfs(1)
                before = await result.to_dict()
                await asyncio.to_thread(lose, mortal, graph.gang.addresses[1])
                again = await graph.bfs(1)
                assert (await again.to_dict(), again.attempts) == (before, 2)
                with pytest.raises(LabelsLostError):
                    await result.distances()
                assert await (await result.recompute()).to_dict() == before
                await graph.rebalance(ranks=2)
                assert (graph.ranks, (await graph.state()).rebuilt) == (2, 2)
                assert await (await graph.bfs(1)).to_dict() == before

    asyncio.run(calls())


def test_a_name_of_a_lost_graph_is_opened(mortal: distributed.Client) -> None:
    graph = dbfs.load("kronecker:scale=9", client=mortal, name="web")
    before = graph.bfs(1).to_dict()
    lose(mortal, graph.gang.addresses[1])
    opened = dbfs.open("web", client=mortal)
    assert opened.bfs(1).to_dict() == before
    # By the object of before, whose graph has another id by now.
    graph.unload()
    with pytest.raises(dbfs.errors.GraphNotFoundError):
        opened.bfs(1)


def test_what_a_client_gives_up_can_be_begun_anew(mortal: distributed.Client) -> None:
    with dbfs.load("kronecker:scale=9", client=mortal) as graph:
        lose(mortal, graph.gang.addresses[1])
        service = ServiceClient.of(mortal)
        for _ in range(3):
            task = service.call(BeginRebuild(graph.record.graph_id, mortal.id, 5.0, 60.0))
            assert isinstance(task, RebuildTask)
            assert task.lost == (1,)
            service.call(GiveUpRebuild(task.rebuild_id, "by the test"))
        src, dst = (
            np.concatenate(ends) for ends in zip(*(p.read() for p in dbfs.kronecker(9).cut(1 << 20)), strict=True)
        )
        matrix = oracle.adjacency(graph.n, src, dst, directed=False)
        assert np.array_equal(graph.bfs(1).distances(), oracle.distances(matrix, [1]))


@pytest.mark.parametrize("options", [pytest.param({}, marks=pytest.mark.full), {"order": "degree", "keep_edges": True}])
def test_a_retired_workers_data_moves_before_it_goes(
    mortal: distributed.Client, tmp_path: Path, options: dict[str, Any]
) -> None:
    """A rolling upgrade: the next worker is there before the last one goes, and nothing is read again."""
    path = text_file(tmp_path, named=True)
    with dbfs.load(path, client=mortal, name="web", **options) as graph:
        before, stale = answers(graph), dbfs.open("web", client=mortal)
        Path(path).unlink()
        for rank in range(WORKERS):
            replace_lost(mortal, WORKERS + 1)
            mortal.retire_workers([graph.gang.addresses[rank]])
            eventually(lambda: len(joined_workers(mortal)) == WORKERS)
            assert answers(graph) == answers(stale) == before
        assert graph.state().rebuilt == WORKERS


def test_a_retired_worker_whose_place_nobody_takes(mortal: distributed.Client) -> None:
    with dbfs.load("kronecker:scale=9", client=mortal) as graph:
        before = graph.bfs(1).to_dict()
        mortal.retire_workers([graph.gang.addresses[1]])
        eventually(lambda: len(joined_workers(mortal)) == WORKERS - 1)
        with dask.config.set({"dbfs.rebuild-wait": "200 ms"}):
            assert graph.bfs(1, validate=True).to_dict() == before
        assert graph.ranks == WORKERS - 1


def test_a_worker_that_comes_back_at_the_same_address(mortal: distributed.Client) -> None:
    """Connections and messages of before mean another process there (distributed#7798)."""
    with dbfs.load("kronecker:scale=9", client=mortal) as graph:
        before = graph.bfs(1).to_dict()
        for _ in range(2):
            address = graph.gang.addresses[1]
            lose(mortal, address, replaced=False)
            replace_lost(mortal, WORKERS, port=int(address.rpartition(":")[2]))
            assert address in joined_workers(mortal)
            assert graph.bfs(1, validate=True).to_dict() == before
            assert address in graph.gang.addresses
