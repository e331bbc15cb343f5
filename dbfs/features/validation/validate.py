"""Validation of labels on the workers: each rank checks its own edges (``dbfs_workers.features.validation``).

During the check a rank needs the labels of all ranks, 8 bytes per vertex. Ranks on the CPUs of one host share one table
of them. A rank's edges stay in its memory, or its GPU's,
and are checked there. After ``load(..., keep_edges=True)`` the edges are those of the input, put aside before anything
was built: the check then also finds a graph that was built wrong. Otherwise the edges are the graph's own.
"""

from __future__ import annotations

import functools
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, overload

import distributed
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dbfs.base.calls import public
from dbfs.cluster.awaiting import AsyncView, in_thread
from dbfs.cluster.deadline import bounded, of_call
from dbfs.cluster.gang import Key, Ref, TaskGraph, release
from dbfs.cluster.own_process import StaysHere
from dbfs.cluster.rank_calls import RankCalls
from dbfs.errors import ExchangeUnavailableError, InvalidOptionError, StaleRunError, ValidationError
from dbfs.graph.result import BFSResult
from dbfs.graph.striped import StripedGraph
from dbfs_workers.features.validation import tasks
from dbfs_workers.features.validation import validation as checks
from dbfs_workers.features.validation.verdicts import CheckWords, FreeWords, PackWords
from dbfs_workers.serving.messages import WorkerMessage
from dbfs_workers.serving.reads.messages import KeptLabels
from dbfs_workers.serving.rpc import A

if TYPE_CHECKING:
    from dbfs_workers.features.validation.verdict import Verdict, Violation

T = TypeVar("T")


@public
@dataclass(frozen=True, eq=False)
class Labels:
    """Labels to validate that are not a result: another program's, or labels that the caller changed.

    Attributes:
        sources: ids at distance 0.
        distances: integers[n] by vertex, -1 unreached; None to find the distances from the predecessors.
        predecessors: integers[n] by vertex: vertex ids, -1 unreached, a source is its own; None to check distances
            alone.
        max_depth: vertices at this distance may have unreached neighbours; None if the search had no bound.
    """

    sources: Sequence[Any]
    distances: ArrayLike | None = None
    predecessors: ArrayLike | None = None
    max_depth: int | None = None


@dataclass(frozen=True)
class Columns:
    """The distances of some sources of a batch.

    Attributes:
        sources: their vertices.
        max_depth: see ``Labels``.
        group: by rank, what the rank keeps of the sources' group.
        first: the column of the first source there.
    """

    sources: tuple[int, ...]
    max_depth: int | None
    group: Sequence[distributed.Future]
    first: int


class ManySources(StaysHere, ABC):
    """A result that has the distances of many sources.

    Attributes:
        graph: the graph that was traversed.
        version: its version then.
    """

    graph: StripedGraph
    version: int

    @abstractmethod
    def columns(self) -> Iterator[Columns]:
        """Yield where the workers keep the distances, of a few sources at a time."""


@dataclass(frozen=True)
class Validation:
    """Counts of a validation that found no fault. Of a batch they are sums over its sources.

    Attributes:
        of_input: True if the checked edges were the input's (``keep_edges=True``), False if the graph's own.
        edges: number of edges checked. The graph's own edges count an undirected edge once in each direction.
        component_edges: number of checked edges between reached vertices, without self-loops. For the input of an
            undirected graph this is the number of edges that Graph500 counts.
    """

    of_input: bool
    edges: int
    component_edges: int


@overload
def validate(graph: StripedGraph, result: BFSResult | ManySources | Labels) -> Validation: ...


@overload
def validate(
    graph: AsyncView[StripedGraph], result: AsyncView[BFSResult] | AsyncView[ManySources] | Labels
) -> Coroutine[Any, Any, Validation]: ...


