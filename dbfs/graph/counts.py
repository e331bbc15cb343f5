"""Counts of a graph that the build took; reading them needs no worker."""

from dbfs.base.records import Formation, GraphRecord
from dbfs_workers.base.text import counted
from dbfs_workers.search.partition.stripe import Stripe


class GraphCounts:
    """The counts of a graph, and what else does not change while it is loaded.

    Args:
        record: the service's record of the graph.
        formed: the backend and the exchange of its gang.
    """

    def __init__(self, record: GraphRecord, formed: Formation) -> None:
        self._record = record
        self.formed = formed
        self.name = record.name
        self.directed = record.directed
        self.read_seconds = record.read_seconds
        self.build_seconds = record.build_seconds
        self.backend = formed.backend
        self.exchange = formed.exchange
        self.layout = record.layout_name
        self.grid = record.layout
        self.order_name = record.order_name

    @property
    def record(self) -> GraphRecord:
        """The service's record of the graph."""
        return self._record

    @property
    def n(self) -> int:
        """Number of vertices."""
        return self.record.stripe.n

    @property
    def deleted(self) -> int:
        """Number of deleted vertices, which ``n`` still counts. Measures leave them out."""
        return self.record.infos[0].deleted

    @property
    def m(self) -> int:
        """Number of directed edges stored: an undirected edge counts twice (a self-loop once), duplicates included."""
        return sum(info.m_local for info in self.record.infos)

    @property
    def input_edges(self) -> int:
        """Number of edges read, as the file or the generator lists them: METIS files list an undirected edge twice."""
        return self.record.infos[0].input_edges

    @property
    def self_loops(self) -> int:
        """Number of edges from a vertex to itself, duplicates included."""
        return sum(info.self_loops for info in self.record.infos)

    @property
    def duplicates(self) -> int:
        """Number of directed edges that repeat another one: ``m - duplicates`` are distinct."""
        return sum(info.duplicates for info in self.record.infos)

    @property
    def max_degree(self) -> int:
        """Largest number of edges stored at one vertex."""
        return max(info.max_degree for info in self.record.infos)

    @property
    def nbytes(self) -> tuple[int, ...]:
        """Bytes of each rank's partition, by rank."""
        return tuple(info.nbytes for info in self.record.infos)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.record.stripe.p

    @property
    def stripe(self) -> Stripe:
        """The distribution of the vertices over the ranks."""
        return self.record.stripe


def vertices_in_words(counts: GraphCounts) -> str:
    """Return a graph's number of vertices: ``1 vertex``, ``2,000 vertices``."""
    return counted(counts.n, "vertex", "vertices")


def edges_in_words(counts: GraphCounts) -> str:
    """Return a graph's number of edges, and of those stored if it differs: ``9 undirected edges (18 stored)``."""
    if counts.record.directed:
        return counted(counts.m, "directed edge")
    # An undirected edge is stored in both directions, a self-loop once.
    return f"{counted((counts.m + counts.self_loops) // 2, 'undirected edge')} ({counts.m:,} stored)"
