"""Living graphs that lost workers come back at their last committed version."""

import errno
import os
import random
import shutil
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest
from numpy.typing import NDArray

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import (
    DeadlineExceededError,
    FormatError,
    GraphLostError,
    InvalidOptionError,
    OutputError,
)
from dbfs_workers.features.rebuild import log
from dbfs_workers.features.rebuild.worker import VersionLogs
from tests.support import oracle
from tests.support.losses import WORKERS, lose, replace_lost

pytestmark = pytest.mark.usefixtures("leaves_nothing_behind")
N = 300
ENDS = np.random.default_rng(3).integers(0, N, (2, 500))


class Model:
    """The edges of a living graph, in plain Python."""

    def __init__(self, src: NDArray[Any], dst: NDArray[Any], *, directed: bool) -> None:
        self.directed = directed
        self.edges = {*zip(src.tolist(), dst.tolist(), strict=True)}
        self.deleted = set[int]()
        self.n = N

    def both(self, edges: list[tuple[int, int]]) -> set[tuple[int, int]]:
        return {*edges} if self.directed else {*edges, *((v, u) for u, v in edges)}

    def change(self, graph: Graph, dice: random.Random) -> None:
        """Change the graph and the model alike, at random."""
        there = [vertex for vertex in range(self.n) if vertex not in self.deleted]
        some = [(dice.choice(there), dice.choice(there)) for _ in range(dice.randrange(1, 30))]
        match dice.randrange(6):
            case 0 | 1:
                graph.insert_edges(some)
                self.edges |= {*some}
            case 2:
                # Binned by tasks.
                graph.insert_edges(np.array(some * 300).T)
                self.edges |= {*some}
            case 3:
                gone = dice.sample(sorted(self.edges), min(20, len(self.edges)))
                graph.delete_edges(gone)
                self.edges -= self.both(gone)
            case 4:
                ids = graph.insert_vertices(2).ids
                self.n, self.deleted = max(self.n, *(each + 1 for each in ids)), self.deleted - {*ids}
            case 5:
                gone_vertices = {*dice.sample(there, 3)}
                graph.delete_vertices([*gone_vertices])
                self.deleted |= gone_vertices
                self.edges = {edge for edge in self.edges if not gone_vertices & {*edge}}

    def check(self, graph: Graph) -> None:
        """Compare traversals from some vertices with SciPy's."""
        src, dst = np.array(sorted(self.edges)).T
        matrix = oracle.adjacency(self.n, src, dst, directed=self.directed)
        for source in [vertex for vertex in range(self.n) if vertex not in self.deleted][::67]:
            assert np.array_equal(graph.bfs(source).distances(), oracle.distances(matrix, [source]))


@pytest.mark.parametrize("directed", [pytest.param(False, marks=pytest.mark.full), True])
def test_a_living_graph_comes_back_at_its_last_version(
    mortal: distributed.Client, tmp_path: Path, directed: bool
) -> None:
    """Its log is read again, also by a later load, after any losses."""
    dice, model = random.Random(directed), Model(*ENDS, directed=directed)
    options: dict[str, Any] = {"in_edges": True} if directed else {}
    edges = dbfs.from_arrays(*ENDS, n=N, directed=directed)
    where = tmp_path / "kept"
    with dbfs.load(edges, client=mortal, name="web", mutable=True, room=40, checkpoint=where, **options) as graph:
        other = dbfs.open("web", client=mortal)
        for round_ in range(3):
            for _ in range(5):
                model.change(graph, dice)
            graph.compact()
            version, updated = graph.version, graph.record.updated
            assert graph.state().can_return
            lose(mortal, graph.gang.addresses[round_])
            model.check(other)
            assert (graph.version, graph.record.updated) == (version, updated)
            model.check(graph)
            assert graph.state().rebuilt == round_ + 1
    with dbfs.load(where, client=mortal) as again:
        model.check(again)
        assert again.version == 0
        lose(mortal, again.gang.addresses[1])
        model.check(again)
    with dbfs.load(where, client=mortal, mutable=True) as again:
        model.change(again, dice)
        model.check(again)
    for options in {}, {"mutable": True, "checkpoint": where}:
        with pytest.raises(InvalidOptionError, match="log of .* versions, which 3 ranks"):
            dbfs.load(where, client=mortal, ranks=2, **options)


