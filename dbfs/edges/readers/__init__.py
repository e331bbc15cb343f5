"""Readers of files of edges: text formats, and tables and arrays in binary formats.

Text: Matrix Market, METIS, edge lists (SNAP's, KONECT's and plain ones), adjacency lists, ``.gr`` of PACE and DIMACS,
CSV and NCOL. Binary: Parquet, Arrow, NumPy's ``.npy`` and ``.npz``. The client reads GraphML, GEXF, GML, Pajek, LGL, DL
and TGF whole (``whole``); ``foreign`` knows these, and formats that are refused with the way in. In comes the path of a
file, a folder or a pattern that client and workers can read, and what the caller says of it: ``ReadOptions``. Out goes
an EdgeList; of all other formats the client reads only a file's header or footer (METIS: also its line starts), and
workers read the edges.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from dbfs.base.calls import public
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.adjacency import open_adjacency_list
from dbfs.edges.readers.arrow import open_arrow
from dbfs.edges.readers.csv_table import open_csv, open_ncol
from dbfs.edges.readers.dl import open_dl
from dbfs.edges.readers.edge_list import open_edge_list
from dbfs.edges.readers.file_set import members, open_set, require_typed
from dbfs.edges.readers.folders import FolderReader
from dbfs.edges.readers.foreign import recognised
from dbfs.edges.readers.gml import open_gml
from dbfs.edges.readers.gr import open_gr
from dbfs.edges.readers.graph_xml import open_gexf, open_graphml
from dbfs.edges.readers.heading import Head
from dbfs.edges.readers.lgl import open_lgl
from dbfs.edges.readers.matrix import open_matrix
from dbfs.edges.readers.matrix_market import BANNER, open_matrix_market
from dbfs.edges.readers.metis import open_metis
from dbfs.edges.readers.npy import open_npy
from dbfs.edges.readers.npz import open_npz
from dbfs.edges.readers.options import COMMENTS, ReadOptions
from dbfs.edges.readers.pajek import open_pajek
from dbfs.edges.readers.parquet import open_parquet
from dbfs.edges.readers.source import Source, find_source
from dbfs.edges.readers.tgf import open_tgf
from dbfs.edges.tables.ends import ColumnNames
from dbfs.errors import FormatError, InvalidOptionError, TruncatedFileError

__all__ = ["FORMATS", "from_file"]

_COLUMNS = ("source", "target")
_LINES = ("comment", "missing", "skip_rows", "ids")
_TEXTS: dict[str, tuple[Callable[[Head, ReadOptions], EdgeList], tuple[str, ...]]] = {
    "matrix-market": (open_matrix_market, ("bipartite",)),
    "metis": (open_metis, ()),
    "edge-list": (open_edge_list, (*_LINES, "sep", "header", "bipartite")),
    "gr": (open_gr, ()),
    "adjacency-list": (open_adjacency_list, (*_LINES, "sep", "bipartite")),
    "ncol": (open_ncol, (*_LINES, "sep", "bipartite", *_COLUMNS)),
    "matrix": (open_matrix, ("sep", "comment", "skip_rows")),
    "csv": (open_csv, (*_LINES, "sep", "header", "bipartite", *_COLUMNS)),
    "graphml": (open_graphml, ("ids",)),
    "gexf": (open_gexf, ("ids",)),
    "gml": (open_gml, ()),
    "pajek": (open_pajek, ()),
    "lgl": (open_lgl, ("ids",)),
    "dl": (open_dl, ("ids",)),
    "tgf": (open_tgf, ("ids",)),
}
"""By format: what opens a file, and the options that say something of it beyond format, direction and strictness."""
_BINARIES: dict[str, tuple[Callable[[Source, ReadOptions], EdgeList], tuple[str, ...]]] = {
    "parquet": (open_parquet, (*_COLUMNS, "ids")),
    "arrow": (open_arrow, (*_COLUMNS, "ids")),
    "npy": (open_npy, (*_COLUMNS, "ids")),
    "npz": (open_npz, (*_COLUMNS, "bipartite", "ids")),
}
FORMATS = (*_TEXTS, *_BINARIES)


@public
def from_file(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - the word users expect
    directed: bool | None = None,
    source: ColumnNames = None,
    target: ColumnNames = None,
    sep: str | None = None,
    header: bool | None = None,
    comment: str | None = None,
    strict: bool = False,
    bipartite: bool | None = None,
    missing: Sequence[str] | None = None,
    skip_rows: int | None = None,
    ids: str | None = None,
) -> EdgeList:
    """Open a file of edges, a saved graph, or the files of a folder or a pattern: read their heads, not their edges.

    A file of a text format may be compressed as gz, xz, bz2 or zst, or be the only file of a zip archive. A compressed
    file is one piece, since it can only be streamed. Files of GraphML, GEXF, GML, Pajek, LGL, DL and TGF are read here
    and now, whole; their ids are those of the file, not its labels, and a line of the log says what is left out. What
    the arguments leave open comes from the file's name, header and comments. A file that can be read in two ways is
    refused, and the message names the argument that decides.

    Args:
        path: a file that client and workers see under the same path, or a URL that fsspec understands; the folder of
            a saved graph; a folder, or a pattern with ``*``, whose tables or edge lists hold one graph's edges
            together.
        format: ``matrix-market``, ``metis``, ``edge-list``, ``gr``, ``adjacency-list``, ``ncol``, ``csv``,
            ``matrix``, ``parquet``, ``arrow``, ``npy`` or ``npz``; ``graphml``, ``gexf``, ``gml``, ``pajek``, ``lgl``,
            ``dl`` or ``tgf``. It overrides the name, and what the file says of itself. A ``matrix`` is one in text, n
            lines of n numbers.
        directed: overrides the format's direction: False to cross each edge both ways, True only as listed.
        source, target: names of the columns of a table; see ``dbfs.load``. The columns of a table without names are
            ``0``, ``1`` and so on.
        sep: what separates columns of text: one character; a blank stands for any run of blanks.
        header: whether the first line of text that is no comment names the columns. With a value, ids may be strings in
            any text that holds an edge in a line.
        comment: what begins a comment line: such lines are passed over anywhere. By default ``#``, ``%`` and ``//`` do,
            but among edges between strings a line that begins so is refused. An empty text: there are no comments.
        strict: whether a number of edges in a comment is a promise: another number is then an error, else a warning.
        bipartite: whether sources and targets are two sets of vertices, so that an id of the one is another vertex than
            the same id of the other: for matrices, rectangular ones too, and for KONECT's files, which say so
            themselves. The targets have the ids after those of the sources. Edges are undirected unless ``directed``.
        missing: the words of a text that stand for a missing id, which is refused; an empty cell always is. By default
            these are the words of other programs, such as ``NA``, ``nan``, ``None`` and ``null``. An empty list makes
            names of all words.
        skip_rows: lines at the top of a text that are no part of it.
        ids: ``string`` for ids as the strings that are written: integers of any length, codes such as 007, versions
            such as 1.0. By default a column holds integers if its first values are integers.

    Returns:
        An EdgeList whose pieces read their part of the file.

    Raises:
        InvalidOptionError: the format is unknown, or has no place for an option; or ``dbfs.read.schemes`` does not
            allow the URL's scheme.
        InvalidOptionTypeError: an option is of another type.
        MissingFileError: there is no such file.
        TruncatedFileError: the file is empty, ends in its header, or is shorter than its header promises.
        FormatError: the file isn't in the format (the message names the line), or is in one of another program that is
            not read here (the message says the way in); or its first edge comes after more than 64 MiB of comments and
            blank lines; or its edges are of both directions, and ``directed`` is not given.
        GraphTooLargeError: a file that is read whole does not fit this process's memory.
        EdgeInputError: the table's columns are not there, or hold no ids; or the columns of files of one graph differ.
        UnreadableFileError: the file system or the network fails.
    """
    if format is not None and format not in FORMATS:
        raise InvalidOptionError(f"format {format!r} is unknown; expected one of {', '.join(FORMATS)}")
    options = ReadOptions(format, directed, source, target, sep, header, comment, strict, bipartite)
    options = replace(options, missing=missing, skip_rows=skip_rows, ids=ids)
    for reader in FolderReader.known:
        if (folder := reader.open(path, options)) is not None:
            return folder
    paths = members(path)
    if paths is None:
        return require_typed(_open_one(path, options))
    return open_set(os.fsdecode(path), paths, options, _open_one)


def _open_one(path: str | os.PathLike[str], options: ReadOptions) -> EdgeList:
    found, format = find_source(path), options.format  # noqa: A001
    if found.content != "text":
        if format not in (None, found.content):
            raise FormatError(
                f"{found.path} is {found.content!r} by its first bytes; the option format says {format!r}"
            )
        binary, taken = _BINARIES[found.content]
        options.require_only(taken, found.content, found.path)
        return binary(found, options)
    if format in _BINARIES:
        raise FormatError(f"{found.path} is no {format} file by its first bytes; the option format says {format!r}")
    head = Head(found, options.skip_rows or 0)
    lines = options.sep is not None or options.header is not None
    table = options.named and not found.bare_name.endswith(".ncol")
    guess = format or guess_format(head, lines=lines, table=table, hashes=options.comment is None)
    text, taken = _TEXTS[guess]
    options.require_only(taken, guess, found.path)
    try:
        return text(head, options)
    except FormatError as error:
        guessed = None if format in (None, "csv", "matrix") else _guess(head)
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


_BY_NAME = {
    "matrix-market": (".mtx", ".mm"),
    "metis": (".graph", ".metis"),
    "edge-list": (".txt", ".csv", ".tsv", ".el", ".wel", ".edges", ".edgelist", ".snap"),
    "gr": (".gr",),
    "adjacency-list": (".adjlist",),
    "ncol": (".ncol",),
}
_KONECT = "out."

# Blank lines and comments of all formats.
_PASSED_OVER = re.compile(rb"(?:\n++|[ \t]*+(?:(?:#|%|//|c[ \t])[^\n\r\0]*+|c)?+\r?+\n)*+")
_EDGE = re.compile(rb"[0-9]++(?:\s*+[,;]\s*+|\s++)[0-9]++(?:[\s,;]|$)")


def guess_format(head: Head, *, lines: bool = False, table: bool = False, hashes: bool = True) -> str:
    """Return the name of a file's format: a key of ``readers.FORMATS``.

    Args:
        head: the first lines.
        lines: whether a file whose name says nothing has an edge in each line.
        table: whether the file has columns, of which the caller named some.
        hashes: whether lines that begin with ``#`` may be more than comments.

    A METIS header looks like an edge, so that format is recognised by the name alone.

    Raises:
        FormatError: neither name nor header identifies a format, or they identify one of another program that is not
            read here; the message lists the formats, or says the way in.
        TruncatedFileError: the name identifies no format, and the file holds only comments.
    """
    source = head.source
    name = source.bare_name
    if not BANNER.match(head.start):
        foreign = recognised(source.path, name, head.start, by_name=not (lines or table), hashes=hashes)
        if foreign is not None:
            return foreign
    if table:
        return "csv"
    named = next((each for each, suffixes in _BY_NAME.items() if PurePosixPath(name).suffix in suffixes), None)
    if named is None and (lines or name.startswith(_KONECT)):
        named = "edge-list"
    for line in head.lines(_PASSED_OVER):
        text = line.text.strip()
        if line.number == 1 + head.skip_rows and BANNER.match(text):
            return "matrix-market"
        if re.fullmatch(rb"p\s++(?:tw|sp)\s++\S++\s++\S++", text):
            return "gr"
        if named is not None and named != "edge-list":
            return named
        if text and text != b"c" and not text.startswith((*COMMENTS, b"c ")):
            if named is None and not _EDGE.match(text):
                raise FormatError(
                    f"{source.path}, line {line.number}: neither the name nor this line identifies the format; pass it "
                    f"as the option format, one of {', '.join((*_BY_NAME, 'csv'))}"
                )
            return "edge-list"
    if named is None:
        raise TruncatedFileError(f"{source.path} holds only comments; expected edges")
    return named
