"""Results that are brought up to date with the updates of their graph, by hand or by watching for updates."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

import numpy as np

from dbfs.base.calls import part_of, public
from dbfs.cluster.awaiting import check_cancelled
from dbfs.cluster.deadline import bounded
from dbfs.cluster.own_process import StaysHere
from dbfs.engines.resident import ResidentEngine
from dbfs.graph.result import BFSResult
from dbfs.graph.traversing import finished
from dbfs_workers.base.spec import RunSpec
from dbfs_workers.features.living.purpose import Repair
from dbfs_workers.serving.reads.messages import KeptLabels

if TYPE_CHECKING:
    from dbfs_workers.ids.sequence import CallerIds


@part_of("BFSResult")
class LivingResult(BFSResult):
    """A result that can be brought up to date."""

    # Whether the last update had something to do.
    _repaired = False

    @bounded()
    def update(self, *, deadline: float | str | None = None) -> Self:
        """Bring the labels up to date with the graph's version, and return this result.

        The ranks repair distances and predecessors by work in proportion to what has changed. They make a new traversal
        instead if the repair would look at too many edges, if too many changes came since ``version``, or if the labels
        were published. Counts, ``depth``, ``seconds``, ``run_id`` and ``version`` are those of the repair, which has no
        levels to report. A result that is up to date stays as it is.

        Args:
            deadline: seconds (or a Dask duration) that the call may wait, the queue included; ``dbfs.deadline`` if
                None.

        Raises:
            InvalidOptionError: the run recorded no predecessors, which show what depends on a deleted edge.
            InvalidVertexError: a source was deleted. The result stays of its version.
            ResultReleasedError: the result was released, or the graph was unloaded.
            GraphNotFoundError: another client unloaded the graph.
            QueueFullError, NoRoomForLabelsError, WorkerLostError, DeadlineExceededError, RunCancelledError,
            RunAbortedError: the run ended early. If it had begun, the labels are released; the next ``update`` makes a
                new traversal.
        """
        self._require_predecessors()
        location = self.label_location
        if self.version == self.graph.record.version:
            # Another client may have updated the graph.
            self.graph.refresh()
        if self.version == self.graph.record.version:
            self._repaired = False
            return self
        place = (location.run_id, location.index) if isinstance(location, KeptLabels) else (self.run_id, 0)
        spec = replace(self.spec, run_id=uuid.uuid4().hex, purpose=None)
        self.graph.require_loaded()
        run = RunSpec.single(replace(spec, purpose=Repair(place)))
        ((_, outcome),) = finished(self.graph, ResidentEngine(), run, progress=False)
        # Frees the labels of the version before, where the ranks have not repaired them in place.
        self.release()
        self._take(spec, "resident", outcome)
        self._repaired = True
        return self

    @bounded()
    def changed(self) -> CallerIds:
        """Return the ids whose distance the last ``update`` has changed, ascending, as of ``Graph.ids_of``.

        If ``update`` had no labels to compare with, since they were published or lost, these are all reached ids.

        Raises:
            ResultReleasedError: the result was released, or published since. Other errors as for ``distances``.
        """
        vertices = self.reader().changed() if self._repaired else np.empty(0, np.int64)
        return self.graph.ids_of(vertices)


L = TypeVar("L", bound=LivingResult, covariant=True)

LOOK_SECONDS: Final = 0.05
"""Seconds between two looks for a batch of another client. A look takes half a millisecond of the scheduler."""


@dataclass(frozen=True)
class Change:
    """The change of a watched result by one batch, or by several that came between two looks.

    Attributes:
        version: version of the graph whose labels the result has now.
        ids: ids whose distance changed, ascending, as of ``Graph.ids_of``.
    """

    version: int
    ids: CallerIds


@public
class Watch(StaysHere, Generic[L]):
    """A result that is kept up to date; ``Graph.watch`` returns one. Iterating waits for batches.

    Attributes:
        timeout: seconds after which an iteration ends if no batch has come; None to wait for ever.
    """

    def __init__(self, result: L, timeout: float | None, deadline: float | str | None) -> None:
        self.result = result
        self.timeout = timeout
        self._deadline = deadline

    @property
    def elsewhere(self) -> str:
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
