"""Filters of edges on a rank: which edges pass, and the partition and the attributes of these alone.

Bits of vertices are by position: by vertex, or by the order by degree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.building.layout import Layout
from dbfs_workers.features.views.attributes import RankAttributes
from dbfs_workers.search.partition.partition import Csr, OwnedRows, Partition, RankEdges
from dbfs_workers.search.partition.stripe import Stripe

if TYPE_CHECKING:
    import pyarrow as pa


class Condition(Protocol):
    """A condition on the attributes of an edge."""

    def passing(self, table: pa.Table) -> NDArray[np.bool]:
        """Return for each row whether the condition holds; a null does not.

        Raises:
            EdgeInputError: the condition can't be computed of a value.
        """


@dataclass(frozen=True)
class Passing:
    """The edges of a rank that pass a filter.

    Attributes:
        out: bool[edges], in the order of ``RankAttributes.out``.
        into: the same in that of ``into``; None if the rank has none.
        left_out: int64, ascending: positions of the vertices of the whole graph that the filter leaves out.
    """

    out: NDArray[np.bool]
    into: NDArray[np.bool] | None
    left_out: NDArray[np.int64]

    def __sizeof__(self) -> int:
        return self.out.nbytes + (0 if self.into is None else self.into.nbytes) + self.left_out.nbytes


def passing(
    edges: RankEdges,
    attributes: RankAttributes | None,
    condition: Condition | None,
    kept: NDArray[np.uint8] | None,
) -> Passing:
    """Find the edges of a rank that pass.

    Args:
        attributes: those of the rank's edges; None if there are none.
        condition: on the attributes; None for any edge.
        kept: packed bits of the vertices that are kept; None for all. An edge needs both ends.

    Errors as for ``Condition.passing``.
    """
    stripe = edges.stripe
    left_out, present = edges.deleted, None
    if kept is not None:
        bits = np.unpackbits(kept, count=stripe.n).astype(bool)
        left_out = np.union1d(left_out, np.flatnonzero(~bits))
        present = np.zeros(stripe.p * stripe.n_local, bool)
        present[stripe.internal(np.arange(stripe.n))] = bits
    ways: list[NDArray[np.bool] | None] = []
    for lists, of in ((edges.out_lists(), "out"), (edges.in_lists(), "into")):
        if lists is None:
            ways.append(None)
            continue
        passes = np.ones(sum(each.columns.size for each in lists), bool)
        if condition is not None:
            passes = condition.passing(getattr(attributes, of))
        if present is not None:
            for each, part in zip(lists, _parts(passes, lists), strict=True):
                own = present[each.owner * stripe.n_local :][: stripe.n_local]
                part &= present[each.columns] & np.repeat(own, np.diff(each.csr.row_offsets))
        ways.append(passes)
    out, into = ways
    assert out is not None
    return Passing(out, into, left_out)


def _parts(passes: NDArray[np.bool], lists: Sequence[OwnedRows]) -> list[NDArray[np.bool]]:
    """Return what belongs to each of some lists, without copies."""
    return np.split(passes, np.cumsum([each.columns.size for each in lists])[:-1])


def kept_vertices(attributes: pa.Table, condition: Condition) -> NDArray[np.uint8]:
    """Return the packed bits of a rank's vertices of which a condition holds. Errors as for ``Condition.passing``."""
    return np.packbits(condition.passing(attributes))


def count(found: Passing) -> tuple[int, int]:
    """Return the numbers of edges and of in-edges that pass."""
    return int(np.count_nonzero(found.out)), 0 if found.into is None else int(np.count_nonzero(found.into))


def compacted(edges: RankEdges, found: Passing) -> RankEdges:
    """Return the edges that pass. Degrees over several ranks are those of before: see ``with_degrees``."""
    from dbfs_workers.search.partition.shared_rows import share

    lists, in_lists = edges.out_lists(), edges.in_lists()
    out = [_compacted(each.csr, passes) for each, passes in zip(lists, _parts(found.out, lists), strict=True)]
    into = None
    if in_lists is not None and found.into is not None:
        parts = zip(in_lists, _parts(found.into, in_lists), strict=True)
        into = [_compacted(each.csr, passes) for each, passes in parts]
    counts = [_loops_and_repeats(csr, each.owner, edges.stripe) for each, csr in zip(lists, out, strict=True)]
    loops, repeats = (sum(of_lists) for of_lists in zip(*counts, strict=True))
    made = edges.with_lists(out, into, self_loops=loops, duplicates=repeats, deleted=found.left_out)
    return share(made) if isinstance(made, Partition) else made


def degrees(edges: RankEdges, layout: Layout, owner: int) -> NDArray[np.int64]:
    """Return int64[n_local], the edges of a rank from each row of another one, or its own."""
    return np.diff(layout.out_part(edges, owner).row_offsets)


def with_degrees(edges: RankEdges, layout: Layout, found: list[NDArray[np.int64]]) -> RankEdges:
    """Return a rank's edges with the degrees of its rows, given what each of ``Layout.out_holders`` has of these."""
    return layout.with_degrees(edges, found)


def compacted_attributes(attributes: RankAttributes, found: Passing) -> RankAttributes:
    """Return the attributes of the edges that pass."""
    import pyarrow as pa

    into = None if attributes.into is None else attributes.into.filter(pa.array(found.into)).combine_chunks()
    return RankAttributes(attributes.out.filter(pa.array(found.out)).combine_chunks(), into)


def _compacted(rows: Csr, passes: NDArray[np.bool]) -> Csr:
    # A search takes a fifth of the time of sums over all edges.
    places = np.flatnonzero(passes)
    return Csr(np.searchsorted(places, rows.row_offsets), rows.columns[places])


def _loops_and_repeats(rows: Csr, rank: int, stripe: Stripe) -> tuple[int, int]:
    """Return the numbers of self-loops and of edges that repeat the one before them in their row."""
    own = np.repeat(np.arange(stripe.n_local, dtype=np.uint32), np.diff(rows.row_offsets))
    loops = np.count_nonzero(rows.columns == own + np.uint32(rank * stripe.n_local))
    repeats = (rows.columns[1:] == rows.columns[:-1]) & (own[1:] == own[:-1])
    return int(loops), int(np.count_nonzero(repeats))
