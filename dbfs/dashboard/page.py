"""The page ``/dbfs`` beside Dask's pages: graphs, workers, runs and their progress, rates of the last runs, failures.

The page is a Bokeh application on Dask's own server. Each open page reads the service's objects on the scheduler twice
a second. It sends no message to workers. While no page is open there is no work.
"""

from __future__ import annotations

import contextlib
import html
import math
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bokeh.core.properties import without_property_validation
from bokeh.layouts import column, row
from bokeh.models import (
    AllIndices,
    BasicTicker,
    ColumnDataSource,
    DataTable,
    Div,
    HTMLTemplateFormatter,
    LogTicker,
    NumberFormatter,
    NumeralTickFormatter,
    Range1d,
    TableColumn,
)
from bokeh.plotting import figure
from distributed.dashboard.components import DashboardComponent, add_periodic_callback
from distributed.dashboard.components.scheduler import BOKEH_THEME, env
from distributed.dashboard.core import BokehApplication
from distributed.dashboard.scheduler import template_variables
from tornado.ioloop import IOLoop

from dbfs.base.records import short_name, waits_for
from dbfs.base.units import format_bytes, format_seconds
from dbfs.cluster.worker_states import rank_order
from dbfs.dashboard import PATH
from dbfs.dashboard.trail import Trail, trail_of
from dbfs_workers.base.text import printable

if TYPE_CHECKING:
    import distributed
    from bokeh.document import Document

    from dbfs.base.records import FinishedRun, WorkerStatus
    from dbfs.service.entries import GraphEntry, RunEntry
    from dbfs.service.feature import Records

_REFRESH_MILLISECONDS = 500
"""Milliseconds between two updates of an open page."""

# Kinds of columns. Each page creates its own formatters, because a Bokeh model belongs to one document.
_TEXT, _NAME, _RIGHT, _COUNT, _TENTHS, _BYTES, _SECONDS = range(7)
_NUMBERS = {_COUNT: "0,0", _TENTHS: "0,0.0"}
# A column of these kinds has a second field with its values as text. The table sorts by the values themselves.
_AS_TEXT: dict[int, Callable[[Any], str]] = {_NAME: short_name, _BYTES: format_bytes, _SECONDS: format_seconds}
_LEFT_ALIGNED = (_TEXT, _NAME)
# Columns of a table: relative width, and kind. Together they take the width of the window.
Columns = dict[str, tuple[int, int]]

_GRAPHS: Columns = {
    "graph": (230, _NAME),
    "vertices": (100, _COUNT),
    "edges": (110, _COUNT),
    "ranks": (50, _COUNT),
    "backend": (70, _TEXT),
    "exchange": (110, _TEXT),
    "bytes per rank": (90, _BYTES),
    "bytes in all": (90, _BYTES),
    "runs": (60, _COUNT),
    "version": (60, _COUNT),
    "changes": (80, _COUNT),
    "changes/s": (80, _TENTHS),
    "free pages": (80, _COUNT),
    "lost ranks": (200, _TEXT),
}
_WORKERS: Columns = {
    "worker": (230, _TEXT),
    "address": (230, _TEXT),
    "state": (70, _TEXT),
    "for": (80, _SECONDS),
    "silent for": (80, _SECONDS),
    "memory": (90, _BYTES),
    "of": (90, _BYTES),
    "graphs": (300, _TEXT),
}
_RUNS: Columns = {
    "run": (80, _TEXT),
    "graph": (230, _NAME),
    "state": (70, _TEXT),
    "traversal": (90, _RIGHT),
    "level": (80, _COUNT),
    "direction": (90, _TEXT),
    "frontier": (110, _COUNT),
    "reached": (110, _COUNT),
    "of the graph": (90, _RIGHT),
    "for": (80, _SECONDS),
    "waits": (230, _TEXT),
}
_FINISHED: Columns = {
    "ended": (80, _TEXT),
    "run": (80, _TEXT),
    "graph": (230, _NAME),
    "traversals": (80, _COUNT),
    "depth": (80, _COUNT),
    "reached": (110, _COUNT),
    "edges": (120, _COUNT),
    "time": (100, _SECONDS),
    "MTEPS": (90, _TENTHS),
}
_FAILED: Columns = {
    "ended": (80, _TEXT),
    "run": (80, _TEXT),
    "graph": (190, _NAME),
    "error": (760, _TEXT),
}
# Pixels of a row, and of a table around its rows.
_ROW, _AROUND = 25, 28
# Rows of a table that are shown at most; further ones scroll.
_MOST_ROWS = 8
# Colour, marker and the marker's letter, by direction.
_MARKS = {"top-down": ("#1f77b4", "circle", "●"), "bottom-up": ("#d95f02", "triangle", "▲")}


