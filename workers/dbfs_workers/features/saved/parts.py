"""A rank's part of a saved graph as it is in memory: the partition, the kept edges, the order, the ids.

Checksums find damage. The checks here find arrays that are whole and wrong, because a program other than dbfs wrote
them: no kernel may meet a column or a row offset that leads out of its arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dbfs_workers.base.errors import FormatError
from dbfs_workers.base.folder import Folder
from dbfs_workers.building.symmetry import imbalance, imbalance_and_largest
from dbfs_workers.features.saved.blocks import Content
from dbfs_workers.features.saved.manifest import SavedRank, SavedTable, array
from dbfs_workers.ids.table import INTEGER, IdTable, IdType, as_python, from_python, joined, sort_keys
from dbfs_workers.search.partition.ordering import DegreeOrder
from dbfs_workers.search.partition.partition import Csr, InputEdges, Partition, array_module, on_host
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    from dbfs_workers.ids.table import Ids


# Items that are checked at once: few enough for the cache of a core.
_HOST_ITEMS = 2**17
# On a GPU a check costs a launch, and 13 bytes an item.
_GPU_ITEMS = 2**24


@dataclass(frozen=True)
class RankFacts:
    """A rank's place in a saved graph. Attributes as of ``Partition``."""

    stripe: Stripe
    rank: int
    directed: bool
    input_edges: int


def partition(saved: SavedRank, facts: RankFacts, arrays: list[Any], path: str, threads: int) -> Partition:
    """Make a rank's partition of its file's arrays, NumPy's or CuPy's.

    Args:
        saved: the manifest's entry of the rank.
        facts: the rank's place in the graph.
        arrays: those of the file.
        path: the file's path, for messages.
        threads: threads of this process.

    Raises:
        FormatError: a row offset or a column leads out of the arrays or to no vertex.
    """
    csrs = [Csr(offsets, columns) for offsets, columns in zip(arrays[::2], arrays[1::2], strict=True)]
    for csr in csrs:
        check_rows(csr, facts.stripe, facts.rank, path)
    for csr in csrs if facts.directed else csrs[1:]:
        check_columns(csr, facts.stripe, path)
    found = 0 if facts.directed else balance_columns(csrs[0], facts.stripe, facts.rank, path, threads)
    return Partition(
        facts.stripe,
        facts.rank,
        csrs[0].row_offsets,
        csrs[0].columns,
        saved.self_loops,
        saved.duplicates,
        facts.input_edges,
        facts.directed,
        csrs[1] if len(csrs) > 1 else None,
        imbalance=found,
    )


def input_edges(n: int, arrays: list[Any], path: str) -> list[InputEdges]:
    """Return the batches of edges in a file of kept edges; raise ``FormatError`` for an id past the last vertex."""
    for ids in arrays:
        if ids.size and int(ids.max()) >= n:
            raise FormatError(f"{path} has an edge of the vertex {int(ids.max())}; vertices are 0..{n - 1}")
    return list(zip(arrays[::2], arrays[1::2], strict=True))


def degree_order(vertex: Any, path: str) -> DegreeOrder:
    """Make a degree order of its vertices by position, NumPy's or CuPy's, on the host.

    Raises:
        FormatError: a vertex is missing, or occurs twice.
    """
    xp: Any = array_module(vertex)
    n = vertex.size
    position = xp.full(n, n, np.uint32)
    inside = not n or int(vertex.max()) < n
    if inside:
        position[vertex] = xp.arange(n, dtype=np.uint32)
    # n writes fill n places only if each goes to its own.
    if not inside or (n and int(position.max()) >= n):
        raise FormatError(f"{path} is not an order of the vertices 0..{n - 1}: a vertex is missing or occurs twice")
    return DegreeOrder(on_host(position), on_host(vertex))


def check_rows(csr: Csr, stripe: Stripe, rank: int, path: str) -> None:
    """Raise ``FormatError`` unless row offsets ascend over all columns, and rows past the last vertex are empty."""
    offsets, columns = csr.row_offsets, csr.columns
    if int(offsets[0]) != 0 or int(offsets[-1]) != columns.size:
        raise FormatError(
            f"{path}: its rows begin at {int(offsets[0]):,} and end at {int(offsets[-1]):,} of {columns.size:,} columns"
        )
    owned = int(offsets[stripe.owned(rank)])
    if owned != columns.size:
        raise FormatError(f"{path}: {columns.size - owned:,} columns are of rows past the last vertex of rank {rank}")
    on_cpu = array_module(columns) is np
    items, ascend = (_HOST_ITEMS, _kernels().ascend) if on_cpu else (_GPU_ITEMS, _ascend)
    for at in range(0, offsets.size - 1, items):
        if not ascend(offsets[at : at + items + 1]):
            raise FormatError(f"{path}: its row offsets do not ascend between the rows {at:,} and {at + items:,}")


def check_columns(csr: Csr, stripe: Stripe, path: str) -> None:
    """Raise ``FormatError`` unless columns are internal ids of vertices."""
    on_cpu = array_module(csr.columns) is np
    items, are_vertices = (_HOST_ITEMS, _kernels().are_vertices) if on_cpu else (_GPU_ITEMS, _are_vertices)
    for at in range(0, csr.columns.size, items):
        ids = csr.columns[at : at + items]
        if not are_vertices(ids, stripe.n, stripe.p, stripe.n_local):
            raise _no_vertex(stripe, path, at, at + ids.size)


