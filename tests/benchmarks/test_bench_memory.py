"""``dbfs bench memory``: its comparison on workers with stand-in GPUs, its output, and the options it refuses."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import distributed
import pytest
from click.testing import CliRunner
from rich.console import Console

import dbfs
from benchmarks import memory
from benchmarks.gpu import ROWS
from benchmarks.memory import SUBJECTS, MemoryUse, Subject, bench_memory, sampled
from benchmarks.runner import table
from dbfs.cli import main
from dbfs.cluster.connect import roster
from dbfs.cluster.gang import Gang
from dbfs.edges import generate
from dbfs.errors import DeadlineExceededError
from dbfs_workers.search.cuda import sampler
from dbfs_workers.search.partition.partition import Partition
from dbfs_workers.serving.rpc import NAME
from tests.support.standin import pretend_to_have_a_gpu

ELSEWHERE = 1000
"""Bytes in use on each stand-in GPU before a graph is loaded."""


def pretend(dask_worker: distributed.Worker) -> None:
    """Give a worker a stand-in GPU, whose bytes in use are ``ELSEWHERE``, the worker's partitions and its labels."""
    pretend_to_have_a_gpu()

    def used() -> int:
        held = sum(value.nbytes for value in list(dask_worker.data.values()) if isinstance(value, Partition))
        for member in list(dask_worker.plugins[NAME].members.values()):
            for kept in list(member.kept.values()):
                labels = (kept.labels.distances, kept.labels.predecessors)
                held += sum(array.nbytes for array in labels if array is not None)
        return ELSEWHERE + held

    sampler.used = used


@pytest.fixture(scope="module")
def gpus() -> Iterator[distributed.Client]:
    with dbfs.connect(n_workers=2, backend="cpu", dashboard_address=None, memory_limit=0) as client:
        # Puts dbfs's plugin on the workers.
        dbfs.load("path:n=2", client=client).unload()
        client.run(pretend)
        yield client


def samplers(client: distributed.Client) -> list[int]:
    count: Callable[[], int] = lambda: sum(thread.name == "dbfs-sampler" for thread in threading.enumerate())  # noqa: E731
    return list(client.run(count).values())


@pytest.mark.full
def test_a_graph_is_measured_beside_its_estimate(gpus: distributed.Client) -> None:
    subject = Subject("rmat", "rmat:scale=10,directed=true", "given", in_edges=True)
    load, run, most = bench_memory(gpus, 2, [subject])
    options = dbfs.BuildOptions(in_edges=True)
    needed = dbfs.estimate(dbfs.rmat(10, directed=True), 2, options, backend="cuda")
    with dbfs.load(subject.spec, client=gpus, ranks=2, in_edges=True, backend="cuda") as graph:
        partitions, rows = graph.nbytes, graph.stripe.n_local

    assert [use.when for use in (load, run, most)] == ["load", "run", "at most"]
    assert {(use.graph, use.order, use.exchange) for use in (load, run, most)} == {("rmat", "given", "shared_memory")}
    assert load.peak == load.resident == partitions
    # A distance and a predecessor for each row; the labels of the earlier traversal are released by then.
    labelled = tuple(nbytes + 8 * rows for nbytes in partitions)
    assert run.peak == run.resident == most.peak == labelled

    of_run = sum(needed.run.values())
    formed = needed.partition_bytes + of_run - 8 * rows
    assert load.resident_estimate == formed
    assert load.peak_estimate == max(formed, needed.partition_bytes + sum(needed.build.values()))
    assert run.peak_estimate == run.resident_estimate == needed.partition_bytes + of_run
    assert most.peak_estimate == needed.peak_bytes
    assert most.resident is None
    assert most.peak_percent == pytest.approx(100 * needed.peak_bytes / max(labelled))
    assert load.gap > 0
    assert samplers(gpus) == [0, 0]
    assert not dbfs.graphs(client=gpus)


@pytest.mark.full
def test_samplers_end_with_what_they_watch(gpus: distributed.Client) -> None:
    gang = Gang(gpus, roster(gpus, 2))
    with pytest.raises(RuntimeError, match="^the load failed$"), sampled(gang):
        assert samplers(gpus) == [1, 1]
        raise RuntimeError("the load failed")
    assert samplers(gpus) == [0, 0]
    with sampled(gang) as peaks:
        assert peaks == []
    assert [peak.nbytes for peak in peaks] == [ELSEWHERE, ELSEWHERE]


