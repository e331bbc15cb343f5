"""The logs of living graphs on a worker: see ``log``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dbfs_workers.base.errors import StaleRunError
from dbfs_workers.features.living.messages import RankUpdate, refused_of
from dbfs_workers.features.rebuild.log import LogFile, Record, make_folder, new_decisions, redo_path
from dbfs_workers.serving.feature import WorkerView
from dbfs_workers.serving.turns.changes import Change, RankVersion, Redo, VersionLog


@dataclass
class _Log:
    """A rank's log.

    Attributes:
        redo: the rank's records.
        decisions: those of rank 0; None on the others.
        kept: the run whose version is kept, and may be decided.
    """

    redo: LogFile
    decisions: LogFile | None
    kept: str = ""


class VersionLogs(VersionLog):
    """Keeps the versions of the worker's ranks."""

    def __init__(self, view: WorkerView) -> None:
        super().__init__(view)
        # By graph id.
        self._logs: dict[str, _Log] = {}

    def open(self, graph_id: str, rank: int, path: str, version: int) -> None:
        folder = Path(path)
        make_folder(folder)
        decisions = None if rank else new_decisions(folder, graph_id, version)
        self._logs[graph_id] = _Log(LogFile(redo_path(folder, graph_id, rank)), decisions)

    def keeps(self, graph_id: str) -> bool:
        return graph_id in self._logs

    def keep(self, graph_id: str, run_id: str, redo: Redo) -> None:
        log = self._of(graph_id)
        log.redo.add(Record({"version": redo.version, "run": run_id, **redo.facts}, redo.arrays))
        log.kept = run_id

    def decide(self, graph_id: str, run_id: str, change: Change, ranks: Sequence[RankVersion]) -> None:
        log = self._of(graph_id)
        if log.kept != run_id:
            # No new version: the graph was frozen, say.
            return
        assert log.decisions is not None
        of_ranks = [rank for rank in ranks if isinstance(rank, RankUpdate)]
        first = of_ranks[0]
        facts = {
            "version": first.version,
            "run": run_id,
            "batch": change.batch_id or run_id,
            "kind": change.kind,
            "edges": sum(rank.edges for rank in of_ranks),
            "refused": refused_of(change.kind, of_ranks),
            "absent": first.absent,
        }
        log.decisions.add(Record(facts, {"vertices": first.vertices}))

    def leave(self, graph_id: str) -> None:
        log = self._logs.pop(graph_id, None)
        if log is not None:
            log.redo.close()
            if log.decisions is not None:
                log.decisions.close()

    def _of(self, graph_id: str) -> _Log:
        log = self._logs.get(graph_id)
        if log is None:
            raise StaleRunError(f"{self.view.worker.address} has left the gang of {graph_id}")
        return log
