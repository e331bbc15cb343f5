"""Pipes, sockets and devices in a file's place, in every format: refused by their kind, and never waited for."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import dbfs
from dbfs import from_file
from dbfs.cli import main
from dbfs.edges.writers import write_edges
from dbfs.errors import FormatError, UnreadableFileError
from tests.support.special_files import SPECIAL, put

SRC, DST = np.arange(5), np.arange(1, 6)


def by_dbfs(path: Path) -> object:
    return write_edges(dbfs.from_arrays(SRC, DST, n=6), path)


def by_arrow(path: Path) -> None:
    table = pa.table({"a": SRC, "b": DST})
    with pa.OSFile(str(path), "wb") as raw, pa.ipc.new_file(raw, table.schema) as writer:
        writer.write_table(table)


def by_zstd(path: Path) -> None:
    with pa.CompressedOutputStream(str(path), "zstd") as raw:
        raw.write(b"1 2\n" * 5)


FILES: dict[str, Callable[[Path], object]] = {
    "a.txt": by_dbfs,
    "a.txt.gz": by_dbfs,
    "a.txt.xz": by_dbfs,
    "a.txt.bz2": by_dbfs,
    "a.txt.zst": by_zstd,
    "a.csv": lambda path: path.write_text("a,b\n1,2\n"),
    "a.mtx": by_dbfs,
    "a.graph": by_dbfs,
    "a.gr": by_dbfs,
    "a.parquet": by_dbfs,
    "a.npz": by_dbfs,
    "a.npy": lambda path: np.save(path, np.stack([SRC, DST], 1)),
    "columns.npz": lambda path: np.savez(path, a=SRC, b=DST),
    "a.arrow": by_arrow,
}


@pytest.fixture(params=FILES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file of five edges, of each format in turn."""
    name: str = request.param
    FILES[name](tmp_path / name)
    return tmp_path / name


@pytest.mark.parametrize("what", SPECIAL)
def test_in_place_of_a_file(path: Path, what: str) -> None:
    edges = from_file(path)
    (piece,) = edges.cut(99)
    put(what, path)
    reads: list[Callable[[], object]] = [piece.read, lambda: from_file(path), lambda: from_file(f"file://{path}")]
    if path.name.startswith("a.txt"):
        reads.append(edges.sampled_edges)
    for read in reads:
        with pytest.raises(FormatError, match=rf"{path.name} is {what}; expected a regular file"):
            read()


def test_a_regular_file_whose_reads_wait(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (piece,) = from_file(path).cut(99)

    def wait(descriptor: int, buffers: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "readv", wait)
    # zipfile takes each error for a sign that the file is no archive.
    error, words = (
        (FormatError, "zip") if path.suffix == ".npz" else (UnreadableFileError, "bytes have yet to be written")
    )
    with pytest.raises(error, match=rf"{path.name} .*{words}"):
        piece.read()
    with pytest.raises(UnreadableFileError, match=rf"{path.name} can't be read: its next bytes have yet to be written"):
        from_file(path)


@pytest.mark.parametrize("what", SPECIAL)
def test_among_the_files_of_a_folder(tmp_path: Path, what: str) -> None:
    by_dbfs(tmp_path / "a.txt")
    put(what, tmp_path / "b.txt")
    for where in (tmp_path, tmp_path / "*.txt"):
        # To pass over it would leave out edges without a word.
        with pytest.raises(FormatError, match=rf"b\.txt is {what}; expected a regular file"):
            from_file(where)


@pytest.mark.parametrize("what", SPECIAL)
def test_within_a_chain(tmp_path: Path, what: str) -> None:
    put(what, tmp_path / "a.zip")
    for chain in ("zip://a.txt", "simplecache", "zip://web.dbfs"):
        with pytest.raises(FormatError, match=rf"a\.zip is {what}; expected a regular file"):
            from_file(f"{chain}::file://{tmp_path}/a.zip")


def test_a_substituted_process() -> None:
    """What a shell makes of ``dbfs run <(zcat edges.txt.gz)``."""
    reader, writer = os.pipe()
    os.write(writer, b"1 2\n")
    answer = CliRunner().invoke(main, ["run", f"/dev/fd/{reader}", "--source", "1"])
    assert answer.exit_code == 2
    assert (
        f"/dev/fd/{reader} is a named pipe; expected a regular file, which can be read more than once" in answer.stderr
    )
    os.close(reader)
    os.close(writer)


def test_a_file_of_proc_has_no_size() -> None:
    edges = from_file("/proc/sys/net/ipv4/ip_local_port_range")
    (piece,) = edges.cut(1)
    assert [ids.tolist() for ids in piece.read()] == [[int(port)] for port in Path(edges.name).read_text().split()]
