"""Check the strategies of the laboratory on a GPU against SciPy: each with each value of each of its options.

``make sanitize`` runs it on the smallest graphs; by hand, on larger ones too::

    python -m tests.support.lab_checks
    python -m tests.support.lab_checks --corpus 64
    python -m tests.support.lab_checks --strategy degree-classes:classes=3,sorting=pass
    compute-sanitizer --tool racecheck python -m tests.support.lab_checks --small

Policies with linked pages traverse pages that batches have changed: half of the edges were inserted, with others that
were deleted again. All failures are collected into a table. There is no Dask: the sanitizer should slow down the
kernels only.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

import dbfs
from dbfs.edges import generate
from dbfs_workers.base.errors import QueueOverflowError
from dbfs_workers.features.lab import enact
from dbfs_workers.features.lab.device import Device, Gpu
from dbfs_workers.features.lab.enactor import policy_constants
from dbfs_workers.features.lab.pages import LinkedPages
from dbfs_workers.features.lab.strategies import CHOICES, STRATEGIES, Policy, parse
from dbfs_workers.features.lab.tuning import Tuning
from dbfs_workers.search.partition.stripe import NO_VERTEX
from dbfs_workers.search.reports import RankRun
from tests.support import oracle

# Every kind of level: long lists and many duplicates, many levels, one vertex a level, lists of one length, and a list
# of all vertices, which the grid walks in degree-classes.
GRAPHS = {
    "kronecker": lambda: generate.kronecker(14),
    "grid": lambda: generate.grid2d(60),
    "path": lambda: generate.path(700),
    "random": lambda: generate.uniform(20_000, 200_000, directed=False),
    "star": lambda: generate.star(200_000),
}
SMALL = {
    "kronecker": lambda: generate.kronecker(9),
    "grid": lambda: generate.grid2d(12),
    "star": lambda: generate.star(3_000),
}
SOURCES: Final = 3
CORPUS_SOURCES: Final = 10
# Small enough that each graph has lists of every class and levels of both kinds of hybrid; room for many duplicates.
TUNING: Final = Tuning(
    two_phase_from=4096, grid_degree=2048, child_degree=256, vertex_queue=16, edge_queue=16, grid_frontier=4096
)


@dataclass(frozen=True)
class Failure:
    """A traversal that was wrong, or ended with an error.

    Attributes:
        graph, policy: what ran.
        source: where it began.
        what: what was wrong.
    """

    graph: str
    policy: str
    source: int
    what: str


def policies(strategy: str) -> Iterator[Policy]:
    """Yield a strategy with its default options, then with each other value of each option."""
    usual = Policy(strategy)
    yield usual
    for option in STRATEGIES[strategy].options:
        for value in CHOICES[option]:
            if value != getattr(usual, option):
                yield replace(usual, **{option: value})


def words(policy: Policy) -> str:
    """Return a policy as callers write it, without its default options."""
    usual = Policy(policy.strategy)
    options = [f"{name}={getattr(policy, name)}" for name in CHOICES if getattr(policy, name) != getattr(usual, name)]
    return f"{policy.strategy}:{','.join(options)}".rstrip(":")


@dataclass(frozen=True)
class Case:
    """A graph with what SciPy finds on it.

    Attributes:
        name: the graph's name, for the failures.
        matrix: its adjacency matrix.
        transposed: the in-edges; the matrix itself of an undirected graph.
        expected: int32[n], the distances, by source.
        edges: int64[m], ascending: source * n + target.
    """

    name: str
    matrix: scipy.sparse.csr_array
    transposed: scipy.sparse.csr_array
    expected: dict[int, NDArray[np.int32]]
    edges: NDArray[np.int64]

    @classmethod
    def of(cls, name: str, graph: dbfs.EdgeList, sources: int = SOURCES) -> "Case":
        """Return the case of a graph: the vertex of the longest list, and random vertices that have an edge."""
        matrix = adjacency(graph)
        degrees = np.diff(matrix.indptr)
        random = np.random.default_rng(7).choice(np.flatnonzero(degrees), sources)
        chosen = [int(degrees.argmax()), *random.tolist()][:sources]
        edges = np.repeat(np.arange(matrix.shape[0]), degrees) * matrix.shape[0] + matrix.indices
        edges.sort()
        transposed = matrix.T.tocsr() if graph.directed else matrix
        return cls(name, matrix, transposed, {one: oracle.distances(matrix, [one]) for one in chosen}, edges)


def adjacency(graph: dbfs.EdgeList) -> scipy.sparse.csr_array:
    """Return a graph's adjacency matrix."""
    pieces = [piece.read() for piece in graph.cut(graph.m or 1)]
    src, dst = (np.concatenate(ends) for ends in zip(*pieces, strict=True))
    return oracle.adjacency(graph.n or 0, src, dst, directed=graph.directed)


