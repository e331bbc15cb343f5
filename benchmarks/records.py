"""Measures saved results anew, at one revision, graph by graph on all devices of this machine::

    python -m benchmarks.records FOLDER --gpus 2 --seconds 500 todling merrill_uniform

A job is one graph of one result, in a process of its own. Each GPU has one job at a time, so that no job disturbs
another's times; strategies of one CPU core run beside them. Jobs that need several GPUs come first. A job's rows stay
in FOLDER, so that a later call on a machine of the same kind goes on. A result whose jobs are all done is written to
``benchmarks/results``. Rows of more GPUs than there are keep out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks import plan as plans
from benchmarks.lab import LabPlan
from benchmarks.runner import RESULTS
from dbfs.lab import STRATEGIES, parse

LAB: Final = {
    "merrill": "merrill",
    "merrill_tiles": "merrill-tiles",
    "merrill_predecessors": "merrill-predecessors",
    "merrill_uniform": "merrill-uniform",
    "merrill_section6": "section6",
    "merrill_section6_uniform": "section6-uniform",
    "todling": "todling",
    "todling_pages": "pages",
    "todling_tuning": "tuning",
    "krajecki_grid_gpus": "grid",
    "krajecki_grid_cpu": "grid-cpu",
}
"""Results of ``dbfs bench lab``, and their plans."""

SCALING: Final = {
    "krajecki_scaling_gpus": ("krajecki-gpus", "cuda_ipc"),
    "krajecki_scaling_nccl": ("krajecki-gpus", "nccl"),
    "krajecki_scaling_shared_memory": ("krajecki-gpus", "shared_memory"),
    "krajecki_scaling_grid_gpus": ("krajecki-grid-gpus", "cuda_ipc"),
    "krajecki_scaling_grid_nccl": ("krajecki-grid-gpus", "nccl"),
    "krajecki_scaling_cpu": ("krajecki", "auto"),
    "krajecki_scaling_grid_cpu": ("krajecki-grid", "auto"),
}
"""Results of ``dbfs bench scaling``, with their plans and exchanges."""

UPDATED: Final = ("corpus:kron_g500-logn20", "corpus:europe.osm")
"""The graphs of ``todling_updates``."""


@dataclass(frozen=True)
class Job:
    """One graph of a result.

    Attributes:
        record: the result's name.
        name: the job's name in the result; jobs that are joined are in the order of their plan.
        command: what runs, behind ``python -m``; the file of the rows is added.
        gpus: GPUs that the job needs.
        exchange: the exchange, for ``dbfs.exchange``.
    """

    record: str
    name: str
    command: tuple[str, ...]
    gpus: int = 1
    exchange: str = "auto"


def jobs_of(record: str, folder: Path, gpus: int) -> Iterator[Job]:
    """Yield the jobs of a result; the parts of its plan are written to the folder."""
    if record in LAB:
        yield from _lab(record, plans.find("lab", LAB[record]), folder, gpus)
    elif record in SCALING:
        name, exchange = SCALING[record]
        whole = _read(plans.find("scaling", name))
        # The plans of CPU cores take as many ranks as they like.
        most = gpus if whole.get("backend") == "cuda" else sys.maxsize
        whole["strong"] = [{**one, "ranks": [p for p in one["ranks"] if p <= most]} for one in whole["strong"]]
        whole["weak"] = [
            {**one, "graphs": {p: g for p, g in one["graphs"].items() if p <= most}} for one in whole["weak"]
        ]
        part = _written(folder / f"{record}.yaml", whole)
        needed = gpus if whole.get("backend") == "cuda" else 0
        yield Job(record, "whole", ("dbfs", "bench", "scaling", "--plan", part, "--json"), needed, exchange)
    elif record == "todling_updates":
        for number, graph in enumerate(UPDATED):
            yield Job(record, f"{number:03}", ("dbfs", "bench", "lab-updates", "--graph", graph, "--json"))
    elif record == "merrill_experiments":
        for number, graph in enumerate(_read(plans.find("lab", "merrill"))["graphs"]):
            yield Job(record, f"{number:03}", ("benchmarks.lab_experiments", graph))
    else:
        raise SystemExit(f"no result {record!r}; choose of {', '.join(RECORDS)}")


RECORDS: Final = (*LAB, *SCALING, "todling_updates", "merrill_experiments")
"""The names of all results that this program measures."""


def _lab(record: str, path: Path, folder: Path, gpus: int) -> Iterator[Job]:
    """Yield a job for each graph, for each number of ranks, and for the strategies of one core and the others."""
    plan, whole = plans.read(LabPlan, path), _read(path)
    of_core = [name for name in plan.strategies if STRATEGIES[parse(name).strategy].device == "cpu"]
    others = [name for name in plan.strategies if name not in of_core]
    numbered = enumerate(itertools.product(plan.graphs, plan.ranks, (of_core, others)))
    for number, (graph, ranks, strategies) in numbered:
        on_gpu = plan.backend == "cuda" and strategies is others
        if strategies and (ranks <= gpus or not on_gpu):
            name = f"{number:03}"
            part = {**whole, "graphs": [graph], "ranks": [ranks], "strategies": strategies}
            part["backend"] = "cuda" if on_gpu else "cpu"
            file = _written(folder / f"{record}-{name}.yaml", part)
            yield Job(record, name, ("dbfs", "bench", "lab", "--plan", file, "--json"), ranks if on_gpu else 0)


def _read(path: Path) -> dict[str, Any]:
    whole: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return whole


def _written(file: Path, plan: Mapping[str, Any]) -> str:
    file.write_text(yaml.safe_dump(dict(plan), sort_keys=False), encoding="utf-8")
    return str(file)


class Runner:
    """Runs jobs until a time, those on GPUs on a GPU each.

    Args:
        folder: where the rows of the jobs lie.
        seconds: after so many seconds no job begins, and none goes on.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._end = folder, time.monotonic() + seconds
        self._printing = threading.Lock()

    def file(self, job: Job) -> Path:
        """Return the file of a job's rows."""
        return self._folder / f"{job.record}-{job.name}.json"

    def done(self, job: Job) -> bool:
        """Return whether the job has all its rows."""
        file = self.file(job)
        return file.is_file() and json.loads(file.read_text(encoding="utf-8"))["complete"] is True

    def run_all(self, jobs: Sequence[Job], gpus: int) -> None:
        """Run the jobs, each on GPUs of its own, those of most GPUs first, and those of one core beside them."""
        # The sort keeps the order of jobs that need as many GPUs.
        rest = sorted((job for job in jobs if not self.done(job)), key=lambda job: -job.gpus)
        free, changed = set(range(gpus)), threading.Condition()

        def on_gpus(job: Job, taken: list[int]) -> None:
            try:
                self._run(job, ",".join(map(str, taken)))
            finally:
                with changed:
                    free.update(taken)
                    changed.notify()

        with ThreadPoolExecutor(max(gpus, 1)) as pool, ThreadPoolExecutor(1) as core:
            running = [core.submit(self._run, job, "") for job in rest if not job.gpus]
            waiting = [job for job in rest if job.gpus]
            while waiting:
                with changed:
                    fitting = next((job for job in waiting if job.gpus <= len(free)), None)
                    if fitting is None:
                        changed.wait()
                        continue
                    taken = sorted(free)[: fitting.gpus]
                    free.difference_update(taken)
                waiting.remove(fitting)
                running.append(pool.submit(on_gpus, fitting, taken))
            for one in running:
                one.result()

    def _run(self, job: Job, devices: str) -> None:
        left = self._end - time.monotonic()
        if left <= 0:
            return
        module, *rest = job.command
        at_end = module == "dbfs"
        command = [sys.executable, "-m", module, *rest]
        command.insert(len(command) if at_end else 3, str(self.file(job)))
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": devices}
        if job.exchange != "auto":
            environment["DASK_DBFS__EXCHANGE"] = job.exchange
        began, said = time.monotonic(), "done"
        try:
            with self.file(job).with_suffix(".log").open("w", encoding="utf-8") as log:
                subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=left, check=True)
        except subprocess.TimeoutExpired:
            said = "cut"
        except subprocess.CalledProcessError as error:
            said = f"failed ({error.returncode})"
        with self._printing:
            print(
                f"{time.monotonic() - began:6.0f} s {said:5} {job.record} {job.name} on {devices or 'CPU'}", flush=True
            )


