"""Tasks of an update: read a piece, or find the edges of vertices, and deliver the bins to their owners."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import InvalidVertexError, InvalidVertexTypeError
from dbfs_workers.building.delivering import Collection
from dbfs_workers.building.on_cpu import bin_piece
from dbfs_workers.building.pieces import Edges, Piece
from dbfs_workers.building.symmetry import imbalance_of_edges
from dbfs_workers.search.partition.ordering import DegreeOrder
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.stripe import Stripe


def read_changes(piece: Piece, first_id: int, own_first_id: int, n: int, name: str) -> Edges:
    """Return a piece of an update as vertices of the graph.

    Args:
        first_id: what is added to the piece's numbers to get ids.
        own_first_id: the id of the graph's vertex 0.
        n: vertices of the graph.
        name: the update's name, for errors.

    Raises:
        InvalidVertexError: an id is not in the graph.
        InvalidVertexTypeError: the ids are not integers, as those of the graph are.
    """
    vertices = []
    for ids in piece.read():
        if getattr(ids, "dtype", np.dtype(object)).kind not in "iu":
            raise InvalidVertexTypeError(f"{name}: the ids of the graph are integers, those of the batch are not")
        vertices.append(ids.astype(np.int64, copy=False) + (first_id - own_first_id))
    src, dst = vertices
    outside = np.flatnonzero((src < 0) | (src >= n) | (dst < 0) | (dst >= n))
    if outside.size:
        at = outside[0]
        raise InvalidVertexError(
            f"{name}: edge ({src[at] + own_first_id}, {dst[at] + own_first_id}) has an end that is not in the graph, "
            f"whose ids are {own_first_id}..{own_first_id + n - 1}; insert_vertices adds more"
        )
    return src, dst


def bin_changes(
    piece: Piece,
    first_ids: tuple[int, int],
    collection: Collection,
    opened: list[bool],
    addresses: Sequence[str],
    stripe: Stripe,
    symmetrise: bool,
    name: str,
    order: DegreeOrder | None,
    timeout: float,
    paired: bool,
) -> int:
    """Read a piece, bin its edges and deliver the bins; return the edges' imbalance, or 0 if not ``paired``.

    Args:
        piece, name: see ``read_changes``.
        first_ids: its arguments ``first_id`` and ``own_first_id``.
        collection, opened, addresses, stripe, symmetrise, order, timeout: see ``on_cpu.bin_piece``.
        paired: whether each edge's reverse must be in the update too.

    Errors as for ``read_changes`` and ``bin_piece``.
    """
    try:
        edges = read_changes(piece, *first_ids, stripe.n, name)
    except BaseException as error:
        collection.close(error)
        raise
    bin_piece(edges, collection, opened, addresses, stripe, symmetrise, name, order, timeout)
    return imbalance_of_edges(*edges) if paired else 0


def bin_incident(
    partition: Partition,
    vertices: NDArray[np.int64],
    collection: Collection,
    opened: list[bool],
    addresses: Sequence[str],
    name: str,
    timeout: float,
) -> int:
    """Bin and deliver a rank's edges that start or end at some vertices, and their reverses; return their number.

    Args:
        partition: the rank's edges.
        vertices: int64 (positions, if the graph is ordered by degree).
        collection, opened, addresses, name, timeout: see ``on_cpu.bin_piece``, as for errors.
    """
    from dbfs_workers.features.living.versions import incident_edges

    edges: Any = incident_edges(partition, vertices)
    return bin_piece(
        edges, collection, opened, addresses, partition.stripe, not partition.directed, name, None, timeout
    )
