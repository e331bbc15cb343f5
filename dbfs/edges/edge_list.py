"""EdgeList: a lazy description of edges, which workers read piece by piece.

Readers, generators and ``arrays`` make EdgeLists; ``dbfs.building`` cuts them into pieces, which workers read. The
EdgeList of a file or a generator does not hold the edges themselves.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dbfs.errors import InvalidOptionError, TruncatedFileError
from dbfs_workers.base.text import counted, printable
from dbfs_workers.building.pieces import AttributePiece, Piece

if TYPE_CHECKING:
    import pyarrow as pa

IdKind: TypeAlias = Literal["integer", "string"]
"""What an id, or a part of an id that is a tuple, can be."""


@dataclass(frozen=True)
class DistinctIds:
    """The distinct ids of an edge list whose ids a build numbers.

    Attributes:
        count: number of distinct ids.
        nbytes: bytes of all of them in memory, each once.
        dense: whether they are the integers from 0 or from 1 on, so that no rank keeps a table of them.
    """

    count: int
    nbytes: int
    dense: bool = False


def are_dense(ids: NDArray[np.int64]) -> bool:
    """Return whether distinct integers, in any order, are those from 0 or from 1 on."""
    return ids.size == 0 or from_0_or_1(ids.size, int(ids.min()), int(ids.max()))


def from_0_or_1(count: int, smallest: int, largest: int) -> bool:
    """Return whether so many distinct integers, at least one, are those from 0 or from 1 on."""
    return 0 <= smallest <= 1 and largest - smallest == count - 1


logger = logging.getLogger(__name__)

_COMPRESSED: Final = (".gz", ".xz", ".bz2", ".zst", ".zip")
# Text with 4.2 million edges has 53 MiB.
_LINE_BYTES: Final = 16
_WEIGHTS = frozenset(["weight", "weights", "w", "cost", "length", "distance", "dist", "value", "values", "capacity"])
"""Names that columns of weights have, in lower case; a column without a name is called ``column 2``."""
_MOST_NAMES = 5


@dataclass(frozen=True, eq=False)
class Attributes(ABC):
    """The attributes of an edge list's edges, which a build keeps beside the graph.

    Attributes:
        schema: the Arrow schema of the columns, of the types of ``tables.attributes.stored``.
        twice: whether undirected edges are listed in both directions, which must have the same values.
    """

    schema: "pa.Schema"
    twice: bool = field(default=False, kw_only=True)

    @property
    def apart(self) -> "EdgeList | None":
        """Other edges than the edge list's that the attributes are of, to read for them; None for its own."""
        return None

    @abstractmethod
    def cut(self, piece_edges: int) -> Sequence[AttributePiece]:
        """Cut the attributes as ``EdgeList.cut`` cuts the edges."""


