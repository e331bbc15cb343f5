"""Several savers of one folder: one at a time, kills at every step, savers that lose the folder, what is synced."""

import errno
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dask
import distributed
import fsspec
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import FolderBusyError, OutputError
from dbfs_workers.base.folder import Folder
from dbfs_workers.features.saved import lock as locks
from dbfs_workers.features.saved.lock import Busy, Lock, Saver
from tests.support import buckets, savers
from tests.support.graphs import random
from tests.support.saved import counts, load_arrays
from tests.support.savers import (
    KILLED,
    OVER,
    SAVED,
    TOKEN,
    Interrupted,
    assert_whole,
    dead,
    left_by,
    save_alone,
    until,
    written,
)

N = 100


@pytest.fixture
def graph(client: distributed.Client) -> Iterator[Graph]:
    with load_arrays(client, random(N, 300, 1), ranks=2, order="degree", keep_edges=True) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def two() -> Iterator[list[savers.Process]]:
    with savers.saving(30, 40) as both:
        yield both


@pytest.fixture(scope="module")
def interrupted() -> Iterator[Interrupted]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        saves = Interrupted()
        yield saves
        saves.end()


def save_by_both(two: list[savers.Process], path: Path, rounds: int) -> None:
    for _ in range(rounds):
        for saver in two:
            saver.begin(path)
        assert [saver.answer() for saver in two] == [SAVED, SAVED]
        assert_whole(path, 30, 40)


def test_two_savers_save_one_after_the_other(two: list[savers.Process], tmp_path: Path) -> None:
    save_by_both(two, tmp_path / "graph", 20)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_savers_for_many_rounds(two: list[savers.Process], tmp_path: Path) -> None:
    save_by_both(two, tmp_path / "graph", 500)


def test_of_two_savers_that_replace_nothing_one_saves(two: list[savers.Process], tmp_path: Path) -> None:
    for step in range(5):
        for saver in two:
            saver.begin(tmp_path / str(step), replace=False)
        answers = sorted(saver.answer() for saver in two)
        assert answers[1] == SAVED
        assert "has a saved graph already; replace=True" in answers[0]
        assert_whole(tmp_path / str(step), 30, 40)


