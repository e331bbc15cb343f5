"""What is known of a graph without asking its workers: the counts that its build took."""

from dbfs.records import GraphRecord
from dbfs_workers.storage.stripe import Stripe


class GraphCounts:
    """A graph's counts.

    Attributes:
        record: everything the service knows of the graph.
    """

    def __init__(self, record: GraphRecord) -> None:
        self.record = record

    @property
    def n(self) -> int:
        """Number of vertices."""
        return self.record.stripe.n

    @property
    def m(self) -> int:
        """Directed edges stored: an undirected edge counts twice (a self-loop once), duplicates included."""
        return sum(info.m_local for info in self.record.infos)

    @property
    def input_edges(self) -> int:
        """Edges read, as the file or generator lists them."""
        return self.record.infos[0].input_edges

    @property
    def self_loops(self) -> int:
        """Edges from a vertex to itself, duplicates included."""
        return sum(info.self_loops for info in self.record.infos)

    @property
    def duplicates(self) -> int:
        """Directed edges that repeat another: ``m - duplicates`` are distinct."""
        return sum(info.duplicates for info in self.record.infos)

    @property
    def max_degree(self) -> int:
        """The largest number of edges stored at a vertex."""
        return max(info.max_degree for info in self.record.infos)

    @property
    def nbytes(self) -> tuple[int, ...]:
        """Bytes of each rank's partition."""
        return tuple(info.nbytes for info in self.record.infos)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.record.stripe.p

    @property
    def stripe(self) -> Stripe:
        """How vertices lie on the ranks."""
        return self.record.stripe
