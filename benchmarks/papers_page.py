"""The tables of the page that sets dbfs beside Tödling 2019, Krajecki 2016 and the thesis chapter after it.

    python -m benchmarks.papers_page

writes them into ``docs/performance/todling-and-krajecki.md``, between two comments, from the results in
``benchmarks/results/``.
A column for which there are no results yet is left out.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import harmonic_mean
from typing import Any, NamedTuple, TypeVar

from benchmarks import rates as scaling
from benchmarks import runner
from benchmarks.directions import Looked
from benchmarks.lab_page import Rates, filled, markdown_table, measured, rates_of
from benchmarks.lab_results import BASELINE, LabRate, LabReport
from benchmarks.lab_updates import PageRates
from dbfs_workers.features.grid.grid import Grid

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance" / "todling-and-krajecki.md"
SAVED = runner.RESULTS
BEGIN = "<!-- tables: python -m benchmarks.papers_page -->"

Row = TypeVar("Row")


class Published(NamedTuple):
    """A row of Tödling 2019, table 1: vertices, edges, and iterations from the first vertex."""

    vertices: int
    edges: int
    depth: int


GRAPHS = {
    "wikipedia-20070206": Published(3_566_907, 45_030_389, 460),
    "rgg_n_2_21": Published(2_097_152, 28_975_990, 1147),
    "msdoor": Published(415_863, 19_173_163, 127),
    "kron_g500-logn20": Published(1_048_576, 89_239_674, 6),
    "in-2004": Published(1_325_741, 16_917_053, 47),
    "hugebubbles-00020": Published(21_198_119, 63_580_358, 4500),
    "europe.osm": Published(50_912_018, 108_109_320, 17_346),
    "cage15": Published(5_154_859, 99_199_551, 500),
    "audikw1": Published(943_695, 77_651_847, 55),
    "af_shell9": Published(504_855, 17_588_845, 472),
}

VERSIONS = {
    "naive": ("status-array", "far slower on europe.osm and kron_g500-logn20, best of all on af_shell9"),
    "queue": ("atomic-queue:gathering=serial", ""),
    "queue, the host's flag": ("atomic-queue:gathering=serial,wait=level", "the baseline of the loop on the device"),
    "loop on the device": ("device-loop:gathering=serial", "10 to 20 % faster on most graphs, up to 2 times"),
    "dynamic parallelism": (
        "device-loop:gathering=serial,children=long",
        "equals GPMA on deep graphs; slower at high median degree",
    ),
    "classes, sorting pass": ("degree-classes:classes=3,sorting=pass", "best on most graphs"),
    "classes, sorted while exploring": ("degree-classes:classes=3", "more memory"),
}
"""Tödling's versions: the strategy, and what the paper says."""

ON_PAGES = {
    "naive": "slower by more than the classes",
    "queue": "",
    "dynamic parallelism": "slower by more than the classes",
    "classes, sorting pass": "10 % slower on average",
    "classes, sorted while exploring": "10 % slower on average",
}
"""What the paper says of the versions on linked pages."""

LOOKED = (
    (27, 22_090_111, 27),
    (8_156, 1_568_798, 8_156),
    (3_695_684, 587_893, 587_893),
    (19_565_465, 12_586, 12_586),
    (214_578, 8_256, 8_256),
    (5_865, 1_201, 1_201),
    (12, 156, 12),
)
"""The thesis chapter's table 3.1: edges looked at by level, top-down, bottom-up, the better. The graph has no name."""

SCALING = (
    ("strong scaling, scale 21 (K figure 4)", "16", "4.80", "0.30"),
    ("weak scaling (K figure 5)", "", "up to 12", ""),
    ("both GPUs of each node, scale 29 (K figure 6)", "256", "12", "0.047"),
    ("one GPU of each node, GPUDirect", "64", "13.70", "0.21"),
)
"""Krajecki's rates on K20Xm in Graph500's count: experiment, GPUs, GTEPS, and from these GTEPS a GPU."""


def _lab(name: str) -> Rates:
    """Return the cells of a comparison of the laboratory; empty ones if there is none."""
    return rates_of(SAVED / f"{name}.json")


