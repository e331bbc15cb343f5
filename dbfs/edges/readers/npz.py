"""NumPy archives (``.npz``): a SciPy sparse matrix, or two arrays of ids.

Source: SciPy, ``scipy.sparse.save_npz``. Entry (i, j) is an edge from i to j, explicit zeros excepted. The archive is
compressed, so that one worker reads it as a stream. A matrix that ``dbfs generate`` or ``dbfs convert`` wrote says in
the array ``dbfs`` whether edges are directed. For another matrix the caller says so, or the client reads the whole
matrix to find out whether it is symmetric.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbfs import config
from dbfs.edges.arrays import from_scipy
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.kinds import IdKind
from dbfs.edges.readers.file import FileEdges
from dbfs.edges.readers.npy import as_arrow, read_header
from dbfs.edges.readers.source import Source
from dbfs.edges.readers.tables import decoding, require_rows
from dbfs.edges.tables.ends import ColumnNames, Ends, choose_ends
from dbfs.edges.tables.ids import Place, edges_of, require_kinds
from dbfs.errors import FormatError, InvalidOptionError, TruncatedFileError
from dbfs_workers.storage.pieces import IdEdges
from dbfs_workers.storage.reading import Reading, ReadLimits, require_room

_WHAT = "NumPy archive"
_LAYOUTS = {"csr": ("indptr", "indices"), "csc": ("indptr", "indices"), "coo": ("row", "col")}
_CHUNK_BYTES = 1 << 22
# Largest array that describes the matrix: its format, its shape, what dbfs wrote.
_NOTE_BYTES = 1 << 20


@dataclass(frozen=True)
class Member:
    """An array of the archive, by its header: one-dimensional, or a single value."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Bytes of its values."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


def open_npz(source: Source, directed: bool | None, ends: tuple[ColumnNames, ColumnNames]) -> EdgeList:
    """Read the headers of an archive's arrays; arguments as of ``open_parquet``.

    Raises:
        FormatError: the archive is broken, or its arrays are pickled or are no edges.
        EdgeInputError: the columns are not there, or hold no ids.
        GraphTooLargeError: the client has to read the matrix, and has too little memory.
    """
    with _archive(source) as archive:
        members = _members(archive, source.path)
        if "format" not in members:
            return _open_columns(source, bool(directed), members, ends)
        if ends != (None, None):
            raise InvalidOptionError(f"source= and target= name columns of a table; {source.path} holds a matrix")
        layout, shape, stated = _notes(archive, members, source.path)
    if stated is None and directed is None:
        return _symmetric_or_not(source, layout, members)
    entries = members[_LAYOUTS[layout][1]].shape[0]
    mirrored = stated is False and not directed
    return MatrixFile(
        name=source.path,
        n=shape,
        # A matrix that dbfs wrote has no explicit zeros.
        m=None if stated is None else entries,
        directed=bool(stated) if directed is None else directed,
        mirrored=mirrored,
        source=source,
        layout=layout,
        entries=entries,
    )


@dataclass(frozen=True)
class MatrixPiece:
    """All entries of a sparse matrix in an archive.

    Attributes:
        file: the matrix.
        limits: limits of the read.
    """

    file: MatrixFile
    limits: ReadLimits

    def read(self) -> IdEdges:
        """Return the rows and columns of the entries, int64.

        Raises:
            FormatError: the archive is broken; an index is not in the matrix, or a row's range not in the indices.
            GraphTooLargeError: the entries take more memory than this worker has left.
            MissingFileError, UnreadableFileError: this machine has no such file, or can't read it.
            RunCancelledError, DeadlineExceededError: no client waits for the edges any more.
        """
        file = self.file
        path, n = file.source.path, int(file.n or 0)
        reading = Reading(path, self.limits, 1)
        require_rows(path, file.entries, 3, self.limits)
        require_rows(path, n, 1, self.limits)
        with _archive(file.source) as archive:
            members = _members(archive, path)
            lines, others = (
                _values(archive, name, members[name], path, reading).astype(np.int64, copy=False)
                for name in _LAYOUTS[file.layout]
            )
            stored = _values(archive, "data", members["data"], path, reading) != 0
        if file.layout != "coo":
            lines = _expanded(lines, n, others.size, path)
        for ids in (lines, others):
            if ids.size and not 0 <= ids.min() <= ids.max() < n:
                at = int(np.flatnonzero((ids < 0) | (ids >= n))[0])
                raise FormatError(f"{path}: entry {at:,} is in row or column {ids[at]}; the matrix is {n} x {n}")
        if not lines.size == others.size == stored.size:
            raise FormatError(
                f"{path} has {others.size:,} indices and {stored.size:,} values; expected as many of each"
            )
        if not stored.all():
            lines, others = lines[stored], others[stored]
        return (others, lines) if file.layout == "csc" else (lines, others)


@dataclass(frozen=True)
class MatrixFile(FileEdges):
    """A sparse matrix in an ``.npz`` archive.

    Attributes:
        layout: SciPy's name of the matrix's format: ``csr``, ``csc`` or ``coo``.
        entries: stored entries, explicit zeros included.
    """

    layout: str
    entries: int

    def cut(self, piece_edges: int) -> Sequence[MatrixPiece]:  # noqa: ARG002 - one piece of any size
        """Return the one piece: an archive is a stream."""
        return [MatrixPiece(self, self.limits())]

    def largest_piece(self, piece_edges: int, m: int) -> int:
        """See ``EdgeList``: all of the edges."""
        return super().largest_piece(max(piece_edges, m), m)


