"""Writers of graph files: any EdgeList, piece by piece, in the format that the file's name says."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.writers.matrix import write_metis, write_npz
from dbfs.edges.writers.stream import EdgeStream, Written
from dbfs.edges.writers.table import write_parquet
from dbfs.edges.writers.target import COMPRESSIONS, Sink, Target
from dbfs.edges.writers.text import write_edge_list, write_gr, write_matrix_market
from dbfs.errors import InvalidOptionError

__all__ = ["SUFFIXES", "Written", "write_edges"]

_TEXTS: dict[tuple[str, ...], Callable[[EdgeStream, Sink], Written]] = {
    (".mtx", ".mm"): write_matrix_market,
    (".graph", ".metis"): write_metis,
    (".txt", ".tsv", ".el", ".edges", ".edgelist", ".snap"): partial(write_edge_list, separator="\t"),
    (".csv",): partial(write_edge_list, separator=","),
    (".gr",): write_gr,
}
"""Formats of text, which can be compressed, by suffix."""
_BINARIES: dict[tuple[str, ...], Callable[[EdgeStream, Sink], Written]] = {
    (".npz",): write_npz,
    (".parquet",): write_parquet,
}
SUFFIXES = tuple(suffix for suffixes in (*_TEXTS, *_BINARIES) for suffix in suffixes)


@dataclass(frozen=True)
class _Format:
    write: Callable[[EdgeStream, Sink], Written]
    compression: str


def write_edges(
    edges: EdgeList, path: str | os.PathLike[str], *, progress: Callable[[int], None] | None = None
) -> Written:
    """Write a file of edges, all of it or none: a file of that name is replaced when the new one is complete.

    The name says the format: Matrix Market (.mtx), METIS (.graph), an edge list (.txt and .tsv with tabs, .csv with
    commas, .el, .edges), PACE or DIMACS (.gr), each also as .gz, .xz or .bz2; a SciPy sparse matrix (.npz); a table
    with the columns src and dst (.parquet). Edge lists and tables keep external ids; the others number the vertices. An
    undirected edge is written once, but twice in METIS and .npz. METIS and .npz hold the whole graph in memory while
    they are made, the others a piece of it, and METIS has no place for self-loops and duplicates, which are left out.

    Args:
        edges: of any reader or generator.
        path: of a file on this machine, in a folder that exists.
        progress: called with the number of edges read so far, after each piece.

    Returns:
        What was written.

    Raises:
        InvalidOptionError: the name says no format, there is no such folder, or the format cannot hold these edges.
        GraphTooLargeError: the memory will not hold the graph, where the format needs all of it there.
        OutputError: the file can't be written.
        FormatError, TruncatedFileError, MissingFileError: edges that come from a file can't be read.
    """
    target = Target.at(Path(path).expanduser())
    chosen = _format(target.path)
    with target.opened(chosen.compression) as sink:
        return chosen.write(EdgeStream(edges, progress), sink)


def _format(path: Path) -> _Format:
    name = path.name.lower()
    compression = next((suffix for suffix in COMPRESSIONS if name.endswith(suffix)), "")
    for formats, compressible in ((_TEXTS, True), (_BINARIES, False)):
        for suffixes, write in formats.items():
            if name.removesuffix(compression).endswith(suffixes) and (compressible or not compression):
                return _Format(write, compression)
    raise InvalidOptionError(
        f"{path}: the name must end in one of {', '.join(SUFFIXES)}; those of text also with {', '.join(COMPRESSIONS)}"
    )
