"""``dbfs.validate`` on a cluster: results where they lie, labels from elsewhere, and graphs that were built wrong.

``test_validator`` has what the rules catch; here a few of the mutations go the whole way.
"""

import gc
import pickle
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distributed
import numpy as np
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import (
    GraphTooLargeError,
    InvalidOptionError,
    InvalidVertexError,
    ResultReleasedError,
    ValidationError,
)
from dbfs_workers.features.validation import tasks, validation
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import standin
from tests.support.graphs import GRAPHS
from tests.support.validation import MUTATIONS


def two_paths(client: distributed.Client, ranks: int, **options: object) -> Graph:
    n, src, dst = GRAPHS["two components"]()
    directed = bool(options.pop("directed", False))
    return dbfs.load(dbfs.from_arrays(src, dst, n=n, directed=directed), client=client, ranks=ranks, **options)  # type: ignore[arg-type]


def test_the_shared_table_outlives_a_copy_that_dask_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask keeps one copy of a result that several workers have. Here that is never the one of the maker's worker."""
    options = {"n_workers": 3, "processes": False, "protocol": "tcp://", "dashboard_address": None}
    with dbfs.connect(**options, set_as_default=False) as within:
        join_words, replaced = validation._join_words, []
        workers = list(within.cluster.workers.values())

        def keys(worker: distributed.Worker, pattern: str) -> list[Any]:
            return [key for key in list(worker.data) if re.search(pattern, str(key))]

        def late(*arguments: Any) -> Any:
            if distributed.get_worker().name == 2:
                end = time.monotonic() + 20
                while not all(keys(worker, "check-edges") for worker in workers[:2]):
                    assert time.monotonic() < end
                    time.sleep(0.01)
                for worker in workers:
                    for key in keys(worker, "share-words|table-of-peers"):
                        worker.data[key] = pickle.loads(pickle.dumps(worker.data[key]))
                        replaced.append(key)
                gc.collect()
            return join_words(*arguments)

        monkeypatch.setattr(validation, "_join_words", late)
        with dbfs.load("grid2d:side=20", client=within) as graph:
            assert graph.bfs(0, predecessors=True, validate=True).depth == 38
        assert replaced


@pytest.mark.matrix
@pytest.mark.parametrize("ranks", [1, 2, *(pytest.param(ranks, marks=pytest.mark.full) for ranks in (3, 4))])
@pytest.mark.parametrize("directed", [False, True])
def test_every_mutation_is_caught(client: distributed.Client, leaves_nothing: None, ranks: int, directed: bool) -> None:
    with two_paths(client, ranks, directed=directed, keep_edges=ranks % 2 == 0) as graph:
        result = graph.bfs(0, predecessors=True)
        found = dbfs.validate(graph, result)
        # 61 edges, 31 of them in the component; of an undirected graph's own each is there twice.
        assert found == dbfs.Validation(ranks % 2 == 0, *((62, 31) if directed or ranks % 2 == 0 else (124, 62)))
        for mutate, (rule, _, _) in MUTATIONS.items():
            distances, parents = result.distances(), result.predecessors()
            mutate(distances, parents)
            assert rule is not None
            with pytest.raises(ValidationError) as caught:
                dbfs.validate(graph, dbfs.Labels([0], distances, parents))
            assert rule.value in str(caught.value)
        result.release()


@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("keep_edges", [False, True])
def test_distances_or_predecessors_alone(client: distributed.Client, keep_edges: bool, order: str) -> None:
    with two_paths(client, 3, keep_edges=keep_edges, order=order) as graph:
        result = graph.bfs(5, predecessors=True, validate=True)
        distances, parents = result.distances(), result.predecessors()
        dbfs.validate(graph, dbfs.Labels([5], distances=distances))
        dbfs.validate(graph, dbfs.Labels([5], predecessors=parents))
        # As int32 it would be right.
        wide = distances.astype(np.int64)
        wide[31] += 2**32
        with pytest.raises(ValidationError, match=r"out of range.*vertices 31 \("):
            dbfs.validate(graph, dbfs.Labels([5], distances=wide))
        parents[20] = 21
        with pytest.raises(ValidationError, match=r"in a circle.*vertices 2[01], 2[01] \("):
            dbfs.validate(graph, dbfs.Labels([5], predecessors=parents))
        parents[20] = 18
        with pytest.raises(ValidationError, match=r"rule 5: no edge.*vertices 20, 18 \(rank"):
            dbfs.validate(graph, dbfs.Labels([5], predecessors=parents))


