"""Distances between some vertices as arrays that are tables too: ``DistanceMatrix`` and ``Nearest``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dbfs.base.memory import require_room
from dbfs.errors import InvalidOptionError
from dbfs.graph.html import Card
from dbfs.graph.striped import StripedGraph
from dbfs.graph.tabular import SHOWN, Pair, Tabular
from dbfs_workers.ids.label_table import nullable, taken, whole_table

if TYPE_CHECKING:
    import pyarrow as pa

    from dbfs_workers.ids.sequence import CallerIds


class DistanceMatrix(np.ndarray[tuple[int, int], np.dtype[np.int32]], Tabular):
    """int32[sources, targets]: the distance of each target from each source, -1 unreached. A NumPy array.

    What is cut out of the matrix, or computed from it, is a plain array.

    Attributes:
        sources, targets: ids of the rows and of the columns, as of ``Graph.ids_of``; None after ``copy`` and the like.
    """

    sources: CallerIds | None
    targets: CallerIds | None

    def __new__(cls, distances: NDArray[np.int32], sources: CallerIds, targets: CallerIds) -> DistanceMatrix:
        """Return an array of distances with the ids of its rows and columns."""
        made = distances.view(cls)
        made.sources, made.targets = sources, targets
        return made

    def __array_finalize__(self, made_of: object) -> None:
        # NumPy makes other arrays of the matrix, such as its transpose, which have other rows and columns.
        self.sources = self.targets = None

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def __getitem__(self, index: Any) -> Any:
        return np.asarray(self)[index]

    def __reduce__(self) -> tuple[Any, ...]:
        return np.asarray(self).__reduce__() if self.sources is None else (type(self), self._parts())  # type: ignore[return-value]

    def to_arrow(self) -> pa.Table:
        """Return a row for each pair: ``source`` and ``target`` (ids) and ``distance`` (int32, null if unreached).

        Raises:
            InvalidOptionError: this array was made of a matrix, and has no ids.
            GraphTooLargeError: this machine has no memory for the table.
        """
        distances, sources, targets = self._parts()
        require_room(32 * self.size, f"the rows of {self.size:,} pairs need", "the array itself takes 4 bytes a pair")
        rows, columns = np.indices(self.shape).reshape(2, -1)
        return whole_table(source=sources[rows], target=targets[columns], distance=nullable(distances.ravel()))

    def _parts(self) -> tuple[NDArray[np.int32], CallerIds, CallerIds]:
        if self.sources is None or self.targets is None:
            raise InvalidOptionError(
                "this array was made of a distance matrix, and its rows and columns have no ids; "
                "export the matrix that the call returned"
            )
        return np.asarray(self), self.sources, self.targets

    def _card(self) -> Card:
        distances, sources, targets = self._parts()
        reached = distances[distances >= 0]
        facts = {"Sources": f"{len(sources):,}", "Targets": f"{len(targets):,}"}
        facts["Reached"] = f"{reached.size:,} of {self.size:,} pairs"
        if reached.size:
            facts["Distances"] = f"{reached.min():,} to {reached.max():,}, mean {reached.mean():,.4g}"
        corner = DistanceMatrix(distances[SHOWN, SHOWN], sources[SHOWN], targets[SHOWN])
        return Card("", facts, corner.to_arrow()[SHOWN])

    def _repr_html_(self) -> str:
        # An array without ids looks in a notebook as any array does.
        return super()._repr_html_() if self.sources is not None else None  # type: ignore[return-value]


class Nearest(Pair):
    """The nearest source of each vertex, and its distance: a pair of arrays, int64[n] and int32[n], by vertex.

    The first array has vertices; -1 in either stands for a vertex that no source reaches.
    """

    def __init__(self, graph: StripedGraph, vertices: NDArray[np.int64], distances: NDArray[np.int32]) -> None:
        super().__init__(vertices, distances)
        self.graph = graph

    def __reduce__(self) -> tuple[Any, ...]:
        # The graph stays in its process.
        return tuple, ((*self,),)

    def to_arrow(self) -> pa.Table:
        """Return the columns ``vertex`` and ``nearest`` (ids) and ``distance`` (int32), for all vertices, ascending.

        ``nearest`` and ``distance`` are null where no source reaches the vertex.

        Raises:
            ResultReleasedError, GraphNotFoundError: the graph was unloaded, and its ids are not known without it.
        """
        vertices, distances = self
        # The graph may have got further vertices.
        ids = self.graph.ids_of(np.arange(vertices.size))
        return whole_table(vertex=ids, nearest=taken(ids, vertices), distance=nullable(distances))

    def _card(self) -> Card:
        vertices, distances = self
        reached = distances[distances >= 0]
        facts = {"Reached": f"{reached.size:,} of {vertices.size:,} vertices"}
        if reached.size:
            facts["Nearest to some"] = f"{np.unique(vertices[vertices >= 0]).size:,} sources"
            facts["Farthest"] = f"{reached.max():,}, mean {reached.mean():,.4g}"
        return Card(self.graph.name, facts)
