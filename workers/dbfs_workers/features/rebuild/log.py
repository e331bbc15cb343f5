"""The log of a living graph: the versions after a saved one, in files beside the saved graph's.

A version has a record on each rank, of the edges that changed in the rank's rows, written while it is prepared. When
all ranks have theirs, rank 0 writes the version's decision. A version counts once its decision is on the disk.

Each forming of the gang writes files of its own. A gang whose log another one has taken over, in this cluster or in a
new one, decides no more: a gang looks for a later one's file after it has written, and a new gang counts the decisions
after it has made its file. What a process leaves that dies between the two is void from the first version on that a
later gang has decided.

A record is a head (``_HEAD``: a mark, the CRC-32 of the rest, its bytes), and then JSON and arrays. What is torn at a
file's end was never answered, and is ignored.
"""

from __future__ import annotations

import json
import os
import re
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import FormatError, OutputError
from dbfs_workers.base.folder import reading, sync

_HEAD: Final = struct.Struct("<4sIQ")
_MARK: Final = b"dbfs"
_DECISIONS: Final = re.compile(r"decided-(\d{8})-([0-9a-f]+)")
_TYPES: Final = ("int64", "uint64")


@dataclass(frozen=True)
class Record:
    """A record: facts that JSON can say, and arrays of ``int64`` or ``uint64`` by name."""

    facts: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]

    def to_bytes(self) -> bytes:
        """Return the record as a file has it."""
        arrays = {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}
        places = [[name, array.dtype.name, array.size] for name, array in arrays.items()]
        text = json.dumps([dict(self.facts), places], separators=(",", ":")).encode()
        body = b"".join([len(text).to_bytes(8, "little"), text, *(array.tobytes() for array in arrays.values())])
        return _HEAD.pack(_MARK, zlib.crc32(body), len(body)) + body

    @classmethod
    def of_body(cls, body: memoryview) -> Record:
        """Return the record of what follows a head; any error says that it is none."""
        end = 8 + int.from_bytes(body[:8], "little")
        facts, places = json.loads(bytes(body[8:end]))
        arrays = {}
        for name, dtype, size in places:
            if dtype not in _TYPES:
                raise ValueError(dtype)
            arrays[name] = np.frombuffer(body, dtype, size, end).copy()
            end += arrays[name].nbytes
        return cls(facts, arrays)


@dataclass(frozen=True)
class Decision:
    """A version that counts.

    Attributes:
        version: its number.
        graph_id: the id of the graph, one of those that it had, whose gang decided.
        run_id: the run that made it.
        record: facts and arrays, of ``worker.VersionLogs.decide``.
    """

    version: int
    graph_id: str
    run_id: str
    record: Record


class LogFile:
    """A file to which one process adds records.

    Args:
        path: path of the file.
        new: whether the file must not be there yet, and is made at once; else it is made with its first record.

    Raise ``OutputError`` if the file system refuses.
    """

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self.path = path
        self._descriptor = -1
        self._end = 0
        self._broken = self._closed = False
        # A thread may add while the event loop's closes: the descriptor could be another file's then.
        self._lock = threading.Lock()
        if new:
            try:
                self._open(os.O_EXCL)
            except OSError as error:
                raise self._refused(error) from error

    def add(self, record: Record) -> None:
        """Add a record, and have the disk keep it. After an error the file is as before.

        Raises:
            OutputError: the file system refuses, or is full.
        """
        data = memoryview(record.to_bytes())
        with self._lock:
            try:
                self._add(data)
            except OSError as error:
                self._take_back()
                raise self._refused(error) from error

    def _add(self, data: memoryview) -> None:
        if self._closed:
            raise OSError("the rank has left the gang")
        if self._broken:
            raise OSError("what an earlier version left at its end can't be removed")
        if self._descriptor < 0:
            self._open(0)
        done = 0
        while done < len(data):
            done += os.write(self._descriptor, data[done:])
        self._sync()
        self._end += len(data)

    def _sync(self) -> None:
        synced(self._descriptor)

    def close(self) -> None:
        """Close the file, and remove one without records."""
        with self._lock:
            self._closed = True
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
                if not self._end:
                    self.path.unlink(missing_ok=True)

    def _open(self, flags: int) -> None:
        flags |= os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o644)
        self._end = os.fstat(self._descriptor).st_size
        sync(self.path.parent)

    def _take_back(self) -> None:
        if self._descriptor < 0:
            return
        self._broken = True
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._end)
            os.fsync(self._descriptor)
            self._broken = False

    def _refused(self, error: OSError) -> OutputError:
        return OutputError(f"{self.path} can't be written: {error.strerror or error}; the graph has no new version")


