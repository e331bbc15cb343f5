"""Merrill 2012, section 4, as experiments: gathering alone, lookup alone, and the two fused, level by level.

Each experiment runs on a vertex frontier of a traversal, with the status of the vertices as they are before that level.
So no duplicate of an earlier level disturbs a figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dbfs_workers.cuda.lab_layout import COUNTERS, LabCounter
from dbfs_workers.lab import enact
from dbfs_workers.lab.device import Device, Gpu
from dbfs_workers.lab.enactor import policy_constants, policy_numbers
from dbfs_workers.lab.problem import Problem
from dbfs_workers.lab.strategies import GATHERING, Policy
from dbfs_workers.lab.tuning import Tuning
from dbfs_workers.storage.labels import UNREACHED

KERNELS = ("gather_alone", "look_up_alone", "gather_and_look_up")
"""The experiments: figure 5's, the other half of figure 6's, and figure 9's. ``expand`` is beside them: gathering with
an edge queue as its output."""


@dataclass
class Experiment:
    """The experiments of one graph, by one way of gathering.

    Attributes:
        graph: the generator's spec or the file.
        gathering: how a block gathers.
        levels: levels that were measured: those with the most edges.
        edges: neighbours in all lists of these levels.
        seconds: seconds of ``expand`` and of each of ``KERNELS`` over these levels, of each level the least.
        rates: edges a second of each, in millions.
    """

    graph: str
    gathering: str
    levels: int = 0
    edges: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def rates(self) -> dict[str, float]:
        """See the class."""
        return {kernel: self.edges / seconds / 1e6 for kernel, seconds in self.seconds.items()}


def measure(
    graph: str,
    offsets: Any,
    columns: Any,
    source: int,
    *,
    levels: int = 16,
    repeats: int = 3,
    device: Callable[[Policy], Device] | None = None,
    tuning: Tuning | None = None,
) -> list[Experiment]:
    """Run the experiments on the levels of a traversal that have the most edges.

    Args:
        graph: the graph's name.
        offsets: int64[rows + 1], in the device's memory.
        columns: uint32, rows of the neighbours, there too.
        source: row of the source.
        levels: the most levels.
        repeats: launches of each kernel on a level.
        device: makes the place where a policy's kernels run; None for the current GPU.
        tuning: sizes; None for the usual ones.
    """
    tuning = Tuning() if tuning is None else tuning
    threads = tuning.threads
    make = device or (lambda policy: Gpu(threads, policy_constants(policy)))
    usual = Policy("atomic-queue")
    run = enact.traverse(
        offsets, columns, source, usual, lambda *_: None, predecessors=False, device=make(usual), tuning=tuning
    )
    distances, done = run.labels.distances, []
    degrees = offsets[1:] - offsets[:-1]
    for gathering in GATHERING:
        where = make(Policy("two-phase", gathering=gathering))
        problem = Problem(where, offsets, columns, in_edges=None, predecessors=False, tuning=tuning)
        one, queue = Experiment(graph, gathering), problem.edge_queue().ids
        for level in _largest(where, distances, degrees, levels):
            _level(where, problem, queue, one, int(level), distances, degrees, repeats)
        done.append(one)
    return done


def _largest(where: Device, distances: Any, degrees: Any, levels: int) -> Any:
    """Return the levels with the most edges, in their order."""
    reached = distances >= 0
    edges = np.bincount(where.read(distances[reached]), weights=where.read(degrees[reached]))
    return np.sort(np.argsort(edges)[::-1][:levels])


def _level(
    where: Device, problem: Problem, queue: Any, one: Experiment, level: int, distances: Any, degrees: Any, repeats: int
) -> None:
    """Add a level to an experiment; ``queue`` has room for its edges."""
    xp: Any = where.xp
    xp.copyto(problem.labels, xp.where(distances <= level, distances, UNREACHED))
    problem.bitmask[: -(-problem.rows // 8)] = xp.packbits(problem.labels >= 0, bitorder="little")
    frontier = xp.flatnonzero(distances == level).astype(np.uint32)
    edges = int(degrees[frontier].sum())
    counters = xp.zeros(COUNTERS, np.uint64)
    given = where.arguments
    numbers = policy_numbers(Policy("two-phase", gathering=one.gathering))
    arrays = {"offsets": problem.offsets, "columns": problem.columns, "labels": problem.labels, "out_ids": queue}
    arrays |= {"bitmask": problem.bitmask, "counters": counters}
    places = {name: where.address(array) for name, array in arrays.items()}
    for name, value in {**places, **numbers, "rows": problem.rows, "out_capacity": queue.size}.items():
        given[name] = value
    given["most"] = np.iinfo(np.uint64).max
    for source, kernel in (("two_phase", "expand"), *(("phases", kernel) for kernel in KERNELS)):
        taken, size = (queue, edges) if kernel == "look_up_alone" else (frontier, frontier.size)
        given["in_ids"], given["in_size"] = where.address(taken), size
        blocks = max(1, min(problem.tuning.most_blocks, -(-size // 32)))
        times = []
        for _ in range(1 + repeats):
            counters.fill(0)
            times.append(_timed(where, lambda: where.launch(f"lab/{source}.cu", f"dbfs_lab_{kernel}", blocks)))  # noqa: B023
        assert where.read(counters)[LabCounter.LOOKED_AT] == size
        one.seconds[kernel] = one.seconds.get(kernel, 0.0) + min(times[1:])
    one.levels += 1
    one.edges += edges


def _timed(where: Device, launch: Callable[[], None]) -> float:
    """Return the seconds of a launch: on a GPU of the device's own clock."""
    if where.xp is np:
        began = time.perf_counter()
        launch()
        return time.perf_counter() - began
    events = where.xp.cuda.Event(), where.xp.cuda.Event()
    events[0].record()
    launch()
    events[1].record()
    events[1].synchronize()
    return float(where.xp.cuda.get_elapsed_time(*events)) / 1e3
