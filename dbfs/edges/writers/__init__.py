"""Writers of graph files: Matrix Market, METIS, edge lists, ``.gr``, SciPy's sparse matrices and Parquet tables.

In comes an EdgeList of any kind, read piece by piece. Out goes one file, complete or not at all, in the format of its
name.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.writers.edge_stream import EdgeStream, WriteReport
from dbfs.edges.writers.matrix import write_metis, write_npz
from dbfs.edges.writers.rows import write_edge_list, write_gr, write_matrix_market, write_parquet
from dbfs.edges.writers.target import COMPRESSIONS, Sink, Target
from dbfs.errors import InvalidOptionError

__all__ = ["SUFFIXES", "WriteReport", "write_edges"]

_TEXTS: dict[tuple[str, ...], Callable[[EdgeStream, Sink], WriteReport]] = {
    (".mtx", ".mm"): write_matrix_market,
    (".graph", ".metis"): write_metis,
    (".txt", ".tsv", ".el", ".edges", ".edgelist", ".snap"): partial(write_edge_list, separator="\t"),
    (".csv",): partial(write_edge_list, separator=","),
    (".gr",): write_gr,
}
"""Writers of text formats, which can be compressed, by suffix."""
_BINARIES: dict[tuple[str, ...], Callable[[EdgeStream, Sink], WriteReport]] = {
    (".npz",): write_npz,
    (".parquet",): write_parquet,
}
SUFFIXES = tuple(suffix for suffixes in (*_TEXTS, *_BINARIES) for suffix in suffixes)


@dataclass(frozen=True)
class _Format:
    write: Callable[[EdgeStream, Sink], WriteReport]
    compression: str


def write_edges(
    edges: EdgeList, path: str | os.PathLike[str], *, progress: Callable[[int], None] | None = None
) -> WriteReport:
    """Write a file of edges. A file of that name is replaced when the new one is complete; after an error it stays.

    The name's suffix sets the format: Matrix Market (.mtx), METIS (.graph), an edge list (.txt and .tsv with tabs, .csv
    with commas, .el, .edges), PACE or DIMACS (.gr), each also compressed (.gz, .xz or .bz2); a SciPy sparse matrix
    (.npz); a table with the columns src and dst (.parquet). Edge lists and tables keep ids (strings: .csv, .tsv and
    .parquet; tuples: .parquet); the other formats number the vertices. METIS and .npz list an undirected edge in both
    directions; the other formats list it once. For METIS and .npz the whole graph must fit the memory; the other
    formats need a piece of it. METIS leaves out self-loops and duplicates, for which it has no place; edge lists leave
    out vertices without edges. No format gets weights. ``WriteReport`` says what was left out.

    Args:
        edges: an edge list of any kind.
        path: a file on this machine, in a folder that exists.
        progress: called after each piece, with the number of edges read so far.

    Returns:
        The numbers of what was written.

    Raises:
        InvalidOptionError: the suffix is unknown, there is no such folder, or the format cannot hold these edges.
        GraphTooLargeError: the memory will not hold the graph, for a format that needs the whole graph.
        OutputError: the file can't be written.
        FormatError, TruncatedFileError, MissingFileError: the edges come from a file that can't be read.
    """
    target = Target.at(Path(path).expanduser())
    chosen = _format(target.path)
    with target.opened(chosen.compression) as sink:
        stream = EdgeStream(edges, progress)
        return replace(chosen.write(stream, sink), values=dict(+stream.values))


def _format(path: Path) -> _Format:
    """Return the format and compression of a file's name.

    Raise ``InvalidOptionError`` for an unknown suffix, and for one of a format that can't be compressed.
    """
    name = path.name.lower()
    compression = next((suffix for suffix in COMPRESSIONS if name.endswith(suffix)), "")
    for formats, compressible in ((_TEXTS, True), (_BINARIES, False)):
        for suffixes, write in formats.items():
            if name.removesuffix(compression).endswith(suffixes) and (compressible or not compression):
                return _Format(write, compression)
    raise InvalidOptionError(
        f"{path}: the name must end in one of {', '.join(SUFFIXES)}; text formats may add {', '.join(COMPRESSIONS)}"
    )
