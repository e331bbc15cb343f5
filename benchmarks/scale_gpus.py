"""Predictions for Kronecker graphs on more GPUs than any machine at hand has: bytes, memory, times and rates.

The counts are those of a small Kronecker graph (``level_counts``) on as many ranks, multiplied by the ratio of the
sizes: bottom-up levels send bitmaps, whose bytes are the same share of n at any scale, and the shares of the other
levels change slowly. The costs of a crossing and of an edge are fitted to rates measured on up to 4 GPUs; the network's
figures are cited. docs/design/scale.md has the sources of all figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2

import numpy as np
from scipy.optimize import nnls

from benchmarks.level_counts import Level, LevelCounts
from dbfs.building.build import LAYOUTS
from dbfs.building.memory import Estimate, estimate_bytes
from dbfs.edges.generate.kronecker import kronecker
from dbfs_workers.storage.grid import Grid
from dbfs_workers.storage.stripe import Stripe

EDGE_FACTOR = 16
GPUS_PER_HOST = 8
NVLINK = 336e9
"""Bytes per second that a GPU reads from its peers on the host: measured."""
INFINIBAND = 50e9
"""Bytes per second of a GPU's own adapter: 400 Gb/s."""
INFINIBAND_LATENCY = 1.5e-6
"""Seconds of a small write into a GPU's memory on another host."""
GPU_BYTES = 141e9
"""Memory of an H200."""

_BY_COLUMN = ("frontier",)


@dataclass(frozen=True)
class GpuRate:
    """A measured rate: Kronecker in degree order, ``direction="auto"``, without predecessors, on H200 of one host.

    Attributes:
        scale: log2 of the number of vertices.
        gpus: number of GPUs.
        gteps: billions of directed edges per second of device time.
    """

    scale: int
    gpus: int
    gteps: float

    @property
    def seconds(self) -> float:
        """Device time of a traversal."""
        return 2.0 * EDGE_FACTOR * 2.0**self.scale / self.gteps / 1e9


MEASURED = (
    *(GpuRate(24, gpus, gteps) for gpus, gteps in ((1, 2016), (2, 2208), (4, 2603), (8, 2875))),
    *(GpuRate(26, gpus, gteps) for gpus, gteps in ((1, 3222), (2, 4508), (4, 6100), (8, 6465))),
    *(GpuRate(scale, 2, gteps) for scale, gteps in ((27, 5474), (28, 6548), (29, 5700))),
)
"""The rates of docs/performance/gpu.md."""

FITTED_GPUS = (1, 4)
"""Numbers of GPUs whose rates the costs are fitted to."""


class AnySizeStripe(Stripe):
    """A stripe that may have more vertices than 32-bit internal ids can number. Only its sizes are used."""

    def __post_init__(self) -> None:
        pass


@dataclass(frozen=True)
class Load:
    """The work of the busiest rank in a traversal: means over the sources.

    Attributes:
        levels: number of levels.
        crossings: number of crossings.
        messages: messages that a rank sends.
        edges: edges that the rank looks at.
        near: bytes that the rank sends to ranks on its own host.
        far: bytes that the rank sends to ranks on other hosts.
    """

    levels: float
    crossings: float
    messages: float
    edges: float
    near: float
    far: float


class SmallGraph:
    """A small Kronecker graph whose counts, multiplied, are the load of a larger one.

    Args:
        scale: log2 of the number of vertices of the small graph.
        sources: number of random sources.
    """

    def __init__(self, scale: int, sources: int) -> None:
        self._scale = scale
        self._n = 2**scale
        pieces = [piece.read() for piece in kronecker(scale, EDGE_FACTOR).cut(EDGE_FACTOR * self._n)]
        self._src, self._dst = (np.concatenate(of) for of in zip(*pieces, strict=True))
        ends = self._src[self._src != self._dst]
        self._sources = np.random.default_rng(0).choice(ends, sources).tolist()
        self._levels: dict[tuple[int, str, bool], list[list[Level]]] = {}

    def levels(self, ranks: int, layout: str, *, predecessors: bool) -> list[list[Level]]:
        """Return the levels of each source's traversal, in degree order."""
        key = ranks, layout, predecessors
        if key not in self._levels:
            counts = LevelCounts(self._n, self._src, self._dst, ranks, layout, "degree")
            self._levels[key] = [counts.traverse(source, predecessors=predecessors) for source in self._sources]
        return self._levels[key]

    def load(self, scale: int, ranks: int, layout: str, *, predecessors: bool) -> Load:
        """Return the load of a graph of 2^scale vertices."""
        larger = 2.0 ** (scale - self._scale)
        runs = self.levels(ranks, layout, predecessors=predecessors)
        edges = near = far = 0.0
        for level in (level for run in runs for level in run):
            edges += int(level.edges.max()) * larger
            for kind, sent in level.sent.items():
                share = share_on_host(layout, ranks, by_column=kind in _BY_COLUMN)
                near += share * int(sent.max()) * larger
                far += (1 - share) * int(sent.max()) * larger
        return Load(
            levels=sum(map(len, runs)) / len(runs),
            crossings=sum(level.crossings for run in runs for level in run) / len(runs),
            messages=sum(sum(level.messages.values()) for run in runs for level in run) / len(runs),
            edges=edges / len(runs),
            near=near / len(runs),
            far=far / len(runs),
        )


