"""Validation of labels where they lie: each rank checks its own edges (``dbfs_workers.validation``).

A rank needs everybody's labels, 8 bytes a vertex, for the time of the check; its edges stay in its memory, or its
GPU's, and are checked there. They are the input's where the graph was loaded with ``keep_edges=True``: those were put
by before anything was built, so that a graph built wrong is found out, too. Otherwise they are the graph's own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import distributed
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dbfs import config
from dbfs.cluster.gang import Deadline, Key, Ref, TaskGraph, release
from dbfs.engines import KeptLabels
from dbfs.errors import InvalidOptionError, ValidationError
from dbfs_workers.storage.partition import InputEdges, Partition, array_module, on_host
from dbfs_workers.storage.stripe import Stripe

if TYPE_CHECKING:
    from dbfs.graph.graph import Graph
    from dbfs.graph.result import BFSResult
    from dbfs_workers.checks.validation import EdgeCheck, Levels, PackedLabels, Verdict, Violation
    from dbfs_workers.storage.ordering import DegreeOrder


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels from anywhere, to be validated: another program's, or a result's that was changed.

    Attributes:
        sources: vertex ids at distance 0.
        distances: integers[n] by vertex, -1 unreached; None to find them from the predecessors.
        predecessors: integers[n] by vertex, vertex ids, -1 unreached, a source being its own; None to check distances
            alone.
        max_depth: vertices at this distance may have unreached neighbours; None where all were to be reached.
    """

    sources: Sequence[int]
    distances: ArrayLike | None = None
    predecessors: ArrayLike | None = None
    max_depth: int | None = None


@dataclass(frozen=True)
class Validation:
    """What a validation without fault has looked at.

    Attributes:
        of_input: whether the edges were those of the input (``keep_edges=True``), or the graph's own.
        edges: edges checked; of the graph's own, both directions of an undirected one.
        component_edges: those of them between reached vertices, self-loops left out. Of the input of an undirected
            graph that is the number of edges that Graph500 counts.
    """

    of_input: bool
    edges: int
    component_edges: int


def validate(graph: Graph, result: BFSResult | Labels) -> Validation:
    """Check labels by Graph500's five rules on the workers; neither edges nor a result's labels come to the client.

    Args:
        graph: what was traversed. With ``load(..., keep_edges=True)`` the edges are those of the input.
        result: a result of this graph, or labels by vertex.

    Raises:
        ValidationError: the rules that are broken, with vertices that show it and the ranks where it was found.
        InvalidOptionError: the result is another graph's; labels are not n integers, or there are none.
        InvalidVertexError: a source of the labels is not in the graph.
        ResultReleasedError: the result or the graph was released.
        WorkerLostError, DeadlineExceededError: see ``Gang.gather``.
    """
    check = _Check(graph)
    try:
        if isinstance(result, Labels):
            return check.given(result)
        if result.graph.record.graph_id != graph.record.graph_id:
            raise InvalidOptionError(
                f"{result} is not of {graph.name}, but of {result.graph.name} as it was loaded then"
            )
        return check.found(result)
    finally:
        release(check.held)


