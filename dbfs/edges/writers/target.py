"""Target: the file to write, which appears only when it is complete, and the stream its bytes go through."""

import bz2
import gzip
import lzma
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from dbfs.errors import InvalidOptionError, OutputError

# The levels that the command-line tools have, but for gzip: 9 takes Python's three times as long for 1 % less.
COMPRESSIONS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda raw: gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0),
    ".xz": lambda raw: lzma.LZMAFile(raw, "wb"),  # noqa: SIM115 - its user closes it
    ".bz2": lambda raw: bz2.BZ2File(raw, "wb"),
}
"""Compressors by suffix."""


@dataclass(frozen=True)
class Sink:
    """Where a writer's bytes go.

    Attributes:
        stream: binary; compresses where the name says so.
        name: the file's, for messages.
    """

    stream: IO[bytes]
    name: str

    def write(self, text: bytes) -> None:
        """Append bytes."""
        self.stream.write(text)


@dataclass(frozen=True)
class Target:
    """A file to write."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> "Target":
        """The target, looked at before anything is computed for it.

        Raises:
            InvalidOptionError: there is no such folder, or something else than a file has the name.
            OutputError: the file system refuses the name.
        """
        with _explained(path):
            if not path.parent.is_dir():
                raise InvalidOptionError(f"{path}: there is no folder {path.parent}")
            if path.exists() and not path.is_file():
                raise InvalidOptionError(f"{path} is there and not a regular file; choose another name")
        return cls(path)

    @contextmanager
    def opened(self, compression: str) -> Iterator[Sink]:
        """A sink whose bytes become the file when the block ends, and vanish when it ends with an exception.

        Raises:
            OutputError: the folder refuses the file, or the disk the bytes.
        """
        # Beside the file, because only within a file system does one name replace the other at once.
        part = self.path.with_name(f".dbfs-{uuid.uuid4().hex[:12]}.part")
        with _explained(self.path):
            raw = part.open("xb")
        try:
            with _explained(self.path), raw:
                stream = COMPRESSIONS[compression](raw) if compression else raw
                try:
                    yield Sink(cast(IO[bytes], stream), str(self.path))
                finally:
                    stream.close()
            with _explained(self.path):
                part.replace(self.path)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # Errors of dbfs may be OSErrors, too; those of the machine have a number.
        if error.errno is None:
            raise
        raise OutputError(f"{path} can't be written: {error.strerror or error}") from error
