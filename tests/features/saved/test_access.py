"""Where graphs are saved: folders, refusals, failures that leave nothing, permissions, and the command line."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import dask
import distributed
import numpy as np
import pytest
from click.testing import CliRunner, Result

import dbfs
from dbfs.assembly import Graph
from dbfs.cli import main
from dbfs.edges.readers import from_file
from dbfs.edges.writers import target
from dbfs.errors import (
    DbfsError,
    FormatError,
    InvalidOptionError,
    MissingFileError,
    OutputError,
    ResultReleasedError,
    WorkerLostError,
)
from dbfs_workers.base.folder import Folder
from dbfs_workers.features.saved import writing
from dbfs_workers.features.saved.saves import Saver
from dbfs_workers.features.saved.tasks import save_rank
from dbfs_workers.search.partition.stripe import Stripe
from tests.support.graphs import random
from tests.support.partitions import build
from tests.support.saved import counts, load_arrays
from tests.support.savers import dead, left_by, until


@pytest.fixture
def graph(client: distributed.Client) -> Iterator[Graph]:
    with load_arrays(client, random(100, 300, 1), ranks=2, order="degree", keep_edges=True) as loaded:
        yield loaded


def test_a_folder_that_has_a_graph_is_kept(graph: Graph, tmp_path: Path) -> None:
    assert graph.save(tmp_path / "a" / "graph") == sum(file.stat().st_size for file in parts(tmp_path / "a" / "graph"))
    before = {file.name: file.read_bytes() for file in (tmp_path / "a" / "graph").iterdir()}
    with pytest.raises(InvalidOptionError, match=r"graph has a saved graph already; replace=True \(--replace\)"):
        graph.save(tmp_path / "a" / "graph")
    assert {file.name: file.read_bytes() for file in (tmp_path / "a" / "graph").iterdir()} == before


def parts(path: Path) -> list[Path]:
    return sorted(path.glob("*.arrow"))


@pytest.mark.parametrize("replace", [False, True])
def test_other_files_are_kept(graph: Graph, tmp_path: Path, replace: bool) -> None:
    # Of a graph whose manifest is not there yet, or was moved aside.
    (tmp_path / "rank-0-ba9876543210.arrow").write_bytes(b"mine")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidOptionError, match=r"has other files, such as notes.txt; save to a folder of its own"):
        graph.save(tmp_path, replace=replace)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["notes.txt", "rank-0-ba9876543210.arrow"]
    for file in tmp_path.iterdir():
        file.unlink()
    (tmp_path / "manifest.json").write_text('{"name": "app"}')
    with pytest.raises(InvalidOptionError, match=r"has a saved graph already|is not the manifest of a saved graph"):
        graph.save(tmp_path, replace=replace)
    assert [file.name for file in tmp_path.iterdir()] == ["manifest.json"]


def test_a_file_is_no_folder(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FormatError, match="file is a file; expected a folder"):
        graph.save(tmp_path / "file", replace=True)
    with pytest.raises(DbfsError, match="file"):
        graph.save(tmp_path / "file" / "graph")
    assert (tmp_path / "file").read_text() == "mine"


def test_what_a_killed_save_left_is_removed(client: distributed.Client, graph: Graph, tmp_path: Path) -> None:
    left = tmp_path / left_by(Folder(str(tmp_path)), dead())
    with pytest.raises(MissingFileError, match=r"has 1 file of a saved graph and no manifest.json"):
        dbfs.load(tmp_path, client=client)
    graph.save(tmp_path)
    assert not left.exists()
    assert from_file(tmp_path).m == graph.input_edges


def test_files_of_saves_that_are_over_are_removed_and_no_others(graph: Graph, tmp_path: Path) -> None:
    graph.save(tmp_path)
    old = parts(tmp_path)
    under_way = tmp_path / left_by(Folder(str(tmp_path)), Saver.here(60.0))
    # No note is of these: of a save that lost it and was killed later.
    orphans = [tmp_path / "rank-0-ba9876543210.arrow", tmp_path / "manifest-ba9876543210.json.part"]
    for orphan in orphans:
        orphan.write_bytes(b"half")
    graph.save(tmp_path, replace=True)
    assert under_way.exists()
    assert not [path for path in [*old, *orphans] if path.exists()]


class Full:
    """A file on a disk that is full after some bytes."""

    def __init__(self, raw: IO[bytes], room: int) -> None:
        self.raw, self.room = raw, room

    def write(self, part: bytes) -> int:
        self.room -= len(part)
        if self.room < 0:
            raise OSError(28, "No space left on device")
        return self.raw.write(part)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("room", [0, 100, 1500])
def test_a_full_disk_leaves_what_was_there(
    client: distributed.Client,
    graph: Graph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    room: int,
    there: bool,
) -> None:
    path = tmp_path / "graph"
    if there:
        graph.save(path)
    before = sorted(path.iterdir()) if there else []
    sink = writing.Sink
    monkeypatch.setattr(writing, "Sink", lambda raw, look: sink(Full(raw, room), look))  # type: ignore[arg-type]
    with pytest.raises(OutputError, match=r"arrow can't be written: No space left on device"):
        graph.save(path, replace=there)
    assert (sorted(path.iterdir()) if path.exists() else []) == before
    if there:
        with dbfs.load(path, client=client, ranks=2) as again:
            assert counts(again) == counts(graph)
    else:
        assert not path.exists()


def test_a_rank_removes_its_kept_edges_if_its_partition_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may not reach the rank's disk."""

    def write(*_: object) -> None:
        assert [file.name for file in tmp_path.iterdir()] == ["edges-0-token.arrow"]
        raise OutputError("the disk is full")

    monkeypatch.setattr(writing, "write_partition", write)
    n, src, dst = random(100, 300, 1)
    (partition,) = build(Stripe(n, 1), src, dst, directed=True)
    edges = [(src.astype(np.uint32), dst.astype(np.uint32))]
    with pytest.raises(OutputError, match="the disk is full"):
        save_rank(Folder(str(tmp_path)), "token", partition, edges, 60.0, 1.0)
    assert not list(tmp_path.iterdir())


