"""Files of a saved graph: arrays written as columns of an Arrow IPC file, with the facts that the manifest needs.

A rank's adjacency lists are one column of lists, which is a CSR in Arrow's own form, so that the arrays are written as
they are and mapped as they are.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.folder import Folder
from dbfs_workers.features.saved.manifest import BLOCK_BYTES, ArrayPlace, SavedFile, SavedRank, SavedTable
from dbfs_workers.ids.table import IdTable, IdType
from dbfs_workers.search.partition.ordering import DegreeOrder
from dbfs_workers.search.partition.partition import Csr, InputEdges, Partition, on_host

ROWS_EVERY: Final = 2**18
"""Fewest edges from one entry of ``SavedRank.rows`` to the next."""

_MOST_ROWS: Final = 2**12
"""Most entries of ``SavedRank.rows``."""


class Sink(io.RawIOBase):
    """A stream that takes an Arrow file, computes checksums of its blocks, and notes where arrays start in it.

    Args:
        raw: the file.
        look: called before each block; what it raises ends the write.

    Attributes:
        written: number of bytes so far.
        checksums: CRC-32 of each block that is complete.
        starts: byte of the file at which each of Arrow's buffers starts, by the buffer's address in memory.
    """

    def __init__(self, raw: IO[bytes], look: Callable[[], None]) -> None:
        super().__init__()
        self._raw = raw
        self._look = look
        self._checksum = 0
        self.written = 0
        self.checksums: list[int] = []
        self.starts: dict[int, int] = {}

    def write(self, content: Any) -> int:
        """Append bytes, or a buffer of Arrow."""
        view = memoryview(content)
        if view.nbytes and hasattr(content, "address"):
            self.starts[content.address] = self.written
        at = 0
        while at < view.nbytes:
            self._look()
            part = view[at : at + BLOCK_BYTES - self.written % BLOCK_BYTES]
            self._raw.write(part)
            self._checksum = zlib.crc32(part, self._checksum)
            at += part.nbytes
            self.written += part.nbytes
            if self.written % BLOCK_BYTES == 0:
                self._end_block()
        return view.nbytes

    def finish(self) -> None:
        """Note the checksum of the last block."""
        if self.written % BLOCK_BYTES:
            self._end_block()

    def writable(self) -> bool:
        """Return that Arrow can write here."""
        return True

    def _end_block(self) -> None:
        self.checksums.append(self._checksum)
        self._checksum = 0


Batch = tuple[Any, list[tuple[str, NDArray[Any]]]]
"""A record batch, and the arrays whose memory it refers to, by the manifest's names for them."""


