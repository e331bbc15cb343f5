"""Batches merged on GPUs against pages on CPUs, array for array: kernels on this CPU, and on a GPU where there is one.

Axes: undirected, by degree, directed with and without in-edges; 1 to 3 ranks; random batches, batches of what is there,
empty batches, and one that empties the graph; edges in the spec, in bins, and taken of the whole batch.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dbfs_workers.base.errors import GraphTooLargeError, InvalidVertexError
from dbfs_workers.building.bin_store import BinStore
from dbfs_workers.building.binning import bin_edges
from dbfs_workers.features.living import versions as on_pages
from dbfs_workers.features.living.update_spec import UpdateSpec
from dbfs_workers.features.living.versions import NextVersion
from dbfs_workers.search.cuda import device_memory
from dbfs_workers.search.partition.partition import Partition, on_host
from dbfs_workers.search.partition.stripe import Stripe
from tests.support import merging as emulated
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.gpus import on_gpu
from tests.support.graphs import GRAPHS
from tests.support.partitions import build

Ends = tuple[NDArray[np.int64], NDArray[np.int64]]
LAYOUTS = ["undirected", "by degree", "directed", "in-edges"]
PLENTY = 2**60


@pytest.fixture(
    params=[
        pytest.param(False, id="emulated", marks=needs_compiler),
        on_gpu(True, id="gpu"),
    ]
)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy and the kernels, or stand-ins for both."""
    if not request.param:
        emulated.install(monkeypatch)


def both(
    part: Partition, kind: str, ends: Ends, way: str, hub_first: bool, **options: Any
) -> tuple[NextVersion, NextVersion]:
    """Update a partition (on pages, or a CSR) by a batch, on the CPU and on the GPU."""
    import cupy

    from dbfs_workers.features.living import cuda_versions as living

    stripe, rank, directed = part.stripe, part.rank, part.directed
    spec, given = UpdateSpec(kind, hub_first, **options), []
    for _ in range(2):
        edges: list[Any] = [None, None]
        if way == "bins":
            out = bin_edges(*ends, stripe, symmetrise=not directed, name="batch")
            into = bin_edges(*ends[::-1], stripe, symmetrise=False, name="batch")
            edges = [BinStore.of(stripe, [out[rank]]), BinStore.of(stripe, [into[rank]])]
        given.append(edges)
    on_cpu, on_device = part, (part.frozen() if isinstance(part, on_pages.LivingPartition) else part).on(cupy)
    if way == "few":
        src, dst = ends
        back = np.flatnonzero(src != dst) if not directed else np.empty(0, np.int64)
        spec = replace(spec, edges=(np.append(src, dst[back]), np.append(dst, src[back])))
    elif way == "whole":
        small = [side.astype(np.uint32) for side in ends]
        given[0] = list(on_pages.update_keys(part, *small, symmetrise=not directed, free_bytes=lambda: PLENTY))
        given[1] = list(living.update_keys(on_device, *small, symmetrise=not directed))
    return (
        on_pages.updated(on_cpu, spec, *given[0], lambda: PLENTY),
        living.updated(on_device, spec, *given[1]),
    )


def assert_same(made: NextVersion, wanted: NextVersion) -> None:
    one, other = made.partition, wanted.partition
    for name in ("stripe", "rank", "self_loops", "duplicates", "input_edges", "directed", "version", "m_local"):
        assert getattr(one, name) == getattr(other, name), name
    np.testing.assert_array_equal(one.deleted, other.deleted)
    pairs = [(one.out_edges, other.out_edges)]
    if other.in_edges is not None:
        assert one.in_edges is not None
        pairs.append((one.in_edges, other.in_edges))
    for csr, expected in pairs:
        assert (csr.row_offsets.dtype, csr.columns.dtype) == (np.int64, np.uint32)
        np.testing.assert_array_equal(on_host(csr.row_offsets), expected.row_offsets)
        np.testing.assert_array_equal(on_host(csr.columns), expected.columns)
    assert made.changes == wanted.changes
    assert (made.vertices.tolist(), made.absent) == (wanted.vertices.tolist(), wanted.absent)


@pytest.mark.matrix
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("graph", ["self-loops and duplicates", "hub", "dense random"])
def test_batches_make_the_rows_of_pages(device: None, graph: str, p: int, layout: str) -> None:
    n, src, dst = GRAPHS[graph]()
    stripe, directed, hub_first = Stripe(n, p), layout in ("directed", "in-edges"), layout == "by degree"
    parts = build(stripe, src, dst, directed=directed, in_edges=layout == "in-edges", hub_first=hub_first)
    generator = np.random.default_rng(p)
    random = tuple(generator.integers(0, n, (2, 3 * n)))
    some = generator.integers(0, src.size, src.size)
    batches: list[tuple[str, Ends]] = [
        ("insert-edges", random),
        (
            "delete-edges",
            tuple(np.append(side[some], more) for side, more in zip((src, dst), random[::-1], strict=True)),
        ),
        ("insert-edges", (src, dst)),
        ("insert-edges", (src[:0], dst[:0])),
        ("delete-edges", (np.append(src, random[0]), np.append(dst, random[1]))),
        ("insert-edges", random),
    ]
    for part in parts:
        before: Partition = part
        for index, (kind, ends) in enumerate(batches):
            way = ("bins", "few", "whole")[index % (2 if hub_first else 3)]
            wanted, made = both(before, kind, ends, way, hub_first)
            assert_same(made, wanted)
            before = wanted.partition


def test_a_version_before_stays_and_vertices_come_and_go(device: None) -> None:
    n, src, dst = GRAPHS["sparse random"]()
    (part,) = build(Stripe(n, 1, 5), src, dst, directed=False)
    wanted, made = both(part, "delete-vertices", (src[:40], dst[:40]), "bins", False, vertices=src[:40])
    assert_same(made, wanted)
    grown, grown_on_gpu = both(wanted.partition, "insert-vertices", (src[:0], dst[:0]), "", False, count=3)
    assert_same(grown_on_gpu, grown)
    gone = np.array([grown.partition.deleted[0]])
    with pytest.raises(InvalidVertexError, match="was deleted"):
        both(grown.partition, "insert-edges", (gone, gone), "few", False)
    np.testing.assert_array_equal(part.columns, build(Stripe(n, 1), src, dst, directed=False)[0].columns)


def test_what_does_not_fit_is_refused(device: None, monkeypatch: pytest.MonkeyPatch) -> None:
    n, src, dst = GRAPHS["dense random"]()
    (part,) = build(Stripe(n, 1), src, dst, directed=False)
    for free in (0, 100, 20_000):
        monkeypatch.setattr(device_memory, "free_bytes", lambda free=free: free)
        for way in ("bins", "few", "whole"):
            with pytest.raises(GraphTooLargeError, match=f"needs [0-9]+ bytes on its GPU, {free} bytes are free"):
                both(part, "insert-edges", (dst[:300], src[300:600]), way, False)
