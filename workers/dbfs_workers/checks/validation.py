"""The validator's part on the workers: do labels obey the rules of breadth-first search on these edges?

Graph500's five rules (specification 2.0, "Validation"), put over edges and vertices so that each rank checks its own
and no edge moves:

1. each rank packs its labels into a word a vertex and looks whether they are in range (``pack_labels``);
2. each rank gets all words (8 bytes a vertex) and checks its edges, whatever rank owns their ends (``check_edges``): no
   edge leaves the reached set or spans more than one level, and an edge from a vertex's predecessor (from any vertex
   one level up, where there are no predecessors) supports it;
3. one rank joins what all found (``judge``): a reached vertex but a source that no edge supports breaks a rule.

Together they make the distances exact, by induction over the levels: a vertex can't be too far (its edges) nor too near
(its support). Distances stand for the levels of the tree of predecessors; where only predecessors are given, their
levels are found first (``levels_of``).

The edges are those a rank keeps of the input, between vertices, or those of its partition, between the positions that
vertices have in a graph ordered by degree. The first depend on nothing that was built, and so find out a wrong graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.checks import validation_kernels as kernels
from dbfs_workers.errors import ValidationError
from dbfs_workers.storage.partition import InputEdges, Partition, array_module, on, on_host
from dbfs_workers.storage.stripe import NO_VERTEX, Stripe, own_rows

if TYPE_CHECKING:
    from dbfs_workers.storage.ordering import DegreeOrder

Levels = tuple[list[NDArray[np.int32]], "Violation | None"]
"""Distances by rank, and what is wrong with the predecessors that they were found along."""

BLOCK_EDGES: Final = 1 << 20
DEVICE_BLOCK_EDGES: Final = 1 << 25
"""Edges of a partition that are written out as pairs at a time, in some 24 bytes of temporary arrays each."""

_LEVEL_SHIFT: Final = np.uint64(32)
_PARENT_MASK: Final = np.uint64(0xFFFFFFFF)


class Rule(Enum):
    """What may be wrong with labels, in the order in which it is told. The numbers are Graph500's."""

    RANGE = "a label is out of range, or distance and predecessor disagree on whether the vertex was reached"
    ROOT = "rule 1: a source is not at distance 0 (and its own predecessor), or another vertex is at distance 0"
    TREE = "rule 1: predecessors lead in a circle, or to an unreached vertex"
    STEP = "rule 2: a vertex is not one level below its predecessor"
    SPAN = "rule 3: an edge joins levels that differ by more than one"
    COMPONENT = "rule 4: an edge leads from a reached vertex to an unreached one"
    PARENT = "rule 5: no edge joins a vertex to its predecessor, or to any vertex one level up"


@dataclass(frozen=True)
class Violation:
    """A broken rule.

    Attributes:
        rule: which one.
        vertices: ids that show it: a vertex, a vertex and its predecessor, the ends of an edge, or a circle's vertices.
        ranks: where it was found: the owners of such vertices, or those that hold such edges.
        count: vertices or edges that break it.
    """

    rule: Rule
    vertices: tuple[int, ...]
    ranks: tuple[int, ...]
    count: int

    def __str__(self) -> str:
        where = f"rank{'s' if len(self.ranks) > 1 else ''} {', '.join(map(str, self.ranks))}"
        more = f", the first of {self.count}" if self.count > 1 else ""
        return f"{self.rule.value}: vertices {', '.join(map(str, self.vertices))} ({where}{more})"


@dataclass(frozen=True)
class PackedLabels:
    """One rank's labels, and what is wrong with them in themselves (in positions).

    Attributes:
        words: uint64[rows without padding], distance + 1 in the high half, predecessor in the low half; 0 and
            ``NO_VERTEX`` where there is none. A vertex with a wrong label is unreached here.
        violations: at most one a rule.
    """

    words: NDArray[np.uint64]
    violations: tuple[Violation, ...]

    def __sizeof__(self) -> int:
        return self.words.nbytes


