"""Tasks that save a rank's part of a graph, and that load a part for the rank that saved it."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from dbfs_workers.base.errors import DeadlineExceededError, FormatError
from dbfs_workers.base.folder import Folder
from dbfs_workers.building.gpu_data import DeviceEdges
from dbfs_workers.building.reading import require_room, require_wanted
from dbfs_workers.features.saved import columns, parts, writing
from dbfs_workers.features.saved.blocks import Content, thread_count
from dbfs_workers.features.saved.manifest import RankColumns, SavedColumn, SavedFile, SavedRank, SavedTable
from dbfs_workers.features.saved.parts import RankFacts
from dbfs_workers.ids.table import IdTable, IdType, LaterIds, as_python
from dbfs_workers.search.partition.ordering import DegreeOrder
from dbfs_workers.search.partition.partition import InputEdges, Partition, PartitionInfo
from dbfs_workers.search.partition.partition import describe as partition_info
from dbfs_workers.search.partition.shared_rows import share


def save_rank(
    folder: Folder,
    token: str,
    partition: Partition,
    edges: list[InputEdges] | None,
    seconds: float,
    memory_share: float,
) -> SavedRank:
    """Write a rank's partition and its kept edges; return the manifest's entry of the rank.

    Args:
        token: the token in the names of the save's files.
        partition: the rank's partition, on the host or on the GPU.
        edges: the rank's kept edges; None if edges are not kept.
        seconds: longest time of the task.
        memory_share: share of the worker's memory limit that the worker's process may reach.

    Raises:
        OutputError: the file system refuses a file, or is full.
        GraphTooLargeError: the worker has no memory for a copy of a partition that is on the GPU.
        RunCancelledError, DeadlineExceededError: the task was cancelled, or took too long.
    """
    watch = _Watch(folder, seconds)
    kept = None if edges is None else writing.write_edges(folder, token, partition.rank, edges, watch.look)
    try:
        if not isinstance(partition.columns, np.ndarray):
            what = f"saving {folder.path}: the copy of rank {partition.rank}'s partition from its GPU"
            require_room(partition.nbytes, memory_share, what)
        return writing.write_partition(folder, token, partition.on(np), kept, watch.look)
    except BaseException:
        if kept is not None:
            folder.remove(kept.name)
        raise


def save_order(folder: Folder, token: str, order: DegreeOrder, seconds: float) -> SavedFile:
    """Write a graph's degree order; arguments and errors as of ``save_rank``."""
    return writing.write_order(folder, token, order, _Watch(folder, seconds).look)


def save_ids(folder: Folder, token: str, rank: int, table: IdTable, seconds: float) -> SavedTable | None:
    """Write a rank's table of ids, unless the table is empty; arguments and errors as of ``save_rank``."""
    return writing.write_ids(folder, token, rank, table, _Watch(folder, seconds).look)


def save_columns(
    folder: Folder, token: str, rank: int, partition: Any, edges: Any, vertices: Any, seconds: float
) -> tuple[RankColumns, tuple[SavedColumn, ...], tuple[SavedColumn, ...]]:
    """Write the columns of a rank's edges and vertices; return their files, and the columns of both.

    Args:
        partition: the rank's edges.
        edges: what has the columns of the rank's edges: see ``Beside.edge_keys``; None if there are none.
        vertices: what has the table of its vertices: see ``Beside.vertex_keys``; None if there is none.

    Raises:
        StaleRunError: the graph was updated meanwhile. Other arguments and errors as of ``save_rank``.
    """
    look, (out, into) = _Watch(folder, seconds).look, (None, None) if edges is None else edges.tables_of(partition)
    of_vertices = None if vertices is None else vertices.table
    tables = {"columns": out, "in-columns": into, "vertices": of_vertices}
    files = [
        None if table is None else columns.write(folder, f"{what}-{rank}-{token}.arrow", table, look)
        for what, table in tables.items()
    ]
    return RankColumns(*files), columns.columns_of(out), columns.columns_of(of_vertices)


