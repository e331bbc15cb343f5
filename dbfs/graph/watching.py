"""Watch: a result that follows a living graph, batch by batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dbfs.cluster.awaiting import check_cancelled

if TYPE_CHECKING:
    from dbfs.graph.result import BFSResult
    from dbfs_workers.storage.id_table import Ids

LOOK_EVERY: Final = 0.05
"""Seconds between two looks for a batch of another client. A look takes half a millisecond of the scheduler."""


@dataclass(frozen=True)
class Change:
    """What a watched result went through at once: one batch, or several that came between two looks.

    Attributes:
        version: the graph's version that the result is of now.
        ids: ids whose distance changed, ascending: an int64 array, or an Arrow array.
    """

    version: int
    ids: Ids


class Watch:
    """A result that is kept up to date; ``Graph.watch`` returns one. Iterating waits for batches.

    Attributes:
        result: the result.
        timeout: seconds after which an iteration ends if no batch has come; None to wait for ever.
    """

    def __init__(self, result: BFSResult, timeout: float | None, deadline: float | str | None) -> None:
        self.result = result
        self.timeout = timeout
        self._deadline = deadline

    def update(self) -> Change | None:
        """Bring the result up to date now; return what changed, or None if no batch came. Errors as of its method."""
        before = self.result.version
        if self.result.update(deadline=self._deadline).version == before:
            return None
        return Change(self.result.version, self.result.changed())

    def __iter__(self) -> Iterator[Change]:
        """Wait for batches and yield what they changed, until ``timeout`` passes without one."""
        last = time.monotonic()
        while self.timeout is None or time.monotonic() < last + self.timeout:
            change = self.update()
            if change is not None:
                yield change
                last = time.monotonic()
            else:
                check_cancelled()
                time.sleep(LOOK_EVERY)
