"""Filters of edges on a rank: which edges pass, and the partition and the attributes of these alone.

Bits of vertices are by position: by vertex, or by the order by degree. Attributes stay on the host, and so does what
passes; edges on a GPU are compacted there.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.building.layout import Layout
from dbfs_workers.features.living.carried import Made, Step
from dbfs_workers.features.views.kept import RankAttributes, RankVertices
from dbfs_workers.search.cuda import device_memory, failures
from dbfs_workers.search.partition.partition import (
    Csr,
    OwnedRows,
    Partition,
    PartitionInfo,
    RankEdges,
    array_module,
    on_host,
)
from dbfs_workers.search.partition.stripe import WORD_BITS, Stripe

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")

# Edges that a thread takes at least, and threads at most.
_THREAD_EDGES = 1 << 20
_MOST_THREADS = 16
# Rows of which conditions are computed at a time, whole bytes of bits. Memory that is used again takes a third of the
# time of new memory.
_STEP = 1 << 20
# Bytes of an edge that passes: its place and row, its column, and whether it repeats another.
_PLACE_BYTES = 8 + 8 + 4 + 2
# Bytes of an edge while its ends are looked up: its number and row, twice, and three flags.
_END_BYTES = 4 * 8 + 3


class Condition(Protocol):
    """A condition on the attributes of an edge, or of a vertex."""

    def passing(self, table: pa.Table) -> NDArray[np.uint8]:
        """Return by row whether the condition holds, as bits, the lowest first; a null does not. Bits past the last row
        are any.

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
        out: uint32, a bit for each of the partition's columns, the lowest first.
        into: the same of its in-edges; None if the partition has none.
        left_out: int64, ascending: positions of the vertices of the whole graph that the filter leaves out.
        rule: the filter.
    """

    out: NDArray[np.uint32]
    into: NDArray[np.uint32] | None
    left_out: NDArray[np.int64]
    rule: Rule

    def __sizeof__(self) -> int:
        return self.out.nbytes + (0 if self.into is None else self.into.nbytes) + self.left_out.nbytes


def passing(
    edges: RankEdges,
    attributes: RankAttributes | None,
    rules: list[Rule],
    kept: NDArray[np.uint8] | None,
    ranks_here: int = 1,
    version: int = 0,
) -> Passing:
    """Find the edges of a rank that pass.

    Args:
        attributes: those of the rank's edges; None if there are none.
        rules: what passes: what all of them keep.
        kept: packed bits of the vertices of which its conditions on vertices hold; None if it has none.
        ranks_here: ranks of the host, which share its cores.
        version: see ``Rule``.

    Errors as for ``Condition.passing`` and ``RankAttributes.tables_of``.
    """
    stripe, rule = edges.stripe, joined(rules, version)
    left_out, present = edges.deleted, None
    bits_of = [each.kept(stripe.n) for each in rule.among]
    bits_of += [] if kept is None else [np.unpackbits(kept, count=stripe.n).astype(bool)]
    if bits_of:
        bits = np.logical_and.reduce(bits_of)
        left_out = np.union1d(left_out, np.flatnonzero(~bits))
        present = np.zeros(stripe.p * stripe.n_local, bool)
        present[stripe.internal(np.arange(stripe.n))] = bits
    tables = (None, None) if attributes is None or not rule.edges else attributes.tables_of(edges)
    ways: list[NDArray[np.uint32] | None] = []
    for lists, table in zip((edges.out_lists(), edges.in_lists()), tables, strict=True):
        if lists is None:
            ways.append(None)
            continue
        size = sum(each.columns.size for each in lists)
        words = np.full(-(-size // WORD_BITS), ~np.uint32(0))
        bits = words.view(np.uint8)
        if table is not None:
            _evaluate(rule.edges, table, bits, ranks_here)
        if present is not None:
            with _there(edges, "filtering its edges", _END_BYTES * size):
                between = np.concatenate([_between_present(each, stripe, present) for each in lists])
            packed = np.packbits(between, bitorder="little")
            bits[: packed.size] &= packed
        if size % WORD_BITS:
            words[-1] &= (1 << size % WORD_BITS) - 1
        ways.append(words)
    out, into = ways
    assert out is not None
    return Passing(out, into, left_out, rule)


def _parts(places: NDArray[np.int64], lists: Sequence[OwnedRows]) -> list[NDArray[np.int64]]:
    """Return of each of some lists the places within that list."""
    firsts = np.cumsum([0, *(each.columns.size for each in lists[:-1])])
    parts = np.split(places, np.searchsorted(places, firsts[1:]))
    return [part - first if first else part for part, first in zip(parts, firsts.tolist(), strict=True)]


def kept_vertices(attributes: RankVertices, rules: list[Rule], partition: RankEdges) -> NDArray[np.uint8]:
    """Return by vertex of a rank whether all conditions hold; bits and errors as of ``Condition.passing``."""
    owned = attributes.table.slice(0, partition.stripe.owned(partition.rank))
    passes = [condition.passing(owned) for rule in rules for condition in rule.vertices]
    found: NDArray[np.uint8] = np.bitwise_and.reduce(passes)
    return found


def count(found: Passing) -> int:
    """Return the number of edges that pass, in-edges included."""
    return sum(_count(words) for words in (found.out, found.into) if words is not None)


def _count(words: NDArray[np.uint32]) -> int:
    return int(np.bitwise_count(words).sum())


def made(
    partition: RankEdges,
    attributes: RankAttributes | None,
    vertices: RankVertices | None,
    found: Passing,
    follows: bool,
    version: int = 0,
    ranks_here: int = 1,
) -> Made:
    """Return a rank of a view with the data beside it: the attributes, where not None, and the rule if it follows.

    Args:
        partition, attributes, vertices: of the graph.
        found: the edges that pass.
        follows: whether the view follows its graph.
        version: see ``Partition``; of the view.
        ranks_here: as of ``passing``.
    """
    out, into = (None if words is None else _places(words, ranks_here) for words in (found.out, found.into))
    assert out is not None
    of_edges = None if attributes is None else _of_passing(attributes, partition, out, into, version, ranks_here)
    beside = (of_edges, vertices, found.rule if follows else None)
    whole = _partition(partition, out, into, found.left_out, version)
    return Made(whole, tuple(each for each in beside if each is not None))


def input_edges(infos: Sequence[PartitionInfo], both: bool) -> int:
    """Return the number of input edges of a view, given its ranks' counts and whether an edge is stored both ways."""
    stored, loops = sum(info.m_local for info in infos), sum(info.self_loops for info in infos)
    return (stored + loops) // 2 if both else stored


