"""How far a build is, as the scheduler's counts of its tasks tell."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dbfs.records import BuildProgress
from dbfs.service.build_stages import Stage
from dbfs.service.client import ServiceClient

if TYPE_CHECKING:
    import distributed

# What a piece is read by (``dbfs.build``).
_READS = "read-edges"


class BuildWatch:
    """Tells how far a build is, from its client.

    Args:
        client: the build's.
        token: what its keys end in.
        tell: is told.
    """

    def __init__(self, client: distributed.Client, token: str, tell: Callable[[BuildProgress], None]) -> None:
        self._service = ServiceClient.of(client)
        self._token = token
        self._tell = tell
        self._known: dict[str, Stage] = {}
        self._began = time.monotonic()

    def look(self) -> None:
        """Ask the scheduler, and tell."""
        found: dict[str, Stage] = self._service.call("build_stages", token=self._token)
        forgotten = {name: (0, tasks, tasks, nbytes) for name, (_, _, tasks, nbytes) in self._known.items()}
        self._known = {**forgotten, **found}
        _, read, pieces, bytes_read = self._known.get(_READS, (0, 0, 0, 0))
        self._tell(
            BuildProgress(
                stage=max(self._known, key=lambda name: self._known[name][0], default=""),
                done=sum(done for _, done, _, _ in self._known.values()),
                tasks=sum(tasks for _, _, tasks, _ in self._known.values()),
                pieces_read=read,
                pieces=pieces,
                bytes_read=bytes_read,
                seconds=time.monotonic() - self._began,
            )
        )
