"""The way into the laboratory on a GPU: one traversal by a strategy."""

import time
from collections.abc import Callable
from typing import Any, Final

from dbfs_workers.base.errors import InvalidOptionError
from dbfs_workers.features.lab import merrill, queues, status
from dbfs_workers.features.lab.device import Device, Gpu
from dbfs_workers.features.lab.enactor import Enactor, Watch, policy_constants
from dbfs_workers.features.lab.pages import LinkedPages
from dbfs_workers.features.lab.problem import Problem
from dbfs_workers.features.lab.result import counters_of, rank_run
from dbfs_workers.features.lab.strategies import Policy
from dbfs_workers.features.lab.tuning import Tuning
from dbfs_workers.search.partition.labels import RankLabels
from dbfs_workers.search.reports import RankRun

ENACTORS: "Final[dict[str, Callable[[Enactor], None]]]" = {
    "expand-contract": merrill.expand_contract,
    "contract-expand": merrill.contract_expand,
    "two-phase": merrill.two_phase,
    "hybrid": merrill.hybrid,
    "masks": status.masks,
    "warp-centric": status.warp_centric,
    "matrix-vector": status.matrix_vector,
    "status-array": status.status_array,
    "status-scan": status.status_scan,
    "atomic-queue": queues.atomic_queue,
    "degree-classes": queues.degree_classes,
    "hierarchical": queues.hierarchical,
    "device-loop": queues.device_loop,
    "child-kernels": queues.child_kernels,
    "bitmap-queue": status.bitmap_queue,
}
"""The strategies that run on a GPU, by name."""


def traverse(
    offsets: Any,
    columns: Any,
    source: int,
    policy: Policy,
    watch: Watch,
    *,
    predecessors: bool,
    in_edges: tuple[Any, Any] | None = None,
    version: int = 0,
    device: Device | None = None,
    tuning: Tuning | None = None,
    pages: LinkedPages | None = None,
) -> RankRun:
    """Traverse a graph of one rank by a strategy.

    Args:
        offsets: int64[rows + 1], in the device's memory; None with ``pages``, as are the columns.
        columns: uint32, rows of the neighbours, there too.
        source: row of the source.
        policy: the strategy and its options.
        watch: called before each level; raises an error to end the traversal.
        predecessors: whether to record parents.
        in_edges: offsets and columns of the in-edges; None if the graph has none.
        version: version of the graph, for the report.
        device: where to run; None for the current GPU.
        tuning: sizes; None for the usual ones, with the policy's threads.
        pages: the rows for ``storage=pages``, on the same device; None to make pages of offsets and columns.

    Raises:
        InvalidOptionError: the strategy does not run on a GPU, or needs in-edges that the graph does not have.
        BackendUnavailableError: the strategy's kernels launch kernels, and what links them is not installed.
        QueueOverflowError: duplicates filled a queue.
    """
    began = time.perf_counter()
    if policy.strategy not in ENACTORS:
        raise InvalidOptionError(f"strategy {policy.strategy} runs on CPU cores, not on a GPU")
    sizes = Tuning(threads=int(policy.threads)) if tuning is None else tuning
    where = Gpu(sizes.threads, policy_constants(policy)) if device is None else device
    if policy.storage == "csr":
        pages = None
    elif pages is None:
        pages = LinkedPages(where, offsets, columns)
    problem = Problem(where, offsets, columns, in_edges=in_edges, predecessors=predecessors, tuning=sizes, pages=pages)
    run = Enactor(where, problem, policy, source, watch)
    started = time.perf_counter()
    ENACTORS[policy.strategy](run)
    ended = time.perf_counter()
    reached = int((problem.labels >= 0).sum())
    return rank_run(
        RankLabels(problem.labels, problem.parents),
        problem.degrees,
        run.levels,
        counters_of(run, reached),
        host=where.read,
        elapsed=ended - started,
        setup=started - began,
        version=version,
    )
