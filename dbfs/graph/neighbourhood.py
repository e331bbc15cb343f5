"""Neighbourhood: the vertices within some distance of a vertex."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dbfs.cluster.own_process import StaysHere
from dbfs.graph.subgraph import Subgraph, cut_out
from dbfs_workers.storage.id_table import as_python
from dbfs_workers.storage.label_table import data_frame, label_table
from dbfs_workers.text import counted

if TYPE_CHECKING:
    import pandas as pd

    from dbfs.graph.graph import Graph
    from dbfs.graph.result import BFSResult
    from dbfs_workers.storage.id_table import Ids


class Neighbourhood(StaysHere):
    """The result of ``Graph.khop``. As an array, and in loops, it is its ids.

    Attributes:
        graph: the graph.
        vertices: the vertices' ids, ascending: an int64 NumPy array, or an Arrow array for strings and tuples.
        distances: int32, the distance of each of them.
    """

    def __init__(self, graph: Graph, numbers: NDArray[np.int64], distances: NDArray[np.int32]) -> None:
        self.graph = graph
        self.vertices: Ids = graph.ids_of(numbers)
        self.distances = distances
        self._numbers = numbers

    @property
    def elsewhere(self) -> str:
        """See ``StaysHere``."""
        return "send vertices and distances, or to_pandas(), instead"

    @classmethod
    def of(cls, result: BFSResult) -> Self:
        """Return the vertices that a traversal reached."""
        numbers, distances, _ = result.reader().labels_between(0, result.depth, predecessors=False)
        return cls(result.graph, numbers, distances)

    def subgraph(self) -> Subgraph:
        """Return the vertices with all edges between them. Errors as for ``Graph.subgraph``."""
        return cut_out(self.graph, self._numbers, self.vertices)

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas DataFrame with the columns ``vertex`` (the id) and ``distance`` (int32)."""
        return data_frame(label_table(self.vertices, self.distances, None, unreached=False))

    def tolist(self) -> list[Any]:
        """Return the ids as a list of Python's integers, strings or tuples."""
        return as_python(self.vertices)

    def __len__(self) -> int:
        return len(self.vertices)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if isinstance(self.vertices, np.ndarray):
            return np.array(self.vertices, dtype, copy=copy)
        return np.fromiter(self.tolist(), object, len(self)).astype(dtype or object)

    def __repr__(self) -> str:
        away = counted(int(self.distances.max(initial=0)), "edge")
        words = f"{counted(len(self), 'vertex', 'vertices')} at most {away} away"
        return f"<dbfs.Neighbourhood in {self.graph.name}: {words}>"
