"""FileEdges and TableFile: the bases of the edge lists of all file formats, and of those with columns of ids."""

from dataclasses import dataclass, field

from dbfs import config
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.kinds import IdKind
from dbfs.edges.readers.source import Source
from dbfs.edges.tables.ends import Columns, Ends
from dbfs_workers.storage.reading import ReadLimits


@dataclass(frozen=True)
class FileEdges(EdgeList):
    """Edges in a file.

    Attributes:
        source: the file.
        columns: its columns; None if the file is no table.
    """

    source: Source
    columns: Columns | None = field(default=None, kw_only=True)

    @property
    def path(self) -> str:
        """Path or URL of the file."""
        return self.source.path

    def largest_piece(self, piece_edges: int, m: int) -> int:
        """See ``EdgeList``. A compressed file is one piece, since it can only be streamed."""
        return super().largest_piece(piece_edges if self.source.seekable else max(piece_edges, m), m)

    def limits(self) -> ReadLimits:
        """Return the limits of the reads of the file, by the header and the configuration."""
        return ReadLimits(self.m, float(config.get("build.memory-share")), config.seconds("build-deadline"))


@dataclass(frozen=True)
class TableFile(FileEdges):
    """Edges in the rows of a table in a file.

    Attributes:
        columns: its columns.
        kinds: kind of each part of an id.
    """

    columns: Columns = field(kw_only=True)
    kinds: tuple[IdKind, ...] = field(kw_only=True)

    @property
    def ends(self) -> Ends:
        """The columns of an edge's ends."""
        return self.columns.ends

    @property
    def id_kinds(self) -> tuple[IdKind, ...]:
        """See ``EdgeList``."""
        return self.kinds
