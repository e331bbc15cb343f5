"""The attributes of a graph's edges: their build, their place in the graph's record, and what refuses them."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbfs.base.records import Beside
from dbfs.building.attributes import AttributeKeeper, AttributeTasks
from dbfs.building.builder import STRIPES
from dbfs.building.memory import Estimate
from dbfs.cluster.gang import Key, Ref, TaskGraph
from dbfs.edges.edge_list import EdgeList
from dbfs.edges.tables.attributes import column_names
from dbfs.errors import InvalidOptionError
from dbfs.graph.load import LoadOption
from dbfs_workers.building.pieces import GeneratedPiece
from dbfs_workers.features.views import attributes as tasks
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    import pyarrow as pa

    from dbfs.edges.tables.ends import ColumnNames

# Bytes of an edge while its attributes are dealt and sorted: both ends and the place of the row, twice.
_DEALT_BYTES = 48


@dataclass(frozen=True)
class EdgeAttributes(Beside):
    """The attributes of a graph's edges.

    Attributes:
        attribute_keys: by rank, Dask keys of the ``RankAttributes``; empty if the edges have none.
        schema: the Arrow schema of the columns, as Arrow's bytes; empty if there are none.
        nbytes: by rank, bytes of the attributes.
        view_of: the name of the graph that this one is a view of; empty if it is none.
    """

    attribute_keys: tuple[Hashable, ...]
    schema: bytes
    nbytes: tuple[int, ...]
    view_of: str = ""

    @property
    def keys(self) -> tuple[Hashable, ...]:
        return self.attribute_keys

    @property
    def in_words(self) -> str:
        return f"is a view of {self.view_of}" if self.view_of else "has attributes of edges"

    @property
    def columns(self) -> pa.Schema:
        """The columns."""
        import pyarrow as pa

        return pa.ipc.read_schema(pa.py_buffer(self.schema)) if self.schema else pa.schema([])


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
        pieces: Sequence[Ref | GeneratedPiece],
        attributes: Sequence[Ref],
        partitions: Sequence[Ref],
        order: Ref | None,
        stripe: Stripe,
        token: str,
        *,
        both: bool,
    ) -> AttributeTasks:
        assert edges.attributes is not None

        def key(name: str, *index: int) -> Key:
            return (f"{name}-{token}", *index)

        parts: list[list[Ref]] = [[] for _ in partitions]
        for rank in range(min(stripe.p, len(pieces))):
            arguments = ([*pieces[rank :: stripe.p]], [*attributes[rank :: stripe.p]], stripe, order)
            options = (edges.symmetrise, 2 if both else 1, edges.name)
            rows = graph.add(rank, key("deal-attributes", rank), tasks.deal_rows, *arguments, *options)
            for owner in range(stripe.p):
                name = key("attributes-part", rank, owner)
                parts[owner].append(graph.add(rank, name, operator.getitem, rows, owner))
        kept, sizes = [], []
        for rank, partition in enumerate(partitions):
            of_rank = (parts[rank], partition, order is not None, edges.name)
            kept.append(graph.add(rank, key("attributes", rank), tasks.sort_rows, *of_rank))
            sizes.append(graph.add(rank, key("attribute-bytes", rank), tasks.describe, kept[-1]))
        keys, schema = tuple(ref.key for ref in kept), edges.attributes.schema.serialize().to_pybytes()

        def beside(found: Sequence[Any]) -> EdgeAttributes:
            return EdgeAttributes(keys, schema, tuple(found))

        return AttributeTasks(keys, [ref.key for ref in sizes], beside)


def _bits(kind: Any) -> int:
    import pyarrow as pa

    return int(kind.index_type.bit_width if pa.types.is_dictionary(kind) else kind.bit_width)


@dataclass(frozen=True)
class KeptColumns(LoadOption):
    """The option ``edge_columns`` of ``load``.

    Attributes:
        names: names of the columns.
        layout: the option ``layout``.
    """

    names: tuple[str, ...]
    layout: str

    @classmethod
    def of(cls, names: ColumnNames, layout: str) -> KeptColumns:
        """Return the option for the names that a caller gives; errors as of ``column_names``."""
        return cls(column_names(names, "edge_columns"), layout)

    def take_edges(self, edges: EdgeList, *, shared: bool) -> EdgeList:
        """Return the edges with the columns as attributes. Errors as for ``EdgeList.keeping``."""
        return edges.keeping(self.names) if self.names and edges.attributes is None else edges

    def require(self, ranks: int, backend: str, *, mutable: bool) -> None:
        """Refuse options that attributes do not go with. Errors as for ``load``."""
        ways = {
            f"layout={self.layout!r}": (self.layout != STRIPES, f"layout={STRIPES!r} keeps them"),
            "backend='cuda'": (backend == "cuda", "backend='cpu' keeps them"),
            "mutable=True": (mutable, "load the graph without one of the two"),
        }
        for option, (given, way) in ways.items():
            if self.names and given:
                raise InvalidOptionError(f"edge_columns= does not go with {option}: {way}")
