"""The page ``/dbfs`` beside Dask's pages: graphs, runs and their progress, rates of the last runs, failures.

The page is a Bokeh application on Dask's own server. Each open page reads the service's objects on the scheduler twice
a second. It sends no message to workers. While no page is open there is no work.
"""

from __future__ import annotations

import contextlib
import html
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bokeh.core.properties import without_property_validation
from bokeh.layouts import column, row
from bokeh.models import (
    AllIndices,
    ColumnDataSource,
    DataTable,
    Div,
    HTMLTemplateFormatter,
    NumberFormatter,
    NumeralTickFormatter,
    TableColumn,
)
from bokeh.plotting import figure
from dask.utils import format_bytes, format_time
from distributed.dashboard.components import DashboardComponent, add_periodic_callback
from distributed.dashboard.components.scheduler import BOKEH_THEME, env
from distributed.dashboard.core import BokehApplication
from distributed.dashboard.scheduler import template_variables
from tornado.ioloop import IOLoop

from dbfs.dashboard import PATH
from dbfs.dashboard.trail import Trail, trail_of

if TYPE_CHECKING:
    import distributed
    from bokeh.document import Document

    from dbfs.dashboard.view import GraphView, RunView, ServiceView
    from dbfs.records import FinishedRun

_EVERY = 500
"""Milliseconds between two updates of an open page."""

# Kinds of columns. Each page creates its own formatters, because a Bokeh model belongs to one document.
_TEXT, _RIGHT, _COUNT, _BYTES, _TENTHS, _THOUSANDTHS = range(6)
_NUMBERS = {_COUNT: "0,0", _BYTES: "0.0 b", _TENTHS: "0,0.0", _THOUSANDTHS: "0,0.000"}
_TEMPLATES = {
    # Text is escaped; the title shows it in full under the pointer.
    _TEXT: '<span title="<%- value %>"><%- value %></span>',
    _RIGHT: '<div style="text-align: right"><%- value %></div>',
}
# Columns of a table: width in pixels, and kind.
Columns = dict[str, tuple[int, int]]

_GRAPHS: Columns = {
    "graph": (230, _TEXT),
    "vertices": (100, _COUNT),
    "edges": (110, _COUNT),
    "ranks": (50, _COUNT),
    "backend": (70, _TEXT),
    "exchange": (110, _TEXT),
    "bytes a rank": (90, _BYTES),
    "bytes": (90, _BYTES),
    "runs": (60, _COUNT),
    "lost ranks": (90, _TEXT),
}
_RUNS: Columns = {
    "run": (80, _TEXT),
    "graph": (230, _TEXT),
    "state": (70, _TEXT),
    "traversal": (90, _RIGHT),
    "level": (80, _COUNT),
    "direction": (90, _TEXT),
    "frontier": (110, _COUNT),
    "reached": (110, _COUNT),
    "of the graph": (90, _RIGHT),
    "for": (80, _RIGHT),
}
_FINISHED: Columns = {
    "ended": (80, _TEXT),
    "run": (80, _TEXT),
    "graph": (230, _TEXT),
    "traversals": (80, _COUNT),
    "depth": (80, _COUNT),
    "reached": (110, _COUNT),
    "edges": (120, _COUNT),
    "levels ms": (100, _THOUSANDTHS),
    "MTEPS": (90, _TENTHS),
}
_FAILED: Columns = {
    "ended": (80, _TEXT),
    "run": (80, _TEXT),
    "graph": (190, _TEXT),
    "what": (760, _TEXT),
}
_WIDTH = 1120
_COLORS = {"top-down": "#1f77b4", "bottom-up": "#d95f02"}


def connect(scheduler: distributed.Scheduler, service: ServiceView, prefix: str) -> None:
    """Add the page to a running scheduler's server, and add a link to Dask's pages."""
    variables = template_variables(scheduler)

    def document(scheduler: distributed.Scheduler, extra: dict[str, Any], doc: Document) -> None:
        show(scheduler, service, extra, doc)

    app = BokehApplication({PATH: document}, scheduler, prefix=prefix, template_variables=variables)
    scheduler.http_application.add_application(app)
    app.initialize(IOLoop.current())
    app.start()
    with contextlib.suppress(KeyError, AttributeError):
        if PATH.strip("/") not in variables["pages"]:
            variables["pages"].append(PATH.strip("/"))


def show(scheduler: distributed.Scheduler, service: ServiceView, extra: dict[str, Any], doc: Document) -> None:  # noqa: ARG001
    """Fill a new document."""
    page = Page(service)
    page.update()
    add_periodic_callback(doc, page, _EVERY)
    doc.title = "Dask: dbfs"
    doc.add_root(page.root)
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)
    doc.theme = BOKEH_THEME


