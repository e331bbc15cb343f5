"""NumPy's ``.npy`` files: an array of shape (m, 2) or (2, m), or a structured one with named columns; read by ranges.

The sources are the first column of an array of shape (m, 2), and the first row of one of shape (2, m), which PyTorch
Geometric calls ``edge_index``. Source: NumPy, "NumPy Enhancement Proposal 1, A Simple File Format for NumPy Arrays". An
array of Python objects is pickled, and refused: unpickling runs code of the file's author.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbfs.edges.readers.file import TableFile, decoding, require_rows, table_facts
from dbfs.edges.readers.options import ReadOptions
from dbfs.edges.readers.source import Source
from dbfs.edges.tables.ends import Columns
from dbfs.edges.tables.ids import Place, edges_of
from dbfs.errors import EdgeInputError, FormatError, TruncatedFileError
from dbfs_workers.building.pieces import IdEdges
from dbfs_workers.building.reading import Reading, ReadLimits, require_room

_WHAT = "NumPy array"
_CHUNK_BYTES = 1 << 22
# Bytes of memory for a byte of the file: the row, its columns, and the ids.
_EXPANSION = 4


def open_npy(source: Source, options: ReadOptions) -> NpyFile:
    """Read the header of an ``.npy`` file; arguments as of ``open_parquet``. The ends of a plain array are 0 and 1.

    Raises:
        FormatError: the header is broken, or the array is pickled.
        TruncatedFileError: the file is shorter than its header says.
        EdgeInputError: the array has another shape, may be read in two ways, or holds no ids.
    """
    with source.opened() as raw, decoding(source.path, _WHAT):
        shape, fortran, dtype = read_header(raw, source.path)
        start = int(raw.tell())
    columns, rows, rowwise = _columns(shape, dtype, options, source.path)
    size = rows * dtype.itemsize * (1 if dtype.names else 2)
    if source.size is not None and source.size - start != size:
        error = TruncatedFileError if source.size - start < size else FormatError
        raise error(
            f"{source.path}: its header promises {rows:,} rows, which take {size:,} bytes, and "
            f"{source.size - start:,} follow"
        )
    schema = schema_of({name: dtype[name] if dtype.names else dtype for name in columns.ends.columns}, source.path)
    split = fortran == rowwise and not dtype.names
    facts = table_facts(source, columns, schema, bool(options.directed))
    return NpyFile(n=None, m=rows, rows=rows, start=start, dtype=dtype, split=split, **facts)


def read_header(raw: Any, path: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an array; return its shape, whether columns are stored one after another, and its dtype.

    Raises:
        FormatError: the array holds Python objects.
        ValueError: the header is broken.
    """
    version = np.lib.format.read_magic(raw)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"version {version} of the format is unknown")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(raw)
    if dtype.hasobject:
        raise FormatError(f"{path} holds pickled Python objects, which are not read: they could run any code")
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"the shape {shape} has a size that is not 0 or more")
    return shape, fortran, dtype


def as_arrow(values: Any, column: str, name: str) -> Any:
    """Return a one-dimensional array of NumPy as Arrow's; raise ``EdgeInputError`` if Arrow has no such values."""
    import pyarrow as pa

    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    try:
        return pa.array(np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("=")))
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise EdgeInputError(f"{name}: column {column!r} holds {values.dtype}; expected ids ({error})") from None


def schema_of(dtypes: Mapping[str, np.dtype[Any]], name: str) -> Any:
    """Return the Arrow schema of columns of NumPy's types; errors as of ``as_arrow``."""
    import pyarrow as pa

    return pa.schema([(column, as_arrow(np.empty(0, dtype), column, name).type) for column, dtype in dtypes.items()])


def _columns(
    shape: tuple[int, ...], dtype: np.dtype[Any], options: ReadOptions, path: str
) -> tuple[Columns, int, bool]:
    """Return the columns, the number of edges, and whether an edge is a row of the array."""
    if dtype.names is not None and len(shape) == 1:
        return options.columns(dtype.names, path), shape[0], True
    if dtype.names is None and len(shape) == 2 and 2 in shape:
        if shape == (2, 2) and not options.named:
            raise EdgeInputError(
                f"{path} holds an array of shape 2 x 2, which may have an edge in each row or in each column; pass "
                "source='0', target='1' if a row is an edge, else load the array's two rows as (src, dst)"
            )
        return Columns((), options.positions(2, path)), *((shape[0], True) if shape[1] == 2 else (shape[1], False))
    raise EdgeInputError(
        f"{path} holds an array of shape {' x '.join(map(str, shape)) or '()'}; expected m x 2 or 2 x m, or a "
        "one-dimensional array with named columns"
    )


@dataclass(frozen=True)
class NpyPiece:
    """A range of rows of the array.

    Attributes:
        file: the array.
        first, stop: the range of rows.
    """

    file: NpyFile
    first: int
    stop: int
    limits: ReadLimits

    def read(self) -> IdEdges:
        """Return the ids of the rows, see ``tables.ids.edges_of``; errors as of ``Piece.read``."""
        file, rows = self.file, self.stop - self.first
        reading = Reading(file.source.path, self.limits, 1)
        require_rows(file.name, rows, 2, self.limits)
        width = file.dtype.itemsize * (1 if file.dtype.names or file.split else 2)
        starts = [file.start, file.start + file.rows * width] if file.split else [file.start]
        parts = [np.frombuffer(self._bytes(start, width, reading), file.dtype) for start in starts]
        array = np.stack(parts, axis=1) if file.split else parts[0]
        reading.take_edges(rows)
        shaped = array if file.dtype.names or file.split else array.reshape(rows, 2)
        return edges_of(self.table(shaped), file.ends, Place(file.name, self.first))

    def table(self, array: Any) -> Any:
        """Return rows of the array as an Arrow table of the columns of the ends."""
        import pyarrow as pa

        file = self.file
        parts = {name: array[name] if file.dtype.names else array[:, int(name)] for name in file.ends.columns}
        with decoding(file.name, _WHAT):
            return pa.table({name: as_arrow(values, name, file.name) for name, values in parts.items()})

    def _bytes(self, start: int, width: int, reading: Reading) -> bytes:
        """Return the bytes of the rows, ``width`` each, of a part of the file that begins at ``start``."""
        source, expected = self.file.source, (self.stop - self.first) * width
        require_room(_EXPANSION * expected, self.limits.memory_share, f"{source.path}: {expected:,} bytes")
        chunks = source.chunks(
            start + self.first * width, start + self.stop * width, size=_CHUNK_BYTES, look=reading.look
        )
        found = b"".join(chunks)
        if len(found) != expected:
            raise TruncatedFileError(
                f"{source.path} ends too early: rows {self.first:,} to {self.stop:,} take {expected:,} bytes, and "
                f"{len(found):,} are there"
            )
        return found


@dataclass(frozen=True)
class NpyFile(TableFile):
    """An array of edges in an ``.npy`` file.

    Attributes:
        rows: number of edges.
        start: offset of the first byte after the header.
        dtype: of the array, of any byte order.
        split: whether the targets follow all of the sources.
    """

    rows: int
    start: int
    dtype: np.dtype[Any]
    split: bool

    def cut(self, piece_edges: int) -> Sequence[NpyPiece]:
        """Cut into ranges of ``piece_edges`` rows; the last one may be shorter."""
        limits = self.limits()
        return [
            NpyPiece(self, at, min(at + piece_edges, self.rows), limits)
            for at in range(0, max(self.rows, 1), piece_edges)
        ]
