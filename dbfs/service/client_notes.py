"""What clients tell the scheduler for its log and its metrics: who they are, loads that failed, saves.

Clients wait for none of it. The words are theirs, and are not checked.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from dbfs import errors
from dbfs.base.records import GraphRecord
from dbfs.service import log
from dbfs.service.entries import GraphEntry, Reservation
from dbfs.service.messages import EndLoad, Introduce, NoteSave


@dataclass(frozen=True)
class _Save:
    """A save that has begun, at ``began`` seconds of ``time.monotonic()``."""

    record: GraphRecord
    client: str
    folder: str
    began: float


class ClientNotes:
    """Takes what clients tell.

    Args:
        graphs: the graphs by graph id.
        reserved: reservations for graphs that are being built, by graph id.
        is_client: whether an id is that of a client in the cluster.

    Attributes:
        loads: number of loads by outcome: ``loaded``, or how it failed (see ``_outcome``).
        saves: number of saves by outcome: ``saved``, or how it failed.
        saved_bytes: bytes of the files of all saves.
    """

    def __init__(
        self, graphs: dict[str, GraphEntry], reserved: dict[str, Reservation], is_client: Callable[[str], bool]
    ) -> None:
        self.loads = Counter({"loaded": 0})
        self.saves = Counter({"saved": 0})
        self.saved_bytes = 0
        self._graphs = graphs
        self._reserved = reserved
        self._is_client = is_client
        self._saving: dict[str, _Save] = {}

    @Introduce.handler
    async def introduce(self, message: Introduce) -> None:
        if self._is_client(message.client):
            log.introduce(message.client, message.user, message.host, message.program, self._is_client)

    @EndLoad.handler
    async def end_load(self, message: EndLoad) -> None:
        self._reserved.pop(message.graph_id, None)
        self.loads[_outcome(message.error)] += 1
        log.load_failed(message.name, message.client, message.error)

    @NoteSave.handler
    async def note_save(self, message: NoteSave) -> None:
        if message.nbytes is None and message.error is None:
            graph = self._graphs.get(message.graph_id)
            if graph is not None and self._is_client(message.client):
                save = _Save(graph.record, message.client, message.folder, time.monotonic())
                self._saving[message.save_id] = save
                log.save_began(save.record, save.client, save.folder)
            return
        begun = self._saving.pop(message.save_id, None)
        if begun is not None:
            self._end(begun, message.nbytes or 0, message.error)

    def remove_client(self, client: str) -> None:
        """Note that the loads and the saves of a client end, which left."""
        left = "ClientError: its client left"
        for reservation in list(self._reserved.values()):
            if reservation.client == client:
                self.loads[_outcome(left)] += 1
                log.load_failed(reservation.name or "without a name", client, left)
        for save_id, save in list(self._saving.items()):
            if save.client == client:
                del self._saving[save_id]
                self._end(save, 0, left)

    def _end(self, save: _Save, nbytes: int, error: str | None) -> None:
        seconds = time.monotonic() - save.began
        if error is None:
            self.saves["saved"] += 1
            self.saved_bytes += nbytes
            log.saved(save.record, save.client, save.folder, nbytes, seconds)
        else:
            self.saves[_outcome(error)] += 1
            log.save_failed(save.record, save.client, save.folder, error, seconds)


def _outcome(error: str) -> str:
    """Return the class of an error for metrics: one of dbfs's own, ``cancelled`` or ``other``."""
    name = error.partition(":")[0]
    return name if name == "cancelled" or isinstance(getattr(errors, name, None), type) else "other"
