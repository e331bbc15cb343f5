"""Strategies that find the frontier among the status of all vertices: quadratic work in the worst case."""

from dataclasses import replace

import numpy as np

from dbfs_workers.features.lab.enactor import Enactor


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


def matrix_vector(run: Enactor) -> None:
    """Enact Deng's product of the adjacency matrix and the frontier's vector: one warp a row."""
    offsets, columns = run.problem.in_edges()
    step = run.step("matrix_vector", "matrix_vector", None, None)
    run.problem.start(run.source)
    run.by_levels([[step]], ahead=False, offsets=run.address(offsets), columns=run.address(columns))


def status_scan(run: Enactor) -> None:
    """Enact Liu and Huang's queue from a status scan: a scan of all labels, and an expansion of the queue."""
    queue = run.problem.vertex_queue()
    run.problem.start(run.source)
    scan = run.step("status_scan", "scan_status", None, queue)
    run.by_levels([[scan, run.step("status_scan", "label_neighbours", queue, None)]], ahead=False)


def bitmap_queue(run: Enactor) -> None:
    """Enact Krajecki's queue of bits: one warp for 32 vertices."""
    bitmaps = run.problem.bitmaps()
    bitmaps[0, run.source // 32] = np.uint32(1 << run.source % 32)
    step = run.step("bitmap_queue", "bitmap_queue", None, None)
    frontier, after = run.address(bitmaps[0]), run.address(bitmaps[1])
    ways = (after, frontier), (frontier, after)
    run.problem.start(run.source)
    run.by_levels([[replace(step, arguments={"in_ids": into, "out_ids": out})] for into, out in ways], ahead=True)


def _by_rows(run: Enactor, source: str, *kernels: str, **arguments: int) -> None:
    """Launch kernels on all vertices in each level."""
    run.problem.start(run.source)
    run.by_levels([[run.step(source, kernel, None, None) for kernel in kernels]], ahead=False, **arguments)