def counting(whole: Made, facts: list[tuple[PartitionInfo, Any]], both: bool, place: int | None) -> Any:
    """Return what was made with the number of the view's input edges, given the ``facts_of`` all ranks.

    ``place`` asks for a part: -1 for the partition, a number from 0 on for one of the data beside it, None for all.
    """
    view = Made(whole.partition.with_input_edges(input_edges([info for info, _ in facts], both)), whole.beside)
    return view if place is None else (*view.beside, view.partition)[place]


def facts_of(whole: Made) -> tuple[PartitionInfo, tuple[Any, ...]]:
    """Return the counts of what was made, and what the data beside say of themselves."""
    partition = whole.partition
    with _there(partition, "describing its edges", 0):
        return partition.info, tuple(each.facts for each in whole.beside)


def degrees(whole: Made, layout: Layout, owner: int) -> NDArray[np.int64]:
    """Return int64[n_local], the edges of what was made of a rank from each row of another one, or its own."""
    return np.diff(layout.out_part(whole.partition, owner).row_offsets)


def with_degrees(whole: Made, layout: Layout, found: list[NDArray[np.int64]]) -> Made:
    """Return what was made with the degrees of its rows, given what each of ``Layout.out_holders`` has of these."""
    return Made(layout.with_degrees(whole.partition, found), whole.beside)


def _partition(
    edges: RankEdges, out: NDArray[np.int64], into: NDArray[np.int64] | None, left_out: NDArray[np.int64], version: int
) -> RankEdges:
    """Return the edges at some places. Degrees over several ranks are those of before: see ``with_degrees``."""
    from dbfs_workers.search.partition.shared_rows import share

    def compacted(lists: list[OwnedRows], places: NDArray[np.int64]) -> list[tuple[Csr, int, int]]:
        parts = zip(lists, _parts(places, lists), strict=True)
        return [_compacted(each.csr, part, each.owner * edges.stripe.n_local) for each, part in parts]

    in_lists = edges.in_lists()
    with _there(edges, "compacting its edges", _PLACE_BYTES * out.size):
        kept, loops_of, repeats_of = zip(*compacted(edges.out_lists(), out), strict=True)
        in_kept = None if in_lists is None or into is None else [csr for csr, *_ in compacted(in_lists, into)]
        loops, repeats = sum(loops_of), sum(repeats_of)
    facts = {"self_loops": loops, "duplicates": repeats, "version": version}
    view = edges.with_lists(kept, in_kept, deleted=left_out, **facts)
    return share(view) if isinstance(view, Partition) and isinstance(view.columns, np.ndarray) else view


