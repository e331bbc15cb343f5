"""NumPy archives (``.npz``): a SciPy sparse matrix, two arrays of ids, or PyTorch Geometric's ``edge_index``.

Source: SciPy, ``scipy.sparse.save_npz``. A stored entry (i, j) is an edge from i to j, whatever its value. The archive
is compressed, so that one worker reads it as a stream. A matrix that ``dbfs generate`` or ``dbfs convert`` wrote says
in the array ``dbfs`` whether edges are directed. For another matrix the caller says so, or the client reads the whole
matrix to find out whether it is symmetric. Beside arrays of ids, one such as ``num_nodes`` says how many vertices there
are.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dbfs import config
from dbfs.edges.arrays import from_scipy
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.file import FileEdges, TableFile, decoding, require_rows, table_facts
from dbfs.edges.readers.npy import as_arrow, read_header, schema_of
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.source import Source
from dbfs.edges.tables.ends import POSITIONS, Columns, Ends
from dbfs.edges.tables.ids import Place, edges_of
from dbfs.errors import FormatError, InvalidOptionError, TruncatedFileError
from dbfs_workers.base.text import counted
from dbfs_workers.building.pieces import IdEdges
from dbfs_workers.building.reading import Reading, ReadLimits, require_room

_WHAT = "NumPy archive"
_LAYOUTS = {"csr": ("indptr", "indices"), "csc": ("indptr", "indices"), "coo": ("row", "col")}
_CHUNK_BYTES = 1 << 22
# Largest array that describes the matrix: its format, its shape, what dbfs wrote.
_NOTE_BYTES = 1 << 20
# PyTorch Geometric's array of shape (2, m).
_EDGE_INDEX = "edge_index"
# Arrays that say how many vertices there are, or how many rows and columns their matrix has.
_COUNTS = ("num_nodes", "num_vertices", "n_nodes", "n_vertices", "number_of_nodes", "n", "shape")


@dataclass(frozen=True)
class Member:
    """An array of the archive, by its header."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Bytes of its values."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


def open_npz(source: Source, options: ReadOptions) -> EdgeList:
    """Read the headers of an archive's arrays; arguments as of ``open_parquet``.

    With ``bipartite`` the rows and the columns of a matrix are two sets of vertices; the columns follow the rows.

    Raises:
        FormatError: the archive is broken, or its arrays are pickled or are no edges.
        EdgeInputError: the columns are not there, or hold no ids.
        GraphTooLargeError: the client has to read the matrix, and has too little memory.
    """
    bipartite, directed = bool(options.bipartite), options.directed
    with _archive(source) as archive:
        members = _members(archive, source.path)
        if "format" not in members:
            if bipartite:
                raise InvalidOptionError(f"bipartite=True is for matrices; {source.path} holds arrays of ids")
            return _open_columns(source, options, members, _stated(archive, members, source.path, options))
        if options.named:
            raise InvalidOptionError(f"source= and target= name columns of a table; {source.path} holds a matrix")
        if options.strings:
            raise InvalidOptionError(f"ids='string' is for columns of ids; {source.path} holds a matrix")
        layout, shape, stated = _notes(archive, members, source.path, bipartite)
    if bipartite and directed is None:
        directed = False
    if stated is None and directed is None:
        return _symmetric_or_not(source, layout, members)
    entries = members[_LAYOUTS[layout][1]].shape[0]
    # An undirected matrix has each edge at both ends. In one that dbfs wrote of a directed graph each entry is an edge.
    mirrored = not (directed or stated or bipartite)
    return MatrixFile(
        name=source.path,
        n=sum(shape) if bipartite else shape[0],
        m=entries,
        directed=bool(stated) if directed is None else directed,
        mirrored=mirrored,
        completes=mirrored and directed is False,
        values=("value",) if stated is None else (),
        source=source,
        layout=layout,
        entries=entries,
        shape=shape,
    )


