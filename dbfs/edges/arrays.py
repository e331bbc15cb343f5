"""Edge lists of data in the caller's memory: arrays and SciPy sparse matrices."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dbfs.base.calls import public
from dbfs.edges.edge_list import DistinctIds, EdgeList, are_dense
from dbfs.errors import EdgeInputError
from dbfs_workers.building.pieces import Edges
from dbfs_workers.building.symmetry import MODULUS, imbalance_of_edges
from dbfs_workers.ids.codes import MOST_SMALL_IDS


@dataclass(frozen=True)
class ArrayPiece:
    """A slice of the arrays."""

    src: NDArray[np.int64] | NDArray[np.uint32]
    dst: NDArray[np.int64] | NDArray[np.uint32]

    def read(self) -> Edges:
        """Return the slice's sources and targets, int64."""
        return self.src.astype(np.int64, copy=False), self.dst.astype(np.int64, copy=False)

    def __sizeof__(self) -> int:
        return self.src.nbytes + self.dst.nbytes


@dataclass(frozen=True, eq=False)
class ArrayEdges(EdgeList):
    """Edges in two int64 arrays in the client's memory: vertices if ``n`` is known, else ids.

    A build sends each piece to one worker.

    Attributes:
        weights: a value of each edge, which may be kept as the column ``weight``; None without any.
    """

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    weights: NDArray[Any] | None = field(default=None, kw_only=True)

    def distinct_ids(self) -> DistinctIds | None:
        if self.n is not None:
            return None
        ids = np.unique(np.concatenate([self.src, self.dst]))
        return DistinctIds(ids.size, ids.nbytes, are_dense(ids))

    def cut(self, piece_edges: int) -> Sequence[ArrayPiece]:
        """Cut the arrays into slices of ``piece_edges`` edges; the last one may be shorter."""
        starts = range(0, max(self.src.size, 1), piece_edges)
        # A build's workers hold all pieces at first.
        src: NDArray[Any] = self.src.astype(np.uint32) if self._small else self.src
        dst: NDArray[Any] = self.dst.astype(np.uint32) if self._small else self.dst
        return [ArrayPiece(src[at : at + piece_edges], dst[at : at + piece_edges]) for at in starts]

    @property
    def held_bytes(self) -> int:
        return (8 if self._small else 16) * self.src.size

    @property
    def _small(self) -> bool:
        """Whether all vertices fit uint32."""
        return self.n is not None and self.n <= MOST_SMALL_IDS


@public
def from_arrays(
    src: ArrayLike, dst: ArrayLike, *, n: int | None = None, directed: bool = False, name: str = "arrays"
) -> EdgeList:
    """Make an edge list of the edges ``(src[i], dst[i])``.

    Args:
        src: sources, a 1-D array of integers; converted to int64.
        dst: targets, of the same length.
        n: number of vertices, with ids 0..n-1. None for the distinct ids that occur: the vertices are then numbered in
            ascending order of the ids.
        directed: whether edges can be crossed in one direction only.
        name: the edges' name in messages.

    Raises:
        EdgeInputError: the arrays are not 1-D integer arrays of one length, an id is outside 0..n-1, or n is not a
            non-negative integer.
    """
    source, target = _ids(src, "src"), _ids(dst, "dst")
    if source.size != target.size:
        raise EdgeInputError(f"src has {source.size} ids and dst {target.size}; both must have the same length")
    for ids, which in ((source, "src"), (target, "dst")):
        if ids.size and ids.min() < 0:
            at = int(np.flatnonzero(ids < 0)[0])
            raise EdgeInputError(f"{which}[{at}] is {ids[at]}; vertex ids are 0 or more")
        if n is not None and ids.size and ids.max() >= n:
            at = int(np.flatnonzero(ids >= n)[0])
            raise EdgeInputError(f"{which}[{at}] is {ids[at]}; with n={n} vertex ids are 0..{n - 1}")
    if n is not None and (isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0):
        raise EdgeInputError(f"n must be a whole number of at least 0, not {n!r}")
    return ArrayEdges(name, None if n is None else int(n), source.size, directed, src=source, dst=target)


