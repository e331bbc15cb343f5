"""Weights of edges in arrays, such as the entries of a matrix, as a column ``weight``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dbfs.edges.arrays import ArrayEdges
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.tables.attributes import TableAttributes, require_there
from dbfs.errors import EdgeInputError


def with_weights(edges: EdgeList, columns: Sequence[str]) -> EdgeList:
    """Return the edges with their weights as an attribute, if they are arrays with weights; else the edges themselves.

    Args:
        columns: the columns to keep, of which there is only ``weight``.

    Raises:
        EdgeInputError: another column is named, the weights are of a type that can't be kept, or the two directions of
            an undirected edge have other weights.
    """
    if not columns or not isinstance(edges, ArrayEdges) or edges.weights is None:
        return edges
    import pyarrow as pa

    require_there(columns, ["weight"], edges.name)
    if edges.paired:
        _require_symmetric(edges.src, edges.dst, edges.weights, edges.name)
    try:
        table = pa.table({"weight": pa.array(edges.weights)})
    except pa.ArrowException as error:
        raise EdgeInputError(f"{edges.name}: column 'weight' can't be kept: {error}") from None
    return replace(edges, values=(), attributes=TableAttributes.of(table, edges.name))


def _require_symmetric(src: NDArray[np.int64], dst: NDArray[np.int64], weights: NDArray[np.generic], name: str) -> None:
    """Raise ``EdgeInputError`` unless each edge (i, j) is there as (j, i) with the same weight."""
    there, back = np.lexsort((weights, dst, src)), np.lexsort((weights, src, dst))
    ours, theirs = weights[there], weights[back]
    wrong = np.flatnonzero((ours != theirs) & ~((ours != ours) & (theirs != theirs)))
    if wrong.size:
        at = there[wrong[0]]
        i, j, other = src[at], dst[at], weights[back[wrong[0]]]
        raise EdgeInputError(
            f"{name}: entry ({i}, {j}) is {weights[at]} and entry ({j}, {i}) is {other}; an undirected edge has one "
            "value. directed=True keeps both"
        )
