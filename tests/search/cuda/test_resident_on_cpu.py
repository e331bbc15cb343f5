"""The resident kernel of one rank, all of its steps, run by the emulator in blocks of few threads, against SciPy."""

import ctypes
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dbfs_workers.search.cuda import layout
from dbfs_workers.search.cuda.resident import ResidentKernel
from dbfs_workers.search.cuda.run import UNLIMITED, Direction, Mode, Reason
from dbfs_workers.search.direction import GPU_ALPHA, GPU_BETA
from dbfs_workers.search.partition.stripe import NO_VERTEX, Stripe
from tests.support import graphs, oracle
from tests.support.cuda_on_cpu.compiler import needs_compiler
from tests.support.cuda_on_cpu.resident import BLOCKS, THREADS, fill_table, kernel, others

pytestmark = needs_compiler

CAPACITY = 1 << 10


class Rank:
    """The memory of the only rank of a graph, and runs of the kernel on it."""

    def __init__(self, n: int, src: NDArray[np.int64], dst: NDArray[np.int64], *, table: bool = False) -> None:
        self.stripe = Stripe(n, 1)
        self.adjacency = oracle.adjacency(n, src, dst, directed=False)
        rows = self.stripe.n_local
        degrees = np.zeros(rows, np.int64)
        degrees[:n] = np.diff(self.adjacency.indptr)
        self.offsets = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
        self.columns = self.adjacency.indices.astype(np.uint32)
        first = np.full(rows, NO_VERTEX, np.uint32)
        first[degrees > 0] = self.columns[self.offsets[:-1][degrees > 0]]
        closed = np.packbits(degrees == 0, bitorder="little").view(np.uint32)
        words = self.stripe.words_local + 4
        chunks = int((-(-degrees[degrees > layout.LARGE_DEGREE] // layout.CHUNK_EDGES)).sum()) + 1
        self.distances, self.parents = np.zeros(rows, np.int32), np.zeros(rows, np.uint32)
        self.control = np.zeros(layout.CONTROL_BYTES // 8 + 16, np.uint64)
        self.host = np.zeros(layout.HOST_HEADER.itemsize + CAPACITY * layout.RECORD.itemsize, np.uint8)
        self.header = self.host[: layout.HOST_HEADER.itemsize].view(layout.HOST_HEADER)
        self.arrays = {
            "known": np.zeros(words, np.uint32),
            "closed": np.append(closed, np.zeros(4, np.uint32)),
            "hubs": first,
            "visited": np.zeros(words, np.uint32),
            "frontier": np.zeros(2 * words, np.uint32),
            "queues": np.zeros((2, rows), np.uint32),
            "queue_parents": np.zeros((2, rows), np.uint32),
            "chunks": np.zeros((2, chunks), np.uint64),
        }
        self.params = np.zeros(1, layout.PARAMS)
        self.params["max_degree"] = degrees.max(initial=0)
        self.params["light"] = ResidentKernel._lanes_a_vertex(int(degrees.max(initial=0)), 1)
        if table:
            log = 2 if others(self.offsets, self.columns)[0].max() <= 4 else 3
            self.arrays["table"] = np.empty((rows, 1 << log), np.uint32)
            fill_table(self.offsets, self.columns, self.arrays["table"])
            self.params["table_log"] = log
        self.params["edges_total"], self.params["vertices_total"] = degrees.sum(), max(1, (degrees > 0).sum())

    def run(self, sources: list[int], seed: int, *, predecessors: bool = True, **options: Any) -> NDArray[np.int64]:
        """Run the kernel; return the number of levels of each mode."""
        params, stripe = self.params, self.stripe
        at = {name: array.ctypes.data for name, array in self.arrays.items()}
        csr = self.offsets.ctypes.data, self.columns.ctypes.data
        params["out"] = params["in"] = csr
        peer = {"visited": at["visited"], "frontier": at["frontier"], "parents": self.parents.ctypes.data}
        for name, place in peer.items():
            params["peers"][name][0, 0] = place
        params["distances"] = self.distances.ctypes.data
        for name in ("known", "closed", "hubs"):
            params[name] = at[name]
        params["table"] = at.get("table", 0)
        for name in ("queues", "queue_parents", "chunks"):
            params[name] = [array.ctypes.data for array in self.arrays[name]]
        params["control"] = self.control.ctypes.data + -self.control.ctypes.data % layout.LINE_BYTES
        params["host"] = self.host.ctypes.data
        params["timeout_ns"] = 1 << 62
        params["ranks"], params["n_local"], params["words_local"] = 1, stripe.n_local, stripe.words_local
        params["rows_used"] = params["reset_rows"] = stripe.n_local
        params["max_depth"], params["stats_capacity"] = UNLIMITED, CAPACITY
        params["alpha"], params["beta"], params["direction"] = GPU_ALPHA, GPU_BETA, Direction.AUTO
        params["sparse_edges"] = options.pop("sparse_edges", 200)
        for name, value in options.items():
            params[name] = value
        params["source_count"] = len(sources)
        params["few_sources"][0, : len(sources)] = sources
        self.host[:] = 0
        pointers = (ctypes.c_void_p * 1)(params.ctypes.data)
        failed = kernel(predecessors)(BLOCKS, THREADS, ctypes.c_ulonglong(seed), pointers)
        assert not failed, failed.decode()
        assert int(self.header["status"][0]) & 0xFF == Reason.FINISHED
        records = self.host[layout.HOST_HEADER.itemsize :].view(layout.RECORD)[: self.header["levels"][0]]
        return np.bincount((records["mode"] & 0xFF).astype(np.int64), minlength=len(Mode))

    def check(self, sources: list[int], *, predecessors: bool = True) -> None:
        """Check the labels of a run."""
        expected = oracle.distances(self.adjacency, sources)
        n = expected.size
        np.testing.assert_array_equal(self.distances[:n], expected)
        if predecessors:
            reached = np.flatnonzero(expected > 0)
            parents = self.parents[reached].astype(np.int64)
            assert (expected[parents] == expected[reached] - 1).all()
            starts, ends = self.adjacency.nonzero()
            assert np.isin(parents * n + reached, starts.astype(np.int64) * n + ends).all()


def lattice(side: int) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    places = np.arange(side * side).reshape(side, side)
    src = np.append(places[:, :-1], places[:-1])
    return side * side, src, np.append(places[:, 1:], places[1:])


def path(n: int) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    return n, np.arange(n - 1), np.arange(1, n)


GRAPHS = {
    "lattice": lambda: lattice(30),
    "path": lambda: path(310),
    "random": lambda: graphs.random(400, 700, 3),
    "dense": lambda: graphs.random(300, 9000, 5),
}


@pytest.mark.parametrize("predecessors", [True, False])
@pytest.mark.parametrize("name", GRAPHS)
def test_labels(name: str, predecessors: bool) -> None:
    rank = Rank(*GRAPHS[name]())
    modes = np.zeros(len(Mode), np.int64)
    for seed, sources in enumerate(([0], [5, 299], [17])):
        modes += rank.run(sources, seed, predecessors=predecessors)
        rank.check(sources, predecessors=predecessors)
    assert modes[Mode.LIGHT] > 0 or name == "dense"


@pytest.mark.parametrize("predecessors", [True, False])
def test_large_vertices_side_by_side_are_all_queued(predecessors: bool) -> None:
    """A warp queues several of them at once, each with a neighbour that no other vertex has."""
    hubs, many = np.arange(1, 161), layout.LARGE_DEGREE + 40
    src = [np.zeros(hubs.size), hubs.repeat(many), hubs]
    dst = [hubs, np.tile(np.arange(200, 200 + many), hubs.size), 600 + hubs]
    rank = Rank(800, np.concatenate(src).astype(np.int64), np.concatenate(dst).astype(np.int64))
    modes = rank.run([0], 1, predecessors=predecessors, sparse_edges=50, direction=Direction.TOP_DOWN)
    rank.check([0], predecessors=predecessors)
    assert modes[Mode.DENSE] > 1


def with_loops(n: int, src: NDArray[np.int64], dst: NDArray[np.int64]) -> graphs.Arrays:
    return n, np.append(src, np.arange(n)), np.append(dst, np.arange(n))


def permuted(n: int, times: int, seed: int) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """Return a graph whose vertices have at most twice as many neighbours as permutations were drawn."""
    rng = np.random.default_rng(seed)
    return n, np.tile(np.arange(n), times), np.concatenate([rng.permutation(n) for _ in range(times)])


SHORT = {
    "lattice": lambda: lattice(30),
    "path": lambda: path(700),
    "paths": lambda: (600, np.delete(np.arange(599), 299), np.delete(np.arange(1, 600), 299)),
    "degree 4": lambda: permuted(900, 2, 1),
    "degree 6": lambda: permuted(500, 3, 2),
    "degree 8": lambda: permuted(1500, 4, 3),
    "ring of eights": lambda: graphs.circulant(700, 4),
    "fours and self-loops": lambda: with_loops(*permuted(900, 2, 1)),
    "eights and self-loops": lambda: with_loops(*graphs.circulant(700, 4)),
}


@pytest.mark.parametrize("predecessors", [True, False])
@pytest.mark.parametrize("most", [40, 200, 4000])
@pytest.mark.parametrize("name", SHORT)
def test_levels_over_a_table(name: str, most: int, predecessors: bool) -> None:
    rank = Rank(*SHORT[name](), table=True)
    modes = np.zeros(len(Mode), np.int64)
    for seed, sources in enumerate(([0], [5, 299], [17, 17, 18], list(range(9)))):
        modes += rank.run(sources, seed, predecessors=predecessors, sparse_edges=most)
        rank.check(sources, predecessors=predecessors)
    assert modes[Mode.LIGHT] > 0


def test_threads_without_a_level_over_the_table_come_late() -> None:
    """Half of a block runs the levels. With each of these seeds another thread began after the only one had ended."""
    for seed in (118, 147):
        rank = Rank(*SHORT["degree 4"](), table=True)
        rank.run([522, 690, 795], seed, predecessors=False, sparse_edges=40)
        rank.check([522, 690, 795], predecessors=False)


@pytest.mark.parametrize("predecessors", [True, False])
def test_levels_of_many_vertices_over_a_table(predecessors: bool) -> None:
    """Rows are read after their claims there, and the neighbours of queued vertices are looked up before."""
    rank = Rank(*permuted(60_000, 2, 4), table=True)
    rank.run([0], 1, predecessors=predecessors, sparse_edges=1 << 20)
    rank.check([0], predecessors=predecessors)
    assert np.bincount(rank.distances[: rank.stripe.n]).max() > 1 << 14


@pytest.mark.parametrize("depth", [1, 2, 3, 7])
def test_depth_over_a_table(depth: int) -> None:
    rank = Rank(*lattice(30), table=True)
    rank.run([0], 1, max_depth=depth)
    expected = oracle.distances(rank.adjacency, [0])
    np.testing.assert_array_equal(rank.distances[: expected.size], np.where(expected <= depth, expected, -1))
