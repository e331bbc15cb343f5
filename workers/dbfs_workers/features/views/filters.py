"""Filters of edges on a rank: which edges pass, and the partition and the attributes of these alone.

Bits of vertices are by position: by vertex, or by the order by degree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.features.living.carried import Made, Step
from dbfs_workers.features.views.kept import RankAttributes, RankVertices
from dbfs_workers.search.partition.partition import Csr, Partition
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    import pyarrow as pa


class Condition(Protocol):
    """A condition on the attributes of an edge, or of a vertex."""

    def passing(self, table: pa.Table) -> NDArray[np.bool]:
        """Return for each row whether the condition holds; a null does not.

        Raises:
            EdgeInputError: the condition can't be computed of a value.
        """


@dataclass(frozen=True)
class Among:
    """Vertices that a caller names.

    Attributes:
        bits: packed bits of the vertices that are kept.
        count: number of vertices that there were.
        later: whether vertices that came later are kept.
    """

    bits: NDArray[np.uint8]
    count: int
    later: bool

    def kept(self, n: int) -> NDArray[np.bool]:
        """Return the bits of ``n`` vertices."""
        found = np.full(n, self.later)
        found[: self.count] = np.unpackbits(self.bits, count=self.count)[:n]
        return found


@dataclass(frozen=True)
class Rule:
    """What a view keeps: an edge of which all conditions hold, and both ends of which are kept.

    Attributes:
        edges: conditions on the attributes of an edge.
        vertices: conditions on those of a vertex.
        among: vertices that were named.
        version: version of the graph that the view was made of last. See ``Carried``: a rank of a view that follows
            its graph keeps the rule.
    """

    edges: tuple[Condition, ...] = ()
    vertices: tuple[Condition, ...] = ()
    among: tuple[Among, ...] = ()
    version: int = 0

    def following(self, step: Step) -> Rule:  # noqa: ARG002
        """See ``Carried``."""
        return self

    @property
    def facts(self) -> int:
        """The version."""
        return self.version

    def __sizeof__(self) -> int:
        return 256 + sum(each.bits.nbytes for each in self.among)


def joined(rules: list[Rule], version: int) -> Rule:
    """Return the rule of a view whose edges pass all of some rules; ``version`` as of ``Rule``."""
    edges = tuple(part for rule in rules for part in rule.edges)
    vertices = tuple(part for rule in rules for part in rule.vertices)
    return Rule(edges, vertices, tuple(part for rule in rules for part in rule.among), version)


@dataclass(frozen=True)
class Passing:
    """The edges of a rank that pass a filter.

    Attributes:
        out: bool[edges], in the order of the partition's columns.
        into: the same of its in-edges; None if the partition has none.
        left_out: int64, ascending: positions of the vertices of the whole graph that the filter leaves out.
        self_loops: number of self-loops among the edges.
    """

    out: NDArray[np.bool]
    into: NDArray[np.bool] | None
    left_out: NDArray[np.int64]
    self_loops: int

    def __sizeof__(self) -> int:
        return self.out.nbytes + (0 if self.into is None else self.into.nbytes) + self.left_out.nbytes


def passing(
    partition: Partition, attributes: RankAttributes | None, rule: Rule, kept: NDArray[np.uint8] | None
) -> Passing:
    """Find the edges of a rank that pass.

    Args:
        attributes: those of the rank's edges; None if there are none.
        rule: what passes.
        kept: packed bits of the vertices of which its conditions on vertices hold; None if it has none.

    Errors as for ``Condition.passing`` and ``RankAttributes.tables_of``.
    """
    stripe = partition.stripe
    left_out, present = partition.deleted, None
    bits_of = [each.kept(stripe.n) for each in rule.among]
    bits_of += [] if kept is None else [np.unpackbits(kept, count=stripe.n).astype(bool)]
    if bits_of:
        bits = np.logical_and.reduce(bits_of)
        left_out = np.union1d(left_out, np.flatnonzero(~bits))
        present = np.zeros(stripe.p * stripe.n_local, bool)
        present[stripe.internal(np.arange(stripe.n))] = bits
    tables = (None, None) if attributes is None or not rule.edges else attributes.tables_of(partition)
    ways: list[NDArray[np.bool] | None] = []
    for rows, table in zip((partition.out_edges, partition.in_edges), tables, strict=True):
        if rows is None:
            ways.append(None)
            continue
        passes = np.ones(rows.columns.size, bool)
        if table is not None:
            passes = np.logical_and.reduce([condition.passing(table) for condition in rule.edges])
        if present is not None:
            own = present[partition.rank * stripe.n_local :][: stripe.n_local]
            passes &= present[rows.columns] & np.repeat(own, np.diff(rows.row_offsets))
        ways.append(passes)
    out, into = ways
    assert out is not None
    return Passing(out, into, left_out, int(np.count_nonzero(_are_loops(partition.out_edges, partition) & out)))


def kept_vertices(attributes: RankVertices, rule: Rule, partition: Partition) -> NDArray[np.uint8]:
    """Return the packed bits of a rank's vertices of which all conditions hold. Errors as for ``Condition.passing``."""
    owned = attributes.table.slice(0, partition.stripe.owned(partition.rank))
    return np.packbits(np.logical_and.reduce([condition.passing(owned) for condition in rule.vertices]))