def joined(parts: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> str:
    """Return one result of those of its jobs, in their order.

    Raises:
        SystemExit: the jobs were measured at different revisions.
    """
    first = parts[0]
    revisions = {part["revision"] for part in parts}
    if len(revisions) > 1:
        raise SystemExit(f"the jobs are of several revisions: {', '.join(sorted(revisions))}")
    rows = {name: [row for part in parts for row in part[name]] for name in first if isinstance(first[name], list)}
    # The machine of a job on a GPU, not that of one core's strategies.
    machine = next((part["machine"] for part in parts if "NVIDIA" in str(part.get("machine"))), first.get("machine"))
    of_all = {name: value for name, value in first.items() if name not in rows} | {"machine": machine, **facts}
    lines = [json.dumps(of_all)[1:-1]]
    for name, listed in rows.items():
        text = ",\n".join(map(json.dumps, listed))
        lines.append(f"{json.dumps(name)}: [\n{text}\n]")
    return f"{{{', '.join(lines)}}}\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("records", nargs="+", choices=RECORDS)
    chosen = parser.parse_args(arguments)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    runner = Runner(chosen.folder, chosen.seconds)
    jobs = {record: list(jobs_of(record, chosen.folder, chosen.gpus)) for record in chosen.records}
    runner.run_all([job for of_record in jobs.values() for job in of_record], chosen.gpus)
    for record, of_record in jobs.items():
        left = [job.name for job in of_record if not runner.done(job)]
        if left:
            print(f"{record}: {len(left)} of {len(of_record)} jobs are left: {' '.join(left)}")
            continue
        parts = [json.loads(runner.file(job).read_text(encoding="utf-8")) for job in of_record]
        facts = {"plan": LAB[record]} if record in LAB else {}
        (RESULTS / f"{record}.json").write_text(joined(parts, facts), encoding="utf-8")
        print(f"{record}: written")


if __name__ == "__main__":
    main()