@dataclass(frozen=True)
class MatrixPiece:
    """All entries of the sparse matrix ``file`` in an archive, read within ``limits``."""

    file: MatrixFile
    limits: ReadLimits

    def read(self) -> IdEdges:
        """Return the rows and columns of the entries, int64; errors as of ``Piece.read``."""
        file = self.file
        path, lines_there = file.source.path, file.shape[1 if file.layout == "csc" else 0]
        reading = Reading(path, self.limits, 1)
        require_rows(path, file.entries, 3, self.limits)
        require_rows(path, lines_there, 1, self.limits)
        with _archive(file.source) as archive:
            members = _members(archive, path)
            lines, others = (
                _values(archive, name, members[name], path, reading).astype(np.int64, copy=False)
                for name in _LAYOUTS[file.layout]
            )
            values = _values(archive, "data", members["data"], path, reading).size
        if file.layout != "coo":
            lines = _expanded(lines, lines_there, others.size, path)
        rows, columns = (others, lines) if file.layout == "csc" else (lines, others)
        for ids, size in ((rows, file.shape[0]), (columns, file.shape[1])):
            if ids.size and not 0 <= ids.min() <= ids.max() < size:
                at = int(np.flatnonzero((ids < 0) | (ids >= size))[0])
                shape = " x ".join(map(str, file.shape))
                raise FormatError(f"{path}: entry {at:,} is in row or column {ids[at]}; the matrix is {shape}")
        if not rows.size == columns.size == values:
            raise FormatError(f"{path} has {others.size:,} indices and {values:,} values; expected as many of each")
        return rows, columns if file.n == file.shape[0] else columns + file.shape[0]


@dataclass(frozen=True)
class MatrixFile(FileEdges):
    """A sparse matrix in an ``.npz`` archive.

    Attributes:
        layout: SciPy's name of the matrix's format: ``csr``, ``csc`` or ``coo``.
        entries: stored entries.
        shape: numbers of rows and columns. The vertices are the rows, or the rows and then the columns.
    """

    layout: str
    entries: int
    shape: tuple[int, int]

    def cut(self, piece_edges: int) -> Sequence[MatrixPiece]:  # noqa: ARG002 - one piece of any size
        """Return the one piece: an archive is a stream."""
        return [MatrixPiece(self, self.limits())]


@dataclass(frozen=True)
class ColumnsPiece:
    """Arrays of an archive as columns of a table.

    Attributes:
        source, ends, limits: as of ``TablePiece``.
        index: whether these are the rows of one array.
        n: number of vertices; None if the archive does not say.
    """

    source: Source
    ends: Ends
    index: bool
    n: int | None
    limits: ReadLimits

    def read(self) -> IdEdges:
        """Return the ids in the arrays; errors as of ``NpyPiece.read``, and ``FormatError`` for ids from ``n`` on."""
        import pyarrow as pa

        path = self.source.path
        reading = Reading(path, self.limits, 1)
        with _archive(self.source) as archive:
            members = _members(archive, path)
            first = members[_EDGE_INDEX if self.index else self.ends.source[0]]
            require_rows(path, first.shape[-1], len(self.ends.columns), self.limits)
            if self.index:
                rows = _values(archive, _EDGE_INDEX, first, path, reading)
                columns = dict(zip(self.ends.columns, rows, strict=True))
            else:
                columns = {name: _values(archive, name, members[name], path, reading) for name in self.ends.columns}
        with decoding(path, _WHAT):
            table = pa.table({name: as_arrow(values, name, path) for name, values in columns.items()})
        reading.take_edges(table.num_rows)
        source, target = edges_of(table, self.ends, Place(path))
        most = max((int(np.max(ids)) for ids in (source, target) if self.n is not None and len(ids)), default=-1)
        if self.n is not None and most >= self.n:
            raise FormatError(f"{path}: the id {most}, and {counted(self.n, 'vertex', 'vertices')}, from 0 on")
        return source, target


@dataclass(frozen=True)
class ColumnsFile(TableFile):
    """Arrays of ids in an ``.npz`` archive: arrays by name, or ``edge_index``, whose rows have no names."""

    def cut(self, piece_edges: int) -> Sequence[ColumnsPiece]:  # noqa: ARG002 - one piece of any size
        """Return the one piece: an archive is a stream."""
        return [ColumnsPiece(self.source, self.ends, not self.columns.names, self.n, self.limits())]


