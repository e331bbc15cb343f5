"""StripedGraph: what all calls of a graph stand on, its ids, its numbering, and its version at this moment."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import part_of
from dbfs.base.integers import vertex_number
from dbfs.base.records import Formation, GraphRecord
from dbfs.building.attributes import AttributeKeeper
from dbfs.cluster.awaiting import AsyncView
from dbfs.cluster.deadline import bounded, of_call
from dbfs.cluster.gang import Gang, Ref, release
from dbfs.cluster.own_process import StaysHere
from dbfs.engines import Engines
from dbfs.errors import (
    InvalidOptionError,
    InvalidVertexError,
    InvalidVertexTypeError,
    ResultReleasedError,
    WorkerLostError,
)
from dbfs.graph.counts import GraphCounts
from dbfs.graph.ids import IdLookup
from dbfs.graph.positions import Numbering
from dbfs.service.client import ServiceClient
from dbfs.service.messages import GetGraph, UnloadGraph
from dbfs_workers.base.errors import LEFT_OUT, DeletedVertexError
from dbfs_workers.base.text import printable
from dbfs_workers.ids.sequence import handed_out
from dbfs_workers.serving import queries

if TYPE_CHECKING:
    from dbfs_workers.ids.sequence import CallerIds
    from dbfs_workers.ids.table import IdType
    from dbfs_workers.search.partition.ordering import DegreeOrder


class LabelsOnWorkers(ABC):
    """Labels that the workers free when their graph is unloaded, unless the labels are published before.

    Attributes:
        attempts: how often the run was made: twice if it lost a worker, and the graph came back.
    """

    attempts = 1

    @abstractmethod
    def publish(self) -> None:
        """Make the labels Dask data of this client, so that they outlive the graph."""


@part_of("Graph")
class StripedGraph(StaysHere, GraphCounts, ABC):
    """A graph whose vertices are striped over the workers of a gang: its ids and numbers, and no calls that traverse.

    Args:
        record: the service's record of the graph.
        formed: the backend and the exchange of its gang.
        client: the client that calls.

    Attributes:
        gang: the workers that hold the graph.
        lookup: the ids and their vertices.
        numbering: the internal numbering of the vertices.
        deletions: the vertices that were deleted.
        results: results of this object whose labels are on the workers.
        engines: the engines by name, of which only the assembly knows all.
        keeper: what keeps the columns of edges; None without such a feature.
    """

    _inner = StaysHere._inner | {
        "begins_again",
        "deletions",
        "engines",
        "follow",
        "formed",
        "gang",
        "keeper",
        "lookup",
        "numbering",
        "partition_keys",
        "python_ids",
        "require_loaded",
        "require_version",
        "results",
        "take",
        "vertices_named",
        "view",
    }

    engines: ClassVar[Engines]
    keeper: ClassVar[AttributeKeeper | None] = None

    def __init__(self, record: GraphRecord, formed: Formation, client: distributed.Client) -> None:
        super().__init__(record, formed)
        self.gang = Gang(client, record.addresses)
        self.lookup = IdLookup(self.gang, record)
        self.numbering = Numbering(self.gang, record)
        self.deletions = DeletedVertices(self)
        self._unloaded = False
        self.results: weakref.WeakSet[LabelsOnWorkers] = weakref.WeakSet()
        if not record.named:
            # Only this object refers to a nameless graph, which is therefore unloaded with it.
            service, message = ServiceClient.of(client), UnloadGraph(record.graph_id, client.id)
            # Not waited for, since finalizers run in any thread.
            weakref.finalize(self, service.send, message).atexit = False

    @property
    def elsewhere(self) -> str:
        name = repr(self.record.name) if self.record.named else "name"
        before = "" if self.record.named else "load the graph with name=, and "
        in_task = f"dbfs.open({name}, client=distributed.get_client())"
        return f"{before}open the graph there: dbfs.open({name}), in a task {in_task}"

    @property
    def unloaded(self) -> bool:
        """Whether this object has unloaded the graph."""
        return self._unloaded

    @property
    def partition_keys(self) -> tuple[Hashable, ...]:
        """Dask keys of the ranks' partitions."""
        self.require_loaded()
        return self.record.partition_keys

    @property
    def order(self) -> DegreeOrder | None:
        """The internal numbering of a graph loaded with ``order="degree"``; else None."""
        return self.numbering.order

    @property
    def version(self) -> int:
        """Number of the graph's version at this moment: the updates of edges and vertices of all clients."""
        self.refresh()
        return self.record.version

    def require_version(self, version: int, what: object) -> None:
        """Check that a result is of the graph's version at this moment.

        Raises:
            InvalidOptionError: it is not; ``what`` names the result.
            Other errors as for ``refresh``.
        """
        if version != self.version:
            raise InvalidOptionError(
                f"{what} is of version {version} of {self.name}, which is {self.record.version} now; traverse again"
            )

    @bounded()
    def refresh(self) -> None:
        """Read the graph's record anew: other clients may have updated the graph.

        Raises:
            GraphNotFoundError, ResultReleasedError: the graph was unloaded.
        """
        self.require_loaded()
        if self.record.mutable or self.record.version:
            self.take(ServiceClient.of(self.gang.client).call(GetGraph(self.record.graph_id)))

    @property
    def id_type(self) -> IdType:
        """The type of the graph's ids: integers, strings, or tuples of these."""
        return self.lookup.id_type

    @bounded()
    def vertex(self, id: Any) -> int:  # noqa: A002 - the word users expect
        """Return the vertex, 0..n-1, of an id: the index of its labels in ``distances()``.

        Raises:
            InvalidVertexError: the graph has no such id; the message names ids near it.
            InvalidVertexTypeError: the id is not of the type ``id_type``.
        """
        self._require_tables()
        return self.lookup.vertex(id)

    @bounded()
    def vertices_of(self, ids: Any) -> NDArray[np.int64]:
        """Return the vertices of many ids, int64, in their order.

        Args:
            ids: an id, or several: an iterable, a NumPy array, a series, or an Arrow array.

        Errors as for ``vertex``.
        """
        self._require_tables()
        return self.lookup.vertices_of(ids)

    @bounded()
    def id_of(self, vertex: int) -> Any:
        """Return the id of a vertex: an int, a str, or a tuple of these.

        Raises:
            InvalidVertexError: the vertex is outside 0..n-1.
            InvalidVertexTypeError: the vertex is not an integer.
        """
        number = vertex_number(vertex, "vertex")
        if not 0 <= number < self.n:
            raise InvalidVertexError(f"there is no vertex {number} in {self.record.name}: vertices are 0..{self.n - 1}")
        return self.python_ids([number])[0]

    @bounded()
    def ids_of(self, vertices: Any) -> CallerIds:
        """Return the ids of many vertices, in their order.

        Integers are an int64 array. Strings and tuples are an ``IdSequence``: Python's values over Arrow's buffers.

        Args:
            vertices: an array of integers, or a sequence.

        Raises:
            InvalidVertexError: a vertex is outside 0..n-1.
            InvalidVertexTypeError: the vertices are not integers.
        """
        self._require_tables()
        array = np.asarray(vertices)
        if array.size and (array.dtype.kind not in "iu" or np.ma.is_masked(vertices)):
            kind = "masked" if np.ma.is_masked(vertices) else array.dtype
            raise InvalidVertexTypeError(f"vertices must be integers, not {kind}")
        return handed_out(self.lookup.ids_of(array.astype(np.int64, copy=False)))

    @bounded()
    def ids(self) -> CallerIds:
        """Return the ids of all vertices, in the order of vertices, as ``ids_of`` does. The client takes n ids."""
        self._require_tables()
        return handed_out(self.lookup.everything())

    def vertices_named(self, given: Any, what: str, *, present: bool = False) -> tuple[int, ...]:
        """Return the vertices of one id, or of several; ``what`` is the name of an id in messages.

        Errors as for ``vertex``, and if ``present`` ``InvalidVertexError`` for a deleted vertex. The ranks refuse
        deleted sources themselves.
        """
        if self._record.mutable:
            # Other clients may have inserted vertices.
            self.refresh()
        self._require_tables()
        found = self.lookup.several(given, what)
        if present:
            self.deletions.refuse(found, what)
        return found

    def python_ids(self, vertices: Sequence[int]) -> list[Any]:
        """Return the ids of vertices 0..n-1 as Python's integers, strings or tuples."""
        self._require_tables()
        return self.lookup.python_ids(vertices)

    def begins_again(self, error: WorkerLostError, made: int) -> bool:
        """Return whether a call that lost a worker begins again: never, unless a feature brings the graph back.

        Args:
            error: the error of the call, which the caller raises otherwise.
            made: how often the call was made.
        """
        return False

    def follow(self, record: GraphRecord, formed: Formation) -> None:
        """Take over the graph as it was built again, with other workers."""
        client = self.gang.client
        # Another thread may still use the numbering.
        release(self.numbering.placed)
        GraphCounts.__init__(self, record, formed)
        self.gang = Gang(client, record.addresses)
        self.lookup = IdLookup(self.gang, record)
        self.numbering = Numbering(self.gang, record)
        self.deletions = DeletedVertices(self)

    @abstractmethod
    def view(self) -> AsyncView[StripedGraph]:
        """Return the graph for an asynchronous client."""

    def take(self, record: GraphRecord) -> None:
        """Take over a record, unless this object has the record of a later version."""
        if record.version >= self.record.version:
            grown = record.stripe.n != self.n
            self._record = record
            if grown:
                self.lookup = IdLookup(self.gang, record)

    def _require_tables(self) -> None:
        # Ids without tables can be named after the graph was unloaded.
        if self._record.ids.keys:
            self.require_loaded()

    def require_loaded(self) -> None:
        """Raise ``ResultReleasedError`` if this object has unloaded the graph."""
        if self._unloaded:
            raise ResultReleasedError(f"{self.record.name} was unloaded; load it again")


