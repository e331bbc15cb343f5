"""The result of a validation: the rules that labels may break, and the vertices and ranks that show a broken one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dbfs_workers.search.partition.ordering import DegreeOrder


class Rule(Enum):
    """The rules that labels may break, in the order in which violations are listed. The numbers are Graph500's."""

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
        vertices: what shows it: a vertex, a vertex and its predecessor, the ends of an edge, or a circle's vertices.
        ranks: the ranks that own such vertices, or that hold such edges.
        count: vertices or edges that break the rule.
    """

    rule: Rule
    vertices: tuple[int, ...]
    ranks: tuple[int, ...]
    count: int

    def __str__(self) -> str:
        where = f"rank{'s' if len(self.ranks) > 1 else ''} {', '.join(map(str, self.ranks))}"
        more = f", the first of {self.count}" if self.count > 1 else ""
        return f"{self.rule.value}: vertices {', '.join(map(str, self.vertices))} ({where}{more})"

    def in_vertex_ids(self, order: DegreeOrder | None) -> Violation:
        """Return the violation with vertex ids instead of positions; itself without an order."""
        if order is None:
            return self
        vertices: list[int] = order.vertex[list(self.vertices)].tolist()
        return replace(self, vertices=tuple(vertices))


@dataclass(frozen=True)
class Verdict:
    """The findings of all ranks.

    Attributes:
        violations: at most one a rule, in vertex ids.
        edges: edges checked.
        component_edges: edges within the reached set, self-loops left out.
    """

    violations: tuple[Violation, ...]
    edges: int
    component_edges: int


def merge_violations(violations: Sequence[Violation]) -> tuple[Violation, ...]:
    """Return one violation a rule, in the order of the rules: the first one's vertices, all ranks, and the sum."""
    merged = []
    for rule in Rule:
        same = [violation for violation in violations if violation.rule is rule]
        if same:
            ranks = sorted({rank for violation in same for rank in violation.ranks})
            merged.append(Violation(rule, same[0].vertices, tuple(ranks), sum(violation.count for violation in same)))
    return tuple(merged)
