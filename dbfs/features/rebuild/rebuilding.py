"""Building a graph again, by the client that met the loss.

The ranks that stand keep their partitions. The source is read by all of them, as in the first build, and only the lost
ranks' edges are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dbfs import config
from dbfs.base.records import GraphRecord
from dbfs.building.build import build
from dbfs.building.builder import BuiltGraph
from dbfs.building.standing import Standing
from dbfs.cluster.awaiting import check_cancelled
from dbfs.cluster.deadline import Deadline, of_call
from dbfs.cluster.gang import Gang, Key, Ref, TaskGraph, release
from dbfs.errors import GraphLostError, WorkerLostError
from dbfs.features.rebuild.messages import BeginRebuild, EndRebuild, GiveUpRebuild, NoteRebuild, RebuildTask
from dbfs.features.rebuild.versions import log_of, places_of, redone, reports_of, require_all
from dbfs.features.saved.edges import SavedEdges
from dbfs.service.client import ServiceClient, error_words
from dbfs_workers.base.text import printable
from dbfs_workers.features.rebuild.log import Decision, decisions
from dbfs_workers.features.rebuild.tasks import arrived
from dbfs_workers.serving.queries import same_value

if TYPE_CHECKING:
    import distributed

    from dbfs.base.records import BuildProgress, Formation
    from dbfs.graph.striped import StripedGraph
    from dbfs.service.messages import Reports
    from dbfs_workers.search.partition.partition import PartitionInfo

# Seconds in which the scheduler notices a loss that a run met before: a process that ends closes its connection.
_NOTICE_SECONDS: Final = 3.0
# Share of a call's time that it waits for a worker in a lost one's place, if that is less than dbfs.rebuild-wait.
_WAIT_SHARE: Final = 0.5


def bring_back(graph: StripedGraph, ranks: int | None = None) -> None:
    """Have a graph whole again, and follow it: built by this client, or by another one that is at it already.

    Args:
        graph: an object of the graph, whose record may be of before.
        ranks: number of ranks to spread the graph over; None to keep its ranks.

    Raises:
        GraphLostError: the graph can't be built again; the message says why.
        NoWorkersError: there are fewer workers than ``ranks``.
        DeadlineExceededError: the deadline of the call has passed.
        Others as for ``dbfs.load``.
    """
    deadline, client = of_call(), graph.gang.client
    service, began = ServiceClient.of(client), time.monotonic()
    wait = min(config.seconds("rebuild-wait"), _WAIT_SHARE * deadline.remaining)
    why = f"{graph.name} is built again"
    while True:
        before = graph.record.graph_id
        answer = service.call(BeginRebuild(before, client.id, wait, deadline.last, ranks))
        if isinstance(answer, str):
            why = answer
        elif isinstance(answer, RebuildTask):
            try:
                graph.follow(*_rebuilt(service, answer, deadline))
            except WorkerLostError as error:
                # A worker was lost in the rebuild: the next attempt has another one.
                if isinstance(error, GraphLostError):
                    raise
                why = str(error)
            else:
                return
        else:
            if answer.record.graph_id != before:
                graph.follow(answer.record, answer.formed)
            if ranks is None or answer.record.stripe.p == ranks:
                # A line may have broken between two workers that are there. Otherwise the loss is noticed soon.
                if answer.record.graph_id != before or time.monotonic() > began + _NOTICE_SECONDS:
                    return
                time.sleep(deadline.interval())
        check_cancelled()
        deadline.enforce(why)


def _rebuilt(service: ServiceClient, task: RebuildTask, deadline: Deadline) -> tuple[GraphRecord, Formation]:
    """Build what is lost of a graph, and have the scheduler take it over; errors as of ``bring_back``."""
    gang = Gang(service.client, task.addresses)
    told = 0.0

    def tell(made: BuildProgress) -> None:
        nonlocal told
        if time.monotonic() > told + 1.0:
            told = time.monotonic()
            pieces = f", {made.pieces_read:,} of {made.pieces:,} pieces read" if made.pieces else ""
            service.send(NoteRebuild(task.rebuild_id, f"{made.stage}{pieces}"))

    try:
        record, held = (_moved if task.moved else _built)(gang, task, tell, deadline)
        try:
            record, more, reports = _with_versions(gang, task, record)
            held += more
            nbytes = sum(record.infos[rank].nbytes for rank in task.lost)
            formed = service.call(EndRebuild(record, nbytes, deadline.remaining, reports))
        finally:
            release(held)
    except BaseException as error:
        service.tell(GiveUpRebuild(task.rebuild_id, error_words(error)))
        raise
    return record, formed


def _built(
    gang: Gang, task: RebuildTask, tell: Callable[[BuildProgress], None], _: Deadline
) -> tuple[GraphRecord, list[distributed.Future]]:
    """Build what is lost of the source; return the graph as it is now, and the futures of its data."""
    before, lineage = task.record, task.lineage.value()
    standing = Standing(before, task.lost, task.ordered) if len(task.lost) < gang.p else None
    built = build(lineage.opened(before.name), gang, lineage.options, before.backend, tell, standing)
    try:
        _require_same(before, built, task)
    except BaseException:
        release(built.futures)
        raise
    record = replace(
        before,
        graph_id=task.rebuild_id,
        client=gang.client.id,
        addresses=task.addresses,
        layout=lineage.options.laid_out(gang.p),
        version=0,
        **built.recorded,
    )
    return record, built.futures


def _with_versions(
    gang: Gang, task: RebuildTask, record: GraphRecord
) -> tuple[GraphRecord, list[distributed.Future], Reports]:
    """Make the versions again that a log has, on the ranks that were built.

    Returns:
        The record of the last version, the futures of its partitions, and of the versions that the scheduler does not
        know the batches and their reports.

    Raises:
        GraphLostError: the log lacks a version, or is that of another graph. Others as of ``redone``.
    """
    before, lineage = task.record, task.lineage.value()
    found, places = list[Decision](), () if task.moved else lineage.versions
    if before.log:
        found = decisions(Path(before.log))
        require_all(before, found)
        places = places_of(found)
    if not places:
        return record, [], ()
    edges = lineage.opened(before.name)
    assert isinstance(edges, SavedEdges)
    record, futures = redone(gang, record, log_of(edges), places, task.lost, anew=not before.log)
    new = found[before.version :]
    changed = sum(decision.record.facts["edges"] + decision.record.arrays["vertices"].size for decision in new)
    record = replace(record, updated=before.updated + changed)
    if not new and [info.m_local for info in record.infos] != [info.m_local for info in before.infos]:
        release(futures)
        raise GraphLostError(f"{before.name} can't be built again: {log_of(edges)} has the log of another graph")
    return record, futures, reports_of(new, record)


def _moved(
    gang: Gang, task: RebuildTask, _: Callable[[BuildProgress], None], deadline: Deadline
) -> tuple[GraphRecord, list[distributed.Future]]:
    """Have the lost ranks' workers take what Dask has moved elsewhere; return the same as ``_built``."""
    before, graph, new = task.record, TaskGraph(), dict[Key, Key]()
    for rank in task.lost:
        for place, key in enumerate(before.keys_of(rank)):
            new[key] = graph.add(rank, (f"moved-{task.rebuild_id}", rank, place), arrived, Ref(key)).key
    if (order := before.order_key) is not None:
        # Rank 0 leads by its own copy, of which Dask may have kept another one.
        new[order] = graph.add(0, (f"order-{task.rebuild_id}", 0), same_value, Ref(order)).key
    futures = gang.submit(graph, new.values())
    held = list(futures.values())
    try:
        gang.finish(held, deadline, f"moving ranks of {before.name}")
    except BaseException:
        release(held)
        raise

    def renamed(keys: tuple[Key, ...]) -> tuple[Key, ...]:
        return tuple(new.get(key, key) for key in keys)

    record = replace(
        before,
        graph_id=task.rebuild_id,
        client=gang.client.id,
        addresses=task.addresses,
        partition_keys=renamed(before.partition_keys),
        ids=replace(before.ids, keys=renamed(before.ids.keys)),
        order_key=order and new[order],
        input_edge_keys=renamed(before.input_edge_keys),
        beside=before.beside and before.beside.renamed(new),
    )
    return record, held


def _require_same(before: GraphRecord, built: BuiltGraph, task: RebuildTask) -> None:
    """Check that what was built is the graph: the counts of the ranks, or of the whole graph if no rank stands.

    Raises:
        GraphLostError: it is another one.
    """
    if before.log or task.lineage.value().versions:
        # What was built is the graph as it was saved.
        return
    stands = len(task.lost) < len(task.addresses)
    old = [before.infos[rank] for rank in (task.lost if stands else range(before.stripe.p))]
    new = [built.infos[rank] for rank in task.lost]

    def counts(infos: list[PartitionInfo]) -> tuple[int, ...]:
        summed = (sum(getattr(info, name) for info in infos) for name in ("m_local", "self_loops", "duplicates"))
        return (*summed, max(info.max_degree for info in infos), infos[0].input_edges)

    alike = built.beside is None if before.beside is None else before.beside.is_like(built.beside)
    if not alike or (before.stripe.n, *counts(old)) != (built.stripe.n, *counts(new)):
        raise GraphLostError(
            f"{before.name} can't be built again: {printable(before.source)} has other edges or columns than when "
            "it was read; two ranks of two sources would be a wrong answer. Load the graph again, with replace=True"
        )
