"""Processes that save graphs: with a cluster of their own, or as one rank, step by step, without any cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

import dbfs
from dbfs.errors import DbfsError
from dbfs.features.saved import writer as work
from dbfs_workers.base.folder import Folder
from dbfs_workers.features.saved import manifest as manifests
from dbfs_workers.features.saved import saves, tasks, writing
from dbfs_workers.features.saved.manifest import Manifest, SavedIds
from dbfs_workers.features.saved.saves import GRACE_SECONDS, Saver
from dbfs_workers.ids.table import INTEGER
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import partitions, processes
from tests.support.saved import read_manifest

SAVED, KILLED, OVER = "saved", "killed", "over"
TOKEN = "0123456789ab"
_ANSWER_SECONDS = 100
# Python's events of work on files, which come before the work.
_FILE_EVENTS = {"open", "os.listdir", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.scandir", "os.utime"}


def assert_whole(path: Path, *sizes: int, alone: bool = True) -> None:
    """Check that a folder has a whole graph, with one of these numbers of vertices, and with ``alone`` nothing else."""
    files = {file.name: file.stat().st_size for file in path.iterdir()}
    manifest = read_manifest(path)
    assert manifest.n in sizes
    named = {file.name: file.nbytes for file in manifest.files}
    assert {name: files.get(name) for name in named} == named
    if alone:
        assert files.keys() == {*named, manifests.NAME}


class Process:
    """A process that saves a path graph of ``n`` vertices wherever it is told, from a cluster of its own.

    While a file ``hold`` is beside the folder, the save waits before it writes to a file.
    """

    def __init__(self, n: int) -> None:
        context: Any = processes.context("cpu")
        self.n = n
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(n, theirs), daemon=True)
        self._process.start()
        theirs.close()
        assert self.answer() == "ready"

    def begin(self, path: Path, *, replace: bool = True) -> None:
        """Have the process save its graph in a folder."""
        self._line.send((path, replace))

    def answer(self) -> str:
        """Wait for the end of the save; return ``SAVED``, or the error in words."""
        assert self._line.poll(_ANSWER_SECONDS), "the saver hangs"
        answer: str = self._line.recv()
        return answer

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        self._process.kill()
        self._process.join(_ANSWER_SECONDS)


def _serve(n: int, line: Connection) -> None:
    """Save a path graph in the folders that come, until the line ends."""
    with (
        dask.config.set({"dbfs.liveness-interval": "20 ms"}),
        dbfs.connect(n_workers=2, processes=False, backend="cpu", dashboard_address=None) as client,
        dbfs.load(f"path:n={n}", client=client) as graph,
    ):
        line.send("ready")
        while True:
            try:
                path, replace = line.recv()
            except EOFError:
                return
            try:
                with holding(path.parent / "hold"):
                    graph.save(path, replace=replace)
                line.send(SAVED)
            except DbfsError as error:
                line.send(f"{type(error).__name__}: {error}")


@contextmanager
def holding(hold: Path) -> Iterator[None]:
    """Have the workers of this process wait before they write to a file of a save, while the file ``hold`` is there."""
    sink = writing.Sink

    class Held(sink):  # type: ignore[misc, valid-type]
        def write(self, content: object) -> int:
            until(lambda: not hold.exists())
            return int(super().write(content))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "Sink", Held)
        yield


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + _ANSWER_SECONDS
    while not condition():
        assert time.monotonic() < end, "what a test waits for does not come"
        time.sleep(0.01)


def written(path: Path, but: Iterable[str] = ()) -> list[str]:
    """Return the names of files with data in a folder, but for some."""
    return sorted({file.name for file in path.glob("*.arrow")} - set(but))


@contextmanager
def saving(*sizes: int) -> Iterator[list[Process]]:
    """Start processes that save path graphs of these sizes; kill them at the end."""
    savers: list[Process] = []
    try:
        for n in sizes:
            savers.append(Process(n))
        yield savers
    finally:
        for saver in savers:
            saver.kill()


def save_alone(path: Path | str, n: int) -> None:
    """Save a path graph of one rank in this process, as a save with ``replace`` does; others take it for dead."""
    folder, token = Folder.at(path), uuid.uuid4().hex[:12]
    made = False
    try:
        made = work.prepare(folder, token, Saver.here(-2 * GRACE_SECONDS), True)
        ends = np.arange(n)
        (partition,) = partitions.build(Stripe(n, 1), ends[:-1], ends[1:], directed=False)
        rank = work.on_listed(tasks.save_rank, folder, token, partition, None, 60.0, 0.9)
        ids = SavedIds(0, (INTEGER,), (), ())
        work.publish(folder, token, Manifest("path", "0", 0.0, n, False, False, n - 1, (rank,), None, ids), True)
    except DbfsError:
        work.withdraw(folder, token, made)
        raise


class Interrupted:
    """Saves that are interrupted, each in a process of its own, which is forked from one without threads."""

    def __init__(self) -> None:
        context: Any = processes.context("cpu")
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_fork_saves, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def save(self, path: Path, n: int, step: int, meanwhile: int = 0) -> str:
        """Save a graph, and interrupt the save before its ``step``-th work on a file of the folder.

        Args:
            path: the folder.
            n: number of vertices of the graph.
            step: counts from 0.
            meanwhile: 0 to kill the process; else another client takes the saver for dead, and saves a graph with so
                many vertices, before the save goes on.

        Returns:
            ``SAVED``, the error in words, or ``KILLED``; ``OVER`` if the save had fewer steps.
        """
        self._line.send((path, n, step, meanwhile))
        assert self._line.poll(_ANSWER_SECONDS), "the save hangs"
        answer: str = self._line.recv()
        return answer

    def end(self) -> None:
        """End the process."""
        self._line.close()
        self._process.join(_ANSWER_SECONDS)


def _fork_saves(line: Connection) -> None:
    """Fork a process for each save that is asked for."""
    # A process that is killed loses nothing that it has written, synced or not.
    os.fsync = lambda fd: None
    # Loads the kernels, which the forked processes have then.
    save_alone("memory://savers", 2)
    while True:
        try:
            asked = line.recv()
        except EOFError:
            return
        reading, writing_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing_end, _interrupt(*asked).encode())
            os._exit(0)
        os.close(writing_end)
        with open(reading, encoding="utf-8") as answer:  # noqa: PTH123 - of a descriptor
            words = answer.read()
        os.waitpid(child, 0)
        line.send(words or KILLED)


def _interrupt(path: Path, n: int, step: int, meanwhile: int) -> str:
    left = [step]

    def act() -> None:
        if meanwhile:
            save_alone(path, meanwhile)
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    _before_work_on(path, left, act)
    try:
        save_alone(path, n)
        answer = SAVED
    except BaseException as error:
        answer = f"{type(error).__name__}: {error}"
    return OVER if left[0] >= 0 else answer


def _before_work_on(path: Path, left: list[int], act: Callable[[], None]) -> None:
    """Call ``act`` before this process works on a file in a folder for the ``left``-th time, counted from 0."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _FILE_EVENTS and str(arguments[0]).startswith(str(path)):
            left[0] -= 1
            if left[0] == -1:
                act()

    sys.addaudithook(hook)


def dead() -> Saver:
    """Return a client whose process has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return replace(Saver.here(60.0), pid=process.pid)


def left_by(folder: Folder, saver: Saver) -> str:
    """Leave in a folder what a save leaves that dies early; return the name of its file with data."""
    saves.begin(folder, TOKEN, saver)
    name = f"rank-0-{TOKEN}.arrow"
    with folder.create(name) as file:
        file.write(b"half")
    return name
