"""Edge lists of dask DataFrames (dask-cuDF too) and dask arrays: a partition is a piece that stays on the workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dbfs.edges.edge_list import EdgeList, IdKind
from dbfs.edges.tables.ends import ColumnNames, Columns, Ends, choose_ends
from dbfs.edges.tables.ids import Place, require_kinds
from dbfs.edges.tables.memory import TablePiece, open_columns, open_table
from dbfs.errors import EdgeInputError, InvalidOptionError
from dbfs_workers.base.text import counted
from dbfs_workers.building.pieces import IdEdges


@dataclass(frozen=True, eq=False)
class DelayedPiece:
    """A piece that a Dask task makes.

    Attributes:
        delayed: ``dask.delayed`` of a piece.
    """

    delayed: Any

    def read(self) -> IdEdges:
        """Make the piece with Dask's default scheduler, and read the piece. A build lets the workers make the piece."""
        edges: IdEdges = self.delayed.compute().read()
        return edges


@dataclass(frozen=True, eq=False)
class DaskEdges(EdgeList):
    """Edges in a dask collection.

    Attributes:
        pieces: one for each partition.
    """

    pieces: tuple[DelayedPiece, ...]

    def cut(self, piece_edges: int) -> Sequence[DelayedPiece]:  # noqa: ARG002 - the collection is cut already
        """Return the partitions."""
        return self.pieces


def is_dask(edges: Any) -> bool:
    """Return whether an object is a dask DataFrame, or a pair of dask arrays or of a dask DataFrame's columns."""
    return _is_frame(edges) or (
        isinstance(edges, tuple) and len(edges) == 2 and all(_is_array(ids) or _is_series(ids) for ids in edges)
    )


def open_dask(
    edges: Any, *, source: ColumnNames, target: ColumnNames, directed: bool, strings: bool = False
) -> DaskEdges:
    """Make an edge list of a dask DataFrame with columns of ids, or of two dask arrays or Series of ids.

    Nothing is computed here. The build computes the partitions on the workers; a DataFrame that was persisted there is
    read where it lies, or moves from worker to worker.

    Args:
        edges: the collection; the second of two arrays gets the chunks of the first.
        source, target: names of columns of a DataFrame; see ``dbfs.load``.
        directed: whether edges can be crossed in one direction only.
        strings: whether integers are taken as the strings of their digits.

    Raises:
        EdgeInputError: the columns are not there, or hold no ids; or the arrays are not one-dimensional, or differ in
            their number of partitions.
        InvalidOptionError: names are given for arrays.
    """
    if not isinstance(edges, tuple):
        return _open_frame(edges, source, target, directed, strings)
    if source is not None or target is not None:
        raise InvalidOptionError("source= and target= name columns of a table; a pair of dask arrays has none")
    from dask import delayed

    parts = _parts_of(edges)
    pieces = tuple(
        DelayedPiece(delayed(_piece_of_columns, pure=False)(src, dst, f"dask arrays, partition {place}", strings))
        for place, (src, dst) in enumerate(zip(*parts, strict=True))
    )
    kinds: tuple[IdKind, ...] = ("string" if strings else "integer",)
    return DaskEdges("dask arrays", None, None, directed, pieces=pieces, id_kinds=kinds)


def _open_frame(frame: Any, source: ColumnNames, target: ColumnNames, directed: bool, strings: bool) -> DaskEdges:
    from dask import delayed

    name = "dask DataFrame"
    labels = {str(label): label for label in frame.columns}
    if len(labels) < len(frame.columns):
        raise EdgeInputError(f"{name} has columns of one name; expected distinct names")
    ends = replace(choose_ends(list(labels), source, target, name), strings=strings)
    picked = frame[[labels[column] for column in ends.columns]]
    pieces = tuple(
        DelayedPiece(delayed(_piece_of_partition, pure=False)(part, ends, f"{name}, partition {place}"))
        for place, part in enumerate(picked.to_delayed())
    )
    kinds = _kinds(picked, ends, name)
    others = Columns(tuple(labels), ends).others
    return DaskEdges(str(ends), None, None, directed, values=others, pieces=pieces, id_kinds=kinds)


