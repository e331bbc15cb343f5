"""Saving a graph: every rank writes its files into a folder, and the manifest makes them a graph at the end.

The files are those of 1-D partitions. The ranks of a 2-D partition first join these of their blocks.
"""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any

from dbfs import config
from dbfs.base.build import build
from dbfs.base.records import GraphRecord
from dbfs.building.attributes import AttributeKeeper
from dbfs.building.stripes import has_in_edges, in_stripes
from dbfs.cluster.deadline import Deadline, of_call
from dbfs.cluster.gang import Gang, Key, Ref, TaskGraph, joined_workers, release, run_on
from dbfs.edges.writers.target import require_writable
from dbfs.errors import DbfsError, InvalidOptionError
from dbfs.features.saved import writer as work
from dbfs.service.client import ServiceClient, error_words
from dbfs.service.messages import NoteSave
from dbfs_workers.base.folder import Folder
from dbfs_workers.base.text import counted, printable
from dbfs_workers.features.saved import tasks
from dbfs_workers.features.saved.manifest import Manifest, SavedColumns, SavedFile, SavedIds, SavedRank, SavedTable
from dbfs_workers.features.saved.saves import Saver
from dbfs_workers.serving.tables import later_table

if TYPE_CHECKING:
    import distributed


def save(
    gang: Gang, record: GraphRecord, path: str | os.PathLike[str], keeper: AttributeKeeper | None, *, replace: bool
) -> int:
    """Save a graph; return the bytes of its files.

    ``keeper`` is what keeps the columns of edges. Other arguments and errors as of ``Graph.save``.
    """
    if record.infos[0].deleted:
        gone = counted(record.infos[0].deleted, "deleted vertex", "deleted vertices")
        raise InvalidOptionError(
            f"{record.name} has {gone}, which a saved graph can't keep: dbfs.load(graph.subgraph(ids)) makes a graph "
            "without them to save"
        )
    folder = Folder.at(path)
    require_writable(folder.path, shared=gang.client.cluster is None)
    deadline = of_call("build-deadline")
    doing = f"saving {record.name} to {folder.path}"
    # 12 digits, which no two saves into one folder share.
    token = uuid.uuid4().hex[:12]
    held: list[distributed.Future] = []
    made = False
    service = ServiceClient.of(gang.client)
    note = NoteSave(record.graph_id, gang.client.id, token, printable(folder.path))
    service.send(note)
    try:
        options = (folder, token, Saver.here(deadline.remaining), replace)
        (made,) = gang.on_each_rank(f"prepare-save-{token}", work.prepare, [options], deadline, doing)
        manifest = _write(gang, record, folder, token, held, deadline, doing, keeper)
        gang.on_each_rank(f"publish-save-{token}", work.publish, [(folder, token, manifest, replace)], deadline, doing)
        service.tell(replaced(note, nbytes=manifest.nbytes))
        return manifest.nbytes
    except BaseException as error:
        service.tell(replaced(note, error=error_words(error)))
        release(held)
        if _discard(gang, folder, token, made) and isinstance(error, DbfsError):
            raise type(error)(f"{error}. {folder.path} has the graph nevertheless: its manifest was written") from error
        raise
    finally:
        release(held)