@pytest.mark.full
def test_a_sampler_that_does_not_start_is_the_error_and_leaves_no_other(
    gpus: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang = Gang(gpus, roster(gpus, 2))

    def start(dask_worker: distributed.Worker, last: str = gang.addresses[-1]) -> None:
        from dbfs_workers.search.cuda import sampler

        sampler.start(dask_worker)
        if dask_worker.address == last:
            sampler.stop(dask_worker)
            raise ValueError("no sampler on this one")

    monkeypatch.setattr(sampler, "start", start)
    with pytest.raises(ValueError, match="no sampler on this one"), sampled(gang):
        raise AssertionError("nothing is watched")
    assert samplers(gpus) == [0, 0]


@pytest.mark.full
def test_gpus_that_others_use_are_no_place_to_measure(
    gpus: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_SETTLED_SECONDS", 0.5)
    monkeypatch.setattr(memory, "_POLL_SECONDS", 0.01)

    def restless(dask_worker: distributed.Worker) -> int:
        dask_worker.looks = getattr(dask_worker, "looks", 0) + 1
        return int(dask_worker.looks)

    with pytest.raises(
        DeadlineExceededError, match="on these GPUs stays the same; another program may use them: not done after"
    ):
        memory._settled(Gang(gpus, roster(gpus, 2)), restless)


def test_subjects_are_the_graphs_of_the_rates_and_one_with_in_edges() -> None:
    assert {(s.spec, s.order) for s in SUBJECTS} == {(row.spec, row.order) for row in ROWS}
    assert len({(s.spec, s.order) for s in SUBJECTS}) == len(SUBJECTS) - 1
    assert [generate.parse(s.spec).directed for s in SUBJECTS if s.in_edges] == [True]


GIB = 2**30
USES = [
    use
    for graph, order in (("random.2Mv.128Me", "given"), ("rmat.2Mv.128Me in-edges", "degree"))
    for use in (
        MemoryUse(
            graph,
            order,
            "cuda_ipc",
            "load",
            3 * GIB,
            (2 * GIB, 3 * GIB),
            100.0,
            2 * GIB,
            (125 * GIB, 2 * GIB),
            1.6,
            gap=0.4,
        ),
        MemoryUse(graph, order, "cuda_ipc", "at most", GIB, (GIB // 2,), 200.0, None, None, None, gap=0.4),
    )
]


def test_the_table() -> None:
    console = Console(width=80, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115 - recorded, not written
    console.print(table("2 GPUs, abc", USES))
    lines = [" ".join(line.split()) for line in console.export_text(clear=False).splitlines()]
    assert lines[0] == "2 GPUs, abc"
    assert "random.2Mv.128Me given load 3.000 3.000 100.0 2.000 125.000 1.6" in lines
    assert "random.2Mv.128Me given at most 1.000 0.500 200.0" in lines
    # No cell is cut short.
    assert "…" not in console.export_text()
    assert any(line.startswith("rmat.2Mv.128Me degree") for line in lines)


@pytest.fixture
def without_gpus(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """No GPU: a stand-in for the measurement records its arguments and returns ``USES``."""
    asked: list[Any] = []

    def bench(client: object, gpus: int, subjects: list[Subject]) -> list[MemoryUse]:
        asked.extend([gpus, subjects])
        return USES

    monkeypatch.setattr("dbfs.cluster.local.visible_gpus", list)
    monkeypatch.setattr(memory, "bench_memory", bench)
    return asked


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["bench", "memory", *arguments])


def test_without_gpus_nothing_is_measured(without_gpus: list[Any], tmp_path: Path) -> None:
    for arguments, code, words in (
        (["--gpus", "2"], 1, "no local cluster on GPUs: there is no GPU"),
        (["--gpus", "0"], 2, "0 is not in the range x>=1"),
        (
            ["--graph", "web"],
            2,
            "--graph web: no graph's name contains this; the graphs are kronecker 24, kronecker 26,",
        ),
        (["--json", str(tmp_path / "no" / "x.json")], 2, f"there is no folder {tmp_path / 'no'}"),
    ):
        for benchmark in ("memory", "gpu"):
            answer = CliRunner().invoke(main, ["bench", benchmark, *arguments])
            assert answer.exit_code == code, answer.output
            assert words in answer.stderr
            assert "Traceback" not in answer.output
    assert without_gpus == []


def test_what_was_measured_is_printed_and_written(
    without_gpus: list[Any], tmp_path: Path, client: distributed.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[dict[str, Any]] = []

    def connect(**options: Any) -> Any:
        wanted.append(options)
        return distributed.Client(client.scheduler.address)

    monkeypatch.setattr(dbfs, "connect", connect)
    out = tmp_path / "memory.json"
    answer = invoke("--gpus", "2", "--graph", "kronecker", "--graph", "grid", "--memory-limit", "0", "--json", str(out))
    assert answer.exit_code == 0, answer.output
    assert wanted == [
        {"n_workers": 2, "backend": "cuda", "dashboard_address": None, "memory_limit": 0, "processes": True}
    ]
    asked, subjects = without_gpus
    assert asked == 2
    assert [s.graph for s in subjects] == ["kronecker 24"] * 2 + ["kronecker 26", "grid7pt.300", "grid5pt.5000"]
    assert "2 GPUs, " in answer.stdout
    saved = json.loads(out.read_text())
    assert saved["revision"]
    assert saved["gpus"] == 2
    as_json = json.loads(json.dumps([asdict(use) for use in USES]))
    assert saved["uses"] == as_json == json.loads(invoke("--json").stdout)["uses"]
