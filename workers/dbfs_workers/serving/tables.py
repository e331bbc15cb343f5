"""Tasks that make tables of labels on the ranks, one table a rank, in the caller's ids.

1. ``select_rows`` takes the rank's labels, as vertices in ascending order.
2. If ids are kept in tables, ``wanted_vertices`` lists the vertices whose ids the rank needs from each table, and
   ``look_up`` finds these ids on the rank that holds the table.
3. ``make_table`` joins labels and ids. ``dbfs.edges.writers.label_files`` writes the tables as files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.ids.label_table import NO_PREDECESSOR, label_table, nullable, places_of, reached, taken
from dbfs_workers.ids.table import IdTable, IdType, from_python, joined
from dbfs_workers.search.partition.ordering import DegreeOrder
from dbfs_workers.search.partition.partition import Partition, on_host
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    import pyarrow as pa

    from dbfs_workers.ids.table import Ids


@dataclass(frozen=True)
class LabelRows:
    """Labels of some vertices of a rank.

    Attributes:
        vertices: int64, ascending.
        distances: as of ``label_table``.
        predecessors: int64 vertices, ``NO_PREDECESSOR`` for sources and unreached vertices; None if the traversal
            recorded none.
    """

    vertices: NDArray[np.int64]
    distances: NDArray[Any]
    predecessors: NDArray[np.int64] | None

    def __sizeof__(self) -> int:
        parents = 0 if self.predecessors is None else self.predecessors.nbytes
        return self.vertices.nbytes + self.distances.nbytes + parents


@dataclass(frozen=True)
class WantedIds:
    """Vertices whose ids a rank needs from one table.

    Attributes:
        own: int64, the rank's own vertices in the table, ascending.
        predecessors: int64, the predecessors in the table, ascending, each once.
    """

    own: NDArray[np.int64]
    predecessors: NDArray[np.int64]

    def __sizeof__(self) -> int:
        return self.own.nbytes + self.predecessors.nbytes


def vertices_by_position(order: DegreeOrder) -> NDArray[np.uint32]:
    """Return the vertex at each position: half of the order, which is all that tables need."""
    return order.vertex


def select_rows(
    distances: Any,
    predecessors: Any,
    stripe: Stripe,
    rank: int,
    vertex: NDArray[np.uint32] | None,
    unreached: bool,
) -> LabelRows:
    """Return a rank's labels by vertex.

    Args:
        distances: by row, -1 or infinity unreached; NumPy's or CuPy's, as are the predecessors.
        predecessors: int64 positions by row, -1 unreached; None if the traversal recorded none.
        vertex: uint32[n], the vertex at each position of a graph ordered by degree; else None.
        unreached: whether to return unreached vertices as well.
    """
    by_row: NDArray[Any] = on_host(distances)
    rows = np.arange(by_row.size) if unreached else np.flatnonzero(reached(by_row))
    positions = rows * stripe.p + rank
    vertices = positions if vertex is None else vertex[positions].astype(np.int64)
    if vertex is not None:
        ascending = np.argsort(vertices)
        rows, positions, vertices = rows[ascending], positions[ascending], vertices[ascending]
    if predecessors is None:
        return LabelRows(vertices, by_row[rows], None)
    parents: NDArray[np.int64] = on_host(predecessors)[rows]
    none = (parents < 0) | (parents == positions)
    if vertex is not None:
        parents = vertex[parents].astype(np.int64)
    parents[none] = NO_PREDECESSOR
    return LabelRows(vertices, by_row[rows], parents)


def wanted_vertices(rows: LabelRows, first: int, last: int) -> WantedIds:
    """Return the vertices from ``first`` to ``last``, the last excluded, whose ids a table of labels needs."""
    begin, end = np.searchsorted(rows.vertices, [first, last])
    there = np.zeros(last - first, bool)
    if rows.predecessors is not None:
        inside = (rows.predecessors >= first) & (rows.predecessors < last)
        there[rows.predecessors[inside] - first] = True
    return WantedIds(rows.vertices[begin:end], np.flatnonzero(there) + first)


def look_up(table: IdTable, wanted: WantedIds) -> tuple[Ids, Ids]:
    """Return the ids of the wanted vertices: of the own ones, and of the predecessors."""
    return table.ids_of(wanted.own), table.ids_of(wanted.predecessors)


def later_table(partition: Partition, first: int, last: int, id_type: IdType) -> IdTable:
    """Return the ids of the vertices from ``first`` to before ``last``, which came after the load; in no order."""
    assert partition.later is not None
    return IdTable(first, from_python(partition.later.ids(range(first, last)), id_type))


def number_table(rows: LabelRows, first_id: int, unreached: bool) -> pa.Table:
    """Return the table of labels of a graph without tables of ids: the id of vertex ``v`` is ``v + first_id``."""
    parents = None
    if rows.predecessors is not None:
        ids = rows.predecessors + first_id
        ids[rows.predecessors < 0] = NO_PREDECESSOR
        parents = nullable(ids)
    return label_table(rows.vertices + first_id, rows.distances, parents, unreached=unreached)


def make_table(
    rows: LabelRows, wanted: list[WantedIds], found: list[tuple[Ids, Ids]], n: int, unreached: bool
) -> pa.Table:
    """Return the table of labels, given the vertices wanted of each table of ids and the ids found there.

    Args:
        rows: the labels.
        wanted, found: by table, in the order of the tables' vertices; at least one.
        n: number of vertices of the graph.
        unreached: whether unreached vertices may be among the labels.
    """
    parents = None
    if rows.predecessors is not None:
        among = np.concatenate([each.predecessors for each in wanted])
        parents = taken(joined([ids for _, ids in found]), places_of(rows.predecessors, among, n))
    return label_table(joined([ids for ids, _ in found]), rows.distances, parents, unreached=unreached)
