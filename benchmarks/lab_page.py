"""The tables of the page that sets the laboratory beside Merrill 2012: published figures, and those of a comparison.

    python -m benchmarks.lab_page

writes them into ``docs/performance/merrill.md``, between two comments, from the results in ``benchmarks/results/``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from benchmarks import lab_experiments
from benchmarks.lab_experiments import Experiment
from benchmarks.lab_results import BASELINE, LabRate, LabReport
from benchmarks.runner import RESULTS
from dbfs_workers.features.lab.strategies import GATHERING

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance" / "merrill.md"
RATES, PREDECESSORS, UNIFORM, EXPERIMENTS, COUNTERS, TILES = (
    RESULTS / f"merrill{part}.json" for part in ("", "_predecessors", "_uniform", "_experiments", "_counters", "_tiles")
)
# Every strategy, from the plan full.
EVERY = RESULTS / "laboratory.json"
BEGIN, END = "<!-- tables: python -m benchmarks.lab_page -->", "<!-- end of the tables -->"
# How blocks take the tiles of a queue, in the order of a cell.
_TAKEN = ("share", "steal", "oversubscribe")


class Published(NamedTuple):
    """A row of Merrill 2012, table 2: GTEPS of distances by the hybrid strategy on one C2050, and times one core.

    ``parents`` is the rate with predecessors. ``quadratic`` is the rate of Hong et al. 2011 on
    the same GPU; ``expansion`` that of figure 7, without culling.
    """

    rate: float
    cores: float
    parents: float
    quadratic: float
    expansion: str = ""


PUBLISHED = {
    "europe.osm": Published(0.31, 11, 0.31, 0.00014),
    "grid5pt.5000": Published(0.6, 7.4, 0.57, 0.00078, "4.2"),
    "hugebubbles-00020": Published(0.43, 15, 0.42, 0.00061),
    "grid7pt.300": Published(1.1, 29, 0.97, 0.012, "2.6"),
    "nlpkkt160": Published(2.5, 9.7, 2.1, 0.21, "1.7"),
    "audikw1": Published(3.0, 4.6, 2.5, 1.2),
    "cage15": Published(2.2, 18, 1.9, 0.50),
    "kkt_power": Published(1.1, 23, 1, 0.18),
    "coPapersCiteseer": Published(3.0, 6.0, 2.5, 2.2, "1.1"),
    "wikipedia-20070206": Published(1.6, 25, 1.4, 0.39),
    "kron_g500-logn20": Published(3.1, 13, 2.5, 1.5, "overflow"),
    "random.2Mv.128Me": Published(3.0, 29, 2.4, 1.2),
    "rmat.2Mv.128Me": Published(3.3, 22, 2.6, 1.3),
}
# What drops a visited neighbour that the bitmask let pass, in the order of the kernels.
_PASSED = ("label_culled", "warp_culled", "history_culled", "claim_culled")
_WAYS = ("expand-contract", "contract-expand", "two-phase", "hybrid")
# The C2050's number of threads, with one neighbour each; the plan has contract-expand with two.
_CLAIMS = "hybrid:status=claims,grid=c2050,items=1"
_SMALL = {way: f"{way}:grid=c2050{'' if way == 'contract-expand' else ',items=1'}" for way in _WAYS}


class Rates:
    """Rates of a comparison by graph and strategy, as cells of tables.

    Attributes:
        strategies: the strategies, with their options.
    """

    def __init__(self, report: LabReport) -> None:
        self._of = {(rate.graph.removeprefix("corpus:"), rate.strategy): rate for rate in report.rates}
        self.strategies = list(dict.fromkeys(rate.strategy for rate in report.rates))

    def find(self, graph: str, strategy: str) -> LabRate | None:
        """Return what was measured; None if the plan had not both."""
        return self._of.get((graph, strategy))

    def cells(self, graph: str, strategies: Iterable[str], value: Callable[[LabRate], str]) -> list[str]:
        """Return a cell a strategy: its value, why there is none, or nothing if the plan had not both."""
        found = [self.find(graph, strategy) for strategy in strategies]
        return ["" if rate is None else rate.missing or value(rate) for rate in found]

    def over_one_core(self, rate: LabRate) -> str:
        """Return a rate divided by that of one core on the same graph."""
        return f"{rate.mteps / self._of[rate.graph.removeprefix('corpus:'), BASELINE].mteps:.0f}"


def _gteps(rate: LabRate) -> str:
    return f"{rate.mteps / 1e3:.3g}"


def _factor(rate: LabRate) -> str:
    return f"{rate.expansion:.2f}"


def rates_of(file: Path) -> Rates:
    """Return the cells of a saved comparison; empty ones if there is none."""
    return Rates(LabReport.read(file) if file.is_file() else LabReport("", "", ()))


def measured(files: Iterable[Path]) -> str:
    """Return a table of what was measured at which revision, and on which machine, as the files say themselves."""
    rows = []
    for file in files:
        if file.is_file():
            saved = json.loads(file.read_text(encoding="utf-8"))
            ended = "" if saved.get("complete", True) else "ended early"
            rows.append([f"`{file.name}`", f"`{saved['revision']}`", saved.get("machine", ""), ended])
    return markdown_table(["file of `benchmarks/results/`", "revision", "on", ""], rows)


def tables() -> str:
    """Return the page's tables as Markdown."""
    rates, predecessors, uniform = rates_of(RATES), rates_of(PREDECESSORS), rates_of(UNIFORM)
    tiles = rates_of(TILES)
    experiments, counters = (
        lab_experiments.read(file)[0] if file.is_file() else [] for file in (EXPERIMENTS, COUNTERS)
    )
    parts = (
        ("What was measured", measured((RATES, PREDECESSORS, UNIFORM, EXPERIMENTS, COUNTERS, TILES, EVERY))),
        ("Table 2: rates in GTEPS, distances", _distances(rates)),
        ("Table 2: rates in GTEPS, predecessors", _predecessors(rates, predecessors)),
        ("Redundant expansion: edges looked at, over edges", _expansion(rates)),
        ("Section 4.1: redundant expansion by how blocks take tiles", _tiles(tiles, _factor)),
        ("Section 4.1: rates in GTEPS by how blocks take tiles", _tiles(tiles, _gteps)),
        ("Figure 7: redundant expansion of two-phase by what drops duplicates", _culling(rates)),
        ("Figure 8: false negatives, in percent of m - n", _false_negatives(rates)),
        ("Figures 5, 6 and 9: the two halves of an expansion", _halves(experiments, counters)),
        ("Figure 12: uniform random graphs, GTEPS of hybrid, expand-contract, the engine", _uniform(uniform)),
        ("Every strategy of the laboratory: GTEPS, distances", _every(rates_of(EVERY))),
    )
    return "\n\n".join(f"### {title}\n\n{table}" for title, table in parts if table)