def _rows(name: str, benchmark: str, key: str, kind: type[Row]) -> list[Row]:
    """Return the saved rows of all runs of a benchmark whose files begin with a name."""
    files = sorted(SAVED.glob(f"{name}*.json"))
    return [row for file in files for row in runner.read(file, {benchmark: {key: kind}})[key]]


def _gteps(rate: LabRate) -> str:
    return f"{rate.mteps / 1e3:.3g}"


def tables() -> str:
    """Return the page's tables as Markdown."""
    names = ("todling*", "krajecki*", "merrill_section6*")
    parts = (
        ("What was measured", measured(file for name in names for file in sorted(SAVED.glob(f"{name}.json")))),
        ("Tödling, table 1: the graphs, and one core", _graphs()),
        ("Tödling, figures 1, 3, 4 and 6: the versions on CSR, harmonic means of GTEPS", _versions()),
        ("Tödling, figure 8: the versions on linked pages, their time over that on CSR", _pages()),
        ("Tödling, figure 7: milliseconds of allocation, search, and copy to the client", _parts()),
        ("Tödling, section 6: threads of a block, and neighbours that a thread holds", _tuned()),
        ("Linked pages: millions of edges a second, by batches of random edges", _updates()),
        ("Krajecki, figures 4 to 6: GTEPS in Graph500's count", _scaling()),
        ("Krajecki, figure 2: milliseconds by level, top-down (CSR), bottom-up (CSC) and by the rule", _timed()),
        ("Krajecki, algorithm 2: GTEPS of directed edges on grids of ranks, and times one rank", _grids()),
        (
            "Merrill, section 6, figures 11 and 12: GTEPS of directed edges on a row of GPUs, over one GPU",
            _rows_of_gpus(),
        ),
        ("Thesis, table 3.1: edges looked at by level", _looked()),
    )
    return "\n\n".join(f"### {title}\n\n{table}" for title, table in parts if table)


def _graphs() -> str:
    rates = _lab("todling_pages")
    shown = [strategy for strategy, _ in VERSIONS.values()]

    def best(graph: str) -> str:
        found = [rate for rate in (rates.find(graph, one) for one in shown) if rate and not rate.missing]
        return _gteps(max(found, key=lambda rate: rate.mteps)) if found else ""

    return markdown_table(
        ["graph", "vertices", "here", "edges", "here", "depth", "here", "best version, GTEPS", "engine", "one core"],
        (
            [
                *(f"`{graph}`", f"{paper.vertices:,}", *rates.cells(graph, ["resident"], lambda rate: f"{rate.n:,}")),
                *(f"{paper.edges:,}", *rates.cells(graph, ["resident"], lambda rate: f"{rate.m:,}")),
                *(f"{paper.depth:,}", *rates.cells(graph, ["resident"], lambda rate: f"{rate.depth:,.0f}")),
                *(best(graph), *rates.cells(graph, ["resident", BASELINE], _gteps)),
            ]
            for graph, paper in GRAPHS.items()
        ),
    )


def _mean(rates: Rates, strategy: str) -> str:
    """Return the harmonic mean of a strategy's GTEPS; nothing if a graph was not measured."""
    found = [rates.find(graph, strategy) for graph in GRAPHS]
    if any(rate is None or rate.missing for rate in found):
        return ""
    return f"{harmonic_mean([rate.mteps for rate in found if rate]) / 1e3:.3g}"


def _versions() -> str:
    rates = _lab("todling")
    return markdown_table(
        ["version", "strategy", "the paper", "GTEPS"],
        ([version, f"`{strategy}`", says, _mean(rates, strategy)] for version, (strategy, says) in VERSIONS.items()),
    )


def _pages() -> str:
    rates = _lab("todling_pages")

    def over(graph: str, strategy: str) -> list[str]:
        csr = rates.find(graph, strategy)
        on_pages = f"{strategy}{',' if ':' in strategy else ':'}storage=pages"
        if csr is None or csr.missing:
            return [""]
        return rates.cells(graph, [on_pages], lambda rate: f"{rate.milliseconds / csr.milliseconds:.2f}")

    return markdown_table(
        ["version", "the paper", *(f"`{graph}`" for graph in GRAPHS)],
        (
            [version, says, *(cell for graph in GRAPHS for cell in over(graph, VERSIONS[version][0]))]
            for version, says in ON_PAGES.items()
        ),
    )