@dataclass(frozen=True)
class EdgeList(ABC):
    """Facts of edges before they are read.

    Attributes:
        name: the edges' name in messages and listings: a path, or a generator's spec, in its printable form.
        n: number of vertices; the pieces then hold vertices 0..n-1. None if the pieces hold ids (see
            ``dbfs_workers.ids.table``): the vertices are then the distinct ids, numbered in ascending order.
        m: number of edges in all pieces; None if unknown before reading. If known, reading another number of edges is
            an error (a truncated file).
        directed: whether edges can be crossed in one direction only.
        mirrored: whether the pieces hold undirected edges in both directions already.
        first_id: the id of vertex 0, if ``n`` is known; the id of each other vertex is as much larger than its number.
        stated: number of edges that a comment states. It may be off: reading another number is a warning.
        completes: whether a build adds the reverses that mirrored edges lack, instead of refusing the edges.
        values: names of what the pieces leave out of each edge: its weight, or further columns of a table.
        vertex_values: number of values, such as weights, of vertices that the pieces leave out.
        told: whether the log has named all of these already.
        id_kinds: kind of each part of an id; one part, unless ids are tuples.
        attributes: what a build keeps of each edge beside its ends; None for nothing.
        kernels: modules of the CPU kernels by which pieces are read.
    """

    kernels: ClassVar[tuple[str, ...]] = ()

    name: str
    n: int | None
    m: int | None
    directed: bool
    mirrored: bool = field(default=False, kw_only=True)
    first_id: int = field(default=0, kw_only=True)
    stated: int | None = field(default=None, kw_only=True)
    completes: bool = field(default=False, kw_only=True)
    values: tuple[str, ...] = field(default=(), kw_only=True)
    vertex_values: int = field(default=0, kw_only=True)
    told: bool = field(default=False, kw_only=True)
    id_kinds: tuple[IdKind, ...] = field(default=("integer",), kw_only=True)
    attributes: Attributes | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        # A file's name may hold any byte but two.
        object.__setattr__(self, "name", printable(self.name))

    @abstractmethod
    def cut(self, piece_edges: int) -> Sequence[Piece]:
        """Cut into pieces of about ``piece_edges`` edges (at least 1), in order; at least one piece."""

    def keeping(self, columns: Sequence[str]) -> Self:  # noqa: ARG002 - of edges that have columns
        """Return the edges with some of their values as attributes.

        Raises:
            InvalidOptionError: the edges have no columns.
            EdgeInputError: a column is not there, or is one of the ends, or holds values that can't be kept.
        """
        raise InvalidOptionError(
            f"{self.name}: edge_columns= is for generators, tables in memory, graphs of NetworkX, matrices, Parquet "
            "and Arrow files, NCOL, .gr, Matrix Market, METIS, and texts with a line of column names, which "
            "format='csv' reads; load these edges as a table"
        )

    def is_small(self, most_edges: int) -> bool:
        """Return whether these are at most so many edges: by their number, or by the bytes of a file without a header.

        A URL, or a file whose name is not printable, is not found here, and counts as large.
        """
        if self.m is not None:
            return self.m <= most_edges
        path = Path(self.name)
        return path.is_file() and path.suffix not in _COMPRESSED and path.stat().st_size <= _LINE_BYTES * most_edges

    def require_count(self, read: int) -> None:
        """Compare the number of edges that were read with those promised, and with those stated.

        Raises:
            TruncatedFileError: other than promised.
        """
        if self.m not in (None, read):
            raise TruncatedFileError(
                f"{self.name} promises {counted(self.m or 0, 'edge')} (by its header), and has {read:,}"
            )
        if self.stated not in (None, read):
            stated = counted(self.stated or 0, "edge")
            logger.warning("%s: a comment states %s, the file has %s", self.name, stated, f"{read:,}")

    @property
    def symmetrise(self) -> bool:
        """Whether a build adds each edge's reverse."""
        return not self.directed and not self.mirrored

    @property
    def paired(self) -> bool:
        """Whether each edge's reverse must be in the pieces too; a build checks that."""
        return self.mirrored and not self.directed

    def line_of(self, vertex: int) -> int | None:  # noqa: ARG002 - of files that have such lines
        """Return the number of the line that lists a vertex's edges; None if there are no such lines."""
        return None

    @property
    def path(self) -> str | None:
        """Path or URL of the file that workers read; None if the edges are of no file."""
        return None

    @property
    def held_bytes(self) -> int:
        """Bytes of input data that go to the workers when a build begins; 0 if the workers read or generate."""
        return 0

    @property
    def reader_bytes(self) -> int:
        """Bytes that a worker holds from its first read of a piece to the end of the build."""
        return 0

    @property
    def has_names(self) -> bool:
        """Whether vertices have ids other than their numbers plus ``first_id``, though the pieces hold vertices."""
        return False

    def names(self) -> Any:
        """Return the ids of all vertices in the form of ``ids.table.as_ids``; only if ``has_names``."""
        raise NotImplementedError

    def distinct_ids(self) -> DistinctIds | None:
        """Find the distinct ids in the client's memory; None if there are none to number, or workers must read."""
        return None

    def sampled_edges(self) -> int | None:
        """Estimate the number of edges where ``m`` is unknown, by samples of a text; None if there is no such way."""
        return None

    def largest_piece(self, piece_edges: int, m: int) -> int:
        """Return the number of edges of the largest piece that ``cut(piece_edges)`` makes of all ``m`` edges."""
        return min(piece_edges, max(m, 1))

    def largest_portion(self, piece_edges: int, m: int) -> int:
        """Return the number of edges of which a build on CPUs takes the memory at once, of the largest piece.

        The arguments are those of ``largest_piece``. Pieces that are read portion by portion take less than their size.
        """
        return self.largest_piece(piece_edges, m)


def tell_left_out(edges: EdgeList) -> None:
    """Log what a traversal does not use of the edges: a warning if it may be weights, since a level counts edges."""
    if not edges.told and (edges.values or edges.vertex_values):
        names = [*edges.values, *(["weights of vertices"] if edges.vertex_values else [])]
        words = [word for name in names for word in name.lower().split()]
        level = logging.WARNING if any(word in _WEIGHTS or word == "column" for word in words) else logging.INFO
        shown = ", ".join(printable(name) for name in names[:_MOST_NAMES])
        shown += f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        logger.log(level, "%s: not used, since every edge counts as one step: %s", edges.name, shown)