@pytest.mark.parametrize("engine", ["resident", "taskgraph"])
@pytest.mark.parametrize("order", ["given", "degree"])
def test_results_of_both_engines_before_and_after_they_are_fetched(
    client: distributed.Client, engine: str, order: str
) -> None:
    with dbfs.load("kronecker:scale=9", client=client, ranks=3, keep_edges=True, order=order) as graph:
        for predecessors in (False, True):
            result = graph.bfs([1, 7], predecessors=predecessors, engine=engine)
            before = dbfs.validate(graph, result)
            result.distances()
            assert dbfs.validate(graph, result) == before
            assert before.edges == 16 << 9


def test_many_traversals_targets_and_bounds(client: distributed.Client) -> None:
    n, src, dst = GRAPHS["path"]()
    with dbfs.load(dbfs.from_arrays(src, dst, n=n), client=client, ranks=2, keep_edges=True) as graph:
        for result in graph.bfs_many([0, 69, 30], predecessors=True):
            assert dbfs.validate(graph, result).component_edges == 69
        assert dbfs.validate(graph, graph.bfs(0, targets=[7])).component_edges == 7
        assert dbfs.validate(graph, graph.bfs(0, max_depth=2**70)).component_edges == 69
        bounded = graph.bfs(0, max_depth=5, validate=True)
        with pytest.raises(ValidationError, match="from a reached vertex to an unreached one: vertices 5, 6"):
            dbfs.validate(graph, dbfs.Labels([0], bounded.distances(), max_depth=6))
        with pytest.raises(ValidationError, match="out of range"):
            dbfs.validate(graph, dbfs.Labels([0], bounded.distances(), max_depth=4))


def test_edges_between_sparse_ids(client: distributed.Client, tmp_path: Path) -> None:
    (tmp_path / "sparse.txt").write_text("1000000007 5\n5 77\n77 1000000007\n900 900\n")
    with dbfs.load(tmp_path / "sparse.txt", client=client, ranks=2, keep_edges=True) as graph:
        assert dbfs.validate(graph, graph.bfs(77)) == dbfs.Validation(True, 4, 3)
        with pytest.raises(ValidationError, match="rule 4: .*: vertices (77|1000000007), 5 "):
            dbfs.validate(graph, dbfs.Labels([77], [-1, 0, -1, 1]))


def test_vertices_are_named_by_their_ids(client: distributed.Client, tmp_path: Path) -> None:
    (tmp_path / "path.graph").write_text("3 2\n2\n1 3\n2\n")
    for source, wrong in ((tmp_path / "path.graph", "2, 3"), ([("a", "b"), ("b", "c")], "b, c")):
        with dbfs.load(source, client=client, ranks=2) as graph:
            with pytest.raises(ValidationError, match=f"rule 4: .*: vertices {wrong} "):
                dbfs.validate(graph, dbfs.Labels(graph.id_of(0), [0, 1, -1]))


def drop_edge(partition: Partition) -> Partition:
    """Row 10's last edge is no more."""
    last = partition.row_offsets[11] - 1
    offsets = partition.row_offsets.copy()
    offsets[11:] -= 1
    return replace(partition, row_offsets=offsets, columns=np.delete(partition.columns, last))


def add_edge(partition: Partition) -> Partition:
    """Row 1 gets an edge to vertex 25 (row 12 of rank 1)."""
    at = partition.row_offsets[2]
    offsets = partition.row_offsets.copy()
    offsets[2:] += 1
    columns = np.insert(partition.columns, at, partition.stripe.n_local + 12)
    return replace(partition, row_offsets=offsets, columns=columns)


