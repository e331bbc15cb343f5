"""The scheduler's log of graphs, runs and lost workers: one line each under ``dbfs``.

Two logs: ``dbfs.graphs`` of loads, unloads and saves, which ``dbfs.preload`` gives a level of its own, and
``dbfs.service.log`` of runs and workers. What failed or was refused, a lost worker, and a worker that is late or paused
are warnings. Starts and ends of runs have level debug, since there are hundreds a second; all other lines have level
info. ``dbfs.cluster.local`` keeps the warnings of a local cluster from stderr.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from typing import Final

from dbfs.base.records import FinishedRun, GraphRecord, WorkerStatus
from dbfs.base.units import format_bytes, format_seconds
from dbfs.service.entries import GraphEntry, RunEntry
from dbfs_workers.base.text import counted, printable

GRAPHS: Final = "dbfs.graphs"
"""Name of the log of graphs."""

logger = logging.getLogger(__name__)
graphs = logging.getLogger(GRAPHS)

# Characters of one word that a client says of itself, and of an error's message.
_LONGEST_WORD: Final = 64
_LONGEST_ERROR: Final = 1000
# Clients whose words are kept. Those who have left go first, since lines about their graphs come after them.
_CLIENTS_KEPT: Final = 4096
# Seconds between two lines about runs that are refused.
_REFUSALS_SECONDS: Final = 10.0

# What clients say of themselves, by their ids, which are unique: one table serves all schedulers of a process.
_said: dict[str, str] = {}


def introduce(client: str, user: str, host: str, program: str, is_client: Callable[[str], bool]) -> None:
    """Have the lines about a client show what it says of itself. Its first words count."""
    # A word can't look like another part of a line.
    words = (re.sub(r"[^\w.+-]", "_", printable(word, _LONGEST_WORD)) for word in (user, host, program))
    _said.setdefault(client, "{}@{}, {}".format(*words))
    if len(_said) > _CLIENTS_KEPT:
        del _said[next((other for other in _said if not is_client(other)), client)]


def shown(client: str) -> str:
    """Return a client's id, with what the client says of itself."""
    return f"{client} (says: {_said[client]})" if client in _said else client


def graph_loaded(graph: GraphEntry) -> None:
    """Log a graph whose gang was formed."""
    record = graph.record
    graphs.info(
        "%s loaded in %s by %s: %s vertices, %s directed edges, %s on %d ranks, %s, %s",
        _graph(record),
        format_seconds(record.read_seconds + record.build_seconds),
        shown(record.client),
        f"{record.stripe.n:,}",
        f"{sum(info.m_local for info in record.infos):,}",
        format_bytes(sum(info.nbytes for info in record.infos)),
        record.stripe.p,
        graph.formed.backend,
        graph.formed.exchange,
    )


def load_failed(name: str, client: str, error: str) -> None:
    """Log a load that was refused, that failed or that was cancelled."""
    graphs.warning("graph %r not loaded for %s: %s", name, shown(client), printable(error, _LONGEST_ERROR))


def save_began(record: GraphRecord, client: str, folder: str) -> None:
    """Log a save that begins."""
    graphs.info("%s is being saved to %s by %s", _graph(record), folder, shown(client))


def saved(record: GraphRecord, client: str, folder: str, nbytes: int, seconds: float) -> None:
    """Log a save that is over."""
    size, took = format_bytes(nbytes), format_seconds(seconds)
    graphs.info("%s saved to %s by %s: %s in %s", _graph(record), folder, shown(client), size, took)


def save_failed(record: GraphRecord, client: str, folder: str, error: str, seconds: float) -> None:
    """Log a save that failed."""
    took, why = format_seconds(seconds), printable(error, _LONGEST_ERROR)
    graphs.warning("%s not saved to %s by %s, after %s: %s", _graph(record), folder, shown(client), took, why)


def graph_unloaded(graph: GraphEntry, why: str) -> None:
    """Log a graph that is about to be freed, and why."""
    age = format_seconds(time.time() - graph.record.created)
    graphs.info("%s unloaded after %s and %s: %s", _graph(graph.record), age, counted(graph.runs, "run"), why)


def run_started(run: RunEntry) -> None:
    """Log a run whose turn has come."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s started after %s in the queue", _run(run), format_seconds(time.time() - run.queued))


def run_finished(run: RunEntry, finished: FinishedRun) -> None:
    """Log a run that finished, with the time since its start and the sum of its traversals' times."""
    if logger.isEnabledFor(logging.DEBUG):
        took, traversing = finished.ended - (run.started or run.queued), finished.seconds
        words = "%s finished in %s, traversing for %s"
        logger.debug(words, _run(run), format_seconds(took), format_seconds(traversing))


def run_ended_early(run: RunEntry, outcome: str, ended: FinishedRun) -> None:
    """Log a run that failed or was cancelled."""
    level = logging.WARNING if outcome == "failed" else logging.INFO
    logger.log(level, "%s %s after %s: %s", _run(run), outcome, format_seconds(ended.seconds), ended.error)


class Refusals:
    """Logs the runs that the queue refuses: the first at once, and then a count every ``_REFUSALS_SECONDS``.

    Attributes:
        count: number of all.
    """

    def __init__(self) -> None:
        self.count = 0
        self._logged = 0
        self._next: asyncio.TimerHandle | None = None

    def add(self, run: RunEntry, why: str) -> None:
        """Log or count a run that is refused."""
        self.count += 1
        if self._next is None:
            self._logged = self.count
            logger.warning("%s refused: %s", _run(run), why)
            self._wait()

    def _wait(self) -> None:
        self._next = asyncio.get_running_loop().call_later(_REFUSALS_SECONDS, self._tell)

    def _tell(self) -> None:
        more, self._next = self.count - self._logged, None
        if more:
            self._logged = self.count
            logger.warning("%s refused in %g s", counted(more, "more run"), _REFUSALS_SECONDS)
            self._wait()


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
    return f"run {run.run_id[:8]} ({count} of {run.graph.record.name!r} for {shown(run.client)})"
