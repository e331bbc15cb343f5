"""BatchResult: the result of many traversals at once, a bit each. What is kept stays striped on the workers."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from dbfs.base.calls import part_of, public
from dbfs.base.memory import require_room
from dbfs.base.progress import ProgressOption
from dbfs.base.records import RunProgress
from dbfs.base.units import format_seconds
from dbfs.cluster.deadline import bounded, of_call
from dbfs.cluster.gang import release
from dbfs.cluster.own_process import StaysHere
from dbfs.engines import Outcome
from dbfs.engines.resident import ResidentEngine, ResidentLabels
from dbfs.errors import (
    GraphLostError,
    InvalidOptionError,
    InvalidVertexError,
    LabelsLostError,
    NoRoomForLabelsError,
    ResultReleasedError,
    WorkerLostError,
)
from dbfs.features.validation.validate import Columns, ManySources, validate
from dbfs.graph.distances import DistanceMatrix, Nearest
from dbfs.graph.graph import Graph, R
from dbfs.graph.html import Card
from dbfs.graph.result import BFSResult
from dbfs.graph.striped import StripedGraph
from dbfs.graph.tabular import SHOWN, Tabular
from dbfs.graph.traversing import begun_again, finished, require_one_version, require_options
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.base.text import counted
from dbfs_workers.features.batches.purpose import SWEPT, WORD_SOURCES, Batch, batch_of
from dbfs_workers.features.batches.storage import distance_type, joined, nearest_of
from dbfs_workers.ids.label_table import whole_table
from dbfs_workers.ids.sequence import handed_out
from dbfs_workers.ids.table import from_python

if TYPE_CHECKING:
    import dask.array as da
    import pyarrow as pa

    from dbfs_workers.ids.sequence import CallerIds

KEPT: Final = ("counts", "reached", "distances")
"""What a batch may keep of every vertex."""

MOST_SOURCES: Final = 512
"""Sources of a group, which the ranks traverse from together."""

# Sources for each rank from which on the ranks share the sources instead of the rows, by backend. CPU ranks copy the
# rows in each run, which takes as long as they gain with 512 sources each.
_SHARES: Final = {"cpu": 2 * MOST_SOURCES, "cuda": WORD_SOURCES}
# Bytes of a row of a table while it is made: two indices, two ids, and the distance in two forms.
_ROW_BYTES: Final = 64
# Sources that are validated together. A rank then takes 8 bytes for each of them and of the graph's vertices.
_VALIDATED: Final = 8


def batch(
    graph: StripedGraph,
    sources: tuple[int, ...],
    *,
    keep: tuple[str, ...],
    targets: tuple[int, ...],
    nearest: bool,
    max_depth: int | None,
    direction: str,
    progress: ProgressOption[RunProgress],
) -> BatchResult:
    """Traverse from many vertices at once; arguments and errors as of ``Graph.bfs_batch``.

    ``keep`` is what is kept beside counts. For those of ``SWEPT`` the batch is swept, with the sources in the order of
    the call.
    """
    require_options(graph, direction, max_depth)
    if not sources:
        raise InvalidVertexError("bfs_batch needs at least one source")
    ordered, counts = np.unique(np.array(sources, np.int64), return_counts=True)
    if ordered.size < len(sources):
        twice = graph.python_ids([int(ordered[counts > 1][0])])[0]
        raise InvalidVertexError(f"bfs_batch needs each source once; {twice!r} is given {counts.max()} times")
    if SWEPT & {*keep}:
        # Callers have put sources beside each other that lie near each other.
        ordered = np.array(sources, np.int64)
    keeps = ("counts", *keep, *(["targets"] if targets else ()), *(["nearest"] if nearest else ()))
    options = TraversalSpec(
        run_id="",
        sources=(),
        predecessors=False,
        backend=graph.backend,
        direction=direction,
        max_depth=max_depth,
        targets=targets,
    )
    # Ranks that share the sources of a group take as many each as a group has otherwise.
    most_shares = ordered.size // _SHARES[graph.backend]
    copied = keeps == ("counts",) and graph.layout == "1d" and 1 < graph.ranks <= most_shares
    most = MOST_SOURCES * (graph.ranks if copied else 1)
    while True:
        # Groups of whole words, of about one size.
        words = -(-ordered.size // WORD_SOURCES)
        size = WORD_SOURCES * -(-words // -(-ordered.size // most))
        parts = tuple(tuple(ordered[first : first + size].tolist()) for first in range(0, ordered.size, size))
        given = replace(options, purpose=Batch(keeps, copied))
        try:
            return begun_again(graph, functools.partial(_made, graph, sources, given, parts, progress, []))[0]
        except NoRoomForLabelsError:
            # Smaller groups take less working memory, and rows without copies.
            if size == WORD_SOURCES:
                raise
            copied, most = False, MOST_SOURCES if copied else size // 2


def _made(
    graph: StripedGraph,
    sources: tuple[int, ...],
    options: TraversalSpec,
    parts: tuple[tuple[int, ...], ...],
    progress: ProgressOption[RunProgress],
    outcomes: list[Outcome],
) -> BatchResult:
    """Make a run of groups of sources, ``parts``; other arguments and errors as of ``batch``.

    ``outcomes`` takes the finished groups. After a loss it has those that need no label: the next run makes the others.
    """
    run = RunSpec(replace(options, run_id=uuid.uuid4().hex), parts)
    try:
        if len(outcomes) < len(parts):
            for _, made in finished(graph, ResidentEngine(), run[len(outcomes) :], progress):
                outcomes.append(made)
        # An update may come between two groups.
        require_one_version(graph, outcomes[0].version, outcomes[-1].version)
        return BatchResult(graph, sources, run, outcomes)
    except BaseException as error:
        for made in outcomes:
            made.labels.drop()
        if not isinstance(error, WorkerLostError) or batch_of(options).keeps != KEPT[:1]:
            outcomes.clear()
        raise


@public
class BatchResult(ManySources, Tabular):
    """The result of ``Graph.bfs_batch``. Its rows or columns of sources are in the order of the call.

    Attributes:
        graph: the graph that was traversed.
        sources: ids of the k sources.
        source_vertices: their vertices.
        targets: ids of the targets.
        target_vertices: their vertices.
        keep: what was kept of every vertex: ``counts``, ``reached`` or ``distances``.
        counts: int64[k, depth + 1], the number of vertices at each distance from each source, the source included.
        depth: the largest distance.
        edges: the sum over the sources of the degrees of the vertices reached.
        seconds: time of the levels of all groups.
        groups: groups of sources, one after another. The ranks traverse together from the sources of a group, or each
            from a share.
        version: version of the graph that was traversed.
        run_id: id of the run.
    """

    _inner = StaysHere._inner | {"begins_again", "columns", "distances_to_targets", "edge_sums", "spec", "sums"}

    def __init__(
        self, graph: StripedGraph, sources: tuple[int, ...], run: RunSpec, outcomes: Sequence[Outcome]
    ) -> None:
        self.graph, self._graph_id = graph, graph.record.graph_id
        self.sources: tuple[Any, ...] = tuple(graph.python_ids(sources))
        self.source_vertices = sources
        self.spec = run.options
        # ``Graph.bfs_batch`` names them. A measure's batch has up to n targets, whose ids are not needed.
        self.targets: tuple[Any, ...] = ()
        self.target_vertices, self.run_id = run.options.targets, run.options.run_id
        self._keeps = batch_of(run.options).keeps
        self.keep = next((name for name in self._keeps if name in KEPT[1:]), KEPT[0])
        self.edges = sum(made.edges for made in outcomes)
        self.seconds = sum(made.seconds for made in outcomes)
        self.groups, self.version = len(outcomes), outcomes[0].version
        # The ranks have the sources in another order, so that the first of several nearest ones is the smallest.
        self._ordered = np.concatenate([np.array(part, np.int64) for part in run.sources])
        ascending = np.argsort(self._ordered)
        self._places = ascending[np.searchsorted(self._ordered, sources, sorter=ascending)]
        # A rank on a GPU counts up to its own largest distance where sources were traversed from one by one.
        most = max(len(one) for made in outcomes for one in made.by_source)
        counts = np.zeros((most, len(sources)), np.int64)
        self._firsts = np.cumsum([0, *map(len, run.sources)])
        for first, made in zip(self._firsts.tolist(), outcomes, strict=False):
            for one in made.by_source:
                counts[: len(one), first : first + one.shape[1]] += one
        names = [name for name in self._keeps if name != KEPT[0]]
        labels = [_labels_of(made) for made in outcomes]
        self._kept: list[dict[str, tuple[Any, ...]]] = []
        if names:
            self._kept = ResidentLabels.publish_all(labels, *names)
        else:
            for each in labels:
                each.drop()
        self._type = distance_type(most - 1)
        self.depth = int(np.flatnonzero(counts.any(axis=1))[-1])
        self.counts: NDArray[np.int64] = np.ascontiguousarray(counts[: self.depth + 1, self._places].T)

    @property
    def elsewhere(self) -> str:
        return "send counts, distances() or the arrays of to_dask_array() instead"

    @property
    def reached(self) -> NDArray[np.int64]:
        """int64[k], the number of vertices that each source reaches, itself included."""
        reached: NDArray[np.int64] = self.counts.sum(axis=1)
        return reached

    @bounded()
    def distances(self) -> NDArray[Any]:
        """Return [n, k] by vertex and source: the number of edges on a shortest path.

        The type is the smallest of uint8, uint16 and int32 that has room for ``depth`` and for the mark of unreached
        vertices, the largest value of the unsigned type (255, 65,535), and -1 of int32.

        Raises:
            InvalidOptionError: the call did not have ``keep="distances"``.
            GraphTooLargeError: this machine has no memory for the array.
            ResultReleasedError: the result was released.
            LabelsLostError: a worker that held a part of the result is lost, or the graph was built again.
        """
        return self._by_vertex("distances")

    @bounded()
    def reached_bits(self) -> NDArray[np.uint8]:
        """Return uint8[n, ceil(k / 8)] by vertex: bit ``i`` is set if source ``i`` reaches the vertex.

        ``np.unpackbits(bits, axis=1, count=k, bitorder="little")`` has a column a source. Errors as for ``distances``,
        but for ``keep="reached"``.
        """
        return self._by_vertex("reached")

    @bounded()
    def to_dask_array(self, label: str = "distances") -> da.Array:
        """Return ``distances`` or ``reached`` bits as a Dask array on the workers, one chunk per rank.

        The rows are striped as those of ``BFSResult.to_dask_array``. Errors as for ``distances``.
        """
        import dask
        import dask.array as da

        self._require(label)
        dtype, columns = (
            (np.uint8, -(-len(self.sources) // 8)) if label == "reached" else (self._type, len(self.sources))
        )
        chunks = [
            da.from_delayed(
                dask.delayed(joined)(label, list(parts), self._places, self._type),
                (self.graph.stripe.owned(rank), columns),
                dtype=dtype,
            )
            for rank, parts in enumerate(zip(*(named[label] for named in self._kept), strict=True))
        ]
        return da.concatenate(chunks)

    @bounded()
    def target_distances(self) -> DistanceMatrix:
        """Return int32[k, targets]: the distance of each target of the call from each source, -1 unreached.

        The array is a table too, in ids.

        Errors as for ``distances``, but for ``targets``.
        """
        targets = self.graph.ids_of(np.array(self.target_vertices, np.int64))
        return DistanceMatrix(self.distances_to_targets(), self._source_ids, targets)

    def distances_to_targets(self) -> NDArray[np.int32]:
        """Return the array of ``target_distances``, without ids."""
        p, positions = self.graph.ranks, np.array(self.graph.numbering.positions(self.target_vertices), np.int64)
        found = np.empty((positions.size, len(self.sources)), np.int32)
        for rank, parts in enumerate(self._fetch("targets")):
            own = np.flatnonzero(positions % p == rank)
            # A rank has its targets in ascending order, each once.
            found[own] = np.hstack(parts)[np.unique(positions[own], return_inverse=True)[1]]
        return np.ascontiguousarray(found[:, self._places].T)

    @bounded()
    def nearest(self) -> Nearest:
        """Return int64[n] and int32[n]: the vertex of each vertex's nearest source, and its distance; -1 unreached.

        The pair is a table too, in ids: ``batch.nearest().to_pandas()``. Of several nearest sources the one with the
        smallest id counts. Errors as for ``distances``, but for
        ``nearest=True``.
        """
        rows = [nearest_of(parts, self._firsts) for parts in self._fetch("nearest")]
        found = self._in_order(rows)
        vertices = self._ordered[found[:, 1]]
        vertices[found[:, 0] < 0] = -1
        return Nearest(self.graph, vertices, np.ascontiguousarray(found[:, 0]))

    @bounded()
    def to_arrow(self) -> pa.Table:
        """Return an Arrow table of what was kept, by source in the order of the call.

        The columns are ``source`` (the id), ``distance`` (int32) and ``vertices``, the number of vertices at the
        distance (int64). With ``keep="reached"`` they are ``source`` and ``vertex`` (ids), a row for each vertex that
        the source reaches, and with ``keep="distances"`` ``distance`` (int32) stands beside these.

        Raises:
            GraphTooLargeError: this machine has no memory for the table. Other errors as for ``distances``.
        """
        if self.keep not in KEPT[1:]:
            sources, distances = np.nonzero(self.counts)
            columns = {"distance": distances.astype(np.int32), "vertices": self.counts[sources, distances]}
            return whole_table(source=self._source_ids[sources], **columns)
        rows = int(self.counts.sum())
        require_room(
            _ROW_BYTES * rows, f"the {rows:,} rows of {self} need", "to_dask_array() leaves them on the workers"
        )
        if self.keep == "distances":
            labels = self.distances().T
            unreached = -1 if labels.dtype == np.int32 else np.iinfo(labels.dtype).max
            sources, vertices = np.nonzero(labels != unreached)
            distance = {"distance": labels[sources, vertices].astype(np.int32)}
        else:
            bits = np.unpackbits(self.reached_bits(), axis=1, count=len(self.sources), bitorder="little")
            (sources, vertices), distance = np.nonzero(bits.T), {}
        return whole_table(source=self._source_ids[sources], vertex=self.graph.ids()[vertices], **distance)

    def _card(self) -> Card:
        facts = {
            "Sources": f"{len(self.sources):,}, in {counted(self.groups, 'group')}",
            "Kept of every vertex": "nothing but counts" if self.keep == KEPT[0] else self.keep,
            "Reached": f"{self.reached.min():,} to {self.reached.max():,} of {self.graph.n:,} vertices",
            "Depth": f"{self.depth:,}",
            "Edges": f"{self.edges:,} directed, summed over the sources",
            "Time": format_seconds(self.seconds),
        }
        depths = self.counts.shape[1] - 1 - np.argmax(self.counts[:, ::-1] > 0, axis=1)
        shown = whole_table(source=self._source_ids[SHOWN], reached=self.reached[SHOWN], farthest=depths[SHOWN])
        return Card(self.graph.name, facts, shown)

    @property
    def _source_ids(self) -> CallerIds:
        return handed_out(from_python(self.sources, self.graph.id_type))

    def columns(self) -> Iterator[Columns]:
        """Yield where the workers keep the distances of the sources, a few at a time. Errors as for ``distances``."""
        self._require("distances")
        for named, (begin, end) in zip(self._kept, pairwise(self._firsts.tolist()), strict=True):
            for first in range(begin, end, _VALIDATED):
                sources = tuple(self._ordered[first : min(end, first + _VALIDATED)].tolist())
                yield Columns(sources, self.spec.max_depth, named["distances"], first - begin)

    def sums(self, *names: str) -> NDArray[Any]:
        """Return [names, n], by vertex the sums over all sources, which the ranks have made.

        They are float64; names of ``WHOLE`` alone, of one group, may be of a small unsigned type, to cast before sums
        are added. ``names`` are some of ``OF_DISTANCES`` or ``OF_ROWS``, and travel together. Errors as for
        ``distances``.
        """
        rows = [self._in_order(parts) for parts in zip(*self._fetch(*names), strict=True)]
        sums = np.stack(rows).reshape(len(names), self.groups, -1)
        return sums[:, 0] if self.groups == 1 else sums.sum(axis=1, dtype=np.float64)

    def edge_sums(self) -> NDArray[np.float64]:
        """Return float64[edges, 2], ``edge_betweenness`` by rank and edge: see ``RankBatch``; errors as above."""
        return np.concatenate([reduce(np.add, parts) for parts in self._fetch("edge_betweenness")])

    @bounded()
    def validate(self) -> None:
        """Check the distances of every source on the workers: see ``dbfs.validate``, which also returns counts."""
        validate(self.graph, self)

    def begins_again(self, error: WorkerLostError, made: int) -> bool:
        """Say that what the workers kept is lost: it is striped, so a part of all sources' is.

        Raises:
            LabelsLostError: always, unless the error says more.
        """
        if isinstance(error, LabelsLostError | GraphLostError):
            return False
        raise self._lost(error) from error

    def _lost(self, why: object) -> LabelsLostError:
        return LabelsLostError(
            f"what the workers kept of batch {self.run_id} is lost: {why}; recompute() makes it again"
        )

    @bounded()
    def recompute(self, *, deadline: float | str | None = None) -> Self:
        """Traverse again, for what was lost with a worker, and return this result.

        A graph that is not back yet comes back first. Counts, ``seconds``, ``run_id`` and ``version`` are those of the
        new run.

        Args:
            deadline: as of ``Graph.bfs_batch``, as are the errors.
        """
        made = batch(
            self.graph,
            self.source_vertices,
            keep=tuple(name for name in self._keeps if name not in ("counts", "targets", "nearest")),
            targets=self.target_vertices,
            nearest="nearest" in self._keeps,
            max_depth=self.spec.max_depth,
            direction=self.spec.direction,
            progress=None,
        )
        self.release()
        vars(self).update(vars(made), targets=self.targets)
        return self

    @bounded()
    def release(self) -> None:
        """Free what the workers keep; ``counts`` stay available."""
        for named in self._kept:
            for futures in named.values():
                release(futures)
        self._kept = []

    def __repr__(self) -> str:
        return (
            f"<dbfs.BatchResult of {self.graph.name}: {counted(len(self.sources), 'source')} in "
            f"{counted(self.groups, 'group')}, depth {self.depth:,}, {format_seconds(self.seconds)}>"
        )

    def _require(self, label: str) -> None:
        if label not in self._keeps or label == "counts":
            option = {"targets": "targets=", "nearest": "nearest=True"}.get(label, f"keep={label!r}")
            raise InvalidOptionError(f"the batch kept no {label}: call bfs_batch with {option}")
        if not self._kept:
            raise ResultReleasedError("what the workers kept of this batch was released")
        if self.graph.record.graph_id != self._graph_id:
            # Its ranks may be others.
            raise self._lost(f"{self.graph.name} was built again since")

    def _fetch(self, *labels: str) -> list[list[NDArray[Any]]]:
        """Return what each rank has kept, by rank, label and group. Errors as for ``distances``."""
        for label in labels:
            self._require(label)
        p = self.graph.ranks
        futures = [future for label in labels for named in self._kept for future in named[label]]
        doing = f"reading {', '.join(labels)} of run {self.run_id}"
        parts = self.graph.gang.gather(futures, of_call(), doing)
        return [parts[rank::p] for rank in range(p)]

    def _by_vertex(self, label: str) -> NDArray[Any]:
        self._require(label)
        columns = len(self.sources) * self._type.itemsize if label == "distances" else -(-len(self.sources) // 8)
        # The parts of the ranks, and their rows by vertex.
        require_room(
            2 * self.graph.n * columns, f"the {label} of {self} need", "to_dask_array() leaves them on the workers"
        )
        return self._in_order([joined(label, parts, self._places, self._type) for parts in self._fetch(label)])

    def _in_order(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return the rows of all ranks by vertex."""
        order, n = self.graph.order, sum(map(len, parts))
        rows = np.empty((n, *parts[0].shape[1:]), np.result_type(*parts))
        for rank, part in enumerate(parts):
            places = slice(rank, None, len(parts))
            rows[places if order is None else order.vertex[places]] = part
        return rows


