"""How a rank cuts a subgraph out of its partition: the edges between chosen vertices.

Only these edges travel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.subgraphs.messages import SelectEdges
from dbfs_workers.search.partition.partition import Partition, RankEdges, array_module, on_host
from dbfs_workers.serving.feature import WorkerFeature, WorkerView
from dbfs_workers.serving.reads.server import edges_of

BLOCK_EDGES: Final = 1 << 22
"""Edges of chosen rows that are looked at together. A block takes about 30 bytes an edge; a longer row is a block."""


class EdgeReads(WorkerFeature):
    """The handlers of one worker."""

    def __init__(self, view: WorkerView) -> None:
        super().__init__(view)
        self._data = view.worker.data

    @SelectEdges.handler
    async def select_edges(self, message: SelectEdges) -> NDArray[np.uint32]:
        parts = list(edges_of(self._data, message.partition).parts())
        found = [await asyncio.to_thread(edges_between, part, message.chosen, message.index) for part in parts]
        return found[0] if len(found) == 1 else np.concatenate(found, axis=1)


def edges_between(partition: Partition, chosen: NDArray[np.uint32], index: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the edges of a rank's rows between chosen vertices, duplicates once.

    Only the chosen rows are read. A partition on a GPU stays there, but for the columns of these rows.

    Args:
        chosen: internal ids of the chosen vertices, ascending, each once.
        index: the index of each of them in the caller's list.

    Returns:
        uint32[2, edges]: indices of the edges' sources and targets in the caller's list. Of an undirected graph, the
        edges whose source comes first there, and self-loops: each edge comes from one of its two rows.
    """
    return _between(partition, chosen, index, repeats=False)[0]


def rows_between(
    edges: RankEdges,
    attributes: Any,
    chosen: NDArray[np.uint32],
    index: NDArray[np.uint32],
    parents: NDArray[np.int64] | None,
    names: list[str],
) -> tuple[NDArray[np.uint32], Any]:
    """Return the edges between chosen vertices, those that repeat another too, and an Arrow table of their columns.

    Args:
        attributes: what has the columns of the rank's edges: see ``Beside.edge_keys``.
        chosen, index: as of ``edges_between``, also for the edges that are returned.
        parents: by index, the index of the vertex's parent, or its own: of a tree, whose edges alone are returned, each
            from its parent. None for all edges.
        names: the columns.

    Raises:
        StaleRunError: the attributes are of another version than the partition.
    """
    ends, places, first = [], [], 0
    for part in edges.parts():
        found, there = _between(part, chosen, index, repeats=True, parents=parents)
        ends.append(found)
        places.append(there + first)
        first += part.m_local
    return np.concatenate(ends, axis=1), attributes.columns_of(edges).select(names).take(np.concatenate(places))


def vertex_rows(
    attributes: Any, rank: int, n_local: int, chosen: NDArray[np.uint32], index: NDArray[np.uint32], names: list[str]
) -> tuple[NDArray[np.uint32], Any]:
    """Return the indices of the chosen vertices that a rank owns, and an Arrow table of their columns.

    Args:
        attributes: what has the columns of the rank's vertices: see ``Beside.vertex_keys``.
        chosen, index: as of ``edges_between``.
        names: the columns.
    """
    begin, end = np.searchsorted(chosen, [rank * n_local, (rank + 1) * n_local])
    return index[begin:end], attributes.table.select(names).take(chosen[begin:end].astype(np.int64) - rank * n_local)


def _between(
    partition: Partition,
    chosen: NDArray[np.uint32],
    index: NDArray[np.uint32],
    *,
    repeats: bool,
    parents: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the edges between chosen vertices, and the place of each of them among the rank's edges."""
    stripe = partition.stripe
    first_id = partition.rank * stripe.n_local
    begin, end = np.searchsorted(chosen, [first_id, first_id + stripe.n_local])
    rows, own_index = chosen[begin:end].astype(np.int64) - first_id, index[begin:end]
    # By internal id, the vertex's index plus 1. Pages of this array that are never read take no memory.
    place = np.zeros(stripe.p * stripe.n_local, np.uint32)
    place[chosen] = index + np.uint32(1)
    found, places = [np.empty((2, 0), np.uint32)], [np.empty(0, np.int64)]
    for which, edges, columns in _blocks(partition, rows):
        target = place[columns]
        kept = target > 0
        if not repeats:
            # Edges that repeat another follow it in their row.
            kept[1:] &= (columns[1:] != columns[:-1]) | (which[1:] != which[:-1])
        if parents is not None:
            # A root is its own parent, and the edge of none.
            ends = target[kept].astype(np.int64) - 1
            kept[kept] = (parents[ends] == own_index[which[kept]]) & (ends != own_index[which[kept]])
        elif not partition.directed:
            kept &= own_index[which] < target
        found.append(np.stack([own_index[which[kept]], target[kept] - np.uint32(1)]))
        places.append(edges[kept])
    return np.concatenate(found, axis=1), np.concatenate(places)


def _blocks(
    partition: Partition, rows: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32]]]:
    """Yield the edges of some rows in blocks: the index of its row in ``rows``, its place, and its column of each."""
    xp = array_module(partition.columns)
    there = xp.asarray(rows)
    starts: NDArray[np.int64] = on_host(partition.row_offsets[there])
    lengths: NDArray[np.int64] = on_host(partition.row_offsets[there + 1]) - starts
    ends = np.cumsum(lengths)
    first = 0
    while first < rows.size:
        before = ends[first] - lengths[first]
        last = max(first + 1, int(np.searchsorted(ends, before + BLOCK_EDGES, side="right")))
        which = np.repeat(np.arange(first, last), lengths[first:last])
        edges = np.arange(which.size) + (starts + before - (ends - lengths))[which]
        yield which, edges, on_host(partition.columns[xp.asarray(edges)])
        first = last
