"""The making of a view: the ranks find the edges that pass, and compact these to a graph of their own.

A view of a graph that may be updated follows it. The ranks keep the view's rule, and a use of the view after an update
has them make its edges anew, of that graph: as the view's next version, by an update of the view.
"""

from __future__ import annotations

import contextlib
import time
import uuid
import weakref
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import Any

import distributed
import numpy as np
from numpy.typing import NDArray

from dbfs.base.records import Formation, GraphRecord
from dbfs.building.memory import Estimate, require_fit
from dbfs.cluster.deadline import of_call
from dbfs.cluster.gang import Key, Ref, TaskGraph, host_of, release
from dbfs.errors import GraphNotFoundError, InvalidOptionError, ResultReleasedError
from dbfs.features.living.columns import keys_beside
from dbfs.features.views.attributes import KeptAttributes, kept_of
from dbfs.features.views.conditions import condition_on, is_expression
from dbfs.features.views.room import make_room
from dbfs.graph.graph import Graph
from dbfs.graph.load import require_replacement, reserved
from dbfs.graph.striped import StripedGraph
from dbfs.service.client import ServiceClient, error_words
from dbfs.service.held_run import held_run
from dbfs.service.messages import AddGraph, EndLoad, GetGraph
from dbfs.service.runs import RunSender
from dbfs_workers.base.text import LONGEST_NAME, counted, printable
from dbfs_workers.building.layout import Layout
from dbfs_workers.features.living.update_spec import UpdateChange, UpdateSpec
from dbfs_workers.features.views import filters as tasks
from dbfs_workers.search.partition.partition import PartitionInfo


@dataclass(frozen=True, eq=False)
class Recipe:
    """How a view was made, so that it can be made again.

    Attributes:
        base: what it is a view of. A reference would keep that loaded.
        rule: what is kept of that.
        version: the version of the base, which a view that does not follow has.
    """

    base: weakref.ref[Graph[Any]]
    rule: tasks.Rule
    version: int


def make_view(
    graph: Graph[Any], edges: Any, vertices: Any, without: Any, name: str | None, replace: bool | str
) -> tuple[GraphRecord, Formation, Recipe]:
    """Make a view of a graph; arguments and errors as of ``Graph.where``."""
    require_replacement(name, replace)
    graph.require_loaded()
    _require_filtered(graph.record)
    if edges is None and vertices is None and without is None:
        raise InvalidOptionError("where() takes edges=, vertices= or without=, which say what stays")
    rule, words = _rule(graph, edges, vertices, without)
    shown = printable(f"{graph.record.name} where {words}", LONGEST_NAME) if name is None else name
    record, formed = _made(graph, rule, uuid.uuid4().hex, shown, named=name is not None, replace=replace)
    return record, formed, Recipe(weakref.ref(graph), rule, graph.record.version)


def make_again(view: StripedGraph, recipe: Recipe, base: Graph[Any]) -> None:
    """Make a view again that was dropped.

    Raises:
        ResultReleasedError: its base was unloaded, or a view that does not follow has another base now.
        Other errors as of ``Graph.where``.
    """
    before = view.record
    try:
        base.refresh()
        if not kept_of(before).follows and base.record.version != recipe.version:
            raise ResultReleasedError(f"{base.name} was changed from version {recipe.version}")
        view.follow(*_made(base, recipe.rule, before.graph_id, before.name, before=before))
    except (GraphNotFoundError, ResultReleasedError) as error:
        words = f"{before.name} was dropped when memory was needed, and can't be made again: {error}"
        raise ResultReleasedError(words) from error


def _made(
    graph: Graph[Any],
    rule: tasks.Rule,
    graph_id: str,
    name: str,
    *,
    named: bool = False,
    replace: bool | str = False,
    before: GraphRecord | None = None,
) -> tuple[GraphRecord, Formation]:
    """Make a view of a graph; ``before`` is its record if it was dropped."""
    root, making, limit = _root_of(graph), _Making(graph, name), of_call("build-deadline")
    service = ServiceClient.of(graph.gang.client)
    with reserved(graph.gang, graph_id, name if named else None, replace):
        try:
            with _turn(graph, root) as source:
                version = 0
                if before is not None:
                    version = before.version + (bool(root) and source.version != kept_of(before).root_version)
                made = making.made(source, kept_of(graph.record), rule, follows=bool(root), version=version)
            view = replaced(
                source,
                graph_id=graph_id,
                name=name,
                named=named,
                client=graph.gang.client.id,
                partition_keys=made.parts[0],
                input_edge_keys=(),
                infos=made.infos,
                created=time.time(),
                read_seconds=0.0,
                build_seconds=making.seconds,
                mutable=False,
                version=version,
                updated=0,
                log="",
                beside=made.beside(graph.record),
            )
            formed = service.call(AddGraph(view, limit.remaining))
        except BaseException as error:
            # Ends the reservation.
            service.tell(EndLoad(graph_id, service.client.id, name, error_words(error)))
            raise
        finally:
            # The service holds the data from here on. If the call failed, the data must be freed.
            release(making.held)
    return view, formed


