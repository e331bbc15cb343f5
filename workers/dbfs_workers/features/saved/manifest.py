"""The manifest of a saved graph: its fields, their form as JSON, and the checks of what a manifest says.

What passes the checks can be read without harm: every array lies in its file and is as long as the graph says.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from dbfs_workers.base.errors import FormatError, GraphTooLargeError, MissingFileError, TruncatedFileError
from dbfs_workers.base.folder import Folder
from dbfs_workers.base.received import Natural, decoded
from dbfs_workers.base.text import counted
from dbfs_workers.ids.table import INTEGER, STRING, IdType
from dbfs_workers.search.partition.stripe import Stripe

NAME: Final = "manifest.json"
FORMAT: Final = "dbfs saved graph"
VERSION: Final = 2
"""Latest version of the format."""
_SINCE_2: Final = {"room": 0, "columns": None}
"""Fields that version 1 lacks, and their values there. A graph with these values is saved as version 1."""
_Wanted: TypeAlias = "tuple[str, tuple[str, int | None]]"
"""The name of an array; its type, and the number of its items if that is known."""

MOST_BYTES: Final = 2**28
"""Longest manifest that is read; a graph of 100 TB has one of 256 MiB."""

BLOCK_BYTES: Final = 2**22
"""Bytes of a file that have one checksum. A piece of the graph is read in whole blocks."""

NOTE: Final = re.compile(r"dbfs-save-([0-9a-f]{12})\.json")
"""Names of the notes of saves: see ``saves``."""

PART: Final = re.compile(r"manifest-([0-9a-f]{12})\.json\.part")
"""Names of manifests before they are published."""

_FILE_NAME = re.compile(r"(?:rank|edges|order|ids|columns|in-columns|vertices)(?:-\d+)?-([0-9a-f]{12})\.arrow")
_MOST_BLOCK_BYTES: Final = 2**26

STRINGS: Final = "string"
BOOLEANS: Final = "bool"
_ZONED = re.compile(r"timestamp\[(?:s|ms|us|ns), tz=.+\]")
_DTYPES: Final = {
    STRINGS: "int32",
    BOOLEANS: "uint8",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float": "float32",
    "double": "float64",
    "date32[day]": "int32",
    "date64[ms]": "int64",
    "time32[s]": "int32",
    "time32[ms]": "int32",
    "time64[us]": "int64",
    "time64[ns]": "int64",
    **{f"{kind}[{unit}]": "int64" for kind in ("timestamp", "duration") for unit in ("s", "ms", "us", "ns")},
}
"""By Arrow's name of a type: NumPy's name of its values in memory; booleans are bits, strings numbers of strings."""


@dataclass(frozen=True)
class ArrayPlace:
    """The place of an array in a file.

    Attributes:
        name: name of the array.
        dtype: NumPy's name of the type of its items, which are little-endian.
        length: number of items.
        offset: byte of the file at which the first item starts; a multiple of 8.
    """

    name: str
    dtype: str
    length: Natural
    offset: Natural

    @property
    def end(self) -> int:
        """Byte of the file after the last item."""
        return self.offset + self.length * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class SavedFile:
    """A file of a saved graph.

    Attributes:
        name: name in the folder.
        nbytes: bytes of the file.
        block_bytes: bytes that have one checksum; the last block may be shorter.
        checksums: CRC-32 of each block.
        arrays: the arrays in the file, in the order of their offsets.
    """

    name: str
    nbytes: Natural
    block_bytes: Natural
    checksums: tuple[Natural, ...]
    arrays: tuple[ArrayPlace, ...]


@dataclass(frozen=True)
class SavedRank:
    """The files of one rank, and its counts.

    Attributes:
        partition: file of the arrays ``row_offsets`` and ``columns``, and with in-edges ``in_row_offsets`` and
            ``in_columns``; see ``Partition``.
        self_loops, duplicates: as in ``Partition``.
        rows_every: number of edges from one entry of ``rows`` to the next.
        rows: the rows of the edges 0, ``rows_every``, 2 * ``rows_every``, ...: with them a part of the columns is read
            without all row offsets.
        edges: file of kept input edges, an array ``source`` and an array ``target`` of each batch in turn; None if
            edges were not kept.
    """

    partition: SavedFile
    self_loops: Natural
    duplicates: Natural
    rows_every: Natural
    rows: tuple[Natural, ...]
    edges: SavedFile | None


@dataclass(frozen=True)
class SavedTable:
    """The ids of consecutive vertices.

    Attributes:
        file: file of an array ``id.C`` of each column C of integers, and of arrays ``ends.C`` and ``text.C`` of each
            column of strings: the strings' UTF-8 bytes, and where each begins and the last ends in them.
        first: the first vertex.
        length: number of vertices.
    """

    file: SavedFile
    first: Natural
    length: Natural


@dataclass(frozen=True)
class SavedIds:
    """The ids of a graph, the caller's words for vertices; see ``GraphIds``.

    Attributes:
        first_id: the id of vertex 0, if there are no tables.
        columns, names: as in ``ids.table.IdType``.
        tables: the tables of all ids in the order of vertices; empty if there are none.
    """

    first_id: Natural
    columns: tuple[str, ...]
    names: tuple[str, ...]
    tables: tuple[SavedTable, ...]

    @property
    def id_type(self) -> IdType:
        """The type of the ids."""
        return IdType(self.columns, self.names)


@dataclass(frozen=True)
class SavedColumn:
    """A column of values of edges, or of vertices.

    Attributes:
        name: its name.
        kind: Arrow's name of the type of its values, such as ``int64`` or ``date32[day]``; ``string`` for dictionaries
            of strings.
    """

    name: str
    kind: str

    @property
    def dtype(self) -> str:
        """NumPy's name of the type of its array; empty for a kind that is not kept."""
        return "int64" if _ZONED.fullmatch(self.kind) else _DTYPES.get(self.kind, "")

    def items(self, rows: int) -> int:
        """Return the number of items of its array, given the number of values."""
        return -(-rows // 8) if self.kind == BOOLEANS else rows


@dataclass(frozen=True)
class RankColumns:
    """The files of the columns of one rank, a row for each edge or vertex. ``columns.write`` says what is in them.

    Attributes:
        out: of the edges, in the order of the array ``columns``; None if edges have no columns.
        into: of the in-edges, in the order of ``in_columns``; None if there are none.
        vertices: of the rank's vertices, in the order of its rows; None if vertices have no columns.
    """

    out: SavedFile | None
    into: SavedFile | None
    vertices: SavedFile | None

    @property
    def files(self) -> list[SavedFile]:
        """All files."""
        return [file for file in (self.out, self.into, self.vertices) if file is not None]


@dataclass(frozen=True)
class SavedColumns:
    """The columns of a graph.

    Attributes:
        edges, vertices: the columns of the edges, and of the vertices.
        ranks: the files of each rank.
    """

    edges: tuple[SavedColumn, ...]
    vertices: tuple[SavedColumn, ...]
    ranks: tuple[RankColumns, ...]


@dataclass(frozen=True)
class Manifest:
    """A saved graph.

    Attributes:
        source: name of the edge list that the graph was built of.
        dbfs: version of the program that saved the graph.
        created: time of saving, in seconds since the epoch.
        n: number of vertices.
        directed: whether edges can be crossed in one direction only.
        in_edges: whether a directed graph has its in-edges.
        input_edges: number of edges that the graph was built of.
        ranks: the files and counts of each rank.
        order: file of the array ``vertex``, uint32[n], the vertex at each position; None if vertices keep the order
            given.
        ids: the ids of the vertices.
        room: vertices that updates may add; see ``Stripe``.
        columns: the columns of edges and vertices; None without any.
    """

    source: str
    dbfs: str
    created: float
    n: Natural
    directed: bool
    in_edges: bool
    input_edges: Natural
    ranks: tuple[SavedRank, ...]
    order: SavedFile | None
    ids: SavedIds
    room: Natural = 0
    columns: SavedColumns | None = None

    @property
    def stripe(self) -> Stripe:
        """How the graph lies on its ranks."""
        return Stripe(self.n, len(self.ranks), self.room)

    @property
    def m(self) -> int:
        """Number of directed edges stored."""
        return sum(array(rank.partition, "columns").length for rank in self.ranks)

    @property
    def keeps_edges(self) -> bool:
        """Whether the folder has the input edges."""
        return self.ranks[0].edges is not None

    @property
    def files(self) -> Iterator[SavedFile]:
        """All files."""
        for rank in self.ranks:
            yield rank.partition
            if rank.edges is not None:
                yield rank.edges
        if self.order is not None:
            yield self.order
        yield from (table.file for table in self.ids.tables)
        if self.columns is not None:
            for each in self.columns.ranks:
                yield from each.files

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(file.nbytes for file in self.files)


def array(file: SavedFile, name: str) -> ArrayPlace:
    """Return the place of the first array of a name, which the checks of the manifest found to be there."""
    return next(place for place in file.arrays if place.name == name)


def token_of(name: str) -> str:
    """Return the token in the name of a file that a save gives to a graph; empty for all other names."""
    found = _FILE_NAME.fullmatch(name)
    return found[1] if found else ""


def tokens(kind: re.Pattern[str], names: Iterable[str]) -> set[str]:
    """Return the tokens in those names that are of a kind: ``NOTE`` or ``PART``."""
    return {found[1] for name in names if (found := kind.fullmatch(name))}


def is_ours(name: str) -> bool:
    """Return whether a file's name is one that a save gives to its files."""
    return bool(name == NAME or token_of(name) or NOTE.fullmatch(name) or PART.fullmatch(name))


def to_json(manifest: Manifest) -> bytes:
    """Return a manifest as the text of its file."""
    graph, version = dataclasses.asdict(manifest), VERSION
    if graph == {**graph, **_SINCE_2}:
        graph = {name: value for name, value in graph.items() if name not in _SINCE_2}
        version = 1
    found = {"format": FORMAT, "version": version, "checksum": _checksum(graph), "graph": graph}
    return json.dumps(found, separators=(",", ":")).encode() + b"\n"


def read(folder: Folder) -> Manifest:
    """Read and check a folder's manifest.

    Raises:
        MissingFileError: there is no manifest.
        FormatError: the file is no manifest of a saved graph, is damaged, or is of another version; or what the
            manifest says can't be.
        UnreadableFileError: the file system or the network fails.
    """
    return parse(folder.content(NAME, MOST_BYTES), folder.file(NAME))


def parse(text: bytes, path: str) -> Manifest:
    """Return the manifest in a text; ``path`` begins the messages. Errors as for ``read``."""
    try:
        found = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FormatError(f'{path} is not the manifest of a saved graph: it lacks "format": "{FORMAT}"')
    version = found.get("version")
    if version not in (1, VERSION) or isinstance(version, bool):
        newer = isinstance(version, int) and version > VERSION
        what = f"; dbfs of this version reads up to {VERSION}. Update dbfs" if newer else f"; expected 1 or {VERSION}"
        raise FormatError(f"{path} is of version {version!r} of the format{what}")
    graph = found.get("graph")
    if found.get("checksum") != _checksum(graph):
        raise FormatError(f"{path} is damaged: its checksum is not that of its content. Save the graph again")
    if version == 1 and isinstance(graph, dict) and not _SINCE_2.keys() & graph.keys():
        graph = {**graph, **_SINCE_2}
    manifest: Manifest = decoded(Manifest, graph, f"{path}: graph")
    _check(manifest, path)
    return manifest


def _checksum(graph: Any) -> int:
    return zlib.crc32(json.dumps(graph, sort_keys=True, separators=(",", ":")).encode())


def _check(manifest: Manifest, path: str) -> None:
    """Check that a graph can be as its manifest says, and that arrays lie in their files."""

    def require(holds: bool, what: str) -> None:
        if not holds:
            raise FormatError(f"{path}: {what}")

    require(len(manifest.ranks) > 0, "ranks is empty; expected at least one rank")
    require(manifest.directed or not manifest.in_edges, "in_edges is true; an undirected graph has none")
    names = [file.name for file in manifest.files]
    require(len(set(names)) == len(names), "two files have one name")
    try:
        stripe = manifest.stripe
    except GraphTooLargeError as error:
        raise FormatError(f"{path}: {error}") from None
    rows = ("int64", stripe.n_local + 1)
    for number, rank in enumerate(manifest.ranks):
        edges = ("uint32", None)
        wanted = {"row_offsets": rows, "columns": edges}
        if manifest.in_edges:
            wanted |= {"in_row_offsets": rows, "in_columns": edges}
        _check_file(rank.partition, list(wanted.items()), path)
        m_local = array(rank.partition, "columns").length
        where = f"ranks[{number}]"
        require(max(rank.self_loops, rank.duplicates) <= m_local, f"{where} has more self-loops than edges")
        require(rank.rows_every > 0, f"{where}.rows_every is 0")
        entries = -(-m_local // max(rank.rows_every, 1))
        require(len(rank.rows) == entries, f"{where}.rows has {len(rank.rows)} entries; expected {entries}")
        ascend = all(low <= high for low, high in zip((0, *rank.rows), (*rank.rows, stripe.n_local - 1), strict=True))
        require(ascend, f"{where}.rows does not ascend within 0..{stripe.n_local - 1}")
        require((rank.edges is None) == (manifest.ranks[0].edges is None), f"{where}: some ranks have no kept edges")
        if rank.edges is not None:
            batches = len(rank.edges.arrays) // 2
            _check_file(rank.edges, [("source", edges), ("target", edges)] * batches, path)
            lengths = [place.length for place in rank.edges.arrays]
            require(lengths[::2] == lengths[1::2], f"{rank.edges.name}: sources and targets differ in number")
    if manifest.keeps_edges:
        kept = sum(place.length for rank in manifest.ranks if rank.edges for place in rank.edges.arrays[::2])
        require(kept == manifest.input_edges, f"{kept:,} edges are kept, of {manifest.input_edges:,} input edges")
    if manifest.order is not None:
        _check_file(manifest.order, [("vertex", ("uint32", manifest.n))], path)

    _check_ids(manifest, path)
    if manifest.columns is not None:
        _check_columns(manifest, manifest.columns, path)


def _check_columns(manifest: Manifest, columns: SavedColumns, path: str) -> None:
    """Check that columns are of types that are kept, and that each rank has a row for each edge and each vertex."""
    for each in (columns.edges, columns.vertices):
        names = [column.name for column in each]
        if len(set(names)) < len(names):
            raise FormatError(f"{path}: two columns have one name, of {names}")
        unknown = next((column for column in each if not column.dtype), None)
        if unknown is not None:
            raise FormatError(f"{path}: column {unknown.name!r} holds {unknown.kind!r}, which no graph keeps")
    if len(columns.ranks) != len(manifest.ranks):
        raise FormatError(f"{path}: {len(columns.ranks)} ranks have columns, of {len(manifest.ranks)}")
    for number, (rank, files) in enumerate(zip(manifest.ranks, columns.ranks, strict=True)):
        edges = array(rank.partition, "columns").length
        into = array(rank.partition, "in_columns").length if manifest.in_edges else 0
        wanted = (
            ("out", files.out, columns.edges, edges, bool(columns.edges)),
            ("into", files.into, columns.edges, into, bool(columns.edges) and manifest.in_edges),
            ("vertices", files.vertices, columns.vertices, manifest.stripe.owned(number), bool(columns.vertices)),
        )
        for what, file, of, rows, there in wanted:
            if (file is not None) != there:
                raise FormatError(f"{path}: columns.ranks[{number}].{what} is {'missing' if there else 'of no column'}")
            if file is not None:
                _check_file(file, _arrays_of(file, of, rows), path)


def _arrays_of(file: SavedFile, columns: tuple[SavedColumn, ...], rows: int) -> list[_Wanted]:
    """Return the arrays that a file of columns has: see ``columns.write``."""
    there, wanted = {place.name: place.length for place in file.arrays}, list[_Wanted]()
    for column in columns:
        if column.kind == STRINGS:
            # One more than there are strings.
            ends = max(1, there.get(f"ends.{column.name}", 1))
            wanted += [(f"ends.{column.name}", ("int32", ends)), (f"text.{column.name}", ("uint8", None))]
    for column in columns:
        if f"valid.{column.name}" in there:
            wanted.append((f"valid.{column.name}", ("uint8", -(-rows // 8))))
        wanted.append((f"value.{column.name}", (column.dtype, column.items(rows))))
    return wanted


def _check_ids(manifest: Manifest, path: str) -> None:
    """Check that the tables have the ids of all vertices, in their order."""
    ids, first = manifest.ids, 0
    right = ids.columns and set(ids.columns) <= {INTEGER, STRING} and len(ids.names) in (0, len(ids.columns))
    if not right or len(set(ids.names)) != len(ids.names) or (len(ids.columns) > 1 and not ids.names):
        raise FormatError(
            f"{path}: the ids have columns of {ids.columns} with the names {ids.names}; expected columns of {INTEGER} "
            f"or {STRING}, with distinct names if there are several"
        )
    if manifest.n and not ids.tables and not ids.id_type.is_integer:
        raise FormatError(f"{path}: ids of the type {ids.id_type} need tables")
    for table in ids.tables:
        wanted: list[_Wanted] = []
        for column, kind in enumerate(ids.columns):
            if kind == INTEGER:
                wanted.append((f"id.{column}", ("int64", table.length)))
            else:
                wanted += [(f"ends.{column}", ("int64", table.length + 1)), (f"text.{column}", ("uint8", None))]
        _check_file(table.file, wanted, path)
        if table.first != first:
            raise FormatError(f"{path}: {table.file.name} has the ids from vertex {table.first} on; expected {first}")
        first += table.length
    if ids.tables and first != manifest.n:
        raise FormatError(f"{path}: the tables have {first:,} ids of {manifest.n:,} vertices")


def _check_file(file: SavedFile, wanted: list[_Wanted], path: str) -> None:
    """Check that a file has the wanted arrays, given by name with dtype and length, and that they lie in the file."""
    where = f"{path}: {file.name}"
    if _FILE_NAME.fullmatch(file.name) is None:
        raise FormatError(f"{path}: {file.name!r} is not the name of a file of a saved graph")
    if file.block_bytes % 8 or not 0 < file.block_bytes <= _MOST_BLOCK_BYTES:
        raise FormatError(f"{where} has blocks of {file.block_bytes:,} bytes; expected 8 to {_MOST_BLOCK_BYTES:,}")
    if len(file.checksums) != -(-file.nbytes // file.block_bytes):
        raise FormatError(f"{where} has {len(file.checksums)} checksums for {file.nbytes:,} bytes")
    names, found = [name for name, _ in wanted], [place.name for place in file.arrays]
    if found != names:
        raise FormatError(f"{where} has the arrays {', '.join(found) or 'none'}; expected {', '.join(names) or 'none'}")
    end = 0
    for place, (name, (dtype, length)) in zip(file.arrays, wanted, strict=True):
        if place.dtype != dtype or (length is not None and place.length != length):
            size = "" if length is None else f"[{length}]"
            raise FormatError(f"{where}: {name} is {place.dtype}[{place.length}]; expected {dtype}{size}")
        if place.offset % 8 or place.offset < end:
            raise FormatError(f"{where}: {name} starts at byte {place.offset:,}, within another array or a word")
        end = place.end
        if end > file.nbytes:
            raise TruncatedFileError(f"{where}: {name} ends at byte {end:,} of {file.nbytes:,}")


def missing(folder: Folder) -> MissingFileError:
    """Return the error for a folder without a manifest."""
    parts = sum(token_of(name) != "" for name in folder.names())
    if parts:
        found = f"{folder.path} has {counted(parts, 'file')} of a saved graph and no {NAME}"
        return MissingFileError(f"{found}, because the save did not end; save again")
    return MissingFileError(f"{folder.path} has no {NAME}, so it is not a saved graph")
