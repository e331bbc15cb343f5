"""EdgeStream: an edge list's pieces one after another, as the writers want them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dbfs.edges.edge_list import EdgeList
from dbfs.errors import FormatError, TruncatedFileError
from dbfs_workers.storage.pieces import Edges, Piece

# 2^20 edges: 16 MB of ids, and a few times as much of text.
PIECE_EDGES = 2**20


@dataclass(frozen=True)
class Written:
    """What a file holds.

    Attributes:
        n: vertices; None where the format does not say and the edges were not asked.
        m: edges, as the edge list counts them: each undirected one once.
        directed: whether they hold in one direction only.
        left_out: self-loops and duplicates that the format has no place for.
    """

    n: int | None
    m: int
    directed: bool
    left_out: int = 0


@dataclass(frozen=True)
class Survey:
    """What is known of edges after reading them all.

    Attributes:
        n: vertices.
        m: edges, each undirected one once.
        ids: the external ids in ascending order, int64; None where vertices are 0..n-1 as given.
    """

    n: int
    m: int
    ids: NDArray[np.int64] | None


class EdgeStream:
    """The edges, in order, each undirected one once."""

    def __init__(self, edges: EdgeList, progress: Callable[[int], None] | None = None) -> None:
        self.edges = edges
        self._progress = progress

    @property
    def title(self) -> str:
        """The edges' name for a comment: in one line, and in letters that UTF-8 has, which a file's name may lack."""
        return " ".join(self.edges.name.split()).encode(errors="replace").decode()

    def pieces(self) -> Iterator[Edges]:
        """Sources and targets, int64, of about ``PIECE_EDGES`` edges at a time.

        Raises:
            TruncatedFileError: there are fewer edges, or more, than a file's header promises.
            FormatError: the machine can't read them.
        """
        read = 0
        for piece in self.edges.cut(PIECE_EDGES):
            src, dst = self._read(piece)
            read += src.size
            if self._progress is not None:
                self._progress(read)
            if self.edges.mirrored and not self.edges.directed:
                # The other direction is in the pieces, too.
                once = src >= dst
                src, dst = src[once], dst[once]
            yield src, dst
        if self.edges.m not in (None, read):
            raise TruncatedFileError(
                f"{self.edges.name}: {self.edges.m} edges are promised (by its header), {read} are there"
            )

    def _read(self, piece: Piece) -> Edges:
        try:
            return piece.read()
        except OSError as error:
            # Errors of dbfs may be OSErrors, too; one of the machine, with a number, would pass for one of the output.
            if error.errno is None:
                raise
            raise FormatError(f"{self.edges.name} can't be read: {error.strerror or error}") from error

    def numbered(self, survey: Survey) -> Iterator[Edges]:
        """The pieces with vertices 0..n-1."""
        for src, dst in self.pieces():
            if survey.ids is None:
                yield src, dst
            else:
                yield np.searchsorted(survey.ids, src), np.searchsorted(survey.ids, dst)

    def survey(self) -> Survey:
        """Count vertices and edges: for nothing where both are known, else by a pass through all edges."""
        n, m = self.edges.n, self.edges.m
        mirrored = self.edges.mirrored and not self.edges.directed
        if n is not None and m is not None and not mirrored:
            return Survey(n, m, None)
        ids, count = np.empty(0, np.int64), 0
        for src, dst in self.pieces():
            count += src.size
            if n is None:
                ids = np.unique(np.concatenate([ids, src, dst]))
        if n is not None:
            return Survey(n, count, None)
        dense = ids.size == 0 or ids[-1] == ids.size - 1
        return Survey(ids.size, count, None if dense else ids)

    def written(self, survey: Survey) -> Written:
        """The report on a file that holds them all."""
        return Written(survey.n, survey.m, self.edges.directed)

    def without(self, report: Written, left_out: int) -> Written:
        """The report on a file that lacks some."""
        return replace(report, m=report.m - left_out, left_out=left_out)
