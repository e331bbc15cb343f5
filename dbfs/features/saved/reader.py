"""Saved graphs (``Graph.save``): their manifest, and their edges as pieces for any number of ranks.

``building`` loads a graph with the number of ranks that saved it without these pieces: each rank takes its
file as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs import config
from dbfs.edges.edge_list import Attributes, EdgeList
from dbfs.edges.readers.source import require_listed
from dbfs.errors import FormatError
from dbfs_workers.base.folder import Folder
from dbfs_workers.building.pieces import Edges
from dbfs_workers.building.reading import require_room
from dbfs_workers.features.saved import manifest as manifests
from dbfs_workers.features.saved.blocks import Content
from dbfs_workers.features.saved.columns import read, schema_of
from dbfs_workers.features.saved.manifest import Manifest, SavedColumn, SavedFile, SavedRank
from dbfs_workers.features.saved.parts import id_table
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    import pyarrow as pa

    from dbfs_workers.ids.table import Ids
    from dbfs_workers.search.partition.ordering import DegreeOrder


@dataclass(frozen=True)
class SavedFiles(EdgeList):
    """The files of a saved graph, as a list of its edges: the kept input edges, or else those of its partitions."""

    folder: Folder
    manifest: Manifest

    @property
    def path(self) -> str:
        return self.folder.path

    @property
    def reader_bytes(self) -> int:
        """See ``EdgeList``: a copy of the vertices by position."""
        needed = self.manifest.order is not None and not self.manifest.keeps_edges
        return 4 * self.manifest.n if needed and not self.folder.mapped else 0

    @property
    def has_names(self) -> bool:
        return bool(self.manifest.ids.tables)

    def names(self) -> Ids:
        """See ``EdgeList``.

        Raises:
            GraphTooLargeError: the memory will not hold the ids. Others as of ``saved.parts.id_table``.
        """
        require_listed(self.folder.path)
        tables, share = self.manifest.ids.tables, float(config.get("build.memory-share"))
        require_room(2 * sum(table.file.nbytes for table in tables), share, f"{self.name}: its ids")
        return id_table(self.folder, tables, self.manifest.ids.id_type, 0, self.manifest.n).ids

    def cut(self, piece_edges: int) -> Sequence[SavedPiece | KeptPiece]:
        """Cut the files into pieces of about ``piece_edges`` edges."""
        found: list[SavedPiece | KeptPiece] = []
        for rank, saved in enumerate(self.manifest.ranks):
            if saved.edges is None:
                found += self._pieces_of_rows(rank, saved, piece_edges)
            else:
                found += self._pieces_of_batches(saved.edges, piece_edges)
        return found or [KeptPiece(self.folder, None, 0, 0, 0)]

    def rows_of_columns(self, piece_edges: int) -> Sequence[SavedRows]:
        """Cut the columns of the edges as ``cut`` cuts the edges of the partitions."""
        columns = self.manifest.columns
        assert columns is not None
        found = [
            SavedRows(self.folder, files.out, columns.edges, piece.start, piece.stop)
            for rank, (saved, files) in enumerate(zip(self.manifest.ranks, columns.ranks, strict=True))
            for piece in self._pieces_of_rows(rank, saved, piece_edges)
        ]
        return found or [SavedRows(self.folder, None, columns.edges, 0, 0)]

    def largest_piece(self, piece_edges: int, m: int) -> int:
        if self.manifest.keeps_edges:
            return super().largest_piece(piece_edges, m)
        return min(max(piece_edges, *(rank.rows_every for rank in self.manifest.ranks)), max(m, 1))

    def _pieces_of_rows(self, rank: int, saved: SavedRank, piece_edges: int) -> Iterator[SavedPiece]:
        m_local = manifests.array(saved.partition, "columns").length
        stripe = self.manifest.stripe
        entries = max(1, piece_edges // saved.rows_every)
        for entry in range(0, len(saved.rows), entries):
            start, stop = entry * saved.rows_every, min((entry + entries) * saved.rows_every, m_local)
            after = entry + entries
            last_row = saved.rows[after] if after < len(saved.rows) else stripe.owned(rank) - 1
            rows = (saved.rows[entry], last_row)
            yield SavedPiece(self.folder, saved.partition, self.manifest.order, stripe, rank, rows, start, stop)

    def _pieces_of_batches(self, file: SavedFile, piece_edges: int) -> Iterator[KeptPiece]:
        for batch, place in enumerate(file.arrays[::2]):
            for start in range(0, place.length, piece_edges):
                yield KeptPiece(self.folder, file, batch, start, min(start + piece_edges, place.length))


@dataclass(frozen=True)
class SavedPiece:
    """Some edges of a saved partition.

    Attributes:
        file: the file of the partition.
        order: the file of the degree order; None if vertices have the order given.
        stripe: how the graph lay on the ranks that saved it.
        rank: the rank that saved the file.
        rows: the row of the first edge, and a row that is not before that of the last edge.
        start, stop: the edges, as indices of the columns.
    """

    folder: Folder
    file: SavedFile
    order: SavedFile | None
    stripe: Stripe
    rank: int
    rows: tuple[int, int]
    start: int
    stop: int

    def read(self) -> Edges:
        """Return the edges between vertex ids.

        Errors as for ``blocks.Content``, and ``FormatError`` for rows that are not where the manifest says.
        """
        require_listed(self.folder.path)
        content = Content(self.folder, self.file)
        columns: Any = content.part(manifests.array(self.file, "columns"), self.start, self.stop)
        first, last = self.rows
        offsets: Any = content.part(manifests.array(self.file, "row_offsets"), first, last + 2)
        counts = np.diff(offsets.clip(self.start, self.stop))
        if counts.size == 0 or counts.min() < 0 or counts.sum() != columns.size:
            path = self.folder.file(self.file.name)
            raise FormatError(
                f"{path}: the edges {self.start:,} to {self.stop:,} are not those of its rows {self.rows}"
            )
        rows = np.arange(first, last + 1)
        src = np.repeat(rows * self.stripe.p + self.rank, counts)
        dst = self.stripe.vertex(columns.astype(np.int64))
        if self.order is None:
            return src, dst
        vertex = _vertices(self.folder, self.order)
        if src.max(initial=0) >= self.stripe.n or dst.max(initial=0) >= self.stripe.n:
            raise FormatError(f"{self.folder.file(self.file.name)} has an edge of a row past the last vertex")
        return vertex[src].astype(np.int64), vertex[dst].astype(np.int64)


@dataclass(frozen=True)
class KeptPiece:
    """Some of the kept edges of a saved graph; none if ``file`` is None.

    Attributes:
        file: the file of the edges.
        batch: index of the record batch in the file.
        start, stop: the edges of the record batch.
    """

    folder: Folder
    file: SavedFile | None
    batch: int
    start: int
    stop: int

    def read(self) -> Edges:
        """Return the edges between vertex ids; errors as of ``SavedPiece.read``."""
        if self.file is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        require_listed(self.folder.path)
        content = Content(self.folder, self.file)
        places = self.file.arrays[2 * self.batch : 2 * self.batch + 2]
        source, target = (content.part(place, self.start, self.stop).astype(np.int64) for place in places)
        return source, target


@dataclass(frozen=True)
class SavedRows:
    """The columns of some edges of a saved partition; of none if ``file`` is None.

    Attributes:
        file: the file of the rank's columns.
        start, stop: the edges.
    """

    folder: Folder
    file: SavedFile | None
    columns: tuple[SavedColumn, ...]
    start: int
    stop: int

    def attributes(self) -> pa.Table:
        """Return a row for each edge; errors as of ``columns.read``."""
        if self.file is None:
            return schema_of(self.columns).empty_table()
        require_listed(self.folder.path)
        return read(self.folder, self.file, self.columns, self.start, self.stop)


@dataclass(frozen=True, eq=False)
class SavedAttributes(Attributes):
    """The columns of a saved graph's edges.

    Attributes:
        edges: the edges of its partitions, whose columns they are.
    """

    edges: SavedFiles

    @property
    def apart(self) -> SavedFiles | None:
        return self.edges

    def cut(self, piece_edges: int) -> Sequence[SavedRows]:
        """Cut as the edges are cut."""
        return self.edges.rows_of_columns(piece_edges)


def vertex_rows(folder: Folder, manifest: Manifest, stripe: Stripe, rank: int, order: DegreeOrder | None) -> pa.Table:
    """Return the columns of the vertices of a rank, of as many ranks as there are now, a row for each.

    Args:
        stripe: how the vertices lie on the ranks now.
        order: the order by degree that they have now; None if they have the order given.

    Errors as of ``columns.read``.
    """
    import pyarrow as pa

    require_listed(folder.path)
    saved, columns = manifest.stripe, manifest.columns
    assert columns is not None
    vertices = np.arange(rank, stripe.n, stripe.p, dtype=np.int64)
    if order is not None:
        vertices = order.vertex[vertices].astype(np.int64)
    if manifest.order is not None:
        position = np.empty(stripe.n, np.int64)
        position[_vertices(folder, manifest.order)] = np.arange(stripe.n)
        vertices = position[vertices]
    tables, rows = [schema_of(columns.vertices).empty_table()], list[NDArray[np.int64]]()
    owners = saved.owner(vertices)
    for owner, files in enumerate(columns.ranks):
        here = np.flatnonzero(owners == owner)
        if here.size:
            assert files.vertices is not None
            table = read(folder, files.vertices, columns.vertices, 0, saved.owned(owner))
            tables.append(table.take(saved.row(vertices[here])))
            rows.append(here)
    by_row = np.argsort(np.concatenate([np.empty(0, np.int64), *rows]))
    joined: pa.Table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    return joined.take(by_row)


@functools.lru_cache(maxsize=1)
def _vertices(folder: Folder, file: SavedFile) -> NDArray[np.uint32]:
    """Return the vertices by position: for all pieces that a process reads, since a copy has 4 bytes a vertex."""
    vertex: Any = Content(folder, file).all()[0]
    return vertex  # type: ignore[no-any-return]


def forget_vertices() -> None:
    """Free the vertices by position that this process read. Clients run this on workers after a build."""
    _vertices.cache_clear()
