"""The cost of starting a gang: traversals of a graph without edges, from the client's call to the result."""

import statistics
import time
from dataclasses import dataclass

import dask
import distributed
import numpy as np

import dbfs


@dataclass(frozen=True)
class GangCost:
    """Round trips of the resident engine over one exchange; labels are not fetched.

    Attributes:
        exchange: how the ranks exchange.
        ranks: number of ranks.
        milliseconds: time of each round trip.
    """

    exchange: str
    ranks: int
    milliseconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median round trip in milliseconds."""
        return statistics.median(self.milliseconds)


def bench_gang(client: distributed.Client, ranks: int, exchange: str, times: int) -> GangCost:
    """Time ``times`` traversals of a graph with one vertex for each rank and no edges, after five to warm up."""
    nothing = np.empty(0, np.int64)
    with (
        dask.config.set({"dbfs.exchange": exchange}),
        dbfs.load(dbfs.from_arrays(nothing, nothing, n=ranks), client=client, ranks=ranks) as graph,
    ):
        taken = []
        for _ in range(times + 5):
            start = time.perf_counter()
            graph.bfs(0)
            taken.append((time.perf_counter() - start) * 1e3)
    return GangCost(exchange, ranks, tuple(taken[5:]))