def bring_up_to_date(view: StripedGraph) -> bool:
    """Bring a view up to date with the graph that it follows; return whether that graph is there.

    Raises:
        GraphTooLargeError: the workers have too little memory for the next version.
        Other errors as of ``Graph.insert_edges``.
    """
    client = view.gang.client
    service, root = ServiceClient.of(client), kept_of(view.record).root
    try:
        if service.call(GetGraph(root)).version == kept_of(view.record).root_version:
            return True
        # Another client may have done so.
        view.take(service.call(GetGraph(view.record.graph_id)))
        making = _Making(view, view.record.name)
        try:
            with _turn(view, root) as source:
                before = view.record
                if source.version == kept_of(before).root_version:
                    return True
                made = making.made(source, kept_of(before), None, follows=True, version=before.version + 1)
            spec = UpdateSpec("replace", before.order_key is not None)
            change = UpdateChange(spec, False, made.keys, keys_beside(before))
            report = RunSender.of(client).update(before.graph_id, change, of_call())
        finally:
            release(making.held)
    except GraphNotFoundError:
        # The view itself may be gone: then this raises.
        service.call(GetGraph(view.record.graph_id))
        return False
    view.take(report.record)
    return True


def _root_of(graph: StripedGraph) -> str:
    """Return the id of the graph that a view of ``graph`` follows; empty if it follows none."""
    record, kept = graph.record, kept_of(graph.record)
    if not kept.view_of:
        return record.graph_id if record.mutable or record.version else ""
    with contextlib.suppress(GraphNotFoundError):
        if kept.follows:
            return ServiceClient.of(graph.gang.client).call(GetGraph(kept.root)).graph_id
    return ""


@contextlib.contextmanager
def _turn(graph: StripedGraph, root: str) -> Iterator[GraphRecord]:
    """Yield the record of what a view is made of: the root, which no update changes meanwhile; without one the graph.

    Raise ``GraphNotFoundError`` if the graph was unloaded. Other errors as for ``held_run``.
    """
    service = ServiceClient.of(graph.gang.client)
    if not root:
        yield service.call(GetGraph(graph.record.graph_id))
        return
    with held_run(service, root, uuid.uuid4().hex, 0, of_call("build-deadline"), "view"):
        yield service.call(GetGraph(root))


@dataclass(frozen=True)
class _MadeView:
    """A view on the ranks.

    Attributes:
        keys: by rank, Dask keys of the ``Made``.
        parts: by rank, those of the partitions, and of each of the data beside these.
        infos: the partitions' counts.
        facts: by rank, what the data beside the partitions say of themselves.
        has: whether edges, vertices and the rule have data there.
        by_vertices: see ``KeptAttributes``.
        version: of what the view was made of.
    """

    keys: tuple[Key, ...]
    parts: Sequence[tuple[Key, ...]]
    infos: tuple[PartitionInfo, ...]
    facts: tuple[tuple[Any, ...], ...]
    has: tuple[bool, bool, bool]
    by_vertices: bool
    version: int

    def beside(self, base: GraphRecord) -> KeptAttributes:
        """Return what the record of a view of ``base`` says of the data."""
        given = iter(self.parts[1:])
        edges, vertices, rules = (next(given) if there else () for there in self.has)
        kept = replaced(
            kept_of(base),
            edge_keys=edges,
            vertex_keys=vertices,
            view_of=base.graph_id,
            base_name=base.name,
            root=kept_of(base).root or base.graph_id,
            root_version=self.version if rules else 0,
            rule_keys=rules,
            by_vertices=self.by_vertices and bool(rules),
        )
        return replaced(kept, nbytes=tuple(of_rank[0] for of_rank in self.facts) if edges else ())


