"""Several savers of one folder: the last one wins, kills at every step, savers taken for dead, what is synced."""

import errno
import os
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import distributed
import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import OutputError
from dbfs_workers.base.folder import Folder
from dbfs_workers.features.saved import manifest as manifests
from dbfs_workers.features.saved import saves
from dbfs_workers.features.saved.saves import GRACE_SECONDS, Saver
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


@pytest.mark.full
def test_two_savers_at_once(two: list[savers.Process], tmp_path: Path) -> None:
    save_by_both(two, tmp_path / "graph", 20)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_savers_for_many_rounds(two: list[savers.Process], tmp_path: Path) -> None:
    save_by_both(two, tmp_path / "graph", 500)


@pytest.mark.full
def test_of_two_savers_that_replace_nothing_one_saves(two: list[savers.Process], tmp_path: Path) -> None:
    for step in range(5):
        for saver in two:
            saver.begin(tmp_path / str(step), replace=False)
        answers = sorted(saver.answer() for saver in two)
        assert answers[1] == SAVED
        assert re.search("has a saved graph already; replace=True|got another saved graph meanwhile", answers[0])
        assert_whole(tmp_path / str(step), 30, 40)


@pytest.mark.parametrize("overdue", [False, True])
def test_a_saver_that_was_stopped(graph: Graph, two: list[savers.Process], tmp_path: Path, overdue: bool) -> None:
    """It wins when it goes on, unless its time was over and another save took it for dead."""
    path, hold, (slow, _) = tmp_path / "graph", tmp_path / "hold", two
    graph.save(path)
    old = written(path)
    hold.touch()
    slow.begin(path)
    until(lambda: written(path, old))
    slow.send(signal.SIGSTOP)
    try:
        if overdue:
            (note,) = path.glob("dbfs-save-*.json")
            os.utime(note, (0, 0))
        graph.save(path, replace=True)
        assert_whole(path, N, alone=overdue)
    finally:
        hold.unlink()
        slow.send(signal.SIGCONT)
    if overdue:
        assert slow.answer().startswith(f"OutputError: {path}: another save took this one for dead")
    else:
        assert slow.answer() == SAVED
    assert_whole(path, N if overdue else slow.n)


@pytest.mark.full
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
    # The note is missed by its own save as well, which looks at its time.
    lost = [answer for answer in answers if "took this one for dead" in answer or "dbfs-save" in answer]
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


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("url", ["", "s3://bucket/graph", "gs://bucket/graph", "memory://claims/graph"])
def test_one_call_writes_a_file_that_may_replace_none(
    tmp_path: Path, url: str, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    buckets.register(monkeypatch)
    folder = Folder.at(url or tmp_path / "graph")
    folder.make()

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refuse)

    def put(content: bytes, replace: bool) -> bool:
        return folder.put("file", content, "part", lambda: None, replace)

    assert [put(b"one", False), put(b"two", False)] == [True, False]
    assert folder.content("file", 10) == b"one"
    assert put(b"three", True)
    assert folder.content("file", 10) == b"three"
    assert folder.names() == ["file"]
    folder.remove("file")


def test_who_is_gone() -> None:
    here = Saver.here(60.0)
    assert not here.is_gone
    assert dead().is_gone
    assert replace(here, started="1").is_gone
    # No process can tell of those of other hosts.
    assert not replace(dead(), space="elsewhere").is_gone
    assert not replace(dead(), space="").is_gone


@pytest.mark.parametrize("url", ["", "s3://bucket/graph"])
def test_a_saver_on_another_host_is_dead_when_its_time_is_over(
    graph: Graph, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    buckets.register(monkeypatch)
    folder = Folder.at(url or tmp_path)
    for seconds, stays in ((60.0, True), (-GRACE_SECONDS - 1, False)):
        left = left_by(folder, replace(dead(), space="elsewhere", seconds=seconds))
        graph.save(folder.path, replace=True)
        assert (left in folder.names()) == stays
    assert {name.partition("-")[0] for name in folder.names()} == {"manifest.json", "rank", "edges", "order"}


def test_a_note_that_says_nothing_counts_until_it_is_old(tmp_path: Path) -> None:
    """A saver may die between the making of the file and its first byte."""
    save_alone(tmp_path, 30)
    note = tmp_path / f"dbfs-save-{TOKEN}.json"
    note.touch()
    save_alone(tmp_path, 30)
    assert note.exists()
    os.utime(note, (0, 0))
    save_alone(tmp_path, 30)
    assert_whole(tmp_path, 30)


def test_a_manifest_that_can_still_be_renamed_keeps_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note of a dead save went, and the file system refuses to remove its manifest."""
    folder, remove = Folder(str(tmp_path)), Folder.remove
    left = left_by(folder, dead())
    (tmp_path / f"manifest-{TOKEN}.json.part").touch()

    def refuse(self: Folder, name: str) -> None:
        if not name.endswith(".part"):
            remove(self, name)

    monkeypatch.setattr(Folder, "remove", refuse)
    save_alone(tmp_path, 30)
    assert left in folder.names()
    monkeypatch.undo()
    save_alone(tmp_path, 30)
    assert_whole(tmp_path, 30)


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

    with dbfs.load("path:n=30", client=client, ranks=2) as other:
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


@pytest.mark.parametrize("there", [False, True])
def test_a_save_to_a_store_that_is_ended_while_it_writes_its_manifest(
    monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """Its files go, and what was there stays."""
    url, write = f"memory://ended/{there}", MemoryFileSystem.pipe_file
    folder = Folder.at(url)
    if there:
        save_alone(url, 30)
    ended: list[str] = []

    def end_and_write(files: MemoryFileSystem, path: str, *arguments: Any, **options: Any) -> None:
        if path.endswith("/manifest.json") and not ended:
            ended.extend(manifests.tokens(manifests.NOTE, folder.names()))
            assert not saves.withdraw(folder, *ended)
        write(files, path, *arguments, **options)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", end_and_write)
    with pytest.raises(OutputError, match="another save took this one for dead"):
        save_alone(url, 40)
    assert len(ended) == 1
    if there:
        kept = manifests.read(folder)
        assert kept.n == 30
        assert sorted(folder.names()) == sorted(["manifest.json", *(file.name for file in kept.files)])
    else:
        assert folder.names() == []
