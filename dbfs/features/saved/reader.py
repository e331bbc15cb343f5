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
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.source import require_listed
from dbfs.errors import FormatError
from dbfs_workers.base.folder import Folder
from dbfs_workers.building.pieces import Edges
from dbfs_workers.building.reading import require_room
from dbfs_workers.features.saved import manifest as manifests
from dbfs_workers.features.saved.blocks import Content
from dbfs_workers.features.saved.manifest import Manifest, SavedFile, SavedRank
from dbfs_workers.features.saved.parts import id_table, later_ids
from dbfs_workers.ids.table import joined
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    from dbfs_workers.ids.table import Ids


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
        saved, share = self.manifest.ids, float(config.get("build.memory-share"))
        require_room(2 * sum(table.file.nbytes for table in saved.every), share, f"{self.name}: its ids")
        ids = id_table(self.folder, saved.tables, saved.id_type, 0, saved.count).ids
        return ids if saved.later is None else joined([ids, later_ids(self.folder, saved)])

    def cut(self, piece_edges: int) -> Sequence[SavedPiece | KeptPiece]:
        """Cut the files into pieces of about ``piece_edges`` edges."""
        found: list[SavedPiece | KeptPiece] = []
        for rank, saved in enumerate(self.manifest.ranks):
            if saved.edges is None:
                found += self._pieces_of_rows(rank, saved, piece_edges)
            else:
                found += self._pieces_of_batches(saved.edges, piece_edges)
        return found or [KeptPiece(self.folder, None, 0, 0, 0)]

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


@functools.lru_cache(maxsize=1)
def _vertices(folder: Folder, file: SavedFile) -> NDArray[np.uint32]:
    """Return the vertices by position: for all pieces that a process reads, since a copy has 4 bytes a vertex."""
    vertex: Any = Content(folder, file).all()[0]
    return vertex  # type: ignore[no-any-return]


def forget_vertices() -> None:
    """Free the vertices by position that this process read. Clients run this on workers after a build."""
    _vertices.cache_clear()
