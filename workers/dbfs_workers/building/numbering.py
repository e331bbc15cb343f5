"""Tasks that number the ids of an edge list: a sample sort of the distinct ids over the ranks.

1. ``encode_piece`` reads a piece, and replaces each id by a code: an index into the rank's distinct ids.
2. ``sample_ids`` takes some of these ids, and ``choose_splitters`` divides all samples into as many ranges as ranks.
3. ``split_ids`` divides the rank's distinct ids into the ranges. Each rank owns one range, and gets its part.
4. ``unite_ids`` sorts the distinct ids of a range. Their places, and the sizes of the ranges before, are the vertices.
5. ``find_vertices`` makes of the places that the owners answer the vertices of a rank's distinct ids, and
   ``make_vertices`` replaces a piece's codes by them.

The ids are numbered in ascending order, so any number of ranks, pieces and samples gives the same vertices. No rank
holds all ids, and each holds an id once, however many of its pieces have the id.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import EdgeInputError
from dbfs_workers.building.delivering import UnspilledResult
from dbfs_workers.building.pieces import PieceWithLoneIds, portions_of
from dbfs_workers.building.reading import require_room
from dbfs_workers.ids.codes import MOST_SMALL_IDS, IdCodes, ascending, codes_for, divide, encode
from dbfs_workers.ids.table import (
    INTEGERS,
    IdTable,
    IdType,
    as_ids,
    as_python,
    from_python,
    nbytes,
    take,
)

if TYPE_CHECKING:
    from dbfs_workers.building.pieces import Edges, Piece
    from dbfs_workers.ids.table import Ids
    from dbfs_workers.search.partition.partition import InputEdges

# Distinct ids of a rank that are samples, for each range. With 64 the largest of 4 ranges had 1.1 times the mean.
_SAMPLES = 64


class RankIds(UnspilledResult):
    """The distinct ids of a rank's pieces; their places here are the codes. The tasks of one rank share the object."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._codes: IdCodes | None = None
        self._type: IdType | None = None

    def encode(self, ids: Ids, require: Callable[[int], None], name: str) -> NDArray[np.int32]:
        """Return the codes of ids; those that are new are added.

        Args:
            ids: the ids, in the form of ``as_ids``.
            require: called with the bytes that the step takes at most.
            name: the edge list's name, for errors.

        Errors as for ``encode_piece``.
        """
        if len(ids) == 0:
            return np.empty(0, np.int32)
        with self._lock:
            id_type = IdType.of(ids)
            if self._codes is None or self._type is None:
                self._codes, self._type = codes_for(ids), id_type
            _require_alike([self._type, id_type], name)
            require(self._codes.growth(ids))
            return self._codes.encode(ids if id_type == self._type else _renamed(ids, self._type))

    def take_all(self) -> Ids | None:
        """Return the distinct ids, and keep none of them; None if there are none."""
        with self._lock:
            codes, self._codes = self._codes, None
        return None if codes is None else codes.distinct()

    def sample(self, most: int) -> list[Any]:
        """Return up to ``most`` ids, evenly spaced in the order in which they were added, as Python's values."""
        with self._lock:
            if self._codes is None:
                return []
            chosen = np.unique(np.linspace(0, self._codes.count - 1, most).astype(np.int64))
            return as_python(take(self._codes.distinct(), chosen))


@dataclass(frozen=True)
class CodedPiece:
    """A piece's edges as codes.

    Attributes:
        count: number of edges.
        id_type: the type of the ids; None if the piece has none.
        codes: sources and targets as the only element, indices into the rank's distinct ids; ``make_vertices`` takes it
            out.
    """

    count: int
    id_type: IdType | None
    codes: list[tuple[NDArray[np.int32], NDArray[np.int32]]]

    def __sizeof__(self) -> int:
        return 8 * self.count * len(self.codes)


@dataclass(frozen=True)
class PieceSummary:
    """A piece's number of edges, and the type of its ids; None if the piece has none."""

    edges: int
    id_type: IdType | None


@dataclass(frozen=True)
class IdSample:
    """Some ids of a rank.

    Attributes:
        edges: number of edges of each of its pieces.
        id_types: the type of each piece's ids; None for a piece that has none.
        ids: some of its distinct ids, as Python's values.
    """

    edges: list[int]
    id_types: list[IdType | None]
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
    """A rank's distinct ids by range.

    Attributes:
        parts: the ids of each range, by rank; integers as uint32 if all fit. ``select_part`` takes them out.
        order: int32, the code of each id, part after part.
    """

    parts: dict[int, Ids]
    order: NDArray[np.int32]

    def __sizeof__(self) -> int:
        return self.order.nbytes + sum(map(nbytes, self.parts.values()))