# With the link to this page, Dask's links need two lines of a narrow window, and the second line would hide the head.
_TEMPLATE = """{% extends "simple.html" %}
{% block extra_resources %}
<style>@media (max-width: 1150px) { .navbar li a { padding: 11px 9px; } }</style>
{% endblock %}"""


def connect(records: Records, prefix: str) -> None:
    """Add the page to a running scheduler's server, and add a link to Dask's pages."""
    scheduler = records.scheduler
    variables = template_variables(scheduler)

    def document(scheduler: distributed.Scheduler, extra: dict[str, Any], doc: Document) -> None:  # noqa: ARG001
        show(records, extra, doc)

    app = BokehApplication({PATH: document}, scheduler, prefix=prefix, template_variables=variables)
    scheduler.http_application.add_application(app)
    app.initialize(IOLoop.current())
    app.start()
    with contextlib.suppress(KeyError, AttributeError):
        if PATH.strip("/") not in variables["pages"]:
            variables["pages"].append(PATH.strip("/"))


def show(records: Records, extra: dict[str, Any], doc: Document) -> None:
    """Fill a new document."""
    page = Page(records)
    page.update()
    add_periodic_callback(doc, page, _REFRESH_MILLISECONDS)
    doc.title = "Dask: dbfs"
    doc.add_root(page.root)
    doc.template = env.from_string(_TEMPLATE)
    doc.template_variables.update(extra)
    doc.theme = BOKEH_THEME


