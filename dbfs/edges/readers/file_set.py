"""Sets of files: a folder, or a pattern such as ``edges/*.parquet``, whose files together hold one graph's edges."""

import glob
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Self

import numpy as np

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.attributes import SetAttributes
from dbfs.edges.readers.file import FileEdges, NoRows
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.source import explained, require_listed
from dbfs.edges.tables.ends import POSITIONS, Columns, listed
from dbfs.errors import EdgeInputError, MissingFileError, TruncatedFileError
from dbfs_workers.base.files import file_system
from dbfs_workers.building.pieces import Piece

_MAGIC = "*?["
# Files opened at a time: the client reads a header of each, which takes a network's round trips.
_THREADS = 8


@dataclass(frozen=True)
class FileSet(EdgeList):
    """The edges of several files, in the order of their names.

    Attributes:
        where: the folder or pattern.
        parts: the edges of each file.
    """

    where: str
    parts: tuple[EdgeList, ...]

    @property
    def path(self) -> str:
        """The folder or pattern, for the check of its URL's scheme."""
        return self.where

    def cut(self, piece_edges: int) -> Sequence[Piece]:
        """Cut each file; see ``EdgeList``."""
        return [piece for part in self.parts for piece in part.cut(piece_edges)]

    def keeping(self, columns: Sequence[str]) -> Self:
        """See ``EdgeList``. Files without rows have no types of columns."""
        parts = tuple(part if isinstance(part, NoRows) else part.keeping(columns) for part in self.parts)
        values = tuple(value for value in self.values if value not in columns)
        return replace(self, values=values, parts=parts, attributes=SetAttributes.of(parts, self.name))

    def sampled_edges(self) -> int | None:
        counts = [part.sampled_edges() if part.m is None else part.m for part in self.parts]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def largest_piece(self, piece_edges: int, m: int) -> int:
        return max(part.largest_piece(piece_edges, m if part.m is None else part.m) for part in self.parts)

    def largest_portion(self, piece_edges: int, m: int) -> int:
        return max(part.largest_portion(piece_edges, m if part.m is None else part.m) for part in self.parts)


def members(path: str | os.PathLike[str]) -> list[str] | None:
    """Return the files of a folder or a pattern, sorted; None if the path is that of one file.

    In a folder, names that begin with a dot or an underscore are passed over, as Spark and Hive do. A name with a star
    that exists is a file, not a pattern.

    Raise ``MissingFileError`` if there is no file; other errors as for ``find_source``.
    """
    name = os.fsdecode(path)
    if "::" in name and "://" in name:
        return None
    require_listed(name)
    if "://" in name:
        found = _remote(name)
    else:
        with explained(name, None):
            found = _local(str(Path(name).expanduser().absolute()))
    if found is not None and not found:
        raise MissingFileError(f"{name}: no file there; expected files of edges")
    return found


def _local(name: str) -> list[str] | None:
    if Path(name).is_dir():
        inside = (path for path in Path(name).rglob("*") if not path.is_dir())
        return sorted(str(path) for path in inside if not _hidden(path.relative_to(name).as_posix()))
    if Path(name).exists() or not any(mark in name for mark in _MAGIC):
        return None
    # Path.glob refuses absolute patterns.
    return sorted(match for match in glob.glob(name, recursive=True) if not Path(match).is_dir())  # noqa: PTH207


def _remote(name: str) -> list[str] | None:
    web = name.lower().startswith(("http://", "https://"))
    with explained(name, None):
        files, inner = file_system(name)
        # A question mark in a web address begins its query.
        if any(mark in inner for mark in ("*" if web else _MAGIC)):
            return [files.unstrip_protocol(match) for match in sorted(files.glob(inner))]
        if web or not files.isdir(inner):
            return None
        inside = sorted(files.find(inner))
        return [files.unstrip_protocol(path) for path in inside if not _hidden(path.removeprefix(inner))]


def _hidden(relative: str) -> bool:
    return any(part.startswith((".", "_")) for part in PurePosixPath(relative).parts)


