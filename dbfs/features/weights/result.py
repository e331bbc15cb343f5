"""SSSPResult: the result of a traversal by weight, of the form of that of ``bfs``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import public
from dbfs.base.units import format_rate, format_seconds
from dbfs.cluster.deadline import bounded
from dbfs.engines import Outcome
from dbfs.features.weights.checks import check
from dbfs.features.weights.columns import number
from dbfs.features.weights.reader import WeightedReader
from dbfs.graph.html import Card
from dbfs.graph.result import BFSResult
from dbfs.graph.striped import StripedGraph
from dbfs_workers.base.spec import TraversalSpec
from dbfs_workers.features.weights.purpose import Number, weighted

if TYPE_CHECKING:
    from dbfs_workers.ids.sequence import CallerIds


@public
class SSSPResult(BFSResult):
    """The result of ``Graph.sssp``. A distance is the least sum of weights of a path from a source.

    Distances are int64 for a column of integers, and of the column's type for floats, summed in the order of the path.
    An unreached vertex has -1, or infinity.

    Attributes:
        weight: name of the column.
        depth: the largest distance.

    Other attributes are those of ``BFSResult``; a level is a round, in which each rank relaxes the edges of its near
    vertices once.
    """

    counts_edges = False
    _inner = BFSResult._inner | {"columns"}

    def __init__(
        self, columns: Sequence[Hashable], graph: StripedGraph, spec: TraversalSpec, engine: str, outcome: Outcome
    ) -> None:
        largest = np.concatenate(outcome.by_source).max()
        super().__init__(graph, spec, engine, replace(outcome, depth=largest.item()))
        self.distance_type = largest.dtype
        self.weight = weighted(spec).column
        self.columns = columns

    @property
    def farthest(self) -> Number | None:  # type: ignore[override]
        """Distance beyond which the traversal left vertices unreached; None if it reached all it could."""
        return self.depth if self.spec.targets else weighted(self.spec).max_distance

    @bounded()
    def within(self, distance: Number) -> CallerIds:
        """Return the ids at distances up to ``distance``, ascending, as ``Graph.ids_of`` does.

        Only these ids travel to the client.

        Raises:
            InvalidOptionError: the distance is below 0, or NaN.
            InvalidOptionTypeError: the distance is not a number.
            ResultReleasedError, WorkerLostError: see ``distances``.
        """
        most = min(number(distance, "distance"), self.depth)
        return self.graph.ids_of(self.vertices_between(0, most))

    @bounded()
    def vertices_at(self, distance: Number) -> CallerIds:
        """Return the ids at a distance, ascending, as ``Graph.ids_of`` does. Errors as for ``within``."""
        only = number(distance, "distance")
        return self.graph.ids_of(self.vertices_between(only, only))

    @bounded()
    def validate(self) -> None:
        """Check the labels on the workers, by Graph500's rules for its third kernel (specification 2.0).

        No edge makes a shorter path, an edge gives each distance, and the predecessors are a tree from the sources. The
        labels become Dask data; the rank that checks the tree takes those of all ranks, as each does for its edges.

        Raises:
            ValidationError: names the rule and vertices that show the fault.
            InvalidOptionError: the graph was changed since.
            ResultReleasedError, WorkerLostError, DeadlineExceededError: see ``distances``.
        """
        check(self, self.weight, self.columns)

    def vertices_between(self, least: Number, most: Number) -> NDArray[np.int64]:
        return self.reader().labels_between(least, most, predecessors=False)[0]

    def reader(self) -> WeightedReader:
        return WeightedReader(self.graph, self.readable_labels(), self.run_id, 0)

    def __repr__(self) -> str:
        sources = ", ".join(map(str, self.sources[:3])) + (", ..." if len(self.sources) > 3 else "")
        return (
            f"<dbfs.SSSPResult of {self.graph.name} from {sources} by {self.weight}: {self.reached:,} of "
            f"{self.graph.n:,} reached, the farthest at {self.depth:,}, {format_seconds(self.seconds)}, "
            f"{format_rate(self.mteps)} ({self.engine})>"
        )

    def _card(self) -> Card:
        card = super()._card()
        facts = {"Weights": self.weight, **card.facts, "Depth": f"{self.depth:,}, the largest distance"}
        return card._replace(facts=facts)
