"""The tables of the page that sets the laboratory beside Merrill 2012: published figures, and those of a comparison.

    python -m benchmarks.lab_page

writes them into ``docs/performance/merrill.md``, between two comments, from the results in ``examples/``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.lab_results import BASELINE, LabRate, LabReport

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance" / "merrill.md"
RATES = ROOT / "examples" / "merrill.json"
EXPERIMENTS = ROOT / "examples" / "merrill_experiments.json"
BEGIN, END = "<!-- tables: python -m benchmarks.lab_page -->", "<!-- end of the tables -->"


class Published(NamedTuple):
    """A row of Merrill 2012, table 2: GTEPS of distances by the hybrid strategy on one C2050, and times one core.

    ``quadratic`` is the rate of Hong et al. 2011 on the same GPU; ``expansion`` that of figure 7, without culling.
    """

    rate: float
    cores: float
    quadratic: float
    expansion: str = ""


PUBLISHED = {
    "europe.osm": Published(0.31, 11, 0.00014),
    "grid5pt.5000": Published(0.6, 7.4, 0.00078, "4.2"),
    "hugebubbles-00020": Published(0.43, 15, 0.00061),
    "grid7pt.300": Published(1.1, 29, 0.012, "2.6"),
    "nlpkkt160": Published(2.5, 9.7, 0.21, "1.7"),
    "audikw1": Published(3.0, 4.6, 1.2),
    "cage15": Published(2.2, 18, 0.50),
    "kkt_power": Published(1.1, 23, 0.18),
    "coPapersCiteseer": Published(3.0, 6.0, 2.2, "1.1"),
    "wikipedia-20070206": Published(1.6, 25, 0.39),
    "kron_g500-logn20": Published(3.1, 13, 1.5, "overflow"),
    "random.2Mv.128Me": Published(3.0, 29, 1.2),
    "rmat.2Mv.128Me": Published(3.3, 22, 1.3),
}
_SHARES = ("bitmask_culled", "label_culled", "warp_culled", "history_culled", "duplicates")


def tables(report: LabReport, experiments: Sequence[dict[str, object]]) -> str:
    """Return the page's tables as Markdown."""
    rates = {(rate.graph.removeprefix("corpus:"), rate.strategy): rate for rate in report.rates}

    def cells(graph: str, strategies: Iterable[str], value: Callable[[LabRate], str]) -> list[str]:
        found = [rates.get((graph, strategy)) for strategy in strategies]
        return ["" if rate is None else rate.missing or value(rate) for rate in found]

    def gteps(rate: LabRate) -> str:
        return f"{rate.mteps / 1e3:.3g}"

    def factor(rate: LabRate) -> str:
        return f"{rate.expansion:.2f}"

    ways = ("expand-contract", "contract-expand", "two-phase", "hybrid")
    table2 = _table(
        [
            *("graph", "C2050", "over one core", "hybrid", "over one core", "times the C2050"),
            *("expand-contract", "with claims", "warp-centric", "Hong, C2050", "engine"),
        ],
        (
            [
                f"`{graph}`",
                f"{paper.rate:g}",
                f"{paper.cores:g}",
                *cells(graph, ["hybrid"], gteps),
                *cells(graph, ["hybrid"], lambda rate, graph=graph: f"{rate.mteps / rates[graph, BASELINE].mteps:.0f}"),  # type: ignore[misc]
                *cells(graph, ["hybrid"], lambda rate, paper=paper: f"{rate.mteps / 1e3 / paper.rate:.1f}"),  # type: ignore[misc]
                *cells(graph, ["expand-contract", "hybrid:status=claims", "warp-centric"], gteps),
                f"{paper.quadratic:g}",
                *cells(graph, ["resident"], gteps),
            ]
            for graph, paper in PUBLISHED.items()
        ),
    )
    strategies = [*ways, *(f"{way}:grid=c2050" for way in ways), "hybrid:tiles=order"]
    expansion = _table(
        ["graph", *ways, *(f"{way}, C2050's threads" for way in ways), "hybrid, order"],
        ([f"`{graph}`", *cells(graph, strategies, factor)] for graph in PUBLISHED),
    )
    without = ["two-phase:status=labels,culling=none", "two-phase:culling=none", "two-phase:culling=warp"]
    without += ["two-phase:culling=history", "two-phase"]
    culling = _table(
        ["graph", "figure 7", "labels alone", "bitmask", "bitmask, warp", "bitmask, history", "all"],
        ([f"`{graph}`", paper.expansion, *cells(graph, without, factor)] for graph, paper in PUBLISHED.items()),
    )
    shares = _table(
        ["graph", "threads", "bitmask", "labels", "warp", "history", "duplicates"],
        (
            [f"`{graph}`" if strategy == "two-phase" else "", threads, *_shares(rates.get((graph, strategy)))]
            for graph in PUBLISHED
            for strategy, threads in (("two-phase", "device"), ("two-phase:grid=c2050", "C2050"))
            if (graph, strategy) in rates
        ),
    )
    kernels = ("gather_alone", "look_up_alone", "expand", "gather_and_look_up")
    halves = _table(
        ["graph", "gathering", "gathering alone", "lookup alone", "gathering to a queue", "fused"],
        (
            [
                f"`{str(one['graph']).removeprefix('corpus:')}`" if one["gathering"] == "serial" else "",
                f"`{one['gathering']}`",
                *(f"{one['rates'][kernel] / 1e3:.0f}" for kernel in kernels),  # type: ignore[index]
            ]
            for one in experiments
        ),
    )
    parts = (
        ("Table 2: rates in GTEPS, distances", table2),
        ("Redundant expansion: edges looked at, over edges", expansion),
        ("Figure 7: redundant expansion of two-phase by what drops duplicates", culling),
        ("Figure 8: of 100 neighbours, those that two-phase drops, and the duplicates that pass", shares),
        ("Figures 5, 6 and 9: billions of edges a second, levels with the most edges", halves),
    )
    return "\n\n".join(f"### {title}\n\n{table}" for title, table in parts)


def _shares(rate: LabRate | None) -> list[str]:
    if rate is None or rate.missing:
        return [rate.missing if rate else "", *[""] * (len(_SHARES) - 1)]
    return [f"{100 * rate.counters[name] / rate.counters['edges']:.2f}" for name in _SHARES]


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page(text: str) -> str:
    """Return the page's text with tables from the saved results."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    experiments = json.loads(EXPERIMENTS.read_text(encoding="utf-8"))
    return f"{before}{BEGIN}\n\n{tables(LabReport.read(RATES), experiments)}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