class Page(DashboardComponent):  # type: ignore[misc]  # distributed is untyped
    """The tables and plots of one open page."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._drawn: Trail | None = None
        self._head = Div()
        self._graphs = _table(_GRAPHS)
        self._workers = _table(_WORKERS)
        self._runs = _table(_RUNS)
        self._finished = _table(_FINISHED)
        self._failed = _table(_FAILED)
        self._levels = ColumnDataSource({name: [] for name in ("level", "frontier", "reached", "color", "marker")})
        self._frontier = self._plot("vertices in the frontier", "frontier")
        self._reached = self._plot("vertices reached", "reached")
        self._drawing = Div()
        # Without a run there are no levels, and the axes would be empty.
        self._plots = row(self._frontier, self._reached, sizing_mode="stretch_width", visible=False)
        self.root = column(
            self._head,
            _title("Graphs"),
            self._graphs,
            _title("Workers"),
            self._workers,
            _title("Runs under way"),
            self._runs,
            _title("Levels"),
            self._drawing,
            self._plots,
            _title("Last runs"),
            self._finished,
            _title("Runs that ended early"),
            self._failed,
            sizing_mode="stretch_width",
        )

    @without_property_validation  # type: ignore[untyped-decorator]
    def update(self) -> None:
        """Show the present state of the service."""
        records, history = self._records, self._records.history
        running = [run for run in records.runs if run.started is not None]
        size = sum(info.nbytes for graph in records.graphs.values() for info in graph.record.infos)
        words = {
            "graphs": f"{len(records.graphs):,} ({format_bytes(size)})",
            "runs under way": f"{len(running):,}",
            "waiting": f"{len(records.runs) - len(running):,}",
            "traversals made": f"{history.traversals:,}",
            "edges traversed": f"{history.edges:,}",
            "runs failed": f"{history.outcomes['failed']:,}",
            "cancelled": f"{history.outcomes['cancelled']:,}",
        }
        head = " · ".join(f"{name} <b>{number}</b>" for name, number in words.items())
        _write(self._head, head)
        _fill(self._graphs, _GRAPHS, [_graph_row(graph) for graph in records.graphs.values()])
        workers = records.watch.statuses(sorted(records.scheduler.workers, key=rank_order))
        _fill(self._workers, _WORKERS, [_worker_row(worker) for worker in workers])
        _fill(self._runs, _RUNS, [_run_row(run, records) for run in records.runs])
        _fill(self._finished, _FINISHED, [_finished_row(run) for run in reversed(history.finished)])
        failed = [(_clock(run.ended), run.run_id[:8], run.graph, _error(run)) for run in reversed(history.failed)]
        _fill(self._failed, _FAILED, failed)
        self._draw()

    def _draw(self) -> None:
        trail = trail_of(self._records, self._drawn)
        if trail is None:
            _write(self._drawing, "No run so far.")
        elif trail is not self._drawn:
            self._drawn = trail
            key = " ".join(
                f'<span style="color: {color}">{sign}</span> {name}' for name, (color, _, sign) in _MARKS.items()
            )
            _write(self._drawing, f"{html.escape(trail.title)} &nbsp; {key}")
            shown = trail.frontier > 0
            marks = [_MARKS["bottom-up" if below else "top-down"] for below in trail.bottom_up[shown]]
            self._levels.data = {
                "level": trail.level[shown],
                "frontier": trail.frontier[shown],
                "reached": trail.reached[shown],
                "color": [color for color, _, _ in marks],
                "marker": [marker for _, marker, _ in marks],
            }
            self._frontier.y_range.end = _decades_above(int(trail.frontier.max(initial=1)))
            self._plots.visible = True

    def _plot(self, label: str, field: str) -> Any:
        plot = figure(
            height=230,
            sizing_mode="stretch_width",
            y_axis_type="log" if field == "frontier" else "linear",
            x_axis_label="level",
            y_axis_label=label,
            tools="pan,wheel_zoom,box_zoom,reset,save",
        )
        plot.line("level", field, source=self._levels, color="#bbbbbb")
        plot.scatter("level", field, source=self._levels, color="color", marker="marker", size=6)
        plot.toolbar.autohide = True
        # Levels and vertices are whole numbers.
        plot.xaxis.ticker = BasicTicker(min_interval=1, desired_num_ticks=8, num_minor_ticks=0)
        plot.xaxis.formatter = plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
        if field == "frontier":
            # Whole decades: Bokeh's ticks of a range of less than two are many and uneven.
            plot.y_range = Range1d(0.7, _decades_above(1))
            plot.yaxis.ticker = LogTicker(mantissas=[1], num_minor_ticks=0)
        else:
            plot.yaxis.ticker = BasicTicker(min_interval=1, desired_num_ticks=5, num_minor_ticks=0)
        return plot


def _decades_above(most: int) -> float:
    """Return the end of a logarithmic axis: a power of ten of at least 100, above the largest value."""
    return 1.5 * 10.0 ** max(2, math.ceil(math.log10(max(1, most))))


def _table(columns: Columns) -> DataTable:
    right = [number for number, (_, kind) in enumerate(columns.values(), start=1) if kind not in _LEFT_ALIGNED]
    heads = ", ".join(f".slick-header-column:nth-child({number}) .slick-column-name" for number in right)
    return DataTable(
        # Bokeh puts all heads to the left, also those of numbers.
        stylesheets=[f"{heads} {{ float: right; }}"],
        source=ColumnDataSource(_data(columns, [])),
        columns=[
            TableColumn(field=name, title=name, width=width, formatter=_formatter(name, kind))
            for name, (width, kind) in columns.items()
        ],
        sizing_mode="stretch_width",
        height=_AROUND,
        row_height=_ROW,
        index_position=None,
        sortable=True,
    )


def _formatter(name: str, kind: int) -> Any:
    if kind in _NUMBERS:
        return NumberFormatter(format=_NUMBERS[kind], text_align="right", null_format="")
    words = f"obj['{_shown(name)}']" if kind in _AS_TEXT else "value"
    # Text is escaped; the title shows it in full under the pointer.
    align, title = ("left", "value") if kind in _LEFT_ALIGNED else ("right", words)
    return HTMLTemplateFormatter(
        template=f'<div style="text-align: {align}" title="<%- {title} %>"><%- {words} %></div>'
    )


def _shown(name: str) -> str:
    """Return the field that has a column's values as text."""
    return f"{name}, shown"