def _of_passing(
    attributes: RankAttributes,
    partition: RankEdges,
    out: NDArray[np.int64],
    into: NDArray[np.int64] | None,
    version: int,
    ranks_here: int,
) -> RankAttributes:
    import pyarrow as pa

    def kept(table: pa.Table, places: NDArray[np.int64]) -> pa.Table:
        parts = _in_parts(lambda part: table.take(pa.array(places[part])), places.size, ranks_here)
        return pa.concat_tables(parts).combine_chunks()

    of_out, of_in = attributes.tables_of(partition)
    return RankAttributes(kept(of_out, out), None if of_in is None or into is None else kept(of_in, into), version)


@contextmanager
def _there(edges: RankEdges, doing: str, nbytes: int) -> Iterator[None]:
    """Work where the edges are: on a GPU with typed errors, if it has so many bytes free; see ``failures.on_gpu``."""
    if isinstance(edges.out_lists()[0].columns, np.ndarray):
        yield
        return
    where = f"rank {edges.rank}, {doing}"
    with failures.on_gpu(where):
        device_memory.require(nbytes, where)
        yield


def _rows_of_edges(rows: Csr) -> Any:
    """Return the row of each edge."""
    xp, offsets = array_module(rows.columns), rows.row_offsets
    if xp is np:
        return np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    return xp.searchsorted(offsets, xp.arange(rows.columns.size), side="right") - 1


def _between_present(rows: OwnedRows, stripe: Stripe, present: NDArray[np.bool]) -> NDArray[np.bool]:
    """Return which edges of some rows have both ends among the internal ids that are present."""
    there = array_module(rows.columns).asarray(present)
    own = rows.owner * stripe.n_local + _rows_of_edges(rows.csr)
    found: NDArray[np.bool] = on_host(there[rows.columns] & there[own])
    return found


def _in_parts(work: Callable[[slice], T], size: int, ranks_here: int) -> list[T]:
    """Do work by parts of so many edges, in threads if there are many; return the results in order.

    A part begins with a word of the edges' bits.
    """
    cores = min(_MOST_THREADS, len(os.sched_getaffinity(0)) // ranks_here)
    threads = max(1, min(cores, size // _THREAD_EDGES))
    bounds = [*(size * part // threads // WORD_BITS * WORD_BITS for part in range(threads)), size]
    parts = [slice(*part) for part in itertools.pairwise(bounds)]
    if threads == 1:
        return [work(parts[0])]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, parts))


def _evaluate(conditions: tuple[Condition, ...], table: pa.Table, bits: NDArray[np.uint8], ranks_here: int) -> None:
    """Clear the bits of the rows of a table that do not pass."""

    def evaluate(part: slice) -> None:
        for first in range(part.start, part.stop, _STEP):
            rows = table.slice(first, min(_STEP, part.stop - first))
            for condition in conditions:
                passes = condition.passing(rows)
                bits[first // 8 :][: passes.size] &= passes

    _in_parts(evaluate, table.num_rows, ranks_here)


def _places(words: NDArray[np.uint32], ranks_here: int) -> NDArray[np.int64]:
    """Return the places of the edges that pass, ascending."""
    from dbfs_workers.features.views.kernels.compaction import place

    places = np.empty(_count(words), np.int64)

    def fill(part: slice) -> None:
        first, end = (bound // WORD_BITS for bound in (part.start, part.stop))
        place(words[first:end], part.start, places[_count(words[:first]) :])

    _in_parts(fill, WORD_BITS * words.size, ranks_here)
    return places


def _compacted(rows: Csr, places: NDArray[np.int64], first_id: int) -> tuple[Csr, int, int]:
    """Return the edges at some places, with the numbers of self-loops and of repeats as of ``Partition``.

    ``first_id`` is the internal id of the first row.
    """
    xp = array_module(rows.columns)
    if xp is np:
        # A client, which imports this module, does without Numba.
        from dbfs_workers.features.views.kernels.compaction import compact

        kept = Csr(np.empty_like(rows.row_offsets), np.empty(places.size, np.uint32))
        loops, repeats = compact(rows.row_offsets, rows.columns, places, first_id, kept.row_offsets, kept.columns)
        return kept, int(loops), int(repeats)
    there = xp.asarray(places)
    kept = Csr(xp.searchsorted(there, rows.row_offsets), rows.columns[there])
    own, columns = _rows_of_edges(kept), kept.columns
    repeats = (columns[1:] == columns[:-1]) & (own[1:] == own[:-1])
    return kept, int((columns == own + first_id).sum()), int(repeats.sum())
