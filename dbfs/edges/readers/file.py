"""FileEdges: the base of the edge lists of all file formats."""

from dataclasses import dataclass

from dbfs import config
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.source import Source
from dbfs_workers.storage.reading import ReadLimits


@dataclass(frozen=True)
class FileEdges(EdgeList):
    """Edges in a file.

    Attributes:
        source: the file.
    """

    source: Source

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
