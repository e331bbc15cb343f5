"""Degrees of a graph, counted on the workers, and the neighbours of a vertex."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dbfs.base.integers import whole_count
from dbfs.cluster.deadline import Deadline, of_call
from dbfs.cluster.gang import Ref
from dbfs.errors import InvalidOptionError
from dbfs.graph.html import Card
from dbfs.graph.striped import StripedGraph
from dbfs.graph.tabular import SHOWN, Pair
from dbfs.service.asking import ask_ranks
from dbfs_workers.base.errors import DeletedVertexError
from dbfs_workers.base.text import counted
from dbfs_workers.ids.label_table import whole_table
from dbfs_workers.serving import queries
from dbfs_workers.serving.reads.messages import ReadNeighbours

if TYPE_CHECKING:
    import pyarrow as pa


Counts = tuple[NDArray[np.int64], NDArray[np.int64]]


class DegreeCounts(Pair):
    """The degrees that occur, ascending, and the number of vertices of each: a pair of int64 arrays.

    Attributes:
        name: the graph's name.
    """

    def __init__(self, name: str, degrees: NDArray[np.int64], vertices: NDArray[np.int64]) -> None:
        super().__init__(degrees, vertices)
        self.name = name

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table with the columns ``degree`` and ``vertices`` (int64)."""
        return whole_table(degree=self[0], vertices=self[1])

    def _card(self) -> Card:
        degrees, vertices = self
        facts = {"Vertices": f"{vertices.sum():,}", "Different degrees": f"{degrees.size:,}"}
        if degrees.size:
            mean = (degrees * vertices).sum() / vertices.sum()
            facts["Degrees"] = f"{degrees[0]:,} to {degrees[-1]:,}, mean {mean:,.4g}"
        return Card(self.name, facts, self.to_arrow()[SHOWN])


def degree_counts(graph: StripedGraph) -> DegreeCounts:
    """See ``Graph.degree_counts``."""
    arguments = [(Ref(key),) for key in graph.partition_keys]
    deadline = of_call()
    parts: list[Counts] = graph.gang.on_each_rank(
        "degree-counts", queries.degree_counts, arguments, deadline, f"counting the degrees of {graph.name}"
    )
    degrees, where = np.unique(np.concatenate([degrees for degrees, _ in parts]), return_inverse=True)
    vertices = np.zeros(degrees.size, np.int64)
    np.add.at(vertices, where, np.concatenate([counts for _, counts in parts]))
    return DegreeCounts(graph.name, degrees, vertices)


def hub(graph: StripedGraph) -> int:
    """Return a vertex of the largest degree; the graph must not be empty."""
    arguments = [(Ref(key),) for key in graph.partition_keys]
    deadline = of_call()
    largest: list[tuple[int, int]] = graph.gang.on_each_rank(
        "largest-degree", queries.largest_degree, arguments, deadline, f"finding the hub of {graph.name}"
    )
    rank = max(range(graph.ranks), key=lambda rank: largest[rank][0])
    position = largest[rank][1] * graph.ranks + rank
    return graph.numbering.vertices_at([position])[0]


def sample_sources(graph: StripedGraph, count: int, seed: int = 1) -> list[int]:
    """Return distinct random vertices of degree at least 1, self-loops not counted; the same for any number of ranks.

    Errors as for ``Graph.sample_sources``.
    """
    count = whole_count(count, "count")
    generator = np.random.default_rng(whole_count(seed, "seed"))
    order = generator.permutation(graph.n)
    deadline = of_call()
    found: list[int] = []
    step, at = max(64, 4 * count), 0
    while len(found) < count and at < graph.n:
        candidates = order[at : at + step]
        doing = f"sampling sources of {graph.name}"
        found.extend(candidates[have_neighbours(graph, candidates, deadline, doing)].tolist())
        at, step = at + step, 4 * step
    if len(found) < count:
        wanted, there = counted(count, "source"), counted(len(found), "vertex", "vertices")
        raise InvalidOptionError(f"{wanted} wanted, but {graph.name} has {there} with a neighbour")
    return found[:count]


def have_neighbours(
    graph: StripedGraph, vertices: NDArray[np.int64], deadline: Deadline, doing: str
) -> NDArray[np.bool]:
    """Return for each vertex whether an edge leads from it to another vertex; ``doing`` is for errors."""
    positions = np.array(graph.numbering.positions(vertices.tolist()), np.int64)
    arguments = [
        (Ref(key), positions[positions % graph.ranks == rank] // graph.ranks)
        for rank, key in enumerate(graph.partition_keys)
    ]
    answers = graph.gang.on_each_rank("have-neighbours", queries.rows_with_neighbours, arguments, deadline, doing)
    flags = np.zeros(vertices.size, bool)
    for rank, answer in enumerate(answers):
        flags[positions % graph.ranks == rank] = answer
    return flags


def neighbours(graph: StripedGraph, vertex: int) -> NDArray[np.int64]:
    """Return the vertices to which edges lead from a vertex, ascending; one for each edge stored.

    Errors as for ``Graph.neighbors``.
    """
    (position,) = graph.numbering.positions([vertex])
    # In another layout than 1d, several ranks may have a part of the vertex's edges.
    layout, owner = graph.record.layout, graph.stripe.owner(position)
    ranks = [owner] if layout is None else layout.out_holders(owner)
    keys = graph.record.partition_keys
    messages = {rank: ReadNeighbours(keys[rank], position) for rank in ranks}
    try:
        parts = ask_ranks(graph.gang, messages, f"reading the edges of a vertex of {graph.name}", graph.record)
    except DeletedVertexError as error:
        raise graph.deletions.named(error) from error
    internal = np.concatenate([*parts.values()]).astype(np.int64)
    return np.sort(graph.numbering.vertices(graph.stripe.vertex(internal)))
