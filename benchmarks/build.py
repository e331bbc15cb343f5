"""The time and memory of builds on CPU cores, by graph, by the form in which the graph arrives, and by ranks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
import numpy as np
from numpy.typing import NDArray

import dbfs
from benchmarks.plan import Section
from dbfs.building.build import ORDERS
from dbfs.edges import generate

FORMS = ("generator", "arrays", "text", "matrix-market", "parquet", "parquet-ids", "parquet-names")
"""Forms of a graph: drawn on the workers, arrays of the client, or files in the formats of ``_SUFFIXES``.

The ids of ``parquet-ids`` are sparse integers, those of ``parquet-names`` strings; ``parquet`` has vertices 0..n-1.
"""

_SUFFIXES = {"text": ".txt", "matrix-market": ".mtx", "parquet": ".parquet"}
# Edges of a row group of ids, and of a piece that is drawn at a time.
_GROUP = 1 << 20
# Odd, so that the product differs for each vertex below 2^32.
_SCATTER = 2_654_435_761


@dataclass(frozen=True)
class BuildPlan:
    """A plan of ``bench_build``.

    Attributes:
        graphs: specs of generators.
        forms: some of ``FORMS``; each graph is built from each form.
        ranks: numbers of ranks, ascending.
        order: internal order of the vertices.
        repeats: number of builds; the fastest counts, and the highest peak.
    """

    graphs: tuple[str, ...]
    forms: tuple[str, ...]
    ranks: tuple[int, ...]
    order: str = "given"
    repeats: int = 3

    @classmethod
    def read(cls, path: Path) -> BuildPlan:
        """Read a plan from a YAML file.

        Raises:
            PlanError: the file is not a plan; the message names the key and what would be right.
        """
        section = Section.read(path)
        plan = cls(
            graphs=section.graphs("graphs"),
            forms=section.choices("forms", FORMS, ["generator"]),
            ranks=section.counts("ranks"),
            order=section.choice("order", ORDERS, "given"),
            repeats=section.count("repeats", 3),
        )
        section.end()
        return plan


@dataclass(frozen=True)
class BuildCost:
    """Cost of building one graph from one form on a number of ranks.

    Attributes:
        graph: the generator's spec.
        form: one of ``FORMS``.
        ranks: number of ranks.
        order: internal order of the vertices.
        edges: input edges.
        seconds: time from the client's call to resident partitions; for arrays, the way to the workers included.
        rate: input edges per second.
        partition: bytes of the partition, by rank.
        peak: most bytes that the worker's process took above those before the build, by rank.
        ratio: the largest of the peaks over their partitions.
        estimate: ``dbfs.estimate`` of the peak, in bytes for each rank; None if it is known only after reading.
    """

    graph: str
    form: str
    ranks: int
    order: str
    edges: int
    seconds: float
    rate: float
    partition: tuple[int, ...]
    peak: tuple[int, ...]
    ratio: float
    estimate: int | None


def bench_build(
    connect: Callable[[int], distributed.Client], plan: BuildPlan, started: Callable[[str], None] | None = None
) -> Iterator[BuildCost]:
    """Build every graph of a plan from every form on every number of ranks.

    Args:
        connect: returns a client of a cluster with this number of workers.
        plan: what to measure.
        started: called with the name of each build before its first repeat.
    """
    with tempfile.TemporaryDirectory(prefix="dbfs-bench-") as folder:
        for graph in plan.graphs:
            for form in plan.forms:
                source = arrives(graph, form, Path(folder))
                warm_up = arrives("kronecker:scale=10", form, Path(folder))
                for ranks in plan.ranks:
                    if started is not None:
                        started(f"{graph} from {form}, {ranks} rank{'s' * (ranks > 1)}")
                    with connect(ranks) as client:
                        # Compiles the kernels and loads the libraries, which would otherwise be part of the peak.
                        dbfs.load(warm_up, client=client, ranks=ranks, order=plan.order, progress=False).unload()
                        yield _measure(client, graph, form, source, ranks, plan)
                if isinstance(source, Path):
                    source.unlink()


def _measure(
    client: distributed.Client, graph: str, form: str, source: dbfs.EdgeList | Path, ranks: int, plan: BuildPlan
) -> BuildCost:
    """Build a graph ``plan.repeats`` times; see ``BuildCost``."""
    seconds, peaks = [], []
    for _ in range(plan.repeats):
        before = client.run(_forget_peak)
        with dbfs.load(source, client=client, ranks=ranks, order=plan.order, progress=False) as built:
            after = client.run(_peak)
            seconds.append(built.build_seconds)
            peaks.append([after[address] - before[address] for address in built.gang.addresses])
            partition, edges = built.nbytes, built.input_edges
    peak = tuple(max(of_rank) for of_rank in zip(*peaks, strict=True))
    return BuildCost(
        graph=graph,
        form=form,
        ranks=ranks,
        order=plan.order,
        edges=edges,
        seconds=min(seconds),
        rate=edges / min(seconds),
        partition=partition,
        peak=peak,
        ratio=max(most / size for most, size in zip(peak, partition, strict=True)),
        estimate=_estimate(source, ranks, plan.order),
    )


def _estimate(source: dbfs.EdgeList | Path, ranks: int, order: str) -> int | None:
    try:
        needed = dbfs.estimate(source, ranks, dbfs.BuildOptions(order=order))
    except dbfs.errors.EdgeInputError:
        return None
    return needed.partition_bytes + sum(needed.build.values())


def arrives(graph: str, form: str, folder: Path) -> dbfs.EdgeList | Path:
    """Return a generated graph in a form; files are written to ``folder``."""
    edges = generate.parse(graph)
    if form == "generator":
        return edges
    if form == "arrays":
        pieces = [piece.read() for piece in edges.cut(1 << 22)]
        src, dst = (np.concatenate(ids) for ids in zip(*pieces, strict=True))
        return dbfs.from_arrays(src, dst, n=edges.n, directed=edges.directed)
    if form in ("parquet-ids", "parquet-names"):
        path = folder / f"{edges.n}-{edges.m}-{form}.parquet"
        _write_ids(edges, path, names=form == "parquet-names")
        return path
    from dbfs.edges.writers import write_edges

    path = folder / f"{edges.n}-{edges.m}{_SUFFIXES[form]}"
    write_edges(edges, path)
    return path


def _write_ids(edges: dbfs.EdgeList, path: Path, *, names: bool) -> None:
    """Write a Parquet file of edges between scattered ids: integers below 2^32, or strings of about 15 bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    def ids_of(vertices: NDArray[np.int64]) -> Any:
        ids = pa.array((vertices * _SCATTER) & 0xFFFFFFFF)
        return pc.binary_join_element_wise(pa.scalar("user-"), ids.cast(pa.string()), "") if names else ids

    schema = pa.schema([(end, pa.string() if names else pa.int64()) for end in ("source", "target")])
    with pq.ParquetWriter(path, schema) as table:
        for piece in edges.cut(_GROUP):
            table.write_table(pa.table([ids_of(end) for end in piece.read()], schema=schema), row_group_size=_GROUP)


def _forget_peak() -> int:
    """Forget this process's peak so far, and return the bytes that the process takes now."""
    import gc

    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _peak()


def _peak() -> int:
    """Return the most bytes that this process took since ``_forget_peak``."""
    # Not getrusage's peak, which a process inherits from its parent.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
