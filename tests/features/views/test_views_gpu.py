"""Columns and views of graphs on GPUs against SciPy on the filtered table.

Axes: undirected and directed with in-edges; as given and by degree; 1 and 2 ranks; GPUs that map each other's memory,
one GPU that ranks share, and workers without a GPU whose kernels run on the CPU.
"""

from collections.abc import Callable, Iterator
from typing import Any

import dask
import distributed
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dbfs
from dbfs.assembly import Graph
from dbfs.errors import GraphTooLargeError
from tests.support import merging, oracle
from tests.support.gpus import GPUS, four_on_one_gpu, needs_gpu
from tests.support.graphs import random

N, M = 200, 500


CLUSTERS: dict[str, Callable[[], distributed.Client]] = {
    "emulated": merging.two_on_numpy,
    "sharing": four_on_one_gpu,
    "mapped": lambda: dbfs.connect(dashboard_address=None, memory_limit=0),
}


@pytest.fixture(
    scope="module",
    params=[
        "emulated",
        pytest.param("sharing", marks=needs_gpu("cupy")),
        pytest.param("mapped", marks=needs_gpu("cupy", "dask_cuda")),
    ],
)
def cluster(request: pytest.FixtureRequest) -> Iterator[tuple[str, distributed.Client]]:
    exchange = "auto" if request.param == "mapped" else "shared_memory"
    with dask.config.set({"dbfs.exchange": exchange}), CLUSTERS[request.param]() as client:
        yield request.param, client


@pytest.fixture(params=[1, 2])
def ranks(request: pytest.FixtureRequest, cluster: tuple[str, distributed.Client]) -> int:
    if cluster[0] == "mapped" and request.param > GPUS:
        pytest.skip(f"{request.param} GPUs wanted, {GPUS} there")
    return int(request.param)


def table() -> pa.Table:
    _, src, dst = random(N, M, 3)
    generator = np.random.default_rng(3)
    kinds = np.array(["road", "rail", "ferry"])[generator.integers(0, 3, M)]
    return pa.table({"source": src, "target": dst, "kind": kinds, "year": generator.integers(2000, 2020, M)})


def check(view: Graph, passing: pa.Table, left_out: list[int], directed: bool) -> None:
    """Compare a view with SciPy on the rows that pass, whose ends are ids."""
    ids = view.ids().tolist()
    place = {name: vertex for vertex, name in enumerate(ids)}
    src, dst = (np.array([place[name] for name in passing[end].to_pylist()], np.int64) for end in ("source", "target"))
    matrix = oracle.adjacency(len(ids), src, dst, directed=directed)
    loops = int((src == dst).sum())
    assert (view.m, view.self_loops) == (src.size if directed else 2 * src.size - loops, loops)
    assert view.m - view.duplicates == matrix.nnz
    sources = [name for name in ids if name not in left_out][:4]
    for name in sources:
        result = view.bfs(name, predecessors=True, validate=True)
        np.testing.assert_array_equal(result.distances(), oracle.distances(matrix, [place[name]]))
    hops = [view.pair_distances([(sources[0], name)])[0] for name in sources]
    assert hops == oracle.distances(matrix, [place[sources[0]]])[[place[name] for name in sources]].tolist()


@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("directed", [False, True])
def test_views_are_filtered_tables(
    cluster: tuple[str, distributed.Client], ranks: int, directed: bool, order: str
) -> None:
    rows, old = table(), pc.field("year") < 2010
    roads = (pc.field("kind") == "road") & (pc.field("year") < 2005)
    options: dict[str, Any] = {"directed": directed, "in_edges": directed, "order": order, "ranks": ranks}
    with dbfs.load(rows, edge_columns=["kind", "year"], client=cluster[1], backend="cuda", **options) as graph:
        assert graph.backend == "cuda"
        left_out = graph.ids()[:5].tolist()
        ends = ~pc.field("source").isin(left_out) & ~pc.field("target").isin(left_out)
        with (
            graph.where(edges=old) as view,
            view.where(edges=roads) as inner,
            graph.where(edges=old, without=left_out) as fewer,
        ):
            check(graph, rows, [], directed)
            check(view, rows.filter(old), [], directed)
            check(inner, rows.filter(roads), [], directed)
            check(fewer, rows.filter(old & ends), left_out, directed)


def test_a_view_that_does_not_fit_is_refused(cluster: tuple[str, distributed.Client], ranks: int) -> None:
    client = cluster[1]
    options: dict[str, Any] = {"client": client, "backend": "cuda", "ranks": ranks}
    with dbfs.load(table(), edge_columns=["year"], **options) as graph:
        client.run(merging.limit_memory, 100)
        try:
            with pytest.raises(GraphTooLargeError, match="100 bytes are free"):
                graph.where(edges=pc.field("year") > 2001)
        finally:
            client.run(merging.limit_memory, None)
        with graph.where(edges=pc.field("year") > 2001) as view:
            assert view.m > 0