def _kinds(frame: Any, ends: Ends, name: str) -> tuple[IdKind, ...]:
    """Return the kinds of ids by the collection's empty sample: integers, if its columns hold objects of any type."""
    import pyarrow as pa

    sample = frame._meta
    if not all(str(sample[label].dtype) != "object" for label in sample.columns):
        return tuple("string" if ends.strings else "integer" for _ in ends.source)
    columns = {str(label): sample[label] for label in sample.columns}
    schema = pa.table(
        {
            label: values.to_arrow() if hasattr(values, "to_arrow") else pa.array(values, from_pandas=True)
            for label, values in columns.items()
        }
    ).schema
    return require_kinds(schema, ends, name)


def _parts_of(edges: tuple[Any, Any]) -> tuple[list[Any], list[Any]]:
    """Return the partitions of two arrays or Series, as many of each."""
    src, dst = edges
    for ids, which in ((src, "src"), (dst, "dst")):
        if ids.ndim != 1:
            raise EdgeInputError(f"{which} must be one-dimensional, not {ids.ndim}-dimensional")
    if _is_array(src) and _is_array(dst) and src.chunks != dst.chunks and src.shape == dst.shape:
        dst = dst.rechunk(src.chunks)
    parts = [list(ids.to_delayed()) for ids in (src, dst)]
    if len(parts[0]) != len(parts[1]):
        sizes = f"src has {counted(len(parts[0]), 'partition')} and dst {len(parts[1])}"
        raise EdgeInputError(f"{sizes}; both must be divided alike")
    return parts[0], parts[1]


def _piece_of_partition(partition: Any, ends: Ends, name: str) -> TablePiece:
    """Return a partition of a DataFrame as a piece; runs on a worker."""
    import pyarrow as pa

    if hasattr(partition, "__len__") and len(partition) == 0:
        # Without rows the types of its columns say nothing.
        empty = pa.schema([(column, pa.int64()) for column in ends.columns]).empty_table()
        return TablePiece(empty, replace(ends, strings=False), Place(name))
    columns = {"source": list(ends.source), "target": list(ends.target)}
    table = open_table(partition, **columns, directed=False, name=name, strings=ends.strings)
    return TablePiece(table.table, table.ends, Place(name))


def _piece_of_columns(src: Any, dst: Any, name: str, strings: bool) -> TablePiece:
    """Return a partition of two arrays as a piece; runs on a worker."""
    table = open_columns(src, dst, directed=False, name=name, strings=strings)
    return TablePiece(table.table, table.ends, Place(name))


def in_its_place(edges: Any) -> str:
    """Return what to pass in place of an object of Dask that holds no edges yet; empty for all other objects."""
    if _is_of_dask(edges, "distributed"):
        return "edges.result()"
    return "edges.compute()" if _is_of_dask(edges) and not _is_array(edges) else ""


def _is_frame(edges: Any) -> bool:
    return _has(edges, "to_delayed", "columns") and edges.ndim == 2


def _is_series(ids: Any) -> bool:
    return _has(ids, "to_delayed", "npartitions") and ids.ndim == 1


def _is_array(ids: Any) -> bool:
    return _has(ids, "chunks")


def _has(value: Any, *names: str) -> bool:
    """Return whether the class of an object of Dask has attributes; a ``Delayed`` itself has any attribute."""
    return _is_of_dask(value) and all(hasattr(type(value), name) for name in names)


def _is_of_dask(value: Any, *more: str) -> bool:
    packages = more or ("dask", "dask_expr", "dask_cudf")
    return any(kind.__module__.partition(".")[0] in packages for kind in type(value).__mro__)
