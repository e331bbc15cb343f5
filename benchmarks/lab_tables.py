"""Tables of the laboratory's comparison for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from benchmarks.lab_results import LabRate, speedup
from benchmarks.rates import short_name
from dbfs.display.tables import tight_table

# Columns of culling, as shares of the neighbours gathered.
_CULLED = ("bitmask_culled", "label_culled", "warp_culled", "history_culled", "duplicates")


def lab_tables(rates: Sequence[LabRate]) -> list[Table]:
    """Return a table of all measurements, and one of the median rates, strategy by graph."""
    everything = tight_table("Strategies")
    everything.caption = (
        "MTEPS: directed edges per second, in millions, median of the sources, lowest and highest. Sources are fewer "
        "where a strategy took longer than the plan's seconds. "
        "expansion: edges looked at / edges of the component. Of 100 neighbours: dropped by bitmask, labels, warp and "
        "history, and duplicates that nothing dropped. MiB: labels, queues and marks of the strategy."
    )
    everything.caption_justify = "left"
    for name in ("graph", "strategy"):
        everything.add_column(name, overflow="fold")
    for name in (
        *("sources", "MTEPS", "low", "high", "over\nsequential", "ms", "us a\nlevel", "expan-\nsion"),
        *("bitmask", "labels", "warp", "history", "dupli-\ncates", "MiB"),
    ):
        everything.add_column(name, justify="right", no_wrap=True)
    before = ""
    for rate in rates:
        if before not in ("", rate.graph):
            everything.add_section()
        everything.add_row(short_name(rate.graph) if rate.graph != before else "", rate.where, *_cells(rates, rate))
        before = rate.graph
    return [everything, _matrix(rates)]


def _cells(rates: Sequence[LabRate], rate: LabRate) -> list[str]:
    if rate.missing:
        return ["", rate.missing]
    over = speedup(rates, rate)
    counters = rate.counters
    per_neighbour = 100 / max(1, counters.get("edges", 0))
    return [
        str(rate.sources),
        f"{rate.mteps:,.1f}",
        f"{rate.low:,.1f}",
        f"{rate.high:,.1f}",
        "" if over is None else f"{over:.2f}",
        f"{rate.milliseconds:,.3f}",
        f"{rate.milliseconds * 1e3 / (rate.depth + 1):,.1f}",
        f"{rate.expansion:.3f}",
        *(f"{counters[name] * per_neighbour:.2f}" if name in counters else "" for name in _CULLED),
        f"{counters['bytes'] / 2**20:,.1f}" if "bytes" in counters else "",
    ]


def _matrix(rates: Sequence[LabRate]) -> Table:
    graphs = list(dict.fromkeys(rate.graph for rate in rates))
    table = tight_table("Median MTEPS")
    table.add_column("strategy", overflow="fold")
    for graph in graphs:
        table.add_column(short_name(graph), justify="right", overflow="fold")
    found = {(rate.where, rate.graph): rate.missing or f"{rate.mteps:,.1f}" for rate in rates}
    for strategy in dict.fromkeys(rate.where for rate in rates):
        table.add_row(strategy, *(found.get((strategy, graph), "") for graph in graphs))
    return table
