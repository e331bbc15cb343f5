"""The validator must catch every way in which labels can be wrong."""

from collections.abc import Callable

import distributed
import numpy as np
import pytest
from numpy.typing import NDArray

import dbfs
from dbfs.errors import ValidationError
from dbfs.graph import Graph
from dbfs.validate import validate_labels
from dbfs_workers.traversal import RunSpec
from tests.graphs import GRAPHS

Distances, Parents = NDArray[np.int32], NDArray[np.int64]


SPEC = RunSpec("a-run", (0,), predecessors=False, backend="auto")


def scattered(graph: Graph, labels: NDArray[np.generic]) -> list[distributed.Future]:
    gang = graph.gang
    return [
        gang.client.scatter(labels[rank :: gang.p], workers=[address], hash=False)
        for rank, address in enumerate(gang.addresses)
    ]


# The path 0-1-...-31 and another, 32-...-63; the source is 0.
def cycle(distances: Distances, parents: Parents) -> None:
    parents[[10, 11]] = 11, 10


def level_skipped(distances: Distances, parents: Parents) -> None:
    distances[10:32] += 1


def not_a_neighbour(distances: Distances, parents: Parents) -> None:
    parents[20] = 3


def neighbour_too_deep(distances: Distances, parents: Parents) -> None:
    parents[20] = 21


def unreached_neighbour(distances: Distances, parents: Parents) -> None:
    distances[31], parents[31] = -1, -1


def reached_out_of_component(distances: Distances, parents: Parents) -> None:
    distances[32:], parents[32:] = np.arange(5, 37), np.arange(31, 63)


def root_with_a_parent(distances: Distances, parents: Parents) -> None:
    parents[0] = 1


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


def parent_without_distance(distances: Distances, parents: Parents) -> None:
    parents[40] = 41


MUTATIONS: dict[Callable[[Distances, Parents], None], str] = {
    cycle: "no edge from a parent one level up",
    level_skipped: "more than one level",
    not_a_neighbour: "no edge from a parent one level up",
    neighbour_too_deep: "no edge from a parent one level up",
    unreached_neighbour: "from a reached vertex to an unreached one: vertices 30, 31",
    reached_out_of_component: "no edge from a parent one level up",
    root_with_a_parent: "source is not at distance 0.* vertices 0 ",
    root_not_at_zero: "source is not at distance 0",
    a_second_root: "another vertex is at distance 0: vertices 32",
    one_off: "no edge from a parent one level up",
    distance_out_of_range: "out of range.* vertices 5 ",
    distance_below_range: "out of range.* vertices 40 ",
    parent_out_of_range: "out of range.* vertices 5 ",
    parent_without_distance: "distance and predecessor disagree.* vertices 40 ",
}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("directed", [False, True])
def test_every_mutation_is_caught(client: distributed.Client, ranks: int, directed: bool) -> None:
    n, src, dst = GRAPHS["two components"]()
    with dbfs.load(dbfs.from_arrays(src, dst, n=n, directed=directed), client=client, ranks=ranks) as graph:
        result = graph.bfs(0, predecessors=True, validate=True)
        for mutate, words in MUTATIONS.items():
            distances, parents = result.distances(), result.predecessors()
            mutate(distances, parents)
            with pytest.raises(ValidationError, match=words):
                validate_labels(graph, scattered(graph, distances), scattered(graph, parents), SPEC, None)


def test_distances_alone(client: distributed.Client) -> None:
    n, src, dst = GRAPHS["two components"]()
    with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, ranks=2) as graph:
        distances = graph.bfs(0, validate=True).distances()
        for vertex, wrong in [(31, 30), (31, -1), (40, 3), (1, 2)]:
            mutated = distances.copy()
            mutated[vertex] = wrong
            with pytest.raises(ValidationError):
                validate_labels(graph, scattered(graph, mutated), None, SPEC, None)


def test_a_bound_on_depth_is_respected(client: distributed.Client) -> None:
    n, src, dst = GRAPHS["path"]()
    with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, ranks=2) as graph:
        result = graph.bfs(0, max_depth=5, validate=True)
        with pytest.raises(ValidationError, match="from a reached vertex to an unreached one"):
            validate_labels(graph, scattered(graph, result.distances()), None, SPEC, 6)
        with pytest.raises(ValidationError, match="out of range"):
            validate_labels(graph, scattered(graph, result.distances()), None, SPEC, 4)
