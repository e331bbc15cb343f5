"""Merrill 2012, section 4, as experiments: gathering alone, lookup alone, and the two fused, level by level.

Each experiment runs on a vertex frontier of a traversal, with the status of the vertices as they are before that level.
So no duplicate of an earlier level disturbs a figure. On a machine with a GPU::

    python -m benchmarks.lab_experiments rates.json GRAPH...
    ncu --csv --print-units base --log-file counters.csv --clock-control none --metrics METRICS \\
        --kernel-name regex:COUNTED python -m benchmarks.lab_experiments --levels 1 --repeats 1 largest.json GRAPH...
    python -m benchmarks.lab_experiments --counted counters.csv largest.json

The first command measures rates. In the second, Nsight Compute counts ``METRICS`` of the kernels of ``COUNTED`` on the
level with the most edges. The third adds these figures to the second's file, whose times are those of a profiler. A run
of the first command that was cut goes on with the next graph.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import runner
from dbfs.edges import generate
from dbfs.errors import FormatError
from dbfs_workers.base.gpus import own_gpu_name
from dbfs_workers.building.bin_store import BinStore, EdgeBin
from dbfs_workers.building.binning import bin_edges
from dbfs_workers.building.partitions import build_partition
from dbfs_workers.features.lab import enact
from dbfs_workers.features.lab.device import Device, Gpu
from dbfs_workers.features.lab.enactor import policy_constants, policy_numbers
from dbfs_workers.features.lab.layout import COUNTERS, LabCounter
from dbfs_workers.features.lab.problem import Problem
from dbfs_workers.features.lab.strategies import GATHERING, Policy
from dbfs_workers.features.lab.tuning import Tuning
from dbfs_workers.search.partition.partition import Csr
from dbfs_workers.search.partition.stripe import Stripe

BENCHMARK = "lab-experiments"
"""The benchmark's name in its JSON."""

_ROWS = "experiments"
KERNELS = ("gather_alone", "look_up_alone", "gather_and_look_up")
"""The experiments: figure 5's, the other half of figure 6's, and figure 9's. ``expand`` is beside them: gathering with
an edge queue as its output."""

COUNTED = ("expand", *KERNELS)
"""The kernels by their order in ``_level``; ``dbfs_lab_`` is before their names."""

METRICS = ("dram__bytes.sum", "smsp__thread_inst_executed.sum")
"""Nsight Compute's names of the bytes between the GPU and its memory, and of the instructions of all threads."""


@dataclass
class Experiment:
    """The experiments of one graph, by one way of gathering.

    Attributes:
        graph: the generator's spec or the file.
        gathering: how a block gathers.
        levels: levels that were measured: all, or those with the most edges.
        edges: neighbours in all lists of these levels.
        seconds: seconds of ``expand`` and of each of ``KERNELS`` over these levels, of each level the least.
        rates: edges a second of each, in millions.
        bytes_per_edge: bytes of DRAM for an edge of the largest level, by kernel; empty if they were not counted.
        instructions_per_byte: thread instructions for each of these bytes.
    """

    graph: str
    gathering: str
    levels: int = 0
    edges: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    bytes_per_edge: dict[str, float] = field(default_factory=dict)
    instructions_per_byte: dict[str, float] = field(default_factory=dict)

    @property
    def rates(self) -> dict[str, float]:
        """See the class."""
        return {kernel: self.edges / seconds / 1e6 for kernel, seconds in self.seconds.items()}


def measure(
    graph: str,
    offsets: NDArray[np.int64],
    columns: NDArray[np.uint32],
    source: int,
    *,
    levels: int | None = None,
    repeats: int = 4,
    device: Callable[[Policy], Device] | None = None,
    tuning: Tuning | None = None,
) -> list[Experiment]:
    """Run the experiments on each level of a traversal.

    Args:
        graph: the graph's name.
        offsets: int64[rows + 1], index of each row's first column.
        columns: uint32, rows of the neighbours.
        source: row of the source.
        levels: the most levels: those that have the most edges; None for all.
        repeats: launches of each kernel on a level. The first one of all compiles the kernel.
        device: makes the place where a policy's kernels run; None for the current GPU.
        tuning: sizes; None for the usual ones.
    """
    tuning = Tuning() if tuning is None else tuning
    threads = tuning.threads
    make = device or (lambda policy: Gpu(threads, policy_constants(policy)))
    usual = Policy("atomic-queue")
    first = make(usual)
    lists: tuple[Any, Any] = first.xp.asarray(offsets), first.xp.asarray(columns)
    run = enact.traverse(
        lists[0], lists[1], source, usual, lambda *_: None, predecessors=False, device=first, tuning=tuning
    )
    distances, done = run.labels.distances, []
    degrees = lists[0][1:] - lists[0][:-1]
    ends = np.bincount(first.read(distances) + 1).cumsum().tolist()
    order = first.xp.argsort(distances, kind="stable")
    edges = [int(degrees[order[start:end]].sum()) for start, end in itertools.pairwise(ends)]
    largest = np.sort(np.argsort(edges)[::-1][:levels]).tolist()
    for gathering in GATHERING:
        where = make(Policy("two-phase", gathering=gathering))
        problem = Problem(where, lists[0], lists[1], in_edges=None, predecessors=False, tuning=tuning)
        one, queue, known = Experiment(graph, gathering), problem.edge_queue().ids, ends[0]
        for level in largest:
            new = order[known : ends[level + 1]]
            problem.labels[new] = distances[new]
            known = ends[level + 1]
            _level(where, problem, queue, one, order[ends[level] : known].astype(np.uint32), edges[level], repeats)
        done.append(one)
    return done


