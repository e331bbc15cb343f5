import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dbfs.cli import main
from dbfs.cli.doctor import peers_table
from dbfs.cluster import doctor
from dbfs.cluster.doctor import CheckState, Finding, MachineReport, examine
from dbfs_workers.base.errors import ExchangeUnavailableError
from dbfs_workers.search.cuda import module, probe, source
from dbfs_workers.search.exchange.segment import Segment
from dbfs_workers.serving.reads.kernels.sources import BY_VERTEX

TWO_GPUS = probe.Driver(
    release="580.159.04",
    cuda=(13, 0),
    gpus=tuple(probe.Gpu(index, "NVIDIA H200", "sm_90", 141 << 30) for index in range(2)),
    peer_access=((False, True), (False, False)),
)


@pytest.fixture(autouse=True)
def few_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Compiling all takes seconds, and tests/search/cuda does."""
    monkeypatch.setattr(source, "sources", lambda: [BY_VERTEX])
    monkeypatch.setenv("DBFS_KERNEL_CACHE", str(tmp_path))


@pytest.fixture
def without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """No driver and none of the packages that need one, whatever this machine has."""
    monkeypatch.setattr(probe, "driver", lambda: None)
    monkeypatch.setattr(doctor, "_first_version", lambda names: None)


def by_name(report: MachineReport) -> dict[str, Finding]:
    return {finding.name: finding for finding in report.findings}


def test_without_a_gpu_the_rest_is_checked(without_gpus: None) -> None:
    report = examine()
    found = by_name(report)
    assert (report.gpus, report.peer_access, report.peer_bandwidth) == ((), (), ())
    assert found["GPUs"].found.removeprefix("none visible (CUDA_VISIBLE_DEVICES='')").removeprefix("none") == (
        ": fine for CPU. Not here, and needed for GPUs only: driver, CuPy, dask-cuda, NCCL, UCX."
        " For GPUs: NVIDIA's driver, 580 or newer for CUDA 13, and pip install '.[cu13]' in a clone of dbfs."
    )
    assert not found.keys() & {"driver", "CuPy", "dask-cuda", "NCCL", "UCX"}
    assert {found[name].state for name in ("packages", "GPUs", "shared memory", "CPU kernels")} == {CheckState.OK}
    assert all(finding.advice for finding in report.findings if finding.state is not CheckState.OK)
    assert not any("\n" in (finding.advice or "") for finding in report.findings)


def test_the_report_as_text(without_gpus: None) -> None:
    answer = CliRunner().invoke(main, ["doctor"])
    assert answer.exit_code == 0, answer.output
    words = " ".join(answer.stdout.split())
    assert ": fine for CPU. Not here" in words
    assert "pip install '.[cu13]' in a clone of dbfs" in words
    assert "missing" not in words


def test_the_report_as_json(without_gpus: None) -> None:
    answer = CliRunner().invoke(main, ["doctor", "--json"])
    assert answer.exit_code == 0, answer.output
    report = json.loads(answer.stdout)
    assert {"findings", "gpus", "peer_access", "peer_bandwidth"} == set(report)
    assert {"name", "state", "found", "advice"} == set(report["findings"][0])


def test_gpus_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "driver", lambda: TWO_GPUS)
    monkeypatch.setattr(doctor, "_first_version", lambda names: None)
    report = examine()
    found = by_name(report)
    assert found["driver"].found == "580.159.04, runs CUDA up to 13.0"
    assert found["GPUs"].found == "2: NVIDIA H200 (sm_90, 141.00 GiB), NVIDIA H200 (sm_90, 141.00 GiB)"
    advice = "for GPUs: pip install '.[cu13]' in a clone of dbfs"
    assert (found["peers"].state, found["peers"].advice) == (CheckState.MISSING, advice)
    assert list(peers_table(report).columns[2].cells) == ["not measured", ""]
    assert list(peers_table(report).columns[1].cells) == ["", "no access"]


def test_pairs_that_cannot_map_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "peer_bandwidth", lambda access: ((None, 310.0), (None, None)))
    rates, finding = doctor._peers(TWO_GPUS.peer_access)
    assert rates[0][1] == 310.0
    assert (finding.state, finding.found) == (CheckState.MISSING, "1 of 2 pairs of GPUs can't map each other")


def test_the_finding_on_peer_access(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "peer_bandwidth", lambda access: ((None, 310.4), (305.0, None)))
    _, finding = doctor._peers(((False, True), (True, False)))
    assert (finding.state, finding.found) == (CheckState.OK, "every GPU maps every other, 305 GB/s or more")


def test_an_older_driver_is_told_of_cuda_12(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "driver", lambda: probe.Driver("550.54.15", (12, 4), (), ()))
    monkeypatch.setattr(doctor, "_first_version", lambda names: None)
    found = by_name(examine())
    assert found["driver"].state is CheckState.OK
    assert "fine for CPU" in found["GPUs"].found
    assert "pip install '.[cu12]' in a clone of dbfs" in found["GPUs"].found


def test_a_driver_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise probe.DriverError("cuInit failed with code 999")

    monkeypatch.setattr(probe, "driver", broken)
    found = by_name(examine())
    assert (found["driver"].state, found["driver"].found) == (CheckState.FAILED, "cuInit failed with code 999")


def test_without_nvrtc(without_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    assert "NCCL, UCX, GPU kernels." in by_name(examine())["GPUs"].found
    monkeypatch.setattr(probe, "driver", lambda: TWO_GPUS)
    finding = by_name(examine())["GPU kernels"]
    assert finding.found.startswith("NVRTC, which compiles the kernels, is not installed or does not load: ")
    assert (finding.state, finding.advice) == (CheckState.MISSING, "for GPUs: pip install '.[cu13]' in a clone of dbfs")


def test_without_shared_memory(without_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(stripe: object, record: int, graph_id: str) -> None:
        raise ExchangeUnavailableError("shared memory between workers needs Linux")

    monkeypatch.setattr(Segment, "create", refuse)
    finding = by_name(examine())["shared memory"]
    assert finding.state is CheckState.FAILED
    assert finding.found == "ExchangeUnavailableError: shared memory between workers needs Linux"


def test_a_process_that_may_not_open_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_ATTACH", "raise PermissionError(13, 'Permission denied')")
    finding = doctor._shared_memory()
    assert finding.state is CheckState.FAILED
    assert finding.found == "PermissionError: [Errno 13] Permission denied"


class FakeCuda:
    """``libcuda`` with two H200, of which only the first can map the other."""

    def __init__(self, started: int = 0) -> None:
        self.started = started

    def __getattr__(self, name: str) -> Callable[..., int]:
        def function(*arguments: Any) -> int:
            if name == "cuInit":
                return self.started
            if name == "cuDeviceGetName":
                arguments[0].value = b"NVIDIA H200"
                return 0
            answers = {
                "cuDriverGetVersion": lambda: 13000,
                "cuDeviceGetCount": lambda: 2,
                "cuDeviceGet": lambda index: index + 10,
                "cuDeviceTotalMem_v2": lambda device: 141 << 30,
                "cuDeviceGetAttribute": lambda attribute, device: {75: 9, 76: 0}[attribute],
                "cuDeviceCanAccessPeer": lambda one, other: int(one == 10),
            }
            arguments[0]._obj.value = answers[name](*arguments[1:])
            return 0

        function.__name__ = name
        return function


@pytest.fixture
def release_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "version"
    path.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version: 13\n"
    )
    monkeypatch.setattr(probe, "RELEASE_FILE", path)


def test_the_driver_is_asked(monkeypatch: pytest.MonkeyPatch, release_file: None) -> None:
    monkeypatch.setattr(probe.ctypes, "CDLL", lambda name: FakeCuda())
    assert probe.driver() == TWO_GPUS


def test_a_driver_without_devices(monkeypatch: pytest.MonkeyPatch, release_file: None) -> None:
    monkeypatch.setattr(probe.ctypes, "CDLL", lambda name: FakeCuda(started=100))
    assert probe.driver() == probe.Driver("580.159.04", (13, 0), (), ())


def test_a_driver_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe.ctypes, "CDLL", lambda name: FakeCuda(started=999))
    with pytest.raises(probe.DriverError, match="cuInit failed with code 999"):
        probe.driver()


def test_no_driver() -> None:
    assert probe.driver("libno-such-driver.so") is None


@pytest.mark.gpu
def test_this_machines_gpus() -> None:
    driver = probe.driver()
    assert driver is not None
    found = by_name(examine())
    assert found["GPUs"].state is CheckState.OK
    assert found["CuPy"].state is CheckState.OK
    if len(driver.gpus) > 1 and all(sum(row) == len(row) - 1 for row in driver.peer_access):
        assert found["peers"].state is CheckState.OK


def test_without_a_dashboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    found = doctor._dashboard()
    assert (found.state, found.found) == (doctor.CheckState.MISSING, "not installed: prometheus_client")
    assert found.advice is not None
    assert "'.[dashboard]'" in found.advice


def test_nothing_is_compiled_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(probe, "driver", lambda: TWO_GPUS)
    monkeypatch.setattr(doctor, "warm_up", refuse)
    monkeypatch.setattr(module, "compile_cubin", refuse)
    monkeypatch.setattr(doctor, "kept_kernels", lambda: (3, 200))
    found = by_name(examine())
    later = "; the others when they are needed, or by dbfs doctor --compile"
    assert found["CPU kernels"].found == f"3 of 200 compiled{later}"
    assert found["GPU kernels, sm_90"].found.startswith("0 of 1 compiled, NVRTC ")
    assert found["GPU kernels, sm_90"].found.endswith(later)
    monkeypatch.setattr(doctor, "kept_kernels", lambda: (200, 200))
    assert by_name(examine())["CPU kernels"].found == "200 of 200 compiled"


@pytest.mark.full
def test_kernels_are_compiled_when_asked(without_gpus: None, tmp_path: Path) -> None:
    words = " ".join(CliRunner().invoke(main, ["doctor", "--compile"]).stdout.split())
    assert "1 compile, NVRTC" in words and "of them compiled now" in words
    assert [path.suffix for path in tmp_path.iterdir() if path.suffix != ".lock"] == [".cubin"]
    refused = CliRunner().invoke(main, ["doctor", "--compile", "--scheduler", "tcp://127.0.0.1:1"])
    assert refused.exit_code == 2 and "--compile is for this machine" in refused.output