@public
def from_scipy(matrix: Any, *, directed: bool | None = None, bipartite: bool = False, name: str = "matrix") -> EdgeList:
    """Make an edge list of a SciPy sparse matrix or array: an edge (i, j) for each stored entry.

    An entry is an edge whatever its value, zero included, and an entry that is stored twice is two edges. The formats
    BSR and DIA store whole blocks and diagonals: the zeros there are no entries.

    Args:
        matrix: n x n, in any SciPy sparse format; with ``bipartite`` r x c.
        directed: False if the matrix is symmetric and so holds each edge in both directions. None for the attribute
            ``directed`` of a matrix of ``Subgraph.to_scipy``, and to test any other matrix. With
            ``bipartite``: True to cross edges from rows to columns only.
        bipartite: whether rows and columns are two sets of vertices: 0..r-1 for the rows, r..r+c-1 for the columns.
        name: the edges' name in messages.

    Raises:
        EdgeInputError: ``matrix`` is not a sparse matrix, neither square nor ``bipartite``, or with ``directed=False``
            not symmetric.
    """
    import scipy.sparse

    is_sparse: bool = scipy.sparse.issparse(matrix)
    if not is_sparse:
        raise EdgeInputError(f"from_scipy takes a SciPy sparse matrix or array, not {type(matrix).__name__}")
    if matrix.ndim != 2 or (matrix.shape[0] != matrix.shape[1] and not bipartite):
        shape = " x ".join(map(str, matrix.shape))
        hint = "; bipartite=True makes a vertex of each row, and another of each column" if matrix.ndim == 2 else ""
        raise EdgeInputError(f"the matrix must be square (one row per vertex), not {shape}{hint}")
    entries: Any = matrix.tocoo(copy=True)
    if matrix.format in ("bsr", "dia"):
        entries.eliminate_zeros()
    src, dst, rows = entries.row.astype(np.int64), entries.col.astype(np.int64), int(matrix.shape[0])
    if directed is None and getattr(matrix, "directed", None) is True:
        directed = True
    symmetric = bipartite or imbalance_of_edges(src, dst) % MODULUS == 0
    if directed is False and not symmetric:
        raise EdgeInputError("directed=False, but the matrix is not symmetric; pass matrix + matrix.T")
    if bipartite:
        dst += rows
    n = rows + int(matrix.shape[1]) if bipartite else rows
    is_directed = not symmetric if directed is None else directed
    values = () if (entries.data == 1).all() else ("value",)
    return ArrayEdges(
        name, n, src.size, is_directed, mirrored=not bipartite, src=src, dst=dst, values=values, weights=entries.data
    )


def _ids(values: ArrayLike, which: str) -> NDArray[np.int64]:
    """Return the ids as contiguous int64.

    Raise ``EdgeInputError`` unless the values are a 1-D array of integers that fit int64, none missing.
    """
    ids = np.asarray(values)
    if ids.ndim != 1:
        raise EdgeInputError(f"{which} must be one-dimensional, not {ids.ndim}-dimensional")
    missing = _first_missing(values)
    if missing is not None:
        raise EdgeInputError(f"{which}[{missing}] is missing; an edge needs both ends. Drop edges with missing ids")
    if ids.size == 0:
        return np.empty(0, np.int64)
    if not np.issubdtype(ids.dtype, np.integer):
        words = "; arrays of strings go to dbfs.load as a pair, (src, dst)"
        raise EdgeInputError(f"{which} must hold integers, not {ids.dtype}{words if ids.dtype.kind in 'OSUT' else ''}")
    if np.issubdtype(ids.dtype, np.unsignedinteger) and ids.max() > np.iinfo(np.int64).max:
        raise EdgeInputError(f"{which} holds {ids.max()}; the largest vertex id is {np.iinfo(np.int64).max}")
    return np.ascontiguousarray(ids, dtype=np.int64)


def _first_missing(values: Any) -> int | None:
    """Return the index of the first value that is masked, null or NaN; None if there is none."""
    array = np.asarray(values)
    if isinstance(values, np.ma.MaskedArray):
        missing: Any = np.ma.getmaskarray(values)
    elif array.dtype.kind in "fO":
        # NumPy's form of other libraries' nulls.
        import pandas as pd

        missing = pd.isna(array)
    else:
        return None
    return int(missing.argmax()) if missing.any() else None
