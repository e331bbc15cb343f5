"""Connected components: one traversal finds the giant one, union-find on the workers all others at once."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import part_of, public
from dbfs.base.integers import whole_number
from dbfs.cluster.deadline import bounded, of_call
from dbfs.cluster.gang import Ref, TaskGraph, release
from dbfs.cluster.own_process import StaysHere
from dbfs.errors import InvalidOptionError
from dbfs.graph.degrees import hub
from dbfs.graph.graph import Graph, R
from dbfs.graph.html import Card
from dbfs.graph.result import BFSResult
from dbfs.graph.striped import StripedGraph
from dbfs.graph.tabular import SHOWN, Tabular
from dbfs.graph.traversing import traverse
from dbfs_workers.features.components import components as tasks
from dbfs_workers.ids.label_table import whole_table

if TYPE_CHECKING:
    import pyarrow as pa

    from dbfs_workers.ids.sequence import CallerIds


@public
@dataclass(frozen=True)
class Components(StaysHere, Tabular):
    """The connected components of a graph, numbered by falling size, those of equal size by their smallest vertex.

    Attributes:
        graph: the graph's name.
        labels: int64[n], the component of each vertex, -1 for a deleted one; ``graph.ids()`` has the ids in this order.
        sizes: int64[count], the number of vertices of each component, falling.
        ids_of: returns the ids of vertices, as ``Graph.ids_of`` does.
    """

    graph: str
    labels: NDArray[np.int64] = field(repr=False)
    sizes: NDArray[np.int64] = field(repr=False)
    ids_of: Callable[[NDArray[np.int64]], CallerIds] = field(repr=False)

    @property
    def elsewhere(self) -> str:
        return "send labels, sizes or to_arrow() instead"

    @property
    def count(self) -> int:
        """Number of components."""
        return self.sizes.size

    @property
    def isolated(self) -> int:
        """Number of components of a single vertex."""
        return int(np.count_nonzero(self.sizes == 1))

    def vertices(self, component: int) -> CallerIds:
        """Return the ids of a component, ascending, as ``Graph.ids_of`` does.

        Raises:
            InvalidOptionError: there is no component of that number.
            InvalidOptionTypeError: ``component`` is not an integer.
        """
        number = whole_number(component, "component")
        if not 0 <= number < self.count:
            raise InvalidOptionError(f"{self.graph} has {self.count} components, counted from 0; there is no {number}")
        return self.ids_of(np.flatnonzero(self.labels == number))

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table with the columns ``vertex`` (the id, ascending) and ``component`` (int64).

        Raises:
            ResultReleasedError, GraphNotFoundError: the graph was unloaded, and its ids are not known without it.
        """
        living = np.flatnonzero(self.labels >= 0)
        return whole_table(vertex=self.ids_of(living), component=self.labels[living])

    def _card(self) -> Card:
        facts = {
            "Components": f"{self.count:,}, of them {self.isolated:,} of a single vertex",
            "Vertices": f"{self.labels.size:,}",
        }
        sizes = self.sizes[SHOWN]
        return Card(self.graph, facts, whole_table(component=np.arange(sizes.size), vertices=sizes))

    def __repr__(self) -> str:
        largest = int(self.sizes.max(initial=0))
        return (
            f"<dbfs.Components of {self.graph}: {self.count:,}, the largest of {largest:,} of {self.sizes.sum():,} "
            f"vertices; {self.isolated:,} of a single vertex>"
        )


def _roots(graph: StripedGraph, giant: BFSResult) -> NDArray[np.uint32]:
    """Return uint32[n] by position: an id that all vertices of a component share."""
    plan, token, stripe = TaskGraph(), uuid.uuid4().hex, graph.stripe
    reached = [
        plan.add(rank, (f"reached-bits-{token}", rank), tasks.reached_bits, Ref(future.key), stripe)
        for rank, future in enumerate(giant.published_labels().distances)
    ]
    forests = {
        rank: plan.add(rank, (f"own-forest-{token}", rank), tasks.own_forest, Ref(key), reached)
        for rank, key in enumerate(graph.partition_keys)
    }
    step = 1
    while step < graph.ranks:
        for rank in range(0, graph.ranks - step, 2 * step):
            key = (f"unite-forests-{token}", step, rank)
            forests[rank] = plan.add(rank, key, tasks.united, forests[rank], forests[rank + step])
        step *= 2
    last = (f"component-roots-{token}", 0)
    plan.add(0, last, tasks.roots, forests[0], stripe)
    futures = graph.gang.submit(plan, [last])
    try:
        deadline = of_call()
        found: NDArray[np.uint32] = graph.gang.gather(
            [futures[last]], deadline, f"finding the components of {graph.name}"
        )[0]
    finally:
        release(futures.values())
    return found


def _numbered(graph: StripedGraph, roots: NDArray[np.uint32]) -> Components:
    """Number the components by falling size, given the root of each vertex."""
    living = graph.deletions.others()
    counts = np.bincount(roots[living])
    present = np.flatnonzero(counts)
    first = np.zeros(counts.size, np.int64)
    labels = np.full(roots.size, -1)
    # NumPy keeps the last of several values for one index: in reversed order the smallest vertex.
    first[roots[living[::-1]]] = living[::-1]
    order = present[np.lexsort((first[present], -counts[present]))]
    number = np.zeros(counts.size, np.int64)
    number[order] = np.arange(order.size)
    labels[living] = number[roots[living]]
    return Components(graph.name, labels, counts[order], graph.ids_of)


@part_of("Graph")
class ComponentsGraph(Graph[R]):
    """The connected components."""

    @bounded()
    def components(self, *, deadline: float | str | None = None) -> Components:
        """Return the connected components; for a directed graph the weak ones, which ignore the direction of edges.

        One traversal from a vertex of the largest degree finds the giant component. Union-find on the workers then
        finds all other components at once, however many there are. A rank takes 4 bytes of memory for each vertex of
        the graph, the client 32. ``deadline`` is as for ``bfs``. Errors as for ``bfs``.
        """
        self.refresh()
        if self.n == self.deleted:
            return Components(self.name, np.full(self.n, -1), np.empty(0, np.int64), self.ids_of)
        # The hub is in the giant component, if there is one. If there is none, union-find gets most edges.
        giant = traverse(self, BFSResult, [(hub(self),)])[0]
        try:
            by_position = _roots(self, giant)
        finally:
            giant.release()
        return _numbered(self, by_position if self.order is None else by_position[self.order.position])