def load_columns(folder: Folder, file: SavedFile, of: tuple[SavedColumn, ...], rows: int, ranks_here: int) -> Any:
    """Return the Arrow table of a file of columns, which has so many rows.

    Args:
        ranks_here: as of ``load_partition``.

    Errors as for ``columns.read``.
    """
    return columns.read(folder, file, of, 0, rows, thread_count(ranks_here))


def load_partition(
    folder: Folder,
    saved: SavedRank,
    facts: RankFacts,
    backend: str,
    ranks_here: int,
    later: SavedTable | None,
    id_type: IdType,
) -> Partition:
    """Return a rank's partition as it was saved: mapped or copied on a CPU, in the GPU's memory with ``cuda``.

    Rows that a rank may lead are copied into memory that peers can map instead: see ``shared_rows.share``.

    Args:
        saved, facts: as of ``parts.partition``.
        backend: ``cpu`` or ``cuda``.
        ranks_here: number of ranks of the graph on this host, which share its cores.
        later: the ids that came after the load, which each rank has; None if there are none.
        id_type: the type of the ids.

    Errors as for ``blocks.Content`` and ``upload``.
    """
    with _on(backend, f"loading rank {facts.rank} of {folder.path}"):
        arrays = _arrays(folder, saved.partition, backend, ranks_here)
        path = folder.file(saved.partition.name)
        partition = parts.partition(saved, facts, arrays, path, thread_count(ranks_here))
    if later is not None:
        ids = LaterIds(later.first)
        ids.extend(as_python(parts.later_ids(folder, later, id_type)), later.first)
        partition = replace(partition, later=ids)
    return share(partition) if backend == "cpu" else partition


def load_edges(folder: Folder, saved: SavedRank, facts: RankFacts, backend: str, ranks_here: int) -> list[InputEdges]:
    """Return the edges that a rank keeps; arguments and errors as of ``load_partition``."""
    file = saved.edges
    if file is None:
        raise FormatError(f"{folder.path} has no kept edges of rank {facts.rank}")
    with _on(backend, f"loading edges of {folder.path}"):
        arrays = _arrays(folder, file, backend, ranks_here)
        found = parts.input_edges(facts.stripe.n, arrays, folder.file(file.name))
        return [DeviceEdges(pair) for pair in found] if backend == "cuda" else found


def load_order(folder: Folder, file: SavedFile, backend: str, ranks_here: int) -> DegreeOrder:
    """Return a graph's degree order, on the host; arguments and errors as of ``load_partition``."""
    with _on(backend, f"loading the order of {folder.path}"):
        (vertex,) = _arrays(folder, file, backend, ranks_here)
        return parts.degree_order(vertex, folder.file(file.name))


def count(part: list[InputEdges] | DegreeOrder) -> int:
    """Return a number once a part is loaded, which itself stays on its worker."""
    return len(part) if isinstance(part, list) else part.vertex.size


def describe(partition: Partition) -> PartitionInfo:
    """Return a partition's counts: see ``partition.describe``."""
    device = "cpu" if isinstance(partition.columns, np.ndarray) else "cuda"
    with _on(device, f"describing the partition of rank {partition.rank}"):
        return partition_info(partition)


class _Watch:
    """Ends a write whose caller has left, or that takes too long."""

    def __init__(self, folder: Folder, seconds: float) -> None:
        self._doing = f"saving {folder.path}"
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def look(self) -> None:
        require_wanted(self._doing)
        if time.monotonic() > self._end:
            raise DeadlineExceededError(f"{self._doing}: not done after {self._seconds:g} s")


def _arrays(folder: Folder, file: SavedFile, backend: str, ranks_here: int) -> list[Any]:
    """Return the arrays of a file: on the host, or on the GPU with ``cuda``."""
    threads = thread_count(ranks_here)
    if backend == "cpu":
        return Content(folder, file, threads).all()
    from dbfs_workers.features.saved.upload import upload

    return upload(folder, file, threads)


def _on(backend: str, where: str) -> AbstractContextManager[None]:
    """Return a context for work on the GPU, whose errors become dbfs's; for the CPU, one that does nothing."""
    if backend == "cpu":
        return nullcontext()
    from dbfs_workers.search.cuda.failures import on_gpu

    return on_gpu(where)