def _distances(rates: Rates) -> str:
    names = ["graph", "C2050", "over one core", "hybrid", "over one core", "times the C2050"]
    names += ["sources", "expand-contract", "with claims", "warp-centric", "Hong, C2050", "engine"]
    ours = ("expand-contract", "hybrid:status=claims", "warp-centric")

    def row(graph: str, paper: Published) -> list[str]:
        def hybrid(value: Callable[[LabRate], str]) -> list[str]:
            return rates.cells(graph, ["hybrid"], value)

        return [
            *(f"`{graph}`", f"{paper.rate:g}", f"{paper.cores:g}", *hybrid(_gteps), *hybrid(rates.over_one_core)),
            *hybrid(lambda rate: f"{rate.mteps / 1e3 / paper.rate:.1f}"),
            *hybrid(lambda rate: str(rate.sources)),
            *(*rates.cells(graph, ours, _gteps), f"{paper.quadratic:g}", *rates.cells(graph, ["resident"], _gteps)),
        ]

    return markdown_table(names, (row(graph, paper) for graph, paper in PUBLISHED.items()))


def _predecessors(rates: Rates, predecessors: Rates) -> str:
    def loss(graph: str) -> list[str]:
        distances = rates.find(graph, "hybrid")
        if distances is None or distances.missing:
            return [""]
        before = distances.mteps
        return predecessors.cells(graph, ["hybrid"], lambda rate: f"{100 * (1 - rate.mteps / before):.0f} %")

    return markdown_table(
        ["graph", "C2050", "hybrid", "loss, C2050", "loss", "expand-contract", "engine"],
        (
            [
                *(f"`{graph}`", f"{paper.parents:g}", *predecessors.cells(graph, ["hybrid"], _gteps)),
                f"{100 * (1 - paper.parents / paper.rate):.0f} %",
                *loss(graph),
                *predecessors.cells(graph, ["expand-contract", "resident"], _gteps),
            ]
            for graph, paper in PUBLISHED.items()
        ),
    )


def _expansion(rates: Rates) -> str:
    strategies = [*_WAYS, *_SMALL.values(), "hybrid:tiles=order"]
    return markdown_table(
        ["graph", *_WAYS, *(f"{way}, C2050's threads" for way in _WAYS), "hybrid, order"],
        ([f"`{graph}`", *rates.cells(graph, strategies, _factor)] for graph in PUBLISHED),
    )


def _tiles(rates: Rates, value: Callable[[LabRate], str]) -> str:
    """Return a cell for each graph, way and number of threads, by ``_TAKEN``: the values that were measured."""
    ways = {f"{way}, C2050's threads": f"{way}:grid=c2050,items=1," for way in _WAYS}
    ways |= {way: f"{way}:" for way in _WAYS}

    def cell(graph: str, way: str) -> str:
        return ", ".join(rates.cells(graph, [f"{way}tiles={taken}" for taken in _TAKEN], value)).strip(" ,")

    rows = [[f"`{graph}`", *(cell(graph, way) for way in ways.values())] for graph in PUBLISHED]
    rows = [row for row in rows if any(row[1:])]
    return markdown_table([f"{', '.join(_TAKEN)}", *ways], rows)


def _every(rates: Rates) -> str:
    return markdown_table(
        ["strategy", *(f"`{graph}`" for graph in PUBLISHED)],
        [
            [f"`{strategy}`", *(cell for graph in PUBLISHED for cell in rates.cells(graph, [strategy], _gteps))]
            for strategy in rates.strategies
        ],
    )