def test_a_saver_that_was_stopped_has_lost_the_folder(
    graph: Graph, two: list[savers.Process], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, hold, (slow, _) = tmp_path / "graph", tmp_path / "hold", two
    graph.save(path)
    old = written(path)
    hold.touch()
    slow.begin(path)
    until(lambda: written(path, old))
    slow.send(signal.SIGSTOP)
    try:
        monkeypatch.setattr(locks, "SILENT_SECONDS", 0.1)
        graph.save(path, replace=True)
    finally:
        hold.unlink()
        slow.send(signal.SIGCONT)
    assert slow.answer().startswith(f"FolderBusyError: {path}: another save took the folder over")
    assert_whole(path, N)


def test_a_killed_saver_leaves_the_old_graph(client: distributed.Client, graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "graph"
    graph.save(path)
    old = written(path)
    (tmp_path / "hold").touch()
    with savers.saving(30) as (saver,):
        saver.begin(path)
        until(lambda: written(path, old))
        saver.kill()
    assert_whole(path, N, alone=False)
    with dbfs.load(path, client=client, ranks=2) as again:
        assert counts(again) == counts(graph)
    graph.save(path, replace=True)
    assert_whole(path, N)


@pytest.mark.full
@pytest.mark.parametrize("there", [False, True])
def test_a_save_killed_at_any_step(interrupted: Interrupted, tmp_path: Path, there: bool) -> None:
    """The folder has the old graph or the new one, and the next save leaves nothing of the killed one."""
    answers: list[str] = []
    while OVER not in answers:
        path = tmp_path / str(len(answers))
        if there:
            save_alone(path, 30)
        answers.append(interrupted.save(path, 40, len(answers)))
        if there or (path / "manifest.json").exists():
            assert_whole(path, 30, 40, alone=False)
        save_alone(path, 50)
        assert_whole(path, 50)
    assert set(answers[:-1]) == {KILLED}
    assert len(answers) > 20


@pytest.mark.full
@pytest.mark.parametrize("there", [False, True])
def test_a_save_that_is_taken_for_dead_at_any_step(interrupted: Interrupted, tmp_path: Path, there: bool) -> None:
    """The folder has the graph of a save that ended without an error, and nothing else."""
    answers: list[str] = []
    while OVER not in answers:
        path = tmp_path / str(len(answers))
        if there:
            save_alone(path, 30)
        answers.append(interrupted.save(path, 40, len(answers), meanwhile=50))
        if answers[-1] != OVER:
            assert_whole(path, *([40] if answers[-1] == SAVED else []), 50)
    lost = [answer for answer in answers if "another save took the folder over" in answer]
    assert len(lost) > 5
    assert set(answers) == {SAVED, OVER, *lost}


def test_files_are_synced_before_the_manifest_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []
    fsync, move, remove = os.fsync, os.replace, os.remove

    def on_fsync(descriptor: int) -> None:
        seen.append(("sync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        fsync(descriptor)

    def on_replace(old: str, new: str) -> None:
        seen.append(("rename", str(new)))
        move(old, new)

    def on_remove(path: str) -> None:
        seen.append(("remove", str(path)))
        remove(path)

    path = tmp_path / "new" / "graph"
    monkeypatch.setattr(os, "fsync", on_fsync)
    save_alone(path, 30)
    assert seen.index(("sync", str(tmp_path))) < seen.index(("sync", str(path)))
    assert seen.index(("sync", str(tmp_path / "new"))) < seen.index(("sync", str(path)))
    (old,) = written(path)
    seen.clear()
    monkeypatch.setattr(os, "replace", on_replace)
    monkeypatch.setattr(os, "remove", on_remove)
    save_alone(path, 40)
    (new,) = written(path)
    renamed = seen.index(("rename", f"{path}/manifest.json"))
    data = seen.index(("sync", f"{path}/{new}"))
    manifest = next(at for at, (what, name) in enumerate(seen) if what == "sync" and name.endswith(".json.part"))
    folders = [at for at, event in enumerate(seen) if event == ("sync", str(path))]
    assert any(data < at < manifest for at in folders)
    assert manifest < renamed
    assert any(renamed < at < seen.index(("remove", f"{path}/{old}")) for at in folders)


def test_a_save_waits_for_another_one_until_its_deadline(graph: Graph, tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    assert isinstance(locks.take(folder, Saver.here(TOKEN), None), Lock)
    with dask.config.set({"dbfs.build-deadline": "1 s", "dbfs.liveness-interval": "20 ms"}):
        with pytest.raises(
            FolderBusyError, match=rf"not done after 1 s, waiting for process {os.getpid()} on .* since"
        ):
            graph.save(tmp_path)
    locks.withdraw(folder, TOKEN)
    graph.save(tmp_path)
    assert_whole(tmp_path, N)


@pytest.mark.parametrize("url", ["", "s3://bucket/graph", "gs://bucket/graph", "memory://claims/graph"])
def test_one_call_creates_a_lock(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    buckets.register(monkeypatch)
    folder = Folder.at(url or tmp_path / "graph")
    folder.make()
    assert [folder.claim("lock", content) for content in (b"one", b"two")] == [True, False]
    assert folder.content("lock", 10) == b"one"
    folder.remove("lock")


def test_who_is_gone() -> None:
    here = Saver.here(TOKEN)
    assert not here.is_gone
    assert dead().is_gone
    assert replace(here, started="1").is_gone
    # No process can tell of those of other hosts.
    assert not replace(dead(), space="elsewhere").is_gone
    assert not replace(dead(), space="").is_gone


@pytest.mark.parametrize("url", ["", "s3://bucket/graph"])
def test_a_saver_on_another_host_is_dead_if_it_is_silent(
    graph: Graph, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    buckets.register(monkeypatch)
    folder = Folder.at(url or tmp_path)
    left = left_by(folder, replace(Saver.here(TOKEN), space="elsewhere", host="far"))
    monkeypatch.setattr(locks, "SILENT_SECONDS", 0.1)
    graph.save(folder.path)
    assert "waits for process" in caplog.text
    assert "on far" in caplog.text
    names = folder.names()
    assert "manifest.json" in names
    assert left not in names
    assert not [name for name in names if name.endswith(".lock")]


def test_a_saver_that_gives_signs_of_life_is_not_dead(tmp_path: Path) -> None:
    folder, saver = Folder(str(tmp_path)), replace(Saver.here(TOKEN), space="elsewhere")
    lock = locks.take(folder, saver, None)
    assert isinstance(lock, Lock)
    other = Saver.here("f" * 12)
    before = locks.take(folder, other, None)
    assert isinstance(before, Busy)
    os.utime(tmp_path / "dbfs-save-1.lock", ns=(0, 0))
    assert isinstance(locks.take(folder, other, before.sign), Busy)
    after = locks.take(folder, other, None)
    assert isinstance(after, Busy)
    assert isinstance(locks.take(folder, other, after.sign), Lock)
    with pytest.raises(FolderBusyError, match="another save took the folder over"):
        locks.renew(folder, lock)


@pytest.mark.parametrize("url", ["", "s3://bucket/graph"])
def test_a_client_gives_signs_of_life_while_it_saves(
    graph: Graph, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    buckets.register(monkeypatch)
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.01)
    folder, hold = Folder.at(url or tmp_path / "graph"), tmp_path / "hold"
    hold.touch()

    def sign() -> object:
        found = locks.take(folder, Saver.here("f" * 12), None)
        assert isinstance(found, Busy)
        return found.sign

    with savers.holding(hold):
        saving = threading.Thread(target=graph.save, args=(folder.path,))
        saving.start()
        try:
            until(lambda: "dbfs-save-1.lock" in folder.names())
            first = sign()
            until(lambda: sign() != first)
        finally:
            hold.unlink()
            saving.join()
    assert "manifest.json" in folder.names()


def test_a_live_lock_in_the_place_of_a_dead_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two saves were faster: one took over from the dead one and ended, and the other is under way."""
    folder, claim, live = Folder(str(tmp_path)), Folder.claim, list[object]()
    assert isinstance(locks.take(folder, dead(), None), Lock)

    def late(self: Folder, name: str, content: bytes) -> bool:
        monkeypatch.setattr(Folder, "claim", claim)
        folder.remove("dbfs-save-1.lock")
        live.append(locks.take(folder, Saver.here("e" * 12), None))
        return claim(self, name, content)

    monkeypatch.setattr(Folder, "claim", late)
    assert isinstance(locks.take(folder, Saver.here("f" * 12), None), Busy)
    (lock,) = live
    assert isinstance(lock, Lock)
    locks.require_held(folder, lock)


def test_a_lock_that_says_nothing_counts_until_it_is_old(tmp_path: Path) -> None:
    """A saver may die between the making of the file and its first byte."""
    (tmp_path / "dbfs-save-7.lock").touch()
    folder = Folder(str(tmp_path))
    busy = locks.take(folder, Saver.here(TOKEN), None)
    assert isinstance(busy, Busy)
    assert busy.who == "another client"
    lock = locks.take(folder, Saver.here(TOKEN), busy.sign)
    assert isinstance(lock, Lock)
    assert lock.number == 8
    assert folder.names() == ["dbfs-save-8.lock"]


def test_a_save_that_fails_after_its_manifest_says_so(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, move = tmp_path / "graph", os.replace
    save_alone(path, 30)

    def replace_and_fail(old: str, new: str) -> None:
        move(old, new)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "replace", replace_and_fail)
    with pytest.raises(OutputError, match=r"Input/output error. .* has the graph nevertheless: its manifest"):
        graph.save(path, replace=True)
    assert_whole(path, N)


def test_two_savers_to_a_store(client: distributed.Client, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    buckets.register(monkeypatch)
    files, url = fsspec.filesystem("s3"), "s3://bucket/graph.dbfs"
    errors: list[BaseException] = []

    def save(graph: Graph) -> None:
        try:
            graph.save(url, replace=True)
        except BaseException as error:
            errors.append(error)

    with dask.config.set({"dbfs.liveness-interval": "20 ms"}), dbfs.load("path:n=30", client=client, ranks=2) as other:
        for _ in range(5):
            threads = [threading.Thread(target=save, args=(one,)) for one in (graph, other)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not errors
            with dbfs.load(url, client=client, ranks=2) as again:
                assert again.n in (30, N)
            kinds = {name.rpartition("/")[2].partition("-")[0] for name in files.find(url)}
            assert kinds <= {"manifest.json", "rank", "edges", "order"}
            assert len({name.rpartition("-")[2] for name in files.find(url) if name.endswith(".arrow")}) == 1
