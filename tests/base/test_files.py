"""Local files are opened without a wait, and read as Python's own files are."""

import io
import os
from contextlib import suppress
from pathlib import Path

import pytest

from dbfs_workers.base import files
from dbfs_workers.base.errors import FormatError, UnreadableFileError
from dbfs_workers.base.files import LocalFile, open_file
from dbfs_workers.base.folder import Folder
from tests.support.special_files import SPECIAL, put

CONTENT = os.urandom(100_000)


def descriptors(folder: Path) -> list[str]:
    """Return the open files of this process below a folder: other tests of the process may close theirs meanwhile."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(descriptor.readlink()))
    return [path for path in found if path.startswith(str(folder))]


@pytest.mark.parametrize("what", SPECIAL)
@pytest.mark.parametrize("scheme", ["", "file://", "local://", "simplecache::file://"])
def test_only_regular_files_are_opened(tmp_path: Path, what: str, scheme: str) -> None:
    put(what, tmp_path / "file")
    before = descriptors(tmp_path)
    with pytest.raises(FormatError, match=rf"^{tmp_path}/file is {what}; expected a regular file, which can be read"):
        open_file(f"{scheme}{tmp_path}/file")
    assert descriptors(tmp_path) == before


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is a directory; expected a regular file"):
        LocalFile(str(tmp_path))


def test_a_pipe_that_takes_the_place_of_the_file_before_the_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    found = os.open

    def late(name: str, flags: int) -> int:
        put("a named pipe", path)
        return found(name, flags)

    monkeypatch.setattr(os, "open", late)
    before = descriptors(tmp_path)
    with pytest.raises(FormatError, match="is a named pipe"):
        LocalFile(str(path))
    assert descriptors(tmp_path) == before


@pytest.mark.parametrize("sizes", [[-1], [0, 1, 5, -1], [1 << 13, 7, 1 << 16, 1 << 20], [1 << 20]])
@pytest.mark.parametrize("start", [0, 99_000])
def test_reads_are_those_of_a_file(tmp_path: Path, sizes: list[int], start: int) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    for buffered in (False, True):
        raw = LocalFile(str(tmp_path / "file"))
        with io.BufferedReader(raw) if buffered else raw as file, (tmp_path / "file").open("rb") as like:
            file.seek(start)
            like.seek(start)
            assert [file.read(size) for size in sizes] == [like.read(size) for size in sizes]
            assert file.tell() == like.tell()


def test_a_file_that_takes_the_place_of_a_small_one_is_read_up_to_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, taken, readinto = Folder.at(tmp_path), list[int](), LocalFile.readinto

    def counted(self: LocalFile, buffer: memoryview) -> int:
        taken.append(readinto(self, buffer))
        return taken[-1]

    monkeypatch.setattr(LocalFile, "readinto", counted)
    (tmp_path / "file").write_bytes(CONTENT)
    assert folder.content("file", len(CONTENT)) == CONTENT
    monkeypatch.setattr(Folder, "size", lambda self, name: 1)
    taken.clear()
    with pytest.raises(FormatError, match=r"file has 11 bytes or more; expected at most 10"):
        folder.content("file", 10)
    assert sum(taken) <= io.DEFAULT_BUFFER_SIZE
    # A regular file whose next bytes have yet to be written: a pipe passes for one.
    monkeypatch.setattr(files, "_require_regular", lambda path, mode: None)
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    os.write(writer, b"some")
    with pytest.raises(UnreadableFileError, match="pipe can't be read: its next bytes have yet to be written"):
        folder.content("pipe", 10)
    os.close(writer)


@pytest.mark.parametrize("content", [b"", b"some"])
@pytest.mark.parametrize("size", [9, -1])
@pytest.mark.parametrize("buffered", [False, True])
def test_reads_that_would_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, size: int, buffered: bool
) -> None:
    """As those of ``/proc/kmsg`` do, a regular file. Here a pipe passes for one."""
    monkeypatch.setattr(files, "_require_regular", lambda path, mode: None)
    os.mkfifo(tmp_path / "file")
    writer = os.open(tmp_path / "file", os.O_RDWR)
    os.write(writer, content)
    raw = LocalFile(str(tmp_path / "file"))
    with io.BufferedReader(raw) if buffered else raw as file:
        with pytest.raises(UnreadableFileError, match="file can't be read: its next bytes have yet to be written"):
            # The last one of these reads finds nothing.
            while file.read(size):
                pass
    os.close(writer)
