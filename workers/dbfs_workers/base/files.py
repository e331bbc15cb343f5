"""Files to read: fsspec's file systems, and local files that are opened without a wait.

Of local files only regular ones are read. A named pipe opens when another process writes into it, and is read when that
process goes on; so are many devices. In a file's place they would hold up a worker's thread until the worker ends.
"""

import io
import os
import stat
from pathlib import Path
from typing import IO, Any, cast

from dbfs_workers.base.errors import DbfsError, FormatError, UnreadableFileError

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class LocalFile(io.FileIO):
    """A regular file, open to read.

    Args:
        path: the file.

    Raises:
        FormatError: what is there is not a regular file.
        OSError: the file system refuses.
    """

    def __init__(self, path: str) -> None:
        # Before the open as well: it may set off a device, or end the wait of a pipe's writer.
        _require_regular(path, Path(path).stat().st_mode)
        # The descriptor keeps the flag, because the reads of some regular files of /proc wait.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            _require_regular(path, os.fstat(descriptor).st_mode)
            super().__init__(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._path = path

    def readinto(self, buffer: Any) -> int:
        """See ``io.RawIOBase``.

        Raises:
            UnreadableFileError: the read would wait.
        """
        try:
            return os.readv(self.fileno(), [buffer])
        except BlockingIOError:
            raise UnreadableFileError(
                f"{self._path} can't be read: its next bytes have yet to be written, as those of a pipe; expected a "
                "file that is complete"
            ) from None

    # These methods of FileIO return a part, or None, where a read would wait.

    def read(self, size: int | None = -1) -> bytes:
        """See ``readinto``."""
        return cast(bytes, io.RawIOBase.read(self, -1 if size is None else size))

    def readall(self) -> bytes:
        """See ``readinto``."""
        return io.RawIOBase.readall(self)


def _require_regular(path: str, mode: int) -> None:
    kind = stat.S_IFMT(mode)
    if kind != stat.S_IFREG:
        raise FormatError(
            f"{path} is {_KINDS.get(kind, 'no file')}; expected a regular file, which can be read more than once"
        )


def file_system(path: str) -> tuple[Any, str]:
    """Return the fsspec file system of a path or URL, and the path in that file system.

    Raises:
        FormatError, UnreadableFileError: a local file in a chain of URLs is not a regular one, or its reads wait.
        Exception: the file system's own errors.
    """
    # Imported here to keep ``import dbfs`` fast.
    import fsspec

    # A local name may hold "::" or "*", which ``url_to_fs`` would read as a chain or a pattern.
    if "://" not in path:
        return fsspec.filesystem("file"), path
    for part in path.split("::")[1:]:
        if part.startswith(("file://", "local://")):
            _look_at(fsspec.filesystem("file")._strip_protocol(part))
    return cast(tuple[Any, str], fsspec.core.url_to_fs(path))


def _look_at(path: str) -> None:
    """Refuse a local file that fsspec would wait for.

    fsspec opens the files of a chain (``zip://a::file://b``) by their paths: this look does not see a file that takes
    the place of another one afterwards.
    """
    try:
        if not Path(path).is_dir():
            with LocalFile(path) as raw:
                raw.read(1)
    except DbfsError:
        raise
    except OSError:
        # fsspec's own errors say more. A file to write need not be there.
        return


def open_file(path: str) -> IO[bytes]:
    """Open a file to read. Errors as for ``LocalFile`` and ``file_system``."""
    from fsspec.implementations.local import LocalFileSystem

    files, inner = file_system(path)
    if isinstance(files, LocalFileSystem):
        return io.BufferedReader(LocalFile(inner))
    return cast(IO[bytes], files.open(inner, "rb"))