@dataclass(frozen=True)
class EdgeCheck:
    """What one rank's edges show.

    Attributes:
        violations: at most one a rule.
        unsupported: uint32, a bit for each reached vertex but the sources that none of its edges supports.
        edges: edges checked.
        component_edges: those within the reached set, self-loops left out.
    """

    violations: tuple[Violation, ...]
    unsupported: NDArray[np.uint32]
    edges: int
    component_edges: int

    def __sizeof__(self) -> int:
        return self.unsupported.nbytes


@dataclass(frozen=True)
class Verdict:
    """The ranks' findings joined: one violation a rule, of vertices. Counts as in ``EdgeCheck``."""

    violations: tuple[Violation, ...]
    edges: int
    component_edges: int


def pack_labels(
    stripe: Stripe,
    rank: int,
    distances: NDArray[np.int32],
    predecessors: NDArray[np.int64] | None,
    sources: Sequence[int],
    farthest: int | None,
) -> PackedLabels:
    """Check a rank's labels in themselves and pack them. Arrays may be NumPy's or CuPy's; so are the words.

    Args:
        stripe: how the graph lies on the ranks.
        rank: whose labels they are.
        distances: int32 of the rank's rows without padding.
        predecessors: int64 positions (vertex ids but for a degree order) of the same rows, or None.
        sources: positions at distance 0.
        farthest: no distance is larger; None for no bound.
    """
    wrong = (distances < -1) | (distances > (stripe.n - 1 if farthest is None else farthest))
    if predecessors is not None:
        wrong |= (predecessors < -1) | (predecessors >= stripe.n) | ((predecessors < 0) != (distances < 0))
    rows = own_rows(stripe, rank, sources).astype(np.int64)
    xp = array_module(distances)
    rootless = np.setxor1d(on_host(xp.flatnonzero(distances == 0)), rows)
    if predecessors is not None:
        stray = on_host(predecessors[xp.asarray(rows)]) != rows * stripe.p + rank
        rootless = np.union1d(rootless, rows[stray])
    words = (distances + np.int32(1)).astype(np.uint64)
    words <<= _LEVEL_SHIFT
    # What is -1 becomes NO_VERTEX.
    words |= np.uint64(NO_VERTEX) if predecessors is None else predecessors.astype(np.uint32)
    violations = []
    if wrong.any():
        words[wrong] = np.uint64(NO_VERTEX)
        first = int(xp.argmax(wrong)) * stripe.p + rank
        violations.append(Violation(Rule.RANGE, (first,), (rank,), int(wrong.sum())))
    if rootless.size:
        first = int(rootless[0]) * stripe.p + rank
        violations.append(Violation(Rule.ROOT, (first,), (rank,), rootless.size))
    return PackedLabels(words, tuple(violations))


def levels_of(stripe: Stripe, predecessors: Sequence[NDArray[np.int64]]) -> Levels:
    """Distances by rank along predecessors, which are given by rank: from a vertex that is its own, 0.

    A predecessor out of range is a violation, and so is a vertex whose predecessors lead to none that is its own, but
    round in a circle or to an unreached vertex.
    """
    parents = np.empty(stripe.n, np.int64)
    for rank, mine in enumerate(predecessors):
        parents[rank :: stripe.p] = mine
    levels = np.empty(stripe.n, np.int32)
    wild = np.flatnonzero((parents < -1) | (parents >= stripe.n))
    if wild.size:
        ranks: list[int] = np.unique(wild % stripe.p).tolist()
        return [], Violation(Rule.RANGE, (int(wild[0]),), tuple(ranks), wild.size)
    lost = kernels.levels_of_predecessors(parents, levels)
    violation = _circle(stripe, parents, levels) if lost else None
    return [levels[rank :: stripe.p].copy() for rank in range(stripe.p)], violation


