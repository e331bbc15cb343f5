"""Source: a file's path and compression. Reading it raises dbfs's errors for every failure.

Any file that fsspec opens can be a source. Its first bytes, not its name, identify its compression, so that a wrong or
missing suffix does no harm.
"""

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

from dbfs.errors import DbfsError, FormatError, MissingFileError, TruncatedFileError

Compression = Literal["gzip", "xz", "bz2"]

_MAGIC: dict[bytes, Compression] = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"BZh": "bz2"}
_UNREAD_MAGIC = {
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"\x04\x22\x4d\x18": "compressed by lz4",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
}
SUFFIXES = (".gz", ".xz", ".bz2")


@dataclass(frozen=True)
class Source:
    """A file that the client, and any worker that has the same path, can open.

    Attributes:
        path: absolute path, or a URL that fsspec understands.
        compression: by the first bytes; None for plain text.
        size: bytes as stored; None if the file system doesn't report it.
    """

    path: str
    compression: Compression | None
    size: int | None

    @property
    def seekable(self) -> bool:
        """Whether workers can start to read in the middle: the file is not compressed, and its size is known."""
        return self.compression is None and self.size is not None

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the text as a binary stream, which decompresses as it is read.

        Raises:
            MissingFileError: there is no such file.
            TruncatedFileError: the compressed stream ends before its end mark.
            FormatError: the compressed stream is corrupt, or the file can't be opened.
            OSError: the machine or the network fails while the file is read.
        """
        with _explained(self.path, self.compression), _open_raw(self.path) as raw:
            match self.compression:
                case "gzip":
                    with gzip.GzipFile(fileobj=raw) as text:
                        yield cast(IO[bytes], text)
                case "xz":
                    with lzma.LZMAFile(raw) as text:
                        yield cast(IO[bytes], text)
                case "bz2":
                    with bz2.BZ2File(raw) as text:
                        yield cast(IO[bytes], text)
                case None:
                    yield raw


def find_source(path: str | os.PathLike[str]) -> Source:
    """Find a file's size and compression.

    Raises:
        MissingFileError: there is no such file.
        TruncatedFileError: the file is empty.
        FormatError: the path is a directory, a device, a file without read permission, or an unsupported archive.
    """
    name = os.fspath(path)
    if "://" not in name:
        name = str(Path(name).expanduser().absolute())
    with _explained(name, None):
        files, inner = _file_system(name)
        info: dict[str, Any] = files.info(inner)
        if info.get("type") == "directory":
            raise FormatError(f"{name} is a directory; expected one file of edges")
        if info.get("type") != "file":
            raise FormatError(f"{name} is not a regular file; expected a file that can be read more than once")
        with _open_raw(name) as raw:
            start = raw.read(8)
    if not start:
        raise TruncatedFileError(f"{name} is empty; expected edges")
    for magic, what in _UNREAD_MAGIC.items():
        if start.startswith(magic):
            raise FormatError(f"{name} is {what}; expected text, or text compressed as gz, xz or bz2")
    compression = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
    return Source(name, compression, info.get("size"))


def _file_system(path: str) -> tuple[Any, str]:
    # Imported here to keep ``import dbfs`` fast.
    import fsspec

    # A local name may hold "::" or "*", which ``url_to_fs`` would read as a chain or a pattern.
    if "://" not in path:
        return fsspec.filesystem("file"), path
    try:
        return cast(tuple[Any, str], fsspec.core.url_to_fs(path))
    except (ValueError, ImportError) as error:
        raise FormatError(f"{path} can't be opened: {error}") from error


def _open_raw(path: str) -> IO[bytes]:
    files, inner = _file_system(path)
    return cast(IO[bytes], files.open(inner, "rb"))


@contextmanager
def _explained(path: str, compression: Compression | None) -> Iterator[None]:
    """Turn the errors of opening, reading and decompressing a file into dbfs's."""
    try:
        yield
    except DbfsError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFileError(f"{path}: no such file") from error
    except PermissionError as error:
        raise FormatError(f"{path} can't be read: permission denied") from error
    except EOFError as error:
        raise TruncatedFileError(f"{path} is truncated: its {compression} stream ends before its end mark") from error
    except (zlib.error, lzma.LZMAError) as error:
        raise FormatError(f"{path} is corrupt: its {compression} stream can't be decompressed ({error})") from error
    except OSError as error:
        # Decompressors raise OSError without a number. Errors with a number come from the machine or the network.
        if compression is None or error.errno is not None:
            raise
        raise FormatError(f"{path} is corrupt: its {compression} stream can't be decompressed ({error})") from error
