"""Graphs whose ids are integers with gaps, strings or tuples, made of arrays."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import dbfs
from dbfs.edges.edge_list import EdgeList
from dbfs_workers.building.pieces import Edges
from tests.support.graphs import Arrays

KINDS = ("dense", "integers", "strings", "tuples")


def word(vertex: int, kind: str) -> Any:
    """Return a vertex's id of a kind. The order of the ids is not that of the vertices."""
    mixed = vertex * 7919 % 10_007
    if kind == "integers":
        return 3 + 10**12 * mixed
    return f"ü{mixed}" if kind == "strings" else (f"{mixed % 10}", mixed)


@dataclass(frozen=True)
class ArrowPiece:
    """A piece that holds its ids."""

    src: pa.Array
    dst: pa.Array

    def read(self) -> Edges:
        return self.src, self.dst


@dataclass(frozen=True)
class ArrowEdges(EdgeList):
    """Edges between ids, in three pieces."""

    columns: tuple[Any, Any]

    def cut(self, piece_edges: int) -> list[ArrowPiece]:
        src, dst = self.columns
        third = len(src) // 3
        return [ArrowPiece(src[i:j], dst[i:j]) for i, j in ((0, third), (third, 2 * third), (2 * third, len(src)))]


def named_edges(arrays: Arrays, kind: str, *, directed: bool) -> tuple[EdgeList, list[Any], Arrays]:
    """Return an edge list with ids of a kind, the ids in ascending order, and the same edges between their indices.

    Vertices without edges are left out, unless the kind is ``dense``.
    """
    n, src, dst = arrays
    if kind == "dense":
        return dbfs.from_arrays(src, dst, n=n, directed=directed), list(range(n)), arrays
    words = {vertex: word(vertex, kind) for vertex in np.unique(np.concatenate([src, dst])).tolist()}
    ids = sorted(words.values(), key=lambda one: one.encode() if isinstance(one, str) else one)
    index = {one: at for at, one in enumerate(ids)}
    columns = [[words[vertex] for vertex in ends.tolist()] for ends in (src, dst)]
    within = [np.array([index[one] for one in column], np.int64) for column in columns]
    return _edges(columns, kind, directed), ids, (len(ids), within[0], within[1])


def _edges(columns: list[list[Any]], kind: str, directed: bool) -> EdgeList:
    if kind == "integers":
        src, dst = (np.array(column, np.int64) for column in columns)
        return dbfs.from_arrays(src, dst, directed=directed)
    if kind == "strings":
        return _arrow([pa.array(column) for column in columns], directed)
    of = pa.struct([("bank", pa.string()), ("account", pa.int64())])
    rows = [[dict(zip(("bank", "account"), one, strict=True)) for one in column] for column in columns]
    return _arrow([pa.array(each, of) for each in rows], directed)


def _arrow(columns: list[Any], directed: bool) -> ArrowEdges:
    src, dst = columns
    return ArrowEdges("named", None, len(src), directed=directed, mirrored=False, columns=(src, dst))


def indices(ids: list[Any], found: Any) -> NDArray[np.int64]:
    """Return the index of each found id."""
    index = {one: at for at, one in enumerate(ids)}
    return np.array([index[one] for one in found], np.int64)
