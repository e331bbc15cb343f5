"""Asynchronous clients: every call returns an awaitable, a cancelled one ends its run, and nothing stays behind."""

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path

import dask
import distributed
import numpy as np
import pyarrow.parquet as pq
import pytest

import dbfs
from dbfs import asynchronous
from dbfs.cluster import awaiting
from dbfs.errors import (
    ClientError,
    GraphNotFoundError,
    InvalidVertexError,
    ResultReleasedError,
    RunCancelledError,
    ValidationError,
)
from tests.support.runs import ENDLESS
from tests.support.waiting import PATIENCE


def calls() -> list[threading.Thread]:
    """The threads of calls that are under way."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("dbfs-call")]


@contextlib.asynccontextmanager
async def connected(address: str) -> AsyncIterator[distributed.Client]:
    """An asynchronous client; afterwards no thread of its calls and no task is left in the loop."""
    before = asyncio.all_tasks()
    async with distributed.Client(address, asynchronous=True, set_as_default=False) as client:
        yield client
    # Dask's own tasks end a little later, and so does a thread whose result is there.
    await until(lambda: not calls() and asyncio.all_tasks() <= before)


async def until(met: Callable[[], bool]) -> None:
    """Wait until a condition is met."""
    for _ in range(int(PATIENCE / 0.05)):
        if met():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"not met within {PATIENCE} s")


async def names(client: distributed.Client, older: set[datetime]) -> list[str]:
    """Return the names of a cluster's graphs, without older graphs."""
    return [status.name for status in await asynchronous.graphs(client=client) if status.created not in older]


def test_the_same_calls_return_awaitables(
    client: distributed.Client, leaves_nothing: None, older: set[datetime]
) -> None:
    async def main() -> None:
        async with connected(client.scheduler.address) as there:
            async with await asynchronous.load("path:n=30", client=there, ranks=2, name="awaited") as graph:
                result = await graph.bfs(4, predecessors=True)
                np.testing.assert_array_equal(await result.distances(), np.abs(np.arange(30) - 4))
                assert await result.path_to(1) == [4, 3, 2, 1]
                assert (await dbfs.validate(graph, result)).component_edges == 29 * 2
                assert [one.depth async for one in graph.bfs_stream(range(5))] == [29, 28, 27, 26, 25]
                assert await names(there, older) == ["awaited"]
                assert await asynchronous.runs(client=there) == []
            assert graph.unloaded
            assert await names(there, older) == []

    asyncio.run(main())


@pytest.mark.full
def test_answers_are_those_of_a_synchronous_client(
    client: distributed.Client, tmp_path: Path, leaves_nothing: None, older: set[datetime]
) -> None:
    async def main() -> None:
        async with connected(client.scheduler.address) as there:
            await dbfs.install(there)
            edges = dbfs.kronecker(scale=8, edgefactor=4)
            async with await asynchronous.load(edges, client=there, name="awaited", order="degree") as graph:
                state = await asynchronous.cluster_state(client=there)
                assert [status.name for status in state.graphs if status.created not in older] == ["awaited"]
                await compare(graph, dbfs.open("awaited", client=client))
            assert (await asynchronous.graph500(8, roots=2, client=there, progress=False)).scale == 8

    async def compare(graph: dbfs.AsyncGraph, other: dbfs.Graph) -> None:
        source = (await graph.sample_sources(1))[0]
        result, wanted = await graph.bfs(source, predecessors=True), other.bfs(source, predecessors=True)
        distances = await result.distances()
        np.testing.assert_array_equal(distances, wanted.distances())
        assert (result.reached, result.depth, result.edges) == (wanted.reached, wanted.depth, wanted.edges)
        assert len(result.reports) == len(result.levels) == len(result.summary()["levels"])
        farthest = int(distances.argmax())
        assert len(await result.path_to(farthest)) == result.depth + 1
        assert farthest in await result.vertices_at(result.depth)
        assert (await result.vertices()).size == (await result.tree()).edges + 1 == result.reached
        assert (await result.to_dask_array()).size == graph.n == other.n
        frame = await result.to_pandas()
        assert frame["distance"].tolist() == [*(await result.to_dict()).values()]
        assert (await result.to_arrow()).num_rows == len(frame) == wanted.reached
        # A client that did not start the cluster writes where the configuration allows.
        with dask.config.set({"dbfs.write.folders": [str(tmp_path)]}):
            await result.to_parquet(tmp_path / "labels")
        assert pq.read_table(tmp_path / "labels").num_rows == wanted.reached
        assert (await result.to_dask_dataframe()).npartitions == graph.ranks
        parents = await result.predecessors()
        assert (await dbfs.validate(graph, result)).component_edges > 0
        parents[farthest] = farthest
        with pytest.raises(ValidationError):
            await dbfs.validate(graph, dbfs.Labels([source], distances, parents))
        await result.validate()
        await result.release()
        with pytest.raises(ResultReleasedError):
            await result.distances()

        near, wanted_near = await graph.khop(source, 1), other.khop(source, 1)
        np.testing.assert_array_equal(near, wanted_near)
        assert near.tolist() == list(near) == near.to_pandas()["vertex"].tolist()
        cut = await near.subgraph()
        assert cut.to_arrow().equals((await graph.subgraph(near.vertices)).to_arrow())
        assert cut.to_arrow().equals(wanted_near.subgraph().to_arrow())
        assert near.distances.size == len(near) == cut.n
        np.testing.assert_array_equal((await graph.components()).labels, other.components().labels)
        np.testing.assert_array_equal(await graph.degree_counts(), other.degree_counts())
        assert (await graph.eccentricity_bound(source)).lower >= result.depth
        marks = await graph.landmarks(2)
        assert (await marks.bounds(source, marks.ids[1]))[1].tolist() == [marks.distances[1, source]]
        wanted = other.distance_matrix([source], [0, 7])
        np.testing.assert_array_equal(await graph.distance_matrix([source], [0, 7]), wanted)
        assert (await graph.khop_sizes(1, source)).values.tolist() == [near.distances.size]
        assert (await graph.ids()).tolist() == list(range(graph.n))
        order = await graph.order
        assert order is not None
        np.testing.assert_array_equal(order.position[order.vertex], np.arange(graph.n))
        assert await graph.vertex(source) == await graph.id_of(source) == source
        assert [one.sources for one in await graph.bfs_many([source, 3])] == [(source,), (3,)]
        assert [one.sources[0] async for one in graph.bfs_stream(range(20))] == list(range(20))

    asyncio.run(main())