def _parts() -> str:
    rates = _lab("todling_tuning")

    def parts(rate: LabRate) -> str:
        return ", ".join(f"{part:.3g}" for part in (rate.allocation, rate.milliseconds, rate.copy))

    shown = ["naive", "queue", "classes, sorted while exploring"]
    return markdown_table(
        ["graph", *shown],
        ([f"`{graph}`", *rates.cells(graph, [VERSIONS[version][0] for version in shown], parts)] for graph in GRAPHS),
    )


def _tuned() -> str:
    """Return the fastest threads and neighbours of the classes by graph, and their rate over that of the usual ones."""
    rates = _lab("todling_tuning")
    usual = VERSIONS["classes, sorted while exploring"][0]
    rows = []
    for graph in GRAPHS:
        found = {}
        for threads, items in itertools.product((64, 128, 256, 512), (1, 2, 4)):
            options = [f"threads={threads}"] * (threads != 256) + [f"items={items}"] * (items != 2)
            rate = rates.find(graph, ",".join([usual, *options]))
            if rate and not rate.missing:
                found[f"{threads} x {items}"] = rate.mteps
        if base := found.get("256 x 2"):
            best = max(found, key=lambda pair: found[pair])
            rows.append([f"`{graph}`", best, f"{found[best] / base:.2f}", f"{min(found.values()) / base:.2f}"])
    return markdown_table(["graph", "fastest", "over 256 x 2", "the slowest"], rows) if rows else ""


def _grids() -> str:
    """Return the rates of the strategies by grid, and their growth over one rank."""
    of_grid: dict[tuple[str, ...], dict[str, str]] = {}
    for file in sorted(SAVED.glob("krajecki_grid*.json")):
        report = LabReport.read(file)
        first = {(rate.graph, rate.strategy): rate.mteps for rate in report.rates if rate.ranks == 1}
        older = _of_older(file)
        for rate in report.rates:
            # Rates of before have no grid: it was the derived one.
            grid = str(rate.grid or Grid.of(rate.ranks)).replace("x", " x ")
            row = f"`{rate.graph.removeprefix('corpus:')}`", f"`{rate.strategy}`", f"{rate.backend}{older}"
            growth = rate.mteps / first[rate.graph, rate.strategy]
            cell = f"{_gteps(rate)}, {growth:.2f}" if rate.ranks > 1 else _gteps(rate)
            of_grid.setdefault(row, {})[grid] = cell
    return _by_column(["graph", "strategy", "on"], of_grid)


def _by_column(names: Sequence[str], cells: Mapping[tuple[str, ...], Mapping[str, str]]) -> str:
    """Return a table of named rows, with a column for each key of their cells; nothing if there are no rows."""
    columns = sorted({column for row in cells.values() for column in row}, key=_numbers)
    rows = ([*row, *(found.get(column, "") for column in columns)] for row, found in cells.items())
    return markdown_table([*names, *columns], rows) if cells else ""


def _numbers(column: str) -> list[int]:
    return [int(word) for word in column.split() if word.isdigit()]


