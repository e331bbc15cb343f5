"""Results of the laboratory's comparison, and their JSON, from which any machine draws the figures again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import runner

BENCHMARK = "lab"
"""The benchmark's name in its JSON."""

MOST_LEVELS = 64
"""Largest number of levels in ``LabRate.frontier``."""

BASELINE = "sequential"
"""The strategy whose rate is 1 in speed-ups, as in Merrill 2012, table 2."""


@dataclass(frozen=True)
class LabRate:
    """Measurements of one strategy on one graph: a traversal from each source that the plan's time allowed.

    Attributes:
        graph: the generator's spec or the file.
        n: number of vertices.
        m: number of directed edges stored.
        strategy: the strategy with its options.
        backend: ``cpu`` or ``cuda``.
        sources: number of sources that were measured.
        depth: mean depth.
        mteps: median of the rates: directed edges of the component per second of level time, in millions.
        low, high: the lowest and the highest of the rates.
        milliseconds: median level time.
        expansion: edges looked at, divided by the edges of the components: Merrill's redundant expansion factor. Less
            than 1 if levels run bottom-up.
        counters: the strategy's counters (docs/laboratory.md): ``bytes`` of one source, all others summed over them.
        frontier: vertices whose lists were read, duplicates included, in each ``step``-th level from the first source.
        step: see ``frontier``: 1 up to ``MOST_LEVELS`` levels.
        missing: why there are no measurements: ``overflow`` (of a queue) or ``slow``; empty if there are some.
        error: the message of the error that ``missing`` stands for.
        ranks: number of ranks.
        grid: rows and columns of the ranks' grid, such as 1x4; empty in the layout ``1d``.
        predecessors: whether these were recorded.
        shares: shares of the level time in search, exchange and contraction, on several ranks; of all sources together.
        allocation: median time before the levels in milliseconds: memory is taken and cleared, kernels are looked up.
        copy: milliseconds until the client has the distances of one source.
    """

    graph: str
    n: int
    m: int
    strategy: str
    backend: str
    sources: int = 0
    depth: float = 0.0
    mteps: float = 0.0
    low: float = 0.0
    high: float = 0.0
    milliseconds: float = 0.0
    expansion: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    frontier: tuple[int, ...] = ()
    step: int = 1
    missing: str = ""
    error: str = ""
    ranks: int = 1
    grid: str = ""
    predecessors: bool = False
    shares: dict[str, float] = field(default_factory=dict)
    allocation: float = 0.0
    copy: float = 0.0

    @property
    def where(self) -> str:
        """The strategy, with the number of ranks if there are several."""
        return self.strategy if self.ranks == 1 else f"{self.strategy}, {self.ranks} ranks"


@dataclass(frozen=True)
class LabReport:
    """Results of ``bench_lab`` with where they come from.

    Attributes:
        revision: git revision of the code.
        machine: the processor or the GPU.
        rates: the measurements, by graph.
    """

    revision: str
    machine: str
    rates: tuple[LabRate, ...]

    @classmethod
    def read(cls, path: Path) -> LabReport:
        """Read the JSON of ``dbfs bench lab``; errors as for ``runner.read``."""
        saved = runner.read(path, {BENCHMARK: {"rates": LabRate}}, ("revision", "machine"))
        return cls(saved["revision"], saved["machine"], tuple(saved["rates"]))


def speedup(rates: Sequence[LabRate], rate: LabRate) -> float | None:
    """Return a rate divided by that of ``BASELINE`` on the same graph; None if either was not measured."""
    for one in rates:
        if (one.graph, one.strategy) == (rate.graph, BASELINE) and one.mteps and rate.mteps:
            return rate.mteps / one.mteps
    return None
