"""Files appear whole or not at all; bad names, folders and disks are typed errors."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.generate import path, uniform
from dbfs.edges.readers import from_file
from dbfs.edges.writers import SUFFIXES, write_edges
from dbfs.errors import (
    GraphTooLargeError,
    InvalidOptionError,
    MissingFileError,
    OutputError,
    TruncatedFileError,
    UnreadableFileError,
)
from dbfs_workers.building.pieces import Edges, Piece

ALL = [*SUFFIXES, ".mtx.gz", ".txt.xz", ".csv.bz2"]


class BrokenError(Exception):
    pass


@dataclass(frozen=True)
class GoodPiece:
    def read(self) -> Edges:
        return np.zeros(100_000, np.int64), np.ones(100_000, np.int64)


@dataclass(frozen=True)
class BrokenPiece:
    error: BaseException

    def read(self) -> Edges:
        raise self.error


@dataclass(frozen=True)
class BrokenEdges(EdgeList):
    """Edges whose reading fails after some pieces."""

    error: BaseException

    def cut(self, piece_edges: int) -> Sequence[Piece]:
        return [GoodPiece(), GoodPiece(), BrokenPiece(self.error)]


@pytest.mark.parametrize("suffix", ALL)
@pytest.mark.parametrize("error", [BrokenError("x"), KeyboardInterrupt(), MissingFileError("gone")], ids=repr)
def test_an_error_leaves_what_was_there(tmp_path: Path, suffix: str, error: BaseException) -> None:
    old = tmp_path / f"graph{suffix}"
    old.write_text("old")
    for out in (old, tmp_path / f"new{suffix}"):
        with pytest.raises(type(error)):
            write_edges(BrokenEdges("broken", 5, 300_000, False, error), out)
    assert [file.name for file in tmp_path.iterdir()] == [old.name]
    assert old.read_text() == "old"


def test_a_failing_disk_under_the_input_is_not_blamed_on_the_output(tmp_path: Path) -> None:
    # Of the class of OSError, as the errors of a full disk are.
    broken = BrokenEdges("input", 5, 300_000, False, UnreadableFileError("input can't be read: Input/output error"))
    with pytest.raises(UnreadableFileError, match=r"^input can't be read: Input/output error$"):
        write_edges(broken, tmp_path / "graph.mtx")


@pytest.mark.parametrize("suffix", ALL)
def test_an_old_file_is_replaced(tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"graph{suffix}"
    out.write_text("old" * 1000)
    write_edges(path(5), out)
    assert [file.name for file in tmp_path.iterdir()] == [out.name]
    assert out.read_bytes()[:3] != b"old"
    umask = os.umask(0)
    os.umask(umask)
    assert out.stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_file_is_synced_before_it_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    fsync = os.fsync

    def on_fsync(descriptor: int) -> None:
        file = Path(f"/proc/self/fd/{descriptor}").readlink()
        seen.append(file.suffix or "folder")
        assert (tmp_path / "graph.txt").exists() == file.is_dir()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", on_fsync)
    write_edges(path(5), tmp_path / "graph.txt")
    assert seen == [".part", "folder"]


@pytest.mark.parametrize(
    "name", ["graph", "graph.doc", "graph.gz", "graph.npz.gz", "graph.parquet.xz", "graph.mtx.zip", ".gz", "mtx"]
)
def test_names_without_a_format(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"must end in one of \.mtx, .*\.parquet; text formats may add \.gz"):
        write_edges(path(5), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_places_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="there is no folder"):
        write_edges(path(5), tmp_path / "no" / "graph.txt")
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(InvalidOptionError, match="exists and is not a regular file"):
        write_edges(path(5), tmp_path / "folder.txt")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InvalidOptionError, match="there is no folder"):
        write_edges(path(5), file / "graph.txt")


def test_a_name_too_long_for_the_file_system(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"can't be written: File name too long"):
        write_edges(path(5), tmp_path / f"{'x' * 252}.txt")


def test_directed_graphs_are_none_of_metis(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"METIS holds undirected graphs, and uniform:.* is directed"):
        write_edges(uniform(5, 5, directed=True), tmp_path / "graph.graph")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".npz", ".graph"])
def test_matrices_that_will_not_fit(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(GraphTooLargeError, match=r"2000000000000 entries takes about \d+ bytes .* are free"):
        write_edges(uniform(10, 10**12), tmp_path / f"graph{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_a_file_with_fewer_edges_than_promised(tmp_path: Path) -> None:
    cut = tmp_path / "cut.mtx"
    cut.write_text("%%MatrixMarket matrix coordinate pattern general\n% padding padding padding\n5 5 3\n1 2\n    2 3\n")
    with pytest.raises(TruncatedFileError, match="promises 3 edges"):
        write_edges(from_file(cut), tmp_path / "out.txt")
    assert [file.name for file in tmp_path.iterdir()] == ["cut.mtx"]


@pytest.mark.parametrize(
    "suffix", ["npz", *(pytest.param(one, marks=pytest.mark.full) for one in ("txt.gz", "parquet"))]
)
def test_a_full_disk(tmp_path: Path, suffix: str) -> None:
    """A limit on the size of files stands in for a full disk: writing past it fails in the same way."""
    script = (
        "import resource, signal, sys, dbfs\n"
        "from dbfs.errors import OutputError\n"
        "from dbfs.edges.writers import write_edges\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try: write_edges(dbfs.uniform(10**5, 10**5), sys.argv[1])\n"
        "except OutputError as error: print(error)\n"
    )
    out = tmp_path / f"graph.{suffix}"
    done = subprocess.run([sys.executable, "-c", script, str(out)], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(f"{out} can't be written: File too large"), done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dbfs", "generate", "uniform:n=1e9,m=1e10", "-o", str(tmp_path / "graph.txt")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not any(file.stat().st_size for file in tmp_path.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (part,) = tmp_path.iterdir()
        assert part.name.startswith(".dbfs-")
        process.send_signal(2)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []
