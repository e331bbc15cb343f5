"""Run the resident kernels under compute-sanitizer: every kind of level, with a process and a GPU for each rank.

``make sanitize`` runs it; by hand::

    compute-sanitizer --tool racecheck --target-processes all \\
        python -m tests.search.cuda.sanitize --ranks 2 --whole-blocks

Every label is checked as well.
"""

import argparse
import time
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dbfs
from dbfs.edges import generate
from dbfs_workers.base.errors import DbfsError
from dbfs_workers.base.kernel_packages import PACKAGE
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.features.living.part import living_of
from dbfs_workers.features.living.update_spec import UpdateSpec
from dbfs_workers.search.cuda.kernels import sources
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.partition.partition import GraphTotals, Partition
from dbfs_workers.search.partition.stripe import NO_VERTEX, Stripe
from tests.support import oracle
from tests.support.graphs import circulant
from tests.support.partitions import build
from tests.support.sanitizing import SECONDS, connected_member, rank_processes, together

# Light levels, which are leader levels with several ranks; light levels of more sources than a leader level takes;
# leader levels that are handed over; sparse, dense and bottom-up levels; large degrees; one degree, so that the kernel
# counts degrees until the batch.
GRAPHS = {
    "grid2d": lambda: generate.grid2d(24),
    "path": lambda: generate.path(51_000),
    "tree": lambda: generate.tree(2**16, 2),
    "kronecker": lambda: generate.kronecker(13),
    "uniform": lambda: generate.uniform(20000, 150000, directed=False),
    "circulant": lambda: dbfs.from_arrays(*circulant(10_240, 20)[1:], n=10_240),
}
MANY = tuple(range(0, 51_000, 3))


def runs(name: str) -> list[TraversalSpec]:
    """Return the traversals of a graph."""
    few, more = ((1,), (1, 7)) if name != "path" else (MANY, MANY)
    return [
        TraversalSpec("run", few, predecessors=False, backend="cpu"),
        TraversalSpec("run", more, predecessors=True, backend="cpu"),
        TraversalSpec("run", few, predecessors=True, backend="cpu", direction="top-down"),
        TraversalSpec("run", few, predecessors=False, backend="cpu", direction="bottom-up", max_depth=4),
    ]


def partitions(graph: dbfs.EdgeList, ranks: int) -> list[Partition]:
    """Build the partitions of a graph."""
    src, dst = graph.cut(graph.m or 1)[0].read()
    stripe = Stripe(graph.n or 0, ranks)
    return build(stripe, src, dst, directed=False)


def whole_blocks() -> tuple[str, str]:
    """Return a header, as a name and a text, with which all threads of a block run each light level.

    racecheck takes no notice of a barrier that a part of a block crosses, and names pairs which that barrier orders.
    With all threads the reads and writes are the same, and racecheck sees the barrier.
    """
    name, part = "search/cuda/kernels/common/types.cuh", "kFewThreads = kThreads / 2;"
    text = (PACKAGE / name).read_text()
    assert part in text
    return name, text.replace(part, "kFewThreads = kThreads;")


def serve(whole: bool, rank: int, pipe: Connection) -> None:
    """Serve as one rank, with ``whole_blocks`` or without. The graphs come through the pipe, one after another."""
    import cupy

    if whole:
        sources._LAYOUT += (whole_blocks(),)  # type: ignore[misc, assignment]
    cupy.cuda.Device(rank).use()
    while (wanted := pipe.recv()) is not None:
        name, partition = wanted
        member, runner = connected_member(rank, pipe, partition)
        specs = runs(name)
        for number, spec in enumerate(specs * 2):
            if number == len(specs):
                partition = change(member, partition, pipe)
            pipe.recv()
            try:
                (done,) = runner.traverse(partition, number + 1, RunSpec.single(spec), time.monotonic() + SECONDS)
                fetched = runner.fetch(done.labels)
                rows = done.levels.summary.rows
                assert rows.tolist() == np.bincount(fetched.distances + 1, minlength=rows.size + 1)[1:].tolist()
                pipe.send(fetched)
            except DbfsError as error:
                pipe.send(error)
        pipe.recv()
        member.disconnect()
        pipe.send("detached")
        pipe.recv()
        member.close()


def change(member: Member, partition: Partition, pipe: Connection) -> Partition:
    """Insert the batch that comes through the pipe; return the next version."""
    living = living_of(member)
    following = living.updated(partition, UpdateSpec("insert-edges", False, edges=pipe.recv()))
    made = following.partition
    facts = following.facts
    assert facts is not None
    pipe.send((made.m_local, facts.connected, made.max_degree))
    living.take_over(made, pipe.recv(), facts)
    pipe.send("taken over")
    return made


def by_vertex(stripe: Stripe, of_ranks: list[NDArray[np.generic]]) -> NDArray[np.int64]:
    """Return labels in the order of vertices."""
    vertices = np.arange(stripe.n)
    return np.stack(of_ranks)[vertices % stripe.p, vertices // stripe.p].astype(np.int64)


def check(name: str, graph: dbfs.EdgeList, pipes: list[Connection]) -> None:
    """Check all runs of a graph against SciPy."""
    ranks = len(pipes)
    slices = partitions(graph, ranks)
    stripe = slices[0].stripe
    src, dst = graph.cut(graph.m or 1)[0].read()
    infos = together(pipes, [(name, part) for part in slices])
    together(pipes, [infos] * ranks)
    check_runs(name, stripe, src, dst, pipes)
    # Long edges in the grid and the tree make light levels of leader levels, or end both.
    added, back = np.random.default_rng(1).integers(0, stripe.n, (2, 500))
    batch = np.append(added, back[added != back]), np.append(back, added[added != back])
    facts: Any = together(pipes, [batch] * ranks)
    edges, connected, degrees = zip(*facts, strict=True)
    together(pipes, [GraphTotals(sum(edges), sum(connected), max(degrees))] * ranks)
    check_runs(f"{name} after a batch", stripe, np.append(src, added), np.append(dst, back), pipes)
    together(pipes, ["detach"] * ranks)
    for pipe in pipes:
        pipe.send("close")


def check_runs(
    name: str, stripe: Stripe, src: NDArray[np.int64], dst: NDArray[np.int64], pipes: list[Connection]
) -> None:
    """Check the runs of one version."""
    ranks, matrix = len(pipes), oracle.adjacency(stripe.n, src, dst, directed=False)
    for spec in runs(name.split()[0]):
        labels: Any = together(pipes, [spec.run_id] * ranks)
        for answer in labels:
            if isinstance(answer, Exception):
                raise answer
        found = by_vertex(stripe, [rank.distances for rank in labels])
        np.testing.assert_array_equal(found, oracle.distances(matrix, list(spec.sources), spec.max_depth))
        if spec.predecessors:
            ids = by_vertex(stripe, [rank.predecessors for rank in labels])
            parents = np.where(ids == NO_VERTEX, -1, stripe.vertex(ids))
            oracle.assert_valid_parents(matrix, found.astype(np.int32), parents, list(spec.sources))
        print(f"{name}, {ranks} ranks, {spec.direction}: right", flush=True)


def main() -> None:
    """Run every graph on the chosen number of GPUs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--graph", choices=list(GRAPHS), action="append")
    parser.add_argument("--whole-blocks", action="store_true", help="for racecheck, which sees no barrier of a part")
    chosen = parser.parse_args()
    with rank_processes(partial(serve, chosen.whole_blocks), chosen.ranks) as pipes:
        for name in chosen.graph or GRAPHS:
            check(name, GRAPHS[name](), pipes)


if __name__ == "__main__":
    main()
