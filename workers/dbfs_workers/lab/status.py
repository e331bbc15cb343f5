"""Strategies that find the frontier among the status of all vertices: quadratic work in the worst case."""

import numpy as np

from dbfs_workers.cuda.lab_layout import LabCounter
from dbfs_workers.lab.enactor import Enactor

_EXPANDED, _EDGES, _LABELLED, _QUEUED = (
    LabCounter.EXPANDED,
    LabCounter.EDGES,
    LabCounter.LABELLED,
    LabCounter.QUEUED,
)


def status_array(run: Enactor) -> None:
    """Enact Tödling's naive status array: one thread a vertex."""
    _by_rows(run, "status_array", "status_array")


def warp_centric(run: Enactor) -> None:
    """Enact Hong's warp-centric status array: one warp for 32 vertices."""
    _by_rows(run, "warp_centric", "warp_centric")


def masks(run: Enactor) -> None:
    """Enact Harish's masks: one thread a vertex, and a second launch that makes the next frontier."""
    flags = run.problem.flags()
    flags[0, run.source] = np.uint8(1)
    _by_rows(run, "masks", "mask_expand", "mask_update", flags=run.address(flags))


def status_scan(run: Enactor) -> None:
    """Enact Liu and Huang's queue from a status scan: a scan of all labels, and an expansion of the queue."""
    run.problem.start(run.source)
    queue = run.problem.vertex_queue()
    frontier = distance = 1
    while frontier:
        run.enter(frontier)
        scanned = run.queued("status_scan", "scan_status", None, run.problem.rows, queue, distance)
        size = int(scanned[_QUEUED])
        counts = run.queued("status_scan", "label_neighbours", queue, size, queue, distance)
        frontier, distance = int(counts[_LABELLED]), distance + 1
        run.leave(int(counts[_EXPANDED]), int(counts[_EDGES]), frontier)


def _by_rows(run: Enactor, source: str, kernel: str, then: str = "", **arguments: int) -> None:
    """Launch a kernel on all vertices a level, and another kernel after it if ``then`` is its name."""
    run.problem.start(run.source)
    frontier = distance = 1
    while frontier:
        run.enter(frontier)
        counts = run.launched(source, kernel, run.problem.rows, distance, **arguments)
        if then:
            run.launched(source, then, run.problem.rows, distance, **arguments)
        frontier, distance = int(counts[_LABELLED]), distance + 1
        run.leave(int(counts[_EXPANDED]), int(counts[_EDGES]), frontier)
