"""The validator without a cluster: every way in which labels can be wrong, and random labels against an oracle.

Axes: ranks 1 to 4; directed or not; both labels, distances alone, predecessors alone; edges as they were read (in the
given order of vertices and by degree) or of the partitions.
"""

import itertools
import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from dbfs_workers.base.errors import ExchangeUnavailableError, ValidationError
from dbfs_workers.features.validation import validation
from dbfs_workers.features.validation.validation import SharedTable
from dbfs_workers.features.validation.verdict import Rule
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import oracle
from tests.support.graphs import GRAPHS, random
from tests.support.validation import EDGES, MUTATIONS, Setting, right_labels

RANKS = (1, 2, 3, 4)


@pytest.mark.matrix
@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("ranks", RANKS)
def test_every_mutation_is_caught_by_its_rule(ranks: int, directed: bool, edges: str) -> None:
    setting = Setting(*GRAPHS["two components"](), ranks, directed, edges)
    right = right_labels(setting, [0])
    for given in (right, (None, right[1]), (right[0], None)):
        assert setting.verdict(*given).violations == ()
    for mutate, (of_both, of_parents, of_distances) in MUTATIONS.items():
        distances, parents = right[0].copy(), right[1].copy()
        mutate(distances, parents)
        cases = (
            ((distances, parents), of_both),
            # In a directed graph no edge leads back up.
            ((None, parents), of_parents),
            ((distances, None), of_distances),
        )
        for given, rule in cases:
            rules = [violation.rule for violation in setting.verdict(*given).violations]
            if rule is None:
                # Such labels are right: the mutation is of the others.
                assert rules == [], mutate.__name__
            else:
                assert rule in rules, (mutate.__name__, rule, rules)


