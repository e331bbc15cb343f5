"""Watch: a result that follows a living graph, batch by batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dbfs.cluster.awaiting import check_cancelled
from dbfs.cluster.own_process import StaysHere

if TYPE_CHECKING:
    from dbfs.graph.result import BFSResult
    from dbfs_workers.storage.id_table import Ids

LOOK_SECONDS: Final = 0.05
"""Seconds between two looks for a batch of another client. A look takes half a millisecond of the scheduler."""


@dataclass(frozen=True)
class Change:
    """The change of a watched result by one batch, or by several that came between two looks.

    Attributes:
        version: version of the graph whose labels the result has now.
        ids: ids whose distance changed, ascending: an int64 array, or an Arrow array.
    """

    version: int
    ids: Ids


class Watch(StaysHere):
    """A result that is kept up to date; ``Graph.watch`` returns one. Iterating waits for batches.

    Attributes:
        result: the result.
        timeout: seconds after which an iteration ends if no batch has come; None to wait for ever.
    """

    def __init__(self, result: BFSResult, timeout: float | None, deadline: float | str | None) -> None:
        self.result = result
        self.timeout = timeout
        self._deadline = deadline

    @property
    def elsewhere(self) -> str:
        """See ``StaysHere``."""
        return "send the changes instead"

    def update(self) -> Change | None:
        """Bring the result up to date now; return the change, or None if no batch came. Errors as for ``update``."""
        before = self.result.version
        if self.result.update(deadline=self._deadline).version == before:
            return None
        return Change(self.result.version, self.result.changed())

    def __iter__(self) -> Iterator[Change]:
        """Wait for batches and yield their changes, until ``timeout`` passes without a batch."""
        last = time.monotonic()
        while self.timeout is None or time.monotonic() < last + self.timeout:
            change = self.update()
            if change is not None:
                yield change
                last = time.monotonic()
            else:
                check_cancelled()
                time.sleep(LOOK_SECONDS)