def share_on_host(layout: str, ranks: int, *, by_column: bool) -> float:
    """Return the share of a rank's peers that are on its host, of the peers in its column or its row of the grid."""
    grid = Grid.of(ranks) if layout == "2d" else Grid(1, ranks)
    every = [grid.column_of(rank) if by_column else grid.row_of(rank) for rank in range(ranks)]
    peers = ranks * (len(every[0]) - 1)
    near = sum(peer // GPUS_PER_HOST == rank // GPUS_PER_HOST for rank, of in enumerate(every) for peer in of) - ranks
    return near / peers if peers else 1.0


@dataclass(frozen=True)
class GpuModel:
    """The fitted costs on one host.

    Attributes:
        alone: seconds of a crossing on one GPU, which includes the work of a level that does not grow with the graph.
        crossing: the same on several GPUs.
        edge: seconds of an edge that a GPU looks at, with its share of rows and labels.
    """

    alone: float
    crossing: float
    edge: float

    @classmethod
    def fit(cls, counted: SmallGraph) -> GpuModel:
        """Return the costs with the least squares of the relative errors over the rates on ``FITTED_GPUS``."""
        amounts, rest = [], []
        for rate in MEASURED:
            if rate.gpus in FITTED_GPUS:
                load = counted.load(rate.scale, rate.gpus, "1d", predecessors=False)
                alone = rate.gpus == 1
                amounts.append([load.crossings * alone, load.crossings * (not alone), load.edges / 1e9])
                amounts[-1] = [amount / rate.seconds for amount in amounts[-1]]
                rest.append((rate.seconds - load.near / NVLINK) / rate.seconds)
        costs, _ = nnls(np.array(amounts), np.array(rest))
        return cls(float(costs[0]), float(costs[1]), float(costs[2]) / 1e9)

    def predict(self, load: Load, gpus: int) -> Times:
        """Return the seconds of a traversal."""
        hosts = -(-gpus // GPUS_PER_HOST)
        # A barrier between hosts goes up a tree and down again.
        between = 2 * ceil(log2(hosts)) * INFINIBAND_LATENCY
        each = self.alone if gpus == 1 else self.crossing
        sending = max(load.near / NVLINK, load.far / INFINIBAND)
        return Times(load.crossings * (each + between), sending, load.edges * self.edge)


@dataclass(frozen=True)
class Times:
    """Seconds of a traversal: crossings, bytes and edges."""

    crossings: float
    sending: float
    edges: float

    @property
    def total(self) -> float:
        """The sum of the parts, since none is hidden behind another."""
        return self.crossings + self.sending + self.edges


@dataclass(frozen=True)
class Prediction:
    """The predicted cost of a traversal with predecessors.

    Attributes:
        scale: log2 of the number of vertices.
        gpus: number of GPUs.
        layout: ``1d`` or ``2d``.
        load: the work of the busiest rank.
        memory: bytes of the rank's partition, state, bins and labels.
        times: the seconds.
    """

    scale: int
    gpus: int
    layout: str
    load: Load
    memory: int
    times: Times

    @property
    def gteps(self) -> float:
        """Billions of input edges a second, as Graph500 counts them."""
        return EDGE_FACTOR * 2.0**self.scale / self.times.total / 1e9


def memory(scale: int, ranks: int, layout: str) -> Estimate:
    """Return the estimate of a Kronecker graph's bytes on each rank, as ``dbfs.estimate`` has it, of any size."""
    stripe, edges = AnySizeStripe(2**scale, ranks), 2 * EDGE_FACTOR * 2**scale
    return estimate_bytes(stripe, edges, 0, in_edges=layout == "2d", ordered=False, layout=layout)


def predictions(model: GpuModel, counted: SmallGraph, scale: int, gpus: Sequence[int]) -> list[Prediction]:
    """Return the predicted cost of a Kronecker graph on each number of GPUs, in both layouts."""
    found = []
    for ranks in gpus:
        for layout in LAYOUTS:
            load = counted.load(scale, ranks, layout, predecessors=True)
            needed = memory(scale, ranks, layout)
            total = needed.partition_bytes + sum(needed.run.values())
            found.append(Prediction(scale, ranks, layout, load, total, model.predict(load, ranks)))
    return found
