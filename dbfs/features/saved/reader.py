"""Saved graphs (``Graph.save``): their manifest, and their edges as pieces for any number of ranks.

``building`` loads a graph with the number of ranks that saved it without these pieces: each rank takes its
file as it is.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from dbfs import config
from dbfs.edges.edge_list import EdgeList, IdKind
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.source import explained, require_listed
from dbfs.errors import FormatError, InvalidOptionError
from dbfs_workers.base.folder import Folder
from dbfs_workers.building.pieces import Edges
from dbfs_workers.building.reading import require_room
from dbfs_workers.features.saved import manifest as manifests
from dbfs_workers.features.saved.blocks import Content
from dbfs_workers.features.saved.manifest import Manifest, SavedFile, SavedRank
from dbfs_workers.features.saved.parts import id_table
from dbfs_workers.ids.table import INTEGER
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    from dbfs_workers.ids.table import Ids

SUFFIX: Final = ".dbfs"
"""End of the name of a saved graph in a store, where a look at a folder costs a request."""


@dataclass(frozen=True)
class SavedEdges(EdgeList):
    """The edges of a saved graph: the kept input edges, or else the edges of its partitions."""

    in_stripes: ClassVar[bool] = True

    folder: Folder
    manifest: Manifest

    @property
    def path(self) -> str:
        """See ``EdgeList``."""
        return self.folder.path

    @property
    def reader_bytes(self) -> int:
        """See ``EdgeList``: a copy of the vertices by position."""
        needed = self.manifest.order is not None and not self.manifest.keeps_edges
        return 4 * self.manifest.n if needed and not self.folder.mapped else 0

    @property
    def has_names(self) -> bool:
        """See ``EdgeList``."""
        return bool(self.manifest.ids.tables)

    def of_rows(self) -> SavedEdges:
        """Return the edges of the partitions, whether edges were kept or not."""
        ranks = tuple(replace(rank, edges=None) for rank in self.manifest.ranks)
        manifest = replace(self.manifest, ranks=ranks)
        return replace(self, manifest=manifest, m=manifest.m, mirrored=not self.directed)

    def names(self) -> Ids:
        """See ``EdgeList``.

        Raises:
            GraphTooLargeError: the memory will not hold the ids. Others as of ``ids.id_table``.
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

    def largest_piece(self, piece_edges: int, m: int) -> int:
        """See ``EdgeList``."""
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
        folder: the folder.
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
        folder: the folder.
        file: the file of the edges.
        batch: index of the batch in the file.
        start, stop: the edges of the batch.
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


def saved_folder(path: str | os.PathLike[str]) -> Folder | None:
    """Return the folder of a saved graph at a path, which may be that of the manifest; None if there is none.

    Of URLs only those are looked at that end in ``.dbfs``, in the manifest's name, or in a name without a suffix.

    Raises:
        MissingFileError: the folder has files of a saved graph and no manifest.
        InvalidOptionError: the configuration does not allow the URL's scheme.
        FormatError, UnreadableFileError: the folder can't be read.
    """
    name = os.fsdecode(path)
    by_manifest = name.endswith(f"/{manifests.NAME}")
    folder = Folder.at(name.removesuffix(f"/{manifests.NAME}"))
    if folder.local:
        with explained(folder.path, None):
            if not Path(folder.path).is_dir():
                return None
    else:
        last = folder.path.rpartition("/")[2]
        if not (by_manifest or last.endswith(SUFFIX) or "." not in last):
            return None
        require_listed(folder.path)
    names = folder.names()
    if manifests.NAME in names:
        return folder
    if by_manifest or any(map(manifests.is_ours, names)):
        raise manifests.missing(folder)
    return None


def open_saved(folder: Folder, options: ReadOptions) -> SavedEdges:
    """Open a saved graph: read its manifest.

    Raises:
        InvalidOptionError: an option is given, or the configuration does not allow the URL's scheme.
        FormatError, MissingFileError, UnreadableFileError: the manifest is damaged, no manifest, or can't be read.
    """
    if options.given:
        raise InvalidOptionError(f"{options.given[0]}= is for files of edges; {folder.path} is a saved graph")
    require_listed(folder.path)
    manifest = manifests.read(folder)
    # The kept edges of a graph whose file listed each edge in both directions are mirrored, as its partitions are.
    mirrored = not manifest.directed and (not manifest.keeps_edges or manifest.input_edges == manifest.m)
    m = manifest.input_edges if manifest.keeps_edges else manifest.m
    facts = (manifest.n, m, manifest.directed)
    ids = manifest.ids
    kinds = tuple[IdKind, ...]("integer" if column == INTEGER else "string" for column in ids.columns)
    named: dict[str, Any] = {"mirrored": mirrored, "first_id": ids.first_id, "id_kinds": kinds}
    return SavedEdges(folder.path, *facts, folder, manifest, **named)


@functools.lru_cache(maxsize=1)
def _vertices(folder: Folder, file: SavedFile) -> NDArray[np.uint32]:
    """Return the vertices by position: for all pieces that a process reads, since a copy has 4 bytes a vertex."""
    vertex: Any = Content(folder, file).all()[0]
    return vertex  # type: ignore[no-any-return]


def forget_vertices() -> None:
    """Free the vertices by position that this process read. Clients run this on workers after a build."""
    _vertices.cache_clear()
