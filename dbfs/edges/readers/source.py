"""Source: a file's path and compression. Reading it raises dbfs's errors for every failure.

Any file that fsspec opens can be a source. Its first bytes, not its name, identify its compression, so that a wrong or
missing suffix does no harm.
"""

import bz2
import codecs
import gzip
import io
import lzma
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, cast

from dbfs import config
from dbfs.edges.readers.foreign import way_in
from dbfs.errors import (
    DbfsError,
    FormatError,
    InvalidOptionError,
    TruncatedFileError,
)
from dbfs_workers.base.files import file_system, open_file
from dbfs_workers.base.folder import is_refused, reading

Compression = Literal["gzip", "xz", "bz2", "zstd", "zip"]
Content = Literal["text", "parquet", "arrow", "npy", "npz"]
"""What a file holds, by its first bytes: text of any format, or a table or an array in a binary format."""

_MAGIC: dict[bytes, Compression] = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bz2",
    b"\x28\xb5\x2f\xfd": "zstd",
}
_ZIP = b"PK\x03\x04"
_BINARY: dict[bytes, Content] = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\x93NUMPY": "npy"}
_NAMES: dict[Content, str] = {
    "parquet": "a Parquet table",
    "arrow": "an Arrow table",
    "npy": "a NumPy array",
    "npz": "a NumPy archive",
}
_EXPECTED = "expected text, text compressed as gz, xz, bz2, zst or zip, a Parquet or Arrow table, or a NumPy array"
_UNREAD_MAGIC = {
    _ZIP: "a zip archive that is compressed again; unpack it",
    b"\x04\x22\x4d\x18": f"compressed by lz4; {_EXPECTED}",
    b"7z\xbc\xaf\x27\x1c": f"a 7z archive; {_EXPECTED}",
    b"FEA1": "a Feather table of version 1; write it again as version 2 (pyarrow.feather.write_feather)",
    b"PARE": "an encrypted Parquet table; expected one without encryption",
}
_ENCRYPTED = 1
# What Python's zipfile raises for broken archives, and for kinds of compression that it lacks.
_OF_ZIP = (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, struct.error)
_MOST_NAMES = 10
_TAR_MARK, _TAR_MARK_AT = b"ustar", 257
_ZSTD_BYTES = 1 << 20
# Stored bytes that a decompressor gets at once where the bytes of a part of the text count.
_STEP_BYTES = 1 << 12
_CONTROL = re.compile(rb"[\x01-\x08\x0e-\x1f\x7f]")
SUFFIXES = (".gz", ".xz", ".bz2", ".zst", ".zip")
START_BYTES = 1024
"""Bytes from the start of a file that ``require_text`` needs: a header of a binary format is shorter."""