def write_partition(
    folder: Folder, token: str, partition: Partition, edges: SavedFile | None, look: Callable[[], None]
) -> SavedRank:
    """Write a rank's partition, whose arrays are on the host, and return the manifest's entry of the rank.

    Args:
        token: 12 hexadecimal digits that are in the names of all files of this save.
        edges: the file of the rank's kept edges; None if edges are not kept.
        look: called before each block; what it raises ends the write and removes the file.

    Raises:
        OutputError: the file system refuses the file, or is full.
    """
    import pyarrow as pa

    def lists(csr: Csr) -> Any:
        return pa.LargeListArray.from_arrays(csr.row_offsets, csr.columns)

    columns = {"neighbours": lists(partition.out_edges)}
    arrays: list[tuple[str, NDArray[Any]]] = [("row_offsets", partition.row_offsets), ("columns", partition.columns)]
    if partition.in_edges is not None:
        columns["in_neighbours"] = lists(partition.in_edges)
        arrays += [("in_row_offsets", partition.in_edges.row_offsets), ("in_columns", partition.in_edges.columns)]
    file = write_file(folder, f"rank-{partition.rank}-{token}.arrow", [(pa.record_batch(columns), arrays)], look)
    every = max(ROWS_EVERY, -(-partition.m_local // _MOST_ROWS))
    rows = np.searchsorted(partition.row_offsets, np.arange(0, partition.m_local, every), side="right") - 1
    return SavedRank(file, partition.self_loops, partition.duplicates, every, tuple(rows.tolist()), edges)


def write_edges(
    folder: Folder, token: str, rank: int, edges: Iterable[InputEdges], look: Callable[[], None]
) -> SavedFile:
    """Write the input edges that a rank keeps, one record batch of each piece; arguments as of ``write_partition``."""
    import pyarrow as pa

    def batches() -> Iterator[Batch]:
        for source, target in ((on_host(source), on_host(target)) for source, target in edges):
            arrays = [("source", source), ("target", target)]
            yield pa.record_batch(dict(arrays)), arrays

    schema = pa.schema({"source": pa.uint32(), "target": pa.uint32()})
    return write_file(folder, f"edges-{rank}-{token}.arrow", batches(), look, schema)


def write_order(folder: Folder, token: str, order: DegreeOrder, look: Callable[[], None]) -> SavedFile:
    """Write a degree order, which its vertices by position determine; arguments as of ``write_partition``."""
    import pyarrow as pa

    batch = pa.record_batch({"vertex": order.vertex})
    return write_file(folder, f"order-{token}.arrow", [(batch, [("vertex", order.vertex)])], look)


def write_ids(folder: Folder, token: str, rank: int, table: IdTable, look: Callable[[], None]) -> SavedTable | None:
    """Write a rank's table of ids, unless the table is empty; arguments as of ``write_partition``."""
    import pyarrow as pa

    if len(table) == 0:
        return None
    ids: Any = pa.array(table.ids) if isinstance(table.ids, np.ndarray) else table.ids
    columns: list[Any] = ids.flatten() if pa.types.is_struct(ids.type) else [ids]
    arrays: list[tuple[str, NDArray[Any]]] = []
    for index, column in enumerate(columns):
        if pa.types.is_integer(column.type):
            arrays.append((f"id.{index}", column.to_numpy()))
            continue
        if column.offset or _ends(column)[0]:
            # A slice of a larger array, of which Arrow would write a copy.
            columns[index] = column.take(pa.array(np.arange(len(column))))
        ends = _ends(columns[index])
        text = np.frombuffer(columns[index].buffers()[2], np.uint8, ends[-1]) if ends[-1] else np.empty(0, np.uint8)
        arrays += [(f"ends.{index}", ends), (f"text.{index}", text)]
    batch = pa.record_batch(columns, list(IdType.of(table.ids).names or ("id",)))
    return SavedTable(write_file(folder, f"ids-{rank}-{token}.arrow", [(batch, arrays)], look), table.first, len(table))


def _ends(column: Any) -> NDArray[np.int64]:
    """Return where the strings of an Arrow array begin, and where the last one ends, in the array's text."""
    return np.frombuffer(column.buffers()[1], np.int64, len(column) + 1, 8 * column.offset)


def write_file(
    folder: Folder, name: str, batches: Iterable[Batch], look: Callable[[], None], schema: Any = None
) -> SavedFile:
    """Write record batches to a new file; the schema is that of the first batch if it is not given."""
    import pyarrow as pa

    places: list[ArrayPlace] = []
    # A batch may have more than 2**31 rows.
    options = pa.ipc.IpcWriteOptions(allow_64bit=True)
    with folder.create(name) as raw:
        sink = Sink(raw, look)
        writer = None
        for batch, arrays in batches:
            writer = writer or pa.ipc.new_file(sink, batch.schema if schema is None else schema, options=options)
            sink.starts.clear()
            writer.write_batch(batch)
            for what, array in arrays:
                # Arrow leaves out the buffers of empty arrays.
                end = -(-places[-1].end // 8) * 8 if places else 0
                start = sink.starts[array.ctypes.data] if array.size else end
                places.append(ArrayPlace(what, array.dtype.name, array.size, start))
        (writer or pa.ipc.new_file(sink, schema, options=options)).close()
        sink.finish()
    return SavedFile(name, sink.written, BLOCK_BYTES, tuple(sink.checksums), tuple(places))
