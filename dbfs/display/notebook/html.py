"""HTML by Jinja templates, as in Dask. Names given by users are escaped."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from dbfs.display.notebook import svg
from dbfs.graph.counts import edges_in_words
from dbfs.units import format_bytes, format_rate, format_seconds
from dbfs_workers.text import counted

if TYPE_CHECKING:
    import jinja2

    from dbfs.display.state import ClusterState
    from dbfs.graph.graph import Graph
    from dbfs.graph.result import BFSResult


def graph_html(graph: Graph) -> str:
    """Return a graph's counts and its edges by rank as HTML."""
    chart = svg.bars([info.m_local for info in graph.record.infos], "directed edges by rank")
    return _render("graph", graph=graph, edges=edges_in_words(graph), chart=chart)


def result_html(result: BFSResult) -> str:
    """Return a result's counts, rate and frontier by level as HTML."""
    levels = sum(report.levels for report in result.reports)
    bottom_up = sum(report.levels for report in result.reports if report.direction == "bottom-up")
    # Of a report of both directions the number is not known.
    some = any(report.direction == "both" for report in result.reports)
    chart = svg.frontier(result.reports)
    return _render("result", result=result, levels=levels, bottom_up=bottom_up, some=some, chart=chart)


def state_html(state: ClusterState) -> str:
    """Return a cluster's workers, graphs and runs as HTML."""
    return _render("state", state=state)


def _count(value: int) -> str:
    return f"{value:,}"


def _bytes_range(values: tuple[int, ...]) -> str:
    least, most = format_bytes(min(values)), format_bytes(max(values))
    if least == most:
        return least
    number, unit = least.split()
    # The unit once: a table has no space for it twice.
    return f"{number if most.endswith(f' {unit}') else least} to {most}"


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dbfs.display.notebook"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update(bytes=format_bytes, bytes_range=_bytes_range, count=_count, counted=counted)
    environment.filters.update(seconds=format_seconds, rate=format_rate)
    return environment


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(f"{template}.html.j2").render(**values)
