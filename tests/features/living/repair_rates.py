"""How long a repair takes on one GPU next to a new traversal::

    python -m tests.features.living.repair_rates corpus:europe.osm,scale-down=8 grid2d:side=1000 --edges 1000

For each graph, edges are deleted, the labels repaired and a new traversal made; then the edges are inserted again.
The edges are drawn from the labels' tree, or with ``--all`` from all. Times are by the host's clock, of the rank's
part of the call. Repaired distances are compared with those of the new traversal. A repair without rounds was given up
and a new traversal made instead.
"""

import argparse
import statistics
import time
from dataclasses import replace
from typing import Any

import numpy as np

from dbfs.edges.resolve import edge_list
from dbfs_workers.assembly import resident_parts
from dbfs_workers.base.spec import RunSpec, TraversalSpec
from dbfs_workers.building import cuda as building
from dbfs_workers.features.living import cuda_repair as repair
from dbfs_workers.features.living import cuda_versions as living
from dbfs_workers.features.living.change_log import EdgeChanges, VersionChanges
from dbfs_workers.features.living.part import living_of
from dbfs_workers.features.living.purpose import Repair
from dbfs_workers.features.living.update_spec import UpdateSpec
from dbfs_workers.search.members.member import Member, OwnedLabels
from dbfs_workers.search.members.resident import ResidentRunner, on_device
from dbfs_workers.search.partition.partition import GraphTotals, Partition
from dbfs_workers.search.partition.stripe import Stripe
from tests.support.exchanges import connect


class Graph:
    """A graph on one GPU, and the labels of one source.

    Args:
        name: the graph, as ``dbfs.load`` takes it.
    """

    def __init__(self, name: str) -> None:
        import cupy

        self.cupy: Any = cupy
        drawn = edge_list(name)
        stripe = Stripe(drawn.n or 0, 1)
        pieces = [piece.read() for piece in drawn.cut(1 << 24)]
        src, dst = (cupy.asarray(np.concatenate([piece[side] for piece in pieces]).astype(np.int64)) for side in (0, 1))
        rows = (0, stripe.n_local)
        keys = building.bin_edges(src, dst, stripe, symmetrise=True, name="", where="", rows=rows).keys
        del src, dst
        made = building.make_csr(keys, stripe, 0, rows=rows, by_position=False, where="")
        counts = made.self_loops, made.duplicates, drawn.m or 0
        self.partition = Partition(stripe, 0, made.row_offsets, made.columns, *counts, directed=False)
        self.runner = ResidentRunner("graph")
        self.member = Member(0, "partition", self.runner, resident_parts(self.runner))
        self.member.make(self.partition)
        connect([self.member])
        degrees = cupy.asnumpy(cupy.diff(made.row_offsets))
        self.source = int(np.random.default_rng(1).choice(np.flatnonzero(degrees)))
        self.number = 0
        self.spec = TraversalSpec("run", (self.source,), predecessors=True, backend="cuda")

    def traverse(self, spec: TraversalSpec) -> tuple[float, Any]:
        """Time a traversal, or a repair."""
        self.number += 1
        self.cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        (run,) = self.runner.traverse(self.partition, self.number, RunSpec.single(spec), time.monotonic() + 60)
        self.cupy.cuda.Device().synchronize()
        return time.perf_counter() - start, run

    def keep(self, run: Any) -> None:
        """Keep the labels of a traversal, to be repaired."""
        seconds = run.traversal_seconds or run.elapsed
        self.member.kept = {("kept", 0): OwnedLabels("client", run.labels, self.partition.version, seconds)}

    def change(self, kind: str, src: Any, dst: Any) -> float:
        """Make the next version, and return the seconds that this took."""
        self.cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        keys, _ = living.update_keys(self.partition, src, dst, symmetrise=True)
        made = living.updated(self.partition, UpdateSpec(kind, False), keys, None)
        facts = on_device(made.partition)
        self.partition = made.partition
        totals = GraphTotals(facts.m_local, facts.connected, facts.max_degree)
        self.runner.read(self.partition, totals, facts)
        self.cupy.cuda.Device().synchronize()
        seconds = time.perf_counter() - start
        assert made.changes.keys is not None
        edges = EdgeChanges.of(made.changes.keys, self.partition.stripe, hub_first=False)
        logged = VersionChanges(self.partition.version, edges, kind == "delete-edges")
        living_of(self.member).log.add(logged, self.partition.m_local)
        return seconds

    def drawn(self, edges: int, generator: np.random.Generator, labels: Any, everything: bool) -> tuple[Any, Any]:
        """Draw edges of the tree, or of the graph."""
        cupy, rows = self.cupy, self.partition.stripe.n
        if everything:
            at = cupy.asarray(generator.choice(self.partition.m_local, edges, replace=False))
            src = cupy.searchsorted(self.partition.row_offsets, at, side="right") - 1
            return cupy.asnumpy(src).astype(np.uint32), cupy.asnumpy(self.partition.columns[at])
        found: Any = np.empty(0, np.int64)
        while found.size < edges:
            drawn = generator.integers(0, rows, 4 * edges)
            found = np.unique(np.append(found, drawn[cupy.asnumpy(labels.distances[cupy.asarray(drawn)]) > 0]))
        found = generator.permutation(found)[:edges]
        return cupy.asnumpy(labels.predecessors[cupy.asarray(found)]), found.astype(np.uint32)


