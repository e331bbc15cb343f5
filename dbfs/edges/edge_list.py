"""EdgeList: a lazy description of edges, which workers read piece by piece.

Readers, generators and ``arrays`` make EdgeLists; ``dbfs.building`` cuts them into pieces, which workers read. The
EdgeList of a file or a generator does not hold the edges themselves.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from dbfs_workers.storage.pieces import Piece
from dbfs_workers.text import printable


@dataclass(frozen=True)
class EdgeList(ABC):
    """Facts of edges before they are read.

    Attributes:
        name: the edges' name in messages and listings: a path, or a generator's spec, in its printable form.
        n: number of vertices, with ids 0..n-1. None if ids are external (any non-negative int64): then the vertices are
            the distinct ids that occur, numbered in ascending order.
        m: number of edges in all pieces; None if unknown before reading. If known, reading another number of edges is
            an error (a truncated file).
        directed: whether edges can be crossed in one direction only.
        mirrored: whether the pieces hold undirected edges in both directions already.
    """

    name: str
    n: int | None
    m: int | None
    directed: bool
    mirrored: bool

    def __post_init__(self) -> None:
        # A file's name may hold any byte but two.
        object.__setattr__(self, "name", printable(self.name))

    @abstractmethod
    def cut(self, piece_edges: int) -> Sequence[Piece]:
        """Cut into pieces of about ``piece_edges`` edges (at least 1), in order; at least one piece."""

    @property
    def symmetrise(self) -> bool:
        """Whether a build adds each edge's reverse."""
        return not self.directed and not self.mirrored

    @property
    def path(self) -> str | None:
        """Path or URL of the file that workers read; None if the edges are of no file."""
        return None

    def largest_piece(self, piece_edges: int, m: int) -> int:
        """Return the number of edges of the largest piece that ``cut(piece_edges)`` makes of all ``m`` edges."""
        return min(piece_edges, max(m, 1))
