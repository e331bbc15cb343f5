"""The folder of a saved graph: on a disk, or in a store that fsspec opens. Its calls raise dbfs's errors only.

What is written to a disk is synced, files and the names of files, so that it outlives a failure of power.
"""

import errno
import io
import math
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dbfs_workers.base.errors import DbfsError, FormatError, MissingFileError, OutputError, UnreadableFileError
from dbfs_workers.base.files import LocalFile, file_system

_LOCAL = ("file://", "local://")


@dataclass(frozen=True)
class Folder:
    """A folder that is reached by the same path from the client and from all workers.

    Attributes:
        path: absolute path, or a URL that fsspec understands, without a slash at its end.
        mapped: whether ranks map the folder's files. They copy files otherwise, and those of a store.
    """

    path: str
    mapped: bool = False

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> "Folder":
        """Return the folder of a path or URL; a relative path is of this process's working directory.

        Raise ``UnreadableFileError`` if the path can be no path.
        """
        name = os.fsdecode(path)
        for scheme in _LOCAL:
            name = name.removeprefix(scheme)
        if "://" in name:
            return cls(name.rstrip("/"))
        with reading(name):
            return cls(str(Path(name).expanduser().absolute()))

    @property
    def local(self) -> bool:
        """Whether the folder is on a disk."""
        return "://" not in self.path

    def file(self, name: str) -> str:
        """Return the path or URL of a file in the folder."""
        return f"{self.path}/{name}"

    def names(self) -> list[str]:
        """Return the names of all that is in the folder, sorted; none if the folder does not exist.

        Raises:
            FormatError: the path is that of a file, or its folder may not be listed.
            UnreadableFileError: the file system or the network fails.
        """
        with reading(self.path):
            files, inner = self._file_system()
            # Stores list what they listed before.
            files.invalidate_cache(inner)
            try:
                found = files.ls(inner, detail=False)
            except FileNotFoundError:
                return []
            except NotADirectoryError as error:
                raise FormatError(f"{self.path} is a file; expected a folder") from error
        if self.local and not Path(self.path).is_dir():
            raise FormatError(f"{self.path} is a file; expected a folder")
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def size(self, name: str) -> int:
        """Return the bytes of a file.

        Raises:
            MissingFileError: there is no such file.
            FormatError, UnreadableFileError: see ``names``.
        """
        path = self.file(name)
        with reading(path):
            if self.local:
                with LocalFile(path) as raw:
                    return raw.seek(0, os.SEEK_END)
            files, inner = self._file_system()
            info: dict[str, Any] = files.info(f"{inner}/{name}")
        if info.get("type") != "file":
            raise FormatError(f"{path} is not a regular file")
        return int(info.get("size") or 0)

    def read(self, name: str, start: int, to: memoryview) -> int:
        """Read bytes of a file from ``start`` on into ``to``; return their number: fewer if the file ends before.

        Errors as for ``size``.
        """
        with reading(self.file(name)):
            if not self.local:
                files, inner = self._file_system()
                found: bytes = files.cat_file(f"{inner}/{name}", start=start, end=start + len(to))
                to[: len(found)] = found
                return len(found)
            done = 0
            with LocalFile(self.file(name)) as raw:
                raw.seek(start)
                # A read returns at most 2 GiB, and may return less.
                while read := raw.readinto(to[done:]):
                    done += read
            return done

    def content(self, name: str, most: int) -> bytes:
        """Return all bytes of a file of at most ``most`` bytes, else raise ``FormatError``; errors as for ``size``.

        The bytes are of one file, also where another takes its name meanwhile.
        """
        size = self.size(name)
        if size <= most:
            with reading(self.file(name)):
                if self.local:
                    # Another file may have come since, of any size.
                    with io.BufferedReader(LocalFile(self.file(name))) as raw:
                        found: bytes = raw.read(most + 1)
                else:
                    files, inner = self._file_system()
                    found = files.cat_file(f"{inner}/{name}")
            size = len(found)
        if size > most:
            raise FormatError(f"{self.file(name)} has {size:,} bytes or more; expected at most {most:,}")
        return found

    def map(self, name: str) -> mmap.mmap | bytes:
        """Return a file of a local folder as read-only memory, the system's page cache. Errors as for ``size``."""
        with reading(self.file(name)), LocalFile(self.file(name)) as raw:
            size = raw.seek(0, os.SEEK_END)
            # An empty file can't be mapped.
            return mmap.mmap(raw.fileno(), size, prot=mmap.PROT_READ) if size else b""

    def make(self) -> bool:
        """Make the folder and those above it, where the store has folders; return whether a disk did not have it.

        Errors as for ``create``.
        """
        with _writing(self.path):
            files, inner = self._file_system()
            new = [path for path in (Path(self.path), *Path(self.path).parents) if self.local and not path.exists()]
            files.makedirs(inner, exist_ok=True)
            for path in new:
                sync(path.parent)
            return bool(new)

    @contextmanager
    def create(self, name: str) -> Iterator[IO[bytes]]:
        """Open a new file; an exception in the block removes it.

        Raises:
            OutputError: the file system refuses, or is full.
        """
        path = self.file(name)
        with _writing(path):
            files, inner = self._file_system()
            raw: IO[bytes] = files.open(f"{inner}/{name}", "wb")
        try:
            with _writing(path), raw:
                yield raw
                if self.local:
                    _sync(raw)
        except BaseException:
            self.remove(name)
            raise

    def modified(self, name: str) -> float:
        """Return when a file was last written, in seconds of the folder's clock; NaN if a store does not say.

        Errors as for ``size``.
        """
        with reading(self.file(name)):
            files, inner = self._file_system()
            try:
                return float(files.modified(f"{inner}/{name}").timestamp())
            except (NotImplementedError, AttributeError, RuntimeError):
                # What file systems of fsspec do that have no time, or none of this file.
                return math.nan

    def put(self, name: str, content: bytes, part: str, check: Callable[[], None], replace: bool) -> bool:
        """Write a small file in one step: a reader finds the old content or the new one, never a part.

        Args:
            name: name of the file.
            part: name of the file until it is complete, on a disk. If another process removes that file, ``put`` fails.
            check: called immediately before the step; what it raises ends the call.
            replace: whether the file may be there already.

        Returns:
            Whether the file was written: not if it is there and may not be replaced. A store whose file system in
            fsspec has no exclusive write may replace one that another process has just written.

        Errors as for ``create``.
        """
        with _writing(self.file(name)):
            files, inner = self._file_system()
            if not self.local:
                check()
                # Stores keep an object as it was until the new one is complete.
                try:
                    files.pipe_file(f"{inner}/{name}", content, **({} if replace else {"mode": "create"}))
                except FileExistsError:
                    return False
                return True
            # The files before the one that names them.
            sync(self.path)
            temporary = Path(self.path, part)
            try:
                with temporary.open("wb") as raw:
                    raw.write(content)
                    _sync(raw)
                check()
                if replace:
                    temporary.replace(Path(self.path, name))
                else:
                    _rename_new(temporary, Path(self.path, name))
            except FileExistsError:
                return False
            finally:
                temporary.unlink(missing_ok=True)
            sync(self.path)
            return True

    def rename(self, old: str, new: str) -> None:
        """Give a file another name. Errors as for ``create``."""
        with _writing(self.file(new)):
            files, inner = self._file_system()
            files.mv(f"{inner}/{old}", f"{inner}/{new}")
            if self.local:
                sync(self.path)

    def remove(self, name: str) -> None:
        """Remove a file, if the file system allows that."""
        with suppress(Exception):
            files, inner = self._file_system()
            files.rm_file(f"{inner}/{name}")

    def _file_system(self) -> tuple[Any, str]:
        return file_system(self.path)


