"""The making of a view: the ranks find the edges that pass, and compact these to a graph of their own."""

from __future__ import annotations

import time
import uuid
from collections.abc import Hashable
from dataclasses import replace as replaced
from typing import Any

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs.base.records import Formation, GraphRecord
from dbfs.building.memory import Estimate, require_fit
from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Key, Ref, TaskGraph, host_of, release
from dbfs.errors import InvalidOptionError
from dbfs.features.views.attributes import KeptAttributes, kept_of
from dbfs.features.views.conditions import condition_on, is_expression
from dbfs.graph.graph import Graph
from dbfs.graph.load import require_replacement, reserved
from dbfs.service.client import ServiceClient
from dbfs.service.messages import AddGraph, GetGraph
from dbfs_workers.base.text import LONGEST_NAME, counted, printable
from dbfs_workers.features.views import attributes as attribute_tasks
from dbfs_workers.features.views import filters as tasks
from dbfs_workers.search.partition.partition import PartitionInfo


def make_view(
    graph: Graph[Any], edges: Any, vertices: Any, without: Any, name: str | None, replace: bool | str
) -> tuple[GraphRecord, Formation]:
    """Make a view of a graph; arguments and errors as of ``Graph.where``."""
    require_replacement(name, replace)
    _require_filtered(graph.record)
    graph.require_loaded()
    if edges is None and vertices is None and without is None:
        raise InvalidOptionError("where() takes edges=, vertices= or without=, which say what stays")
    record = graph.record
    kept = kept_of(record)
    condition = None if edges is None else condition_on(edges, kept.columns, graph.name, "edges")
    of_vertices = (
        condition_on(vertices, kept.vertex_columns, graph.name, "vertices") if is_expression(vertices) else None
    )
    bits = None if vertices is None and without is None else _bits(graph, kept, of_vertices, vertices, without)
    making = _Making(graph, record, kept)
    graph_id = uuid.uuid4().hex
    shown = printable(f"{record.name} where {_in_words(condition, of_vertices, vertices, without)}", LONGEST_NAME)
    with reserved(graph.gang, graph_id, name, replace):
        try:
            facts = making.run(condition, bits)
            view = replaced(
                record,
                graph_id=graph_id,
                name=shown if name is None else name,
                named=name is not None,
                client=graph.gang.client.id,
                input_edge_keys=(),
                created=time.time(),
                read_seconds=0.0,
                **facts,
            )
            formed = ServiceClient.of(graph.gang.client).call(AddGraph(view, of_call("build-deadline").remaining))
        finally:
            # The service holds the data from here on. If the call failed, the data must be freed.
            release(making.held)
    return view, formed