def failures(
    chosen: Iterable[Policy], case: Case, device: Device | None = None, tuning: Tuning = TUNING
) -> Iterator[Failure | None]:
    """Traverse a graph by policies from each of its sources; yield each traversal's failure, or None.

    Args:
        chosen: the policies.
        case: the graph.
        device: where to run; None for the current GPU.
        tuning: sizes of the launches and the queues.
    """
    xp: Any = _cupy() if device is None else device.xp
    lists, in_edges = (
        (xp.asarray(one.indptr.astype(np.int64)), xp.asarray(one.indices.astype(np.uint32)))
        for one in (case.matrix, case.transposed)
    )
    for policy in chosen:
        # An emulated device has its own threads.
        sizes = replace(tuning, threads=int(policy.threads)) if device is None else tuning
        for source, expected in case.expected.items():
            try:
                pages = None
                if policy.storage == "pages":
                    pages = _changed_pages(case, device or Gpu(sizes.threads, policy_constants(policy)))
                run = enact.traverse(
                    *lists,
                    source,
                    policy,
                    lambda level, frontier: None,
                    predecessors=True,
                    in_edges=in_edges,
                    device=device,
                    tuning=sizes,
                    pages=pages,
                )
                wrong = _wrong(run, source, expected, case.edges)
            except QueueOverflowError as error:
                # Without claims, duplicates fill any queue. It depends on the order of the threads.
                wrong = str(error) if policy.status == "claims" else ""
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            yield Failure(case.name, words(policy), source, wrong) if wrong else None


def _changed_pages(case: Case, device: Device) -> LinkedPages:
    """Return pages of a graph's edges, of which half were inserted with others that were then deleted."""
    xp: Any = device.xp
    n, random = case.matrix.shape[0], np.random.default_rng(5)
    late = random.random(case.edges.size) < 0.5
    others = np.setdiff1d(random.integers(0, n * n, case.edges.size), case.edges)
    counts = np.bincount(case.edges[~late] // n, minlength=n)
    offsets, columns = np.concatenate([[0], np.cumsum(counts)]), (case.edges[~late] % n).astype(np.uint32)
    pages = LinkedPages(device, xp.asarray(offsets), xp.asarray(columns), spare=2 * case.edges.size)
    inserted, deleted = (
        xp.asarray((edges // n).astype(np.uint64) << np.uint64(32) | (edges % n).astype(np.uint64))
        for edges in (random.permutation(np.concatenate([case.edges[late], others])), others)
    )
    assert pages.insert(inserted) == inserted.size
    assert pages.delete(deleted) == deleted.size
    return pages


def _cupy() -> Any:
    import cupy

    return cupy


def _wrong(run: RankRun, source: int, expected: NDArray[np.int32], edges: NDArray[np.int64]) -> str:
    """Return what is wrong with a traversal, in words; empty if nothing is."""
    distances, parents = (getattr(found, "get", lambda found=found: found)() for found in _labels(run))
    if (different := np.flatnonzero(distances != expected)).size:
        first = different[0]
        return f"{different.size} distances differ; vertex {first} has {distances[first]}, not {expected[first]}"
    reached = expected >= 0
    if (parents[~reached] != NO_VERTEX).any() or parents[source] != source:
        return "an unreached vertex has a parent, or the source has another one"
    children = np.flatnonzero(reached & (np.arange(expected.size) != source))
    above = parents[children].astype(np.int64)
    if (above >= expected.size).any() or (expected[above] != expected[children] - 1).any():
        return "a parent is not one level up"
    keys = above * expected.size + children
    places = np.minimum(np.searchsorted(edges, keys), edges.size - 1)
    if (edges[places] != keys).any():
        return "a parent is not joined by an edge"
    counters = dict(run.counters)
    if counters["edges"] < run.edges or counters["expanded"] < run.reached or counters["duplicates"] < 0:
        return f"the counters are too small for {run.reached} vertices and {run.edges} edges: {counters}"
    return ""


def _labels(run: RankRun) -> tuple[Any, Any]:
    return run.labels.distances, run.labels.predecessors


def main(arguments: Sequence[str] | None = None) -> None:
    """Check the chosen strategies on all graphs; print a line for each strategy and graph, then the failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", type=parse, action="append", help="with options, these alone; without, all")
    parser.add_argument("--without", choices=enact.ENACTORS, action="append", default=[], help="not this strategy")
    parser.add_argument("--small", action="store_true", help="small graphs, for compute-sanitizer")
    parser.add_argument(
        "--corpus", type=int, help="Merrill's graphs at 1/CORPUS of their size, usual options and sizes, ten sources"
    )
    parser.add_argument("--graph", action="append", help="only this graph; without it all, one after another")
    chosen = parser.parse_args(arguments)
    graphs: dict[str, Callable[[], dbfs.EdgeList]] = SMALL if chosen.small else GRAPHS
    if chosen.corpus:
        graphs = {one.name: partial(generate.corpus, one.name, chosen.corpus) for one in generate.CORPUS}
    found: list[Failure] = []
    for name, make in ((name, make) for name, make in graphs.items() if name in (chosen.graph or graphs)):
        case = Case.of(name, make(), CORPUS_SOURCES if chosen.corpus else SOURCES)
        for given in chosen.strategy or [Policy(name) for name in enact.ENACTORS if name not in chosen.without]:
            usual = given == Policy(given.strategy)
            wanted = policies(given.strategy) if usual and not chosen.corpus else [given]
            outcomes = list(failures(wanted, case, tuning=Tuning() if chosen.corpus else TUNING))
            found += filter(None, outcomes)
            print(f"{words(given)}, {name}: {outcomes.count(None)} of {len(outcomes)} right", flush=True)
    for each in found:
        print(f"{each.policy}, {each.graph} from {each.source}: {each.what}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