def sync(path: str | os.PathLike[str]) -> None:
    """Have the disk keep a file as it is now, or the names of the files in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems over a network sync no folders.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _rename_new(old: Path, new: Path) -> None:
    """Give a file another name, or raise ``FileExistsError`` if that is taken; the old name may stay."""
    try:
        os.link(old, new)
    except OSError as error:
        # Not all file systems have links. On these another process may take the name between the two calls.
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        if new.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new) from None
        old.replace(new)


def _sync(raw: IO[bytes]) -> None:
    raw.flush()
    os.fsync(raw.fileno())


def _own_error(error: Exception) -> Exception:
    """Return the error of a network behind fsspec's ``FileNotFoundError`` for any failure of a web server."""
    cause = error.__cause__
    failed = isinstance(error, FileNotFoundError) and isinstance(cause, OSError | TimeoutError)
    return cause if failed and isinstance(cause, Exception) else error


def is_refused(error: Exception) -> bool:
    """Return whether a file system's error says that the caller has no permission.

    Those of disks and s3fs are ``PermissionError``. gcsfs has an ``OSError`` whose text begins with ``Forbidden``. That
    of a web server has the status 401 or 403, and fsspec may raise ``FileNotFoundError`` from it.
    """
    statuses = {getattr(one, "status", None) for one in (error, error.__cause__)}
    return isinstance(error, PermissionError) or bool(statuses & {401, 403}) or str(error).startswith("Forbidden: ")


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn the errors of reading a file into dbfs's.

    Each file system has errors of its own: those of a network's libraries are no ``OSError``. So this stands around
    calls of files only, and takes any error.
    """
    try:
        yield
    except DbfsError:
        raise
    except Exception as raised:
        error = _own_error(raised)
        if is_refused(error):
            raise FormatError(f"{path} can't be read: permission denied") from error
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise MissingFileError(f"{path}: no such file") from error
        raise UnreadableFileError(f"{path} can't be read: {_reason(error)}") from error


@contextmanager
def _writing(path: str) -> Iterator[None]:
    """Turn the errors of writing a file into ``OutputError``."""
    try:
        yield
    except DbfsError:
        raise
    except Exception as error:
        raise OutputError(f"{path} can't be written: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