def partition_edges(partition: Partition) -> Iterator[InputEdges]:
    """A partition's edges between positions, block by block.

    Raises:
        ValidationError: one begins or ends past the last position, where there is no label to check.
    """
    stripe, offsets = partition.stripe, partition.row_offsets
    xp = array_module(offsets)
    block = BLOCK_EDGES if xp is np else DEVICE_BLOCK_EDGES
    for start in range(0, partition.m_local, block):
        stop = min(start + block, partition.m_local)
        ends = xp.asarray([start, stop - 1])
        first, last = (xp.searchsorted(offsets, ends, side="right") - 1).tolist()
        # A row begins at each offset: how many have begun by an edge tells its row. The first is one of them, so that
        # there is something to count: until 2026 CuPy's bincount refused nothing (cupy/cupy#8116).
        begun = xp.bincount(xp.maximum(offsets[first : last + 1] - start, 0), minlength=stop - start)
        rows = first - 1 + xp.cumsum(begun)
        columns = partition.columns[start:stop]
        owners = columns // np.uint32(stripe.n_local)
        targets = (columns - owners * np.uint32(stripe.n_local)) * np.uint32(stripe.p) + owners
        sources = (rows * stripe.p + partition.rank).astype(np.uint32)
        outside = (sources >= stripe.n) | (targets >= stripe.n) | (owners >= stripe.p)
        if outside.any():
            edge = int(xp.argmax(outside))
            raise ValidationError(
                f"rank {partition.rank} has an edge from {int(sources[edge])} to {int(targets[edge])}; "
                f"vertices are 0..{stripe.n - 1}"
            )
        yield sources, targets


def check_edges(
    stripe: Stripe,
    rank: int,
    edges: Iterable[InputEdges],
    packed: Sequence[PackedLabels],
    order: DegreeOrder | None,
    xp: ModuleType = np,
    *,
    predecessors: bool,
    directed: bool,
    farthest: int | None,
) -> EdgeCheck:
    """Check a rank's edges against everybody's labels, on a GPU if that is where the edges are.

    Args:
        stripe: how the graph lies on the ranks.
        rank: who checks.
        edges: the edges in blocks.
        packed: the labels by rank.
        order: where the edges are between vertices and the labels by position; else None.
        xp: of whose arrays the edges are, NumPy or CuPy.
        predecessors: whether the labels have them.
        directed: whether edges hold in one direction only.
        farthest: vertices at this distance may have unreached neighbours; None where all were to be reached.
    """
    check = kernels.check_edges
    if xp is not np:
        from dbfs_workers.cuda import validation as device

        check = device.check_edges
    table = _table(xp, stripe, packed, order)
    # Levels in words begin with 1, that of the sources.
    unsupported = _bits(table >= np.uint64(2) << _LEVEL_SHIFT)
    # No distance is n or more, and a kernel's number has 64 bits.
    bound = stripe.n + 1 if farthest is None else min(farthest, stripe.n) + 1
    found = xp.zeros(kernels.FOUND, np.int64)
    count = 0
    for src, dst in edges:
        check(src, dst, table, predecessors, directed, bound, unsupported, found)
        count += src.size
    spans, span_u, span_v, leaks, leak_u, leak_v, component_edges = found.tolist()
    violations = [
        Violation(rule, (u, v), (rank,), broken)
        for rule, broken, u, v in ((Rule.SPAN, spans, span_u, span_v), (Rule.COMPONENT, leaks, leak_u, leak_v))
        if broken
    ]
    return EdgeCheck(tuple(violations), on_host(unsupported), count, component_edges)


def judge(
    stripe: Stripe,
    packed: Sequence[PackedLabels],
    checks: Sequence[EdgeCheck],
    order: DegreeOrder | None,
    *,
    predecessors: bool,
    of_input: bool,
) -> Verdict:
    """Join the ranks' findings.

    Args:
        stripe: how the graph lies on the ranks.
        packed: the labels by rank.
        checks: the findings by rank.
        order: of a graph ordered by degree.
        predecessors: whether the labels have them.
        of_input: whether the edges checked were between vertices; else between positions.
    """
    told = [violation for labels in packed for violation in labels.violations]
    if of_input:
        told = [of_vertices(violation, order) for violation in told]
    told += [violation for check in checks for violation in check.violations]
    unsupported = np.bitwise_and.reduce([check.unsupported for check in checks])
    if unsupported.any():
        orphans = np.flatnonzero(np.unpackbits(unsupported.view(np.uint8), bitorder="little"))
        table = _table(np, stripe, packed, order if of_input else None)
        told += _unsupported(stripe, table, orphans, order if of_input else None, predecessors=predecessors)
    if not of_input:
        told = [of_vertices(violation, order) for violation in told]
    return Verdict(_merged(told), sum(check.edges for check in checks), sum(check.component_edges for check in checks))