@pytest.mark.full
def test_an_error_keeps_no_results(client: distributed.Client) -> None:
    class Held:
        pass

    def fail(held: Held) -> None:
        raise ValueError(f"{held} is in this frame")

    failed: list[bool] = []

    async def main() -> None:
        async with connected(client.scheduler.address) as there:
            held = Held()
            seen = weakref.ref(held)
            # Not pytest.raises, which keeps the error and so the frame.
            try:
                await awaiting.in_thread(there, fail, held)
            except ValueError:
                failed.append(True)
            del held
            await until(lambda: seen() is None)

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()
    assert failed


def test_errors_keep_their_type_and_the_loop_never_blocks(client: distributed.Client) -> None:
    async def main() -> None:
        async with connected(client.scheduler.address) as there:
            with pytest.raises(GraphNotFoundError):
                await asynchronous.open("nowhere", client=there)
            async with await asynchronous.load("path:n=9", client=there) as graph:
                with pytest.raises(InvalidVertexError):
                    await graph.bfs(9)
                with pytest.raises(ClientError, match="await the call of an AsyncGraph"):
                    graph.synchronous.bfs(0)
                # Other threads of the program use the same client and graph synchronously.
                assert (await asyncio.to_thread(graph.synchronous.bfs, 0)).depth == 8

    asyncio.run(main())


@pytest.mark.full
@pytest.mark.parametrize("engine", ["resident", "taskgraph"])
@pytest.mark.parametrize("leased", [False, True], ids=["queue", "lease"])
def test_a_cancelled_awaitable_cancels_its_run(client: distributed.Client, engine: str, leased: bool) -> None:
    async def main() -> None:
        async with connected(client.scheduler.address) as there:
            async with await asynchronous.load(f"path:n={ENDLESS}", client=there, ranks=2) as graph:
                if leased:
                    await graph.bfs_many([0] * 4, max_depth=1)
                began = time.monotonic()
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(graph.bfs(0, engine=engine, direction="bottom-up"), 0.5)
                assert time.monotonic() - began < 10
                await until(lambda: not dbfs.runs(client=client))
                assert (await graph.bfs(0, max_depth=3)).reached == 4

    asyncio.run(main())


@pytest.mark.full
def test_a_run_cancelled_by_name_raises_its_own_error(client: distributed.Client) -> None:
    async def main() -> None:
        async with connected(client.scheduler.address) as there:
            async with await asynchronous.load(f"path:n={ENDLESS}", client=there, ranks=2) as graph:
                looks: list[int] = []
                running = asyncio.create_task(
                    graph.bfs(0, direction="bottom-up", progress=lambda look: looks.append(look.level))
                )
                await until(lambda: bool(looks))
                for run in await asynchronous.runs(client=there):
                    assert run.status.running
                    await run.cancel()
                with pytest.raises(RunCancelledError):
                    await running

    asyncio.run(main())


@pytest.mark.full
def test_a_cancelled_load_leaves_nothing(client: distributed.Client, leaves_nothing: None) -> None:
    async def main() -> None:
        async with connected(client.scheduler.address) as there:
            for seconds in (0.02, 0.1, 0.3, 0.6):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(asynchronous.load("kronecker:scale=20", client=there, name="cut"), seconds)
            await until(lambda: not dbfs.graphs(client=client))
            # The name is free again.
            await (await asynchronous.load("path:n=9", client=there, name="cut")).unload()

    asyncio.run(main())


