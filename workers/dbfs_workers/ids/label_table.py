"""Tables of labels in the caller's ids: what their columns are, and how they are put together.

A table of labels has the columns ``vertex`` (the id), ``distance`` (int32, or another type) and, if the traversal
recorded predecessors, ``predecessor`` (the id). A source and an unreached vertex have no predecessor, and an unreached
vertex has no distance: these values are null. A column that can't have nulls says so in the table's schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from dbfs_workers.ids.sequence import CallerIds
    from dbfs_workers.ids.table import Ids

NO_PREDECESSOR: Final = -1

# Share of the vertices from which an array over all vertices finds places faster than binary searches.
_DENSE_SHARE: Final = 1 / 16


def label_table(
    ids: Ids | CallerIds, distances: NDArray[Any], predecessors: pa.Array | None, *, unreached: bool
) -> pa.Table:
    """Return the table of the labels of some vertices.

    Args:
        ids: the vertices' ids.
        distances: integers, -1 for unreached vertices; or floats, infinity for these.
        predecessors: ids, null for a vertex without predecessor; None if the traversal recorded none.
        unreached: whether unreached vertices may be among them.
    """
    import pyarrow as pa

    vertex, kind = column(ids), pa.from_numpy_dtype(distances.dtype)
    fields = [pa.field("vertex", vertex.type, nullable=False), pa.field("distance", kind, nullable=unreached)]
    columns = [vertex, pa.array(distances, mask=~reached(distances) if unreached else None)]
    if predecessors is not None:
        fields.append(pa.field("predecessor", vertex.type))
        columns.append(predecessors)
    return pa.table(columns, pa.schema(fields))


def reached(distances: NDArray[Any]) -> NDArray[np.bool]:
    """Return which distances are of reached vertices: integers of at least 0, or finite floats."""
    found: NDArray[np.bool] = np.isfinite(distances) if distances.dtype.kind == "f" else distances >= 0
    return found


def whole_table(**columns: NDArray[Any] | CallerIds | pa.Array) -> pa.Table:
    """Return the table of some columns. Only those that are Arrow arrays may have nulls."""
    import pyarrow as pa

    arrays = {name: column(values) for name, values in columns.items()}
    fields = [
        pa.field(name, array.type, nullable=isinstance(columns[name], pa.Array)) for name, array in arrays.items()
    ]
    return pa.table([*arrays.values()], pa.schema(fields))


def column(values: Ids | CallerIds) -> pa.Array:
    """Return ids, or an array of numbers, as an Arrow array."""
    import pyarrow as pa

    return values if isinstance(values, pa.Array) else pa.array(values)


def taken(ids: Ids | CallerIds, places: NDArray[np.int64]) -> pa.Array:
    """Return the ids at some places; a place below 0 gives null."""
    return column(ids).take(nullable(places))


def nullable(numbers: NDArray[np.signedinteger[Any]]) -> pa.Array:
    """Return numbers, of which those below 0 become null."""
    import pyarrow as pa

    return pa.array(numbers, mask=numbers < 0)


def places_of(vertices: NDArray[np.int64], among: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return the index of each vertex in ``among``, which has them all; -1 for ``NO_PREDECESSOR``.

    Args:
        vertices: int64.
        among: int64 vertices, ascending, each once.
        n: number of vertices of the graph.
    """
    if among.size == n:
        return vertices
    if among.size < _DENSE_SHARE * n:
        places = np.searchsorted(among, vertices)
        places[vertices < 0] = -1
        return places
    place = np.empty(n + 1, np.int64)
    place[among] = np.arange(among.size)
    # NO_PREDECESSOR reads the last entry.
    place[n] = -1
    return place[vertices]


def data_frame(table: pa.Table) -> pd.DataFrame:
    """Return a table as a pandas DataFrame.

    A column of integers that may have nulls gets pandas' nullable type (``Int32``, ``Int64``), because floats would
    round large ids. Ids of several columns become tuples. The schema's metadata become ``attrs``.
    """
    import pandas as pd
    import pyarrow as pa

    nulls = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}
    columns = {}
    for field, values in zip(table.schema, table.columns, strict=True):
        if pa.types.is_struct(field.type):
            tuples = [None if one is None else tuple(one.values()) for one in values.to_pylist()]
            columns[field.name] = pd.Series(tuples, dtype=object)
        else:
            numbers = field.nullable and pa.types.is_integer(field.type)
            columns[field.name] = values.to_pandas(types_mapper=nulls.get if numbers else None)
    frame = pd.DataFrame(columns, copy=False)
    # Such as the direction of edges: see ``dbfs.edges.tables.about``.
    frame.attrs.update((key.decode(), text.decode()) for key, text in (table.schema.metadata or {}).items())
    return frame