def balance_columns(csr: Csr, stripe: Stripe, rank: int, path: str, threads: int) -> int:
    """Check the columns of an undirected graph, and return their imbalance.

    On the host one pass does both: a column that is none of the rows of all ranks is found here. One that is a row past
    the last vertex has no reverse, since those rows are empty, and so the graph's imbalance is not 0.

    Errors as for ``check_columns``.
    """
    first_id = rank * stripe.n_local
    if array_module(csr.columns) is not np:
        check_columns(csr, stripe, path)
        return imbalance(csr, first_id)
    found, largest = imbalance_and_largest(csr, first_id, threads)
    if largest >= stripe.p * stripe.n_local:
        raise _no_vertex(stripe, path, 0, csr.columns.size)
    return found


def _no_vertex(stripe: Stripe, path: str, start: int, stop: int) -> FormatError:
    return FormatError(
        f"{path}: a column between {start:,} and {stop:,} is the internal id of no vertex, with n = {stripe.n} on "
        f"{stripe.p} ranks"
    )


def _kernels() -> Any:
    """Return the checks on the host. The import compiles kernels, and GPUs need none of these."""
    from dbfs_workers.search.partition.kernels import rows as row_kernels

    return row_kernels


def _ascend(offsets: Any) -> bool:
    """Return whether row offsets on the GPU ascend."""
    return not bool((offsets[1:] < offsets[:-1]).any())


def _are_vertices(columns: Any, n: int, p: int, n_local: int) -> bool:
    """Return whether columns on the GPU, at least one, are internal ids of vertices and not of padding rows."""
    if int(columns.max()) >= p * n_local:
        return False
    owner = columns // np.uint32(n_local)
    row = columns - owner * np.uint32(n_local)
    # A row below n // p is a vertex's on every rank.
    past = row >= np.uint32(n // p)
    if not bool(past.any()):
        return True
    return bool((row[past].astype(np.int64) * p + owner[past] < n).all())


Ends = tuple[Any, Any] | None
"""The first and the last id of a table; None if the table is empty."""


def id_table(folder: Folder, tables: Sequence[SavedTable], id_type: IdType, first: int, stop: int) -> IdTable:
    """Return the ids of the vertices from ``first`` to ``stop``; those of one whole file as they are in it.

    Raises:
        FormatError: the ids do not ascend, or are no ids.
        MissingFileError, UnreadableFileError, TruncatedFileError: see ``blocks.Content``.
    """
    parts = []
    for table in tables:
        low, high = max(first, table.first), min(stop, table.first + table.length)
        if low < high:
            parts.append(_ids(folder, table, id_type, low - table.first, high - table.first))
    if not parts:
        return IdTable(first, from_python([], id_type))
    ids = parts[0] if len(parts) == 1 else joined(parts)
    _require_ascending(ids, folder)
    return IdTable(first, ids)


def later_ids(folder: Folder, saved: SavedTable, id_type: IdType) -> Ids:
    """Return the ids that came after the load, in their order; errors as of ``id_table``, but for the order."""
    return _ids(folder, saved, id_type, 0, saved.length)


def ends(table: IdTable) -> Ends:
    """Return the first and the last id of a table as Python's values."""
    if len(table) == 0:
        return None
    first, last = (as_python(table.ids[at : at + 1])[0] for at in (0, len(table) - 1))
    return first, last


def _ids(folder: Folder, table: SavedTable, id_type: IdType, start: int, stop: int) -> Ids:
    """Return the ids of some rows of a table's file."""
    import pyarrow as pa

    content = Content(folder, table.file)
    columns: list[Any] = []
    for index, kind in enumerate(id_type.columns):
        if kind == INTEGER:
            columns.append(content.part(array(table.file, f"id.{index}"), start, stop))
            continue
        place = array(table.file, f"text.{index}")
        found: Any = content.part(array(table.file, f"ends.{index}"), start, stop + 1)
        low, high = int(found[0]), int(found[-1])
        if not 0 <= low <= high <= place.length or bool((found[1:] < found[:-1]).any()):
            raise FormatError(f"{folder.file(table.file.name)}: a string begins or ends outside of the text")
        text: Any = content.part(place, low, high)
        buffers = [pa.py_buffer(found - low if low else found), pa.py_buffer(text)]
        column = pa.LargeStringArray.from_buffers(stop - start, *buffers)
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise FormatError(f"{folder.file(table.file.name)}: {error}") from None
        columns.append(column)
    if not id_type.is_tuple:
        return columns[0]
    return pa.StructArray.from_arrays([pa.array(column) for column in columns], names=list(id_type.names))


def _require_ascending(ids: Ids, folder: Folder) -> None:
    """Refuse ids that are negative, or that do not ascend: lookups would find wrong vertices."""
    keys: Any = sort_keys(ids)
    if isinstance(keys, np.ndarray):
        right = bool(keys[0] >= 0) and bool((keys[1:] > keys[:-1]).all())
    else:
        import pyarrow.compute as pc

        right = len(keys) < 2 or bool(pc.all(pc.less(keys[:-1], keys[1:])).as_py())
    if not right:
        raise FormatError(f"{folder.path}: the ids of the vertices are negative, or do not ascend")