def test_a_log_that_another_graph_goes_on_with(mortal: distributed.Client, tmp_path: Path) -> None:
    """The graph that was loaded last takes updates, and knows the batches of before; the other one takes none."""
    where, edges = tmp_path / "kept", dbfs.from_arrays(*ENDS, n=N, directed=False)
    options: dict[str, Any] = {"client": mortal, "mutable": True, "checkpoint": where}
    with dbfs.load(edges, name="web", room=9, **options) as graph:
        with pytest.raises(InvalidOptionError, match="own folder: leave it out, or take mutable=True"):
            dbfs.load(where, client=mortal, checkpoint=where)
        with dbfs.load(where, **options) as unused:
            assert (unused.version, unused.n) == (0, N)
        assert graph.insert_vertices(2, batch_id="two").version == 1
        with dbfs.load(where, name="web", replace=True, **options) as again:
            assert (again.version, again.n) == (1, N + 2)
            assert again.insert_vertices(2, batch_id="two").ids == (N, N + 1)
            assert again.insert_vertices(1).ids == (N + 2,)
            with dbfs.load(where, **options) as last:
                with pytest.raises(OutputError, match="another graph goes on with this log, or its file is gone; the"):
                    again.insert_vertices(1)
                assert (again.version, again.n) == (2, N + 3)
                assert last.insert_vertices(1).ids == (N + 3,)
                last.insert_edges([(0, N + 3)])
                lose(mortal, last.gang.addresses[0])
                assert (last.distance(0, N + 3), last.version, last.n) == (1, 4, N + 4)


def test_new_ids_come_back(mortal: distributed.Client, tmp_path: Path) -> None:
    options: dict[str, Any] = {"mutable": True, "room": 5, "checkpoint": tmp_path / "kept"}
    edges = [(f"v{source}", f"v{target}") for source, target in ENDS.T.tolist()]
    with dbfs.load(edges, client=mortal, **options) as graph:
        for edge in ("new", "v1"), ("v1", "newer"), ("newest", "new"):
            graph.insert_edges([edge])
        before = graph.bfs("newest").to_dict()
        lose(mortal, *graph.gang.addresses)
        assert graph.bfs("newest").to_dict() == before
        graph.insert_edges([("v1", "last")])
        lose(mortal, graph.gang.addresses[0])
        assert graph.distance("newest", "last") == 3
        assert graph.version == 4


@pytest.mark.parametrize("moment", ["before keep", "after keep", "before decide", "after decide"])
@pytest.mark.parametrize("batch_id", [None, "batch"])
def test_an_update_that_loses_a_worker_is_made_once(
    mortal: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, batch_id: str | None
) -> None:
    """Vertices that were inserted twice would be seen."""
    when, name = moment.split()
    method, lost = getattr(VersionLogs, name), list[str]()

    def loses(logs: VersionLogs, *arguments: Any) -> None:
        if when == "after":
            method(logs, *arguments)
        if not lost:
            lost.append(logs.view.worker.address)
            lose(mortal, *lost)
        if when == "before":
            method(logs, *arguments)

    edges = dbfs.from_arrays(*ENDS, n=N, directed=False)
    with dbfs.load(edges, client=mortal, mutable=True, room=9, checkpoint=tmp_path / "kept") as graph:
        graph.insert_vertices(1)
        monkeypatch.setattr(VersionLogs, name, loses)
        update = graph.insert_vertices(2, batch_id=batch_id)
        assert lost
        assert (update.ids, update.version, graph.n) == ((N + 1, N + 2), 2, N + 3)
        assert graph.insert_vertices(1).ids == (N + 3,)
        if batch_id is not None:
            assert graph.insert_vertices(2, batch_id=batch_id).ids == update.ids
        assert graph.n == N + 4


