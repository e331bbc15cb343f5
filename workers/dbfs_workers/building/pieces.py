"""Pieces: parts of an edge list that one task reads or generates. Clients cut them, workers read them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import outside

Edges = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Sources and targets of edges, of one length: vertices."""

IdEdges = tuple[Any, Any]
"""Sources and targets of edges, of one length, as ids: int64 NumPy or Arrow arrays (see ``ids.table.as_ids``)."""


def check_ids(src: NDArray[np.int64], dst: NDArray[np.int64], n: int, name: str) -> Edges:
    """Return edges as contiguous int64 arrays, for kernels; raise ``InvalidVertexError`` for an id outside 0..n-1."""
    src = np.ascontiguousarray(src, dtype=np.int64)
    dst = np.ascontiguousarray(dst, dtype=np.int64)
    for ids in (src, dst):
        if ids.size and (ids.min() < 0 or ids.max() >= n):
            at = int(np.flatnonzero((ids < 0) | (ids >= n))[0])
            raise outside(name, src[at], dst[at], n)
    return src, dst


class Piece(Protocol):
    """A part of an edge list, small enough for one task. It is picklable, and ``read`` runs on a worker."""

    def read(self) -> Edges | IdEdges:
        """Return the piece's sources and targets: vertices if the edge list has a number of vertices, else ids.

        Raises:
            FormatError: a file is not what its format says (the message names the line, or the part of the file),
                there are more edges than the header promises, or much text holds few edges.
            EdgeInputError: a row of a table has no two ids; the message names the row.
            TruncatedFileError: the file ends too early.
            GraphTooLargeError: the edges take more memory than this worker has left.
            MissingFileError, UnreadableFileError: this machine has no such file, or can't read it.
            RunCancelledError, DeadlineExceededError: no client waits for the edges any more.
        """


@runtime_checkable
class PieceInPortions(Piece, Protocol):
    """A piece that may hold so many edges that a build takes them portion by portion."""

    def portions(self) -> Iterator[IdEdges]:
        """Yield the edges that ``read`` returns, at least one portion."""


def portions_of(piece: Piece) -> Iterator[Edges | IdEdges]:
    """Yield the edges of a piece portion by portion; a piece that has no portions is one."""
    if isinstance(piece, PieceInPortions):
        yield from piece.portions()
    else:
        yield piece.read()


@runtime_checkable
class PieceWithLoneIds(Piece, Protocol):
    """A piece of ids that also names vertices which may have no edge."""

    def lone_ids(self) -> Any:
        """Return their ids, of the type of the edges' ids; None for none."""


class AttributePiece(Protocol):
    """The attributes of a piece's edges. It is picklable, and ``attributes`` runs on a worker."""

    def attributes(self) -> Any:
        """Return an Arrow table with a row for each edge that the piece's ``read`` returns, in that order.

        Errors as for ``Piece.read``.
        """


class GeneratedPiece(ABC):
    """A ``Piece`` generated from its parameters, with the same edges in the same order on a CPU and on a GPU."""

    @abstractmethod
    def read_on(self, xp: ModuleType) -> tuple[Any, Any]:
        """Return sources and targets as int64 arrays of ``xp``: NumPy, or CuPy on its current device and stream."""

    def read(self) -> Edges:
        """Return sources and targets as NumPy arrays."""
        return self.read_on(np)