@pytest.mark.full
def test_calls_beyond_the_most_threads_wait(client: distributed.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaiting, "MOST_THREADS", 3)

    async def main() -> None:
        async with connected(client.scheduler.address) as there:
            async with await asynchronous.load(f"path:n={ENDLESS}", client=there, ranks=2) as graph:
                running, most = [0], [0]
                lock = threading.Lock()

                def work() -> None:
                    with lock:
                        running[0] += 1
                        most[0] = max(most[0], running[0])
                    graph.synchronous.bfs(0, max_depth=100)
                    with lock:
                        running[0] -= 1

                await asyncio.gather(*(awaiting.in_thread(there, work) for _ in range(30)))
                assert most == [3]
                # One that waits for a thread never starts.
                endless = [asyncio.create_task(graph.bfs(0, direction="bottom-up")) for _ in range(5)]
                await until(lambda: len(dbfs.runs(client=client)) == 3)
                for task in endless:
                    task.cancel()
                assert {type(one) for one in await asyncio.gather(*endless, return_exceptions=True)} == {
                    asyncio.CancelledError
                }

    asyncio.run(main())


@pytest.mark.full
def test_two_event_loops(client: distributed.Client) -> None:
    depths: list[list[int]] = []

    async def main(vertices: int) -> None:
        async with distributed.Client(client.scheduler.address, asynchronous=True, set_as_default=False) as there:
            async with await asynchronous.load(f"path:n={vertices}", client=there, ranks=2) as graph:
                results = await asyncio.gather(*(graph.bfs(source) for source in range(20)))
                depths.append([result.depth for result in results])

    threads = [threading.Thread(target=lambda n=n: asyncio.run(main(n))) for n in (50, 60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(depths) == [[n - 1 - source for source in range(20)] for n in (50, 60)]


@pytest.mark.full
def test_a_stream_abandoned_halfway(client: distributed.Client, leaves_nothing: None) -> None:
    async def main() -> None:
        async with connected(client.scheduler.address) as there:
            async with await asynchronous.load("path:n=40", client=there, ranks=2) as graph:
                results = graph.bfs_stream(source % 40 for source in range(10**9))
                async for result in results:
                    if result.sources == (30,):
                        break
                await asyncio.wait_for(graph.bfs(0), 10)

    asyncio.run(main())


def test_a_watch_hears_of_batches(client: distributed.Client, leaves_nothing: None) -> None:
    async def follow() -> list[tuple[int, list[int]]]:
        heard = []
        async with connected(client.scheduler.address) as mine:
            async with await asynchronous.load("path:n=40", client=mine, mutable=True) as graph:
                watch = await graph.watch(0, timeout=60)
                assert await watch.update() is None
                closing = asyncio.create_task(graph.insert_edges([(0, 39)]))
                async for change in watch:
                    heard.append((change.version, list(change.ids)))
                    if len(heard) == 2:
                        break
                    await closing
                    await graph.delete_edges([(0, 39)])
                assert (watch.result.depth, watch.result.version) == (39, 2)
                brief = await graph.watch(3, timeout=0.01)
                assert [change async for change in brief] == []
                assert await watch.result.distances() is not None
        return heard

    changed = list(range(21, 40))
    assert asyncio.run(follow()) == [(1, changed), (2, changed)]


@pytest.mark.full
def test_a_program_with_a_local_cluster_ends_without_noise() -> None:
    program = """
import asyncio, distributed, dbfs

async def main():
    async with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", asynchronous=True
    ) as cluster, distributed.Client(cluster, asynchronous=True):
        graph = await dbfs.load("kronecker:scale=10")
        print((await graph.bfs(0)).reached > 0)

asyncio.run(main())
"""
    # Dask's scheduler tells the cluster of each worker's end, 5 ms after the one before. If the cluster closes within
    # these, Dask logs a CommClosedError for information, in programs without dbfs too.
    quiet = os.environ | {"DASK_LOGGING__DISTRIBUTED": "warning"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, env=quiet
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "True", "")


@pytest.mark.parametrize(
    ("synchronous", "view", "left_out"),
    [
        # The plots need no loop, or a thread of the caller's choice. The others are no calls for users.
        (
            dbfs.Graph,
            dbfs.AsyncGraph,
            {
                "plot_degrees",
                "begins_again",
                "engines",
                "keeper",
                "follow",
                "partition_keys",
                "python_ids",
                "vertices_named",
                "take",
                "require_loaded",
                "require_version",
                "result_type",
                "search",
                "view",
            },
        ),
        (
            dbfs.BFSResult,
            dbfs.AsyncBFSResult,
            {
                *(
                    "plot_frontier",
                    "plot_levels",
                    "published_labels",
                    "label_location",
                    "readable_labels",
                    "vertices_between",
                    "vertices_to",
                    "reader",
                ),
                *("begins_again", "counts_edges", "distance_type", "lost"),
            },
        ),
        (dbfs.Run, dbfs.AsyncRun, set()),
    ],
    ids=["graph", "result", "run"],
)
def test_a_view_has_every_method(synchronous: type, view: type, left_out: set[str]) -> None:
    made = {"gang", "id_type", "attempts", "reached", "unreached", "edges", "mteps"}  # Attributes of the views.
    public = {name for name in dir(synchronous) if not name.startswith("_")}
    assert public - set(dir(view)) - made == left_out