class _Check:
    """One validation; ``held`` is what it keeps on the workers meanwhile."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.gang = graph.gang
        self.stripe = graph.stripe
        self.token = uuid.uuid4().hex
        self.deadline = Deadline(config.seconds("deadline"))
        self.held: list[distributed.Future] = []

    def found(self, result: BFSResult) -> Validation:
        """Check a result where it lies."""
        place = result.place
        sources, farthest = result.spec.sources, result.farthest
        predecessors = result.spec.predecessors
        if isinstance(place, KeptLabels):
            return self._run(
                lambda tasks, rank, key: tasks.add(rank, key, _pack_kept, place, self.stripe, rank, sources, farthest),
                predecessors=predecessors,
                farthest=farthest,
            )
        return self._of_futures(place.distances, place.predecessors, sources, farthest)

    def given(self, labels: Labels) -> Validation:
        """Check labels of the client's."""
        graph = self.graph
        sources = graph.positions([graph.check_vertex(source, "source") for source in labels.sources])
        predecessors = None
        if labels.predecessors is not None:
            by_vertex = self._array(labels.predecessors, "predecessors", np.int64)
            order = graph.order
            predecessors = self._scatter(by_vertex if order is None else order.predecessors_by_position(by_vertex))
        if labels.distances is not None:
            by_vertex = self._array(labels.distances, "distances", np.int32)
            distances = self._scatter(by_vertex if graph.order is None else by_vertex[graph.order.vertex])
        elif predecessors is not None:
            distances = self._levels(predecessors)
        else:
            raise InvalidOptionError("labels to validate have distances, predecessors, or both")
        return self._of_futures(distances, predecessors, sources, labels.max_depth)

    def _of_futures(
        self,
        distances: Sequence[distributed.Future],
        predecessors: Sequence[distributed.Future] | None,
        sources: tuple[int, ...],
        farthest: int | None,
    ) -> Validation:
        def pack(tasks: TaskGraph, rank: int, key: Key) -> Ref:
            parents = None if predecessors is None else Ref(predecessors[rank].key)
            labels = (Ref(distances[rank].key), parents)
            return tasks.add(rank, key, _pack, self.stripe, rank, *labels, sources, farthest)

        return self._run(pack, predecessors=predecessors is not None, farthest=farthest)

    def _run(
        self, pack: Callable[[TaskGraph, int, Key], Ref], *, predecessors: bool, farthest: int | None
    ) -> Validation:
        """Pack, check and judge; ``pack`` adds a rank's task."""
        graph, record, tasks = self.graph, self.graph.record, TaskGraph()
        partitions = graph.partition_keys
        of_input = bool(record.input_edge_keys)
        order = None if record.order_key is None else Ref(record.order_key)
        packed = [pack(tasks, rank, (f"pack-labels-{self.token}", rank)) for rank in range(self.gang.p)]
        checks = []
        for rank in range(self.gang.p):
            key = (f"check-edges-{self.token}", rank)
            options = (predecessors, graph.directed, farthest)
            if of_input:
                edges = Ref(record.input_edge_keys[rank])
                check = tasks.add(rank, key, _check_input, self.stripe, rank, edges, packed, order, *options)
            else:
                check = tasks.add(rank, key, _check_partition, Ref(partitions[rank]), packed, *options)
            checks.append(check)
        key = (f"judge-labels-{self.token}", 0)
        tasks.add(0, key, _judge, self.stripe, packed, checks, order, predecessors, of_input)
        verdict: Verdict = self._result(tasks, key)
        if verdict.violations:
            raise self._error(verdict.violations)
        return Validation(of_input, verdict.edges, verdict.component_edges)

    def _levels(self, predecessors: Sequence[distributed.Future]) -> list[distributed.Future]:
        """Distances along predecessors."""
        tasks = TaskGraph()
        levels = tasks.add(
            0, f"levels-{self.token}", _levels, self.stripe, [Ref(future.key) for future in predecessors]
        )
        keys: list[Key] = [(f"levels-{self.token}", rank) for rank in range(self.gang.p)]
        for rank, key in enumerate(keys):
            tasks.add(rank, key, _part, levels, rank)
        lost_key = f"levels-lost-{self.token}"
        order = self.graph.record.order_key
        tasks.add(0, lost_key, _lost, levels, None if order is None else Ref(order))
        futures = self.gang.submit(tasks, [*keys, lost_key])
        self.held.extend(futures.values())
        violation = self.gang.gather([futures[lost_key]], self.deadline, f"validating {self.graph.name}")[0]
        if violation is not None:
            raise self._error([violation])
        return [futures[key] for key in keys]

    def _array(self, values: ArrayLike, what: str, dtype: type[np.int32 | np.int64]) -> NDArray[Any]:
        """Integers by vertex; those that the type does not hold become others that are no label either."""
        array = np.asarray(values)
        if array.shape != (self.graph.n,) or array.dtype.kind not in "iu":
            raise InvalidOptionError(
                f"{what} must be {self.graph.n} integers, one a vertex, not {array.dtype} of shape {array.shape}"
            )
        clipped: NDArray[Any] = np.clip(array, -2, np.iinfo(dtype).max).astype(dtype)
        return clipped

    def _scatter(self, by_position: NDArray[Any]) -> list[distributed.Future]:
        gang = self.gang
        futures: list[distributed.Future] = [
            gang.client.scatter(by_position[rank :: gang.p], workers=[address], hash=False)
            for rank, address in enumerate(gang.addresses)
        ]
        self.held.extend(futures)
        return futures

    def _result(self, tasks: TaskGraph, key: Key) -> Any:
        future = self.gang.submit(tasks, [key])[key]
        self.held.append(future)
        return self.gang.gather([future], self.deadline, f"validating {self.graph.name}")[0]

    def _error(self, violations: Sequence[Violation]) -> ValidationError:
        return ValidationError(f"{self.graph.name}: {'; '.join(map(str, violations))}")


