"""Reads of a saved graph's files, each block checked against its checksum before anything uses it.

CRC-32 as of zlib: 2.9 GB/s on one core here, without a package more. A damaged block goes unnoticed once in 2**32.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import FormatError, TruncatedFileError
from dbfs_workers.base.folder import Folder
from dbfs_workers.features.saved.manifest import ArrayPlace, SavedFile

T = TypeVar("T")
R = TypeVar("R")

# Bytes that a thread reads or checks at once: whole blocks, as few requests to a store as that.
_GROUP_BYTES = 2**26
_MOST_THREADS = 8


class Content:
    """The bytes of a saved file on the host: a map of the file, or a copy. See ``Folder.mapped``.

    Args:
        threads: number of threads that read and check.

    Errors as for ``Folder.map``, ``require_size`` and ``check_blocks``.
    """

    def __init__(self, folder: Folder, file: SavedFile, threads: int = 1) -> None:
        self._folder = folder
        self._file = file
        self._threads = threads
        self._map = folder.map(file.name) if folder.mapped else None
        require_size(folder, file, folder.size(file.name) if self._map is None else len(self._map))

    def all(self) -> list[NDArray[np.generic]]:
        """Return all arrays of the file, in the manifest's order. The arrays are read-only if the file is mapped."""
        return self._arrays(self._file.arrays, 0, self._file.nbytes)

    def part(self, place: ArrayPlace, start: int, stop: int) -> NDArray[np.generic]:
        """Return the items from ``start`` to ``stop`` of one array; only their blocks are read and checked."""
        size = np.dtype(place.dtype).itemsize
        part = ArrayPlace(place.name, place.dtype, stop - start, place.offset + start * size)
        return self._arrays([part], part.offset, part.end)[0]

    def _arrays(self, places: Iterable[ArrayPlace], start: int, stop: int) -> list[NDArray[np.generic]]:
        """Return arrays that lie in the bytes from ``start`` to ``stop``, whose blocks are checked."""
        block = self._file.block_bytes
        first = start // block * block
        last = min(-(-stop // block) * block, self._file.nbytes)
        content = self._checked(first, last)
        return [
            np.frombuffer(content, np.dtype(place.dtype), place.length, place.offset - (0 if self._map else first))
            if place.length
            else np.empty(0, place.dtype)
            for place in places
        ]

    def _checked(self, first: int, last: int) -> memoryview:
        """Check the blocks from byte ``first`` to ``last``; return these bytes, or the whole file if it is mapped."""
        step = max(1, _GROUP_BYTES // self._file.block_bytes) * self._file.block_bytes
        whole = np.empty(last - first, np.uint8).data if self._map is None else memoryview(self._map)

        def check(start: int) -> None:
            stop = min(start + step, last)
            if self._map is not None:
                check_blocks(self._folder, self._file, whole[start:stop], start)
                return
            read_blocks(self._folder, self._file, start, whole[start - first : stop - first])

        in_threads(check, range(first, last, step), self._threads)
        return whole


def read_blocks(folder: Folder, file: SavedFile, start: int, to: memoryview) -> None:
    """Fill ``to`` with a file's bytes from ``start`` on, and check their blocks; errors as of ``Content``."""
    read = folder.read(file.name, start, to)
    if read != len(to):
        require_size(folder, file, start + read)
    check_blocks(folder, file, to, start)


def check_blocks(folder: Folder, file: SavedFile, content: bytes | memoryview, start: int) -> None:
    """Check the blocks in ``content``, which begins at byte ``start`` of a file, a multiple of the block's size.

    Raises:
        FormatError: a block has another checksum than in the manifest.
    """
    view = memoryview(content)
    for at in range(0, len(view), file.block_bytes):
        index = (start + at) // file.block_bytes
        if zlib.crc32(view[at : at + file.block_bytes]) != file.checksums[index]:
            end = min(start + at + file.block_bytes, file.nbytes)
            raise FormatError(
                f"{folder.file(file.name)} is damaged, or not the file of this graph: its bytes from {start + at:,} to "
                f"{end:,} have another checksum than in the manifest. Save the graph again"
            )


def require_size(folder: Folder, file: SavedFile, size: int) -> None:
    """Check the size of a file.

    Raises:
        TruncatedFileError: the file is shorter than the manifest says.
        FormatError: the file is longer.
    """
    if size != file.nbytes:
        kind = TruncatedFileError if size < file.nbytes else FormatError
        path = folder.file(file.name)
        raise kind(f"{path} has {size:,} bytes; the manifest says {file.nbytes:,}. Save the graph again")


def in_threads(work: Callable[[T], R], items: Iterable[T], threads: int) -> list[R]:
    """Call ``work`` with each item in some threads; return the results in order, or raise the first item's error."""
    listed = list(items)
    if min(threads, len(listed)) <= 1:
        return [work(item) for item in listed]
    with ThreadPoolExecutor(min(threads, len(listed)), thread_name_prefix="dbfs-read") as pool:
        return list(pool.map(work, listed))


def thread_count(ranks_here: int) -> int:
    """Return the number of threads in which one of ``ranks_here`` ranks of this host reads."""
    return max(1, min(_MOST_THREADS, len(os.sched_getaffinity(0)) // ranks_here))