@public
def validate(
    graph: StripedGraph | AsyncView[StripedGraph],
    result: BFSResult | ManySources | AsyncView[BFSResult] | AsyncView[ManySources] | Labels,
) -> Validation | Coroutine[Any, Any, Validation]:
    """Check labels by Graph500's five rules (specification 2.0, "Validation") on the workers.

    Neither edges nor a result's labels come to the client. For an asynchronous client's graph an awaitable is returned.

    Args:
        graph: the graph that was traversed. After ``load(..., keep_edges=True)`` the edges are those of the input.
        result: a result of this graph, or labels by vertex. Each source of a batch is checked.

    Raises:
        ValidationError: names the broken rules, vertices that show each fault, and the ranks that found it.
        InvalidOptionError: the result is another graph's or another version's, labels are not n integers, or no labels
            were given, or a batch did not keep distances.
        InvalidVertexError: a source of the labels is not in the graph.
        ResultReleasedError: the result or the graph was released.
        WorkerLostError, DeadlineExceededError: see ``Gang.gather``.
    """
    plain = result.synchronous if isinstance(result, AsyncView) else result
    if isinstance(graph, AsyncView):
        return in_thread(graph.synchronous.gang.client, _validate, graph.synchronous, plain)
    return _validate(graph, plain)


@bounded()
def _validate(graph: StripedGraph, result: BFSResult | ManySources | Labels) -> Validation:
    if isinstance(result, Labels):
        return _checked(graph, _Check.labels, result)
    if result.graph.record.graph_id != graph.record.graph_id:
        raise InvalidOptionError(f"{result} is not of {graph.name}, but of {result.graph.name} as it was loaded then")
    if isinstance(result, BFSResult) and not result.counts_edges:
        raise InvalidOptionError(f"{result} has distances by weight; validate checks numbers of edges")
    graph.require_version(result.version, result)
    if not isinstance(result, ManySources):
        return _checked(graph, _Check.result, result)
    return _total(_checked(graph, _Check.columns, columns) for columns in result.columns())


def _total(validations: Iterable[Validation]) -> Validation:
    of_input, edges, component_edges = zip(*map(astuple, validations), strict=True)
    return Validation(of_input[0], sum(edges), sum(component_edges))


def _checked(graph: StripedGraph, make: Callable[[_Check, T], Validation], labels: T) -> Validation:
    check = _Check(graph)
    try:
        return make(check, labels)
    finally:
        release(check.futures)