def open_set(
    where: str, paths: Sequence[str], options: ReadOptions, open_one: Callable[[str, ReadOptions], EdgeList]
) -> FileSet:
    """Open all files of a set. Names of columns come from the first file, and are looked up in each other one.

    Raises:
        EdgeInputError: a file numbers its own vertices, so that its ids mean nothing in the others; or the files differ
            in direction, in the kind of ids, or in their columns.
    """

    def opened(path: str) -> EdgeList:
        return open_one(path, options)

    rest = iter(paths)
    first = next((part for part in map(opened, rest) if not isinstance(part, NoRows)), None)
    if first is None:
        raise TruncatedFileError(f"{where}: no file holds edges; expected rows after the lines of column names")
    columns = _columns(first)
    if columns.names and not options.named:
        options = replace(options, like=(first.name, columns))
    with ThreadPoolExecutor(min(_THREADS, len(paths))) as pool:
        others = list(pool.map(opened, rest))
    found = [first, *(part for part in others if not isinstance(part, NoRows))]
    # A table without rows may have no types.
    parts: list[Any] = [part for part in found if part.m != 0] or [require_typed(first)]
    first = parts[0]
    for index, part in enumerate(parts):
        if part.n is not None and hasattr(part, "groups"):
            # A Parquet file's number of vertices is its writer's: the ids mean the same in all files.
            ids = np.arange(part.first_id, part.first_id + part.n, dtype=np.int64)
            parts[index] = part = replace(part, n=None, lone=ids)
        if part.n is not None or not isinstance(part, FileEdges):
            own = "" if part.n is None else f", 0 to {part.n - 1}"
            raise EdgeInputError(
                f"{part.name} has vertices of its own{own}; of several files, only tables and edge lists make one graph"
            )
        if part.directed != first.directed:
            words = ["undirected", "directed"]
            raise EdgeInputError(
                f"{part.name} is {words[part.directed]} and {first.name} {words[first.directed]}; pass directed="
            )
        if part.id_kinds != first.id_kinds:
            raise EdgeInputError(
                f"{part.name} has ids of {_shown(part)}, and {first.name} of {_shown(first)}; all files of a graph "
                "need ids of one kind. ids='string' takes all ids as strings"
            )
    if not options.named:
        _require_same_columns(found)
    counts, stated = ([getattr(part, count) for part in parts] for count in ("m", "stated"))
    return FileSet(
        name=where,
        n=None,
        m=None if None in counts else sum(counts),
        directed=first.directed,
        values=tuple(dict.fromkeys(value for part in parts for value in part.values)),
        stated=None if None in stated else sum(stated),
        id_kinds=first.id_kinds,
        where=where,
        parts=tuple(parts),
    )


def require_typed(edges: EdgeList) -> EdgeList:
    """Return the edges of a file.

    Raise ``TruncatedFileError`` or ``EdgeInputError`` for a text without rows, and another table without rows whose
    columns have no type of ids.
    """
    if isinstance(edges, NoRows):
        raise TruncatedFileError(f"{edges.name} holds no edges; expected rows after the line of column names")
    if not edges.id_kinds:
        raise EdgeInputError(f"{edges.name} has no rows, and its columns have no type of ids; expected edges")
    return edges


def _require_same_columns(parts: Sequence[EdgeList]) -> None:
    """Refuse files whose columns don't fit together: those that name them, and those that don't.

    Raise ``EdgeInputError`` if the named columns differ, or the ends are not the first where some files name none.
    """
    named = [part for part in parts if _columns(part).names]
    for part in named[1:]:
        one, other = _columns(named[0]), _columns(part)
        if (sorted(one.names), one.ends) != (sorted(other.names), other.ends):
            raise EdgeInputError(
                f"{part.name} has the columns {listed(other.names)}, and {named[0].name} {listed(one.names)}; name "
                "those of an edge's ends by source= and target="
            )
    unnamed = next((part for part in parts if not _columns(part).names), None)
    for part in named if unnamed is not None else ():
        columns = _columns(part)
        if unnamed is not None and columns.ends.columns != list(columns.names[:2]):
            raise EdgeInputError(
                f"{unnamed.name} names no columns, and the ends of an edge in {part.name} are not its first two "
                f"({listed(columns.names)}); name the columns in each file of a graph, or in none"
            )


def _columns(part: EdgeList) -> Columns:
    columns = part.columns if isinstance(part, FileEdges) else None
    return Columns((), POSITIONS) if columns is None else columns


def _shown(part: EdgeList) -> str:
    return " and ".join(f"{kind}s" for kind in part.id_kinds)
