"""Check the strategies of the laboratory on a GPU against SciPy: each with each value of each of its options.

``make sanitize`` runs it on the smallest graphs; by hand, on larger ones too::

    python -m tests.support.lab_checks
    compute-sanitizer --tool racecheck python -m tests.support.lab_checks --small

All failures are collected into a table. There is no Dask: the sanitizer should slow down the kernels only.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

import dbfs
from dbfs.edges import generate
from dbfs_workers.errors import QueueOverflowError
from dbfs_workers.lab import enact
from dbfs_workers.lab.device import Device
from dbfs_workers.lab.strategies import CHOICES, STRATEGIES, Policy
from dbfs_workers.lab.tuning import Tuning
from dbfs_workers.reports import RankRun
from dbfs_workers.storage.stripe import NO_VERTEX
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


def adjacency(graph: dbfs.EdgeList) -> scipy.sparse.csr_array:
    """Return a graph's adjacency matrix."""
    pieces = [piece.read() for piece in graph.cut(graph.m or 1)]
    src, dst = (np.concatenate(ends) for ends in zip(*pieces, strict=True))
    return oracle.adjacency(graph.n or 0, src, dst, directed=False)


def sources(matrix: scipy.sparse.csr_array, count: int) -> list[int]:
    """Return the vertex of the longest list, and random vertices that have an edge."""
    degrees = np.diff(matrix.indptr)
    random = np.random.default_rng(7).choice(np.flatnonzero(degrees), count)
    return [int(degrees.argmax()), *random.tolist()][:count]


def failures(
    strategy: str, name: str, graph: dbfs.EdgeList, device: Device | None = None, tuning: Tuning = TUNING
) -> Iterator[Failure | None]:
    """Traverse a graph by every policy of a strategy from some sources; yield each traversal's failure, or None.

    Args:
        strategy: the strategy's name.
        name: the graph's name, for the failures.
        graph: the graph.
        device: where to run; None for the current GPU.
        tuning: sizes of the launches and the queues.
    """
    matrix = adjacency(graph)
    xp: Any = _cupy() if device is None else device.xp
    offsets, columns = xp.asarray(matrix.indptr.astype(np.int64)), xp.asarray(matrix.indices.astype(np.uint32))
    edges = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)) * matrix.shape[0] + matrix.indices
    edges.sort()
    for source in sources(matrix, SOURCES):
        expected = oracle.distances(matrix, [source])
        for policy in policies(strategy):
            try:
                run = enact.traverse(
                    *(offsets, columns, source, policy, lambda level, frontier: None),
                    predecessors=True,
                    in_edges=(offsets, columns),
                    device=device,
                    tuning=tuning,
                )
                wrong = _wrong(run, source, expected, edges)
            except QueueOverflowError as error:
                # Without claims, duplicates fill any queue. It depends on the order of the threads.
                wrong = str(error) if policy.status == "claims" else ""
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            yield Failure(name, words(policy), source, wrong) if wrong else None


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
    parser.add_argument("--strategy", choices=list(enact.ENACTORS), action="append")
    parser.add_argument("--small", action="store_true", help="small graphs, for compute-sanitizer")
    chosen = parser.parse_args(arguments)
    found: list[Failure] = []
    for strategy in chosen.strategy or enact.ENACTORS:
        for name, make in (SMALL if chosen.small else GRAPHS).items():
            outcomes = list(failures(strategy, name, make()))
            found += filter(None, outcomes)
            print(f"{strategy}, {name}: {outcomes.count(None)} of {len(outcomes)} right", flush=True)
    for each in found:
        print(f"{each.policy}, {each.graph} from {each.source}: {each.what}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