@pytest.mark.parametrize("syncs", [0, *(pytest.param(each, marks=pytest.mark.full) for each in (1, 2)), 3])
def test_the_disk_of_a_log_is_full(
    mortal: distributed.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, syncs: int
) -> None:
    """The version is refused, and the graph is as before; the disk has room again later."""
    sync, made = log.synced, list[None]()

    def full(descriptor: int) -> None:
        made.append(None)
        if len(made) > syncs:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    edges = dbfs.from_arrays(*ENDS, n=N, directed=False)
    with dbfs.load(edges, client=mortal, mutable=True, checkpoint=tmp_path / "kept") as graph:
        graph.insert_edges([(0, 1)])
        before = graph.bfs(0).to_dict()
        with monkeypatch.context() as patched:
            patched.setattr(log, "synced", full)
            with pytest.raises(OutputError, match="No space left.*no new version"):
                graph.insert_edges([(0, vertex) for vertex in range(9, 99)])
        assert (graph.version, graph.bfs(0).to_dict()) == (1, before)
        assert graph.insert_edges([(0, 5), (0, 6)]).version == 2
        before = graph.bfs(0).to_dict()
        lose(mortal, graph.gang.addresses[2])
        assert (graph.bfs(0).to_dict(), graph.version) == (before, 2)


def test_a_log_that_is_gone_damaged_or_torn(mortal: distributed.Client, tmp_path: Path) -> None:
    edges = dbfs.from_arrays(*ENDS, n=N, directed=False)
    with dbfs.load(edges, client=mortal, mutable=True, checkpoint=tmp_path / "kept") as graph:
        for vertex in range(3):
            graph.insert_edges([(vertex, 200 + vertex)])
        before = graph.bfs(0).to_dict()
        (folder,) = (tmp_path / "kept").glob("_versions-*")
        (decided,), (redo,) = folder.glob("decided-*"), folder.glob("redo-*-1")
        whole = decided.read_bytes(), redo.read_bytes()
        lose(mortal, graph.gang.addresses[1])
        decided.write_bytes(whole[0][:-1])
        with pytest.raises(GraphLostError, match="ends with version 2, and the graph had version 3"):
            graph.bfs(0)
        decided.write_bytes(whole[0])
        redo.write_bytes(whole[1][:60] + b"?" + whole[1][61:])
        with pytest.raises(FormatError, match="redo-.*is damaged at byte 0"):
            graph.bfs(0)
        redo.write_bytes(whole[1][:-1])
        with pytest.raises(FormatError, match="lacks version 3"):
            graph.bfs(0)
        # As by a process that died in a write.
        decided.write_bytes(whole[0] + whole[0][:40])
        redo.write_bytes(whole[1] + bytes(99))
        assert (graph.bfs(0).to_dict(), graph.version) == (before, 3)
        for file in folder.glob("decided-*"):
            file.unlink()
        with pytest.raises(OutputError, match="or its file is gone; the graph has no new version"):
            graph.insert_edges([(5, 9)])
        assert graph.version == 3


def test_a_log_that_grew_long_is_begun_anew(mortal: distributed.Client, tmp_path: Path) -> None:
    """As docs/how-to/clusters.md says."""
    options: dict[str, Any] = {"client": mortal, "name": "web", "mutable": True}
    old, new = tmp_path / "old", tmp_path / "new"
    with dbfs.load("path:n=90", room=9, checkpoint=old, **options) as graph:
        graph.insert_edges([(0, 89)])
        graph.freeze()
        graph.save(new)
        with dbfs.load(new, replace=True, checkpoint=new, **options) as again:
            shutil.rmtree(old)
            assert again.version == 0
            (vertex,) = again.insert_vertices(1).ids
            again.insert_edges([(0, vertex)])
            lose(mortal, again.gang.addresses[1])
            assert (again.distance(45, vertex), again.version) == (46, 2)