def _unsupported(
    stripe: Stripe,
    table: NDArray[np.uint64],
    orphans: NDArray[np.int64],
    order: DegreeOrder | None,
    *,
    predecessors: bool,
) -> list[Violation]:
    """Which rules the vertices break that no edge supports; ids as in the table, which ``order`` makes positions."""

    def broken(rule: Rule, vertices: NDArray[np.int64], shown: tuple[int, ...]) -> Violation:
        positions = vertices if order is None else order.position[vertices]
        ranks: list[int] = np.unique(positions % stripe.p).tolist()
        return Violation(rule, shown, tuple(ranks), vertices.size)

    if not predecessors:
        return [broken(Rule.PARENT, orphans, (int(orphans[0]),))]
    levels, parents = table >> _LEVEL_SHIFT, (table & _PARENT_MASK).astype(np.int64)
    stepped = levels[parents[orphans]] + 1 == levels[orphans]
    told = []
    if not stepped.all():
        astray = orphans[~stepped]
        told.append(broken(Rule.STEP, astray, (int(astray[0]), int(parents[astray[0]]))))
        parents[levels == 0] = -1
        found = np.empty(stripe.n, np.int32)
        if kernels.levels_of_predecessors(parents, found):
            circle = _circle(stripe, parents, found)
            told.append(broken(Rule.TREE, np.flatnonzero(found == kernels.LOST), circle.vertices))
    if stepped.any():
        edgeless = orphans[stepped]
        told.append(broken(Rule.PARENT, edgeless, (int(edgeless[0]), int(parents[edgeless[0]]))))
    return told


def _circle(stripe: Stripe, parents: NDArray[np.int64], levels: NDArray[np.int32], shown: int = 8) -> Violation:
    """The violation of vertices that ``levels_of_predecessors`` found no way to a root from; some of them are named."""
    lost = np.flatnonzero(levels == kernels.LOST)
    path: list[int] = []
    at, seen = int(lost[0]), set[int]()
    while at >= 0 and at not in seen:
        seen.add(at)
        path.append(at)
        at = int(parents[at])
    # A circle is named without the way to it.
    vertices = path[path.index(at) :] if at >= 0 else path
    ranks: list[int] = np.unique(lost % stripe.p).tolist()
    return Violation(Rule.TREE, tuple(vertices[:shown]), tuple(ranks), lost.size)


def _merged(told: Sequence[Violation]) -> tuple[Violation, ...]:
    """One violation a rule, in the order of the rules."""
    merged = []
    for rule in Rule:
        same = [violation for violation in told if violation.rule is rule]
        if same:
            ranks = sorted({rank for violation in same for rank in violation.ranks})
            merged.append(Violation(rule, same[0].vertices, tuple(ranks), sum(violation.count for violation in same)))
    return tuple(merged)


def of_vertices(violation: Violation, order: DegreeOrder | None) -> Violation:
    """A violation told in positions."""
    if order is None:
        return violation
    vertices: list[int] = order.vertex[list(violation.vertices)].tolist()
    return Violation(violation.rule, tuple(vertices), violation.ranks, violation.count)


def _table(
    xp: ModuleType, stripe: Stripe, packed: Sequence[PackedLabels], order: DegreeOrder | None
) -> NDArray[np.uint64]:
    """The words by position; by vertex, their predecessors as well, where an order is given."""
    table: NDArray[np.uint64] = xp.empty(stripe.n, np.uint64)
    for rank, labels in enumerate(packed):
        table[rank :: stripe.p] = on(xp, labels.words)
    if order is None:
        return table
    table = table[on(xp, order.position)]
    parents = table & _PARENT_MASK
    some = parents != NO_VERTEX
    parents[some] = on(xp, order.vertex)[parents[some].astype(np.int64)]
    table &= ~_PARENT_MASK
    table |= parents
    return table


def _bits(flags: NDArray[np.bool]) -> NDArray[np.uint32]:
    """Flags as a bitmap of whole words, at least one."""
    xp = array_module(flags)
    bits = xp.packbits(flags, bitorder="little")
    words: NDArray[np.uint32] = xp.zeros(max(1, -(-bits.size // 4)), np.uint32)
    words.view(np.uint8)[: bits.size] = bits
    return words
