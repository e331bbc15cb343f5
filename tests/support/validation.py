"""The validator's functions on ranks in one process, and labels that are wrong in every way."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.building.degree_order import count_degrees, degree_order
from dbfs_workers.features.validation import validation
from dbfs_workers.features.validation.validation import SharedTable
from dbfs_workers.features.validation.verdict import Rule, Verdict
from dbfs_workers.search.partition.ordering import DegreeOrder
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import oracle
from tests.support.partitions import build

Distances = NDArray[np.int32]
Parents = NDArray[np.int64]


@dataclass(frozen=True)
class Setting:
    """A graph on ranks, the edges to check against, and the array module: NumPy, or CuPy in tests on GPUs.

    ``shared`` says whether the ranks share a table of labels.
    """

    n: int
    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    ranks: int
    directed: bool
    edges: str = "input"
    xp: ModuleType = np
    shared: bool = False

    @property
    def order(self) -> DegreeOrder | None:
        if not self.edges.endswith("by degree"):
            return None
        symmetrise = not self.directed
        return degree_order(count_degrees(self.src, self.dst, self.n, symmetrise=symmetrise, name="test"))

    def partition(self, rank: int) -> Partition:
        stripe, order = Stripe(self.n, self.ranks), self.order
        src, dst = (self.src, self.dst) if order is None else order.relabel(self.src, self.dst)
        return build(stripe, src, dst, directed=self.directed, hub_first=order is not None)[rank]

    def verdict(
        self,
        distances: Distances | None,
        parents: Parents | None,
        sources: tuple[int, ...] = (0,),
        farthest: int | None = None,
    ) -> Verdict:
        stripe, order, ranks = Stripe(self.n, self.ranks), self.order, range(self.ranks)
        of_input = self.edges.startswith("input")
        if order is not None:
            distances = None if distances is None else distances[order.vertex]
            parents = None if parents is None else order.predecessors_by_position(parents)
            sources = tuple(order.position[list(sources)].tolist())
        theirs = None if parents is None else [self.xp.asarray(parents[rank :: self.ranks]) for rank in ranks]
        if distances is not None:
            ours = [self.xp.asarray(distances[rank :: self.ranks]) for rank in ranks]
        else:
            assert theirs is not None
            ours, rootless = validation.levels_along_predecessors(stripe, theirs)
            if rootless is not None:
                return Verdict((rootless.in_vertex_ids(order),), 0, 0)
        packed = [
            validation.pack_labels(
                stripe, rank, ours[rank], None if theirs is None else theirs[rank], sources, farthest
            )
            for rank in ranks
        ]
        if self.shared:
            table, by_vertex = SharedTable.make(stripe, "graph"), order if of_input else None
            packed = [
                validation.share_words(stripe, rank, labels, pickle.loads(pickle.dumps(table)), by_vertex)
                for rank, labels in enumerate(packed)
            ]
        checks = []
        for rank in ranks:
            if of_input:
                mine = np.array_split(np.arange(self.src.size), self.ranks)[rank]
                blocks = [self.xp.asarray(ids[mine].astype(np.uint32)) for ids in (self.src, self.dst)]
                edges = iter([(blocks[0], blocks[1])])
            else:
                edges = validation.partition_edges(self.partition(rank).on(self.xp))
            checks.append(
                validation.check_edges(
                    stripe,
                    rank,
                    edges,
                    packed,
                    order if of_input else None,
                    self.xp,
                    predecessors=parents is not None,
                    directed=self.directed,
                    farthest=farthest,
                )
            )
        return validation.merge_findings(
            stripe, packed, checks, order, predecessors=parents is not None, of_input=of_input
        )


EDGES = ("input", "input, by degree", "partition", "partition, by degree")


# The path 0-1-...-31 and another, 32-...-63; the source is 0.
def cycle(distances: Distances, parents: Parents) -> None:
    parents[[10, 11]] = 11, 10


def circle_apart(distances: Distances, parents: Parents) -> None:
    parents[[40, 41]], distances[[40, 41]] = (41, 40), (5, 6)


def level_skipped(distances: Distances, parents: Parents) -> None:
    distances[10:32] += 1


def not_a_neighbour(distances: Distances, parents: Parents) -> None:
    parents[20] = 18


def neighbour_too_deep(distances: Distances, parents: Parents) -> None:
    parents[31], parents[20] = 30, 21


def parent_unreached(distances: Distances, parents: Parents) -> None:
    parents[31] = 50


def unreached_neighbour(distances: Distances, parents: Parents) -> None:
    distances[31], parents[31] = -1, -1


def reached_out_of_component(distances: Distances, parents: Parents) -> None:
    distances[32:], parents[32:] = np.arange(32, 64), np.arange(31, 63)


def root_with_a_parent(distances: Distances, parents: Parents) -> None:
    parents[0] = 1


def root_unreached(distances: Distances, parents: Parents) -> None:
    distances[0], parents[0] = -1, -1


def root_not_at_zero(distances: Distances, parents: Parents) -> None:
    distances[:32] += 1


def a_second_root(distances: Distances, parents: Parents) -> None:
    distances[32], parents[32] = 0, 32


def one_off(distances: Distances, parents: Parents) -> None:
    distances[31] -= 1


def distance_out_of_range(distances: Distances, parents: Parents) -> None:
    distances[5] = 64


def distance_below_range(distances: Distances, parents: Parents) -> None:
    distances[40] = -2


def parent_out_of_range(distances: Distances, parents: Parents) -> None:
    parents[5] = 2**40


def parent_just_out_of_range(distances: Distances, parents: Parents) -> None:
    parents[5] = 64


def parent_below_range(distances: Distances, parents: Parents) -> None:
    parents[40] = -2


def parent_without_distance(distances: Distances, parents: Parents) -> None:
    parents[40] = 41


Rules = tuple[Rule | None, Rule | None, Rule | None]
# The rule that a mutation breaks: with both labels, with predecessors alone, with distances alone. None: no rule.
MUTATIONS: dict[Callable[[Distances, Parents], None], Rules] = {
    cycle: (Rule.TREE, Rule.TREE, None),
    circle_apart: (Rule.TREE, Rule.TREE, Rule.PARENT),
    level_skipped: (Rule.STEP, None, Rule.SPAN),
    not_a_neighbour: (Rule.STEP, Rule.PARENT, None),
    neighbour_too_deep: (Rule.TREE, Rule.TREE, None),
    parent_unreached: (Rule.TREE, Rule.TREE, None),
    unreached_neighbour: (Rule.COMPONENT, Rule.COMPONENT, Rule.COMPONENT),
    reached_out_of_component: (Rule.PARENT, Rule.PARENT, Rule.PARENT),
    root_with_a_parent: (Rule.ROOT, Rule.TREE, None),
    root_unreached: (Rule.ROOT, Rule.TREE, Rule.ROOT),
    root_not_at_zero: (Rule.ROOT, None, Rule.ROOT),
    a_second_root: (Rule.ROOT, Rule.ROOT, Rule.ROOT),
    one_off: (Rule.STEP, None, Rule.PARENT),
    distance_out_of_range: (Rule.RANGE, None, Rule.RANGE),
    distance_below_range: (Rule.RANGE, None, Rule.RANGE),
    parent_out_of_range: (Rule.RANGE, Rule.RANGE, None),
    parent_just_out_of_range: (Rule.RANGE, Rule.RANGE, None),
    parent_below_range: (Rule.RANGE, Rule.RANGE, None),
    parent_without_distance: (Rule.RANGE, Rule.TREE, None),
}


def right_labels(setting: Setting, sources: list[int]) -> tuple[Distances, Parents]:
    """Return SciPy's distances, and as predecessor of each vertex the last possible one."""
    matrix = oracle.adjacency(setting.n, setting.src, setting.dst, directed=setting.directed)
    distances = oracle.distances(matrix, sources)
    parents = np.full(setting.n, -1)
    for u, v in zip(*matrix.nonzero(), strict=True):
        if distances[u] >= 0 and distances[v] == distances[u] + 1:
            parents[v] = u
    parents[sources] = sources
    return distances, parents