def _stated(archive: zipfile.ZipFile, members: dict[str, Member], path: str, options: ReadOptions) -> dict[str, int]:
    """Return the numbers of vertices that arrays of an archive state, by the names of these arrays.

    Such an array has one value, or two as the shape of a matrix, and is no column that the options name.

    Raise ``FormatError`` for a number below 0, and for the shape of a matrix that is not square.
    """
    found = {}
    for name in _COUNTS:
        member = members.get(name)
        named = name in (options.source, options.target)
        if named or member is None or (member.shape != (2,) if name == "shape" else member.shape not in ((), (1,))):
            continue
        numbers = set(_values(archive, name, member, path, None).ravel().tolist())
        if len(numbers) != 1 or not all(type(each) in (int, float) and each >= 0 == each % 1 for each in numbers):
            raise FormatError(f"{path}: the array {name!r} is no number of vertices, nor the shape of a square matrix")
        found[name] = int(min(numbers))
    return found


def _open_columns(
    source: Source, options: ReadOptions, members: dict[str, Member], stated: dict[str, int]
) -> ColumnsFile:
    """Return the edge list of an archive of arrays of one length; errors as of ``open_npz``."""
    index = members.get(_EDGE_INDEX)
    if index is not None and len(index.shape) == 2 and index.shape[0] == 2 and not options.named:
        columns = Columns((), replace(POSITIONS, strings=options.strings))
        arrays = dict.fromkeys(POSITIONS.columns, Member(index.shape[1:], index.fortran, index.dtype))
    else:
        columns = options.columns([name for name in members if name not in stated], source.path)
        arrays = {name: members[name] for name in columns.ends.columns}
    sizes = {name: member.shape for name, member in arrays.items()}
    if any(len(shape) != 1 for shape in sizes.values()) or len(set(sizes.values())) > 1:
        shown = ", ".join(f"{name!r} {' x '.join(map(str, shape)) or '()'}" for name, shape in sizes.items())
        raise FormatError(f"{source.path}: arrays of the shapes {shown}; expected one dimension and one length")
    schema = schema_of({name: member.dtype for name, member in arrays.items()}, source.path)
    facts = table_facts(source, columns, schema, bool(options.directed))
    if len(set(stated.values())) > 1:
        shown = ", ".join(f"{name}={n}" for name, n in stated.items())
        raise FormatError(f"{source.path} says in two ways how many vertices there are: {shown}")
    if stated and facts["id_kinds"] != ("integer",):
        raise FormatError(
            f"{source.path}: the array {next(iter(stated))!r} counts vertices 0 to n-1, and the ids are no integers; "
            "write the archive without that array"
        )
    return ColumnsFile(n=next(iter(stated.values()), None), m=next(iter(sizes.values()))[0], **facts)


def _symmetric_or_not(source: Source, layout: str, members: dict[str, Member]) -> EdgeList:
    """Return the edges of a matrix that the client reads, since only its entries say whether it is directed."""
    import scipy.sparse

    needed = sum(member.bytes for member in members.values())
    # The matrix, its pattern, that pattern's transpose and their difference.
    share = float(config.get("build.memory-share"))
    require_room(4 * needed, share, f"{source.path}: a test whether the matrix is symmetric (directed=)")
    with source.opened() as raw, decoding(source.path, _WHAT):
        matrix: Any = scipy.sparse.load_npz(raw)
        if layout != "coo":
            matrix.check_format(full_check=True)
    return from_scipy(matrix, name=source.path)


@contextmanager
def _archive(source: Source) -> Iterator[zipfile.ZipFile]:
    with source.opened() as raw:
        with decoding(source.path, _WHAT):
            archive = zipfile.ZipFile(raw)
        yield archive