def _pack(
    stripe: Stripe,
    rank: int,
    distances: NDArray[np.int32],
    predecessors: NDArray[np.int64] | None,
    sources: Sequence[int],
    farthest: int | None,
) -> PackedLabels:
    from dbfs_workers.checks.validation import pack_labels

    return pack_labels(stripe, rank, distances, predecessors, sources, farthest)


def _pack_kept(
    place: KeptLabels, stripe: Stripe, rank: int, sources: Sequence[int], farthest: int | None
) -> PackedLabels:
    from dbfs_workers.plugin import WorkerService
    from dbfs_workers.rpc import NAME

    service: WorkerService = distributed.get_worker().plugins[NAME]
    labels = service.kept_labels(place.graph_id, place.run_id, place.index)
    with _typed_errors(array_module(labels.distances), f"rank {rank}, packing its labels"):
        packed = _pack(stripe, rank, *labels.of_rows(stripe, rank), sources, farthest)
        # One rank's stay on its GPU; others' will travel.
        return packed if stripe.p == 1 else replace(packed, words=on_host(packed.words))


def _check_input(
    stripe: Stripe,
    rank: int,
    edges: list[InputEdges],
    packed: list[PackedLabels],
    order: DegreeOrder | None,
    predecessors: bool,
    directed: bool,
    farthest: int | None,
) -> EdgeCheck:
    from dbfs_workers.checks.validation import check_edges

    xp = array_module(edges[0][0]) if edges else np
    options: dict[str, Any] = {"predecessors": predecessors, "directed": directed, "farthest": farthest}
    with _typed_errors(xp, f"rank {rank}, checking its edges"):
        return check_edges(stripe, rank, edges, packed, order, xp, **options)


def _check_partition(
    partition: Partition, packed: list[PackedLabels], predecessors: bool, directed: bool, farthest: int | None
) -> EdgeCheck:
    from dbfs_workers.checks.validation import check_edges, partition_edges

    xp = array_module(partition.columns)
    options: dict[str, Any] = {"predecessors": predecessors, "directed": directed, "farthest": farthest}
    stripe, rank = partition.stripe, partition.rank
    with _typed_errors(xp, f"rank {rank}, checking its edges"):
        return check_edges(stripe, rank, partition_edges(partition), packed, None, xp, **options)


def _typed_errors(xp: ModuleType, who: str) -> AbstractContextManager[None]:
    """A GPU may be full: what a graph is estimated to take leaves out its validation. Clients may lack CuPy."""
    if xp is np:
        return nullcontext()
    from dbfs_workers.cuda.failures import typed_errors

    return typed_errors(who)


def _judge(
    stripe: Stripe,
    packed: list[PackedLabels],
    checks: list[EdgeCheck],
    order: DegreeOrder | None,
    predecessors: bool,
    of_input: bool,
) -> Verdict:
    from dbfs_workers.checks.validation import judge

    return judge(stripe, packed, checks, order, predecessors=predecessors, of_input=of_input)


def _levels(stripe: Stripe, predecessors: list[NDArray[np.int64]]) -> Levels:
    from dbfs_workers.checks.validation import levels_of

    return levels_of(stripe, predecessors)


def _part(levels: Levels, rank: int) -> NDArray[np.int32]:
    return levels[0][rank]


def _lost(levels: Levels, order: DegreeOrder | None) -> Violation | None:
    from dbfs_workers.checks.validation import of_vertices

    return None if levels[1] is None else of_vertices(levels[1], order)
