"""Rebuilds on the scheduler: what graphs were made of, and which client builds which graph again.

The scheduler builds nothing. The first client that asks for a lost graph builds it, and the others wait: a rebuild has
a new graph id, under which the name and the workers are reserved, so that two clients never build one graph.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from dataclasses import dataclass, field
from typing import Final

from dbfs.base.records import Formation
from dbfs.base.units import format_bytes, format_seconds
from dbfs.cluster.gang import host_of
from dbfs.cluster.worker_states import rank_order
from dbfs.errors import GraphLostError, GraphNotFoundError, InvalidOptionError, NoWorkersError, StaleRunError
from dbfs.features.rebuild.lineage import Lineage
from dbfs.features.rebuild.messages import (
    AwaitLoss,
    BeginRebuild,
    EndRebuild,
    GetGraphState,
    GiveUpRebuild,
    GraphState,
    KeepLineage,
    NoteRebuild,
    Present,
    RebuildTask,
)
from dbfs.service.entries import GraphEntry, QueuedRun, Reservation
from dbfs.service.feature import SchedulerFeature, ServiceView
from dbfs.service.log import GRAPHS, shown
from dbfs_workers.base.errors import GraphMovedError
from dbfs_workers.base.text import counted
from dbfs_workers.search.exchange.protocol import Cause
from dbfs_workers.serving.rpc import PickledValue

logger = logging.getLogger(GRAPHS)

_LATER: Final = "the next call builds it again"
# Seconds after which a client that waits is told why, and seconds between two looks until then.
_ANSWER_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.05
_OF_CLIENT: Final = (
    "its edges came from a client's memory, which the scheduler does not keep: load it with checkpoint=FOLDER, or from "
    "a file"
)


@dataclass
class _Past:
    """What is known of a graph beside its entry. It stays with the graph when the graph gets a new id.

    Attributes:
        lineage: what the graph was made of; None if it can't be built again.
        why_not: why it can't.
        asked: when a client first asked for the lost graph, in seconds of ``time.monotonic()``; None if none did.
        task: the rebuild under way; None if there is none.
        client: id of the client that makes it.
        began, ends: when it began, and when it is over at the latest, in seconds of ``time.monotonic()``.
        progress: its stage, in words.
        failed: why the last attempt failed, in words; empty if none did.
        rebuilt, seconds, built: as of ``GraphState``.
    """

    lineage: PickledValue[Lineage] | None = None
    why_not: str = ""
    asked: float | None = None
    task: RebuildTask | None = None
    client: str = ""
    began: float = 0.0
    ends: float = 0.0
    progress: str = ""
    failed: str = ""
    rebuilt: int = 0
    seconds: float = 0.0
    built: int = field(default=0)


class Rebuilds(SchedulerFeature):
    """Keeps the lineages of graphs, and has one client at a time build a lost graph again."""

    def __init__(self, view: ServiceView) -> None:
        super().__init__(view)
        # By graph id.
        self._pasts: dict[str, _Past] = {}

    @KeepLineage.handler
    async def keep_lineage(self, message: KeepLineage) -> None:
        graph = self.view.graph(message.graph_id)
        past, beside = self._past(graph), graph.record.beside
        past.lineage = message.lineage if message.saved or beside is None or not beside.why_not else None
        past.why_not = message.why_not or past.why_not
        graph.stands = past.lineage is not None
        graph.returning = _LATER if graph.stands else ""

    @BeginRebuild.handler
    async def begin_rebuild(self, message: BeginRebuild) -> RebuildTask | Present | str:
        end = time.monotonic() + _ANSWER_SECONDS
        while True:
            answer = await self._answer(message)
            if not isinstance(answer, str) or time.monotonic() > end:
                return answer
            await asyncio.sleep(_LOOK_SECONDS)

    @NoteRebuild.handler
    async def note_rebuild(self, message: NoteRebuild) -> None:
        for past in self._pasts.values():
            if past.task is not None and past.task.rebuild_id == message.rebuild_id:
                past.progress = message.progress
                self.view.table.latest(past.task.record.graph_id).returning = message.progress

    @EndRebuild.handler
    async def end_rebuild(self, message: EndRebuild) -> Formation:
        record = message.record
        graph, past = self._of_rebuild(record.graph_id)
        task = past.task
        assert task is not None
        try:
            moved = await self._moved(graph, past, task, message)
        except BaseException as error:
            self._give_up(past, f"{type(error).__name__}: {error}")
            raise
        moved.returning = _LATER
        moved.decided.update((batch_id, report.value()) for batch_id, report in message.reports)
        self._pasts.pop(task.record.graph_id, None)
        took = time.monotonic() - past.began
        self._pasts[record.graph_id] = _Past(past.lineage, rebuilt=past.rebuilt + 1, seconds=took, built=message.built)
        logger.warning(
            "graph %r (%s, before %s) is back after %s: %s; %s of %s built by %s, %s on %s",
            *(record.name, record.graph_id[:8], task.record.graph_id[:8], format_seconds(took), task.why),
            *(counted(len(task.lost), "rank"), record.stripe.p, shown(past.client), format_bytes(message.built)),
            ", ".join(record.addresses[rank] for rank in task.lost),
        )
        return moved.formed

    async def _moved(self, graph: GraphEntry, past: _Past, task: RebuildTask, message: EndRebuild) -> GraphEntry:
        """Put what was built in the place of what is left of a graph; errors as of ``EndRebuild``."""
        record, end = message.record, time.monotonic() + message.deadline
        if graph.lost:
            # Its run may be ending still.
            await self.view.records.turns.stop(task.record.graph_id, Cause.LOST, task.why)
            return await self.view.table.move(graph, record, end)
        # Between two runs: later ones follow the graph.
        run = QueuedRun(graph, past.client, record.graph_id, 0, message.deadline, update="rebalance")
        async with self.view.turn(run):
            moved = await self.view.table.move(graph, record, end)
            for waiting in self.view.records.queue.runs:
                if waiting.graph is graph and waiting is not run:
                    waiting.stop(GraphMovedError(f"{record.name} was spread anew"))
            return moved

    @GiveUpRebuild.handler
    async def give_up_rebuild(self, message: GiveUpRebuild) -> None:
        for past in self._pasts.values():
            if past.task is not None and past.task.rebuild_id == message.rebuild_id:
                self._give_up(past, message.error)

    @GetGraphState.handler
    async def get_graph_state(self, message: GetGraphState) -> GraphState:
        return self.state(self.view.table.latest(message.graph_id))

    @AwaitLoss.handler
    async def await_loss(self, message: AwaitLoss) -> bool:
        end = time.monotonic() + message.seconds
        while not (lost := bool(self.view.table.latest(message.graph_id).lost)) and time.monotonic() < end:
            await asyncio.sleep(_ANSWER_SECONDS)
        return lost

    def state(self, graph: GraphEntry) -> GraphState:
        """Return the state of a graph with respect to its ranks."""
        past, record = self._past(graph), graph.record
        under_way = past.task is not None and self._is_there(past)
        why = past.task.why if under_way and past.task else _lost(graph) if graph.lost else ""
        return GraphState(
            state="rebuilding" if under_way else "lost" if graph.lost else "whole",
            lost=tuple(sorted(graph.lost)),
            why=f"{why}; {past.failed}" if past.failed and graph.lost else why,
            progress=past.progress if under_way else "",
            rebuilt=past.rebuilt,
            seconds=past.seconds,
            bytes_built=past.built,
            can_return=past.lineage is not None and (not record.version or bool(record.log)),
        )

    async def _answer(self, message: BeginRebuild) -> RebuildTask | Present | str:
        """See ``BeginRebuild``: the answer at this moment."""
        graph = self.view.table.latest(message.graph_id)
        past, record = self._past(graph), graph.record
        if past.task is not None and self._is_there(past):
            return f"{shown(past.client)} builds {record.name} again ({past.progress or 'begins'}): {past.task.why}"
        if past.task is not None:
            self._give_up(past, f"its client {past.client} left, or took too long")
        moved = record.graph_id != message.graph_id
        if not graph.lost and (message.ranks is None or moved):
            past.asked = None
            return Present(record, graph.formed)
        self._require_way(graph, past, spread=message.ranks is not None)
        past.asked = past.asked or time.monotonic()
        # The ranks of a log stay as many.
        late = time.monotonic() - past.asked > message.wait and not record.log
        addresses = self._addresses(graph, message.ranks, late=late)
        if isinstance(addresses, str):
            return addresses
        past.ends = time.monotonic() + message.seconds
        return await self._begun(graph, past, message.client, addresses)

    async def _begun(self, graph: GraphEntry, past: _Past, client: str, addresses: tuple[str, ...]) -> RebuildTask:
        """Give a client the rebuild of a graph on these workers."""
        record = graph.record
        assert past.lineage is not None
        # What a rank on a GPU or of a grid has is not kept: all of them are built anew. So are those of a graph that
        # takes updates: some ranks may have made one that others have not.
        striped = record.backend == "cpu" and record.layout is None and not (record.mutable or record.log)
        stands = bool(graph.lost) and striped and len(addresses) == record.stripe.p
        table, ordered = self.view.table, record.order_key is None or self.view.table.holds([record.order_key])
        moved = stands and ordered and all(table.moved(graph, rank) for rank in graph.lost)
        # What lies beside the partitions is dealt to all ranks at once.
        stands = moved or (stands and record.beside is None)
        ranks = range(len(addresses))
        lost = tuple(rank for rank in ranks if not stands or rank in graph.lost)
        why = _lost(graph) if graph.lost else f"spread over {counted(len(addresses), 'rank')}"
        rebuild_id = uuid.uuid4().hex
        past.task = RebuildTask(rebuild_id, record, lost, addresses, past.lineage, why, ordered, moved)
        past.client, past.began, past.progress, past.asked = client, time.monotonic(), "", None
        graph.returning = f"is built again by {shown(client)}"
        name = record.name if record.named else None
        self.view.table.reserved[rebuild_id] = Reservation(client, addresses, name)
        logger.warning("graph %r (%s) is built again by %s: %s", record.name, record.graph_id[:8], shown(client), why)
        task = past.task
        if graph.lost and len(lost) == len(addresses):
            # Nothing of it is used again, and the workers need the room.
            graph.lost.update(range(record.stripe.p))
            await self.view.table.disband(graph)
        return task

    def _addresses(self, graph: GraphEntry, ranks: int | None, *, late: bool) -> tuple[str, ...] | str:
        """Return the workers of a graph's next ranks; why it waits, in words, if they are not there yet.

        Raise ``NoWorkersError`` if there are fewer than ``ranks``.
        """
        before, scheduler = graph.record.addresses, self.view.records.scheduler
        there = {worker.address for worker in scheduler.running}
        stay = [None if rank in graph.lost or at not in there else at for rank, at in enumerate(before)]
        of_graphs = [at for other in self.view.records.graphs.values() for at in other.record.addresses]
        # On the host of a rank that is lost, and with few other graphs.
        hosts = {host_of(before[rank]) for rank in graph.lost}
        free = sorted(
            there.difference(filter(None, stay)),
            key=lambda at: (host_of(at) not in hosts, of_graphs.count(at), rank_order(at)),
        )
        wanted = len(before) if ranks is None else ranks
        if ranks is None and len(free) >= stay.count(None):
            return tuple(at or free.pop(0) for at in stay)
        kept = [at for at in stay if at is not None]
        if ranks is None and (not late or not (kept or free)):
            return f"{graph.record.name} waits for {counted(stay.count(None) - len(free), 'worker')}: {_lost(graph)}"
        if ranks is not None and len(kept) + len(free) < ranks:
            raise NoWorkersError(
                f"{graph.record.name}: {counted(ranks, 'rank')} need as many workers, and the cluster has "
                f"{len(kept) + len(free)}; start more workers, or ask for fewer ranks"
            )
        return tuple([*kept, *free][:wanted])

    def _require_way(self, graph: GraphEntry, past: _Past, *, spread: bool) -> None:
        """Raise the error of a graph that can't be built again."""
        record, why = graph.record, ""
        if past.lineage is None:
            why = past.why_not
        elif record.log and spread:
            why = f"the log of its versions, {record.log}, is of {counted(record.stripe.p, 'rank')}"
        elif record.version and not record.log:
            why = (
                f"updates made version {record.version} of it, which its source does not have; "
                "save() keeps a version that load() reads again"
            )
        if why and spread and not graph.lost:
            raise InvalidOptionError(f"{record.name} can't be built on other ranks: {why}")
        if why:
            raise GraphLostError(f"{record.name}: {_lost(graph)}, and it can't be built again: {why}")

    def _past(self, graph: GraphEntry) -> _Past:
        known = self.view.records.graphs
        if len(self._pasts) >= len(known):
            self._pasts = {graph_id: past for graph_id, past in self._pasts.items() if graph_id in known}
        beside = graph.record.beside
        past = _Past(why_not=(beside.why_not if beside is not None else "") or _OF_CLIENT)
        return self._pasts.setdefault(graph.record.graph_id, past)

    def _of_rebuild(self, rebuild_id: str) -> tuple[GraphEntry, _Past]:
        """Return the graph that a rebuild is of; errors as of ``EndRebuild``."""
        for graph_id, past in self._pasts.items():
            if past.task is not None and past.task.rebuild_id == rebuild_id and self._is_there(past):
                return self.view.table.latest(graph_id), past
        raise StaleRunError(f"the rebuild {rebuild_id} is over, since its client was taken for gone")

    def _is_there(self, past: _Past) -> bool:
        """Return whether the client of the rebuild under way is in the cluster, and has time left."""
        there = past.task is not None and past.task.rebuild_id in self.view.table.reserved
        return there and time.monotonic() < past.ends

    def _give_up(self, past: _Past, why: str) -> None:
        assert past.task is not None
        record = past.task.record
        logger.warning("graph %r (%s) was not built again: %s", record.name, record.graph_id[:8], why)
        self.view.table.reserved.pop(past.task.rebuild_id, None)
        with contextlib.suppress(GraphNotFoundError):
            self.view.table.latest(record.graph_id).returning = _LATER
        past.task, past.failed = None, f"the last attempt failed: {why}"


def _lost(graph: GraphEntry) -> str:
    """Return which ranks a graph lost, in words."""
    ranks = ", ".join(f"{rank} ({graph.record.addresses[rank]})" for rank in sorted(graph.lost))
    return f"lost rank {ranks}"
