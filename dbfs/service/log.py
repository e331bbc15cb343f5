"""The scheduler's log of graphs, runs and lost workers: one line each under ``dbfs``.

A failed run, a lost worker, and a worker that is late or paused are warnings, all other lines have level info.
``dbfs.cluster.local`` keeps the warnings of a local cluster from stderr.
"""

from __future__ import annotations

import logging
import time

from dbfs.records import FinishedRun, GraphRecord, WorkerStatus
from dbfs.service.entries import GraphEntry, RunEntry
from dbfs.units import format_bytes, format_seconds
from dbfs_workers.text import counted

logger = logging.getLogger(__name__)


def graph_loaded(graph: GraphEntry) -> None:
    """Log a graph whose gang was formed."""
    record = graph.record
    logger.info(
        "%s loaded in %s by %s: %s vertices, %s directed edges, %s on %d ranks, %s, %s",
        _graph(record),
        format_seconds(record.read_seconds + record.build_seconds),
        record.client,
        f"{record.stripe.n:,}",
        f"{sum(info.m_local for info in record.infos):,}",
        format_bytes(sum(info.nbytes for info in record.infos)),
        record.stripe.p,
        graph.formed.backend,
        graph.formed.exchange,
    )


def graph_refused(record: GraphRecord, error: BaseException) -> None:
    """Log a graph that was built and whose gang could not be formed."""
    logger.info("%s of %s not loaded: %s: %s", _graph(record), record.client, type(error).__name__, error)


def graph_unloaded(graph: GraphEntry, why: str) -> None:
    """Log a graph that is about to be freed, and why."""
    age = format_seconds(time.time() - graph.record.created)
    logger.info("%s unloaded after %s and %s: %s", _graph(graph.record), age, counted(graph.runs, "run"), why)


def run_started(run: RunEntry) -> None:
    """Log a run whose turn has come."""
    logger.info("%s started after %s in the queue", _run(run), format_seconds(time.time() - run.queued))


def run_finished(run: RunEntry, finished: FinishedRun) -> None:
    """Log a run that finished, with the time since its start and the sum of its traversals' times."""
    took = finished.ended - (run.started or run.queued)
    logger.info(
        "%s finished in %s, traversing for %s", _run(run), format_seconds(took), format_seconds(finished.seconds)
    )


def run_ended_early(run: RunEntry, outcome: str, ended: FinishedRun) -> None:
    """Log a run that failed or was cancelled."""
    level = logging.WARNING if outcome == "failed" else logging.INFO
    logger.log(level, "%s %s after %s: %s", _run(run), outcome, format_seconds(ended.seconds), ended.error)


def cancel_requested(run: RunEntry) -> None:
    """Log a client's request to cancel a run."""
    logger.info("%s: a client requests to cancel it", _run(run))


def worker_lost(graph: GraphEntry, rank: int, address: str) -> None:
    """Log a worker that left and held a rank of a graph."""
    logger.warning("worker %s left: %s lost rank %d", address, _graph(graph.record), rank)


def worker_not_ready(worker: WorkerStatus) -> None:
    """Log a worker that is late or paused, and the graphs that wait for it."""
    logger.warning("%s; graphs with a rank there: %s", worker, ", ".join(map(repr, worker.graphs)) or "none")


def worker_ready(worker: WorkerStatus, before: WorkerStatus) -> None:
    """Log that a worker is ready again, a warning as the line before it, which it ends."""
    logger.warning("%s is ready again, %s for %s", worker, before.state, format_seconds(worker.since - before.since))


def _graph(record: GraphRecord) -> str:
    return f"graph {record.name!r} ({record.graph_id[:8]})"


def _run(run: RunEntry) -> str:
    count = run.update or counted(run.traversals, "traversal")
    return f"run {run.run_id[:8]} ({count} of {run.graph.record.name!r} for {run.client})"