def _data(columns: Columns, rows: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """Return a table's fields: the values of each column, and for some kinds their text."""
    data: dict[str, list[Any]] = {}
    for index, (name, (_, kind)) in enumerate(columns.items()):
        data[name] = [row[index] for row in rows]
        if kind in _AS_TEXT:
            data[_shown(name)] = [_AS_TEXT[kind](value) for value in data[name]]
    return data


def _fill(table: DataTable, columns: Columns, rows: list[tuple[Any, ...]]) -> None:
    data = _data(columns, rows)
    if table.source.data != data:
        table.source.data = data
        table.height = _AROUND + _ROW * min(len(rows), _MOST_ROWS)
        # Bokeh redraws a table if its view changes, but not if the same number of rows has other values.
        table.view.filter = AllIndices()


def _graph_row(graph: GraphEntry) -> tuple[Any, ...]:
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
        record.version,
        record.updated,
        graph.changes_per_second,
        sum(info.free_pages for info in record.infos),
        ": ".join(filter(None, (", ".join(map(str, sorted(graph.lost))), graph.returning if graph.lost else ""))),
    )


def _worker_row(worker: WorkerStatus) -> tuple[Any, ...]:
    # Whole seconds: a table is sent to the browser whenever a value changes.
    times = (float(int(time.time() - worker.since)), float(int(worker.silent)))
    head = (printable(worker.name), worker.address, str(worker.state))
    return (*head, *times, worker.memory, worker.memory_limit, ", ".join(worker.graphs))


def _run_row(run: RunEntry, records: Records) -> tuple[Any, ...]:
    at = run.progress
    seconds = time.time() - (run.started or run.queued)
    why = waits_for(records.blocking(run.workers))
    head = (run.run_id[:8], run.graph.record.name, "waiting" if run.started is None else "running")
    if at is None:
        return (*head, run.update or f"of {run.traversals:,}", None, "", None, None, "", seconds, why)
    traversal = f"{min(at.finished + 1, run.traversals):,} of {run.traversals:,}"
    share = f"{at.reached / max(1, run.graph.record.stripe.n):.1%}"
    return (*head, traversal, at.level, at.direction, at.frontier, at.reached, share, seconds, why)


def _finished_row(run: FinishedRun) -> tuple[Any, ...]:
    counts = (run.traversals, run.depth, run.reached, run.edges, run.seconds, run.mteps)
    return (_clock(run.ended), run.run_id[:8], run.graph, *counts)


def _error(run: FinishedRun) -> str:
    # Drop the run id, which has a column of its own.
    return run.error.replace(f"run {run.run_id}, ", "").replace(f"run {run.run_id}: ", "")


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%H:%M:%S")


def _write(place: Div, words: str) -> None:
    if place.text != words:
        place.text = words


def _title(words: str) -> Div:
    return Div(text=f"<h3 style='margin: 6px 0 0 0'>{html.escape(words)}</h3>")
