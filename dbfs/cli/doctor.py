"""``dbfs doctor``: what a machine or a cluster offers, and what it lacks; ``dbfs warm-up``: kernels compiled ahead."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Final

import click
import distributed
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dbfs import config
from dbfs.base.records import EXCHANGES, WorkerState
from dbfs.base.units import format_bytes
from dbfs.cli.common import connect, json_option, plain, print_answer, print_json, table_of, wide_console
from dbfs.cluster import ports
from dbfs.cluster.awaiting import sync
from dbfs.cluster.connect import roster
from dbfs.cluster.doctor import CheckState, MachineReport, examine
from dbfs.cluster.gang import answers_within, joined_workers, versions_of
from dbfs.cluster.kernels import warm_up as compile_all
from dbfs.errors import DbfsError
from dbfs.service.client import ServiceClient
from dbfs.service.messages import ListWorkers, TryGang
from dbfs_workers.base.gpus import own_gpu
from dbfs_workers.base.text import printable
from dbfs_workers.serving.ports import OpenPort

STYLES = {CheckState.OK: "green", CheckState.MISSING: "yellow", CheckState.OPEN: "yellow", CheckState.FAILED: "red"}


@click.command("warm-up")
@json_option
def warm_up(as_json: bool) -> None:
    """Compile all CPU kernels, so that no first graph waits for the compiler: in images, and on machines of clusters.

    Numba keeps the kernels on disk, in the packages' folders or in the folder that NUMBA_CACHE_DIR names.

    Example: dbfs warm-up
    """
    kernels, compiled = compile_all()
    words = f"{len(kernels)} CPU kernels ready, {compiled} of them compiled now"
    print_answer({"kernels": len(kernels), "compiled": compiled}, words, as_json=as_json)


@click.command()
@click.option("--scheduler", help="Describe the cluster of this Dask scheduler instead.", metavar="ADDRESS")
@click.option("--compile", "compiles", is_flag=True, help="Compile all kernels, which takes minutes, and keep them.")
@json_option
def doctor(scheduler: str | None, compiles: bool, as_json: bool) -> None:
    """Check GPUs, packages, shared memory, kernels and open ports of this machine, or describe a cluster.

    A machine without a GPU is no error: the CPU backend works there.

    With --scheduler the command lists the cluster's workers, their versions, GPUs and memory limits, which ports are
    open to whom, and the backend and the exchange of a graph on all of them. It names workers that do not answer, and
    those that are paused.

    \b
    Examples:
      dbfs doctor
      dbfs doctor --scheduler tcp://host:8786
    """
    console = Console()
    if scheduler is not None:
        if compiles:
            raise click.UsageError("--compile is for this machine, not with --scheduler; dbfs warm-up is for workers")
        with connect(scheduler, None) as client:
            cluster = examine_cluster(client)
        if as_json:
            print_json(asdict(cluster))
        else:
            _print_cluster(wide_console(), cluster)
        return
    report = examine(compiles=compiles)
    if as_json:
        print_json(report.to_dict())
        return
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    for column in ("check", "state"):
        table.add_column(column, no_wrap=True)
    table.add_column("found", overflow="fold")
    for finding in report.findings:
        table.add_row(finding.name, f"[{STYLES[finding.state]}]{finding.state}", escape(finding.found))
    console.print(table, highlight=False)
    if len(report.gpus) > 1:
        console.print(peers_table(report))
    advice = [finding for finding in report.findings if finding.advice]
    for finding in advice:
        console.print(f"{finding.name}: {finding.advice}", highlight=False, markup=False, soft_wrap=True)


def _print_cluster(console: Console, report: ClusterReport) -> None:
    columns = ("rank", "address", "threads", "memory limit", "GPU", "dbfs", "Python", "Dask")
    table = table_of(f"Workers of {report.scheduler}", columns, right=("rank", "threads", "memory limit"))
    for worker in report.workers:
        cells = (
            worker.rank,
            worker.address,
            worker.threads,
            format_bytes(worker.memory_limit) if worker.memory_limit else "none",
            worker.gpu or "none",
            worker.versions["dbfs"] or "none",
            (worker.versions["python"] or "").partition(".final")[0],
            worker.versions["distributed"] or "none",
        )
        # A worker reports of itself what it likes.
        table.add_row(*map(plain, cells))
    console.print(table)
    if report.backend is not None:
        ranks = f"{len(report.workers)} rank{'s' * (len(report.workers) > 1)}"
        gets = f"A graph on {ranks} gets the backend {report.backend} and the exchange {report.exchange}."
        console.print(gets, highlight=False, soft_wrap=True)
    console.print(plain(f"Ports {ports.describe(report.ports, report.silent)}."), soft_wrap=True)
    for line in report.advice:
        console.print(plain(line), soft_wrap=True)


def peers_table(report: MachineReport) -> Table:
    """Return the table of GB/s between GPUs. The GPU of a row copies from the GPU of a column."""
    indices = [str(gpu.index) for gpu in report.gpus]
    table = table_of("GB/s that a GPU copies from another", ["GPU", *indices], right=indices)
    for gpu, access, rates in zip(report.gpus, report.peer_access, report.peer_bandwidth, strict=True):
        cells = ("" if other == gpu.index else _rate(mapped, rates[other]) for other, mapped in enumerate(access))
        table.add_row(str(gpu.index), *cells)
    return table


def _rate(mapped: bool, rate: float | None) -> str:
    if not mapped:
        return "no access"
    return "not measured" if rate is None else f"{rate:.0f}"


_PACKAGES = ("dbfs", "dask", "distributed", "numba", "numpy")
# Seconds in which a worker that is well answers a question.
_ANSWER_SECONDS: Final = 5.0
# Seconds in which a gang forms; a worker may compile kernels for it.
_FORM_SECONDS: Final = 60.0


@dataclass(frozen=True)
class WorkerReport:
    """A worker.

    Attributes:
        rank: its rank in a graph on all workers.
        address: its address.
        threads: number of its threads.
        memory_limit: bytes that it may use; 0 for no limit.
        gpu: its GPU; None without a GPU or CuPy, or if it has another version of dbfs.
        versions: versions of Python and of packages, by name; None for a package that is not installed.
    """

    rank: int
    address: str
    threads: int
    memory_limit: int
    gpu: str | None
    versions: dict[str, str | None]


@dataclass(frozen=True)
class ClusterReport:
    """A cluster.

    Attributes:
        scheduler: the scheduler's address.
        versions: the scheduler's versions, as for a worker.
        workers: the workers by rank.
        backend: backend of a graph on all workers; None if its gang can't be formed.
        exchange: exchange of that graph.
        ports: the open ports of the scheduler and the workers.
        silent: those of them that did not tell their ports: stopped, or of another version of dbfs.
        advice: one line for each thing to improve.
    """

    scheduler: str
    versions: dict[str, str | None]
    workers: tuple[WorkerReport, ...]
    backend: str | None
    exchange: str | None
    ports: tuple[OpenPort, ...]
    silent: tuple[str, ...]
    advice: tuple[str, ...]


def examine_cluster(client: distributed.Client) -> ClusterReport:
    """Describe a client's cluster. No graph is loaded for it, and a worker that does not answer is named."""
    addresses = roster(client, None)
    found = sync(client, versions_of, client, _PACKAGES)
    infos = joined_workers(client)
    mine, scheduler = _versions(found["client"]), _versions(found["scheduler"])
    versions = {address: _versions(info) for address, info in found["workers"].items() if address in addresses}
    same = [address for address in versions if versions[address]["dbfs"] == mine["dbfs"]]
    gpus = sync(client, functools.partial(answers_within, _ANSWER_SECONDS, client, own_gpu, workers=same))
    workers = tuple(
        WorkerReport(
            rank=rank,
            address=address,
            threads=infos[address]["nthreads"],
            memory_limit=infos[address]["memory_limit"] or 0,
            gpu=gpus.get(address),
            versions=versions.get(address, dict.fromkeys(mine)),
        )
        for rank, address in enumerate(addresses)
        if address in infos
    )
    formed = None
    advice = [*_differences(mine, "scheduler", [scheduler]), *_differences(mine, "workers", versions.values())]
    late = [address for address in addresses if address not in versions or (address in same and address not in gpus)]
    for address in late:
        name = infos[address]["name"] if address in infos else address
        advice.append(f"worker {name} ({address}) does not answer: is its host alive?")
    if late:
        advice.append(
            "a graph on all workers would wait for them; with ranks=N it takes the first N workers of this list"
        )
    else:
        try:
            service = ServiceClient.of(client)
            states = service.call(ListWorkers())
            advice += [str(state) for state in states if state.state is WorkerState.PAUSED]
            formed = service.call(TryGang(addresses, config.choice("exchange", EXCHANGES), _FORM_SECONDS))
        except DbfsError as error:
            advice.append(f"no graph can be loaded: {error}")
    if formed is not None and formed.backend == "cuda":
        advice.append("the exchange of GPUs is tried when a graph is loaded; dbfs doctor on a host measures its GPUs")
    unlimited = sum(worker.memory_limit == 0 for worker in workers)
    if unlimited:
        advice.append(f"workers without a memory limit: {unlimited}. There a graph that is too large is not refused")
    backend, exchange = (None, None) if formed is None else (formed.backend, formed.exchange)
    # Who did not answer before, or has another version, is not asked again.
    asked = [address for address in addresses if address in gpus]
    found_ports, silent = ports.of_cluster(client, asked)
    silent += [printable(address) for address in addresses if address not in gpus]
    if open_ports := ports.advice(found_ports):
        advice.append(f"ports: {open_ports}")
    return ClusterReport(
        scheduler=client.scheduler.address,
        versions=scheduler,
        workers=workers,
        backend=backend,
        exchange=exchange,
        ports=tuple(found_ports),
        silent=tuple(silent),
        advice=tuple(advice),
    )


def _versions(info: dict[str, Any]) -> dict[str, str | None]:
    host = {name: value for name, value in info["host"].items() if name == "python"}
    return {**host, **{name: info["packages"].get(name) for name in _PACKAGES}}


def _differences(mine: dict[str, str | None], where: str, others: Any) -> list[str]:
    """Describe the versions that differ from the client's, one line each with the number of processes."""
    different = Counter(
        (name, version) for versions in others for name, version in versions.items() if version != mine[name]
    )
    return [
        f"{name}: the client has {mine[name]}, {count} of the {where} {version or 'none'}"
        for (name, version), count in sorted(different.items(), key=str)
    ]
