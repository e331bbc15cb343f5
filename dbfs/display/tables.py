"""Results as tables for the terminal."""

from collections.abc import Iterable

from rich import box
from rich.table import Table

from dbfs.base.units import format_bytes
from dbfs.graph.counts import GraphCounts, edges_in_words, vertices_in_words
from dbfs.graph.result import BFSResult
from dbfs_workers.base.text import counted

_MOST_LEVELS = 24


def describe(graph: GraphCounts) -> str:
    """Describe a graph in one line."""
    return (
        f"{graph.name}: {vertices_in_words(graph)}, {edges_in_words(graph)}, {counted(graph.self_loops, 'self-loop')}, "
        f"{counted(graph.duplicates, 'duplicate')}, {counted(graph.ranks, 'rank')}, "
        f"{format_bytes(max(graph.nbytes))} per rank, order {graph.order_name}, built in {graph.build_seconds:.2f} s"
    )


def tight_table(title: str) -> Table:
    """Return an empty table, tight enough for eight columns of numbers in a terminal of 80 columns."""
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=0, pad_edge=False)


def results_table(results: Iterable[BFSResult], *, validated: bool) -> Table:
    """Return a table with one row per traversal. Edges and MTEPS are directed edges of the traversed component."""
    table = tight_table("Traversals")
    for column in ("source", "reached", "depth", "edges\n(directed)", "time\nms", "MTEPS"):
        table.add_column(column, justify="right")
    if validated:
        table.add_column("validated")
    for result in results:
        row = [
            ", ".join(map(str, result.sources)),
            f"{result.reached:,}",
            str(result.depth),
            f"{result.edges:,}",
            f"{result.seconds * 1e3:,.1f}",
            f"{result.mteps:,.1f}",
        ]
        table.add_row(*row, *(["yes"] if validated else []))
    return table


def levels_table(result: BFSResult) -> Table:
    """Return a table with one row per report of levels, which leaves out the middle of more than ``_MOST_LEVELS``."""
    table = tight_table(f"Levels from source {', '.join(map(str, result.sources))}")
    table.add_column("level", justify="right")
    table.add_column("direction")
    for column in ("frontier", "edges\ninspected", "discovered", "duplicates\nculled", "bytes\nexchanged", "time\nms"):
        table.add_column(column, justify="right")
    reports = result.reports
    cut = len(reports) > _MOST_LEVELS
    shown = [*reports[: _MOST_LEVELS // 2], *reports[-_MOST_LEVELS // 2 :]] if cut else list(reports)
    for index, report in enumerate(shown):
        if cut and index == _MOST_LEVELS // 2:
            table.add_row("...", "", "", "", "", "", "", "")
        table.add_row(
            str(report.level) if report.levels == 1 else f"{report.level} to {report.level + report.levels - 1}",
            report.direction,
            f"{report.frontier:,}",
            f"{report.edges:,}",
            f"{report.discovered:,}",
            f"{report.edges - report.discovered:,}",
            f"{report.bytes_sent:,}",
            f"{report.seconds * 1e3:,.2f}",
        )
    return table