class DecisionFile(LogFile):
    """The decisions of a gang."""

    def _sync(self) -> None:
        super()._sync()
        if [path for _, _, path in sorted(_decision_files(self.path.parent))][-1:] != [self.path]:
            raise OSError("another graph goes on with this log, or its file is gone")


def synced(descriptor: int) -> None:
    """Have the disk keep what was written to a file."""
    os.fsync(descriptor)


def make_folder(folder: Path) -> None:
    """Make a log's folder. Raise ``OutputError`` if the file system refuses."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sync(folder.parent)
    except OSError as error:
        raise OutputError(f"{folder} can't be written: {error.strerror or error}") from error


def redo_path(folder: Path, graph_id: str, rank: int) -> Path:
    """Return the file of a rank's records."""
    return folder / f"redo-{graph_id}-{rank}"


def new_decisions(folder: Path, graph_id: str, version: int) -> DecisionFile:
    """Return a file for the decisions of a gang, after those of all gangs before.

    Raises:
        OutputError: the log has not ``version`` versions, as when the gang's partitions were made of it.
        FormatError, UnreadableFileError: as of ``decisions``. Others as of ``LogFile``.
    """
    with reading(str(folder)):
        numbers = [number for number, _, _ in _decision_files(folder)]
    file = DecisionFile(folder / f"decided-{max(numbers, default=0) + 1:08}-{graph_id}", new=True)
    try:
        if (found := len(decisions(folder))) != version:
            raise OutputError(
                f"{folder} had version {version} and has version {found} now: another graph goes on with this log; "
                "load it again when that graph is unloaded"
            )
    except BaseException:
        file.close()
        raise
    return file


def decisions(folder: Path) -> list[Decision]:
    """Return the versions that count, in their order, from 1 on; none if there is no log.

    Raises:
        FormatError: a version is missing, or a file is damaged.
        UnreadableFileError: the file system fails.
    """
    found: list[Decision] = []
    with reading(str(folder)):
        files = sorted(_decision_files(folder))
    for _, graph_id, path in files:
        for record in records(path):
            try:
                version, run_id = int(record.facts["version"]), str(record.facts["run"])
            except (KeyError, ValueError, TypeError) as error:
                raise FormatError(f"{path} is damaged: a decision has no version") from error
            found = [decision for decision in found if decision.version < version]
            if version != len(found) + 1:
                raise FormatError(f"{path} is damaged: version {version} follows version {len(found)}")
            found.append(Decision(version, graph_id, run_id, record))
    return found


def records(path: Path) -> Iterator[Record]:
    """Yield the records of a file, without one that is torn at its end. Errors as of ``decisions``."""
    with reading(str(path)):
        data = memoryview(path.read_bytes())
    at = 0
    while at < len(data):
        record, end = _record_at(data, at)
        if record is None:
            if end < len(data):
                raise FormatError(f"{path} is damaged at byte {at:,}: its checksum is not that of its content")
            return
        yield record
        at = end


def _record_at(data: memoryview, at: int) -> tuple[Record | None, int]:
    """Return the record at a byte, None if it is torn or damaged, and where it ends, at most at the end of the data."""
    if len(data) - at < _HEAD.size:
        return None, len(data)
    mark, checksum, size = _HEAD.unpack_from(data, at)
    first = at + _HEAD.size
    if mark != _MARK:
        # Of a file that was made longer, but not written, there are zeros.
        return None, len(data) if not any(data[at:]) else at
    if len(data) - first < size:
        return None, len(data)
    body = data[first : first + size]
    if zlib.crc32(body) != checksum:
        return None, first + size
    try:
        return Record.of_body(body), first + size
    except (ValueError, TypeError, RecursionError):
        return None, at


def _decision_files(folder: Path) -> list[tuple[int, str, Path]]:
    if not folder.is_dir():
        return []
    named = ((path, _DECISIONS.fullmatch(path.name)) for path in folder.iterdir())
    return [(int(match[1]), match[2], path) for path, match in named if match]