def _write(
    gang: Gang,
    record: GraphRecord,
    folder: Folder,
    token: str,
    held: list[distributed.Future],
    deadline: Deadline,
    doing: str,
    keeper: AttributeKeeper | None,
) -> Manifest:
    """Have the ranks write their files, and return the manifest; ``held`` takes the futures of their tasks."""
    plan = TaskGraph()
    rank_keys: list[Key] = [(f"save-rank-{token}", rank) for rank in range(gang.p)]
    share = float(config.get("build.memory-share"))
    partitions = in_stripes(plan, record, token, share, doing)
    for rank, key in enumerate(rank_keys):
        edges = Ref(record.input_edge_keys[rank]) if record.input_edge_keys else None
        options = (deadline.seconds, share)
        plan.add(rank, key, work.on_listed, tasks.save_rank, folder, token, partitions[rank], edges, *options)
    order_keys: list[Key] = []
    if record.order_key is not None:
        order_keys.append((f"save-order-{token}", 0))
        order = Ref(record.order_key)
        plan.add(0, order_keys[0], work.on_listed, tasks.save_order, folder, token, order, deadline.seconds)
    table_keys: list[Key] = [(f"save-ids-{token}", rank) for rank in range(len(record.ids.keys))]
    for rank, (key, table) in enumerate(zip(table_keys, record.ids.keys, strict=True)):
        plan.add(rank, key, work.on_listed, tasks.save_ids, folder, token, rank, Ref(table), deadline.seconds)
    if record.ids.keys and record.stripe.n > record.ids.count:
        table_keys.append((f"save-ids-{token}", gang.p))
        some = (Ref(record.partition_keys[0]), record.ids.count, record.stripe.n, record.ids.id_type)
        later = plan.add(0, (f"later-ids-{token}", 0), later_table, *some)
        plan.add(0, table_keys[-1], work.on_listed, tasks.save_ids, folder, token, gang.p, later, deadline.seconds)
    column_keys: list[Key] = []
    if (beside := record.beside) is not None and (beside.edge_keys or beside.vertex_keys):
        of_edges = [*map(Ref, beside.edge_keys)]
        if record.layout is not None and of_edges:
            assert keeper is not None
            of_grid, both = [*map(Ref, record.partition_keys)], has_in_edges(record)
            of_edges = keeper.add_striped(plan, record, of_grid, partitions, token, both=both)
        column_keys = [(f"save-columns-{token}", rank) for rank in range(gang.p)]
        nothing: list[Any] = [None] * gang.p
        by_rank = [of_edges or nothing, [*map(Ref, beside.vertex_keys)] or nothing]
        for rank, (key, *of_rank) in enumerate(zip(column_keys, *by_rank, strict=True)):
            of_rank.insert(0, partitions[rank])
            plan.add(rank, key, work.on_listed, tasks.save_columns, folder, token, rank, *of_rank, deadline.seconds)
    keys = [*rank_keys, *order_keys, *table_keys, *column_keys]
    futures = gang.submit(plan, keys)
    held += futures.values()
    found = dict(zip(keys, gang.gather([futures[key] for key in keys], deadline, doing), strict=True))
    ranks, tables, columns = ([found[key] for key in some] for some in (rank_keys, table_keys, column_keys))
    kept = SavedColumns(columns[0][1], columns[0][2], tuple(files for files, *_ in columns)) if columns else None
    return _manifest(record, ranks, found[order_keys[0]] if order_keys else None, tables, kept)


def _manifest(
    record: GraphRecord,
    ranks: list[SavedRank],
    order: SavedFile | None,
    tables: list[SavedTable | None],
    columns: SavedColumns | None,
) -> Manifest:
    id_type = record.ids.id_type
    not_empty = tuple(table for table in tables if table is not None)
    later = not_empty[-1] if len(tables) > len(record.ids.keys) else None
    return Manifest(
        source=record.source,
        dbfs=build(),
        created=time.time(),
        n=record.stripe.n,
        directed=record.directed,
        in_edges=has_in_edges(record),
        input_edges=record.infos[0].input_edges,
        ranks=tuple(ranks),
        order=order,
        ids=SavedIds(record.ids.first_id, id_type.columns, id_type.names, not_empty[:-1] if later else not_empty),
        later=later,
        room=record.stripe.room if record.layout is None else 0,
        columns=columns,
    )


def _discard(gang: Gang, folder: Folder, token: str, made: bool) -> bool:
    """Remove what a save that failed has written; return whether it replaced the manifest.

    All workers that are still there do so, since they may have several disks. So does this process, for the workers
    that are lost.
    """
    found: list[bool] = []
    with suppress(Exception):
        there = joined_workers(gang.client)
        alive = [address for address in gang.addresses if address in there]
        # A worker awaits a coroutine function.
        answers: dict[str, Any] = run_on(
            gang.client, work.discard, folder, token, made, workers=alive, on_error="ignore"
        )
        found += answers.values()
    return any([*found, work.withdraw(folder, token, made)])
