"""The dashboard: a page at ``/dbfs`` on the scheduler's web server, and metrics for Prometheus.

In: the service's records (``dbfs.service.feature.Records``). Out: tables and plots in a browser, lines of
``/metrics``. The page needs Bokeh and the metrics need prometheus_client (the extra ``dashboard``), as Dask's own
dashboard does. Without them the service works as usual, and ``/dbfs`` says what to install.
"""

import importlib.util
import logging
import sys
from typing import Any

import distributed
from tornado import web

from dbfs.service.feature import Records, SchedulerFeature, ServiceView

logger = logging.getLogger(__name__)

PATH = "/dbfs"

_INSTALL = "pip install '.[dashboard]' in a clone of dbfs"


class Dashboard(SchedulerFeature):
    """Adds the page and the metrics to a running scheduler's server, until the scheduler closes."""

    def __init__(self, view: ServiceView) -> None:
        super().__init__(view)
        for part in (_install_page, _install_metrics):
            try:
                part(view.records)
            except Exception:
                # Both use internals of Dask's dashboard, which may change. A traversal must not fail because of that.
                logger.exception("dbfs: %s failed", part.__name__.strip("_"))

    def close(self) -> None:
        """Remove the metrics."""
        try:
            from dbfs.dashboard.metrics import forget
        except ImportError:
            return
        forget(self.view.records)


def _install_page(records: Records) -> None:
    scheduler = records.scheduler
    if importlib.util.find_spec("bokeh") is None:
        _explain(scheduler, f"The page needs Bokeh where the scheduler runs: {_INSTALL}.")
        return
    # A scheduler whose dashboard is on has imported Bokeh, which takes a third of a second.
    bokeh = sys.modules.get("bokeh.server.tornado")
    applications = scheduler.http_application.applications
    dask_pages = [app for app in applications if bokeh is not None and isinstance(app, bokeh.BokehTornado)]
    if not dask_pages:
        # Dask also has no pages if it does not support the installed version of Bokeh.
        _explain(scheduler, f"This scheduler's dashboard is off: start it with one, and with {_INSTALL}.")
        return
    from dbfs.dashboard.page import connect

    connect(records, dask_pages[0].prefix)


def _install_metrics(records: Records) -> None:
    try:
        from dbfs.dashboard.metrics import register
    except ImportError:
        return
    register(records)


def _explain(scheduler: distributed.Scheduler, words: str) -> None:
    scheduler.http_application.add_handlers(".*$", [(PATH, _Explanation, {"words": words})])


class _Explanation(web.RequestHandler):
    """A text at the page's address that says why there is no page."""

    def initialize(self, words: str) -> None:
        self._words = words

    def get(self, *_: Any) -> None:
        """Answer a request."""
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.write(self._words)