def count(found: Passing) -> tuple[int, int, int]:
    """Return the numbers of edges, of in-edges and of self-loops that pass."""
    into = 0 if found.into is None else int(np.count_nonzero(found.into))
    return int(np.count_nonzero(found.out)), into, found.self_loops


def made(
    partition: Partition,
    attributes: RankAttributes | None,
    vertices: RankVertices | None,
    rule: Rule | None,
    found: Passing,
    input_edges: int,
    version: int,
) -> Made:
    """Return a rank of a view with the data beside it: the attributes and the rule, where not None.

    Args:
        partition, attributes, vertices: of the graph.
        found: the edges that pass.
        input_edges, version: see ``Partition``; of the view.
    """
    of_edges = None if attributes is None else _compacted_attributes(attributes, partition, found, version)
    beside = tuple(each for each in (of_edges, vertices, rule) if each is not None)
    return Made(_compacted_partition(partition, found, input_edges, version), beside)


def part_of(whole: Made, place: int) -> Any:
    """Return the partition of what was made, or for a ``place`` from 0 on one of the data beside it."""
    return whole.partition if place < 0 else whole.beside[place]


def bytes_of(whole: Made) -> tuple[Any, ...]:
    """Return what a record says of the data beside a partition that was made."""
    return tuple(each.facts for each in whole.beside)


def _compacted_partition(partition: Partition, found: Passing, input_edges: int, version: int) -> Partition:
    from dbfs_workers.search.partition.shared_rows import share

    rows = _compacted(partition.out_edges, found.out)
    into = None
    if partition.in_edges is not None and found.into is not None:
        into = _compacted(partition.in_edges, found.into)
    return share(
        Partition(
            partition.stripe,
            partition.rank,
            rows.row_offsets,
            rows.columns,
            found.self_loops,
            _repeats(rows, partition.stripe),
            input_edges,
            partition.directed,
            into,
            version,
            found.left_out,
            later=partition.later,
        )
    )


def _compacted_attributes(
    attributes: RankAttributes, partition: Partition, found: Passing, version: int
) -> RankAttributes:
    import pyarrow as pa

    out, into = attributes.tables_of(partition)
    into = None if into is None else into.filter(pa.array(found.into)).combine_chunks()
    return RankAttributes(out.filter(pa.array(found.out)).combine_chunks(), into, version)


def _compacted(rows: Csr, passes: NDArray[np.bool]) -> Csr:
    # A search takes a fifth of the time of sums over all edges.
    places = np.flatnonzero(passes)
    return Csr(np.searchsorted(places, rows.row_offsets), rows.columns[places])


def _are_loops(rows: Csr, partition: Partition) -> NDArray[np.bool]:
    """Return for each edge whether it is a self-loop."""
    first = partition.rank * partition.stripe.n_local
    own = np.arange(first, first + partition.stripe.n_local, dtype=np.uint32)
    loops: NDArray[np.bool] = rows.columns == np.repeat(own, np.diff(rows.row_offsets))
    return loops


def _repeats(rows: Csr, stripe: Stripe) -> int:
    """Return the number of edges that repeat the one before them in their row."""
    own = np.repeat(np.arange(stripe.n_local, dtype=np.uint32), np.diff(rows.row_offsets))
    return int(np.count_nonzero((rows.columns[1:] == rows.columns[:-1]) & (own[1:] == own[:-1])))
