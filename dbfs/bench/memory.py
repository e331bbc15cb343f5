"""What ``dbfs.estimate`` says of the GPUs' memory next to what is measured.

Measured is what CUDA has less of free than before (``dbfs_workers.cuda.sampler``); nobody else may use the GPUs. A
graph is loaded and traversed twice, and the second time counts: the first makes CUDA's context, and compiles and loads
kernels, none of which an estimate counts. A smaller graph would not do, as CuPy sorts and sums it by other kernels.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import distributed

import dbfs
from dbfs.bench.gpu import ROWS
from dbfs.cluster.connect import roster
from dbfs.cluster.gang import Deadline, Gang
from dbfs.edges.resolve import edge_list
from dbfs_workers.cuda import sampler

T = TypeVar("T")

# Labels that were released are dropped after 0.2 s (``dbfs.service``), and Dask lets go of results a little later.
_LOOK_SECONDS = 0.3
_SETTLED_SECONDS = 30.0


@dataclass(frozen=True)
class Subject:
    """A graph and how it is laid out: what papers call it, the generator's spec, and options of ``dbfs.load``."""

    graph: str
    spec: str
    order: str
    in_edges: bool = False


SUBJECTS = (
    *dict.fromkeys(Subject(row.graph, row.spec, row.order) for row in ROWS),
    Subject("rmat.2Mv.128Me in-edges", "corpus:rmat.2Mv.128Me", "given", in_edges=True),
)


@dataclass(frozen=True)
class Compared:
    """Bytes of a rank's GPU.

    Attributes:
        estimate: what is estimated of each rank.
        measured: by rank.
        percent: the estimate in percent of the largest one measured.
    """

    estimate: int
    measured: tuple[int, ...]
    percent: float

    @classmethod
    def of(cls, estimate: int, used: Sequence[int], before: Sequence[int]) -> "Compared":
        """Compare an estimate to what is used more than before, both by rank."""
        measured = tuple(now - base for now, base in zip(used, before, strict=True))
        return cls(estimate, measured, 100 * estimate / max(1, *measured))


@dataclass(frozen=True)
class MemoryUse:
    """What a graph took of its GPUs in a part of its life.

    Attributes:
        graph, order: see ``Subject``.
        exchange: how the ranks exchanged; the estimate is for ``cuda_ipc``.
        when: ``load``, building and forming the gang; ``run``, traversals without predecessors and with them;
            ``at most``, the larger one, which ``dbfs.estimate`` calls the peak.
        peak: the most.
        resident: what stays when that is over; after the traversals with the labels of the last one.
        gap: milliseconds, the longest time in which nobody looked.
    """

    graph: str
    order: str
    exchange: str
    when: str
    peak: Compared
    resident: Compared | None
    gap: float


def bench_memory(client: distributed.Client, gpus: int, subjects: Sequence[Subject]) -> Iterator[MemoryUse]:
    """Load and traverse graphs, one after another."""
    gang = Gang(client, roster(client, gpus))
    for subject in subjects:
        _measure(gang, subject)
        yield from _measure(gang, subject)


@contextmanager
def sampled(gang: Gang) -> Iterator[list[sampler.Peak]]:
    """Sample the GPUs of all ranks; after the block the list has what was seen, by rank."""
    peaks: list[sampler.Peak] = []
    try:
        _on_ranks(gang, sampler.start)
        yield peaks
    except BaseException:
        # A rank may be gone, and the samplers of the others end by themselves should this fail, too.
        with suppress(Exception):
            gang.client.run(sampler.stop, workers=list(gang.addresses), on_error="ignore")
        raise
    peaks.extend(_on_ranks(gang, sampler.stop))


def _measure(gang: Gang, subject: Subject) -> list[MemoryUse]:
    layout: dict[str, Any] = {"order": subject.order, "in_edges": subject.in_edges}
    needed = dbfs.estimate(edge_list(subject.spec), gang.p, dbfs.BuildOptions(**layout), backend="cuda")
    built = needed.partition_bytes + sum(needed.build.values())
    running = needed.partition_bytes + sum(needed.run.values())
    formed = running - needed.run["labels"]

    before = _settled(gang, sampler.cleared)
    with sampled(gang) as loading:
        graph = dbfs.load(subject.spec, client=gang.client, ranks=gang.p, backend="cuda", **layout)
    with graph:
        loaded = _settled(gang, sampler.used)
        source = graph.sample_sources(1)[0]
        # What the search for a source took is none of the traversals'.
        _settled(gang, sampler.cleared)
        with sampled(gang) as traversing:
            graph.bfs(source).release()
            result = graph.bfs(source, predecessors=True)
        traversed = _settled(gang, sampler.used)
        result.release()

    def use(when: str, estimate: int, peaks: Sequence[sampler.Peak], resident: Compared | None) -> MemoryUse:
        peak = Compared.of(estimate, [peak.nbytes for peak in peaks], before)
        gap = 1e3 * max(peak.gap for peak in peaks)
        return MemoryUse(subject.graph, subject.order, graph.exchange, when, peak, resident, gap)

    either = [max(pair, key=lambda peak: peak.nbytes) for pair in zip(loading, traversing, strict=True)]
    return [
        use("load", max(built, formed), loading, Compared.of(formed, loaded, before)),
        use("run", running, traversing, Compared.of(running, traversed, before)),
        use("at most", needed.peak_bytes, either, None),
    ]


def _settled(gang: Gang, read: Callable[[], int]) -> list[int]:
    """What is in use on each rank's GPU, once that does not change any more.

    Raises:
        DeadlineExceededError: it goes on changing.
    """
    deadline = Deadline(_SETTLED_SECONDS)
    found, now = None, _on_ranks(gang, read)
    while now != found:
        deadline.enforce("waiting until nobody takes or frees memory of these GPUs")
        time.sleep(_LOOK_SECONDS)
        found, now = now, _on_ranks(gang, read)
    return now


def _on_ranks(gang: Gang, function: Callable[..., T]) -> list[T]:
    """What a function returns in each rank's process.

    Raises:
        WorkerLostError: a worker of the gang is gone.
    """
    try:
        found: Mapping[str, T] = gang.client.run(function, workers=list(gang.addresses))
    except OSError as error:
        gang.check("sampling its GPU's memory", error)
        raise
    return [found[address] for address in gang.addresses]
