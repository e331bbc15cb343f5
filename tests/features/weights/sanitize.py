"""Run the kernels of shortest paths by weight under compute-sanitizer, with a process and a GPU for each rank.

``make sanitize`` runs it, as it does ``tests.search.cuda.sanitize``. Every label is checked as well.
"""

import argparse
import time
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.features.weights.columns import EdgeWeights
from dbfs_workers.features.weights.purpose import Weighted
from dbfs_workers.features.weights.resident_part import ResidentWeights
from dbfs_workers.search.partition.partition import Partition
from tests.support.gang import partitions
from tests.support.graphs import random
from tests.support.sanitizing import SECONDS, connected_member, rank_processes, together
from tests.support.weights import arcs, assert_tree, by_column, expected, labels

N = 3000
SOURCES = (3, 50)
# Narrow buckets, whose rounds are one block's; the rule's; one bucket, whose rounds are all blocks'.
PURPOSES = (Weighted("w", delta=1), Weighted("w"), Weighted("w", delta=1e9))


def serve(rank: int, pipe: Connection) -> None:
    """Serve as one rank. The columns of weights come through the pipe, one after another."""
    import cupy

    cupy.cuda.Device(rank).use()
    partition: Partition = pipe.recv()
    member, runner = connected_member(rank, pipe, partition)
    number = 0
    while (weights := pipe.recv()) is not None:
        part = member.part_for(PURPOSES[0])
        assert isinstance(part, ResidentWeights)
        part.weights["w"] = EdgeWeights(None, partition.version, weights, None)
        for purpose in PURPOSES:
            number += 1
            spec = TraversalSpec("run", SOURCES, True, "cuda", direction="top-down", purpose=purpose)
            (done,) = runner.traverse(partition, number, RunSpec.single(spec), time.monotonic() + SECONDS)
            pipe.send(SimpleNamespace(labels=runner.fetch(done.labels)))
            pipe.recv()
    member.disconnect()
    member.close()


def check(arrays: Any, weights: NDArray[Any], parts: list[Partition], pipes: list[Connection]) -> None:
    """Check the runs by a column against a heap's Dijkstra."""
    of = arcs(arrays, weights, directed=True)
    want = expected(N, of, list(SOURCES), weights.dtype)
    messages: list[object] = [by_column(part, of, weights.dtype) for part in parts]
    for purpose in PURPOSES:
        made: Any = together(pipes, messages)
        messages = ["next"] * len(pipes)
        distances, parents = labels(made, N)
        np.testing.assert_array_equal(distances, want)
        assert parents is not None
        assert_tree(of, list(SOURCES), distances, parents)
        print(f"{weights.dtype}, {len(pipes)} ranks, delta {purpose.delta}: right", flush=True)
    for pipe in pipes:
        pipe.send("next")


def main() -> None:
    """Search by every type of weights on the chosen number of GPUs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1)
    count = parser.parse_args().ranks
    arrays, generator = random(N, 5 * N, 7), np.random.default_rng(7)
    parts = list(partitions(*arrays, count, directed=True))
    with rank_processes(serve, count) as pipes:
        offers = together(pipes, [*parts])
        together(pipes, [offers] * count)
        whole = generator.integers(0, 50, 5 * N)
        for weights in (whole, whole + 2**40, whole.astype(np.float32), generator.random(5 * N)):
            check(arrays, weights, parts, pipes)


if __name__ == "__main__":
    main()