@dataclass(frozen=True)
class UnitedIds:
    """The ids of one range.

    Attributes:
        ids: ascending and distinct.
        places: by rank, the index here of each id of the rank's part, int32; ``select_places`` takes them out.
    """

    ids: Ids
    places: dict[int, NDArray[np.int32]]

    def __sizeof__(self) -> int:
        return nbytes(self.ids) + sum(places.nbytes for places in self.places.values())


def encode_piece(piece: Piece, found: RankIds, memory_share: float, name: str) -> CodedPiece:
    """Read a piece, and replace its ids by codes; ``name`` is the edge list's, for errors.

    Raises:
        GraphTooLargeError: finding the distinct ids takes more memory than this worker has left.
        EdgeInputError: the ids are null, negative, or of a type that ids can't have; sources and targets differ in
            number or type, or ids of other pieces are of another type.
    """
    types = list[IdType]()
    require = partial(require_room, memory_share=memory_share, what=f"{name}: finding its distinct ids")
    codes = [found.encode(ids, require, name) for ids in _parts_of(piece, name, types)]
    count = sum(map(len, codes))
    # The sources, then the targets, of each portion; and perhaps lone ids.
    pairs = len(codes) // 2 * 2
    sources, targets = codes[:pairs:2], codes[1:pairs:2]
    del codes
    if len(sources) > 1:
        # The sources in one array, then the targets.
        require(2 * count)
    src = _in_one(sources)
    del sources
    return CodedPiece(src.size, types[0] if count else None, [(src, _in_one(targets))])


def summarise(piece: CodedPiece) -> PieceSummary:
    """Return what all ranks need of a piece, so that the codes may stay on a disk."""
    return PieceSummary(piece.count, piece.id_type)


def sample_ids(found: RankIds, pieces: Sequence[PieceSummary], p: int) -> IdSample:
    """Return some of a rank's distinct ids, evenly spaced in the order in which they occur, for ``p`` ranges."""
    edges, id_types = [piece.edges for piece in pieces], [piece.id_type for piece in pieces]
    return IdSample(edges, id_types, found.sample(_SAMPLES * p))