def _rows_of_gpus() -> str:
    """Return the rates by graph and number of GPUs, over one GPU, with the time's share of peers.

    That is the time in which ranks wait for peers, or contract bins, most of which lie on peers.
    """
    files = sorted(SAVED.glob("merrill_section6*.json"))
    rates = [rate for file in files for rate in LabReport.read(file).rates]
    found = {(rate.graph, rate.strategy, rate.predecessors, rate.ranks): rate for rate in rates}
    of_graphs = dict.fromkeys(key[:3] for key in found)

    def cell(of_graph: tuple[str, str, bool], ranks: int) -> str:
        rate, one = found.get((*of_graph, ranks)), found.get((*of_graph, 1))
        if rate is None or rate.missing:
            return "" if rate is None else rate.missing
        growth = f", {rate.mteps / one.mteps:.2f}" if ranks > 1 and one and one.mteps else ""
        peers = f" ({rate.shares['contract'] + rate.shares['exchange']:.0%} with peers)" if rate.shares else ""
        return f"{_gteps(rate)}{growth}{peers}"

    return (
        markdown_table(
            ["graph", "strategy", "labels", "1 GPU", "2 GPUs", "3 GPUs", "4 GPUs"],
            (
                [
                    *(f"`{one[0].removeprefix('corpus:')}`", f"`{one[1]}`", "predecessors" if one[2] else "distances"),
                    *(cell(one, ranks) for ranks in (1, 2, 3, 4)),
                ]
                for one in of_graphs
            ),
        )
        if rates
        else ""
    )


def _updates() -> str:
    found = _rows("todling_updates", "lab-updates", "rates", PageRates)
    if not found:
        return ""
    names = ["graph", "edges of a batch", "insertions", "deletions", "bytes of pages over CSR's"]
    return markdown_table(
        names,
        (
            [
                *(f"`{row.graph.removeprefix('corpus:')}`", f"{row.batch:,}", f"{row.inserted:.0f}"),
                *(f"{row.deleted:.0f}", f"{row.page_bytes / row.csr_bytes:.2f}"),
            ]
            for row in found
        ),
    )


def _of_older(file: Path) -> str:
    """Return what follows the name of a file's rows: the revision if four older GPUs measured them, else nothing."""
    return f", at `{json.loads(file.read_text(encoding='utf-8'))['revision']}`" if file.stem.endswith("_four") else ""


def _scaling() -> str:
    of_ranks: dict[tuple[str, ...], dict[str, str]] = {}
    files = sorted(SAVED.glob("krajecki_scaling*.json"))
    found = ((file, row) for file in files for row in runner.read(file, {"scaling": {"rates": scaling.Rates}})["rates"])
    for file, row in found:
        where = f"{row.backend}, {row.exchange}{', ' * bool(row.grid)}{row.grid}{_of_older(file)}"
        # Graph500 asks for predecessors, and counts an undirected edge once.
        ranks = "1 rank" if row.ranks == 1 else f"{row.ranks} ranks"
        experiment = f"{row.series}, {row.kind}, {row.direction}", where
        of_ranks.setdefault(experiment, {})[ranks] = f"{row.predecessor_mteps / 2e3:.3g}"
    published = markdown_table(["experiment, on K20Xm", "GPUs", "GTEPS", "a GPU"], SCALING)
    ours = _by_column(["experiment", "on"], of_ranks)
    return "\n\n".join(table for table in (published, ours) if table)


def _timed() -> str:
    rows = _rows("krajecki_directions", "directions", "levels", Looked)
    cells = [[row.level, *(f"{1e3 * seconds:.3f}" for seconds in row.seconds)] for row in rows if any(row.seconds)]
    return markdown_table(["level", "top-down", "bottom-up", "by the rule"], cells) if cells else ""


def _looked() -> str:
    ours: list[Any] = list(_rows("krajecki_directions", "directions", "levels", Looked))
    published = [*LOOKED, tuple(map(sum, zip(*LOOKED, strict=True)))]
    # The last row of either has the sums.
    deepest = max(len(published), len(ours))
    rows = []
    for level in range(deepest):
        last = level == deepest - 1
        paper = published[-1] if last else published[level] if level < len(published) - 1 else ("", "", "")
        own = ours[-1] if last and ours else ours[level] if level < len(ours) - 1 else None
        here = ["", "", "", ""] if own is None else [own.top_down, own.bottom_up, own.better, own.rule]
        rows.append(["all" if last else str(level), *(f"{cell:,}" if cell != "" else "" for cell in (*paper, *here))])
    directions = ["top-down", "bottom-up", "the better"]
    names = ["level", *(f"{one}, paper" for one in directions), *directions, "by the rule"]
    return markdown_table(names, rows)


def page(text: str) -> str:
    """Return the page's text with tables from the saved results."""
    return filled(text, BEGIN, tables())


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
