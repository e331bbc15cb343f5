"""Tables for the terminal: results of the benchmarks over many graphs, and of the memory benchmark."""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from benchmarks.corpus import CorpusReport, short_name
from benchmarks.memory import Compared, MemoryUse
from benchmarks.scaling import ScalingPoint
from dbfs.display.tables import tight_table


def corpus_tables(report: CorpusReport) -> list[Table]:
    """Return the table of the graphs (Merrill 2012, table 1) and the table of their rates (table 2)."""
    graphs = tight_table("The graphs")
    _columns(graphs, ("graph",), ("vertices", "directed\nedges", "mean\ndegree", "search\ndepth", "build\ns"))
    for graph in dict.fromkeys(rates.graph for rates in report.rates):
        first = next(rates for rates in report.rates if rates.graph == graph)
        graphs.add_row(
            short_name(graph),
            f"{first.n:,}",
            f"{first.m:,}",
            f"{first.m / first.n:.1f}",
            f"{first.depth:,.0f}",
            f"{first.build_seconds:.2f}",
        )
    rates_table = tight_table("Rates, in directed MTEPS")
    rates_table.caption = (
        "dist.: recording distances. pred.: recording predecessors as well. over 1: rate / rate of one rank. "
        "inspected: edges inspected / edges of the component. "
        "kept: vertices after filtering / vertices discovered."
    )
    rates_table.caption_justify = "left"
    numbers = ("ranks", "dist.", "pred.", "over 1", "inspected", "kept")
    _columns(rates_table, ("graph", "direction"), numbers)
    before = ""
    for rates in report.rates:
        if before not in ("", rates.graph):
            rates_table.add_section()
        rates_table.add_row(
            short_name(rates.graph) if rates.graph != before else "",
            rates.direction,
            str(rates.ranks),
            f"{rates.distance_mteps:,.1f}",
            f"{rates.predecessor_mteps:,.1f}",
            _ratio(report.speedup(rates)),
            _ratio(rates.inspected),
            _ratio(rates.redundancy),
        )
        before = rates.graph
    return [graphs, rates_table]


def scaling_tables(points: Sequence[ScalingPoint]) -> list[Table]:
    """Return one table for each series."""
    tables: dict[tuple[str, str], Table] = {}
    for point in points:
        series = (point.series, point.kind)
        if series not in tables:
            tables[series] = tight_table(escape(f"{point.series} ({point.kind})"))
            _columns(
                tables[series],
                ("graph", "direction"),
                ("ranks", "directed\nMTEPS", "ms", "speed-up", "efficiency"),
            )
        tables[series].add_row(
            short_name(point.rates.graph),
            point.rates.direction,
            str(point.rates.ranks),
            f"{point.rates.distance_mteps:,.1f}",
            f"{point.rates.milliseconds:,.2f}",
            f"{point.speedup:.2f}",
            f"{point.efficiency:.2f}",
        )
    return list(tables.values())


def memory_table(uses: Sequence[MemoryUse], title: str) -> Table:
    """Return a table with a row for each stage of each graph."""
    table = tight_table(title)
    table.caption = "GiB on the GPU with the largest measurement; %: the estimate in percent of it"
    table.caption_justify = "left"
    numbers = ("peak,\nestimate", "\nmeasured", "\n%", "resident,\nestimate", "\nmeasured", "\n%")
    _columns(table, ("graph", "order", "when"), numbers)
    before = None
    for use in uses:
        subject = (use.graph, use.order)
        if before not in (None, subject):
            table.add_section()
        named = subject if subject != before else ("", "")
        table.add_row(*named, use.when, *_compared(use.peak), *_compared(use.resident))
        before = subject
    return table


def _compared(compared: Compared | None) -> tuple[str, str, str]:
    if compared is None:
        return "", "", ""
    return (
        f"{compared.estimate / 2**30:.3f}",
        f"{max(compared.measured) / 2**30:.3f}",
        f"{compared.percent:.1f}",
    )


def _columns(table: Table, words: Sequence[str], numbers: Sequence[str]) -> None:
    for name in words:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
