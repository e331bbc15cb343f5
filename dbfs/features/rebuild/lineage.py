"""Lineage: what a graph was made of, by which any client can build it again.

Generators, files, folders, URLs and saved graphs can be read again. Edges that a client had in its memory can't.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dbfs.building.builder import BuildOptions
from dbfs.edges import generate
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.file_set import members
from dbfs.edges.readers.source import explained
from dbfs.edges.resolve import edge_list
from dbfs.errors import GraphLostError
from dbfs.features.rebuild.versions import Places
from dbfs_workers.base.files import file_system, open_file
from dbfs_workers.building.pieces import GeneratedPiece

# A file of so many bytes at most is compared by its content too: a manifest, a header.
_CHECKSUM_BYTES: Final = 1 << 20
# What file systems say of a file's last change, by their own names.
_STAMPS: Final = ("mtime", "LastModified", "last_modified", "updated", "ETag", "etag")
# One piece has all edges of a generator.
_ALL_EDGES: Final = 1 << 62


@dataclass(frozen=True)
class FileState:
    """A file at one moment.

    Attributes:
        path: path or URL.
        size: its bytes; None where the file system does not say.
        stamp: when it was changed last, or its tag, in the file system's words.
        checksum: CRC-32 of a small file's content; None of a large one.
    """

    path: str
    size: int | None
    stamp: str
    checksum: int | None


@dataclass(frozen=True)
class Lineage:
    """What a graph was made of.

    Attributes:
        edges: the edges, if they can be sent; else the path or the generator's spec that is to be opened again.
        reading: the arguments of ``edge_list`` for that.
        options: how the graph was built.
        files: the files that were read, as they were before the build.
        versions: the versions of a saved graph's log that the graph was loaded with.
    """

    edges: EdgeList | str
    reading: Mapping[str, Any]
    options: BuildOptions
    files: tuple[FileState, ...]
    versions: Places = ()

    @classmethod
    def of(cls, source: Any, reading: Mapping[str, Any], edges: EdgeList, options: BuildOptions) -> Lineage | None:
        """Return the lineage of a graph that is about to be built; None if its edges can't be read again.

        Args:
            source: the edges as the caller gave them.
            reading: the arguments of ``edge_list`` with which they were opened.
            edges: the edge list that was opened.
            options: how the graph is built.

        Errors as for ``states``.
        """
        spec = isinstance(source, str) and generate.is_spec(source)
        if edges.path is not None:
            return cls(edges, {}, options, states(edges.path))
        if isinstance(edges.cut(_ALL_EDGES)[0], GeneratedPiece):
            return cls(edges, {}, options, ())
        if not isinstance(source, str | os.PathLike):
            return None
        name = os.fsdecode(source)
        if not spec and "://" not in name:
            name = str(Path(name).expanduser().absolute())
        return cls(name, dict(reading), options, () if spec else states(name))

    def opened(self, name: str) -> EdgeList:
        """Return the edges again; ``name`` is the graph's, for messages.

        Raises:
            GraphLostError: a file was changed since the graph was built, or can't be read.
        """
        if self.files:
            path = self.edges if isinstance(self.edges, str) else self.edges.path
            assert path is not None
            try:
                found = states(path)
            except OSError as error:
                raise GraphLostError(f"{name} can't be built again: its source can't be read: {error}") from error
            changed = {state.path for state in {*self.files} ^ {*found}}
            if changed:
                raise GraphLostError(
                    f"{name} can't be built again: its source was changed since it was read, {min(changed)}"
                    f"{f' and {len(changed) - 1:,} more files' if changed - {min(changed)} else ''}; "
                    "two ranks of two files would be a wrong answer. Load the graph again, with replace=True"
                )
        if isinstance(self.edges, EdgeList):
            return self.edges
        edges, columns = edge_list(self.edges, **self.reading), self.reading.get("attributes")
        return edges.keeping(columns) if columns and edges.attributes is None else edges


def states(path: str) -> tuple[FileState, ...]:
    """Return the states of the file at a path or URL, or of all files of a folder or a pattern.

    Errors as for ``dbfs.edges.readers.file_set.members``.
    """
    inside = members(path)
    return tuple(_state(each) for each in ([path] if inside is None else inside))


def _state(path: str) -> FileState:
    with explained(path, None):
        files, inner = file_system(path)
        files.invalidate_cache(inner)
        info: dict[str, Any] = files.info(inner)
        size = info.get("size")
        stamp = next((str(info[name]) for name in _STAMPS if info.get(name)), "")
        checksum = None
        if size is not None and size <= _CHECKSUM_BYTES:
            with open_file(path) as file:
                checksum = zlib.crc32(file.read())
    return FileState(path, size, stamp, checksum)