def swap_rows(partition: Partition) -> Partition:
    """Rows 4 and 6, of one edge each, change places."""
    columns = partition.columns.copy()
    at = partition.row_offsets[[4, 6]]
    columns[at] = columns[at[::-1]]
    return replace(partition, columns=columns)


@pytest.mark.parametrize(
    ("corrupt", "words"),
    [
        (drop_edge, "rule 4: .* to an unreached one: vertices 20, 21 "),
        (add_edge, "rule 5: no edge joins a vertex to its predecessor.*: vertices 25, 2 "),
        (swap_rows, "rule 5: no edge joins a vertex to its predecessor.*: vertices 13, 8 "),
    ],
)
def test_a_graph_built_wrong_on_one_rank_is_found_out(
    client: distributed.Client, corrupt: Callable[[Partition], Partition], words: str
) -> None:
    """Its own edges agree with what was found; those of the input do not."""
    for keep_edges in (False, True):
        with two_paths(client, 2, directed=True, keep_edges=keep_edges) as graph:

            def spoil(dask_worker: distributed.Worker, key: object = graph.partition_keys[0]) -> None:
                dask_worker.data[key] = corrupt(dask_worker.data[key])

            client.run(spoil, workers=[graph.gang.addresses[0]])
            result = graph.bfs(0, predecessors=True)
            if not keep_edges:
                assert not dbfs.validate(graph, result).of_input
                continue
            with pytest.raises(ValidationError, match=words):
                dbfs.validate(graph, result)
            with pytest.raises(ValidationError):
                dbfs.validate(graph, graph.bfs(0))


def test_what_can_not_be_validated(client: distributed.Client) -> None:
    with two_paths(client, 2) as graph, two_paths(client, 2) as other:
        result = graph.bfs(0)
        distances = result.distances()
        with pytest.raises(InvalidOptionError, match=r"is not of arrays, but of arrays as it was loaded"):
            dbfs.validate(other, result)
        with pytest.raises(InvalidOptionError, match="distances, predecessors, or both"):
            dbfs.validate(graph, dbfs.Labels([0]))
        with pytest.raises(
            InvalidOptionError, match=r"distances must be 64 integers, one a vertex, not int32 .*\(63,\)"
        ):
            dbfs.validate(graph, dbfs.Labels([0], distances[1:]))
        with pytest.raises(InvalidOptionError, match="predecessors must be 64 integers, one a vertex, not float64"):
            dbfs.validate(graph, dbfs.Labels([0], distances, distances / 2))
        with pytest.raises(InvalidVertexError, match="source 64 is not in"):
            dbfs.validate(graph, dbfs.Labels([64], distances))
        result.release()
        with pytest.raises(ResultReleasedError, match="released"):
            dbfs.validate(graph, result)
    with pytest.raises(ResultReleasedError, match="unloaded"):
        dbfs.validate(graph, dbfs.Labels([0], distances))


@pytest.mark.parametrize("of_input", [False, True])
def test_a_gpu_that_is_full_is_told_of_in_words_that_every_client_reads(
    monkeypatch: pytest.MonkeyPatch, of_input: bool
) -> None:
    cupy = standin.Cupy()
    cupy.free = 5
    monkeypatch.setitem(sys.modules, "cupy", cupy)

    def full(*arguments: object, **options: object) -> None:
        raise standin.OutOfMemoryError("9 bytes wanted")

    monkeypatch.setattr(tasks, "check_edges", full)
    # Of no type of NumPy's: of CuPy's, then.
    edges, stripe = SimpleNamespace(), Stripe(5, 2)
    with pytest.raises(GraphTooLargeError, match="rank 1, checking its edges: 9 bytes wanted; 5 bytes are free"):
        if of_input:
            tasks.check_input(stripe, 1, [(edges, edges)], [], None, False, False, None)  # type: ignore[list-item]
        else:
            partition = SimpleNamespace(stripe=stripe, rank=1, columns=edges)
            partition.parts = lambda: iter([partition])
            tasks.check_partition(partition, [], False, False, None)  # type: ignore[arg-type]
