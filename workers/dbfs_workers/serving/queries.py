"""Tasks that query partitions and labels on the workers.

Clients submit these tasks; only the answers travel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.ids.table import IdTable, nbytes
from dbfs_workers.search.partition.partition import Partition, RankEdges, array_module, on_host
from dbfs_workers.search.partition.stripe import Stripe

Value = TypeVar("Value")

# Edges that are looked at together, with about 50 bytes of memory each.
_DIGESTED = 1 << 22


def same_value(value: Value) -> Value:
    """Return the value; the task gives it a key that the client has a future of."""
    return value


def table_bytes(table: IdTable) -> int:
    """Return the bytes of a rank's ids."""
    return nbytes(table.ids)


def rows_with_neighbours(edges: RankEdges, rows: NDArray[np.int64]) -> NDArray[np.bool]:
    """Return for each of the given rows whether an edge leads from it to another vertex (self-loops do not count)."""
    # A self-loop is on the owner's own rank: its two ends have one owner.
    own = next(part for part in edges.parts() if part.rank == edges.rank)
    xp = array_module(own.columns)
    places = xp.asarray(rows)
    starts, ends = own.row_offsets[places], own.row_offsets[places + 1]
    # Equal columns stand side by side, so that a row of self-loops begins and ends with one.
    some = xp.flatnonzero(ends > starts)
    ids = edges.rank * edges.stripe.n_local + places[some]
    others = xp.zeros(rows.size, bool)
    others[some] = (own.columns[starts[some]] != ids) | (own.columns[ends[some] - 1] != ids)
    # Edges of these rows on other ranks lead to other vertices.
    found: NDArray[np.bool] = on_host(others) | (edges.degrees_of(rows) > on_host(ends - starts))
    return found


def rows_on_shortest_path(
    from_one: NDArray[np.int32], from_other: NDArray[np.int32], near: int, far: int
) -> NDArray[np.int64]:
    """Return the rows ``near`` edges from one vertex and ``far`` from another, given the distances from each."""
    return np.flatnonzero((from_one == near) & (from_other == far))


def near(distances: NDArray[np.int32], depth: int, stripe: Stripe, rank: int) -> NDArray[np.int64]:
    """Return int64[n]: of a rank's vertices how much nearer than ``depth + 1`` each is, 0 if unreached; 0 of others."""
    found, nearer = on_host(distances), np.zeros(stripe.n, np.int64)
    nearer[rank :: stripe.p] = np.where(found < 0, 0, depth + 1 - found)
    return nearer


def degree_counts(edges: RankEdges) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the degrees that occur on a rank, ascending, and the number of rows of each: two int64 arrays."""
    found = _degrees(edges)
    degrees, counts = np.unique(found[found >= 0], return_counts=True)
    return degrees, counts


def edge_digest(edges: RankEdges) -> int:
    """Return the sum, modulo 2^64, of a digest of each of a rank's edges: two graphs with other edges have others.

    The sum over all ranks is the same for any number of ranks, and for any layout.
    """
    # Each edge by the numbers of its ends, which no number of ranks changes.
    return sum(int(_mixed(_mixed(source) + target).sum()) for source, target in _edges(edges)) % 2**64


def edge_ends(partition: Partition) -> NDArray[np.uint32]:
    """Return uint32[2, edges], the ends of a rank's edges, as positions, in the order of its rows."""
    parts = [np.empty((2, 0), np.uint32), *(np.stack(ends).astype(np.uint32) for ends in _edges(partition))]
    return np.concatenate(parts, axis=1)


def _edges(edges: RankEdges) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
    """Yield the sources and the targets of a rank's edges, some edges after others."""
    stripe = edges.stripe
    n_local = np.uint64(stripe.n_local)
    for part in edges.parts():
        rows = part.on(np)
        for first in range(0, rows.columns.size, _DIGESTED):
            columns = rows.columns[first : first + _DIGESTED].astype(np.uint64)
            row = np.searchsorted(rows.row_offsets, np.arange(first, first + columns.size), side="right") - 1
            source = (row * stripe.p + part.rank).astype(np.uint64)
            yield source, columns % n_local * np.uint64(stripe.p) + columns // n_local


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return one round of SplitMix64 (Steele, Lea and Flood 2014) from each word."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def largest_degree(edges: RankEdges) -> tuple[int, int]:
    """Return the largest degree of a rank and the first row that has it; (-1, any) on a rank without vertices."""
    degrees = _degrees(edges)
    return (int(degrees.max()), int(degrees.argmax())) if degrees.size else (-1, 0)


def deleted_vertices(partition: RankEdges) -> tuple[int, NDArray[np.int64]]:
    """Return the graph's version, and the positions of the vertices that were deleted."""
    return partition.version, partition.deleted


def _degrees(edges: RankEdges) -> NDArray[np.int64]:
    """Return the degree of each row of a rank, -1 for a deleted vertex."""
    stripe, rank = edges.stripe, edges.rank
    degrees, deleted = edges.degrees_of(slice(stripe.owned(rank))), edges.deleted
    if not deleted.size:
        return degrees
    # They may be the rank's own array.
    degrees = degrees.copy()
    degrees[stripe.row(deleted[stripe.owner(deleted) == rank])] = -1
    return degrees