def choose_splitters(samples: Sequence[IdSample], p: int, name: str) -> Splitters:
    """Return the splitters for ``p`` ranks by the samples of all ranks. Errors as for ``encode_piece``."""
    # Piece i is on rank i % p. The names of the first piece with ids count.
    by_piece = [one for pieces in zip_longest(*(sample.id_types for sample in samples)) for one in pieces]
    types = list(dict.fromkeys(one for one in by_piece if one is not None))
    _require_alike(types, name)
    ids = sorted(one for sample in samples for one in sample.ids)
    values = tuple(ids[len(ids) * rank // p] for rank in range(1, p)) if ids else ()
    return Splitters(sum(sum(sample.edges) for sample in samples), types[0] if types else INTEGERS, values)


def split_ids(found: RankIds, splitters: Splitters, p: int) -> SplitIds:
    """Divide a rank's distinct ids into the ranges of ``p`` ranks."""
    ids = found.take_all()
    if ids is None:
        return SplitIds(dict.fromkeys(range(p), from_python([], splitters.id_type)), np.empty(0, np.int32))
    if IdType.of(ids) != splitters.id_type:
        ids = _renamed(ids, splitters.id_type)
    if p == 1:
        return SplitIds({0: _narrow(ids)}, np.arange(len(ids), dtype=np.int32))
    order, ends = divide(ids, splitters.values)
    cuts = enumerate(pairwise([0, *ends]))
    return SplitIds({owner: _narrow(take(ids, order[start:end])) for owner, (start, end) in cuts}, order)


def select_part(split: SplitIds, owner: int) -> Ids:
    """Take out the ids of one range, so that Dask sends an owner only its own, and frees them once they are sent."""
    return split.parts.pop(owner)


def unite_ids(parts: Sequence[Ids], memory_share: float, name: str) -> UnitedIds:
    """Sort the ids of one range, given the parts of all ranks. Errors as for ``encode_piece``."""
    require = partial(require_room, memory_share=memory_share, what=f"{name}: numbering its ids")
    codes, ids = encode(map(_wide, parts), require)
    # The order, its inverse, what sorting takes, and the ids in ascending order.
    require(28 * len(ids) + nbytes(ids))
    order = ascending(ids)
    place = np.empty(len(ids), np.int32)
    place[order] = np.arange(len(ids), dtype=np.int32)
    ids = take(ids, order)
    del order
    return UnitedIds(ids, {rank: _looked_up(place, one) for rank, one in enumerate(codes)})


def count_ids(united: UnitedIds) -> tuple[int, Any]:
    """Return the number of ids of a range, and the smallest and the largest as Python's values; None without ids."""
    ids = united.ids
    return len(ids), (as_python(ids[:1])[0], as_python(ids[-1:])[0]) if len(ids) else None


def select_places(united: UnitedIds, rank: int) -> NDArray[np.int32]:
    """Take out the places of the ids of one rank, so that Dask frees them once they are sent."""
    return united.places.pop(rank)


def make_table(united: UnitedIds, counts: Sequence[tuple[int, Any]], rank: int) -> IdTable:
    """Return the table of a rank's range; ``counts`` are the answers of ``count_ids`` of all ranks."""
    return IdTable(sum(count for count, _ in counts[:rank]), united.ids)


def find_vertices(
    split: SplitIds, places: Sequence[NDArray[np.int32]], counts: Sequence[tuple[int, Any]]
) -> NDArray[Any]:
    """Return the vertex of each code of a rank: uint32, or int64 for more than 2^32 vertices.

    Args:
        split: the rank's distinct ids by range.
        places: by range, the places of these ids in the range.
        counts: as of ``make_table``.
    """
    firsts = [0, *accumulate(count for count, _ in counts)]
    kind = np.dtype(np.uint32 if firsts[-1] <= MOST_SMALL_IDS else np.int64)
    vertex: NDArray[Any] = np.empty(split.order.size, kind)
    start = 0
    for first, part in zip(firsts, places, strict=False):
        vertex[split.order[start : start + part.size]] = part.astype(vertex.dtype) + vertex.dtype.type(first)
        start += part.size
    return vertex


def make_vertices(piece: CodedPiece, vertex: NDArray[Any]) -> Edges | InputEdges:
    """Return a piece's edges as vertices: uint32 in the memory of the codes, or int64.

    Args:
        piece: the edges as codes.
        vertex: the vertex of each code.
    """
    # Taken out: a second call would take the vertices for codes.
    src, dst = piece.codes.pop()
    return _looked_up(vertex, src), _looked_up(vertex, dst)


def _parts_of(piece: Piece, name: str, types: list[IdType]) -> Iterator[Ids]:
    """Yield the sources and the targets of each portion, then the lone ids; add the type of each to ``types``."""
    for found in portions_of(piece):
        src, dst = (_checked(end, name) for end in found)
        if len(src) != len(dst):
            raise EdgeInputError(f"{name}: a piece has {len(src):,} sources and {len(dst):,} targets; expected as many")
        id_type = IdType.of(src)
        if id_type.columns != IdType.of(dst).columns:
            raise EdgeInputError(f"{name}: sources are {id_type}, targets {IdType.of(dst)}; both must be of one type")
        types.append(id_type)
        if IdType.of(dst) != id_type:
            dst = _renamed(dst, id_type)
        yield src
        yield dst
    lone = piece.lone_ids() if isinstance(piece, PieceWithLoneIds) else None
    if lone is not None:
        yield _checked(lone, name)


def _require_alike(types: Sequence[IdType], name: str) -> None:
    """Refuse ids of several types; the names of a tuple's columns may differ."""
    if len({one.columns for one in types}) > 1:
        raise EdgeInputError(f"{name}: the ids are {types[0]} and {types[1]} in turn; all must be of one type")


def _checked(values: Any, name: str) -> Ids:
    """Return ids in their one form; an error names the edge list."""
    try:
        return as_ids(values)
    except EdgeInputError as error:
        raise EdgeInputError(f"{name}: {error}") from error


def _in_one(codes: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    """Return the codes of all portions."""
    return codes[0] if len(codes) == 1 else np.concatenate(codes)


def _looked_up(values: NDArray[Any], indices: NDArray[np.int32]) -> NDArray[Any]:
    """Return the values at the indices; values of 4 bytes take the memory of the indices."""
    if values.itemsize != indices.itemsize:
        return values[indices]
    # Imported here because the import compiles kernels.
    from dbfs_workers.ids.kernels import integers as kernels

    kernels.look_up(values.view(np.uint32), indices.view(np.uint32))
    return indices.view(values.dtype)


def _narrow(ids: Ids) -> Ids:
    """Return integers as uint32 if all fit, which halves what the ranks send and hold."""
    small = isinstance(ids, np.ndarray) and ids.size > 0 and ids.max() < MOST_SMALL_IDS
    return ids.astype(np.uint32) if small else ids


def _wide(ids: Ids) -> Ids:
    """Return the ids that ``_narrow`` was called with."""
    return ids.astype(np.int64, copy=False) if isinstance(ids, np.ndarray) else ids


def _renamed(ids: Any, id_type: IdType) -> Ids:
    """Return tuples with the columns' names of another type."""
    import pyarrow as pa

    return pa.StructArray.from_arrays(ids.flatten(), names=list(id_type.names))