@dataclass(frozen=True)
class Source:
    """A file that the client, and any worker that has the same path, can open.

    Attributes:
        path: absolute path, or a URL that fsspec understands.
        compression: by the first bytes; None for plain text, and for a binary file.
        size: bytes as stored; None if the file system doesn't report it.
        content: by the first bytes; ``text`` if the file is compressed.
        member: the name of the file in a zip archive; None of other files.
    """

    path: str
    compression: Compression | None
    size: int | None
    content: Content = "text"
    member: str | None = None

    @property
    def bare_name(self) -> str:
        """The name, of an archive the member's, in lower case, without folders and the suffix of a compression."""
        name = PurePosixPath((self.member or self.path).lower()).name
        suffix = PurePosixPath(name).suffix
        return name.removesuffix(suffix) if suffix in SUFFIXES else name

    @property
    def seekable(self) -> bool:
        """Whether workers can start to read in the middle: the file is not compressed, and its size is known."""
        return self.compression is None and self.size is not None and self.content != "npz"

    def chunks(
        self,
        start: int = 0,
        stop: int | None = None,
        *,
        size: int,
        look: Callable[[], None] | None = None,
    ) -> Iterator[bytes]:
        """Yield the text from byte ``start`` to ``stop`` (None: the end), decompressed, ``size`` bytes at a time.

        Args:
            start, stop: byte range of the text.
            size: bytes of a chunk; the last one may be shorter.
            look: called before the stored bytes of each chunk are read; what it raises ends the read.

        Raises:
            MissingFileError: there is no such file.
            TruncatedFileError: the compressed stream ends before its end mark.
            FormatError: the compressed stream is corrupt.
            UnreadableFileError: the machine or the network fails while the file is read.
            InvalidOptionError: the configuration does not allow the URL's scheme.
        """
        require_listed(self.path)
        with explained(self.path, self.compression):
            raw = open_file(self.path)
        try:
            with explained(self.path, self.compression):
                stream = _decompressed(
                    raw if look is None else cast(IO[bytes], _WatchedStream(raw, look)), self.compression
                )
                stream.seek(start)
            left = None if stop is None else stop - start
            while left is None or left > 0:
                with explained(self.path, self.compression):
                    chunk = stream.read(size if left is None else min(size, left))
                if not chunk:
                    return
                left = None if left is None else left - len(chunk)
                yield chunk
        finally:
            # The file was only read, so a failure to close loses nothing.
            with suppress(Exception):
                raw.close()

    def beginning(self, size: int) -> tuple[bytes, int]:
        """Return the text's first ``size`` bytes and up to 1 MiB more, and the stored bytes that these take.

        The stored bytes are at most ``_STEP_BYTES`` too many, and a block of the compression. A text of fewer bytes is
        returned whole. Errors are those of ``chunks``.
        """
        require_listed(self.path)
        text = bytearray()
        with explained(self.path, self.compression), open_file(self.path) as raw:
            # The directory of an archive, at its end, is read at once.
            steps = raw if self.compression == "zip" else cast(IO[bytes], _InSteps(raw))
            stream = _decompressed(steps, self.compression)
            # A buffer of the stream holds nothing after reads of its own size.
            while len(text) < size and (part := stream.read(_ZSTD_BYTES)):
                text += part
            return bytes(text), raw.tell()

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Open a binary file for a library that seeks in it.

        Errors of the opening are those of ``chunks``. What the library raises while the file is open passes.
        """
        require_listed(self.path)
        with explained(self.path, None):
            raw = open_file(self.path)
        try:
            yield raw
        finally:
            with suppress(Exception):
                raw.close()


class _WatchedStream:
    """A stream that calls a function before each of its reads: a read of much text may decompress for long.

    Args:
        raw: the stream.
        look: the function.
    """

    def __init__(self, raw: IO[bytes], look: Callable[[], None]) -> None:
        self._raw = raw
        self._look = look

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def read(self, size: int = -1) -> bytes:
        self._look()
        return self._raw.read(size)


class _InSteps(_WatchedStream):
    """A stream of which no read takes many bytes, so that its position is that of the text read so far.

    Args:
        raw: the stream.
    """

    def __init__(self, raw: IO[bytes]) -> None:
        super().__init__(raw, lambda: None)

    def read(self, size: int = -1) -> bytes:
        return super().read(_STEP_BYTES if size < 0 else min(size, _STEP_BYTES))


class _Zstd(io.RawIOBase):
    """The text of a zstd stream, by pyarrow: Python's own library has it from 3.14 on. It seeks forward only.

    Args:
        raw: the compressed stream.
    """

    def __init__(self, raw: IO[bytes]) -> None:
        import pyarrow as pa

        self._stream = pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        while whence == 0 and self._at < offset:
            if not self._read(min(_ZSTD_BYTES, offset - self._at)):
                break
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        part = self._read(len(buffer))
        buffer[: len(part)] = part
        return len(part)

    def _read(self, size: int) -> bytes:
        part: bytes = self._stream.read(size)
        self._at += len(part)
        return part


def _decompressed(raw: IO[bytes], compression: Compression | None) -> IO[bytes]:
    match compression:
        case "gzip":
            return cast(IO[bytes], gzip.GzipFile(fileobj=raw))
        case "xz":
            return cast(IO[bytes], lzma.LZMAFile(raw))
        case "bz2":
            return cast(IO[bytes], bz2.BZ2File(raw))
        case "zstd":
            return cast(IO[bytes], io.BufferedReader(_Zstd(raw), _ZSTD_BYTES))
        case "zip":
            archive = zipfile.ZipFile(raw)
            return archive.open(_members(archive)[0])
        case None:
            return raw


def _members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the files of an archive, without those in which macOS keeps what it alone reads."""
    return [info for info in archive.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX/")]


def _member_of(path: str, raw: IO[bytes]) -> str:
    """Return the name of the one file in a zip archive.

    Raises:
        FormatError: the archive holds none or several, or one that is encrypted or an archive itself.
    """
    with zipfile.ZipFile(raw) as archive:
        files = _members(archive)
        names = [info.filename for info in files]
        if len(files) != 1:
            if any(name.startswith("xl/") for name in names):
                raise FormatError(f"{path} is a workbook; dbfs.load(pandas.read_excel({path!r})) reads its first sheet")
            more = ", ..." if len(files) > _MOST_NAMES else ""
            raise FormatError(
                f"{path} is a zip archive of {len(files):,} files ({', '.join(names[:_MOST_NAMES])}{more}); expected "
                "one: unpack the archive, and pass the file of edges"
            )
        if files[0].flag_bits & _ENCRYPTED:
            raise FormatError(f"{path} is an encrypted zip archive; expected one without a password")
        with archive.open(files[0]) as member:
            start = member.read(START_BYTES)
        if not start:
            raise TruncatedFileError(f"{path} is empty: its file {names[0]!r} is; expected edges")
        if start.startswith((_ZIP, *_MAGIC)):
            raise FormatError(f"{path}: its file {names[0]!r} is compressed again; unpack the archive")
        return names[0]


def find_source(path: str | os.PathLike[str]) -> Source:
    """Find a file's size and compression.

    Raises:
        MissingFileError: there is no such file.
        TruncatedFileError: the file is empty.
        FormatError: the path is a directory, a device, a file without read permission, or an unsupported archive.
        UnreadableFileError: the path is no path, or the file system or the network fails.
        InvalidOptionError: the configuration does not allow the URL's scheme.
    """
    name = os.fsdecode(path)
    if "://" not in name:
        with explained(name, None):
            name = str(Path(name).expanduser().absolute())
    require_listed(name)
    with explained(name, None):
        files, inner = file_system(name)
        info: dict[str, Any] = files.info(inner)
        if info.get("type") == "directory":
            raise FormatError(f"{name} is a directory; expected one file of edges")
        with open_file(name) as raw:
            start = raw.read(START_BYTES)
    if not start:
        raise TruncatedFileError(f"{name} is empty; expected edges")
    compression = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
    content, member = content_of(name, start), None
    if content == "text" and start.startswith(_ZIP):
        compression = "zip"
        with explained(name, compression), open_file(name) as raw:
            member = _member_of(name, raw)
    elif compression is None and content == "text":
        require_text(name, start)
    # Files of /proc have a size of 0, whatever they hold.
    return Source(name, compression, info.get("size") or None, content, member)


def content_of(name: str, start: bytes) -> Content:
    """Return what a file holds by its first bytes. A zip archive is a NumPy archive only by its name."""
    if start.startswith(_ZIP) and ".npz" in name.lower():
        return "npz"
    return next((content for magic, content in _BINARY.items() if start.startswith(magic)), "text")


def require_text(name: str, start: bytes) -> None:
    """Refuse a binary file by the first ``START_BYTES`` bytes of its content, decompressed.

    Raises:
        FormatError: the file is an archive, a table or an array, which the message names, or another binary file.
    """
    content = content_of(name, start)
    if content != "text":
        raise FormatError(f"{name} holds {_NAMES[content]}; expected text. A compressed table must be decompressed")
    for magic, what in _UNREAD_MAGIC.items():
        if start.startswith(magic):
            raise FormatError(f"{name} is {what}")
    if start.startswith(_TAR_MARK, _TAR_MARK_AT):
        raise FormatError(f"{name} is a tar archive; unpack it and pass the file of edges in it")
    # A comment may have a control character, so that one alone does not make a file binary. UTF-16 has NULs alone.
    if has_control(start) and (b"\0" in start or not is_utf8(start)):
        raise FormatError(
            way_in(name, PurePosixPath(name.lower()).name, start) or f"{name} is a binary file; {_EXPECTED}"
        )


def has_control(text: bytes) -> bool:
    """Return whether bytes have a control character other than NUL and blanks."""
    return _CONTROL.search(text) is not None


def is_utf8(start: bytes) -> bool:
    """Return whether bytes are the start of a text in UTF-8, which may end within a character."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    return True


@contextmanager
def explained(path: str, compression: Compression | None) -> Iterator[None]:
    """Turn the errors of opening, reading and decompressing a file into dbfs's; see ``reading``."""
    with reading(path):
        try:
            yield
        except DbfsError:
            raise
        except (EOFError, zlib.error, lzma.LZMAError, *_OF_ZIP, OSError) as error:
            # Decompressors raise OSError itself, without a number. Errors with a number come from the machine or the
            # network.
            plain = type(error) in (OSError, gzip.BadGzipFile) and compression is not None and not is_refused(error)
            # Libraries that open URLs raise errors of zipfile's types too.
            if isinstance(error, _OF_ZIP) and compression != "zip":
                raise
            if isinstance(error, OSError) and (not plain or error.errno is not None):
                raise
            if isinstance(error, EOFError) or "Truncated compressed stream" in str(error):
                reason = f"truncated: its {compression} stream ends before its end mark"
                raise TruncatedFileError(f"{path} is {reason}") from error
            reason = f"corrupt: its {compression} stream can't be decompressed ({error})"
            raise FormatError(f"{path} is {reason}") from error


_LOCAL = ("file", "local")


def schemes(path: str) -> list[str]:
    """Return the schemes of a path or URL; ``file`` for a path. fsspec's chains (``zip://a::s3://b``) have several."""
    if "://" not in path:
        return ["file"]
    # The first part of a chain may be a scheme alone: ``simplecache::s3://bucket/file``.
    return [part.partition("://")[0].lower() for part in path.split("::")]


def require_listed(path: str) -> None:
    """Refuse a file whose scheme is not in this process's list. The value ``auto`` allows any scheme here.

    Raises:
        InvalidOptionError: a scheme is not in the list, or the value is neither a list nor ``auto``.
    """
    allowed = _listed()
    if allowed is not None:
        _require(path, allowed, "dbfs.read.schemes has")


def require_readable(path: str, *, shared: bool) -> None:
    """Refuse a file that the workers of a cluster should not read, by this client's configuration.

    Args:
        path: path or URL of the file.
        shared: whether other programs may use the cluster. With ``auto``, such a cluster reads local files only.

    Errors as for ``require_listed``.
    """
    require_listed(path)
    if shared and _listed() is None:
        _require(path, _LOCAL, "a cluster that this program did not start reads")


def _listed() -> list[str] | None:
    """Return the configured list, in lower case; None for ``auto``."""
    value = config.get("read.schemes")
    if value == "auto":
        return None
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise InvalidOptionError(f"dbfs.read.schemes: {value!r} is neither auto nor a list such as [file, https]")
    return [name.lower() for name in names]


def _require(path: str, allowed: Iterable[str], rule: str) -> None:
    refused = [scheme for scheme in schemes(path) if scheme not in allowed]
    if refused:
        raise InvalidOptionError(
            f"{path}: {rule} only {', '.join(allowed)}, not {', '.join(refused)}; add the scheme to dbfs.read.schemes "
            "of client and workers, or copy the file to a disk that all of them see"
        )
