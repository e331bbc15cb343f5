"""Conversion of the argument of ``load`` and ``estimate`` to an edge list, or the refusal of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from dbfs.edges import generate, readers
from dbfs.edges.arrays import from_arrays, from_scipy
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.tables.dask import in_its_place, is_dask, open_dask
from dbfs.edges.tables.ends import ColumnNames
from dbfs.edges.tables.graphs import is_graph, open_graph
from dbfs.edges.tables.ids import as_strings
from dbfs.edges.tables.memory import is_table, open_columns, open_table
from dbfs.edges.tables.pairs import is_pairs, open_pairs
from dbfs.edges.tables.weights import with_weights
from dbfs.errors import EdgeInputError, InvalidOptionError
from dbfs_workers.ids.sequence import IdSequence

if TYPE_CHECKING:
    import scipy.sparse
    from numpy.typing import NDArray

    EdgeSource: TypeAlias = (
        EdgeList
        | str
        | os.PathLike[str]
        | tuple[NDArray[Any], NDArray[Any]]
        | scipy.sparse.sparray
        | scipy.sparse.spmatrix
        | Iterable[Any]
        # Tables and graphs of other libraries, which dbfs does not import.
        | Any
    )


def edge_list(
    edges: EdgeSource,
    *,
    directed: bool | None = None,
    format: str | None = None,  # noqa: A002 - the word users expect
    source: ColumnNames = None,
    target: ColumnNames = None,
    sep: str | None = None,
    missing: Sequence[str] | None = None,
    skip_rows: int | None = None,
    ids: str | None = None,
    attributes: Sequence[str] = (),
) -> EdgeList:
    """Return the edge list of a path, a generator's spec, arrays, a matrix, a table, a graph of a library, or pairs.

    An edge list is returned as it is. Arguments and errors as of ``load``; ``ids`` is None or ``string``. Of tables in
    memory and of matrices ``attributes`` names the columns that are kept of each edge; all others keep theirs by
    ``EdgeList.keeping``.
    """
    of_files: dict[str, Any] = {"format": format, "sep": sep, "missing": missing, "skip_rows": skip_rows}
    of_tables: dict[str, Any] = {"source": source, "target": target}
    strings = as_strings(ids)
    of_ids: dict[str, Any] = {"ids": ids if strings else None}
    if isinstance(edges, str) and generate.is_spec(edges):
        _refuse(edges, of_files, of_tables, of_ids)
        generated = generate.parse(edges)
        if directed is not None and directed != generated.directed:
            raise InvalidOptionError(
                f"{generated.name} is {'' if generated.directed else 'un'}directed; "
                "directed= is for files, arrays and matrices"
            )
        return generated
    if isinstance(edges, str | os.PathLike):
        return readers.from_file(edges, directed=directed, **of_files, **of_tables, **of_ids)
    if isinstance(edges, EdgeList):
        _refuse("an edge list", of_files, of_tables, of_ids)
        if directed is not None:
            raise InvalidOptionError("directed= is for files, arrays and matrices; an edge list has its own direction")
        return with_weights(edges, attributes)
    if isinstance(edges, IdSequence):
        raise EdgeInputError("edges must not be ids: pass (source ids, target ids), two of such sequences")
    # Results of dbfs are tables that offer Arrow's stream; few of them have edges in their rows.
    if not getattr(edges, "_holds_edges", True):
        kind = type(edges).__name__
        raise EdgeInputError(
            f"edges must not be a {kind}, which has none; graph.subgraph(ids) has the edges of some ids"
        )
    if is_dask(edges):
        _refuse("a dask collection", of_files)
        return open_dask(edges, **of_tables, directed=bool(directed), strings=strings)
    if _is_pair_of_arrays(edges):
        _refuse("a pair of arrays", of_files, of_tables)
        if strings or any(_is_text(each) for each in edges):
            return open_columns(*edges, directed=bool(directed), strings=strings)
        return from_arrays(*edges, directed=bool(directed))
    if _is_sparse(edges):
        _refuse("a matrix", of_files, of_tables, of_ids)
        return with_weights(from_scipy(edges, directed=directed), attributes)
    if is_table(edges):
        _refuse("a table", of_files)
        return open_table(edges, **of_tables, directed=directed, strings=strings, attributes=attributes)
    if is_graph(edges):
        _refuse("a graph", of_files, of_tables, of_ids)
        return open_graph(edges, directed=directed, attributes=attributes)
    if _is_array_of_ends(edges):
        # The mask of an array stays, since a masked id is missing.
        array = edges if isinstance(edges, np.ma.MaskedArray) else np.asarray(edges)
        ends = array if array.shape[0] == 2 else array.T
        return edge_list((ends[0], ends[1]), directed=directed, **of_files, **of_tables, **of_ids)
    if is_pairs(edges) and not _is_pair_of_lists(edges):
        _refuse("an iterable of pairs", of_files, of_tables)
        return open_pairs(edges, directed=bool(directed), strings=strings)
    raise EdgeInputError(_refusal(edges))


def _refuse(what: str, *options: Mapping[str, Any]) -> None:
    """Raise ``InvalidOptionError`` for options that say something of files, of columns of tables, or of their ids."""
    given = [name for each in options for name, value in each.items() if value is not None]
    for name in given[:1]:
        if name in ("source", "target"):
            raise InvalidOptionError(f"source= and target= name columns of a table; {what} has none")
        if name == "ids":
            raise InvalidOptionError(
                f"ids='string' is for tables, pairs, arrays and files (dbfs.from_file takes it); {what} has its own ids"
            )
        raise InvalidOptionError(f"{name}= is for files; {what} has none")


def _is_text(ids: Any) -> bool:
    """Return whether an array may hold strings: not one of NumPy's numbers, times or bools."""
    return isinstance(ids, IdSequence) or np.asarray(ids).dtype.kind not in "iufcbmM"