@dataclass(frozen=True)
class ColumnsPiece:
    """Two or more arrays of an archive, as columns of a table.

    Attributes:
        source: the file.
        ends: the arrays of an edge's ends.
        limits: limits of the read.
    """

    source: Source
    ends: Ends
    limits: ReadLimits

    def read(self) -> IdEdges:
        """Return the ids in the arrays; errors as of ``NpyPiece.read``."""
        import pyarrow as pa

        path = self.source.path
        reading = Reading(path, self.limits, 1)
        with _archive(self.source) as archive:
            members = _members(archive, path)
            require_rows(path, members[self.ends.source[0]].shape[0], len(self.ends.columns), self.limits)
            columns = {name: _values(archive, name, members[name], path, reading) for name in self.ends.columns}
        with decoding(path, _WHAT):
            table = pa.table({name: as_arrow(values, name, path) for name, values in columns.items()})
        reading.take_edges(table.num_rows)
        return edges_of(table, self.ends, Place(path))


@dataclass(frozen=True)
class ColumnsFile(FileEdges):
    """Arrays of ids in an ``.npz`` archive.

    Attributes:
        ends: the arrays of an edge's ends.
        kinds: kind of each part of an id.
    """

    ends: Ends
    kinds: tuple[IdKind, ...]

    @property
    def id_kinds(self) -> tuple[IdKind, ...]:
        """See ``EdgeList``."""
        return self.kinds

    def cut(self, piece_edges: int) -> Sequence[ColumnsPiece]:  # noqa: ARG002 - one piece of any size
        """Return the one piece: an archive is a stream."""
        return [ColumnsPiece(self.source, self.ends, self.limits())]

    def largest_piece(self, piece_edges: int, m: int) -> int:
        """See ``EdgeList``: all of the edges."""
        return super().largest_piece(max(piece_edges, m), m)


def _open_columns(
    source: Source, directed: bool, members: dict[str, Member], ends: tuple[ColumnNames, ColumnNames]
) -> ColumnsFile:
    """Return the edge list of an archive of arrays of one length; errors as of ``open_npz``."""
    import pyarrow as pa

    chosen = choose_ends(list(members), *ends, source.path)
    sizes = {name: members[name].shape for name in chosen.columns}
    if any(len(shape) != 1 for shape in sizes.values()) or len(set(sizes.values())) > 1:
        shown = ", ".join(f"{name!r} {' x '.join(map(str, shape)) or '()'}" for name, shape in sizes.items())
        raise FormatError(f"{source.path}: arrays of the shapes {shown}; expected one dimension and one length")
    schema = pa.schema(
        (name, as_arrow(np.empty(0, members[name].dtype), name, source.path).type) for name in chosen.columns
    )
    kinds = require_kinds(schema, chosen, source.path)
    m = next(iter(sizes.values()))[0]
    return ColumnsFile(source.path, None, m, directed, mirrored=False, source=source, ends=chosen, kinds=kinds)


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
                shape, _, dtype = read_header(member, f"{path}, array {name!r}")
            found[name.removesuffix(".npy")] = Member(shape, dtype)
    return found


def _notes(archive: zipfile.ZipFile, members: dict[str, Member], path: str) -> tuple[str, int, bool | None]:
    """Return a matrix's layout, its number of rows, and whether it is directed (None: not said).

    Raises:
        FormatError: the arrays are not those of a square sparse matrix.
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
    if not isinstance(shape, list) or len(shape) != 2 or shape[0] != shape[1] or type(shape[0]) is not int:
        shown = " x ".join(map(str, shape)) if isinstance(shape, list) else shape
        raise FormatError(f"{path}: the matrix must be square (one row per vertex), not {shown}")
    if shape[0] < 0:
        raise FormatError(f"{path}: the matrix has {shape[0]} rows; expected 0 or more")
    if "dbfs" not in members:
        return layout, shape[0], None
    try:
        directed = json.loads(str(note("dbfs")))["directed"]
    except (ValueError, TypeError, KeyError):
        directed = None
    if not isinstance(directed, bool):
        raise FormatError(f"{path}: its array 'dbfs' is no JSON with directed")
    return layout, shape[0], directed


def _values(archive: zipfile.ZipFile, name: str, member: Member, path: str, reading: Reading | None) -> Any:
    """Return an array of the archive.

    Raises:
        TruncatedFileError, FormatError: the archive holds fewer or more bytes of it than its header says.
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
        return np.frombuffer(found, member.dtype).reshape(member.shape)


def _expanded(starts: Any, n: int, entries: int, path: str) -> Any:
    """Return the row of each entry (for ``csc`` the column), int64, by the rows' starts."""
    if starts.size != n + 1 or starts[0] != 0 or starts[-1] != entries or (np.diff(starts) < 0).any():
        raise FormatError(f"{path}: its indptr does not divide {entries:,} entries into {n:,} rows")
    return np.repeat(np.arange(n), np.diff(starts))
