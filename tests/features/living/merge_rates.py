"""How fast batches change a living graph on one GPU, and traversals before and after::

    python -m tests.features.living.merge_rates --scale 24 --edges 10000000

Batches of random edges, uniform and of a Kronecker graph with other seeds, are inserted into a Kronecker graph and
deleted again. Times are by the host's clock with the GPU idle before and after, medians of ``--times``. ``edges`` come
from the host's memory; ``next version`` sorts and merges keys on the GPU and derives what the resident kernel needs.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dbfs.edges import generate
from dbfs.edges.edge_list import EdgeList
from dbfs_workers.assembly import resident_parts
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.building import cuda as building
from dbfs_workers.features.living import cuda_versions as living
from dbfs_workers.features.living.update_spec import UpdateSpec
from dbfs_workers.search.members.member import Member
from dbfs_workers.search.members.resident import ResidentRunner, on_device
from dbfs_workers.search.partition.partition import GraphTotals, Partition
from dbfs_workers.search.partition.stripe import Stripe
from tests.support.exchanges import connect

SOURCES = 24


class Graph:
    """A Kronecker graph on one GPU.

    Args:
        scale: logarithm of the number of vertices.
        edges: edges of a batch.
    """

    def __init__(self, scale: int, edges: int) -> None:
        import cupy

        self.cupy: Any = cupy
        self.scale, self.edges = scale, edges
        drawn = generate.kronecker(scale)
        stripe = Stripe(2**scale, 1)
        rows = (0, stripe.n_local)
        ends = self.draw(drawn, drawn.m or 0)
        keys = building.bin_edges(*ends, stripe, symmetrise=True, name="", where="", rows=rows).keys
        made = building.make_csr(keys, stripe, 0, rows=rows, by_position=False, where="")
        counts = made.self_loops, made.duplicates, drawn.m or 0
        self.partition = Partition(stripe, 0, made.row_offsets, made.columns, *counts, directed=False)
        self.runner = ResidentRunner("graph")
        self.member = Member(0, "partition", self.runner, resident_parts(self.runner))
        self.member.make(self.partition)
        connect([self.member])
        degrees = cupy.asnumpy(cupy.diff(made.row_offsets))
        self.sources = np.random.default_rng(1).choice(np.flatnonzero(degrees), SOURCES).tolist()
        self.runs = 0

    def draw(self, drawn: EdgeList, edges: int) -> tuple[Any, Any]:
        """Draw the first edges of a generator on the GPU."""
        piece: Any = next(iter(drawn.cut(edges)))
        return piece.read_on(self.cupy)

    def seconds(self, work: Callable[[], object]) -> tuple[float, Any]:
        """Time a call, and return its result."""
        self.cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        result = work()
        self.cupy.cuda.Device().synchronize()
        return time.perf_counter() - start, result

    def batch(self, kind: str, number: int) -> tuple[Any, Any]:
        """Return a batch on the host: uint32 sources and targets."""
        if kind == "uniform":
            src, dst = np.random.default_rng(number).integers(0, 2**self.scale, (2, self.edges))
        else:
            drawn = self.draw(generate.kronecker(self.scale, seed1=number + 7), self.edges)
            src, dst = map(self.cupy.asnumpy, drawn)
        return src.astype(np.uint32), dst.astype(np.uint32)

    def change(self, partition: Partition, kind: str, keys: Any) -> tuple[float, Partition]:
        """Time the next version."""
        spec, keys = UpdateSpec(kind, False), keys.copy()

        def following() -> Partition:
            made = living.updated(partition, spec, keys, None).partition
            on_device(made)
            return made

        return self.seconds(following)

    def rate(self, partition: Partition) -> float:
        """Return the median rate of traversals of most of the graph, in billions of edges a second."""
        facts = on_device(partition)
        self.runner.read(partition, GraphTotals(partition.m_local, facts.connected, facts.max_degree), facts)
        rates = []
        for source in self.sources * 2:
            self.runs += 1
            spec = TraversalSpec("run", (source,), predecessors=True, backend="cuda")
            (run,) = self.runner.traverse(partition, self.runs, RunSpec.single(spec), time.monotonic() + 60)
            if run.edges > partition.m_local / 2:
                rates.append(run.edges / run.elapsed / 1e9)
        return statistics.median(rates[len(rates) // 2 :])


def main() -> None:
    """Measure both kinds of batches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=24)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--times", type=int, default=5)
    chosen = parser.parse_args()
    graph = Graph(chosen.scale, chosen.edges)
    print(f"{graph.partition.m_local:,} directed edges, {graph.partition.nbytes:,} bytes; batches of {chosen.edges:,}")
    for kind in ("uniform", "kronecker"):
        times: dict[str, list[float]] = {}
        for number in range(chosen.times + 1):
            src, dst = graph.batch(kind, number)
            taken, (keys, _) = graph.seconds(
                lambda src=src, dst=dst: living.update_keys(graph.partition, src, dst, symmetrise=True)
            )
            added, more = graph.change(graph.partition, "insert-edges", keys)
            deleted, fewer = graph.change(more, "delete-edges", keys)
            for name, each in (("edges", taken), ("insert", added), ("delete", deleted)):
                times.setdefault(name, []).append(each)
        medians = {name: statistics.median(each[1:]) for name, each in times.items()}
        for name in ("insert", "delete"):
            print(
                f"{kind}, {name}: edges {medians['edges'] * 1e3:.1f} ms, next version {medians[name] * 1e3:.1f} ms; "
                f"{src.size / medians[name] / 1e6:.0f} M edges/s, with the edges' way to the GPU "
                f"{src.size / (medians['edges'] + medians[name]) / 1e6:.0f} M/s"
            )
        loaded, grown, shrunk = (graph.rate(each) for each in (graph.partition, more, fewer))
        print(
            f"{kind}: {loaded:.1f} GTEPS as loaded, {grown:.1f} after a batch, {shrunk:.1f} after its deletion; "
            f"{more.nbytes / graph.partition.nbytes:.3f} of the bytes as loaded"
        )
        single, _ = graph.change(graph.partition, "insert-edges", keys[:2])
        print(f"{kind}: one edge {single * 1e3:.2f} ms")
    graph.member.disconnect()
    graph.member.close()


if __name__ == "__main__":
    main()