def _labels_of(made: Outcome) -> ResidentLabels:
    assert isinstance(made.labels, ResidentLabels)
    return made.labels


@part_of("Graph")
class BatchGraph(Graph[R]):
    """Traversals from many vertices at once."""

    @bounded()
    def bfs_batch(
        self,
        sources: Any,
        *,
        keep: str = "counts",
        targets: Any = None,
        nearest: bool = False,
        max_depth: int | None = None,
        direction: str = "auto",
        deadline: float | str | None = None,
        progress: ProgressOption[RunProgress] = None,
    ) -> BatchResult:
        """Traverse from many vertices at once, each by itself: one look at an edge serves up to 512 sources.

        Where the sources share few levels (a road network), they are traversed from one after another in the same run.

        Args:
            sources: ids, each once.
            keep: what the workers keep of every vertex, beside the ``counts`` of vertices by distance: ``counts`` for
                no more, ``reached`` for a bit a source, ``distances`` for a byte or more a source.
            targets: an id, or several, whose distances are kept. The search goes on after them.
            nearest: whether the nearest source of each vertex is kept.
            max_depth: largest distance; vertices farther away stay unreached.
            direction: see ``bfs``.
            deadline: seconds (or a Dask duration) that the call may wait, the queue included; ``dbfs.deadline`` if
                None. It is for all sources together.
            progress: see ``bfs``. It counts sources.

        Raises:
            InvalidVertexError: there is no source, one is given twice, or a source or a target is not in the graph.
            InvalidOptionError: an option's value is not one of its choices; or another client updated the graph between
                two groups of sources.
            NoRoomForLabelsError: the batch does not fit in the workers' memory, even in groups of 64 sources.
            Other errors as for ``bfs``.
        """
        if keep not in KEPT:
            raise InvalidOptionError(f"unknown keep={keep!r}; choose one of {', '.join(KEPT)}")
        made = batch(
            self,
            self.vertices_named(sources, "source"),
            keep=() if keep == "counts" else (keep,),
            targets=() if targets is None else self.vertices_named(targets, "target", present=True),
            nearest=nearest,
            max_depth=max_depth,
            direction=direction,
            progress=progress,
        )
        made.targets = tuple(self.python_ids(made.target_vertices))
        return made


@part_of("BFSResult")
class BatchesResult(BFSResult):
    """The nearest of a result's sources."""

    @bounded()
    def nearest(self) -> Nearest:
        """Return int64[n] and int32[n]: the vertex of each vertex's nearest source, and its distance; -1 unreached.

        The pair is a table too, in ids: ``result.nearest().to_pandas()``. Of several nearest sources the one with the
        smallest id counts. The graph is traversed again, by ``bfs_batch``.

        Raises:
            InvalidOptionError: the graph was updated since, or is on GPUs.
            Other errors as for ``Graph.bfs_batch``.
        """
        self.graph.require_version(self.version, self)
        made = batch(
            self.graph,
            tuple(sorted(set(self.source_vertices))),
            keep=(),
            targets=(),
            nearest=True,
            max_depth=self.farthest,
            direction=self.spec.direction,
            progress=None,
        )
        try:
            return made.nearest()
        finally:
            made.release()
