"""The message that gives a rank the order by degree, by which it compares ids. ``worker`` beside it answers."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from dbfs_workers.serving.messages import WorkerMessage


@dataclass(frozen=True)
class PlaceIds(WorkerMessage[None]):
    """Have a rank compare vertices by the ids of an order by degree.

    Attributes:
        graph_id: the graph.
        order: Dask key of the order beside the rank's edges (``serving.orders.place_order``).

    Raises:
        StaleRunError: the worker has no part in the graph, or does not have the order.
    """

    graph_id: str
    order: Hashable
