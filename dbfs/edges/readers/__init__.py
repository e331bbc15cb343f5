"""Readers of files of edges: text formats, and tables and arrays in binary formats.

Text: Matrix Market, METIS, edge lists (SNAP's and plain ones), ``.gr`` of PACE and DIMACS, CSV with a header. Binary:
Parquet, Arrow, NumPy's ``.npy`` and ``.npz``. In comes the path of a file, a folder or a pattern that client and
workers can read. Out goes an EdgeList; the client reads only a file's header or footer (METIS: also its line starts),
and workers read the edges.
"""

import os
from collections.abc import Callable

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.arrow import open_arrow
from dbfs.edges.readers.csv_table import is_csv_table, open_csv
from dbfs.edges.readers.edge_list import open_edge_list
from dbfs.edges.readers.file_set import members, open_set
from dbfs.edges.readers.gr import open_gr
from dbfs.edges.readers.guess import guess_format
from dbfs.edges.readers.head import Head
from dbfs.edges.readers.matrix_market import open_matrix_market
from dbfs.edges.readers.metis import open_metis
from dbfs.edges.readers.npy import open_npy
from dbfs.edges.readers.npz import open_npz
from dbfs.edges.readers.parquet import open_parquet
from dbfs.edges.readers.saved import open_saved, saved_folder
from dbfs.edges.readers.source import Source, find_source
from dbfs.edges.tables.ends import ColumnNames
from dbfs.errors import FormatError, InvalidOptionError, TruncatedFileError

__all__ = ["FORMATS", "open_edges"]

Ends = tuple[ColumnNames, ColumnNames]

_TEXTS: dict[str, Callable[[Head, bool | None], EdgeList]] = {
    "matrix-market": open_matrix_market,
    "metis": open_metis,
    "edge-list": open_edge_list,
    "gr": open_gr,
}
_BINARIES: dict[str, Callable[[Source, bool | None, Ends], EdgeList]] = {
    "parquet": open_parquet,
    "arrow": open_arrow,
    "npy": open_npy,
    "npz": open_npz,
}
FORMATS = (*_TEXTS, "csv", *_BINARIES)


def open_edges(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - the word users expect
    directed: bool | None = None,
    source: ColumnNames = None,
    target: ColumnNames = None,
) -> EdgeList:
    """Open a file of edges, a saved graph, or the files of a folder or a pattern: read their heads, not their edges.

    A file of a text format may be compressed as gz, xz, bz2 or zst. A compressed file is one piece, since it can only
    be streamed.

    Args:
        path: a file that client and workers see under the same path, or a URL that fsspec understands; the folder of
            a saved graph; a folder, or a pattern with ``*``, whose tables or edge lists hold one graph's edges
            together.
        format: one of ``FORMATS``; None to guess it from the header and the name.
        directed: overrides the format's direction: False to cross each edge both ways, True only as listed.
        source, target: names of the columns of a table; see ``dbfs.load``.

    Returns:
        An EdgeList whose pieces read their part of the file.

    Raises:
        InvalidOptionError: the format is unknown or has no named columns, or ``dbfs.read.schemes`` does not allow the
            URL's scheme.
        MissingFileError: there is no such file.
        TruncatedFileError: the file is empty, ends in its header, or is shorter than its header promises.
        FormatError: the file isn't in the format (the message names the line), or its first edge comes after more than
            64 MiB of comments and blank lines.
        EdgeInputError: the table's columns are not there, or hold no ids.
        UnreadableFileError: the file system or the network fails.
    """
    if format is not None and format not in FORMATS:
        raise InvalidOptionError(f"format {format!r} is unknown; expected one of {', '.join(FORMATS)}")
    ends = (source, target)
    folder = saved_folder(path)
    if folder is not None:
        if ends != (None, None):
            raise InvalidOptionError(f"source= and target= name columns of a table; {folder.path} is a saved graph")
        return open_saved(folder, directed=directed, format=format)
    paths = members(path)
    if paths is None:
        return _open_one(path, format, directed, ends)
    return open_set(os.fsdecode(path), paths, lambda one: _open_one(one, format, directed, ends))


def _open_one(
    path: str | os.PathLike[str],
    format: str | None,  # noqa: A002
    directed: bool | None,
    ends: Ends,
) -> EdgeList:
    found = find_source(path)
    if found.content != "text":
        if format not in (None, found.content):
            raise FormatError(
                f"{found.path} is {found.content!r} by its first bytes; the option format says {format!r}"
            )
        return _BINARIES[found.content](found, directed, ends)
    if format in _BINARIES:
        raise FormatError(f"{found.path} is no {format} file by its first bytes; the option format says {format!r}")
    head = Head(found)
    named = ends != (None, None)
    if format == "csv" or (named and format is None):
        return open_csv(head, directed, ends)
    if named:
        raise InvalidOptionError(f"source= and target= name columns of a table; format {format!r} has none")
    try:
        guess = format or guess_format(head)
        if format is None and guess == "edge-list" and is_csv_table(head):
            return open_csv(head, directed, ends)
        return _TEXTS[guess](head, directed)
    except FormatError as error:
        guessed = None if format is None else _guess(head)
        if guessed in (None, format):
            raise
        raise FormatError(
            f"{error}. The option format says that the file is {format}; its header or name says {guessed}"
        ) from None


def _guess(head: Head) -> str | None:
    """Return the format by header and name; None if they identify none."""
    try:
        return guess_format(head)
    except (FormatError, TruncatedFileError):
        return None