def measure(name: str, edges: int, times: int, everything: bool) -> None:
    """Measure repairs on one graph."""
    graph, generator = Graph(name), np.random.default_rng(2)
    rounds: list[int] = []
    repaired = repair.repair

    def counted(*arguments: Any) -> Any:
        done = repaired(*arguments)
        rounds.append(0 if done is None else done.rounds)
        return done

    repair.repair = counted
    _, run = graph.traverse(graph.spec)
    seconds, run = graph.traverse(graph.spec)
    size = f"{graph.partition.stripe.n:,} vertices, {graph.partition.m_local:,} directed edges"
    print(f"{name}: {size}, depth {run.depth:,}, traversal {seconds * 1e3:.2f} ms", flush=True)
    ratios: dict[str, list[float]] = {}
    for index in range(times + 1):
        batch = graph.drawn(edges, generator, run.labels, everything)
        for kind in ("delete-edges", "insert-edges"):
            graph.keep(run)
            version = graph.change(kind, *batch)
            rounds.clear()
            taken, run = graph.traverse(replace(graph.spec, purpose=Repair(("kept", 0))))
            changed = run.changed.get().size
            anew, other = graph.traverse(graph.spec)
            assert bool((run.labels.distances == other.labels.distances).all()), "wrong distances"
            assert (run.reached, run.edges, run.depth) == (other.reached, other.edges, other.depth)
            if index:
                ratios.setdefault(kind, []).append(anew / taken)
                print(
                    f"  {kind}: repair {taken * 1e3:.2f} ms ({sum(rounds)} rounds, {changed:,} rows changed), "
                    f"traversal {anew * 1e3:.2f} ms, ratio {anew / taken:.2f}; version {version * 1e3:.2f} ms",
                    flush=True,
                )
    for kind, each in ratios.items():
        print(f"{name}, {edges} edges, {kind}: median ratio {statistics.median(each):.2f}, least {min(each):.2f}")
    repair.repair = repaired
    graph.member.disconnect()
    graph.member.close()


def main() -> None:
    """Measure all graphs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--edges", type=int, nargs="+", default=[1000])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--share", type=float, help="share of a traversal's time that a repair may take")
    parser.add_argument("--all", action="store_true", help="draw from all edges, not from the tree")
    chosen = parser.parse_args()
    if chosen.share is not None:
        repair._SHARE = chosen.share  # type: ignore[misc]
    for name in chosen.graphs:
        for edges in chosen.edges:
            measure(name, edges, chosen.times, chosen.all)


if __name__ == "__main__":
    main()
