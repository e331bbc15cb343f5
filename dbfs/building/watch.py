"""Progress of a build, from the scheduler's counts of the build's tasks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dbfs.records import BuildProgress
from dbfs.service.build_stages import Stage
from dbfs.service.client import ServiceClient
from dbfs.service.messages import CountBuildTasks

if TYPE_CHECKING:
    import distributed

# Name of the tasks that read a piece before the build (``builder`` and ``numbering``).
_READ_STAGE = "read-edges"
# Name of the tasks that bin a piece, and read it if it was not read before (``on_cpu``).
_BIN_STAGE = "bin-edges"

# The stage that a task belongs to, by the task's name (``builder``, ``numbering``, ``on_cpu``, ``on_gpu``). All other
# tasks build.
_STAGES = {
    **dict.fromkeys(("read-edges", "keep-edges", "count-edges", "input-edges", "bin-edges"), "reading"),
    **dict.fromkeys(
        (
            *("rank-ids", "summarise-piece", "sample-ids", "id-splitters", "split-ids", "ids-part", "unite-ids"),
            *("count-ids", "id-table", "id-ends", "id-places", "id-vertices", "id-bytes", "number-edges"),
        ),
        "numbering",
    ),
    **dict.fromkeys(
        ("count-degrees", "add-degrees", "offer-degrees", "degrees-read", "degree-order", "kept-order", "order"),
        "ordering",
    ),
    **dict.fromkeys(("open-bins", "bins-open", "offer-bins", "collect", "bins-read", "edges-read"), "exchanging"),
}


class BuildWatch:
    """Reports a build's progress to the client that builds.

    Args:
        client: the client that builds.
        token: the token at the end of the build's keys.
        ranks: number of ranks.
        progress: called with each report.
    """

    def __init__(
        self, client: distributed.Client, token: str, ranks: int, progress: Callable[[BuildProgress], None]
    ) -> None:
        self._service = ServiceClient.of(client)
        self._token = token
        self._ranks = ranks
        self._binned: tuple[int, ...] = ()
        self._progress = progress
        self._stages: dict[str, Stage] = {}
        self._began = time.monotonic()

    def report(self) -> None:
        """Fetch the counts from the scheduler and report them."""
        found, binned = self._service.call(CountBuildTasks(self._token, self._ranks))
        # Likewise the tasks themselves: empty once all pieces are binned.
        self._binned = binned or self._binned
        # The scheduler drops the counts of a stage that is over; its tasks count as done.
        over = {name: (0, tasks, tasks, nbytes) for name, (_, _, tasks, nbytes) in self._stages.items()}
        self._stages = {**over, **found}
        busy = max(self._stages, key=lambda name: self._stages[name][0], default=_READ_STAGE)
        _, read, pieces, bytes_read = self._stages.get(_READ_STAGE, (0, 0, 0, 0))
        if not pieces:
            _, read, pieces, _ = self._stages.get(_BIN_STAGE, (0, 0, 0, 0))
        self._progress(
            BuildProgress(
                # A task of a turn has the turn in its name: offer-bins-0.
                stage=_STAGES.get(busy.rstrip("-0123456789"), "building"),
                done=sum(done for _, done, _, _ in self._stages.values()),
                tasks=sum(tasks for _, _, tasks, _ in self._stages.values()),
                pieces_read=read,
                pieces=pieces,
                bytes_read=bytes_read,
                binned=self._binned,
                seconds=time.monotonic() - self._began,
            )
        )
