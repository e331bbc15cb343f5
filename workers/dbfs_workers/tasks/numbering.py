"""Tasks that number the ids of an edge list: a sample sort of the distinct ids over the ranks.

1. ``read_piece`` reads a piece, and replaces each id by a code: an index into the piece's distinct ids.
2. ``sample_ids`` takes some of these ids, and ``choose_splitters`` divides all samples into as many ranges as ranks.
3. ``split_ids`` divides the piece's distinct ids into the ranges. Each rank owns one range, and gets its part.
4. ``unite_ids`` sorts the distinct ids of a range. Their places, and the sizes of the ranges before, are the vertices.
5. ``make_vertices`` replaces a piece's codes by the vertices that the owners answer.

The ids are numbered in ascending order, so any number of ranks, pieces and samples gives the same vertices. No rank
holds all ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.errors import EdgeInputError
from dbfs_workers.storage.id_codes import ascending, encode, encoding_bytes
from dbfs_workers.storage.id_table import (
    INTEGERS,
    IdTable,
    IdType,
    as_ids,
    as_python,
    from_python,
    nbytes,
    ranges_of,
    take,
)
from dbfs_workers.storage.pieces import PieceWithLoneIds
from dbfs_workers.storage.reading import require_room

if TYPE_CHECKING:
    from dbfs_workers.storage.id_table import Ids
    from dbfs_workers.storage.partition import InputEdges
    from dbfs_workers.storage.pieces import Edges, Piece

# Distinct ids of a piece that are samples. With 64 the largest of 4 ranges had 1.1 times the mean of 16 pieces.
_SAMPLES = 64
_MOST_SMALL_VERTICES = 2**32


@dataclass(frozen=True)
class CodedPiece:
    """A piece's edges as codes.

    Attributes:
        src, dst: int32, indices into the distinct ids.
        id_type: the type of the ids.
        ids: the distinct ids as the only element; ``split_ids`` takes it out.
    """

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    id_type: IdType
    ids: list[Ids]

    def __sizeof__(self) -> int:
        return self.src.nbytes + self.dst.nbytes + sum(map(nbytes, self.ids))


@dataclass(frozen=True)
class IdSample:
    """Some ids of a piece.

    Attributes:
        edges: the piece's number of edges.
        id_type: the type of the ids; None if the piece has none.
        ids: some of its distinct ids, as Python's values.
    """

    edges: int
    id_type: IdType | None
    ids: list[Any]


@dataclass(frozen=True)
class Splitters:
    """How the ids are divided into ranges, one for each rank.

    Attributes:
        edges: number of edges of all pieces.
        id_type: the type of all ids.
        values: the ranges' borders, as Python's values, ascending: range ``r`` has the ids from ``values[r - 1]`` on
            that are below ``values[r]``.
    """

    edges: int
    id_type: IdType
    values: tuple[Any, ...]


@dataclass(frozen=True)
class SplitIds:
    """A piece's distinct ids by range.

    Attributes:
        parts: the ids of each range.
        order: int32, the code of each id of all parts in turn.
    """

    parts: list[Ids]
    order: NDArray[np.int32]

    def __sizeof__(self) -> int:
        return self.order.nbytes + sum(map(nbytes, self.parts))


@dataclass(frozen=True)
class UnitedIds:
    """The ids of one range.

    Attributes:
        ids: ascending and distinct.
        places: for each piece, the index here of each id of the piece's part: uint32, or int64 for more than 2^32 ids.
    """

    ids: Ids
    places: list[NDArray[Any]]

    def __sizeof__(self) -> int:
        return nbytes(self.ids) + sum(places.nbytes for places in self.places)


def read_piece(piece: Piece, memory_share: float, name: str) -> CodedPiece:
    """Read a piece, and replace its ids by codes; ``name`` is the edge list's, for errors.

    Raises:
        GraphTooLargeError: finding the distinct ids takes more memory than this worker has left.
        EdgeInputError: the ids are null, negative, or of a type that ids can't have; sources and targets differ in
            number or type.
    """
    found = piece.read()
    others = piece.lone_ids() if isinstance(piece, PieceWithLoneIds) else None
    try:
        src, dst, *lone = map(as_ids, found if others is None else (*found, others))
    except EdgeInputError as error:
        raise EdgeInputError(f"{name}: {error}") from error
    if len(src) != len(dst):
        raise EdgeInputError(f"{name}: a piece has {len(src):,} sources and {len(dst):,} targets; expected as many")
    id_type = IdType.of(src)
    if id_type.columns != IdType.of(dst).columns:
        raise EdgeInputError(f"{name}: sources are {id_type}, targets {IdType.of(dst)}; both must be of one type")
    if IdType.of(dst) != id_type:
        dst = _renamed(dst, id_type)
    parts = [src, dst, *lone]
    require_room(encoding_bytes(parts), memory_share, f"{name}: finding its distinct ids")
    codes, ids = encode(parts)
    return CodedPiece(codes[: len(src)], codes[len(src) : 2 * len(src)], id_type, [ids])


def sample_ids(piece: CodedPiece) -> IdSample:
    """Return some of a piece's distinct ids, evenly spaced in the order in which they occur."""
    ids = piece.ids[0]
    if len(ids) == 0:
        return IdSample(0, None, [])
    chosen = np.unique(np.linspace(0, len(ids) - 1, _SAMPLES).astype(np.int64))
    return IdSample(piece.src.size, piece.id_type, as_python(take(ids, chosen)))