def test_what_a_log_needs(mortal: distributed.Client, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="a store, which can't add to a log"):
        dbfs.load("path:n=9", client=mortal, mutable=True, checkpoint="memory://kept")
    with dbfs.load("path:n=90", client=mortal, mutable=True, checkpoint=tmp_path / "kept") as graph:
        graph.insert_edges([(0, 89)])
        with pytest.raises(InvalidOptionError, match="other files"):
            graph.save(tmp_path / "kept", replace=True)
        with pytest.raises(InvalidOptionError, match="the log of its versions, .*, is of 3 ranks"):
            graph.rebalance(ranks=2)
        lose(mortal, graph.gang.addresses[1], replaced=False)
        with pytest.raises(DeadlineExceededError, match="waits for 1 worker"):
            graph.bfs(0, deadline=1)
        replace_lost(mortal, WORKERS)
        assert graph.bfs(0, validate=True).depth == 45
        # A frozen graph has its log too.
        graph.freeze()
        lose(mortal, graph.gang.addresses[0])
        assert graph.bfs(0, validate=True).depth == 45
        with pytest.raises(InvalidOptionError, match="thaw"):
            graph.insert_edges([(0, 45)])
        graph.thaw()
        assert graph.insert_edges([(0, 45)]).version == 2


def test_records_of_a_torn_or_damaged_file(tmp_path: Path) -> None:
    """What is read is a part of what was written, from its beginning on, or the file is refused."""
    file, path = log.LogFile(tmp_path / "log"), tmp_path / "log"
    written = [
        {"facts": {"run": f"run{number}", "ids": [number, "é"]}, "keys": list(range(number))} for number in range(4)
    ]
    for each in written:
        file.add(log.Record(each["facts"], {"keys": np.array(each["keys"], np.uint64)}))  # type: ignore[arg-type]
    file.close()

    def read() -> list[Any]:
        return [{"facts": each.facts, "keys": each.arrays["keys"].tolist()} for each in log.records(path)]

    whole = path.read_bytes()
    assert read() == written
    sizes = set[int]()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        sizes.add(len(read()))
        assert read() == written[: len(read())]
    assert sizes == {0, 1, 2, 3}
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        try:
            assert read() == written[: len(read())]
        except FormatError as error:
            assert "is damaged at byte" in str(error)


def test_decisions_of_a_process_that_was_taken_for_lost_are_void(tmp_path: Path) -> None:
    first = log.new_decisions(tmp_path, "aa", 0)
    for version in (1, 2):
        first.add(log.Record({"version": version, "run": f"first{version}"}, {}))
    with pytest.raises(OutputError, match="had version 1 and has version 2 now: another graph goes on"):
        log.new_decisions(tmp_path, "dd", 1)
    idle, second = log.new_decisions(tmp_path, "bb", 2), log.new_decisions(tmp_path, "cc", 2)
    with pytest.raises(OutputError, match="decided-00000001-aa can't be written: another graph goes on with this log"):
        first.add(log.Record({"version": 3, "run": "first3"}, {}))
    assert [each.run_id for each in log.decisions(tmp_path)] == ["first1", "first2"]
    second.add(log.Record({"version": 3, "run": "second3"}, {}))
    # As a process leaves them that dies before it looks for a later gang.
    dead = log.LogFile(first.path)
    dead.add(log.Record({"version": 3, "run": "first3"}, {}))
    dead.add(log.Record({"version": 4, "run": "first4"}, {}))
    dead.close()
    assert [each.run_id for each in log.decisions(tmp_path)] == ["first1", "first2", "second3"]
    idle.close()
    assert len([*tmp_path.iterdir()]) == 2
    second.add(log.Record({"version": 5, "run": "second5"}, {}))
    with pytest.raises(FormatError, match="version 5 follows version 3"):
        log.decisions(tmp_path)
    first.close()
    second.close()
