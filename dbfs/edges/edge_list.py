"""EdgeList: a lazy description of edges, which workers read piece by piece.

A reader, a generator or a caller's arrays make an EdgeList; ``dbfs.build`` cuts it into pieces and has workers read
them. Nothing here holds the edges of a file or a generator.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from dbfs_workers.storage.pieces import Piece


@dataclass(frozen=True)
class EdgeList(ABC):
    """What is known of edges before they are read.

    Attributes:
        name: what messages and listings call these edges: a path, or a generator's spec.
        n: number of vertices, ids being 0..n-1; None where ids are external (any non-negative int64) and the vertices
            are the distinct ids that occur, ranked in ascending order.
        m: edges the pieces hold in all; None where only reading tells. Where it is known, a different count read is an
            error (a truncated file).
        directed: False where each edge can be crossed both ways.
        mirrored: of undirected edges, True where the pieces hold both directions already.
    """

    name: str
    n: int | None
    m: int | None
    directed: bool
    mirrored: bool

    @abstractmethod
    def cut(self, piece_edges: int) -> Sequence[Piece]:
        """Cut into pieces of about ``piece_edges`` edges (at least 1), in order; at least one piece."""

    @property
    def symmetrise(self) -> bool:
        """Whether building adds each edge's reverse."""
        return not self.directed and not self.mirrored