def test_a_manifest_that_cannot_be_written_leaves_nothing(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(self: Folder, name: str, *_: object) -> None:
        raise OutputError(f"{name} can't be written")

    monkeypatch.setattr(Folder, "put", put)
    with pytest.raises(OutputError, match="manifest"):
        graph.save(tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


def test_disks_that_workers_do_not_share(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = Folder.size

    def elsewhere(self: Folder, name: str) -> int:
        if name.startswith("rank-1"):
            raise MissingFileError(name)
        return size(self, name)

    monkeypatch.setattr(Folder, "size", elsewhere)
    with pytest.raises(OutputError, match=r"rank-1-\w+.arrow is not there .* a folder that all workers share"):
        graph.save(tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


@pytest.mark.full
@pytest.mark.parametrize("victims", [[0], [1], [0, 1]])
def test_workers_killed_during_a_save(tmp_path: Path, victims: list[int]) -> None:
    """The files of the ranks that are left go as well, though their tasks were still writing."""
    with (
        dbfs.connect(n_workers=2, dashboard_address=None) as client,
        dbfs.load("path:n=1000", client=client, rebuild="never") as big,
    ):
        slow(client)
        pids = client.run(os.getpid, workers=[big.gang.addresses[rank] for rank in victims])

        def kill() -> None:
            until(lambda: len(list((tmp_path / "graph").glob("*.arrow"))) == 2)
            for pid in pids.values():
                os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(WorkerLostError, match=f"lost rank {victims[0]}"):
            big.save(tmp_path / "graph")
        killer.join()
        # What a killed worker had begun, another worker removes, or the client.
        assert not (tmp_path / "graph").exists()


def slow(client: distributed.Client) -> None:
    """Have the workers write a block of a few bytes in some milliseconds."""

    def patch() -> None:
        import time

        from dbfs_workers.features.saved import writing

        class Slow(writing.Sink):
            def write(self, content: object) -> int:
                for _ in range(300):
                    time.sleep(0.01)
                    self._look()
                return super().write(content)

        writing.Sink = Slow  # type: ignore[misc]

    client.run(patch)


def test_an_unloaded_graph(graph: Graph, tmp_path: Path) -> None:
    graph.unload()
    with pytest.raises(ResultReleasedError, match="was unloaded"):
        graph.save(tmp_path / "graph")


def test_a_shared_cluster_writes_only_where_it_may(client: distributed.Client, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    with distributed.Client(client.scheduler.address) as stranger, load_arrays(stranger, random(9, 9, 1)) as graph:
        with pytest.raises(InvalidOptionError, match=r"writes only below the folders in dbfs.write.folders; set that"):
            graph.save(allowed / "graph")
        with dask.config.set({"dbfs.write.folders": [str(allowed), "memory://shared/graphs"]}):
            graph.save(allowed / "graph")
            graph.save("memory://shared/graphs/web.dbfs")
            (allowed / "link").symlink_to(tmp_path)
            for path in (
                tmp_path / "graph",
                f"{allowed}-not/graph",
                allowed / ".." / "graph",
                allowed / "link" / "graph",
                "memory://shared/graphs-not/web.dbfs",
                "memory://shared/graphs/../web.dbfs",
                "memory://other/web.dbfs",
                "simplecache::memory://shared/graphs/web2.dbfs",
            ):
                with pytest.raises(InvalidOptionError, match=r"dbfs.write.folders has only .*allowed, memory://shared"):
                    graph.save(path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["allowed"]


@pytest.mark.parametrize("value", [["data"], [7], 7, ["/data", ""], None])
def test_a_setting_that_is_no_list_of_folders(tmp_path: Path, value: object) -> None:
    with dask.config.set({"dbfs.write.folders": value}):
        with pytest.raises(InvalidOptionError, match=r"dbfs.write.folders: .* is neither auto nor a list of absolute"):
            target.require_listed(str(tmp_path))


def test_schemes_hold_for_saved_graphs(client: distributed.Client, graph: Graph) -> None:
    graph.save("memory://schemes/web.dbfs")
    with dask.config.set({"dbfs.read.schemes": ["file"]}):
        with pytest.raises(InvalidOptionError, match=r"dbfs.read.schemes has only file, not memory"):
            dbfs.load("memory://schemes/web.dbfs", client=client)
    with distributed.Client(client.scheduler.address) as stranger:
        with pytest.raises(InvalidOptionError, match=r"this program did not start reads only file, local, not memory"):
            dbfs.load("memory://schemes/web.dbfs", client=stranger, ranks=2)


def test_the_command_line(client: distributed.Client, tmp_path: Path) -> None:
    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, env={"DASK_SCHEDULER_ADDRESS": client.scheduler.address})

    path = str(tmp_path / "town.dbfs")
    with (
        dask.config.set({"dbfs.write.folders": [str(tmp_path)]}),
        dbfs.load("grid2d:side=6", client=client, name="town", ranks=3, order="degree") as town,
    ):
        said = invoke("save", "town", path)
        assert said.exit_code == 0, said.output
        assert said.stdout.startswith(f"{path}: saved town, ")
        again = invoke("save", "town", path)
        assert (again.exit_code, "--replace" in again.stderr) == (2, True)
        replaced = json.loads(invoke("save", "town", path, "--replace", "--json").stdout)
        assert replaced == {
            "name": "town",
            "path": path,
            "bytes": sum(file.stat().st_size for file in parts(Path(path))),
        }
        loaded = invoke("load", path, "--name", "again", "--ranks", "3", "--json")
        assert loaded.exit_code == 0, loaded.output
        with dbfs.open("again", client=client) as found:
            assert counts(found) == counts(town)
            assert found.order is not None
    ran = invoke("run", path, "--source", "0", "--ranks", "2", "--json", "--scheduler", client.scheduler.address)
    assert ran.exit_code == 0, ran.output
    assert (json.loads(ran.stdout)["reached"], json.loads(ran.stdout)["depth"]) == (36, 10)
    needed = json.loads(invoke("estimate", path, "--ranks", "3", "--json").stdout)
    assert "build" not in needed
    converted = invoke("convert", path, str(tmp_path / "town.mtx"))
    assert converted.exit_code == 0, converted.output
    assert from_file(tmp_path / "town.mtx").m == 60


def test_an_asynchronous_client(client: distributed.Client, tmp_path: Path) -> None:
    async def main() -> int:
        async with distributed.Client(client.scheduler.address, asynchronous=True) as asynchronous:
            async with await dbfs.load("path:n=9", client=asynchronous, ranks=2) as graph:  # type: ignore[attr-defined]
                await graph.save(tmp_path / "graph")
            async with await dbfs.load(tmp_path / "graph", client=asynchronous) as again:  # type: ignore[attr-defined]
                return (await again.bfs(0)).depth

    with dask.config.set({"dbfs.write.folders": [str(tmp_path)]}):
        assert asyncio.run(main()) == 8
