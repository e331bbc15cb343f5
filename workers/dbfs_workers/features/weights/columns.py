"""The weights of a rank's edges, from a column of Arrow: checked, and as NumPy's array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.errors import InvalidOptionTypeError
from dbfs_workers.search.partition.partition import on_host

if TYPE_CHECKING:
    import pyarrow as pa

    from dbfs_workers.search.partition.partition import Partition

TYPES: Final = {"i": np.dtype(np.int64), "u": np.dtype(np.int64)}
"""The type of distances by the kind of a column of integers. Floats keep their type, but for those of 16 bits."""

_SUFFIX: Final = "shortest paths need integers or floats of at least 0"


class EdgeWeights(NamedTuple):
    """The weights of a rank's edges in a column.

    Attributes:
        of: the attributes that have the column.
        edges: the edges, in stripes.
        out: of the edges that start in its rows.
        into: of those that end there; None if no search goes back.
    """

    of: Any
    edges: Partition
    out: NDArray[Any]
    into: NDArray[Any] | None


class Stripes(NamedTuple):
    """A rank's edges in stripes, in the host's memory, where the graph's own lie in another way or on a GPU.

    Attributes:
        of: the attributes of the graph's own edges on the rank.
        edges: the edges.
        attributes: those of these edges.
    """

    of: Any
    edges: Partition
    attributes: Any


class WrongWeight(NamedTuple):
    """An edge that has no weight.

    Attributes:
        source, target: its ends: vertices, or positions in a graph ordered by degree.
        value: what the column has there, in words.
    """

    source: int
    target: int
    value: str


class Prepared(NamedTuple):
    """What a rank says of a column.

    Attributes:
        wrong: an edge without a weight; None if the column is ready.
        striped: whether the rank has the graph's edges in stripes. Without them nothing is ready.
    """

    wrong: WrongWeight | None = None
    striped: bool = True


def weights_of(
    column: pa.Array | pa.ChunkedArray, name: str, partition: Partition
) -> tuple[NDArray[Any], WrongWeight | None]:
    """Return the weights of a rank's edges, without a copy where the type allows, and the first edge that has none.

    No weights are nulls, NaN, negative numbers, and integers that int64 does not hold.

    Args:
        column: by edge, in the order of ``partition.columns``.
        name: the column's name, for errors.

    Raises:
        InvalidOptionTypeError: the column's type is none of numbers.
    """
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise InvalidOptionTypeError(f"column {name!r} is of type {kind}; {_SUFFIX}")
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    given = np.dtype(kind.to_pandas_dtype())
    if array.null_count:
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
    else:
        nulls, numbers = None, array.to_numpy(zero_copy_only=False)
    wrong = ~(numbers >= 0)
    if given == np.uint64:
        wrong |= numbers > np.iinfo(np.int64).max
    if nulls is not None:
        wrong |= nulls
    dtype = TYPES.get(given.kind, np.dtype(np.float32) if given.itemsize == 2 else given)
    places = np.flatnonzero(wrong)
    if not places.size:
        return numbers.astype(dtype, copy=False), None
    at, stripe = int(places[0]), partition.stripe
    row = int(np.searchsorted(on_host(partition.row_offsets), at, side="right")) - 1
    source = row * stripe.p + partition.rank
    value = "no value" if nulls is not None and nulls[at] else str(numbers[at])
    return numbers, WrongWeight(source, int(stripe.vertex(int(partition.columns[at]))), value)