def _level(
    where: Device, problem: Problem, queue: Any, one: Experiment, frontier: Any, edges: int, repeats: int
) -> None:
    """Add a level to an experiment; ``queue`` has room for its edges."""
    xp: Any = where.xp
    problem.bitmask[: -(-problem.rows // 8)] = xp.packbits(problem.labels >= 0, bitorder="little")
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
        for _ in range(repeats):
            counters.fill(0)
            launch = partial(where.launch, source, f"dbfs_lab_{kernel}", blocks)
            times.append(_timed(where, launch))
        assert where.read(counters)[LabCounter.LOOKED_AT] == size
        one.seconds[kernel] = round(one.seconds.get(kernel, 0.0) + min(times), 8)
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


def lists(graph: str) -> Csr:
    """Return the adjacency lists of a generator's graph."""
    edges, threads = generate.parse(graph), os.cpu_count() or 1
    assert edges.n is not None
    assert edges.m is not None
    stripe = Stripe(edges.n, 1)

    def binned(piece: Any) -> tuple[EdgeBin, ...]:
        src, dst = piece.read()
        return bin_edges(src, dst, stripe, symmetrise=edges.symmetrise, name=graph)

    with ThreadPoolExecutor(threads) as pool:
        bins = BinStore.of(stripe, (found[0] for found in pool.map(binned, edges.cut(1 << 22))))
    return build_partition(stripe, 0, bins, input_edges=edges.m, threads=threads).out_edges


def counted(experiments: Sequence[Experiment], lines: Iterable[str]) -> None:
    """Add what Nsight Compute counted to experiments of one launch of one level.

    Args:
        experiments: the experiments that ran under Nsight Compute.
        lines: its CSV: a line for each of ``METRICS``, launch by launch.

    Raises:
        FormatError: the CSV is of more launches, or fewer.
    """
    rows = csv.DictReader(line for line in lines if line.startswith('"'))
    values = [float(row["Metric Value"].replace(",", "")) for row in rows]
    if len(values) != (wanted := len(METRICS) * len(COUNTED) * len(experiments)):
        raise FormatError(f"the counters have {len(values)} figures, not {wanted}; count all experiments in one go")
    launches = itertools.product(experiments, COUNTED)
    for (one, kernel), moved, instructions in zip(launches, values[::2], values[1::2], strict=True):
        one.bytes_per_edge[kernel] = round(moved / one.edges, 2)
        one.instructions_per_byte[kernel] = round(instructions / moved, 2)


def read(file: Path) -> tuple[list[Experiment], dict[str, Any]]:
    """Return saved experiments, and the facts of all: the revision and the GPU. Errors as for ``runner.read``."""
    found = runner.read(file, {BENCHMARK: {_ROWS: Experiment}}, ("revision", "machine"))
    return found.pop(_ROWS), found


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--levels", type=int)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--counted", type=Path)
    parser.add_argument("graphs", nargs="*")
    chosen = parser.parse_args()
    if chosen.counted:
        add_counted(chosen.file, chosen.counted)
        return
    with runner.Results(BENCHMARK, chosen.file, machine=own_gpu_name(), levels=chosen.levels) as results:
        saved = results.of_cut_run(_ROWS, Experiment)
        done = saved[: len(saved) // len(GATHERING) * len(GATHERING)]
        there = {one.graph for one in done}
        rest = [graph for graph in chosen.graphs if graph not in there]
        new = (one for graph in rest for one in _of_graph(graph, chosen.levels, chosen.repeats))
        results.take(_ROWS, itertools.chain(done, new), lambda _: ())


def _of_graph(graph: str, levels: int | None, repeats: int) -> list[Experiment]:
    rows = lists(graph)
    hub = int(np.diff(rows.row_offsets).argmax())
    return measure(graph, rows.row_offsets, rows.columns, hub, levels=levels, repeats=repeats)


def add_counted(file: Path, counters: Path) -> None:
    """Add what Nsight Compute counted to the file of the experiments that ran under it."""
    found, facts = read(file)
    counted(found, counters.read_text(encoding="utf-8").splitlines())
    with runner.Results(BENCHMARK, file) as results:
        results.facts |= facts
        results.take(_ROWS, found, lambda _: ())


if __name__ == "__main__":
    main()
