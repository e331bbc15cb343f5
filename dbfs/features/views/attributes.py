"""The attributes of a graph's edges: their build, their place in the graph's record, and what refuses them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from dbfs.base.records import Beside, GraphRecord
from dbfs.building.attributes import AttributeKeeper, AttributeTasks
from dbfs.building.memory import Estimate
from dbfs.cluster.gang import Key, Ref, TaskGraph
from dbfs.edges import edge_list
from dbfs.edges.edge_list import EdgeList
from dbfs.errors import InvalidOptionError
from dbfs.graph.striped import StripedGraph
from dbfs_workers.building.layout import Layout
from dbfs_workers.building.pieces import GeneratedPiece
from dbfs_workers.features.views import attributes as tasks
from dbfs_workers.features.views.kept import RankVertices
from dbfs_workers.search.partition.stripe import Stripe
from dbfs_workers.serving.queries import same_value

if TYPE_CHECKING:
    import pyarrow as pa

# Bytes of an edge while its attributes are dealt and sorted: both ends and the place of the row, twice.
_DEALT_BYTES = 48
_OF_VERTICES: Final = (
    "the columns of its vertices came from a client's memory, which the scheduler does not keep: load it again, with "
    "the table of vertices"
)


@dataclass(frozen=True)
class KeptAttributes(Beside):
    """The attributes of a graph's edges and vertices.

    Attributes:
        edge_keys: by rank, Dask keys of the ``RankAttributes``; empty if the edges have none.
        schema: the Arrow schema of the columns, as Arrow's bytes; empty if there are none.
        nbytes: by rank, bytes of the attributes.
        vertex_keys: by rank, Dask keys of the Arrow tables of the vertices' attributes; empty if they have none.
        vertex_schema: the schema of these.
        vertices_saved: whether the graph's source has these too.
        view_of, base_name: id and name of the graph that this one is a view of; empty if it is none.
        root: id of the graph, no view itself, that a view, or the graph of the view, was made of; empty if it is none.
        root_version: version of that graph of which a view that follows has the edges.
        rule_keys: by rank, Dask keys of the ``filters.Rule`` of a view that follows; empty if it follows none.
        by_vertices: whether the rule has conditions on the columns of vertices.
    """

    edge_keys: tuple[Hashable, ...]
    schema: bytes
    nbytes: tuple[int, ...]
    vertex_keys: tuple[Hashable, ...] = ()
    vertex_schema: bytes = b""
    vertices_saved: bool = False
    view_of: str = ""
    base_name: str = ""
    root: str = ""
    root_version: int = 0
    rule_keys: tuple[Hashable, ...] = ()
    by_vertices: bool = False

    @property
    def keys(self) -> tuple[Hashable, ...]:
        return tuple(key for keys in self._by_rank for key in keys)

    @property
    def _by_rank(self) -> tuple[tuple[Hashable, ...], ...]:
        return tuple(keys for keys in (self.edge_keys, self.vertex_keys, self.rule_keys) if keys)

    @property
    def follows(self) -> bool:
        """Whether it is a view that follows its root."""
        return bool(self.rule_keys)

    @property
    def fixed_on(self) -> str:
        return "" if self.follows else self.root

    @property
    def why_not(self) -> str:
        if self.view_of:
            return f"it is a view of {self.base_name}; once that graph is whole, where() makes the view again"
        return _OF_VERTICES if self.vertex_keys and not self.vertices_saved else ""

    def keys_of(self, rank: int) -> tuple[Hashable, ...]:
        return tuple(keys[rank] for keys in self._by_rank)

    def renamed(self, new: Mapping[Hashable, Hashable]) -> KeptAttributes:
        edges, vertices, rules = (
            tuple(new.get(key, key) for key in keys) for keys in (self.edge_keys, self.vertex_keys, self.rule_keys)
        )
        return replace(self, edge_keys=edges, vertex_keys=vertices, rule_keys=rules)

    def changed(self, facts: Sequence[Sequence[Any]]) -> KeptAttributes:
        nbytes = tuple(of_rank[0] for of_rank in facts) if self.edge_keys else ()
        return replace(self, nbytes=nbytes, root_version=facts[0][-1] if self.rule_keys else 0)

    def is_like(self, other: Beside | None) -> bool:
        if not isinstance(other, KeptAttributes):
            return False
        return bool(self.columns.equals(other.columns) and self.vertex_columns.equals(other.vertex_columns))

    @property
    def in_words(self) -> str:
        return f"is a view of {self.base_name}" if self.view_of else "has attributes"

    @property
    def edge_columns(self) -> Sequence[str]:
        names: list[str] = self.columns.names
        return names

    @property
    def edge_schema(self) -> pa.Schema:
        return self.columns

    @property
    def changeable(self) -> bool:
        return not self.view_of

    @property
    def columns(self) -> pa.Schema:
        """The columns of the edges."""
        return _schema_of(self.schema)

    @property
    def vertex_columns(self) -> pa.Schema:
        """The columns of the vertices."""
        return _schema_of(self.vertex_schema)


NOTHING: Final = KeptAttributes((), b"", ())
"""Of a graph that keeps no attributes."""


def kept_of(record: GraphRecord) -> KeptAttributes:
    """Return what a graph keeps."""
    beside = record.beside
    return beside if beside is not None and isinstance(beside, KeptAttributes) else NOTHING


def edge_column_keys(graph: StripedGraph) -> tuple[Hashable, ...]:
    """Return by rank the Dask key of what has the columns of the rank's edges.

    Raises:
        InvalidOptionError: the edges have no columns.
    """
    keys = kept_of(graph.record).edge_keys
    if not keys:
        raise InvalidOptionError(
            f"the edges of {graph.name} have no columns: load the table with edge_columns=, which names those to keep"
        )
    return keys


def _schema_of(schema: bytes) -> pa.Schema:
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(schema)) if schema else pa.schema([])


class Attributes(AttributeKeeper):
    """The attributes of edges, which lie beside the partitions in the order of their columns."""

    def count(self, needed: Estimate, schema: pa.Schema, rows: int) -> None:
        # A null takes a bit, a string the index of its dictionary.
        bits = sum(_bits(field.type) + 1 for field in schema)
        needed.partition["attributes"] = rows * bits // 8
        needed.build["attributes"] = rows * (bits // 8 + _DEALT_BYTES)

    def add_tasks(
        self,
        graph: TaskGraph,
        edges: EdgeList,
        of: edge_list.Attributes,
        pieces: Sequence[Ref | GeneratedPiece],
        attributes: Sequence[Ref],
        partitions: Sequence[Ref],
        order: Ref | None,
        stripe: Stripe,
        token: str,
        *,
        layout: Layout | None,
        both: bool,
    ) -> AttributeTasks:
        def key(name: str, *index: int) -> Key:
            return (f"{name}-{token}", *index)

        # The ranks get copies of this one: of copies of the graph's own order Dask may keep one on any rank.
        shared = order and graph.add(0, key("attributes-order", 0), same_value, order)
        listing = tasks.Listing(edges.name, edges.first_id, edges.symmetrise, not edges.directed and of.twice)
        parts: list[list[Ref]] = [[] for _ in partitions]
        for rank in range(min(stripe.p, len(pieces))):
            arguments = ([*pieces[rank :: stripe.p]], [*attributes[rank :: stripe.p]], stripe, shared)
            name, ways = key("deal-attributes", rank), 2 if both else 1
            rows = graph.add(rank, name, tasks.deal_rows, *arguments, listing, layout, ways)
            for owner in range(stripe.p):
                name = key("attributes-part", rank, owner)
                parts[owner].append(graph.add(rank, name, operator.getitem, rows, owner))
        kept = [
            graph.add(rank, key("attributes", rank), tasks.sort_dealt, parts[rank], partition, shared, listing)
            for rank, partition in enumerate(partitions)
        ]
        return _described(graph, kept, of.schema, token)

    def add_loaded(
        self,
        graph: TaskGraph,
        tables: Sequence[tuple[Ref, Ref | None]],
        schema: pa.Schema,
        partitions: Sequence[Ref],
        name: str,
        token: str,
    ) -> AttributeTasks:
        kept = [
            graph.add(rank, (f"attributes-{token}", rank), tasks.of_tables, *ways, partition, name)
            for rank, (ways, partition) in enumerate(zip(tables, partitions, strict=True))
        ]
        return _described(graph, kept, schema, token)

    def add_striped(
        self,
        graph: TaskGraph,
        record: GraphRecord,
        ranks: Sequence[Ref],
        partitions: Sequence[Ref],
        token: str,
        *,
        both: bool,
    ) -> list[Ref]:
        kept, layout, listing = kept_of(record), record.layout, tasks.Listing(record.name, 0, False, False)
        assert layout is not None
        order = None if record.order_key is None else Ref(record.order_key)
        shared = order and graph.add(0, (f"striped-order-{token}", 0), same_value, order)
        found = []
        for rank, partition in enumerate(partitions):
            ways = [
                [
                    graph.add(
                        peer,
                        (f"striped-rows-{by_end}-{token}", rank, peer),
                        functools.partial(tasks.rows_of, by_end=by_end),
                        ranks[peer],
                        Ref(kept.edge_keys[peer]),
                        rank,
                    )
                    for peer in holders
                ]
                for by_end, holders in ((False, layout.out_holders(rank)), (True, layout.in_holders(rank)))[: 1 + both]
            ]
            key = (f"striped-attributes-{token}", rank)
            found.append(graph.add(rank, key, tasks.sort_rows, ways, partition, shared, listing))
        return found

    def add_vertices(self, graph: TaskGraph, tables: Sequence[Ref], token: str) -> list[Key]:
        return [
            graph.add(rank, (f"kept-vertices-{token}", rank), RankVertices, table).key
            for rank, table in enumerate(tables)
        ]

    def with_vertices(self, beside: Beside | None, keys: Sequence[Key], schema: pa.Schema) -> KeptAttributes:
        kept = beside if isinstance(beside, KeptAttributes) else NOTHING
        return replace(kept, vertex_keys=tuple(keys), vertex_schema=_serialised(schema), vertices_saved=True)


def _described(graph: TaskGraph, kept: Sequence[Ref], schema: pa.Schema, token: str) -> AttributeTasks:
    """Return the tasks of the attributes that the ranks keep, with those that tell their bytes."""
    sizes = [graph.add(rank, (f"attribute-bytes-{token}", rank), tasks.describe, ref) for rank, ref in enumerate(kept)]
    keys, of_columns = tuple(ref.key for ref in kept), _serialised(schema)
    return AttributeTasks(
        keys, [ref.key for ref in sizes], lambda found: KeptAttributes(keys, of_columns, tuple(found))
    )


def _serialised(schema: pa.Schema) -> bytes:
    found: bytes = schema.serialize().to_pybytes()
    return found


def _bits(kind: Any) -> int:
    import pyarrow as pa

    return int(kind.index_type.bit_width if pa.types.is_dictionary(kind) else kind.bit_width)