def choose_splitters(samples: Sequence[IdSample], p: int, name: str) -> Splitters:
    """Return the splitters for ``p`` ranks by the samples of all pieces.

    Raises:
        EdgeInputError: the pieces' ids are of several types.
    """
    types = list(dict.fromkeys(sample.id_type for sample in samples if sample.id_type is not None))
    if len({one.columns for one in types}) > 1:
        raise EdgeInputError(f"{name}: the ids are {types[0]} and {types[1]} in turn; all must be of one type")
    ids = sorted(one for sample in samples for one in sample.ids)
    values = tuple(ids[len(ids) * rank // p] for rank in range(1, p)) if ids else ()
    return Splitters(sum(sample.edges for sample in samples), types[0] if types else INTEGERS, values)


def split_ids(piece: CodedPiece, splitters: Splitters, p: int) -> SplitIds:
    """Divide a piece's distinct ids into the ranges of ``p`` ranks."""
    ids = piece.ids.pop()
    if len(ids) == 0:
        return SplitIds([from_python([], splitters.id_type)] * p, np.empty(0, np.int32))
    if piece.id_type != splitters.id_type:
        ids = _renamed(ids, splitters.id_type)
    if p == 1:
        return SplitIds([ids], np.arange(len(ids), dtype=np.int32))
    # NumPy sorts 16 bits by radix.
    ranges = ranges_of(ids, splitters.values).astype(np.uint16)
    order = np.argsort(ranges, kind="stable").astype(np.int32)
    ends = np.cumsum(np.bincount(ranges, minlength=p)).tolist()
    return SplitIds([take(ids, order[start:end]) for start, end in pairwise([0, *ends])], order)


def select_part(split: SplitIds, owner: int) -> Ids:
    """Return the ids of one range, so that Dask sends an owner only its own."""
    return split.parts[owner]


def unite_ids(parts: Sequence[Ids], memory_share: float, name: str) -> UnitedIds:
    """Sort the ids of one range, given the parts of all pieces.

    Raises:
        GraphTooLargeError: the ids take more memory than this worker has left.
    """
    # For the distinct ids also their order, and the ids in ascending order.
    needed = encoding_bytes(parts) + 8 * sum(map(len, parts)) + sum(map(nbytes, parts))
    require_room(needed, memory_share, f"{name}: numbering its ids")
    codes, ids = encode(parts)
    order = ascending(ids)
    small = len(ids) < _MOST_SMALL_VERTICES
    place = np.empty(len(ids), np.uint32 if small else np.int64)
    place[order] = np.arange(len(ids))
    places = place[codes]
    ends = accumulate(len(part) for part in parts)
    return UnitedIds(take(ids, order), [places[start:end] for start, end in pairwise([0, *ends])])


def count_ids(united: UnitedIds) -> tuple[int, Any]:
    """Return the number of ids of a range, and the largest one as Python's value; None if there is none."""
    return len(united.ids), as_python(united.ids[-1:])[0] if len(united.ids) else None


def select_places(united: UnitedIds, piece: int) -> NDArray[Any]:
    """Return the places of the ids of one piece."""
    # Copied: a view would keep the places of all pieces alive until the last piece has its vertices.
    return united.places[piece].copy()


def make_table(united: UnitedIds, counts: Sequence[tuple[int, Any]], rank: int) -> IdTable:
    """Return the table of a rank's range; ``counts`` are the answers of ``count_ids`` of all ranks."""
    return IdTable(sum(count for count, _ in counts[:rank]), united.ids)


def make_vertices(
    piece: CodedPiece, split: SplitIds, places: Sequence[NDArray[Any]], counts: Sequence[tuple[int, Any]]
) -> Edges | InputEdges:
    """Return a piece's edges as vertices: uint32, or int64 for more than 2^32 vertices.

    Args:
        piece: the edges as codes.
        split: the distinct ids by range.
        places: by range, the places of these ids in the range.
        counts: as of ``make_table``.
    """
    firsts = [0, *accumulate(count for count, _ in counts)]
    vertex: Any = np.empty(split.order.size, np.uint32 if firsts[-1] <= _MOST_SMALL_VERTICES else np.int64)
    start = 0
    for first, part in zip(firsts, places, strict=False):
        vertex[split.order[start : start + part.size]] = part + vertex.dtype.type(first)
        start += part.size
    return vertex[piece.src], vertex[piece.dst]


def _renamed(ids: Any, id_type: IdType) -> Ids:
    """Return tuples with the columns' names of another type."""
    import pyarrow as pa

    return pa.StructArray.from_arrays(ids.flatten(), names=list(id_type.names))