def _culling(rates: Rates) -> str:
    without = ["two-phase:status=labels,culling=none", "two-phase:culling=none", "two-phase:culling=warp"]
    without += ["two-phase:culling=history", "two-phase"]
    return markdown_table(
        ["graph", "figure 7", "labels alone", "bitmask", "bitmask, warp", "bitmask, history", "all"],
        ([f"`{graph}`", paper.expansion, *rates.cells(graph, without, _factor)] for graph, paper in PUBLISHED.items()),
    )


def _false_negatives(rates: Rates) -> str:
    """Claims leave each level's frontier without duplicates, so that those of one level alone are counted."""
    rows, found = [], []
    for graph in PUBLISHED:
        for strategy, threads in (("hybrid:status=claims", "device"), (_CLAIMS, "C2050")):
            rate = rates.find(graph, strategy)
            name = f"`{graph}`" if threads == "device" else ""
            if rate is None:
                continue
            if rate.missing:
                rows.append([name, threads, *[rate.missing] * len(_PASSED)])
                continue
            visited = rate.counters["edges"] - rate.counters["labelled"]
            shares = [100 * sum(rate.counters[by] for by in _PASSED[at:]) / visited for at in range(len(_PASSED))]
            rows.append([name, threads, *(f"{share:.2f}" for share in shares)])
            found.append((threads, shares))
    for threads in dict.fromkeys(by for by, _ in found):
        means = (fmean(column) for column in zip(*(shares for by, shares in found if by == threads), strict=True))
        rows.append(["mean", threads, *(f"{mean:.2f}" for mean in means)])
    rows.append(["mean of the paper", "C2050", "6.4", "4.0", "", ""])
    return markdown_table(["graph", "threads", "bitmask", "and labels", "and warp", "and history"], rows)


def _halves(experiments: Sequence[Experiment], counters: Sequence[Experiment]) -> str:
    """A row a graph; what differs little between the ways to gather is that of the default way, the last one."""
    rates, counts = _by_way(experiments), _by_way([one for one in counters if one.bytes_per_edge])
    ways = ", ".join(GATHERING)
    names = ["graph", "levels", "lookup alone, G edges/s", f"gathering alone: {ways}", "to a queue", "fused"]
    names += ["bytes an edge: gathering, lookup, fused", "gathering: instructions a byte"]

    def row(graph: str, by_way: dict[str, Experiment]) -> list[str]:
        default, of_largest = by_way[GATHERING[-1]], counts.get(graph, {})
        moved = of_largest[GATHERING[-1]].bytes_per_edge if of_largest else {}
        instructions = [one.instructions_per_byte["gather_alone"] for one in of_largest.values()]
        return [
            *(f"`{graph}`", str(default.levels), f"{default.rates['look_up_alone'] / 1e3:.3g}"),
            *(
                ", ".join(f"{one.rates[kernel] / 1e3:.3g}" for one in by_way.values())
                for kernel in ("gather_alone", "expand", "gather_and_look_up")
            ),
            ", ".join(f"{moved[kernel]:.1f}" for kernel in lab_experiments.KERNELS if moved),
            ", ".join(f"{count:.1f}" for count in instructions),
        ]

    return markdown_table(names, (row(graph, by_way) for graph, by_way in rates.items()))


def _by_way(experiments: Sequence[Experiment]) -> dict[str, dict[str, Experiment]]:
    """Return experiments by graph, then by how blocks gather."""
    of_graph: dict[str, dict[str, Experiment]] = {}
    for one in experiments:
        of_graph.setdefault(one.graph.removeprefix("corpus:"), {})[one.gathering] = one
    return of_graph


def _uniform(rates: Rates) -> str:
    sizes = (1, 4, 16, 64)
    degrees = (8, 16, 32, 64, 128)

    def cell(size: int, degree: int) -> str:
        graph = f"uniform:n={size}000000,m={size * degree}000000,directed=true"
        return ", ".join(rates.cells(graph, ["hybrid", "expand-contract", "resident"], _gteps)).strip(" ,")

    return markdown_table(
        ["vertices", *(f"degree {degree}" for degree in degrees)],
        ([f"{size} M", *(cell(size, degree) for degree in degrees)] for size in sizes),
    )


def markdown_table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown, without columns that have no results; nothing if the first column alone is left."""
    kept = [column for column in zip(names, *rows, strict=True) if any(column[1:])]
    if len(kept) < 2:
        return ""
    first, *cells = zip(*kept, strict=True)
    return "\n".join("| " + " | ".join(line) + " |" for line in (first, ["---"] * len(first), *cells))


def filled(text: str, begin: str, made: str) -> str:
    """Return a page's text with ``made`` between the comments ``begin`` and ``END``."""
    before, rest = text.split(begin)
    after = rest.split(END)[1]
    return f"{before}{begin}\n\n{made}\n\n{END}{after}"


def page(text: str) -> str:
    """Return the page's text with tables from the saved results."""
    return filled(text, BEGIN, tables())


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