class _Making:
    """The tasks of one view.

    Attributes:
        held: futures of its data, those of the graph it is a view of among them.
    """

    def __init__(self, graph: StripedGraph, name: str) -> None:
        self._graph, self._name = graph, name
        self._deadline, self._token, self._start = of_call("build-deadline"), uuid.uuid4().hex, time.perf_counter()
        self.held: set[distributed.Future] = set()

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._start

    def made(
        self, source: GraphRecord, before: KeptAttributes, own: tasks.Rule | None, *, follows: bool, version: int
    ) -> _MadeView:
        """Make a view.

        Args:
            source: what it is made of.
            before: of the graph that it is a view of, or of the view itself; its rule holds too.
            own: the rule that is new.
            follows: whether the ranks keep the rule.
            version: of the view.
        """
        p, kept = self._graph.gang.p, kept_of(source)
        client = self._graph.gang.client
        # Held before the service is asked whether the graph is there, since another client may unload it.
        self.held.update(distributed.Future(key, client) for key in source.keys)
        ServiceClient.of(client).call(GetGraph(source.graph_id))
        plan = TaskGraph()
        partitions = [Ref(key) for key in source.partition_keys]
        attributes: list[Ref | None] = [Ref(key) for key in kept.edge_keys] or [None] * p
        vertices: list[Ref | None] = [Ref(key) for key in kept.vertex_keys] or [None] * p
        rules = self._rules(before.rule_keys, own)
        hosts = [host_of(address) for address in self._graph.gang.addresses]
        here = [hosts.count(host) for host in hosts]
        by_vertices = before.by_vertices or (own is not None and bool(own.vertices))
        bits = self._bits(source, vertices, rules) if by_vertices else [None] * p
        found = []
        for rank in range(p):
            of_rank = (partitions[rank], attributes[rank], rules[rank], bits[rank], here[rank], source.version)
            found.append(plan.add(rank, self._key("passing", rank), tasks.passing, *of_rank))
        counts = [plan.add(rank, self._key("count", rank), tasks.count, found[rank]).key for rank in range(p)]
        self._require_fit(source, max(self._gathered(plan, counts, [ref.key for ref in found])))

        plan, made = TaskGraph(), []
        for rank in range(p):
            of_base = (partitions[rank], attributes[rank], vertices[rank], found[rank], follows)
            made.append(plan.add(rank, self._key("made", rank), tasks.made, *of_base, version, here[rank]))
        if source.layout is not None:
            made = self._with_degrees(plan, made, source.layout)
        facts = [plan.add(rank, self._key("facts", rank), tasks.facts_of, made[rank]) for rank in range(p)]
        read, m = source.infos[0].input_edges, sum(info.m_local for info in source.infos)
        # Of edges that are both ways one way each was read, or both.
        both = not source.directed and (bool(source.version) or read != m)
        has = (bool(kept.edge_keys), bool(kept.vertex_keys), follows)
        keys, *parts = (
            tuple(
                plan.add(rank, self._key(f"view-{place}", rank), tasks.counting, whole, facts, both, place).key
                for rank, whole in enumerate(made)
            )
            for place in (None, *range(-1, sum(has)))
        )
        held = [key for of_ranks in (keys, *parts) for key in of_ranks]
        infos, told = zip(*self._gathered(plan, [ref.key for ref in facts], held), strict=True)
        count = tasks.input_edges(infos, both)
        infos = tuple(replaced(info, input_edges=count) for info in infos)
        return _MadeView(keys, parts, infos, told, has, by_vertices, source.version)

    def _with_degrees(self, plan: TaskGraph, made: list[Ref], layout: Layout) -> list[Ref]:
        """Add the tasks that count the degrees of rows whose edges lie on several ranks; return the ranks' views."""
        whole = []
        for rank, own in enumerate(made):
            degrees = [
                plan.add(peer, self._key(f"degrees-{rank}", peer), tasks.degrees, made[peer], layout, rank)
                for peer in layout.out_holders(rank)
            ]
            whole.append(plan.add(rank, self._key("whole", rank), tasks.with_degrees, own, layout, degrees))
        return whole

    def _rules(self, before: Sequence[Hashable], own: tasks.Rule | None) -> list[list[Any]]:
        """Return by rank the rules: that of before and the new one."""
        gang = self._graph.gang
        rules: list[list[Any]] = [[Ref(key)] for key in before] or [[] for _ in gang.addresses]
        for rank, of_rank in enumerate(rules):
            if own is not None and own.among:
                # The bits of all vertices go past the scheduler.
                future = gang.send(rank, own, f"making {self._name}")
                self.held.add(future)
                of_rank.append(Ref(future.key))
            elif own is not None:
                of_rank.append(own)
        return rules

    def _bits(
        self, source: GraphRecord, vertices: Sequence[Ref | None], rules: Sequence[list[Any]]
    ) -> list[Ref | None]:
        """Return by rank the bits of the vertices of which the conditions hold, which their owners compute."""
        gang, n, p, plan = self._graph.gang, source.stripe.n, self._graph.gang.p, TaskGraph()
        own = [
            plan.add(rank, self._key("kept", rank), tasks.kept_vertices, vertices[rank], rules[rank], Ref(key)).key
            for rank, key in enumerate(source.partition_keys)
        ]
        bits = np.zeros(n, bool)
        for rank, packed in enumerate(self._gathered(plan, own, [])):
            of_rank = bits[rank::p]
            of_rank[:] = np.unpackbits(packed, count=of_rank.size, bitorder="little")
        future = gang.client.scatter(np.packbits(bits), workers=list(gang.addresses), broadcast=True, hash=False)
        self.held.add(future)
        return [Ref(future.key)] * p

    def _key(self, what: str, rank: int) -> Key:
        return (f"view-{what}-{self._token}", rank)

    def _gathered(self, plan: TaskGraph, awaited: list[Key], held: list[Key]) -> list[Any]:
        """Submit tasks, and return the results of some of them when all have ended; others are held."""
        gang, doing = self._graph.gang, f"making {self._name}"
        futures = gang.submit(plan, [*awaited, *held])
        self.held.update(futures.values())
        gang.finish([futures[key] for key in held], self._deadline, doing)
        return gang.gather([futures[key] for key in awaited], self._deadline, doing)

    def _require_fit(self, source: GraphRecord, edges: int) -> None:
        """Raise ``GraphTooLargeError`` unless so many edges, the most of a rank, fit beside the graph.

        The edges of a graph on GPUs are compacted there, and the GPUs are asked then.
        """
        infos, kept, stripe, layout = source.infos, kept_of(source), source.stripe, source.layout
        stored, twice = max(info.m_local for info in infos), infos[0].has_parents
        needed = Estimate({}, {"places": 8 * edges}, {})
        if layout is not None:
            needed.partition.update(layout.partition_bytes(stripe, edges // (1 + twice), bottom_up=twice))
        elif source.backend == "cpu":
            needed.partition["csr"] = 8 * (stripe.n_local + 1) + 4 * edges
        if kept.nbytes and stored:
            needed.partition["attributes"] = max(kept.nbytes) * edges // stored
        gang, what = self._graph.gang, f"{counted(edges, 'edge')} that pass"
        require_fit(gang, what, needed, self._name, room_makers=(make_room,))


def _require_filtered(record: GraphRecord) -> None:
    """Refuse a graph of which there are no views."""
    if record.layout is not None and record.backend != "cpu":
        raise InvalidOptionError(
            f"{record.name} is on GPUs in the layout {record.layout.name}; views are of graphs in 1d there"
        )
    if record.backend != "cpu" and (record.mutable or record.version):
        raise InvalidOptionError(f"{record.name} is on GPUs and may be updated; views of such graphs are on CPUs")


def _rule(graph: Graph[Any], edges: Any, vertices: Any, without: Any) -> tuple[tasks.Rule, str]:
    """Return what a view keeps, and the same in words."""
    kept, among = kept_of(graph.record), list[tasks.Among]()
    condition = None if edges is None else condition_on(edges, kept.columns, graph.name, "edges")
    of_vertices = (
        condition_on(vertices, kept.vertex_columns, graph.name, "vertices") if is_expression(vertices) else None
    )
    given = [each for each in (condition, of_vertices) if each is not None]
    words = [" ".join(str(each).split()) for each in given]
    if vertices is not None and of_vertices is None:
        among.append(_among(graph, vertices, left_out=False))
        words.append("vertices are among some ids")
    if without is not None:
        among.append(_among(graph, without, left_out=True))
        words.append("vertices are not among some ids")
    conditions = tuple(() if each is None else (each,) for each in (condition, of_vertices))
    return tasks.Rule(conditions[0], conditions[1], tuple(among)), " and ".join(words)


def _among(graph: Graph[Any], ids: Any, *, left_out: bool) -> tasks.Among:
    vertices = graph.vertices_of(ids)
    positions: NDArray[np.int64] = vertices if graph.order is None else graph.order.position[vertices].astype(np.int64)
    bits = np.full(graph.n, left_out)
    bits[positions] = not left_out
    return tasks.Among(np.packbits(bits), graph.n, left_out)