def _is_pair_of_arrays(edges: Any) -> TypeGuard[tuple[NDArray[Any], NDArray[Any]]]:
    """Return whether ``edges`` is a tuple (src, dst) of two arrays, such as NumPy arrays or columns of a table."""
    return isinstance(edges, tuple) and len(edges) == 2 and all(hasattr(ids, "__array__") for ids in edges)


def _is_sparse(edges: Any) -> bool:
    # Only a program that has imported SciPy has a sparse matrix, so that this import costs nothing.
    sparse: Any = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(edges))


def _refusal(edges: Any) -> str:
    """Return the message for an argument of another type. It names the call that converts the argument, if any does."""
    kind = type(edges).__name__
    instead = "edges.collect()" if kind == "LazyFrame" else in_its_place(edges)
    if instead:
        return f"edges must not be a {kind}, which holds no edges yet: pass {instead}"
    shape: tuple[int, ...] = getattr(edges, "shape", ())
    if len(shape) == 2:
        ways = ["(edges[:, 0], edges[:, 1]) for edges, one in each row", "(edges[0], edges[1]) for one in each column"]
        ways += ["scipy.sparse.csr_array(edges) for a matrix"] if shape[0] == shape[1] else []
        return f"edges must not be an array of shape {shape}, which has several meanings: pass {', or '.join(ways)}"
    if _is_pair_of_lists(edges):
        inner = type(edges[0]).__name__
        pairs = "tuples" if len(edges[0]) == 2 else "pairs (source, target), without further values,"
        way = f"pass dbfs.from_arrays(*edges), or {pairs} if each is an edge"
        return f"edges must not be a {kind} of two {inner}s: {way}"
    return (
        "edges must be a generator's spec, a path, an edge list, a table, a graph, pairs (source, target), two arrays "
        f"(src, dst) or a SciPy sparse matrix, not {kind}"
    )


def _is_array_of_ends(edges: Any) -> TypeGuard[NDArray[Any]]:
    """Return whether an array, or a tensor of PyTorch, has a row or a column for each edge.

    An array of shape (2, 2) may be read both ways, and may be a matrix as well.
    """
    array = isinstance(edges, np.ndarray) or type(edges).__module__.partition(".")[0] == "torch"
    return array and len(edges.shape) == 2 and (edges.shape[0] == 2) != (edges.shape[1] == 2)


def _is_pair_of_lists(edges: Any) -> bool:
    """Return whether ``edges`` may be lists (src, dst): two lists, or two sequences that are no pairs."""
    if not isinstance(edges, list | tuple) or len(edges) != 2:
        return False
    return all(isinstance(ids, list | np.ndarray) for ids in edges) or all(
        isinstance(ids, list | tuple | np.ndarray) and len(ids) != 2 for ids in edges
    )
