"""The GPU memory that ``dbfs.estimate`` computes, next to measurements.

The measurement is the decrease of the free memory that CUDA reports (``dbfs_workers.search.cuda.sampler``), so no other
program may use the GPUs. Each graph is loaded and traversed twice, and only the second time counts. The first time
creates CUDA's context, and compiles and loads kernels; an estimate includes none of these. A smaller graph can't take
the place of the first time, because CuPy sorts and sums it with other kernels.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import click
import distributed

import dbfs
from benchmarks import options
from benchmarks.gpu import ROWS
from benchmarks.runner import Column, Results, chosen, connect
from dbfs.cluster.connect import roster
from dbfs.cluster.deadline import Deadline
from dbfs.cluster.gang import Gang, run_on
from dbfs_workers.base.text import counted
from dbfs_workers.search.cuda import sampler

T = TypeVar("T")

# Released labels are dropped after 0.2 s (``dbfs.service``), and Dask frees results a little later.
_POLL_SECONDS = 0.3
_SETTLED_SECONDS = 30.0


@dataclass(frozen=True)
class Subject:
    """A graph to measure, by its name in the literature and its spec, with options of ``dbfs.load``."""

    graph: str
    spec: str
    order: str
    in_edges: bool = False


SUBJECTS = (
    *dict.fromkeys(Subject(row.graph, row.spec, row.order) for row in ROWS),
    Subject("rmat.2Mv.128Me in-edges", "corpus:rmat.2Mv.128Me", "given", in_edges=True),
)


def _gib(of_ranks: tuple[int, ...]) -> str:
    return f"{max(of_ranks) / 2**30:.3f}"


@dataclass(frozen=True)
class MemoryUse:
    """The GPU memory of a graph in one stage, in bytes of a rank's GPU: an estimate next to measurements by rank.

    Attributes:
        exchange: how the ranks exchanged; the estimate is for ``cuda_ipc``.
        when: the stage. ``load``: building the graph and forming the gang. ``run``: one traversal without predecessors
            and one with them. ``at most``: the larger of the two, which ``dbfs.estimate`` calls the peak.
        peak_estimate, peak: the most memory during the stage.
        peak_percent: the estimate in percent of the largest measurement.
        resident_estimate, resident, resident_percent: the memory after the stage; after ``run`` it includes the labels
            of the last traversal. None for ``at most``.
        gap: the longest time between two samples, in milliseconds. A shorter peak may have been missed.
    """

    graph: Annotated[str, Column()]
    order: Annotated[str, Column()]
    exchange: str
    when: Annotated[str, Column(about="GiB on the GPU with the largest measurement; %: the estimate in percent of it")]
    peak_estimate: Annotated[int, Column("peak,\nestimate", ".3f", times=2**-30)]
    peak: Annotated[tuple[int, ...], Column("\nmeasured", _gib)]
    peak_percent: Annotated[float, Column("\n%", ".1f")]
    resident_estimate: Annotated[int | None, Column("resident,\nestimate", ".3f", times=2**-30)]
    resident: Annotated[tuple[int, ...] | None, Column("\nmeasured", _gib)]
    resident_percent: Annotated[float | None, Column("\n%", ".1f")]
    gap: float


@click.command()
@options.gpus
@options.gpu_graphs
@options.memory
@options.json
def memory(gpus: int, graphs: Sequence[str], memory_limit: str, file: str | None) -> None:
    """Measure GPU memory, next to the estimate of dbfs estimate.

    No other program may use the GPUs meanwhile.

    Example: dbfs bench memory --gpus 4 --graph "kronecker 24"
    """
    subjects = chosen(SUBJECTS, graphs)
    with Results("memory", file, gpus=gpus) as results, connect(gpus, "cuda", memory_limit) as client:
        uses = bench_memory(client, gpus, subjects)
        results.take("uses", uses, f"{counted(gpus, 'GPU')}, {results.revision}")


def bench_memory(client: distributed.Client, gpus: int, subjects: Sequence[Subject]) -> Iterator[MemoryUse]:
    """Load and traverse each graph twice; yield the three stages of the second time."""
    gang = Gang(client, roster(client, gpus))
    for subject in subjects:
        _measure(gang, subject)
        yield from _measure(gang, subject)


@contextmanager
def sampled(gang: Gang) -> Iterator[list[sampler.Peak]]:
    """Sample the GPUs of all ranks during the block. After the block, the list has the peaks by rank."""
    peaks: list[sampler.Peak] = []
    try:
        _on_ranks(gang, sampler.start)
        yield peaks
    except BaseException:
        # A rank may be lost, so stopping may also fail; a sampler that is not stopped ends at its own deadline.
        with suppress(Exception):
            run_on(gang.client, sampler.stop, workers=gang.addresses, on_error="ignore")
        raise
    peaks.extend(_on_ranks(gang, sampler.stop))


def _measure(gang: Gang, subject: Subject) -> list[MemoryUse]:
    layout: dict[str, Any] = {"order": subject.order, "in_edges": subject.in_edges}
    needed = dbfs.estimate(subject.spec, gang.p, dbfs.BuildOptions(**layout), backend="cuda")
    built = needed.partition_bytes + sum(needed.build.values())
    running = needed.partition_bytes + sum(needed.run.values())
    formed = running - needed.run["labels"]

    before = _settled(gang, sampler.used_after_release)
    with sampled(gang) as loading:
        graph = dbfs.load(subject.spec, client=gang.client, ranks=gang.p, backend="cuda", **layout)
    with graph:
        loaded = _settled(gang, sampler.used)
        source = graph.sample_sources(1)[0]
        # The search for a source takes memory that is not the traversals'.
        _settled(gang, sampler.used_after_release)
        with sampled(gang) as traversing:
            graph.bfs(source).release()
            result = graph.bfs(source, predecessors=True)
        traversed = _settled(gang, sampler.used)
        result.release()

    def use(
        when: str, estimate: int, peaks: Sequence[sampler.Peak], resident: tuple[int, Sequence[int]] | None
    ) -> MemoryUse:
        peak = _compared(estimate, [peak.nbytes for peak in peaks], before)
        after = _compared(*resident, before) if resident else (None, None, None)
        figures: tuple[Any, ...] = (*peak, *after, 1e3 * max(peak.gap for peak in peaks))
        return MemoryUse(subject.graph, subject.order, graph.exchange, when, *figures)

    either = [max(pair, key=lambda peak: peak.nbytes) for pair in zip(loading, traversing, strict=True)]
    return [
        use("load", max(built, formed), loading, (formed, loaded)),
        use("run", running, traversing, (running, traversed)),
        use("at most", needed.peak_bytes, either, None),
    ]


def _compared(estimate: int, used: Sequence[int], before: Sequence[int]) -> tuple[int, tuple[int, ...], float]:
    """Return an estimate, the increases of the bytes in use by rank, and the estimate in percent of the largest."""
    measured = tuple(now - base for now, base in zip(used, before, strict=True))
    return estimate, measured, 100 * estimate / max(1, *measured)


def _settled(gang: Gang, read: Callable[[], int]) -> list[int]:
    """Return the bytes in use on each rank's GPU, once two readings in succession are equal.

    Raises:
        DeadlineExceededError: the readings kept changing; another program may use the GPUs.
    """
    deadline = Deadline(_SETTLED_SECONDS)
    found, now = None, _on_ranks(gang, read)
    while now != found:
        deadline.enforce("waiting until the memory in use on these GPUs stays the same; another program may use them")
        time.sleep(_POLL_SECONDS)
        found, now = now, _on_ranks(gang, read)
    return now


def _on_ranks(gang: Gang, function: Callable[..., T]) -> list[T]:
    """Call a function in each rank's process, and return the results by rank.

    Raises:
        WorkerLostError: a worker of the gang is lost.
    """
    try:
        found = run_on(gang.client, function, workers=gang.addresses)
    except OSError as error:
        gang.check("sampling its GPU's memory", error)
        raise
    return [found[address] for address in gang.addresses]