def _members(archive: zipfile.ZipFile, path: str) -> dict[str, Member]:
    """Return the archive's arrays by name, reading their headers only."""
    found = {}
    with decoding(path, _WHAT):
        for name in archive.namelist():
            if not name.endswith(".npy"):
                raise FormatError(f"{path} holds {name!r}, which is no array; expected arrays only")
            with archive.open(name) as member:
                found[name.removesuffix(".npy")] = Member(*read_header(member, f"{path}, array {name!r}"))
    return found


def _notes(
    archive: zipfile.ZipFile, members: dict[str, Member], path: str, bipartite: bool
) -> tuple[str, tuple[int, int], bool | None]:
    """Return a matrix's layout, its numbers of rows and columns, and whether it is directed (None: not said).

    Raise ``FormatError`` for arrays not of a sparse matrix, and for a matrix neither square nor ``bipartite``.
    """

    def note(name: str) -> Any:
        if name not in members or members[name].bytes > _NOTE_BYTES:
            raise FormatError(f"{path} is no sparse matrix: it has no small array {name!r}")
        return _values(archive, name, members[name], path, None)

    layout = str(np.asarray(note("format")).astype("U").reshape(-1)[:1].tolist()[0])
    if layout not in _LAYOUTS:
        raise FormatError(f"{path} holds a sparse matrix of format {layout!r}; expected one of {', '.join(_LAYOUTS)}")
    missing = [name for name in (*_LAYOUTS[layout], "data") if name not in members or len(members[name].shape) != 1]
    if missing:
        raise FormatError(f"{path}: a sparse matrix of format {layout!r} needs the array {missing[0]!r}")
    if any(members[name].dtype.kind not in "iu" for name in _LAYOUTS[layout]):
        raise FormatError(f"{path}: the indices of the matrix must be integers")
    shape = note("shape").tolist()
    sizes = shape if isinstance(shape, list) and all(type(size) is int for size in shape) else []
    if len(sizes) != 2 or (sizes[0] != sizes[1] and not bipartite):
        shown = " x ".join(map(str, shape)) if isinstance(shape, list) else shape
        hint = "; bipartite=True makes a vertex of each row, and another of each column" if len(sizes) == 2 else ""
        raise FormatError(f"{path}: the matrix must be square (one row per vertex), not {shown}{hint}")
    if min(sizes) < 0:
        raise FormatError(f"{path}: the matrix has {min(sizes)} rows or columns; expected 0 or more")
    if "dbfs" not in members:
        return layout, (sizes[0], sizes[1]), None
    try:
        directed = json.loads(str(note("dbfs")))["directed"]
    except (ValueError, TypeError, KeyError):
        directed = None
    if not isinstance(directed, bool):
        raise FormatError(f"{path}: its array 'dbfs' is no JSON with directed")
    return layout, (sizes[0], sizes[1]), directed


def _values(archive: zipfile.ZipFile, name: str, member: Member, path: str, reading: Reading | None) -> Any:
    """Return an array of the archive.

    Raise ``TruncatedFileError`` or ``FormatError`` if the archive holds fewer or more bytes than the header says.
    """
    where = f"{path}, array {name!r}"
    with decoding(where, _WHAT), archive.open(f"{name}.npy") as stream:
        read_header(stream, where)
        found = bytearray()
        while chunk := stream.read(min(_CHUNK_BYTES, member.bytes - len(found) + 1)):
            found += chunk
            if reading is not None:
                reading.look()
            if len(found) > member.bytes:
                raise FormatError(f"{where} holds more than the {member.bytes:,} bytes that its header promises")
        if len(found) < member.bytes:
            raise TruncatedFileError(
                f"{where} holds {len(found):,} bytes; its header promises {member.bytes:,}: {member.shape}"
            )
        return np.frombuffer(found, member.dtype).reshape(member.shape, order="F" if member.fortran else "C")


def _expanded(starts: Any, n: int, entries: int, path: str) -> Any:
    """Return the row of each entry (for ``csc`` the column), int64, by the rows' starts."""
    if starts.size != n + 1 or starts[0] != 0 or starts[-1] != entries or (np.diff(starts) < 0).any():
        raise FormatError(f"{path}: its indptr does not divide {entries:,} entries into {n:,} rows")
    return np.repeat(np.arange(n), np.diff(starts))
