"""Edges of an undirected graph that are listed at one of their ends only: the error, or the edges that are missing."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dbfs.edges.edge_list import EdgeList
from dbfs.edges.readers.file import FileEdges
from dbfs.errors import FormatError
from dbfs_workers.building.pieces import Edges
from dbfs_workers.building.symmetry import missing_reverses


@dataclass(frozen=True, order=True)
class OneSided:
    """An edge that is not listed as often as its reverse.

    Attributes:
        source, target: its vertices.
        times: how often it is listed.
        back: how often its reverse is listed.
    """

    source: int
    target: int
    times: int
    back: int

    def error(self, edges: EdgeList, count: int) -> FormatError:
        """Return the error for an edge list in which ``count`` edges lack their reverse, this one first."""
        what = "vertex number" if edges.has_names else "vertex"
        u, v = (edges.first_id + vertex for vertex in (self.source, self.target))
        lines = map(edges.line_of, (self.source, self.target))
        of_u, of_v = ("" if line is None else f" (line {line})" for line in lines)
        listed = f"lists {v}" + (f" {self.times:,} times" if self.back else "")
        answer = "does not list" if not self.back else f"lists only {self.back:,} times"
        ways = ". directed=False adds what is missing, directed=True takes the edges as they are listed"
        return FormatError(
            f"{edges.name}: {what} {u}{of_u} {listed}, and {what} {v}{of_v} {answer} {u}. Each edge of an undirected "
            f"graph is listed at both ends; {count:,} {'edge is' if count == 1 else 'edges are'} not"
            f"{ways if isinstance(edges, FileEdges) else ''}"
        )


def missing_among(edges: EdgeList, src: NDArray[np.int64], dst: NDArray[np.int64]) -> Edges:
    """Return the reverses that the edges of an edge list lack; ``src`` and ``dst`` are all of its edges, in memory.

    Raise ``FormatError`` if there are such, unless the edge list says that they are to be added.
    """
    owners, others = missing_reverses(src, dst)
    if owners.size and not edges.completes:
        ends = int(others[0]), int(owners[0])
        times, back = (int(np.count_nonzero((src == u) & (dst == v))) for u, v in (ends, ends[::-1]))
        raise OneSided(*ends, times, back).error(edges, owners.size)
    return owners, others
