"""Tables of a result's labels that the ranks make, a table each."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import distributed
import numpy as np

from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Gang, Key, Ref, TaskGraph, joined_workers, release
from dbfs.engines import PublishedLabels
from dbfs.graph.striped import StripedGraph
from dbfs.graph.tabular import require_compression
from dbfs_workers.base.folder import Folder
from dbfs_workers.ids.label_table import column, data_frame, label_table
from dbfs_workers.ids.table import from_python
from dbfs_workers.serving import tables

if TYPE_CHECKING:
    import dask.dataframe as dd


# Longest wait for the ranks to remove the files of a call that failed. A rank that still writes looks after each row
# group whether its task was cancelled.
_DISCARD_SECONDS: Final = 10.0


def dask_dataframe(
    graph: StripedGraph, run_id: str, labels: PublishedLabels, dtype: np.dtype[Any], *, unreached: bool
) -> dd.DataFrame:
    """Return labels of a run as ``BFSResult.to_dask_dataframe`` does; ``dtype`` is that of distances."""
    import dask
    import dask.dataframe as dd

    gang, plan = graph.gang, TaskGraph()
    keys = [table.key for table in _add_tables(plan, graph, labels, unreached=unreached)]
    futures = gang.submit(plan, keys)
    deadline, doing = of_call(), f"making tables of run {run_id}"
    try:
        gang.finish([*futures.values()], deadline, doing)
    except BaseException:
        release(futures.values())
        raise
    ids = from_python([], graph.id_type)
    predecessors = None if labels.predecessors is None else column(ids)
    empty = data_frame(label_table(ids, np.empty(0, dtype), predecessors, unreached=unreached))
    frame = dask.delayed(data_frame)
    # Dask would make text of tuples.
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_delayed([frame(futures[key]) for key in keys], meta=empty, verify_meta=False)


def write_parquet(
    graph: StripedGraph,
    publish: Callable[[], PublishedLabels],
    path: str | os.PathLike[str],
    *,
    unreached: bool,
    compression: str,
) -> None:
    """Write the labels that ``publish`` returns as ``BFSResult.to_parquet`` does."""
    # Loads pyarrow.
    from dbfs.edges.writers import label_files
    from dbfs.edges.writers.target import require_writable

    require_compression(compression)
    gang, folder, token = graph.gang, Folder.at(path), uuid.uuid4().hex
    require_writable(folder.path, shared=gang.client.cluster is None)
    deadline, doing, plan = of_call(), f"writing {folder.path}", TaskGraph()
    keys: list[Key] = [(f"write-part-{token}", rank) for rank in range(gang.p)]
    for rank, table in enumerate(_add_tables(plan, graph, publish(), unreached=unreached)):
        plan.add(rank, keys[rank], label_files.write_part, folder, token, rank, table, compression)
    published = False
    futures = gang.submit(plan, keys)
    try:
        gang.gather([*futures.values()], deadline, doing)
        published = True
        arguments = [(folder, token, rank) for rank in range(gang.p)]
        gang.on_each_rank("publish-part", label_files.publish_part, arguments, deadline, doing)
    except BaseException:
        release(futures.values())
        _discard(gang, folder, token, published)
        raise
    release(futures.values())


def _add_tables(plan: TaskGraph, graph: StripedGraph, labels: PublishedLabels, *, unreached: bool) -> list[Ref]:
    """Add the tasks that make each rank's table of labels; return the tables by rank."""
    token = uuid.uuid4().hex
    record, ranks = graph.record, range(graph.ranks)
    vertex = None
    if record.order_key is not None:
        vertex = plan.add(0, f"vertices-by-position-{token}", tables.vertices_by_position, Ref(record.order_key))
    rows = []
    for rank in ranks:
        parents = None if labels.predecessors is None else Ref(labels.predecessors[rank].key)
        key = (f"select-rows-{token}", rank)
        distances = Ref(labels.distances[rank].key)
        rows.append(plan.add(rank, key, tables.select_rows, distances, parents, graph.stripe, rank, vertex, unreached))
    ids = record.ids
    if not ids.keys:
        return [
            plan.add(rank, (f"label-table-{token}", rank), tables.number_table, rows[rank], ids.first_id, unreached)
            for rank in ranks
        ]
    held = [(at, Ref(table)) for at, table in enumerate(ids.keys)]
    firsts, ends = [*ids.firsts], [*ids.firsts[1:], ids.count]
    if graph.n > ids.count:
        later = (f"later-ids-{token}", 0)
        arguments = (Ref(record.partition_keys[0]), ids.count, graph.n, ids.id_type)
        held.append((0, plan.add(0, later, tables.later_table, *arguments)))
        firsts, ends = [*firsts, ids.count], [*ends, graph.n]
    made = []
    for rank in ranks:
        wanted, found = [], []
        for at, ((holder, table), first, last) in enumerate(zip(held, firsts, ends, strict=True)):
            asked = (f"wanted-vertices-{token}", rank, at)
            wanted.append(plan.add(rank, asked, tables.wanted_vertices, rows[rank], first, last))
            # On the rank that holds the table.
            found.append(plan.add(holder, (f"look-up-{token}", at, rank), tables.look_up, table, wanted[-1]))
        key = (f"label-table-{token}", rank)
        made.append(plan.add(rank, key, tables.make_table, rows[rank], wanted, found, graph.n, unreached))
    return made


def _discard(gang: Gang, folder: Folder, token: str, published: bool) -> None:
    """Remove the files of a call that failed: on the ranks that are left, and here for those that are lost."""
    from dbfs.edges.writers import label_files

    plan = TaskGraph()
    with suppress(Exception):
        alive = joined_workers(gang.client)
        keys: list[Key] = []
        for rank, address in enumerate(gang.addresses):
            if address in alive:
                keys.append((f"discard-part-{token}", rank))
                plan.add(rank, keys[-1], label_files.discard_part, folder, token, rank, published)
        futures = [*gang.submit(plan, keys).values()]
        try:
            distributed.wait(futures, timeout=min(_DISCARD_SECONDS, of_call().last))
        finally:
            release(futures)
    for rank in range(gang.p):
        label_files.discard_part(folder, token, rank, published)