class DeletedVertices:
    """The vertices of a graph that updates deleted. A rank is asked for them once a version."""

    def __init__(self, graph: StripedGraph) -> None:
        # A reference would keep a graph without a name loaded.
        self._graph: StripedGraph = weakref.proxy(graph)
        self._version = -1
        self._deleted = np.empty(0, np.int64)

    def others(self) -> NDArray[np.int64]:
        """Return all other vertices, ascending. Errors as for ``Graph.refresh``."""
        vertices = np.arange(self._graph.n)
        return np.setdiff1d(vertices, self._gone(), assume_unique=True) if self._graph.deleted else vertices

    def refuse(self, vertices: Sequence[int] | NDArray[np.int64], what: str) -> None:
        """Raise ``InvalidVertexError`` if one of some vertices was deleted; ``what`` is a vertex's name in messages."""
        if not self._graph.deleted:
            return
        gone = np.intersect1d(np.asarray(vertices, np.int64), self._gone())
        if gone.size:
            raise self._refusal(int(gone[0]), what, f"{_more(gone.size)} {self._words}")

    def named(self, error: DeletedVertexError) -> InvalidVertexError:
        """Return the error of a rank with the id of the deleted vertex."""
        (vertex,) = self._graph.numbering.vertices_at([error.position])
        return self._refusal(vertex, "vertex", error.words)

    def _refusal(self, vertex: int, what: str, words: str) -> InvalidVertexError:
        shown = printable(repr(self._graph.python_ids([vertex])[0]), 80)
        return InvalidVertexError(f"{self._graph.name}: {what} {shown}{words}")

    @property
    def _words(self) -> str:
        return "was deleted" if self._graph.record.version else LEFT_OUT

    def _gone(self) -> NDArray[np.int64]:
        """Return the deleted vertices of the record's version, ascending."""
        graph = self._graph
        if not graph.deleted:
            return np.empty(0, np.int64)
        if self._version != graph.record.version:
            arguments, doing = [(Ref(graph.partition_keys[0]),)], f"reading the deleted vertices of {graph.name}"
            asked = graph.gang.on_each_rank("deleted-vertices", queries.deleted_vertices, arguments, of_call(), doing)
            self._version, positions = asked[0]
            self._deleted = np.sort(graph.numbering.vertices(positions))
        return self._deleted


def _more(count: int) -> str:
    return f" and {count - 1:,} more" if count > 1 else ""