@pytest.mark.parametrize("edges", EDGES)
def test_ranks_that_share_a_table_come_to_the_same_verdict(edges: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_BLOCK_WORDS", 32)
    for ranks, given in itertools.product((1, 3), ("both", "distances")):
        setting = Setting(*GRAPHS["two components"](), ranks, False, edges)
        sharing = replace(setting, shared=True)
        right = right_labels(setting, [0])
        verdicts = set()
        for mutate in (lambda *_: None, *MUTATIONS):
            distances, parents = right[0].copy(), right[1].copy()
            mutate(distances, parents)
            labels = (distances, parents if given == "both" else None)
            assert sharing.verdict(*labels) == setting.verdict(*labels)
            verdicts.add(sharing.verdict(*labels).violations == ())
        assert verdicts == {True, False}


def test_a_released_table_is_refused() -> None:
    table = SharedTable.make(Stripe(100, 2), "graph")
    words, seen = table.words(), pickle.loads(pickle.dumps(table))
    words[99] = 7
    assert seen.words()[99] == 7
    del table
    with pytest.raises(ExchangeUnavailableError, match="the labels of process .* can't be mapped"):
        seen.words()
    assert words[99] == 7


@pytest.mark.matrix
@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("directed", [False, True])
def test_random_labels_against_the_oracle(directed: bool, edges: str) -> None:
    """A verdict has no violations if and only if the labels are right, whatever was changed."""
    generator = np.random.default_rng(7)
    verdicts = set()
    for seed, ranks in itertools.product(range(4), RANKS):
        setting = Setting(*random(30, 40, seed), ranks, directed, edges)
        matrix = oracle.adjacency(setting.n, setting.src, setting.dst, directed=directed)
        right = right_labels(setting, [3])
        for _ in range(8):
            distances, parents = right[0].copy(), right[1].copy()
            for _ in range(generator.integers(1, 3)):
                vertex = generator.integers(setting.n)
                if generator.random() < 0.5:
                    distances[vertex] += generator.integers(-1, 2)
                else:
                    parents[vertex] = generator.integers(-1, setting.n)
            try:
                np.testing.assert_array_equal(distances, right[0])
                oracle.assert_valid_parents(matrix, distances, parents, [3])
                expected = True
            except AssertionError:
                expected = False
            verdicts.add(expected)
            assert (setting.verdict(distances, parents, (3,)).violations == ()) == expected
            alone = bool((distances == right[0]).all())
            assert (setting.verdict(distances, None, (3,)).violations == ()) == alone
    assert verdicts == {True, False}


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("name", GRAPHS)
def test_right_labels_of_every_graph(name: str, edges: str) -> None:
    for ranks, directed in itertools.product((1, 3), (False, True)):
        setting = Setting(*GRAPHS[name](), ranks, directed, edges)
        sources = [0, setting.n - 1, 0]
        verdict = setting.verdict(*right_labels(setting, sources), sources=tuple(sources))
        assert verdict.violations == ()
        loops = setting.src == setting.dst
        reached = right_labels(setting, sources)[0] >= 0
        within = int((reached[setting.src] & reached[setting.dst] & ~loops).sum())
        both = edges.startswith("partition") and not directed
        assert verdict.component_edges == within * (2 if both else 1)
        assert verdict.edges == setting.src.size + (int((~loops).sum()) if both else 0)


def test_a_violation_names_vertices_ranks_and_how_many() -> None:
    setting = Setting(*GRAPHS["two components"](), 4, False)
    distances, parents = right_labels(setting, [0])
    distances[10:32] += 1
    distances[50] = 99
    words = [str(violation) for violation in setting.verdict(distances, parents).violations]
    assert words == [
        "a label is out of range, or distance and predecessor disagree on whether the vertex was reached: "
        "vertices 50 (rank 2)",
        "rule 2: a vertex is not one level below its predecessor: vertices 10, 9 (rank 2)",
        # The second of four ranks has no such edge: each has sixteen.
        "rule 3: an edge joins levels that differ by more than one: vertices 9, 10 (rank 0)",
    ]
    distances, parents = right_labels(setting, [0])
    parents[[10, 11, 12]] = 12, 10, 11
    distances[20], parents[[20, 25]] = -1, (-1, 3)
    words = [str(violation) for violation in setting.verdict(distances, parents).violations]
    # Vertices whose predecessors lead to the circle or to the hole count as well.
    assert words[0] == (
        "rule 1: predecessors lead in a circle, or to an unreached vertex: vertices 10, 12, 11 "
        "(ranks 0, 1, 2, 3, the first of 14)"
    )
    assert words[2] == (
        "rule 4: an edge leads from a reached vertex to an unreached one: vertices 19, 20 (rank 1, the first of 2)"
    )


@pytest.mark.parametrize("edges", EDGES)
def test_a_bound_on_depth_is_respected(edges: str) -> None:
    setting = Setting(*GRAPHS["path"](), 3, False, edges)
    distances, parents = right_labels(setting, [0])
    beyond = distances > 5
    distances[beyond], parents[beyond] = -1, -1
    assert setting.verdict(distances, parents, farthest=5).violations == ()
    for farthest, rule in ((6, Rule.COMPONENT), (None, Rule.COMPONENT), (4, Rule.RANGE)):
        assert rule in {
            violation.rule for violation in setting.verdict(distances, parents, farthest=farthest).violations
        }


def test_a_mirror_image_of_a_wrong_edge_is_seen_from_either_end() -> None:
    """An undirected edge is checked in both directions, whichever one the input has."""
    setting = Setting(*GRAPHS["two components"](), 1, False)
    turned = replace(setting, src=setting.dst, dst=setting.src)
    for mutate, (rule, _, _) in MUTATIONS.items():
        distances, parents = right_labels(setting, [0])
        mutate(distances, parents)
        for one in (setting, turned):
            assert rule in {violation.rule for violation in one.verdict(distances, parents).violations}


@pytest.mark.parametrize("column", [60, 64, 2**32 - 1])
def test_an_edge_that_leaves_the_graph_is_no_index(column: int) -> None:
    partition = Setting(*random(60, 300, 4), 1, False).partition(0)
    columns = partition.columns.copy()
    columns[-1] = column
    with pytest.raises(ValidationError, match=r"rank 0 has an edge from 59 to \d+; vertices are 0\.\.59"):
        list(validation.partition_edges(replace(partition, columns=columns)))
    offsets = partition.row_offsets.copy()
    offsets[60:-1] -= 1
    with pytest.raises(ValidationError, match=r"rank 0 has an edge from 63 to \d+; vertices are 0\.\.59"):
        list(validation.partition_edges(replace(partition, row_offsets=offsets)))


def test_a_partition_is_written_out_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(*random(60, 300, 4), 3, False)
    whole = [np.concatenate(side) for side in zip(*validation.partition_edges(setting.partition(1)), strict=True)]
    rows = np.repeat(np.arange(setting.partition(1).row_offsets.size - 1), np.diff(setting.partition(1).row_offsets))
    assert whole[0].tolist() == (rows * 3 + 1).tolist()
    assert whole[1].tolist() == Stripe(60, 3).vertex(setting.partition(1).columns.astype(np.int64)).tolist()
    for block in (1, 2, 7, 100_000):
        monkeypatch.setattr(validation, "BLOCK_EDGES", block)
        parts = [np.concatenate(side) for side in zip(*validation.partition_edges(setting.partition(1)), strict=True)]
        assert [part.tolist() for part in parts] == [part.tolist() for part in whole]


@pytest.mark.parametrize("blocks", [1, 7])
def test_a_block_of_one_row_has_something_to_count(monkeypatch: pytest.MonkeyPatch, blocks: int) -> None:
    """Older versions of CuPy's ``bincount`` raise an error for an empty array."""
    count = np.bincount

    def refuse_nothing(values: NDArray[np.int64], minlength: int) -> NDArray[np.int64]:
        assert values.size, "zero-size array to reduction operation"
        return count(values, minlength=minlength)

    monkeypatch.setattr(np, "bincount", refuse_nothing)
    monkeypatch.setattr(validation, "BLOCK_EDGES", -(-40 // blocks))
    hub = Setting(41, np.zeros(40, np.int64), np.arange(1, 41), 2, directed=True, edges="partition")
    partition = hub.partition(0)
    assert partition.m_local == 40
    sources, targets = (np.concatenate(ends) for ends in zip(*validation.partition_edges(partition), strict=True))
    assert not sources.any()
    assert sorted(targets.tolist()) == list(range(1, 41))


def test_a_vertex_is_not_supported_by_an_edge_that_leaves_it() -> None:
    """Of a directed graph, the edge 2 -> 1 does not explain that vertex 2 is one level below vertex 1."""
    setting = Setting(3, np.array([0, 2]), np.array([1, 1]), 1, True)
    distances = np.array([0, 1, 2], np.int32)
    assert {violation.rule for violation in setting.verdict(distances, None).violations} == {Rule.PARENT}