class Page(DashboardComponent):  # type: ignore[misc]  # distributed is untyped
    """The tables and plots of one open page."""

    def __init__(self, service: ServiceView) -> None:
        self._service = service
        self._drawn: Trail | None = None
        self._head = Div(width=_WIDTH)
        self._graphs = _table(_GRAPHS, 130)
        self._runs = _table(_RUNS, 110)
        self._finished = _table(_FINISHED, 220)
        self._failed = _table(_FAILED, 150)
        self._levels = {
            name: ColumnDataSource({"level": [], "frontier": [], "reached": []}) for name in ("all", *_COLORS)
        }
        self._frontier = self._plot("vertices in the frontier", "frontier")
        self._reached = self._plot("vertices reached", "reached")
        self.root = column(
            self._head,
            _title("Graphs"),
            self._graphs,
            _title("Runs under way"),
            self._runs,
            row(self._frontier, self._reached),
            _title("Last runs"),
            self._finished,
            _title("Runs that ended early"),
            self._failed,
        )

    @without_property_validation  # type: ignore[untyped-decorator]
    def update(self) -> None:
        """Show the present state of the service."""
        service, history = self._service, self._service.history
        running = [run for run in service.runs if run.started is not None]
        size = sum(info.nbytes for graph in service.graphs.values() for info in graph.record.infos)
        words = {
            "graphs": f"{len(service.graphs)} ({format_bytes(size)})",
            "runs under way": len(running),
            "waiting": len(service.runs) - len(running),
            "traversals made": f"{history.traversals:,}",
            "edges traversed": f"{history.edges:,}",
            "runs failed": f"{history.outcomes['failed']:,}",
            "cancelled": f"{history.outcomes['cancelled']:,}",
        }
        head = " · ".join(f"{name} <b>{number}</b>" for name, number in words.items())
        if self._head.text != head:
            self._head.text = head
        _fill(self._graphs, _GRAPHS, [_graph_row(graph) for graph in service.graphs.values()])
        _fill(self._runs, _RUNS, [_run_row(run) for run in service.runs])
        _fill(
            self._finished,
            _FINISHED,
            [
                (
                    _clock(run.ended),
                    run.run_id[:8],
                    run.graph,
                    run.traversals,
                    run.depth,
                    run.reached,
                    run.edges,
                    run.seconds * 1e3,
                    run.mteps,
                )
                for run in reversed(history.finished)
            ],
        )
        _fill(
            self._failed,
            _FAILED,
            [(_clock(run.ended), run.run_id[:8], run.graph, _error(run)) for run in reversed(history.failed)],
        )
        self._draw()

    def _draw(self) -> None:
        trail = trail_of(self._service, self._drawn)
        if trail is None or trail is self._drawn:
            return
        self._drawn = trail
        self._frontier.title.text = f"Frontier by level: {trail.title}"
        self._reached.title.text = "Reached by level"
        shown = trail.frontier > 0
        for name, source in self._levels.items():
            chosen = shown if name == "all" else shown & (trail.bottom_up == (name == "bottom-up"))
            source.data = {
                "level": trail.level[chosen],
                "frontier": trail.frontier[chosen],
                "reached": trail.reached[chosen],
            }

    def _plot(self, label: str, field: str) -> Any:
        plot = figure(
            height=260,
            width=_WIDTH // 2,
            y_axis_type="log" if field == "frontier" else "linear",
            x_axis_label="level",
            y_axis_label=label,
            tools="pan,wheel_zoom,box_zoom,reset,save",
            title="No run so far",
        )
        plot.line("level", field, source=self._levels["all"], color="#bbbbbb")
        for name, color in _COLORS.items():
            source, marker = self._levels[name], "circle" if name == "top-down" else "triangle"
            plot.scatter("level", field, source=source, color=color, marker=marker, size=6, legend_label=name)
        plot.toolbar.autohide = True
        # Below the plot, because inside it the legend would hide points.
        plot.legend.orientation = "horizontal"
        plot.add_layout(plot.legend[0], "below")
        if field == "reached":
            plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
        return plot


def _table(columns: Columns, height: int) -> DataTable:
    return DataTable(
        source=ColumnDataSource({name: [] for name in columns}),
        columns=[
            TableColumn(field=name, title=name, width=width, formatter=_formatter(kind))
            for name, (width, kind) in columns.items()
        ],
        width=_WIDTH,
        height=height,
        index_position=None,
        sortable=True,
    )


def _formatter(kind: int) -> Any:
    if kind in _TEMPLATES:
        return HTMLTemplateFormatter(template=_TEMPLATES[kind])
    return NumberFormatter(format=_NUMBERS[kind], text_align="right", null_format="")


def _fill(table: DataTable, columns: Columns, rows: list[tuple[Any, ...]]) -> None:
    values = zip(*rows, strict=True) if rows else [()] * len(columns)
    data = {name: list(column) for name, column in zip(columns, values, strict=True)}
    if table.source.data != data:
        table.source.data = data
        # Bokeh redraws a table if its view changes, but not if the same number of rows has other values.
        table.view.filter = AllIndices()


def _graph_row(graph: GraphView) -> tuple[Any, ...]:
    record, sizes = graph.record, [info.nbytes for info in graph.record.infos]
    return (
        record.name,
        record.stripe.n,
        sum(info.m_local for info in record.infos),
        record.stripe.p,
        graph.formed.backend,
        graph.formed.exchange,
        max(sizes),
        sum(sizes),
        graph.runs,
        ", ".join(map(str, sorted(graph.lost))),
    )


def _run_row(run: RunView) -> tuple[Any, ...]:
    at = run.progress
    seconds = format_time(time.time() - (run.started or run.queued))
    head = (run.run_id[:8], run.graph.record.name, "waiting" if run.started is None else "running")
    if at is None:
        return (*head, f"of {run.traversals}", None, "", None, None, "", seconds)
    traversal = f"{min(at.finished + 1, run.traversals)} of {run.traversals}"
    share = f"{at.reached / max(1, run.graph.record.stripe.n):.1%}"
    return (*head, traversal, at.level, at.direction, at.frontier, at.reached, share, seconds)


def _error(run: FinishedRun) -> str:
    # Drop the run id, which has a column of its own.
    return run.error.replace(f"run {run.run_id}, ", "").replace(f"run {run.run_id}: ", "")


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%H:%M:%S")


def _title(words: str) -> Div:
    return Div(text=f"<h3 style='margin: 6px 0 0 0'>{html.escape(words)}</h3>")