class _Check:
    """One validation.

    Attributes:
        futures: keep intermediate results on the workers until the validation ends.
    """

    def __init__(self, graph: StripedGraph) -> None:
        self.graph = graph
        self.gang = graph.gang
        self.stripe = graph.stripe
        self.token = uuid.uuid4().hex
        self.deadline = of_call()
        self.futures: list[distributed.Future] = []

    def result(self, result: BFSResult) -> Validation:
        """Check a result's labels on the workers."""
        location = result.label_location
        sources, farthest = self.graph.numbering.positions(result.spec.sources), result.farthest
        if not isinstance(location, KeptLabels):
            return self._published(location.distances, location.predecessors, sources, farthest)
        traversal = (location.graph_id, location.run_id, location.index)
        if self.graph.exchange == "cuda_ipc":
            found = self._by_calls(location, sources, farthest, predecessors=result.spec.predecessors)
            if found is not None:
                return found

        def pack(plan: TaskGraph, rank: int, key: Key) -> Ref:
            return plan.add(rank, key, tasks.pack_kept, self.stripe, rank, *traversal, sources, farthest)

        return self._run(pack, predecessors=result.spec.predecessors, farthest=farthest)

    def _by_calls(
        self, place: KeptLabels, sources: tuple[int, ...], farthest: int | None, *, predecessors: bool
    ) -> Validation | None:
        """Check by calls straight to the ranks, which take a third of the time of tasks.

        Returns None if the labels are wrong, which the tasks then explain, or if the calls fail where tasks may not.
        """
        graph, stripe, token = self.graph, self.stripe, self.token
        of_input = bool(graph.record.input_edge_keys)
        edges = graph.record.input_edge_keys or graph.partition_keys
        orders: list[Key | None] = [None] * stripe.p
        if of_input and graph.numbering.by_degree:
            orders = [*graph.numbering.on_ranks(self.deadline, self._doing)]
        try:
            words = self._call(lambda rank: PackWords(place, stripe, rank, token, sources, farthest))
            packed = tuple(one for one in words.values() if one is not None)
            if len(packed) < stripe.p:
                return None
            options = predecessors, graph.directed, farthest
            checks = self._call(
                lambda rank: CheckWords(
                    place, stripe, rank, token, packed, edges[rank], of_input, orders[rank], *options
                )
            )
        except (StaleRunError, ExchangeUnavailableError):
            return None
        finally:
            # Not waited for.
            RankCalls(self.gang, {rank: FreeWords(token) for rank in range(stripe.p)}, self.deadline, self._doing)
        right = [check for check in checks.values() if check is not None]
        if len(right) < stripe.p or functools.reduce(np.bitwise_and, (check[2] for check in right)).any():
            return None
        return Validation(of_input, sum(check[0] for check in right), sum(check[1] for check in right))

    def _call(self, message: Callable[[int], WorkerMessage[A]]) -> dict[int, A]:
        """Send each rank a message, given its number, and return the answers by rank."""
        messages = {rank: message(rank) for rank in range(self.gang.p)}
        return RankCalls(self.gang, messages, self.deadline, self._doing).answers()

    @property
    def _doing(self) -> str:
        return f"validating {self.graph.name}"

    def columns(self, columns: Columns) -> Validation:
        """Check some sources of a batch."""
        sources, farthest = self.graph.numbering.positions(columns.sources), columns.max_depth

        def pack(plan: TaskGraph, rank: int, key: Key) -> Ref:
            group = Ref(columns.group[rank].key)
            return plan.add(rank, key, tasks.pack_columns, self.stripe, rank, group, columns.first, sources, farthest)

        return self._run(pack, predecessors=False, farthest=farthest, sources=columns.sources)

    def labels(self, labels: Labels) -> Validation:
        """Send the caller's labels to the workers and check them there."""
        graph = self.graph
        sources = graph.numbering.positions(graph.vertices_named(labels.sources, "source"))
        predecessors = None
        if labels.predecessors is not None:
            by_vertex = self._array(labels.predecessors, "predecessors", np.int64)
            order = graph.order
            predecessors = self._scatter(by_vertex if order is None else order.predecessors_by_position(by_vertex))
        if labels.distances is not None:
            by_vertex = self._array(labels.distances, "distances", np.int32)
            distances = self._scatter(by_vertex if graph.order is None else by_vertex[graph.order.vertex])
        elif predecessors is not None:
            distances = self._distances(predecessors)
        else:
            raise InvalidOptionError("labels to validate have distances, predecessors, or both")
        return self._published(distances, predecessors, sources, labels.max_depth)

    def _published(
        self,
        distances: Sequence[distributed.Future],
        predecessors: Sequence[distributed.Future] | None,
        sources: tuple[int, ...],
        farthest: int | None,
    ) -> Validation:
        """Check labels that are Dask data."""

        def pack(plan: TaskGraph, rank: int, key: Key) -> Ref:
            parents = None if predecessors is None else Ref(predecessors[rank].key)
            labels = (Ref(distances[rank].key), parents)
            return plan.add(rank, key, checks.pack_labels, self.stripe, rank, *labels, sources, farthest)

        return self._run(pack, predecessors=predecessors is not None, farthest=farthest)

    def _run(
        self,
        pack: Callable[[TaskGraph, int, Key], Ref],
        *,
        predecessors: bool,
        farthest: int | None,
        sources: Sequence[int] = (),
    ) -> Validation:
        """Pack the labels, check the edges and merge the findings.

        Args:
            pack: adds one rank's packing task, of one traversal or of all ``sources``.
            predecessors: whether the labels have predecessors.
            farthest: see ``Labels.max_depth``.
            sources: vertices of a batch's sources.
        """
        graph, record, plan = self.graph, self.graph.record, TaskGraph()
        partitions = graph.partition_keys
        of_input = bool(record.input_edge_keys)
        order = None if record.order_key is None else Ref(record.order_key)
        orders: list[Ref | None] = [None] * self.gang.p
        if of_input and order is not None:
            orders = [Ref(key) for key in graph.numbering.on_ranks(self.deadline, self._doing)]

        def add(rank: int, key: Key, function: Callable[..., Any], *arguments: Any) -> Ref:
            if sources:
                by_column = tuple(at for at, argument in enumerate(arguments) if isinstance(argument, list))
                return plan.add(rank, key, tasks.of_columns, function, by_column, *arguments)
            return plan.add(rank, key, function, *arguments)

        packed = [pack(plan, rank, (f"pack-labels-{self.token}", rank)) for rank in range(self.gang.p)]
        held: list[Key] = []
        if graph.backend == "cpu" and graph.exchange == "shared_memory" and not sources:
            # The table's memory ends with the object of the task that made it. Dask may drop that object if another
            # worker has a copy of the result. So other workers get ``for_peers`` of it, no copy.
            held.append(f"label-table-{self.token}")
            made = plan.add(0, held[0], checks.SharedTable.make, self.stripe, graph.record.graph_id)
            table = plan.add(0, f"label-table-of-peers-{self.token}", tasks.for_peers, made)
            for rank, (own, of_rank) in enumerate(zip(packed, orders, strict=True)):
                key = (f"share-words-{self.token}", rank)
                packed[rank] = plan.add(rank, key, checks.share_words, self.stripe, rank, own, table, of_rank)
        findings = []
        for rank in range(self.gang.p):
            key = (f"check-edges-{self.token}", rank)
            options = (predecessors, graph.directed, farthest)
            if of_input:
                edges = Ref(record.input_edge_keys[rank])
                check = add(rank, key, tasks.check_input, self.stripe, rank, edges, packed, orders[rank], *options)
            else:
                check = add(rank, key, tasks.check_partition, Ref(partitions[rank]), packed, *options)
            findings.append(check)
        key = (f"merge-findings-{self.token}", 0)
        add(0, key, checks.merge_findings, self.stripe, packed, findings, order, predecessors, of_input)
        found = self._fetch(plan, key, held)
        verdicts: list[Verdict] = found if sources else [found]
        for at, verdict in enumerate(verdicts):
            if verdict.violations:
                raise self._error(verdict.violations, sources[at : at + 1])
        return _total(Validation(of_input, one.edges, one.component_edges) for one in verdicts)

    def _distances(self, predecessors: Sequence[distributed.Future]) -> list[distributed.Future]:
        """Find the distances along predecessors; by rank, futures of int32 arrays."""
        plan = TaskGraph()
        parents = [Ref(future.key) for future in predecessors]
        levels = plan.add(0, f"levels-{self.token}", checks.levels_along_predecessors, self.stripe, parents)
        keys: list[Key] = [(f"levels-{self.token}", rank) for rank in range(self.gang.p)]
        for rank, key in enumerate(keys):
            plan.add(rank, key, tasks.levels_of_rank, levels, rank)
        violation_key = f"levels-violation-{self.token}"
        order = self.graph.record.order_key
        plan.add(0, violation_key, tasks.levels_violation, levels, None if order is None else Ref(order))
        futures = self.gang.submit(plan, [*keys, violation_key])
        self.futures.extend(futures.values())
        violation = self.gang.gather([futures[violation_key]], self.deadline, self._doing)[0]
        if violation is not None:
            raise self._error([violation])
        return [futures[key] for key in keys]

    def _array(self, values: ArrayLike, what: str, dtype: type[np.int32 | np.int64]) -> NDArray[Any]:
        """Convert integers by vertex; a value outside of the type's range becomes another that is no valid label."""
        array = np.asarray(values)
        if array.shape != (self.graph.n,) or array.dtype.kind not in "iu" or np.ma.is_masked(values):
            kind = f"masked {array.dtype}" if np.ma.is_masked(values) else array.dtype
            raise InvalidOptionError(
                f"{what} must be {self.graph.n} integers, one a vertex, not {kind} of shape {array.shape}"
            )
        clipped: NDArray[Any] = np.clip(array, -2, np.iinfo(dtype).max).astype(dtype)
        return clipped

    def _scatter(self, by_position: NDArray[Any]) -> list[distributed.Future]:
        """Send each rank the labels of its rows."""
        gang = self.gang
        futures: list[distributed.Future] = [
            gang.client.scatter(by_position[rank :: gang.p], workers=[address], hash=False)
            for rank, address in enumerate(gang.addresses)
        ]
        self.futures.extend(futures)
        return futures

    def _fetch(self, plan: TaskGraph, key: Key, held: Sequence[Key] = ()) -> Any:
        """Fetch one result of a plan; the results of ``held`` stay on the workers until the validation ends."""
        futures = self.gang.submit(plan, [key, *held])
        self.futures.extend(futures.values())
        return self.gang.gather([futures[key]], self.deadline, self._doing)[0]

    def _error(self, violations: Sequence[Violation], source: Sequence[int] = ()) -> ValidationError:
        named = (replace(one, vertices=tuple(self.graph.python_ids(one.vertices))) for one in violations)
        where = "".join(f", source {one!r}" for one in self.graph.python_ids(source))
        return ValidationError(f"{self.graph.name}{where}: {'; '.join(map(str, named))}")
