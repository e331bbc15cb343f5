"""The time and memory of builds on CPU cores, by graph, by the form in which the graph arrives, and by ranks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import click
import distributed
import numpy as np
from numpy.typing import NDArray

import dbfs
from benchmarks import options
from benchmarks import plan as plans
from benchmarks.runner import Column, Results, Started, begun, connect
from dbfs.base import progress
from dbfs.base.units import format_bytes
from dbfs.building.build import ORDERS
from dbfs.cli.common import GraphType
from dbfs.edges import generate
from dbfs_workers.base.text import counted

FORMS = ("generator", "arrays", "text", "matrix-market", "parquet", "parquet-ids", "parquet-names")
"""Forms of a graph: drawn on the workers, arrays of the client, or files in the formats of ``_SUFFIXES``.

The ids of ``parquet-ids`` are sparse integers, those of ``parquet-names`` strings; ``parquet`` has vertices 0..n-1.
"""

_SUFFIXES = {"text": ".txt", "matrix-market": ".mtx", "parquet": ".parquet"}
# Edges of a row group of ids, and of a piece that is drawn at a time.
_GROUP = 1 << 20
# Odd, so that the product differs for each vertex below 2^32.
_SCATTER = 2_654_435_761


@dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """A plan: each graph is built from each form; the fastest of the repeats counts, and the highest peak."""

    graphs: Annotated[tuple[str, ...], plans.graphs]
    forms: Annotated[tuple[str, ...], plans.some_of(FORMS)] = ("generator",)
    ranks: Annotated[tuple[int, ...], plans.counts]
    order: Annotated[str, plans.one_of(ORDERS)] = "given"
    repeats: Annotated[int, plans.count] = 3


def _largest(sizes: tuple[int, ...]) -> str:
    return format_bytes(max(sizes))


@dataclass(frozen=True)
class BuildCost:
    """Cost of building one graph from one form on a number of ranks.

    Attributes:
        form: one of ``FORMS``.
        order: internal order of the vertices.
        edges: input edges.
        seconds: time from the client's call to resident partitions; for arrays, the way to the workers included.
        rate: input edges per second.
        partition: bytes of the partition, by rank.
        peak: most bytes that the worker's process took above those before the build, by rank.
        ratio: the largest of the peaks over their partitions.
        estimate: ``dbfs.estimate`` of the peak, in bytes for each rank; None if it is known only after reading.
        estimated: ``estimate`` over the largest peak.
    """

    graph: Annotated[str, Column()]
    form: Annotated[str, Column()]
    ranks: Annotated[int, Column()]
    order: Annotated[str, Column()]
    edges: int
    seconds: Annotated[float, Column("", ".2f")]
    rate: Annotated[float, Column("M edges/s", ".1f", times=1e-6)]
    partition: Annotated[tuple[int, ...], Column(form=_largest)]
    peak: tuple[int, ...]
    ratio: Annotated[float, Column("peak /\npartition", ".2f")]
    estimate: int | None
    estimated: Annotated[float | None, Column("estimate\n/ peak", ".0%")]


@click.command()
@options.plan
@click.option("--graph", "graphs", type=GraphType(), multiple=True, help="A generator, instead of the plan's.")
@click.option("--form", "forms", type=click.Choice(FORMS), multiple=True, help="A form, instead of the plan's.")
@click.option("--ranks", type=click.IntRange(1), multiple=True, help="Number of workers, instead of the plan's.")
@options.memory
@options.json
def build(plan: str, memory_limit: str, file: str | None, **instead: Any) -> None:
    """Measure the time and memory of building graphs.

    A graph is built from its generator, from arrays, and from files: of vertices, of sparse integer ids (parquet-ids)
    or of strings (parquet-names). The peak is the memory that a worker takes beyond what it had before the build, next
    to the memory of its partition. --graph, --form and --ranks may be repeated.

    Example: dbfs bench build --graph kronecker:scale=18 --form generator --ranks 2
    """
    chosen = plans.read(BuildPlan, plans.find("build", plan))
    instead["ranks"] = tuple(sorted(set(instead["ranks"])))
    given: dict[str, Any] = {name: values for name, values in instead.items() if values}
    chosen = replace(chosen, **given)
    builds = len(chosen.graphs) * len(chosen.forms) * len(chosen.ranks)
    with Results("build", file) as results, progress.bar("bench build", builds) as bar:
        costs = bench_build(lambda ranks: connect(ranks, "cpu", memory_limit), chosen, begun(bar))
        results.take("costs", costs, "Builds")


def bench_build(connect: Callable[[int], distributed.Client], plan: BuildPlan, started: Started) -> Iterator[BuildCost]:
    """Build every graph of a plan from every form on every number of ranks.

    ``connect`` returns a client of a cluster with this number of workers.
    """
    with tempfile.TemporaryDirectory(prefix="dbfs-bench-") as folder:
        for graph in plan.graphs:
            for form in plan.forms:
                source = arrives(graph, form, Path(folder))
                warm_up = arrives("kronecker:scale=10", form, Path(folder))
                for ranks in plan.ranks:
                    started(f"{graph} from {form}, {counted(ranks, 'rank')}")
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
    estimate = _estimate(source, ranks, plan.order)
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
        estimate=estimate,
        estimated=None if estimate is None else estimate / max(peak),
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
