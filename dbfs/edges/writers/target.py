"""Target: a file to write, which appears only when it is complete. Sink: the stream that takes its bytes.

Also the folders and URLs that the configuration allows workers to write to (``dbfs.write.folders``).
"""

import bz2
import fcntl
import gzip
import lzma
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from dbfs import config
from dbfs.errors import InvalidOptionError, OutputError
from dbfs_workers.base.folder import sync

# Compression levels of the command-line tools: for gzip 6, since Python's default of 9 takes three times as long and
# saves 1 %.
COMPRESSIONS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda raw: gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0),
    ".xz": lambda raw: lzma.LZMAFile(raw, "wb"),  # noqa: SIM115 - its user closes it
    ".bz2": lambda raw: bz2.BZ2File(raw, "wb"),
}
"""Compressors by suffix."""

# Seconds after which the program that made an unfinished file has its lock.
_LOCKED_BY_THEN: Final = 60.0


@dataclass(frozen=True)
class Sink:
    """Stream that takes a writer's bytes.

    Attributes:
        stream: binary; compresses if the file's name says so.
        name: name of the file, for messages.
    """

    stream: IO[bytes]
    name: str

    def write(self, text: bytes) -> None:
        """Append bytes to the file."""
        self.stream.write(text)


@dataclass(frozen=True)
class Target:
    """A file to write."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> "Target":
        """Check that a file can have this path, before any work is done for it.

        Raises:
            InvalidOptionError: there is no such folder, or the path exists and is not a regular file.
            OutputError: the file system refuses the name.
        """
        with _explained(path):
            if not path.parent.is_dir():
                raise InvalidOptionError(f"{path}: there is no folder {path.parent}")
            if path.exists() and not path.is_file():
                raise InvalidOptionError(f"{path} exists and is not a regular file; choose another name")
        return cls(path)

    @contextmanager
    def opened(self, compression: str) -> Iterator[Sink]:
        """Open a sink whose bytes become the file when the block ends. An exception discards them.

        Raises:
            OutputError: the folder refuses the file, or the disk is full.
        """
        # In the same folder, because a rename replaces a file atomically only within one file system.
        part = self.path.with_name(f".dbfs-{uuid.uuid4().hex[:12]}.part")
        _remove_abandoned(self.path.parent)
        with _explained(self.path):
            raw = part.open("xb")
        # Until the file is whole, or the process is gone.
        with suppress(OSError):
            fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            with _explained(self.path), raw:
                stream = COMPRESSIONS[compression](raw) if compression else raw
                try:
                    yield Sink(cast(IO[bytes], stream), str(self.path))
                finally:
                    stream.close()
            with _explained(self.path):
                sync(part)
                part.replace(self.path)
                sync(self.path.parent)
        finally:
            part.unlink(missing_ok=True)


def _remove_abandoned(folder: Path) -> None:
    """Remove the unfinished files of programs that were killed: their locks are free."""
    for part in folder.glob(".dbfs-*.part"):
        with suppress(OSError), part.open("rb+") as raw:
            fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - part.stat().st_mtime > _LOCKED_BY_THEN:
                part.unlink()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn the machine's errors of writing into ``OutputError``."""
    try:
        yield
    except OSError as error:
        # An OSError of the machine has a number; those of dbfs have none.
        if error.errno is None:
            raise
        raise OutputError(f"{path} can't be written: {error.strerror or error}") from error


def require_listed(path: str) -> None:
    """Refuse a path or URL that is not below a folder in this process's list. The value ``auto`` allows any here.

    Raises:
        InvalidOptionError: no folder in the list is above the path, or the value is neither a list nor ``auto``.
    """
    allowed = _listed()
    if allowed is not None and not any(_is_below(path, folder) for folder in allowed):
        raise InvalidOptionError(f"{path}: dbfs.write.folders has only {_words(allowed)}; choose a folder below these")


def require_writable(path: str, *, shared: bool) -> None:
    """Refuse a path or URL to which the workers of a cluster should not write, by this client's configuration.

    Args:
        path: absolute path or URL.
        shared: whether other programs may use the cluster. With ``auto``, nothing is written for such a cluster.

    Errors as for ``require_listed``.
    """
    require_listed(path)
    if shared and _listed() is None:
        raise InvalidOptionError(
            f"{path}: a cluster that this program did not start writes only below the folders in dbfs.write.folders; "
            "set that in the configuration of client and workers, such as [/data/graphs, s3://bucket/graphs]"
        )


def _listed() -> list[str] | None:
    """Return the configured list; None for ``auto``."""
    value = config.get("write.folders")
    if value == "auto":
        return None
    folders = [value] if isinstance(value, str) else value
    right = isinstance(folders, list | tuple) and all(isinstance(one, str) and _is_absolute(one) for one in folders)
    if not right:
        raise InvalidOptionError(
            f"dbfs.write.folders: {value!r} is neither auto nor a list of absolute paths and URLs, such as [/data]"
        )
    return list(folders)


def _is_absolute(folder: str) -> bool:
    return "://" in folder or Path(folder).is_absolute()


def _is_below(path: str, folder: str) -> bool:
    """Return whether a path or URL is a folder or lies below it; links of the file system are followed."""
    if "://" in path or "://" in folder:
        # A chain such as simplecache::s3://... writes to several places.
        plain = "://" in path and "://" in folder and "::" not in path and ".." not in path.split("/")
        return plain and f"{path}/".startswith(f"{folder.rstrip('/')}/")
    return os.path.commonpath([os.path.realpath(path), os.path.realpath(folder)]) == os.path.realpath(folder)


def _words(folders: Iterable[str]) -> str:
    return ", ".join(folders) or "no folder"