class _Making:
    """The tasks of one view.

    Attributes:
        held: futures of its data, those of the graph it is a view of among them.
    """

    def __init__(self, graph: Graph[Any], record: GraphRecord, kept: KeptAttributes) -> None:
        self._graph, self._record, self._kept = graph, record, kept
        self._deadline, self._token, self._start = of_call("build-deadline"), uuid.uuid4().hex, time.perf_counter()
        client = graph.gang.client
        # Held before the service is asked whether the graph is there, since another client may unload it.
        self.held: set[distributed.Future] = {distributed.Future(key, client) for key in record.keys}
        ServiceClient.of(client).call(GetGraph(record.graph_id))

    def run(self, condition: Any, bits: NDArray[np.uint8] | None) -> dict[str, Any]:
        """Make the data; return the fields of the record that say of it."""
        p, kept = self._graph.gang.p, self._kept
        plan = TaskGraph()
        partitions = [Ref(key) for key in self._record.partition_keys]
        attributes: list[Ref | None] = [Ref(key) for key in kept.edge_keys] or [None] * p
        shared = None if bits is None else self._sent(bits)
        hosts = [host_of(address) for address in self._graph.gang.addresses]
        here = [hosts.count(host) for host in hosts]
        found = [
            plan.add(rank, self._key("passing", rank), tasks.passing, partitions[rank], *of_rank, here[rank])
            for rank, of_rank in enumerate((each, condition, shared) for each in attributes)
        ]
        counts = [plan.add(rank, self._key("count", rank), tasks.count, found[rank]) for rank in range(p)]
        passed = self._gathered(plan, [ref.key for ref in counts], [ref.key for ref in found])
        self._require_fit(max(sum(pair) for pair in passed))

        plan = TaskGraph()
        views, infos, tables, sizes = [], [], [], []
        for rank in range(p):
            view = (partitions[rank], found[rank], here[rank])
            views.append(plan.add(rank, self._key("partition", rank), tasks.compacted, *view))
            infos.append(plan.add(rank, self._key("info", rank), tasks.describe, views[-1]))
            if kept.edge_keys:
                key = self._key("attributes", rank)
                table = (attributes[rank], found[rank], here[rank])
                tables.append(plan.add(rank, key, tasks.compacted_attributes, *table))
                sizes.append(plan.add(rank, self._key("bytes", rank), attribute_tasks.describe, tables[-1]))
        told = self._gathered(plan, [ref.key for ref in (*infos, *sizes)], [ref.key for ref in (*views, *tables)])
        keys: list[tuple[Hashable, ...]] = [tuple(ref.key for ref in refs) for refs in (views, tables)]
        of_base: dict[str, Any] = {"view_of": self._record.graph_id, "base_name": self._record.name}
        return {
            "partition_keys": keys[0],
            "infos": self._counted(told[:p]),
            "beside": replaced(kept, **of_base, edge_keys=keys[1], nbytes=tuple(told[p:])),
            "build_seconds": time.perf_counter() - self._start,
        }

    def _key(self, what: str, rank: int) -> Key:
        return (f"view-{what}-{self._token}", rank)

    def _sent(self, bits: NDArray[np.uint8]) -> Ref:
        """Send bits to all ranks, not by way of the scheduler."""
        client, addresses = self._graph.gang.client, list(self._graph.gang.addresses)
        future = client.scatter(bits, workers=addresses, broadcast=True, hash=False)
        self.held.add(future)
        return Ref(future.key)

    def _gathered(self, plan: TaskGraph, awaited: list[Key], held: list[Key]) -> list[Any]:
        """Submit tasks, and return the results of some of them; others are held."""
        futures = self._graph.gang.submit(plan, [*awaited, *held])
        self.held.update(futures.values())
        doing = f"making a view of {self._graph.name}"
        return self._graph.gang.gather([futures[key] for key in awaited], self._deadline, doing)

    def _require_fit(self, edges: int) -> None:
        """Raise ``GraphTooLargeError`` unless so many edges, the most of a rank, fit beside the graph.

        The edges of a graph on GPUs are compacted there, and the GPUs are asked then.
        """
        infos, kept = self._record.infos, self._kept
        stored = max(info.m_local for info in infos)
        needed = Estimate({}, {"filter": 8 * stored}, {})
        if self._record.backend == "cpu":
            needed.partition["csr"] = 8 * (self._record.stripe.n_local + 1) + 4 * edges
        if kept.nbytes and stored:
            needed.partition["attributes"] = max(kept.nbytes) * edges // stored
        require_fit(self._graph.gang, f"{counted(edges, 'edge')} that pass", needed, f"a view of {self._graph.name}")

    def _counted(self, infos: list[PartitionInfo]) -> tuple[PartitionInfo, ...]:
        """Return the counts with the number of input edges: those of which both directions, or one, pass."""
        stored, loops = (sum(getattr(info, what) for info in infos) for what in ("m_local", "self_loops"))
        graph = self._graph
        twice = not graph.directed and graph.input_edges != graph.m
        return tuple(replaced(info, input_edges=(stored + loops) // 2 if twice else stored) for info in infos)


def _require_filtered(record: GraphRecord) -> None:
    """Refuse a graph of which there are no views."""
    if record.layout is not None:
        raise InvalidOptionError(f"{record.name} is in the layout {record.layout.name}; views are of graphs in 1d")
    if record.mutable or record.version:
        raise InvalidOptionError(f"{record.name} may be updated; views are of graphs loaded without mutable=True")


def _bits(graph: Graph[Any], kept: KeptAttributes, condition: Any, vertices: Any, without: Any) -> NDArray[np.uint8]:
    """Return the packed bits of the vertices that are kept, by position.

    Args:
        condition: on the vertices; None if ``vertices`` are ids, or None for all.
    """
    bits = np.ones(graph.n, bool)
    if condition is not None:
        bits = _by_condition(graph, kept, condition)
    elif vertices is not None:
        bits[:] = False
        bits[_positions(graph, vertices)] = True
    if without is not None:
        bits[_positions(graph, without)] = False
    return np.packbits(bits)


def _positions(graph: Graph[Any], ids: Any) -> NDArray[np.int64]:
    vertices = graph.vertices_of(ids)
    return vertices if graph.order is None else graph.order.position[vertices].astype(np.int64)


def _by_condition(graph: Graph[Any], kept: KeptAttributes, condition: Any) -> NDArray[np.bool]:
    """Return for each position whether a condition holds of its vertex, which the owners compute."""
    arguments = [(Ref(key), condition) for key in kept.vertex_keys]
    doing = f"filtering the vertices of {graph.name}"
    found = graph.gang.on_each_rank("kept-vertices", tasks.kept_vertices, arguments, of_call("build-deadline"), doing)
    bits = np.zeros(graph.n, bool)
    for rank, packed in enumerate(found):
        own = bits[rank :: graph.ranks]
        own[:] = np.unpackbits(packed, count=own.size)
    return bits


def _in_words(condition: Any, of_vertices: Any, vertices: Any, without: Any) -> str:
    """Return what a view keeps, in words."""
    words = [" ".join(str(each).split()) for each in (condition, of_vertices) if each is not None]
    words += [] if vertices is None or of_vertices is not None else ["vertices are among some ids"]
    words += [] if without is None else ["vertices are not among some ids"]
    return " and ".join(words)
