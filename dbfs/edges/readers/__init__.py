"""Readers of graph files: Matrix Market, METIS, edge lists (SNAP's and plain ones), and ``.gr`` of PACE and DIMACS.

In comes the path of a file that client and workers can read. Out goes an EdgeList; the client reads only the file's
header (METIS: also its line starts), and workers read the edges.
"""

import os
from collections.abc import Callable

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.edge_list import open_edge_list
from dbfs.edges.readers.gr import open_gr
from dbfs.edges.readers.guess import guess_format
from dbfs.edges.readers.head import Head
from dbfs.edges.readers.matrix_market import open_matrix_market
from dbfs.edges.readers.metis import open_metis
from dbfs.edges.readers.source import find_source
from dbfs.errors import FormatError, InvalidOptionError, TruncatedFileError

__all__ = ["FORMATS", "open_edges"]

_OPENERS: dict[str, Callable[[Head, bool | None], EdgeList]] = {
    "matrix-market": open_matrix_market,
    "metis": open_metis,
    "edge-list": open_edge_list,
    "gr": open_gr,
}
FORMATS = tuple(_OPENERS)


def open_edges(path: str | os.PathLike[str], *, format: str | None = None, directed: bool | None = None) -> EdgeList:  # noqa: A002
    """Open a file of edges: read its first lines, and leave the edges to the workers.

    A file of any format may be compressed as gz, xz or bz2. A compressed file is one piece, since it can only be
    streamed.

    Args:
        path: a file that client and workers see under the same path, or a URL that fsspec understands.
        format: one of ``FORMATS``; None to guess it from the header and the name.
        directed: overrides the format's direction: False to cross each edge both ways, True only as listed.

    Returns:
        An EdgeList whose pieces read their part of the file.

    Raises:
        InvalidOptionError: the format is unknown, or ``dbfs.read.schemes`` does not allow the URL's scheme.
        MissingFileError: there is no such file.
        TruncatedFileError: the file is empty, ends in its header, or is shorter than its header promises.
        FormatError: the file isn't in the format (the message names the line), or its first edge comes after more than
            64 MiB of comments and blank lines.
        UnreadableFileError: the file system or the network fails.
    """
    if format is not None and format not in _OPENERS:
        raise InvalidOptionError(f"format {format!r} is unknown; expected one of {', '.join(FORMATS)}")
    head = Head(find_source(path))
    try:
        return _OPENERS[format or guess_format(head)](head, directed)
    except FormatError as error:
        guess = None if format is None else _guess(head)
        if guess in (None, format):
            raise
        raise FormatError(
            f"{error}. The option format says that the file is {format}; its header or name says {guess}"
        ) from None


def _guess(head: Head) -> str | None:
    """Return the format by header and name; None if they identify none."""
    try:
        return guess_format(head)
    except (FormatError, TruncatedFileError):
        return None
