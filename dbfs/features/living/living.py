"""Updates: edges and vertices of a graph that come and go, version by version."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs.building.on_cpu import HostBuilder
from dbfs.cluster.deadline import Deadline, of_call
from dbfs.cluster.gang import release
from dbfs.cluster.rank_calls import RankCalls
from dbfs.edges import generate
from dbfs.edges.arrays import ArrayEdges
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.one_sided import missing_among
from dbfs.edges.readers.source import require_readable
from dbfs.edges.resolve import edge_list
from dbfs.edges.tables.memory import TableEdges
from dbfs.errors import EdgeInputError, GraphTooLargeError, InvalidOptionError, InvalidVertexError, WorkerLostError
from dbfs.features.living.columns import columns_in, keys_beside, readable, sent_rows
from dbfs.features.living.edges import UpdateBins
from dbfs.features.living.updates import UpdateReport, require_mutable
from dbfs.graph.striped import StripedGraph
from dbfs.service.client import ServiceClient
from dbfs.service.held_run import held_run
from dbfs.service.runs import RunSender
from dbfs_workers.base.errors import DeletedVertexError
from dbfs_workers.base.received import require
from dbfs_workers.base.text import Identifier, printable
from dbfs_workers.building.pieces import Edges
from dbfs_workers.features.living.changing import read_changes
from dbfs_workers.features.living.messages import TakeUpdate
from dbfs_workers.features.living.update_spec import NumberedBeforeError, UpdateChange, UpdateSpec
from dbfs_workers.ids.codes import MOST_SMALL_IDS

if TYPE_CHECKING:
    import pyarrow as pa

    from dbfs.base.records import GraphRecord
    from dbfs.edges.resolve import EdgeSource
    from dbfs.edges.tables.ends import ColumnNames


EXISTING: Final = ("skip", "update")
"""What becomes of an edge to insert that is there."""

# Edges of an update that travel in a message through the scheduler, as up to 128 KiB. More are binned by tasks.
_FEW_EDGES: Final = 4096
# Edges of an update, times the ranks, that the client sends to every rank: up to 64 MiB in all.
_WHOLE_EDGES: Final = 1 << 23
# The same for GPUs, which sort an update sooner than tasks bin it: up to 512 MiB in all.
_WHOLE_EDGES_ON_GPUS: Final = 1 << 26
# By call, the id of an update that lost a worker after it was sent.
_UNSURE: Final = WeakKeyDictionary[Deadline, str]()


@dataclass(frozen=True)
class Update:
    """The effects of an update.

    Attributes:
        version: number of the graph's version that the update made.
        edges: number of edges inserted or deleted, with the edges of deleted vertices.
        skipped: number of items left out: edges to insert that the graph had, edges to delete that it lacked, or
            vertices that were deleted before.
        ids: ids of the vertices inserted or deleted.
        replaced: number of edges to insert that the graph had, or of vertices, that have the batch's values now.
    """

    version: int
    edges: int
    skipped: int
    ids: tuple[Any, ...]
    replaced: int = 0


@dataclass(frozen=True)
class Batch:
    """Edges to insert or delete.

    Attributes:
        edges: the edges.
        columns: an Arrow table of all columns of the graph, a row for each edge; None if the batch has none.
        replaces: whether an edge that the graph has takes the values of its row.
    """

    edges: EdgeList
    columns: pa.Table | None = None
    replaces: bool = False


class Updates:
    """The updates of a graph, which is loaded with ``mutable=True``.

    An update waits for its turn in the queue of all runs, so no traversal is under way meanwhile: each sees one
    version. An update changes all ranks at once or none of them: after an error the graph has its version before. Any
    client may update a graph with a name.
    """

    def __init__(self, graph: StripedGraph) -> None:
        self._graph = graph

    @property
    def _record(self) -> GraphRecord:
        return self._graph.record

    def batch(
        self,
        edges: EdgeSource,
        format: str | None,  # noqa: A002
        source: ColumnNames,
        target: ColumnNames,
        existing: str | None = None,
        *,
        strict: bool = False,
    ) -> Batch:
        """Return edges as a batch whose direction is the graph's.

        ``existing`` is the option ``on_existing`` of an insertion, whose columns are read too; None of a deletion.
        """
        if existing not in (None, *EXISTING):
            raise InvalidOptionError(f"on_existing must be one of {', '.join(EXISTING)}, not {existing!r}")
        edges = readable(edges)
        own = isinstance(edges, EdgeList) or (isinstance(edges, str) and generate.is_spec(edges))
        directed = None if own else self._record.directed
        options: dict[str, Any] = {"directed": directed, "format": format, "source": source, "target": target}
        listed = edge_list(edges, **options)
        if listed.directed != self._record.directed:
            raise InvalidOptionError(
                f"{listed.name} is {_direction(listed.directed)}, and {self._record.name} is "
                f"{_direction(self._record.directed)}: an update needs edges of the graph's own kind"
            )
        if listed.path is not None:
            require_readable(listed.path, shared=self._graph.gang.client.cluster is None)
        beside, columns, replaces = self._record.beside, None, existing == "update"
        if existing is not None and beside is not None and beside.edge_columns:
            columns = columns_in(edges, listed, beside.edge_schema, options)
        if replaces and (columns is None or strict):
            why = "strict=True refuses such edges" if strict else f"{listed.name} has no columns of {self._record.name}"
            raise InvalidOptionError(f"on_existing='update' replaces the values of edges that are there, and {why}")
        return Batch(listed, columns, replaces)

    def change(
        self,
        kind: str,
        batch: Batch | None = None,
        *,
        count: int = 0,
        vertices: tuple[int, ...] = (),
        strict: bool = False,
        batch_id: str | None = None,
    ) -> Update:
        """Make an update of a kind of ``UpdateSpec``; other arguments and errors as of the methods of ``Graph``."""
        try:
            return self._change(kind, batch, count, vertices, strict, batch_id)
        except DeletedVertexError as error:
            raise self._graph.deletions.named(error) from error

    def set_vertices(self, keys: tuple[Hashable, ...], count: int, batch_id: str | None) -> Update:
        """Change data of ``count`` vertices beside the partitions; ``keys`` have them by rank: see ``UpdateChange``.

        Errors as of ``Graph.insert_vertices``.
        """
        self._require_mutable("set-vertices")
        spec = UpdateSpec("set-vertices", self._record.order_key is not None)
        report = self._sent(UpdateChange(spec, False, keys, batch_id=batch_id or ""), of_call())
        self._graph.take(report.record)
        return Update(report.record.version, 0, 0, (), count)

    def _change(
        self,
        kind: str,
        batch: Batch | None,
        count: int,
        vertices: tuple[int, ...],
        strict: bool,
        batch_id: str | None,
    ) -> Update:
        limit = of_call()
        batch_id = batch_id or _UNSURE.get(limit)
        if batch_id is not None:
            require(batch_id, Identifier, "batch_id")
        edges = None if batch is None else batch.edges
        few = isinstance(edges, ArrayEdges | TableEdges) and edges.m and edges.m <= _FEW_EDGES
        if batch is not None and (few or batch.columns is not None):
            return self._change_few(kind, batch, strict, limit, batch_id)
        self._graph.refresh()
        self._require_mutable(kind)
        run_id, given, new = uuid.uuid4().hex, edges, dict[Any, int]()
        if given is not None and self._record.ids.keys:
            edges, new = self._between_vertices(given, kind)
        service, held = ServiceClient.of(self._graph.gang.client), set[Any]()
        positions = np.array(self._graph.numbering.positions(vertices), np.int64)
        try:
            with held_run(service, self._record.graph_id, run_id, 0, limit, kind) as run:
                # Another update may have come before this one's turn.
                self._graph.refresh()
                self._require_mutable(kind)
                if given is not None and new and self._graph.n != next(iter(new.values())):
                    edges, new = self._between_vertices(given, kind)
                grown = replace(self._record, stripe=self._record.stripe.grown(len(new)))
                bins = UpdateBins(self._graph.gang, grown, run_id, limit, lambda: run.check(lambda: f"run {run_id}"))
                held = bins.held
                whole = edges is not None and self._goes_whole(edges)
                if edges is not None and whole:
                    self._send_whole(edges, run_id, limit, lambda: run.check(lambda: f"run {run_id}"))
                elif edges is not None:
                    bins.bin_edges(edges)
                elif positions.size:
                    bins.bin_incident(positions)
                binned = not whole and (edges is not None or positions.size > 0)
                spec = UpdateSpec(
                    kind, self._record.order_key is not None, count, positions, ids=tuple(new), n=self._graph.n
                )
                keys = bins.keys if binned else ()
                if kind == "delete-vertices" and not positions.size:
                    return Update(self._record.version, 0, 0, ())
                report = self._sent(UpdateChange(spec, strict, keys, batch_id=batch_id or ""), limit, run_id)
                if not report.applied:
                    raise self._refusal(kind, report, new)
        finally:
            release(held)
        self._graph.take(report.record)
        ids = self._graph.python_ids(self._graph.numbering.vertices_at(report.vertices.tolist()))
        return Update(report.record.version, report.edges, report.refused + report.absent, tuple(ids))

    def _change_few(self, kind: str, batch: Batch, strict: bool, limit: Deadline, batch_id: str | None) -> Update:
        """Insert or delete a few edges, which go to the ranks with the message of the update; or edges with columns."""
        self._graph.require_loaded()
        if not self._record.mutable:
            # Another client may have thawed the graph.
            self._graph.refresh()
        self._require_mutable(kind)
        while True:
            try:
                return self._send_few(kind, batch, strict, limit, batch_id)
            except NumberedBeforeError:
                # Another update with new ids came first.
                limit.enforce(lambda: f"changing {self._record.name}")
                self._graph.refresh()

    def _send_few(self, kind: str, batch: Batch, strict: bool, limit: Deadline, batch_id: str | None) -> Update:
        """See ``_change_few``.

        Raise ``NumberedBeforeError`` if the graph has got more vertices since new ids of the update were numbered.
        """
        edges, new, n = batch.edges, dict[Any, int](), self._graph.n
        if self._record.ids.keys:
            edges, new = self._between_vertices(edges, kind)
        src, dst = self._read(edges)
        rows = np.arange(src.size)
        if self._record.order_key is not None:
            src, dst = np.array(self._graph.numbering.positions([*src.tolist(), *dst.tolist()]), np.int64).reshape(
                2, -1
            )
        if not self._record.directed and not edges.mirrored:
            # A self-loop is its own reverse.
            back = src != dst
            rows = np.concatenate([rows, rows[back]])
            src, dst = np.concatenate([src, dst[back]]), np.concatenate([dst, src[back]])
        spec = UpdateSpec(kind, self._record.order_key is not None, ids=tuple(new), n=n, replaces=batch.replaces)
        held = list[distributed.Future]()
        try:
            if batch.columns is None:
                spec = replace(spec, edges=(src, dst))
            else:
                given = batch.columns.num_rows
                if edges.m not in (None, given):
                    raise EdgeInputError(f"{edges.name}: {edges.m:,} edges have {given:,} rows of columns")
                grown = self._record.stripe.grown(len(new))
                held = sent_rows(self._graph.gang, self._record, grown, (src, dst), rows, batch.columns)
            keys = tuple(future.key for future in held)
            report = self._sent(UpdateChange(spec, strict, keys, batch_id=batch_id or ""), limit)
        finally:
            release(held)
        if not report.applied:
            raise self._refusal(kind, report, new)
        self._graph.take(report.record)
        skipped, replaced = (0, report.refused) if batch.replaces else (report.refused, 0)
        return Update(report.record.version, report.edges, skipped, tuple(new), replaced)

    def _sent(self, change: UpdateChange, limit: Deadline, of_tasks: str = "") -> UpdateReport:
        """Send an update; see ``RunSender.update``."""
        change = replace(change, beside=keys_beside(self._record))
        try:
            report = RunSender.of(self._graph.gang.client).update(self._record.graph_id, change, limit, of_tasks)
        except WorkerLostError as error:
            if self._record.log and hasattr(error, "batch_id"):
                # If the call begins again: the log may have the version.
                _UNSURE[limit] = error.batch_id
            raise
        _UNSURE.pop(limit, None)
        assert isinstance(report, UpdateReport)
        return report

    def _goes_whole(self, edges: EdgeList) -> bool:
        """Return whether every rank gets the whole update, and takes its own edges, instead of tasks that bin it."""
        in_memory = isinstance(edges, ArrayEdges | TableEdges) and edges.m
        most = _WHOLE_EDGES if self._record.backend == "cpu" else _WHOLE_EDGES_ON_GPUS
        return bool(
            in_memory
            and in_memory * self._graph.gang.p <= most
            and self._record.order_key is None
            and self._graph.n <= MOST_SMALL_IDS
        )

    def _send_whole(self, edges: EdgeList, run_id: str, limit: Deadline, check: Callable[[], None]) -> None:
        """Send an update to every rank."""
        data = np.concatenate(self._read(edges)).astype(np.uint32).tobytes()
        symmetrise = not self._record.directed and not edges.mirrored
        take = TakeUpdate(self._record.graph_id, run_id, data, symmetrise)
        doing = f"changing {self._record.name}"
        RankCalls(self._graph.gang, dict.fromkeys(range(self._graph.gang.p), take), limit, doing).answers(check)

    def _read(self, edges: EdgeList) -> Edges:
        """Return an update's edges as vertices. The client reads them. Ids that have a table were mapped before."""
        pieces = edges.cut(max(edges.m or 0, 1 << 20))
        first_ids = (edges.first_id if edges.n is not None else 0, self._record.ids.first_id)

        def read(n: int) -> Edges:
            parts = [read_changes(piece, *first_ids, n, edges.name) for piece in pieces]
            src, dst = zip(*parts, strict=True)
            return parts[0] if len(parts) == 1 else (np.concatenate(src), np.concatenate(dst))

        if self._record.ids.keys:
            assert edges.n is not None
            return read(edges.n)
        try:
            return read(self._graph.n)
        except InvalidVertexError:
            # Another client may have inserted the vertices.
            self._graph.refresh()
            return read(self._graph.n)

    def _between_vertices(self, edges: EdgeList, kind: str) -> tuple[EdgeList, dict[Any, int]]:
        """Return an update between ids that have a table as one between vertices, and the vertices of new ids.

        The client reads and maps the ids. Only edges to insert may have new ids. Errors as for ``Graph.insert_edges``.
        """
        self._graph.require_loaded()
        new = dict[Any, int]()
        ends: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]] = ([], [])
        shift = edges.first_id if edges.n is not None else 0
        parts = [piece.read() for piece in edges.cut(HostBuilder.piece_edges(edges.m, self._graph.gang.p))]
        if edges.paired:
            parts.append(missing_among(edges, *map(np.concatenate, zip(*parts, strict=True))))
        for part in parts:
            for ids, mapped in zip(part, ends, strict=True):
                shifted = ids + shift if shift else ids
                mapped.append(self._graph.lookup.vertices_of(shifted, new=new if kind == "insert-edges" else None))
        room = self._record.stripe.room
        if len(new) > room:
            first = printable(repr(next(iter(new))), 80)
            raise GraphTooLargeError(
                f"{self._record.name} has room for {room:,} more vertices, and the edges have {len(new):,} new ids, "
                f"among them {first}; load the graph with room={len(new):,} or more for them"
            )
        src, dst = (np.concatenate(mapped) for mapped in ends)
        n = self._graph.n + len(new)
        return ArrayEdges(edges.name, n, src.size, edges.directed, mirrored=edges.mirrored, src=src, dst=dst), new

    def _require_mutable(self, kind: str) -> None:
        record = self._record
        if record.beside is not None and not record.beside.changeable:
            raise InvalidOptionError(f"{record.name} {record.beside.in_words}, and so can't be changed")
        if kind != "thaw":
            require_mutable(record)
        elif record.layout is not None:
            name = record.layout.name
            raise InvalidOptionError(f"{record.name} is loaded with layout={name!r}, whose blocks have no pages")
        elif record.input_edge_keys:
            raise InvalidOptionError(f"{record.name} keeps the edges as they were read, which updates leave behind")

    def _refusal(self, kind: str, report: UpdateReport, new: dict[Any, int]) -> Exception:
        name = self._record.name
        if report.absent:
            return InvalidVertexError(
                f"{name}: vertices were deleted before, {report.absent:,} of the batch; none was deleted"
            )
        assert report.first_refused is not None
        ids = {vertex: one for one, vertex in new.items()}
        known = [vertex for vertex in self._graph.numbering.vertices_at(report.first_refused) if vertex not in ids]
        ids.update(zip(known, self._graph.python_ids(known), strict=True))
        source, target = (ids[vertex] for vertex in self._graph.numbering.vertices_at(report.first_refused))
        wrong = "are there already, or occur twice" if kind == "insert-edges" else "are not there, or occur twice"
        return EdgeInputError(
            f"{name}: edges of the batch {wrong}, {report.refused:,} in all, among them ({source!r}, {target!r}); "
            "strict=True refuses the whole batch"
        )


def _direction(directed: bool) -> str:
    return "directed" if directed else "undirected"
